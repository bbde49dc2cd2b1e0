//! The command line, by the real binary: its words, its exit status, and what goes to which stream.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use std::fs;
use std::io::{BufRead, BufReader, Lines, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rustix::pty::{self, OpenptFlags};
use rustix::termios::{SpecialCodeIndex, tcgetattr};
use serde_json::Value;
use sha2::{Digest, Sha256};
use tempfile::TempDir;

/// A working directory with nothing in it and nothing of the tester's environment.
struct Place {
    folder: TempDir,
}

/// What a run left.
struct Ran {
    status: i32,
    out: String,
    err: String,
}

impl Place {
    fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
        }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn command(&self, args: &[&str], environment: &[(&str, &str)]) -> Command {
        self.program(env!("CARGO_BIN_EXE_gavel"), args, environment)
    }

    fn program(&self, program: &str, args: &[&str], environment: &[(&str, &str)]) -> Command {
        let mut command = Command::new(program);
        command
            .args(args)
            .current_dir(self.path())
            .env_clear()
            .stdin(Stdio::null());
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("HOME", self.path()).env("TMPDIR", self.path());
        command.envs(environment.iter().copied());
        command
    }

    fn run(&self, args: &[&str]) -> Ran {
        self.run_with(args, &[])
    }

    fn run_with(&self, args: &[&str], environment: &[(&str, &str)]) -> Ran {
        Ran::of(self.command(args, environment).output().unwrap())
    }

    /// With `input` on standard input.
    fn pipe(&self, args: &[&str], input: &str) -> Ran {
        let mut command = self.command(args, &[]);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        Ran::of(child.wait_with_output().unwrap())
    }
}

impl Ran {
    fn of(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        let ran = Self {
            status: output.status.code().unwrap_or(-1),
            out: text(output.stdout),
            err: text(output.stderr),
        };
        assert!(!ran.err.contains("panicked"), "{}", ran.err);
        ran
    }

    /// Asserts the exit status and gives standard output.
    #[track_caller]
    fn ended(self, status: i32) -> String {
        assert_eq!(self.status, status, "stdout: {}\nstderr: {}", self.out, self.err);
        self.out
    }

    #[track_caller]
    fn json(self) -> Value {
        serde_json::from_str(&self.ended(0)).unwrap()
    }
}

/// A process that goes on until it is told to stop.
struct Running {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Running {
    fn start(command: Command) -> Self {
        Self::start_logging(command, Stdio::null())
    }

    /// With its log, which is standard error, going there.
    fn start_logging(mut command: Command, log: impl Into<Stdio>) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    /// The next line that holds `text`.
    #[track_caller]
    fn line_with(&mut self, text: &str) -> String {
        let found = self
            .lines
            .by_ref()
            .map(|line| line.unwrap())
            .find(|line| line.contains(text));
        found.unwrap_or_else(|| panic!("the process ended without a line that holds {text:?}"))
    }

    /// Sends SIGTERM and waits for the end.
    fn stop(self) -> Option<i32> {
        self.told("-TERM")
    }

    /// Sends the signal and waits for the end.
    fn told(mut self, signal: &str) -> Option<i32> {
        let told = Command::new("kill")
            .args([signal, &self.child.id().to_string()])
            .status()
            .unwrap();
        assert!(told.success());
        self.child.wait().unwrap().code()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail when it has ended already, as it should have.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A terminal with a process in it, and somebody who types.
struct Terminal {
    child: Child,
    /// The person's side.
    keys: fs::File,
    screen: mpsc::Receiver<Vec<u8>>,
    /// What was shown and not looked for yet.
    shown: String,
}

impl Terminal {
    /// `gavel ARGS`, which the terminal controls: Ctrl-C reaches it as a person's does.
    fn start(place: &Place, args: &[&str], environment: &[(&str, &str)]) -> Self {
        let keys = pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        pty::grantpt(&keys).unwrap();
        pty::unlockpt(&keys).unwrap();
        let path = pty::ptsname(&keys, Vec::new()).unwrap().into_string().unwrap();
        let side = fs::File::options()
            .read(true)
            .write(true)
            .custom_flags(OpenptFlags::NOCTTY.bits().cast_signed())
            .open(path)
            .unwrap();
        let args = [&["--ctty", env!("CARGO_BIN_EXE_gavel")], args].concat();
        let mut command = place.program("setsid", &args, environment);
        command
            .stdin(side.try_clone().unwrap())
            .stdout(side.try_clone().unwrap())
            .stderr(side);
        let child = command.spawn().unwrap();
        let keys = fs::File::from(keys);
        let (mut reader, (sender, screen)) = (keys.try_clone().unwrap(), mpsc::channel());
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            // An error: the last process has left the terminal.
            while let Ok(read @ 1..) = reader.read(&mut bytes)
                && sender.send(bytes[..read].to_vec()).is_ok()
            {}
        });
        Self {
            child,
            keys,
            screen,
            shown: String::new(),
        }
    }

    fn types(&mut self, text: &str) {
        self.keys.write_all(text.as_bytes()).unwrap();
    }

    /// Waits until `text` is shown; what stands before it is gone then, and is returned.
    #[track_caller]
    fn shows(&mut self, text: &str) -> String {
        loop {
            if let Some((before, after)) = self.shown.split_once(text) {
                let before = before.to_owned();
                self.shown = after.to_owned();
                return before;
            }
            match self.screen.recv_timeout(Duration::from_secs(30)) {
                Ok(bytes) => self.shown.push_str(&String::from_utf8_lossy(&bytes)),
                Err(error) => panic!("{text:?} is not shown ({error}), but {:?}", self.shown),
            }
        }
    }

