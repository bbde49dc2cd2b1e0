//! Schemas and values: `[schema, value]` in JSON as in the seeds, or generated from the bytes, so that most of them
//! compile.
#![no_main]

use arbitrary::{Result, Unstructured};
use serde_json::{Map, Value, json};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok([schema, value]) = serde_json::from_slice::<[Value; 2]>(bytes) {
        gavel::fuzzing::schema(&schema, &value);
        return;
    }
    if let Ok((schema, value)) = made(&mut Unstructured::new(bytes)) {
        gavel::fuzzing::schema(&schema, &value);
    }
});

const PATTERNS: [&str; 8] = [
    "^(a|ab)*$",
    "(?=.*a)(?!b)a{2,9}",
    r"^\p{L}{1,40}$",
    r"(a+)+\1",
    "[^x]{50}",
    "^$",
    "x|y|z",
    r"^\d{4}-\d{2}$",
];
const NAMES: [&str; 5] = ["a", "b", "ab", "x-long-name", "é"];
const FORMATS: [&str; 8] = [
    "date-time",
    "uri",
    "regex",
    "email",
    "uuid",
    "ipv6",
    "idn-hostname",
    "duration",
];

/// Levels of nesting in a value below its root.
const OUTERMOST: u8 = 5;

/// A schema with definitions that refer to each other, and a value.
fn made(bytes: &mut Unstructured<'_>) -> Result<(Value, Value)> {
    let mut root = schema(bytes, 4)?;
    let defs: Result<Map<String, Value>> = (0..6).map(|n| Ok((format!("a{n}"), schema(bytes, 2)?))).collect();
    if let Value::Object(root) = &mut root {
        root.insert("$defs".to_owned(), Value::Object(defs?));
    }
    Ok((root, value(bytes, OUTERMOST + 1)?))
}

fn list<T>(bytes: &mut Unstructured<'_>, make: impl Fn(&mut Unstructured<'_>) -> Result<T>) -> Result<Vec<T>> {
    let length = bytes.int_in_range(0..=4)?;
    (0..length).map(|_| make(bytes)).collect()
}

fn schemas(bytes: &mut Unstructured<'_>, depth: u8) -> Result<Value> {
    Ok(list(bytes, |bytes| schema(bytes, depth))?.into())
}

fn named(bytes: &mut Unstructured<'_>, depth: u8) -> Result<Value> {
    let members = list(bytes, |bytes| Ok(((*bytes.choose(&NAMES)?).to_owned(), schema(bytes, depth)?)))?;
    Ok(Value::Object(members.into_iter().collect()))
}

fn reference(bytes: &mut Unstructured<'_>) -> Result<Value> {
    Ok(json!(format!("#/$defs/a{}", bytes.int_in_range(0..=5)?)))
}

fn schema(bytes: &mut Unstructured<'_>, depth: u8) -> Result<Value> {
    if depth == 0 {
        return Ok(match bytes.int_in_range(0..=3)? {
            0 => json!(true),
            1 => json!({}),
            2 => json!({"type": "string"}),
            _ => json!({"$ref": reference(bytes)?}),
        });
    }
    let depth = depth - 1;
    let mut out = Map::new();
    for _ in 0..bytes.int_in_range(1..=4)? {
        let (key, value) = match bytes.int_in_range(0..=25)? {
            0 => ("allOf", schemas(bytes, depth)?),
            1 => ("anyOf", schemas(bytes, depth)?),
            2 => ("oneOf", schemas(bytes, depth)?),
            3 => ("not", schema(bytes, depth)?),
            4 => ("if", schema(bytes, depth)?),
            5 => ("then", schema(bytes, depth)?),
            6 => ("else", schema(bytes, depth)?),
            7 => ("items", schema(bytes, depth)?),
            8 => ("prefixItems", schemas(bytes, depth)?),
            9 => ("contains", schema(bytes, depth)?),
            10 => ("properties", named(bytes, depth)?),
            11 => ("additionalProperties", schema(bytes, depth)?),
            12 => ("unevaluatedProperties", schema(bytes, depth)?),
            13 => ("unevaluatedItems", schema(bytes, depth)?),
            14 => ("propertyNames", schema(bytes, depth)?),
            15 => ("dependentSchemas", named(bytes, depth)?),
            16 => ("$ref", reference(bytes)?),
            17 => ("$ref", json!("#")),
            18 => ("pattern", json!(bytes.choose(&PATTERNS)?)),
            19 => {
                let name = *bytes.choose(&PATTERNS)?;
                ("patternProperties", json!({name: schema(bytes, depth)?}))
            }
            20 => ("format", json!(bytes.choose(&FORMATS)?)),
            21 => ("enum", list(bytes, |bytes| value(bytes, 2))?.into()),
            22 => ("const", value(bytes, 2)?),
            23 => ("uniqueItems", json!(true)),
            24 => ("multipleOf", json!(bytes.arbitrary::<f64>()?.abs().max(1e-300))),
            _ => ("required", json!([bytes.choose(&NAMES)?])),
        };
        out.insert(key.to_owned(), value);
    }
    Ok(Value::Object(out))
}

fn value(bytes: &mut Unstructured<'_>, depth: u8) -> Result<Value> {
    let depth = depth.saturating_sub(1);
    Ok(match bytes.int_in_range(0..=7)? {
        0 => Value::Null,
        1 => json!(bytes.arbitrary::<bool>()?),
        2 => json!(bytes.arbitrary::<i64>()?),
        3 => json!(bytes.arbitrary::<f64>()?),
        4 => json!(bytes.choose(&NAMES)?.repeat(bytes.int_in_range(0..=400)?)),
        5 => json!(bytes.arbitrary::<&str>()?),
        6 if depth > 0 => {
            let item = value(bytes, depth)?;
            // Only the outermost level repeats a construct many times: quadratic cost shows, and the value itself stays
            // small.
            let most = if depth == OUTERMOST { 60 } else { 3 };
            vec![item; bytes.int_in_range(0..=most)?].into()
        }
        _ if depth > 0 => {
            let members = list(bytes, |bytes| Ok(((*bytes.choose(&NAMES)?).to_owned(), value(bytes, depth)?)))?;
            Value::Object(members.into_iter().collect())
        }
        _ => Value::Null,
    })
}
