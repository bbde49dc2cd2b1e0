//! Planning sessions whose processes are killed with -9, again and again, and whose answers from GitHub are lost: no
//! step is lost or made twice, there is one issue and one pull request, and nothing is called done that was not seen
//! (P-305).
//!
//! `GAVEL_ENDURED=200` plays that many sessions per database instead of a few, and prints the numbers;
//! `GAVEL_ENDURED_PROGRAM` is another build of gavel to play them with.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::audit::audit_is_whole;
use crate::crash::{Process, start_beside};
use crate::gemini::{Gemini, Reply};
use crate::github::{Fault, GitHub};
use crate::harness::{Answer, binary, client, rows, until};
use crate::planning::{ahead, github, plan};
use crate::postgres;

/// The longest that a session may take, however often its process dies.
const PATIENCE: Duration = Duration::from_secs(180);
/// Sessions that are worked on at the same time.
const AT_ONCE: usize = 8;

/// How many sessions are played.
fn sessions() -> usize {
    let given = std::env::var("GAVEL_ENDURED").ok();
    given.map_or(AT_ONCE, |text| text.parse().expect("GAVEL_ENDURED is a number"))
}

/// The program that is killed.
fn program() -> String {
    std::env::var("GAVEL_ENDURED_PROGRAM").unwrap_or_else(|_| binary().to_owned())
}

/// A model without a memory: it looks at the conversation, and does what is missing. Each session has its own title.
fn model() -> Reply {
    Reply::from(|request| {
        let config = &request["toolConfig"]["functionCallingConfig"];
        let text = request["contents"].to_string();
        match (config["mode"].as_str(), config["allowedFunctionNames"].to_string()) {
            (Some("NONE"), _) => Reply::Text("I do what is missing."),
            (Some("ANY"), allowed) if allowed.contains("reflect") => reflect(request),
            (Some("ANY"), _) => act(request, &text),
            _ => plan(vec![
                worded("Read the readme", &["getFileContents", "getRepositoryTree"]),
                worded(
                    "Open an issue and a pull request",
                    &["createIssue", "createPullRequest"],
                ),
            ]),
        }
    })
}

fn worded(title: &str, tools: &[&str]) -> Value {
    json!({"title": title, "goal": title, "doneWhen": "a result shows it", "tools": tools})
}

/// The results of the task's calls, in order, with the names of the tools.
fn results(request: &Value) -> Vec<(String, Value)> {
    let contents = request["contents"].as_array().unwrap();
    let parts = contents.iter().flat_map(|content| content["parts"].as_array().unwrap());
    let responses = parts.filter_map(|part| part.get("functionResponse"));
    let of_tools = responses.filter(|response| response["name"] != "reflect");
    of_tools
        .map(|response| {
            (
                response["name"].as_str().unwrap().to_owned(),
                response["response"].clone(),
            )
        })
        .collect()
}

/// What the task needs, in order.
fn needed(request: &Value) -> [&'static str; 2] {
    let first = request["contents"][0]["parts"][0]["text"].as_str().unwrap();
    match first.contains("Your task is t1") {
        true => ["getFileContents", "getRepositoryTree"],
        false => ["createIssue", "createPullRequest"],
    }
}

fn has(results: &[(String, Value)], tool: &str) -> bool {
    results
        .iter()
        .any(|(name, response)| name == tool && response.get("error").is_none())
}

fn act(request: &Value, text: &str) -> Reply {
    let results = results(request);
    let [first, second] = needed(request);
    let tool = if has(&results, first) { second } else { first };
    let title = text
        .split_once("Session ")
        .unwrap()
        .1
        .split_once('!')
        .unwrap()
        .0
        .to_owned();
    let mut args = json!({"owner": "acme", "repo": "dates"});
    let further = match tool {
        "getFileContents" => json!({"path": "README.md"}),
        "createIssue" => json!({"title": title}),
        "createPullRequest" => json!({"title": title, "head": format!("gavel/{title}"), "base": "main"}),
        _ => json!({}),
    };
    args.as_object_mut()
        .unwrap()
        .extend(further.as_object().unwrap().clone());
    Reply::call(tool, args)
}

