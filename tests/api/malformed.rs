//! An error about malformed input names the malformed member and what is allowed, never a type of gavel's code (R-16;
//! C-FR-004).

use serde_json::{Value, json};

use crate::gemini::Reply;
use crate::harness::{App, Setup, spawn_app};
use crate::threads::{WORKSPACE, said};

/// What a message about a type of the code contains.
const CODE: [&str; 7] = [
    "struct ",
    "enum ",
    "tuple",
    "any variant",
    "untagged",
    "Some(",
    "Error(",
];

#[track_caller]
fn says_nothing_of_the_code(what: &str, text: &str) {
    for words in CODE {
        assert!(!text.contains(words), "{what}: {words:?} in {text}");
    }
}

const ID: &str = "018f0000-0000-7000-8000-000000000000";

/// Every route that takes JSON.
fn routes() -> Vec<(&'static str, String)> {
    vec![
        ("POST", "/v1/chat".to_owned()),
        ("POST", "/v1/chat/stream".to_owned()),
        ("POST", "/api/agent/run".to_owned()),
        ("POST", "/api/agent/run/stream".to_owned()),
        ("POST", "/api/agent/approvals/resolve".to_owned()),
        ("POST", format!("/api/agent/actions/{ID}/settle")),
        ("POST", "/api/projects/default/agents/workspace/trigger".to_owned()),
        ("POST", format!("/api/runs/{ID}/resume")),
        ("PUT", "/api/projects/shop/agents/seller".to_owned()),
    ]
}

fn bodies() -> Vec<Vec<u8>> {
    let fields = [
        "message",
        "user_id",
        "history",
        "tools",
        "conversation_id",
        "prompt",
        "threadId",
        "timeZone",
        "approvalId",
        "decision",
        "reason",
        "happened",
        "settled",
        "query",
        "name",
        "description",
        "systemPrompt",
        "steps",
        "promptConfig",
        "toolConfig",
        "modelConfig",
        "inputConfig",
        "outputConfig",
        "runConfig",
    ];
    let mut bodies: Vec<Vec<u8>> = [
        "",
        "{",
        "nope",
        "[]",
        "[[true]]",
        "null",
        "7",
        "{}",
        "{} x",
        r#"{"message": }"#,
        r#"{"message": "a",}"#,
        r#"{'message': 'a'}"#,
        r#"{"message": "\x"}"#,
        "{\"message\": \"a\nb\"}",
        r#"{"message": "\u12"}"#,
        r#"{"message": 1e999}"#,
        r#"{"message": 01}"#,
        r#"{7: 8}"#,
        r#"{"message": tru}"#,
    ]
    .map(|text| text.as_bytes().to_vec())
    .into();
    bodies.push(b"{\"message\": \"\xff\"}".to_vec());
    bodies.push([vec![b'['; 500], vec![b']'; 500]].concat());
    bodies.push([&b"{\"message\": "[..], &vec![b'['; 500], &vec![b']'; 500], b"}"].concat());
    for value in ["7", "\"x\"", "null", "[7]", "{\"x\": 7}", "true", "[{}]"] {
        let all: Vec<_> = fields.iter().map(|name| format!("\"{name}\": {value}")).collect();
        bodies.push(format!("{{{}}}", all.join(", ")).into_bytes());
        for name in fields {
            bodies.push(format!("{{\"{name}\": {value}}}").into_bytes());
            bodies.push(format!("{{\"{name}\": {value}, \"{name}\": {value}}}").into_bytes());
        }
    }
    bodies
}

async fn sent(app: &App, method: &str, path: &str, kind: &str, body: &[u8]) -> String {
    let headers = [("content-type", kind), ("x-gavel-user", "ann")];
    let answer = app
        .request(method, path, &headers)
        .body(body.to_vec())
        .send()
        .await
        .unwrap();
    answer.text().await.unwrap()
}

