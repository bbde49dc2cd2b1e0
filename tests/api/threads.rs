//! Threads and approvals over HTTP, on both databases.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::audit::{audit_is_whole, rows};
use crate::docs::execute;
use crate::gemini::Reply;
use crate::harness::{Answer, App, Setup, spawn_app, until};

/// Answers in threads; `add_task` has side effects, `list_tasks` only reads.
pub(crate) const WORKSPACE: &str = "---\nname: workspace\ndescription: Works.\napproval: never\n\
                         tools: [add_task, list_tasks]\n---\n\nYou are the workspace.\n";

pub(crate) fn both() -> [Setup; 2] {
    [Setup::stdio_sqlite(), Setup::stdio_postgres()].map(|setup| setup.agent("workspace.md", WORKSPACE))
}

impl App {
    pub(crate) async fn say_as(&self, user: &str, body: Value) -> Answer {
        let headers = [("x-gavel-user", user)];
        Answer::of(self.request("POST", "/api/agent/run", &headers).json(&body)).await
    }

    pub(crate) async fn say(&self, prompt: &str) -> Value {
        self.say_as("ann", json!({"prompt": prompt})).await.expect(200)
    }

    pub(crate) async fn resolve_as(&self, user: &str, body: Value) -> Answer {
        let headers = [("x-gavel-user", user)];
        Answer::of(
            self.request("POST", "/api/agent/approvals/resolve", &headers)
                .json(&body),
        )
        .await
    }

    pub(crate) async fn resolve(&self, approval: &Value, decision: &str) -> Value {
        self.resolve_as("ann", json!({"approvalId": approval, "decision": decision}))
            .await
            .expect(200)
    }

    pub(crate) async fn get_by(&self, user: &str, path: &str) -> Answer {
        Answer::of(self.request("GET", path, &[("x-gavel-user", user)])).await
    }

    pub(crate) async fn pending(&self, user: &str) -> Vec<Value> {
        let page = self.get_by(user, "/api/agent/approvals/pending").await.expect(200);
        page["approvals"].as_array().unwrap().clone()
    }

    pub(crate) async fn task_names(&self) -> Vec<String> {
        self.tasks().await.into_iter().map(|task| task.description).collect()
    }

    pub(crate) async fn thread(&self, run: &Value) -> Vec<(String, String)> {
        let path = format!("/api/agent/threads/{}", run["threadId"].as_str().unwrap());
        let thread = self.get_by("ann", &path).await.expect(200);
        let line = |message: &Value| {
            let text = |field: &str| message[field].as_str().unwrap().to_owned();
            let what = if message["kind"] == "message" { "role" } else { "kind" };
            (text(what), text("text"))
        };
        thread["messages"].as_array().unwrap().iter().map(line).collect()
    }
}

pub(crate) fn add(task: &str) -> Reply {
    Reply::call("add_task", json!({"description": task}))
}

/// How many contents the model has received in this run.
pub(crate) fn said(request: &Value) -> usize {
    request["contents"].as_array().unwrap().len()
}

/// A policy that lets `add_task` run without approval.
pub(crate) fn no_approval_required() -> tempfile::NamedTempFile {
    let policy = tempfile::NamedTempFile::new().unwrap();
    let rule = "rules:\n- {name: tasks, tools: add_task, then: allow, reason: harmless}\n";
    std::fs::write(policy.path(), rule).unwrap();
    policy
}

/// The first statement makes a table reject rows for which this condition holds, the second removes that.
pub(crate) fn refusal(url: &str, table: &str, when: &str) -> [String; 2] {
    if url.starts_with("postgres") {
        let refuse = format!(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN RAISE 'no more'; END$$; \
             CREATE TRIGGER refuse BEFORE INSERT ON {table} FOR EACH ROW WHEN ({when}) EXECUTE FUNCTION refuse()"
        );
        let allow = format!("DROP TRIGGER refuse ON {table}; DROP FUNCTION refuse()");
        return [refuse, allow];
    }
    let refuse =
        format!("CREATE TRIGGER refuse BEFORE INSERT ON {table} WHEN {when} BEGIN SELECT RAISE(ABORT, 'no more'); END");
    [refuse, "DROP TRIGGER refuse".to_owned()]
}

/// R-2, R-3, R-4: without tools the answer is the reply. The thread keeps both lines, and the model receives them with
/// the next message.
#[tokio::test]
async fn a_thread_keeps_its_messages_and_the_model_receives_them() {
    for setup in both() {
        let app = spawn_app(setup.script(vec![Reply::Text("Hello Ann."), Reply::Text("As I said.")])).await;
        let first = app.say("Hello.").await;
        assert_eq!(
            (&first["ok"], &first["status"], &first["summary"], &first["actions"]),
            (&json!(true), &json!("completed"), &json!("Hello Ann."), &json!([])),
            "{first}"
        );
        let second = app
            .say_as("ann", json!({"prompt": "Again?", "threadId": first["threadId"]}))
            .await
            .expect(200);
        assert_eq!(second["threadId"], first["threadId"]);
        let lines = [
            ("user", "Hello."),
            ("assistant", "Hello Ann."),
            ("user", "Again?"),
            ("assistant", "As I said."),
        ];
        assert_eq!(
            app.thread(&first).await,
            lines.map(|(role, text)| (role.to_owned(), text.to_owned()))
        );
        let asked = app.gemini.requests();
        assert_eq!(asked[1]["contents"][1]["parts"][0]["text"], "Hello Ann.");
        let decision = app.decision(&second["runId"]).await;
        assert_eq!(
            (&decision["surface"], &decision["status"]),
            (&json!("thread"), &json!("closed"))
        );
    }
}

/// R-5, R-11, R-14, R-17: a side effect requires approval whatever the definition says. Once approved it is done once,
/// and the response reports all of it.
#[tokio::test]
async fn a_side_effect_waits_for_approval_and_is_done_once() {
    for setup in both() {
        let model = Reply::from(|request| match said(request) {
            1 => add("milk"),
            _ => Reply::Text("It is on the list."),
        });
        let app = spawn_app(setup.script(vec![model])).await;
        let waiting = app.say("Put milk on my list.").await;
        assert_eq!(waiting["status"], "awaiting_confirmation", "{waiting}");
        let action = &waiting["actions"][0];
        assert_eq!(
            (
                &action["tool"],
                &action["status"],
                &action["requiresApproval"],
                &action["arguments"]
            ),
            (
                &json!("add_task"),
                &json!("awaiting_confirmation"),
                &json!(true),
                &json!({"description": "milk"})
            ),
            "{waiting}"
        );
        assert!(app.task_names().await.is_empty(), "nothing runs without approval");
        let pending = app.pending("ann").await;
        assert_eq!(pending.len(), 1);
        for (field, value) in [
            ("approvalId", &action["approvalId"]),
            ("runId", &waiting["runId"]),
            ("threadId", &waiting["threadId"]),
            ("arguments", &action["arguments"]),
        ] {
            assert_eq!(&pending[0][field], value, "{field}");
        }

        let done = app.resolve(&action["approvalId"], "approve_once").await;
        assert_eq!(
            (&done["status"], &done["summary"], &done["actions"][0]["status"]),
            (&json!("completed"), &json!("It is on the list."), &json!("completed")),
            "{done}"
        );
        assert_eq!(app.task_names().await, ["milk"]);
        let again = app.resolve(&action["approvalId"], "approve_once").await;
        assert_eq!(again, done, "a repeated resolve gives the same answer");
        let late = app
            .resolve_as("ann", json!({"approvalId": action["approvalId"], "decision": "reject"}))
            .await;
        let late = late.problem(409, "already_resolved");
        assert_eq!(
            late["outcome"],
            json!({"state": "completed", "decision": "approve_once", "resolvedBy": "service:local for user:ann"}),
            "a program need not parse the text"
        );
        assert_eq!((app.task_names().await.len(), app.pending("ann").await.len()), (1, 0));
        let roles: Vec<_> = app.thread(&done).await.into_iter().map(|(role, _)| role).collect();
        assert_eq!(roles, ["user", "approval_request", "approval", "action", "assistant"]);
    }
}

