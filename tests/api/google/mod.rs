//! Gmail and Google Calendar used by the workspace agent: the real service and the real `gavel mcp-server google`,
//! against a stand-in for Google that checks each request by Google's own API descriptions. Gemini is scripted.

mod accounts;
mod connecting;
mod credentials;
mod doubt;
mod grants;
mod parameters;
mod scenario;
mod tenants;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use gavel::adapters::mcp::ServerState;
use gavel_mcp_google::connect::Connector;
use gavel_mcp_google::{Args, Settings};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::gemini::Reply;
use crate::harness::{Answer, App, Setup, binary, spawn_app, until};
use crate::postgres;
use crate::workspace::{CLIENT_ID, CLIENT_SECRET, EVENTS, Google, READ, SEND};

/// The address to which a browser would return. No server listens there: the tests pass the code themselves.
const REDIRECT: &str = "http://127.0.0.1:9/";
/// The requested scopes.
pub(crate) const ALL_SCOPES: [&str; 3] = [SEND, READ, EVENTS];

/// A service with the google server, and a Google.
pub(crate) struct Desk {
    pub(crate) app: App,
    pub(crate) google: Google,
    variables: HashMap<&'static str, String>,
    _directory: TempDir,
}

/// The database that everything uses.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Sqlite,
    Postgres,
}

pub(crate) const BOTH: [Kind; 2] = [Kind::Sqlite, Kind::Postgres];

/// A user's account at the stand-in.
pub(crate) fn account(user: &str) -> String {
    format!("{user}@gmail.example")
}

/// The entry of the built-in `mcp.json`, with other variables.
fn entry(variables: &HashMap<&'static str, String>) -> Value {
    let built_in: Value = serde_json::from_str(gavel::app::BUILT_IN_SERVERS).unwrap();
    let mut entry = built_in["mcpServers"]["google"].clone();
    entry["command"] = json!(binary());
    entry["env"] = json!(variables);
    entry
}

impl Desk {
    /// With ann connected.
    pub(crate) async fn new(kind: Kind, script: Vec<Reply>) -> Self {
        let desk = Self::with(kind, script, |setup| setup).await;
        desk.connect("ann").await;
        desk
    }

    /// With no user connected, and with more of a setup.
    pub(crate) async fn with(kind: Kind, script: Vec<Reply>, more: impl FnOnce(Setup) -> Setup) -> Self {
        Self::begin(kind, script, &[], more).await
    }

    /// With no user connected, and without some of the server's variables.
    pub(crate) async fn without(kind: Kind, script: Vec<Reply>, variables: &[&str]) -> Self {
        Self::begin(kind, script, variables, |setup| setup).await
    }

    async fn begin(kind: Kind, script: Vec<Reply>, without: &[&str], more: impl FnOnce(Setup) -> Setup) -> Self {
        let google = Google::start().await;
        let directory = tempfile::tempdir().unwrap();
        let (setup, database) = match kind {
            Kind::Sqlite => (
                Setup::stdio_sqlite(),
                format!("sqlite://{}", directory.path().join("google.db").display()),
            ),
            Kind::Postgres => (Setup::stdio_postgres(), postgres::empty_database().await),
        };
        let port = crate::harness::free_port();
        let mut variables = HashMap::from([
            ("GOOGLE_DATABASE_URL", database),
            ("GOOGLE_CLIENT_ID", CLIENT_ID.to_owned()),
            ("GOOGLE_CLIENT_SECRET", CLIENT_SECRET.to_owned()),
            (
                "GOOGLE_TOKEN_KEY",
                "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=".to_owned(),
            ),
            ("GOOGLE_GMAIL_URL", google.url("")),
            ("GOOGLE_CALENDAR_URL", google.url("/calendar/v3")),
            ("GOOGLE_TOKEN_URL", google.url("/token")),
            ("GOOGLE_AUTH_URL", google.url("/auth")),
            ("GOOGLE_REVOKE_URL", google.url("/revoke")),
            (
                "GOOGLE_CALLBACK_URL",
                format!("http://127.0.0.1:{port}/oauth/google/callback"),
            ),
        ]);
        variables.retain(|name, _| !without.contains(name));
        let setup = setup
            .beside("google", entry(&variables))
            .env("GAVEL_LISTEN", format!("127.0.0.1:{port}"))
            .script(script);
        let desk = Self {
            app: spawn_app(more(setup)).await,
            google,
            variables,
            _directory: directory,
        };
        desk.up().await;
        desk
    }

    /// Waits until every server that must be connected is.
    pub(crate) async fn up(&self) {
        until("the servers to be up", || async {
            let servers = self.app.service().mcp.status();
            servers.iter().all(|server| server.state == ServerState::Up)
        })
        .await;
    }

    /// The settings as the server gets them.
    pub(crate) fn settings(&self) -> Settings {
        let variable = |name: &str| self.variables.get(name).cloned();
        let args = gavel::app::options_of::<Args>("google", &[], &variable).unwrap();
        Settings::try_from(args).unwrap()
    }

