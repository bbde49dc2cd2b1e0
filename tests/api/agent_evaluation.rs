//! `gavel agents eval`: the cases that come with the agents, run by the built program.

mod sessions;

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::gemini::{Gemini, Reply};
use crate::harness::{Ended, binary, until};

/// Reports the first place where grep found its match; `path` replaces the real path.
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

/// Evaluates one of the shipped cases of an agent, whose model says what is in the script.
async fn evaluate(agent: &str, case: &str, script: Vec<Reply>) -> (Option<i32>, Value) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let gemini = Gemini::scripted(script).await;
    let directory = tempfile::tempdir().unwrap();
    let cases = directory.path().join("cases");
    std::fs::create_dir(&cases).unwrap();
    std::fs::write(cases.join("one.yaml"), alone(agent, case)).unwrap();
    let (url, agent) = (gemini.url.clone(), agent.to_owned());
    let run = move || {
        Command::new(binary())
            .args(["agents", "eval", &agent, "--json", "--case-timeout", "60", "--cases"])
            .arg(&cases)
            .env_clear()
            .env("HOME", directory.path())
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("GEMINI_API_KEY", "k")
            .env("GEMINI_BASE_URL", url)
            .env("GAVEL_AGENTS", root.join("agents"))
            .current_dir(directory.path())
            .output()
            .unwrap()
    };
    let output = tokio::task::spawn_blocking(run).await.unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let mut lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 1, "{text}{}", String::from_utf8_lossy(&output.stderr));
    (output.status.code(), lines.remove(0))
}

/// The file of an agent's cases with one of them, which uses up a script.
fn alone(agent: &str, case: &str) -> String {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("evaluation/agents");
    let text = std::fs::read_to_string(directory.join(format!("{agent}.yaml"))).unwrap();
    let mut parts = text.split("\n  - id: ");
    let mut head = parts.next().unwrap().to_owned();
    for name in ["root", "repository"] {
        head = head.replace(&format!("{name}: "), &format!("{name}: {}/", directory.display()));
    }
    let case = parts.find(|part| part.lines().next() == Some(case)).unwrap();
    format!("{head}\n  - id: {case}")
}

/// The case fails, and this is what is reported about it.
async fn fails(agent: &str, case: &str, script: Vec<Reply>, about: &str) {
    let (status, line) = evaluate(agent, case, script).await;
    let differences = line["wrong"].to_string();
    assert!(differences.contains(about), "{differences} is not about {about}");
    assert_eq!((status, &line["as_expected"]), (Some(1), &json!(false)), "{line:#}");
}

/// The case is as expected.
async fn passes(agent: &str, case: &str, script: Vec<Reply>) {
    let (status, line) = evaluate(agent, case, script).await;
    assert_eq!(line["wrong"], json!([]), "{line:#}");
    assert_eq!((status, &line["as_expected"]), (Some(0), &json!(true)), "{line:#}");
}

const INVESTIGATOR: (&str, &str) = ("codebase_investigator", "where-is-the-limit");

