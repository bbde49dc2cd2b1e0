//! Migrations: the same tables on both databases, applied once, never changed.

use std::collections::BTreeSet;

use gavel::adapters::store::{Store, StoreError};
use gavel::domain::agent_run::RunStatus;
use gavel::ports::runs::{Reopened, Runs};

use crate::commits::{Append, Writes, entries, finished, reopen};
use crate::support::{TestDb, begin, called_run, closed, done, entry, intent, new_run, open_decision, queued_run};

/// The columns of every table and view, as `table.column`.
async fn columns(db: &TestDb) -> BTreeSet<String> {
    let sql = if db.is_sqlite() {
        "SELECT m.name || '.' || c.name FROM sqlite_master m JOIN pragma_table_info(m.name) c \
         WHERE m.type IN ('table', 'view') AND m.name NOT LIKE 'sqlite%'"
    } else {
        "SELECT table_name || '.' || column_name FROM information_schema.columns WHERE table_schema = 'public'"
    };
    db.rows(sql)
        .await
        .into_iter()
        .map(|row| row[0].clone().unwrap())
        .collect()
}

/// DESIGN.md 8: one code base for both, so the same names in both.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_databases_have_the_same_columns() {
    let (sqlite, postgres) = (TestDb::sqlite().await, TestDb::postgres().await);
    for db in [&sqlite, &postgres] {
        Store::migrate(&db.url).await.unwrap();
    }
    let (sqlite, postgres) = (columns(&sqlite).await, columns(&postgres).await);
    assert_eq!(sqlite, postgres);
    for name in [
        "v_decisions.created_at",
        "v_tool_invocations.success",
        "idempotency_key.scope",
        "agent_run.lease_until",
        "agent_definition.version",
    ] {
        assert!(sqlite.contains(name), "{name}");
    }
}

/// The analysts' views: ISO times, milliseconds, the same text from both databases.
pub(crate) async fn the_views_use_iso_times_and_milliseconds(db: TestDb) {
    let store = db.open().await;
    let open = open_decision();
    store
        .close(closed(open.clone(), vec![done(&intent(&open, 1))], false))
        .await
        .unwrap();
    assert_eq!(
        db.line("SELECT created_at, duration_ms, outcome_category, user_id FROM v_decisions")
            .await,
        "2026-11-20T00:00:00.000001Z 1234 SUCCESS:TASK_COMPLETED ann"
    );
    assert_eq!(
        db.line("SELECT created_at, started_at, duration_ms, tool, status FROM v_tool_invocations WHERE success")
            .await,
        "2026-11-20T00:00:00.000002Z 2026-11-20T00:00:00.000002Z 1 add_task completed"
    );
}

/// `gavel migrate` reports what exists and what is pending, and applies it once.
pub(crate) async fn migrations_are_reported_and_applied_once(db: TestDb) {
    let db = db.emptied().await;
    let before = Store::status(&db.url).await.unwrap();
    assert!(before.applied.is_empty());
    assert_eq!(before.pending[0], (1, "decisions"));
    if db.is_sqlite() {
        assert!(!db.file().exists(), "a status query created a file");
    }
    let after = Store::migrate(&db.url).await.unwrap();
    assert!(after.pending.is_empty());
    assert_eq!(after.applied.len(), before.pending.len());
    assert_eq!(Store::migrate(&db.url).await.unwrap(), after);
    assert_eq!(Store::status(&db.url).await.unwrap(), after);
}

/// Several processes that start at once apply each migration once.
pub(crate) async fn many_may_start_at_once(db: TestDb) {
    let db = db.emptied().await;
    let (one, two, three, four) = tokio::join!(db.open(), db.open(), db.open(), db.open());
    for store in [one, two, three, four] {
        store.close(closed(open_decision(), vec![], false)).await.unwrap();
    }
    let status = Store::status(&db.url).await.unwrap();
    assert_eq!(
        db.count("SELECT COUNT(*) FROM gavel_schema").await,
        i64::try_from(status.applied.len()).unwrap()
    );
}

