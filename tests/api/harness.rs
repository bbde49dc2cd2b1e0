//! `spawn_app()`: the real server on a real port with a real database and the real tasks server.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use gavel::app::{App as Service, Serving};
use gavel::config::{Config, Sources};
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Connection, PgConnection, SqliteConnection};
use tempfile::TempDir;

use crate::gemini::{Gemini, Reply};
use crate::postgres;
pub(crate) use crate::postgres::free_port;

/// The transport of the tasks server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    Stdio,
    Http,
}

/// The kind of both databases: gavel's, and that of the tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Database {
    Sqlite,
    Postgres,
}

/// The parts of an app.
#[derive(Clone)]
pub struct Setup {
    transport: Transport,
    database: Database,
    script: Vec<Reply>,
    env: Vec<(String, String)>,
    toml: String,
    mcp: Option<Value>,
    beside: Vec<(String, Value)>,
    /// The settings of the tasks server's tools.
    tools: Value,
    constitution: Option<String>,
    agents: Vec<(String, String)>,
}

const SECRET: &str = "test-secret-test-secret-test-secret!";

impl Setup {
    fn of(transport: Transport, database: Database) -> Self {
        Self {
            transport,
            database,
            script: vec![Reply::Text("Hello.")],
            env: Vec::new(),
            toml: String::new(),
            mcp: None,
            beside: Vec::new(),
            tools: json!({}),
            constitution: None,
            agents: Vec::new(),
        }
    }
    pub fn stdio_sqlite() -> Self {
        Self::of(Transport::Stdio, Database::Sqlite)
    }
    pub fn http_sqlite() -> Self {
        Self::of(Transport::Http, Database::Sqlite)
    }
    pub fn stdio_postgres() -> Self {
        Self::of(Transport::Stdio, Database::Postgres)
    }
    pub fn http_postgres() -> Self {
        Self::of(Transport::Http, Database::Postgres)
    }
    /// The answers of Gemini, in order.
    pub fn script(mut self, script: Vec<Reply>) -> Self {
        self.script = script;
        self
    }
    pub fn env(mut self, name: &str, value: impl Into<String>) -> Self {
        self.env.push((name.to_owned(), value.into()));
        self
    }
    /// Adds lines to `gavel.toml`.
    pub fn toml(mut self, lines: &str) -> Self {
        self.toml.push_str(lines);
        self.toml.push('\n');
        self
    }
    /// Replaces `mcp.json`.
    pub fn mcp(mut self, config: Value) -> Self {
        self.mcp = Some(config);
        self
    }
    /// Adds a server to `mcp.json`.
    pub fn beside(mut self, name: &str, entry: Value) -> Self {
        self.beside.push((name.to_owned(), entry));
        self
    }
    /// Settings of a tool of the tasks server.
    pub fn tool(mut self, name: &str, settings: Value) -> Self {
        self.tools[name] = settings;
        self
    }
    /// A constitution that grants only these tools, with this time limit for a message.
    pub fn grant(self, tools: &[&str], deadline_seconds: u32) -> Self {
        self.constitution(&format!(
            "---\nname: tester\ndescription: Calls the requested tools.\ntools: {tools:?}\n\
             run_config:\n  deadline_seconds: {deadline_seconds}\napproval: never\n---\n\nCall the tools.\n"
        ))
    }
    pub fn constitution(mut self, text: &str) -> Self {
        self.constitution = Some(text.to_owned());
        self
    }
    /// Adds a file to the directory of agents. Without any, the directory is the repository's own.
    pub fn agent(mut self, file: &str, text: &str) -> Self {
        self.agents.push((file.to_owned(), text.to_owned()));
        self
    }
    pub fn rate(self, per_minute: u32, burst: u32) -> Self {
        self.env("GAVEL_RATE_LIMIT_PER_MINUTE", per_minute.to_string())
            .env("GAVEL_RATE_LIMIT_BURST", burst.to_string())
    }
}

/// A response: status, headers, body as JSON, or as text if it is not JSON.
pub struct Answer {
    pub status: u16,
    pub headers: reqwest::header::HeaderMap,
    pub body: Value,
}

