//! `gavel mcp` and `gavel mcp-server`.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

use serde_json::Value;

use super::harness::Place;

/// A server in the JSON of `gavel mcp list`.
#[track_caller]
fn server<'a>(listed: &'a Value, name: &str) -> &'a Value {
    let mut servers = listed.as_array().unwrap().iter();
    servers.find(|server| server["status"]["name"] == name).unwrap()
}

#[test]
fn servers_are_listed_with_their_tools_and_a_missing_one_is_a_failure() {
    let place = Place::new();
    let listed = place.run(&["mcp", "list", "--json"]).rows();
    // A bundled server without its setting is off, which is not a failure.
    let [files, google, tasks] = ["files", "google", "tasks"].map(|name| server(&listed, name));
    assert_eq!(
        (&files["status"]["name"], &files["status"]["state"]),
        (&"files".into(), &"off".into())
    );
    assert!(
        files["status"]["reason"].as_str().unwrap().contains("FILES_ROOT"),
        "{files}"
    );
    let reason = google["status"]["reason"].as_str().unwrap();
    for variable in [
        "GOOGLE_CLIENT_ID",
        "GOOGLE_CLIENT_SECRET",
        "GOOGLE_TOKEN_KEY",
        "GOOGLE_SERVICE_ACCOUNT_FILE",
    ] {
        assert!(reason.contains(variable), "{google}");
    }
    assert_eq!(google["status"]["state"], "off");
    assert_eq!(
        (&tasks["status"]["name"], &tasks["status"]["state"]),
        (&"tasks".into(), &"up".into())
    );
    assert_eq!(tasks["tools"].as_array().unwrap().len(), 5);
    let seen = place.run(&["mcp", "inspect", "tasks", "list_tasks", "--json"]).rows();
    assert_eq!(seen[0]["input_schema"]["type"], "object");
    assert_eq!(seen[0]["shown_to_model"]["type"], "object");
    assert!(
        place
            .run(&["mcp", "inspect", "tasks"])
            .ended(0)
            .contains("input schema for Gemini")
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
        (
            ["mcp", "call", "nope", "x"],
            "configured are docker, files, github, google, shell, tasks, web",
        ),
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

/// Any secret can also be given as `NAME_FILE`, and the bundled `mcp.json` passes it on.
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

/// A server is recognized by what it says, and not by how its command is spelled.
#[test]
fn a_bundled_server_is_as_safe_whatever_command_starts_it() {
    let gavel = env!("CARGO_BIN_EXE_gavel");
    let shell = format!("exec {gavel} mcp-server github");
    let place = Place::new();
    let wrapper = place.path().join("wrapper");
    fs::write(&wrapper, format!("#!/bin/sh\nexec {gavel} mcp-server \"$@\"\n")).unwrap();
    fs::set_permissions(&wrapper, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let env = serde_json::json!({"GITHUB_TOKEN": "none-is-needed", "DOCKER_HOST": "unix:///nowhere"});
    for (command, args) in [
        (gavel, vec!["mcp-server", "github"]),
        (gavel, vec!["--model", "demo", "mcp-server", "github"]),
        ("env", vec![gavel, "mcp-server", "github"]),
        ("sh", vec!["-c", &shell]),
        (wrapper.to_str().unwrap(), vec!["github"]),
    ] {
        let entry = serde_json::json!({"command": command, "args": args, "env": env});
        let servers = serde_json::json!({"mcpServers": {"hub": entry}});
        fs::write(place.path().join("mcp.json"), servers.to_string()).unwrap();
        let inspect = |tool: &str| {
            let args = ["mcp", "inspect", "hub", tool, "--json"];
            place.run_with(&args, &[("GAVEL_MCP_CONFIG", "mcp.json")]).rows()[0].clone()
        };
        for tool in ["closeIssue", "closePullRequest", "createRepository"] {
            assert_eq!(inspect(tool)["approval"], "required", "{command} {args:?}");
        }
        let configure = inspect("configureGitClientInContainer");
        let shown = &configure["shown_to_model"]["properties"];
        assert!(
            shown["token"].is_null() && !shown["username"].is_null(),
            "{command}: {shown}"
        );
    }
}

/// `pin: true`: each command is a separate process, so an acceptance is persistent.
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

    // The accepted definition differs from the server's.
    let (digest, before) = (seen["tasks"]["add_task"].as_str().unwrap(), "0".repeat(64));
    fs::write(path("gavel-pins.json"), seen.to_string().replacen(digest, &before, 1)).unwrap();
    let listed = place.run(&["mcp", "list", "--json"]).rows();
    let left = &listed[0]["left_out"][0];
    assert_eq!(left["name"], "add_task", "{listed}");
    assert!(
        left["reason"]
            .as_str()
            .unwrap()
            .contains("`gavel mcp accept tasks add_task`"),
        "{listed}"
    );
    assert_eq!(listed[0]["tools"].as_array().unwrap().len(), 4);

    // It can be inspected, and only the inspected definition can be accepted.
    let seen_now = place.run(&["mcp", "inspect", "tasks", "add_task", "--json"]).rows();
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
    let offered = place.run(&["mcp", "inspect", "tasks", "list_tasks", "--json"]).rows();
    assert_eq!(offered[0]["held_back"], Value::Null);
    let unchanged = || fs::read_to_string(path("gavel-pins.json")).unwrap().contains(&before);
    let other = place.run(&[&ACCEPT[..], &["--digest", &before]].concat());
    assert_eq!((other.status, other.out.as_str()), (1, ""));
    assert!(
        other.err.contains(digest) && other.err.contains("nothing was accepted"),
        "{}",
        other.err
    );
    let invalid = place.run(&[&ACCEPT[..], &["--digest", "c0ffee"]].concat());
    assert_eq!(invalid.status, 2);
    assert!(invalid.err.contains("64 hexadecimal digits"), "{}", invalid.err);
    assert!(unchanged());

    let accepted = place
        .run(&[&ACCEPT[..], &["--digest", &digest.to_uppercase()]].concat())
        .ended(0);
    for shown in ["tasks / add_task", &before, digest, "description: ", "\"properties\""] {
        assert!(accepted.contains(shown), "{shown}: {accepted}");
    }
    assert_eq!(pins(), seen);
    let listed = place.run(&["mcp", "list", "--json"]).rows();
    assert_eq!(listed[0]["tools"].as_array().unwrap().len(), 5);

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

    // The accepted definitions are lost: no tool counts as seen for the first time.
    fs::write(path("gavel-pins.json"), "{").unwrap();
    let broken = place.run(&["mcp", "list"]);
    assert_ne!(broken.status, 0);
    assert!(broken.err.contains("gavel-pins.json"), "{}", broken.err);
}

/// R-9: with credentials the bundled google server is available, with the tools that the agent of threads needs.
/// Incomplete credentials are reported, with what is missing.
#[test]
fn the_bundled_google_server_is_available_once_it_has_credentials() {
    let place = Place::new();
    let half = [("GOOGLE_CLIENT_ID", "id"), ("GOOGLE_CLIENT_SECRET_FILE", "secret")];
    let listed = place.run_with(&["mcp", "list"], &half).ended(0);
    assert!(
        listed.contains("google: off: needs GOOGLE_TOKEN_KEY in addition to GOOGLE_CLIENT_ID and GOOGLE_CLIENT_SECRET"),
        "{listed}"
    );
    for verb in [&["google", "list"][..], &["google", "connect", "ann"]] {
        let refused = place.run_with(verb, &half);
        assert_eq!(refused.status, 1);
        assert!(
            refused.err.contains("needs GOOGLE_TOKEN_KEY") && refused.err.contains("docs/how-to/google.md"),
            "{}",
            refused.err
        );
    }
    let all = [
        ("GOOGLE_CLIENT_ID", "id"),
        ("GOOGLE_CLIENT_SECRET", "canary-secret"),
        ("GOOGLE_TOKEN_KEY", "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="),
    ];
    let listed = place.run_with(&["mcp", "list", "--json"], &all).rows();
    let google = server(&listed, "google");
    assert_eq!(google["status"]["state"], "up", "{google}");
    let tools = google["tools"].as_array().unwrap();
    let tools: Vec<_> = tools.iter().map(|tool| (&tool["name"], &tool["side_effect"])).collect();
    let reported = [
        ("calendar_event_create", true),
        ("gmail_send", true),
        ("google_account", false),
    ];
    let reported = reported.map(|(name, acts)| (Value::from(name), Value::from(acts)));
    assert!(
        tools.into_iter().eq(reported.iter().map(|(name, acts)| (name, acts))),
        "{google}"
    );
    let agents = place.run_with(&["agents", "list"], &all).ended(0);
    let workspace = agents.lines().find(|line| line.contains("workspace")).unwrap();
    assert!(!workspace.contains("unavailable"), "{agents}");
    let stranger = place.run_with(&["google", "list"], &all).ended(0);
    assert!(stranger.contains("gavel google connect USER"), "{stranger}");
    let healthy = place.run_with(&["doctor", "--listen", "127.0.0.1:0"], &all).ended(0);
    assert!(healthy.contains("✓ MCP server google: connected"), "{healthy}");
    assert!(!healthy.contains("canary"), "{healthy}");
}

/// R-9: an operator behind a gateway configures the address of Google, and no token is sent anywhere else.
#[test]
fn the_bundled_google_server_uses_the_configured_address_of_google() {
    let place = Place::new();
    let gateway = [
        ("GOOGLE_CLIENT_ID", "id"),
        ("GOOGLE_CLIENT_SECRET", "secret"),
        ("GOOGLE_TOKEN_KEY", "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="),
        ("GOOGLE_AUTH_URL", "https://gateway.example/auth"),
    ];
    let mut connect = place.command(&["google", "connect", "ann", "--no-browser"], &gateway);
    let mut connect = connect.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut address = String::new();
    BufReader::new(connect.stdout.take().unwrap())
        .read_line(&mut address)
        .unwrap();
    connect.kill().unwrap();
    connect.wait().unwrap();
    assert!(address.starts_with("https://gateway.example/auth?"), "{address}");
    for (name, verb) in [
        ("GOOGLE_TOKEN_URL", &["google", "list"][..]),
        ("GOOGLE_GMAIL_URL", &["mcp", "list"]),
    ] {
        let invalid = [&gateway[..], &[(name, "http://gateway.example")]].concat();
        let refused = place.run_with(verb, &invalid);
        let reported = format!("{}{}", refused.out, refused.err);
        assert!(refused.status != 0 && reported.contains(name), "{reported}");
    }
}

/// The token is a setting of gavel: it can be in a file or in gavel.toml too. Nothing prints it.
#[test]
fn the_bundled_github_server_is_available_once_it_has_a_token() {
    const TOKEN: &str = "canary-of-github";
    let place = Place::new();
    fs::write(place.path().join("token"), format!("{TOKEN}\n")).unwrap();
    let tools = |environment: &[(&str, &str)]| {
        let listed = place.run_with(&["mcp", "list", "--json"], environment).rows();
        assert!(!listed.to_string().contains(TOKEN), "{listed}");
        let github = server(&listed, "github");
        assert_eq!(github["status"]["state"], "up", "{github}");
        github["tools"].as_array().unwrap().len()
    };
    for given in [("GITHUB_TOKEN", TOKEN), ("GITHUB_TOKEN_FILE", "token")] {
        assert_eq!(tools(&[given]), 14, "{given:?}");
    }
    fs::write(place.path().join("gavel.toml"), "[github]\ntoken_file = \"token\"\n").unwrap();
    assert_eq!(tools(&[]), 14);
    // No server listens on the discard port.
    let unreachable = [("GITHUB_API_URL", "http://127.0.0.1:9")];
    let seen = place
        .run_with(&["doctor", "--listen", "127.0.0.1:0"], &unreachable)
        .ended(1);
    assert!(
        seen.contains("✓ MCP server github: connected") && !seen.contains(TOKEN),
        "{seen}"
    );
    assert!(seen.contains("✗ github: GitHub does not answer"), "{seen}");
    // Plans need no other server.
    assert!(
        seen.contains("! agent task_worker works without some of its tools: "),
        "{seen}"
    );
    let listed = place.run_with(&["agents", "list"], &unreachable).ended(0);
    let planner = listed.lines().find(|line| line.starts_with("planner ")).unwrap();
    assert!(planner.contains(" available "), "{listed}");
    assert!(
        listed.contains("\nplanner works without some of its tools: "),
        "{listed}"
    );
    let invalid = [("GITHUB_URL", "http://github.example")];
    let refused = place
        .run_with(&["doctor", "--listen", "127.0.0.1:0"], &invalid)
        .ended(1);
    let mut lines = refused
        .lines()
        .skip_while(|line| !line.starts_with("✗ MCP server github"));
    assert!(
        lines.nth(1).unwrap().contains("docs/reference/github-server.md"),
        "{refused}"
    );
}
