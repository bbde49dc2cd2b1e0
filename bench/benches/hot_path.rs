//! The pure functions that every decision uses: `cargo bench --package gavel-bench`.
//!
//! A decision with one tool call uses one `chat_request`, one `arguments` of each kind and three `next_*`; the rest of
//! its time is I/O.
#![allow(clippy::unwrap_used, missing_docs)]

use std::sync::Arc;
use std::time::Duration;

use divan::{Bencher, black_box};
use gavel::domain::canonical;
use gavel::domain::decision::Usage;
use gavel::domain::ids::ActionId;
use gavel::domain::journal::{CallResult, Entry, FunctionCall, ModelTurn, Part, Proposed, Target};
use gavel::domain::object::Object;
use gavel::domain::schema::{Effort, JsonSchema};
use gavel::engine::journal::Journal;
use gavel::engine::{Limits, next};
use gavel::surfaces::chat::request::ChatRequest;
use serde_json::value::RawValue;
use serde_json::{Value, json};

fn main() {
    divan::main();
}

fn raw(value: &Value) -> Box<RawValue> {
    RawValue::from_string(value.to_string()).unwrap()
}

/// `lines` is the number of earlier lines.
#[divan::bench(args = [0, 20, 200])]
fn chat_request(bencher: Bencher<'_, '_>, lines: usize) {
    let line = json!({"role": "user", "content": "And what is due before the weekend, please?"});
    let body = json!({
        "message": "What are my tasks?", "user_id": "user-1", "conversation_id": "conversation-1",
        "history": vec![line; lines], "time_zone": "Europe/Berlin",
    });
    let body = serde_json::to_vec(&body).unwrap();
    bencher.bench(|| {
        let Object(body) = serde_json::from_slice(black_box(&body)).unwrap();
        ChatRequest::new(body).unwrap()
    });
}

/// What a model writes for `add_task`.
fn task() -> Value {
    json!({"title": "water the ferns", "due": "2026-11-27", "priority": "high", "notes": "The one in the hall too."})
}

#[divan::bench]
fn arguments_canonical(bencher: Bencher<'_, '_>) {
    let arguments = task();
    bencher.bench(|| canonical::to_raw(black_box(&arguments)));
}

#[divan::bench]
fn arguments_checked(bencher: Bencher<'_, '_>) {
    let schema = JsonSchema::compile(raw(&json!({
        "type": "object", "additionalProperties": false, "required": ["title"],
        "properties": {
            "title": {"type": "string", "minLength": 1, "maxLength": 500},
            "due": {"type": "string", "pattern": r"^\d{4}-\d{2}-\d{2}$"},
            "priority": {"enum": ["low", "normal", "high"]},
            "notes": {"type": "string"},
        },
    })))
    .unwrap();
    let arguments = task();
    bencher.bench(|| schema.check(black_box(&arguments), Effort::Quick).unwrap());
}

/// A run in which the model has called an unknown function and received the error, `turns` times.
fn journal(turns: u32) -> Vec<Entry> {
    let mut journal = vec![Entry::User("What are my tasks?".to_owned())];
    for turn in 1..=turns {
        let call = FunctionCall {
            id: None,
            name: "list_tasks".to_owned(),
            args: raw(&json!({})),
        };
        let proposed = Proposed {
            id: ActionId::new(),
            sequence: turn,
            call: call.clone(),
            target: Target::Unknown,
        };
        let id = proposed.id;
        journal.push(Entry::ModelTurn {
            turn: ModelTurn {
                content: Arc::from(raw(&json!({"parts": []}))),
                parts: vec![Part::Call(call)],
                usage: Usage::default(),
                served: gavel::domain::journal::Served::by("bench"),
            },
            calls: vec![proposed],
        });
        journal.push(Entry::Result {
            call: id,
            result: CallResult {
                outcome: Ok(Arc::from(raw(&json!({"tasks": []})))),
                sent: true,
                duration_us: 1,
            },
        });
    }
    journal
}

#[divan::bench(args = [0, 1, 4])]
fn next_after_turns(bencher: Bencher<'_, '_>, turns: u32) {
    let journal = Journal::from(journal(turns));
    bencher.bench(|| next(black_box(&journal), &Limits::CHAT, Duration::ZERO));
}

#[divan::bench]
fn next_with_a_call_to_make(bencher: Bencher<'_, '_>) {
    let mut journal = journal(1);
    journal.pop();
    let journal = Journal::from(journal);
    bencher.bench(|| next(black_box(&journal), &Limits::CHAT, Duration::ZERO));
}
