//! Reading files of a container.

use serde_json::{Value, json};

use crate::harness::{Reply, Server, world};

async fn read(server: &Server, container: &str, path: &str) -> Reply {
    let arguments = json!({ "containerId": container, "path": path });
    server.call("readFileInContainer", arguments).await
}

async fn sources(server: &Server, container: &str) -> Value {
    let reply = server
        .call("getAllSourceFiles", json!({ "containerId": container }))
        .await;
    assert_eq!(reply.body["files"], reply.text.as_str());
    reply.ok()
}

#[tokio::test]
async fn a_file_is_read_and_what_is_no_text_file_is_not() {
    let Some((_, world)) = world() else { return };
    let server = world.server().await;
    let container = server.container().await;
    let made = server
        .run(
            &container,
            "mkdir -p src 'a b'; printf 'fn main() {}\n\n' >src/main.rs; echo odd >'a b/-x'; printf 'a\\0b' >binary
             head -c 204800 /dev/zero | tr '\\0' x >most; head -c 204801 /dev/zero | tr '\\0' x >more; : >empty
             mkfifo pipe; ln -s src/main.rs link; printf '\\377' >latin",
        )
        .await;
    assert_eq!(made["exitCode"], 0, "{made}");
    let whole = read(&server, &container, "src/main.rs").await;
    assert_eq!(whole.text, "fn main() {}\n\n");
    assert_eq!(whole.body["path"], "/work/src/main.rs");
    assert_eq!(
        read(&server, &container, "link").await.body["path"],
        "/work/src/main.rs"
    );
    assert_eq!(read(&server, &container, "a b/-x").await.text, "odd\n");
    assert_eq!(read(&server, &container, "/work/../work/empty").await.text, "");
    assert_eq!(read(&server, &container, "most").await.ok()["bytes"], 204_800);
    for (path, code) in [
        ("more", "too_large"),
        ("binary", "not_text"),
        ("latin", "not_text"),
        ("none", "not_found"),
        ("src", "path_refused"),
        ("pipe", "path_refused"),
        ("", "missing_argument"),
    ] {
        assert_eq!(read(&server, &container, path).await.code(), code, "{path}");
    }
}

#[tokio::test]
async fn a_link_leads_to_no_file_that_is_not_read() {
    let Some((_, world)) = world() else { return };
    let server = world.server().await;
    let container = server.container().await;
    let made = server
        .run(
            &container,
            "ln -s /proc/self/environ one; ln -s /proc proc; ln -s one two; ln -s /proc/1/root root; mkdir d
             ln -s ../../run/gavel d/run; echo x >/run/gavel/secret; ln -s /dev/zero zero; ln -s /sys/kernel sys
             ln -s loop loop",
        )
        .await;
    assert_eq!(made["exitCode"], 0, "{made}");
    for path in [
        "/proc/self/environ",
        "one",
        "two",
        "proc/1/environ",
        "root/run/gavel/secret",
        "/run/gavel/secret",
        "/var/run/gavel/secret",
        "/run//gavel/../gavel/secret",
        "d/run/secret",
        "zero",
        "/dev/zero",
        "sys/mm/transparent_hugepage/enabled",
    ] {
        let code = read(&server, &container, path).await;
        assert_eq!(code.code(), "path_refused", "{path}");
    }
    assert_eq!(read(&server, &container, "loop").await.code(), "not_found");
}

#[tokio::test]
async fn all_source_files_are_read_without_what_is_ignored_and_what_is_no_text() {
    let Some((_, world)) = world() else { return };
    let server = world.server().await;
    let container = server.container().await;
    let made = server
        .run(
            &container,
            "git init -q .; mkdir -p src target sub; echo 'fn main() {}' >src/main.rs; echo '*.log' >.gitignore
             echo /target/ >>.gitignore; echo x >target/out; echo x >a.log; echo '!keep.log' >sub/.gitignore
             echo kept >sub/keep.log; printf '\\0' >logo.png; head -c 70000 /dev/zero | tr '\\0' x >big.txt
             ln -s /proc/self/environ link; ln -s /run/gavel dir; echo $((1+1)) >Makefile",
        )
        .await;
    assert_eq!(made["exitCode"], 0, "{made}");
    let found = sources(&server, &container).await;
    assert_eq!(
        found["files"],
        "=== .gitignore (15 bytes)\n*.log\n/target/\n=== Makefile (2 bytes)\n2\n=== src/main.rs (13 bytes)\n\
         fn main() {}\n=== sub/.gitignore (10 bytes)\n!keep.log\n=== sub/keep.log (5 bytes)\nkept\n"
    );
    let skipped = json!([
        { "path": "big.txt", "bytes": 70_000, "why": "too_large" },
        { "path": "logo.png", "bytes": 1, "why": "binary" }
    ]);
    assert_eq!((&found["skipped"], &found["count"]), (&skipped, &json!(5)));
    assert_eq!(found["truncated"], false);
    server
        .run(
            &container,
            "for i in 1 2 3 4; do head -c 60000 /dev/zero | tr '\\0' y >y$i; done",
        )
        .await;
    let more = sources(&server, &container).await;
    assert_eq!(more["truncated"], true);
    assert!(more["files"].as_str().is_some_and(|text| text.len() <= 200 * 1024));
}

#[tokio::test]
async fn a_working_directory_that_was_replaced_by_a_link_is_not_read() {
    let Some((_, world)) = world() else { return };
    let server = world.server().await;
    let container = server.container_with(json!({ "workdir": "/srv/code" })).await;
    server
        .run(
            &container,
            "echo x >/run/gavel/secret; cd /; rm -r /srv/code; ln -s /run/gavel /srv/code",
        )
        .await;
    let read = json!({ "containerId": container });
    assert_eq!(
        server.call("getAllSourceFiles", read.clone()).await.code(),
        "path_refused"
    );
    let next = server.run(&container, "rm /srv/code").await;
    assert_eq!(next["exitCode"], 0);
    assert_eq!(server.call("getAllSourceFiles", read).await.code(), "not_found");
}

#[tokio::test]
async fn a_large_directory_is_read_in_flat_memory() {
    let Some((_, world)) = world() else { return };
    let server = world.server().await;
    let container = server.container().await;
    server
        .run(
            &container,
            "mkdir a b; cd a; yes 0123456 | head -c 80000000 | split -b 40000 -a 4; cd ../b
             head -c 200000000 /dev/zero >big; echo x >../z",
        )
        .await;
    let before = server.peak_memory();
    let found = sources(&server, &container).await;
    assert_eq!(found["truncated"], true);
    let grown = server.peak_memory() - before;
    assert!(grown < 80 * 1024, "{grown} KiB more");
}
