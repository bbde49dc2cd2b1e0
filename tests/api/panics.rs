//! A panic anywhere in the work of a request: it still leaves its decision (promise: recorded).
//!
//! The ports between edge and store have a fuse: one call of them panics, and so does the code that made it. The tests
//! cover every call that a request makes.

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use async_trait::async_trait;
use gavel::adapters::store::{Store, StoreConfig};
use gavel::domain::definition::{self, Constitution, Form, Source, check};
use gavel::domain::ids::{InstanceId, TenantId, UserId};
use gavel::domain::journal::ModelTurn;
use gavel::engine::Engine;
use gavel::engine::agent::{self, Agents, Models};
use gavel::http::caller::Auth;
use gavel::http::{Edge, EdgeLimits, ServerSettings};
use gavel::ports::BoxFuture;
use gavel::ports::clock::{Clock, SystemClock};
use gavel::ports::model::{Model, ModelEvent, ModelFault, ModelRequest};
use gavel::ports::quota::{Quota, QuotaState};
use gavel::ports::runs::{MOST_TAKES, Runs, Turn};
use gavel::ports::tools::{CallReply, CallRequest, Catalog, Tools};
use gavel::surfaces::agents::DeclaredAgents;
use gavel::surfaces::approvals::Approvals;
use gavel::surfaces::chat::Chat;
use gavel::surfaces::decisions::DecisionQueries;
use gavel::surfaces::definitions::{Directory, FileAgents};
use gavel::surfaces::exports::Exporter;
use gavel::surfaces::planning::Planning;
use gavel::surfaces::runs::{self, AtOnce};
use gavel::surfaces::sessions::Sessions;
use gavel::surfaces::stats::StatsQueries;
use gavel::surfaces::threads::{OnReject, ThreadSettings, Threads, WhileBusy};
use serde_json::{Value, json};

use crate::fakes::{Around, Fixed, NoServers, OneTool, Scripted, planning_settings};
use crate::harness::{Database, client, until};
use crate::postgres;

/// Panics once, at the call that it is set to. Calls are counted from the first one of the quota, the first port that a
/// request uses once it has its id.
#[derive(Default)]
struct Fuse {
    touches: AtomicUsize,
    blows_at: AtomicUsize,
}

impl Fuse {
    fn set(&self, blows_at: usize) {
        self.touches.store(0, Ordering::SeqCst);
        self.blows_at.store(blows_at, Ordering::SeqCst);
    }

    fn first(&self) {
        self.touches.store(1, Ordering::SeqCst);
        self.blow(1);
    }

    fn touch(&self) {
        if self.touches.load(Ordering::SeqCst) > 0 {
            self.blow(self.touches.fetch_add(1, Ordering::SeqCst) + 1);
        }
    }

    fn blow(&self, touch: usize) {
        assert_ne!(touch, self.blows_at.load(Ordering::SeqCst), "the fuse of this test");
    }
}

/// A port behind the fuse.
struct Fused<T>(Arc<Fuse>, T);

#[async_trait]
impl Quota for Fused<Fixed> {
    async fn take(&self, tenant: &TenantId, user: &UserId) -> QuotaState {
        self.0.first();
        self.1.take(tenant, user).await
    }
}

impl Tools for Fused<OneTool> {
    fn catalog(&self) -> Arc<Catalog> {
        self.0.touch();
        self.1.catalog()
    }
    fn ready<'a>(&'a self, names: &'a [String], deadline: Instant) -> BoxFuture<'a, ()> {
        self.0.touch();
        self.1.ready(names, deadline)
    }
    fn refresh_server<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<(), String>> {
        Box::pin(async { Ok(()) })
    }

    fn call<'a>(&'a self, request: CallRequest<'a>) -> BoxFuture<'a, CallReply> {
        self.0.touch();
        self.1.call(request)
    }
}

impl Clock for Fused<SystemClock> {
    fn now_us(&self) -> i64 {
        self.0.touch();
        self.1.now_us()
    }
    fn instant(&self) -> Instant {
        self.0.touch();
        self.1.instant()
    }
}

