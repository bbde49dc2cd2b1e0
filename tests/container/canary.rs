//! Looking for the token: as it is, and in the encodings in which it could be kept.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sqlx::{Connection, PgConnection};

use crate::github::TOKEN;

/// The forms of the token that a text contains.
pub fn canaries(text: &str) -> Vec<String> {
    // In base64 what is before it moves it.
    let base64 = ["", "a", "ab"].map(|before| {
        let encoded = STANDARD.encode(format!("{before}{TOKEN}"));
        encoded[4..encoded.len() - 4].to_owned()
    });
    let others = [TOKEN.to_owned(), "canary".to_owned(), hex::encode("canary")];
    let forms = base64.into_iter().chain(others);
    forms.filter(|form| text.contains(form)).collect()
}

/// Fails the test if a row of any table of a PostgreSQL database has the token. SQLite's file is read as a file.
pub async fn check_database(url: &str) {
    if !url.starts_with("postgres") {
        return;
    }
    let mut database = PgConnection::connect(url).await.unwrap();
    let tables = "SELECT tablename::text FROM pg_tables WHERE schemaname NOT IN ('pg_catalog', 'information_schema')";
    let tables: Vec<String> = sqlx::query_scalar(tables).fetch_all(&mut database).await.unwrap();
    let mut bytes = 0;
    for table in tables {
        let rows = format!("SELECT coalesce(string_agg(t::text, ' '), '') FROM \"{table}\" t");
        let rows: String = sqlx::query_scalar(sqlx::AssertSqlSafe(rows))
            .fetch_one(&mut database)
            .await
            .unwrap();
        bytes += rows.len();
        assert_eq!(canaries(&rows), [""; 0], "the token is in {table}");
    }
    assert!(bytes > 1000, "the session is in the database");
}

#[test]
fn every_form_of_the_token_is_found() {
    for before in ["", "a", "ab"] {
        let text = STANDARD.encode(format!("{before}{TOKEN}@host"));
        assert!(!canaries(&text).is_empty(), "{text}");
    }
    assert!(!canaries(&hex::encode(TOKEN)).is_empty());
    assert!(!canaries(&format!("x{TOKEN}x")).is_empty());
    assert!(canaries("a token").is_empty());
}
