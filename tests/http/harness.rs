//! A served edge, and clients of it.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

use actix_web::dev::ServerHandle;
use gavel::adapters::store::{Store, StoreConfig};
use gavel::domain::definition::Constitution;
use gavel::domain::ids::InstanceId;
use gavel::engine::Engine;
use gavel::engine::agent::{self, Agents, Models};
use gavel::http::caller::Auth;
use gavel::http::{Edge, EdgeLimits, ServerSettings};
use gavel::ports::clock::SystemClock;
use gavel::ports::model::Model;
use gavel::ports::quota::QuotaState;
use gavel::surfaces::agents::DeclaredAgents;
use gavel::surfaces::approvals::Approvals;
use gavel::surfaces::chat::Chat;
use gavel::surfaces::decisions::DecisionQueries;
use gavel::surfaces::definitions::Directory;
use gavel::surfaces::exports::Exporter;
use gavel::surfaces::planning::Planning;
use gavel::surfaces::runs::{AtOnce, Runs};
use gavel::surfaces::sessions::Sessions;
use gavel::surfaces::stats::StatsQueries;
use gavel::surfaces::threads::{OnReject, ThreadSettings, Threads, WhileBusy};
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use crate::fakes::{Around, Failing, Fixed, NoAccounts, NoServers, OneTool, Record, Scripted, planning_settings};

/// The maximum duration of a response in these tests.
pub const PATIENCE: Duration = Duration::from_secs(20);

pub const QUOTA: QuotaState = QuotaState {
    allowed: true,
    limit: 60,
    window_s: 60,
    remaining: 19,
    reset_s: 3,
};

/// The parts of an edge.
pub struct Setup {
    pub auth: Auth,
    pub limits: EdgeLimits,
    pub quota: QuotaState,
    pub max_in_flight: usize,
    pub hold: Option<Arc<Semaphore>>,
    pub model_fails: bool,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            auth: Auth::none(),
            limits: EdgeLimits::default(),
            quota: QUOTA,
            max_in_flight: 64,
            hold: None,
            model_fails: false,
        }
    }
}

/// A served edge. Dropping it ends the server.
pub struct Running {
    pub address: SocketAddr,
    pub url: String,
    pub record: Arc<Record>,
    pub model: Arc<Scripted>,
    pub client: reqwest::Client,
    pub handle: ServerHandle,
    task: JoinHandle<std::io::Result<()>>,
    _scratch: TempDir,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

pub async fn serve(setup: Setup) -> Running {
    let record = Arc::new(Record::default());
    let model = Arc::new(Scripted {
        asked: AtomicU32::new(0),
        hold: setup.hold,
    });
    let asked: Arc<dyn Model> = if setup.model_fails {
        Arc::new(Failing)
    } else {
        model.clone()
    };
    let engine = Engine {
        model: asked,
        tools: Arc::new(OneTool::new()),
        recorder: record.clone(),
        clock: Arc::new(SystemClock),
        policy: Arc::default(),
        prices: Arc::default(),
        checks: Arc::default(),
    };
    let constitution = Constitution::from_markdown(Constitution::BUILT_IN, "constitution.md").unwrap();
    let quota = Arc::new(Fixed(setup.quota));
    let (runs, kept, scratch) = runs(&engine, quota.clone()).await;
    let directory = Directory::new(Arc::default(), kept.clone(), engine.tools.clone(), Models::default());
    let directory = Arc::new(directory);
    let settings = ThreadSettings {
        agent: "workspace".to_owned(),
        while_busy: WhileBusy::Refuse,
        on_reject: OnReject::Continue,
    };
    let threads = Threads::new(runs.clone(), directory.clone(), kept.clone(), settings);
    let planning = Planning::new(
        runs.clone(),
        directory.clone(),
        kept.clone(),
        Arc::new(NoServers),
        planning_settings(),
    );
    let sessions = Sessions::new(
        kept.clone(),
        Arc::new(SystemClock),
        Duration::from_secs(60),
        Duration::from_secs(60),
    );
    let approvals = Approvals::new(runs.clone(), directory.clone(), kept.clone(), kept, record.clone());
    let decisions = DecisionQueries::new(record.clone(), directory.clone(), Some(constitution.definition.clone()));
    let chat = Chat::new(engine, quota, constitution, setup.max_in_flight);
    let edge = Edge {
        chat,
        agents: Arc::new(DeclaredAgents::new(runs.clone(), directory.clone())),
        directory,
        runs,
        threads: Arc::new(threads),
        planning: Arc::new(planning),
        approvals: Arc::new(approvals),
        sessions: Arc::new(sessions),
        decisions,
        stats: StatsQueries::new(record.clone(), Arc::new(SystemClock)),
        exports: Exporter::new(record.clone()),
        auth: setup.auth,
        surroundings: Arc::new(Around),
        google: Some(Arc::new(NoAccounts)),
        limits: setup.limits,
    };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let settings = ServerSettings {
        workers: 1.try_into().ok(),
        drain: Duration::from_secs(5),
    };
    let server = gavel::http::server(edge, listener, settings).unwrap();
    let handle = server.handle();
    let task = tokio::spawn(server);
    let client = client(|builder| builder);
    Running {
        address,
        url: format!("http://{address}"),
        record,
        model,
        client,
        handle,
        task,
        _scratch: scratch,
    }
}

/// Runs need a store; there are no agents.
async fn runs(engine: &Engine, quota: Arc<Fixed>) -> (Arc<Runs>, Arc<Store>, TempDir) {
    let scratch = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", scratch.path().join("runs.db").display());
    let store = Store::open(StoreConfig::new(url, InstanceId::new())).await.unwrap();
    let agents = Arc::new(Agents {
        engine: engine.clone(),
        models: Models::default(),
        runs: store.clone(),
        actions: store.clone(),
        approvals_expire: Duration::from_secs(24 * 3600),
        running: agent::Running::default(),
    });
    let at_once = AtOnce {
        waited_for: 8,
        background: 8,
    };
    (Runs::new(agents, quota, at_once), store, scratch)
}

pub fn client(change: impl FnOnce(reqwest::ClientBuilder) -> reqwest::ClientBuilder) -> reqwest::Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let builder = reqwest::Client::builder()
        .no_proxy()
        // A debug build takes long to load those of the machine.
        .tls_certs_only([])
        .timeout(PATIENCE)
        .redirect(reqwest::redirect::Policy::none());
    change(builder).build().unwrap()
}

