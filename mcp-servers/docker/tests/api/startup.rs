//! Settings, help, what the server says of itself, and an engine that is not there.

use std::process::Stdio;

use serde_json::{Value, json};

use crate::harness::{World, world};

#[tokio::test]
async fn an_invalid_setting_stops_the_start_and_is_named() {
    for (name, value, words) in [
        ("DOCKER_HOST", "", "is missing"),
        ("DOCKER_HOST", "tcp://127.0.0.1:2375", "unix socket"),
        ("DOCKER_HOST", "unix://", "unix socket"),
        ("DOCKER_IMAGES", "", "is missing"),
        ("DOCKER_IMAGES", ",", "names no image"),
        ("DOCKER_IMAGES", "a[", "invalid pattern"),
        ("DOCKER_NETWORK", "container:abc", "name of a network"),
        ("DOCKER_MOUNTS", "relative:/x", "SOURCE:TARGET"),
        ("DOCKER_MOUNTS", "/nowhere:/x", "engine's socket"),
        ("DOCKER_PULL", "always", "never or missing"),
        ("DOCKER_MEMORY_MB", "1", "whole number from"),
        ("DOCKER_CPUS", "many", "whole number from"),
        ("DOCKER_PIDS", "0", "whole number from"),
        ("DOCKER_SESSION_CONTAINERS", "0", "whole number from"),
        ("DOCKER_CONTAINERS", "-1", "whole number from"),
    ] {
        let world = World::at("unix:///nowhere/docker.sock").set(name, value);
        let output = world
            .program()
            .stdin(Stdio::null())
            .output()
            .await
            .expect("the program runs");
        assert!(!output.status.success(), "{name}={value}");
        assert!(output.stdout.is_empty(), "standard output is for the protocol");
        let said = String::from_utf8(output.stderr).expect("text");
        assert!(said.contains(name) && said.contains(words), "{name}: {said}");
    }
}

#[tokio::test]
async fn without_an_engine_the_server_starts_and_says_what_is_missing() {
    let server = World::at("unix:///nowhere/docker.sock").server().await;
    for (tool, arguments) in [
        (
            "createContainer",
            json!({ "options": { "image": "localhost/gavel-test/base:1" } }),
        ),
        ("listContainers", json!({})),
        (
            "executeScript",
            json!({ "containerId": "0123456789ab", "script": "true" }),
        ),
        ("destroyContainer", json!({ "containerId": "0123456789ab" })),
        ("cleanupGroupContainers", json!({ "group": "g" })),
        (
            "readFileInContainer",
            json!({ "containerId": "0123456789ab", "path": "a" }),
        ),
        ("getAllSourceFiles", json!({ "containerId": "0123456789ab" })),
    ] {
        assert_eq!(
            server.call(tool, arguments.clone()).await.code(),
            "engine_unavailable",
            "{tool}"
        );
        // An earlier attempt may have done it.
        let mut meta = json!({ "gavel/session_id": "s", "gavel/idempotency_key": "k" });
        meta["gavel/first_attempt_at"] = "2026-03-31T09:00:00Z".into();
        let again = server.try_call(tool, arguments, meta).await;
        assert!(again.is_err(), "{tool}: {again:?}");
    }
    assert!(gavel_mcp_docker::probe("unix:///nowhere/docker.sock").await.is_err());
}

#[tokio::test]
async fn the_tools_say_what_they_are() {
    let server = World::at("unix:///nowhere/docker.sock").server().await;
    let tools = server.client.list_all_tools().await.expect("tools/list");
    let mut tools = serde_json::to_value(tools).expect("JSON");
    for tool in tools.as_array().expect("tools") {
        let hints = &tool["annotations"];
        let writes = hints["readOnlyHint"] == false;
        // What reads reaches only the containers of the session.
        assert_eq!(hints["openWorldHint"], writes, "{}", tool["name"]);
        assert_eq!(tool["_meta"]["gavel/idempotency"] == "key", writes, "{}", tool["name"]);
    }
    tools.sort_all_objects();
    insta::assert_json_snapshot!("tools_list", tools);
    let about = server.client.peer_info().expect("a server");
    assert!(serde_json::to_value(about).is_ok_and(|about: Value| about["instructions"].is_string()));
}

