//! `records.content`: which texts of people the log keeps. And those that many decisions share, which it keeps once.

use std::sync::Arc;

use gavel::adapters::store::{ContentKey, ContentMode, Store};
use gavel::domain::journal::Speaker;
use gavel::domain::tool::FailureCode;
use gavel::ports::records::{ClosedCall, ListQuery, OpenCall, OpenDecision};

use crate::commits::Writes;
use crate::support::AsJson as _;
use crate::support::{TestDb, asked, closed, done, failed, intent, open_decision, raw, tenant};

const CANARY: &str = "canary-7f3a";

/// Writes the canary wherever a text of a person, a model or a server can be.
async fn plant(db: &TestDb, content: ContentMode) {
    let store = db.open_with(content).await;
    plant_in(&store, open_decision(), CANARY).await;
    let page = ListQuery {
        page_size: 100,
        ..ListQuery::default()
    };
    // The analysts' rows are JSON in every mode.
    let calls = store.tool_invocations(&tenant(), &page).await.unwrap();
    assert_eq!(calls.items.len(), 10);
    store.shutdown().await;
}

/// Writes a canary into every text of a decision with ten calls and two earlier messages.
pub(crate) async fn plant_in(store: &Arc<Store>, mut open: OpenDecision, canary: &str) {
    open.message = format!("message {canary}").into();
    let mut opened = intent(&open, 1);
    opened.words = Some(format!("words {canary}"));
    opened.arguments = raw(&format!(r#"{{"description":"arguments {canary}"}}"#));
    store.open(open.clone(), vec![opened.clone()]).await.unwrap();
    let mut completed = done(&opened);
    completed.outcome = Ok(raw(&format!(r#"{{"result":"{canary}"}}"#)));
    let mut calls = vec![
        completed,
        ClosedCall {
            started_at: None,
            ..failed(
                &OpenCall {
                    tool: None,
                    name: format!("name_{canary}").into(),
                    ..intent(&open, 2)
                },
                FailureCode::UnknownTool,
                &format!("no tool name_{canary}"),
            )
        },
    ];
    for (sequence, code) in (3..).zip([
        FailureCode::InvalidArguments,
        FailureCode::Denied,
        FailureCode::Unavailable,
        FailureCode::ToolError,
        FailureCode::ProtocolError,
        FailureCode::Timeout,
        FailureCode::InDoubt,
        FailureCode::Unsupported,
    ]) {
        calls.push(failed(&intent(&open, sequence), code, &format!("server said {canary}")));
    }
    let mut decision = closed(open, calls, true);
    decision.closed_at = decision.open.created_at + decision.duration_us;
    decision.asked = asked(vec![
        (Speaker::User, format!("before {canary}")),
        (Speaker::Assistant, format!("answered {canary}")),
    ]);
    decision.intent = "add_task".into();
    decision.response = format!("response {canary}").into();
    store.close(decision).await.unwrap();
}

/// Everything in both tables.
async fn everything(db: &TestDb) -> String {
    let mut all = String::new();
    let views = [
        "decisions",
        "decision_content",
        "tool_invocations",
        "tool_invocation_content",
    ];
    let tables = ["decision_log", "tool_invocation_log", "content_blob"].map(str::to_owned);
    for table in tables.into_iter().chain(views.map(|view| db.view(view))) {
        all.push_str(&format!("{:?}", db.rows(&format!("SELECT * FROM {table}")).await));
    }
    all
}

/// `full` keeps the text.
pub(crate) async fn full_keeps_the_text(db: TestDb) {
    plant(&db, ContentMode::Full).await;
    // message, response; words, arguments, result; name, 9 errors: each in its table and its view. Two earlier messages.
    assert_eq!(everything(&db).await.matches(CANARY).count(), 2 * (2 + 3 + 1 + 9) + 2);
}

/// `hash` keeps keyed digests: equal texts have equal digests, and no text is stored.
pub(crate) async fn hash_keeps_keyed_digests(db: TestDb) {
    plant(&db, ContentMode::Hash(ContentKey::new(b"key"))).await;
    assert!(!everything(&db).await.contains(CANARY));
    let message = db.line("SELECT message FROM decision_log").await;
    // HMAC-SHA-256 of "message canary-7f3a" under "key", by an independent tool.
    assert_eq!(
        message,
        "hmac:294afc3001870c175473afcf382e0d9bc0af2aecbe540a2c5b856b90efd81060"
    );
    let arguments = db
        .line("SELECT arguments FROM tool_invocation_log WHERE sequence = 1")
        .await;
    assert!(
        arguments.starts_with("\"hmac:") && arguments.ends_with('"'),
        "{arguments}"
    );
    let reported = db
        .line("SELECT input_hash FROM tool_invocation_log WHERE sequence = 1")
        .await;
    assert_eq!(
        format!("\"{reported}\""),
        arguments,
        "the hash that distinguishes calls is keyed as well"
    );
    assert_eq!(
        db.count("SELECT COUNT(DISTINCT error_message) FROM tool_invocation_log")
            .await,
        2
    );
}

/// `none` keeps no text, only what happened.
pub(crate) async fn none_keeps_no_text(db: TestDb) {
    plant(&db, ContentMode::None).await;
    assert!(!everything(&db).await.contains(CANARY));
    assert_eq!(
        db.line("SELECT message, response, intent, outcome_category FROM decision_log")
            .await,
        "- - add_task SUCCESS:TASK_COMPLETED"
    );
    assert_eq!(
        db.line(
            "SELECT tool, arguments, input_hash, error_code, error_message FROM tool_invocation_log WHERE sequence = 2"
        )
        .await,
        "unknown - - unknown_tool -"
    );
}

/// The log keeps each text of what models were asked with once: two processes that write the same texts at the same time
/// do not disturb each other, and a later decision with the same history adds nothing.
pub(crate) async fn what_models_were_asked_with_is_kept_once(db: TestDb) {
    let stores = [db.open().await, db.open().await];
    let history = |n: usize| -> Vec<_> {
        let lines = (0..n).map(|line| (Speaker::User, format!("line {line}")));
        lines.collect()
    };
    let writes = (0..40).map(|n| {
        let store = Arc::clone(&stores[n % 2]);
        let mut decision = closed(open_decision(), vec![], false);
        // In both orders, in which two writers could wait for each other.
        let mut said = history(10);
        if n % 3 == 0 {
            said.reverse();
        }
        decision.asked = asked(said);
        async move { store.close(decision).await.unwrap() }
    });
    futures_util::future::join_all(writes).await;
    let kinds = "SELECT kind, COUNT(*) FROM content_blob GROUP BY kind ORDER BY kind";
    let kept = db.rows(kinds).await.into_iter().flatten().flatten().collect::<Vec<_>>();
    assert_eq!(kept.join(" "), "definition 1 history 2 message 10 toolset 1");
    let without = "SELECT COUNT(*) FROM decision_log WHERE NOT EXISTS (SELECT 1 FROM content_blob b \
                   WHERE b.tenant = decision_log.tenant AND b.hash = toolset_hash) OR NOT EXISTS \
                   (SELECT 1 FROM content_blob b WHERE b.tenant = decision_log.tenant AND b.hash = history_hash)";
    assert_eq!(db.count(without).await, 0);
    for store in stores {
        store.shutdown().await;
    }
}

/// A transaction that fails keeps nothing, so the next decision writes its texts again.
pub(crate) async fn texts_of_a_decision_that_was_refused_are_written_with_the_next(db: TestDb) {
    let store = db.open().await;
    let open = open_decision();
    store.close(closed(open.clone(), vec![], false)).await.unwrap();
    // Its id is another process's: the whole transaction is undone.
    db.run("UPDATE decision_log SET owner = 'another'").await;
    let mut refused = closed(open, vec![], false);
    refused.asked = asked(vec![]);
    assert!(store.close(refused.clone()).await.is_err());
    assert_eq!(db.count("SELECT COUNT(*) FROM content_blob").await, 0);
    refused.open = open_decision();
    store.close(refused).await.unwrap();
    assert_eq!(db.count("SELECT COUNT(*) FROM content_blob").await, 2);
    store.shutdown().await;
}

/// Text that is not kept is not in the file either, including its journal.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_sqlite_file_holds_no_text_in_hash_and_none() {
    for content in [ContentMode::Hash(ContentKey::new(b"key")), ContentMode::None] {
        let db = TestDb::sqlite().await;
        plant(&db, content).await;
        let mut bytes = 0;
        for entry in std::fs::read_dir(db.file().parent().unwrap()).unwrap() {
            let content = std::fs::read(entry.unwrap().path()).unwrap();
            bytes += content.len();
            assert!(!content.windows(CANARY.len()).any(|window| window == CANARY.as_bytes()));
        }
        assert!(bytes > 0);
    }
}
