//! The commands in the documentation work when pasted: the quick start of the README from the first command to
//! the last, every `curl` command of the other pages against a gavel without configuration, and every SQL statement on
//! both databases.

mod analysis;
mod codes;
mod layout;
mod planning;
mod settings;
mod tutorials;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use sqlx::{AssertSqlSafe, Connection, PgConnection, SqliteConnection};
use tempfile::TempDir;

use crate::harness::{Ended, binary, client, free_port, ready};

const KEY: &str = "a-key-of-the-docs";

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn page(name: &str) -> String {
    std::fs::read_to_string(root().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Everything in `docs/`.
fn pages() -> Vec<(String, String)> {
    fn collect(directory: &Path, into: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                collect(&path, into);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                into.push(path);
            }
        }
    }
    let mut paths = Vec::new();
    collect(&root().join("docs"), &mut paths);
    paths.sort();
    let named = |path: PathBuf| {
        let name = path.strip_prefix(root()).unwrap().display().to_string();
        let text = page(&name);
        (name, text)
    };
    paths.into_iter().map(named).collect()
}

/// The code blocks of a page: between fences, or indented.
fn blocks(page: &str) -> Vec<String> {
    let (mut blocks, mut block, mut fenced) = (Vec::new(), String::new(), false);
    for line in page.lines().chain([""]) {
        let fence = line.trim_start().starts_with("```");
        let code = !fence && (fenced || line.starts_with("    "));
        if code {
            block.push_str(line);
            block.push('\n');
        } else if !block.is_empty() {
            blocks.push(std::mem::take(&mut block));
        }
        fenced ^= fence;
    }
    blocks
}

/// The commands of a page that start with `curl`.
fn curls(page: &str) -> Vec<String> {
    let mut commands: Vec<String> = Vec::new();
    for block in blocks(page) {
        if !block.trim_start().starts_with("curl ") {
            continue;
        }
        for line in block.lines() {
            if line.trim_start().starts_with("curl ") {
                commands.push(String::new());
            }
            let command = commands.last_mut().unwrap();
            command.push_str(line);
            command.push('\n');
        }
    }
    commands
}

/// `gavel` with nothing set but its port.
struct Served {
    directory: TempDir,
    port: u16,
    _child: Ended,
}