/// An update handles a database that an older gavel created and wrote to.
pub(crate) async fn a_database_of_an_older_version_is_migrated_and_keeps_its_rows(db: TestDb) {
    let store = db.open().await;
    store.close(closed(open_decision(), vec![], false)).await.unwrap();
    store.shutdown().await;
    // As the first version left it.
    db.run(
        "DROP VIEW v_tool_invocations; DROP VIEW v_actions; DROP VIEW v_audit; \
         ALTER TABLE tool_invocation_log DROP COLUMN policy; ALTER TABLE tool_invocation_log DROP COLUMN decided_by; \
         ALTER TABLE tool_invocation_log DROP COLUMN input_hash; \
         DROP TABLE quota_bucket; DROP INDEX decision_by_intent; DROP INDEX decision_slow; DROP INDEX tool_slow; \
         DROP TABLE agent_run; DROP TABLE agent_run_entry; DROP TABLE agent_snapshot; DROP TABLE agent_definition; \
         DROP TABLE thread; DROP TABLE thread_message; DROP TABLE agent_action; DROP TABLE approval_grant; \
         DROP TABLE audit; DROP TABLE audit_head; DROP TABLE audit_key; DROP TABLE console_session; \
         DROP TABLE planning_session; DROP TABLE planning_change; ALTER TABLE instance DROP COLUMN url; \
         DROP VIEW v_decisions; ALTER TABLE decision_log DROP COLUMN requested_model; \
         ALTER TABLE decision_log DROP COLUMN service_tier; \
         CREATE VIEW v_decisions AS SELECT id AS decision_id FROM decision_log; \
         DELETE FROM gavel_schema WHERE version > 1",
    )
    .await;
    let first = match db.is_sqlite() {
        true => include_str!("../../migrations/sqlite/0001_decisions.sql"),
        false => include_str!("../../migrations/postgres/0001_decisions.sql"),
    };
    let view = first.find("CREATE VIEW v_tool_invocations").unwrap();
    db.run(&first[view..]).await;
    // Views may depend on it, which keeps a database from dropping a table.
    if !db.is_sqlite() {
        db.run("CREATE VIEW theirs AS SELECT tool FROM v_tool_invocations")
            .await;
        db.run("DROP FUNCTION audit_follows; DROP FUNCTION audit_refuses; DROP FUNCTION audit_head_advances")
            .await;
    }
    assert_eq!(Store::status(&db.url).await.unwrap().pending[0], (2, "quota"));
    let store = db.open().await;
    assert!(Store::status(&db.url).await.unwrap().pending.is_empty());
    assert_eq!(db.count("SELECT COUNT(*) FROM quota_bucket").await, 0);
    assert_eq!(db.count("SELECT COUNT(*) FROM decision_log").await, 1);
    store.close(closed(open_decision(), vec![], false)).await.unwrap();
}

/// A migration that differs from the applied one stops the start, and the error names it.
pub(crate) async fn a_changed_migration_is_an_error(db: TestDb) {
    Store::migrate(&db.url).await.unwrap();
    db.run("UPDATE gavel_schema SET checksum = 'other' WHERE version = 1")
        .await;
    let error = Store::open(db.config()).await.err().unwrap();
    assert!(matches!(error, StoreError::Changed { version: 1, .. }), "{error:?}");
    assert!(error.to_string().contains("decisions"), "{error}");
}

/// A database that a newer gavel migrated is not touched.
pub(crate) async fn a_newer_database_is_an_error(db: TestDb) {
    Store::migrate(&db.url).await.unwrap();
    db.run("INSERT INTO gavel_schema (version, name, checksum, applied_at) VALUES (999, 'later', 'x', 0)")
        .await;
    let error = Store::open(db.config()).await.err().unwrap();
    assert!(matches!(error, StoreError::Newer { found: 999, .. }), "{error:?}");
    assert!(matches!(Store::status(&db.url).await, Err(StoreError::Newer { .. })));
}

/// Only the owner of the file may read the users' texts.
#[cfg(unix)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_owner_can_read_the_sqlite_file() {
    use std::os::unix::fs::PermissionsExt;
    let db = TestDb::sqlite().await;
    let _store = db.open().await;
    for entry in std::fs::read_dir(db.file().parent().unwrap()).unwrap() {
        let entry = entry.unwrap();
        assert_eq!(entry.metadata().unwrap().permissions().mode() & 0o077, 0, "{entry:?}");
    }
}

/// A copy that `VACUUM INTO` made, as for a backup, is not in WAL mode; a start restores that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restored_sqlite_file_returns_to_wal_mode() {
    let db = TestDb::sqlite().await;
    db.open().await.shutdown().await;
    let copy = db.file().with_extension("copy");
    db.run(&format!("VACUUM INTO '{}'", copy.display())).await;
    std::fs::rename(&copy, db.file()).unwrap();
    let mode = async || db.line("PRAGMA journal_mode").await;
    assert_eq!(mode().await, "delete");
    let store = db.open().await;
    assert_eq!(mode().await, "wal");
    store.shutdown().await;
}

