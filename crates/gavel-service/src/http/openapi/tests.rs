use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::document;
use crate::domain::agent_run::MOST_TIME;
use crate::http::error::Code;
use crate::http::routes::table;

fn text() -> Value {
    serde_json::from_str(&document().to_json().unwrap()).unwrap()
}

/// Visits every object of the document, with its place.
fn walk(value: &Value, place: &str, visit: &mut dyn FnMut(&str, &Map<String, Value>)) {
    match value {
        Value::Object(object) => {
            visit(place, object);
            for (name, inner) in object {
                walk(
                    inner,
                    &format!("{place}/{}", name.replace('~', "~0").replace('/', "~1")),
                    visit,
                );
            }
        }
        Value::Array(items) => {
            for (n, inner) in items.iter().enumerate() {
                walk(inner, &format!("{place}/{n}"), visit);
            }
        }
        _ => {}
    }
}

fn operations(document: &Value) -> Vec<(String, &Value)> {
    let paths = document["paths"].as_object().unwrap();
    paths
        .iter()
        .flat_map(|(path, item)| {
            item.as_object()
                .unwrap()
                .iter()
                .map(move |(method, operation)| (format!("{method} {path}"), operation))
        })
        .collect()
}

#[test]
fn the_document_describes_the_route_table_and_nothing_else() {
    let document = text();
    assert!(document["openapi"].as_str().unwrap().starts_with("3.1."));
    let described: BTreeSet<_> = operations(&document).into_iter().map(|(name, _)| name).collect();
    // docs/reference/console.md describes the pages.
    let routes: BTreeSet<_> = table()
        .iter()
        .map(|entry| &entry.route)
        .filter(|route| !route.path.starts_with("/console"))
        .map(|route| format!("{} {}", route.method.as_str().to_lowercase(), route.path))
        .collect();
    assert_eq!(described, routes);
}

#[test]
fn every_reference_leads_somewhere_and_every_schema_compiles() {
    let document = text();
    walk(&document, "", &mut |place, object| {
        if let Some(Value::String(target)) = object.get("$ref") {
            let pointer = target.strip_prefix('#').unwrap();
            assert!(document.pointer(pointer).is_some(), "{place} names {target}");
        }
    });
    let schemas = document["components"]["schemas"].as_object().unwrap();
    let reference = |name: &String| (name.clone(), json!({ "$ref": format!("#/components/schemas/{name}") }));
    compiled(&document, schemas.keys().map(reference).collect());
}

#[test]
fn every_operation_has_what_openapi_asks_for() {
    let document = text();
    let schemes: BTreeSet<_> = document["components"]["securitySchemes"]
        .as_object()
        .unwrap()
        .keys()
        .cloned()
        .collect();
    assert_eq!(schemes, BTreeSet::from(["api_key".to_owned(), "bearer".to_owned()]));
    let mut ids = BTreeSet::new();
    for (name, operation) in operations(&document) {
        assert!(
            ids.insert(operation["operationId"].as_str().unwrap().to_owned()),
            "{name}: id used twice"
        );
        assert!(
            operation["summary"].is_string() && operation["tags"].is_array(),
            "{name}"
        );
        let path = name.split_once(' ').unwrap().1;
        let parameters = operation["parameters"].as_array().unwrap();
        let in_path: Vec<_> = parameters.iter().filter(|one| one["in"] == "path").collect();
        assert_eq!(in_path.len(), path.matches('{').count(), "{name}");
        for parameter in in_path {
            assert!(
                path.contains(&format!("{{{}}}", parameter["name"].as_str().unwrap())),
                "{name}"
            );
            assert_eq!(parameter["required"], true, "{name}");
        }
        for (status, response) in operation["responses"].as_object().unwrap() {
            assert!((100..600).contains(&status.parse::<u16>().unwrap()), "{name}");
            assert!(!response["description"].as_str().unwrap().is_empty(), "{name} {status}");
            assert!(response["headers"]["X-Request-Id"].is_object(), "{name} {status}");
            for (header, about) in response["headers"].as_object().unwrap() {
                assert!(about["description"].is_string(), "{name} {status} {header}");
            }
        }
        let left: Vec<_> = operation
            .as_object()
            .unwrap()
            .keys()
            .filter(|key| key.starts_with("x-"))
            .collect();
        assert!(left.is_empty(), "{name}: {left:?} is for the generator alone");
    }
    walk(&document, "", &mut |place, object| {
        for requirement in object.get("security").and_then(Value::as_array).into_iter().flatten() {
            for scheme in requirement.as_object().unwrap().keys() {
                assert!(schemes.contains(scheme), "{place} names {scheme}");
            }
        }
    });
}

