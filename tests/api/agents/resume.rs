//! `POST /api/runs/{id}/resume`: an interrupted run continues with a fresh budget, and never past an in-doubt call
//! (promise: at most once; X-5, X-6).

use std::collections::BTreeMap;

use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Connection, PgConnection, SqliteConnection};

use super::{CHIEF, HELPER, both, id, path_of, said, types};
use crate::gemini::Reply;
use crate::harness::{Answer, App, Setup, spawn_app};
use crate::raw::{Answer as ToolAnswer, RawServer};

/// One step, then it has to sum up.
const SHORT: &str = "---\nname: short\ndescription: Soon tired.\napproval: never\ntools: [list_tasks]\nmax_turns: 1\n---\n\n\
                     You are the short one.\n";

fn stops_and_continues() -> Vec<Reply> {
    vec![
        Reply::call("list_tasks", json!({})),
        Reply::Text("So far nothing."),
        Reply::Text("Done."),
    ]
}

/// X-6, X-5: a run at its step limit is `paused` with a summary. It is resumed with a fresh budget, and keeps its id and
/// its conversation; `attempts` lists what came before.
#[tokio::test]
async fn a_run_at_its_step_limit_is_resumed_once_with_a_fresh_budget() {
    for setup in both() {
        let app = spawn_app(setup.agent("short.md", SHORT).script(stops_and_continues())).await;
        let paused = app.triggered("short", "x").await;
        assert_eq!(
            (&paused["status"], &paused["stop_reason"], &paused["summary"]),
            (&json!("paused"), &json!("step_limit"), &json!("So far nothing.")),
            "{paused}"
        );
        let answer = app.resume(&id(&paused), json!({})).await;
        let location = answer.header("location").to_owned();
        let resumed = answer.expect(200);
        assert_eq!(location, format!("/api/runs/{}", id(&resumed)));
        assert_eq!(
            (&resumed["status"], &resumed["summary"]),
            (&json!("completed"), &json!("Done.")),
            "{resumed}"
        );
        assert_eq!(
            (&resumed["steps"], &resumed["id"]),
            (&json!(3), &paused["id"]),
            "{resumed}"
        );
        let attempt = json!({
            "started_at": paused["started_at"], "completed_at": paused["completed_at"], "stop_reason": "step_limit",
            "error_message": paused["error_message"], "summary": "So far nothing.", "steps": 2,
        });
        assert_eq!(resumed["attempts"], json!([attempt]), "{resumed}");
        assert_eq!(resumed["definition_hash"], paused["definition_hash"]);
        let listed = app.runs("").await;
        assert_eq!(listed, std::slice::from_ref(&resumed));
        // The resumed run has the earlier conversation.
        let asked = app.gemini.requests();
        assert!(said(&asked[2]) > said(&asked[1]), "{}", asked[2]);
        app.resume(&id(&resumed), json!({})).await.problem(409, "not_paused");
        let events = app.events(&id(&resumed)).await;
        let types = types(&events);
        assert!(types.starts_with(&["input", "turn"]), "{types:?}");
        assert!(types.ends_with(&["resumed", "notice", "turn", "end"]), "{types:?}");
        let decision = app.decision(&resumed["id"]).await;
        assert_eq!(
            (&decision["surface"], &decision["status"]),
            (&json!("agent"), &json!("closed")),
            "{decision}"
        );
    }
}

/// A repeated resume request returns the same run.
#[tokio::test]
async fn a_repeated_resume_returns_the_same_run() {
    for setup in both() {
        let app = spawn_app(setup.agent("short.md", SHORT).script(stops_and_continues())).await;
        let paused = app.triggered("short", "x").await;
        let path = format!("/api/runs/{}/resume", id(&paused));
        let key = [("idempotency-key", "r-1"), ("prefer", "respond-async")];
        let resumed = app.trigger_with(&path, &key, &json!({})).await;
        assert_eq!(resumed.header("preference-applied"), "respond-async");
        let resumed = resumed.expect(202);
        let over = app.over(&id(&resumed)).await;
        let again = app.trigger_with(&path, &key, &json!({})).await;
        assert_eq!(again.header("idempotency-replayed"), "true");
        assert_eq!(again.expect(200), over);
        let other = app.trigger_with(&path, &key, &json!({"settled": {}})).await;
        other.problem(422, "idempotency_key_reused");
        assert_eq!(app.runs("").await.len(), 1);
    }
}

