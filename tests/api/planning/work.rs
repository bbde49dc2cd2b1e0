//! The work on confirmed plans, walked over HTTP: changes under way, evidence, approvals, calls in doubt, the deadline,
//! cancellation, and long tasks.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::studio::{Studio, act, continues, done, on_both, path, plan, reason, step, task_with};
use crate::console::rig::{Browser, form_token};
use crate::gemini::Reply;
use crate::harness::{Setup, binary, rows, until};
use crate::server::{Era, HttpServer};

/// The worker of these tests: also with the tools of a server of their own.
const WORKER: &str = "\
---
name: task_worker
description: Works on one task.
inputConfig:
  inputs:
    task: {description: The task., type: string, required: true}
promptConfig:
  query: ${task}
toolConfig:
  tools: [getFileContents, createIssue, closeIssue, createPullRequest, echo, slow]
approval: side_effects
---
You work.
";

/// A service whose worker can also call the tools of this server.
fn with(setup: Setup, server: &HttpServer, settings: Value) -> Setup {
    // The server says nothing of its tools, so the operator says that they stay in the session.
    let tools = json!({"echo": {"scope": {}}, "slow": {"scope": {}}});
    let mut entry = json!({"type": "http", "url": server.url, "gavel": {"tools": tools}});
    entry
        .as_object_mut()
        .unwrap()
        .extend(settings.as_object().unwrap().clone());
    setup.beside("own", entry)
}

async fn studio(setup: Setup, server: &HttpServer, settings: Value, script: Vec<Reply>) -> Studio {
    Studio::with(setup, script, |setup| {
        with(setup.agent("task_worker.md", WORKER), server, settings)
    })
    .await
}

fn reflects(further: Value) -> Reply {
    let mut reflection = json!({"is_task_complete": false, "summary": "Seen."});
    reflection
        .as_object_mut()
        .unwrap()
        .extend(further.as_object().unwrap().clone());
    Reply::call("reflect", reflection)
}

fn add(title: &str, further: Value) -> Value {
    let mut change = json!({
        "op": "add", "title": title, "goal": "g", "doneWhen": "d", "tools": ["getFileContents"], "why": "it is missing",
    });
    let further = further.as_object().unwrap().clone();
    change.as_object_mut().unwrap().extend(further);
    change
}

fn reads(reflects: Reply) -> Vec<Reply> {
    step("getFileContents", json!({"path": "README.md"}), reflects)
}

/// Status, title and reason of every task.
fn tasks(session: &Value) -> Vec<(&str, &str, &str)> {
    let tasks = session["plan"].as_array().unwrap();
    tasks
        .iter()
        .map(|task| {
            let text = |value: &'_ Value| value.as_str().unwrap_or_default().to_owned().leak() as &str;
            (
                text(&task["title"]),
                text(&task["status"]),
                text(&task["statusReason"]["code"]),
            )
        })
        .collect()
}

/// P-304: a task is added and one becomes unnecessary while the plan is worked through; the history has both versions.
#[tokio::test]
async fn a_plan_changes_while_it_is_worked_through() {
    on_both(async |setup| {
        let tools = &["getFileContents"][..];
        let first = plan(vec![task_with("One", tools), task_with("Two", tools)]);
        let changes = json!([add("Three", json!({})), {"op": "obsolete", "task": "t2", "why": "One did it"}]);
        let mut script = vec![first];
        script.extend(reads(reflects(json!({"plan_changes": changes}))));
        script.extend(reads(done(1, "Reads a date from text")));
        script.extend(reads(done(1, "Reads a date from text")));
        let studio = Studio::new(setup, script).await;
        let session = studio.start().await;
        let ended = studio.execute_to_the_end(&session).await;
        assert_eq!(ended["status"], "COMPLETED", "{ended}");
        let expected = [
            ("One", "COMPLETED", ""),
            ("Two", "OBSOLETE", "obsolete"),
            ("Three", "COMPLETED", ""),
        ];
        assert_eq!(tasks(&ended), expected);
        assert_eq!(
            (&ended["planVersion"], &ended["plan"][1]["runId"]),
            (&json!(2), &Value::Null)
        );
        let history = studio.get(&format!("{}/history", path(&session))).await;
        let versions = history["versions"].as_array().unwrap_or_else(|| panic!("{history}"));
        assert_eq!(versions.len(), 2);
        assert_eq!(
            (&versions[1]["kind"], &versions[1]["by"]),
            (&json!("changed"), &json!("agent"))
        );
        assert_eq!(versions[1]["why"], "it is missing; One did it");
        assert_eq!(versions[0]["plan"].as_array().unwrap().len(), 2);
        studio.stop_having_only_read().await;
    })
    .await;
}

