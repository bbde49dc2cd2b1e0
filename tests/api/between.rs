//! The process is killed with -9 between any two steps of an approved call (promises: at most once, truthful states;
//! The tool's server belongs to the test and counts the calls that it receives. [`crate::approved`] covers
//! deaths within the writes.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::agents::processes::Place;
use crate::agents::said;
use crate::audit::{audit_is_whole, rows};
use crate::brake::{Brake, DEATHS, Write};
use crate::crash::Process;
use crate::gemini::{Gemini, Reply};
use crate::harness::{client, until};
use crate::raw::{Answer, RawServer};

/// The statuses of an action's row from its resolution on: approved, executing, and its end.
const WRITES: [(&str, &str); 1] = [("agent_action", "status")];
const END: i64 = 3;

/// The two steps between which the process dies.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Death {
    /// The intent is committed, and the call has not been sent: it waits for a slot at its server.
    Intended,
    /// The call has arrived and had its effect, and is not answered.
    Arrived,
    /// The answer has arrived, and the result is not committed.
    Answered,
}

/// What gavel may do with a call that started and got no answer.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Tool {
    Keyless,
    Natural,
    Keyed,
}

impl Tool {
    fn idempotency(self) -> &'static str {
        match self {
            Self::Keyless => "none",
            Self::Natural => "natural",
            Self::Keyed => "key",
        }
    }
}

/// A server with a tool that has side effects, and one that only reads.
struct Counting {
    server: RawServer,
    /// The metadata of each call of the tool with side effects.
    calls: Arc<Mutex<Vec<Value>>>,
    reads: Arc<Mutex<usize>>,
    /// The tool whose calls are not answered.
    holds: Arc<Mutex<Option<&'static str>>>,
}

impl Counting {
    async fn start() -> Self {
        let (calls, reads): (Arc<Mutex<Vec<Value>>>, Arc<Mutex<usize>>) = Default::default();
        let holds: Arc<Mutex<Option<&'static str>>> = Arc::default();
        let (counted, read, held) = (Arc::clone(&calls), Arc::clone(&reads), Arc::clone(&holds));
        let server = RawServer::start(move |request| match request.method() {
            "tools/list" => Some(Answer::Result(json!({"tools": [
                {"name": "add_task", "description": "Adds a task.", "inputSchema": {
                    "type": "object", "properties": {"description": {"type": "string"}}, "required": ["description"],
                }},
                {"name": "list_tasks", "description": "Lists the tasks.", "inputSchema": {"type": "object"}},
            ]}))),
            "tools/call" => {
                let params = request.message["params"].clone();
                let name = params["name"].as_str().unwrap().to_owned();
                match name.as_str() {
                    "add_task" => counted.lock().unwrap().push(params),
                    _ => *read.lock().unwrap() += 1,
                }
                if *held.lock().unwrap() == Some(name.as_str()) {
                    return Some(Answer::Hang);
                }
                Some(Answer::Result(json!({"content": [{"type": "text", "text": "done"}]})))
            }
            _ => None,
        })
        .await;
        Self {
            server,
            calls,
            reads,
            holds,
        }
    }

    fn hold(&self, tool: Option<&'static str>) {
        *self.holds.lock().unwrap() = tool;
    }

    fn sent(&self) -> usize {
        self.calls.lock().unwrap().len()
    }

    /// Whether every call was the same one, under one key.
    fn is_one(&self) -> bool {
        let calls = self.calls.lock().unwrap();
        let reported = |call: &Value| {
            (
                call["_meta"]["gavel/idempotency_key"].clone(),
                call["arguments"].clone(),
            )
        };
        calls
            .iter()
            .all(|call| reported(call).0.is_string() && reported(call) == reported(&calls[0]))
    }

    /// The `mcp.json` with it: one call at a time.
    fn mcp(&self, tool: Tool) -> Value {
        let tools = json!({
            "add_task": {"sideEffect": true, "idempotency": tool.idempotency()}, "list_tasks": {"sideEffect": false},
        });
        json!({"mcpServers": {"counting": {
            "url": self.server.url, "gavel": {"maxConcurrent": 1, "tools": tools},
        }}})
    }
}

async fn get(process: &Process, path: &str) -> Value {
    let answer = client()
        .get(format!("{}/api/agent/{path}", process.url))
        .send()
        .await
        .unwrap();
    assert!(answer.status().is_success(), "{path}: {}", answer.status());
    answer.json().await.unwrap()
}

/// `None` if the process is dead.
async fn post(url: String, path: String, body: Value) -> Option<(u16, Value)> {
    let request = client().post(format!("{url}/api/agent/{path}"));
    let answer = request.json(&body).send().await.ok()?;
    Some((answer.status().as_u16(), answer.json().await.ok()?))
}

/// The outcome of a case.
struct Outcome {
    place: Place,
    server: Counting,
    process: Process,
    run: Value,
    /// Calls that had reached the server when the process died.
    before: usize,
}