    #[track_caller]
    fn ends(mut self) -> Option<i32> {
        let since = Instant::now();
        while since.elapsed() < Duration::from_secs(30) {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("it goes on, and shows {:?}", self.shown);
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // Both fail when it has ended already, as it should have.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_help_teaches_with_examples() {
    let place = Place::new();
    insta::assert_snapshot!(place.run(&["--help"]).ended(0));
    for verb in [
        "chat",
        "config",
        "decisions list",
        "mcp accept",
        "mcp call",
        "mcp inspect",
        "mcp-server tasks",
        "eval",
    ] {
        let args: Vec<_> = verb.split(' ').chain(["--help"]).collect();
        let help = place.run(&args).ended(0);
        assert!(help.contains("Examples:") && help.contains("gavel"), "{verb}: {help}");
    }
}

#[test]
fn wrong_usage_ends_with_2_and_says_what_is_right() {
    let place = Place::new();
    for args in [
        &["nope"][..],
        &["--nope"],
        &["decisions"],
        &["mcp", "call"],
        &["mcp", "accept", "tasks"],
        &["eval", "--fail-under", "1.1"],
        &["decisions", "show", "x"],
        &["decisions", "list", "--tenant", ""],
        &["decisions", "list", "--page-size", "1001"],
        &["mcp", "call", "tasks", "add_task", "notjson"],
        &["mcp", "call", "tasks", "add_task", "[1]"],
        &["chat", "--user", "", "hello"],
    ] {
        let ran = place.run(args);
        assert_eq!((ran.status, ran.out.as_str()), (2, ""), "{args:?}");
        assert!(ran.err.contains("--help") || ran.err.contains("Usage"), "{}", ran.err);
    }
    place.run(&["migrate"]).ended(0);
    for (args, words) in [
        (
            &["decisions", "list", "--filter", "x"][..],
            "error: filter: at character 1",
        ),
        (&["decisions", "tail", "--filter", "x"], "error: filter: at character "),
        (
            &["decisions", "list", "--page-token", "-x"],
            "error: page_token: is not a token",
        ),
        (&["eval", "/nope"], "error: the cases are wrong:\n  /nope"),
        (&["mcp", "call", "tasks", "add_task", "-"], "give a JSON object"),
    ] {
        let ran = place.run(args);
        assert_eq!((ran.status, ran.out.as_str()), (2, ""), "{args:?}: {}", ran.err);
        assert!(ran.err.contains(words), "{args:?}: {}", ran.err);
    }
}

#[test]
fn a_file_that_a_setting_names_and_that_is_wrong_ends_with_2() {
    let place = Place::new();
    fs::write(place.path().join("wrong"), "x").unwrap();
    for setting in ["GAVEL_CONSTITUTION", "GAVEL_MCP_CONFIG"] {
        for (file, words) in [("missing", "cannot be read"), ("wrong", "wrong")] {
            for verb in [&["serve"][..], &["chat", "hello"]] {
                let ran = place.run_with(verb, &[(setting, file)]);
                assert_eq!((ran.status, ran.out.as_str()), (2, ""), "{setting} {file}: {}", ran.err);
                assert!(ran.err.contains(words), "{}", ran.err);
            }
        }
    }
}

/// What is no URL of a database is a mistake in the configuration; a database that is away is none.
#[test]
fn a_database_url_that_is_wrong_ends_with_2_and_is_not_printed() {
    let place = Place::new();
    for url in [
        "postgres://u:canary@:bad/x",
        "sqlite::memory:",
        "postgres://u:canary@h/x?sslmode=maybe",
    ] {
        for verb in [&["migrate"][..], &["decisions", "list"], &["chat", "hello"], &["serve"]] {
            let ran = place.run_with(verb, &[("DATABASE_URL", url)]);
            assert_eq!((ran.status, ran.out.as_str()), (2, ""), "{url} {verb:?}: {}", ran.err);
            assert!(
                ran.err.contains("DATABASE_URL") && !ran.err.contains("canary"),
                "{}",
                ran.err
            );
        }
    }
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let away = place.run_with(&["migrate"], &[("DATABASE_URL", &format!("postgres://me@{closed}/x"))]);
    assert_eq!(away.status, 1, "{}", away.err);
}

#[test]
fn a_wrong_configuration_ends_with_2_and_names_every_mistake() {
    let place = Place::new();
    fs::write(place.path().join("gavel.toml"), "listn = 1\n[rate_limit]\nburst = 0\n").unwrap();
    for verb in [
        &["serve"][..],
        &["config"],
        &["chat", "hello"],
        &["decisions", "list"],
        &[],
    ] {
        let ran = place.run_with(verb, &[("GAVEL_WORKERS", "many")]);
        assert_eq!((ran.status, ran.out.as_str()), (2, ""), "{verb:?}");
        for place in [
            "gavel.toml:1: listn",
            "gavel.toml:3: rate_limit.burst",
            "environment GAVEL_WORKERS",
        ] {
            assert!(ran.err.contains(place), "{place}: {}", ran.err);
        }
    }
    let named = Place::new().run(&["config", "--config", "missing.toml"]);
    assert_eq!(named.status, 2);
    assert!(
        named
            .err
            .contains("flag --config: config = missing.toml: cannot be read"),
        "{}",
        named.err
    );
}

#[test]
fn config_shows_every_value_with_its_origin_and_no_secret() {
    let place = Place::new();
    fs::write(place.path().join("gavel.toml"), "\nmax_in_flight = 7\n").unwrap();
    fs::write(place.path().join("key"), "canary-key\n").unwrap();
    let environment = [
        ("GEMINI_API_KEY_FILE", "key"),
        ("DATABASE_URL", "postgres://me:canary-pw@db/x"),
        ("GITHUB_TOKEN", "canary-t"),
    ];
    let table = place
        .run_with(&["config", "--listen", "127.0.0.1:9"], &environment)
        .ended(0);
    assert!(!table.contains("canary"), "{table}");
    let shown = |row: &str| {
        table
            .lines()
            .any(|line| line.split_whitespace().collect::<Vec<_>>().join(" ") == row)
    };
    for row in [
        "listen 127.0.0.1:9 flag --listen",
        "max_in_flight 7 gavel.toml:2",
        "gemini.api_key ******** key, named by environment GEMINI_API_KEY_FILE",
        "database_url postgres://me:********@db/x environment DATABASE_URL",
        "drain_seconds 30 default",
    ] {
        assert!(shown(row), "{row}\n{table}");
    }
    let json = place.run_with(&["config", "--json"], &environment).json();
    let listen = json
        .as_array()
        .unwrap()
        .iter()
        .find(|one| one["key"] == "listen")
        .unwrap();
    assert_eq!(listen["value"], "127.0.0.1:8080");
    assert_eq!(listen["origin"], "default");
}

#[test]
fn a_new_key_is_random_and_its_entry_is_what_the_configuration_takes() {
    let place = Place::new();
    let new_key = || {
        place.run(&[
            "config",
            "new-key",
            "--name",
            "ann's \"shop\" ü",
            "--tenant",
            "acme",
            "--role",
            "analyst",
        ])
    };
    let out = new_key().ended(0);
    let (key, entry) = out.split_once('\n').unwrap();
    let sha256: String = Sha256::digest(key.as_bytes())
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    assert!(entry.contains(&sha256) && !entry.contains(key));
    assert!(key.len() > 40, "{key}");
    assert_ne!(new_key().ended(0).lines().next(), Some(key));
    fs::write(
        place.path().join("gavel.toml"),
        format!("[auth]\nmode = \"api_key\"\n{entry}"),
    )
    .unwrap();
    let json = place.run(&["config", "--json"]).json();
    let keys = json
        .as_array()
        .unwrap()
        .iter()
        .find(|one| one["key"] == "auth.keys")
        .unwrap();
    assert_eq!(keys["value"], "1 entries");
    let variable = entry.lines().find_map(|line| line.strip_prefix("# ")).unwrap();
    let shell = format!(
        "{variable} GAVEL_AUTH_MODE=api_key {} config --json",
        env!("CARGO_BIN_EXE_gavel")
    );
    let elsewhere = Place::new();
    let by_shell = Command::new("sh")
        .args(["-c", &shell])
        .current_dir(elsewhere.path())
        .output()
        .unwrap();
    let json: Value = serde_json::from_slice(&by_shell.stdout).unwrap();
    let keys = json
        .as_array()
        .unwrap()
        .iter()
        .find(|one| one["key"] == "auth.keys")
        .unwrap();
    assert_eq!(keys["origin"], "environment GAVEL_AUTH_KEYS");
    assert_eq!(
        place
            .run(&["config", "new-key", "--name", "x", "--role", "king"])
            .status,
        2
    );
}

#[test]
fn a_reader_that_leaves_is_no_failure() {
    let place = Place::new();
    let mut command = place.command(&["config", "--reference"], &[]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let ran = Ran::of(child.wait_with_output().unwrap());
    assert_eq!((ran.status, ran.err.as_str()), (0, ""));
}

#[test]
fn one_message_gets_one_decision_and_its_record() {
    let place = Place::new();
    let decision = place
        .run(&["chat", "--json", "--user", "ann", "add a task to call mom"])
        .json();
    assert_eq!(decision["decision_type"], "INVOKE_TOOL");
    assert_eq!(decision["outcome_category"], "SUCCESS:TASK_COMPLETED");
    let id = decision["decision_id"].as_str().unwrap();

    let listed = place
        .run(&["decisions", "list", "--json", "--filter", "user_id = \"ann\""])
        .json();
    assert_eq!(listed["decision_id"], id);
    let table = place.run(&["decisions", "list"]).ended(0);
    assert!(table.starts_with("at (UTC)") && table.contains(id), "{table}");
    let shown = place.run(&["decisions", "show", "--json", id]).json();
    assert_eq!(shown["tool_calls"][0]["tool"], "add_task");
    assert!(
        place
            .run(&["decisions", "show", id])
            .ended(0)
            .contains("call 1  tasks / add_task  completed")
    );
    let other = place.run(&["decisions", "show", "--tenant", "acme", id]);
    assert_eq!(other.status, 1);
    assert!(other.err.contains("there is no decision"), "{}", other.err);

    let tasks = place.run(&["mcp", "call", "tasks", "list_tasks", "--user", "ann"]);
    assert!(tasks.err.contains("bypasses policy"), "{}", tasks.err);
    assert_eq!(tasks.json()["tasks"][0]["description"], "call mom");
    assert_eq!(
        place
            .run(&["mcp", "call", "tasks", "list_tasks", "--user", "bob"])
            .json()["total"],
        0
    );
}

#[test]
fn a_conversation_from_a_pipe_keeps_what_was_said_until_it_is_told_to_forget() {
    let place = Place::new();
    let said = place.pipe(
        &["chat", "--json"],
        "add a task to buy milk\nshow my tasks\n/new\nhello\n/quit\nnever said\n",
    );
    let decisions: Vec<Value> = said
        .ended(0)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(decisions.len(), 3);
    assert_eq!(decisions[0]["conversation_id"], decisions[1]["conversation_id"]);
    assert_ne!(decisions[1]["conversation_id"], decisions[2]["conversation_id"]);
    assert!(decisions[1]["response"].as_str().unwrap().contains("buy milk"));
    let refused = place.run(&["chat", " "]);
    assert_eq!(refused.status, 1);
    assert!(refused.err.contains("/message: must not be"), "{}", refused.err);
}

#[test]
fn ctrl_c_drops_the_line_that_is_typed_and_ends_a_conversation_on_an_empty_one() {
    let place = Place::new();
    let mut terminal = Terminal::start(&place, &["chat"], &[]);
    terminal.shows("> ");
    terminal.types("delete all my ta\u{3}");
    terminal.shows("^C");
    terminal.shows("> ");
    terminal.types("add a task to call mom\n");
    terminal.shows("INVOKE_TOOL SUCCESS:TASK_COMPLETED");
    terminal.shows("> ");
    terminal.types("\u{3}");
    let keys = terminal.keys.try_clone().unwrap();
    assert_eq!(terminal.ends(), Some(130));
    // The terminal is as it was before.
    let codes = tcgetattr(&keys).unwrap().special_codes;
    assert_eq!((codes[SpecialCodeIndex::VINTR], codes[SpecialCodeIndex::VEOL]), (3, 0));
    let asked = place.run(&["decisions", "list", "--json"]).json();
    assert_eq!(
        asked["message"], "add a task to call mom",
        "one decision, and of the whole line"
    );

    let mut terminal = Terminal::start(&place, &["chat"], &[]);
    terminal.shows("> ");
    terminal.types("\u{4}");
    assert_eq!(terminal.ends(), Some(0), "the end of the input is no interruption");
}

#[test]
fn ctrl_c_gives_up_waiting_for_an_answer_and_goes_on() {
    let place = Place::new();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    let environment = [
        ("GEMINI_API_KEY", "key"),
        ("GEMINI_BASE_URL", url.as_str()),
        ("GAVEL_DRAIN_SECONDS", "0.1"),
    ];
    let mut terminal = Terminal::start(&place, &["chat"], &environment);
    terminal.shows("> ");
    terminal.types("hello\n");
    let _asked = silent.accept().unwrap();
    terminal.types("\u{3}");
    terminal.shows("not waited for");
    terminal.shows("> ");
    terminal.types("\u{3}");
    assert_eq!(terminal.ends(), Some(130));
}

#[test]
fn a_conversation_from_a_pipe_that_is_interrupted_ends_with_130() {
    let place = Place::new();
    let mut command = place.command(&["chat", "--json"], &[]);
    command.stdin(Stdio::piped());
    let mut chat = Running::start(command);
    let mut input = chat.child.stdin.take().unwrap();
    input.write_all(b"hello\nshow my ta").unwrap();
    chat.line_with("decision_id");
    // It reads the next line.
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(chat.told("-INT"), Some(130));
    drop(input);
}

#[test]
fn without_a_verb_it_serves_prints_a_line_that_works_when_pasted_and_stops_when_told() {
    let place = Place::new();
    let mut serving = Running::start(place.command(&["--listen", "127.0.0.1:0"], &[]));
    let address = serving.line_with("gavel ").split("http://").nth(1).unwrap().to_owned();
    assert!(
        serving
            .line_with("model")
            .contains("demo, since no credentials are set")
    );
    let curl = serving.line_with("curl ");
    let tools = serving.line_with("tasks:");
    assert!(
        tools.contains("add_task, complete_task, delete_task, list_tasks, update_task"),
        "{tools}"
    );
    let pasted = Command::new("sh").args(["-c", curl.trim()]).output().unwrap();
    let decision: Value = serde_json::from_slice(&pasted.stdout).unwrap();
    assert_eq!(decision["outcome_category"], "SUCCESS:TASK_COMPLETED");

    let server = format!("http://{address}");
    let elsewhere = Place::new();
    let asked = elsewhere.run(&["chat", "--server", &server, "show my tasks"]).ended(0);
    assert!(asked.contains("call mom"), "{asked}");
    assert!(
        !elsewhere.path().join("gavel.db").exists(),
        "a remote chat keeps no record of its own"
    );
    let refused = elsewhere.run(&["chat", "--server", &server, "--time-zone", "Mars/Olympus", "hi"]);
    assert_eq!(refused.status, 1);
    assert!(refused.err.contains("/time_zone"), "{}", refused.err);
    place.run(&["doctor", "--live", "--listen", &address]).ended(0);
    let seen = place.run(&["doctor", "--listen", &address]).ended(0);
    let told = address.replace("localhost", "127.0.0.1");
    assert!(
        seen.contains(&format!("✓ address: {told} is in use by a gavel, which answers")),
        "{seen}"
    );
    assert_eq!(serving.stop(), Some(0));
    let dead = place.run(&["doctor", "--live", "--listen", &address]);
    assert_eq!(dead.status, 1);
    assert!(dead.err.contains("/livez does not answer"), "{}", dead.err);
}

/// DESIGN.md section 9, Callers: a service's key, from the environment or a file; without one that counts the way out is
/// told, and no key is ever repeated.
#[test]
fn a_key_goes_along_to_a_gavel_elsewhere_and_without_one_the_way_out_is_told() {
    let place = Place::new();
    let made = place.run(&["config", "new-key", "--name", "web"]).ended(0);
    let (key, entry) = made.split_once('\n').unwrap();
    let sha256 = entry.split('"').find(|word| word.len() == 64).unwrap();
    let keys = format!(r#"[{{"name":"web","sha256":"{sha256}","tenant":"default","roles":[]}}]"#);
    let environment = [("GAVEL_AUTH_MODE", "api_key"), ("GAVEL_AUTH_KEYS", keys.as_str())];
    let mut serving = Running::start(place.command(&["--listen", "127.0.0.1:0"], &environment));
    let first = serving.line_with("gavel ");
    let server = format!("http://{}", first.split("http://").nth(1).unwrap());

    let elsewhere = Place::new();
    fs::write(elsewhere.path().join("key"), format!("{key}\n")).unwrap();
    let say = |environment: &[(&str, &str)]| {
        let args = ["chat", "--server", &server, "--json", "--user", "ann", "hello"];
        elsewhere.run_with(&args, environment)
    };
    for given in [("GAVEL_API_KEY", key), ("GAVEL_API_KEY_FILE", "key")] {
        assert_eq!(say(&[given]).json()["outcome_category"], "SUCCESS:RESPONSE_GIVEN");
    }
    let wrong = format!("{key}x");
    for (environment, words) in [
        (&[][..], ["needs credentials", "in GAVEL_API_KEY"]),
        (
            &[("GAVEL_API_KEY", wrong.as_str())],
            [
                "were not accepted",
                "GAVEL_API_KEY (or GAVEL_API_KEY_FILE) holds no key",
            ],
        ),
        (
            &[("GAVEL_API_KEY", key), ("GAVEL_API_KEY_FILE", "key")],
            ["both given", "keep one"],
        ),
        (
            &[("GAVEL_API_KEY_FILE", "gone")],
            ["GAVEL_API_KEY_FILE", "gone cannot be read"],
        ),
    ] {
        let refused = say(environment);
        assert_eq!((refused.status, refused.out.as_str()), (1, ""), "{}", refused.err);
        for word in words {
            assert!(refused.err.contains(word), "{word}: {}", refused.err);
        }
        assert!(!refused.err.contains(key), "{}", refused.err);
    }
    let records = place.run(&["decisions", "list", "--json"]).ended(0);
    assert_eq!(
        records.lines().count(),
        2,
        "who is not known leaves no record: {records}"
    );
    assert_eq!(serving.stop(), Some(0));
}

/// DESIGN.md section 10: `GAVEL_LOG_FORMAT`; by itself a log that goes to no terminal is JSON.
#[test]
fn a_log_is_one_json_object_a_line_unless_text_is_asked_for() {
    for (format, json) in [(None, true), (Some("json"), true), (Some("text"), false)] {
        let place = Place::new();
        let environment: Vec<_> = format.map(|format| ("GAVEL_LOG_FORMAT", format)).into_iter().collect();
        let log = place.path().join("log");
        let command = place.command(&["--listen", "127.0.0.1:0"], &environment);
        let mut serving = Running::start_logging(command, fs::File::create(&log).unwrap());
        serving.line_with("tasks:");
        assert_eq!(serving.stop(), Some(0));
        let text = fs::read_to_string(&log).unwrap();
        let serves: Vec<_> = text.lines().filter(|line| line.contains("gavel serves")).collect();
        assert_eq!(serves.len(), 1, "{text}");
        for line in text.lines() {
            let parsed = serde_json::from_str::<Value>(line);
            assert_eq!(parsed.is_ok(), json, "{format:?}: {line}");
            let Ok(line) = parsed else { continue };
            let level = line["level"].as_str().unwrap();
            assert!(["INFO", "WARN", "ERROR"].contains(&level), "{line}");
            for field in ["timestamp", "message", "target"] {
                assert!(line[field].is_string(), "{field}: {line}");
            }
        }
        if json {
            let serves: Value = serde_json::from_str(serves[0]).unwrap();
            assert_eq!(
                (&serves["message"], &serves["version"]),
                (&Value::from("gavel serves"), &Value::from(env!("CARGO_PKG_VERSION")))
            );
        }
    }
}

#[test]
fn a_port_that_is_taken_is_told_with_the_way_out() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let ran = Place::new().run(&["serve", "--listen", &address]);
    assert_eq!(ran.status, 1);
    assert!(ran.err.contains(&format!("cannot listen on {address}")), "{}", ran.err);
}

#[test]
fn tail_prints_what_is_there_and_then_what_comes() {
    let place = Place::new();
    place.run(&["chat", "hello"]).ended(0);
    let mut tail = Running::start(place.command(&["decisions", "tail", "--json"], &[]));
    let first: Value = serde_json::from_str(&tail.line_with("decision_id")).unwrap();
    assert_eq!(first["message"], "hello");
    place.run(&["chat", "show my tasks"]).ended(0);
    let next: Value = serde_json::from_str(&tail.line_with("decision_id")).unwrap();
    assert_eq!(next["message"], "show my tasks");
    assert_eq!(tail.told("-INT"), Some(130));
    let mut tail = Running::start(place.command(&["decisions", "tail", "--json"], &[]));
    tail.line_with("decision_id");
    assert_eq!(tail.stop(), Some(130));
}

/// As the API has it, whose words `--page-size` and `--page-token` are.
#[test]
fn the_next_page_is_what_the_tip_says() {
    let place = Place::new();
    for user in ["ann", "bob", "ann"] {
        place.run(&["chat", "--user", user, "hello"]).ended(0);
    }
    let question = [
        "decisions",
        "list",
        "--json",
        "--page-size",
        "1",
        "--filter",
        "user_id = \"ann\"",
    ];
    let first = place.run(&question);
    let (tip, first) = (first.err.clone(), first.json());
    let rest: Vec<_> = tip
        .trim()
        .strip_prefix("more: the same command with ")
        .unwrap()
        .split(' ')
        .collect();
    let second = place.run(&[&question[..], &rest].concat());
    assert_eq!(second.err, "");
    let second = second.json();
    assert_eq!((&first["user_id"], &second["user_id"]), (&"ann".into(), &"ann".into()));
    assert!(first["created_at"].as_str() > second["created_at"].as_str());
    // The token belongs to the question.
    let other = place.run(&[&["decisions", "list"][..], &rest].concat());
    assert_eq!(other.status, 2);
    assert!(other.err.contains("belongs to another question"), "{}", other.err);
}

#[test]
fn migrate_brings_the_schema_and_status_tells_whether_something_is_pending() {
    let place = Place::new();
    assert!(place.run(&["migrate", "--status"]).ended(1).contains("pending"));
    assert!(!place.path().join("gavel.db").exists(), "a question changes nothing");
    assert!(place.run(&["migrate"]).ended(0).contains("applied"));
    assert!(!place.run(&["migrate", "--status"]).ended(0).contains("pending"));
}

#[test]
fn servers_are_listed_with_their_tools_and_a_missing_one_is_a_failure() {
    let place = Place::new();
    let listed = place.run(&["mcp", "list", "--json"]).json();
    assert_eq!(listed["servers"][0]["status"]["state"], "up");
    assert_eq!(listed["servers"][0]["tools"].as_array().unwrap().len(), 5);
    let seen = place.run(&["mcp", "inspect", "tasks", "list_tasks", "--json"]).json();
    assert_eq!(seen[0]["input_schema"]["type"], "object");
    assert_eq!(seen[0]["shown_to_model"]["type"], "object");
    assert!(
        place
            .run(&["mcp", "inspect", "tasks"])
            .ended(0)
            .contains("as Gemini is shown it")
    );

    fs::write(
        place.path().join("mcp.json"),
        r#"{"mcpServers": {"gone": {"command": "no-such-program"}}}"#,
    )
    .unwrap();
    let gone = place.run(&["mcp", "list", "--mcp-config", "mcp.json"]);
    assert!(gone.out.contains("gone: not connected"), "{}", gone.out);
    assert_eq!(gone.status, 1);
    for (args, words) in [
        (["mcp", "call", "tasks", "nope"], "it offers add_task"),
        (["mcp", "call", "nope", "x"], "configured are tasks"),
    ] {
        let ran = place.run(&args);
        assert_eq!(ran.status, 1);
        assert!(ran.err.contains(words), "{}", ran.err);
    }
    let off_schema = place.run(&["mcp", "call", "tasks", "add_task", "{\"x\": 1}"]);
    assert_eq!(off_schema.status, 1);
    assert!(
        off_schema.err.contains("do not fit the tool's schema"),
        "{}",
        off_schema.err
    );
}

/// DESIGN.md section 10: any secret also as `NAME_FILE`, and the bundled `mcp.json` hands it on.
#[test]
fn the_bundled_task_server_reads_the_url_of_its_database_from_a_file() {
    let place = Place::new();
    let path = |name: &str| place.path().join(name);
    fs::write(path("url"), format!("sqlite://{}\n", path("elsewhere.db").display())).unwrap();
    let add = ["mcp", "call", "tasks", "add_task", "{\"description\": \"milk\"}"];
    let file = path("url").display().to_string();
    place
        .run_with(&add, &[("TASKS_DATABASE_URL_FILE", file.as_str())])
        .ended(0);
    assert!(path("elsewhere.db").exists() && !path("tasks.db").exists());
    place.run(&add).ended(0);
    assert!(path("tasks.db").exists());
    let url = format!("sqlite://{}", path("third.db").display());
    place.run_with(&add, &[("TASKS_DATABASE_URL", url.as_str())]).ended(0);
    assert!(path("third.db").exists());
}

/// DESIGN.md section 5, `pin: true`: each command is a process of its own, so what is accepted outlasts them.
#[test]
fn a_changed_tool_is_left_out_until_an_operator_accepts_it() {
    const ACCEPT: [&str; 4] = ["mcp", "accept", "tasks", "add_task"];
    let place = Place::new();
    let path = |name: &str| place.path().join(name);
    let not_pinned = place.run(&ACCEPT);
    assert_eq!(not_pinned.status, 1);
    assert!(not_pinned.err.contains("are not pinned"), "{}", not_pinned.err);
    assert!(!path("gavel-pins.json").exists(), "nothing is pinned");

    let server = serde_json::json!({
        "command": env!("CARGO_BIN_EXE_gavel"), "args": ["mcp-server", "tasks"], "gavel": {"pin": true},
    });
    let servers = serde_json::json!({"mcpServers": {"tasks": server}});
    fs::write(path("mcp.json"), servers.to_string()).unwrap();
    fs::write(path("gavel.toml"), "mcp_config = \"mcp.json\"\n").unwrap();
    place.run(&["mcp", "list"]).ended(0);
    let pins = || -> Value { serde_json::from_slice(&fs::read(path("gavel-pins.json")).unwrap()).unwrap() };
    let seen = pins();
    assert_eq!(seen["tasks"].as_object().unwrap().len(), 5, "{seen}");

    // Another definition was accepted than the one the server gives.
    let (digest, before) = (seen["tasks"]["add_task"].as_str().unwrap(), "0".repeat(64));
    fs::write(path("gavel-pins.json"), seen.to_string().replacen(digest, &before, 1)).unwrap();
    let listed = place.run(&["mcp", "list", "--json"]).json();
    let left = &listed["servers"][0]["left_out"][0];
    assert_eq!(left["name"], "add_task", "{listed}");
    assert!(
        left["reason"]
            .as_str()
            .unwrap()
            .contains("`gavel mcp accept tasks add_task`"),
        "{listed}"
    );
    assert_eq!(listed["servers"][0]["tools"].as_array().unwrap().len(), 4);

    // It can be looked at, and what was looked at is accepted, or nothing.
    let seen_now = place.run(&["mcp", "inspect", "tasks", "add_task", "--json"]).json();
    assert_eq!(seen_now.as_array().unwrap().len(), 1, "{seen_now}");
    assert_eq!(seen_now[0]["digest"], digest);
    assert!(
        seen_now[0]["held_back"]
            .as_str()
            .unwrap()
            .contains("not the accepted one")
    );
    let shown = place.run(&["mcp", "inspect", "tasks", "add_task"]).ended(0);
    assert!(
        shown.contains(&format!("digest {digest}")) && shown.contains("held back: "),
        "{shown}"
    );
    let offered = place.run(&["mcp", "inspect", "tasks", "list_tasks", "--json"]).json();
    assert_eq!(offered[0]["held_back"], Value::Null);
    let unchanged = || fs::read_to_string(path("gavel-pins.json")).unwrap().contains(&before);
    let other = place.run(&[&ACCEPT[..], &["--digest", &before]].concat());
    assert_eq!((other.status, other.out.as_str()), (1, ""));
    assert!(
        other.err.contains(digest) && other.err.contains("nothing was accepted"),
        "{}",
        other.err
    );
    let wrong = place.run(&[&ACCEPT[..], &["--digest", "c0ffee"]].concat());
    assert_eq!(wrong.status, 2);
    assert!(wrong.err.contains("64 hexadecimal digits"), "{}", wrong.err);
    assert!(unchanged());

    let accepted = place
        .run(&[&ACCEPT[..], &["--digest", &digest.to_uppercase()]].concat())
        .ended(0);
    for shown in ["tasks / add_task", &before, digest, "description: ", "\"properties\""] {
        assert!(accepted.contains(shown), "{shown}: {accepted}");
    }
    assert_eq!(pins(), seen);
    let listed = place.run(&["mcp", "list", "--json"]).json();
    assert_eq!(listed["servers"][0]["tools"].as_array().unwrap().len(), 5);

    let again = place.run(&[&ACCEPT[..], &["--json"]].concat()).json();
    assert_eq!(
        (&again["changed"], &again["digest"]),
        (&Value::Bool(false), &Value::from(digest))
    );
    for (tool, server, words) in [
        ("nope", "tasks", "offers no tool called `nope` now"),
        ("add_task", "nope", "no server is called `nope`"),
    ] {
        let ran = place.run(&["mcp", "accept", server, tool]);
        assert_eq!(ran.status, 1);
        assert!(ran.err.contains(words), "{}", ran.err);
    }

    // What was accepted is not known any more: nothing is taken for a first sight.
    fs::write(path("gavel-pins.json"), "{").unwrap();
    let broken = place.run(&["mcp", "list"]);
    assert_ne!(broken.status, 0);
    assert!(broken.err.contains("gavel-pins.json"), "{}", broken.err);
}

#[test]
fn doctor_says_what_to_do_about_each_thing_that_is_wrong() {
    let place = Place::new();
    let healthy = place.run(&["doctor", "--listen", "127.0.0.1:0"]).ended(0);
    for part in [
        "configuration",
        "address",
        "constitution",
        "database",
        "MCP server tasks",
        "tools",
    ] {
        assert!(
            healthy.lines().any(|line| line.starts_with(&format!("✓ {part}"))),
            "{part}: {healthy}"
        );
    }
    assert!(healthy.contains("! model: the demo model answers"), "{healthy}");
    assert!(!place.path().join("gavel.db").exists(), "a look changes no record");

    fs::write(place.path().join("bad.md"), "---\nnmae: x\n---\nhello\n").unwrap();
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let environment = [
        ("GEMINI_API_KEY", "canary"),
        ("GEMINI_BASE_URL", &format!("http://{closed}")),
        ("DATABASE_URL", &format!("postgres://me:canary@{closed}/x")),
        ("GAVEL_CONSTITUTION", "bad.md"),
        // An address for documentation, which no machine has (RFC 5737).
        ("GAVEL_LISTEN", "192.0.2.1:8080"),
        ("GAVEL_AUTH_MODE", "jwt"),
        ("GAVEL_AUTH_JWT_ISSUER", "https://issuer.example"),
        ("GAVEL_AUTH_JWT_AUDIENCE", "gavel"),
        (
            "GAVEL_AUTH_JWT_JWKS_URL",
            &format!("http://{closed}/keys?canary=canary"),
        ),
    ];
    let ill = place.run_with(&["doctor"], &environment).ended(1);
    assert!(!ill.contains("canary"), "{ill}");
    for part in [
        "address: 192.0.2.1:8080: ",
        "the constitution is wrong",
        "database: postgres://me:********@",
        "model: Gemini cannot be reached",
        "issuer: the issuer's keys are unavailable",
    ] {
        let mut lines = ill.lines().skip_while(|line| !line.starts_with(&format!("✗ {part}")));
        assert!(lines.any(|line| line.trim_start().starts_with("→ ")), "{part}: {ill}");
    }
    let refused = place.run_with(&["doctor"], &[("GAVEL_LISTEN", "x")]).ended(1);
    assert!(
        refused.starts_with("✗ configuration: environment GAVEL_LISTEN"),
        "{refused}"
    );
}

#[test]
fn doctor_tells_who_has_its_address() {
    let place = Place::new();
    let free = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .to_string();
    let seen = place.run(&["doctor", "--listen", &free]).ended(0);
    assert!(seen.contains(&format!("✓ address: {free} is free")), "{seen}");

    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = other.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for stream in other.incoming() {
            // 200, as anybody may answer to any path.
            let _ = stream
                .unwrap()
                .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok");
        }
    });
    let seen = place.run(&["doctor", "--listen", &taken]).ended(1);
    assert!(
        seen.contains(&format!("✗ address: {taken} is in use, and not by a gavel")),
        "{seen}"
    );
}

#[test]
fn doctor_says_what_it_found_once_and_names_every_server_that_is_away() {
    let place = Place::new();
    let servers = serde_json::json!({"mcpServers": {
        "dead": {"command": "no-such-program"},
        "exits": {"command": "false"},
        "hangs": {"command": "sleep", "args": ["1000"]},
        "http": {"url": "http://127.0.0.1:1/mcp"},
    }});
    fs::write(place.path().join("mcp.json"), servers.to_string()).unwrap();
    let args = ["doctor", "--listen", "127.0.0.1:0", "--mcp-config", "mcp.json"];
    let ran = place.run(&args);
    assert_eq!(ran.err, "");
    let seen = ran.ended(1);
    let tool = seen.lines().find(|line| line.starts_with("✗ tool add_task")).unwrap();
    for (server, state) in [
        ("dead", "not connected"),
        ("exits", "not connected"),
        ("hangs", "still connecting"),
        ("http", "not connected"),
    ] {
        assert!(
            seen.contains(&format!("✗ MCP server {server}: {state}")),
            "{server}: {seen}"
        );
        assert!(tool.contains(&format!("{server} (")), "{tool}");
    }
    let asked = place.run_with(&args, &[("RUST_LOG", "warn")]);
    assert!(
        asked.err.contains("WARN"),
        "whoever asks for a log gets it: {}",
        asked.err
    );
}

/// DESIGN.md section 9, `/metrics`: an alert on an increase sees the first event only if there was a line before it.
#[test]
fn each_meter_of_the_operations_page_has_a_line_from_the_start() {
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/operations.md")).unwrap();
    let (_, section) = page.split_once("\n## Meters\n").unwrap();
    let (table, text) = section.split_once("\n\n").unwrap().1.split_once("\n\n").unwrap();
    let listed: Vec<_> = table
        .lines()
        .filter_map(|row| row.strip_prefix("| `")?.split_once('`'))
        .map(|(name, _)| name)
        .collect();
    // The families that the page says have none, as `gavel_http_…`.
    let later: Vec<_> = text
        .split("\n## ")
        .next()
        .unwrap()
        .split('`')
        .filter_map(|word| word.strip_suffix('…'))
        .collect();
    assert!(listed.len() > 20 && later.len() == 3, "{listed:?} {later:?}");

    let place = Place::new();
    let mut serving = Running::start(place.command(&["--listen", "127.0.0.1:0"], &[]));
    let address = serving.line_with("gavel ").split("http://").nth(1).unwrap().to_owned();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
    let mut metrics = String::new();
    stream.read_to_string(&mut metrics).unwrap();
    let has = |name: &str| {
        metrics.lines().any(|line| {
            let rest = line.strip_prefix(name).map(|rest| rest.trim_start_matches("_count"));
            rest.is_some_and(|rest| rest.starts_with([' ', '{']))
        })
    };
    for name in listed {
        let expected = !later.iter().any(|family| name.starts_with(family));
        assert!(has(name) || !expected, "{name}\n{metrics}");
    }
    for line in [
        "gavel_mcp_connections_lost_total{server=\"tasks\"} 0",
        "gavel_mcp_calls_total{server=\"tasks\",outcome=\"unknown\"} 0",
        "gavel_store_failures_total{kind=\"away\"} 0",
        "gavel_store_failures_total{kind=\"refused\"} 0",
        "gavel_store_failures_total{kind=\"connect\"} 0",
        "gavel_store_failures_total{kind=\"queue\"} 0",
        "gavel_store_lost_total 0",
        "gavel_store_recovered_calls_total 0",
    ] {
        assert!(metrics.lines().any(|shown| shown == line), "{line}\n{metrics}");
    }
    assert_eq!(serving.stop(), Some(0));
}

const CASES: &str = "\
kind: clear
language: en
cases:
  - {id: add, message: add a task to call mom, expect: {decision: INVOKE_TOOL, tasks: [call mom]}}
  - {id: list, message: show my tasks, tasks: [buy milk, {description: pay rent, done: true}], expect: {decision: INVOKE_TOOL, tasks: unchanged}}
";

#[test]
fn an_evaluation_reports_gates_and_leaves_nothing_behind() {
    let place = Place::new();
    fs::write(place.path().join("cases.yaml"), CASES).unwrap();
    let table = place
        .run(&["eval", "cases.yaml", "--json", "r.json", "--junit", "r.xml"])
        .ended(0);
    assert!(table.contains("no evidence about Gemini"), "{table}");
    let report: Value = serde_json::from_str(&fs::read_to_string(place.path().join("r.json")).unwrap()).unwrap();
    assert_eq!(report["clear_requests"]["succeeded"], 2);
    assert!(
        fs::read_to_string(place.path().join("r.xml"))
            .unwrap()
            .starts_with("<?xml")
    );
    let mut left: Vec<_> = fs::read_dir(place.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    left.sort();
    assert_eq!(left, ["cases.yaml", "r.json", "r.xml"]);

    fs::write(
        place.path().join("wrong.yaml"),
        CASES.replace("[call mom]", "[call dad]"),
    )
    .unwrap();
    let failed = place.run(&["eval", "wrong.yaml"]);
    assert!(
        failed.err.contains(
            "not met: C-SC-1: 1 of 2 clear requests succeeded, 50.0 % (clear 1/2); at least 90 % are asked for"
        ),
        "{}",
        failed.err
    );
    assert_eq!(failed.status, 1);
    place.run(&["eval", "wrong.yaml", "--fail-under", "0.5"]).ended(0);
    let hostile = place
        .run(&["eval", "cases.yaml", "--model-kind", "hostile", "--json", "-"])
        .json();
    assert_eq!(hostile["invariants_broken"].as_array().unwrap().len(), 0);
    assert_eq!(place.run(&["eval", "cases.yaml", "--case", "nope"]).status, 2);
}

const HELPER: &str = "---\nname: helper\ndescription: Helps.\ntools: [add_task]\n---\nBe kind.\n";

/// A place with a folder `agents`.
fn agents(files: &[(&str, &str)]) -> Place {
    let place = Place::new();
    fs::create_dir_all(place.path().join("agents/schemas")).unwrap();
    for (file, text) in files {
        fs::write(place.path().join("agents").join(file), text).unwrap();
    }
    place
}

/// All mistakes of all files at once, each with its place, and an exit status that a build can go by.
#[test]
fn agents_validate_tells_every_mistake_of_every_file() {
    let place = agents(&[
        ("helper.md", HELPER),
        ("README.md", "# Our agents"),
        ("_draft.md", "not yet"),
        ("notes.txt", "none of our business"),
        (
            "a.yaml",
            "name: a\ndescripton: d\nsystem_prompt: s\nsub_agents: [helpr]\n",
        ),
        ("b.json", "{\"name\": \"b\",\n\"description\": \"d\"\n\"x\": 1}"),
        ("c.binpb", "\u{1}"),
        ("schemas/S.json", "{\"type\": \"strng\"}"),
    ]);
    let ran = place.run(&["agents", "validate"]);
    assert_eq!(ran.err, "");
    insta::assert_snapshot!(ran.ended(2));
    let json: Value = serde_json::from_str(&place.run(&["agents", "validate", "--json"]).ended(2)).unwrap();
    assert_eq!(
        (json["files"].as_u64(), json["errors"].as_array().unwrap().len()),
        (Some(4), 5)
    );
    assert_eq!(json["agents"], serde_json::json!(["helper"]));
    assert_eq!(
        json["errors"][0],
        serde_json::json!({
            "file": "agents/a.yaml", "line": 2, "field": "descripton", "found": "an unknown field",
            "allowed": "did you mean `description`?",
        })
    );
    // One file alone, beside the others of its folder.
    let alone = place.run(&["agents", "validate", "agents/helper.md"]).ended(0);
    assert_eq!(alone, "1 file, 1 agent right, 0 errors\n");
    let two = place
        .run(&["agents", "validate", "agents/a.yaml", "agents/_draft.md"])
        .ended(2);
    assert!(two.contains(
        "agents/a.yaml:4: sub_agents[0]: found \"helpr\"; allowed: an agent that is there: did you mean `helper`?"
    ));
    assert!(
        two.contains("agents/_draft.md:1: front matter: ") && two.ends_with("2 files, 0 agents right, 3 errors\n"),
        "{two}"
    );
}

#[test]
fn agents_validate_says_what_is_wrong_with_a_path() {
    let place = agents(&[("helper.md", HELPER), ("notes.txt", "x")]);
    let told = place
        .run(&["agents", "validate", "nowhere", "agents/notes.txt"])
        .ended(2);
    assert!(
        told.contains("nowhere: the path: found nothing; allowed: a folder or a file that is there"),
        "{told}"
    );
    assert!(
        told.contains(
            "agents/notes.txt: the path: found a file of another kind; allowed: a name that ends in one of .md"
        )
    );
    // A path of one's own needs no configuration.
    let broken = place.run_with(&["agents", "validate", "agents"], &[("GAVEL_LISTEN", "no address")]);
    assert_eq!(broken.ended(0), "1 file, 1 agent right, 0 errors\n");
    let named = place.run_with(&["agents", "validate"], &[("GAVEL_AGENTS", "agents/helper.md")]);
    assert!(
        named
            .err
            .contains("the folder of agents agents/helper.md cannot be listed"),
        "{}",
        named.err
    );
    assert_eq!(named.status, 1);
}

/// DESIGN.md section 4: an agent whose tools no server offers is listed with the reason, and stops nothing.
#[test]
fn agents_list_says_which_agents_lack_a_tool_and_why() {
    let place = agents(&[
        ("helper.md", HELPER),
        (
            "lost.md",
            "---\nname: lost\ndescription: d\ntools: [add_task, fly]\n---\nBe kind.\n",
        ),
        (
            "boss.yaml",
            "name: boss\ndescription: d\nsystem_prompt: s\nsub_agents: [lost, helper]\n",
        ),
        (
            "top.yaml",
            "name: top\ndescription: d\nflow_type: sequential\nsteps: [boss]\n",
        ),
    ]);
    let list = place.run(&["agents", "list"]).ended(0);
    let line = |name: &str| {
        list.lines()
            .find(|line| line.starts_with(&format!("{name} ")))
            .unwrap()
            .to_owned()
    };
    assert!(
        line("helper").contains(" available ") && line("helper").ends_with("agents/helper.md  add_task"),
        "{list}"
    );
    for (name, reason) in [
        ("lost", "tool fly: no configured server offers it"),
        ("boss", "agent lost: it is unavailable itself"),
        ("top", "agent boss: it is unavailable itself"),
    ] {
        assert!(line(name).contains(" unavailable "), "{list}");
        assert!(list.contains(&format!("{name} is unavailable: {reason}")), "{list}");
    }
    let json = place.run(&["agents", "list", "--json"]).json();
    let top = json["agents"]
        .as_array()
        .unwrap()
        .iter()
        .find(|agent| agent["name"] == "top")
        .unwrap();
    assert_eq!(top["flow_type"], "sequential");
    assert_eq!(
        top["unavailable"],
        serde_json::json!(["agent boss: it is unavailable itself"])
    );
    assert_eq!(top["hash"].as_str().unwrap().len(), 64);
    let offline = place.run(&["agents", "list", "--offline", "--json"]).json();
    assert_eq!(offline["agents"][0]["unavailable"], Value::Null);
}

/// DESIGN.md section 10: the binary alone has its agents; a folder that is there, or is named, takes their place.
#[test]
fn agents_are_those_of_the_folder_else_those_that_are_built_in() {
    let built_in = Place::new().run(&["agents", "list", "--offline", "--json"]).json();
    assert_eq!(built_in["place"], "built in");
    assert_eq!(built_in["agents"][0]["name"], "codebase_investigator");
    let place = agents(&[("helper.md", HELPER)]);
    fs::create_dir(place.path().join("other")).unwrap();
    assert_eq!(
        place.run(&["agents", "list", "--offline", "--json"]).json()["agents"][0]["name"],
        "helper"
    );
    let named = place.run_with(&["agents", "list", "--offline"], &[("GAVEL_AGENTS", "other")]);
    assert_eq!(named.ended(0), "no agents (other)\n");
}

#[test]
fn agents_show_prints_one_agent_and_helps_with_its_name() {
    let place = Place::new();
    let shown = place.run(&["agents", "show", "codebase_investigator"]).ended(0);
    assert!(
        shown.contains("name: codebase_investigator") && shown.contains("\"relevant_locations\""),
        "{shown}"
    );
    let json = place.run(&["agents", "show", "codebase_investigator", "--json"]).json();
    assert_eq!(
        json["definition"]["modelConfig"],
        serde_json::json!({"temp": 0.1, "thinkingBudget": -1})
    );
    assert_eq!(json["output_schema"]["type"], "object");
    let unknown = place.run(&["agents", "show", "codebase_investigater"]);
    assert!(
        unknown.err.contains("did you mean `codebase_investigator`?"),
        "{}",
        unknown.err
    );
    unknown.ended(2);
}

/// D: every form, through files and pipes, and the hash it had.
#[test]
fn agents_convert_goes_through_every_form_and_back() {
    let place = agents(&[("helper.md", HELPER)]);
    let hash = |file: &str| {
        place.run(&["agents", "validate", file]).ended(0);
        let folder = Path::new(file).parent().unwrap().to_str().unwrap().to_owned();
        let list = place.run_with(&["agents", "list", "--offline", "--json"], &[("GAVEL_AGENTS", &folder)]);
        list.json()["agents"][0]["hash"].clone()
    };
    let before = hash("agents/helper.md");
    let mut from = "agents/helper.md".to_owned();
    for (form, ending) in [("yaml", "yml"), ("proto", "binpb"), ("json", "json"), ("md", "md")] {
        fs::create_dir(place.path().join(form)).unwrap();
        let to = format!("{form}/helper.{ending}");
        place
            .run(&["agents", "convert", &from, "--to", form, "-o", &to])
            .ended(0);
        assert_eq!(hash(&to), before, "{form}");
        from = to;
    }
    let piped = place
        .pipe(&["agents", "convert", "-", "--from", "md", "--to", "json"], HELPER)
        .json();
    assert_eq!(piped["toolConfig"]["tools"], serde_json::json!(["add_task"]));
}

#[test]
fn agents_convert_writes_nothing_of_a_definition_that_is_wrong() {
    let place = agents(&[("wrong.md", "---\nname: a b\n---\nx\n")]);
    let ran = place.run(&["agents", "convert", "agents/wrong.md", "--to", "yaml", "-o", "out.yaml"]);
    assert!(
        ran.err.contains("agents/wrong.md:2: name: ") && ran.err.contains("is not converted: 2 mistakes"),
        "{}",
        ran.err
    );
    ran.ended(2);
    assert!(!place.path().join("out.yaml").exists());
    let unclear = place.pipe(&["agents", "convert", "-", "--to", "yaml"], "name: a");
    assert!(unclear.err.contains("--from"), "{}", unclear.err);
    unclear.ended(2);
}

#[test]
fn agents_schema_prints_a_json_schema() {
    let place = Place::new();
    let schema = place.run(&["agents", "schema"]).json();
    let validator = jsonschema::draft202012::new(&schema).unwrap();
    assert!(validator.is_valid(&serde_json::json!({"name": "a", "description": "d", "system_prompt": "s"})));
    assert!(!validator.is_valid(&serde_json::json!({"name": "a", "description": "d"})));
    let front_matter = place.run(&["agents", "schema", "--front-matter"]).json();
    let validator = jsonschema::draft202012::new(&front_matter).unwrap();
    assert!(validator.is_valid(&serde_json::json!({"name": "a", "description": "d"})));
    assert!(
        place
            .run(&["agents", "schema", "--reference"])
            .ended(0)
            .contains("| `modelConfig.temp` |")
    );
}

#[test]
fn the_help_of_agents_teaches_with_examples() {
    let place = Place::new();
    for verb in ["validate", "list", "show", "convert", "schema"] {
        let help = place.run(&["agents", verb, "--help"]).ended(0);
        assert!(
            help.contains(&format!("gavel agents {verb}")) && help.contains("Examples:"),
            "{help}"
        );
    }
}
