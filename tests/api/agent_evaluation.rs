//! `gavel agents eval`: the cases that come with the agents, run by the built program.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::gemini::{Gemini, Reply};
use crate::harness::binary;

/// Reports the first place where grep found what it looked for; `path` takes the place of the true one.
fn investigator(path: Option<&'static str>) -> Vec<Reply> {
    vec![
        Reply::call("grep", json!({"pattern": "DEFAULT_LIMIT = "})),
        Reply::from(|request| {
            let hit = &found(request, "grep")["matches"][0];
            Reply::Calls(vec![("read_file", json!({"path": hit["path"]}))])
        }),
        Reply::from(move |request| {
            let hit = &found(request, "grep")["matches"][0];
            let place = json!({
                "path": path.map_or_else(|| hit["path"].clone(), Value::from), "first_line": hit["line"],
                "last_line": 21, "reason": hit["text"],
            });
            let report = json!({
                "summary": format!("The limit is {}.", hit["text"].as_str().unwrap()), "relevant_locations": [place],
                "exploration": ["grep"], "open_questions": [],
            });
            Reply::Calls(vec![("complete_task", json!({"report": report}))])
        }),
    ]
}

fn found(request: &Value, tool: &str) -> Value {
    let contents = request["contents"].as_array().unwrap();
    let mut parts = contents.iter().flat_map(|content| content["parts"].as_array().unwrap());
    let part = parts.find(|part| part["functionResponse"]["name"] == tool).unwrap();
    part["functionResponse"]["response"]["output"]["untrusted_data"].clone()
}

async fn evaluate(script: Vec<Reply>) -> (Option<i32>, Vec<Value>) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let gemini = Gemini::scripted(script).await;
    let folder = tempfile::tempdir().unwrap();
    // One case, so that the script is at its end with it.
    let cases = folder.path().join("cases");
    std::fs::create_dir(&cases).unwrap();
    let text = std::fs::read_to_string(root.join("evaluation/agents/codebase_investigator.yaml")).unwrap();
    let first = text.split("\n  - id: reseller").next().unwrap();
    let shop = root.join("evaluation/agents/shop").display().to_string();
    std::fs::write(
        cases.join("one.yaml"),
        first.replace("root: shop", &format!("root: {shop}")),
    )
    .unwrap();
    let url = gemini.url.clone();
    let run = move || {
        Command::new(binary())
            .args(["agents", "eval", "--json", "--cases"])
            .arg(&cases)
            .env_clear()
            .env("HOME", folder.path())
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("GEMINI_API_KEY", "k")
            .env("GEMINI_BASE_URL", url)
            .env("GAVEL_AGENTS", root.join("agents"))
            .current_dir(folder.path())
            .output()
            .unwrap()
    };
    let output = tokio::task::spawn_blocking(run).await.unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 1, "{text}{}", String::from_utf8_lossy(&output.stderr));
    (output.status.code(), lines)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_report_with_the_right_place_is_as_expected() {
    let (status, lines) = evaluate(investigator(None)).await;
    assert_eq!(lines[0]["wrong"], json!([]), "{:#}", lines[0]);
    assert_eq!((status, &lines[0]["as_expected"]), (Some(0), &json!(true)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_report_with_another_place_is_not() {
    let (status, lines) = evaluate(investigator(Some("src/cart.py"))).await;
    assert_eq!((status, &lines[0]["as_expected"]), (Some(1), &json!(false)));
    assert!(
        lines[0]["wrong"][0]
            .as_str()
            .unwrap()
            .starts_with("output/relevant_locations"),
        "{:#}",
        lines[0]
    );
}

/// Every case that is shipped can be read, and its agent is shipped too.
#[test]
fn the_shipped_cases_are_right() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let files = gavel::evaluation::agents::load(&root.join("evaluation/agents")).unwrap();
    let shipped = gavel::app::agents_in(&root.join("agents"), None)
        .unwrap()
        .checked
        .agents;
    let with_cases: Vec<_> = files.iter().map(|file| file.agent.as_str()).collect();
    assert_eq!(with_cases, shipped.keys().collect::<Vec<_>>());
    for file in &files {
        for case in &file.cases {
            shipped[&file.agent]
                .definition
                .check_arguments(case.input.clone())
                .unwrap();
        }
    }
}
