use std::time::{Duration, Instant};

use serde_json::json;

use super::*;
use crate::domain::canonical;

fn compile(schema: &Value) -> Result<JsonSchema, SchemaError> {
    JsonSchema::compile(canonical::to_raw(schema))
}

fn compiled(schema: &Value) -> JsonSchema {
    compile(schema).unwrap_or_else(|error| panic!("{error}"))
}

/// Twice the limit of a check, for slow machines. Without the limit, these checks take minutes or never end.
const LATE: Duration = Duration::from_secs(10);

fn in_time<T>(what: &str, work: impl FnOnce() -> T) -> T {
    let began = Instant::now();
    let done = work();
    assert!(began.elapsed() < LATE, "{what}: {:?}", began.elapsed());
    done
}

/// `$defs` in which each schema uses the next one twice, by `combine`.
fn doubling(combine: &str, levels: usize, last: Value) -> Value {
    let mut defs = serde_json::Map::new();
    for n in 0..levels {
        let next = json!({"$ref": format!("#/$defs/a{}", n + 1)});
        defs.insert(format!("a{n}"), json!({combine: [next, next]}));
    }
    defs.insert(format!("a{levels}"), last);
    json!({"type": "object", "properties": {"x": {"$ref": "#/$defs/a0"}}, "$defs": defs})
}

/// Errors repeat their subject in every branch, so collecting them has a limit.
#[test]
fn a_value_with_very_many_errors_is_refused_in_one_sentence() {
    let branches: Vec<_> = (0..50)
        .map(|n| json!({"unevaluatedProperties": false, "properties": {format!("p{n}"): true}}))
        .collect();
    let schema = compile(&json!({"properties": {"x": {"anyOf": branches}}})).unwrap();
    let fields: serde_json::Map<_, _> = (0..60_000).map(|n| (format!("f{n}"), json!(n))).collect();
    let Err(CheckError::Invalid(errors)) = schema.check(&json!({"x": fields}), Effort::Full) else {
        panic!("it is not valid")
    };
    assert_eq!(
        errors[0].to_string(),
        "/: it does not match the schema; finding the exact place takes too long"
    );
}

#[test]
fn an_error_names_the_place() {
    let schema = compiled(&json!({
        "type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"], "additionalProperties": false,
    }));
    let Err(CheckError::Invalid(errors)) = schema.check(&json!({"id": 7}), Effort::Full) else {
        panic!("7 is text")
    };
    assert_eq!(errors[0].place, "/id", "{errors:?}");
    assert_eq!(schema.check(&json!({"id": "7"}), Effort::Full), Ok(()));
    let error = schema.check(&json!({"if": 7, "it/s": 8}), Effort::Full).unwrap_err();
    assert_eq!(
        error.to_string(),
        "/if: is not known; allowed: id; /it~1s: is not known; allowed: id; /id: is missing"
    );
}

#[test]
fn an_error_does_not_grow_with_what_was_given() {
    for schema in [json!({"maxLength": 5}), json!({"pattern": "^[0-9]{1,5}$"})] {
        let schema = compiled(&json!({"type": "object", "properties": {"text": schema}}));
        let value = json!({"text": "ö".repeat(100_000)});
        let Err(CheckError::Invalid(errors)) = schema.check(&value, Effort::Full) else {
            panic!("the text is too long")
        };
        assert!(errors[0].to_string().starts_with("/text: \"öö"), "{errors:?}");
        assert!(errors[0].message.len() <= 515, "{}", errors[0].message.len());
    }
}

/// Promise: bounded faults. The 4 KB schema that froze a worker, by each keyword that applies a schema to the same
/// value.
#[test]
fn a_schema_whose_references_double_is_refused_with_the_place() {
    for combine in ["allOf", "anyOf", "oneOf"] {
        for last in [json!({}), json!(true), json!({"type": "string"}), json!({"not": {}})] {
            let schema = doubling(combine, 40, last);
            let Err(SchemaError::TooCostly { place, what, limit }) = in_time(combine, || compile(&schema)) else {
                panic!("{combine} was taken")
            };
            assert!(place.starts_with("/$defs/a"), "{place}");
            assert!(what.contains("schemas for one value") && limit == 10_000, "{what}");
        }
    }
    let chain = |n: usize| json!({"not": {"$ref": format!("#/$defs/a{}", n + 1)}, "if": {"$ref": format!("#/$defs/a{}", n + 1)}});
    let mut defs = serde_json::Map::new();
    for n in 0..40 {
        defs.insert(format!("a{n}"), chain(n));
    }
    defs.insert("a40".to_owned(), json!({}));
    assert!(compile(&json!({"$ref": "#/$defs/a0", "$defs": defs})).is_err());
}

