//! A confirmed plan is worked through: what begins it, and what does not.

use serde_json::{Value, json};

use super::studio::{Studio, act, continues, done, on_both, path, plan, reason, step, task, task_with};
use crate::gemini::Reply;
use crate::harness::{Answer, Setup, binary};

/// What opens an issue and a pull request, task by task.
pub fn two_tasks() -> Vec<Reply> {
    let mut script = vec![plan(vec![
        task_with("Open an issue", &["getFileContents", "createIssue"]),
        task_with("Open a pull request", &["createPullRequest"]),
    ])];
    script.extend(step("getFileContents", json!({"path": "src/lib.rs"}), continues()));
    script.extend(step(
        "createIssue",
        json!({"title": "Accept ISO weeks"}),
        done(2, "https://github.com/acme/dates/issues/"),
    ));
    script.extend(step(
        "createPullRequest",
        json!({"title": "Accept ISO weeks", "head": "gavel/weeks", "base": "main"}),
        done(1, "https://github.com/acme/dates/pull/"),
    ));
    script
}

/// The runs of `task_worker` that no other run called: one for each execution.
async fn executions(studio: &Studio) -> usize {
    let runs = studio
        .get("/api/projects/default/runs?filter=agent_id%20%3D%20%22task_worker%22")
        .await;
    runs["runs"].as_array().unwrap().len()
}

/// P-301 to P-307: both tasks in order, each until a result shows that it is done; the result holds a log of all actions.
#[tokio::test]
async fn a_confirmed_plan_is_worked_through_to_its_end() {
    on_both(async |setup| {
        let studio = Studio::new(setup, two_tasks()).await;
        let session = studio.start().await;
        let ended = studio.execute_to_the_end(&session).await;
        assert_eq!(ended["status"], "COMPLETED", "{ended}");
        let statuses: Vec<_> = ended["plan"]
            .as_array()
            .unwrap()
            .iter()
            .map(|task| &task["status"])
            .collect();
        assert_eq!(statuses, ["COMPLETED", "COMPLETED"]);
        assert_eq!(
            (&ended["currentTaskId"], &ended["waitingFor"]),
            (&Value::Null, &json!([]))
        );
        assert!(
            ended["startedAt"].is_string() && ended["completedAt"].is_string(),
            "{ended}"
        );
        let [pull] = &*ended["pullRequests"].as_array().unwrap().clone() else {
            panic!("{ended}");
        };
        assert!(
            pull["number"].is_u64() && pull["url"].as_str().unwrap().contains("/acme/dates/pull/"),
            "{pull}"
        );
        assert_eq!(
            ended["usage"]["modelCalls"],
            studio.app.gemini.requests().len(),
            "{ended}"
        );
        let log = ended["result"]["log"].as_array().unwrap();
        let actions: Vec<_> = log
            .iter()
            .map(|action| {
                let text = |name: &str| action[name].as_str().unwrap_or("-").to_owned();
                format!("{} {} {} {}", action["n"], text("taskId"), text("tool"), text("status"))
            })
            .collect();
        assert_eq!(
            actions,
            [
                "1 t1 getFileContents completed",
                "2 t1 createIssue completed",
                "3 t2 createPullRequest completed"
            ]
        );
        assert_eq!(
            (&log[1]["decidedBy"], &log[0]["decidedBy"]),
            (&json!("plan"), &Value::Null)
        );
        assert_eq!(log[1]["arguments"]["title"], "Accept ISO weeks");
        assert_eq!(
            (&ended["result"]["status"], &ended["result"]["logTruncated"]),
            (&json!("COMPLETED"), &json!(false))
        );
        let posts: Vec<_> = studio.github.seen("POST").into_iter().map(|seen| seen.path).collect();
        assert_eq!(posts, ["/repos/acme/dates/issues", "/repos/acme/dates/pulls"]);
        assert_eq!(executions(&studio).await, 1);
        studio.github.finish();
        studio.app.stop().await;
    })
    .await;
}

/// P-205: a confirmation is for the version that the person has seen. Otherwise nothing begins.
#[tokio::test]
async fn a_confirmation_of_an_older_version_begins_nothing() {
    let script = vec![plan(vec![task("Clone")]), plan(vec![task("Clone"), task("Parse")])];
    let studio = Studio::new(Setup::stdio_sqlite(), script).await;
    let session = studio.start().await;
    studio.refine(&session, "and parse").await.expect(200);
    let stale = studio.execute(&session, json!({"planVersion": 1})).await;
    assert_eq!(stale.problem(409, "plan_changed")["planVersion"], 2);
    let unknown = studio
        .execute(&session, json!({"askFor": ["createPullRequest", "rm"]}))
        .await
        .problem(400, "invalid_request");
    assert_eq!(unknown["errors"][0]["pointer"], "/askFor/1", "{unknown}");
    let detail = unknown["errors"][0]["detail"].as_str().unwrap();
    assert!(
        detail.contains("\"rm\"") && detail.contains("createPullRequest"),
        "{detail}"
    );
    studio
        .execute(&session, json!({"planversion": 1}))
        .await
        .problem(400, "invalid_request");
    let session = studio.read(&session).await;
    assert_eq!(session["status"], "AWAITING_CONFIRMATION");
    assert_eq!(executions(&studio).await, 0);
    studio.stop_having_only_read().await;
}

