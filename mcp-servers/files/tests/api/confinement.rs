//! No way out of the root.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use rmcp::ClientLifecycleMode;
use rustix::fs::{CWD, Mode, mkfifoat};
use serde_json::{Value, json};

use crate::harness::{Caller, SECRET, World, client, strings};

/// Every tool with a path argument, and its other required arguments.
fn calls(path: &str) -> [(&'static str, Value); 4] {
    [
        ("ls", json!({ "path": path })),
        ("read_file", json!({ "path": path })),
        ("glob", json!({ "path": path, "pattern": "**" })),
        ("grep", json!({ "path": path, "pattern": "." })),
    ]
}

/// A directory with every kind of link.
fn linked() -> World {
    let world = World::new();
    world.file("inner/file.txt", "inside");
    world.link("out", "../outside");
    world.link("out-file", "../outside/secret.txt");
    world.link("absolute", world.outside());
    world.link("absolute-file", world.outside().join("secret.txt"));
    world.link("to-root", world.root());
    world.link("inner/up", "../../outside");
    world.link("chain", "inner/up");
    world.link("loop", "loop");
    world.link("proc", "/proc/self/root");
    world.link("in", "inner");
    world.link("in-file", "inner/../inner/file.txt");
    world
}

/// D-E
#[tokio::test]
async fn absolute_paths_and_dots_are_refused_with_what_is_allowed() {
    let world = linked();
    let caller = world.caller().await;
    let absolute = world.outside().join("secret.txt").display().to_string();
    let own = world.root().join("inner").display().to_string();
    for path in [
        "..",
        "../outside",
        "../outside/secret.txt",
        "inner/..",
        "inner/../../outside",
        "./..",
        "in/../../outside",
        "/",
        "/etc/passwd",
        "//etc/passwd",
        &absolute,
        &own,
        "/proc/self/cwd",
    ] {
        for (tool, arguments) in calls(path) {
            let reply = caller.call(tool, arguments).await;
            assert_eq!(reply.code(), "outside_root", "{tool} {path}");
            assert!(
                reply.message().contains("relative to the folder"),
                "{}",
                reply.message()
            );
        }
    }
}

/// D-E
#[tokio::test]
async fn links_that_lead_out_are_refused_at_the_end_and_in_the_middle_of_a_path() {
    let world = linked();
    let caller = world.caller().await;
    for path in [
        "out",
        "out-file",
        "out/secret.txt",
        "out/none",
        "absolute",
        "absolute-file",
        "absolute/secret.txt",
        "to-root",
        "to-root/inner",
        "inner/up",
        "inner/up/secret.txt",
        "chain",
        "chain/secret.txt",
        "in/up/secret.txt",
        "proc",
        "proc/etc/passwd",
    ] {
        for (tool, arguments) in calls(path) {
            let reply = caller.call(tool, arguments).await;
            assert_eq!(reply.code(), "outside_root", "{tool} {path}: {}", reply.message());
            assert!(!reply.message().contains(&*world.outside().to_string_lossy()));
        }
    }
    let reply = caller.call("read_file", json!({ "path": "loop" })).await;
    assert_eq!(reply.code(), "not_found");
}

/// D-E
#[tokio::test]
async fn links_that_stay_inside_may_be_named() {
    let world = linked();
    let caller = world.caller().await;
    for path in ["in/file.txt", "in-file"] {
        assert_eq!(
            caller.ok("read_file", json!({ "path": path })).await["content"],
            "inside"
        );
    }
    let listed = caller.ok("ls", json!({ "path": "in" })).await;
    assert_eq!(listed["entries"].as_array().map(Vec::len), Some(2));
}

/// D-E
#[tokio::test]
async fn walks_follow_no_link() {
    let world = linked();
    let caller = world.caller().await;
    assert_eq!(caller.glob("**").await, ["inner/file.txt"]);
    assert_eq!(
        caller.grep(json!({ "pattern": "." })).await,
        ["inner/file.txt:1:inside"]
    );
}

/// D-E: a list of files to ignore that lies outside is not read either.
#[tokio::test]
async fn rules_from_outside_do_not_count() {
    let world = World::new();
    fs::write(world.outside().join("rules"), "a\n").expect("a file");
    fs::write(world.directory().join(".gitignore"), "b\n").expect("a file");
    world.link(".gitignore", "../outside/rules");
    world.file("a", "");
    world.file("b", "");
    assert_eq!(world.caller().await.glob("*").await, ["a", "b"]);
}

/// D-E: whatever the form of a path, an answer never contains content from outside ([`Caller::call`] checks).
#[test]
fn no_path_leads_out() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let world = linked();
    let caller = runtime.block_on(world.caller());
    let outside = world.outside().display().to_string();
    let part = prop_oneof![
        4 => proptest::sample::select(vec![
            "..", ".", "", "inner", "in", "out", "absolute", "up", "chain", "proc", "to-root", "loop", "secret.txt",
            "outside", "root", "file.txt", "out-file", "%2e%2e", "..\\", "..%2f", "\u{ff0e}\u{ff0e}", "~", ".. ", "...",
        ]).prop_map(str::to_owned),
        1 => "\\PC{0,6}",
        1 => any::<String>(),
    ];
    let path = (
        proptest::collection::vec(part, 0..7),
        prop_oneof![Just(""), Just("/"), Just("//")],
        any::<bool>(),
    )
        .prop_map(move |(parts, start, from_outside)| {
            let start = if from_outside {
                format!("{start}{outside}/")
            } else {
                start.to_owned()
            };
            format!("{start}{}", parts.join("/"))
        });
    let mut runner = TestRunner::new(Config::with_cases(400));
    let holds = runner.run(&path, |path| {
        for (tool, arguments) in calls(&path) {
            let reply = runtime.block_on(caller.call(tool, arguments));
            let names_outside = path.starts_with('/') || path.split('/').any(|part| part == "..");
            if names_outside && !path.contains('\0') {
                prop_assert!(
                    reply.is_error && reply.code() == "outside_root",
                    "{tool} {path:?}: {reply:?}"
                );
            }
            let found = reply.body.to_string();
            prop_assert!(
                !found.contains("\"secret.txt\"") && !found.contains("root:x:0"),
                "{tool} {path:?}: {found}"
            );
        }
        Ok::<_, TestCaseError>(())
    });
    holds.unwrap_or_else(|failure| panic!("{failure}"));
}