impl Served {
    async fn start(environment: &[(&str, &str)]) -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), environment).await
    }

    /// Started as the first tutorial describes: with the agent that it writes.
    async fn with_agent() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let blocks = blocks(&page("docs/tutorials/first-approval.md"));
        let block = blocks
            .iter()
            .find(|block| block.contains("export GAVEL_RUNS_AGENT=todo"));
        let written = block.unwrap().trim_end().strip_suffix("\ngavel").unwrap();
        let ran = Command::new("sh")
            .args(["-c", written])
            .current_dir(directory.path())
            .status();
        assert!(ran.unwrap().success());
        Self::start_in(directory, &[("GAVEL_RUNS_AGENT", "todo")]).await
    }

    async fn start_in(directory: TempDir, environment: &[(&str, &str)]) -> Self {
        let port = free_port();
        let child = Command::new(binary())
            .current_dir(directory.path())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("GAVEL_LISTEN", format!("127.0.0.1:{port}"))
            .envs(environment.iter().copied())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let served = Self {
            directory,
            port,
            _child: Ended(child),
        };
        ready(&format!("http://127.0.0.1:{port}")).await;
        // The commands stay as written: curl's own configuration maps the documented address to this gavel.
        let settings = format!(
            "connect-to = \"localhost:8080:127.0.0.1:{port}\"\nwrite-out = \"%{{stderr}}%{{http_code}}\"\nnoproxy = \"*\"\n"
        );
        std::fs::write(served.directory.path().join(".curlrc"), settings).unwrap();
        served
    }

    /// Runs a command in a shell; returns the status and the body of the response.
    async fn paste(&self, command: &str, key: Option<&str>) -> (u16, String) {
        let mut shell = tokio::process::Command::new("sh");
        shell.args(["-c", command]).current_dir(self.directory.path());
        shell
            .env("CURL_HOME", self.directory.path())
            .env_remove("GAVEL_API_KEY");
        if let Some(key) = key {
            shell.env("GAVEL_API_KEY", key);
        }
        let ran = shell.output().await.unwrap();
        assert!(ran.status.success(), "{command}{ran:?}");
        let status = String::from_utf8(ran.stderr).unwrap();
        let status = status
            .parse()
            .unwrap_or_else(|_| panic!("{command} returned {status:?} beside its answer"));
        (status, String::from_utf8(ran.stdout).unwrap())
    }

    /// The id of an ended run, of an agent that the page has put before.
    async fn run(&self) -> String {
        let trigger = "api/projects/demo/agents/greeter/trigger";
        let request = client().post(format!("http://127.0.0.1:{}/{trigger}", self.port));
        let run = request.json(&json!({"query": "hello"})).send().await.unwrap();
        let run: Value = run.json().await.unwrap();
        run["id"].as_str().unwrap_or_else(|| panic!("{run}")).to_owned()
    }

    /// The id of the run of a thread with a message of ann's.
    async fn run_of_thread(&self) -> String {
        let threads = format!("http://127.0.0.1:{}/api/agent/threads", self.port);
        let request = client().get(threads).header("x-gavel-user", "ann");
        let threads: Value = request.send().await.unwrap().json().await.unwrap();
        let run = &threads["threads"][0]["latestRun"]["runId"];
        run.as_str().unwrap_or_else(|| panic!("{threads}")).to_owned()
    }

    /// The id of the approval that waits for ann.
    async fn approval(&self) -> String {
        let pending = format!("http://127.0.0.1:{}/api/agent/approvals/pending", self.port);
        let request = client().get(pending).header("x-gavel-user", "ann");
        let pending: Value = request.send().await.unwrap().json().await.unwrap();
        let [approval] = pending["approvals"].as_array().unwrap().as_slice() else {
            panic!("{pending}")
        };
        approval["approvalId"].as_str().unwrap().to_owned()
    }

    /// The id of a decision in the log.
    async fn decision(&self) -> String {
        let request = client().post(format!("http://127.0.0.1:{}/v1/chat", self.port));
        let answer = request.json(&json!({"message": "hello", "user_id": "ann"}));
        let answer: Value = answer.send().await.unwrap().json().await.unwrap();
        answer["decision_id"].as_str().unwrap().to_owned()
    }
}

/// Whether `found` has everything that is shown. Texts and numbers may differ; objects and arrays are compared
/// recursively.
fn fits(shown: &Value, found: &Value) -> bool {
    match (shown, found) {
        (Value::Object(shown), Value::Object(found)) => shown
            .iter()
            .all(|(name, shown)| found.get(name).is_some_and(|found| fits(shown, found))),
        (Value::Array(shown), Value::Array(found)) => {
            shown.len() == found.len() && shown.iter().zip(found).all(|(shown, found)| fits(shown, found))
        }
        (Value::String(_), Value::String(_)) | (Value::Number(_), Value::Number(_)) => true,
        _ => shown == found,
    }
}

fn names(object: &Value) -> Vec<&String> {
    let mut names: Vec<_> = object.as_object().unwrap().keys().collect();
    names.sort();
    names
}

/// The first JSON block of a page.
fn shown(page: &str) -> Value {
    let blocks = blocks(page);
    let block = blocks.iter().find(|block| block.trim_start().starts_with('{'));
    serde_json::from_str(block.unwrap()).unwrap()
}