/// Kills the process of an approved call at this step. Another process claims the run, and the user approves once more.
async fn dies(death: Death, tool: Tool, postgres: bool) -> Outcome {
    let place = Place::on(postgres).await;
    let server = Counting::start().await;
    let gemini = Gemini::scripted(vec![Reply::from(|request| {
        match (
            said(request),
            request["contents"].to_string().contains("Hold the place."),
        ) {
            (1, true) => Reply::call("list_tasks", json!({})),
            (1, false) => Reply::call("add_task", json!({"description": "one"})),
            _ => Reply::Text("Added."),
        }
    })])
    .await;
    let mcp = server.mcp(tool);
    let mut one = place.start_beside(&gemini, &mcp, &[]).await;
    let say = |prompt: &str| post(one.url.clone(), "run".to_owned(), json!({ "prompt": prompt }));
    let (status, asked) = say("Add one.").await.unwrap();
    assert_eq!(
        (status, &asked["status"]),
        (200, &json!("awaiting_confirmation")),
        "{asked}"
    );
    let mut brake = Brake::new(&place.record, &WRITES).await;
    let mut holder = None;
    match death {
        Death::Intended => {
            server.hold(Some("list_tasks"));
            holder = Some(tokio::spawn(say("Hold the place.")));
            until("the slot to be taken", || async { *server.reads.lock().unwrap() == 1 }).await;
        }
        Death::Arrived => server.hold(Some("add_task")),
        Death::Answered => brake.stop_at(END).await,
    }
    let yes = json!({"approvalId": asked["actions"][0]["approvalId"], "decision": "approve_once"});
    let answer = tokio::spawn(post(one.url.clone(), "approvals/resolve".to_owned(), yes.clone()));
    match death {
        Death::Intended => {
            let intent = "SELECT id FROM tool_invocation_log WHERE tool = 'add_task' AND status = 'started'";
            until("the intent to be committed", || async {
                rows(&place.record, intent).await.len() == 1
            })
            .await;
            assert_eq!(server.sent(), 0, "the call was not sent");
        }
        Death::Arrived => until("the call to arrive", || async { server.sent() == 1 }).await,
        Death::Answered => {
            until("the call to arrive", || async { server.sent() == 1 }).await;
            while !brake.has_stopped().await {
                assert!(!answer.is_finished(), "its result was written");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    }
    one.child.0.kill().unwrap();
    one.child.0.wait().unwrap();
    assert_eq!(answer.await.unwrap(), None, "no client was answered");
    if let Some(holder) = holder {
        holder.await.unwrap();
    }
    server.hold(None);
    if death == Death::Answered {
        brake.release(Write::Lost).await;
    }
    let before = server.sent();
    let process = place.start_beside(&gemini, &mcp, &[]).await;
    let (status, reported) = post(process.url.clone(), "approvals/resolve".to_owned(), yes)
        .await
        .unwrap();
    assert_eq!(status, 200, "the same answer counts once: {reported}");
    let path = format!("runs/{}", asked["runId"].as_str().unwrap());
    until("the run to end", || async {
        ["completed", "failed"].contains(&get(&process, &path).await["status"].as_str().unwrap())
    })
    .await;
    let run = get(&process, &path).await;
    Outcome {
        place,
        server,
        process,
        run,
        before,
    }
}

async fn is_honest(death: Death, tool: Tool, postgres: bool) {
    let outcome = dies(death, tool, postgres).await;
    let Outcome {
        place,
        server,
        process,
        run,
        before,
    } = outcome;
    let when = format!("killed when {death:?}, {tool:?}: {run}");
    assert_eq!(before, usize::from(death != Death::Intended), "{when}");
    assert!(server.is_one(), "{when}: {:?}", server.calls.lock().unwrap());
    let expected = match tool {
        Tool::Keyless => ("failed", "in_doubt", "in_doubt"),
        Tool::Natural | Tool::Keyed => ("completed", "completed", "completed"),
    };
    let [action] = run["actions"].as_array().unwrap().as_slice() else {
        panic!("{when}");
    };
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    assert_eq!(
        (&*text(&run["status"]), &*text(&run["state"]), &*text(&action["state"])),
        expected,
        "{when}"
    );
    let summary = text(&run["summary"]);
    assert_eq!(summary.contains("unknown"), tool == Tool::Keyless, "{when}");
    assert_eq!(
        get(&process, "approvals/pending").await["approvals"],
        json!([]),
        "{when}"
    );
    let in_doubt = get(&process, "actions/in-doubt").await;
    let sent = match tool {
        // A call that was or may have been sent is not sent again.
        Tool::Keyless => before,
        // The repeated call is identical.
        Tool::Natural | Tool::Keyed => before + 1,
    };
    assert_eq!(server.sent(), sent, "{when}");
    if tool == Tool::Keyless {
        assert_eq!(
            in_doubt["actions"][0]["actionId"], action["actionId"],
            "{when}: {in_doubt}"
        );
        audit_is_whole(&place.record, &when).await;
        let path = format!("actions/{}/settle", text(&action["actionId"]));
        let word = json!({"happened": before == 1});
        let (status, settled) = post(process.url.clone(), path, word).await.unwrap();
        assert_eq!(status, 200, "{when}: {settled}");
        let state = if before == 1 { "completed" } else { "failed" };
        assert_eq!(settled["actions"][0]["state"], state, "{when}: {settled}");
    }
    let in_doubt = get(&process, "actions/in-doubt").await;
    assert_eq!(in_doubt["actions"], json!([]), "{when}");
    assert_eq!(server.sent(), sent, "{when}");
    audit_is_whole(&place.record, &when).await;
}

async fn at_every_step(postgres: bool) {
    let mut deaths = JoinSet::new();
    for death in [Death::Intended, Death::Arrived, Death::Answered] {
        for tool in [Tool::Keyless, Tool::Natural, Tool::Keyed] {
            deaths.spawn(async move {
                let _place = DEATHS.acquire().await.unwrap();
                is_honest(death, tool, postgres).await;
            });
        }
    }
    deaths.join_all().await;
}

/// Promises: at most once, truthful states. A tool without a key gets the call at most once, and if its outcome
/// is unknown the call is in doubt. A tool that takes a key or is idempotent has been called by the end of the run.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_between_any_two_steps_an_approved_call_is_made_once_or_is_in_doubt_on_sqlite() {
    at_every_step(false).await;
}

/// As on SQLite.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_between_any_two_steps_an_approved_call_is_made_once_or_is_in_doubt_on_postgres() {
    at_every_step(true).await;
}