#[test]
fn a_circle_that_never_goes_deeper_is_refused() {
    for schema in [
        json!({"$ref": "#"}),
        json!({"$defs": {"a": {"anyOf": [{"$ref": "#/$defs/b"}]}, "b": {"not": {"$ref": "#/$defs/a"}}}, "properties": {"x": {"$ref": "#/$defs/a"}}}),
        json!({"$defs": {"a/b": {"allOf": [{"$ref": "#/$defs/a~1b"}]}}}),
        json!({"$defs": {"a b": {"else": {"$dynamicRef": "#/$defs/a%20b"}}}}),
    ] {
        let refused = in_time("a cycle", || compile(&schema));
        let Err(SchemaError::TooCostly { what, .. }) = &refused else {
            panic!("{schema}: {refused:?}")
        };
        assert!(what.contains("cycle"), "{what}");
    }
}

/// A reference leads to a part of the schema, or to a published meta-schema. Otherwise its cost cannot be estimated.
#[test]
fn references_lead_to_parts_of_the_schema() {
    for schema in [
        json!({"$defs": {"a": {"$anchor": "me", "allOf": [{"$ref": "#me"}]}}, "properties": {"x": {"$ref": "#me"}}}),
        json!({"$defs": {"a": {"$id": "other", "$ref": "#/$defs/b", "$defs": {"b": {"$ref": "#"}}}}}),
        json!({"x": {"$schema": "http://json-schema.org/draft-04/schema#", "id": "y"}, "not": {"$ref": "#/x"}}),
        json!({"$schema": "http://json-schema.org/draft-04/schema#", "items": {"id": "y", "not": {"$ref": "#"}}}),
        json!({"$id": "https://json-schema.org/a", "not": {"$ref": "https://json-schema.org/a"}}),
        json!({"$ref": "https://example.org/other"}),
        json!({"$ref": "#/$defs/none"}),
    ] {
        let refused = in_time("a reference", || compile(&schema));
        assert!(matches!(refused, Err(SchemaError::Invalid(_))), "{schema}: {refused:?}");
    }
    for schema in [
        json!({"$id": "https://example.org/a", "properties": {"id": {"$ref": "#/$defs/a"}}, "$defs": {"a": {}}}),
        json!({"$ref": "https://json-schema.org/draft/2020-12/schema"}),
        json!({"items": {"$ref": "#"}}),
    ] {
        assert!(compile(&schema).is_ok(), "{schema}");
    }
}

#[test]
fn long_chains_are_refused_and_do_not_take_the_stack() {
    for levels in [100, 20_000] {
        let mut defs = serde_json::Map::new();
        for n in 0..levels {
            defs.insert(format!("a{n}"), json!({"$ref": format!("#/$defs/a{}", n + 1)}));
        }
        defs.insert(format!("a{levels}"), json!({"type": "string"}));
        let schema = json!({"properties": {"x": {"$ref": "#/$defs/a0"}}, "$defs": defs});
        let refused = in_time("a chain", || compile(&schema)).unwrap_err();
        assert!(refused.to_string().contains("a longer chain of"), "{refused}");
    }
}

#[test]
fn a_chain_that_goes_deeper_does_not_take_the_stack() {
    let mut defs = serde_json::Map::new();
    for n in 0..5_000 {
        let next = json!({"$ref": format!("#/$defs/a{}", n + 1)});
        defs.insert(format!("a{n}"), json!({"properties": {"x": next}, "items": next}));
    }
    defs.insert("a5000".to_owned(), json!({"type": "string"}));
    let schema = json!({"$ref": "#/$defs/a0", "$defs": defs});
    in_time("a long chain", || {
        let Ok(schema) = compile(&schema) else { return };
        let mut value = json!(7);
        for _ in 0..60 {
            value = json!({"x": value});
        }
        assert_ne!(schema.check(&value, Effort::Full), Err(CheckError::TooCostly));
    });
}

