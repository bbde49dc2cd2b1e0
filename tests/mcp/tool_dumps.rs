//! The tools of ten published servers, as they list them. Every one reaches the model within Gemini's limits, and the
//! model's arguments are valid under the original schema.

use std::collections::BTreeMap;
use std::path::PathBuf;

use gavel::domain::schema::Effort;
use gavel::ports::tools::Catalog;
use serde_json::{Map, Value, json};

use super::raw::{Answer, RawServer};
use super::support::{bridge, http, up};

/// The directory with the dumps; `None`, with a message, if it is missing and not required.
fn directory() -> Option<PathBuf> {
    let shared = std::env::var_os("GAVEL_SHARED").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../shared"),
        PathBuf::from,
    );
    let directory = shared.join("mcp-tools");
    if directory.is_dir() {
        return Some(directory);
    }
    assert!(std::env::var_os("CI").is_none(), "{} is missing", directory.display());
    eprintln!("skipped: {} is missing", directory.display());
    None
}

fn dumps() -> BTreeMap<String, Value> {
    let Some(directory) = directory() else {
        return BTreeMap::new();
    };
    let mut dumps = BTreeMap::new();
    for file in std::fs::read_dir(directory).unwrap() {
        let path = file.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "json") {
            let name = path.file_stem().unwrap().to_string_lossy().into_owned();
            dumps.insert(name, serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap());
        }
    }
    assert!(dumps.len() >= 10, "only {:?}", dumps.keys());
    dumps
}

async fn listed(list: Value) -> std::sync::Arc<Catalog> {
    let server = RawServer::start(move |request| {
        (request.method() == "tools/list").then(|| Answer::Result(json!({"tools": list})))
    })
    .await;
    let mcp = bridge(&http(&server.url));
    up(&mcp).await
}

/// C-FR-012: every tool is shown within Gemini's rules, and arguments for it are valid under the original schema.
#[tokio::test]
async fn every_tool_is_shown_within_the_rules_and_its_arguments_are_valid_under_the_original() {
    for (server, dump) in dumps() {
        let catalog = listed(dump["tools"].clone()).await;
        let total = dump["tools"].as_array().unwrap().len();
        assert!(catalog.left_out.is_empty(), "{server}: {:#?}", catalog.left_out);
        assert_eq!(catalog.tools.len(), total, "{server}");
        for tool in &catalog.tools {
            let place = format!("{server}/{}", tool.name);
            let shown: Value = serde_json::from_str(tool.model_schema.get()).unwrap();
            assert_eq!(shown["type"], "object", "{place}");
            let mut invalid = Vec::new();
            check(&shown, "", &mut invalid);
            assert!(invalid.is_empty(), "{place}: {invalid:#?}");
            for full in [true, false] {
                let arguments: Value = serde_json::from_str(&sample(&shown, full).to_string()).unwrap();
                // The first check compiles the patterns; after that no ordinary call needs a separate thread.
                for effort in [Effort::Full, Effort::Quick] {
                    assert_eq!(tool.input.check(&arguments, effort), Ok(()), "{place}: {arguments}");
                }
            }
            assert_eq!(tool.digest.len(), 64);
            assert!(tool.side_effect, "{place}: hints count only where they are trusted");
        }
    }
}

/// notion repeats an unused block of definitions in each tool; it is not sent.
#[tokio::test]
async fn unused_definitions_are_not_sent_to_the_model() {
    let Some(notion) = dumps().remove("notion") else { return };
    let catalog = listed(notion["tools"].clone()).await;
    let original: usize = catalog.tools.iter().map(|tool| tool.input.original().get().len()).sum();
    let shown: usize = catalog.tools.iter().map(|tool| tool.model_schema.get().len()).sum();
    assert!(shown < original, "{shown} of {original}");
}

#[tokio::test]
async fn one_invalid_tool_never_hides_the_rest() {
    for (server, dump) in dumps() {
        let good = listed(dump["tools"].clone()).await;
        let mut list = dump["tools"].as_array().unwrap().clone();
        let cycle = json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/A"}}, "$defs": {"A": {"$ref": "#/$defs/A"}}});
        list.insert(0, json!({"name": "cycle", "inputSchema": cycle}));
        list.push(json!({"name": "odd", "inputSchema": "text"}));
        let with_bad = listed(json!(list)).await;
        assert_eq!(with_bad.tools.len(), good.tools.len(), "{server}");
        for (a, b) in with_bad.tools.iter().zip(&good.tools) {
            assert_eq!(
                (&a.name, &a.digest),
                (&b.name, &b.digest),
                "{server}: its digest depends on its neighbours"
            );
        }
    }
}

