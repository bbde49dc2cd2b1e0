//! Settings, help, and what the server says of itself.

use std::process::Stdio;

use serde_json::Value;
use tokio::process::Command;

use crate::harness::{PRIVATE_KEY, World};

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

#[tokio::test]
async fn an_invalid_setting_stops_the_start_and_is_named() {
    let world = World::new().await;
    for (name, value, words) in [
        ("GITHUB_TOKEN", "", "no credentials"),
        ("GITHUB_TOKEN", "canary two", "one token"),
        ("GITHUB_TOKEN_FILE", "/nowhere/canary", "given twice"),
        ("GITHUB_APP_ID", "7", "exclude each other"),
        ("GITHUB_API_URL", "http://github.example", "https://"),
        ("GITHUB_API_URL", "nowhere", "not a URL"),
        ("GITHUB_URL", "https://me:canary@github.example", "https://"),
        ("GITHUB_COMMIT_NAME", "a <canary>", "one line"),
        ("GITHUB_COMMIT_EMAIL", "a\ncanary", "one line"),
        ("GITHUB_TIMEOUT_SECONDS", "0", "from 1 to 600"),
        ("GITHUB_TIMEOUT_SECONDS", "soon", "from 1 to 600"),
    ] {
        let said = refused(world.program().env(name, value)).await;
        assert!(said.contains(name) && said.contains(words), "{name}: {said}");
        assert!(!said.contains("canary"), "{name}: {said}");
    }
    let world = World::of_an_app().await;
    for (name, value, words) in [
        ("GITHUB_APP_PRIVATE_KEY", "", "must be set too"),
        ("GITHUB_APP_PRIVATE_KEY", "canary", "not an RSA key"),
        ("GITHUB_APP_INSTALLATION_ID", "", "must be set too"),
        ("GITHUB_APP_INSTALLATION_ID", "canary", "whole number"),
    ] {
        let said = refused(world.program().env(name, value)).await;
        assert!(said.contains(name) && said.contains(words), "{name}: {said}");
        assert!(!said.contains("canary"), "{name}: {said}");
    }
}

#[tokio::test]
async fn secrets_come_from_files_too() {
    let mut world = World::new().await;
    let token = world
        .environment
        .insert("GITHUB_TOKEN", String::new())
        .expect("a token");
    let path = world.file("token", &format!("{token}\n"));
    world.environment.insert("GITHUB_TOKEN_FILE", path);
    world
        .server()
        .await
        .call("listRepositories", serde_json::json!({}))
        .await
        .ok();
    let mut world = World::of_an_app().await;
    // A variable often has its line breaks written as \n.
    let one_line = PRIVATE_KEY.replace('\n', "\\n");
    world.environment.insert("GITHUB_APP_PRIVATE_KEY", one_line);
    world
        .server()
        .await
        .call("listRepositories", serde_json::json!({}))
        .await
        .ok();
    world.environment.insert("GITHUB_APP_PRIVATE_KEY", String::new());
    let path = world.file("key.pem", PRIVATE_KEY);
    world.environment.insert("GITHUB_APP_PRIVATE_KEY_FILE", path);
    world
        .server()
        .await
        .call("listRepositories", serde_json::json!({}))
        .await
        .ok();
    world.github.finish();
}

#[tokio::test]
async fn the_tools_say_what_they_are() {
    let mut world = World::new().await;
    world
        .environment
        .insert("DOCKER_HOST", "unix:///nowhere/engine.sock".to_owned());
    let server = world.server().await;
    let tools = server.client.list_all_tools().await.expect("tools/list");
    let mut tools = serde_json::to_value(tools).expect("JSON");
    for tool in tools.as_array().expect("tools") {
        let hints = &tool["annotations"];
        assert_eq!(hints["openWorldHint"], true, "{}", tool["name"]);
        let writes = hints["readOnlyHint"] == false;
        assert_eq!(tool["_meta"]["gavel/idempotency"] == "key", writes, "{}", tool["name"]);
    }
    tools.sort_all_objects();
    insta::assert_json_snapshot!("tools_list", tools);
    let about = server.client.peer_info().expect("a server");
    assert!(serde_json::to_value(about).is_ok_and(|about: Value| about["instructions"].is_string()));
}

#[tokio::test]
async fn help_teaches() {
    let world = World::new().await;
    let output = world.program().arg("--help").output().await.expect("it runs");
    let help = String::from_utf8(output.stdout).expect("text");
    for word in [
        "GITHUB_TOKEN",
        "GITHUB_TOKEN_FILE",
        "GITHUB_APP_ID",
        "GITHUB_APP_PRIVATE_KEY_FILE",
        "GITHUB_APP_INSTALLATION_ID",
        "GITHUB_API_URL",
        "GITHUB_URL",
        "GITHUB_TIMEOUT_SECONDS",
        "GITHUB_COMMIT_NAME",
        "GITHUB_COMMIT_EMAIL",
        "DOCKER_HOST",
        "Examples:",
    ] {
        assert!(help.contains(word), "{word}");
    }
    assert!(!help.contains("canary"), "a secret of the environment is shown");
}
