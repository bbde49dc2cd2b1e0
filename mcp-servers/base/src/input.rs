//! The arguments of a call, checked by the schema of the tool.

use rmcp::model::JsonObject;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::schema::{self, EXACT, NULL};
use crate::{Code, ToolError, text};

/// Makes the error for an argument that there is not, of the names that are allowed.
pub type Unknown = fn(&str, &[&str]) -> ToolError;

/// Checks arguments, and makes them what the tool reads: `null` counts as absent, 5.0 is 5, and texts have no white
/// space around them. The error names everything that is invalid, with the code of what comes first.
pub(crate) fn check(schema: &JsonObject, given: JsonObject, unknown: Unknown) -> Result<JsonObject, ToolError> {
    let mut given = Value::Object(given);
    let mut errors = Vec::new();
    object("", schema, &mut given, unknown, &mut errors);
    let mut errors = errors.into_iter();
    match (errors.next(), given) {
        (None, Value::Object(given)) => Ok(given),
        (None, _) => Ok(JsonObject::new()),
        (Some(first), _) => Err(errors.fold(first, |first, next| first.and(next.message()))),
    }
}

/// Checks and reads arguments that are not those of the call itself.
pub fn read<A: DeserializeOwned + JsonSchema>(given: JsonObject) -> Result<A, ToolError> {
    parse(check(&schema::input::<A>(), given, unknown)?)
}

/// Reads checked arguments.
pub(crate) fn parse<A: DeserializeOwned>(given: JsonObject) -> Result<A, ToolError> {
    serde_json::from_value(Value::Object(given)).map_err(|error| {
        let error: String = error.to_string().chars().take(300).collect();
        ToolError::new(Code::InvalidArgument, format!("The arguments are invalid: {error}."))
    })
}

/// The error for an argument that there is not.
pub fn unknown(name: &str, allowed: &[&str]) -> ToolError {
    let words = format!(
        "There is no argument `{}`. Allowed are: {}.",
        name.escape_debug(),
        allowed.join(", ")
    );
    let error = ToolError::new(Code::UnknownArgument, words).about(name);
    error.with("allowed", allowed.to_vec())
}

/// The error for a missing required argument.
pub fn missing(name: &str) -> ToolError {
    ToolError::new(Code::MissingArgument, format!("`{name}` is missing.")).about(name)
}

/// The error for an argument that breaks a rule, which is given without its name: "has to be a text".
pub fn invalid(name: &str, rule: &str) -> ToolError {
    ToolError::new(Code::InvalidArgument, format!("`{name}` {rule}.")).about(name)
}

/// The error for an argument of which there is too much, counted in `units`.
pub fn too_long(name: &str, length: usize, max: usize, units: &str) -> ToolError {
    let words = format!("`{name}` has {length} {units}; at most {max} are allowed.");
    let error = ToolError::new(Code::TooLong, words).about(name);
    error.with("max", max).with("length", length)
}

/// Reads an argument that can be `null`: `Some(None)`. It needs `#[serde(default)]` and `x-null`.
pub fn nullable<'de, T: Deserialize<'de>, D: Deserializer<'de>>(given: D) -> Result<Option<Option<T>>, D::Error> {
    Option::deserialize(given).map(Some)
}

/// A number that the operator limits.
pub fn within(name: &str, number: Option<u32>, least: u32, most: u32) -> Result<Option<u32>, ToolError> {
    match number {
        Some(number) if !(least..=most).contains(&number) => Err(invalid(
            name,
            &format!("has to be a whole number from {least} to {most}"),
        )),
        number => Ok(number),
    }
}

fn object(place: &str, schema: &JsonObject, given: &mut Value, unknown: Unknown, errors: &mut Vec<ToolError>) {
    let (Some(properties), Some(members)) = (schema["properties"].as_object(), given.as_object_mut()) else {
        return;
    };
    members.retain(|name, value| !value.is_null() || properties.get(name).is_none_or(|schema| schema[NULL] == true));
    for (name, value) in members.iter_mut() {
        match properties.get(name) {
            Some(schema) => one(&format!("{place}{name}"), schema, value, unknown, errors),
            None => {
                let allowed: Vec<_> = properties.keys().map(String::as_str).collect();
                let shown: String = name.chars().take(60).collect();
                errors.push(unknown(&format!("{place}{shown}"), &allowed));
            }
        }
    }
    let required = schema.get("required").and_then(Value::as_array).into_iter().flatten();
    let names = required.filter_map(Value::as_str);
    let absent = names.filter(|name| !members.contains_key(*name));
    errors.extend(absent.map(|name| missing(&format!("{place}{name}"))));
}