/// A failed task fails the session, unless another one takes its place.
#[tokio::test]
async fn a_failed_task_is_replaced_or_fails_the_session() {
    let tools = &["getFileContents"][..];
    let mut script = vec![plan(vec![task_with("One", tools)])];
    let replaces = json!([add("Another way", json!({"replaces": "t1"}))]);
    script.extend(reads(reflects(json!({"plan_changes": replaces}))));
    script.extend(reads(done(1, "Reads a date from text")));
    script.push(plan(vec![task_with("One", tools), task_with("Two", tools)]));
    script.extend(reads(reflects(json!({"give_up": "there is no way"}))));
    let studio = Studio::new(Setup::stdio_sqlite(), script).await;
    let ended = studio.execute_to_the_end(&studio.start().await).await;
    assert_eq!(ended["status"], "COMPLETED", "{ended}");
    let expected = [("One", "FAILED", "replaced"), ("Another way", "COMPLETED", "")];
    assert_eq!(tasks(&ended), expected);
    let ended = studio.execute_to_the_end(&studio.start().await).await;
    assert_eq!(
        (&ended["status"], &ended["statusReason"]["code"]),
        (&json!("FAILED"), &json!("task_failed"))
    );
    assert!(
        ended["statusReason"]["detail"]
            .as_str()
            .unwrap()
            .contains("there is no way"),
        "{ended}"
    );
    assert_eq!(tasks(&ended), [("One", "FAILED", "gave_up"), ("Two", "PENDING", "")]);
    studio.stop_having_only_read().await;
}

/// What no result shows is not complete, and the model receives the reason.
#[tokio::test]
async fn a_claim_that_no_result_shows_is_refused_and_three_in_a_row_fail_the_task() {
    let mut script = vec![plan(vec![task_with("One", &["getFileContents"])])];
    script.extend(reads(done(1, "Reads a week from text")));
    script.push(done(1, "118 passed"));
    script.push(done(2, "Reads a date from text"));
    let studio = Studio::new(Setup::stdio_sqlite(), script).await;
    let session = studio.start().await;
    let ended = studio.execute_to_the_end(&session).await;
    assert_eq!(ended["status"], "FAILED", "{ended}");
    assert_eq!(tasks(&ended), [("One", "FAILED", "unproven")]);
    let requests = studio.app.gemini.requests();
    let said = requests.last().unwrap()["contents"].to_string();
    assert!(
        said.contains("does not occur in a line of text of the result of step 1"),
        "{said}"
    );
    assert_eq!(requests.len(), 6);
    studio.stop_having_only_read().await;
}