/// The rules of `docs/explanation/gemini.md` for `parametersJsonSchema`.
fn check(schema: &Value, at: &str, invalid: &mut Vec<String>) {
    const REFUSED: [&str; 12] = [
        "$ref",
        "$defs",
        "definitions",
        "$schema",
        "$id",
        "$anchor",
        "$dynamicRef",
        "const",
        "oneOf",
        "allOf",
        "$comment",
        "$recursiveRef",
    ];
    const TYPES: [&str; 7] = ["string", "number", "integer", "boolean", "array", "object", "null"];
    let Value::Object(object) = schema else {
        invalid.push(format!("{at}: {schema} is not a schema object"));
        return;
    };
    for key in REFUSED.iter().filter(|key| object.contains_key(**key)) {
        invalid.push(format!("{at}: `{key}`"));
    }
    let types: Vec<&Value> = match object.get("type") {
        None => Vec::new(),
        Some(Value::Array(types)) => types.iter().collect(),
        Some(one) => vec![one],
    };
    if !types
        .iter()
        .all(|kind| TYPES.contains(&kind.as_str().unwrap_or_default()))
    {
        invalid.push(format!("{at}: type {types:?}"));
    }
    if types.contains(&&json!("array")) && !object.contains_key("items") && !object.contains_key("prefixItems") {
        invalid.push(format!("{at}: an array without items"));
    }
    if let Some(Value::Array(values)) = object.get("enum")
        && !values.iter().all(|value| value.is_string() || value.is_number())
    {
        invalid.push(format!("{at}: enum {values:?}"));
    }
    for (name, schema) in object
        .get("properties")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        check(schema, &format!("{at}/{name}"), invalid);
    }
    for key in ["items", "additionalProperties"] {
        if let Some(schema) = object.get(key).filter(|schema| !schema.is_boolean()) {
            check(schema, &format!("{at}/{key}"), invalid);
        }
    }
    for key in ["anyOf", "prefixItems"] {
        for (n, schema) in object
            .get(key)
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .enumerate()
        {
            check(schema, &format!("{at}/{key}/{n}"), invalid);
        }
    }
}

/// A value that is valid under a shown schema: with all properties, or with the required ones.
fn sample(schema: &Value, full: bool) -> Value {
    if let Some(first) = schema["enum"].as_array().and_then(|values| values.first()) {
        return first.clone();
    }
    if let Some(choices) = schema["anyOf"].as_array().filter(|choices| !choices.is_empty()) {
        let mut value = sample(if full { &choices[0] } else { choices.last().unwrap() }, full);
        // Alternatives may be combined with the schema's own properties.
        if let (Value::Object(value), Value::Object(more)) = (&mut value, object_sample(schema, full)) {
            value.extend(more);
        }
        return value;
    }
    let kind = match &schema["type"] {
        Value::Array(kinds) => kinds[0].as_str().unwrap(),
        Value::String(kind) => kind.as_str(),
        _ if schema.get("properties").is_some() => "object",
        _ => "string",
    };
    match kind {
        "object" => object_sample(schema, full),
        "array" => {
            let count = schema["minItems"].as_u64().unwrap_or(u64::from(full));
            json!((0..count).map(|_| sample(&schema["items"], full)).collect::<Vec<_>>())
        }
        "integer" | "number" => {
            let least = schema["minimum"]
                .as_f64()
                .or(schema["exclusiveMinimum"].as_f64().map(|least| least + 1.0));
            json!(least.unwrap_or(1.0).max(-1.0e9) as i64)
        }
        "boolean" => json!(true),
        "null" => Value::Null,
        _ => text_sample(schema),
    }
}

fn object_sample(schema: &Value, full: bool) -> Value {
    let required: Vec<&str> = schema["required"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let mut out = Map::new();
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        if full || required.contains(&name.as_str()) {
            out.insert(name.clone(), sample(property, full));
        }
    }
    Value::Object(out)
}

/// The first sample text that satisfies format, pattern and lengths.
fn text_sample(schema: &Value) -> Value {
    let least = usize::try_from(schema["minLength"].as_u64().unwrap_or(0)).unwrap();
    let texts = [
        "text",
        "https://example.org/",
        "0194d6f0-0000-7000-8000-000000000000",
        "2026-11-20T12:00:00Z",
        "2026-11-20",
        "1",
        "a@example.org",
        "{}",
        &"x".repeat(least),
    ];
    let validator = jsonschema::options()
        .should_validate_formats(true)
        .build(schema)
        .unwrap();
    let fit = texts.iter().find(|text| validator.is_valid(&json!(text)));
    json!(fit.unwrap_or_else(|| panic!("no text for {schema}")))
}
