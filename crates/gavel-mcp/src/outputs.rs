//! Do tools follow their own output schemas? A violation only causes a warning.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;
use serde_json::value::RawValue;
use tokio::sync::Semaphore;

use super::log;
use super::source::Source;
use crate::domain::schema::{CheckError, Effort, JsonSchema};
use crate::domain::tool::Tool;

/// Results compared per definition. A tool that follows its schema eight times is trusted.
const CHECKS: u8 = 8;
/// Maximum remembered definitions. A server has fewer at a time, but may change them endlessly.
const REMEMBERED: usize = 1024;

/// Maximum bytes of a reason.
const WORDS: usize = 512;
/// Maximum bytes of a result that is compared.
const LARGEST: usize = 1 << 20;

/// How often each definition was compared, by digest.
pub(super) struct Outputs {
    compared: Mutex<HashMap<Arc<str>, u8>>,
    /// Held by the comparison in progress.
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

/// Why the data does not match. Nothing is reported if the comparison would take long, because only a warning depends
/// on it.
fn compared(schema: Box<RawValue>, data: &RawValue) -> Result<(), String> {
    let schema = JsonSchema::compile(schema).map_err(|error| format!("its output schema is not usable: {error}"))?;
    let Ok(data) = serde_json::from_str::<Value>(data.get()) else {
        return Ok(());
    };
    match schema.check(&data, Effort::Full) {
        Ok(()) | Err(CheckError::TooCostly) => Ok(()),
        // The errors quote the data, so only their number is reported.
        Err(CheckError::Invalid(errors)) => Err(format!("{} parts of it are invalid", errors.len())),
    }
}

impl Outputs {
    /// Logs a warning if data does not match the tool's own output schema. The comparison runs on a separate thread,
    /// one at a time. No caller waits for it, and it is skipped while another one runs.
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
                "a result does not match the tool's output schema"
            );
        });
    }

    fn is_due(&self, digest: &Arc<str>) -> bool {
        let mut checked = self.compared.lock().unwrap_or_else(PoisonError::into_inner);
        if checked.len() >= REMEMBERED && !checked.contains_key(digest) {
            // Definitions that still exist are compared a few times more.
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

    /// Promise: bounded faults. In bounded memory.
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
