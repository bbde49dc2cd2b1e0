//! `gavel plan`: a plan is confirmed and worked through, with the real github server against a stand-in for GitHub.

use std::fs;

use serde_json::{Value, json};

use super::gemini::{Gemini, Reply};
use super::github::{GitHub, TOKEN};
use super::harness::{Place, Ran, Running, Terminal};
use super::runs::{agents, asking, free, serve};
use super::task_model::model;

/// A place with a GitHub that has the repository acme/dates, and a model.
struct Studio {
    place: Place,
    github: GitHub,
    gemini: Gemini,
}

impl Studio {
    async fn new(script: Vec<Reply>) -> Self {
        let github = GitHub::start().await;
        github.state(|state| {
            let repository = state.add("acme", "dates");
            repository
                .files
                .insert("README.md".to_owned(), b"# Dates\n\nReads a date from text.\n".to_vec());
        });
        let built_in: Value = serde_json::from_str(gavel::app::BUILT_IN_SERVERS).unwrap();
        let mut entry = built_in["mcpServers"]["github"].clone();
        entry["command"] = json!(env!("CARGO_BIN_EXE_gavel"));
        entry["env"] =
            json!({"GITHUB_TOKEN": TOKEN, "GITHUB_API_URL": github.url(), "GITHUB_URL": "https://github.com"});
        let place = agents(&[
            ("planner.md", include_str!("../../agents/planner.md")),
            ("task_worker.md", include_str!("../../agents/task_worker.md")),
        ]);
        let servers = json!({"mcpServers": {"github": entry}});
        fs::write(place.path().join("mcp.json"), servers.to_string()).unwrap();
        Self {
            place,
            github,
            gemini: Gemini::scripted(script).await,
        }
    }

    fn environment(&self) -> Vec<(&str, &str)> {
        [asking(&self.gemini), vec![("GAVEL_MCP_CONFIG", "mcp.json")]].concat()
    }

    fn serve(&self) -> (Running, String) {
        let address = free();
        (
            serve(&self.place, &address, &self.environment()),
            format!("http://{address}"),
        )
    }

    fn run(&self, server: &str, args: &[&str]) -> Ran {
        let at = ["--server", server, "--user", "ann"];
        self.place.run(&[&["plan"], args, &at].concat())
    }

    /// A session with a plan; its id.
    fn start(&self, server: &str) -> String {
        self.start_until(server, "2h")
    }

    fn start_until(&self, server: &str, deadline: &str) -> String {
        let args = [
            "start",
            "--repo",
            REPOSITORY,
            "--deadline",
            deadline,
            "--json",
            "Accept ISO weeks",
        ];
        let started = self.run(server, &args);
        let read = "Read acme/dates: main at 3f1c9ab, 1 file, no AGENT.md (5 calls, ";
        assert!(started.err.contains(read), "{}", started.err);
        let started = started.json();
        assert_eq!(started["status"], "AWAITING_CONFIRMATION", "{started}");
        started["sessionId"].as_str().unwrap().to_owned()
    }

    fn issues(&self) -> usize {
        self.github
            .state(|state| state.repository("acme", "dates").issues.len())
    }
}

const REPOSITORY: &str = "https://github.com/acme/dates";

const START: [&str; 7] = [
    "plan",
    "start",
    "--repo",
    REPOSITORY,
    "--deadline",
    "2h",
    "Accept ISO weeks",
];

/// P-205, P-302, P-303: the confirmation of another version begins nothing; then each step has its lines, without
/// colours or cursor movements, and standard output has the result alone. The exit status says how a session ended.
#[tokio::test(flavor = "multi_thread")]
async fn a_confirmed_plan_is_worked_through_line_by_line() {
    let studio = Studio::new(vec![model()]).await;
    let (serving, server) = studio.serve();
    let unconfirmed = studio.start_until(&server, "14s");
    let id = studio.start(&server);
    let dry = studio.run(&server, &["execute", "--dry-run", &id]).ended(0);
    assert!(
        dry.contains("createIssue") && dry.contains("allow") && dry.contains("server github is connected"),
        "{dry}"
    );
    let other = studio.run(&server, &["execute", "--plan-version", "2", &id]);
    assert_eq!((other.status, other.out.as_str()), (1, ""), "{}", other.err);
    let waits = studio.run(&server, &["show", "--json", &id]).json();
    assert_eq!(
        (&waits["status"], studio.issues()),
        (&json!("AWAITING_CONFIRMATION"), 0)
    );

    let ran = studio.run(&server, &["execute", "--plan-version", "1", &id]);
    for line in [
        "Plan 1 confirmed by ann: may act on acme/dates, branches gavel/*, with 2 tools.\n",
        "step 1 of at most 25",
        "  reason   I look first.",
        "  act      getFileContents \"README.md\"",
        "  reflect  not accepted: ",
        "step 1 shows \"Reads a date from text\"",
        "  result   ✓ getFileContents (",
        "Plan 2   ~ t2 Open one issue: one is enough",
        "t1 COMPLETED after 1 step: It is seen.",
        "  act      createIssue \"Weeks are missing\"",
        "t2 COMPLETED after 1 step: It is seen.",
    ] {
        assert!(ran.err.contains(line), "{line}: {}", ran.err);
    }
    assert!(!ran.err.contains('\u{1b}') && !ran.err.contains('\r'), "{}", ran.err);
    let end = ran.ended(0);
    assert!(
        end.starts_with("COMPLETED in ") && end.ends_with("· 2 tasks, 2 steps, 8 model calls\n"),
        "{end}"
    );
    assert_eq!(studio.issues(), 1);

    let again = studio.run(&server, &["execute", "-q", &id]);
    assert_eq!((again.err.as_str(), again.out.as_str()), ("", end.as_str()));
    let events = studio.run(&server, &["watch", "--events", &id]).ended(0);
    let events: Vec<Value> = events.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(
        (&events[0]["type"], &events.last().unwrap()["type"]),
        (&json!("status"), &json!("result"))
    );
    let whole = studio.run(&server, &["watch", "--json", "--quiet", &id]).json();
    assert_eq!(
        (&whole["status"], &whole["planVersion"]),
        (&json!("COMPLETED"), &json!(2))
    );
    let log = studio.run(&server, &["log", &id]).ended(0);
    assert!(log.contains("getFileContents") && log.contains("createIssue"), "{log}");
    let rows = studio.run(&server, &["log", "--json", &id]).ended(0);
    assert_eq!(rows.lines().count(), 2, "{rows}");
    let shown = studio.run(&server, &["show", &id, "t1"]).ended(0);
    for text in [
        "step 1  completed",
        "I look first.",
        "observed",
        "step 1 shows \"Reads a date from text\"",
    ] {
        assert!(shown.contains(text), "{text}: {shown}");
    }
    let task = studio.run(&server, &["show", "--json", &id, "t1"]).json();
    assert_eq!(task["reactHistory"][0]["action"]["tool"], "getFileContents");

    // A session that fails, and one whose deadline passes, have an exit status of their own.
    let odd = ["start", "--repo", REPOSITORY, "--deadline", "1h", "something odd"];
    let failed = studio.run(&server, &odd);
    assert!(failed.err.contains("FAILED: model_blocked: "), "{}", failed.err);
    assert_eq!(failed.status, 3);
    let passed = studio.run(&server, &["watch", "--to-end", &unconfirmed]);
    assert!(passed.err.contains("DEADLINE_EXCEEDED: deadline: "), "{}", passed.err);
    assert_eq!(passed.status, 7);
    assert_eq!(serving.stop(), Some(0));
}

