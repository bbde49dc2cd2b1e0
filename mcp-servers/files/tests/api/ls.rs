use std::os::unix::ffi::OsStrExt;
use std::{ffi::OsStr, fs};

use serde_json::{Value, json};

use crate::harness::World;

/// D-E
#[tokio::test]
async fn a_directory_is_listed_by_name_with_kinds_and_sizes_hidden_entries_included() {
    let world = World::new();
    world.file("b.txt", "12345");
    world.file("a/inner.txt", "");
    world.file(".hidden", "x");
    world.file(".git/config", "");
    world.link("c", "b.txt");
    let caller = world.caller().await;
    let expected = json!({
        "path": ".",
        "entries": [
            { "name": ".git", "kind": "folder" },
            { "name": ".hidden", "kind": "file", "size": 1 },
            { "name": "a", "kind": "folder" },
            { "name": "b.txt", "kind": "file", "size": 5 },
            { "name": "c", "kind": "link" },
        ],
        "left_out": 0
    });
    for same in [
        json!({}),
        json!({ "path": "." }),
        json!({ "path": "" }),
        json!({ "path": null }),
    ] {
        assert_eq!(caller.ok("ls", same).await, expected);
    }
    let inner = json!([{ "name": "inner.txt", "kind": "file", "size": 0 }]);
    for same in ["a", "a/", "./a", "a/.", "a//"] {
        let listed = caller.ok("ls", json!({ "path": same })).await;
        assert_eq!((&listed["path"], &listed["entries"]), (&json!("a"), &inner), "{same}");
    }
}

/// D-E
#[tokio::test]
async fn of_a_huge_directory_the_first_thousand_names_are_shown_and_the_others_counted() {
    let world = World::new();
    for number in 0..1003 {
        world.file(&format!("{number:04}"), "");
    }
    let listed = world.caller().await.ok("ls", json!({})).await;
    let entries = listed["entries"].as_array().expect("entries");
    assert_eq!(entries.len(), 1000);
    assert_eq!(entries[0]["name"], "0000");
    assert_eq!(entries[999]["name"], "0999");
    assert_eq!(listed["left_out"], 3);
}

/// D-E
#[tokio::test]
async fn what_cannot_be_listed_is_named() {
    let world = World::new();
    world.file("a.txt", "");
    let caller = world.caller().await;
    for (path, code) in [
        ("a.txt", "not_a_folder"),
        ("a.txt/b", "not_a_folder"),
        ("none", "not_found"),
    ] {
        let reply = caller.call("ls", json!({ "path": path })).await;
        assert_eq!(reply.code(), code, "{path}");
        assert!(reply.message().contains(path), "{}", reply.message());
    }
}

/// D-E
#[tokio::test]
async fn a_name_that_is_no_utf8_is_marked() {
    let world = World::new();
    fs::write(world.root().join(OsStr::from_bytes(b"caf\xe9")), "").expect("a file");
    let listed = world.caller().await.ok("ls", json!({})).await;
    let expected: Value = json!([{ "name": "caf\u{fffd}", "kind": "file", "size": 0, "not_utf8": true }]);
    assert_eq!(listed["entries"], expected);
}