#[test]
fn examples_fit_their_schemas() {
    let document = text();
    let (mut schemas, mut examples) = (Map::new(), Map::new());
    walk(&document, "", &mut |place, object| {
        if let (Some(schema), Some(example)) = (object.get("schema"), object.get("example")) {
            schemas.insert(place.to_owned(), schema.clone());
            examples.insert(place.to_owned(), example.clone());
        }
    });
    assert!(examples.len() > 20, "{} examples", examples.len());
    let errors: Vec<_> = compiled(&document, schemas)
        .iter_errors(&Value::Object(examples))
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect();
    assert!(errors.is_empty(), "{errors:#?}");
}

/// All `schemas` at once, each for the property of its name: compiling the whole document for each takes seconds.
fn compiled(document: &Value, schemas: Map<String, Value>) -> jsonschema::Validator {
    let whole = json!({ "properties": schemas, "components": document["components"] });
    jsonschema::draft202012::new(&whole).unwrap_or_else(|error| panic!("{}: {error}", error.instance_path()))
}

#[test]
fn every_code_is_listed_and_documented_where_it_can_come() {
    let document = text();
    let about = document["info"]["description"].as_str().unwrap();
    let listed = &document["components"]["schemas"]["ProblemCode"]["enum"];
    assert_eq!(listed.as_array().unwrap().len(), Code::ALL.len());
    let described = document["paths"].to_string();
    for code in Code::ALL {
        assert!(
            about.contains(&format!("| {} | `{}` |", code.status(), code.as_str())),
            "{code:?}"
        );
        assert!(
            described.contains(&format!("`{}`", code.as_str())),
            "{code:?} is on no operation"
        );
    }
}

/// Generators of clients name the variants of a union by their schemas, and tell them apart by the discriminator.
#[test]
fn each_line_of_a_stream_is_a_schema_of_its_own_that_its_type_names() {
    let document = text();
    let schemas = document["components"]["schemas"].as_object().unwrap();
    for union in ["StreamLine", "RunLine", "AgentRunLine", "ThreadLine", "PlanningLine"] {
        let union = &schemas[union];
        assert_eq!(union["discriminator"]["propertyName"], "type");
        let mapping = union["discriminator"]["mapping"].as_object().unwrap();
        let refs: BTreeSet<_> = union["oneOf"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| &one["$ref"])
            .map(Value::to_string)
            .collect();
        assert_eq!(refs, mapping.values().map(Value::to_string).collect());
        for (kind, schema) in mapping {
            let schema = document.pointer(&schema.as_str().unwrap()[1..]).unwrap();
            let parts = schema["allOf"]
                .as_array()
                .cloned()
                .unwrap_or_else(|| vec![schema.clone()]);
            let named = parts.iter().any(|part| {
                part["properties"]["type"]["enum"] == json!([kind])
                    && part["required"].as_array().unwrap().contains(&"type".into())
            });
            assert!(named, "{kind}: {schema}");
        }
    }
}

