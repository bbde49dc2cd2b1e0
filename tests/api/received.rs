//! The data that the model and the tool servers receive in a run of a thread, and what is recorded before that (R-2,
//!

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::docs::execute;
use crate::gemini::Reply;
use crate::harness::{Answer, Setup, spawn_app};
use crate::raw::{Answer as Raw, RawServer};
use crate::threads::{add, both, refusal, said};

/// A request body that the model received, as the role and the text of each line, one part each.
fn said_by(request: &Value) -> Vec<(String, String)> {
    let line = |content: &Value| {
        let parts = content["parts"].as_array().unwrap();
        let [part] = &parts[..] else { panic!("{content}") };
        let fields: Vec<_> = part.as_object().unwrap().keys().collect();
        assert_eq!(fields, ["text"], "a plain turn: {content}");
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        (text(&content["role"]), text(&part["text"]))
    };
    request["contents"].as_array().unwrap().iter().map(line).collect()
}

/// before the model has answered, the message is in its thread, and the run exists with the status `planning`.
#[tokio::test]
async fn the_message_and_the_run_are_recorded_before_the_model_answers() {
    for setup in both() {
        let go = Arc::new(Notify::new());
        let held = Reply::Held(Arc::clone(&go), Box::new(Reply::Text("Hello Ann.")));
        let app = spawn_app(setup.script(vec![held])).await;
        let headers = [("x-gavel-user", "ann")];
        let said = app
            .request("POST", "/api/agent/run", &headers)
            .json(&json!({"prompt": "Hello."}));
        let said = tokio::spawn(Answer::of(said));
        app.asked(1).await;
        let threads = app.get_by("ann", "/api/agent/threads").await.expect(200);
        let latest = &threads["threads"][0]["latestRun"];
        let path = format!("/api/agent/runs/{}", latest["runId"].as_str().unwrap());
        let run = app.get_by("ann", &path).await.expect(200);
        assert_eq!(
            (&run["status"], &run["state"], &run["summary"], &run["actions"]),
            (
                &json!("planning"),
                &json!("planning"),
                &json!("Working on it."),
                &json!([])
            ),
            "{run}"
        );
        assert_eq!(latest["status"], "planning", "{threads}");
        let line = |role: &str, text: &str| (role.to_owned(), text.to_owned());
        let mut lines = vec![line("user", "Hello.")];
        assert_eq!(app.thread(&run).await, lines);
        assert!(!said.is_finished());
        go.notify_one();
        let over = said.await.unwrap().expect(200);
        assert_eq!((&over["runId"], &over["threadId"]), (&run["runId"], &run["threadId"]));
        lines.push(line("assistant", "Hello Ann."));
        assert_eq!(app.thread(&run).await, lines);
        app.stop().await;
    }
}

/// Promise: recorded. If the message or its run cannot be stored, the model is not asked, the caller gets an
/// error, and nothing of either is stored.
#[tokio::test]
async fn the_model_is_not_asked_about_an_unrecorded_message() {
    for setup in both() {
        let app = spawn_app(setup.script(vec![Reply::Text("Hello Ann.")])).await;
        for table in ["thread_message", "agent_run"] {
            let [refuse, allow] = refusal(&app.database_url, table, "1 = 1");
            execute(&app.database_url, &refuse).await;
            let refused = app.say_as("ann", json!({"prompt": "Hello."})).await;
            refused.problem(503, "record_unavailable");
            execute(&app.database_url, &allow).await;
            assert_eq!(app.gemini.requests().len(), 0, "{table}");
            let threads = app.get_by("ann", "/api/agent/threads").await.expect(200);
            assert_eq!(threads["threads"], json!([]), "{table}");
        }
        assert_eq!(app.say("Hello.").await["status"], "completed");
        app.stop().await;
    }
}

