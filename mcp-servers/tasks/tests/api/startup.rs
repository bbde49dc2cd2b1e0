use std::process::Stdio;
use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, Command};

use crate::harness::{Caller, Credentials, Database, SECRET, Wire, World, discover, http_client, program};

async fn refused(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).stderr(Stdio::piped()).output();
    let output = tokio::time::timeout(Duration::from_secs(20), output)
        .await
        .expect("it ends by itself")
        .expect("the program starts");
    assert!(!output.status.success());
    assert!(output.stdout.is_empty(), "standard output is for the protocol");
    String::from_utf8(output.stderr).expect("text")
}

/// C-FR-009
#[tokio::test]
async fn http_does_not_start_without_a_way_to_know_its_callers() {
    let world = World::new(Wire::Stdio, Database::Sqlite).await;
    let on = |arguments: &[&str]| {
        let mut command = program(&world.url);
        command.args(["--http", "127.0.0.1:0"]).args(arguments);
        command
    };
    let said = refused(&mut on(&[])).await;
    assert!(said.contains("GAVEL_IDENTITY_SECRET") && said.contains("--insecure-user"));
    let said = refused(on(&[]).env("GAVEL_IDENTITY_SECRET", "canary, too short")).await;
    assert!(said.contains("at least 32") && !said.contains("canary"), "{said}");
    let said = refused(&mut on(&["--user", "anna"])).await;
    assert!(said.contains("--user is for standard input"), "{said}");
    let said = refused(on(&["--insecure-user", "anna"]).env("GAVEL_IDENTITY_SECRET", SECRET)).await;
    assert!(said.contains("exclude each other") && !said.contains(SECRET), "{said}");
    for address in ["0.0.0.0:0", "[::]:0"] {
        let mut command = program(&world.url);
        command.args(["--http", address, "--insecure-user", "anna"]);
        let said = refused(&mut command).await;
        assert!(said.contains("loopback"), "{said}");
    }
    let missing = world.directory().join("no-such-file");
    let said = refused(on(&[]).env("GAVEL_IDENTITY_SECRET_FILE", &missing)).await;
    assert!(said.contains("no-such-file"), "{said}");
}

/// C-FR-009
#[tokio::test]
async fn an_option_that_makes_no_sense_is_refused_with_the_reason() {
    let world = World::new(Wire::Stdio, Database::Sqlite).await;
    let cases: [(&[&str], &str); 6] = [
        (&["--insecure-user", "anna"], "--user NAME"),
        (&["--user", " "], "--user has to be a name"),
        (&["--database", "mysql://x"], "sqlite://PATH"),
        (&["--database", "sqlite::memory:"], "has to be a file"),
        (&["--database", "sqlite:///proc/no/tasks.db"], "/proc/no"),
        (&["--http", "nowhere", "--insecure-user", "a"], "not an address"),
    ];
    for (arguments, reason) in cases {
        let said = refused(program(&world.url).args(arguments)).await;
        assert!(said.contains(reason), "{arguments:?}: {said}");
    }
}

/// C-FR-002
#[tokio::test]
async fn a_newer_database_is_left_alone() {
    for database in [Database::Sqlite, Database::Postgres] {
        let world = World::new(Wire::Http, database).await;
        world
            .sql("INSERT INTO tasks_migrations (version, applied_at) VALUES (99, 0)")
            .await;
        let said = refused(&mut program(&world.url)).await;
        assert!(said.contains("newer version"), "{said}");
    }
}

/// C-FR-002
#[tokio::test]
async fn without_a_database_url_tasks_are_kept_in_the_current_directory() {
    let world = World::new(Wire::Stdio, Database::Sqlite).await;
    let mut command = program(&world.url);
    command
        .env_remove("TASKS_DATABASE_URL")
        .current_dir(world.directory())
        .stdin(Stdio::null());
    assert!(command.status().await.expect("it runs").success());
    assert!(world.directory().join("tasks.db").exists());
}

/// Tasks are users' text: no other user of the machine may read them, whatever the umask.
#[tokio::test]
async fn a_new_sqlite_file_and_its_log_are_for_their_owner_alone() {
    use std::os::unix::fs::PermissionsExt;
    let world = World::new(Wire::Http, Database::Sqlite).await;
    let anna = world.caller("anna").await;
    anna.add("call mom").await;
    let mut files = 0;
    for entry in std::fs::read_dir(world.directory().join("new")).expect("a folder") {
        let entry = entry.expect("an entry");
        let mode = entry.metadata().expect("metadata").permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{:?}", entry.path());
        files += 1;
    }
    assert!(files >= 2, "the database and its log");
}

/// Any secret can also come from `NAME_FILE`, and a database URL is a secret.
#[tokio::test]
async fn the_url_of_the_database_can_stand_in_a_file() {
    let world = World::new(Wire::Stdio, Database::Sqlite).await;
    let (tasks, file) = (world.directory().join("own/tasks.db"), world.directory().join("url"));
    let write = |text: &str| std::fs::write(&file, text).expect("a file");
    let with_file = |url: &str| {
        let mut command = program(url);
        command
            .env("TASKS_DATABASE_URL_FILE", &file)
            .current_dir(world.directory())
            .stdin(Stdio::null());
        command
    };
    write(&format!("sqlite://{}\n", tasks.display()));
    // An empty value counts as unset: mcp.json passes on both variables.
    assert!(with_file("").status().await.expect("it runs").success());
    assert!(tasks.exists() && !world.directory().join("tasks.db").exists());
    let mut neither = program("");
    neither
        .env("TASKS_DATABASE_URL_FILE", "")
        .current_dir(world.directory())
        .stdin(Stdio::null());
    assert!(neither.status().await.expect("it runs").success());
    assert!(world.directory().join("tasks.db").exists());

    let said = refused(&mut with_file("sqlite://other.db")).await;
    assert!(said.contains("given twice") && !said.contains("other.db"), "{said}");
    write("postgres://u:canary@localhost:x/tasks");
    let said = refused(&mut with_file("")).await;
    assert!(said.contains("not a URL") && !said.contains("canary"), "{said}");
    std::fs::remove_file(&file).expect("it is there");
    let said = refused(&mut with_file("")).await;
    assert!(said.contains(&file.display().to_string()), "{said}");
}

