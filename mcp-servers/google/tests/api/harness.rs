//! A server with its own database, its own Google, and users who call it.

#[path = "../../../base/tests/shared/mod.rs"]
mod shared;

use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use gavel_mcp_google::connect::Connector;
use gavel_mcp_google::{Args, Secret, Settings};
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CallToolResult, ClientRequest, RequestMetaObject, ServerResult,
};
use rmcp::service::{PeerRequestOptions, RunningService, ServiceError};
use rmcp::transport::TokioChildProcess;
use rmcp::{RoleClient, ServiceExt};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;

use crate::google::{CLIENT_ID, CLIENT_SECRET, EVENTS, Google, READ, SEND};
use crate::postgres;
pub(crate) use shared::Reply;
use shared::output_schemas;

pub(crate) const TOKEN_KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
pub(crate) const PRIVATE_KEY: &str = include_str!("../../../../tests/fixtures/gemini/service-account.test-key.pem");
pub(crate) const REDIRECT: &str = "http://127.0.0.1:9/callback";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Database {
    Sqlite,
    Postgres,
}

pub(crate) struct World {
    pub(crate) google: Google,
    pub(crate) url: String,
    pub(crate) database: Database,
    directory: TempDir,
    /// Settings of the server in addition to those that every test needs.
    pub(crate) environment: HashMap<&'static str, String>,
}

impl World {
    pub(crate) async fn new(database: Database) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let url = match database {
            Database::Sqlite => format!("sqlite://{}/new/google.db", directory.path().display()),
            Database::Postgres => tokio::task::spawn_blocking(postgres::new_database)
                .await
                .expect("PostgreSQL runs"),
        };
        Self {
            google: Google::start().await,
            url,
            database,
            directory,
            environment: HashMap::from([
                ("GOOGLE_CLIENT_ID", CLIENT_ID.to_owned()),
                ("GOOGLE_CLIENT_SECRET", CLIENT_SECRET.to_owned()),
                ("GOOGLE_TOKEN_KEY", TOKEN_KEY.to_owned()),
            ]),
        }
    }

    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// A file in the world's directory.
    pub(crate) fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.directory.path().join(name);
        std::fs::write(&path, text).expect("written");
        path
    }

    /// The program, without anything from this process's environment that could affect it.
    pub(crate) fn program(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gavel-mcp-google"));
        command
            .env_clear()
            .env("GOOGLE_DATABASE_URL", &self.url)
            .env("GOOGLE_GMAIL_URL", self.google.url(""))
            .env("GOOGLE_CALENDAR_URL", self.google.url("/calendar/v3"))
            .env("GOOGLE_TOKEN_URL", self.google.url("/token"))
            .env("GOOGLE_REVOKE_URL", self.google.url("/revoke"))
            .envs(&self.environment)
            .kill_on_drop(true);
        command
    }

    pub(crate) async fn server(&self) -> Server {
        static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let log = self.directory.path().join(format!("log-{number}"));
        let mut command = self.program();
        command.env("RUST_LOG", "debug,rmcp=warn");
        let (child, _) = TokioChildProcess::builder(command)
            .stderr(Stdio::from(File::create(&log).expect("a log")))
            .spawn()
            .expect("the program starts");
        let process = child.id().expect("a process id").to_string();
        let client = ().serve(child).await.expect("the server answers");
        Server {
            output_schemas: output_schemas(&client).await,
            client,
            process,
            log,
        }
    }

    fn settings(&self) -> Settings {
        let given = |name: &str| self.environment.get(name).cloned();
        let args = Args {
            database: Some(self.url.clone()),
            client_id: given("GOOGLE_CLIENT_ID"),
            client_secret: given("GOOGLE_CLIENT_SECRET").map(Secret::new),
            token_key: given("GOOGLE_TOKEN_KEY").map(Secret::new),
            token_url: Some(self.google.url("/token")),
            auth_url: Some(self.google.url("/auth")),
            revoke_url: Some(self.google.url("/revoke")),
            ..Args::default()
        };
        Settings::try_from(args).expect("settings")
    }

    pub(crate) async fn connector(&self) -> Connector {
        Connector::open(&self.settings()).await.expect("a connector")
    }

    /// Connects a user's account, with all requested scopes.
    pub(crate) async fn connect(&self, user: &str) {
        self.connect_with(user, &format!("{SEND} {READ} {EVENTS}")).await;
    }

    /// Connects a user's account, with these scopes.
    pub(crate) async fn connect_with(&self, user: &str, scopes: &str) {
        self.connect_as(user, &account(user), scopes).await;
    }

    pub(crate) async fn connect_as(&self, user: &str, account: &str, scopes: &str) {
        let connector = self.connector().await;
        let begun = connector.begin(user, REDIRECT).await.expect("begun");
        let code = self.google.consent(&begun.url, account, scopes);
        connector.finish(user, &begun.state, &code).await.expect("connected");
        connector.close().await;
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

    /// One text from the database.
    pub(crate) async fn text(&self, query: &'static str) -> String {
        match self.database {
            Database::Sqlite => {
                let pool = sqlx::SqlitePool::connect(&self.url).await.expect("connected");
                sqlx::query_scalar(query).fetch_one(&pool).await.expect("a row")
            }
            Database::Postgres => {
                let pool = sqlx::PgPool::connect(&self.url).await.expect("connected");
                sqlx::query_scalar(query).fetch_one(&pool).await.expect("a row")
            }
        }
    }
}

