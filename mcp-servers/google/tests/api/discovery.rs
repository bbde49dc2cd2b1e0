//! Google's own descriptions of its APIs, as shipped in PyPI's google-api-python-client. They are third-party data and
//! not part of the project: the package is installed below the target directory.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use jsonschema::Validator;
use serde_json::{Map, Value, json};

const PACKAGE: &str = "google-api-python-client==2.202.0";

/// One API.
pub(crate) struct Api {
    document: Value,
    base: String,
}

/// A method of an API, and the parameters in a path.
pub(crate) struct Method<'a> {
    pub(crate) id: &'a str,
    description: &'a Value,
}

impl Api {
    fn read(directory: &Path, name: &str) -> Self {
        let text = std::fs::read_to_string(directory.join(format!("{name}.json"))).expect("a description");
        let document: Value = serde_json::from_str(&text).expect("JSON");
        let base = format!("/{}", document["servicePath"].as_str().expect("a path"));
        Self { document, base }
    }

    /// The method of a request.
    pub(crate) fn method(&self, verb: &str, path: &str) -> Option<Method<'_>> {
        find(&self.document["resources"], &|description| {
            let template = format!("{}{}", self.base, description["path"].as_str()?);
            let fits = description["httpMethod"] == verb && fits(&template, path);
            fits.then(|| Method {
                id: description["id"].as_str().expect("an id"),
                description,
            })
        })
    }

    /// The errors in a request for a method.
    pub(crate) fn check_request(&self, method: &Method<'_>, query: &[(String, String)], body: &[u8]) -> Vec<String> {
        let mut invalid = Vec::new();
        let parameters = &method.description["parameters"];
        let mut seen = BTreeMap::<&str, usize>::new();
        for (name, value) in query {
            *seen.entry(name).or_default() += 1;
            let parameter = &parameters[name];
            let known = parameter["location"] == "query";
            let enumerated = parameter["enum"].as_array();
            let typed = match parameter["type"].as_str() {
                Some("integer") => value.parse::<i64>().is_ok_and(|number| {
                    let bound = |name: &str| parameter[name].as_str().and_then(|text| text.parse::<i64>().ok());
                    bound("minimum").is_none_or(|least| number >= least)
                        && bound("maximum").is_none_or(|most| number <= most)
                }),
                Some("boolean") => value == "true" || value == "false",
                _ => true,
            };
            let repeated = seen[name.as_str()] > 1 && parameter["repeated"] != true;
            if !known || !typed || repeated || enumerated.is_some_and(|all| !all.contains(&json!(value))) {
                invalid.push(format!("{}: parameter {name}={value}", method.id));
            }
            if parameter["deprecated"] == true {
                invalid.push(format!("{}: parameter {name} is deprecated", method.id));
            }
        }
        match method.description["request"]["$ref"].as_str() {
            None if !body.is_empty() => invalid.push(format!("{}: takes no body", method.id)),
            None => {}
            Some(schema) => invalid.extend(self.check(schema, body).map(|error| format!("{}: {error}", method.id))),
        }
        invalid
    }

    /// The error in an answer of a method, so that the stand-in answers only what Google could answer.
    pub(crate) fn check_response(&self, method: &Method<'_>, body: &[u8]) -> Option<String> {
        let schema = method.description["response"]["$ref"].as_str()?;
        self.check(schema, body)
            .map(|error| format!("the stand-in's own answer to {}: {error}", method.id))
    }

    /// Whether one of the scopes allows a method.
    pub(crate) fn allows(&self, method: &Method<'_>, scopes: &str) -> bool {
        let all = method.description["scopes"].as_array().expect("scopes");
        scopes.split(' ').any(|scope| all.contains(&json!(scope)))
    }

    fn check(&self, schema: &str, body: &[u8]) -> Option<String> {
        let body: Value = match serde_json::from_slice(body) {
            Ok(body) => body,
            Err(error) => return Some(format!("not JSON: {error}")),
        };
        let errors: Vec<_> = self
            .validator(schema)
            .iter_errors(&body)
            .map(|error| error.to_string())
            .collect();
        (!errors.is_empty()).then(|| errors.join("; "))
    }

    fn validator(&self, schema: &str) -> Validator {
        let schemas = self.document["schemas"].as_object().expect("schemas");
        let definitions: Map<_, _> = schemas
            .iter()
            .map(|(name, schema)| (name.clone(), strict(schema)))
            .collect();
        let schema = json!({ "$ref": format!("#/$defs/{schema}"), "$defs": definitions });
        jsonschema::validator_for(&schema).expect("a schema")
    }
}