/// "tomorrow" is meant in the user's time zone, in a thread and in a triggered run. If the time zone is unknown, the
/// model receives that.
#[tokio::test]
async fn the_model_receives_the_users_date() {
    for setup in both() {
        let app = spawn_app(setup.script(vec![Reply::Text("Hello.")])).await;
        let auckland = chrono::Utc::now().with_timezone(&chrono_tz::Pacific::Auckland);
        let auckland = auckland
            .format("Today is %A, %Y-%m-%d (time zone Pacific/Auckland).")
            .to_string();
        let unknown = chrono::Utc::now()
            .format("Today is %A, %Y-%m-%d (time zone UTC; that of the user is not known).")
            .to_string();
        let day = |at: usize| {
            let (_, prompt) = said_by(&app.gemini.requests()[at]).pop().unwrap();
            prompt.split_once("\n\n").unwrap().0.to_owned()
        };
        let first = app
            .say_as("ann", json!({"prompt": "Hello.", "timeZone": "Pacific/Auckland"}))
            .await
            .expect(200);
        assert_eq!(day(0), auckland);
        let next = json!({"prompt": "Hello.", "threadId": first["threadId"]});
        app.say_as("ann", next).await.expect(200);
        assert_eq!(day(1), unknown, "it applies to its message only");
        let triggered = async |zone: &str| {
            let path = format!("/api/projects/default/agents/workspace/trigger?time_zone={zone}");
            let request = app.request("POST", &path, &[("x-gavel-user", "ann")]);
            Answer::of(request.json(&json!({"query": "Hello."}))).await
        };
        triggered("Pacific/Auckland").await.expect(200);
        assert_eq!(day(2), auckland);

        let invalid = json!({"prompt": "Hello.", "timeZone": "Mars/Base"});
        let problem = app.say_as("ann", invalid).await.problem(400, "invalid_request");
        let says = "is \"Mars/Base\"; allowed: the IANA name of a time zone, such as \"Europe/Berlin\"";
        assert_eq!(problem["errors"][0], json!({"pointer": "/timeZone", "detail": says}));
        let problem = triggered("Mars/Base").await.problem(400, "invalid_request");
        assert_eq!(problem["errors"][0]["pointer"], "time_zone", "{problem}");
        assert_eq!(app.gemini.requests().len(), 3);
        app.stop().await;
    }
}

/// the model receives the agent's instructions, the earlier messages of the thread as plain turns, the prompt with
/// the date, and the agent's tools with their schemas.
#[tokio::test]
async fn the_model_receives_its_instructions_the_thread_and_its_tools() {
    for setup in both() {
        let model = Reply::from(|request| match request["contents"].to_string().contains("Again?") {
            true => Reply::Text("As I said."),
            false if said(request) == 1 => add("milk"),
            false => Reply::Text("It is on the list."),
        });
        let app = spawn_app(setup.script(vec![model])).await;
        let first = app.say("Put milk on my list.").await;
        app.resolve(&first["actions"][0]["approvalId"], "approve_once").await;
        let again = json!({"prompt": "Again?", "threadId": first["threadId"]});
        app.say_as("ann", again).await.expect(200);
        let asked = app.gemini.requests();
        assert_eq!(asked.len(), 3);

        let system = &asked[2]["systemInstruction"]["parts"];
        assert_eq!(system.as_array().unwrap().len(), 1, "{system}");
        assert_eq!(system[0]["text"].as_str().unwrap().trim(), "You are the workspace.");

        let mut lines = said_by(&asked[2]);
        let (role, prompt) = lines.pop().unwrap();
        assert_eq!(role, "user");
        let (day, words) = prompt.split_once("\n\n").unwrap();
        assert!(day.starts_with("Today is ") && !day.contains("Unavailable"), "{prompt}");
        assert_eq!(words, "Again?");
        // Requests, answers and effects are in between; tests/api/contract.rs tests them.
        lines.retain(|(_, text)| !text.starts_with("[Earlier event") && !text.starts_with("May I call"));
        let before = [("user", "Put milk on my list."), ("model", "It is on the list.")];
        assert_eq!(lines, before.map(|(role, text)| (role.to_owned(), text.to_owned())));

        for request in &asked {
            let tools = request["tools"].as_array().unwrap();
            let [tools] = &tools[..] else { panic!("{request}") };
            let mut declared: Vec<_> = tools["functionDeclarations"].as_array().unwrap().iter().collect();
            declared.sort_by_key(|one| one["name"].as_str());
            let names: Vec<_> = declared.iter().map(|one| one["name"].as_str().unwrap()).collect();
            assert_eq!(names, ["add_task", "list_tasks"], "those of the agent, and no others");
            for one in &declared {
                assert!(!one["description"].as_str().unwrap().is_empty(), "{one}");
            }
            let add = &declared[0]["parametersJsonSchema"];
            assert_eq!(
                (
                    &add["type"],
                    &add["properties"]["description"]["type"],
                    &add["required"]
                ),
                (&json!("object"), &json!("string"), &json!(["description"])),
                "{add}"
            );
            assert_eq!(request["systemInstruction"], asked[2]["systemInstruction"]);
        }
        app.stop().await;
    }
}