fn reflect(request: &Value) -> Reply {
    let results = results(request);
    let [first, second] = needed(request);
    let done = has(&results, first) && has(&results, second);
    let shown = results
        .iter()
        .zip(1..)
        .filter(|((_, response), _)| response.get("error").is_none())
        .last();
    let evidence: Vec<_> = shown
        .filter(|_| done)
        .map(|(_, n)| {
            // An address in every result of these tools.
            let quote = match second {
                "getRepositoryTree" => "README.md",
                _ => "https://github.com/acme/dates",
            };
            json!({"observation": n, "quote": quote})
        })
        .into_iter()
        .collect();
    Reply::call(
        "reflect",
        json!({"is_task_complete": done, "summary": "as far as it is seen", "evidence": evidence}),
    )
}

/// Where sessions are played: a database, a GitHub, a model, and a process that dies.
struct Place {
    directory: TempDir,
    database: String,
    github: GitHub,
    servers: Value,
    gemini: Gemini,
}

impl Place {
    async fn on(database: Option<String>) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let sqlite = format!("sqlite://{}", directory.path().join("gavel.db").display());
        let (github, mut entry) = github().await;
        entry["command"] = json!(program());
        Self {
            database: database.unwrap_or(sqlite),
            servers: json!({"mcpServers": {"github": entry}}),
            gemini: Gemini::scripted(vec![Reply::After(Duration::from_millis(20), Box::new(model()))]).await,
            github,
            directory,
        }
    }

    async fn start(&self) -> Process {
        let mut command = Command::new(program());
        command
            .env("GAVEL_RUNS_LEASE_SECONDS", "1")
            .env("GAVEL_PLANNING_SESSIONS", "100000")
            .env("GAVEL_PLANNING_SESSIONS_PER_USER", "100000");
        start_beside(
            command,
            &self.gemini.url,
            &self.database,
            self.directory.path(),
            &self.servers,
        )
        .await
    }
}

async fn post(process: &Process, path: &str, body: &Value) -> Option<(u16, Value)> {
    let request = client()
        .post(format!("{}{path}", process.url))
        .header("x-gavel-user", "ann")
        .json(body);
    let response = request.send().await.ok()?;
    let status = response.status().as_u16();
    Some((status, response.json().await.ok()?))
}

async fn get(process: &Process, path: &str) -> Value {
    let request = client()
        .get(format!("{}{path}", process.url))
        .header("x-gavel-user", "ann");
    Answer::of(request).await.expect(200)
}

