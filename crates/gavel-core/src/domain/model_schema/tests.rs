#![allow(clippy::unwrap_used)]

use super::*;

fn ok(schema: Value) -> Value {
    translate(&schema, &[]).unwrap()
}

#[test]
fn references_are_put_in_place_and_a_siblings_word_wins() {
    let schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {"to": {"$ref": "#/$defs/Address", "description": "whom"}, "cc": {"$ref": "#/$defs/a~1b"}},
        "$defs": {
            "Address": {"type": "string", "description": "an address", "maxLength": 9},
            "a/b": {"type": "array"},
            "Unused": {"$ref": "#/$defs/Unused"}
        }
    });
    assert_eq!(
        ok(schema),
        json!({"type": "object", "properties": {
            "to": {"type": "string", "description": "whom", "maxLength": 9},
            "cc": {"type": "array", "items": {}}
        }})
    );
}

#[test]
fn what_gemini_does_not_know_is_rewritten() {
    let schema = json!({"properties": {
        "kind": {"oneOf": [{"const": "a"}, {"const": 2}, {"const": true}, {"const": null}]},
        "all": {"allOf": [{"type": "object", "properties": {"x": {}}, "required": ["x"]},
                          {"properties": {"y": true, "z": false}, "required": ["x", "y"]}]},
        "pair": {"type": "array", "items": [{"type": "string"}, {"type": "number"}]}
    }});
    assert_eq!(
        ok(schema),
        json!({"type": "object", "properties": {
            "kind": {"anyOf": [{"enum": ["a"]}, {"enum": [2]}, {"type": "boolean"}, {"type": "null"}]},
            "all": {"type": "object", "properties": {"x": {}, "y": {}}, "required": ["x", "y"]},
            "pair": {"type": "array", "prefixItems": [{"type": "string"}, {"type": "number"}]}
        }})
    );
}

#[test]
fn a_property_may_be_called_like_a_keyword() {
    let schema = json!({"type": "object", "properties": {"$ref": {"type": "string"}, "const": {"type": "string"}}});
    assert_eq!(ok(schema.clone()), schema);
}

#[test]
fn the_impossible_is_refused_with_the_reason() {
    let remote = json!({"type": "object", "properties": {"a": {"$ref": "https://example.org/x"}}});
    assert!(translate(&remote, &[]).unwrap_err().contains("points outside"));
    let nowhere = json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/X"}}});
    assert!(translate(&nowhere, &[]).unwrap_err().contains("has no target"));
    assert!(
        translate(&json!({"type": "string"}), &[])
            .unwrap_err()
            .contains("not an object")
    );
    assert!(translate(&json!([]), &[]).is_err());
}

#[test]
fn references_that_multiply_are_cut_short() {
    let mut defs = Map::new();
    for n in 0..20 {
        let next = format!("#/$defs/d{}", n + 1);
        defs.insert(
            format!("d{n}"),
            json!({"properties": {"a": {"$ref": next}, "b": {"$ref": next}}}),
        );
    }
    defs.insert("d20".to_owned(), json!({"type": "string"}));
    let bomb = json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/d0"}}, "$defs": defs});
    let shown = ok(bomb);
    assert!(shown.to_string().len() <= MAX_BYTES);
    let second = &shown["properties"]["a"]["properties"]["b"]["properties"]["a"];
    assert_eq!(second["description"], "A `d2`; its structure is validated.", "{shown}");
}

/// C-FR-012
#[test]
fn what_leads_back_to_itself_is_a_stub_at_the_second_level() {
    let stub =
        |name: &str| json!({"type": "object", "description": format!("Same structure as the enclosing `{name}`.")});
    for (schema, expected) in [
        (
            json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/N"}},
                "$defs": {"N": {"type": "object", "properties": {"v": {"type": "string"},
                    "next": {"$ref": "#/$defs/N"}, "all": {"type": "array", "items": {"$ref": "#/$defs/N"}}}}}}),
            json!({"type": "object", "properties": {"a": {"type": "object", "properties": {"v": {"type": "string"},
                "next": stub("N"), "all": {"type": "array", "items": stub("N")}}}}}),
        ),
        // A keyword beside the reference takes precedence, and a type is given if the schema only implies it.
        (
            json!({"type": "object", "properties": {"a": {"$ref": "#/definitions/N"}}, "definitions": {"N": {
                "properties": {"left": {"$ref": "#/definitions/N", "description": "smaller"}}}}}),
            json!({"type": "object", "properties": {"a": {"properties": {"left": {"type": "object", "description": "smaller"}}}}}),
        ),
        // Two that refer to each other.
        (
            json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/A"}}, "$defs": {
                "A": {"type": "object", "properties": {"b": {"$ref": "#/$defs/B"}}},
                "B": {"type": ["object", "null"], "properties": {"a": {"$ref": "#/$defs/A"}}}}}),
            json!({"type": "object", "properties": {"a": {"type": "object", "properties": {
                "b": {"type": ["object", "null"], "properties": {"a": stub("A")}}}}}}),
        ),
        (
            json!({"type": "object", "properties": {"filter": {"$ref": "#"}}}),
            json!({"type": "object", "properties": {"filter":
                {"type": "object", "description": "Same structure as the whole."}}}),
        ),
    ] {
        assert_eq!(ok(schema.clone()), expected, "{schema}");
    }
}

