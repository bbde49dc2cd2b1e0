//! Open, intend, close: what is in the tables afterwards.

use gavel::domain::tool::FailureCode;
use gavel::ports::records::Recorder;

use crate::support::{TestDb, closed, done, failed, intent, open_decision};

const DECISION: &str = "SELECT status, decision_type, outcome_category, intent, response, iterations, duration_us \
                        FROM decision_log";
const CALLS: &str = "SELECT sequence, tool, server, status, error_code, result, user_id FROM tool_invocation_log \
                     ORDER BY sequence";

/// C-FR-007: a decision without effects is one commit.
pub(crate) async fn a_decision_that_was_never_opened_is_inserted_whole(db: TestDb) {
    let store = db.open().await;
    let open = open_decision();
    store.close(closed(open, vec![], false)).await.unwrap();
    assert_eq!(
        db.line(DECISION).await,
        "closed RESPOND_ONLY SUCCESS:RESPONSE_GIVEN respond Done: call mom. 2 1234567"
    );
    assert_eq!(db.count("SELECT COUNT(*) FROM tool_invocation_log").await, 0);
}

/// C-FR-007: commit 1 shows the intent, commit 2 the result, in the same rows.
pub(crate) async fn an_opened_decision_is_closed_in_place(db: TestDb) {
    let store = db.open().await;
    let open = open_decision();
    let (first, second) = (intent(&open, 1), intent(&open, 2));
    store.open(open.clone(), vec![first.clone()]).await.unwrap();
    assert_eq!(db.line(DECISION).await, "open - - - - - -");
    assert_eq!(db.line(CALLS).await, "1 add_task tasks started - - ann");

    store.intend(vec![second.clone()]).await.unwrap();
    let calls = vec![done(&first), failed(&second, FailureCode::ToolError, "no such list")];
    store.close(closed(open, calls, true)).await.unwrap();
    assert_eq!(
        db.line(DECISION).await,
        "closed INVOKE_TOOL SUCCESS:TASK_COMPLETED add_task Done: call mom. 2 1234567"
    );
    let calls = db.rows(CALLS).await;
    assert_eq!(calls[0][3].as_deref(), Some("completed"));
    assert_eq!(calls[0][5].as_deref(), Some(r#"{"id":"t-1"}"#));
    assert_eq!(calls[1][3].as_deref(), Some("failed"));
    assert_eq!(calls[1][4].as_deref(), Some("tool_error"));
    assert_eq!(calls[1][5], None);
}
