//! Creating, listing and destroying containers, each once, and each for its session alone.

use serde_json::{Value, json};

use crate::engine::IMAGE;
use crate::harness::{Reply, Server, world};

async fn list(server: &Server, all: bool) -> Vec<Value> {
    let listed = server.call("listContainers", json!({ "all": all })).await.ok();
    listed["containers"].as_array().expect("a list").clone()
}

fn create() -> Value {
    json!({ "options": { "image": IMAGE, "name": "one" } })
}

async fn created(server: &Server, key: &str) -> String {
    let reply = server.first(key, "createContainer", create()).await.expect("an answer");
    reply.ok()["id"].as_str().expect("an id").to_owned()
}

#[tokio::test]
async fn a_container_is_created_listed_and_destroyed() {
    let Some((engine, world)) = world() else { return };
    let server = world.server().await;
    let id = server
        .container_with(json!({ "name": "one", "group": "ignored" }))
        .await;
    let listed = list(&server, false).await;
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0]["id"], id);
    assert_eq!(
        (&listed[0]["name"], &listed[0]["state"]),
        (&json!("one"), &json!("running"))
    );
    assert_eq!(listed[0]["group"], server.session);
    engine.podman(["stop", "--time", "0", &id]);
    assert!(list(&server, false).await.is_empty());
    assert_eq!(list(&server, true).await[0]["state"], "exited");
    let run = json!({ "containerId": id, "script": "true" });
    assert_eq!(server.call("executeScript", run).await.code(), "not_running");
    for destroyed in [true, false] {
        let reply = server.call("destroyContainer", json!({ "containerId": id })).await;
        assert_eq!(reply.ok()["destroyed"], destroyed);
    }
    assert!(list(&server, true).await.is_empty());
    let read = json!({ "containerId": id, "path": "x" });
    assert_eq!(server.call("readFileInContainer", read).await.code(), "not_found");
}

#[tokio::test]
async fn the_same_key_creates_one_container_in_one_process_in_two_and_after_a_crash() {
    let Some((_, world)) = world() else { return };
    let server = world.server().await;
    let other = world.server_of(&server.session).await;
    let (one, two, three) = tokio::join!(created(&server, "k=1"), created(&server, "k=1"), created(&other, "k=1"));
    assert_eq!((&one, &one), (&two, &three));
    server.kill();
    assert_eq!(created(&world.server_of(&other.session).await, "k=1").await, one);
    assert_eq!(list(&other, true).await.len(), 1);
    assert_ne!(created(&other, "k=2").await, one);
    let mut different = create();
    different["options"]["name"] = "two".into();
    let reused = other
        .first("k=1", "createContainer", different)
        .await
        .expect("an answer");
    assert_eq!(reused.code(), "idempotency_key_reused");
}

/// Killed between the two requests, a server leaves a container that was not started.
#[tokio::test]
async fn a_container_that_was_created_and_not_started_is_started_by_the_next_attempt() {
    let Some((engine, world)) = world() else { return };
    let server = world.server().await;
    let first = created(&server, "k").await;
    let label = |name: &str| {
        let format = format!("{{{{index .Config.Labels \"{name}\"}}}}");
        engine
            .podman(["inspect", "--format", &format, &first])
            .trim()
            .to_owned()
    };
    let labels: Vec<_> = ["gavel.managed", "gavel.session", "gavel.key", "gavel.digest"]
        .into_iter()
        .flat_map(|name| ["--label".to_owned(), format!("{name}={}", label(name))])
        .collect();
    server
        .call("destroyContainer", json!({ "containerId": first }))
        .await
        .ok();
    let arguments = ["create".to_owned()].into_iter().chain(labels);
    let id = engine.podman(arguments.chain([IMAGE, "sleep", "60"].map(str::to_owned)));
    assert_eq!(created(&server, "k").await, id.trim());
    assert_eq!(list(&server, false).await[0]["state"], "running");
}