/// A tool that no person confirmed asks, and so does what leaves the branches of the session; after a rejection the
/// person's reason is the observation. Nothing is sent before.
#[tokio::test]
async fn what_the_confirmed_plan_does_not_allow_asks_a_person() {
    on_both(async |setup| {
        let pull = |head: &str| act("createPullRequest", json!({"title": "x", "head": head, "base": "main"}));
        let mut script = vec![plan(vec![task_with("One", &["createPullRequest"])])];
        script.extend(step("createIssue", json!({"title": "asked for"}), continues()));
        script.extend([reason("On main."), pull("main"), continues()]);
        script.extend([
            reason("On a branch."),
            pull("gavel/x"),
            done(3, "https://github.com/acme/dates/pull/"),
        ]);
        let studio = Studio::new(setup, script).await;
        let session = studio.start().await;
        studio.execute(&session, json!({})).await.expect(202);
        for (tool, answer) in [
            ("createIssue", json!({"decision": "approve_once"})),
            (
                "createPullRequest",
                json!({"decision": "reject", "reason": "never on main"}),
            ),
        ] {
            let waits = studio
                .once(&session, "it waits", |session| session["waitingFor"][0]["tool"] == tool)
                .await;
            let wait = &waits["waitingFor"][0];
            assert_eq!(
                (&wait["kind"], &wait["taskId"]),
                (&json!("approval"), &json!("t1")),
                "{waits}"
            );
            assert_eq!(waits["status"], "EXECUTING");
            let posts = studio.github.seen("POST").len();
            assert_eq!(posts, usize::from(tool == "createPullRequest"));
            let mut answer = answer;
            answer["approvalId"] = wait["approvalId"].clone();
            studio
                .send("POST", "/api/agent/approvals/resolve", &[], answer)
                .await
                .expect(200);
        }
        let ended = studio
            .once(&session, "it ends", |session| !session["completedAt"].is_null())
            .await;
        assert_eq!(ended["status"], "COMPLETED", "{ended}");
        let task = studio.get(&format!("{}/tasks/t1", path(&session))).await;
        let rejected = &task["reactHistory"][1]["observation"]["error"];
        assert_eq!(rejected["code"], "rejected");
        assert!(
            rejected["message"].as_str().unwrap().contains("never on main"),
            "{task}"
        );
        // The issue, and the pull request on the session's own branch.
        assert_eq!(studio.github.seen("POST").len(), 2);
        assert_eq!(ended["pullRequests"].as_array().unwrap().len(), 1, "{ended}");
        studio.github.finish();
        studio.app.stop().await;
    })
    .await;
}

/// A session with a call in doubt is complete only once a person has settled it, by the API or on its page. Its history
/// then says what became of the call. Servers learn which session a call is made for.
#[tokio::test]
async fn a_call_in_doubt_keeps_a_session_open_until_a_person_settles_it() {
    let walk = async |setup: Setup, happened: bool| {
        let server = HttpServer::start(Era::Stateless).await;
        let mut script = vec![plan(vec![task_with("One", &["slow", "echo"])])];
        script.extend([reason("I begin."), Reply::call("slow", json!({})), continues()]);
        script.extend([
            reason("I look."),
            Reply::call("echo", json!({"n": 1})),
            done(2, "acme/dates"),
        ]);
        let studio = studio(setup, &server, json!({"timeout": 1000}), script).await;
        let session = studio.start().await;
        studio.execute(&session, json!({})).await.expect(202);
        let waits = studio
            .once(&session, "it waits", |session| {
                session["plan"][0]["status"] == "COMPLETED" && session["waitingFor"][0]["kind"] == "in_doubt"
            })
            .await;
        assert_eq!(waits["status"], "EXECUTING", "{waits}");
        let task = studio.get(&format!("{}/tasks/t1", path(&session))).await;
        let meta = &task["reactHistory"][1]["observation"]["meta"];
        assert_eq!(meta["gavel/session_id"], session["sessionId"], "{task}");
        // It does not become complete by itself.
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert_eq!(studio.read(&session).await["status"], "EXECUTING");
        let action = waits["waitingFor"][0]["actionId"].as_str().unwrap();
        match happened {
            true => {
                let settle = format!("/api/agent/actions/{action}/settle");
                let answer = json!({"happened": true});
                studio.send("POST", &settle, &[], answer).await.expect(200);
            }
            false => did_not_happen(&studio, &session, action).await,
        }
        let ended = studio
            .once(&session, "it ends", |session| !session["completedAt"].is_null())
            .await;
        assert_eq!(ended["status"], "COMPLETED", "{ended}");
        let became = if happened { "completed" } else { "failed" };
        let task = studio.get(&format!("{}/tasks/t1", path(&session))).await;
        let states: Vec<_> = task["reactHistory"]
            .as_array()
            .unwrap()
            .iter()
            .map(|step| &step["state"])
            .collect();
        assert_eq!(states, [became, "completed"], "{task}");
        let log = studio.get(&format!("{}/log", path(&session))).await;
        assert_eq!(log["actions"][0]["status"], became, "{log}");
        studio.app.stop().await;
    };
    tokio::join!(walk(Setup::stdio_sqlite(), true), walk(Setup::stdio_postgres(), false));
}

