//! The schemas of a tool, from the types of its arguments and of its answer.
//!
//! Schemas use only what every model provider supports: an object at the root, no references, no combinators in the
//! arguments, no `const`. Descriptions state further rules ("exactly one of"), and the server enforces them.
//!
//! Beyond schemars' own attributes, `#[schemars(extend("x-null" = true))]` allows `null` for an argument, and
//! `#[schemars(extend("x-exact" = true))]` keeps the white space around a text.

use rmcp::model::JsonObject;
use schemars::JsonSchema;
use schemars::generate::{Contract, SchemaSettings};
use serde_json::{Value, json};

/// Allows `null` for an argument.
pub(crate) const NULL: &str = "x-null";
/// Keeps white space around a text.
pub(crate) const EXACT: &str = "x-exact";

/// The schema of arguments: these and no others. One that is optional cannot be `null`, if nothing allows that.
pub fn input<T: JsonSchema>() -> JsonObject {
    let mut schema = generate::<T>(Contract::Deserialize);
    schema.entry("properties").or_insert_with(|| json!({}));
    schema.insert("additionalProperties".to_owned(), false.into());
    schema
}

/// The schema of an answer: the object or an error; clients check both against it.
pub fn output<T: JsonSchema>() -> JsonObject {
    let mut schema = generate::<T>(Contract::Serialize);
    let required = schema.remove("required").unwrap_or_else(|| json!([]));
    schema.entry("properties").or_insert_with(|| json!({}))["error"] = json!({
        "type": "object",
        "description": "Why nothing was done. Present only when the call failed.",
        "properties": {
            "code": { "type": "string", "description": "A stable code, such as unknown_argument." },
            "message": { "type": "string", "description": "What went wrong and what to do about it." }
        },
        "required": ["code", "message"]
    });
    schema.insert("additionalProperties".to_owned(), false.into());
    schema.insert(
        "anyOf".to_owned(),
        json!([{ "required": required }, { "required": ["error"] }]),
    );
    schema
}

fn generate<T: JsonSchema>(contract: Contract) -> JsonObject {
    let is_input = contract.is_deserialize();
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.meta_schema = None;
        settings.inline_subschemas = true;
        settings.contract = contract;
    });
    let mut schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    simplify(&mut schema, is_input, false);
    let mut schema = match schema {
        Value::Object(schema) => schema,
        _ => JsonObject::new(),
    };
    schema.remove("description");
    schema
}

/// Removes what says nothing to a model, and closes every object. An argument is `null` only if that is allowed; what an
/// answer can leave out is never `null`.
fn simplify(schema: &mut Value, is_input: bool, is_optional: bool) {
    let Some(keys) = schema.as_object_mut() else {
        return;
    };
    for key in ["title", "format", "default"] {
        keys.remove(key);
    }
    // One of several names, each with a description for people who read the code.
    if let Some(Value::Array(names)) = keys.remove("oneOf") {
        let names: Vec<_> = names.iter().map(|name| name["const"].clone()).collect();
        keys.extend([("type".to_owned(), "string".into()), ("enum".to_owned(), names.into())]);
    }
    if let Some(Value::String(text)) = keys.get_mut("description") {
        *text = text.replace('\n', " ");
    }
    if keys.get("description").is_some_and(|text| text == "") {
        keys.remove("description");
    }
    if (is_input || is_optional) && !keys.contains_key(NULL) {
        for key in ["type", "enum"] {
            if let Some(Value::Array(all)) = keys.get_mut(key) {
                all.retain(|one| !one.is_null() && one != "null");
                if key == "type" && all.len() == 1 {
                    keys["type"] = all.remove(0);
                }
            }
        }
    }
    if keys.contains_key("properties") {
        keys.entry("additionalProperties").or_insert(false.into());
    }
    let required = keys.get("required").cloned().unwrap_or_default();
    let is_required = |name: &String| required.as_array().is_some_and(|all| all.contains(&json!(name)));
    let properties = keys.get_mut("properties").and_then(Value::as_object_mut);
    for (name, inner) in properties.into_iter().flatten() {
        simplify(inner, is_input, !is_required(name));
    }
    for key in ["items", "additionalProperties"] {
        keys.get_mut(key)
            .into_iter()
            .for_each(|inner| simplify(inner, is_input, false));
    }
    if keys.get("additionalProperties") == Some(&Value::Bool(true)) {
        keys.remove("additionalProperties");
    }
}

/// Removes what only the server itself needs.
pub(crate) fn hide_own(schema: &mut JsonObject) {
    schema.remove(NULL);
    schema.remove(EXACT);
    let properties = schema.get_mut("properties").and_then(Value::as_object_mut);
    let inner = properties.into_iter().flatten().map(|(_, inner)| inner);
    inner.filter_map(Value::as_object_mut).for_each(hide_own);
    if let Some(Value::Object(items)) = schema.get_mut("items") {
        hide_own(items);
    }
}