/// In an earlier version another run resumed a paused one. Such a run reads and continues like any other: its journal
/// has the entries of all, in order, and a called run that was cut short continues under it.
pub(crate) async fn a_run_that_resumed_another_one_has_the_whole_journal(db: TestDb) {
    let store = db.open().await;
    let (first, second, third) = (new_run(), new_run(), queued_run());
    let lease = begin(&store, &first).await;
    let child = called_run(lease, first.id);
    begin(&store, &child).await;
    store.append(entries(lease, 1..=3)).await.unwrap();
    let of_child = Append {
        run: child.id,
        ..entries(lease, 1..=2)
    };
    store.append(of_child).await.unwrap();
    for run in [&child, &first] {
        let end = finished(lease, run, RunStatus::Paused, vec![]);
        store.finish(end).await.unwrap();
    }
    let lease = begin(&store, &second).await;
    store.append(entries(lease, 1..=2)).await.unwrap();
    store
        .finish(finished(lease, &second, RunStatus::Paused, vec![]))
        .await
        .unwrap();
    store.create(third.clone()).await.unwrap();
    store.shutdown().await;
    // As the version before left it.
    let [one, two, three] = [first.id, second.id, third.id];
    db.run(&format!(
        "UPDATE agent_run SET resumed_by = '{two}' WHERE id = '{one}'; \
         UPDATE agent_run SET resumed_from = '{one}', resumed_by = '{three}' WHERE id = '{two}'; \
         UPDATE agent_run SET resumed_from = '{two}' WHERE id = '{three}'; \
         ALTER TABLE agent_run DROP COLUMN worked_us; ALTER TABLE agent_run DROP COLUMN attempt; ALTER TABLE agent_run DROP COLUMN attempts; \
         ALTER TABLE agent_run DROP COLUMN reopened_by; ALTER TABLE agent_run DROP COLUMN reopened_fence; \
         CREATE TABLE kept AS SELECT run_id, number, created_at, elapsed_us, body FROM agent_run_entry; \
         DROP TABLE agent_run_entry; CREATE TABLE agent_run_entry (run_id TEXT NOT NULL, number BIGINT NOT NULL, \
         created_at BIGINT NOT NULL, elapsed_us BIGINT NOT NULL, body TEXT NOT NULL, PRIMARY KEY (run_id, number)); \
         INSERT INTO agent_run_entry SELECT * FROM kept; DROP TABLE kept; \
         DROP INDEX agent_run_by_session; DROP INDEX agent_run_by_settlement; \
         ALTER TABLE agent_run DROP COLUMN session_id; ALTER TABLE agent_run DROP COLUMN waits_for; \
         DROP TABLE planning_session; DROP TABLE planning_change; ALTER TABLE instance DROP COLUMN url; \
         DROP VIEW v_decisions; ALTER TABLE decision_log DROP COLUMN requested_model; \
         ALTER TABLE decision_log DROP COLUMN service_tier; \
         CREATE VIEW v_decisions AS SELECT id AS decision_id FROM decision_log; \
         DELETE FROM gavel_schema WHERE version > 10"
    ))
    .await;
    let store = db.open().await;
    let journal = async |run| {
        let journal = store.journal(run, 0, 99).await.unwrap();
        let numbers: Vec<_> = journal.iter().map(|entry| entry.number).collect();
        assert_eq!(numbers, (1..=numbers.len() as u64).collect::<Vec<_>>());
        journal
            .into_iter()
            .map(|entry| entry.body.to_string())
            .collect::<Vec<_>>()
    };
    let bodies = |numbers: &[u64]| numbers.iter().map(|n| entry(*n).body.to_string()).collect::<Vec<_>>();
    assert_eq!(journal(one).await, bodies(&[1, 2, 3]));
    assert_eq!(journal(two).await, bodies(&[1, 2, 3, 1, 2]));
    let mut all = bodies(&[1, 2, 3, 1, 2]);
    all.push(format!(r#"{{"resumed":{{"from":"{two}"}}}}"#));
    assert_eq!(journal(three).await, all);
    let row = format!("SELECT parent_run_id, root_id FROM agent_run WHERE id = '{}'", child.id);
    assert_eq!(db.line(&row).await, format!("{three} {three}"));
    // The log has the entries of both, each run's in order.
    let log = store.events(three, 0, 99, usize::MAX).await.unwrap();
    let positions: Vec<_> = log.iter().map(|logged| logged.position).collect();
    assert_eq!(positions, (1..=8).collect::<Vec<_>>());
    for (run, length) in [(three, 6), (child.id, 2)] {
        let of_run = log.iter().filter(|logged| logged.run == run);
        let numbers: Vec<_> = of_run.map(|logged| logged.entry.number).collect();
        assert_eq!(numbers, (1..=length).collect::<Vec<_>>());
    }
    // It is resumed by the last one of them alone.
    let refused = store.reopen(reopen(one, 0)).await.unwrap();
    assert_eq!(refused, Reopened::ResumedBy(two));
    assert!(store.take(three).await.unwrap().is_some());
}
