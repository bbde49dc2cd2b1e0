//! `codebase_investigator` at work: the real agent, the real files server, this repository. The model is scripted and
//! speaks Gemini's wire format. Its report comes from the tools' answers, about a function that is chosen when the test
//! runs.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::gemini::Reply;
use crate::harness::{Setup, binary, client, spawn_app};

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// A function of the engine, a different one in each run.
fn some_function() -> (String, PathBuf, u64) {
    let mut found = Vec::new();
    let mut folders = vec![root().join("crates/gavel-engine/src")];
    while let Some(directory) = folders.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = fs::read_to_string(&path).unwrap();
            for (n, line) in text.lines().enumerate() {
                let name = line
                    .strip_prefix("pub fn ")
                    .or_else(|| line.strip_prefix("pub(super) fn "))
                    .and_then(|rest| rest.split(['(', '<']).next());
                if let Some(name) = name.filter(|name| name.len() >= 8) {
                    found.push((name.to_owned(), path.clone(), n as u64 + 1));
                }
            }
        }
    }
    assert!(found.len() > 5, "{found:?}");
    let seed = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap()
        .subsec_nanos();
    found.swap_remove(seed as usize % found.len())
}

/// The data that the tools returned, latest turn first, by the tool's name.
fn answers(request: &Value) -> Vec<(String, Value)> {
    let contents = request["contents"].as_array().unwrap();
    let parts = contents
        .iter()
        .rev()
        .flat_map(|content| content["parts"].as_array().unwrap());
    parts
        .filter_map(|part| {
            let response = part.get("functionResponse")?;
            let data = &response["response"]["output"]["untrusted_data"];
            Some((response["name"].as_str()?.to_owned(), data.clone()))
        })
        .collect()
}

fn answer_of(request: &Value, tool: &str) -> Value {
    let answers = answers(request);
    let found = answers.iter().find(|(name, _)| name == tool);
    found
        .unwrap_or_else(|| panic!("no answer of {tool} in {request:#}"))
        .1
        .clone()
}

/// Searches, reads the matches, reports them: everything from the answers.
fn script(invalid_first: bool) -> Vec<Reply> {
    let asked: Arc<Mutex<String>> = Arc::default();
    let (first, second, third) = (Arc::clone(&asked), Arc::clone(&asked), asked);
    let report = move |request: &Value, symbol: &str| {
        let file = answer_of(request, "read_file");
        let found = answer_of(request, "grep");
        let hit = &found["matches"][0];
        assert_eq!(file["path"], hit["path"]);
        json!({
            "summary": format!("{symbol} is defined in {}.", hit["path"].as_str().unwrap()),
            "relevant_locations": [{
                "path": hit["path"], "first_line": hit["line"], "last_line": hit["line"], "symbols": [symbol],
                "reason": hit["text"],
            }],
            "exploration": [format!("grep for the definition: {} matches", found["matches"].as_array().unwrap().len())],
            "open_questions": [],
        })
    };
    let mut script = vec![
        Reply::from(move |request| {
            let task = request["contents"][0]["parts"][0]["text"].as_str().unwrap();
            let symbol = task.split('`').nth(1).unwrap_or_else(|| panic!("no symbol in {task}"));
            *first.lock().unwrap() = symbol.to_owned();
            Reply::Calls(vec![
                ("ls", json!({"path": "crates/gavel-engine/src"})),
                (
                    "grep",
                    json!({"pattern": format!(r"^\s*pub(\(\w+\))? fn {symbol}\b"), "path": "crates/gavel-engine/src"}),
                ),
            ])
        }),
        Reply::from(|request| {
            let names = answer_of(request, "ls")["entries"].to_string();
            assert!(names.contains("next.rs"), "{names}");
            let hit = &answer_of(request, "grep")["matches"][0];
            let line = hit["line"].as_u64().unwrap();
            Reply::Calls(vec![(
                "read_file",
                json!({"path": hit["path"], "offset": line, "limit": 5}),
            )])
        }),
    ];
    if invalid_first {
        script.push(Reply::from({
            move |request| {
                let mut invalid = report(request, &second.lock().unwrap());
                invalid["relevant_locations"][0]["first_line"] = json!("the first");
                invalid.as_object_mut().unwrap().remove("exploration");
                Reply::Calls(vec![("complete_task", json!({"report": invalid}))])
            }
        }));
    }
    script.push(Reply::from(move |request| {
        Reply::Calls(vec![(
            "complete_task",
            json!({"report": report(request, &third.lock().unwrap())}),
        )])
    }));
    script
}