#[tokio::test(flavor = "multi_thread")]
async fn a_report_with_the_correct_place_passes() {
    passes(INVESTIGATOR.0, INVESTIGATOR.1, investigator(None)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_report_with_another_place_fails() {
    let script = investigator(Some("src/cart.py"));
    fails(INVESTIGATOR.0, INVESTIGATOR.1, script, "output/relevant_locations").await;
}

/// Answers, except where it is asked to stall.
fn helper() -> Vec<Reply> {
    vec![Reply::from(|request| {
        match request["contents"].to_string().contains("stall") {
            true => Reply::Hang,
            false => Reply::Text("Done."),
        }
    })]
}

/// A directory with one agent and its cases, one per task.
fn directory(tasks: &[&str], root: &str) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let write = |file: &str, text: &str| {
        let path = directory.path().join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    write("agents/helper.md", "---\nname: helper\ndescription: d\n---\n\nHelp.\n");
    let cases = tasks
        .iter()
        .map(|task| format!("  - id: {task}\n    input: {{query: {task}}}\n"));
    write(
        "cases/helper.yaml",
        &format!("agent: helper\n{root}cases:\n{}", cases.collect::<String>()),
    );
    write("tmp/.keep", "");
    directory
}

fn command(directory: &Path, gemini: &str, args: &[&str]) -> Command {
    let mut command = Command::new(binary());
    command
        .args(["agents", "eval", "--json", "--cases", "cases"])
        .args(args)
        .env_clear()
        .env("HOME", directory)
        .env("TMPDIR", directory.join("tmp"))
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("GEMINI_API_KEY", "k")
        .env("GEMINI_BASE_URL", gemini)
        .current_dir(directory)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// A case that does not end in time fails, and the other cases are still evaluated.
#[tokio::test(flavor = "multi_thread")]
async fn a_case_that_does_not_end_in_time_fails_and_the_next_is_evaluated() {
    let gemini = Gemini::scripted(helper()).await;
    let directory = directory(&["stall", "answer"], "");
    let mut command = command(directory.path(), &gemini.url, &["--case-timeout", "3"]);
    let output = tokio::task::spawn_blocking(move || command.output().unwrap())
        .await
        .unwrap();
    let (out, err) = (
        String::from_utf8(output.stdout).unwrap(),
        String::from_utf8(output.stderr).unwrap(),
    );
    let lines: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 2, "{out}{err}");
    assert_eq!(
        (&lines[0]["case"], &lines[0]["wrong"]),
        (
            &json!("stall"),
            &json!(["the run had not ended after 3 s, and was cancelled"])
        ),
        "{out}"
    );
    assert_eq!(
        (&lines[1]["case"], &lines[1]["as_expected"]),
        (&json!("answer"), &json!(true)),
        "{out}"
    );
    assert_eq!(output.status.code(), Some(1), "{err}");
}

/// A case is reported when it is evaluated, not with the last one. An evaluation that is stopped reports its progress
/// and leaves nothing behind.
#[tokio::test(flavor = "multi_thread")]
async fn a_case_is_reported_at_once_and_a_stopped_evaluation_reports_its_progress() {
    let gemini = Gemini::scripted(helper()).await;
    let directory = directory(&["answer", "stall"], "");
    let mut child = Ended(command(directory.path(), &gemini.url, &[]).spawn().unwrap());
    let out = child.0.stdout.take().unwrap();
    let read = tokio::task::spawn_blocking(move || BufReader::new(out).lines().next().unwrap().unwrap());
    let first = tokio::time::timeout(Duration::from_secs(30), read)
        .await
        .expect("the first case, alone")
        .unwrap();
    let first: Value = serde_json::from_str(&first).unwrap();
    assert_eq!(
        (&first["case"], &first["as_expected"]),
        (&json!("answer"), &json!(true)),
        "{first}"
    );
    until("the second case", || async { gemini.requests().len() == 2 }).await;
    let id = child.0.id().to_string();
    assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    let (status, err) = tokio::task::spawn_blocking(move || {
        let mut err = String::new();
        child.0.stderr.take().unwrap().read_to_string(&mut err).unwrap();
        (child.0.wait().unwrap().code(), err)
    })
    .await
    .unwrap();
    assert!(
        err.contains("interrupted: 1 of 2 cases were evaluated, 1 of them as expected"),
        "{err}"
    );
    assert_eq!(status, Some(130), "{err}");
    let left: Vec<_> = std::fs::read_dir(directory.path().join("tmp"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(left, [".keep"]);
}

/// Cases are refused if their directory is not the one that the tool servers serve.
#[test]
fn cases_about_a_directory_are_refused_with_custom_servers() {
    let directory = directory(&["answer"], "root: .\n");
    std::fs::write(directory.path().join("mcp.json"), r#"{"mcpServers":{}}"#).unwrap();
    let output = command(directory.path(), "http://127.0.0.1:9", &["--mcp-config", "mcp.json"])
        .output()
        .unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert!(
        err.contains("the cases of helper use the directory") && err.contains("mcp.json"),
        "{err}"
    );
    assert_eq!((output.status.code(), output.stdout), (Some(2), Vec::new()), "{err}");
}

/// Every shipped case can be read, and its agent is shipped too.
#[test]
fn the_shipped_cases_are_valid() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let files = gavel_eval::agents::load(&root.join("evaluation/agents")).unwrap();
    let shipped = gavel::app::agents_in(&root.join("agents"), None)
        .unwrap()
        .checked
        .agents;
    let with_cases: Vec<_> = files.iter().map(|file| file.agent.as_str()).collect();
    // The `workspace` agent acts in a user's mailbox after that user's approval; a case can provide neither.
    let expected: Vec<_> = shipped.keys().filter(|name| *name != "workspace").collect();
    assert_eq!(with_cases, expected);
    for file in &files {
        for case in &file.cases {
            shipped[&file.agent]
                .definition
                .check_arguments(case.input.clone())
                .unwrap();
        }
    }
}