impl Answer {
    pub async fn of(request: reqwest::RequestBuilder) -> Self {
        let response = request.send().await.unwrap();
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let text = response.text().await.unwrap();
        let body = serde_json::from_str(&text).unwrap_or(Value::String(text));
        Self { status, headers, body }
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// The body of a response with this status.
    #[track_caller]
    pub fn expect(self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.body);
        self.body
    }

    /// A problem with this status and code.
    #[track_caller]
    pub fn problem(self, status: u16, code: &str) -> Value {
        assert_eq!(
            (self.status, &self.body["code"]),
            (status, &json!(code)),
            "{}",
            self.body
        );
        assert_eq!(self.headers["content-type"], "application/problem+json");
        self.body
    }
}

/// A running app. Dropping it ends its processes.
pub struct App {
    pub url: String,
    pub gemini: Gemini,
    pub directory: TempDir,
    pub database_url: String,
    /// The database of the tasks server.
    tasks_url: String,
    client: reqwest::Client,
    service: Option<(Service, Serving)>,
    _tasks: Option<Ended>,
}

/// A task as the tasks server stores it.
#[derive(Debug)]
pub struct Task {
    pub id: String,
    pub description: String,
    pub done: bool,
}

/// All tasks in the tasks server's database, of all users, in the order of their names.
pub async fn tasks_in(url: &str) -> Vec<Task> {
    const ALL: &str = "SELECT id, description, done FROM tasks ORDER BY description";
    let rows: Vec<(String, String, bool)> = if url.starts_with("postgres") {
        let mut database = PgConnection::connect(url).await.unwrap();
        sqlx::query_as(ALL).fetch_all(&mut database).await.unwrap()
    } else {
        let mut database = SqliteConnection::connect(url).await.unwrap();
        sqlx::query_as(ALL).fetch_all(&mut database).await.unwrap()
    };
    let task = |(id, description, done)| Task { id, description, done };
    rows.into_iter().map(task).collect()
}

/// The number that this query returns, from gavel's own database.
pub async fn rows(url: &str, count: &str) -> i64 {
    let count = AssertSqlSafe(count.to_owned());
    if url.starts_with("postgres") {
        let mut database = PgConnection::connect(url).await.unwrap();
        sqlx::query_scalar(count).fetch_one(&mut database).await.unwrap()
    } else {
        let mut database = SqliteConnection::connect(url).await.unwrap();
        sqlx::query_scalar(count).fetch_one(&mut database).await.unwrap()
    }
}

/// URL of a new database with the tasks server's tables on PostgreSQL.
pub async fn tasks_database() -> String {
    static TASKS: postgres::Template = postgres::Template::new();
    let migrate = async |url: String| {
        // The server ends at the end of its input.
        let mut server = Command::new(binary());
        server
            .args(["mcp-server", "tasks"])
            .env("TASKS_DATABASE_URL", url)
            .stdin(Stdio::null());
        assert!(server.output().unwrap().status.success());
    };
    TASKS.copy(migrate).await
}

/// A child process that ends with its owner.
pub struct Ended(pub Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A client for plain HTTP. It loads no certificates, which takes a debug build longer than most requests.
pub fn client() -> reqwest::Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let builder = reqwest::Client::builder().no_proxy().tls_certs_only([]);
    builder.build().unwrap()
}

pub fn binary() -> &'static str {
    env!("CARGO_BIN_EXE_gavel")
}