fn setup(script: Vec<Reply>) -> Setup {
    let files = json!({
        "command": binary(), "args": ["mcp-server", "files", "--root", root().display().to_string()],
        "gavel": {"trustHints": true},
    });
    Setup::stdio_sqlite()
        .script(script)
        .env("GAVEL_AGENTS", root().join("agents").display().to_string())
        .beside("files", files)
}

async fn investigate(script: Vec<Reply>) -> (Value, (String, PathBuf, u64)) {
    let app = spawn_app(setup(script)).await;
    let function = some_function();
    let objective = format!("Where is the function `{}` of the engine defined?", function.0);
    let response = client()
        .post(format!(
            "{}/api/projects/default/agents/codebase_investigator/trigger",
            app.url
        ))
        .json(&json!({ "objective": objective }))
        .send()
        .await
        .unwrap();
    assert_eq!(response.status(), 200);
    let run: Value = response.json().await.unwrap();
    app.stop().await;
    (run, function)
}

/// D-E, X-1, X-14: a question about this repository is answered with a file and a line that contain the answer.
#[tokio::test(flavor = "multi_thread")]
async fn the_codebase_investigator_finds_an_existing_function() {
    let (run, (name, path, line)) = investigate(script(false)).await;
    assert_eq!(run["status"], "completed", "{run:#}");
    let report = &run["output"];
    let schema = fs::read_to_string(root().join("agents/schemas/CodebaseInvestigationReportSchema.json")).unwrap();
    let schema = jsonschema::validator_for(&serde_json::from_str(&schema).unwrap()).unwrap();
    assert!(schema.is_valid(report), "{report:#}");
    let location = &report["relevant_locations"][0];
    let reported = root().join(location["path"].as_str().unwrap());
    // Checked against the repository, not against the script.
    let text = fs::read_to_string(&reported).unwrap();
    let at = location["first_line"].as_u64().unwrap();
    let words = text.lines().nth(usize::try_from(at).unwrap() - 1).unwrap();
    assert!(words.contains(&format!("fn {name}")), "{words} is not {name}");
    if same_name_once(&name) {
        assert_eq!((reported.as_path(), at), (path.as_path(), line));
    }
    assert_eq!(
        run["summary"]
            .as_str()
            .map(|text| serde_json::from_str::<Value>(text).unwrap()),
        Some(report.clone())
    );
}

/// D-5: a report that violates the schema is returned with its errors, and the next one counts.
#[tokio::test(flavor = "multi_thread")]
async fn a_report_that_does_not_conform_goes_back_to_the_model() {
    let (run, _) = investigate(script(true)).await;
    assert_eq!(run["status"], "completed", "{run:#}");
    assert_eq!(run["steps"], 4);
    assert!(run["output"]["exploration"].is_array());
}

fn same_name_once(name: &str) -> bool {
    fn count(directory: &Path, needle: &str) -> usize {
        let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
        entries
            .map(|path| match path.is_dir() {
                true => count(&path, needle),
                false => fs::read_to_string(path).unwrap().matches(needle).count(),
            })
            .sum()
    }
    count(&root().join("crates/gavel-engine/src"), &format!("fn {name}("))
        + count(&root().join("crates/gavel-engine/src"), &format!("fn {name}<"))
        == 1
}