/// A response, read completely.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: reqwest::header::HeaderMap,
    pub text: String,
}

impl Answer {
    pub async fn of(response: reqwest::Response) -> Self {
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        Self {
            status,
            headers,
            text: response.text().await.unwrap(),
        }
    }
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }
    /// A complete problem with this status and code.
    pub fn problem(&self, status: u16, code: &str) -> Value {
        let problem = self.json();
        assert_eq!(
            (self.status, &problem["code"]),
            (status, &Value::from(code)),
            "{}",
            self.text
        );
        assert_eq!(self.header("content-type"), "application/problem+json");
        assert_eq!(problem["status"], status);
        // Routes below `/api/agent` spell names in camelCase.
        let id = problem.get("request_id").or_else(|| problem.get("requestId"));
        assert_eq!(id.and_then(Value::as_str), Some(self.header("x-request-id")));
        for field in ["type", "title", "detail"] {
            assert!(
                problem[field].as_str().is_some_and(|text| !text.is_empty()),
                "{field}: {}",
                self.text
            );
        }
        problem
    }
}

pub const HI: &str = r#"{"message":"hi","user_id":"ann"}"#;
pub const ADD: &str = r#"{"message":"call the tool","user_id":"ann"}"#;

impl Running {
    pub fn request(&self, method: reqwest::Method, path: &str) -> reqwest::RequestBuilder {
        self.client.request(method, format!("{}{path}", self.url))
    }
    pub async fn get(&self, path: &str) -> Answer {
        Answer::of(self.request(reqwest::Method::GET, path).send().await.unwrap()).await
    }
    pub fn chat(&self, path: &str, body: impl Into<reqwest::Body>) -> reqwest::RequestBuilder {
        self.request(reqwest::Method::POST, path)
            .header("content-type", "application/json")
            .body(body)
    }
    pub async fn post(&self, body: impl Into<reqwest::Body>) -> Answer {
        Answer::of(self.chat("/v1/chat", body).send().await.unwrap()).await
    }
    pub async fn post_with(&self, headers: &[(&str, &str)], body: &'static str) -> Answer {
        let request = headers
            .iter()
            .fold(self.chat("/v1/chat", body), |request, (name, value)| {
                request.header(*name, *value)
            });
        Answer::of(request.send().await.unwrap()).await
    }
    /// Every route in the OpenAPI document: method, and path with values for its parameters.
    pub async fn routes(&self) -> Vec<(reqwest::Method, String)> {
        let api = self.get("/openapi.json").await.json();
        let mut routes = Vec::new();
        for (path, methods) in api["paths"].as_object().unwrap() {
            let parts = path.split('/').map(|part| match part {
                "{project}" => "default",
                "{id}" => "018f0000-0000-7000-8000-000000000000",
                "{version}" => "1",
                part if part.starts_with('{') => "some",
                part => part,
            });
            let path = parts.collect::<Vec<_>>().join("/");
            for method in methods.as_object().unwrap().keys() {
                routes.push((method.to_uppercase().parse().unwrap(), path.clone()));
            }
        }
        routes
    }
    pub async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }
    /// Sends raw bytes, and reads until the server closes the connection.
    pub async fn raw(&self, bytes: &[u8]) -> String {
        let mut stream = self.connect().await;
        stream.write_all(bytes).await.unwrap();
        read_to_end(&mut stream).await
    }
}

/// Reads until the server closes the connection; fails the test if it does not.
pub async fn read_to_end(stream: &mut TcpStream) -> String {
    let mut read = Vec::new();
    let end = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut read)).await;
    let closed = end.expect("the server keeps the connection open");
    // A reset after the response is an end as well.
    drop(closed);
    String::from_utf8_lossy(&read).into_owned()
}

pub async fn until(what: &str, condition: impl Fn() -> bool) {
    for _ in 0..2000 {
        if condition() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("timed out waiting for {what}");
}
