//! What became of the calls that approvers see, with the id of what was created.

use std::sync::Arc;

use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::super::ledger::Call;
use super::super::record::Record;
use super::text::{in_a_sentence, render_call};
use crate::domain::action::ActionStatus;
use crate::domain::journal::{CallResult, Entry, Target};
use crate::domain::templates::Text;
use crate::domain::tool::FailureCode;
use crate::ports::commit::ActionOutcome;

/// Maximum bytes of an id, and of a result that is searched for one.
const MOST_ID: usize = 200;

const MOST_RECEIPT: usize = 64 * 1024;

/// Outcomes of actions in the entries of a record that are not written yet.
pub(crate) fn outcomes(record: &Record) -> Vec<ActionOutcome> {
    let journal = &record.journal;
    let new = &journal[record.written().min(journal.len())..];
    if !new.iter().any(|entry| matches!(entry, Entry::Result { .. })) {
        return Vec::new();
    }
    let ledger = journal.ledger();
    let results = new.iter().filter_map(|entry| match entry {
        Entry::Result { call, result } => Some((ledger.call(*call)?, result)),
        _ => None,
    });
    results
        .filter(|(call, _)| call.is_action())
        .map(|(call, result)| {
            let (status, error) = match &result.outcome {
                Ok(_) => (ActionStatus::Completed, None),
                Err(failure) => {
                    // The run of a called agent has its own in-doubt actions, which a user can settle.
                    let status = match (failure.code, &call.proposed.target) {
                        (FailureCode::InDoubt, Target::Tool(_) | Target::Unresolved(_)) => ActionStatus::InDoubt,
                        _ => ActionStatus::Failed,
                    };
                    (status, Some((failure.code, Arc::from(failure.for_callers()))))
                }
            };
            ActionOutcome {
                id: call.id(),
                status,
                error,
                words: executed(call, result),
            }
        })
        .collect()
}

/// The thread message about an action: the call, and the id in its result.
fn executed(call: Call<'_>, result: &CallResult) -> Option<Arc<str>> {
    let action = render_call(call);
    let words = match &result.outcome {
        Ok(data) => {
            let mut words = Text::Executed.with(&[("action", &action)]);
            if let Some(id) = result_id(data) {
                words.push_str(&Text::ResultId.with(&[("id", &in_a_sentence(&id))]));
            }
            words
        }
        Err(failure) if failure.code == FailureCode::InDoubt => Text::OutcomeUnknown.with(&[("action", &action)]),
        Err(_) => return None,
    };
    Some(words.into())
}

/// The id in a tool's result: its member `id`, else a member whose name ends in `_id` or `Id`, at the top or one level
/// below.
pub(super) fn result_id(data: &RawValue) -> Option<String> {
    fn plain(value: &Value) -> Option<String> {
        match value {
            Value::String(text) if !text.is_empty() && text.len() <= MOST_ID => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            _ => None,
        }
    }
    fn own(object: &Map<String, Value>) -> Option<String> {
        let named =
            |(name, value): (&String, &Value)| (name.ends_with("_id") || name.ends_with("Id")).then(|| plain(value))?;
        object
            .get("id")
            .and_then(plain)
            .or_else(|| object.iter().find_map(named))
    }
    // A long result is a document and not a receipt.
    let object: Map<String, Value> = (data.get().len() <= MOST_RECEIPT)
        .then(|| serde_json::from_str(data.get()).ok())
        .flatten()?;
    own(&object).or_else(|| object.values().find_map(|value| value.as_object().and_then(own)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;

    /// a thread records the id in an action's result, wherever a server puts it.
    #[test]
    fn the_id_of_a_result_is_found_where_servers_put_it() {
        for (data, id) in [
            (json!({"id": "18f", "threadId": "t"}), Some("18f")),
            (json!({"threadId": "t", "ok": true}), Some("t")),
            (json!({"message_id": 7}), Some("7")),
            (json!({"task": {"id": "a"}, "n": 1}), Some("a")),
            (json!({"id": "x".repeat(201)}), None),
            (json!({"id": {"id": ""}}), None),
            (json!("sent"), None),
            (json!({"text": "id: 7"}), None),
        ] {
            let raw = serde_json::value::to_raw_value(&data).unwrap();
            assert_eq!(result_id(&raw).as_deref(), id, "{data}");
        }
    }
}