fn one(name: &str, schema: &Value, value: &mut Value, unknown: Unknown, errors: &mut Vec<ToolError>) {
    if value.is_null() {
        return;
    }
    let is =
        |kind: &str| schema["type"] == kind || schema["type"].as_array().is_some_and(|all| all.contains(&kind.into()));
    let number = |key: &str| schema[key].as_u64();
    if let Some(names) = schema["enum"].as_array() {
        if !names.contains(value) {
            let names: Vec<_> = names.iter().filter_map(Value::as_str).collect();
            errors.push(invalid(name, &format!("has to be one of: {}", names.join(", "))));
        }
    } else if is("string") {
        match value {
            Value::String(text) => errors.extend(string(name, schema, text).err()),
            _ => errors.push(invalid(name, "has to be a text")),
        }
    } else if is("integer") {
        let (least, most) = (
            number("minimum").unwrap_or(0),
            number("maximum").unwrap_or(u32::MAX.into()),
        );
        // Some models write 5 as 5.0.
        let whole = value.as_f64().filter(|number| number.fract() == 0.0);
        match whole.filter(|number| (least as f64..=most as f64).contains(number)) {
            Some(whole) => *value = (whole as u64).into(),
            None => errors.push(invalid(
                name,
                &format!("has to be a whole number from {least} to {most}"),
            )),
        }
    } else if is("boolean") {
        if !value.is_boolean() {
            errors.push(invalid(name, "has to be true or false"));
        }
    } else if is("array") {
        let most = number("maxItems").map_or(usize::MAX, |most| most as usize);
        match value {
            Value::Array(items) if items.len() > most => errors.push(too_long(name, items.len(), most, "entries")),
            Value::Array(items) => {
                for (at, item) in items.iter_mut().enumerate() {
                    one(&format!("{name}/{at}"), &schema["items"], item, unknown, errors);
                }
            }
            _ => errors.push(invalid(name, "has to be a list")),
        }
    } else if is("object") {
        match (value.is_object(), schema.as_object()) {
            (true, Some(schema)) if schema.contains_key("properties") => {
                // A member is named by itself, unless there can be several.
                let place = if name.contains('/') {
                    format!("{name}/")
                } else {
                    String::new()
                };
                object(&place, schema, value, unknown, errors);
            }
            (true, _) => {
                let values = value.as_object_mut().into_iter().flatten();
                values.for_each(|(_, value)| one(name, &schema["additionalProperties"], value, unknown, errors));
            }
            (false, _) => errors.push(invalid(name, "has to be an object")),
        }
    }
}

fn string(name: &str, schema: &Value, given: &mut String) -> Result<(), ToolError> {
    if given.contains('\0') {
        let words = format!("`{name}` contains a NUL character (U+0000), which is not allowed.");
        return Err(ToolError::new(Code::NulCharacter, words).about(name));
    }
    let is_exact = schema[EXACT] == true;
    if !is_exact {
        *given = given.trim().to_owned();
    }
    let is_empty = given.is_empty() || !is_exact && text::is_blank(given);
    let (length, least) = (given.chars().count(), schema["minLength"].as_u64().unwrap_or(0));
    match schema["maxLength"].as_u64().map(|most| most as usize) {
        Some(most) if length > most => Err(too_long(name, length, most, "characters")),
        _ if least > 0 && is_empty => Err(invalid(name, "is empty")),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[derive(Debug, PartialEq, Deserialize, JsonSchema)]
    struct Given {
        /// A name.
        #[schemars(length(min = 1, max = 5))]
        name: String,
        /// How many.
        #[schemars(range(min = 1, max = 9))]
        count: Option<u32>,
        #[schemars(length(max = 2))]
        list: Option<Vec<String>>,
        inner: Option<Inner>,
    }

    #[derive(Debug, PartialEq, Deserialize, JsonSchema)]
    struct Inner {
        #[serde(default)]
        flag: bool,
    }

    fn read(given: Value) -> Result<Given, ToolError> {
        let given = given.as_object().cloned().unwrap_or_default();
        parse(check(&schema::input::<Given>(), given, unknown)?)
    }

    #[test]
    fn valid_arguments_are_read_as_a_model_means_them() {
        let given = read(json!({ "name": " a ", "count": 5.0, "list": null, "inner": { "flag": true } }));
        let expected = Given {
            name: "a".to_owned(),
            count: Some(5),
            list: None,
            inner: Some(Inner { flag: true }),
        };
        assert_eq!(given, Ok(expected));
    }

    #[test]
    fn each_invalid_argument_has_its_code() {
        for (given, code) in [
            (json!({}), "missing_argument"),
            (json!({ "name": null }), "missing_argument"),
            (json!({ "name": "\u{200b}" }), "invalid_argument"),
            (json!({ "name": 1 }), "invalid_argument"),
            (json!({ "name": "a\0" }), "nul_character"),
            (json!({ "name": "aaaaaa" }), "too_long"),
            (json!({ "name": "a", "x": 1 }), "unknown_argument"),
            (json!({ "name": "a", "count": 1.5 }), "invalid_argument"),
            (json!({ "name": "a", "count": 10 }), "invalid_argument"),
            (json!({ "name": "a", "list": ["a", "b", "c"] }), "too_long"),
            (json!({ "name": "a", "list": [1] }), "invalid_argument"),
            (json!({ "name": "a", "inner": { "x": 1 } }), "unknown_argument"),
        ] {
            assert_eq!(read(given.clone()).map_err(|error| error.code()), Err(code), "{given}");
        }
    }

    #[test]
    fn one_error_names_everything_that_is_invalid() {
        let error = read(json!({ "name": 1, "count": 0, "inner": [] })).expect_err("invalid");
        for rule in [
            "`name` has to be a text.",
            "`count` has to be a whole number from 1 to 9.",
            "`inner` has to be an object.",
        ] {
            assert!(error.message().contains(rule), "{error:?}");
        }
    }
}
