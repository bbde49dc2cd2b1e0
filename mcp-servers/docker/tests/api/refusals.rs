//! What is refused before the engine is asked: the engine gets no request.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::UnixListener;

use crate::harness::{Server, World};

/// A socket that counts connections and answers none.
struct Socket {
    count: Arc<AtomicU32>,
    directory: TempDir,
}

impl Socket {
    async fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let listener = UnixListener::bind(directory.path().join("s")).expect("a socket");
        let count = Arc::new(AtomicU32::new(0));
        let counted = count.clone();
        tokio::spawn(async move {
            while listener.accept().await.is_ok() {
                counted.fetch_add(1, Ordering::SeqCst);
            }
        });
        Self { count, directory }
    }

    fn host(&self) -> String {
        format!("unix://{}/s", self.directory.path().display())
    }

    fn count(&self) -> u32 {
        self.count.load(Ordering::SeqCst)
    }

    /// A server whose look for expired containers has been made.
    async fn server(&self) -> Server {
        let server = World::at(&self.host()).server().await;
        for _ in 0..100 {
            tokio::time::sleep(Duration::from_millis(20)).await;
            if self.count() > 0 && server.log().contains("did not answer") {
                break;
            }
        }
        server
    }
}

async fn refused(server: &Server, options: Value) -> Value {
    let reply = server.call("createContainer", json!({ "options": options })).await;
    reply.error().clone()
}

#[tokio::test]
async fn an_option_that_weakens_a_container_is_refused_by_name_and_the_engine_is_not_asked() {
    let socket = Socket::new().await;
    let server = socket.server().await;
    let before = socket.count();
    for (option, value) in [
        ("Privileged", json!(true)),
        ("privileged", json!(false)),
        ("Binds", json!(["/:/host"])),
        ("binds", json!([])),
        ("Mounts", json!([])),
        ("mounts", json!([{ "Source": "/var/run/docker.sock" }])),
        ("volumes", json!({})),
        ("VolumesFrom", json!(["x"])),
        ("NetworkMode", json!("host")),
        ("network", json!("host")),
        ("PidMode", json!("host")),
        ("IpcMode", json!("host")),
        ("UTSMode", json!("host")),
        ("UsernsMode", json!("host")),
        ("CgroupnsMode", json!("host")),
        ("CapAdd", json!(["SYS_ADMIN"])),
        ("Devices", json!([])),
        ("DeviceRequests", json!([])),
        ("SecurityOpt", json!(["seccomp=unconfined"])),
        ("PortBindings", json!({})),
        ("Sysctls", json!({})),
        ("Runtime", json!("x")),
        ("User", json!("0")),
        ("Entrypoint", json!(["x"])),
        ("Cmd", json!(["x"])),
        ("Labels", json!({ "gavel.session": "other" })),
        ("HostConfig", json!({})),
        ("Tmpfs", json!({})),
        ("ReadonlyRootfs", json!(false)),
        ("ExtraHosts", json!([])),
        ("RestartPolicy", json!({})),
    ] {
        let mut options = json!({ "image": "localhost/gavel-test/base:1" });
        options[option] = value;
        let error = refused(&server, options).await;
        assert_eq!(
            (&error["code"], &error["option"]),
            (&json!("option_refused"), &json!(option))
        );
        assert!(
            error["message"]
                .as_str()
                .is_some_and(|message| message.contains(option))
        );
    }
    assert_eq!(socket.count(), before);
}

#[tokio::test]
async fn an_image_that_is_not_permitted_is_refused_and_the_engine_is_not_asked() {
    let socket = Socket::new().await;
    let server = socket.server().await;
    let before = socket.count();
    for image in [
        "docker.io/library/alpine",
        "localhost/gavel-test",
        "localhost/gavel-test/a/b",
        "gavel-test/base:1",
        "evil.example/localhost/gavel-test/base",
    ] {
        let error = refused(&server, json!({ "image": image })).await;
        assert_eq!(error["code"], "image_not_allowed", "{image}");
        assert_eq!(error["permitted"], "localhost/gavel-test/*");
    }
    for image in ["", "localhost/gavel-test/../x", "-v", "localhost/gavel-test/a b"] {
        let code = refused(&server, json!({ "image": image })).await["code"].clone();
        assert_eq!(code, "invalid_argument", "{image}");
    }
    assert_eq!(socket.count(), before);
}

#[tokio::test]
async fn an_option_beyond_the_operators_limits_is_invalid_and_the_engine_is_not_asked() {
    let socket = Socket::new().await;
    let server = socket.server().await;
    let before = socket.count();
    for (option, value) in [
        ("memoryMb", json!(2049)),
        ("memoryMb", json!(0)),
        ("cpus", json!(3)),
        ("cpus", json!(0)),
        ("pids", json!(513)),
        ("pids", json!(-1)),
        ("workdir", json!("work")),
        ("workdir", json!("/work/../etc")),
        ("workdir", json!("/proc/1")),
        ("workdir", json!("/run/gavel")),
        ("workdir", json!("/")),
        ("env", json!({ "A B": "x" })),
        ("env", json!({ "GAVEL_CALL": "x" })),
        ("env", json!({ "A": 1 })),
        ("env", json!(["A=b"])),
    ] {
        let mut options = json!({ "image": "localhost/gavel-test/base:1" });
        options[option] = value.clone();
        let error = refused(&server, options).await;
        assert_eq!(error["code"], "invalid_argument", "{option}={value}");
        assert_eq!(error["argument"], option, "{option}={value}");
    }
    assert_eq!(refused(&server, json!({})).await["code"], "missing_argument");
    let unknown = server.call("createContainer", json!({ "image": "x" })).await;
    assert_eq!(unknown.code(), "unknown_argument");
    assert_eq!(socket.count(), before);
}

/// A name or a path in place of an id would reach other containers, or other parts of the engine's API.
#[tokio::test]
async fn what_is_not_an_id_names_no_container_and_the_engine_is_not_asked() {
    let socket = Socket::new().await;
    let server = socket.server().await;
    let before = socket.count();
    for id in ["gavel-x", "../../images/x", "x/json?a=b", "ABCDEF012345", "0123"] {
        let arguments = json!({ "containerId": id, "script": "true" });
        assert_eq!(
            server.call("executeScript", arguments).await.code(),
            "not_found",
            "{id}"
        );
        let destroyed = server.call("destroyContainer", json!({ "containerId": id })).await.ok();
        assert_eq!(destroyed["destroyed"], false, "{id}");
    }
    for (meta, code) in [
        (json!({ "gavel/session_id": "" }), "invalid_meta"),
        (json!({ "gavel/session_id": 7 }), "invalid_meta"),
        (json!({ "gavel/session_id": "a b" }), "invalid_meta"),
        (json!({ "gavel/deadline": "soon" }), "invalid_meta"),
        (json!({ "gavel/idempotency_key": "" }), "invalid_idempotency_key"),
        (json!({ "gavel/deadline": "2020-01-01T00:00:00Z" }), "deadline_passed"),
    ] {
        let arguments = json!({ "containerId": "0123456789ab", "script": "true" });
        let reply = server.try_call("executeScript", arguments, meta.clone()).await;
        assert_eq!(reply.expect("an answer").code(), code, "{meta}");
    }
    assert_eq!(socket.count(), before);
}
