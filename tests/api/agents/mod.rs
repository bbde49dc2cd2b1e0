//! Agents over HTTP: triggered, watched, cancelled, resumed, put; on both databases.

mod access;
mod asks;
mod cancel;
mod definitions;
mod events;
mod idempotency;
mod killed;
mod lengths;
pub mod processes;
mod records;
mod resume;
mod thoughts;
mod trigger;
mod turns;
mod voided;

use serde_json::{Value, json};
use sqlx::{Connection, PgConnection, SqliteConnection};

use crate::gemini::{Reply, turn};
use crate::harness::{Answer, App, Setup, until};

/// Takes one string, `query`, and may use the tasks.
pub const HELPER: &str = "---\nname: helper\ndescription: Helps with tasks.\napproval: never\n\
                          tools: [add_task, list_tasks]\n---\n\nYou are the helper.\n";

/// Delegates to the helper.
const CHIEF: &str =
    "---\nname: chief\ndescription: Has others do it.\nsub_agents: [helper]\n---\n\nYou are the chief.\n";

/// On either database, with the helper and the chief.
fn both() -> [Setup; 2] {
    [Setup::stdio_sqlite(), Setup::stdio_postgres()]
        .map(|setup| setup.agent("helper.md", HELPER).agent("chief.md", CHIEF))
}

/// Runs a statement of the test directly on the database.
async fn execute(app: &App, statement: &str) {
    let statement = sqlx::AssertSqlSafe(statement);
    if app.database_url.starts_with("postgres") {
        let mut database = PgConnection::connect(&app.database_url).await.unwrap();
        sqlx::query(statement).execute(&mut database).await.unwrap();
    } else {
        let mut database = SqliteConnection::connect(&app.database_url).await.unwrap();
        sqlx::query(statement).execute(&mut database).await.unwrap();
    }
}

pub fn path_of(agent: &str) -> String {
    format!("/api/projects/default/agents/{agent}/trigger")
}

impl App {
    async fn trigger_with(&self, path: &str, headers: &[(&str, &str)], body: &Value) -> Answer {
        Answer::of(self.request("POST", path, headers).json(body)).await
    }

    /// The run of an agent for `query`, after its end.
    async fn triggered(&self, agent: &str, query: &str) -> Value {
        let answer = self.trigger_with(&path_of(agent), &[], &json!({"query": query})).await;
        answer.expect(200)
    }

    /// The id of a background run; it may have ended by the time of the answer.
    async fn queued(&self, agent: &str, query: &str) -> String {
        let later = [("prefer", "respond-async")];
        let answer = self
            .trigger_with(&path_of(agent), &later, &json!({"query": query}))
            .await;
        assert!([200, 202].contains(&answer.status), "{}", answer.body);
        id(&answer.body)
    }

    async fn run(&self, id: &str) -> Value {
        Answer::of(self.request("GET", &format!("/api/runs/{id}"), &[]))
            .await
            .expect(200)
    }

    /// A run after its end.
    async fn over(&self, id: &str) -> Value {
        until("the run to end", || async { has_ended(&self.run(id).await) }).await;
        self.run(id).await
    }

    async fn cancel(&self, id: &str) -> Answer {
        Answer::of(self.request("POST", &format!("/api/runs/{id}/cancel"), &[])).await
    }

    async fn resume(&self, id: &str, body: Value) -> Answer {
        Answer::of(self.request("POST", &format!("/api/runs/{id}/resume"), &[]).json(&body)).await
    }

    /// The runs of the project `default` that match a filter, latest first.
    async fn runs(&self, filter: &str) -> Vec<Value> {
        let filter: String = url::form_urlencoded::byte_serialize(filter.as_bytes()).collect();
        let request = self.request("GET", &format!("/api/projects/default/runs?filter={filter}"), &[]);
        let page = Answer::of(request).await.expect(200);
        page["runs"].as_array().unwrap().clone()
    }

    /// Every decision in the log.
    pub(crate) async fn decisions(&self) -> Vec<Value> {
        let (status, page) = self.get("/v1/decisions?page_size=1000").await;
        assert_eq!(status, 200, "{page}");
        page["decisions"].as_array().unwrap().clone()
    }

    /// The events of a run until its end, with these headers.
    async fn events_with(&self, path: &str, headers: &[(&str, &str)]) -> Vec<Value> {
        let answer = self.request("GET", path, headers).send().await.unwrap();
        assert_eq!(answer.status(), 200);
        lines(&answer.text().await.unwrap())
    }

    async fn events(&self, id: &str) -> Vec<Value> {
        self.events_with(&format!("/api/runs/{id}/events"), &[]).await
    }

    /// Waits until the model has been asked this often.
    pub(crate) async fn asked(&self, times: usize) {
        until("the model to be asked", || async {
            self.gemini.requests().len() >= times
        })
        .await;
    }
}

pub fn id(run: &Value) -> String {
    run["id"].as_str().unwrap_or_else(|| panic!("{run}")).to_owned()
}

pub fn has_ended(run: &Value) -> bool {
    let status = run["status"].as_str().unwrap_or_else(|| panic!("{run}"));
    ["completed", "failed", "cancelled", "paused"].contains(&status)
}

/// Events as NDJSON, without heartbeats.
pub fn lines(text: &str) -> Vec<Value> {
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.filter(|line| line["type"] != "heartbeat").collect()
}

pub fn types(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["type"].as_str().unwrap()).collect()
}

/// Which agent asks: the system prompt.
fn asks(request: &Value, who: &str) -> bool {
    request["systemInstruction"]["parts"][0]["text"]
        .as_str()
        .unwrap()
        .contains(who)
}

/// How many contents the model has received in this run.
pub fn said(request: &Value) -> usize {
    request["contents"].as_array().unwrap().len()
}

/// Text and a call in one turn.
fn words_and_call(words: &str, tool: &str, args: Value) -> Reply {
    let call = json!({"functionCall": {"id": "c1", "name": tool, "args": args}, "thoughtSignature": "c2lnbmF0dXJl"});
    Reply::Raw(200, turn(1, &[json!({"text": words}), call]))
}

/// A chief that delegates to the helper, which adds a task.
fn chief_and_helper() -> Reply {
    Reply::from(|request| match (asks(request, "chief"), said(request)) {
        (true, 1) => Reply::call("helper", json!({"query": "add milk"})),
        (true, _) => Reply::Text("It is done."),
        (false, 1) => Reply::call("add_task", json!({"description": "milk"})),
        (false, _) => Reply::Text("Added."),
    })
}