/// Promise: bounded faults. Work that no estimate can predict is counted during the check.
#[test]
fn a_check_ends_when_its_effort_is_used_up() {
    let deep = |levels: usize, leaf: Value| (0..levels).fold(leaf, |value, _| json!([value]));
    let many = |n: usize| Value::Array((0..n).map(|n| json!(n)).collect());
    let twice = |schema: &str| -> Value { serde_json::from_str(schema).unwrap() };
    let patterns: Vec<_> = (0..400)
        .map(|n| json!({"pattern": format!("^(?=.*[A-Z])(?=.*\\d)(?:a|ab)*{n}$")}))
        .collect();
    let texts: Vec<_> = (0..20_000).map(|n| json!(format!("{}{n}", "ab".repeat(200)))).collect();
    let unions: Vec<_> = (0..200)
        .map(|n| json!({"properties": {format!("p{n}"): {"type": "string"}}}))
        .collect();
    let object: serde_json::Map<String, Value> = (0..20_000).map(|n| (format!("q{n}"), json!(n))).collect();
    let cases = [
        (
            "a schema that uses itself twice for each level",
            twice(r##"{"allOf": [{"items": {"$ref": "#"}}, {"items": {"$ref": "#"}}]}"##),
            deep(60, many(3)),
        ),
        (
            "the same with branches that fail",
            twice(
                r##"{"anyOf": [{"type": "array", "items": {"$ref": "#"}, "maxItems": 1}, {"type": "array", "items": {"$ref": "#"}, "minItems": 1}]}"##,
            ),
            deep(59, json!(1)),
        ),
        (
            "what is not evaluated, within itself",
            twice(
                r##"{"anyOf": [{"items": {"$ref": "#"}, "unevaluatedItems": false}, {"prefixItems": [{"$ref": "#"}], "unevaluatedItems": {"$ref": "#"}}], "unevaluatedItems": {"$ref": "#"}}"##,
            ),
            deep(40, many(3)),
        ),
        (
            "unique items, over and over",
            json!({"allOf": vec![json!({"uniqueItems": true}); 4_000]}),
            many(50_000),
        ),
        (
            "a large value compared with many",
            json!({"allOf": vec![json!({"enum": [many(2_000)]}); 20]}),
            many(2_000),
        ),
        (
            "looking ahead in many texts",
            json!({"items": {"allOf": patterns}}),
            Value::Array(texts),
        ),
        (
            "what is not evaluated, in a wide object",
            json!({"anyOf": unions, "unevaluatedProperties": {"type": "number"}}),
            Value::Object(object.clone()),
        ),
        (
            "names matched with many patterns",
            json!({"patternProperties": (0..30).map(|n| (format!("^[a-z]*{n}.{{1,40}}x$"), json!({}))).collect::<serde_json::Map<_, _>>()}),
            Value::Object(object),
        ),
        (
            "a very long name",
            json!({"patternProperties": {"^(a|b)*$": true}}),
            json!({"ab".repeat(500_000): 1}),
        ),
    ];
    for (n, (what, schema, value)) in cases.into_iter().enumerate() {
        let schema = in_time(what, || compiled(&schema));
        for effort in [Effort::Quick, Effort::Full] {
            let found = in_time(what, || schema.check(&value, effort));
            // The validator caches references, so the first three are cheap. The others exhaust any quick check.
            if effort == Effort::Quick && n > 2 {
                assert_eq!(found, Err(CheckError::TooCostly), "{what}");
            }
        }
    }
}

#[test]
fn patterns_take_a_bounded_room_however_short_they_are() {
    // Each takes megabytes compiled; 512 KiB of them took 9 GB.
    let properties: serde_json::Map<String, Value> = (0..400)
        .map(|n| {
            (
                format!("p{n}"),
                json!({"pattern": format!("^x{n}(?:[^\\u{{0}}-\\u{{20}}]{{30}}|y)*z{{2,60}}$")}),
            )
        })
        .collect();
    let value: serde_json::Map<String, Value> = (0..400).map(|n| (format!("p{n}"), json!("xyz"))).collect();
    let before = resident();
    let schema = compiled(&json!({"type": "object", "properties": properties}));
    let _ = in_time("400 patterns", || schema.check(&Value::Object(value), Effort::Full));
    let grown = resident().saturating_sub(before);
    assert!(grown < 200, "{grown} MiB");
}

/// Memory of this process, in MiB.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS:"))
        .unwrap_or_default();
    let kib: u64 = line
        .split_whitespace()
        .nth(1)
        .and_then(|n| n.parse().ok())
        .unwrap_or_default();
    kib / 1024
}

#[test]
fn too_many_patterns_are_refused_and_a_pattern_that_is_none_too() {
    let properties = |n: usize| -> serde_json::Map<String, Value> {
        (0..n)
            .map(|n| (format!("p{n}"), json!({"pattern": format!("^a{n}$")})))
            .collect()
    };
    assert!(compile(&json!({"properties": properties(512)})).is_ok());
    let refused = compile(&json!({"properties": properties(513)})).unwrap_err();
    assert!(refused.to_string().contains("513 patterns"), "{refused}");
    let names =
        |n: usize| -> serde_json::Map<String, Value> { (0..n).map(|n| (format!("^a{n}$"), json!({}))).collect() };
    assert!(compile(&json!({"patternProperties": names(33)})).is_err());
    let refused = compile(&json!({"properties": {"a": {"pattern": "(unclosed"}}})).unwrap_err();
    assert!(matches!(refused, SchemaError::Invalid(_)), "{refused}");
}

