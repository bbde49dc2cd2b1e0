//! A model that produces seeded noise around the functions it is offered, including faults.

use fastrand::Rng;
use serde_json::{Map, Value, json};

use super::{Conversation, Fault, Move};

pub(super) fn babble(rng: &mut Rng, conversation: &Conversation<'_>) -> Result<Move, Fault> {
    const FAULTS: [Fault; 4] = [Fault::Unavailable, Fault::Timeout, Fault::Malformed, Fault::Blocked];
    if rng.u8(..20) == 0 {
        return Err(FAULTS[rng.usize(..FAULTS.len())]);
    }
    let text = if rng.bool() { words(rng) } else { String::new() };
    let calls = if rng.u8(..3) == 0 { 0 } else { rng.usize(1..=4) };
    let calls = (0..calls).map(|_| call(rng, conversation)).collect();
    Ok(Move { text, calls })
}

fn call(rng: &mut Rng, conversation: &Conversation<'_>) -> (String, Value) {
    let known = &conversation.functions;
    if known.is_empty() || rng.u8(..8) == 0 {
        return (words(rng), json!({"noise": noise(rng, 0)}));
    }
    let function = &known[rng.usize(..known.len())];
    let schema: Value = serde_json::from_str(function.parameters).unwrap_or_default();
    (function.name.to_owned(), fitting(rng, &schema))
}

/// Arguments that mostly match the schema.
fn fitting(rng: &mut Rng, schema: &Value) -> Value {
    let required = |name: &str| {
        schema
            .get("required")
            .and_then(Value::as_array)
            .is_some_and(|names| names.iter().any(|other| other == name))
    };
    let mut arguments = Map::new();
    for (name, property) in schema
        .get("properties")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        if !required(name) && rng.bool() {
            continue;
        }
        let value = match (
            property.get("enum").and_then(Value::as_array),
            property.get("type").and_then(Value::as_str),
        ) {
            _ if rng.u8(..10) == 0 => noise(rng, 0),
            (Some(choices), _) if !choices.is_empty() => choices[rng.usize(..choices.len())].clone(),
            (_, Some("integer" | "number")) => json!(rng.i32(-2..60)),
            (_, Some("boolean")) => json!(rng.bool()),
            _ => json!(words(rng)),
        };
        arguments.insert(name.clone(), value);
    }
    Value::Object(arguments)
}

fn words(rng: &mut Rng) -> String {
    const WORDS: [&str; 14] = [
        "buy",
        "milk",
        "call",
        "mom",
        "the",
        "first",
        "2026-12-01",
        "tomorrow",
        "übermorgen",
        "数",
        "\u{1f600}",
        "%",
        "'; --",
        "{}",
    ];
    (0..rng.usize(1..5))
        .map(|_| WORDS[rng.usize(..WORDS.len())])
        .collect::<Vec<_>>()
        .join(" ")
}

fn noise(rng: &mut Rng, depth: u8) -> Value {
    match rng.u8(..if depth < 4 { 7 } else { 5 }) {
        0 => Value::Null,
        1 => json!(rng.bool()),
        2 => json!(rng.i64(..)),
        3 => json!(rng.f64() * 1e9),
        4 => json!(words(rng)),
        5 => (0..rng.usize(..4)).map(|_| noise(rng, depth + 1)).collect(),
        _ => Value::Object(
            (0..rng.usize(..4))
                .map(|_| (words(rng), noise(rng, depth + 1)))
                .collect(),
        ),
    }
}
