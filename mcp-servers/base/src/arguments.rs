//! Tool arguments, parsed once into valid values.

use rmcp::model::JsonObject;
use serde_json::Value;

use crate::{Code, ToolError, text};

/// The arguments of one call. An explicit `null` counts as absent, except for [`Self::is_null`] and [`Self::is_given`].
#[derive(Debug)]
pub struct Arguments(JsonObject);

impl Arguments {
    /// Accepts the arguments if each is one of `allowed`.
    pub fn new(given: Option<JsonObject>, allowed: &[&str]) -> Result<Self, ToolError> {
        let given = given.unwrap_or_default();
        match given.keys().find(|name| !allowed.contains(&name.as_str())) {
            Some(unknown) => {
                let shown: String = unknown.chars().take(60).collect();
                Err(ToolError::new(
                    Code::UnknownArgument,
                    format!(
                        "There is no argument `{}`. Allowed are: {}.",
                        shown.escape_debug(),
                        allowed.join(", ")
                    ),
                )
                .about(&shown)
                .with("allowed", allowed.to_vec()))
            }
            None => Ok(Self(given)),
        }
    }

    /// Whether the argument is present and `null`.
    pub fn is_null(&self, name: &str) -> bool {
        self.0.get(name).is_some_and(Value::is_null)
    }

    /// Whether the argument is present, even as `null`.
    pub fn is_given(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// A text of at most `max` characters, without surrounding white space.
    pub fn text(&self, name: &str, max: usize) -> Result<Option<String>, ToolError> {
        let Some(text) = self.exact_text(name)? else {
            return Ok(None);
        };
        let text = text.trim();
        let length = text.chars().count();
        if length > max {
            return Err(ToolError::new(
                Code::TooLong,
                format!("`{name}` has {length} characters; at most {max} are allowed."),
            )
            .about(name)
            .with("max", max)
            .with("length", length));
        }
        Ok(Some(text.to_owned()))
    }

    /// A text as given.
    pub fn exact_text(&self, name: &str) -> Result<Option<&str>, ToolError> {
        let Some(value) = self.value(name) else {
            return Ok(None);
        };
        let Value::String(text) = value else {
            return Err(invalid(name, "has to be a text"));
        };
        if text.contains('\0') {
            return Err(ToolError::new(
                Code::NulCharacter,
                format!("`{name}` contains a NUL character (U+0000), which is not allowed."),
            )
            .about(name));
        }
        Ok(Some(text))
    }

    /// A text with visible content.
    pub fn visible_text(&self, name: &str, max: usize) -> Result<Option<String>, ToolError> {
        match self.text(name, max)? {
            Some(given) if text::is_blank(&given) => Err(invalid(name, "is empty")),
            given => Ok(given),
        }
    }

    /// One of the given names.
    pub fn choice<T: Copy>(&self, name: &str, choices: &[(&str, T)]) -> Result<Option<T>, ToolError> {
        let Some(value) = self.value(name) else {
            return Ok(None);
        };
        let chosen = choices.iter().find(|(choice, _)| value.as_str() == Some(choice));
        match chosen {
            Some((_, chosen)) => Ok(Some(*chosen)),
            None => {
                let names: Vec<_> = choices.iter().map(|(choice, _)| *choice).collect();
                Err(invalid(name, &format!("has to be one of: {}", names.join(", "))))
            }
        }
    }

    /// A whole number between `min` and `max`.
    pub fn integer(&self, name: &str, min: u32, max: u32) -> Result<Option<u32>, ToolError> {
        let Some(value) = self.value(name) else {
            return Ok(None);
        };
        // Some models write 5 as 5.0.
        value
            .as_f64()
            .filter(|number| number.fract() == 0.0)
            .filter(|number| (f64::from(min)..=f64::from(max)).contains(number))
            .map(|number| Some(number as u32))
            .ok_or_else(|| invalid(name, &format!("has to be a whole number from {min} to {max}")))
    }

    /// A boolean.
    pub fn boolean(&self, name: &str) -> Result<Option<bool>, ToolError> {
        match self.value(name) {
            None => Ok(None),
            Some(Value::Bool(value)) => Ok(Some(*value)),
            Some(_) => Err(invalid(name, "has to be true or false")),
        }
    }

    /// The items of a list of at most `max`; `None` if it is absent.
    pub fn list(&self, name: &str, max: usize) -> Result<Option<&[Value]>, ToolError> {
        match self.value(name) {
            None => Ok(None),
            Some(Value::Array(items)) if items.len() <= max => Ok(Some(items)),
            Some(Value::Array(items)) => Err(ToolError::new(
                Code::TooLong,
                format!("`{name}` has {} entries; at most {max} are allowed.", items.len()),
            )
            .about(name)
            .with("max", max)
            .with("length", items.len())),
            Some(_) => Err(invalid(name, "has to be a list")),
        }
    }

    /// An object.
    pub fn object(&self, name: &str) -> Result<Option<&JsonObject>, ToolError> {
        match self.value(name) {
            None => Ok(None),
            Some(Value::Object(object)) => Ok(Some(object)),
            Some(_) => Err(invalid(name, "has to be an object")),
        }
    }

    fn value(&self, name: &str) -> Option<&Value> {
        self.0.get(name).filter(|value| !value.is_null())
    }
}

/// The error for a missing required argument.
pub fn missing(name: &str) -> ToolError {
    ToolError::new(Code::MissingArgument, format!("`{name}` is missing.")).about(name)
}

/// The error for an argument that breaks a rule, which is given without its name: "has to be a text".
pub fn invalid(name: &str, rule: &str) -> ToolError {
    ToolError::new(Code::InvalidArgument, format!("`{name}` {rule}.")).about(name)
}