/// Whether the response is the documented one of its route. A new kind of command must be added here.
fn is_right(command: &str, status: u16, body: &str, page: &str) {
    let reported = format!("{command}{status} {body}");
    let json = || serde_json::from_str::<Value>(body).unwrap_or_else(|_| panic!("{reported}"));
    let list = |name: &str| assert!(json()[name].is_array(), "{reported}");
    if command.contains(r#""colour""#) {
        let problem = json();
        assert_eq!(
            (status, &problem["code"]),
            (400, &json!("invalid_request")),
            "{reported}"
        );
        let invalid = problem["errors"].as_array().unwrap().iter();
        let invalid: Vec<_> = invalid.map(|error| error["pointer"].as_str().unwrap()).collect();
        assert!(
            invalid.contains(&"/message") && invalid.contains(&"/colour"),
            "all at once: {reported}"
        );
        return;
    }
    if command.contains("/resume") {
        // The run of the page has completed.
        assert_eq!((status, &json()["code"]), (409, &json!("not_paused")), "{reported}");
        return;
    }
    let is_async = command.contains("prefer: respond-async");
    let expected = match () {
        // The run may have ended by then.
        () if is_async => &[200, 202][..],
        () if command.contains("-X PUT") => &[201],
        () => &[200],
    };
    assert!(expected.contains(&status), "{reported}");
    let route = command.split_once("localhost:8080").unwrap().1;
    let end = route.find(|letter: char| !(letter.is_ascii_alphanumeric() || "/-".contains(letter)));
    match &route[..end.unwrap()] {
        "/v1/chat" => {
            let decision = json();
            let outcome = decision["outcome_category"].as_str().unwrap();
            assert!(outcome.starts_with("SUCCESS:"), "{reported}");
            if command.contains("buy groceries") {
                let shown = shown(page);
                assert!(fits(&shown, &decision), "shown is {shown}: {reported}");
                assert_eq!(names(&shown), names(&decision));
                for field in [
                    "decision_type",
                    "outcome_category",
                    "conversation_id",
                    "model",
                    "iterations",
                ] {
                    assert_eq!(shown[field], decision[field], "{field}: {reported}");
                }
                assert_eq!(shown["tool_calls"][0]["tool"], decision["tool_calls"][0]["tool"]);
            }
        }
        "/v1/chat/stream" => {
            let lines = body.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
            let kinds: Vec<_> = lines.map(|line| line["type"].as_str().unwrap().to_owned()).collect();
            assert_eq!(kinds.first().map(String::as_str), Some("started"), "{reported}");
            assert_eq!(kinds.last().map(String::as_str), Some("decision"), "{reported}");
            for kind in kinds {
                assert!(
                    page.contains(&format!("`{kind}`")),
                    "{kind} is not documented: {reported}"
                );
            }
        }
        "/v1/decisions" => list("decisions"),
        "/v1/tool-invocations" => list("tool_invocations"),
        one if one.starts_with("/v1/decisions/") => {
            assert!(command.contains(json()["decision_id"].as_str().unwrap()), "{reported}");
        }
        "/v1/export/decisions" => assert_eq!(body, "", "it is in a file: {reported}"),
        one if one.starts_with("/v1/exports/") => assert_eq!(json()["complete"], true, "{reported}"),
        "/api/projects/demo/agents" => {
            list("agents");
            assert_eq!(json()["agents"][0]["id"], "greeter", "{reported}");
        }
        "/api/projects/demo/agents/greeter" | "/api/projects/demo/agents/greeter/versions/1/restore" => {
            assert_eq!(json()["version"], 1, "{reported}")
        }
        "/api/projects/demo/agents/greeter/trigger" if is_async => assert!(json()["id"].is_string(), "{reported}"),
        "/api/projects/demo/agents/greeter/trigger" => {
            assert_eq!(json()["status"], "completed", "{reported}");
            assert!(!json()["summary"].as_str().unwrap().is_empty(), "{reported}");
        }
        one if one.ends_with("/events") => {
            let kinds = body
                .lines()
                .map(|line| serde_json::from_str::<Value>(line).unwrap()["type"].clone());
            let kinds: Vec<_> = kinds.map(|kind| kind.as_str().unwrap().to_owned()).collect();
            assert_eq!(kinds.last().map(String::as_str), Some("end"), "{reported}");
            let described = self::page("docs/reference/events.md");
            for kind in kinds.iter() {
                assert!(
                    described.contains(&format!("`{kind}`")),
                    "{kind} is not documented: {reported}"
                );
            }
        }
        one if one.starts_with("/api/runs/") => assert!(command.contains(json()["id"].as_str().unwrap()), "{reported}"),
        "/api/agent/run" => {
            let (shown, run) = (shown(page), json());
            assert!(fits(&shown, &run), "shown is {shown}: {reported}");
            assert_eq!(shown["status"], run["status"], "{reported}");
            assert_eq!(
                shown["actions"][0]["arguments"], run["actions"][0]["arguments"],
                "{reported}"
            );
        }
        one if one.starts_with("/api/agent/runs/") => {
            assert!(command.contains(json()["runId"].as_str().unwrap()), "{reported}");
            assert_eq!(json()["state"], "completed", "{reported}");
        }
        "/api/agent/approvals/pending" => list("approvals"),
        "/api/agent/threads" => {
            assert_eq!(json()["threads"][0]["title"], "add a task to call mom", "{reported}");
        }
        "/api/agent/actions/in-doubt" => list("actions"),
        "/api/agent/approvals/resolve" => {
            assert_eq!(json()["status"], "completed", "{reported}");
            assert_eq!(json()["actions"][0]["state"], "completed", "{reported}");
        }
        "/v1/stats/compare" => assert!(json()["says"].is_string(), "{reported}"),
        "/v1/erasures" => assert_eq!(json()["left"], 0, "{reported}"),
        "/v1/stats/query" | "/v1/stats/outcomes" => assert!(json()["rows"].is_array(), "{reported}"),
        other => panic!("the expected answer of {other} is not known here: {reported}"),
    }
}

