//! An upgrade. An earlier gavel (b7e454e) was killed with -9 and left a database: `tests/fixtures/upgraded/`. Today's
//! gavel migrates it and continues: nothing that was done is lost, and nothing is done twice.
//!
//! At that time a resumed run was another run. So a run that was resumed twice is three runs here.

use serde_json::{Value, json};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions, Connection, PgConnection};

use crate::agents::processes::Place;
use crate::agents::{has_ended, id, lines, said, types};
use crate::audit::audit_is_whole;
use crate::crash::Process;
use crate::gemini::{Gemini, Reply};
use crate::harness::{Answer, client, until};
use crate::postgres;

/// The key of the chain of the audit log on SQLite. On PostgreSQL it is in the database.
const KEY: &str = "the key of the database that is upgraded";

const SHORT: &str = "---\nname: short\ndescription: Soon tired.\napproval: never\ntools: [list_tasks]\nmax_turns: 1\n---\n\n\
                     You are the short one.\n";
const DESK: &str =
    "---\nname: desk\ndescription: Keeps a person's tasks.\ntools: [add_task, list_tasks]\n---\n\nYou are the desk.\n";

/// A place with the database that the earlier gavel left. The tasks of before are not in it, so that each task that is
/// added is seen.
async fn left(on_postgres: bool) -> Place {
    let mut place = Place::on(on_postgres).await;
    if on_postgres {
        place.record = postgres::empty_database().await;
        let mut database = PgConnection::connect(&place.record).await.unwrap();
        let dump = include_str!("../fixtures/upgraded/postgres.sql");
        sqlx::raw_sql(dump).execute(&mut database).await.unwrap();
    } else {
        let file = place.record.strip_prefix("sqlite://").unwrap();
        let options = SqliteConnectOptions::new().filename(file).create_if_missing(true);
        let mut database = options.connect().await.unwrap();
        let dump = include_str!("../fixtures/upgraded/sqlite.sql");
        sqlx::raw_sql(dump).execute(&mut database).await.unwrap();
        database.close().await.unwrap();
        std::fs::write(format!("{file}.audit-key"), format!("{KEY}\n")).unwrap();
    }
    place.agent("short.md", SHORT);
    place.agent("desk.md", DESK);
    place
}

/// The model. The helper adds two tasks, "… one" and "… two", and was killed between them.
fn model() -> Reply {
    Reply::from(|request| {
        let agent = request["systemInstruction"]["parts"][0]["text"].as_str().unwrap();
        let asked = request["contents"][0].to_string();
        let name = ["running", "queued"].into_iter().find(|name| asked.contains(name));
        match (agent.contains("the helper"), name, said(request)) {
            (true, Some(name), 1) => Reply::call("add_task", json!({"description": format!("{name} one")})),
            (true, Some(name), 3) => Reply::call("add_task", json!({"description": format!("{name} two")})),
            _ => Reply::Text("Done."),
        }
    })
}

impl Process {
    async fn get(&self, path: &str) -> Value {
        let answer = Answer::of(client().get(format!("{}{path}", self.url))).await;
        answer.expect(200)
    }

    async fn post(&self, path: &str, body: Value) -> Answer {
        Answer::of(client().post(format!("{}{path}", self.url)).json(&body)).await
    }

    /// All runs that no other run called, oldest first.
    async fn roots(&self) -> Vec<Value> {
        let page = self.get("/api/projects/default/runs?page_size=100").await;
        let mut runs = page["runs"].as_array().unwrap().clone();
        runs.reverse();
        runs
    }
}

/// Agent, status and what the run said, of each run.
fn overview(runs: &[Value]) -> Vec<[&str; 3]> {
    let mut all = Vec::new();
    for run in runs {
        all.push(["agent_id", "status", "summary"].map(|field| run[field].as_str().unwrap_or("-")));
    }
    all
}