#[tokio::test]
async fn an_error_about_a_body_names_no_type_of_the_code() {
    let setup = Setup::stdio_sqlite().agent("workspace.md", WORKSPACE);
    let app = spawn_app(setup.script(vec![Reply::Text("Hello.")])).await;
    for (method, path) in routes() {
        for body in bodies() {
            let answer = sent(&app, method, &path, "application/json", &body).await;
            let what = format!("{method} {path} {:.80}", String::from_utf8_lossy(&body));
            says_nothing_of_the_code(&what, &answer);
        }
    }
    app.stop().await;
}

/// D: a definition in any format.
#[tokio::test]
async fn an_error_about_a_definition_names_no_type_of_the_code() {
    let app = spawn_app(Setup::stdio_sqlite()).await;
    let path = "/api/projects/shop/agents/seller";
    for (kind, text) in [
        ("application/yaml", "name: [\n"),
        ("application/yaml", "name: {a: b\n"),
        ("application/yaml", "name: a\n\tdescription: b\n"),
        ("application/yaml", "name: a\ndescription: b: c\n"),
        ("application/yaml", "- a\n- b\n"),
        ("application/yaml", "name: &x a\ndescription: *y\n"),
        ("application/yaml", "name: !!int x\n"),
        ("application/yaml", "name: \"a\n"),
        ("application/yaml", "name: a\nname: b\n"),
        ("application/yaml", "7"),
        ("application/yaml", ""),
        ("text/markdown", "---\nname: [\n---\nYou.\n"),
        ("text/markdown", "---\nname: a\n"),
        ("text/markdown", "no front matter"),
        ("application/x-protobuf", "\u{8}\u{8}\u{8}"),
        ("application/x-protobuf", "no message at all"),
        (
            "application/json",
            r#"{"name": "a", "description": "b", "promptConfig": {"query": "x", "systemPrompt": "y"},
                "toolConfig": {"tools": []}, "inputConfig": {"inputs": {}},
                "outputConfig": {"outputName": "o", "description": "d", "schema": "{\"type\": "}}"#,
        ),
    ] {
        let answer = sent(&app, "PUT", path, kind, text.as_bytes()).await;
        says_nothing_of_the_code(&format!("{kind} {text}"), &answer);
        assert!(answer.contains("\"code\""), "{kind} {text}: {answer}");
    }
    app.stop().await;
}

/// Errors in a model's output are reported to it with the field concerned. So are errors in the output of a tool's server.
#[tokio::test]
async fn malformed_model_output_is_reported_to_it_without_types_of_the_code() {
    let calls: Vec<(&'static str, Value)> = vec![
        ("request_clarification", json!({})),
        (
            "request_clarification",
            json!({"question": 7, "kind": "unclear_intent"}),
        ),
        ("request_clarification", json!({"question": "x", "kind": "none"})),
        (
            "request_clarification",
            json!({"question": "x", "kind": "unclear_intent", "more": 1}),
        ),
        ("refuse", json!({"message": "x"})),
        ("refuse", json!({"message": ["x"], "kind": "out_of_scope"})),
        ("refuse", json!({"message": "x", "kind": 7})),
        ("add_task", json!({"description": {}})),
        ("list_tasks", json!({"more": 1})),
    ];
    for (name, arguments) in calls {
        let called = arguments.clone();
        let model = Reply::from(move |request| match said(request) {
            1 => Reply::call(name, called.clone()),
            _ => Reply::Text("Done."),
        });
        let setup = Setup::stdio_sqlite().grant(&["add_task", "list_tasks"], 30);
        let app = spawn_app(setup.script(vec![model])).await;
        let decision = app.chat("Go.").await;
        let what = format!("{name} {arguments}");
        says_nothing_of_the_code(&what, &decision.to_string());
        let request = app.gemini.requests().pop().unwrap();
        let reported = &request["contents"].as_array().unwrap().last().unwrap()["parts"];
        says_nothing_of_the_code(&what, &reported.to_string());
        let names_a_field = ["question", "kind", "more", "message", "description"];
        assert!(
            names_a_field.iter().any(|field| reported.to_string().contains(field)),
            "{what}: {reported}"
        );
        app.stop().await;
    }
}