/// The first use of a page is to paste from it.
#[tokio::test]
async fn every_curl_of_the_pages_works_when_pasted() {
    let sha256: String = Sha256::digest(KEY).iter().map(|byte| format!("{byte:02x}")).collect();
    let keys = json!([{"name": "docs", "sha256": sha256, "tenant": "default", "roles": []}]).to_string();
    let keyed = Served::start(&[("GAVEL_AUTH_MODE", "api_key"), ("GAVEL_AUTH_KEYS", &keys)]).await;
    let mut tried = Vec::new();
    for (name, page) in pages() {
        // Those of planning need a GitHub, those of the first agent its file, and those of analysts a log.
        let has_own_test = [
            "docs/how-to/analyze.md",
            "docs/how-to/use-planning-sessions.md",
            "docs/tutorials/first-agent.md",
        ];
        if has_own_test.contains(&name.as_str()) {
            continue;
        }
        let commands = curls(&page);
        let written = page.lines().filter(|line| line.trim_start().starts_with("curl "));
        assert_eq!(commands.len(), written.count(), "{name} has a curl that was not found");
        if commands.is_empty() {
            continue;
        }
        let open = match () {
            () if page.contains("localhost:8080/api/agent/run ") => Served::with_agent().await,
            () => Served::start(&[]).await,
        };
        for command in commands {
            if command.contains("$GAVEL_API_KEY") {
                let (status, body) = keyed.paste(&command, Some(KEY)).await;
                is_right(&command, status, &body, &page);
                let (status, body) = keyed.paste(&command, None).await;
                let problem: Value = serde_json::from_str(&body).unwrap();
                assert_eq!(
                    (status, &problem["code"]),
                    (401, &json!("unauthenticated")),
                    "{command}"
                );
                continue;
            }
            let command = match () {
                () if command.contains("DECISION_ID") => command.replace("DECISION_ID", &open.decision().await),
                () if command.contains("EXPORT_ID") => {
                    let headers = std::fs::read_to_string(open.directory.path().join("headers")).unwrap();
                    let id = headers.lines().find_map(|line| line.strip_prefix("x-gavel-export: "));
                    command.replace("EXPORT_ID", id.unwrap())
                }
                () if command.contains("APPROVAL_ID") => command.replace("APPROVAL_ID", &open.approval().await),
                () if command.contains("/api/agent/runs/RUN_ID") => {
                    command.replace("RUN_ID", &open.run_of_thread().await)
                }
                () if command.contains("RUN_ID") => command.replace("RUN_ID", &open.run().await),
                () => command,
            };
            let (status, body) = open.paste(&command, None).await;
            is_right(&command, status, &body, &page);
        }
        tried.push(name);
    }
    assert_eq!(
        tried,
        [
            "docs/how-to/authenticate.md",
            "docs/how-to/delete-data.md",
            "docs/how-to/resolve-unknown-outcomes.md",
            "docs/reference/errors.md",
            "docs/reference/http-agents.md",
            "docs/reference/http-api.md",
            "docs/reference/http-chat.md",
            "docs/reference/http-exports.md",
            "docs/reference/http-threads.md",
            "docs/reference/processes.md",
            "docs/reference/records.md",
            "docs/reference/statistics.md",
            "docs/tutorials/first-approval.md"
        ]
    );
}