/// Settles an action on the page of its session.
async fn did_not_happen(studio: &Studio, session: &Value, action: &str) {
    let browser = Browser::at(&studio.app);
    let id = session["sessionId"].as_str().unwrap();
    let page = format!("/console/sessions/{id}");
    let shown = browser.get(&page).await.is(200);
    for text in ["its outcome is unknown", "It happened…", "It did not happen…"] {
        assert!(shown.contains(text), "{text}: {shown}");
    }
    let (form, token) = (format!("/console/actions/{action}"), form_token(&shown));
    assert!(shown.contains(&format!("action=\"{form}\"")), "{shown}");
    let fields = [("form_token", token.as_str()), ("happened", "no"), ("back", id)];
    let landed = browser.post(&form, &fields).await;
    landed.leads_to(&format!("{page}?settled={action}"));
    let after = browser.get(landed.location()).await.is(200);
    assert!(!after.contains("It did not happen…"), "{after}");
}

/// Nothing begins after the deadline, and what is under way is cut at its server.
#[tokio::test]
async fn the_deadline_cuts_the_call_under_way_and_ends_the_session() {
    on_both(async |setup| {
        let mut server = HttpServer::start(Era::Stateless).await;
        let script = vec![
            plan(vec![task_with("One", &["slow"]), task_with("Two", &["slow"])]),
            reason("I begin."),
            Reply::call("slow", json!({})),
        ];
        let studio = studio(setup, &server, json!({"timeout": 60_000}), script).await;
        let deadline = Duration::from_secs(13);
        let session = studio.start_until(deadline).await;
        let began = Instant::now();
        studio.execute(&session, json!({})).await.expect(202);
        while server.events.recv().await.unwrap() != "slow began" {}
        while server.events.recv().await.unwrap() != "slow cancelled" {}
        assert!(began.elapsed() < deadline + Duration::from_secs(5));
        let ended = studio
            .once(&session, "it ends", |session| {
                !session["completedAt"].is_null() && session["plan"][0]["status"] == "FAILED"
            })
            .await;
        assert_eq!(ended["status"], "DEADLINE_EXCEEDED", "{ended}");
        assert!(began.elapsed() < deadline + Duration::from_secs(5));
        assert_eq!(tasks(&ended), [("One", "FAILED", "deadline"), ("Two", "PENDING", "")]);
        let log = studio.get(&format!("{}/log", path(&session))).await;
        let cut = &log["actions"][0];
        assert_eq!(
            (&cut["tool"], &cut["status"]),
            (&json!("slow"), &json!("in_doubt")),
            "{log}"
        );
        assert_eq!(studio.app.gemini.requests().len(), 3);
        studio.app.stop().await;
    })
    .await;
}

