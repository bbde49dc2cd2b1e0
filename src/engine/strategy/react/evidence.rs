//! Complete means shown: a task is complete only if the result of one of its steps has what the model quotes.

use serde_json::Value;

use super::super::super::ledger::{Call, Ledger};
use crate::domain::reflection::{Evidence, Reflection, SHORTEST_QUOTE};
use crate::domain::tool::FailureCode;

/// Do the results show what the reflection quotes?
///
/// # Errors
/// Why not, for the model.
pub(super) fn shown(ledger: &Ledger<'_>, reflection: &Reflection) -> Result<(), String> {
    if reflection.evidence.is_empty() {
        return Err(
            "a task is complete only with evidence: give the number of a step whose call succeeded, and a quote from its \
             result. If no result shows it, the task is not complete"
                .to_owned(),
        );
    }
    // One call of each step was run: the first of its turn.
    let acts: Vec<_> = ledger
        .of_tools()
        .filter(|call| call.failure_code() != Some(FailureCode::TooManyCalls))
        .collect();
    reflection.evidence.iter().try_for_each(|evidence| one(&acts, evidence))
}

fn one(acts: &[&Call<'_>], evidence: &Evidence) -> Result<(), String> {
    let Evidence { observation, quote } = evidence;
    let n = usize::try_from(*observation).unwrap_or(usize::MAX);
    let Some(call) = n.checked_sub(1).and_then(|at| acts.get(at)) else {
        return Err(format!(
            "observation {observation} is no step of this task; it has {} so far",
            acts.len()
        ));
    };
    let Some(data) = call.data() else {
        return Err(format!(
            "the call of step {observation}, {}, did not succeed, so it shows nothing",
            call.name()
        ));
    };
    let value: Value = serde_json::from_str(data.get()).unwrap_or_default();
    if let Some(why) = is_unfinished(&value) {
        return Err(format!("the command of step {observation} {why}, so it shows nothing"));
    }
    if quote.chars().count() < SHORTEST_QUOTE {
        return Err(format!(
            "the quote {quote:?} is too short; at least {SHORTEST_QUOTE} characters"
        ));
    }
    match in_strings(&value, quote) || data.get().contains(quote.as_str()) || value.to_string().contains(quote.as_str())
    {
        true => Ok(()),
        false => Err(format!(
            "the quote {quote:?} does not occur in the result of step {observation}; copy text from it literally, or say \
             that the task is not complete"
        )),
    }
}

/// How a command ended, unless it came to its own end with exit code 0. What was cut short has no exit code, or one of its
/// own choice.
fn is_unfinished(value: &Value) -> Option<String> {
    let says = |field: &str| value.get(field) == Some(&Value::Bool(true));
    match value.get("exitCode")? {
        _ if says("timedOut") || says("interrupted") => Some("was cut short".to_owned()),
        Value::Null => Some("did not end by itself".to_owned()),
        code if code.as_i64() == Some(0) => None,
        code => Some(format!("ended with exit code {code}")),
    }
}

fn in_strings(value: &Value, quote: &str) -> bool {
    match value {
        Value::String(text) => text.contains(quote),
        Value::Array(items) => items.iter().any(|item| in_strings(item, quote)),
        Value::Object(fields) => fields.values().any(|field| in_strings(field, quote)),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}