/// Promise: truthful states. If a run has effects and ends without text of its model, the thread shows them to the
/// user. The model receives them with the next message, so that it does not repeat them.
#[tokio::test]
async fn effects_of_a_failed_run_are_reported_to_the_user_and_the_model() {
    for setup in both() {
        let policy = no_approval_required();
        let asked = Arc::new(Mutex::new(String::new()));
        let seen = Arc::clone(&asked);
        let model = Reply::from(move |request| match request.to_string() {
            again if again.contains("Try again.") => {
                *seen.lock().unwrap() = again;
                Reply::Text("It is there already.")
            }
            _ if said(request) == 1 => add("milk"),
            _ => Reply::Raw(400, "{}".to_owned()),
        });
        let setup = setup.env("GAVEL_POLICY", policy.path().display().to_string());
        let app = spawn_app(setup.script(vec![model])).await;
        let run = app.say("Put milk on my list.").await;
        assert_eq!(
            (&run["status"], app.task_names().await.len()),
            (&json!("failed"), 1),
            "{run}"
        );
        let summary = run["summary"].as_str().unwrap();
        assert!(summary.ends_with("\n\n[This was done: add_task.]"), "{run}");
        let line = app.thread(&run).await.pop().unwrap().1;
        assert!(
            line.ends_with("\n\n[This was done: add_task (description: milk).]"),
            "{line}"
        );
        let again = json!({"prompt": "Try again.", "threadId": run["threadId"]});
        app.say_as("ann", again).await.expect(200);
        let asked = asked.lock().unwrap().clone();
        assert!(
            asked.contains("[This was done: add_task (description: milk).]"),
            "{asked}"
        );
        app.stop().await;
    }
}

/// R-13: if a rejection ends the run, the other approval requests of the turn end too. Calls that were approved before
/// are done and reported.
#[tokio::test]
async fn a_rejection_that_ends_the_run_ends_its_other_approval_requests() {
    for (mode, status) in [("complete", "completed"), ("fail", "failed")] {
        for setup in both() {
            let model = Reply::Calls(
                ["milk", "eggs", "salt"]
                    .map(|task| ("add_task", json!({"description": task})))
                    .into(),
            );
            let app = spawn_app(setup.env("GAVEL_RUNS_ON_REJECT", mode).script(vec![model])).await;
            let waiting = app.say("Put them on my list.").await;
            let approval = |n: usize| &waiting["actions"][n]["approvalId"];
            app.resolve(approval(0), "approve_once").await;
            let run = app.resolve(approval(1), "reject").await;
            assert_eq!(run["status"], status, "{run}");
            let states: Vec<_> = (0..3).map(|n| run["actions"][n]["state"].as_str().unwrap()).collect();
            assert_eq!(states, ["completed", "rejected", "expired"], "{run}");
            let line = app.thread(&run).await.pop().unwrap().1;
            assert_eq!(
                line,
                "add_task (description: eggs) was rejected and not executed.\n\n[This was done: add_task (description: milk).]"
            );
            let late = json!({"approvalId": approval(2), "decision": "approve_once"});
            app.resolve_as("ann", late).await.problem(409, "already_resolved");
            assert_eq!(app.task_names().await, ["milk"]);
            let detail = rows(
                &app.database_url,
                "SELECT error_detail FROM decision_log WHERE error_detail IS NOT NULL",
            )
            .await;
            let reported = if mode == "fail" {
                vec![["the user rejected a call"]]
            } else {
                vec![]
            };
            assert_eq!(
                detail, reported,
                "the text of arguments appears where records.content allows it"
            );
            audit_is_whole(&app.database_url, mode).await;
            app.stop().await;
        }
    }
}

/// Promise: truthful states. A client that waits for a run that cannot be recorded is answered after a bounded time.
/// The run resumes where it stopped once it can be recorded.
#[tokio::test]
async fn a_client_never_waits_for_ever_for_a_run_that_cannot_be_recorded() {
    for setup in both() {
        let model = Reply::from(|request| match said(request) {
            1 => add("milk"),
            _ => Reply::Text("It is on the list."),
        });
        let app = spawn_app(setup.script(vec![model])).await;
        let waiting = app.say("Put milk on my list.").await;
        let [refuse, allow] = refusal(&app.database_url, "audit", "NEW.kind <> 'approval_resolved'");
        execute(&app.database_url, &refuse).await;
        let milk = json!({"prompt": "Put milk on my list."});
        let other = app.say_as("bob", milk.clone());
        let streamed = async {
            let request = app.request("POST", "/api/agent/run/stream", &[("x-gavel-user", "carl")]);
            request.json(&milk).send().await.unwrap().text().await.unwrap()
        };
        let body = json!({"approvalId": waiting["actions"][0]["approvalId"], "decision": "approve_once"});
        let (other, streamed, resolved) = tokio::join!(other, streamed, app.resolve_as("ann", body.clone()));
        other.problem(500, "outcome_unrecorded");
        let last: Value = serde_json::from_str(streamed.lines().last().unwrap()).unwrap();
        assert_eq!(
            (&last["type"], &last["code"]),
            (&json!("error"), &json!("outcome_unrecorded")),
            "{streamed}"
        );
        assert!(last["error"].is_string(), "{streamed}");
        // The resolution itself is recorded.
        let resolved = resolved.expect(200);
        assert_eq!(resolved["actions"][0]["state"], "approved", "{resolved}");
        assert!(
            app.task_names().await.is_empty(),
            "an effect that is not recorded is not done"
        );

        execute(&app.database_url, &allow).await;
        let path = format!("/api/agent/runs/{}", waiting["runId"].as_str().unwrap());
        until("the run to end", || async {
            app.get_by("ann", &path).await.expect(200)["status"] == "completed"
        })
        .await;
        assert_eq!(app.task_names().await, ["milk"]);
        let again = app.resolve_as("ann", body).await.expect(200);
        assert_eq!(again["status"], "completed", "{again}");
        let asked = async || app.pending("bob").await.len() == 1;
        until("bob to be asked", asked).await;
        audit_is_whole(&app.database_url, "afterwards").await;
    }
}

