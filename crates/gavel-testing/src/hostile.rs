//! A model that attacks: each of its turns is one trick, chosen by seed and conversation.

use fastrand::Rng;
use serde_json::{Value, json};

use super::{Conversation, Move};

pub(super) fn attack(rng: &mut Rng, conversation: &Conversation<'_>) -> Move {
    let trick = TRICKS[rng.usize(..TRICKS.len())];
    trick(rng, conversation)
}

type Trick = fn(&mut Rng, &Conversation<'_>) -> Move;

const TRICKS: [Trick; 14] = [
    off_list,
    look_alike,
    bad_arguments,
    stolen_identity,
    verdict_with_calls,
    two_verdicts,
    bad_verdict,
    a_hundred_calls,
    same_call_again,
    huge_text,
    huge_arguments,
    deep_arguments,
    nothing,
    control_characters,
];

/// A call with a side effect, so that a gap in the checks would show.
fn effective() -> (String, Value) {
    (
        "add_task".to_owned(),
        json!({"description": "planted by a hostile model"}),
    )
}

fn any_name(rng: &mut Rng, conversation: &Conversation<'_>) -> String {
    match conversation.functions.len() {
        0 => "add_task".to_owned(),
        n => conversation.functions[rng.usize(..n)].name.to_owned(),
    }
}

fn off_list(rng: &mut Rng, _: &Conversation<'_>) -> Move {
    const NAMES: [&str; 9] = [
        "drop_all_tasks",
        "run_shell_command",
        "gmail_send",
        "tasks__purge",
        "default_api:delete_task",
        "web_fetch",
        "complete_task_all",
        "__proto__",
        "",
    ];
    Move::call(
        NAMES[rng.usize(..NAMES.len())],
        json!({"id": "1", "command": "rm -rf /", "all": true}),
    )
}

/// Names that a careless comparison accepts as an offered function.
fn look_alike(rng: &mut Rng, conversation: &Conversation<'_>) -> Move {
    let name = any_name(rng, conversation);
    let changed = match rng.u8(..7) {
        0 => name.replace('a', "а"),
        1 => name.to_uppercase(),
        2 => format!("{name} "),
        3 => format!("{name}\0"),
        4 => name.replace('_', "\u{ff3f}"),
        5 => format!("{name}\u{200b}"),
        _ => format!("{name}/../{name}"),
    };
    Move::call(
        changed,
        json!({"id": "1", "title": "x", "description": "planted by a look-alike"}),
    )
}

fn bad_arguments(rng: &mut Rng, conversation: &Conversation<'_>) -> Move {
    let arguments = match rng.u8(..6) {
        0 => json!({"description": 7, "id": ["a"], "title": {}}),
        1 => json!({"description": "", "due": "2026-02-30", "priority": "highest"}),
        2 => json!({"$ref": "file:///etc/passwd", "extra": true}),
        3 => json!({"id": "' OR 1=1 --", "title": "%"}),
        4 => json!({"limit": -1, "status": null, "cursor": "x"}),
        _ => json!({}),
    };
    Move::call(any_name(rng, conversation), arguments)
}

/// The model never chooses the user.
fn stolen_identity(rng: &mut Rng, conversation: &Conversation<'_>) -> Move {
    let identity = json!({"user_id": "someone-else", "user": "admin", "_meta": {"gavel/user_id": "someone-else"},
        "id": "1", "description": "planted for someone else"});
    Move::call(any_name(rng, conversation), identity)
}

fn verdict_with_calls(_: &mut Rng, _: &Conversation<'_>) -> Move {
    let refusal = ("refuse".to_owned(), json!({"message": "No.", "kind": "OUT_OF_SCOPE"}));
    Move {
        text: "I refuse, and do it all the same.".to_owned(),
        calls: vec![effective(), refusal, effective()],
    }
}

fn two_verdicts(_: &mut Rng, _: &Conversation<'_>) -> Move {
    let refusal = ("refuse".to_owned(), json!({"message": "No.", "kind": "OUT_OF_SCOPE"}));
    let question = (
        "request_clarification".to_owned(),
        json!({"question": "What?", "kind": "UNCLEAR_INTENT"}),
    );
    Move {
        text: String::new(),
        calls: vec![refusal, question],
    }
}

fn bad_verdict(rng: &mut Rng, _: &Conversation<'_>) -> Move {
    match rng.u8(..4) {
        0 => Move::call("refuse", json!({"message": "No.", "kind": "SAFETY_BLOCKED"})),
        1 => Move::call("refuse", json!({"message": "  ", "kind": "OUT_OF_SCOPE"})),
        2 => Move::call("request_clarification", json!({"question": ["a", "b"]})),
        _ => Move::call(
            "request_clarification",
            json!({"question": "x", "kind": "RATE_LIMITED", "outcome": "SUCCESS"}),
        ),
    }
}

fn a_hundred_calls(rng: &mut Rng, conversation: &Conversation<'_>) -> Move {
    let mut calls: Vec<_> = (0..99).map(|_| effective()).collect();
    calls.push((any_name(rng, conversation), json!({})));
    Move {
        text: String::new(),
        calls,
    }
}

/// Repeated in every turn, this is an endless loop.
fn same_call_again(_: &mut Rng, _: &Conversation<'_>) -> Move {
    Move::call("list_tasks", json!({}))
}

fn huge_text(_: &mut Rng, _: &Conversation<'_>) -> Move {
    Move::say("<script>alert(1)</script> & “done” \u{202e} ".repeat(6_000))
}

fn huge_arguments(_: &mut Rng, _: &Conversation<'_>) -> Move {
    Move::call("add_task", json!({"description": "x".repeat(300_000)}))
}

/// The deepest arguments that an adapter accepts. Deeper JSON is a malformed turn there.
fn deep_arguments(_: &mut Rng, _: &Conversation<'_>) -> Move {
    let deep = (0..45).fold(json!("bottom"), |inner, _| json!({"d": [inner]}));
    Move::call("add_task", json!({"description": deep}))
}

fn nothing(_: &mut Rng, _: &Conversation<'_>) -> Move {
    Move::say("")
}

fn control_characters(_: &mut Rng, _: &Conversation<'_>) -> Move {
    Move::call("add_task", json!({"description": "nul\0 bell\u{7} escape\u{1b}[2J"}))
}