/// D-E: a directory that is replaced by a link and restored during reads, in the middle of the path and at its end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_race_between_check_and_open_leads_nowhere() {
    let world = World::new();
    world.file("real/secret.txt", "inside");
    world.file("file", "inside");
    let caller = world.caller().await;
    let stop = AtomicBool::new(false);
    let mut seen_inside = 0;
    std::thread::scope(|scope| {
        let flipping = scope.spawn(|| flip(&world.root(), &stop));
        let until = Instant::now() + Duration::from_secs(3);
        tokio::task::block_in_place(|| {
            tokio::runtime::Handle::current().block_on(async {
                while Instant::now() < until {
                    for path in ["real/secret.txt", "file"] {
                        let reply = caller.call("read_file", json!({ "path": path })).await;
                        seen_inside += usize::from(reply.body["content"] == "inside");
                    }
                    caller.call("grep", json!({ "pattern": "." })).await;
                    caller.call("ls", json!({ "path": "real" })).await;
                }
            });
        });
        stop.store(true, Ordering::Relaxed);
        assert!(flipping.join().expect("no panic") > 100, "nothing was exchanged");
    });
    assert!(seen_inside > 10, "nothing was read: {seen_inside}");
}

/// Swaps a directory and a file with links that lead out, repeatedly; returns how often.
fn flip(root: &Path, stop: &AtomicBool) -> usize {
    symlink("../outside", root.join("link")).expect("a link");
    symlink("../outside/secret.txt", root.join("file-link")).expect("a link");
    let swap = |one: &str, other: &str| {
        rustix::fs::renameat_with(
            CWD,
            root.join(one),
            CWD,
            root.join(other),
            rustix::fs::RenameFlags::EXCHANGE,
        )
        .expect("they exchange their names");
    };
    let mut count = 0;
    while !stop.load(Ordering::Relaxed) {
        swap("real", "link");
        swap("file", "file-link");
        count += 1;
    }
    count
}

/// D-E: none of these is opened, so none can block or have an effect.
#[tokio::test]
async fn pipes_sockets_and_devices_are_refused_at_once() {
    let world = World::new();
    mkfifoat(CWD, world.root().join("pipe"), Mode::RUSR | Mode::WUSR).expect("a pipe");
    mkfifoat(CWD, world.root().join(".gitignore"), Mode::RUSR | Mode::WUSR).expect("a pipe");
    let _socket = UnixListener::bind(world.root().join("socket")).expect("a socket");
    world.file("text", "x");
    let caller = world.caller().await;
    let begun = Instant::now();
    for path in ["pipe", "socket"] {
        let reply = caller.call("read_file", json!({ "path": path })).await;
        assert_eq!(reply.code(), "not_a_file", "{path}");
        let reply = caller.call("grep", json!({ "path": path, "pattern": "x" })).await;
        assert_eq!(reply.code(), "not_a_file", "{path}");
        let reply = caller.call("ls", json!({ "path": path })).await;
        assert_eq!(reply.code(), "not_a_file", "{path}");
    }
    assert_eq!(caller.grep(json!({ "pattern": "x" })).await, ["text:1:x"]);
    let listed = caller.ok("ls", json!({})).await;
    assert_eq!(listed["entries"][1], json!({ "name": "pipe", "kind": "other" }));
    assert!(begun.elapsed() < Duration::from_secs(10), "something blocked");
}

