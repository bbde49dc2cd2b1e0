#![allow(clippy::unwrap_used)]

use super::*;
use crate::inbox::testing::inbox;

/// Requests 7 and 8 in progress, and a reader of their answers.
fn reader() -> (Reader, [oneshot::Receiver<Attempt>; 2], mpsc::Receiver<Queued>) {
    let (queue, queued) = mpsc::channel(4);
    let pending = Arc::new(Pending(Mutex::new(Some(HashMap::new()))));
    let waiting = [7, 8].map(|id| {
        let (sender, receiver) = oneshot::channel();
        pending.lock().as_mut().unwrap().insert(id, sender);
        receiver
    });
    let reader = Reader {
        inbox: inbox(),
        pending,
        queue: queue.downgrade(),
    };
    std::mem::forget(queue);
    (reader, waiting, queued)
}

async fn read(text: &str) -> ([Option<Attempt>; 2], mpsc::Receiver<Queued>) {
    let (reader, waiting, queued) = reader();
    let mut lines = Lines::new(text.as_bytes(), reader.inbox.clone());
    reader.run(&mut lines).await;
    (waiting.map(|mut waiting| waiting.try_recv().ok()), queued)
}

const NEXT: &str = "{\"jsonrpc\":\"2.0\",\"id\":8,\"result\":{}}\n";

/// Promise: bounded faults. No tree is built from it.
#[tokio::test]
async fn an_answer_is_left_for_its_request_as_it_came() {
    let text = "{\"result\": {\"a\": [1,\u{20}2]}, \"jsonrpc\":\"2.0\",\"id\":\"7\"}\n\
                {\"jsonrpc\":\"2.0\",\"id\":8,\"error\":{\"code\":-5,\"message\":\"no\"}}\n";
    let ([seven, eight], _) = read(text).await;
    assert!(matches!(seven, Some(Attempt::Result(text, None)) if *text == b"{\"a\": [1, 2]}"[..]));
    assert!(matches!(eight, Some(Attempt::Error { code: -5, message }) if message == "no"));
}

/// Promise: bounded faults. No answer is dropped silently.
#[tokio::test]
async fn an_answer_that_cannot_be_read_ends_its_request() {
    for line in [
        r#"{"jsonrpc":"2.0","id":7,"result":{"a":NaN}}"#,
        r#"{"result":{"a":NaN},"jsonrpc":"2.0","id":7}"#,
        r#"{"jsonrpc":"2.0","id":7}"#,
    ] {
        let ([seven, eight], _) = read(&format!("{line}\n{NEXT}")).await;
        assert!(matches!(seven, Some(Attempt::Lost(Lost::Unreadable, _))), "{line}");
        assert!(matches!(eight, Some(Attempt::Result(..))), "{line}");
    }
}

#[tokio::test]
async fn lines_that_are_no_answers_are_left_out() {
    for line in [
        "listening",
        "",
        "{\"level\":\"info\",\"id\":7}",
        "{\"method\":\"GET\",\"id\":7}",
        "{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"x\",\"params\":{\"a\":NaN}}",
        "{\"jsonrpc\":\"2.0\",\"id\":{\"x\":1},\"result\":NaN}",
        "\u{feff}",
        "[",
    ] {
        let ([_, eight], mut queued) = read(&format!("{line}\r\n\u{feff}{NEXT}{{\"cut")).await;
        assert!(matches!(eight, Some(Attempt::Result(..))), "{line}");
        assert!(queued.try_recv().is_err(), "{line}: no reply");
    }
}

#[tokio::test]
async fn a_request_of_the_server_is_answered_over_the_queue() {
    let (_, mut queued) = read("{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"ping\"}\n").await;
    let reply = queued.try_recv().unwrap();
    assert_eq!(reply.line, b"{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{}}\n");
}

/// Promise: at most once. What was reported as not sent is not written later, when the pipe is free.
#[tokio::test]
async fn a_call_that_is_given_up_before_its_turn_is_not_written() {
    let (queue, queued) = mpsc::channel(4);
    let (gate, given_up) = (SendGate::default(), SendGate::default());
    for (id, gate) in [(7, &given_up), (8, &gate)] {
        let queued = Queued {
            request: Some((id, gate.clone())),
            ..Queued::new(format!("{id}"))
        };
        queue.send(queued).await.ok().unwrap();
    }
    assert!(!given_up.give_up());
    let (reader, [mut seven, _eight], _) = reader();
    drop(queue);
    let mut written = Vec::new();
    write(queued, &mut written, reader.pending.clone(), CancellationToken::new()).await;
    assert_eq!(written, b"8\n");
    assert!(gate.is_sent() && !given_up.is_sent());
    let attempt = seven.try_recv().unwrap();
    assert!(matches!(attempt, Attempt::NotSent(Lost::Connection, why) if why == "given up before it was sent"));
}
