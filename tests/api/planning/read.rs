//! What can be read of the work on a plan: the steps of a task, and the log.

use serde_json::{Value, json};

use super::execute::two_tasks;
use super::studio::{Studio, act, on_both, path, plan, reason, step, task, task_with};
use crate::gemini::Reply;
use crate::harness::{Answer, Setup};

/// P-303, P-305: each step with its reason, its action as JSON, the observation and the reflection; raw is the same text.
#[tokio::test]
async fn the_history_of_a_task_has_every_step_whole() {
    on_both(async |setup| {
        let studio = Studio::new(setup, two_tasks()).await;
        let session = studio.start().await;
        studio.execute_to_the_end(&session).await;
        let task = studio.get(&format!("{}/tasks/t1?view=raw", path(&session))).await;
        assert_eq!(
            (&task["id"], &task["status"], &task["steps"]),
            (&json!("t1"), &json!("COMPLETED"), &json!(2))
        );
        let steps = task["reactHistory"].as_array().unwrap();
        let numbers: Vec<_> = steps.iter().map(|step| &step["n"]).collect();
        assert_eq!(numbers, [1, 2]);
        assert_eq!(steps[0]["reason"], "This comes next.");
        assert_eq!(
            steps[0]["action"],
            json!({"tool": "getFileContents", "arguments": {"owner": "acme", "path": "src/lib.rs", "repo": "dates"}})
        );
        assert!(
            steps[0]["observation"].to_string().contains("fn main() {}"),
            "{steps:?}"
        );
        assert_eq!(steps[0]["reflection"]["learnings"], json!(["The tests are in src."]));
        assert_eq!(steps[1]["reflection"]["isTaskComplete"], true);
        assert_eq!(
            steps[1]["reflection"]["evidence"],
            json!([{"observation": 2, "quote": "https://github.com/acme/dates/issues/"}])
        );
        assert_eq!(steps[1]["state"], "completed");
        let raw: Value = serde_json::from_str(task["rawReactHistory"].as_str().unwrap()).unwrap();
        assert_eq!(raw, task["reactHistory"]);
        let later = studio.get(&format!("{}/tasks/t1?after=1", path(&session))).await;
        assert_eq!(later["reactHistory"], json!([steps[1]]));
        assert!(later.get("rawReactHistory").is_none());
        studio.github.finish();
        studio.app.stop().await;
    })
    .await;
}

/// P-307: the log is paged like every list, in the order of the work.
#[tokio::test]
async fn the_log_is_read_page_by_page() {
    let studio = Studio::new(Setup::stdio_sqlite(), two_tasks()).await;
    let session = studio.start().await;
    let log = format!("{}/log", path(&session));
    assert_eq!(studio.get(&log).await, json!({"actions": [], "nextPageToken": null}));
    let ended = studio.execute_to_the_end(&session).await;
    let whole = studio.get(&log).await;
    assert_eq!(whole["actions"], ended["result"]["log"]);
    let first = studio.get(&format!("{log}?pageSize=2")).await;
    let token = first["nextPageToken"].as_str().unwrap();
    let second = studio.get(&format!("{log}?pageSize=2&pageToken={token}")).await;
    assert_eq!(second["nextPageToken"], Value::Null);
    let both = [&first, &second]
        .map(|page| page["actions"].as_array().unwrap().clone())
        .concat();
    assert_eq!(json!(both), whole["actions"]);
    let invalid = studio.send("GET", &format!("{log}?pageToken=x"), &[], json!({})).await;
    invalid.problem(400, "invalid_request");
    let listed = studio.get("/v1/sessions").await;
    assert_eq!(listed["sessions"][0]["result"], Value::Null, "a list has no logs");
    studio.github.finish();
    studio.app.stop().await;
}

/// A failed call is an observation with a code; a call that waits for a person has no observation yet.
#[tokio::test]
async fn a_failed_call_and_one_that_waits_are_in_the_history() {
    let mut script = vec![plan(vec![task_with("Read", &["getFileContents", "closeIssue"])])];
    script.extend(step(
        "getFileContents",
        json!({"path": "src"}),
        Reply::call(
            "reflect",
            json!({"is_task_complete": false, "summary": "It is not there."}),
        ),
    ));
    script.extend([
        reason("The issue is closed, then."),
        act("closeIssue", json!({"issueNumber": 1})),
    ]);
    let studio = Studio::new(Setup::stdio_sqlite(), script).await;
    let session = studio.start().await;
    studio.execute(&session, json!({})).await.expect(202);
    let waits = |session: &Value| session["waitingFor"] != json!([]);
    studio.once(&session, "the approval to be asked for", waits).await;
    let task = studio.get(&format!("{}/tasks/t1", path(&session))).await;
    let failed = &task["reactHistory"][0];
    assert_eq!(failed["state"], "failed", "{failed}");
    assert_eq!(failed["observation"]["error"]["code"], "tool_error", "{failed}");
    let waits = &task["reactHistory"][1];
    assert_eq!(
        (&waits["reason"], &waits["state"]),
        (&json!("The issue is closed, then."), &json!("awaiting_confirmation"))
    );
    assert_eq!(
        (&waits["observation"], &waits["startedAt"]),
        (&Value::Null, &Value::Null)
    );
    assert_eq!(waits["action"]["tool"], "closeIssue");
    let log = studio.get(&format!("{}/log", path(&session))).await;
    let log = log["actions"].as_array().unwrap();
    assert_eq!(
        (&log[0]["status"], &log[0]["error"]["code"]),
        (&json!("failed"), &json!("tool_error"))
    );
    assert_eq!(
        (&log[1]["status"], &log[1]["decidedBy"]),
        (&json!("awaiting_confirmation"), &json!("tool"))
    );
    studio.cancel(&session).await;
    studio.stop_having_only_read().await;
}

/// What is not there, or belongs to others, is not found.
#[tokio::test]
async fn a_task_or_a_log_of_others_is_not_found() {
    let studio = Studio::new(Setup::stdio_sqlite(), vec![plan(vec![task("Clone")])]).await;
    let session = studio.start().await;
    let task = studio.get(&format!("{}/tasks/t1", path(&session))).await;
    assert_eq!(
        (&task["status"], &task["reactHistory"]),
        (&json!("PENDING"), &json!([]))
    );
    for missing in ["tasks/t2", "tasks/1", "tasks/t01"] {
        let answer = studio
            .send("GET", &format!("{}/{missing}", path(&session)), &[], json!({}))
            .await;
        answer.problem(404, "not_found");
    }
    for of_ann in ["tasks/t1", "log"] {
        let as_bob = studio.app.request(
            "GET",
            &format!("{}/{of_ann}", path(&session)),
            &[("x-gavel-user", "bob")],
        );
        Answer::of(as_bob).await.problem(404, "not_found");
    }
    studio.stop_having_only_read().await;
}
