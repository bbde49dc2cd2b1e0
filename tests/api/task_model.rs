//! A model that plans two tasks and works on them: it reads the readme, and opens an issue.

use serde_json::{Value, json};

use crate::gemini::Reply;

/// A model without a memory: it looks at the request, and does what is missing. One claim of each first task is false,
/// and a true one changes the plan.
pub fn model() -> Reply {
    Reply::from(|request| {
        let config = &request["toolConfig"]["functionCallingConfig"];
        let first = request["contents"][0]["parts"][0]["text"].as_str().unwrap();
        let is_first = first.contains("Your task is t1");
        match (config["mode"].as_str(), config["allowedFunctionNames"].to_string()) {
            (Some("NONE"), _) => Reply::Text("I look first."),
            (Some("ANY"), allowed) if allowed.contains("reflect") => reflect(request, is_first),
            (Some("ANY"), _) if is_first => {
                let args = json!({"owner": "acme", "repo": "dates", "path": "README.md"});
                Reply::call("getFileContents", args)
            }
            (Some("ANY"), _) => {
                let args = json!({"owner": "acme", "repo": "dates", "title": "Weeks are missing"});
                Reply::call("createIssue", args)
            }
            _ if request["contents"].to_string().contains("something odd") => {
                Reply::Raw(200, json!({"promptFeedback": {"blockReason": "SAFETY"}}).to_string())
            }
            _ => {
                let tasks = [
                    worded("Read the readme", "getFileContents"),
                    worded("Open an issue", "createIssue"),
                ];
                Reply::call(
                    "complete_task",
                    json!({"plan": {"summary": "In short.", "tasks": tasks}}),
                )
            }
        }
    })
}

pub fn worded(title: &str, tool: &str) -> Value {
    json!({"title": title, "goal": title, "doneWhen": "a result shows it", "tools": [tool]})
}

fn reflect(request: &Value, is_first: bool) -> Reply {
    let has_reflected = request["contents"].to_string().contains(r#""name":"reflect""#);
    let changes = json!([{"op": "modify", "task": "t2", "title": "Open one issue", "why": "one is enough"}]);
    let (quote, changes) = match (is_first, has_reflected) {
        (true, false) => ("this is nowhere", json!([])),
        (true, true) => ("Reads a date from text", changes),
        (false, _) => ("https://github.com/acme/dates/issues/", json!([])),
    };
    let evidence = json!([{"observation": 1, "quote": quote}]);
    let said =
        json!({"is_task_complete": true, "summary": "It is seen.", "evidence": evidence, "plan_changes": changes});
    Reply::call("reflect", said)
}