    pub(crate) async fn connect(&self, user: &str) {
        self.connect_with(user, &ALL_SCOPES).await;
    }

    pub(crate) async fn connect_with(&self, user: &str, scopes: &[&str]) {
        self.connect_as(user, &account(user), scopes).await;
    }

    pub(crate) async fn connect_as(&self, user: &str, account: &str, scopes: &[&str]) {
        let connector = Connector::open(&self.settings()).await.unwrap();
        let begun = connector.begin(user, REDIRECT).await.unwrap();
        let code = self.google.consent(&begun.url, account, &scopes.join(" "));
        connector.finish(user, &begun.state, &code).await.unwrap();
        connector.close().await;
    }

    /// Sends a prompt; any status but 200 fails the test.
    pub(crate) async fn say(&self, user: &str, prompt: &str) -> Value {
        let request = self.app.request("POST", "/api/agent/run", &[("x-gavel-user", user)]);
        Answer::of(request.json(&json!({"prompt": prompt}))).await.expect(200)
    }

    /// Has the puppet make these calls.
    pub(crate) async fn calls(&self, user: &str, calls: Value) -> Value {
        self.say(user, &puppets(&calls)).await
    }

    /// Has the puppet send one e-mail.
    pub(crate) async fn mails(&self, user: &str, mail: Value) -> Value {
        self.calls(user, json!([["gmail_send", mail]])).await
    }

    pub(crate) async fn resolve(&self, user: &str, action: &Value, decision: &str, reason: Option<&str>) -> Value {
        let body = json!({"approvalId": action["approvalId"], "decision": decision, "reason": reason});
        let request = self
            .app
            .request("POST", "/api/agent/approvals/resolve", &[("x-gavel-user", user)]);
        Answer::of(request.json(&body)).await.expect(200)
    }

    pub(crate) async fn get(&self, user: &str, path: &str) -> Value {
        Answer::of(self.app.request("GET", path, &[("x-gavel-user", user)]))
            .await
            .expect(200)
    }

    pub(crate) async fn pending(&self, user: &str) -> Vec<Value> {
        let page = self.get(user, "/api/agent/approvals/pending").await;
        page["approvals"].as_array().unwrap().clone()
    }

    /// The lines of a run's thread, role and text.
    pub(crate) async fn thread(&self, user: &str, run: &Value) -> Vec<(String, String)> {
        let path = format!("/api/agent/threads/{}", run["threadId"].as_str().unwrap());
        let thread = self.get(user, &path).await;
        let line = |message: &Value| {
            let text = |field: &str| message[field].as_str().unwrap().to_owned();
            let what = if message["kind"] == "message" { "role" } else { "kind" };
            (text(what), text("text"))
        };
        thread["messages"].as_array().unwrap().iter().map(line).collect()
    }

    /// No e-mail was sent from any account, and no event was inserted into any calendar.
    #[track_caller]
    pub(crate) fn nothing_happened(&self) {
        assert!(self.google.seen("send").is_empty(), "an e-mail went out");
        assert!(self.google.seen("insert").is_empty(), "an event was made");
    }
}

/// An e-mail to Ben.
pub(crate) fn mail() -> Value {
    json!({"to": ["ben@example.com"], "subject": "Late", "body": "I am late."})
}

/// Precedes the calls that the puppet must make.
const STRINGS: &str = "STRINGS ";

pub(crate) fn puppets(calls: &Value) -> String {
    format!("{STRINGS}{calls}")
}

/// A model that makes the calls in the latest prompt, and then reports their results.
pub(crate) fn puppet() -> Vec<Reply> {
    puppet_that_tells(&Arc::default())
}

/// As `puppet`; stores the results it received.
pub(crate) fn puppet_that_tells(reported: &Arc<Mutex<Vec<String>>>) -> Vec<Reply> {
    let reported = Arc::clone(reported);
    vec![Reply::from(move |request| {
        let last = request["contents"].as_array().unwrap().last().unwrap();
        let parts = last["parts"].as_array().unwrap();
        if parts.iter().any(|part| part.get("functionResponse").is_some()) {
            reported.lock().unwrap().push(last.to_string());
            return Reply::Text("That is all.");
        }
        let text: String = parts.iter().filter_map(|part| part["text"].as_str()).collect();
        let (_, calls) = text.split_once(STRINGS).expect("calls to make");
        let mut calls = serde_json::Deserializer::from_str(calls).into_iter::<Value>();
        let calls = calls.next().unwrap().unwrap();
        let call = |call: &Value| {
            let name: &'static str = Box::leak(call[0].as_str().unwrap().to_owned().into_boxed_str());
            (name, call[1].clone())
        };
        Reply::Calls(calls.as_array().unwrap().iter().map(call).collect())
    })]
}

/// The state of each action.
pub(crate) fn states(run: &Value) -> Vec<&str> {
    let actions = run["actions"].as_array().unwrap();
    actions.iter().map(|action| action["state"].as_str().unwrap()).collect()
}