#[tokio::test]
async fn another_sessions_container_is_treated_as_absent() {
    let Some((_, world)) = world() else { return };
    let (server, other) = (world.server().await, world.server().await);
    let id = server.container().await;
    let calls = |id: &str| {
        [
            ("executeScript", json!({ "containerId": id, "script": "true" })),
            (
                "readFileInContainer",
                json!({ "containerId": id, "path": "/etc/hostname" }),
            ),
            ("getAllSourceFiles", json!({ "containerId": id })),
        ]
    };
    for (tool, arguments) in calls(&id) {
        let absent: Reply = other.call(tool, arguments.clone()).await;
        assert_eq!(absent.code(), "not_found", "{tool}");
        let without = other.try_call(tool, arguments, json!({})).await.expect("an answer");
        assert_eq!(absent, without, "{tool}");
    }
    // The same as for a container that never was.
    for (tool, arguments) in calls(&"0".repeat(64)) {
        assert_eq!(other.call(tool, arguments).await.code(), "not_found", "{tool}");
    }
    let destroyed = other.call("destroyContainer", json!({ "containerId": id })).await.ok();
    assert_eq!(destroyed["destroyed"], false);
    let cleaned = other
        .call("cleanupGroupContainers", json!({ "group": server.session }))
        .await
        .ok();
    assert_eq!(cleaned, json!({ "removed": [], "left": [] }));
    assert!(list(&other, true).await.is_empty());
    assert_eq!(list(&server, false).await.len(), 1);
}

#[tokio::test]
async fn a_group_is_cleaned_up_in_every_state() {
    let Some((engine, world)) = world() else { return };
    let server = world.server().await;
    let (one, two) = (server.container().await, server.container().await);
    engine.podman(["stop", "--time", "0", &one]);
    let session = format!("gavel.session={}", server.session);
    let group = format!("gavel.group={}", server.session);
    let labels = ["--label", "gavel.managed=true", "--label", &session, "--label", &group];
    let arguments = ["create"].into_iter().chain(labels).chain([IMAGE, "true"]);
    let three = engine.podman(arguments).trim().to_owned();
    engine.podman(["pause", &two]);
    let cleaned = server
        .call("cleanupGroupContainers", json!({ "group": server.session }))
        .await
        .ok();
    let mut removed: Vec<_> = cleaned["removed"].as_array().expect("ids").iter().collect();
    removed.sort_by_key(|id| id.to_string());
    let mut expected = [json!(one), json!(two), json!(three)];
    expected.sort_by_key(|id| id.to_string());
    assert_eq!(removed, expected.iter().collect::<Vec<_>>());
    assert_eq!(cleaned["left"], json!([]));
    assert!(list(&server, true).await.is_empty());
}

#[tokio::test]
async fn without_a_session_the_group_is_the_callers_own() {
    let Some((_, world)) = world() else { return };
    let server = world.server().await;
    let call = async |tool: &str, arguments: Value| {
        server
            .try_call(tool, arguments, json!({}))
            .await
            .expect("an answer")
            .ok()
    };
    let id = call(
        "createContainer",
        json!({ "options": { "image": IMAGE, "group": "mine" } }),
    )
    .await;
    let listed = call("listContainers", json!({})).await;
    let own = listed["containers"]
        .as_array()
        .expect("a list")
        .iter()
        .find(|one| one["id"] == id["id"]);
    assert_eq!(own.expect("listed")["group"], "mine");
    let cleaned = call("cleanupGroupContainers", json!({ "group": "mine" })).await;
    assert_eq!(cleaned["removed"], json!([id["id"]]));
}