/// One execution, however often and from wherever it is asked for; and the plan is locked from then on.
#[tokio::test]
async fn a_plan_is_executed_once_and_locked_from_then_on() {
    on_both(async |setup| {
        let mut script = vec![plan(vec![task("Open a pull request")]), reason("I wait."), Reply::Hang];
        script.extend(vec![Reply::Hang; 4]);
        let studio = Studio::new(setup, script).await;
        let session = studio.start().await;
        let requests = (0..4).map(|_| studio.execute(&session, json!({"planVersion": 1})));
        for answer in futures_util::future::join_all(requests).await {
            let answer = answer.expect(202);
            assert_eq!(answer["status"], "EXECUTING", "{answer}");
        }
        let again = studio.execute(&session, json!({})).await.expect(202);
        assert_eq!(again["status"], "EXECUTING");
        assert_eq!(executions(&studio).await, 1);
        studio.refine(&session, "more").await.problem(409, "plan_locked");
        let edited = json!({"tasks": [task("Mine")]});
        let plan_path = format!("{}/plan", path(&session));
        let edit = studio.send("PUT", &plan_path, &[("if-match", "\"1\"")], edited).await;
        edit.problem(409, "plan_locked");
        let dry = studio.execute(&session, json!({"dryRun": true})).await;
        dry.problem(409, "plan_locked");
        let at_work = studio
            .once(&session, "the task to begin", |session| {
                session["currentTaskId"] == "t1"
            })
            .await;
        assert_eq!(at_work["plan"][0]["status"], "IN_PROGRESS", "{at_work}");
        assert!([200, 202].contains(&studio.cancel(&session).await.status));
        let ended = studio
            .once(&session, "the session to have a result", |session| {
                session["status"] == "CANCELLED" && !session["result"].is_null()
            })
            .await;
        assert_eq!(ended["result"]["status"], "CANCELLED", "{ended}");
        // It was executed, so asking again shows it as it is.
        let over = studio.execute(&session, json!({})).await.expect(200);
        assert_eq!(over["status"], "CANCELLED");
        assert_eq!(executions(&studio).await, 1);
        studio.stop_having_only_read().await;
    })
    .await;
}

/// A session that ended without its plan being confirmed cannot be executed any more; nor can that of others.
#[tokio::test]
async fn what_has_ended_or_belongs_to_others_is_not_executed() {
    let studio = Studio::new(Setup::stdio_sqlite(), vec![plan(vec![task("Clone")])]).await;
    let session = studio.start().await;
    let as_bob = studio.app.request(
        "POST",
        &format!("{}/execute", path(&session)),
        &[("x-gavel-user", "bob")],
    );
    Answer::of(as_bob.json(&json!({}))).await.problem(404, "not_found");
    studio.cancel(&session).await.expect(200);
    studio.execute(&session, json!({})).await.problem(409, "session_over");
    let read = studio.read(&session).await;
    assert_eq!(
        read["result"],
        json!({"status": "CANCELLED", "log": [], "logTruncated": false, "cleanup": {"removed": [], "left": []}})
    );
    studio.stop_having_only_read().await;
}

