//! What a person is asked in a session although the confirmed plan names it, walked over HTTP.

use serde_json::{Value, json};

use super::studio::{Studio, continues, done, on_both, path, plan, reason, step, task_with};
use crate::gemini::Reply;
use crate::harness::Setup;

/// Answers the approval request that the session waits for.
async fn answer(studio: &Studio, session: &Value, tool: &str, mut answer: Value) {
    let waits = studio
        .once(session, "it waits", |session| session["waitingFor"][0]["tool"] == tool)
        .await;
    answer["approvalId"] = waits["waitingFor"][0]["approvalId"].clone();
    studio
        .send("POST", "/api/agent/approvals/resolve", &[], answer)
        .await
        .expect(200);
}

async fn ended(studio: &Studio, session: &Value) -> Value {
    studio
        .once(session, "it ends", |session| !session["completedAt"].is_null())
        .await
}

/// A session says before and after its confirmation which tools ask. A new repository is made only if a person approves
/// it, once; a person's reason for a rejection is what the model observes.
#[tokio::test]
async fn a_repository_is_created_once_and_only_if_a_person_approves() {
    on_both(async |setup| {
        let script = vec![
            plan(vec![task_with("One", &["createRepository"])]),
            reason("A place for it."),
            Reply::call("createRepository", json!({"name": "weeks"})),
            continues(),
            reason("And another."),
            Reply::call("createRepository", json!({"name": "months"})),
            done(1, "https://github.com/robot/weeks"),
        ];
        let studio = Studio::new(setup, script).await;
        let session = studio.start().await;
        let scope = |confirmed: Value| {
            json!({
                "repository": "acme/dates", "branches": "gavel/*", "tools": ["createRepository"],
                "notBound": ["createRepository"], "askFirst": ["createRepository"], "mayAsk": [], "confirmed": confirmed,
            })
        };
        assert_eq!(session["scope"], scope(Value::Null));
        let confirmed = studio.execute(&session, json!({})).await.expect(202);
        assert_eq!(confirmed["scope"], scope(json!({"by": "ann", "version": 1})));
        studio
            .once(&session, "it waits", |session| !session["waitingFor"][0].is_null())
            .await;
        assert!(
            studio.github.seen("POST").is_empty(),
            "nothing is sent before the answer"
        );
        answer(
            &studio,
            &session,
            "createRepository",
            json!({"decision": "approve_once"}),
        )
        .await;
        let second = studio
            .once(&session, "it waits again", |session| {
                session["plan"][0]["steps"] == 2 && !session["waitingFor"][0].is_null()
            })
            .await;
        assert_eq!(second["status"], "EXECUTING", "{second}");
        let reject = json!({"decision": "reject", "reason": "one is enough"});
        answer(&studio, &session, "createRepository", reject).await;
        let ended = ended(&studio, &session).await;
        assert_eq!(
            (&ended["status"], &ended["scope"]),
            (&json!("COMPLETED"), &Value::Null),
            "{ended}"
        );
        assert_eq!(studio.github.seen("POST").len(), 1);
        let task = studio.get(&format!("{}/tasks/t1", path(&session))).await;
        let rejected = task["reactHistory"][1]["observation"]["error"].to_string();
        assert!(rejected.contains("one is enough"), "{task}");
        studio.github.finish();
        studio.app.stop().await;
    })
    .await;
}

/// `askFor` asks before every call of a tool, also of one that only reads.
#[tokio::test]
async fn a_tool_of_ask_for_asks_although_it_only_reads() {
    let mut script = vec![plan(vec![task_with("One", &["getFileContents"])])];
    script.extend(step(
        "getFileContents",
        json!({"path": "README.md"}),
        done(1, "Reads a date from text"),
    ));
    let studio = Studio::new(Setup::stdio_sqlite(), script).await;
    let session = studio.start().await;
    let ask = json!({"askFor": ["getFileContents"]});
    studio.execute(&session, ask).await.expect(202);
    answer(
        &studio,
        &session,
        "getFileContents",
        json!({"decision": "approve_once"}),
    )
    .await;
    let ended = ended(&studio, &session).await;
    assert_eq!(ended["status"], "COMPLETED", "{ended}");
    assert_eq!(ended["result"]["log"].as_array().unwrap().len(), 1, "{ended}");
    studio.stop_having_only_read().await;
}

/// The quote of a failed call, and none at all, show nothing; a true one does.
#[tokio::test]
async fn what_a_failed_call_says_is_no_evidence() {
    let mut script = vec![plan(vec![task_with("One", &["getFileContents"])])];
    script.extend(step("getFileContents", json!({"path": "src"}), done(1, "is_directory")));
    script.push(Reply::call(
        "reflect",
        json!({"is_task_complete": true, "summary": "Done."}),
    ));
    script.push(continues());
    script.extend(step(
        "getFileContents",
        json!({"path": "README.md"}),
        done(2, "Reads a date from text"),
    ));
    let studio = Studio::new(Setup::stdio_sqlite(), script).await;
    let session = studio.start().await;
    let ended = studio.execute_to_the_end(&session).await;
    assert_eq!(ended["status"], "COMPLETED", "{ended}");
    let requests = studio.app.gemini.requests();
    let last = requests.last().unwrap()["contents"].to_string();
    for answer in ["did not succeed, so it shows nothing", "complete only with evidence"] {
        assert!(last.contains(answer), "{answer}: {last}");
    }
    studio.stop_having_only_read().await;
}