/// D-E: the server runs as an unprivileged user here, since root may read everything.
#[tokio::test]
async fn what_may_not_be_read_is_reported_and_does_not_stop_a_search() {
    let world = World::new();
    world.file("a/locked.txt", "word");
    world.file("b/inside.txt", "word");
    world.file("c.txt", "word");
    let lock = |path: &str, mode| {
        let permissions = fs::Permissions::from_mode(mode);
        fs::set_permissions(world.root().join(path), permissions).expect("permissions");
    };
    lock("a/locked.txt", 0o000);
    lock("b", 0o000);
    let caller = unprivileged(&world).await;
    for path in ["a/locked.txt", "b/inside.txt"] {
        let reply = caller.call("read_file", json!({ "path": path })).await;
        assert_eq!(reply.code(), "not_readable", "{path}");
        assert!(reply.message().contains("may not be read"), "{}", reply.message());
    }
    assert_eq!(caller.call("ls", json!({ "path": "b" })).await.code(), "not_readable");
    assert_eq!(
        caller.call("glob", json!({ "path": "b", "pattern": "*" })).await.code(),
        "not_readable"
    );
    let found = caller.ok("grep", json!({ "pattern": "word" })).await;
    assert_eq!(
        found["matches"],
        json!([{ "path": "c.txt", "line": 1, "text": "word" }])
    );
    assert_eq!(found["unreadable"], 2);
    let files = caller.ok("glob", json!({ "pattern": "**" })).await;
    assert_eq!(strings(&files["files"]), ["a/locked.txt", "c.txt"]);
    assert_eq!(files["unreadable"], 1);
    lock("b", 0o755);
}

/// A server without root's rights, if root runs the tests.
async fn unprivileged(world: &World) -> Caller {
    let open = fs::Permissions::from_mode(0o755);
    fs::set_permissions(world.directory(), open).expect("permissions");
    // The build directory may be closed to other users. Another process copies the program: a child of another test may
    // hold open a file that this process writes, and such a file cannot be executed.
    let program = world.directory().join("server");
    let mut copy = tokio::process::Command::new("cp");
    copy.arg(env!("CARGO_BIN_EXE_gavel-mcp-files")).arg(&program);
    assert!(copy.status().await.expect("cp runs").success());
    let mut command = tokio::process::Command::new(program);
    command.env_clear().arg("--root").arg(world.root());
    if fs::metadata(world.directory()).expect("a folder").uid() == 0 {
        command.uid(65534).gid(65534);
    }
    Caller::new(client(command, ClientLifecycleMode::Initialize).await).await
}

/// D-E
#[tokio::test]
async fn nothing_is_changed() {
    let world = linked();
    world.file("readonly.txt", "text\n");
    let before = state(&world.root());
    let caller = world.caller().await;
    for path in ["", "inner", "inner/file.txt", "readonly.txt", "out", "none", "new/file"] {
        for (tool, arguments) in calls(path) {
            caller.call(tool, arguments).await;
        }
    }
    assert_eq!(state(&world.root()), before);
    assert_eq!(
        fs::read_to_string(world.outside().join("secret.txt")).expect("a text"),
        SECRET
    );
}

/// Every path below `directory` with everything that a change would affect: kind and mode, size, time of change, content.
fn state(directory: &Path) -> BTreeMap<PathBuf, (u32, u64, i64, i64, Vec<u8>)> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(directory).expect("entries") {
        let path = entry.expect("an entry").path();
        let metadata = fs::symlink_metadata(&path).expect("metadata");
        let content = if metadata.is_file() {
            fs::read(&path).expect("a file")
        } else {
            Vec::new()
        };
        if metadata.is_dir() {
            found.append(&mut state(&path));
        }
        let state = (
            metadata.mode(),
            metadata.len(),
            metadata.ctime(),
            metadata.ctime_nsec(),
            content,
        );
        found.insert(path, state);
    }
    found
}
