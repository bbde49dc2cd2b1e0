//! `mcp.json`.

use std::time::Duration;

use gavel::adapters::mcp::config::{Connection, Identity, TransportConfig};
use gavel::adapters::mcp::{ConfigIssue, McpConfig, MissingVariable};
use gavel::domain::tool::{ApprovalDefault, Idempotency};
use serde_json::json;

fn env(name: &str) -> Option<String> {
    match name {
        "TOKEN" => Some("canary-token".into()),
        "PATH" => Some("/bin".into()),
        "SHORT" => Some("short".into()),
        _ => None,
    }
}

fn issues(text: &str) -> Vec<ConfigIssue> {
    McpConfig::from_json(text, &env).unwrap_err()
}

#[test]
fn a_file_of_the_ecosystem_is_read_as_it_is() {
    let text = json!({"mcpServers": {
        "files": {"command": "npx", "args": ["-y", "server", "${DIR:-/tmp}"], "env": {"KEY": "${TOKEN}"}, "cwd": "/x",
                  "timeout": 5000, "trust": true, "alwaysAllow": []},
        "remote": {"httpUrl": "https://example.org/mcp", "headers": {"Authorization": "Bearer ${TOKEN}"},
                   "includeTools": ["a"], "excludeTools": ["b"], "type": "http"},
        "off": {"command": "${NOT_SET}", "disabled": true}
    }})
    .to_string();
    let config = McpConfig::from_json(&text, &env).unwrap();
    let names: Vec<&str> = config.servers.iter().map(|server| &*server.name).collect();
    assert_eq!(names, ["files", "off", "remote"]);
    let TransportConfig::Stdio { command, args, cwd, .. } = config.servers[0].transport.as_ref().unwrap() else {
        panic!()
    };
    assert_eq!((command.as_str(), args[2].as_str()), ("npx", "/tmp"));
    assert_eq!(cwd.as_deref(), Some(std::path::Path::new("/x")));
    assert_eq!(config.servers[0].timeout, Duration::from_secs(5));
    assert_eq!(config.servers[2].timeout, Duration::from_secs(30));
    assert!(config.servers[1].off.is_some() && config.servers[1].transport.is_none());
    let warned: Vec<&str> = config.warnings.iter().map(|warning| warning.pointer.as_str()).collect();
    assert_eq!(warned, ["/mcpServers/files/alwaysAllow", "/mcpServers/files/trust"]);
    let printed = format!("{config:?}");
    assert!(!printed.contains("canary"), "{printed}");
}

#[test]
fn our_settings_stand_under_gavel() {
    let text = json!({"mcpServers": {"s": {"command": "x", "gavel": {
        "identity": {"argument": "user_id"}, "connection": "per_user", "trustHints": true, "maxConcurrent": 4, "pin": true,
        "tools": {"send": {"sideEffect": true, "approval": "required", "timeoutMs": 900, "idempotency": "key",
                           "recipients": ["to", "cc"]}}
    }}}})
    .to_string();
    let config = McpConfig::from_json(&text, &env).unwrap();
    let gavel = &config.servers[0].gavel;
    assert_eq!(gavel.identity, Identity::Argument("user_id".into()));
    assert_eq!(gavel.connection, Connection::PerUser);
    assert!(gavel.trust_hints && gavel.pin);
    assert_eq!(gavel.max_concurrent, 4);
    let send = &gavel.tools["send"];
    assert_eq!(send.side_effect, Some(true));
    assert_eq!(send.approval, Some(ApprovalDefault::Required));
    assert_eq!(send.timeout, Some(Duration::from_millis(900)));
    assert_eq!(send.idempotency, Some(Idempotency::Key));
    assert_eq!(send.recipients, ["to", "cc"]);
}

