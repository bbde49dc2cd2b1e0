//! The arguments of an agent: checked against its inputs, and their schema for agents that call it as a tool (D-4).

use std::collections::HashSet;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::{Definition, InputType};
use crate::domain::text;
use gavel_reading::MOST_REPORTED;
use gavel_reading::unknown_name_message;

/// The longest name that is shown uncut, in bytes: names of arguments have at most 64.
const LONGEST_NAME: usize = 128;

/// An error in an argument.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name}{}{detail}", if .name.is_empty() { "" } else { ": " })]
pub struct ArgumentError {
    /// The argument; empty for the entry that counts unlisted errors.
    pub name: String,
    /// What was found, and what is allowed.
    pub detail: String,
}

/// Collects errors in arguments.
#[derive(Default)]
struct Errors {
    reported: Vec<ArgumentError>,
    more: usize,
}

impl Errors {
    fn add(&mut self, name: &str, detail: impl FnOnce() -> String) {
        if self.reported.len() < MOST_REPORTED {
            self.reported.push(ArgumentError {
                name: text::capped(name, LONGEST_NAME).into_owned(),
                detail: detail(),
            });
        } else {
            self.more += 1;
        }
    }

    fn into_vec(mut self) -> Vec<ArgumentError> {
        if self.more > 0 {
            self.reported.push(ArgumentError {
                name: String::new(),
                detail: format!("{} more are invalid; the first {MOST_REPORTED} are listed", self.more),
            });
        }
        self.reported
    }
}

impl Definition {
    /// Checks arguments: each is known, none is missing, all have their types. A `null` counts as absent.
    ///
    /// # Errors
    /// All errors, up to a limit, and the number of the rest.
    pub fn check_arguments(&self, given: Map<String, Value>) -> Result<Map<String, Value>, Vec<ArgumentError>> {
        let mut errors = Errors::default();
        let mut refused = HashSet::new();
        let mut taken = Map::new();
        for (name, value) in given {
            match self.inputs.get(&name) {
                None => errors.add(&name, || {
                    let known: Vec<_> = self.inputs.keys().map(String::as_str).collect();
                    let allowed = if known.is_empty() {
                        "none".to_owned()
                    } else {
                        unknown_name_message(&name, &known)
                    };
                    format!("is not an argument of {}; allowed: {allowed}", self.name)
                }),
                Some(_) if value.is_null() => {}
                Some(input) if !input.kind.admits(&value) => {
                    errors.add(&name, || {
                        format!("{}; allowed: {}", input.kind.refused(&value), input.kind.as_str())
                    });
                    refused.insert(name);
                }
                Some(_) => {
                    taken.insert(name, value);
                }
            }
        }
        for (name, input) in self.inputs.iter().filter(|(_, input)| input.required) {
            if !taken.contains_key(name) && !refused.contains(name) {
                errors.add(name, || format!("is missing; {} is required", input.kind.as_str()));
            }
        }
        let errors = errors.into_vec();
        if errors.is_empty() { Ok(taken) } else { Err(errors) }
    }

    /// The argument for an unnamed text: the only argument, or the only required one, if it is a string.
    pub fn text_input(&self) -> Option<&str> {
        let all = || self.inputs.iter();
        let only = match all().count() {
            1 => all().next(),
            _ => {
                let mut required = all().filter(|(_, input)| input.required);
                required.next().filter(|_| required.next().is_none())
            }
        };
        only.filter(|(_, input)| input.kind == InputType::String)
            .map(|(name, _)| name.as_str())
    }