#[tokio::test]
async fn the_description_names_what_the_operator_permits() {
    let at = || World::at("unix:///nowhere/docker.sock");
    let many: String = (0..500).map(|number| format!("localhost/image-{number}:*,")).collect();
    for (world, words) in [
        (
            at().set("DOCKER_IMAGES", "a:1, b/*")
                .set("DOCKER_MOUNTS", "/srv/x:/x,/srv/y:/y:rw"),
            "images: a:1, b/*; one that is missing is not pulled.",
        ),
        (
            at().set("DOCKER_MOUNTS", "/srv/x:/x,/srv/y:/y:rw"),
            "Mounts: /x (ro), /y (rw).",
        ),
        (
            at().set("DOCKER_NETWORK", "agents").set("DOCKER_PULL", "missing"),
            "is pulled. Network: agents. Mounts: none.",
        ),
        (
            at().set("DOCKER_MEMORY_MB", "300").set("DOCKER_CONTAINERS", "40"),
            "At most 300 MiB of memory, 2 processors and 512 processes; 5 containers of a session and 30 of a user.",
        ),
        (at().set("DOCKER_IMAGES", &many), " more; one that is missing"),
    ] {
        let server = world.server().await;
        let tools = server.client.list_all_tools().await.expect("tools/list");
        let description = tools[0].description.as_deref().expect("a description");
        assert!(description.contains(words) && description.len() < 2000, "{description}");
        assert!(!description.contains("/srv"), "a path of the host: {description}");
        let refused = server
            .call("createContainer", json!({ "options": { "image": "evil/x" } }))
            .await;
        let permitted = refused.error()["permitted"]
            .as_str()
            .expect("what is permitted")
            .to_owned();
        assert!(description.contains(&permitted), "{permitted}");
    }
}

/// What is behind a path can change: by a mount that containers may write to, for instance.
#[tokio::test]
async fn no_container_is_created_once_a_mount_leads_to_the_socket() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = |path: &str| directory.path().join(path);
    std::fs::create_dir(at("run")).expect("a directory");
    std::fs::create_dir(at("cache")).expect("a directory");
    let world = World::at(&format!("unix://{}", at("run/engine.sock").display()))
        .set("DOCKER_MOUNTS", &format!("{}:/cache:rw", at("cache").display()));
    let server = world.server().await;
    let create = json!({ "options": { "image": "localhost/gavel-test/base:1" } });
    assert_eq!(
        server.call("createContainer", create.clone()).await.code(),
        "engine_unavailable"
    );
    std::fs::remove_dir(at("cache")).expect("removed");
    std::os::unix::fs::symlink(at("run"), at("cache")).expect("a link");
    assert_eq!(server.call("createContainer", create).await.code(), "internal");
    assert!(
        server.log().contains("would give the engine's socket"),
        "{}",
        server.log()
    );
    let output = world.program().stdin(Stdio::null()).output().await.expect("it runs");
    assert!(!output.status.success() && String::from_utf8_lossy(&output.stderr).contains("engine's socket"));
}

#[tokio::test]
async fn help_teaches() {
    let world = World::at("unix:///nowhere/docker.sock");
    let output = world.program().arg("--help").output().await.expect("it runs");
    let help = String::from_utf8(output.stdout).expect("text");
    for word in [
        "DOCKER_HOST",
        "DOCKER_IMAGES",
        "DOCKER_NETWORK",
        "DOCKER_MOUNTS",
        "DOCKER_PULL",
        "DOCKER_MEMORY_MB",
        "DOCKER_CPUS",
        "DOCKER_PIDS",
        "DOCKER_SESSION_CONTAINERS",
        "DOCKER_CONTAINERS",
        "Examples:",
    ] {
        assert!(help.contains(word), "{word}");
    }
}

#[tokio::test]
async fn the_engine_says_whether_root_in_a_container_is_root_on_the_host() {
    let Some((engine, _)) = world() else { return };
    let info = gavel_mcp_docker::probe(&engine.host()).await.expect("an engine");
    assert_eq!((info.name.as_str(), info.root_is_host_root), ("Podman Engine", true));
    assert!(info.version.contains('.') && info.api_version.contains('.'), "{info:?}");
}
