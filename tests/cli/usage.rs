//! Help texts, invalid usage, and the settings.

use std::fs;
use std::net::TcpListener;
use std::process::{Command, Stdio};

use serde_json::Value;
use sha2::{Digest, Sha256};

use super::harness::{Place, Ran};

#[test]
fn the_help_has_examples() {
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
        "plan start",
        "plan refine",
        "plan edit",
        "plan show",
        "plan diff",
        "plan history",
        "plan list",
        "plan cancel",
        "plan watch",
    ] {
        let args: Vec<_> = verb.split(' ').chain(["--help"]).collect();
        let help = place.run(&args).ended(0);
        assert!(help.contains("Examples:") && help.contains("gavel"), "{verb}: {help}");
    }
}

#[test]
fn shells_and_manuals_know_every_command() {
    let place = Place::new();
    for shell in ["bash", "zsh", "fish"] {
        let script = place.run(&["completion", shell]).ended(0);
        for word in ["approvals", "settle", "--in-doubt"] {
            let word = if shell == "fish" {
                word.trim_start_matches("--")
            } else {
                word
            };
            assert!(script.contains(word), "{shell}: {word}");
        }
    }
    let script = place.path().join("gavel.bash");
    fs::write(&script, place.run(&["completion", "bash"]).ended(0)).unwrap();
    let completes =
        "source gavel.bash; COMP_WORDS=(gavel app); COMP_CWORD=1; _gavel gavel app gavel; echo ${COMPREPLY[@]}";
    let completed = Command::new("bash")
        .args(["-c", completes])
        .current_dir(place.path())
        .output();
    assert_eq!(String::from_utf8(completed.unwrap().stdout).unwrap(), "approvals\n");

    place.run(&["man", "pages"]).ended(0);
    let page = fs::read_to_string(place.path().join("pages/gavel-plan-start.1")).unwrap();
    assert!(
        page.contains("deadline") && page.contains(".SH EXAMPLES\n.nf\n") && !page.contains("mcp-pins"),
        "{page}"
    );
    assert!(page.contains(".SH \"EXIT STATUS\"\n0 "), "{page}");
    let first = place.run(&["man"]).ended(0);
    assert!(
        first.contains("mcp\\-pins") && first.contains("interrupted by Ctrl\\-C"),
        "{first}"
    );
    assert!(place.run(&["help", "exit-codes"]).ended(0).contains("    6  "));
}

/// The servers are also separate programs; here they are started under another name.
#[test]
fn the_help_of_a_server_names_the_command_that_was_typed() {
    let place = Place::new();
    for server in ["docker", "files", "github", "google", "shell", "tasks", "web"] {
        let help = place.run(&["mcp-server", server, "--help"]).ended(0);
        let (_, examples) = help.split_once("Example").unwrap();
        assert!(
            examples.contains(&format!("gavel mcp-server {server}")) && !help.contains("gavel-mcp-"),
            "{help}"
        );
    }
}

#[test]
fn invalid_usage_ends_with_2_and_shows_the_valid_usage() {
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
        &["runs", "show", "x"],
        &["runs", "list", "--status", "done"],
        &["agents", "run"],
        &["plan"],
        &["plan", "start", "--repo", "https://github.com/acme/dates", "a goal"],
        &[
            "plan",
            "start",
            "--repo",
            "https://github.com/acme/dates",
            "--deadline",
            "soon",
            "a goal",
        ],
        &["plan", "show", "x"],
        &["plan", "show", "0198c2b5-7d8e-7c52-9d3b-5a1c4e6f7a80", "2"],
        &["plan", "diff", "0198c2b5-7d8e-7c52-9d3b-5a1c4e6f7a80", "0"],
        &["plan", "list", "--status", "done"],
    ] {
        let ran = place.run(args);
        assert_eq!((ran.status, ran.out.as_str()), (2, ""), "{args:?}");
        assert!(ran.err.contains("--help") || ran.err.contains("Usage"), "{}", ran.err);
    }
    place.run(&["migrate"]).ended(0);
    for (args, words) in [
        (
            &["decisions", "list", "--filter", "x = 1"][..],
            "\n  filter: at character 1",
        ),
        (&["decisions", "tail", "--filter", "x = 1"], "\n  filter: at character "),
        (
            &["decisions", "list", "--page-token", "-x"],
            "\n  page_token: is not a page token",
        ),
        (&["eval", "/nope"], "error: the cases are invalid:\n  /nope"),
        (&["mcp", "call", "tasks", "add_task", "-"], "give a JSON object"),
    ] {
        let ran = place.run(args);
        assert_eq!((ran.status, ran.out.as_str()), (2, ""), "{args:?}: {}", ran.err);
        assert!(ran.err.contains(words), "{args:?}: {}", ran.err);
    }
}

