use serde_json::{Value, json};

use crate::harness::{Caller, World};

const MAX_BYTES: usize = 192 * 1024;

async fn read(caller: &Caller, path: &str) -> Value {
    caller.ok("read_file", json!({ "path": path })).await
}

/// D-E
#[tokio::test]
async fn a_text_is_read_as_it_is() {
    let world = World::new();
    let text = "one\r\n\n  dreißig \u{1f600}\nno newline at the end";
    world.file("a b/ü.txt", text);
    let answer = read(&world.caller().await, "a b/ü.txt").await;
    assert_eq!(
        answer,
        json!({
            "path": "a b/ü.txt", "kind": "text", "size": text.len(), "content": text,
            "first_line": 1, "last_line": 4, "total_lines": 4
        })
    );
}

/// D-E
#[tokio::test]
async fn an_empty_file_has_no_lines() {
    let world = World::new();
    world.file("empty", "");
    let answer = read(&world.caller().await, "empty").await;
    assert_eq!(
        answer,
        json!({
            "path": "empty", "kind": "text", "size": 0, "content": "",
            "first_line": 0, "last_line": 0, "total_lines": 0
        })
    );
}

/// D-E
#[tokio::test]
async fn lines_are_read_from_an_offset_on_and_the_answer_says_what_comes_next() {
    let world = World::new();
    world.file("five", "1\n2\n3\n4\n5\n");
    let caller = world.caller().await;
    let cases = [
        (json!({ "offset": 2, "limit": 2 }), "2\n3\n", json!([2, 3, 4, null])),
        // Some models write numbers like this.
        (json!({ "offset": 4.0, "limit": 2.0 }), "4\n5\n", json!([4, 5, null, 5])),
        (json!({ "offset": 5 }), "5\n", json!([5, 5, null, 5])),
        (json!({ "limit": 5 }), "1\n2\n3\n4\n5\n", json!([1, 5, null, 5])),
        (json!({ "limit": 4 }), "1\n2\n3\n4\n", json!([1, 4, 5, null])),
    ];
    for (mut arguments, content, range) in cases {
        arguments["path"] = "five".into();
        let answer = caller.ok("read_file", arguments.clone()).await;
        assert_eq!(answer["content"], content, "{arguments}");
        let names = ["first_line", "last_line", "next_offset", "total_lines"];
        let found: Value = names.iter().map(|name| answer[name].clone()).collect();
        assert_eq!(found, range, "{arguments}");
    }
    for (offset, lines) in [(6, "5 lines"), (1_000_000, "5 lines")] {
        let reply = caller
            .call("read_file", json!({ "path": "five", "offset": offset }))
            .await;
        assert_eq!(reply.code(), "past_the_end");
        assert!(reply.message().contains(lines), "{}", reply.message());
    }
}

/// D-E: page by page the whole file is read, and nothing twice, whichever cap ends a page.
#[tokio::test]
async fn a_huge_file_comes_in_pages_of_at_most_2000_lines_and_192_kib() {
    let world = World::new();
    let short: String = (0..4500).map(|line| format!("{line}\n")).collect();
    let long: String = (0..900).map(|line| format!("{line:x>1000}ü\n")).collect();
    world.file("short", &short);
    world.file("long", &long);
    let caller = world.caller().await;
    for (path, text, pages) in [("short", &short, 3), ("long", &long, 5)] {
        let mut read = String::new();
        let mut next = json!(1);
        let mut count = 0;
        while !next.is_null() {
            let page = caller.ok("read_file", json!({ "path": path, "offset": next })).await;
            let content = page["content"].as_str().expect("a text");
            assert!(content.len() <= MAX_BYTES && content.lines().count() <= 2000);
            assert_eq!(page["first_line"], next);
            read.push_str(content);
            next = page["next_offset"].clone();
            count += 1;
        }
        assert_eq!((&read, count), (text, pages), "{path}");
    }
}

/// D-E
#[tokio::test]
async fn a_line_that_fits_into_no_call_is_cut_between_characters_and_reported() {
    let world = World::new();
    // An ü has two bytes, and the cap falls between them.
    world.file("long", format!("first\nx{}\nlast\n", "ü".repeat(200_000)));
    let caller = world.caller().await;
    let first = read(&caller, "long").await;
    assert_eq!(
        (&first["content"], &first["next_offset"]),
        (&json!("first\n"), &json!(2))
    );
    let second = caller.ok("read_file", json!({ "path": "long", "offset": 2 })).await;
    assert_eq!(second["cut"], true);
    assert_eq!(second["content"].as_str().map(str::len), Some(MAX_BYTES - 1));
    assert!(second.get("invalid_utf8").is_none());
    assert_eq!((&second["last_line"], &second["next_offset"]), (&json!(2), &json!(3)));
    let third = caller.ok("read_file", json!({ "path": "long", "offset": 3 })).await;
    assert_eq!(
        (&third["content"], &third["total_lines"]),
        (&json!("last\n"), &json!(3))
    );
}

/// D-E
#[tokio::test]
async fn a_line_of_just_the_cap_is_whole() {
    let world = World::new();
    let text = "x".repeat(MAX_BYTES);
    world.file("exact", &text);
    let answer = read(&world.caller().await, "exact").await;
    assert_eq!(answer["content"], *text);
    assert!(answer.get("cut").is_none() && answer.get("next_offset").is_none());
}

/// D-E
#[tokio::test]
async fn a_binary_file_is_named_as_such_wherever_its_first_nul_is() {
    let world = World::new();
    world.file("at the start", b"\x7fELF\0\0");
    world.file("later", format!("{}\n\0\n", "text\n".repeat(5000)));
    let caller = world.caller().await;
    assert_eq!(
        read(&caller, "at the start").await,
        json!({ "path": "at the start", "kind": "binary", "size": 6 })
    );
    let later = caller.ok("read_file", json!({ "path": "later", "offset": 4000 })).await;
    assert_eq!(later, json!({ "path": "later", "kind": "binary", "size": 25_003 }));
}

/// D-E
#[tokio::test]
async fn bytes_that_are_no_utf8_are_replaced_and_reported() {
    let world = World::new();
    world.file("latin1", b"caf\xe9\n");
    let answer = read(&world.caller().await, "latin1").await;
    assert_eq!(answer["content"], "caf\u{fffd}\n");
    assert_eq!(answer["invalid_utf8"], true);
}

/// D-E
#[tokio::test]
async fn what_is_no_file_is_not_read() {
    let world = World::new();
    world.file("folder/a", "");
    let caller = world.caller().await;
    for (path, code) in [
        ("folder", "not_a_file"),
        (".", "not_a_file"),
        ("none", "not_found"),
        ("none/a", "not_found"),
    ] {
        let reply = caller.call("read_file", json!({ "path": path })).await;
        assert_eq!(reply.code(), code, "{path}");
    }
}
