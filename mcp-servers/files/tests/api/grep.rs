use serde_json::json;

use crate::harness::World;

/// D-E
#[tokio::test]
async fn lines_are_found_with_path_and_number() {
    let world = World::new();
    world.file("src/b.rs", "fn one() {}\nfn two() {}\r\n\nlet x = one();");
    world.file("src/a.txt", "One\n");
    let caller = world.caller().await;
    let cases = [
        (
            json!({ "pattern": "one" }),
            vec!["src/b.rs:1:fn one() {}", "src/b.rs:4:let x = one();"],
        ),
        (
            json!({ "pattern": "ONE", "ignore_case": true, "path": "src/a.txt" }),
            vec!["src/a.txt:1:One"],
        ),
        (
            json!({ "pattern": "^fn \\w+\\(\\) \\{\\}$" }),
            vec!["src/b.rs:1:fn one() {}", "src/b.rs:2:fn two() {}"],
        ),
        (
            json!({ "pattern": "(?i)one", "include": "*.txt" }),
            vec!["src/a.txt:1:One"],
        ),
        (
            json!({ "pattern": "two", "include": "src/*.rs" }),
            vec!["src/b.rs:2:fn two() {}"],
        ),
        (json!({ "pattern": "two", "include": "b/*.rs" }), vec![]),
        (json!({ "pattern": "two", "path": "src", "include": "./b.rs" }), vec![]),
        (json!({ "pattern": "^$", "path": "src" }), vec!["src/b.rs:3:"]),
        (json!({ "pattern": "three" }), vec![]),
    ];
    for (arguments, lines) in cases {
        assert_eq!(caller.grep(arguments.clone()).await, lines, "{arguments}");
    }
}

/// D-E
#[tokio::test]
async fn hidden_and_ignored_files_are_searched_only_when_named() {
    let world = World::new();
    world.file(".gitignore", "out\n");
    for path in ["shown", ".env", ".ci/job", ".git/HEAD", "out/x"] {
        world.file(path, "word");
    }
    let caller = world.caller().await;
    let cases = [
        (json!({ "pattern": "word" }), vec!["shown:1:word"]),
        (json!({ "pattern": "word", "include": ".*" }), vec![".env:1:word"]),
        (json!({ "pattern": "word", "path": ".env" }), vec![".env:1:word"]),
        (json!({ "pattern": "word", "path": ".ci" }), vec![".ci/job:1:word"]),
        (json!({ "pattern": "word", "path": "out" }), vec!["out/x:1:word"]),
    ];
    for (arguments, lines) in cases {
        assert_eq!(caller.grep(arguments.clone()).await, lines, "{arguments}");
    }
}

/// D-E
#[tokio::test]
async fn binary_files_are_skipped_and_counted_even_if_a_match_comes_before_the_nul() {
    let world = World::new();
    world.file("binary", b"word\n\0\n");
    world.file("late", format!("word\n{}\0", "filler\n".repeat(50_000)));
    world.file("text", "word\n");
    let answer = world.caller().await.ok("grep", json!({ "pattern": "word" })).await;
    assert_eq!(
        answer["matches"],
        json!([{ "path": "text", "line": 1, "text": "word" }])
    );
    assert_eq!((&answer["binary"], &answer["unreadable"]), (&json!(2), &json!(0)));
}

/// D-E
#[tokio::test]
async fn long_lines_are_cut_and_reported_and_endless_ones_skipped() {
    let world = World::new();
    world.file("cut", format!("{}\n", "ü".repeat(501)));
    world.file("endless", "ü".repeat(6 * 1024 * 1024));
    world.file("whole", "ü".repeat(500));
    let answer = world.caller().await.ok("grep", json!({ "pattern": "ü" })).await;
    let text = "ü".repeat(500);
    assert_eq!(
        answer["matches"],
        json!([
            { "path": "cut", "line": 1, "text": text, "cut": true },
            { "path": "whole", "line": 1, "text": text },
        ])
    );
    assert_eq!(answer["unreadable"], 1);
}

/// D-E
#[tokio::test]
async fn more_than_200_matches_are_reported() {
    let world = World::new();
    world.file("a", "x\n".repeat(150));
    world.file("b", "x\n".repeat(50));
    let caller = world.caller().await;
    let all = caller.ok("grep", json!({ "pattern": "x" })).await;
    assert_eq!(all["matches"].as_array().map(Vec::len), Some(200));
    assert!(all.get("incomplete").is_none());
    world.file("c", "x\n");
    let some = caller.ok("grep", json!({ "pattern": "x" })).await;
    assert_eq!(some["matches"], all["matches"]);
    assert!(some["incomplete"].as_str().is_some_and(|why| why.contains("200")));
}

/// D-E
#[tokio::test]
async fn an_invalid_pattern_is_refused_and_the_place_shown() {
    let world = World::new();
    let caller = world.caller().await;
    let reply = caller.call("grep", json!({ "pattern": "ab(cd" })).await;
    assert_eq!(reply.code(), "invalid_pattern");
    assert!(reply.message().contains("ab(cd\n      ^"), "{}", reply.message());
    assert_eq!(
        caller.call("grep", json!({ "pattern": "" })).await.code(),
        "invalid_argument"
    );
    // White space is a part of a pattern.
    world.file("a.txt", "a b\n");
    let spaced = caller.ok("grep", json!({ "pattern": " b" })).await;
    assert_eq!(spaced["matches"][0]["text"], "a b");
    for pattern in ["*", "(?=x)", "a\\nb", "(x{1000}){1000}", "\\p{Nothing}"] {
        let reply = caller.call("grep", json!({ "pattern": pattern })).await;
        assert_eq!(reply.code(), "invalid_pattern", "{pattern}");
    }
    let reply = caller.call("grep", json!({ "pattern": "x", "include": "[" })).await;
    assert_eq!(reply.code(), "invalid_pattern");
    assert!(reply.message().contains("`include`"), "{}", reply.message());
}
