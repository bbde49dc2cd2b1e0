#![allow(clippy::unwrap_used)]

use super::*;

#[path = "../../../../tests/postgres/mod.rs"]
mod postgres;

/// The migrations of an invented later release, which changes a table of this one.
fn of_a_later_release(sql: &'static str) -> Vec<Migration> {
    let next = Migration {
        version: MIGRATIONS.last().unwrap().version + 1,
        name: "next",
        sql,
    };
    [MIGRATIONS, &[next]].concat()
}

/// A later release migrates a database with rows once, and keeps them.
async fn migrates_once_and_keeps_rows(url: &str) {
    let target = Target::parse(url, None).unwrap();
    target.create().unwrap();
    let mut conn = target.writer().await.unwrap();
    let first = migrate(&mut conn, Duration::ZERO).await.unwrap();
    let insert = "INSERT INTO instance (id, started_at, lease_until) VALUES ('kept', 1, 2)";
    run(&mut conn, insert).await.unwrap();
    // One that fails leaves nothing behind, also what it did before.
    let broken = of_a_later_release("ALTER TABLE instance ADD COLUMN next TEXT; CREATE TABLE instance (id TEXT)");
    let failed = migrate_to(&mut conn, Duration::ZERO, &broken).await;
    assert!(
        matches!(failed, Err(StoreError::Failed { version: 2, .. })),
        "{failed:?}"
    );
    assert_eq!(status(&mut conn).await.unwrap(), first);
    let later = of_a_later_release("ALTER TABLE instance ADD COLUMN next TEXT NOT NULL DEFAULT 'new'");
    assert_eq!(compare(&mut conn, &later).await.unwrap().pending, [(2, "next")]);
    for _ in 0..2 {
        let done = migrate_to(&mut conn, Duration::ZERO, &later).await.unwrap();
        assert_eq!((done.applied.len(), done.pending.len()), (2, 0));
    }
    let kept = "SELECT id || ' ' || next FROM instance".to_owned();
    assert_eq!(conn.one(kept, vec![]).await.unwrap(), Some("kept new".to_owned()));
    // This release does not touch what the later one made.
    for refused in [status(&mut conn).await, migrate(&mut conn, Duration::ZERO).await] {
        assert!(
            matches!(refused, Err(StoreError::Newer { found: 2, known: 1 })),
            "{refused:?}"
        );
    }
}

#[tokio::test]
async fn a_later_release_migrates_sqlite_once_and_keeps_its_rows() {
    let directory = tempfile::tempdir().unwrap();
    migrates_once_and_keeps_rows(&format!("sqlite:{}", directory.path().join("t.db").display())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_later_release_migrates_postgres_once_and_keeps_its_rows() {
    migrates_once_and_keeps_rows(&postgres::empty_database().await).await;
}

#[test]
fn migrations_are_numbered_without_a_gap() {
    for (place, migration) in (1_i64..).zip(MIGRATIONS) {
        assert_eq!(migration.version, place, "{}", migration.name);
    }
}

const fn migration(sql: &'static str) -> Migration {
    Migration {
        version: 1,
        name: "x",
        sql,
    }
}

#[test]
fn line_ends_do_not_change_a_checksum() {
    let checksum = |sql| migration(sql).checksum(Dialect::Sqlite);
    assert_eq!(checksum("a\nb\n"), checksum("a\r\nb\r\n"));
}

#[test]
fn a_section_is_for_one_database_alone() {
    let sql = "a TEXT,\n-- sqlite:\nb\n-- postgres:\nc\n-- both:\nd\n";
    assert_eq!(migration(sql).text(Dialect::Sqlite), "a TEXT,\nb\nd\n");
    assert_eq!(migration(sql).text(Dialect::Postgres), "a TEXT COLLATE \"C\",\nc\nd\n");
}
