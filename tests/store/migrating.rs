//! Migrations: the same tables on both databases, applied once, never changed.

use std::collections::BTreeSet;

use gavel::adapters::store::{Store, StoreError};

use crate::commits::Writes;
use crate::support::{TestDb, closed, open_decision};

/// The columns of every table and view, as `table.column`.
async fn columns(db: &TestDb) -> BTreeSet<String> {
    let sql = if db.is_sqlite() {
        "SELECT m.name || '.' || c.name FROM sqlite_master m JOIN pragma_table_info(m.name) c \
         WHERE m.type IN ('table', 'view') AND m.name NOT LIKE 'sqlite%'"
    } else {
        "SELECT CASE table_schema WHEN 'public' THEN '' ELSE table_schema || '_' END || table_name || '.' || column_name \
         FROM information_schema.columns WHERE table_schema IN ('public', 'gavel_v1')"
    };
    db.rows(sql)
        .await
        .into_iter()
        .map(|row| row[0].clone().unwrap())
        .collect()
}

/// One code base for both, so the same names in both.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_databases_have_the_same_columns() {
    let (sqlite, postgres) = (TestDb::sqlite().await, TestDb::postgres().await);
    for db in [&sqlite, &postgres] {
        Store::migrate(&db.url).await.unwrap();
    }
    let (sqlite, postgres) = (columns(&sqlite).await, columns(&postgres).await);
    assert_eq!(sqlite, postgres);
    for name in [
        "gavel_v1_decisions.created_us",
        "gavel_v1_tool_invocations.success",
        "idempotency_key.scope",
        "agent_run.lease_until",
        "agent_definition.version",
    ] {
        assert!(sqlite.contains(name), "{name}");
    }
}

/// `gavel migrate` reports what exists and what is pending, and applies it once.
pub(crate) async fn migrations_are_reported_and_applied_once(db: TestDb) {
    let db = db.emptied().await;
    let before = Store::status(&db.url).await.unwrap();
    assert!(before.applied.is_empty());
    assert_eq!(before.pending[0], (1, "schema"));
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
        db.count("SELECT COUNT(*) FROM gavel_schema WHERE version > 0").await,
        i64::try_from(status.applied.len()).unwrap()
    );
}

/// A migration that differs from the applied one stops the start, and the error names it.
pub(crate) async fn a_changed_migration_is_an_error(db: TestDb) {
    Store::migrate(&db.url).await.unwrap();
    db.run("UPDATE gavel_schema SET checksum = 'other' WHERE version = 1")
        .await;
    let error = Store::open(db.config()).await.err().unwrap();
    assert!(matches!(error, StoreError::Changed { version: 1, .. }), "{error:?}");
    assert!(error.to_string().contains("schema"), "{error}");
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