/// Each of a dozen definitions refers to all of them, like the tree of a query language. Expanded, they would be
/// millions.
#[test]
fn definitions_that_all_refer_to_each_other_are_shown_as_far_as_they_fit() {
    let all: Vec<Value> = (0..12).map(|n| json!({"$ref": format!("#/$defs/n{n}")})).collect();
    let each = |n: usize| json!({"type": "object", "properties": {format!("p{n}"): {"anyOf": all}}});
    let defs: Map<String, Value> = (0..12).map(|n| (format!("n{n}"), each(n))).collect();
    let shown = ok(json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/n0"}}, "$defs": defs}));
    assert!(
        shown["properties"]["a"]["properties"]["p0"]["anyOf"][1].is_object(),
        "{shown}"
    );
}

/// Promise: bounded faults. Everything that references copy counts. Each of these would take gigabytes, or minutes of
/// comparison.
#[test]
fn large_values_that_references_multiply_are_cut_short() {
    let values: Vec<String> = (0..50_000).map(|n| n.to_string()).collect();
    let properties = |one: &Value| -> Value { (0..4_000).map(|n| (n.to_string(), one.clone())).collect() };
    for definition in [
        json!({"enum": values}),
        json!({"const": values.concat()}),
        json!({"default": values}),
        json!({"examples": [{"deep": values}]}),
        json!({"description": values.concat()}),
        json!({"required": values}),
        json!({"dependentRequired": {"a": values}}),
        json!({"properties": values.iter().map(|name| (name.clone(), json!(false))).collect::<Value>()}),
        json!({"anyOf": vec![json!(false); 50_000]}),
        values
            .iter()
            .map(|name| (format!("x-{name}"), json!(0)))
            .collect::<Value>(),
    ] {
        let bomb = json!({"type": "object", "properties": properties(&json!({"$ref": "#/$defs/E"})),
                          "$defs": {"E": definition}});
        let began = std::time::Instant::now();
        let reason = translate(&bomb, &[]).unwrap_err();
        assert!(reason.contains("bytes to read"), "{reason}");
        // A limit that a loaded machine meets too; without the budget it would take minutes.
        assert!(began.elapsed().as_secs() < 10, "{:?}", began.elapsed());
    }
}

#[test]
fn required_names_are_united_each_once() {
    let part = |names: &[&str]| json!({"required": names});
    let schema = json!({"type": "object", "required": ["a"], "allOf": [part(&["b", "a"]), part(&["c", "b"])]});
    assert_eq!(ok(schema), json!({"type": "object", "required": ["a", "b", "c"]}));
}

/// One reference without a target fails the entire request with a 400, so none may remain.
#[test]
fn a_keyword_that_may_hold_an_unseen_reference_is_dropped() {
    let reference = json!({"$ref": "#/$defs/A"});
    for keyword in [
        "dependencies",
        "unevaluatedProperties",
        "unevaluatedItems",
        "additionalItems",
        "contentSchema",
        "extends",
        "somebodys-own",
    ] {
        for value in [reference.clone(), json!({"a": reference}), json!([reference])] {
            let mut schema = json!({"type": "object", "properties": {"a": {"type": "array"}}, "$defs": {"A": {}}});
            schema[keyword] = value.clone();
            schema["properties"]["a"][keyword] = value;
            let shown = ok(schema);
            assert_eq!(
                shown,
                json!({"type": "object", "properties": {"a": {"type": "array", "items": {}}}}),
                "{keyword}"
            );
        }
    }
    // And where a plain value is expected.
    let shown = ok(json!({"type": "object", "properties": {"a": {"format": reference, "title": [reference]}}}));
    assert_eq!(shown, json!({"type": "object", "properties": {"a": {}}}));
}

#[test]
fn invisible_characters_are_removed_from_text_and_refused_in_names() {
    let tagged = "x\u{202e}\u{e0041}y";
    let schema = json!({"type": "object", "properties": {"a": {
        "title": tagged, "description": "x\u{0}\u{e0041}y\nz", "pattern": tagged,
        "default": {tagged: [tagged]}, "examples": [tagged]}}});
    assert_eq!(
        ok(schema)["properties"]["a"],
        json!({"title": "xy", "description": "xy\nz", "pattern": "xy", "default": {"xy": ["xy"]}, "examples": ["xy"]})
    );
    for hiding in [
        json!({"properties": {tagged: {}}}),
        json!({"patternProperties": {tagged: {}}}),
        json!({"required": [tagged]}),
        json!({"dependentRequired": {tagged: []}}),
        json!({"dependentRequired": {"a": [tagged]}}),
        json!({"propertyOrdering": [tagged]}),
        json!({"properties": {"a": {"enum": ["a", tagged]}}}),
        json!({"properties": {"a": {"anyOf": [{"const": tagged}]}}}),
    ] {
        let reason = translate(&hiding, &[]).unwrap_err();
        assert!(reason.contains("`xy`, contains invisible characters"), "{reason}");
    }
}
