//! What a container can and cannot do, as it is seen from inside.

use serde_json::json;

use crate::engine::IMAGE;
use crate::harness::world;

#[tokio::test]
async fn a_container_has_no_capabilities_no_network_no_devices_and_no_new_privileges() {
    let Some((_, world)) = world() else { return };
    let server = world.server().await;
    let container = server.container().await;
    let seen = server
        .run(
            &container,
            "grep -E 'Cap|NoNewPrivs|Seccomp:' /proc/self/status; ls /sys/class/net; find /dev -type b; pwd; id -u
             mount -t tmpfs none /mnt && echo mounted; chown 1 /etc/passwd && echo changed
             ls /var/run/docker.sock 2>/dev/null; true",
        )
        .await;
    let text = seen["stdout"].as_str().expect("text");
    for line in [
        "CapEff:\t0000000000000000",
        "CapBnd:\t0000000000000000",
        "NoNewPrivs:\t1",
        "Seccomp:\t2",
        "\nlo\n/work\n",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    for effect in ["mounted", "changed", "docker.sock"] {
        assert!(!text.contains(effect), "{text}");
    }
}

#[tokio::test]
async fn the_engine_shows_the_limits_and_the_labels_of_a_container() {
    let Some((engine, world)) = world() else { return };
    let server = world.server().await;
    let container = server
        .container_with(json!({ "memoryMb": 256, "cpus": 1, "pids": 64, "name": "build", "env": { "A": "b" } }))
        .await;
    let inspected = engine.podman(["inspect", &container]);
    let inspected: serde_json::Value = serde_json::from_str(&inspected).expect("JSON");
    let (host, labels) = (&inspected[0]["HostConfig"], &inspected[0]["Config"]["Labels"]);
    assert_eq!(host["Memory"], 256 * 1024 * 1024);
    assert_eq!(host["PidsLimit"], 64);
    assert_eq!(host["NanoCpus"], 1_000_000_000);
    assert_eq!(host["NetworkMode"], "none");
    assert_eq!(host["Privileged"], false);
    assert_eq!(host["Binds"], json!([]));
    assert_eq!(host["LogConfig"]["Type"], "none");
    assert_eq!(labels["gavel.managed"], "true");
    assert_eq!(labels["gavel.session"], server.session);
    assert_eq!(labels["gavel.group"], server.session);
    assert!(
        labels["gavel.expires"]
            .as_str()
            .is_some_and(|expires| expires.ends_with('Z'))
    );
    let seen = server
        .run(&container, "echo $A; df /tmp /run/gavel | grep -c tmpfs")
        .await;
    assert_eq!(seen["stdout"], "b\n2\n");
}

#[tokio::test]
async fn a_container_has_no_more_memory_and_processes_than_it_may() {
    let Some((_, world)) = world() else { return };
    let server = world.server().await;
    let container = server.container_with(json!({ "memoryMb": 64, "pids": 40 })).await;
    let memory = server
        .run(&container, "head -c 200000000 /dev/zero | tail -c 150000000")
        .await;
    assert_eq!(
        (&memory["exitCode"], &memory["signal"]),
        (&json!(137), &json!("SIGKILL"))
    );
    let processes = server
        .run(&container, "for i in $(seq 60); do sleep 20 & done; echo all")
        .await;
    assert_ne!(processes["stdout"], "all\n");
    assert_eq!(server.run(&container, "echo works").await["stdout"], "works\n");
}

#[tokio::test]
async fn the_operator_chooses_the_network_and_the_mounts() {
    let Some((_, world)) = world() else { return };
    let shared = tempfile::tempdir().expect("a directory");
    std::fs::write(shared.path().join("file"), "from the host").expect("written");
    let mounts = format!("{}:/shared", shared.path().display());
    let world = world.set("DOCKER_NETWORK", "host").set("DOCKER_MOUNTS", &mounts);
    let server = world.server().await;
    let container = server.container().await;
    let seen = server
        .run(
            &container,
            "cat /shared/file; echo x >/shared/new; echo; ls /sys/class/net | wc -l",
        )
        .await;
    let networks = std::fs::read_dir("/sys/class/net").expect("networks").count();
    assert_eq!(seen["stdout"], format!("from the host\n{networks}\n"));
    assert!(!shared.path().join("new").exists(), "a mount is read-only");
}

/// An image may name a user of its own. Scripts run as that user, and can write to the working directory.
#[tokio::test]
async fn an_image_with_a_user_of_its_own_works() {
    let Some((engine, world)) = world() else { return };
    let name = "gavel-test-user";
    engine.podman(["create", "--name", name, IMAGE, "true"]);
    engine.podman([
        "commit",
        "--quiet",
        "--change",
        "USER 1234",
        name,
        "localhost/gavel-test/user:1",
    ]);
    let server = world.server().await;
    let container = server
        .container_with(json!({ "image": "localhost/gavel-test/user:1" }))
        .await;
    let seen = server
        .run(
            &container,
            "id -u; echo x >file; cat file; echo $$ >/tmp/x && cat /run/gavel/x",
        )
        .await;
    assert_eq!((&seen["stdout"], &seen["exitCode"]), (&json!("1234\nx\n"), &json!(1)));
    let file = json!({ "containerId": container, "path": "file" });
    assert_eq!(server.call("readFileInContainer", file).await.text, "x\n");
}