/// A user's Google account.
pub(crate) fn account(user: &str) -> String {
    format!("{user}@gmail.example")
}

/// The program, and a client of it.
pub(crate) struct Server {
    pub(crate) client: RunningService<RoleClient, ()>,
    process: String,
    log: PathBuf,
    output_schemas: HashMap<String, jsonschema::Validator>,
}

impl Server {
    pub(crate) async fn call(&self, user: &str, tool: &str, arguments: Value) -> Reply {
        let meta = json!({ "gavel/user_id": user });
        self.try_call(tool, arguments, meta).await.expect("the protocol works")
    }

    pub(crate) async fn with_key(&self, key: &str, user: &str, tool: &str, arguments: Value) -> Reply {
        let called = self.try_with_key(key, user, tool, arguments).await;
        called.expect("the protocol works")
    }

    /// The message of the protocol error that a call ends in.
    pub(crate) async fn doubt(&self, key: &str, user: &str, tool: &str, arguments: Value) -> String {
        match self.try_with_key(key, user, tool, arguments).await {
            Err(ServiceError::McpError(error)) => {
                assert_eq!(error.code.0, -32603, "{error:?}");
                error.message.into_owned()
            }
            other => panic!("{other:?}"),
        }
    }

    pub(crate) async fn try_with_key(
        &self,
        key: &str,
        user: &str,
        tool: &str,
        arguments: Value,
    ) -> Result<Reply, ServiceError> {
        let meta = json!({ "gavel/user_id": user, "gavel/idempotency_key": key });
        self.try_call(tool, arguments, meta).await
    }

    /// Checks the properties of every answer: its text equals its structure, and both match the output schema.
    pub(crate) async fn try_call(&self, tool: &str, arguments: Value, meta: Value) -> Result<Reply, ServiceError> {
        let mut call = CallToolRequestParams::new(tool.to_owned());
        call.arguments = arguments.as_object().cloned();
        let request = ClientRequest::CallToolRequest(CallToolRequest::new(call));
        let mut given = RequestMetaObject::new();
        given.0.0.extend(meta.as_object().expect("an object").clone());
        let options = PeerRequestOptions::no_options().with_meta(given);
        let handle = self.client.peer().send_cancellable_request(request, options).await?;
        let ServerResult::CallToolResult(result) = handle.await_response().await? else {
            panic!("not a tool result");
        };
        let reply = reply(result);
        if let Err(error) = self.output_schemas[tool].validate(&reply.body) {
            panic!("{tool} answered off its schema: {error}: {}", reply.body);
        }
        Ok(reply)
    }

    /// The program's log.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).expect("a log")
    }

    /// Kills the process.
    pub(crate) async fn kill(self) {
        let killed = Command::new("kill").args(["-9", &self.process]).status().await;
        assert!(killed.is_ok_and(|status| status.success()));
        // The client notices by itself.
        let _ = self.client.cancel().await;
    }
}

fn reply(result: CallToolResult) -> Reply {
    let body = result.structured_content.expect("structured content");
    let text = &result.content[0].as_text().expect("a text").text;
    let text: Value = serde_json::from_str(text).expect("JSON in the text");
    assert_eq!(text, body, "the text differs from the structure");
    Reply {
        is_error: result.is_error.unwrap_or_default(),
        body,
    }
}