#[test]
fn patterns_mean_what_they_meant() {
    for (pattern, good, bad) in [
        (r"^\d{4}-\d{2}-\d{2}$", "2026-11-25", "tomorrow"),
        (r"^(?!.*\.\.)[a-z.]+$", "a.b", "a..b"),
        (r"^(?=.*[A-Z])(?=.*\d).{8,}$", "Abcdefg1", "abcdefg1"),
        (r"^\p{L}{1,200}$", "Zoë", "a1"),
        (r"(?i)yes", "YES", "no"),
        (r"^(a)\1$", "aa", "ab"),
    ] {
        let Ok(schema) = compile(&json!({"pattern": pattern})) else {
            panic!("{pattern} is not taken")
        };
        // Not quickly: a busy machine may take a quick check's whole time for something else.
        assert_eq!(schema.check(&json!(good), Effort::Full), Ok(()), "{pattern}");
        assert!(
            matches!(schema.check(&json!(bad), Effort::Full), Err(CheckError::Invalid(_))),
            "{pattern}"
        );
        assert_eq!(schema.check(&json!(7), Effort::Full), Ok(()), "{pattern}");
    }
}

/// A format check counts as one access, so it must be fast by itself.
#[test]
fn no_format_takes_long_on_a_long_text() {
    let formats = [
        "date",
        "date-time",
        "time",
        "duration",
        "email",
        "idn-email",
        "hostname",
        "idn-hostname",
        "ipv4",
        "ipv6",
        "uri",
        "uri-reference",
        "iri",
        "iri-reference",
        "uri-template",
        "uuid",
        "json-pointer",
        "relative-json-pointer",
        "regex",
    ];
    let texts = [
        "a", "(", "[", "a.", "a@", "1", "{", "\\", "é", "-", "/", "%", "a|", ":", "(?:",
    ];
    for format in formats {
        for draft in [
            "https://json-schema.org/draft/2020-12/schema",
            "http://json-schema.org/draft-07/schema#",
        ] {
            let schema = compiled(&json!({"$schema": draft, "format": format}));
            for text in texts {
                let value = Value::String(text.repeat(200_000 / text.len()));
                in_time(&format!("{format} of {text}"), || {
                    schema.check(&value, Effort::Full).is_ok()
                });
            }
        }
    }
}

#[test]
fn the_draft_a_schema_names_is_the_one_it_is_checked_by() {
    let seventh = json!({"$schema": "http://json-schema.org/draft-07/schema#", "items": [{"type": "string"}], "additionalItems": false});
    assert!(compiled(&seventh).check(&json!(["a", 1]), Effort::Full).is_err());
    assert_eq!(compiled(&seventh).check(&json!(["a"]), Effort::Full), Ok(()));
}

/// Counting does not change the result of a validation.
#[test]
fn counting_changes_no_verdict() {
    let schema = json!({
        "type": "object",
        "properties": {
            "n": {"type": "integer", "minimum": 1, "multipleOf": 0.5}, "e": {"enum": [1, "a", {"b": [2.0]}]},
            "u": {"uniqueItems": true}, "c": {"const": {"x": null}}, "s": {"minLength": 2, "maxLength": 3},
            "i": {"prefixItems": [{"type": "string"}], "items": {"type": "number"}, "contains": {"const": 3}},
        },
        "propertyNames": {"maxLength": 6}, "dependentRequired": {"n": ["s"]}, "minProperties": 1,
    });
    let plain = jsonschema::validator_for(&schema).unwrap();
    let counted = compiled(&schema);
    for value in [
        json!({"n": 1.0, "s": "ab"}),
        json!({"n": 1.5, "s": "ab"}),
        json!({"n": 1}),
        json!({"e": {"b": [2]}}),
        json!({"e": {"b": [3]}}),
        json!({"u": [1, 1.0]}),
        json!({"u": [{"a": 1}, {"a": 2}]}),
        json!({"c": {"x": null}}),
        json!({"c": {"x": 0}}),
        json!({"s": "öö"}),
        json!({"s": "öööö"}),
        json!({"i": ["a", 3]}),
        json!({"i": ["a", 4]}),
        json!({"i": [1]}),
        json!({"muchtoolong": 1}),
        json!({}),
        json!([]),
    ] {
        let errors = |result: Result<(), CheckError>| match result {
            Ok(()) => 0,
            Err(CheckError::Invalid(errors)) => errors.len(),
            Err(CheckError::TooCostly) => usize::MAX,
        };
        let found = errors(counted.check(&value, Effort::Full));
        assert_eq!(found, plain.iter_errors(&value).take(8).count(), "{value}");
    }
}
