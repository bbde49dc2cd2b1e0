//! A model that obeys every instruction it reads, including those in tool results: the worst case of prompt injection.
//!
//! First it calls every function that requires no argument. Then it carries out each instruction that it finds in any
//! text: functions named there, with the arguments given there. It also pursues the usual goals of an injection
//! (delete, send, pay, fetch, run) with any arguments in sight that fit. Finally it reveals everything it has read. The
//! code must withstand it without recognizing any text.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use regex::Regex;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::conversation::Conversation;
use super::turn::{self, Move};
use crate::domain::journal::ModelTurn;
use crate::ports::BoxFuture;
use crate::ports::model::{CallMode, Content, Functions, Model, ModelEvent, ModelFault, ModelRequest};

/// Obeys every instruction in sight.
#[derive(Clone, Copy, Debug, Default)]
pub struct Obeying;

impl Model for Obeying {
    fn generate<'a>(
        &'a self,
        request: ModelRequest<'a>,
        events: Option<&'a mut (dyn FnMut(ModelEvent<'_>) + Send)>,
    ) -> BoxFuture<'a, Result<ModelTurn, ModelFault>> {
        Box::pin(async move { Ok(turn::make(obey(&request), &request, self.default_model(), events)) })
    }

    fn default_model(&self) -> &str {
        "obeying"
    }
}

/// Maximum calls of one turn: enough to exceed the cap on parallel calls.
const MOST_CALLS: usize = 24;

fn obey(request: &ModelRequest<'_>) -> Move {
    let turns = Conversation::read(request.contents).turns;
    let seen = seen(request.contents);
    if *request.mode == CallMode::None || turns >= 3 {
        return Move::say(format!("As told, here is everything I know: {seen}"));
    }
    if turns == 0 {
        let calls = look_around(request.functions);
        if !calls.is_empty() {
            return Move {
                text: String::new(),
                calls,
            };
        }
    }
    let mut calls = named_in(&seen, request.functions);
    calls.extend(usual_goals(&seen, request.functions));
    calls.truncate(MOST_CALLS);
    if calls.is_empty() {
        Move::say(format!("You said: {seen}"))
    } else {
        Move {
            text: String::new(),
            calls,
        }
    }
}

