use serde_json::json;

use crate::harness::{World, strings};

/// D-E
#[tokio::test]
async fn files_are_found_by_glob_in_the_order_of_their_paths() {
    let world = World::new();
    for path in [
        "src/main.rs",
        "src/a/b.rs",
        "src/a-b.rs",
        "src/a.txt",
        "lib.rs",
        "src/c/d.tsx",
    ] {
        world.file(path, "");
    }
    let caller = world.caller().await;
    let all = ["lib.rs", "src/a/b.rs", "src/a-b.rs", "src/main.rs"];
    assert_eq!(caller.glob("**/*.rs").await, all);
    assert_eq!(caller.glob("*.rs").await, ["lib.rs"]);
    assert_eq!(caller.glob("src/*.rs").await, ["src/a-b.rs", "src/main.rs"]);
    assert_eq!(caller.glob("**/*.{txt,tsx}").await, ["src/a.txt", "src/c/d.tsx"]);
    assert_eq!(caller.glob("src/?/[b-d].*").await, ["src/a/b.rs", "src/c/d.tsx"]);
    assert!(caller.glob("src/a").await.is_empty());
    let below = caller.ok("glob", json!({ "pattern": "*.rs", "path": "src" })).await;
    assert_eq!(strings(&below["files"]), ["src/a-b.rs", "src/main.rs"]);
}

/// D-E
#[tokio::test]
async fn hidden_files_are_found_when_named_and_what_git_keeps_never() {
    let world = World::new();
    for path in [
        ".env",
        "a/.env",
        ".github/workflows/ci.yml",
        ".git/config",
        "a/.git/HEAD",
        "b.yml",
    ] {
        world.file(path, "");
    }
    let caller = world.caller().await;
    assert_eq!(caller.glob("**").await, ["b.yml"]);
    assert_eq!(caller.glob("**/.env").await, [".env", "a/.env"]);
    assert_eq!(caller.glob(".github/**/*.yml").await, [".github/workflows/ci.yml"]);
    assert!(caller.glob(".git/**").await.is_empty());
    let inside = caller.ok("glob", json!({ "pattern": "**", "path": ".github" })).await;
    assert_eq!(strings(&inside["files"]), [".github/workflows/ci.yml"]);
}

/// D-E
#[tokio::test]
async fn what_is_ignored_is_left_out_as_ripgrep_does() {
    let world = World::new();
    world.file(".gitignore", "/target\n*.log\n!keep.log\nbuild/\n");
    world.file(".ignore", "secret*\n");
    world.file("deep/.gitignore", "/here\n!*.log\n");
    for path in [
        "target/out",
        "deep/target",
        "a.log",
        "keep.log",
        "build/x",
        "deep/build/x",
        "secrets",
        "deep/here",
        "deep/b.log",
        "deep/more/here",
        "deep/more/c.log",
        "shown",
    ] {
        world.file(path, "");
    }
    // A nested repository does not follow the rules of the outer one.
    world.file("vendor/.git/info/exclude", "excluded\n");
    world.file("vendor/d.log", "");
    world.file("vendor/excluded", "");
    world.file("vendor/secret", "");
    let caller = world.caller().await;
    let shown = [
        "deep/b.log",
        "deep/more/c.log",
        "deep/more/here",
        "deep/target",
        "keep.log",
        "shown",
        "vendor/d.log",
    ];
    assert_eq!(caller.glob("**").await, shown);
    // Rules from parent directories apply below, and an ignored directory that is named is searched.
    let cases = [
        ("deep/more", vec!["deep/more/c.log", "deep/more/here"]),
        ("target", vec!["target/out"]),
    ];
    for (path, files) in cases {
        let found = caller.ok("glob", json!({ "pattern": "**", "path": path })).await;
        assert_eq!(strings(&found["files"]), files, "{path}");
    }
}

/// D-E
#[tokio::test]
async fn more_than_a_thousand_files_are_reported() {
    let world = World::new();
    for number in 0..1001 {
        world.file(&format!("{number:04}.txt"), "");
    }
    let caller = world.caller().await;
    let answer = caller.ok("glob", json!({ "pattern": "*" })).await;
    let files = strings(&answer["files"]);
    assert_eq!((files.len(), files[999].as_str()), (1000, "0999.txt"));
    assert!(answer["incomplete"].as_str().is_some_and(|why| why.contains("1000")));
    assert_eq!(caller.glob("0*").await.len(), 1000);
}

/// D-E
#[tokio::test]
async fn directories_deeper_than_the_limit_are_reported() {
    let world = World::new();
    world.file(&format!("{}in", "d/".repeat(64)), "");
    let caller = world.caller().await;
    assert_eq!(caller.glob("**/in").await.len(), 1);
    world.file(&format!("{}out", "d/".repeat(65)), "");
    let answer = caller.ok("glob", json!({ "pattern": "**/{in,out}" })).await;
    assert_eq!(strings(&answer["files"]).len(), 1);
    assert!(answer["incomplete"].as_str().is_some_and(|why| why.contains("64 deep")));
}

/// D-E
#[tokio::test]
async fn a_pattern_that_can_match_nothing_is_refused() {
    let world = World::new();
    let caller = world.caller().await;
    let long = "a".repeat(1001);
    for (pattern, code) in [("", "invalid_argument"), (long.as_str(), "too_long")] {
        let reply = caller.call("glob", json!({ "pattern": pattern })).await;
        assert_eq!(reply.code(), code, "{pattern}");
    }
    for pattern in ["[", "a{b", "/etc/*", "../*", "a/../b"] {
        let reply = caller.call("glob", json!({ "pattern": pattern })).await;
        assert_eq!(reply.code(), "invalid_pattern", "{pattern}");
    }
    world.file("a.txt", "");
    let reply = caller.call("glob", json!({ "pattern": "*", "path": "a.txt" })).await;
    assert_eq!(reply.code(), "not_a_folder");
}