/// Plays these many sessions at once, while the process is killed `deaths` times. Returns them as they ended.
async fn play(place: &Place, count: usize, deaths: u32, round: usize) -> Vec<Value> {
    let mut process = place.start().await;
    let mut ids = Vec::new();
    for n in 0..count {
        let title = format!("{round}-{n}");
        let body = json!({
            "prompt": format!("Session {title}!"), "repoUrl": "https://github.com/acme/dates",
            "deadline": ahead(Duration::from_secs(3600)),
        });
        let (status, session) = post(&process, "/v1/sessions", &body).await.unwrap();
        assert_eq!(
            (status, &session["status"]),
            (201, &json!("AWAITING_CONFIRMATION")),
            "{session}"
        );
        ids.push(session["sessionId"].as_str().unwrap().to_owned());
    }
    for id in &ids {
        let (status, session) = post(
            &process,
            &format!("/v1/sessions/{id}/execute"),
            &json!({"planVersion": 1}),
        )
        .await
        .unwrap();
        assert_eq!(status, 202, "{session}");
    }
    for death in 0..deaths {
        tokio::time::sleep(Duration::from_millis(fastrand::u64(50..1500))).await;
        // A run that loses three processes in a row without progress fails, as documented.
        if death >= 2 {
            let stuck = "SELECT COUNT(*) FROM agent_run WHERE status = 'running' AND takes > 0";
            until("all runs to have made progress", async || {
                rows(&place.database, stuck).await == 0
            })
            .await;
        }
        process.child.0.kill().unwrap();
        process.child.0.wait().unwrap();
        process = place.start().await;
    }
    let began = Instant::now();
    let mut ended = BTreeMap::new();
    while ended.len() < ids.len() {
        assert!(
            began.elapsed() < PATIENCE,
            "{} of {} have ended",
            ended.len(),
            ids.len()
        );
        for id in &ids {
            if !ended.contains_key(id) {
                let session = get(&process, &format!("/v1/sessions/{id}")).await;
                if !session["completedAt"].is_null() {
                    ended.insert(id.clone(), session);
                }
            }
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    for session in ended.values_mut() {
        let id = session["sessionId"].as_str().unwrap().to_owned();
        for task in ["t1", "t2"] {
            session[task] = get(&process, &format!("/v1/sessions/{id}/tasks/{task}")).await;
        }
    }
    process.child.0.kill().unwrap();
    process.child.0.wait().unwrap();
    ended.into_values().collect()
}

/// What went amiss in a session, if anything.
fn faults(place: &Place, session: &Value) -> Vec<String> {
    let mut faults = Vec::new();
    let title = session["prompt"].as_str().unwrap();
    let title = &title["Session ".len()..title.len() - 1];
    if session["status"] != "COMPLETED" {
        faults.push(format!("it is {}: {}", session["status"], session["statusReason"]));
    }
    let count = |things: &BTreeMap<u64, Value>| things.values().filter(|thing| thing["title"] == title).count();
    let (pulls, issues) = place.github.state(|state| {
        let repository = state.repository("acme", "dates");
        (count(&repository.pulls), count(&repository.issues))
    });
    if (pulls, issues) != (1, 1) {
        faults.push(format!("{pulls} pull requests and {issues} issues"));
    }
    for task in ["t1", "t2"] {
        let steps = session[task]["reactHistory"].as_array().unwrap();
        for (step, n) in steps.iter().zip(1..) {
            if step["n"] != n || step["observation"].is_null() || step["reflection"].is_null() {
                faults.push(format!("step {n} of {task} is {step}"));
            }
        }
        // Two calls, each made once: no fault of this test needs a third.
        if steps.len() != 2 {
            faults.push(format!("{task} has {} steps", steps.len()));
        }
        let last = &steps.last().map_or(Value::Null, |step| step["reflection"].clone());
        let evidence = last["evidence"].as_array().cloned().unwrap_or_default();
        let shown = |evidence: &Value| {
            let n = evidence["observation"].as_u64().unwrap_or_default() as usize;
            let step = n.checked_sub(1).and_then(|at| steps.get(at));
            let quote = evidence["quote"].as_str().unwrap_or_default();
            step.is_some_and(|step| step["observation"].to_string().contains(quote))
        };
        if evidence.is_empty() || !evidence.iter().all(shown) {
            faults.push(format!("{task} is complete without evidence: {last}"));
        }
    }
    faults
}

async fn endure(database: Option<String>, name: &str) {
    let place = Place::on(database).await;
    let (mut played, mut deaths, mut bad) = (0, 0, Vec::new());
    let all = sessions();
    while played < all {
        let count = AT_ONCE.min(all - played);
        let kills = fastrand::u32(2..=4);
        // Answers that are lost after the effect.
        for path in ["/pulls", "/issues"] {
            if fastrand::bool() {
                place.github.fail("POST", path, [Fault::CutAfter]);
            }
        }
        for session in play(&place, count, kills, played).await {
            let faults = faults(&place, &session);
            if !faults.is_empty() {
                let steps = [&session["t1"]["reactHistory"], &session["t2"]["reactHistory"]];
                bad.push(format!("{}: {}: {steps:?}", session["sessionId"], faults.join("; ")));
            }
        }
        played += count;
        deaths += kills;
        let log: String = place
            .directory
            .path()
            .read_dir()
            .unwrap()
            .flatten()
            .filter(|file| file.path().extension().is_some_and(|extension| extension == "log"))
            .map(|file| std::fs::read_to_string(file.path()).unwrap())
            .collect();
        assert!(!log.contains("panicked"), "{log}");
    }
    eprintln!(
        "{name}: {played} sessions, {deaths} times kill -9, {} faults",
        bad.len()
    );
    assert!(bad.is_empty(), "{}", bad.join("\n"));
    audit_is_whole(&place.database, name).await;
    place.github.finish();
}

/// P-305
#[tokio::test(flavor = "multi_thread")]
async fn sessions_endure_kill_9_and_lost_answers_on_sqlite() {
    endure(None, "sqlite").await;
}

/// P-305
#[tokio::test(flavor = "multi_thread")]
async fn sessions_endure_kill_9_and_lost_answers_on_postgres() {
    endure(Some(postgres::database().await), "postgres").await;
}