#[tokio::test]
async fn a_session_has_five_containers_and_no_sixth() {
    let Some((_, world)) = world() else { return };
    let server = world.server().await;
    let mut last = String::new();
    for _ in 0..5 {
        last = server.container().await;
    }
    let refused = server.call("createContainer", create()).await;
    assert_eq!(
        (refused.code(), &refused.error()["max"]),
        ("too_many_containers", &json!(5))
    );
    // A container that is there already is found even then.
    server
        .call("destroyContainer", json!({ "containerId": last }))
        .await
        .ok();
    let id = created(&server, "k").await;
    assert_eq!(created(&server, "k").await, id);
    assert_eq!(list(&server, true).await.len(), 5);
}

#[tokio::test]
async fn all_sessions_together_have_twenty_containers() {
    let Some((engine, world)) = world() else { return };
    let server = world.set("DOCKER_CONTAINERS", "").server().await;
    let refused = async |user: &str| {
        let meta = json!({ "gavel/session_id": server.session, "gavel/user_id": user });
        let refused = server
            .try_call("createContainer", create(), meta)
            .await
            .expect("an answer");
        assert_eq!(refused.code(), "too_many_containers", "{user}");
        (refused.error()["scope"].clone(), refused.error()["max"].clone())
    };
    // The server finds them as after a restart of it: by their labels.
    for (user, count, scope, max) in [
        ("acme/ann", 16, "user", 16),
        ("acme/bob", 2, "tenant", 18),
        ("acme/cy", 0, "tenant", 18),
        ("ann", 2, "server", 20),
    ] {
        for number in 0..count {
            let labels = [
                "gavel.managed=true",
                &format!("gavel.user={user}"),
                &format!("gavel.session=crowd-{number}"),
            ];
            let labels = labels.iter().flat_map(|label| ["--label", label]);
            engine.podman(["create"].into_iter().chain(labels).chain([IMAGE, "true"]));
        }
        assert_eq!(refused(user).await, (json!(scope), json!(max)), "{user}");
    }
}

#[tokio::test]
async fn without_a_session_a_container_belongs_to_its_user() {
    let Some((_, world)) = world() else { return };
    let server = world.server().await;
    let call = async |user: &str, tool: &str, arguments: Value| {
        let answered = server.try_call(tool, arguments, json!({ "gavel/user_id": user })).await;
        answered.expect("an answer")
    };
    let id = call("acme/dora", "createContainer", create()).await.ok()["id"].clone();
    let listed = async |user| call(user, "listContainers", json!({})).await.ok().to_string();
    let run = json!({ "containerId": id, "script": "true" });
    assert!(listed("acme/dora").await.contains(id.as_str().expect("an id")));
    assert!(!listed("dora").await.contains(id.as_str().expect("an id")));
    assert_eq!(call("dora", "executeScript", run.clone()).await.code(), "not_found");
    assert_eq!(call("acme/dora", "executeScript", run).await.ok()["exitCode"], 0);
}

#[tokio::test]
async fn an_image_that_is_missing_or_does_not_run_is_an_error_and_leaves_nothing() {
    let Some((engine, world)) = world() else { return };
    let directory = tempfile::tempdir().expect("a directory");
    let tar = directory.path().join("empty.tar");
    let made = std::process::Command::new("tar")
        .arg("-cf")
        .arg(&tar)
        .args(["-C", "/", "etc/hostname"])
        .status();
    assert!(made.expect("tar").success());
    engine.podman([
        "import",
        "--quiet",
        &tar.display().to_string(),
        "localhost/gavel-test/empty:1",
    ]);
    for pull in ["never", "missing"] {
        let server = world_with_pull(pull).server().await;
        for (image, code) in [
            ("localhost/gavel-test/none:1", "image_missing"),
            ("localhost/gavel-test/empty:1", "image_unusable"),
        ] {
            let reply = server
                .call("createContainer", json!({ "options": { "image": image } }))
                .await;
            assert_eq!(reply.code(), code, "{pull}");
        }
        assert!(list(&server, true).await.is_empty());
    }
    drop(world);
}

fn world_with_pull(pull: &str) -> crate::harness::World {
    let (_, world) = world().expect("an engine");
    world.set("DOCKER_PULL", pull)
}