/// Starts everything and waits until it answers.
pub async fn spawn_app(setup: Setup) -> App {
    let directory = tempfile::tempdir().unwrap();
    let gemini = Gemini::scripted(setup.script.clone()).await;
    let database_url = match setup.database {
        Database::Sqlite => format!("sqlite://{}", directory.path().join("gavel.db").display()),
        Database::Postgres => postgres::database().await,
    };
    let tasks_url = match setup.database {
        Database::Sqlite => format!("sqlite://{}", directory.path().join("tasks.db").display()),
        Database::Postgres => tasks_database().await,
    };
    let (tasks, mut mcp) = tasks_server(&setup, &tasks_url).await;
    for (name, entry) in &setup.beside {
        mcp["mcpServers"][name] = entry.clone();
    }
    let mcp_path = write(&directory.path().join("mcp.json"), &mcp.to_string());
    let toml_path = write(&directory.path().join("gavel.toml"), &setup.toml);
    let mut env: Vec<(String, String)> = [
        ("GAVEL_LISTEN", "127.0.0.1:0".to_owned()),
        ("GAVEL_CONFIG", toml_path.display().to_string()),
        ("GAVEL_MCP_CONFIG", mcp_path.display().to_string()),
        ("DATABASE_URL", database_url.clone()),
        ("GEMINI_API_KEY", "canary-gemini-key".to_owned()),
        ("GEMINI_BASE_URL", gemini.url.clone()),
        ("GEMINI_MODEL", "gemini-3.5-flash".to_owned()),
        ("GAVEL_IDENTITY_SECRET", SECRET.to_owned()),
        ("GAVEL_RATE_LIMIT_PER_MINUTE", "6000".to_owned()),
        ("GAVEL_RATE_LIMIT_BURST", "1000".to_owned()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into();
    if let Some(text) = &setup.constitution {
        let path = write(&directory.path().join("constitution.md"), text);
        env.push(("GAVEL_CONSTITUTION".to_owned(), path.display().to_string()));
    }
    if !setup.agents.is_empty() {
        let agents = directory.path().join("agents");
        std::fs::create_dir_all(agents.join("schemas")).unwrap();
        for (file, text) in &setup.agents {
            write(&agents.join(file), text);
        }
        env.push(("GAVEL_AGENTS".to_owned(), agents.display().to_string()));
    }
    for (name, value) in &setup.env {
        env.retain(|(known, _)| known != name);
        env.push((name.clone(), value.clone()));
    }
    let sources = Sources {
        flags: Default::default(),
        environment: env.into_iter().collect(),
        dotenv: Default::default(),
        file: Some((toml_path, setup.toml)),
        read_file: &|path| std::fs::read_to_string(path),
    };
    let config = Config::resolve(sources)
        .unwrap_or_else(|errors| panic!("{errors:?}"))
        .config;
    let service = Service::build(config).await.unwrap();
    let serving = service.serve().unwrap();
    let url = format!("http://{}", serving.address);
    let client = client();
    App {
        url,
        gemini,
        directory,
        database_url,
        tasks_url,
        client,
        service: Some((service, serving)),
        _tasks: tasks,
    }
}

fn write(path: &Path, text: &str) -> PathBuf {
    std::fs::write(path, text).unwrap();
    path.to_owned()
}

/// The real tasks server, as a child of gavel over stdio or as a separate server over HTTP.
async fn tasks_server(setup: &Setup, database: &str) -> (Option<Ended>, Value) {
    if let Some(config) = &setup.mcp {
        return (None, config.clone());
    }
    match setup.transport {
        Transport::Stdio => {
            let server = json!({
                "command": binary(), "args": ["mcp-server", "tasks"], "env": {"TASKS_DATABASE_URL": database},
                "gavel": {"trustHints": true, "tools": setup.tools},
            });
            (None, json!({"mcpServers": {"tasks": server}}))
        }
        Transport::Http => {
            let port = free_port();
            let child = Command::new(binary())
                .args(["mcp-server", "tasks", "--http", &format!("127.0.0.1:{port}")])
                .env("TASKS_DATABASE_URL", database)
                .env("GAVEL_IDENTITY_SECRET", SECRET)
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            let child = Ended(child);
            until("the tasks server to listen", || async move {
                tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_ok()
            })
            .await;
            let server = json!({"url": format!("http://127.0.0.1:{port}/mcp"),
                "gavel": {"trustHints": true, "identity": "token", "tools": setup.tools},
            });
            (Some(child), json!({"mcpServers": {"tasks": server}}))
        }
    }
}

/// Waits until the service at `url` is ready.
pub async fn ready(url: &str) {
    let probe = format!("{url}/readyz");
    until("gavel to be ready", || async {
        client()
            .get(&probe)
            .send()
            .await
            .is_ok_and(|answer| answer.status() == 200)
    })
    .await;
}

/// Waits for a condition, at most a minute.
pub async fn until<F: Future<Output = bool>>(what: &str, condition: impl Fn() -> F) {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(60) {
        if condition().await {
            return;
        }
        // Most conditions ask a process. If many tests asked without a pause, it would have no CPU time for its work.
        let pause = (begun.elapsed() / 8).clamp(Duration::from_millis(10), Duration::from_millis(100));
        tokio::time::sleep(pause).await;
    }
    panic!("timed out waiting for {what}");
}

impl App {
    /// A message of the user `ann`; any status but 200 fails the test.
    pub async fn chat(&self, message: &str) -> Value {
        self.chat_as("ann", message).await
    }

    pub async fn chat_as(&self, user: &str, message: &str) -> Value {
        let (status, _, body) = self.post(&json!({"message": message, "user_id": user})).await;
        assert_eq!(status, 200, "{body}");
        body
    }

    pub async fn post(&self, body: &Value) -> (u16, reqwest::header::HeaderMap, Value) {
        self.post_with(&[], body.to_string()).await
    }

    pub async fn post_with(
        &self,
        headers: &[(&str, &str)],
        body: impl Into<reqwest::Body>,
    ) -> (u16, reqwest::header::HeaderMap, Value) {
        let mut request = self
            .client
            .post(format!("{}/v1/chat", self.url))
            .header("content-type", "application/json");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = request.body(body).send().await.unwrap();
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        (status, headers, response.json().await.unwrap_or(Value::Null))
    }

    /// A request to any route, with these headers.
    pub fn request(&self, method: &str, path: &str, headers: &[(&str, &str)]) -> reqwest::RequestBuilder {
        let method = method.parse().unwrap();
        let mut request = self.client.request(method, format!("{}{path}", self.url));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request
    }

    pub async fn get(&self, path: &str) -> (u16, Value) {
        let response = self.client.get(format!("{}{path}", self.url)).send().await.unwrap();
        let status = response.status().as_u16();
        let text = response.text().await.unwrap();
        (status, serde_json::from_str(&text).unwrap_or(Value::String(text)))
    }

    pub async fn get_as(&self, key: &str, path: &str) -> (u16, Value) {
        let request = self
            .client
            .get(format!("{}{path}", self.url))
            .header("authorization", format!("Bearer {key}"));
        let response = request.send().await.unwrap();
        (response.status().as_u16(), response.json().await.unwrap_or(Value::Null))
    }

    /// The whole text of a streamed response.
    pub async fn stream(&self, body: &Value) -> String {
        let request = self.client.post(format!("{}/v1/chat/stream", self.url)).json(body);
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), 200);
        response.text().await.unwrap()
    }

    /// The decision in the log; it must exist.
    pub async fn decision(&self, id: &Value) -> Value {
        let (status, record) = self.get(&format!("/v1/decisions/{}", id.as_str().unwrap())).await;
        assert_eq!(status, 200, "decision {id} is not in the log: {record}");
        record
    }

    /// The logged calls of a decision.
    pub async fn tool_invocations(&self, id: &Value) -> Vec<Value> {
        let filter = format!("decision_id%20%3D%20%22{}%22", id.as_str().unwrap());
        let (_, page) = self.get(&format!("/v1/tool-invocations?filter={filter}")).await;
        page["tool_invocations"]
            .as_array()
            .unwrap_or_else(|| panic!("{page}"))
            .clone()
    }

    /// The tasks, read from the tasks server's database.
    pub async fn tasks(&self) -> Vec<Task> {
        tasks_in(&self.tasks_url).await
    }

    /// The app's service.
    pub fn service(&self) -> &Service {
        &self.service.as_ref().unwrap().0
    }

    /// Starts the shutdown of the service as SIGTERM does.
    pub fn begin_stop(&mut self) -> tokio::task::JoinHandle<()> {
        let (service, serving) = self.service.take().unwrap();
        tokio::spawn(service.shutdown(Some(serving)))
    }

    /// Shuts the service down as SIGTERM does.
    pub async fn stop(mut self) {
        if let Some((service, serving)) = self.service.take() {
            service.shutdown(Some(serving)).await;
        }
    }
}