/// A shell with `gavel` in its path, in the directory of a reader of the README.
struct Shell {
    directory: PathBuf,
    port: u16,
}

impl Shell {
    fn paste(&self, block: &str) -> tokio::process::Command {
        let mut shell = tokio::process::Command::new("sh");
        let programs = Path::new(binary()).parent().unwrap().display();
        let path = std::env::var("PATH").unwrap();
        shell
            .args(["-ec", block])
            .current_dir(&self.directory)
            .env_clear()
            .env("PATH", format!("{programs}:{path}"))
            .env("HOME", &self.directory)
            .env("CURL_HOME", &self.directory)
            .env("GAVEL_LISTEN", format!("127.0.0.1:{}", self.port))
            .kill_on_drop(true);
        shell
    }

    /// What a block prints.
    async fn prints(&self, block: &str) -> String {
        let ran = self.paste(block).output().await.unwrap();
        let (out, notes) = (
            String::from_utf8_lossy(&ran.stdout),
            String::from_utf8_lossy(&ran.stderr),
        );
        assert!(ran.status.success(), "{block}{out}{notes}");
        out.into_owned()
    }
}

/// A new user pastes the quick start, block after block: serve, ask, approve, see the evidence.
#[tokio::test]
async fn the_quick_start_of_the_readme_works_when_pasted_from_its_first_command_to_its_last() {
    let readme = page("README.md");
    assert!(readme.lines().count() <= 120, "it is read in half a minute");
    let start = readme.split("\n## Quick start").nth(1).unwrap();
    let start = start.split("\n## ").next().unwrap();
    let blocks = blocks(start);
    let [build, serve, ask, approve, evidence] = &blocks[..] else {
        panic!("the blocks differ from those this test knows: {blocks:#?}")
    };
    let (first, install) = build.split_once('\n').unwrap();
    let first = first.replace("cargo run --locked --", "gavel");
    assert_eq!(install, "cargo install --path . --locked\n", "as the image is built");

    let place = tempfile::tempdir().unwrap();
    let mut shell = Shell {
        directory: place.path().to_owned(),
        port: free_port(),
    };
    assert!(shell.prints(&first).await.contains("call mom"));
    let serve = serve.replace("&& gavel serve", "&& exec gavel serve");
    assert!(serve.contains("exec gavel serve"), "{serve}");
    let _serving = shell
        .paste(&serve)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    ready(&format!("http://127.0.0.1:{}", shell.port)).await;
    // The other terminal is in the same directory. The commands stay as written: curl's own configuration maps the
    // documented address to this gavel.
    shell.directory.push("gavel-demo");
    let port = shell.port;
    let settings = format!("connect-to = \"localhost:8080:127.0.0.1:{port}\"\nnoproxy = \"*\"\nfail-with-body\n");
    std::fs::write(shell.directory.join(".curlrc"), settings).unwrap();

    let asked: Value = serde_json::from_str(&shell.prints(ask).await).unwrap();
    assert_eq!(asked["status"], "awaiting_confirmation", "{asked}");
    assert_eq!(asked["actions"][0]["arguments"]["description"], "call mom", "{asked}");
    let approved: Value = serde_json::from_str(&shell.prints(approve).await).unwrap();
    assert_eq!(approved["status"], "completed", "{approved}");
    assert_eq!(approved["actions"][0]["state"], "completed", "{approved}");
    let evidence = shell.prints(evidence).await;
    for entry in [
        "approval_requested",
        "approval_resolved",
        "effect_intended",
        "effect_completed",
        "call mom",
    ] {
        assert!(evidence.contains(entry), "{entry}: {evidence}");
    }
    assert!(evidence.contains("✓ the audit log is intact: 4 rows"), "{evidence}");
}

/// Runs statements as an operator's shell does.
pub async fn execute(url: &str, statements: &str) {
    let statements = sqlx::raw_sql(AssertSqlSafe(statements.to_owned()));
    if url.starts_with("postgres") {
        let mut database = PgConnection::connect(url).await.unwrap();
        statements.execute(&mut database).await.unwrap();
    } else {
        let mut database = SqliteConnection::connect(url).await.unwrap();
        statements.execute(&mut database).await.unwrap();
    }
}