async fn execute(url: &str, statement: &str) {
    let statement = AssertSqlSafe(statement.to_owned());
    if url.starts_with("postgres") {
        let mut database = PgConnection::connect(url).await.unwrap();
        sqlx::query(statement).execute(&mut database).await.unwrap();
    } else {
        let mut database = SqliteConnection::connect(url).await.unwrap();
        sqlx::query(statement).execute(&mut database).await.unwrap();
    }
}

/// X-5: a run has at most 500 steps over all resumes. After 499 one is left, after 500 none.
#[tokio::test]
async fn a_run_has_at_most_500_steps_over_all_resumes() {
    let patient = SHORT.replace("max_turns: 1", "max_turns: 5");
    for setup in both() {
        let mut script = vec![Reply::call("list_tasks", json!({})); 5];
        script.extend([
            Reply::Text("Paused."),
            Reply::call("list_tasks", json!({})),
            Reply::Text("Paused again."),
        ]);
        // The same arguments five times in a row would be a doom loop.
        let args = |n: usize| json!({"limit": n + 1});
        for (n, reply) in script.iter_mut().take(5).enumerate() {
            *reply = Reply::call("list_tasks", args(n));
        }
        let app = spawn_app(setup.agent("short.md", &patient).script(script)).await;
        let paused = app.triggered("short", "x").await;
        assert_eq!(paused["status"], "paused", "{paused}");
        let steps = async |run: &Value, steps: u32| {
            let id = id(run);
            execute(
                &app.database_url,
                &format!("UPDATE agent_run SET steps = {steps} WHERE id = '{id}'"),
            )
            .await;
        };
        steps(&paused, 500).await;
        app.resume(&id(&paused), json!({}))
            .await
            .problem(409, "step_limit_exceeded");
        steps(&paused, 499).await;
        let resumed = app.resume(&id(&paused), json!({})).await.expect(200);
        assert_eq!(
            (&resumed["status"], &resumed["stop_reason"], &resumed["summary"]),
            (&json!("paused"), &json!("step_limit"), &json!("Paused again.")),
            "{resumed}"
        );
        // The steps of all attempts count, not only those of the last one.
        assert!(resumed["steps"].as_u64().unwrap() > 6, "{resumed}");
        steps(&resumed, 500).await;
        app.resume(&id(&resumed), json!({}))
            .await
            .problem(409, "step_limit_exceeded");
    }
}

/// A run whose deadline has passed cannot be resumed: nothing is begun.
#[tokio::test]
async fn a_run_is_not_resumed_after_its_deadline() {
    for setup in both() {
        let script = vec![Reply::call("list_tasks", json!({})), Reply::Text("Paused.")];
        let app = spawn_app(setup.agent("short.md", SHORT).script(script)).await;
        let paused = app.triggered("short", "x").await;
        assert_eq!(paused["status"], "paused", "{paused}");
        let run = id(&paused);
        let with_deadline = format!(
            "UPDATE agent_run SET settings = REPLACE(settings, '\"until_us\":null', '\"until_us\":1700000000000000') \
             WHERE id = '{run}'"
        );
        execute(&app.database_url, &with_deadline).await;
        let problem = app.resume(&run, json!({})).await.problem(409, "deadline_passed");
        assert_eq!(
            problem["detail"],
            "The deadline, 2023-11-14T22:13:20.000000Z, has passed. Start a new session, or run the agent again."
        );
        assert_eq!(app.run(&run).await, paused);
    }
}

/// What cannot be read may be its deadline, or another restriction: nothing is begun.
#[tokio::test]
async fn a_run_whose_settings_cannot_be_read_is_not_resumed() {
    for setup in both() {
        let script = vec![Reply::call("list_tasks", json!({})), Reply::Text("Paused.")];
        let app = spawn_app(setup.agent("short.md", SHORT).script(script)).await;
        let paused = app.triggered("short", "x").await;
        let run = id(&paused);
        let damaged = format!(
            "UPDATE agent_run SET settings = REPLACE(settings, '\"until_us\":null', '\"until_us\":\"x\"') WHERE id = '{run}'"
        );
        execute(&app.database_url, &damaged).await;
        app.resume(&run, json!({})).await.problem(503, "record_unavailable");
        assert_eq!(app.run(&run).await, paused);
    }
}

