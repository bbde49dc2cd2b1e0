#![allow(clippy::unwrap_used)]

use super::*;
use crate::adapters::mcp::unsolicited::testing::unsolicited;

async fn read(text: &[u8]) -> io::Result<Vec<Value>> {
    let mut lines = Lines::new(text, unsolicited());
    let mut read = Vec::new();
    while let Some(line) = lines.next().await? {
        if let Line::Message(message) = line {
            read.push(serde_json::to_value(message).unwrap());
        }
    }
    Ok(read)
}

fn long(before: &str, after: &str) -> Vec<u8> {
    [before.as_bytes(), &vec![b'x'; MAX_LINE], after.as_bytes()].concat()
}

const NEXT: &str = "{\"jsonrpc\":\"2.0\",\"id\":8,\"result\":{}}\n";

/// Promise: bounded faults. Memory is bounded, and later calls are answered.
#[tokio::test]
async fn an_error_takes_the_place_of_an_answer_that_is_too_long() {
    for (before, after) in [
        (r#"{"jsonrpc":"2.0","id":7,"result":{"text":""#, "\"}}\n"),
        (
            r#"{"result":{"id":1,"text":""#,
            "\",\"id\":2},\"jsonrpc\":\"2.0\",\"id\":7}\r\n",
        ),
        (r#"{"result":{"text":""#, "\"},\"id\":7,\"jsonrpc\":\"2.0\"}\n"),
    ] {
        let text = [NEXT.as_bytes(), &long(before, after), NEXT.as_bytes()].concat();
        let read = read(&text).await.unwrap();
        assert_eq!(read.len(), 3, "{before}");
        assert_eq!((&read[0]["id"], &read[2]["id"]), (&json!(8), &json!(8)));
        assert_eq!(read[1]["id"], 7, "{before}");
        assert!(
            read[1]["error"]["message"].as_str().unwrap().contains("16 MiB"),
            "{before}"
        );
    }
    // A request of the server does not answer a call of gavel with the same id.
    let theirs = r#"{"jsonrpc":"2.0","id":7,"method":"sampling/createMessage","params":{"text":""#;
    let text = [&long(theirs, "\"}}\n"), NEXT.as_bytes()].concat();
    let read = read(&text).await.unwrap();
    assert_eq!((read.len(), &read[0]["id"]), (1, &json!(8)));
}

#[tokio::test]
async fn the_longest_line_is_handed_on_as_it_is() {
    let frame = r#"{"jsonrpc":"2.0","id":7,"result":{"a":""}}"#.len() + 1;
    let line = |more: usize| {
        let text = "x".repeat(MAX_LINE - frame + more);
        format!("{{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{{\"a\":\"{text}\"}}}}\n")
    };
    assert_eq!(line(0).len(), MAX_LINE);
    for (more, whole) in [(0, true), (1, false), (2, false)] {
        let read = read(format!("{}{NEXT}", line(more)).as_bytes()).await.unwrap();
        assert_eq!(read[0]["result"]["a"].is_string(), whole, "{more}");
        assert_eq!(read[0]["error"].is_object(), !whole, "{more}");
        assert_eq!(read[1]["id"], 8);
    }
}

#[tokio::test]
async fn a_line_that_tells_nothing_or_has_no_end_ends_the_connection() {
    let silent = read(&long("", "\n")).await.unwrap_err();
    assert!(silent.to_string().contains("which call"), "{silent}");
    let nested = read(&long("{\"result\":{\"text\":\"", "\",\"id\":7}}\n")).await;
    assert!(nested.is_err(), "an id inside of the result is not the call's");
    let mut endless = Lines::new(tokio::io::repeat(b'x'), unsolicited());
    let error = endless.next().await.err().unwrap();
    assert!(error.to_string().contains("no end"), "{error}");
    assert_eq!(endless.line.capacity(), 0, "it is given back");
}

/// Promise: bounded faults. No answer is dropped silently.
#[tokio::test]
async fn an_answer_that_cannot_be_read_is_repaired_or_reported() {
    let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
    for (line, pointer, expected) in [
        (
            r#"{"jsonrpc":"2.0","id":7,"result":{"a":"cut \ud83d"}}"#.to_owned(),
            "/result/a",
            json!("cut \u{fffd}"),
        ),
        (
            format!(r#"{{"result":{{"structuredContent":{deep},"b":"\ude00"}},"jsonrpc":"2.0","id":7}}"#),
            "/result/structuredContent",
            json!(deep),
        ),
        // Python writes it like this.
        (
            r#"{"jsonrpc":"2.0","id":7,"result":{"a":NaN}}"#.to_owned(),
            "/error/code",
            json!(-32000),
        ),
        (
            r#"{"result":{"a":NaN},"jsonrpc":"2.0","id":7}"#.to_owned(),
            "/error/code",
            json!(-32000),
        ),
        (
            r#"{"jsonrpc":"1.0","id":7,"result":{}}"#.to_owned(),
            "/error/code",
            json!(-32000),
        ),
    ] {
        let read = read(format!("{line}\n{NEXT}").as_bytes()).await.unwrap();
        assert_eq!(read.len(), 2, "{line}");
        assert_eq!(read[0]["id"], 7, "{line}");
        assert_eq!(read[0].pointer(pointer), Some(&expected), "{line}: {read:?}");
    }
}

/// Promise: bounded faults. No tree is built from it.
#[tokio::test]
async fn the_answer_to_a_call_is_left_for_the_call_as_it_came() {
    let text = "{\"result\": {\"a\": [1,\u{20}2]}, \"jsonrpc\":\"2.0\",\"id\":\"7\"}\n\
                {\"jsonrpc\":\"2.0\",\"id\":8}\n\
                {\"jsonrpc\":\"2.0\",\"id\":8,\"error\":{\"code\":-5,\"message\":\"no\"}}\n";
    let mut lines = Lines::new(text.as_bytes(), unsolicited());
    let (seven, eight) = (Slot::default(), Slot::default());
    lines.expect(7, seven.clone());
    lines.expect(8, eight.clone());
    for id in [7, 8] {
        let Some(Line::Message(message)) = lines.next().await.unwrap() else {
            panic!("no message")
        };
        let empty = json!({"jsonrpc": "2.0", "id": id, "result": {}});
        assert_eq!(serde_json::to_value(message).unwrap(), empty, "for rmcp");
    }
    assert!(matches!(seven.take(), Some(Attempt::Result(text, None)) if *text == b"{\"a\": [1, 2]}"[..]));
    assert!(matches!(eight.take(), Some(Attempt::Error { code: -5, message }) if message == "no"));
    assert!(lines.calls.is_empty());
}

/// Promise: bounded faults. Wherever the line contains the id of its call.
#[tokio::test]
async fn an_answer_that_finds_no_room_ends_its_own_call_alone() {
    let unsolicited = unsolicited();
    let mib = 1024 * 1024;
    let held: Vec<_> = [("a", 96 * mib), ("b", 64 * mib)]
        .map(|(tenant, bytes)| unsolicited.source.answers.take(tenant, "u", bytes).unwrap())
        .into();
    let text = "x".repeat(1_000_000);
    let text = [
        format!("{{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{{\"a\":\"{text}\"}}}}\n"),
        format!("{{\"result\":{{\"a\":\"{text}\"}},\"jsonrpc\":\"2.0\",\"id\":2}}\n"),
        NEXT.replace('8', "3"),
    ];
    let text = text.concat();
    let mut lines = Lines::new(text.as_bytes(), unsolicited);
    let slots = [1, 2, 3].map(|id| {
        let slot = Slot::default();
        lines.expect(id, slot.clone());
        slot
    });
    while lines.next().await.unwrap().is_some() {}
    drop(held);
    let [one, two, three] = slots.map(|slot| slot.take());
    for refused in [one, two] {
        let Some(Attempt::Lost(Lost::NoRoom, words)) = refused else {
            panic!("{refused:?}")
        };
        assert!(words.contains("too many large answers"), "{words}");
    }
    assert!(matches!(three, Some(Attempt::Result(..))), "{three:?}");
}

/// Abandoned calls leave nothing behind.
#[test]
fn calls_without_a_waiting_caller_are_forgotten() {
    let mut lines = Lines::new(&b""[..], unsolicited());
    let waiting = Slot::default();
    lines.expect(-1, waiting.clone());
    for id in 0..10_000 {
        lines.expect(id, Slot::default());
        assert!(lines.calls.len() <= MANY_CALLS, "{id}");
    }
    assert!(lines.calls.contains_key(&-1));
}

#[tokio::test]
async fn lines_that_are_no_answers_are_left_out() {
    for line in [
        "listening",
        "",
        "{\"level\":\"info\",\"id\":7}",
        "{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"x\",\"params\":{\"a\":NaN}}",
        "{\"jsonrpc\":\"2.0\",\"id\":{\"x\":1},\"result\":NaN}",
        "\u{feff}",
        "[",
    ] {
        let text = [line.as_bytes(), b"\r\n", NEXT.as_bytes(), b"{\"cut"].concat();
        let read = read(&text).await.unwrap();
        assert_eq!((read.len(), &read[0]["id"]), (1, &json!(8)), "{line}");
    }
    let marked = read(format!("\u{feff}{NEXT}").as_bytes()).await.unwrap();
    assert_eq!(marked[0]["id"], 8);
}