    /// As [`Definition::check_arguments`], for a call as a tool, which may also have a timeout.
    ///
    /// # Errors
    /// As [`Definition::check_arguments`].
    pub fn check_call(&self, mut given: Map<String, Value>) -> Result<Map<String, Value>, Vec<ArgumentError>> {
        let name = self.timeout_argument();
        let timeout = given.remove(&name).filter(|value| !value.is_null());
        let is_invalid = timeout.as_ref().is_some_and(|timeout| seconds(timeout).is_none());
        let mut checked = self.check_arguments(given);
        if is_invalid {
            let detail = format!("is not a duration; allowed: a number of seconds from 1 to {}", i32::MAX);
            let mut errors = checked.err().unwrap_or_default();
            errors.push(ArgumentError { name, detail });
            return Err(errors);
        }
        if let (Ok(arguments), Some(timeout)) = (&mut checked, timeout) {
            arguments.insert(name, timeout);
        }
        checked
    }

    /// Splits the arguments of a checked call into the agent's inputs and the caller's time limit, if given.
    pub fn split_call(&self, mut arguments: Map<String, Value>) -> (Map<String, Value>, Option<Duration>) {
        let timeout = arguments.remove(&self.timeout_argument());
        let timeout = timeout.and_then(|timeout| seconds(&timeout));
        (arguments, timeout)
    }

    /// The argument for the caller's time limit. No input has this name.
    fn timeout_argument(&self) -> String {
        let mut name = "timeout".to_owned();
        while self.inputs.contains_key(&name) {
            name.push_str("_seconds");
        }
        name
    }

    /// The JSON Schema for a call as a tool: the inputs, and the time limit.
    pub fn call_schema(&self) -> Value {
        let mut schema = self.argument_schema();
        schema["properties"][self.timeout_argument()] = json!({
            "type": "number",
            "minimum": 1,
            "description": "Time limit for the agent, in seconds. Omit it to use the agent's own limit.",
        });
        schema
    }

    /// The JSON Schema of its inputs.
    pub fn argument_schema(&self) -> Value {
        let properties: Map<_, _> = self
            .inputs
            .iter()
            .map(|(name, input)| {
                let mut schema = input.kind.schema();
                schema["description"] = input.description.as_str().into();
                (name.clone(), schema)
            })
            .collect();
        let required: Vec<_> = self
            .inputs
            .iter()
            .filter(|(_, input)| input.required)
            .map(|(name, _)| name.as_str())
            .collect();
        let mut schema = json!({"type": "object", "properties": properties});
        if !required.is_empty() {
            schema["required"] = required.into();
        }
        schema
    }
}

impl InputType {
    /// The type of the elements, for a list.
    #[must_use]
    pub fn element(self) -> Option<Self> {
        match self {
            Self::Strings => Some(Self::String),
            Self::Numbers => Some(Self::Number),
            Self::Integers => Some(Self::Integer),
            Self::Booleans => Some(Self::Boolean),
            Self::String | Self::Number | Self::Integer | Self::Boolean => None,
        }
    }

    /// What was found instead of a value of this type.
    fn refused(self, value: &Value) -> String {
        let element = self.element().zip(value.as_array());
        let invalid = element.and_then(|(element, items)| items.iter().find(|item| !element.admits(item)));
        match invalid {
            Some(item) => format!("holds {}", described(item)),
            None => format!("is {}", described(value)),
        }
    }

    fn admits(self, value: &Value) -> bool {
        match (self, value) {
            (Self::String, value) => value.is_string(),
            (Self::Number, value) => value.is_number(),
            // 2.0 is an integer in JSON Schema.
            (Self::Integer, value) => {
                value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|n| n.fract() == 0.0)
            }
            (Self::Boolean, value) => value.is_boolean(),
            (list, Value::Array(items)) => {
                let element = list.element();
                element.is_some_and(|element| items.iter().all(|item| element.admits(item)))
            }
            _ => false,
        }
    }

    fn schema(self) -> Value {
        match self.element() {
            Some(element) => json!({"type": "array", "items": element.schema()}),
            None => json!({"type": self.as_str()}),
        }
    }
}

/// A caller's time limit.
fn seconds(value: &Value) -> Option<Duration> {
    let seconds = value
        .as_f64()
        .filter(|seconds| (1.0..=f64::from(i32::MAX)).contains(seconds))?;
    Some(Duration::from_secs_f64(seconds))
}

fn described(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}