/// What the plan would lead to is known before it is confirmed, and so is why a server is not connected. Knowing it
/// begins nothing. The level of the shell's sandbox is in `/readyz`.
#[tokio::test]
async fn a_dry_run_says_what_each_tool_would_need() {
    let tasks = vec![task_with(
        "Tidy up",
        &["getFileContents", "createIssue", "createPullRequest", "closeIssue"],
    )];
    let policy = "rules:\n  - {name: short-titles, tools: [createIssue], when: 'size(arguments.title) > 80', then: deny, \
                  reason: titles are short}\n";
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), policy).unwrap();
    let setup = Setup::stdio_sqlite().env("GAVEL_POLICY", file.path().display().to_string());
    let off = json!({"command": "notes", "gavel": {"requiredEnv": [["NOTES_URL"]]}});
    let root = tempfile::tempdir().unwrap();
    let built_in: Value = serde_json::from_str(gavel::app::BUILT_IN_SERVERS).unwrap();
    let mut shell = built_in["mcpServers"]["shell"].clone();
    shell["command"] = json!(binary());
    // The only level that works on every machine.
    shell["env"] = json!({"SHELL_SANDBOX": "host", "SHELL_ROOT": root.path().join("shell")});
    let more = |setup: Setup| setup.beside("notes", off).beside("sandboxed", shell);
    let studio = Studio::with(setup, vec![plan(tasks)], more).await;
    let session = studio.start().await;
    let asked = json!({"dryRun": true, "planVersion": 1, "askFor": ["createPullRequest"]});
    let dry = studio.execute(&session, asked).await.expect(200);
    let answers: Vec<_> = dry["tasks"][0]["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| {
            format!(
                "{} {}",
                tool["tool"].as_str().unwrap(),
                tool["answer"].as_str().unwrap()
            )
        })
        .collect();
    assert_eq!(
        answers,
        [
            "getFileContents allow",
            "createIssue depends_on_arguments",
            "createPullRequest require_approval",
            "closeIssue require_approval"
        ],
        "{dry}"
    );
    let reason = dry["tasks"][0]["tools"][1]["reason"].as_str().unwrap();
    assert!(reason.contains("short-titles"), "{reason}");
    assert_eq!(
        dry["servers"],
        json!([
            {"server": "github", "state": "connected", "reason": null},
            {"server": "notes", "state": "unavailable", "reason": "needs NOTES_URL, which is not set"},
            {"server": "sandboxed", "state": "connected", "reason": null},
        ])
    );
    let github = &dry["conditions"][0];
    assert_eq!(
        (&github["of"], &github["state"]),
        (&json!("github"), &json!("good")),
        "{dry}"
    );
    let detail = github["detail"].as_str().unwrap();
    for said in ["the scopes repo, workflow", "4999 of 5000 requests remain"] {
        assert!(detail.contains(said), "{detail}");
    }
    assert!(!detail.contains(crate::github::TOKEN), "{detail}");
    // This process is not the program, so it cannot try the sandbox itself: what is connected names its level.
    assert_eq!(
        (&dry["conditions"][1]["of"], dry["conditions"].as_array().unwrap().len()),
        (&json!("shell"), 2),
        "the other servers are off: {dry}"
    );
    let (_, ready) = studio.app.get("/readyz").await;
    let servers = ready["mcp"].as_array().unwrap();
    let detail = |name: &str| {
        let found = servers.iter().find(|server| server["server"] == name).unwrap();
        (&found["state"], &found["detail"])
    };
    let up = json!("up");
    assert_eq!(detail("github"), (&up, &Value::Null), "{ready}");
    assert_eq!(detail("sandboxed"), (&up, &json!("sandbox host")), "{ready}");
    assert_eq!(
        (&dry["planVersion"], &dry["tasks"][0]["taskId"]),
        (&json!(1), &json!("t1"))
    );
    let stale = studio
        .execute(&session, json!({"dryRun": true, "planVersion": 9}))
        .await;
    stale.problem(409, "plan_changed");
    assert_eq!(studio.read(&session).await["status"], "AWAITING_CONFIRMATION");
    assert_eq!(executions(&studio).await, 0);
    studio.stop_having_only_read().await;
}

/// Closing an issue asks by default, whatever the plan names. The session waits, and says for what.
#[tokio::test]
async fn a_session_says_which_approval_it_waits_for_and_continues_after_it() {
    on_both(async |setup| {
        let mut script = vec![plan(vec![task_with(
            "Close the issue",
            &["createIssue", "closeIssue", "readIssue"],
        )])];
        script.extend(step("createIssue", json!({"title": "Weeks"}), continues()));
        script.extend([
            reason("Now it is closed."),
            act("closeIssue", json!({"issueNumber": 1})),
            continues(),
            reason("Now it is seen."),
            act("readIssue", json!({"issueNumber": 1})),
            done(3, "https://github.com/acme/dates/issues/"),
        ]);
        let studio = Studio::new(setup, script).await;
        let session = studio.start().await;
        studio.execute(&session, json!({})).await.expect(202);
        let waits = studio
            .once(&session, "the approval to be asked for", |session| {
                session["waitingFor"].as_array().is_some_and(|waits| !waits.is_empty())
            })
            .await;
        assert_eq!(waits["status"], "EXECUTING", "{waits}");
        let wait = &waits["waitingFor"][0];
        assert_eq!(
            (&wait["kind"], &wait["taskId"], &wait["tool"]),
            (&json!("approval"), &json!("t1"), &json!("closeIssue"))
        );
        let pending = studio.get("/api/agent/approvals/pending").await;
        let pending = &pending["approvals"][0];
        assert_eq!(pending["approvalId"], wait["approvalId"], "{pending}");
        assert_eq!(
            (&pending["sessionId"], &pending["taskId"]),
            (&waits["sessionId"], &json!("t1"))
        );
        assert_eq!(pending["threadId"], Value::Null);
        let approve = json!({"approvalId": wait["approvalId"], "decision": "approve_once"});
        studio
            .send("POST", "/api/agent/approvals/resolve", &[], approve)
            .await
            .expect(200);
        let ended = studio
            .once(&session, "the session to end", |session| {
                !session["completedAt"].is_null()
            })
            .await;
        assert_eq!(ended["status"], "COMPLETED", "{ended}");
        assert_eq!(ended["result"]["log"][1]["decidedBy"], "tool", "{ended}");
        assert_eq!(studio.github.seen("PATCH").len(), 1);
        studio.github.finish();
        studio.app.stop().await;
    })
    .await;
}