/// A server with a tool that reads and one that acts; it stores the `params` of each call.
async fn kept(calls: Arc<Mutex<Vec<Value>>>) -> RawServer {
    let tool = |name: &str, reads: bool| {
        json!({
            "name": name, "description": "Does.", "annotations": {"readOnlyHint": reads},
            "inputSchema": {"type": "object", "properties": {"n": {"type": "integer"}}, "additionalProperties": false},
        })
    };
    let list = json!({"tools": [tool("look", true), tool("act", false)]});
    RawServer::start(move |request| match request.method() {
        "tools/list" => Some(Raw::Result(list.clone())),
        "tools/call" => {
            calls.lock().unwrap().push(request.message["params"].clone());
            Some(Raw::Result(json!({"content": [{"type": "text", "text": "done"}]})))
        }
        _ => None,
    })
    .await
}

/// a tool's server receives the acting user, the origin, the run, the action, and a key for that call alone. This
/// holds for calls with and without approval, in threads and elsewhere. The model cannot influence it.
#[tokio::test]
async fn a_tool_server_receives_the_user_origin_run_and_action_of_a_call() {
    const AGENT: &str =
        "---\nname: workspace\ndescription: Works.\napproval: never\ntools: [look, act]\n---\n\nYou work.\n";
    for setup in [Setup::stdio_sqlite(), Setup::stdio_postgres()] {
        let calls = Arc::new(Mutex::new(Vec::new()));
        let server = kept(Arc::clone(&calls)).await;
        let entry = json!({"url": server.url, "gavel": {"trustHints": true}});
        let model = Reply::from(|request| match said(request) {
            1 => Reply::Calls(vec![("look", json!({"n": 1})), ("act", json!({"n": 2}))]),
            _ => Reply::Text("Done."),
        });
        let setup = setup.agent("workspace.md", AGENT).beside("kept", entry);
        let app = spawn_app(setup.script(vec![model])).await;
        let waiting = app.say("Do it.").await;
        assert_eq!(waiting["actions"][1]["status"], "awaiting_confirmation", "{waiting}");
        assert_eq!(calls.lock().unwrap().len(), 1, "the tool that acts waits");
        let thread = app.resolve(&waiting["actions"][1]["approvalId"], "approve_once").await;
        assert_eq!(thread["status"], "completed", "{thread}");

        let trigger = app.request("POST", &crate::agents::path_of("workspace"), &[("x-gavel-user", "bob")]);
        let run = Answer::of(trigger.json(&json!({"query": "Do it."}))).await.expect(200);
        assert_eq!(run["status"], "completed", "{run}");
        let path = format!("/api/agent/runs/{}", run["id"].as_str().unwrap());
        let agent = app.get_by("bob", &path).await.expect(200);

        let calls = calls.lock().unwrap().clone();
        let mut expected = Vec::new();
        for (run, user, origin) in [(&thread, "ann", "thread"), (&agent, "bob", "agent")] {
            for action in run["actions"].as_array().unwrap() {
                expected.push(json!({
                    "gavel/user_id": user, "gavel/origin": origin, "gavel/run_id": run["runId"],
                    "gavel/action_id": action["actionId"],
                }));
            }
        }
        assert_eq!(expected.len(), 4, "{thread} {agent}");
        let reported = |call: &Value| {
            let mut meta = call["_meta"].clone();
            let ours = |name: &String| name.starts_with("gavel/") && name != "gavel/idempotency_key";
            meta.as_object_mut().unwrap().retain(|name, _| ours(name));
            meta
        };
        assert_eq!(calls.iter().map(reported).collect::<Vec<_>>(), expected);
        let keys = calls
            .iter()
            .map(|call| call["_meta"]["gavel/idempotency_key"].as_str().unwrap());
        let mut keys: Vec<_> = keys.collect();
        assert!(keys.iter().all(|key| !key.is_empty()), "{keys:?}");
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), 4, "one key for each call");
        let arguments: Vec<_> = calls.iter().map(|call| &call["arguments"]).collect();
        let (look, act) = (json!({"n": 1}), json!({"n": 2}));
        assert_eq!(
            arguments,
            [&look, &act, &look, &act],
            "none of it is among the arguments"
        );
        app.stop().await;
    }
}
