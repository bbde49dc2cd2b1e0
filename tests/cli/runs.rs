//! `gavel agents run` and `gavel runs`: real processes and, for conversations, a stand-in for Gemini that speaks its
//! wire format.

use std::fs;
use std::process::{Command, Stdio};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::{Value, json};

use super::gemini::{Gemini, Reply};
use super::harness::{Place, Ran, Running, Terminal};
use super::raw::{Answer, RawServer};

const HELPER: &str = "---\nname: helper\ndescription: Helps with tasks.\ntools: [add_task, list_tasks]\napproval: never\n---\nBe kind.\n";

/// A place with agents in it.
pub(crate) fn agents(files: &[(&str, &str)]) -> Place {
    let place = Place::new();
    fs::create_dir(place.path().join("agents")).unwrap();
    for (file, text) in files {
        fs::write(place.path().join("agents").join(file), text).unwrap();
    }
    place
}

/// The environment that points to that Gemini.
pub(crate) fn asking(gemini: &Gemini) -> Vec<(&str, &str)> {
    vec![
        ("GEMINI_API_KEY", "test"),
        ("GEMINI_MODEL", "gemini-3.5-flash"),
        ("GEMINI_BASE_URL", &gemini.url),
    ]
}

/// An unused address.
pub(crate) fn free() -> String {
    format!("127.0.0.1:{}", crate::ports::free_port())
}

/// A running service.
pub(crate) fn serve(place: &Place, address: &str, environment: &[(&str, &str)]) -> Running {
    let mut serving = Running::start(place.command(&["--listen", address], environment));
    serving.line_with("Tools:");
    serving
}

/// `gavel ARGS`, while the test continues.
fn meanwhile(place: &Place, args: &[&str], environment: &[(&str, &str)]) -> JoinHandle<Ran> {
    let mut command = place.command(args, environment);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    std::thread::spawn(move || Ran::of(child.wait_with_output().unwrap()))
}

