//! Open, intend, close: the tables afterwards.

use std::sync::Arc;

use gavel::domain::decision::Outcome;
use gavel::domain::tool::FailureCode;
use gavel::ports::commit::Recorder;
use gavel::ports::records::{ClosedCall, OpenCall, RecordError};

use crate::commits::Writes;
use crate::support::{T0, TestDb, closed, done, eventually, failed, intent, open_decision, raw};

const DECISION: &str = "SELECT status, decision_type, outcome_category, intent, response, iterations, duration_us \
                        FROM decision_log";
const CALLS: &str = "SELECT sequence, tool, server, status, error_code, result, user_id FROM tool_invocation_log \
                     ORDER BY sequence";

/// C-FR-007: a decision without effects is one commit.
pub(crate) async fn a_decision_that_was_never_opened_is_inserted_completely(db: TestDb) {
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

/// A repeated close, after a lost acknowledgment, changes nothing.
pub(crate) async fn closing_twice_leaves_one_record(db: TestDb) {
    let store = db.open().await;
    let open = open_decision();
    let call = done(&intent(&open, 1));
    let decision = closed(open, vec![call], false);
    store.close(decision.clone()).await.unwrap();
    let before = (db.rows(DECISION).await, db.rows(CALLS).await);
    store.close(decision).await.unwrap();
    assert_eq!((db.rows(DECISION).await, db.rows(CALLS).await), before);
    assert_eq!(before.0.len(), 1);
}

/// C-FR-007: unsent, failed and in-doubt calls have different statuses.
pub(crate) async fn each_end_of_a_call_has_its_status(db: TestDb) {
    let store = db.open().await;
    let open = open_decision();
    let unsent = |sequence, code: FailureCode| ClosedCall {
        started_at: None,
        ..failed(
            &OpenCall {
                idempotency_key: None,
                created_at: T0,
                ..intent(&open, sequence)
            },
            code,
            "words",
        )
    };
    let calls = vec![
        done(&intent(&open, 1)),
        failed(&intent(&open, 2), FailureCode::Timeout, "no answer"),
        failed(&intent(&open, 3), FailureCode::InDoubt, "connection lost"),
        unsent(4, FailureCode::Denied),
        ClosedCall {
            open: OpenCall {
                tool: None,
                name: "x".repeat(9_000).into(),
                idempotency_key: None,
                created_at: T0,
                ..intent(&open, 5)
            },
            ..unsent(5, FailureCode::UnknownTool)
        },
    ];
    store.close(closed(open, calls, false)).await.unwrap();
    let states = db
        .rows(
            "SELECT status, error_code, CASE WHEN started_at IS NULL THEN 'unsent' ELSE 'sent' END \
             FROM tool_invocation_log ORDER BY sequence",
        )
        .await;
    let states: Vec<String> = states
        .into_iter()
        .map(|row| {
            row.into_iter()
                .map(|cell| cell.unwrap_or("-".into()))
                .collect::<Vec<_>>()
                .join(" ")
        })
        .collect();
    assert_eq!(
        states,
        [
            "completed - sent",
            "failed timeout sent",
            "in_doubt in_doubt sent",
            "not_sent denied unsent",
            "not_sent unknown_tool unsent"
        ]
    );
    // An unknown tool name may have any length; its stored part can be indexed.
    assert_eq!(
        db.count("SELECT length(tool) FROM tool_invocation_log WHERE sequence = 5")
            .await,
        256
    );
}

/// PostgreSQL cannot store U+0000; if a model writes one, the record is still stored.
pub(crate) async fn a_nul_character_does_not_cost_the_record(db: TestDb) {
    let store = db.open().await;
    let mut decision = closed(open_decision(), vec![], false);
    decision.response = "a\0b".into();
    decision.error_detail = Some("c\0d".into());
    store.close(decision).await.unwrap();
    let line = db.line("SELECT response, error_detail FROM decision_log").await;
    assert_eq!(line, "a\u{fffd}b c\u{fffd}d");
}

/// An intent belongs to a decision; without the decision it is refused.
pub(crate) async fn an_intent_of_an_unknown_decision_is_refused(db: TestDb) {
    let store = db.open().await;
    let never_opened = open_decision();
    let refused = store.intend(vec![intent(&never_opened, 1)]).await;
    assert!(matches!(refused, Err(RecordError::Unavailable(_))), "{refused:?}");
    assert_eq!(db.count("SELECT COUNT(*) FROM tool_invocation_log").await, 0);
    store.available().unwrap();
}

/// A row that belongs to another process is not overwritten.
pub(crate) async fn a_row_of_another_owner_is_not_overwritten(db: TestDb) {
    let (ours, theirs) = (db.open().await, db.open().await);
    let open = open_decision();
    theirs.open(open.clone(), vec![]).await.unwrap();
    let refused = ours.close(closed(open, vec![], true)).await;
    assert!(matches!(refused, Err(RecordError::Unavailable(_))), "{refused:?}");
    assert!(db.line(DECISION).await.starts_with("open "));
}

/// C-SC-3: batches of every size lose nothing.
pub(crate) async fn many_at_once_are_all_recorded(db: TestDb) {
    let store = db.open().await;
    let mut closing = tokio::task::JoinSet::new();
    for n in 0..1000_u32 {
        let store = Arc::clone(&store);
        closing.spawn(async move {
            let open = open_decision();
            let calls = (1..=n % 4).map(|sequence| done(&intent(&open, sequence))).collect();
            store.close(closed(open, calls, false)).await
        });
    }
    while let Some(result) = closing.join_next().await {
        result.unwrap().unwrap();
    }
    assert_eq!(
        db.count("SELECT COUNT(*) FROM decision_log WHERE status = 'closed'")
            .await,
        1000
    );
    assert_eq!(
        db.count("SELECT COUNT(*) FROM tool_invocation_log").await,
        250 * (1 + 2 + 3)
    );
}

/// One row that the database refuses does not fail its neighbors in the batch.
pub(crate) async fn a_poison_row_does_not_fail_its_neighbours(db: TestDb) {
    let store = db.open().await;
    db.run(if db.is_sqlite() {
        "CREATE TRIGGER poison BEFORE INSERT ON decision_log WHEN NEW.request_id = 'poison'
         BEGIN SELECT RAISE(ABORT, 'poisoned'); END"
    } else {
        "ALTER TABLE decision_log ADD CONSTRAINT poison CHECK (request_id <> 'poison')"
    })
    .await;
    // While the database is locked the writes below collect in the queue, and then form one batch.
    let lock = db.lock().await;
    let mut closing = tokio::task::JoinSet::new();
    for n in 0..40 {
        let store = Arc::clone(&store);
        closing.spawn(async move {
            let mut decision = closed(open_decision(), vec![], false);
            decision.open.request_id = if n == 17 { "poison" } else { "fine" }.into();
            (n, store.close(decision).await)
        });
    }
    tokio::task::yield_now().await;
    lock.release().await;
    while let Some(result) = closing.join_next().await {
        let (n, result) = result.unwrap();
        assert_eq!(result.is_err(), n == 17, "{n}: {result:?}");
    }
    assert_eq!(db.count("SELECT COUNT(*) FROM decision_log").await, 39);
    store.available().unwrap();
}

/// The constraints refuse contradictory records from any writer.
pub(crate) async fn the_tables_refuse_contradictory_rows(db: TestDb) {
    let store = db.open().await;
    let open = open_decision();
    let call = done(&intent(&open, 1));
    store.close(closed(open, vec![call], false)).await.unwrap();
    for lie in [
        "UPDATE decision_log SET outcome_category = NULL",
        "UPDATE decision_log SET status = 'open'",
        "UPDATE decision_log SET decision_type = 'MAYBE'",
        "UPDATE decision_log SET recovered = TRUE",
        "UPDATE decision_log SET duration_us = -1",
        "UPDATE tool_invocation_log SET status = 'failed'",
        "UPDATE tool_invocation_log SET error_code = 'timeout'",
        "UPDATE tool_invocation_log SET started_at = NULL",
        "UPDATE tool_invocation_log SET status = 'in_doubt', error_code = 'in_doubt'",
    ] {
        assert!(db.try_run(lie).await.is_err(), "{lie} was accepted");
    }
}

/// The answer to an error is a record too: every outcome of the closed list can be stored.
pub(crate) async fn every_outcome_can_be_recorded(db: TestDb) {
    let store = db.open().await;
    for outcome in Outcome::ALL {
        let mut decision = closed(open_decision(), vec![], false);
        decision.outcome = *outcome;
        store.close(decision).await.unwrap();
    }
    let distinct = db
        .count("SELECT COUNT(DISTINCT outcome_category) FROM decision_log")
        .await;
    assert_eq!(distinct, i64::try_from(Outcome::ALL.len()).unwrap());
}

/// Arguments and results are kept byte for byte.
pub(crate) async fn json_is_kept_byte_for_byte(db: TestDb) {
    let store = db.open().await;
    let open = open_decision();
    let mut call = done(&intent(&open, 1));
    call.open.arguments = raw(r#"{"n":12345678901234567890123, "é":"\u0000"}"#);
    store.close(closed(open, vec![call], false)).await.unwrap();
    let arguments = db.line("SELECT arguments FROM tool_invocation_log").await;
    assert_eq!(arguments, r#"{"n":12345678901234567890123, "é":"\u0000"}"#);
}

/// No commit waits for work that can be done when idle. Without this checkpoint the file would stay unchanged after the
/// migrations until the WAL has 16 MiB.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_wal_of_sqlite_is_checkpointed_when_idle() {
    let db = TestDb::sqlite().await;
    let store = db.open().await;
    // The writes at the opening are moved with it.
    let size = || std::fs::metadata(db.file()).unwrap().len();
    let before = size();
    for _ in 0..80 {
        store.close(closed(open_decision(), vec![], false)).await.unwrap();
    }
    eventually("the file has grown", async || size() > before).await;
    assert_eq!(db.count("SELECT COUNT(*) FROM decision_log").await, 80);
    store.shutdown().await;
}
