//! GitHub's own description of its REST API, as published in npm's @octokit/openapi. It is third-party data and not part
//! of the project: the package is unpacked below the target directory.

mod fill;
mod installed;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use jsonschema::Validator;
use serde_json::{Map, Value, json};

pub(crate) use installed::description;

/// The description.
pub(crate) struct Description {
    document: Value,
    validators: Mutex<BTreeMap<String, Arc<Validator>>>,
}

/// One operation.
#[derive(Clone, Copy)]
pub(crate) struct Operation<'a> {
    template: &'a str,
    verb: &'a str,
    value: &'a Value,
}

impl Description {
    fn resolve<'a>(&'a self, value: &'a Value) -> &'a Value {
        match value["$ref"].as_str().and_then(|name| name.strip_prefix('#')) {
            Some(pointer) => self.resolve(self.document.pointer(pointer).expect("a component")),
            None => value,
        }
    }

    /// The operation of a request. Literal segments win over parameters.
    pub(crate) fn operation(&self, verb: &str, path: &str) -> Option<Operation<'_>> {
        let verb_name = verb.to_lowercase();
        let paths = self.document["paths"].as_object().expect("paths");
        let fitting = paths.iter().filter(|(template, _)| fits(template, path));
        let fitting = fitting.filter_map(|(template, value)| {
            let (verb, value) = value.as_object()?.get_key_value(&verb_name)?;
            Some(Operation { template, verb, value })
        });
        fitting.min_by_key(|operation| operation.template.matches('{').count())
    }

    /// The errors in a request.
    pub(crate) fn check_request(
        &self,
        operation: Operation<'_>,
        query: &[(String, String)],
        body: Option<&Value>,
    ) -> Vec<String> {
        let Operation { template, verb, value } = operation;
        let mut invalid = Vec::new();
        let parameters: Vec<_> = value["parameters"].as_array().into_iter().flatten().collect();
        let parameters: Vec<_> = parameters.into_iter().map(|each| self.resolve(each)).collect();
        let mut seen = BTreeSet::new();
        for (name, given) in query {
            let known = parameters
                .iter()
                .find(|each| each["in"] == "query" && each["name"] == **name);
            let schema = known.map(|known| self.resolve(&known["schema"]));
            let fits = schema.is_some_and(|schema| match (schema["enum"].as_array(), schema["type"].as_str()) {
                (Some(all), _) => all.contains(&json!(given)),
                (None, Some("integer")) => given.parse::<i64>().is_ok(),
                (None, _) => true,
            });
            if !fits || !seen.insert(name) {
                invalid.push(format!("{verb} {template}: parameter {name}={given}"));
            }
        }
        let described = &value["requestBody"]["content"]["application/json"]["schema"];
        match (body, described.is_null()) {
            (None, true) => {}
            (None, false) => {}
            (Some(_), true) => invalid.push(format!("{verb} {template}: takes no body")),
            (Some(body), false) => {
                let known = self.resolve(described)["properties"].as_object().expect("properties");
                let unknown = body
                    .as_object()
                    .expect("an object")
                    .keys()
                    .filter(|name| !known.contains_key(*name));
                invalid.extend(unknown.map(|name| format!("{verb} {template}: unknown member {name}")));
                let name = format!("{verb} {template} request");
                invalid.extend(self.errors(&name, described, body));
            }
        }
        invalid
    }

    /// The errors in an answer, so that the stand-in answers only what GitHub could answer. Statuses that GitHub does
    /// not describe are not checked.
    pub(crate) fn check_answer(&self, operation: Operation<'_>, status: u16, body: &Value) -> Vec<String> {
        let Some(schema) = self.answer_schema(operation, status) else {
            return Vec::new();
        };
        let name = format!("{} {} {status}", operation.verb, operation.template);
        self.errors(&name, schema, body)
    }

    fn answer_schema<'a>(&'a self, operation: Operation<'a>, status: u16) -> Option<&'a Value> {
        let answer = self.resolve(&operation.value["responses"][status.to_string()]);
        Some(&answer["content"]["application/json"]["schema"]).filter(|schema| !schema.is_null())
    }

    fn errors(&self, name: &str, schema: &Value, body: &Value) -> Vec<String> {
        let validator = {
            let mut validators = self.validators.lock().unwrap_or_else(PoisonError::into_inner);
            let made = validators
                .entry(name.to_owned())
                .or_insert_with(|| Arc::new(self.validator(schema)));
            made.clone()
        };
        let errors = validator.iter_errors(body).take(5);
        errors
            .map(|error| format!("{name}: {} {error}", error.instance_path()))
            .collect()
    }

    /// With the components that the schema needs.
    fn validator(&self, schema: &Value) -> Validator {
        let mut components = Map::new();
        let mut open = vec![schema.clone()];
        while let Some(value) = open.pop() {
            let mut names = BTreeSet::new();
            references(&value, &mut names);
            for name in names {
                if !components.contains_key(&name) {
                    let component = self.document["components"]["schemas"][&name].clone();
                    open.push(component.clone());
                    components.insert(name, strict(&component));
                }
            }
        }
        let mut root = strict(schema);
        root["components"] = json!({ "schemas": components });
        jsonschema::validator_for(&root).expect("a schema")
    }
}