/// R-11: in threads, a setting of a tool does not replace an approval; only a rule, a grant or a resolution does. For a
/// triggered run it does. R-17: the record names in each case what decided.
#[tokio::test]
async fn a_tool_setting_does_not_replace_approval_in_a_thread() {
    for setup in both() {
        let model = Reply::from(|request| match said(request) {
            1 => add("milk"),
            _ => Reply::Text("Done."),
        });
        let agent = "---\nname: keeper\ndescription: Keeps.\ntools: [add_task]\n---\n\nYou keep tasks.\n";
        let setup = setup
            .agent("keeper.md", agent)
            .tool("add_task", json!({"approval": "not_required"}));
        let app = spawn_app(setup.script(vec![model])).await;
        let waiting = app.say("Put milk on my list.").await;
        assert_eq!(waiting["status"], "awaiting_confirmation", "{waiting}");
        assert!(app.task_names().await.is_empty(), "nothing runs without approval");
        let triggered = app.request(
            "POST",
            "/api/projects/default/agents/keeper/trigger",
            &[("x-gavel-user", "ann")],
        );
        let triggered = Answer::of(triggered.json(&json!({"query": "Put milk on my list."})))
            .await
            .expect(200);
        assert_eq!(triggered["status"], "completed", "{triggered}");
        assert_eq!(app.task_names().await, ["milk"]);
        app.resolve(&waiting["actions"][0]["approvalId"], "approve_once").await;
        let calls = rows(
            &app.database_url,
            "SELECT d.surface, t.policy, t.decided_by FROM tool_invocation_log t JOIN decision_log d ON d.id = t.decision_id \
             ORDER BY d.surface",
        )
        .await;
        assert_eq!(
            calls,
            [
                ["agent", "allow", "tool"],
                ["thread", "require_approval", "side_effects"]
            ]
        );
    }
}

/// R-6: a read, or a call that the policy exempts from approval, runs at once. The effect is in the audit log, the
/// result of each call is recorded, and the thread ends with the answer.
#[tokio::test]
async fn a_call_that_requires_no_approval_runs_at_once_and_is_recorded() {
    const POLICY: &str = "rules:\n  - name: own-list\n    tools: [tasks__add_task]\n    then: allow\n    reason: it is their own list\n\
                          tests:\n  - name: own list\n    call: {tool: tasks__add_task, surface: thread}\n    expect: allow\n";
    for setup in both() {
        let directory = tempfile::tempdir().unwrap();
        let policy = directory.path().join("policy.yaml");
        std::fs::write(&policy, POLICY).unwrap();
        let model = Reply::from(|request| match said(request) {
            1 => Reply::Calls(vec![
                ("add_task", json!({"description": "milk"})),
                ("list_tasks", json!({})),
            ]),
            _ => Reply::Text("Milk is on the list."),
        });
        let setup = setup.env("GAVEL_POLICY", policy.display().to_string());
        let app = spawn_app(setup.script(vec![model])).await;
        let run = app.say("Put milk on my list.").await;
        assert_eq!(
            (&run["status"], &run["summary"]),
            (&json!("completed"), &json!("Milk is on the list.")),
            "{run}"
        );
        for (action, tool) in run["actions"]
            .as_array()
            .unwrap()
            .iter()
            .zip(["add_task", "list_tasks"])
        {
            assert_eq!(
                (&action["tool"], &action["status"], &action["requiresApproval"]),
                (&json!(tool), &json!("completed"), &json!(false)),
                "{run}"
            );
        }
        assert_eq!(app.task_names().await, ["milk"]);
        assert!(app.pending("ann").await.is_empty());
        let lines = app.thread(&run).await;
        assert_eq!(
            lines
                .iter()
                .filter(|(what, _)| what != "action")
                .map(|(role, text)| (role.as_str(), text.as_str()))
                .collect::<Vec<_>>(),
            [("user", "Put milk on my list."), ("assistant", "Milk is on the list.")]
        );
        let calls = rows(
            &app.database_url,
            "SELECT tool, status, CASE WHEN result LIKE '%milk%' THEN 'milk' END, policy, decided_by, \
             CASE WHEN input_hash IS NOT NULL THEN 'hashed' END FROM tool_invocation_log ORDER BY sequence",
        )
        .await;
        assert_eq!(
            calls,
            [
                ["add_task", "completed", "milk", "allow", "rule own-list", "hashed"],
                ["list_tasks", "completed", "milk", "allow", "-", "hashed"]
            ]
        );
        let audit = rows(
            &app.database_url,
            "SELECT kind, tool FROM audit WHERE tool IS NOT NULL ORDER BY number",
        )
        .await;
        assert_eq!(
            audit,
            [["effect_intended", "add_task"], ["effect_completed", "add_task"]],
            "reads are no effects"
        );
        audit_is_whole(&app.database_url, "after an effect without a question").await;
    }
}

/// With an `Idempotency-Key`, a repeated resolve or cancel gets the same response. A different one under the same key
/// is refused before it has an effect.
#[tokio::test]
async fn an_idempotency_key_of_a_resolution_is_bound_to_it() {
    for setup in both() {
        let model = Reply::from(|request| match said(request) {
            1 => Reply::Calls(vec![
                ("add_task", json!({"description": "milk"})),
                ("add_task", json!({"description": "eggs"})),
            ]),
            _ => Reply::Text("Done."),
        });
        let app = spawn_app(setup.script(vec![model])).await;
        let waiting = app.say("Put milk and eggs on my list.").await;
        let ids = [0, 1].map(|n| waiting["actions"][n]["approvalId"].clone());
        let resolve = async |key: &str, user: &str, approval: &Value, decision: &str| {
            let headers = [("x-gavel-user", user), ("idempotency-key", key)];
            let request = app.request("POST", "/api/agent/approvals/resolve", &headers);
            Answer::of(request.json(&json!({"approvalId": approval, "decision": decision}))).await
        };
        for bad in ["", "a b", "ü"] {
            let bad = resolve(bad, "ann", &ids[0], "approve_once").await;
            bad.problem(400, "invalid_request");
        }
        let first = resolve("k-1", "ann", &ids[0], "approve_once").await.expect(200);
        let again = resolve("k-1", "ann", &ids[0], "approve_once").await.expect(200);
        assert_eq!(first, again);
        for (approval, decision) in [(&ids[1], "approve_once"), (&ids[0], "reject")] {
            let reused = resolve("k-1", "ann", approval, decision).await;
            reused.problem(422, "idempotency_key_reused");
        }
        assert_eq!(
            (app.task_names().await, app.pending("ann").await.len()),
            (vec!["milk".to_owned()], 1)
        );
        // A key belongs to its user, and a user who may not see the approval request claims nothing with it.
        resolve("k-1", "bob", &ids[1], "approve_once")
            .await
            .problem(404, "not_found");
        let done = resolve("k-2", "ann", &ids[1], "approve_once").await.expect(200);
        assert_eq!(done["status"], "completed", "{done}");
        let path = format!("/api/agent/runs/{}/cancel", done["runId"].as_str().unwrap());
        for _ in 0..2 {
            let headers = [("x-gavel-user", "ann"), ("idempotency-key", "k-1")];
            let cancelled = Answer::of(app.request("POST", &path, &headers)).await.expect(200);
            assert_eq!(cancelled["status"], "completed", "it had ended: {cancelled}");
        }
        assert_eq!(app.task_names().await, ["eggs", "milk"]);
        let claims = rows(&app.database_url, "SELECT fingerprint FROM idempotency_key").await;
        assert_eq!(claims.len(), 3);
    }
}