/// Readers of a stream find each type of line in the reference.
#[test]
fn the_reference_has_each_type_of_event() {
    let document = text();
    let pages = [
        include_str!("../../../../../docs/reference/events.md"),
        include_str!("../../../../../docs/reference/http-chat.md"),
    ];
    let kinds = document["components"]["schemas"]["AgentRunLine"]["discriminator"]["mapping"].as_object();
    for kind in kinds.unwrap().keys() {
        assert!(pages.iter().any(|page| page.contains(&format!("`{kind}`"))), "{kind}");
    }
}

/// An object without a name gets one from the generator, which changes with its place.
#[test]
fn no_object_with_fields_is_without_a_name() {
    let document = text();
    let mut found = Vec::new();
    walk(&document, "", &mut |place, object| {
        // A schema of its own, or the part of one that it adds to another.
        let name = place.strip_prefix("/components/schemas/").unwrap_or("a/b/c/d");
        let is_named = !name.contains('/') || (name.matches('/').count() == 2 && name.contains("/allOf/"));
        if object.get("properties").is_some_and(Value::is_object) && object.contains_key("type") && !is_named {
            found.push(place.to_owned());
        }
    });
    assert!(found.is_empty(), "{found:#?}");
}

/// Without it an object without fields takes none, as some generators read it.
#[test]
fn an_object_without_described_fields_takes_any() {
    let document = text();
    let mut seen = 0;
    walk(&document, "", &mut |place, object| {
        let types = object.get("type").map(Value::to_string).unwrap_or_default();
        if types.contains("\"object\"") && !object.contains_key("properties") {
            assert!(object.contains_key("additionalProperties"), "{place}");
            seen += 1;
        }
    });
    assert!(seen > 10, "{seen}");
}

#[test]
fn the_longest_time_of_a_run_is_as_enforced() {
    let document = text();
    let mut seen = 0;
    walk(&document, "", &mut |place, object| {
        if object.get("name").is_some_and(|name| name == "timeout_s") {
            assert_eq!(object["schema"]["maximum"], MOST_TIME.as_secs(), "{place}");
            seen += 1;
        }
    });
    assert_eq!(seen, 2);
}

/// The schema has the limits of the values that are checked after serde.
#[test]
fn the_request_schema_accepts_what_the_parser_accepts() {
    use crate::surfaces::chat::request::ChatRequest;
    let parsed = |body: &str| {
        let body = crate::http::body::parse(body.as_bytes()).ok();
        body.and_then(|body| ChatRequest::new(body).ok())
    };
    let mut schema = text();
    schema["$ref"] = "#/components/schemas/ChatRequest".into();
    let schema = jsonschema::draft202012::new(&schema).unwrap();
    let good = [
        r#"{"message":"hi","user_id":"u"}"#,
        r#"{"message":"hi"}"#,
        r#"{"message":"hi","user_id":null,"conversation_id":null,"history":null,"tools":null,"time_zone":null}"#,
        r#"{"message":"hi","user_id":"u","conversation_id":"c","history":[{"role":"user","content":"a"},{"role":"assistant","content":""}],"tools":["add_task"],"time_zone":"Europe/Berlin"}"#,
    ];
    let bad = [
        "[]",
        "{}",
        r#"{"message":""}"#,
        r#"{"message":7}"#,
        r#"{"message":"hi","colour":1}"#,
        r#"{"message":"hi","user_id":""}"#,
        r#"{"message":"hi","tools":"x"}"#,
        r#"{"message":"hi","history":[{"role":"system","content":"x"}]}"#,
        r#"{"message":"hi","history":[{"role":"user"}]}"#,
        r#"{"message":"hi","history":[{"role":"user","content":"x","extra":1}]}"#,
    ];
    for body in good {
        let value: Value = serde_json::from_str(body).unwrap();
        assert!(parsed(body).is_some(), "{body}");
        assert!(schema.is_valid(&value), "{body}");
    }
    for body in bad {
        let value: Value = serde_json::from_str(body).unwrap();
        assert!(parsed(body).is_none(), "{body}");
        assert!(!schema.is_valid(&value), "{body}");
    }
}