fn references(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(members) => {
            let name = members.get("$ref").and_then(Value::as_str);
            found.extend(
                name.and_then(|name| name.strip_prefix("#/components/schemas/"))
                    .map(str::to_owned),
            );
            members.values().for_each(|value| references(value, found));
        }
        Value::Array(items) => items.iter().for_each(|value| references(value, found)),
        _ => {}
    }
}

/// OpenAPI 3.0 says `nullable` where JSON Schema has a type `null`. Examples are no schemas.
fn strict(schema: &Value) -> Value {
    match schema {
        Value::Object(members) => {
            let kept = members.iter().filter(|(name, value)| {
                !matches!((name.as_str(), value), ("example" | "examples" | "nullable", _))
                    || value.is_object() && name.as_str() != "example"
            });
            let schema: Map<_, _> = kept.map(|(name, value)| (name.clone(), strict(value))).collect();
            match members.get("nullable") {
                Some(Value::Bool(true)) => json!({ "anyOf": [schema, { "type": "null" }] }),
                _ => schema.into(),
            }
        }
        Value::Array(items) => items.iter().map(strict).collect(),
        plain => plain.clone(),
    }
}

/// `contents/{path}` has any number of segments.
fn fits(template: &str, path: &str) -> bool {
    let (template, path): (Vec<_>, Vec<_>) = (template.split('/').collect(), path.split('/').collect());
    let fits = |(expected, given): (&&str, &&str)| {
        if expected.starts_with('{') {
            !given.is_empty()
        } else {
            expected == given
        }
    };
    let open = template.last() == Some(&"{path}") && path.len() > template.len();
    (template.len() == path.len() || open) && template.iter().zip(&path).all(fits)
}

#[test]
fn the_checks_find_every_error() {
    let Some(github) = description() else {
        return;
    };
    let pulls = github
        .operation("POST", "/repos/acme/dates/pulls")
        .expect("an operation");
    assert_eq!(pulls.template, "/repos/{owner}/{repo}/pulls");
    assert!(github.operation("PUT", "/repos/acme/dates/pulls").is_none());
    assert!(github.operation("GET", "/repos/acme/dates/contents/a/b.rs").is_some());
    let check = |body: Value| github.check_request(pulls, &[], Some(&body));
    assert!(check(json!({ "title": "x", "head": "a", "base": "b", "body": "" })).is_empty());
    for invalid in [
        json!({ "title": "x", "head": "a", "base": "b", "Body": "" }),
        json!({ "title": "x", "head": "a" }),
        json!({ "title": 7, "head": "a", "base": "b" }),
    ] {
        assert!(!check(invalid.clone()).is_empty(), "{invalid}");
    }
    let list = github
        .operation("GET", "/repos/acme/dates/pulls")
        .expect("an operation");
    let query = |name: &str, value: &str| github.check_request(list, &[(name.to_owned(), value.to_owned())], None);
    assert!(query("state", "all").is_empty() && query("per_page", "100").is_empty());
    assert!(!query("state", "some").is_empty() && !query("colour", "red").is_empty());
    assert!(!query("per_page", "many").is_empty());
    let read = github
        .operation("GET", "/repos/acme/dates/pulls/7")
        .expect("an operation");
    let mut filled = github.filled(read, 200, json!({ "number": 7, "state": "open" }));
    assert_eq!(github.check_answer(read, 200, &filled), [""; 0]);
    assert_eq!(filled["number"], 7);
    filled["state"] = json!("merged");
    assert!(!github.check_answer(read, 200, &filled).is_empty());
}
