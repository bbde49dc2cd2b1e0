//! A server with its own database, and MCP clients of it.

#[path = "../../../base/tests/shared/mod.rs"]
mod shared;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::process::Stdio;
use std::time::{SystemTime, UNIX_EPOCH};

use gavel_mcp_tasks::{Args, HttpServer, Secret};
use jsonwebtoken::{EncodingKey, Header};
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CallToolResult, ClientRequest, ProtocolVersion, RequestMetaObject,
    ServerResult,
};
use rmcp::service::{PeerRequestOptions, RequestHandle, RunningService, ServiceError};
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::transport::{StreamableHttpClientTransport, TokioChildProcess};
use rmcp::{ClientLifecycleMode, ClientServiceExt, RoleClient};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::postgres;
pub(crate) use shared::Reply;
use shared::output_schemas;

pub(crate) const SECRET: &str = "a secret for tests, long enough: 0123456789";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wire {
    Stdio,
    Http,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Database {
    Sqlite,
    Postgres,
}

/// A database and, over HTTP, a server that uses it. Over stdio each caller starts its own server.
pub(crate) struct World {
    pub(crate) wire: Wire,
    pub(crate) database: Database,
    pub(crate) url: String,
    listening: Option<Listening>,
    directory: TempDir,
}

struct Listening {
    address: SocketAddr,
    stop: CancellationToken,
    served: JoinHandle<anyhow::Result<()>>,
}

impl World {
    pub(crate) async fn new(wire: Wire, database: Database) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let url = match database {
            Database::Sqlite => format!("sqlite://{}/new/tasks.db", directory.path().display()),
            Database::Postgres => tokio::task::spawn_blocking(postgres::new_database)
                .await
                .expect("PostgreSQL runs"),
        };
        let mut world = Self {
            wire,
            database,
            url,
            listening: None,
            directory,
        };
        world.start().await;
        world
    }

    /// Stops the HTTP server, if there is one, and starts it again with the same database.
    pub(crate) async fn restart(&mut self) {
        if let Some(listening) = self.listening.take() {
            listening.stop.cancel();
            let served = listening.served.await.expect("the server does not panic");
            served.expect("the server stops without an error");
        }
        self.start().await;
    }

    async fn start(&mut self) {
        if self.wire == Wire::Http {
            self.listening = Some(listen(self.http_args()).await);
        }
    }

    pub(crate) fn http_args(&self) -> Args {
        Args {
            http: Some("127.0.0.1:0".to_owned()),
            database: Some(self.url.clone()),
            identity_secret: Some(Secret::new(SECRET)),
            ..Args::default()
        }
    }

    pub(crate) fn directory(&self) -> &std::path::Path {
        self.directory.path()
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.listening.as_ref().expect("an HTTP world").address
    }

    /// A client with a user's credentials.
    pub(crate) async fn caller(&self, user: &str) -> Caller {
        match self.wire {
            Wire::Stdio => {
                let client = stdio_client(&self.url, &[], ClientLifecycleMode::Initialize).await;
                Caller::new(client, Credentials::Plain(user.to_owned())).await
            }
            Wire::Http => {
                let client = http_client(self.address(), discover()).await;
                Caller::new(client, Credentials::Signed(user.to_owned())).await
            }
        }
    }

    /// A client without credentials.
    pub(crate) async fn stranger(&self) -> Caller {
        let client = match self.wire {
            Wire::Stdio => stdio_client(&self.url, &[], ClientLifecycleMode::Initialize).await,
            Wire::Http => http_client(self.address(), discover()).await,
        };
        Caller::new(client, Credentials::None).await
    }

    /// Runs SQL without the server's knowledge.
    pub(crate) async fn sql(&self, statement: &'static str) {
        match self.database {
            Database::Sqlite => {
                let pool = sqlx::SqlitePool::connect(&self.url).await.expect("connected");
                sqlx::raw_sql(statement).execute(&pool).await.expect("executed");
                pool.close().await;
            }
            Database::Postgres => {
                let pool = sqlx::PgPool::connect(&self.url).await.expect("connected");
                sqlx::raw_sql(statement).execute(&pool).await.expect("executed");
                pool.close().await;
            }
        }
    }
}

async fn listen(args: Args) -> Listening {
    let server = HttpServer::bind(args).await.expect("the server starts");
    let stop = CancellationToken::new();
    Listening {
        address: server.address(),
        served: tokio::spawn(server.serve(stop.clone())),
        stop,
    }
}

pub(crate) fn discover() -> ClientLifecycleMode {
    ClientLifecycleMode::Discover {
        preferred_versions: vec![ProtocolVersion::V_2026_07_28],
    }
}

/// The program, without anything from this process's environment that could affect it.
pub(crate) fn program(database: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gavel-mcp-tasks"));
    command
        .env_clear()
        .env("TASKS_DATABASE_URL", database)
        .stderr(Stdio::null())
        .kill_on_drop(true);
    command
}

pub(crate) type Client = RunningService<RoleClient, ()>;

pub(crate) async fn stdio_client(database: &str, arguments: &[&str], lifecycle: ClientLifecycleMode) -> Client {
    let mut command = program(database);
    command.args(arguments);
    let (child, _) = TokioChildProcess::builder(command)
        .stderr(Stdio::null())
        .spawn()
        .expect("the program starts");
    ().serve_with_lifecycle(child, lifecycle)
        .await
        .expect("the server answers")
}