/// P-306: without a terminal a command that waits for a person says how to answer, and the session continues after that.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_asks_ends_the_command_and_not_the_session() {
    let studio = Studio::new(vec![model()]).await;
    let (_serving, server) = studio.serve();
    let id = studio.start(&server);
    let ran = studio.run(&server, &["execute", "--ask-for", "createIssue", &id]);
    let command = ran
        .err
        .lines()
        .find(|line| line.contains("gavel approvals approve"))
        .unwrap()
        .to_owned();
    assert!(
        ran.err.contains("with 2 tools. Asks before createIssue.\n"),
        "{}",
        ran.err
    );
    assert!(ran.err.contains("waits for an approval of createIssue"), "{}", ran.err);
    assert!(
        ran.err.contains("waits for a person, and continues after the answer"),
        "{}",
        ran.err
    );
    assert_eq!(ran.ended(6), "");
    assert_eq!(studio.issues(), 0);
    let words: Vec<_> = command
        .split_whitespace()
        .skip_while(|word| *word != "gavel")
        .skip(1)
        .collect();
    studio.place.run(&words).ended(0);
    let end = studio.run(&server, &["watch", &id]).ended(0);
    assert!(end.starts_with("COMPLETED in "), "{end}");
    assert_eq!(studio.issues(), 1);
}

/// P-205: in the conversation the word execute confirms what was shown; this process does the work, and shows it.
#[tokio::test(flavor = "multi_thread")]
async fn the_word_execute_confirms_the_plan_that_was_shown() {
    let studio = Studio::new(vec![model()]).await;
    let mut terminal = Terminal::start(&studio.place, &START, &studio.environment());
    terminal.shows("Read acme/dates: main at 3f1c9ab, 1 file, no AGENT.md (5 calls, ");
    terminal.shows("Plan 1 · 2 tasks");
    terminal.shows("Say what to change, or: execute");
    terminal.shows("> ");
    terminal.types("execute\n");
    terminal.shows("Plan 1 confirmed by ");
    terminal.shows("step 1 shows \"Reads a date from text\"");
    terminal.shows("COMPLETED in ");
    assert_eq!(terminal.ends(), Some(0));
    assert_eq!(studio.issues(), 1);
}

/// Ctrl-C ends the watching, and not the session.
#[tokio::test(flavor = "multi_thread")]
async fn ctrl_c_stops_watching_and_the_session_continues() {
    let studio = Studio::new(vec![model()]).await;
    let (_serving, server) = studio.serve();
    let id = studio.start(&server);
    let begun = studio.run(&server, &["execute", "--background", "--ask-for", "createIssue", &id]);
    assert_eq!(begun.ended(0), format!("{id}\n"));
    let mut terminal = Terminal::start(
        &studio.place,
        &["plan", "watch", "--server", &server, "--user", "ann", &id],
        &[],
    );
    terminal.shows("gavel approvals approve");
    terminal.types("\u{3}");
    terminal.shows("continues in its worker");
    assert_eq!(terminal.ends(), Some(130));
    let session = studio.run(&server, &["show", "--json", &id]).json();
    assert_eq!(session["status"], "EXECUTING", "{session}");
    let cancelled = studio.run(&server, &["cancel", &id]);
    assert_eq!(cancelled.status, 0, "{}", cancelled.err);
    assert_eq!(studio.run(&server, &["watch", "-q", &id]).status, 4);
}