/// Calls a tool if it is asked to, and then ends with text about the result.
impl Model for Fused<Scripted> {
    fn generate<'a>(
        &'a self,
        request: ModelRequest<'a>,
        events: Option<&'a mut (dyn FnMut(ModelEvent<'_>) + Send)>,
    ) -> BoxFuture<'a, Result<ModelTurn, ModelFault>> {
        self.0.touch();
        self.1.generate(request, events)
    }
    fn default_model(&self) -> &str {
        self.1.default_model()
    }
}

struct Served {
    url: String,
    fuse: Arc<Fuse>,
    store: Arc<Store>,
    client: reqwest::Client,
    task: tokio::task::JoinHandle<std::io::Result<()>>,
    _scratch: tempfile::TempDir,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// An agent that may call the tool.
fn agents() -> definition::Agents {
    let text = "---\nname: helper\ndescription: Helps.\napproval: never\ntools: [add_task]\n---\n\nHelp.\n";
    let source = Source {
        file: "agents/helper.md".to_owned(),
        form: Form::Markdown,
        bytes: text.as_bytes().to_vec(),
    };
    let checked = check(&[source], &[]);
    assert!(checked.errors.is_empty(), "{:?}", checked.errors);
    checked.agents
}

async fn serve(database: Database) -> Served {
    let scratch = tempfile::tempdir().unwrap();
    let url = match database {
        Database::Sqlite => format!("sqlite://{}", scratch.path().join("gavel.db").display()),
        Database::Postgres => postgres::database().await,
    };
    let store = Store::open(StoreConfig::new(url, InstanceId::new())).await.unwrap();
    let fuse = Arc::new(Fuse::default());
    let behind = || Arc::clone(&fuse);
    let model = Scripted {
        asked: Default::default(),
        hold: None,
    };
    let engine = Engine {
        model: Arc::new(Fused(behind(), model)),
        tools: Arc::new(Fused(behind(), OneTool::new())),
        recorder: store.clone(),
        clock: Arc::new(Fused(behind(), SystemClock)),
        policy: Arc::default(),
        prices: Arc::default(),
        checks: Arc::default(),
    };
    let quota = QuotaState {
        allowed: true,
        limit: 60,
        window_s: 60,
        remaining: 59,
        reset_s: 1,
    };
    let engine_agents = Arc::new(Agents {
        engine: engine.clone(),
        models: Models::default(),
        runs: store.clone(),
        actions: store.clone(),
        approvals_expire: Duration::from_secs(24 * 3600),
        running: agent::Running::default(),
    });
    let files = FileAgents {
        agents: agents(),
        ..FileAgents::default()
    };
    let files = Arc::new(ArcSwap::from_pointee(files));
    let directory = Directory::new(files, store.clone(), engine.tools.clone(), Models::default());
    let directory = Arc::new(directory);
    let at_once = AtOnce {
        waited_for: 8,
        background: 8,
    };
    let runs = runs::Runs::new(engine_agents, Arc::new(Fused(behind(), Fixed(quota))), at_once);
    let constitution = Constitution::from_markdown(Constitution::BUILT_IN, "constitution.md").unwrap();
    let decisions = DecisionQueries::new(store.clone(), directory.clone(), Some(constitution.definition.clone()));
    let chat = Chat::new(engine, Arc::new(Fused(behind(), Fixed(quota))), constitution, 8);
    let settings = ThreadSettings {
        agent: "workspace".to_owned(),
        while_busy: WhileBusy::Refuse,
        on_reject: OnReject::Continue,
    };
    let threads = Threads::new(runs.clone(), directory.clone(), store.clone(), settings);
    let approvals = Approvals::new(
        runs.clone(),
        directory.clone(),
        store.clone(),
        store.clone(),
        store.clone(),
    );
    let sessions = Sessions::new(
        store.clone(),
        Arc::new(SystemClock),
        Duration::from_secs(60),
        Duration::from_secs(60),
    );
    let planning = Planning::new(
        runs.clone(),
        directory.clone(),
        store.clone(),
        Arc::new(NoServers),
        planning_settings(),
    );
    let edge = Edge {
        chat,
        planning: Arc::new(planning),
        agents: Arc::new(DeclaredAgents::new(runs.clone(), directory.clone())),
        directory,
        runs,
        threads: Arc::new(threads),
        approvals: Arc::new(approvals),
        sessions: Arc::new(sessions),
        decisions,
        stats: StatsQueries::new(store.clone(), Arc::new(SystemClock)),
        exports: Exporter::new(store.clone()),
        auth: Auth::none(),
        surroundings: Arc::new(Around),
        google: None,
        limits: EdgeLimits::default(),
    };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let settings = ServerSettings {
        workers: 1.try_into().ok(),
        drain: Duration::from_secs(5),
    };
    Served {
        url: format!("http://{address}"),
        fuse,
        store,
        client: client(),
        task: tokio::spawn(gavel::http::server(edge, listener, settings).unwrap()),
        _scratch: scratch,
    }
}

impl Served {
    async fn post(&self, message: &str, key: Option<&str>) -> (u16, Value) {
        let mut request = self.client.post(format!("{}/v1/chat", self.url));
        if let Some(key) = key {
            request = request.header("idempotency-key", key);
        }
        let body = json!({"message": message, "user_id": "ann"});
        let answer = request.json(&body).send().await.unwrap();
        (answer.status().as_u16(), answer.json().await.unwrap())
    }