pub(crate) async fn http_client(address: SocketAddr, lifecycle: ClientLifecycleMode) -> Client {
    let config = StreamableHttpClientTransportConfig::with_uri(format!("http://{address}/mcp"));
    let transport = StreamableHttpClientTransport::with_client(web(), config);
    ().serve_with_lifecycle(transport, lifecycle)
        .await
        .expect("the server answers")
}

/// A plain HTTP client.
pub(crate) fn web() -> reqwest::Client {
    // Another package of the workspace may have enabled TLS without a provider.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::new()
}

#[derive(Debug, Clone)]
pub(crate) enum Credentials {
    None,
    Plain(String),
    Signed(String),
    Token(String),
}

/// Claims as signed by gavel.
pub(crate) fn claims(user: &str) -> Value {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("a time after 1970")
        .as_secs();
    json!({ "iss": "gavel", "aud": "tasks", "sub": user, "iat": now, "exp": now + 60 })
}

pub(crate) fn sign(claims: &Value, header: &Header, secret: &str) -> String {
    jsonwebtoken::encode(header, claims, &EncodingKey::from_secret(secret.as_bytes())).expect("a token")
}

/// An MCP client, and the user for whom it calls.
pub(crate) struct Caller {
    pub(crate) client: Client,
    pub(crate) credentials: Credentials,
    output_schemas: HashMap<String, jsonschema::Validator>,
}

impl Caller {
    pub(crate) async fn new(client: Client, credentials: Credentials) -> Self {
        Self {
            output_schemas: output_schemas(&client).await,
            client,
            credentials,
        }
    }

    pub(crate) async fn call(&self, tool: &str, arguments: Value) -> Reply {
        self.call_with(tool, arguments, json!({})).await
    }

    pub(crate) async fn call_with(&self, tool: &str, arguments: Value, meta: Value) -> Reply {
        self.try_call(tool, arguments, meta).await.expect("the protocol works")
    }

    pub(crate) async fn with_key(&self, key: &str, tool: &str, arguments: Value) -> Reply {
        self.call_with(tool, arguments, json!({ "gavel/idempotency_key": key }))
            .await
    }

    /// Checks the properties of every answer: its text equals its structure, and both match the output schema.
    pub(crate) async fn try_call(&self, tool: &str, arguments: Value, meta: Value) -> Result<Reply, ServiceError> {
        let handle = self.begin(tool, arguments, meta).await?;
        let ServerResult::CallToolResult(result) = handle.await_response().await? else {
            panic!("not a tool result");
        };
        let reply = reply(result);
        let schema = &self.output_schemas[tool];
        if let Err(error) = schema.validate(&reply.body) {
            panic!("{tool} answered off its schema: {error}: {}", reply.body);
        }
        Ok(reply)
    }

    pub(crate) async fn begin(
        &self,
        tool: &str,
        arguments: Value,
        meta: Value,
    ) -> Result<RequestHandle<RoleClient>, ServiceError> {
        let mut call = CallToolRequestParams::new(tool.to_owned());
        call.arguments = arguments.as_object().cloned();
        let request = ClientRequest::CallToolRequest(CallToolRequest::new(call));
        let options = PeerRequestOptions::no_options().with_meta(self.meta(meta));
        self.client.peer().send_cancellable_request(request, options).await
    }

    fn meta(&self, given: Value) -> RequestMetaObject {
        let mut meta = RequestMetaObject::new();
        let (name, value) = match &self.credentials {
            Credentials::None => ("gavel/origin", "test".to_owned()),
            Credentials::Plain(user) => ("gavel/user_id", user.clone()),
            Credentials::Signed(user) => ("gavel/identity", sign(&claims(user), &Header::default(), SECRET)),
            Credentials::Token(token) => ("gavel/identity", token.clone()),
        };
        meta.insert(name.to_owned(), value.into());
        meta.0.0.extend(given.as_object().expect("an object").clone());
        meta
    }

    pub(crate) async fn add(&self, description: &str) -> Value {
        let reply = self.call("add_task", json!({ "description": description })).await;
        reply.ok()["task"].clone()
    }

    /// Only the order; the ids of `descriptions` are those from [`Caller::add`].
    pub(crate) async fn descriptions(&self, arguments: Value) -> Vec<String> {
        let listed = self.call("list_tasks", arguments).await.ok();
        let tasks = listed["tasks"].as_array().expect("tasks");
        tasks
            .iter()
            .map(|task| task["description"].as_str().expect("a text").to_owned())
            .collect()
    }

    pub(crate) async fn leave(self) {
        self.client.cancel().await.expect("the client ends");
    }
}

fn reply(result: CallToolResult) -> Reply {
    let body = result.structured_content.expect("structured content");
    let text = &result.content[0].as_text().expect("a text").text;
    let text: Value = serde_json::from_str(text).expect("JSON in the text");
    assert_eq!(text, body, "the text differs from the structure");
    assert_eq!(result.content.len(), 1);
    Reply {
        is_error: result.is_error.unwrap_or_default(),
        body,
    }
}
