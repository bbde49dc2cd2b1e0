//! D-1 to D-10: a field that is missing, null, blank or of another type is an error with its line; none is accepted
//! silently.

use gavel::domain::definition::{Definition, Form, json_schema};
use serde_json::{Value, json};

const TEXT_FORMS: [Form; 3] = [Form::Json, Form::Yaml, Form::Markdown];

/// One field per line, so that a line identifies a field.
fn lines(definition: &Value) -> String {
    let fields = definition.as_object().unwrap().iter();
    let fields: Vec<_> = fields.map(|(name, value)| format!("\"{name}\": {value}")).collect();
    format!("{{\n{}\n}}", fields.join(",\n"))
}

/// The definition in a format with lines; JSON is YAML, and may be a front matter.
fn read(definition: &Value, form: Form) -> Result<Definition, Vec<(String, Option<u64>)>> {
    let text = match form {
        Form::Markdown => format!("---\n{}\n---\n", lines(definition)),
        Form::Json | Form::Yaml | Form::Proto => lines(definition),
    };
    Definition::read(text.as_bytes(), form, "x").map_err(|errors| {
        let errors = errors.into_iter();
        errors.map(|error| (error.field, error.line)).collect()
    })
}

fn complete() -> Value {
    json!({
        "name": "a",
        "description": "d",
        "inputConfig": {"inputs": {"topic": {"description": "d", "type": "string", "required": true}}},
        "outputConfig": {"outputName": "report", "description": "d", "schema": {"type": "object"}},
        "promptConfig": {"query": "${topic}", "systemPrompt": "s"},
    })
}

fn flow() -> Value {
    json!({"name": "a", "description": "d", "flow_type": "sequential", "steps": [{"agent": "b"}]})
}

/// Every required field, with every invalid value, in every format with lines.
#[test]
fn a_required_field_that_is_null_blank_or_of_another_type_is_one_error_with_its_line() {
    for (base, pointer, takes_maps) in [
        (complete(), "/name", false),
        (complete(), "/description", false),
        (complete(), "/promptConfig/systemPrompt", false),
        (complete(), "/outputConfig/outputName", false),
        (complete(), "/outputConfig/description", false),
        (complete(), "/outputConfig/schema", true),
        (complete(), "/inputConfig/inputs/topic/description", false),
        (complete(), "/inputConfig/inputs/topic/type", false),
        (flow(), "/steps/0/agent", false),
    ] {
        let mut invalid = vec![json!(null), json!(""), json!(" \t\n"), json!(5), json!(true), json!([])];
        if !takes_maps {
            invalid.push(json!({}));
        }
        for value in invalid {
            let mut definition = base.clone();
            *definition.pointer_mut(pointer).unwrap() = value.clone();
            for form in TEXT_FORMS {
                let errors = read(&definition, form).expect_err("it is invalid");
                let [(field, Some(line))] = errors.as_slice() else {
                    panic!("{form:?} {pointer} = {value}: {errors:?}")
                };
                let path = pointer[1..].replace("/0/", "[0].").replace('/', ".");
                assert_eq!(*field, path, "{form:?} {pointer} = {value}");
                let head = pointer[1..].split('/').next().unwrap();
                let place = definition.as_object().unwrap().keys().position(|name| name == head);
                let before = if form == Form::Markdown { 3 } else { 2 };
                assert_eq!(*line, place.unwrap() as u64 + before, "{form:?} {pointer} = {value}");
            }
        }
    }
}