#[test]
fn all_mistakes_are_told_at_once_each_with_its_place() {
    let text = json!({"mcpServers": {
        "a": {"command": "${NOPE}", "args": "x", "env": {"K": 1, "B=": "x"}, "cwd": 7, "timeout": "fast"},
        "b": {"url": "ftp://x", "headers": {"bad name": "x", "Mcp-Session-Id": "x", "X": "${ALSO NOT}"}},
        "c": {"command": "x", "url": "http://x"},
        "d": {},
        "e": {"type": "sse", "url": "http://x"},
        "f": {"type": "http", "command": "x"},
        "g": {"command": "x", "gavel": {"identity": "me", "connection": "one", "trustHints": 1, "maxConcurrent": 0, "pins": 1,
              "tools": {"t/u": {"approval": "never", "idempotency": "yes", "timeoutMs": 0, "sideEffects": true, "recipients": 1}}}},
        "h i": {"command": "x"},
        "j": 1
    }})
    .to_string();
    let found = issues(&text);
    let places: Vec<&str> = found.iter().map(|issue| issue.pointer.as_str()).collect();
    for place in [
        "/mcpServers/a/command",
        "/mcpServers/a/args",
        "/mcpServers/a/env/K",
        "/mcpServers/a/cwd",
        "/mcpServers/a/timeout",
        "/mcpServers/b/url",
        "/mcpServers/b/headers/bad name",
        "/mcpServers/b/headers/Mcp-Session-Id",
        "/mcpServers/b/headers/X",
        "/mcpServers/c",
        "/mcpServers/d",
        "/mcpServers/e/type",
        "/mcpServers/f/type",
        "/mcpServers/g/gavel/identity",
        "/mcpServers/g/gavel/connection",
        "/mcpServers/g/gavel/trustHints",
        "/mcpServers/g/gavel/maxConcurrent",
        "/mcpServers/g/gavel/pins",
        "/mcpServers/g/gavel/tools/t~1u/approval",
        "/mcpServers/g/gavel/tools/t~1u/idempotency",
        "/mcpServers/g/gavel/tools/t~1u/timeoutMs",
        "/mcpServers/g/gavel/tools/t~1u/sideEffects",
        "/mcpServers/g/gavel/tools/t~1u/recipients",
        "/mcpServers/h i",
        "/mcpServers/j",
    ] {
        assert!(places.contains(&place), "{place} is missing in {found:#?}");
    }
    let undefined = found
        .iter()
        .find(|issue| issue.pointer == "/mcpServers/a/command")
        .unwrap();
    assert!(undefined.message.contains("NOPE"), "{undefined}");
    assert!(
        undefined.to_string().starts_with("mcp.json/mcpServers/a/command: "),
        "{undefined}"
    );
}

#[test]
fn what_is_not_a_list_of_servers_is_an_error() {
    assert!(issues("{").first().unwrap().message.contains("not JSON"));
    assert!(issues("{}")[0].message.contains("`mcpServers` is missing"));
    assert_eq!(issues(r#"{"mcpServers": []}"#)[0].pointer, "/mcpServers");
}

#[test]
fn an_identity_token_needs_a_secret_worth_the_name() {
    let text = r#"{"mcpServers": {"s": {"command": "x", "gavel": {"identity": "token"}}}}"#;
    let missing = McpConfig::from_json(text, &|_| None).unwrap_err();
    assert!(missing[0].message.contains("GAVEL_IDENTITY_SECRET"), "{missing:?}");
    let short = McpConfig::from_json(text, &|_| Some("short".into())).unwrap_err();
    assert!(short[0].message.contains("32 bytes"), "{short:?}");
    assert!(McpConfig::from_json(text, &|_| Some("x".repeat(32))).is_ok());
}

#[test]
fn a_bundled_server_whose_setting_is_missing_is_off_and_says_what_it_needs() {
    let text = r#"{"mcpServers": {"a": {"command": "x", "env": {"K": "${GITHUB_TOKEN}"}}, "b": {"command": "x"}}}"#;
    let config = McpConfig::from_json_with(text, &env, MissingVariable::TurnsOff).unwrap();
    assert!(config.servers[0].off.as_ref().unwrap().contains("GITHUB_TOKEN"));
    assert!(config.servers[1].off.is_none());
}
