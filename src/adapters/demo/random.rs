//! A model that produces seeded noise around the functions it is offered, including faults.

use fastrand::Rng;
use serde_json::{Map, Value, json};

use super::hostile::seeded;
use super::turn::{self, Move};
use crate::domain::decision::Usage;
use crate::domain::journal::{FaultKind, ModelTurn};
use crate::ports::BoxFuture;
use crate::ports::model::{Functions, Model, ModelEvent, ModelFault, ModelRequest};

/// Produces noise reproducibly.
#[derive(Clone, Copy, Debug)]
pub struct Random {
    seed: u64,
}

impl Random {
    /// Equal seeds give equal answers to equal conversations.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { seed }
    }
}

impl Model for Random {
    fn generate<'a>(
        &'a self,
        request: ModelRequest<'a>,
        events: Option<&'a mut (dyn FnMut(ModelEvent<'_>) + Send)>,
    ) -> BoxFuture<'a, Result<ModelTurn, ModelFault>> {
        Box::pin(async move {
            let mut rng = seeded(self.seed, &request);
            if rng.u8(..20) == 0 {
                return Err(fault(&mut rng));
            }
            Ok(turn::make(
                babble(&mut rng, request.functions),
                &request,
                self.default_model(),
                events,
            ))
        })
    }

    fn default_model(&self) -> &str {
        "random"
    }
}

fn fault(rng: &mut Rng) -> ModelFault {
    const KINDS: [FaultKind; 4] = [
        FaultKind::Unavailable,
        FaultKind::Timeout,
        FaultKind::Malformed,
        FaultKind::Blocked,
    ];
    ModelFault {
        kind: KINDS[rng.usize(..KINDS.len())],
        detail: "by chance".to_owned(),
        usage: Usage::default(),
        attempts: 1,
        served: Box::default(),
        said: None,
    }
}

fn babble(rng: &mut Rng, functions: &Functions) -> Move {
    let text = if rng.bool() { words(rng) } else { String::new() };
    let calls = if rng.u8(..3) == 0 { 0 } else { rng.usize(1..=4) };
    Move {
        text,
        calls: (0..calls).map(|_| call(rng, functions)).collect(),
    }
}

fn call(rng: &mut Rng, functions: &Functions) -> (String, Value) {
    let known = &functions.declarations;
    if known.is_empty() || rng.u8(..8) == 0 {
        return (words(rng), json!({"noise": noise(rng, 0)}));
    }
    let function = &known[rng.usize(..known.len())];
    let schema: Value = serde_json::from_str(function.parameters.get()).unwrap_or_default();
    (function.name.clone(), fitting(rng, &schema))
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