/// Every field under each of its names, with values of every type: either the definition is read, or an error has the
/// field and its line. A value that is invalid under the JSON Schema is never read.
#[test]
fn no_invalid_value_of_any_field_is_accepted_silently() {
    let schema = json_schema();
    let valid = jsonschema::draft202012::new(&schema).unwrap();
    let values = [
        json!(null),
        json!(""),
        json!(" "),
        json!("\u{feff}"),
        json!("a"),
        json!("a b"),
        json!(5),
        json!(-2),
        json!(0.5),
        json!(1e300),
        json!(true),
        json!([]),
        json!([null]),
        json!([5]),
        json!([{}]),
        json!({}),
        json!({"a": null}),
        json!({"a": {}}),
        json!({"a b": 5}),
    ];
    let properties = schema["properties"].as_object().unwrap();
    let mut places: Vec<(String, Option<String>)> = Vec::new();
    for (name, property) in properties {
        places.push((name.clone(), None));
        for inner in property["properties"]
            .as_object()
            .into_iter()
            .flat_map(|inner| inner.keys())
        {
            places.push((name.clone(), Some(inner.clone())));
        }
    }
    assert!(places.len() > 80, "{}", places.len());
    for (name, inner) in places {
        for value in &values {
            let mut definition = json!({"name": "a", "description": "d", "systemPrompt": "s"});
            definition[&name] = match &inner {
                None => value.clone(),
                Some(inner) => json!({ inner: value }),
            };
            for form in TEXT_FORMS {
                let path = inner.as_ref().map_or(name.clone(), |inner| format!("{name}.{inner}"));
                let what = format!("{form:?}: {path} = {value}");
                match read(&definition, form) {
                    Ok(_) => assert!(value.is_null() || valid.is_valid(&definition), "{what} is read"),
                    Err(errors) => {
                        assert!(!errors.is_empty(), "{what}: no error");
                        let reported = |(field, line): &(String, Option<u64>)| {
                            line.is_some() && (field.starts_with(&path) || field.starts_with(&name))
                        };
                        // A group for an output is incomplete, and the missing rest has no line; so is a prompt with
                        // other inputs than the default.
                        let incomplete =
                            valid.is_valid(&definition) || name.starts_with("output") || name.starts_with("input");
                        assert!(incomplete || errors.iter().any(reported), "{what}: {errors:?}");
                    }
                }
            }
        }
    }
}

/// Null counts as absent wherever a field is optional.
#[test]
fn null_counts_as_absent_where_a_field_is_optional() {
    let mut given = complete();
    given["inputConfig"]["inputs"]["topic"]["required"] = json!(null);
    for name in [
        "displayName",
        "processOutput",
        "modelConfig",
        "toolConfig",
        "sub_agents",
        "approval",
        "steps",
        "flow_type",
    ] {
        given[name] = json!(null);
    }
    let mut plain = complete();
    plain["inputConfig"]["inputs"]["topic"]["required"] = json!(false);
    assert_eq!(read(&given, Form::Yaml).unwrap(), read(&plain, Form::Yaml).unwrap());
    let mut steps = flow();
    steps["steps"] = json!([{"name": null, "agent": "b", "input": null, "timeout": null}]);
    steps["systemPrompt"] = json!(null);
    steps["tools"] = json!(null);
    assert_eq!(read(&steps, Form::Json).unwrap(), read(&flow(), Form::Json).unwrap());
}

/// Errors with one cause are reported as one error.
#[test]
fn consequences_of_one_error_are_not_reported() {
    let with = |more: Value| {
        let mut definition = json!({"name": "a", "description": "d"});
        for (name, value) in more.as_object().unwrap() {
            definition[name] = value.clone();
        }
        let errors = read(&definition, Form::Json).expect_err("it is invalid");
        errors.into_iter().map(|(field, _)| field).collect::<Vec<_>>()
    };
    for (more, field) in [
        (json!({"promptConfig": 5}), "promptConfig"),
        (json!({"promptConfig": "You help."}), "promptConfig"),
        (
            json!({"systemPrompt": "s", "inputConfig": [], "query": "${topic}"}),
            "inputConfig",
        ),
        (
            json!({"systemPrompt": "${x}", "inputConfig": {"inputs": ["topic"]}, "query": "${topic}"}),
            "inputConfig.inputs",
        ),
        (
            json!({"systemPrompt": "s", "outputConfig": "Report", "processOutput": "${report}"}),
            "outputConfig",
        ),
        (
            json!({"systemPrompt": "s", "outputConfig": {}, "processOutput": "${report}"}),
            "outputConfig",
        ),
        (
            json!({"systemPrompt": "s", "output_config": {"schema": null}}),
            "output_config",
        ),
        (json!({"steps": ["a"]}), "steps"),
        (json!({"steps": ["a"], "max_iterations": 2}), "steps"),
        (json!({"flow_type": "sequential"}), "promptConfig.systemPrompt"),
        (json!({"flow_type": "loop"}), "promptConfig.systemPrompt"),
        (json!({"flow_type": "sequential", "steps": 5}), "steps"),
        (json!({"flow_type": "sequential", "steps": []}), "steps"),
        (
            json!({"flow_type": "sequential", "steps": ["b"], "systemPrompt": "s", "tools": ["x"], "approval": "never", "temp": 1}),
            "approval",
        ),
        (
            json!({"flow_type": "sequential", "inputConfig": 5, "steps": [{"agent": "b", "input": {"x": "${topic}"}}]}),
            "inputConfig",
        ),
    ] {
        assert_eq!(with(more.clone()), [field], "{more}");
    }
}