#[test]
fn an_invalid_file_named_by_a_setting_ends_with_2() {
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

/// A value that is not a database URL is an error in the configuration; an unavailable database is not.
#[test]
fn an_invalid_database_url_ends_with_2_and_is_not_printed() {
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
fn an_invalid_configuration_ends_with_2_and_names_every_error() {
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
            .contains("flag --config: config: found missing.toml, which cannot be read"),
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
    let json = place.run_with(&["config", "--json"], &environment).rows();
    let listen = json
        .as_array()
        .unwrap()
        .iter()
        .find(|one| one["key"] == "listen")
        .unwrap();
    assert_eq!(listen["value"], "127.0.0.1:8080");
    assert_eq!(listen["origin"], "default");
}

/// A new user puts the key into `.env`, as for other programs.
#[test]
fn dotenv_in_the_working_directory_has_lower_precedence_than_the_environment() {
    const KEY: &str = "canary-of-the-file";
    let place = Place::new();
    let root = place.path().display();
    let text = format!("GAVEL_LISTEN=127.0.0.1:9\nGEMINI_API_KEY='{KEY}'\nFILES_ROOT={root}\n");
    fs::write(place.path().join(".env"), text).unwrap();
    let shown = place.run(&["config"]).ended(0);
    assert!(
        shown.contains(".env GAVEL_LISTEN") && shown.contains(".env GEMINI_API_KEY"),
        "{}",
        shown
    );
    assert!(!shown.contains(KEY), "{}", shown);
    let shown = place.run_with(&["config"], &[("GAVEL_LISTEN", "127.0.0.1:8")]).ended(0);
    assert!(shown.contains("environment GAVEL_LISTEN"), "{}", shown);
    let servers = place.run(&["mcp", "list"]).ended(0);
    assert!(servers.contains("read_file"), "mcp.json names FILES_ROOT: {}", servers);

    fs::write(place.path().join(".env"), format!("# mine\n{KEY}\n")).unwrap();
    let refused = place.run(&["config"]);
    assert_eq!(refused.status, 2, "{}", refused.err);
    assert!(
        refused.err.contains(".env:2: ") && !refused.err.contains(KEY),
        "{}",
        refused.err
    );

    let venv = Place::new();
    fs::create_dir(venv.path().join(".env")).unwrap();
    venv.run(&["config"]).ended(0);
}

/// A cloned repository must not send the user's key elsewhere, start a program, or permit a call.
#[test]
fn files_of_a_directory_count_only_if_the_user_trusts_it_or_names_them() {
    let place = Place::new();
    let parent = place.path().parent().unwrap().display().to_string();
    let key = ("GEMINI_API_KEY", "canary");
    let untrusted = ["", ".", "*", "relative", &parent].map(|trust| [("GAVEL_TRUST", trust), key]);
    for setting in [
        "GEMINI_BASE_URL=https://evil.example",
        "GAVEL_MCP_CONFIG=mcp.json",
        "GITHUB_URL=https://evil.example",
        "DATABASE_URL=postgres://evil.example/x",
        "OTEL_EXPORTER_OTLP_ENDPOINT=https://evil.example",
        "GAVEL_CONFIG=evil.toml",
        "GAVEL_API_KEY_FILE=/etc/passwd",
    ] {
        fs::write(place.path().join(".env"), format!("PORT=3000\n{setting}\n")).unwrap();
        let name = setting.split('=').next().unwrap();
        for environment in &untrusted {
            let refused = place.run_with(&["config"], environment);
            assert_eq!(refused.status, 2, "{environment:?}: {}", refused.err);
            for said in [".env", name, "GAVEL_TRUST"] {
                assert!(refused.err.contains(said), "{}", refused.err);
            }
        }
    }
    // Neither is it read without end.
    fs::remove_file(place.path().join(".env")).unwrap();
    std::os::unix::fs::symlink("/dev/zero", place.path().join(".env")).unwrap();
    let refused = place.run_with(&["config"], &untrusted[0]);
    assert_eq!(refused.status, 2, "{}", refused.err);
    assert!(refused.err.contains("no file of at most 1 MiB"), "{}", refused.err);
    fs::remove_file(place.path().join(".env")).unwrap();
    // The file of another program is not ours to refuse, and gives nothing.
    fs::write(
        place.path().join(".env"),
        "PORT=3000\nFILES_ROOT=/etc\nGCE_METADATA_HOST=evil.example\n",
    )
    .unwrap();
    let ran = place.run_with(&["mcp", "list"], &untrusted[0]).ended(0);
    assert!(!ran.contains("read_file"), "{ran}");
    fs::remove_file(place.path().join(".env")).unwrap();

    fs::write(
        place.path().join("gavel.toml"),
        "[gemini]\nbase_url = \"https://evil.example\"\n",
    )
    .unwrap();
    for environment in &untrusted {
        let refused = place.run_with(&["config"], environment);
        assert_eq!(refused.status, 2, "{}", refused.err);
        assert!(
            refused.err.contains("gavel.toml") && refused.err.contains("GAVEL_TRUST"),
            "{}",
            refused.err
        );
    }
    for named in [&["config", "--config", "gavel.toml"][..], &["config"]] {
        let trusted = [
            (
                "GAVEL_TRUST",
                if named.len() > 1 {
                    ""
                } else {
                    place.path().to_str().unwrap()
                },
            ),
            key,
        ];
        let shown = place.run_with(named, &trusted).ended(0);
        assert!(shown.contains("https://evil.example"), "{shown}");
    }
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
            "--user",
            "ann \"the\" user",
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
    let json = place.run(&["config", "--json"]).rows();
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
    let rows = String::from_utf8(by_shell.stdout).unwrap();
    let keys = rows
        .lines()
        .map(|row| serde_json::from_str::<Value>(row).unwrap())
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
fn a_closed_output_pipe_is_not_a_failure() {
    let place = Place::new();
    let mut command = place.command(&["config", "--reference"], &[]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let ran = Ran::of(child.wait_with_output().unwrap());
    assert_eq!((ran.status, ran.err.as_str()), (0, ""));
}