async fn asked(gemini: &Gemini, times: usize) {
    for _ in 0..3000 {
        if gemini.requests().len() >= times {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("Gemini was not asked {times} times");
}

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// D-R6, X-14: progress is printed while the agent works; standard output gets only the result.
#[test]
fn progress_goes_to_standard_error_and_only_the_result_to_standard_output() {
    let place = agents(&[("helper.md", HELPER)]);
    let ran = place.run(&["agents", "run", "helper", "add", "a", "task", "to", "call", "mom"]);
    for line in [
        "→ add_task {\"description\":\"call mom\"}",
        "✓ add_task (",
        "completed (2 steps, ",
    ] {
        assert!(
            ran.err.lines().any(|reported| reported.starts_with(line)),
            "{line}: {}",
            ran.err
        );
    }
    assert_eq!(ran.ended(0), "Added “call mom”.\n");

    let quiet = place.run(&["agents", "run", "-q", "helper", "--input", "query=show my tasks"]);
    assert_eq!(
        (quiet.err.as_str(), quiet.out.as_str()),
        ("", "Your tasks:\n1. call mom\n")
    );

    let json = place
        .run(&["agents", "run", "--json", "--user", "ann", "helper", "show my tasks"])
        .json();
    assert_eq!(
        (&json["status"], &json["agent_id"]),
        (&json!("completed"), &json!("helper"))
    );
    let of_ann = place.run(&["runs", "list", "--json", "--user", "ann"]).json();
    assert_eq!(of_ann["id"], json["id"]);

    let reported = place.run(&["agents", "run", "--events", "helper", "show my tasks"]);
    // Progress consists of the events, plus the name of the model.
    assert!(
        reported
            .err
            .starts_with("No credentials are set: the demo model answers. It understands no agents")
            && reported.err.lines().count() == 1,
        "{}",
        reported.err
    );
    let events = lines(&reported.ended(0));
    let kinds: Vec<_> = events
        .iter()
        .map(|event| event["type"].as_str().unwrap())
        .filter(|kind| *kind != "delta")
        .collect();
    assert_eq!(kinds, ["input", "turn", "tool_call", "tool_result", "turn", "end"]);

    let table = place
        .run(&["runs", "list", "--agent", "helper", "--status", "completed"])
        .ended(0);
    assert_eq!(
        table.lines().filter(|line| line.contains("completed")).count(),
        4,
        "{table}"
    );
    let id = events[0]["run_id"].as_str().unwrap();
    let shown = place.run(&["runs", "show", id]).ended(0);
    assert!(shown.contains("call 1  tasks / list_tasks  completed"), "{shown}");
    // A later watch prints the same, except for ephemeral events.
    let again = lines(&place.run(&["runs", "watch", "--events", id]).ended(0));
    let kept: Vec<_> = events.into_iter().filter(|event| event["type"] != "delta").collect();
    assert_eq!(again, kept);
}

/// D-4, D-R4: inputs have the types of the definition, from any option.
#[tokio::test(flavor = "multi_thread")]
async fn inputs_are_typed_by_the_definition_and_every_error_is_reported_before_the_run() {
    let place = agents(&[(
        "report.yaml",
        "name: report\ndescription: Reports.\ninputConfig:\n  inputs:\n    year: {description: y, type: integer, required: true}\n    \
         regions: {description: r, type: 'string[]'}\n    draft: {description: d, type: boolean}\npromptConfig:\n  \
         systemPrompt: Be exact.\n  query: '${year} ${regions} ${draft}'\n",
    )]);
    let gemini = Gemini::scripted(vec![Reply::Text("Here it is.")]).await;
    let environment = asking(&gemini);
    let run = |args: &[&str]| place.run_with(&[&["agents", "run", "report"], args].concat(), &environment);
    let task = |ran: Ran| {
        let events = lines(&ran.ended(0));
        let input = events.iter().find(|event| event["type"] == "input").unwrap();
        input["text"].as_str().unwrap().lines().last().unwrap().to_owned()
    };
    let pairs = [
        "--events",
        "--input",
        "year=2026",
        "--input",
        "regions=north,south",
        "--input",
        "draft=true",
    ];
    assert_eq!(task(run(&pairs)), r#"2026 ["north","south"] true"#);
    fs::write(place.path().join("in.json"), r#"{"year": 7, "regions": ["a,b"]}"#).unwrap();
    let file = ["--events", "--input-json", "in.json", "--input", "draft=false"];
    assert_eq!(task(run(&file)), r#"7 ["a,b"] false"#);
    let before = gemini.requests().len();

    let invalid = run(&[
        "--input",
        "year=soon",
        "--input",
        "drafts=true",
        "--input-json",
        "in.json",
        "words",
    ]);
    for error in [
        "--input year: \"soon\" is not of type integer",
        "drafts: is not an argument of report; allowed: did you mean `draft`?",
        "TEXT: report takes more than one text, or none",
        "report takes:",
        "regions (string[]): r",
        "year (integer, required): y",
    ] {
        assert!(invalid.err.contains(error), "{error}: {}", invalid.err);
    }
    assert_eq!(invalid.ended(2), "");
    for (args, words) in [
        (&["--input-json", "nowhere.json"][..], "nowhere.json: cannot be read"),
        (&[], "year: is missing; integer is required"),
        (&["--timeout", "0"], "give whole seconds from 1 to 86400"),
        (&["--background"], "--server"),
        (&["--json", "--events"], "cannot be used with"),
    ] {
        let ran = run(args);
        assert!(ran.err.contains(words), "{words}: {}", ran.err);
        ran.ended(2);
    }
    let blank = place.run(&["agents", "run", "report", "", " "]);
    assert_eq!(blank.status, 2, "{}", blank.err);
    assert!(blank.err.contains("the text is blank"), "{}", blank.err);
    let unknown = place.run(&["agents", "run", "repotr", "x"]);
    assert!(unknown.err.contains("did you mean `report`?"), "{}", unknown.err);
    unknown.ended(2);
    assert_eq!(gemini.requests().len(), before);
    let runs = place.run(&["runs", "list", "--json"]).ended(0);
    assert_eq!(runs.lines().count(), 2, "{runs}");
}

/// X-4, X-6: each final status has an exit status for scripts; a paused run prints how to resume it.
#[tokio::test(flavor = "multi_thread")]
async fn each_final_status_has_an_exit_status_and_a_paused_run_prints_its_resume_command() {
    let place = agents(&[(
        "short.md",
        "---\nname: short\ndescription: d\ntools: [list_tasks]\nmax_turns: 2\n---\nBe brief.\n",
    )]);
    let gemini = Gemini::scripted(vec![
        Reply::error(400, "INVALID_ARGUMENT", json!([])),
        Reply::call("list_tasks", json!({})),
        Reply::call("list_tasks", json!({"status": "all"})),
        Reply::Text("So far: nothing."),
        Reply::Text("All done."),
    ])
    .await;
    let environment = asking(&gemini);
    let failed = place.run_with(&["agents", "run", "short", "go"], &environment);
    assert!(
        failed
            .err
            .contains("\nfailed: The model's provider refused the request as invalid"),
        "{}",
        failed.err
    );
    assert_eq!(failed.ended(3), "");

    let paused = place.run_with(&["agents", "run", "-q", "short", "go"], &environment);
    let words = paused.err.clone();
    assert!(words.starts_with("paused: It used all of its 2 steps"), "{words}");
    assert_eq!(paused.ended(5), "So far: nothing.\n");
    let command = words.trim().rsplit("to resume it: gavel ").next().unwrap();
    let command: Vec<_> = command.split(' ').collect();
    let id = command[2];
    assert_eq!(command, ["runs", "resume", id]);
    let shown = place.run(&["runs", "show", id]).ended(0);
    assert!(
        shown.contains(&format!("to resume it: gavel runs resume {id}")),
        "{shown}"
    );

    let resumed = place.run_with(&command, &environment);
    assert!(resumed.err.contains("resumed"), "{}", resumed.err);
    // The earlier attempt is not shown again.
    assert!(!resumed.err.contains("So far: nothing."), "{}", resumed.err);
    assert_eq!(resumed.ended(0), "All done.\n");
    let by = place.run(&["runs", "list", "--limit", "1", "--json"]).json();
    assert_eq!((&by["id"], by["attempts"].as_array().unwrap().len()), (&id.into(), 1));
    let again = place.run_with(&command, &environment);
    let refused = "Only a run that is paused, or whose processes were lost, can be resumed; this one is completed.";
    assert!(again.err.contains(refused), "{}", again.err);
    again.ended(1);
    let watched = place.run(&["runs", "watch", "--quiet", id]);
    assert_eq!(watched.ended(0), "All done.\n");
    let stranger = place.run(&["runs", "watch", "--tenant", "acme", id]);
    assert!(stranger.err.contains("There is no run"), "{}", stranger.err);
    stranger.ended(1);
}

/// X-4: Ctrl-C cancels the run, and the run records it.
#[tokio::test(flavor = "multi_thread")]
async fn ctrl_c_cancels_the_run_and_waits_for_its_end() {
    let place = agents(&[("helper.md", HELPER)]);
    let gemini = Gemini::scripted(vec![Reply::call("list_tasks", json!({})), Reply::Hang]).await;
    let environment = [asking(&gemini), vec![("TERM", "xterm")]].concat();
    let mut terminal = Terminal::start(&place, &["agents", "run", "helper", "go"], &environment);
    terminal.shows("→ list_tasks {}");
    asked(&gemini, 2).await;
    terminal.shows("model call 2 · waiting for the model");
    terminal.types("\u{3}");
    terminal.shows("cancelling the run");
    terminal.shows("cancelled (");
    assert_eq!(terminal.ends(), Some(4));
    let run = place.run(&["runs", "list", "--json"]).json();
    assert_eq!(run["status"], "cancelled");
}

/// Pressing Ctrl-C twice returns the terminal, even if the cancellation gets no answer.
#[tokio::test(flavor = "multi_thread")]
async fn ctrl_c_twice_detaches_from_the_run_and_prints_its_id() {
    let place = agents(&[("helper.md", HELPER)]);
    let gemini = Gemini::scripted(vec![Reply::Hang]).await;
    let address = free();
    let serving = serve(&place, &address, &asking(&gemini));
    let server = format!("http://{address}");
    let mut terminal = Terminal::start(&place, &["agents", "run", "--server", &server, "helper", "go"], &[]);
    // A terminal without known cursor control gets plain lines.
    terminal.shows("run 0");
    asked(&gemini, 1).await;
    let tell = |signal: &str| {
        Command::new("kill")
            .args([signal, &serving.child.id().to_string()])
            .status()
    };
    assert!(tell("-STOP").unwrap().success());
    terminal.types("\u{3}");
    terminal.shows("cancelling the run");
    terminal.types("\u{3}");
    terminal.shows("will be cancelled by its worker, or by the next `gavel serve`");
    terminal.shows(&format!("`gavel runs watch --server {server} "));
    assert_eq!(terminal.ends(), Some(130));
    assert!(tell("-CONT").unwrap().success());
}

/// A `--server` that is not a server's URL is a usage error.
#[test]
fn an_invalid_server_url_is_a_usage_error() {
    let ran = Place::new().run(&["runs", "list", "--server", "ftp://x"]);
    assert!(ran.err.contains("give an http:// or https:// URL"), "{}", ran.err);
    ran.ended(2);
}

/// X-15: progress of a called agent is indented below its caller.
#[tokio::test(flavor = "multi_thread")]
async fn progress_of_a_sub_agent_is_indented_below_its_caller() {
    let boss = "---\nname: boss\ndescription: d\nsub_agents: [helper]\n---\nDelegate.\n";
    let place = agents(&[("helper.md", HELPER), ("boss.md", boss)]);
    let gemini = Gemini::scripted(vec![
        Reply::call("helper", json!({"query": "list them"})),
        Reply::call("list_tasks", json!({})),
        Reply::Text("There are none."),
        Reply::Text("Nothing to do."),
    ])
    .await;
    let ran = place.run_with(&["agents", "run", "boss", "what is there?"], &asking(&gemini));
    let reported: Vec<_> = ran.err.lines().map(|line| line.split(" (").next().unwrap()).collect();
    assert_eq!(
        reported[1..],
        [
            "→ agent helper \"list them\"",
            "  → list_tasks {}",
            "  ✓ list_tasks",
            "    There are none.",
            "✓ helper",
            "completed",
        ],
        "{}",
        ran.err
    );
    assert_eq!(ran.ended(0), "Nothing to do.\n");
    let listed = place.run(&["runs", "list", "--json"]).json();
    assert_eq!(listed["agent_id"], "boss", "called runs are not listed");
}

/// D-E: an agent with missing tools names the setting that is missing, and works once it is set.
#[tokio::test(flavor = "multi_thread")]
async fn an_unavailable_agent_names_the_missing_setting_and_then_works() {
    let place = Place::new();
    let gemini = Gemini::scripted(vec![
        Reply::call("ls", json!({"path": "."})),
        Reply::call(
            "complete_task",
            json!({"report": {"summary": "There is one file.", "relevant_locations": [], "exploration": ["ls"], "open_questions": []}}),
        ),
    ])
    .await;
    let args = ["agents", "run", "--json", "codebase_investigator", "what is there?"];
    let refused = place.run_with(&args, &asking(&gemini));
    assert!(
        refused.err.contains("codebase_investigator is unavailable") && refused.err.contains("FILES_ROOT"),
        "{}",
        refused.err
    );
    assert_eq!(refused.ended(1), "");
    assert_eq!(gemini.requests().len(), 0);
    fs::create_dir(place.path().join("root")).unwrap();
    fs::write(place.path().join("root/only.txt"), "x").unwrap();
    let environment = [asking(&gemini), vec![("FILES_ROOT", "root")]].concat();
    let run = place.run_with(&args, &environment).json();
    assert_eq!(run["output"]["summary"], "There is one file.");
    let reported = gemini.requests()[1]["contents"].to_string();
    assert!(reported.contains("only.txt"), "{reported}");
}

/// X-14: background runs of another gavel.
#[tokio::test(flavor = "multi_thread")]
async fn runs_of_another_gavel_can_be_started_listed_watched_and_cancelled() {
    let place = agents(&[("helper.md", HELPER)]);
    let gemini = Gemini::scripted(vec![Reply::Text("Done."), Reply::Hang]).await;
    let address = free();
    let serving = serve(&place, &address, &asking(&gemini));
    let server = format!("http://{address}");
    let elsewhere = Place::new();
    let at = |verb: &[&str], args: &[&str]| elsewhere.run(&[verb, &["--server", &server], args].concat());

    let ran = at(&["agents", "run"], &["helper", "go"]);
    assert!(ran.err.contains("completed (1 step,"), "{}", ran.err);
    assert_eq!(ran.ended(0), "Done.\n");

    let begun = at(&["agents", "run"], &["--background", "--user", "ann", "helper", "go"]);
    let id = begun.out.trim().to_owned();
    let hint = format!("watch it: gavel runs watch --server {server} --user ann {id}");
    assert_eq!(begun.err.trim(), hint);
    begun.ended(0);
    asked(&gemini, 2).await;
    let listed = at(&["runs", "list"], &["--user", "ann", "--json"]).json();
    assert_eq!(
        (listed["id"].as_str(), &listed["status"]),
        (Some(id.as_str()), &json!("running"))
    );
    let others = at(&["runs", "show"], &["--user", "bob", &id]);
    assert!(
        others.err.contains("There is no run") && others.err.contains(&id),
        "{}",
        others.err
    );
    others.ended(1);

    let watching = meanwhile(
        &elsewhere,
        &["runs", "watch", "--server", &server, "--user", "ann", &id],
        &[],
    );
    let cancelled = at(&["runs", "cancel"], &["--user", "ann", &id]).ended(0);
    assert!(cancelled.contains("cancelled"), "{cancelled}");
    let watched = watching.join().unwrap();
    assert!(watched.err.contains("cancelled ("), "{}", watched.err);
    watched.ended(4);
    let again = at(&["runs", "cancel"], &["--user", "ann", &id]).ended(0);
    assert_eq!(again.trim(), format!("run {id} is cancelled"));
    let shown = at(&["runs", "show"], &["--user", "ann", "--json", &id]).json();
    assert_eq!(
        (&shown["status"], &shown["tool_calls"]),
        (&json!("cancelled"), &json!([]))
    );
    let unknown = at(&["agents", "run"], &["--project", "nowhere", "helper", "go"]);
    assert!(unknown.err.contains("there is no project nowhere"), "{}", unknown.err);
    unknown.ended(2);
    assert!(!elsewhere.path().join("gavel.db").exists());
    assert_eq!(serving.stop(), Some(0));
}

/// Promise: at most once, on the command line. The server is killed while a call is in flight. A follower reconnects
/// when the server is back, and prints the in-doubt call and how to settle it. The call is not repeated.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_is_followed_through_a_server_crash_and_its_in_doubt_call_is_settled() {
    let mut raw = RawServer::start(|request| (request.method() == "tools/call").then_some(Answer::Hang)).await;
    let gemini = Gemini::scripted(vec![Reply::call("act", json!({"n": 1})), Reply::Text("It is done.")]).await;
    let place = agents(&[(
        "worker.md",
        "---\nname: worker\ndescription: d\ntools: [act]\napproval: never\n---\nWork.\n",
    )]);
    let servers = json!({"mcpServers": {"raw": {"url": raw.url}}});
    fs::write(place.path().join("mcp.json"), servers.to_string()).unwrap();
    let environment = [
        asking(&gemini),
        vec![("GAVEL_MCP_CONFIG", "mcp.json"), ("GAVEL_RUNS_LEASE_SECONDS", "1")],
    ]
    .concat();
    let address = free();
    let server = format!("http://{address}");
    let serving = serve(&place, &address, &environment);
    let following = meanwhile(
        &place,
        &["agents", "run", "--server", &server, "--json", "worker", "go"],
        &[],
    );
    raw.saw("tools/call").await;
    serving.reported("-KILL");
    let serving = serve(&place, &address, &environment);

    let followed = tokio::task::spawn_blocking(|| following.join().unwrap()).await.unwrap();
    // Once for each attempt until the server is there again.
    assert!(followed.err.contains("! connection lost"), "{}", followed.err);
    for words in [
        "→ act {\"n\":1}",
        "paused: The outcome of a call is unknown",
        "in doubt: act {\"n\":1}",
    ] {
        assert_eq!(followed.err.matches(words).count(), 1, "{words}: {}", followed.err);
    }
    let run: Value = serde_json::from_str(&followed.ended(5)).unwrap();
    let (id, action) = (
        run["id"].as_str().unwrap(),
        run["in_doubt"][0]["action_id"].as_str().unwrap(),
    );

    let unsettled = place.run(&["runs", "resume", "--server", &server, id]);
    let command = format!("gavel runs resume --server {server} {id} --settled {action}=");
    let [happened, did_not] = ["happened", "did_not_happen"].map(|outcome| format!("{command}{outcome}\n"));
    assert!(
        unsettled.err.contains(&happened) && unsettled.err.contains(&did_not),
        "{}",
        unsettled.err
    );
    unsettled.ended(2);
    let shown = place.run(&["runs", "show", "--server", &server, id]).ended(0);
    assert!(
        shown.contains(&happened) && shown.contains("call 1  raw / act  in_doubt"),
        "{shown}"
    );
    for invalid in ["x", "x=happened", &format!("{action}=maybe")] {
        let ran = place.run(&["runs", "resume", "--server", &server, id, "--settled", invalid]);
        assert!(ran.err.contains("did_not_happen"), "{}", ran.err);
        ran.ended(2);
    }
    let pasted: Vec<_> = happened.trim_end().split(' ').skip(1).collect();
    assert_eq!(place.run(&pasted).ended(0), "It is done.\n");
    assert_eq!(raw.count("tools/call"), 0, "it was not called again");
    assert_eq!(serving.stop(), Some(0));
}

/// A process that was started for one run or one message claims no run: it would abandon them at its end.
#[tokio::test(flavor = "multi_thread")]
async fn a_process_started_for_one_command_claims_no_run() {
    let place = agents(&[("helper.md", HELPER)]);
    // Longer than the lease of the dead process, and than the interval of the sweep.
    let later = Reply::After(Duration::from_secs(4), Box::new(Reply::Text("Done.")));
    let chats_later = Reply::After(Duration::from_secs(4), Box::new(Reply::Text("Hello.")));
    let gemini = Gemini::scripted(vec![Reply::Hang, later, chats_later]).await;
    let environment = [asking(&gemini), vec![("GAVEL_RUNS_LEASE_SECONDS", "1")]].concat();
    let address = free();
    let serving = serve(&place, &address, &environment);
    let server = format!("http://{address}");
    let begun = place.run(&[
        "agents",
        "run",
        "--server",
        &server,
        "--background",
        "-q",
        "helper",
        "go",
    ]);
    assert_eq!(begun.err, "");
    let left = begun.ended(0);
    asked(&gemini, 1).await;
    serving.reported("-KILL");
    let ran = place.run_with(&["agents", "run", "helper", "go"], &environment);
    assert_eq!(ran.ended(0), "Done.\n");
    place.run_with(&["chat", "hello"], &environment).ended(0);
    assert_eq!(gemini.requests().len(), 3);
    let shown = place.run(&["runs", "show", "--json", left.trim()]).json();
    assert_eq!(shown["status"], "running", "it waits for a service");
}

/// Commands that only read need nothing but the database: they start no server, and change and create no file. A proxy
/// for outgoing requests is not used for requests to the own process.
#[test]
fn commands_that_read_need_only_the_database_and_change_nothing() {
    let place = agents(&[("invalid.md", "x")]);
    fs::write(place.path().join("invalid"), "x").unwrap();
    let environment = [
        ("GAVEL_MCP_CONFIG", "invalid"),
        ("GAVEL_POLICY", "invalid"),
        ("GAVEL_CONSTITUTION", "invalid"),
        ("GAVEL_AGENTS", "agents"),
        ("HTTP_PROXY", "http://127.0.0.1:9"),
        ("ALL_PROXY", "http://127.0.0.1:9"),
    ];
    let commands: [&[&str]; 6] = [
        &["runs", "list"],
        &["threads", "list"],
        &["approvals", "list"],
        &["approvals", "grants"],
        &["decisions", "list"],
        &["runs", "watch", "01890a5d-ac96-774b-bcce-b302099a8057"],
    ];
    for command in commands {
        let ran = place.run_with(command, &environment);
        assert!(
            ran.err.contains("the database cannot be read"),
            "{command:?}: {}",
            ran.err
        );
        ran.ended(1);
    }
    let files = || {
        let files = fs::read_dir(place.path()).unwrap();
        let mut names: Vec<_> = files
            .map(|file| file.unwrap().file_name().into_string().unwrap())
            .collect();
        // SQLite's own, while a connection is open.
        names.retain(|name| !name.ends_with("-wal") && !name.ends_with("-shm"));
        names.sort();
        names
    };
    assert_eq!(files(), ["agents", "invalid"]);
    place.run(&["migrate"]).ended(0);
    let before = files();
    for command in commands {
        let ran = place.run_with(command, &environment);
        let status = i32::from(command[1] == "watch");
        assert!(!ran.err.contains("invalid"), "{command:?}: {}", ran.err);
        assert_eq!(ran.ended(status), "", "{command:?}");
    }
    assert_eq!(files(), before);
}

#[test]
fn the_help_of_runs_has_examples() {
    let place = Place::new();
    for verb in ["list", "show", "watch", "cancel", "resume"] {
        let help = place.run(&["runs", verb, "--help"]).ended(0);
        assert!(
            help.contains("Examples:") && help.contains(&format!("gavel runs {verb}")),
            "{help}"
        );
    }
    for verb in [&["agents", "run"][..], &["runs", "watch"], &["runs", "resume"]] {
        let help = place.run(&[verb, &["--help"]].concat()).ended(0);
        for status in ["0 completed", "3 the run failed", "5 it is paused"] {
            assert!(help.contains(status), "{help}");
        }
    }
}