/// Cancelling does the same, says who did it, and what the tasks left behind is removed.
#[tokio::test]
async fn a_cancelled_session_ends_its_call_is_cleaned_up_and_names_who_cancelled_it() {
    on_both(async |setup| {
        let mut server = HttpServer::start(Era::Stateless).await;
        let script = vec![
            plan(vec![task_with("One", &["slow"])]),
            reason("I begin."),
            Reply::call("slow", json!({})),
        ];
        let studio = studio(setup, &server, json!({"timeout": 60_000}), script).await;
        let session = studio.start().await;
        studio.execute(&session, json!({})).await.expect(202);
        while server.events.recv().await.unwrap() != "slow began" {}
        let cancel = format!("{}/cancel", path(&session));
        studio.send("POST", &cancel, &[], json!({"reason": "not today"})).await;
        while server.events.recv().await.unwrap() != "slow cancelled" {}
        let ended = studio
            .once(&session, "the cleanup is noted", |session| {
                !session["result"]["cleanup"]["removed"][0].is_null()
            })
            .await;
        assert_eq!(ended["status"], "CANCELLED", "{ended}");
        let detail = ended["statusReason"]["detail"].as_str().unwrap();
        assert!(detail.contains("ann") && detail.contains("not today"), "{detail}");
        assert_eq!(tasks(&ended), [("One", "FAILED", "cancelled")]);
        assert_eq!(server.events.recv().await.unwrap(), "cleaned up");
        let removed = json!({"removed": ["container-1"], "left": []});
        assert_eq!(ended["result"]["cleanup"], removed, "{ended}");
        studio.app.stop().await;
    })
    .await;
}

/// P-302: a session whose containers cannot be removed says so.
#[tokio::test]
async fn a_session_without_the_tool_that_removes_containers_says_that_they_are_left() {
    let built_in: Value = serde_json::from_str(gavel::app::BUILT_IN_SERVERS).unwrap();
    let mut entry = built_in["mcpServers"]["docker"].clone();
    entry["command"] = json!(binary());
    entry["includeTools"] = json!(["createContainer"]);
    entry["env"] = json!({"DOCKER_HOST": "unix:///nowhere", "DOCKER_IMAGES": "debian:12"});
    let mut script = vec![plan(vec![task_with("One", &["createContainer", "getFileContents"])])];
    script.extend(reads(done(1, "Reads a date from text")));
    let studio = Studio::with(Setup::stdio_sqlite(), script, |setup| setup.beside("docker", entry)).await;
    let session = studio.start().await;
    let ended = studio.execute_to_the_end(&session).await;
    assert_eq!(ended["status"], "COMPLETED", "{ended}");
    let left = ended["result"]["cleanup"]["left"][0].as_str().unwrap_or_default();
    assert!(left.contains("no connected server offers the tool"), "{ended}");
    studio.app.stop().await;
}

/// A journal that cannot be read does not say what is left, so nothing says that all is removed.
#[tokio::test]
async fn a_session_whose_journal_cannot_be_read_does_not_know_what_is_left() {
    on_both(async |setup| {
        let script = vec![
            plan(vec![task_with("One", &["getFileContents"])]),
            reason("I begin."),
            act("getFileContents", json!({"path": "README.md"})),
        ];
        let studio = Studio::new(setup, script).await;
        let session = studio.start().await;
        let ask = json!({"askFor": ["getFileContents"]});
        studio.execute(&session, ask).await.expect(202);
        let waits = |session: &Value| !session["waitingFor"][0].is_null();
        studio.once(&session, "a call to wait", waits).await;
        let id = session["sessionId"].as_str().unwrap();
        let spoil = "UPDATE agent_run_entry SET body = '{\"of\": \"another time\"}' WHERE number = 1 \
                     AND run_id IN (SELECT run_id FROM planning_session)";
        crate::console::login::run(&studio.app, spoil).await;
        studio.cancel(&session).await;
        let ended = format!(
            "SELECT COUNT(*) FROM planning_session WHERE id = '{id}' \
             AND cleanup LIKE '%\"left\":[\"unknown: it was not done\"]%'"
        );
        until("the session to end, unaware of what is left", || async {
            rows(&studio.app.database_url, &ended).await == 1
        })
        .await;
        studio.app.stop().await;
    })
    .await;
}