async fn continues(on_postgres: bool) {
    let place = left(on_postgres).await;
    let gemini = Gemini::scripted(vec![model()]).await;
    let gavel = place.start_set(&gemini, &[("GAVEL_RUNS_AGENT", "desk")]).await;
    // What was interrupted, and what was queued, ends.
    until("the interrupted runs to end", || async {
        let runs = gavel.roots().await;
        runs.iter().filter(|run| run["agent_id"] == "helper").all(has_ended)
    })
    .await;
    let runs = gavel.roots().await;
    let so_far = "So far nothing.";
    assert_eq!(
        overview(&runs),
        [
            ["helper", "completed", "Added."],
            ["chief", "completed", "It is done."],
            ["short", "paused", so_far],
            // Resumed once.
            ["short", "paused", so_far],
            ["short", "completed", "Done."],
            // Resumed twice.
            ["short", "paused", so_far],
            ["short", "paused", so_far],
            ["short", "completed", "Done."],
            // Resumed, and paused again.
            ["short", "paused", so_far],
            ["short", "paused", so_far],
            ["desk", "completed", "Hello."],
            ["desk", "completed", "Added."],
            ["desk", "awaiting_confirmation", "-"],
            ["helper", "completed", "Done."],
            ["helper", "completed", "Done."],
        ]
    );
    assert_eq!(runs[13]["recovered_from"], "crash", "{}", runs[13]);
    resumes(&gavel, &runs).await;
    approves(&gavel, &runs[12]).await;
    // Each call was made once, before or after.
    assert_eq!(
        sorted(place.tasks().await),
        ["pending", "queued one", "queued two", "running two"]
    );
    let calls = gavel.get("/v1/tool-invocations?page_size=100").await;
    let calls = calls["tool_invocations"].as_array().unwrap();
    assert!(calls.iter().all(|call| call["status"] == "completed"), "{calls:?}");
    let added = calls.iter().filter(|call| call["tool"] == "add_task");
    let added = added.map(|call| call["parameters"]["description"].as_str().unwrap().to_owned());
    let before = ["approved", "called", "ended", "running one"];
    let after = ["pending", "queued one", "queued two", "running two"];
    assert_eq!(sorted(added.collect()), sorted([before, after].concat()));
    let decisions = gavel.get("/v1/decisions?page_size=100").await;
    let decisions = decisions["decisions"].as_array().unwrap();
    assert_eq!(
        decisions.len(),
        runs.len() + 1,
        "one of each run, and of the run that the chief called"
    );
    assert!(
        decisions.iter().all(|decision| decision["status"] == "closed"),
        "{decisions:?}"
    );
    audit_is_whole(&place.record, "after the upgrade").await;
}

/// A paused run continues under its id with all that was before. One that another run resumed at that time does not.
async fn resumes(gavel: &Process, runs: &[Value]) {
    for (place, run) in runs.iter().enumerate() {
        let resumed = gavel.post(&format!("/api/runs/{}/resume", id(run)), json!({})).await;
        match place {
            2 | 9 => {
                let resumed = resumed.expect(200);
                assert_eq!(
                    (&resumed["status"], &resumed["summary"], &resumed["id"]),
                    (&json!("completed"), &json!("Done."), &run["id"]),
                    "{resumed}"
                );
            }
            3 | 5 | 6 | 8 => {
                let problem = resumed.problem(409, "already_resumed");
                assert_eq!(problem["run_id"], runs[place + 1]["id"]);
            }
            _ => drop(resumed.problem(409, "not_paused")),
        }
        let answer = client().get(format!("{}/api/runs/{}/events", gavel.url, id(run)));
        if place == 12 {
            continue;
        }
        let events = lines(&answer.send().await.unwrap().text().await.unwrap());
        let types = types(&events);
        assert_eq!((types[0], types[types.len() - 1]), ("input", "end"), "{types:?}");
        let resumes = match place {
            2 | 4 | 6 => 1,
            7 | 9 => 2,
            _ => 0,
        };
        assert_eq!(
            types.iter().filter(|kind| **kind == "resumed").count(),
            resumes,
            "{place}: {types:?}"
        );
    }
}

/// The request of before is approved, and the thread has everything that was said.
async fn approves(gavel: &Process, run: &Value) {
    let waiting = gavel.get("/api/agent/approvals/pending").await;
    let waiting = waiting["approvals"].as_array().unwrap();
    assert_eq!((waiting.len(), &waiting[0]["runId"]), (1, &run["id"]), "{waiting:?}");
    let yes = json!({"approvalId": waiting[0]["approvalId"], "decision": "approve_once"});
    let answer = gavel.post("/api/agent/approvals/resolve", yes).await.expect(200);
    assert_eq!(answer["runId"], run["id"], "{answer}");
    let path = format!("/api/agent/runs/{}", id(run));
    until("the approved run to end", || async {
        has_ended(&gavel.get(&path).await)
    })
    .await;
    let thread = waiting[0]["threadId"].as_str().unwrap();
    let thread = gavel.get(&format!("/api/agent/threads/{thread}")).await;
    let messages = thread["messages"].as_array().unwrap();
    let said = messages.iter().filter(|message| message["kind"] == "message");
    let said: Vec<_> = said.map(|message| message["text"].as_str().unwrap()).collect();
    let before = ["hello", "Hello.", "add approved", "Added.", "add pending"];
    assert_eq!(said, [&before[..], &["Done."]].concat(), "{thread}");
}

fn sorted<T: Ord>(mut all: Vec<T>) -> Vec<T> {
    all.sort_unstable();
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_earlier_gavels_database_is_migrated_and_its_runs_continue_on_sqlite() {
    continues(false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_earlier_gavels_database_is_migrated_and_its_runs_continue_on_postgres() {
    continues(true).await;
}