const ACTOR: &str = "---\nname: actor\ndescription: Acts.\napproval: never\ntools: [act]\n---\n\nYou are the actor.\n";

/// A server whose tool `act` closes the connection.
async fn breaks_off() -> RawServer {
    RawServer::start(|request| match request.method() {
        "tools/list" => Some(ToolAnswer::Result(json!({"tools": [
            {"name": "act", "inputSchema": {"type": "object", "properties": {"what": {"type": "string"}}}},
        ]}))),
        "tools/call" => Some(ToolAnswer::Close),
        _ => None,
    })
    .await
}

async fn in_doubt(setup: Setup, server: &RawServer) -> (App, Value) {
    let setup = setup
        .agent("actor.md", ACTOR)
        .mcp(json!({"mcpServers": {"s": {"url": server.url}}}))
        .script(vec![Reply::call("act", json!({"what": "all"})), Reply::Text("Done.")]);
    let app = spawn_app(setup).await;
    let paused = app.triggered("actor", "x").await;
    assert_eq!(
        (&paused["status"], &paused["stop_reason"]),
        (&json!("paused"), &json!("in_doubt")),
        "{paused}"
    );
    (app, paused)
}

/// Promise: at most once. A person settles an in-doubt call by its id before the run continues. The model receives the
/// report, and the call is not sent again.
#[tokio::test]
async fn a_run_with_an_in_doubt_call_continues_after_a_person_settles_it() {
    for happened in [true, false] {
        for setup in both() {
            let mut server = breaks_off().await;
            let (app, paused) = in_doubt(setup, &server).await;
            let call = paused["in_doubt"][0]["action_id"].as_str().unwrap().to_owned();
            let problem = app.resume(&id(&paused), json!({})).await.problem(409, "calls_in_doubt");
            assert_eq!(problem["errors"][0]["pointer"], format!("/settled/{call}"), "{problem}");
            let unknown = json!({"settled": {"018f0000-0000-7000-8000-000000000000": true, &call: true}});
            let problem = app.resume(&id(&paused), unknown).await.problem(400, "invalid_request");
            assert_eq!(problem["errors"].as_array().unwrap().len(), 1, "{problem}");
            let invalid = json!({"settled": {&call: "yes"}});
            app.resume(&id(&paused), invalid).await.problem(400, "invalid_request");
            let invalid = json!({"happened": {&call: true}});
            app.resume(&id(&paused), invalid).await.problem(400, "invalid_request");

            // Both outcomes for one call are invalid. A list is not an object without fields either.
            let upper = call.to_uppercase();
            for (invalid, pointer) in [
                (
                    format!(r#"{{"settled": {{"{call}": true, "{call}": false}}}}"#),
                    String::new(),
                ),
                (
                    format!(r#"{{"settled": {{"{upper}": true, "{call}": false}}}}"#),
                    format!("/settled/{call}"),
                ),
                (
                    format!(r#"{{"settled": {{"{call}": true}}, "settled": {{}}}}"#),
                    String::new(),
                ),
                (r#"{"settled": []}"#.to_owned(), "/settled".to_owned()),
                ("[]".to_owned(), String::new()),
            ] {
                let json = [("content-type", "application/json")];
                let resume = app.request("POST", &format!("/api/runs/{}/resume", id(&paused)), &json);
                let problem = Answer::of(resume.body(invalid.clone()))
                    .await
                    .problem(400, "invalid_request");
                assert_eq!(
                    problem["errors"][0]["pointer"].as_str(),
                    Some(&*pointer),
                    "{invalid}: {problem}"
                );
            }

            let settled = json!({"settled": {&call: happened}});
            let resumed = app.resume(&id(&paused), settled).await.expect(200);
            assert_eq!(
                (&resumed["status"], &resumed["summary"]),
                (&json!("completed"), &json!("Done.")),
                "{resumed}"
            );
            assert_eq!(resumed["in_doubt"], json!([]), "{resumed}");
            let reported = app.gemini.requests().pop().unwrap().to_string();
            let words = match happened {
                true => "the user says that this call had its effect",
                false => "the user says that this call did not have its effect",
            };
            assert!(reported.contains(words), "{reported}");
            let events = app.events(&id(&resumed)).await;
            let resumed = types(&events).iter().position(|kind| *kind == "resumed").unwrap();
            let events = &events[resumed..];
            assert_eq!(
                types(events),
                ["resumed", "tool_result", "notice", "turn", "end"],
                "{events:?}"
            );
            assert_eq!(
                (&events[1]["tool"], &events[1]["sequence"], &events[1]["success"]),
                (&json!("act"), &json!(1), &json!(happened)),
                "{events:?}"
            );
            assert_eq!(server.count("tools/call"), 1, "it is not sent again");
        }
    }
}

/// A called run is resumed through the outermost run.
#[tokio::test]
async fn a_called_run_is_resumed_with_the_outermost_one() {
    for setup in both() {
        let tired = HELPER.replace("approval: never", "approval: never\nmax_turns: 1");
        let mut setup = setup.agent("helper.md", &tired).agent("chief.md", CHIEF);
        setup = setup.script(vec![Reply::from(|request| {
            match (super::asks(request, "chief"), said(request)) {
                (true, 1) => Reply::call("helper", json!({"query": "look"})),
                (true, _) => Reply::Text("It did not get far."),
                (false, 1) => Reply::call("list_tasks", json!({})),
                (false, _) => Reply::Text("Still at it."),
            }
        })]);
        let app = spawn_app(setup).await;
        let chief = app.triggered("chief", "x").await;
        assert_eq!(chief["status"], "completed", "{chief}");
        let called = app.runs(&format!("parent_run_id = \"{}\"", id(&chief))).await;
        assert_eq!(
            (called.len(), &called[0]["status"]),
            (1, &json!("paused")),
            "{called:?}"
        );
        let problem = app.resume(&id(&called[0]), json!({})).await.problem(409, "part_of_run");
        assert_eq!(problem["run_id"], chief["id"], "{problem}");
    }
}

/// Of many concurrent resumes one succeeds, and the others are refused.
#[tokio::test]
async fn of_many_concurrent_resumes_exactly_one_succeeds() {
    for setup in both() {
        let app = spawn_app(setup.agent("short.md", SHORT).script(stops_and_continues())).await;
        let paused = id(&app.triggered("short", "x").await);
        let answers = futures_util::future::join_all((0..8).map(|_| app.resume(&paused, json!({})))).await;
        let mut counted: BTreeMap<u16, usize> = BTreeMap::new();
        for answer in &answers {
            *counted.entry(answer.status).or_default() += 1;
        }
        assert_eq!(counted, BTreeMap::from([(200, 1), (409, 7)]));
        let resumed = answers.iter().find(|answer| answer.status == 200).unwrap();
        assert_eq!(resumed.body["id"], paused);
        for answer in answers.iter().filter(|answer| answer.status == 409) {
            assert_eq!(answer.body["code"], "not_paused", "{}", answer.body);
        }
        assert_eq!(app.gemini.requests().len(), 3);
    }
}

/// A resumed run uses the definition it started with, whatever the files contain now.
#[tokio::test]
async fn a_resumed_run_keeps_the_definition_it_began_with() {
    for setup in both() {
        let app = spawn_app(setup.agent("short.md", SHORT).script(stops_and_continues())).await;
        let paused = app.triggered("short", "x").await;
        let file = app.directory.path().join("agents/short.md");
        std::fs::write(file, SHORT.replace("the short one", "another agent")).unwrap();
        crate::harness::until("the file to be read again", || async {
            app.get("/api/projects/default/agents/short").await.1["definition_hash"] != paused["definition_hash"]
        })
        .await;
        let resumed = app.resume(&id(&paused), json!({})).await.expect(200);
        assert_eq!(resumed["definition_hash"], paused["definition_hash"]);
        let asked = app.gemini.requests().pop().unwrap();
        assert!(super::asks(&asked, "the short one"), "{asked}");
        let fresh = app
            .trigger_with(&path_of("short"), &[], &json!({"query": "x"}))
            .await
            .expect(200);
        assert_ne!(fresh["definition_hash"], paused["definition_hash"]);
    }
}