    async fn trigger(&self, query: &str) -> (u16, Value) {
        let path = format!("{}/api/projects/default/agents/helper/trigger", self.url);
        let answer = self.client.post(path).json(&json!({"query": query})).send();
        let answer = answer.await.unwrap();
        (answer.status().as_u16(), answer.json().await.unwrap())
    }

    async fn list(&self, what: &str) -> Vec<Value> {
        let answer = client().get(format!("{}/v1/{what}?page_size=1000", self.url)).send();
        let page: Value = answer.await.unwrap().json().await.unwrap();
        page[what.replace('-', "_")].as_array().unwrap().clone()
    }

    /// Sends the message repeatedly, with a panic at the next port call each time, until none is left. Returns how each
    /// request ended.
    async fn blow_at_every_touch(&self, message: &str, keyed: bool) -> Vec<String> {
        let mut ends = Vec::new();
        for touch in 1.. {
            assert!(touch < 100, "does a request make so many port calls? {ends:?}");
            let before = self.list("decisions").await.len();
            self.fuse.set(touch);
            let key = format!("{}-{touch}", message.replace(' ', "-"));
            let key = keyed.then_some(key.as_str());
            let (status, body) = self.post(message, key).await;
            let whole = self.fuse.touches.load(Ordering::SeqCst) < touch;
            // Exactly one row, closed with the same result that the caller received.
            let closed = || async {
                let rows = self.list("decisions").await;
                rows.len() == before + 1 && rows[0]["status"] == "closed"
            };
            until("one closed row", closed).await;
            let row = self.list("decisions").await[0].clone();
            let id = if status == 200 {
                &body["decision_id"]
            } else {
                &row["decision_id"]
            };
            assert_eq!(&row["decision_id"], id, "touch {touch}: {body}");
            let outcome = row["outcome_category"].as_str().unwrap().to_owned();
            if whole {
                assert_eq!((status, outcome.starts_with("SUCCESS:")), (200, true), "{body}");
                return ends;
            }
            match status {
                200 => {
                    assert_eq!(body["outcome_category"], outcome, "touch {touch}: {body}");
                    assert_eq!(body["response"], row["response"], "touch {touch}");
                }
                _ => {
                    assert_eq!((status, &body["code"]), (500, &json!("outcome_unrecorded")), "{body}");
                    let reported = body["detail"].as_str().unwrap();
                    assert!(reported.contains(row["decision_id"].as_str().unwrap()), "{reported}");
                }
            }
            assert!(!body.to_string().contains("fuse"), "{body}");
            if key.is_some() && status == 200 {
                let again = self.post(message, key).await;
                assert_eq!(again, (200, body), "touch {touch}: a second run");
            }
            ends.push(format!("{status} {outcome}"));
        }
        unreachable!("the loop ends by itself")
    }
}

/// a run that panics has failed when its caller is answered. Its decision is closed, no worker claims it, and the
/// service continues.
async fn a_panic_anywhere_in_a_run_ends_it(database: Database) {
    let served = serve(database).await;
    for query in ["hi", "call the tool"] {
        let mut ends = Vec::new();
        for touch in 1.. {
            assert!(touch < 200, "does a run make so many port calls? {ends:?}");
            let before = served.list("decisions").await.len();
            served.fuse.set(touch);
            let (status, body) = served.trigger(query).await;
            let whole = served.fuse.touches.load(Ordering::SeqCst) < touch;
            let rows = served.list("decisions").await;
            assert_eq!(rows.len(), before + 1, "touch {touch}: {body}");
            let row = &rows[0];
            assert_eq!(row["status"], "closed", "touch {touch}: {body} {row}");
            if whole {
                assert_eq!((status, &body["status"]), (200, &json!("completed")), "{body}");
                break;
            }
            assert!(!body.to_string().contains("fuse"), "{body}");
            // The lease timer reads the clock when the run first waits. On PostgreSQL that may be while its end is
            // written: the panic then hits a run that has ended.
            if (status, &body["status"]) == (200, &json!("completed")) {
                assert_eq!(
                    row["outcome_category"].as_str().unwrap().split(':').next(),
                    Some("SUCCESS"),
                    "{row}"
                );
                ends.push(status);
                continue;
            }
            assert_eq!(row["outcome_category"], "ERROR:INTERNAL", "touch {touch}: {body} {row}");
            let id = row["decision_id"].as_str().unwrap();
            if status == 200 {
                assert_eq!((&body["id"], &body["status"]), (&json!(id), &json!("failed")), "{body}");
                assert_eq!(
                    body["error_message"], "Something went wrong on our side while it ran.",
                    "{body}"
                );
            } else {
                assert_eq!((status, &body["code"]), (500, &json!("outcome_unrecorded")), "{body}");
                assert!(body["detail"].as_str().unwrap().contains(id), "{body}");
            }
            ends.push(status);
        }
        // In the quota, and when the clock is read for the start of the lease, there is no run yet.
        let none_yet = ends.iter().take_while(|end| **end == 500).count();
        assert!((1..=2).contains(&none_yet), "{ends:?}");
        assert!(
            ends.len() >= 8 && ends[none_yet..].iter().all(|end| *end == 200),
            "{ends:?}"
        );
    }
    let waiting = served.store.waiting(Turn::Tenant(""), MOST_TAKES).await.unwrap();
    assert_eq!(waiting, None);
    let calls = served.list("tool-invocations").await;
    for ended in ["completed", "in_doubt"] {
        assert!(calls.iter().any(|call| call["status"] == ended), "{calls:?}");
    }
    let open = calls.iter().find(|call| call["status"] == "started");
    assert_eq!(open, None, "a call without a final state");
    served.store.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_sqlite_a_panic_anywhere_in_a_run_ends_it() {
    a_panic_anywhere_in_a_run_ends_it(Database::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_postgres_a_panic_anywhere_in_a_run_ends_it() {
    a_panic_anywhere_in_a_run_ends_it(Database::Postgres).await;
}

async fn a_panic_anywhere_leaves_one_row_and_an_answer(database: Database) {
    let served = serve(database).await;
    for keyed in [false, true] {
        // Nothing is done, so the caller gets a decision wherever the panic was: in the quota, in the tool catalog, in
        // the run, or after it.
        let ends = served.blow_at_every_touch("hi", keyed).await;
        assert!(ends.len() >= 5, "{ends:?}");
        assert!(ends.iter().all(|end| end == "200 ERROR:INTERNAL"), "{ends:?}");
        assert_eq!(served.list("tool-invocations").await.len(), 0);
    }
    // After an effect and a panic outside of the run, only the log shows what was done.
    let ends = served.blow_at_every_touch("call the tool", false).await;
    let unrecorded = ends.iter().filter(|end| *end == "500 ERROR:INTERNAL").count();
    let decided = ends.iter().filter(|end| *end == "200 ERROR:INTERNAL").count();
    assert!(unrecorded > 0 && decided >= 5, "{ends:?}");
    assert_eq!(unrecorded + decided, ends.len(), "{ends:?}");
    let calls = served.list("tool-invocations").await;
    let done = calls.iter().filter(|call| call["status"] == "completed").count();
    assert!(done > 0, "{calls:?}");
    let open = calls.iter().find(|call| call["status"] == "started");
    assert_eq!(open, None, "a call without a final state");
    served.store.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_sqlite_a_panic_anywhere_leaves_one_row_and_an_answer() {
    a_panic_anywhere_leaves_one_row_and_an_answer(Database::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_postgres_a_panic_anywhere_leaves_one_row_and_an_answer() {
    a_panic_anywhere_leaves_one_row_and_an_answer(Database::Postgres).await;
}
