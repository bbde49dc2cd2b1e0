//! Do tools keep to their own output schemas? Nothing hangs on it but a warning.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;
use serde_json::value::RawValue;
use tokio::sync::Semaphore;

use super::log;
use super::source::Source;
use crate::domain::schema::{CheckError, Effort, JsonSchema};
use crate::domain::tool::Tool;

/// Results of a definition that are compared; one that keeps its word eight times is believed.
const CHECKS: u8 = 8;
/// Definitions that are remembered; a server has fewer at a time, and may change them without end.
const REMEMBERED: usize = 1024;

/// Longest words of a reason, in bytes.
const WORDS: usize = 512;
/// The largest result that is compared, in bytes.
const LARGEST: usize = 1 << 20;

/// How often each definition, by its digest, was compared.
pub(super) struct Outputs {
    compared: Mutex<HashMap<Arc<str>, u8>>,
    /// Held by the comparison that is under way.
    place: Arc<Semaphore>,
}

impl Default for Outputs {
    fn default() -> Self {
        Self {
            compared: Mutex::default(),
            place: Arc::new(Semaphore::new(1)),
        }
    }
}

/// Why the data does not fit. What is not to be told in a moment is not told: nothing hangs on it.
fn compared(schema: Box<RawValue>, data: &RawValue) -> Result<(), String> {
    let schema = JsonSchema::compile(schema).map_err(|error| format!("its output schema is not usable: {error}"))?;
    let Ok(data) = serde_json::from_str::<Value>(data.get()) else {
        return Ok(());
    };
    match schema.check(&data, Effort::Full) {
        Ok(()) | Err(CheckError::TooCostly) => Ok(()),
        // The errors quote the data.
        Err(CheckError::Invalid(errors)) => Err(format!("{} parts of it are not valid", errors.len())),
    }
}

impl Outputs {
    /// Warns when data does not fit the tool's own output schema. The comparison is made on a thread of its own, one at a time;
    /// nobody waits for it, and where one is under way this one is not made.
    pub(super) fn check(&self, tool: &Tool, data: &RawValue, source: &Arc<Source>) {
        let Some(schema) = &tool.output_schema else { return };
        if data.get().len() > LARGEST || !self.is_due(&tool.digest) {
            return;
        }
        let Ok(place) = Arc::clone(&self.place).try_acquire_owned() else {
            return;
        };
        let (schema, data) = (schema.clone(), data.to_owned());
        let (source, name) = (Arc::clone(source), Arc::clone(&tool.name));
        tokio::task::spawn_blocking(move || {
            let _place = place;
            let why = match compared(schema, &data) {
                Ok(()) => return,
                Err(why) => why,
            };
            let why = source.words(&why, WORDS);
            log::line!(
                source.log,
                warn,
                "result does not fit",
                tool = &*name,
                why,
                "a result does not fit the tool's output schema"
            );
        });
    }

    fn is_due(&self, digest: &Arc<str>) -> bool {
        let mut checked = self.compared.lock().unwrap_or_else(PoisonError::into_inner);
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
            let remembered = outputs.compared.lock().map(|checked| checked.len());
            assert!(remembered.is_ok_and(|n| n <= REMEMBERED));
        }
    }
}
