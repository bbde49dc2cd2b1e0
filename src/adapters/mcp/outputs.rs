//! Do tools keep to their own output schemas? Nothing hangs on it but a warning.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;
use serde_json::value::RawValue;

use super::log::{self, LogLines};
use crate::domain::tool::Tool;

/// Results of a definition that are compared; one that keeps its word eight times is believed.
const CHECKS: u8 = 8;
/// Definitions that are remembered; a server has fewer at a time, and may change them without end.
const REMEMBERED: usize = 1024;

/// How often each definition, by its digest, was held to its word.
#[derive(Default)]
pub(super) struct Outputs(Mutex<HashMap<Arc<str>, u8>>);

impl Outputs {
    /// Warns when data does not fit the tool's own output schema.
    pub(super) fn check(&self, tool: &Tool, data: &RawValue, log: &LogLines) {
        let Some(schema) = &tool.output_schema else { return };
        if !self.is_due(&tool.digest) {
            return;
        }
        let (Ok(schema), Ok(data)) = (
            serde_json::from_str::<Value>(schema.get()),
            serde_json::from_str::<Value>(data.get()),
        ) else {
            return;
        };
        let fits = jsonschema::validator_for(&schema).is_ok_and(|validator| validator.is_valid(&data));
        if !fits {
            log::line!(
                *log,
                warn,
                "result does not fit",
                tool = &*tool.name,
                "a result does not fit the tool's output schema"
            );
        }
    }

    fn is_due(&self, digest: &Arc<str>) -> bool {
        let mut checked = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if checked.len() >= REMEMBERED && !checked.contains_key(digest) {
            // Those that are still there are looked at a few times more.
            checked.clear();
        }
        let done = checked.entry(digest.clone()).or_default();
        let due = *done < CHECKS;
        *done += u8::from(due);
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Promise 5: in bounded memory.
    #[test]
    fn a_definition_is_looked_at_a_few_times_and_not_remembered_for_ever() {
        let outputs = Outputs::default();
        let digest = |n: usize| Arc::from(n.to_string());
        for n in 0..20 {
            assert_eq!(outputs.is_due(&digest(0)), n < usize::from(CHECKS), "{n}");
        }
        for n in 0..10 * REMEMBERED {
            assert!(outputs.is_due(&digest(n + 1)));
            let remembered = outputs.0.lock().map(|checked| checked.len());
            assert!(remembered.is_ok_and(|n| n <= REMEMBERED));
        }
    }
}