/// C-FR-002
#[tokio::test]
async fn help_teaches() {
    let output = program("").arg("--help").output().await.expect("it runs");
    let help = String::from_utf8(output.stdout).expect("text");
    for word in [
        "--http",
        "--database",
        "TASKS_DATABASE_URL_FILE",
        "--user",
        "GAVEL_IDENTITY_SECRET",
        "GAVEL_IDENTITY_SECRET_FILE",
        "--audience",
        "--allowed-host",
        "--insecure-user",
        "Examples:",
    ] {
        assert!(help.contains(word), "{word}");
    }
}

/// The program serving HTTP, and the address from its log.
async fn serving(command: &mut Command) -> (Child, std::net::SocketAddr) {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let log = child.stderr.take().expect("a log");
    let mut lines = BufReader::new(log).lines();
    let address = loop {
        let line = lines.next_line().await.expect("a log").expect("an address");
        if let Some((_, rest)) = line.split_once("http://") {
            let address = rest.trim_end_matches("/mcp");
            break address.parse().expect("an address");
        }
    };
    tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
    (child, address)
}

async fn stop(child: &Child, signal: &str) {
    let id = child.id().expect("running").to_string();
    let stopped = Command::new("kill").args([signal, &id]).status().await;
    assert!(stopped.expect("kill runs").success());
}

async fn ends_well(child: &mut Child) {
    let ended = tokio::time::timeout(Duration::from_secs(8), child.wait());
    let status = ended.await.expect("it ends soon").expect("a status");
    assert!(status.success(), "{status}");
}

/// C-FR-009
#[tokio::test]
async fn one_user_on_this_machine_can_do_without_identity() {
    let world = World::new(Wire::Stdio, Database::Sqlite).await;
    let mut command = program(&world.url);
    command.args(["--http", "localhost:0", "--insecure-user", "anna"]);
    let (_child, address) = serving(&mut command).await;
    let mut caller = Caller::new(http_client(address, discover()).await, Credentials::None).await;
    caller.add("hers").await;
    caller.credentials = Credentials::Plain("bob".to_owned());
    assert_eq!(caller.descriptions(json!({})).await, ["hers"]);
}

/// C-FR-002
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sigterm_under_load_loses_no_task_that_was_answered() {
    for signal in ["-TERM", "-INT"] {
        let world = World::new(Wire::Stdio, Database::Sqlite).await;
        let secret = world.directory().join("secret");
        std::fs::write(&secret, format!("{SECRET}\n")).expect("written");
        let mut command = program(&world.url);
        command
            .args(["--http", "127.0.0.1:0"])
            .env("GAVEL_IDENTITY_SECRET_FILE", &secret);
        let (mut child, address) = serving(&mut command).await;
        let client = http_client(address, discover()).await;
        let signed = Credentials::Signed("anna".to_owned());
        let anna = std::sync::Arc::new(Caller::new(client, signed).await);
        let calls: Vec<_> = (0..60)
            .map(|number| {
                let anna = anna.clone();
                tokio::spawn(async move {
                    let arguments = json!({ "description": format!("task {number}") });
                    anna.try_call("add_task", arguments, json!({})).await
                })
            })
            .collect();
        tokio::time::sleep(Duration::from_millis(60)).await;
        stop(&child, signal).await;
        ends_well(&mut child).await;
        let mut answered = Vec::new();
        for call in calls {
            if let Ok(reply) = call.await.expect("no panic") {
                answered.push(reply.ok()["task"]["description"].clone());
            }
        }
        let kept = world.caller("anna").await;
        let kept = kept.descriptions(json!({ "limit": 200 })).await;
        assert!(answered.iter().all(|task| kept.iter().any(|kept| task == kept)));
    }
}

/// C-FR-002
#[tokio::test]
async fn over_stdio_it_ends_on_a_signal_or_when_the_client_goes_and_writes_only_protocol() {
    for ending in ["-TERM", "-INT", "gone", "gone before the first message"] {
        let world = World::new(Wire::Stdio, Database::Sqlite).await;
        let mut child = program(&world.url)
            .env("RUST_LOG", "trace")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let mut input = child.stdin.take().expect("a pipe");
        let mut output = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut said = String::new();
        if ending != "gone before the first message" {
            let hello = json!({
                "jsonrpc": "2.0", "id": 1, "method": "initialize",
                "params": {
                    "protocolVersion": "2025-11-25", "capabilities": {},
                    "clientInfo": { "name": "test", "version": "1" }
                }
            });
            let line = format!("{hello}\n");
            input.write_all(line.as_bytes()).await.expect("written");
            output.read_line(&mut said).await.expect("an answer");
        }
        if ending.starts_with('-') {
            stop(&child, ending).await;
        } else {
            drop(input);
        }
        ends_well(&mut child).await;
        output.read_to_string(&mut said).await.expect("text");
        for line in said.lines() {
            let message: serde_json::Value = serde_json::from_str(line).expect("JSON");
            assert_eq!(message["jsonrpc"], "2.0");
        }
    }
}