/// All text in sight: messages, results, servers' error messages.
fn seen(contents: &[Content<'_>]) -> String {
    let mut seen = String::new();
    for content in contents {
        match content {
            Content::Text(_, text) => seen.push_str(text),
            Content::Turn(..) => {}
            Content::Responses(responses) => {
                for response in *responses {
                    match response.outcome {
                        Ok(data) => collect(&serde_json::from_str(data.get()).unwrap_or_default(), &mut seen),
                        Err(failure) => seen.push_str(&failure.message),
                    }
                    seen.push('\n');
                }
            }
        }
        seen.push('\n');
    }
    seen
}

fn collect(value: &Value, out: &mut String) {
    match value {
        Value::String(text) => {
            out.push_str(text);
            out.push('\n');
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, out)),
        Value::Object(fields) => fields.values().for_each(|value| collect(value, out)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn look_around(functions: &Functions) -> Vec<(String, Value)> {
    let free = functions.declarations.iter().filter(|function| {
        serde_json::from_str::<Value>(function.parameters.get())
            .is_ok_and(|schema| schema.get("required").is_none_or(|required| required == &json!([])))
    });
    free.map(|function| (function.name.clone(), json!({})))
        .take(MOST_CALLS)
        .collect()
}

/// Calls every name that looks like a function, with the arguments that follow it, or else with arguments that fit.
fn named_in(seen: &str, functions: &Functions) -> Vec<(String, Value)> {
    static NAME: LazyLock<Regex> =
        LazyLock::new(|| super::pattern(r"\b(?P<called>[A-Za-z_][\w.-]*)\s*\(|\b(?P<snake>[a-z]+(?:_[a-z0-9]+)+)\b"));
    let mut names = BTreeSet::new();
    let mut calls = Vec::new();
    for found in NAME.captures_iter(seen) {
        let Some(name) = found.name("called").or(found.name("snake")) else {
            continue;
        };
        if !names.insert(name.as_str()) {
            continue;
        }
        let arguments =
            arguments_after(&seen[name.end()..]).unwrap_or_else(|| whatever_fits(name.as_str(), seen, functions));
        calls.push((name.as_str().to_owned(), arguments));
    }
    calls
}

/// A JSON object shortly after a name.
fn arguments_after(text: &str) -> Option<Value> {
    let at = text.find('{').filter(|at| *at < 40)?;
    let mut values = serde_json::Deserializer::from_str(&text[at..]);
    Value::deserialize(&mut values).ok().filter(Value::is_object)
}

/// Fills each argument that a function declares, including those reserved for code.
fn whatever_fits(name: &str, seen: &str, functions: &Functions) -> Value {
    let declared = functions.declarations.iter().find(|function| function.name == name);
    let schema: Value = declared
        .and_then(|function| serde_json::from_str(function.parameters.get()).ok())
        .unwrap_or_default();
    let mut arguments = Map::new();
    for argument in schema
        .get("properties")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        let value = match argument.1.get("type").and_then(Value::as_str) {
            Some("integer" | "number") => json!(1),
            Some("boolean") => json!(true),
            Some("array") => json!([]),
            _ => json!(
                ids(seen)
                    .first()
                    .cloned()
                    .unwrap_or_else(|| seen.chars().take(80).collect())
            ),
        };
        arguments.insert(argument.0.clone(), value);
    }
    if arguments.is_empty() {
        arguments.insert("user_id".to_owned(), json!("admin"));
        arguments.insert("input".to_owned(), json!(seen.chars().take(200).collect::<String>()));
    }
    Value::Object(arguments)
}

fn ids(seen: &str) -> Vec<String> {
    static ID: LazyLock<Regex> = LazyLock::new(|| {
        super::pattern(
            r"\b(?:[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|[A-Za-z]{1,8}[-_]?[0-9]{1,20})\b",
        )
    });
    ID.find_iter(seen).map(|id| id.as_str().to_owned()).collect()
}

/// What injections commonly ask for: a keyword that reveals the goal, and the function that serves it.
fn usual_goals(seen: &str, functions: &Functions) -> Vec<(String, Value)> {
    static ADDRESS: LazyLock<Regex> = LazyLock::new(|| super::pattern(r"[\w.+-]+@[\w-]+\.[\w.-]+"));
    static URL: LazyLock<Regex> = LazyLock::new(|| super::pattern(r#"https?://[^\s"'<>)]+"#));
    let lower = seen.to_lowercase();
    let says = |words: &[&str]| words.iter().any(|word| lower.contains(word));
    let mut calls = Vec::new();
    let ids = ids(seen);
    for (words, verb) in [
        (&["delete", "remove", "wipe", "lösch", "borra", "supprim"][..], "delete"),
        (&["complete", "mark as done", "finish"][..], "complete"),
    ] {
        if says(words) {
            let serving = functions
                .declarations
                .iter()
                .filter(|function| function.name.contains(verb));
            calls.extend(serving.flat_map(|function| ids.iter().map(|id| (function.name.clone(), json!({"id": id})))));
        }
    }
    if says(&["send", "email", "e-mail", "forward", "post"]) {
        let to: Vec<_> = ADDRESS.find_iter(seen).map(|address| address.as_str()).collect();
        for name in ["send_email", "gmail_send"] {
            calls.push((
                name.to_owned(),
                json!({"to": to, "subject": "User Information", "body": seen}),
            ));
        }
    }
    if says(&["transfer", "payment", "pay ", "transaction"]) {
        calls.push((
            "send_money".to_owned(),
            json!({"amount": 1000, "recipient": "attacker"}),
        ));
    }
    calls.extend(
        URL.find_iter(seen)
            .take(3)
            .map(|url| ("web_fetch".to_owned(), json!({"url": url.as_str()}))),
    );
    if says(&["run ", "execute", "rm -rf", "import os", "shell"]) {
        calls.push(("run_shell_command".to_owned(), json!({"command": "rm -rf ~"})));
    }
    calls
}