/// The documents' JSON Schema, closed: an unknown member is an error of ours.
fn strict(schema: &Value) -> Value {
    let mut out = Map::new();
    if let Some(name) = schema["$ref"].as_str() {
        return json!({ "$ref": format!("#/$defs/{name}") });
    }
    match schema["type"].as_str() {
        Some("any") | None => {}
        Some(kind) => {
            out.insert("type".to_owned(), kind.into());
        }
    }
    if let Some(all) = schema.get("enum") {
        out.insert("enum".to_owned(), all.clone());
    }
    if let Some(items) = schema.get("items") {
        out.insert("items".to_owned(), strict(items));
    }
    let more = schema.get("additionalProperties").map(strict);
    if let Some(properties) = schema["properties"].as_object() {
        let properties: Map<_, _> = properties
            .iter()
            .map(|(name, schema)| (name.clone(), strict(schema)))
            .collect();
        out.insert("properties".to_owned(), properties.into());
        out.insert("additionalProperties".to_owned(), more.unwrap_or(json!(false)));
    } else if let Some(more) = more {
        out.insert("additionalProperties".to_owned(), more);
    }
    out.into()
}

fn find<'a, T>(resources: &'a Value, wanted: &impl Fn(&'a Value) -> Option<T>) -> Option<T> {
    resources.as_object()?.values().find_map(|resource| {
        let methods = resource["methods"].as_object().into_iter().flat_map(Map::values);
        methods
            .into_iter()
            .find_map(wanted)
            .or_else(|| find(&resource["resources"], wanted))
    })
}

/// `gmail/v1/users/{userId}/messages/send` comes before `…/messages/{id}`: a send is not a message called "send".
fn fits(template: &str, path: &str) -> bool {
    let (template, path): (Vec<_>, Vec<_>) = (template.split('/').collect(), path.split('/').collect());
    template.len() == path.len()
        && template.iter().zip(&path).all(|(expected, given)| {
            if expected.starts_with('{') {
                !given.is_empty()
            } else {
                expected == given
            }
        })
}

/// Gmail and Calendar. `None` if the package is not available; in CI that fails.
pub(crate) fn apis() -> Option<&'static [Api; 2]> {
    static APIS: OnceLock<Option<[Api; 2]>> = OnceLock::new();
    let apis = APIS.get_or_init(|| match installed() {
        Ok(directory) => Some(["gmail.v1", "calendar.v3"].map(|name| Api::read(&directory, name))),
        Err(why) if std::env::var_os("CI").is_some() => panic!("{PACKAGE} is not available: {why}"),
        Err(why) => {
            eprintln!("not checked, since {PACKAGE} is not available ({why}): requests by Google's API descriptions");
            None
        }
    });
    apis.as_ref()
}

/// Installs the package below the target directory, in its own environment. It is completed under another name first,
/// since test programs may run in parallel.
fn installed() -> Result<PathBuf, String> {
    // A directory of cargo's in the target directory, so that all tests of the workspace share the installation.
    let target = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .parent()
        .expect("a target directory");
    let tools = target.join("google-api");
    let name = PACKAGE.replace("==", "-");
    let directory = tools.join(&name);
    let documents = directory.join("googleapiclient/discovery_cache/documents");
    if documents.join("gmail.v1.json").exists() {
        return Ok(documents);
    }
    std::fs::create_dir_all(&tools).map_err(|error| error.to_string())?;
    let scratch = tempfile::tempdir_in(&tools).map_err(|error| error.to_string())?;
    let venv = scratch.path().join("venv");
    run(Command::new("python3").args(["-m", "venv"]).arg(&venv))?;
    run(Command::new(venv.join("bin/pip"))
        .args([
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--no-deps",
            "--no-compile",
        ])
        .arg("--target")
        .arg(scratch.path().join("package"))
        .arg(PACKAGE))?;
    match std::fs::rename(scratch.path().join("package"), &directory) {
        Err(error) if !documents.exists() => Err(error.to_string()),
        _ => Ok(documents),
    }
}

fn run(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(said.lines().last().unwrap_or("it failed").to_owned())
}

#[test]
fn the_checks_find_every_error() {
    let Some([gmail, calendar]) = apis() else {
        return;
    };
    let send = gmail
        .method("POST", "/gmail/v1/users/me/messages/send")
        .expect("a method");
    assert_eq!(send.id, "gmail.users.messages.send");
    assert!(gmail.method("PUT", "/gmail/v1/users/me/messages/send").is_none());
    assert!(
        gmail
            .check_request(&send, &[], br#"{"raw":"","threadId":"x"}"#)
            .is_empty()
    );
    assert!(
        !gmail
            .check_request(&send, &[], br#"{"raw":"","thread_id":"x"}"#)
            .is_empty()
    );
    assert!(!gmail.check_request(&send, &[], br#"{"raw":7}"#).is_empty());
    let insert = calendar
        .method("POST", "/calendar/v3/calendars/primary/events")
        .expect("a method");
    let query = |name: &str, value: &str| [(name.to_owned(), value.to_owned())];
    assert!(
        calendar
            .check_request(&insert, &query("sendUpdates", "all"), b"{}")
            .is_empty()
    );
    for (name, value) in [
        ("sendUpdates", "some"),
        ("conferenceDataVersion", "2"),
        ("colour", "red"),
    ] {
        assert!(
            !calendar.check_request(&insert, &query(name, value), b"{}").is_empty(),
            "{name}"
        );
    }
    assert!(calendar.allows(&insert, "x https://www.googleapis.com/auth/calendar.events"));
    assert!(!calendar.allows(&insert, "https://www.googleapis.com/auth/calendar.readonly"));
}
