//! How each unsolicited message is answered, counted or refused.
#![allow(clippy::unwrap_used)]

use super::*;
use testing::unsolicited;

fn id(text: &str) -> Box<RawValue> {
    RawValue::from_string(text.to_owned()).unwrap()
}

fn body(verdict: Result<Verdict, Flood>) -> Option<Answer> {
    match verdict.unwrap() {
        Verdict::Answer(answer) => Some(answer),
        Verdict::Dropped => None,
        Verdict::Passed => panic!("handed on"),
    }
}

#[test]
fn a_ping_is_answered_and_everything_else_refused_with_the_servers_own_id() {
    let server = unsolicited();
    let ping = body(server.receive("ping", Some(&id("\"p\"")), 40)).unwrap();
    assert_eq!(ping.body, r#"{"jsonrpc":"2.0","id":"p","result":{}}"#);
    for method in ["sampling/createMessage", "elicitation/create", "roots/list", "x"] {
        let refused = body(server.receive(method, Some(&id("9")), 40)).unwrap();
        assert!(refused.body.contains(r#""id":9,"error":{"code":-32601"#), "{method}");
    }
}

#[test]
fn few_answers_are_under_way_and_no_long_id_is_sent_back() {
    let server = unsolicited();
    let long = id(&format!("\"{}\"", "x".repeat(MAX_ID)));
    assert!(body(server.receive("ping", Some(&long), 2000)).is_none());
    let mut under_way: Vec<_> = (0..100)
        .filter_map(|_| body(server.receive("ping", Some(&id("1")), 40)))
        .collect();
    assert_eq!(under_way.len(), ANSWERS);
    under_way.pop();
    assert!(body(server.receive("ping", Some(&id("1")), 40)).is_some());
}

#[test]
fn requests_notifications_and_bytes_beyond_the_allowance_end_the_connection() {
    let request = |server: &Unsolicited| server.receive("ping", Some(&id("1")), 40).is_ok();
    let notification = |server: &Unsolicited| server.receive("notifications/progress", None, 100).is_ok();
    let large = |server: &Unsolicited| server.noise(1024 * 1024).is_ok();
    for (send, least, most) in [
        (&request as &dyn Fn(&Unsolicited) -> bool, 1000, 3000),
        (&notification, 50_000, 150_000),
        (&large, 48, 150),
    ] {
        let server = unsolicited();
        let sent = (0..).take_while(|_| send(&server)).count();
        assert!((least..most).contains(&sent), "{sent}");
        assert!(server.is_flooded());
        assert!(!notification(&server), "it has ended for good");
    }
}

/// An answer that no caller waits for keeps no share of the budget once it is read.
#[test]
fn only_the_pages_of_a_list_are_counted_until_the_list_is_read() {
    let server = unsolicited();
    let answer = || {
        let mut held = server.source.held();
        held.add(1024 * 1024).unwrap();
        server.keep(&mut held);
    };
    let used = || server.source.answers.used();
    answer();
    assert_eq!(used(), 0);
    let listing = server.reads_list();
    answer();
    answer();
    assert_eq!(used(), 4 * 1024 * 1024);
    let list = listing.end();
    answer();
    assert_eq!(used(), 4 * 1024 * 1024, "while the list exists");
    drop(list);
    assert_eq!(used(), 0);
    let given_up = server.reads_list();
    answer();
    drop(given_up);
    answer();
    assert_eq!(used(), 0);
}

#[test]
fn only_what_subscriptions_need_is_handed_on() {
    let server = unsolicited();
    let passed = |method, bytes| matches!(server.receive(method, None, bytes), Ok(Verdict::Passed));
    assert!(passed("notifications/subscriptions/acknowledged", 100));
    assert!(!passed("notifications/subscriptions/acknowledged", MAX_PASSED + 1));
    assert!(!passed("notifications/message", 100));
    assert!(!passed("notifications/tools/list_changed", 100));
}