/// R-16: a failed or cancelled run has an error code of the closed list.
#[tokio::test]
async fn a_failed_run_has_an_error_code_of_its_class() {
    let bad_key = r#"{"error": {"code": 400, "status": "INVALID_ARGUMENT", "message": "API key not valid.",
        "details": [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID", "domain": "googleapis.com"}]}}"#;
    let blocked = r#"{"promptFeedback": {"blockReason": "SAFETY"}, "modelVersion": "m"}"#;
    for (reply, code) in [
        (Reply::Raw(400, bad_key.to_owned()), "model_unavailable"),
        (Reply::Raw(200, "{\"candidates\": 7".to_owned()), "malformed_output"),
        (Reply::Raw(200, blocked.to_owned()), "safety_blocked"),
        (Reply::call("list_tasks", json!({})), "loop_limit"),
    ] {
        let setup = Setup::stdio_sqlite().agent("workspace.md", WORKSPACE);
        let app = spawn_app(setup.script(vec![reply])).await;
        let run = app.say("Hello.").await;
        assert_eq!(
            (&run["status"], &run["errorCode"]),
            (&json!("failed"), &json!(code)),
            "{run}"
        );
        let whole = app
            .get_by("ann", &format!("/api/runs/{}", run["runId"].as_str().unwrap()))
            .await;
        let category = whole.expect(200)["outcome_category"].as_str().unwrap().to_lowercase();
        assert_eq!(category.split_once(':').unwrap().1, code);
    }
    for setup in both() {
        let app = spawn_app(setup.script(vec![add("milk")])).await;
        let waiting = app.say("Put milk on my list.").await;
        assert_eq!(waiting.get("errorCode"), None, "{waiting}");
        let path = format!("/api/agent/runs/{}/cancel", waiting["runId"].as_str().unwrap());
        let cancelled = Answer::of(app.request("POST", &path, &[("x-gavel-user", "ann")]))
            .await
            .expect(200);
        assert_eq!(
            (&cancelled["status"], &cancelled["errorCode"]),
            (&json!("failed"), &json!("cancelled")),
            "{cancelled}"
        );
    }
}

/// R-13: a rejection with its reason reaches the model, or ends the run, as configured.
#[tokio::test]
async fn a_rejection_reaches_the_model_or_ends_the_run() {
    for (mode, status, summary) in [
        ("continue", "completed", "Not added: you have enough."),
        (
            "complete",
            "completed",
            "add_task (description: milk) was rejected and not executed.",
        ),
        (
            "fail",
            "failed",
            "add_task (description: milk) was rejected and not executed.",
        ),
    ] {
        // The setting decides on the ending alone, so the databases differ in nothing after the first.
        let databases = if mode == "continue" { 2 } else { 1 };
        for setup in both().into_iter().take(databases) {
            let model = Reply::from(|request| match said(request) {
                1 => add("milk"),
                _ => {
                    let answer = request["contents"].to_string();
                    assert!(answer.contains("I have enough"), "{answer}");
                    Reply::Text("Not added: you have enough.")
                }
            });
            let app = spawn_app(setup.env("GAVEL_RUNS_ON_REJECT", mode).script(vec![model])).await;
            let waiting = app.say("Put milk on my list.").await;
            let rejection = json!({
                "approvalId": waiting["actions"][0]["approvalId"], "decision": "reject", "reason": "I have enough",
            });
            let done = app.resolve_as("ann", rejection).await.expect(200);
            assert_eq!(
                (&done["status"], &done["summary"]),
                (&json!(status), &json!(summary)),
                "{mode}: {done}"
            );
            let action = &done["actions"][0];
            assert_eq!(
                (&action["status"], &action["state"], &action["errorCode"]),
                (&json!("failed"), &json!("rejected"), &json!("rejected"))
            );
            assert_eq!(action["errorMessage"], "I have enough", "{action}");
            assert!(app.task_names().await.is_empty());
        }
    }
}

/// R-1: another user's thread, run and approval are not found, by every route. An approver may resolve the approval.
#[tokio::test]
async fn another_users_thread_run_and_approval_are_not_found() {
    for setup in both() {
        let app = spawn_app(setup.script(vec![add("milk"), Reply::Text("Done.")])).await;
        let waiting = app.say("Put milk on my list.").await;
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let (run, thread) = (text(&waiting["runId"]), text(&waiting["threadId"]));
        for path in [
            format!("/api/agent/runs/{run}"),
            format!("/api/agent/runs/{run}/events"),
            format!("/api/agent/threads/{thread}"),
            format!("/api/runs/{run}"),
        ] {
            app.get_by("eve", &path).await.problem(404, "not_found");
        }
        assert!(app.pending("eve").await.is_empty());
        let approval = json!({"approvalId": waiting["actions"][0]["approvalId"], "decision": "approve_once"});
        app.resolve_as("eve", approval.clone()).await.problem(404, "not_found");
        let extend = json!({"prompt": "And eggs.", "threadId": thread});
        app.say_as("eve", extend).await.problem(404, "not_found");
        let cancel = app.request(
            "POST",
            &format!("/api/agent/runs/{run}/cancel"),
            &[("x-gavel-user", "eve")],
        );
        Answer::of(cancel).await.problem(404, "not_found");
        let action = text(&waiting["actions"][0]["actionId"]);
        let settle = app.request(
            "POST",
            &format!("/api/agent/actions/{action}/settle"),
            &[("x-gavel-user", "eve")],
        );
        Answer::of(settle.json(&json!({"happened": true})))
            .await
            .problem(404, "not_found");
        assert_eq!(app.resolve_as("ann", approval).await.expect(200)["status"], "completed");
    }
}

/// R-1, R-2: a user's threads are listed, the latest active first, page by page, each with its first message and its
/// status. No other user's threads are listed.
#[tokio::test]
async fn a_user_can_list_their_threads() {
    for setup in both() {
        let model = Reply::from(|request| match request["contents"].to_string().contains("milk") {
            true => add("milk"),
            false => Reply::Text("Hello."),
        });
        let app = spawn_app(setup.rate(1000, 100).script(vec![model])).await;
        let mut made = Vec::new();
        for n in 0..6 {
            made.push(app.say(&format!("\n  Number {n}. \nAnd more of it.")).await);
        }
        let bobs = app.say_as("bob", json!({"prompt": "I am bob."})).await.expect(200);
        let again = json!({"prompt": "Once more.", "threadId": made[2]["threadId"]});
        let again = app.say_as("ann", again).await.expect(200);
        let waiting = app.say("Put milk on my list.").await;

        let whole = app.get_by("ann", "/api/agent/threads").await.expect(200);
        assert!(whole["nextPageToken"].is_null(), "{whole}");
        let whole = whole["threads"].as_array().unwrap();
        let expected: Vec<_> = [
            ("Put milk on my list.", &waiting, "awaiting_confirmation"),
            ("Number 2.", &again, "completed"),
            ("Number 5.", &made[5], "completed"),
            ("Number 4.", &made[4], "completed"),
            ("Number 3.", &made[3], "completed"),
            ("Number 1.", &made[1], "completed"),
            ("Number 0.", &made[0], "completed"),
        ]
        .into_iter()
        .map(|(title, run, state)| (json!(title), &run["threadId"], &run["runId"], json!(state)))
        .collect();
        let found: Vec<_> = whole
            .iter()
            .map(|thread| {
                let (title, run) = (&thread["title"], &thread["latestRun"]);
                (title.clone(), &thread["threadId"], &run["runId"], run["state"].clone())
            })
            .collect();
        assert_eq!(found, expected);
        for thread in whole {
            let path = format!("/api/agent/threads/{}", thread["threadId"].as_str().unwrap());
            let own = app.get_by("ann", &path).await.expect(200);
            for field in ["userId", "agentId", "createdAt", "updatedAt", "messageCount"] {
                assert_eq!(thread[field], own[field], "{field}: {thread}");
            }
        }

        for size in [1, 3, 7] {
            let (mut joined, mut path) = (Vec::new(), format!("/api/agent/threads?pageSize={size}"));
            loop {
                let page = app.get_by("ann", &path).await.expect(200);
                let rows = page["threads"].as_array().unwrap();
                assert!(!rows.is_empty() && rows.len() <= size, "{page}");
                joined.extend(rows.iter().cloned());
                let Some(token) = page["nextPageToken"].as_str() else {
                    break;
                };
                path = format!("/api/agent/threads?pageSize={size}&pageToken={token}");
            }
            assert_eq!(&joined, whole, "{size} a page");
        }
        let first = app.get_by("ann", "/api/agent/threads?pageSize=1").await.expect(200);
        let token = first["nextPageToken"].as_str().unwrap();
        let path = format!("/api/agent/threads?pageToken={token}");
        // Errors name the parameter as the request spells it.
        for (path, pointer) in [
            (path.as_str(), "pageToken"),
            ("/api/agent/threads?page_token=x", "page_token"),
        ] {
            let problem = app.get_by("bob", path).await.problem(400, "invalid_request");
            assert_eq!(problem["errors"][0]["pointer"], pointer, "{problem}");
        }
        app.get_by("ann", "/api/agent/threads?filter=x")
            .await
            .problem(400, "invalid_request");

        let his = app.get_by("bob", "/api/agent/threads").await.expect(200);
        assert_eq!(his["threads"].as_array().unwrap().len(), 1, "{his}");
        assert_eq!(his["threads"][0]["threadId"], bobs["threadId"]);
        let none = app.get_by("eve", "/api/agent/threads").await.expect(200);
        assert_eq!(none, json!({"threads": [], "nextPageToken": null}));

        let cancel = format!("/api/agent/runs/{}/cancel", waiting["runId"].as_str().unwrap());
        let cancelled = app.request("POST", &cancel, &[("x-gavel-user", "ann")]);
        let cancelled = Answer::of(cancelled).await.expect(200);
        assert_eq!(
            cancelled["state"], "cancelled",
            "it is reported after its end: {cancelled}"
        );
        let list = app.get_by("ann", "/api/agent/threads").await.expect(200);
        let latest = json!({"runId": waiting["runId"], "status": "failed", "state": "cancelled"});
        assert_eq!(list["threads"][0]["latestRun"], latest);
    }
}

/// Promise: recorded. A message that is too long is refused, and recorded up to the maximum length.
#[tokio::test]
async fn a_message_that_is_too_long_leaves_a_record() {
    for setup in both() {
        let app = spawn_app(setup).await;
        let long = "ö".repeat(16 * 1024 + 1);
        let problem = app
            .say_as("ann", json!({"prompt": long}))
            .await
            .problem(400, "invalid_request");
        assert_eq!(problem["errors"][0]["pointer"], "/prompt", "{problem}");
        let decisions = app.decisions().await;
        let [decision] = &decisions[..] else {
            panic!("{decisions:?}")
        };
        assert_eq!(
            (
                &decision["outcome_category"],
                &decision["surface"],
                &decision["user_id"]
            ),
            (&json!("ERROR:USER_INPUT"), &json!("thread"), &json!("ann"))
        );
        assert_eq!(decision["message"], json!("ö".repeat(16 * 1024)));
        assert!(app.gemini.requests().is_empty());
    }
}

/// R-17, R-18: an effect that is done while its neighbor still waits for approval is completed in the tool-call log
/// too, as in the audit log.
#[tokio::test]
async fn a_done_effect_is_logged_while_the_rest_of_its_turn_waits() {
    for setup in both() {
        let model = Reply::from(|request| match said(request) {
            1 => Reply::Calls(vec![
                ("add_task", json!({"description": "milk"})),
                ("add_task", json!({"description": "eggs"})),
            ]),
            _ => Reply::Text("Done."),
        });
        let app = spawn_app(setup.script(vec![model])).await;
        let waiting = app.say("Milk and eggs, please.").await;
        let run = app.resolve(&waiting["actions"][0]["approvalId"], "approve_once").await;
        assert_eq!(run["state"], "awaiting_confirmation", "{run}");
        until("the first to be done", || async { app.task_names().await == ["milk"] }).await;
        let path = format!("/api/agent/runs/{}", waiting["runId"].as_str().unwrap());
        until("the result to be logged", || async {
            app.get_by("ann", &path).await.expect(200)["actions"][0]["state"] == "completed"
        })
        .await;
        let calls = app.tool_invocations(&waiting["runId"]).await;
        let [call] = &calls[..] else { panic!("{calls:?}") };
        assert_eq!(call["status"], "completed", "{call}");
        assert!(call["result"].to_string().contains("milk"), "{call}");
        audit_is_whole(&app.database_url, "while the other waits").await;
        let run = app.resolve(&waiting["actions"][1]["approvalId"], "approve_once").await;
        assert_eq!(run["status"], "completed", "{run}");
        let calls = app.tool_invocations(&waiting["runId"]).await;
        assert_eq!(calls.len(), 2, "{calls:?}");
        audit_is_whole(&app.database_url, "at the end").await;
    }
}

/// R-1: a request that is refused before the owner of its thread is checked is not recorded under that thread.
#[tokio::test]
async fn a_refused_request_is_not_recorded_under_another_users_thread() {
    for setup in both() {
        let app = spawn_app(setup.script(vec![Reply::Text("Hello.")])).await;
        let anns = app.say("Hello.").await;
        let long = json!({"prompt": "x".repeat(32 * 1024 + 1), "threadId": anns["threadId"]});
        app.say_as("eve", long).await.problem(400, "invalid_request");
        let decisions = app.decisions().await;
        let eves = decisions.iter().find(|one| one["user_id"] == "eve").unwrap();
        assert_ne!(eves["conversation_id"], anns["threadId"], "{eves}");
    }
}

/// R-7. Promise: recorded. Messages are answered by one agent, which must be available. Otherwise each message is
/// refused with the reason, and recorded.
#[tokio::test]
async fn a_message_that_no_agent_can_answer_is_refused_and_leaves_a_record() {
    const CALLS: &str =
        "---\nname: boss\ndescription: Has others do it.\nsub_agents: [keeper]\n---\n\nYou are the boss.\n";
    const FLOW: &str =
        "---\nname: boss\ndescription: Goes round.\nflow_type: loop\nmax_iterations: 3\n---\n\nYou are the boss.\n";
    const ASKS: &str = "---\nname: boss\ndescription: Asks more.\ninputConfig:\n  inputs:\n    what:\n      type: string\n      \
                        description: What.\n      required: true\npromptConfig:\n  query: ${what}\n---\n\nYou are the boss.\n";
    const HOLDER: &str = "---\nname: keeper\ndescription: Keeps.\n---\n\nYou keep.\n";
    for (boss, says) in [
        (None, "there is no valid agent \"boss\""),
        (Some(CALLS), "the agent boss delegates to other agents"),
        (Some(FLOW), "the agent boss delegates to other agents"),
        (Some(ASKS), "the agent boss gets only a query here"),
    ] {
        for setup in both() {
            let setup = setup.agent("keeper.md", HOLDER).env("GAVEL_RUNS_AGENT", "boss");
            let setup = match boss {
                Some(text) => setup.agent("boss.md", text),
                None => setup,
            };
            let app = spawn_app(setup).await;
            let problem = app
                .say_as("ann", json!({"prompt": "Milk, please."}))
                .await
                .problem(503, "agent_unavailable");
            assert!(problem["detail"].as_str().unwrap().contains(says), "{says}: {problem}");
            let decisions = app.decisions().await;
            let [decision] = &decisions[..] else {
                panic!("{decisions:?}")
            };
            let reported = ["outcome_category", "surface", "user_id", "message"].map(|field| decision[field].clone());
            assert_eq!(reported, ["ERROR:INTERNAL", "thread", "ann", "Milk, please."]);
            assert!(app.gemini.requests().is_empty());
        }
    }
}

/// R-4: a message during a run of the thread is refused with that run's id, or waits its turn.
#[tokio::test]
async fn a_second_message_is_refused_or_waits_its_turn() {
    for setup in both() {
        let app = spawn_app(setup.script(vec![add("milk"), Reply::Text("Done.")])).await;
        let waiting = app.say("Put milk on my list.").await;
        let second = json!({"prompt": "And eggs.", "threadId": waiting["threadId"]});
        let problem = app.say_as("ann", second).await.problem(409, "thread_busy");
        assert_eq!(problem["runId"], waiting["runId"]);
        let decisions = app.decisions().await;
        let refused = decisions
            .iter()
            .find(|one| one["decision_type"] == "REFUSE")
            .expect("the refusal is recorded");
        assert_eq!(
            (
                &refused["outcome_category"],
                &refused["conversation_id"],
                &refused["surface"]
            ),
            (&json!("REFUSAL:OVERLOADED"), &waiting["threadId"], &json!("thread"))
        );
        assert!(
            refused["error_detail"]
                .as_str()
                .unwrap()
                .contains(waiting["runId"].as_str().unwrap())
        );
    }
    for setup in both() {
        let model = Reply::from(|request| match said(request) {
            1 => add("milk"),
            _ => Reply::Text("Done."),
        });
        let app = spawn_app(setup.env("GAVEL_RUNS_WHILE_BUSY", "queue").script(vec![model])).await;
        let waiting = app.say("Put milk on my list.").await;
        let second = json!({"prompt": "And eggs.", "threadId": waiting["threadId"]});
        let headers = [("x-gavel-user", "ann"), ("prefer", "respond-async")];
        let queued = Answer::of(app.request("POST", "/api/agent/run", &headers).json(&second))
            .await
            .expect(202);
        assert_eq!(queued["status"], "queued", "{queued}");
        // A run that is cancelled before its turn leaves its own line, so its message does not stay without an end.
        let third = json!({"prompt": "And flour.", "threadId": waiting["threadId"]});
        let third = Answer::of(app.request("POST", "/api/agent/run", &headers).json(&third))
            .await
            .expect(202);
        let cancel = format!("/api/agent/runs/{}/cancel", third["runId"].as_str().unwrap());
        let cancelled = app.request("POST", &cancel, &headers[..1]);
        assert_eq!(Answer::of(cancelled).await.expect(200)["state"], "cancelled");
        let line = ("assistant".to_owned(), "Cancelled before it began.".to_owned());
        assert_eq!(app.thread(&third).await.last(), Some(&line));
        app.resolve(&waiting["actions"][0]["approvalId"], "approve_once").await;
        let path = format!("/api/agent/runs/{}", queued["runId"].as_str().unwrap());
        until("the queued run to end", || async {
            app.get_by("ann", &path).await.body["status"] == "completed"
        })
        .await;
    }
}

/// R-4: a waiting message is answered as waiting at once, does not delay other runs, and continues in order.
#[tokio::test]
async fn waiting_messages_delay_no_other_run_and_continue_in_order() {
    for setup in both() {
        let model = Reply::from(|request| match request["contents"].to_string().contains("milk") {
            true if said(request) == 1 => add("milk"),
            _ => Reply::Text("Done."),
        });
        let app = spawn_app(
            setup
                .env("GAVEL_RUNS_WHILE_BUSY", "queue")
                .rate(1000, 100)
                .script(vec![model]),
        )
        .await;
        let waiting = app.say("Put milk on my list.").await;
        let mut queued = Vec::new();
        for n in 0..20 {
            let body = json!({"prompt": format!("Number {n}."), "threadId": waiting["threadId"]});
            let run = app.say_as("ann", body).await.expect(202);
            assert_eq!(run["status"], "queued", "{run}");
            queued.push(run["runId"].as_str().unwrap().to_owned());
        }
        // As if its job were lost: only the sweep for forgotten runs finds it.
        let headers = [("x-gavel-user", "bob"), ("prefer", "respond-async")];
        let other = app.request("POST", "/api/agent/run", &headers);
        let other = Answer::of(other.json(&json!({"prompt": "And I?"}))).await.expect(202);
        let path = format!("/api/agent/runs/{}", other["runId"].as_str().unwrap());
        until("another thread's run to end", || async {
            app.get_by("bob", &path).await.body["status"] == "completed"
        })
        .await;
        app.resolve(&waiting["actions"][0]["approvalId"], "approve_once").await;
        let path = format!("/api/agent/runs/{}", queued.last().unwrap());
        until("the last queued run to end", || async {
            app.get_by("ann", &path).await.body["status"] == "completed"
        })
        .await;
        // The waiting message is answered after the first, and the model sees them in that order.
        let requests = app.gemini.requests();
        let last = |request: &Value| request["contents"].as_array().unwrap().last().unwrap().to_string();
        let first = requests
            .iter()
            .find(|request| last(request).contains("Number 0."))
            .unwrap();
        let before: Vec<_> = first["contents"]
            .as_array()
            .unwrap()
            .iter()
            .map(|line| &line["role"])
            .collect();
        // The message, the approval request, the resolution, the effect, and the final text; then this message.
        assert_eq!(before, ["user", "model", "user", "user", "model", "user"], "{first}");
        let said = app.thread(&waiting).await;
        let answers = said.iter().filter(|(role, _)| role == "assistant").count();
        assert_eq!(answers, 21);
    }
}

/// R-4: a repeated message is answered as the first: at once while its run waits its turn, and with the end of a run
/// that is first in its thread, however long that is queued.
#[tokio::test]
async fn a_repeated_message_waits_for_no_other_run() {
    for setup in both() {
        let model = Reply::from(|request| match request["contents"].to_string() {
            slow if slow.contains("slowly") => Reply::After(Duration::from_secs(2), Box::new(Reply::Text("Done."))),
            milk if milk.contains("milk") && said(request) == 1 => add("milk"),
            _ => Reply::Text("Done."),
        });
        let setup = setup
            .env("GAVEL_RUNS_WHILE_BUSY", "queue")
            .env("GAVEL_RUNS_BACKGROUND", "1");
        let app = spawn_app(setup.script(vec![model])).await;
        let send = async |user: &str, key: &str, more: &[(&str, &str)], body: &Value| {
            let mut headers = vec![("x-gavel-user", user), ("idempotency-key", key)];
            headers.extend(more);
            let answer = Answer::of(app.request("POST", "/api/agent/run", &headers).json(body));
            tokio::time::timeout(Duration::from_secs(15), answer)
                .await
                .expect("an answer in time")
        };
        let waiting = app.say("Put milk on my list.").await;
        let second = json!({"prompt": "And eggs.", "threadId": waiting["threadId"]});
        let first = send("ann", "\"eggs\"", &[], &second).await.expect(202);
        let again = send("ann", "\"eggs\"", &[], &second).await;
        assert_eq!(again.header("idempotency-replayed"), "true");
        let again = again.expect(202);
        assert_eq!((&again["status"], &again["runId"]), (&json!("queued"), &first["runId"]));

        let later = [("prefer", "respond-async")];
        let slow = json!({"prompt": "Do it slowly."});
        let slow = send("bob", "\"slow\"", &later, &slow).await.expect(202);
        let path = format!("/api/agent/runs/{}", slow["runId"].as_str().unwrap());
        until("the only background slot to be taken", || async {
            app.get_by("bob", &path).await.body["status"] == "planning"
        })
        .await;
        let hello = json!({"prompt": "Hello."});
        let queued = send("ann", "\"hello\"", &later, &hello).await.expect(202);
        assert_eq!(queued["status"], "queued", "{queued}");
        let over = send("ann", "\"hello\"", &[], &hello).await.expect(200);
        assert_eq!(
            (&over["runId"], &over["status"], &over["summary"]),
            (&queued["runId"], &json!("completed"), &json!("Done.")),
            "{over}"
        );
    }
}

/// An approval request without an answer expires. The call does not run, the agent continues and reports that, and a
/// late answer is rejected.
#[tokio::test]
async fn an_unanswered_approval_request_expires() {
    for setup in both() {
        let model = Reply::from(|request| match said(request) {
            1 => add("milk"),
            _ => {
                assert!(request["contents"].to_string().contains("expired"), "{request}");
                Reply::Text("No answer came.")
            }
        });
        let app = spawn_app(setup.script(vec![model])).await;
        let waiting = app.say("Put milk on my list.").await;
        execute(&app.database_url, "UPDATE agent_action SET expires_at = created_at").await;
        let path = format!("/api/agent/runs/{}", waiting["runId"].as_str().unwrap());
        until("the run to end", || async {
            app.get_by("ann", &path).await.body["status"] == "completed"
        })
        .await;
        let over = app.get_by("ann", &path).await.expect(200);
        assert_eq!(
            (
                &over["summary"],
                &over["actions"][0]["status"],
                &over["actions"][0]["state"]
            ),
            (&json!("No answer came."), &json!("failed"), &json!("expired")),
            "{over}"
        );
        assert_eq!(over["actions"][0]["errorCode"], "expired", "{over}");
        let late = json!({"approvalId": waiting["actions"][0]["approvalId"], "decision": "approve_once"});
        app.resolve_as("ann", late).await.problem(409, "already_resolved");
        assert_eq!((app.task_names().await.len(), app.pending("ann").await.len()), (0, 0));
    }
}

/// `runs.background`: however many approval requests expire at once, no more of their runs are in progress at once than
/// other background runs.
#[tokio::test]
async fn runs_whose_approval_requests_expire_together_continue_a_few_at_a_time() {
    const TAKES: Duration = Duration::from_millis(700);
    for setup in both() {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let at = Arc::clone(&asked);
        let model = Reply::from(move |request| match said(request) {
            1 => add("milk"),
            _ => {
                at.lock().unwrap().push(Instant::now());
                Reply::After(TAKES, Box::new(Reply::Text("No answer came.")))
            }
        });
        let app = spawn_app(setup.env("GAVEL_RUNS_BACKGROUND", "1").script(vec![model])).await;
        let mut runs = Vec::new();
        for _ in 0..3 {
            runs.push(app.say("Put milk on my list.").await);
        }
        execute(&app.database_url, "UPDATE agent_action SET expires_at = created_at").await;
        for run in runs {
            let path = format!("/api/agent/runs/{}", run["runId"].as_str().unwrap());
            until("the run to end", || async {
                app.get_by("ann", &path).await.body["status"] == "completed"
            })
            .await;
        }
        let asked = asked.lock().unwrap();
        assert_eq!(asked.len(), 3);
        for pair in asked.windows(2) {
            assert!(pair[1] - pair[0] >= TAKES, "two at once");
        }
    }
}

/// `GAVEL_MAX_IN_FLIGHT`, `runs.background`: with all slots taken, resolved runs continue all the same, but no more at
/// once than other background runs.
#[tokio::test]
async fn runs_resolved_while_all_slots_are_taken_continue_a_few_at_a_time() {
    const TAKES: Duration = Duration::from_millis(700);
    for setup in both() {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let at = Arc::clone(&asked);
        let model = Reply::from(move |request| match said(request) {
            _ if request["contents"].to_string().contains("Take your time") => Reply::Hang,
            1 => add("milk"),
            _ => {
                at.lock().unwrap().push(Instant::now());
                Reply::After(TAKES, Box::new(Reply::Text("It is on the list.")))
            }
        });
        let setup = setup.env("GAVEL_RUNS_BACKGROUND", "1").env("GAVEL_MAX_IN_FLIGHT", "1");
        let app = spawn_app(setup.script(vec![model])).await;
        let (one, other) = (app.say("Milk, please.").await, app.say("More milk, please.").await);
        let headers = [("x-gavel-user", "ann")];
        let slow = app
            .request("POST", "/api/agent/run", &headers)
            .json(&json!({"prompt": "Take your time."}));
        let slow = tokio::spawn(slow.send());
        app.asked(3).await;
        let approved = |run: &Value| run["actions"][0]["approvalId"].clone();
        let (one, other) = (approved(&one), approved(&other));
        let (one, other) = tokio::join!(app.resolve(&one, "approve_once"), app.resolve(&other, "approve_once"));
        for run in [one, other] {
            assert_eq!(run["status"], "completed", "{run}");
        }
        let asked = asked.lock().unwrap();
        assert_eq!(asked.len(), 2);
        assert!(asked[1] - asked[0] >= TAKES, "two at once");
        slow.abort();
    }
}

/// A stream that is requested again with its key ends where the run waits now, and not at an approval request that was
/// resolved since.
#[tokio::test]
async fn a_repeated_stream_continues_past_resolved_approval_requests() {
    for setup in both() {
        let model = Reply::from(|request| match said(request) {
            1 => add("milk"),
            _ => Reply::After(Duration::from_secs(1), Box::new(Reply::Text("It is on the list."))),
        });
        let app = spawn_app(setup.script(vec![model])).await;
        let stream = async || {
            let headers = [("x-gavel-user", "ann"), ("idempotency-key", "once")];
            let request = app.request("POST", "/api/agent/run/stream", &headers);
            let answer = request.json(&json!({"prompt": "Milk."})).send().await.unwrap();
            let text = answer.text().await.unwrap();
            serde_json::from_str::<Value>(text.lines().last().unwrap()).unwrap()
        };
        let waiting = stream().await;
        assert_eq!(waiting["result"]["status"], "awaiting_confirmation", "{waiting}");
        assert_eq!(stream().await, waiting, "it still waits");
        let approval = &waiting["result"]["actions"][0]["approvalId"];
        let yes = json!({"approvalId": approval, "decision": "approve_once"});
        let headers = [("x-gavel-user", "ann"), ("prefer", "respond-async")];
        let resolved = app.request("POST", "/api/agent/approvals/resolve", &headers).json(&yes);
        Answer::of(resolved).await.expect(200);
        let over = stream().await;
        assert_eq!(
            (&over["result"]["status"], &over["result"]["summary"]),
            (&json!("completed"), &json!("It is on the list.")),
            "{over}"
        );
        assert_eq!(app.task_names().await, ["milk"]);
    }
}

/// R-7: a run of a thread has at most three model calls. One that needs more fails, with an error that says so.
#[tokio::test]
async fn a_run_of_a_thread_has_at_most_three_model_calls() {
    for setup in both() {
        let app = spawn_app(setup.script(vec![Reply::call("list_tasks", json!({}))])).await;
        let over = app.say("Look again and again.").await;
        assert_eq!(over["status"], "failed", "{over}");
        assert!(over["summary"].as_str().unwrap().contains("3 steps"), "{over}");
        assert_eq!(app.gemini.requests().len(), 3);
    }
}

/// R, Routes: the stream has the thread first, then the model's text as it comes, and at the end the run's response.
#[tokio::test]
async fn a_run_is_streamed_while_it_is_in_progress() {
    for setup in both() {
        let slow = Reply::After(
            Duration::from_millis(100),
            Box::new(Reply::Text("Hello Ann, how are you?")),
        );
        let app = spawn_app(setup.script(vec![slow])).await;
        let request = app.request("POST", "/api/agent/run/stream", &[("x-gavel-user", "ann")]);
        let answer = request.json(&json!({"prompt": "Hello."})).send().await.unwrap();
        assert_eq!(answer.headers()["content-type"], "application/x-ndjson");
        let text = answer.text().await.unwrap();
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(
            (&lines[0]["type"], &lines[0]["status"]),
            (&json!("status"), &json!("planning")),
            "{text}"
        );
        let words: String = lines
            .iter()
            .filter(|line| line["type"] == "delta")
            .map(|line| line["delta"].as_str().unwrap())
            .collect();
        assert_eq!(words, "Hello Ann, how are you?", "{text}");
        let last = lines.last().unwrap();
        assert_eq!(last["type"], "result", "{text}");
        assert_eq!(
            (&last["result"]["threadId"], &last["result"]["status"]),
            (&lines[0]["threadId"], &json!("completed"))
        );
    }
}

/// R, Routes: a reader that joins while the model answers receives all its text from the start, each chunk once, in any
/// turn.
#[tokio::test]
async fn a_reader_that_joins_while_the_model_answers_loses_no_text() {
    const WORDS: &[&str] = &["What ", "should ", "I ", "write?"];
    let words = || Reply::Words(Duration::from_millis(150), WORDS);
    let after_a_call = || vec![Reply::call("list_tasks", json!({})), words()];
    let scripts = [vec![words()], after_a_call()];
    for (script, setup) in scripts
        .into_iter()
        .flat_map(|script| both().map(|setup| (script.clone(), setup)))
    {
        let turns = script.len();
        let app = spawn_app(setup.script(script)).await;
        let stream = async |after: u64| {
            if after > 0 {
                until("the model to be asked for the last turn", || async {
                    app.gemini.requests().len() == turns
                })
                .await;
                tokio::time::sleep(Duration::from_millis(after)).await;
            }
            let headers = [("x-gavel-user", "ann"), ("idempotency-key", "once")];
            let request = app.request("POST", "/api/agent/run/stream", &headers);
            let answer = request.json(&json!({"prompt": "Hello."})).send().await.unwrap();
            answer.text().await.unwrap()
        };
        let (first, second, third) = tokio::join!(stream(0), stream(220), stream(380));
        assert_eq!(app.gemini.requests().len(), turns, "one run");
        for text in [first, second, third] {
            let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
            let types = |which: &str| lines.iter().filter(|line| line["type"] == which).collect::<Vec<_>>();
            let words: Vec<_> = types("delta")
                .iter()
                .map(|line| line["delta"].as_str().unwrap())
                .collect();
            assert_eq!(words.concat(), WORDS.concat(), "{text}");
            assert!(words.len() > 1 && types("reset").is_empty(), "as they come: {text}");
            assert_eq!(lines.last().unwrap()["result"]["summary"], WORDS.concat(), "{text}");
        }
    }
}
