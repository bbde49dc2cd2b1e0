use std::process::Stdio;

use rmcp::model::Tool;
use serde_json::{Value, json};
use tokio::process::Command;

use crate::harness::{Database, PRIVATE_KEY, World};

async fn refused(command: &mut Command) -> String {
    let output = command
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .stdout(Stdio::piped())
        .output();
    let output = output.await.expect("the program runs");
    assert!(!output.status.success());
    assert!(output.stdout.is_empty(), "standard output is for the protocol");
    String::from_utf8(output.stderr).expect("text")
}

/// An invalid value prevents the start, and the error names it.
#[tokio::test]
async fn an_invalid_setting_stops_the_start_and_is_named() {
    let world = World::new(Database::Sqlite).await;
    let count = std::cell::Cell::new(0);
    let account = |text: &str| {
        count.set(count.get() + 1);
        world
            .file(&format!("account-{}.json", count.get()), text)
            .display()
            .to_string()
    };
    let cases = [
        ("GOOGLE_TOKEN_KEY", "canary-short".to_owned(), "32 bytes"),
        ("GOOGLE_TOKEN_KEY", String::new(), "GOOGLE_TOKEN_KEY_FILE"),
        ("GOOGLE_TOKEN_KEY_FILE", "/nowhere/canary".to_owned(), "given twice"),
        ("GOOGLE_CLIENT_SECRET", String::new(), "GOOGLE_CLIENT_SECRET_FILE"),
        ("GOOGLE_CLIENT_SECRET_FILE", "/nowhere".to_owned(), "given twice"),
        ("GOOGLE_CLIENT_ID", String::new(), "GOOGLE_SERVICE_ACCOUNT_FILE"),
        ("GOOGLE_SERVICE_ACCOUNT_FILE", account("{}"), "exclude each other"),
        (
            "GOOGLE_SERVICE_ACCOUNT_USERS_FILE",
            "x".to_owned(),
            "GOOGLE_CLIENT_ID is set",
        ),
        ("GOOGLE_GMAIL_URL", "http://gmail.example".to_owned(), "https://"),
        ("GOOGLE_GMAIL_URL", "nowhere".to_owned(), "not a URL"),
        ("GOOGLE_TOKEN_URL", "https://user@token.example".to_owned(), "https://"),
        ("GOOGLE_MAX_RECIPIENTS", "0".to_owned(), "from 1 to 2000"),
        ("GOOGLE_MAX_MESSAGE_BYTES", "lots".to_owned(), "whole number"),
        ("GOOGLE_TIMEOUT_SECONDS", "-1".to_owned(), "whole number"),
        (
            "GOOGLE_SETTLE_SECONDS",
            "30".to_owned(),
            "must be more than GOOGLE_TIMEOUT_SECONDS",
        ),
        ("GOOGLE_DATABASE_URL", "mysql://canary".to_owned(), "sqlite://PATH"),
    ];
    for (name, value, words) in cases {
        let said = refused(world.program().env(name, &value)).await;
        assert!(said.contains(name) || name == "GOOGLE_DATABASE_URL", "{name}: {said}");
        assert!(said.contains(words), "{name}: {said}");
        assert!(
            !said.contains("canary-short") && !said.contains("canary-client-secret"),
            "{said}"
        );
    }
    let file = |text: &str| {
        account(&json!({ "type": "service_account", "client_email": "x", "private_key": text }).to_string())
    };
    for (path, words) in [
        (account("canary"), "not the JSON key file"),
        (
            account(r#"{"type":"authorized_user","client_email":"x","private_key":"x"}"#),
            "must be service_account",
        ),
        (file("canary"), "not an RSA key"),
        ("/nowhere/account.json".to_owned(), "/nowhere/account.json"),
    ] {
        let mut command = world.program();
        command
            .env_remove("GOOGLE_CLIENT_ID")
            .env("GOOGLE_SERVICE_ACCOUNT_FILE", path);
        let said = refused(&mut command).await;
        assert!(
            said.contains(words) && said.contains("GOOGLE_SERVICE_ACCOUNT_FILE"),
            "{said}"
        );
        assert!(!said.contains("canary"), "{said}");
    }
    let users = world.file("users.json", r#"{"anna": "stranger"}"#);
    let mut command = world.program();
    command
        .env_remove("GOOGLE_CLIENT_ID")
        .env("GOOGLE_SERVICE_ACCOUNT_FILE", file(PRIVATE_KEY))
        .env("GOOGLE_SERVICE_ACCOUNT_USERS_FILE", users);
    let said = refused(&mut command).await;
    assert!(said.contains("not an e-mail address"), "{said}");
}

/// Any secret can also come from a file; an empty variable counts as unset.
#[tokio::test]
async fn secrets_come_from_files_too() {
    let mut world = World::new(Database::Sqlite).await;
    world.connect("anna").await;
    for name in ["GOOGLE_CLIENT_SECRET", "GOOGLE_TOKEN_KEY"] {
        let value = world.environment.insert(name, String::new()).expect("a setting");
        let path = world.file(name, &format!("{value}\n")).display().to_string();
        let file = if name == "GOOGLE_TOKEN_KEY" {
            "GOOGLE_TOKEN_KEY_FILE"
        } else {
            "GOOGLE_CLIENT_SECRET_FILE"
        };
        world.environment.insert(file, path);
    }
    for name in ["GOOGLE_MAX_RECIPIENTS", "GOOGLE_SCOPES", "GOOGLE_SERVICE_ACCOUNT_FILE"] {
        world.environment.insert(name, String::new());
    }
    let server = world.server().await;
    let email = json!({ "to": ["ben@example.com"], "subject": "x", "body": "x" });
    server.call("anna", "gmail_send", email).await.ok();
    world.google.finish();
}

/// R-8
#[tokio::test]
async fn the_tools_say_what_they_are() {
    let world = World::new(Database::Sqlite).await;
    let server = world.server().await;
    let tools = server.client.list_all_tools().await.expect("tools/list");
    let names: Vec<_> = tools.iter().map(|tool| tool.name.as_ref()).collect();
    assert_eq!(names, ["gmail_send", "calendar_event_create", "google_account"]);
    let looks = tools[2].annotations.as_ref().expect("annotations");
    assert_eq!(
        (looks.read_only_hint, looks.destructive_hint),
        (Some(true), Some(false))
    );
    for tool in &tools[..2] {
        let annotations = tool.annotations.as_ref().expect("annotations");
        assert_eq!(annotations.read_only_hint, Some(false));
        assert_eq!(annotations.open_world_hint, Some(true));
        assert_eq!(annotations.idempotent_hint, Some(false));
        assert_eq!(annotations.destructive_hint, Some(tool.name == "gmail_send"));
        let said = serde_json::to_value(tool).expect("JSON");
        assert_eq!(said["_meta"]["gavel/idempotency"], "key");
        assert!(tool.output_schema.is_some());
    }
    // The arguments that the README lists as recipients are lists of text.
    let recipients = |tool: &Tool, names: &[&str]| {
        for name in names {
            let schema: &Value = &tool.input_schema["properties"][*name];
            assert_eq!(
                (&schema["type"], &schema["items"]["type"]),
                (&json!("array"), &json!("string")),
                "{name}"
            );
        }
    };
    recipients(&tools[0], &["to", "cc", "bcc"]);
    recipients(&tools[1], &["attendees"]);
}

#[tokio::test]
async fn help_teaches() {
    let world = World::new(Database::Sqlite).await;
    let output = world.program().arg("--help").output().await.expect("it runs");
    let help = String::from_utf8(output.stdout).expect("text");
    for word in [
        "GOOGLE_CLIENT_ID",
        "GOOGLE_CLIENT_SECRET_FILE",
        "GOOGLE_TOKEN_KEY_FILE",
        "GOOGLE_SERVICE_ACCOUNT_FILE",
        "GOOGLE_DATABASE_URL",
        "GOOGLE_GMAIL_URL",
        "openssl rand -base64 32",
        "Examples:",
    ] {
        assert!(help.contains(word), "{word}");
    }
    assert!(!help.contains("canary"), "a secret of the environment is shown");
}

/// The database has refresh tokens and keys: no other user of the machine may read it, whatever the umask.
#[tokio::test]
async fn both_databases_have_the_same_columns_and_a_file_is_for_its_owner_alone() {
    use std::os::unix::fs::PermissionsExt;
    let (sqlite, postgres) = (World::new(Database::Sqlite).await, World::new(Database::Postgres).await);
    for world in [&sqlite, &postgres] {
        world.connect("anna").await;
    }
    let in_sqlite = sqlite
        .text(
            "SELECT group_concat(t, ',') FROM (SELECT m.name || '.' || c.name AS t FROM sqlite_master m,
             pragma_table_info(m.name) c WHERE m.type = 'table' ORDER BY 1)",
        )
        .await;
    let in_postgres = postgres
        .text(
            "SELECT string_agg(t, ',') FROM (SELECT (table_name || '.' || column_name) COLLATE \"C\" AS t
             FROM information_schema.columns WHERE table_schema = 'public' ORDER BY 1) AS all_of_them",
        )
        .await;
    assert_eq!(in_sqlite, in_postgres);
    assert!(in_sqlite.contains("google_calls.idem_key"));
    let file = sqlite.directory().join("new/google.db");
    let mode = std::fs::metadata(file).expect("a file").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}