/// Sixty steps with 100 KiB each. Every request stays within the budget, and the journal has all.
#[tokio::test]
async fn a_long_task_stays_within_the_budget_and_loses_nothing() {
    const STEPS: usize = 60;
    let mut script = vec![plan(vec![task_with("One", &["getFileContents"])])];
    for n in 1..=STEPS {
        let reflects = match n {
            STEPS => done(60, "this is line"),
            _ => continues(),
        };
        script.extend(step("getFileContents", json!({"path": format!("{n}.txt")}), reflects));
    }
    let studio = Studio::with(Setup::stdio_sqlite(), script, |setup| {
        setup.toml("max_steps_per_task = 60\n")
    })
    .await;
    studio.github.state(|state| {
        let repository = state.repository("acme", "dates");
        for n in 1..=STEPS {
            let text = format!("this is line {n}\n").repeat(100 * 1024 / format!("this is line {n}\n").len());
            repository.files.insert(format!("{n}.txt"), text.into_bytes());
        }
    });
    let session = studio.start().await;
    let ended = studio.execute_to_the_end(&session).await;
    assert_eq!(ended["status"], "COMPLETED", "{}", ended["statusReason"]);
    let sizes = studio.app.gemini.sizes();
    assert_eq!(sizes.len(), 1 + 3 * STEPS);
    for (bytes, n) in sizes.into_iter().zip(1..) {
        assert!(bytes / 4 <= 200_000, "request {n} has {} tokens", bytes / 4);
    }
    let task = studio.get(&format!("{}/tasks/t1", path(&session))).await;
    let history = task["reactHistory"].as_array().unwrap();
    assert_eq!(history.len(), STEPS);
    for (step, n) in history.iter().zip(1..) {
        assert_eq!(step["n"], n);
        let text = step["observation"]["file"]["content"].as_str().unwrap();
        assert!(text.len() > 100_000, "step {n}: {}", text.len());
    }
    studio.stop_having_only_read().await;
}

/// A confirmed plan that names updates covers those of what the session has created, in an earlier task too.
/// Others ask, and an update that closes asks as the tool that closes does.
#[tokio::test]
async fn an_update_of_what_the_session_did_not_create_asks_a_person() {
    on_both(async |setup| {
        let update = |n: u32, updates: Value| act("updateIssue", json!({"issueNumber": n, "updates": updates}));
        let mut script = vec![plan(vec![
            task_with("One", &["createIssue"]),
            task_with("Two", &["updateIssue"]),
        ])];
        script.extend(step(
            "createIssue",
            json!({"title": "Weeks"}),
            done(1, "https://github.com/acme/dates/issues/"),
        ));
        script.extend([reason("Ours."), update(2, json!({"title": "ISO weeks"})), continues()]);
        script.extend([reason("Theirs."), update(1, json!({"title": "Mine now"})), continues()]);
        script.extend([
            reason("Close it."),
            update(2, json!({"state": "closed"})),
            done(1, "https://github.com/acme/dates/issues/"),
        ]);
        let studio = Studio::new(setup, script).await;
        studio.github.state(|state| {
            state
                .repository("acme", "dates")
                .open_issue(&json!({"title": "Theirs", "body": "x"}));
        });
        let session = studio.start().await;
        assert_eq!(session["scope"]["mayAsk"], json!(["updateIssue"]), "{session}");
        studio.execute(&session, json!({})).await.expect(202);
        let mut before = Value::Null;
        for _ in 0..2 {
            let waits = studio
                .once(&session, "it waits", |session| {
                    let waits = &session["waitingFor"][0];
                    waits["tool"] == "updateIssue" && waits["approvalId"] != before
                })
                .await;
            before = waits["waitingFor"][0]["approvalId"].clone();
            assert_eq!(
                studio.github.seen("PATCH").len(),
                1,
                "only the session's own issue was changed"
            );
            let answer = json!({"approvalId": before, "decision": "reject", "reason": "no"});
            studio
                .send("POST", "/api/agent/approvals/resolve", &[], answer)
                .await
                .expect(200);
        }
        let ended = studio
            .once(&session, "it ends", |session| !session["completedAt"].is_null())
            .await;
        assert_eq!(ended["status"], "COMPLETED", "{ended}");
        assert_eq!(studio.github.seen("PATCH").len(), 1);
        studio.github.finish();
        studio.app.stop().await;
    })
    .await;
}
