//! `mcp.json`.

use std::time::Duration;

use gavel::adapters::mcp::McpConfig;
use gavel::adapters::mcp::config::{Connection, Identity, TransportConfig};
use gavel::domain::tool::{ApprovalDefault, Idempotency};
use gavel::domain::tool_settings::SessionValue;
use gavel_reading::ReadError;
use serde_json::json;

fn env(name: &str) -> Option<String> {
    match name {
        "TOKEN" => Some("canary-token".into()),
        "PATH" => Some("/bin".into()),
        "SHORT" => Some("short".into()),
        _ => None,
    }
}

fn issues(text: &str) -> Vec<ReadError> {
    McpConfig::from_file("mcp.json", text, &env).unwrap_err()
}

#[test]
fn a_standard_mcp_json_is_read_unchanged() {
    let text = json!({"mcpServers": {
        "files": {"command": "npx", "args": ["-y", "server", "${DIR:-/tmp}"], "env": {"KEY": "${TOKEN}"}, "cwd": "/x",
                  "timeout": 5000, "trust": true, "alwaysAllow": []},
        "remote": {"httpUrl": "https://example.org/mcp", "headers": {"Authorization": "Bearer ${TOKEN}"},
                   "includeTools": ["a"], "excludeTools": ["b"], "type": "http"},
        "off": {"command": "${NOT_SET}", "disabled": true}
    }})
    .to_string();
    let config = McpConfig::from_file("mcp.json", &text, &env).unwrap();
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
    let warned: Vec<&str> = config.warnings.iter().map(|warning| warning.field.as_str()).collect();
    assert_eq!(warned, ["mcpServers.files.alwaysAllow", "mcpServers.files.trust"]);
    let printed = format!("{config:?}");
    assert!(!printed.contains("canary"), "{printed}");
}

#[test]
fn gavels_own_settings_are_under_gavel() {
    let text = json!({"mcpServers": {"s": {"command": "x", "gavel": {
        "identity": {"argument": "user_id"}, "connection": "per_user", "tenantUsers": true, "trustHints": true, "maxConcurrent": 4, "pin": true,
        "tools": {"send": {"sideEffect": true, "approval": "required", "timeoutMs": 900, "idempotency": "key",
                           "recipients": ["to", "cc"], "hidden": ["token"], "singleLine": ["subject"], "freeArguments": ["folder"],
                           "times": {"start": "start", "end": "event.end", "zone": "zone", "allowPast": "past"}}}
    }}}})
    .to_string();
    let config = McpConfig::from_file("mcp.json", &text, &env).unwrap();
    let gavel = &config.servers[0].gavel;
    assert_eq!(gavel.identity, Identity::Argument("user_id".into()));
    assert_eq!(gavel.connection, Connection::PerUser);
    assert!(gavel.trust_hints && gavel.tells_tenants() && gavel.pin);
    assert_eq!(gavel.max_concurrent, 4);
    let send = &gavel.tools["send"];
    assert_eq!(send.side_effect, Some(true));
    assert_eq!(send.approval, Some(ApprovalDefault::Required));
    assert_eq!(send.timeout, Some(Duration::from_millis(900)));
    assert_eq!(send.idempotency, Some(Idempotency::Key));
    let paths: Vec<_> = send.recipients.iter().map(ToString::to_string).collect();
    assert_eq!(paths, ["to", "cc"]);
    assert_eq!(*send.hidden, ["token".into()]);
    assert_eq!(send.single_line[0].to_string(), "subject");
    assert_eq!(send.free_arguments[0].to_string(), "folder");
    let times = send.times.as_ref().unwrap();
    assert_eq!(times.start.to_string(), "start");
    assert_eq!(times.end.as_ref().unwrap().to_string(), "event.end");
    assert!(times.zone.is_some() && times.allow_past.is_some());
}

#[test]
fn all_errors_are_reported_at_once_with_their_location() {
    let text = json!({"mcpServers": {
        "a": {"command": "${NOPE}", "args": "x", "env": {"K": 1, "B=": "x"}, "cwd": 7, "timeout": "fast"},
        "b": {"url": "ftp://x", "headers": {"bad name": "x", "Mcp-Session-Id": "x", "X": "${ALSO NOT}"}},
        "c": {"command": "x", "url": "http://x"},
        "d": {},
        "e": {"type": "sse", "url": "http://x"},
        "f": {"type": "http", "command": "x"},
        "g": {"command": "x", "gavel": {"identity": "me", "connection": "one", "trustHints": 1, "maxConcurrent": 0, "pins": 1,
              "tools": {"t/u": {"approval": "never", "idempotency": "yes", "timeoutMs": 0, "sideEffects": true, "recipients": 1, "hidden": ["token", "a.b", ""]}}}},
        " ": {"command": "x"},
        "j": 1
    }})
    .to_string();
    let found = issues(&text);
    let places: Vec<&str> = found.iter().map(|issue| issue.field.as_str()).collect();
    for place in [
        "mcpServers.a.command",
        "mcpServers.a.args",
        "mcpServers.a.env.K",
        "mcpServers.a.cwd",
        "mcpServers.a.timeout",
        "mcpServers.b.url",
        "mcpServers.b.headers.bad name",
        "mcpServers.b.headers.Mcp-Session-Id",
        "mcpServers.b.headers.X",
        "mcpServers.c",
        "mcpServers.d",
        "mcpServers.e.type",
        "mcpServers.f.type",
        "mcpServers.g.gavel.identity",
        "mcpServers.g.gavel.connection",
        "mcpServers.g.gavel.trustHints",
        "mcpServers.g.gavel.maxConcurrent",
        "mcpServers.g.gavel.pins",
        "mcpServers.g.gavel.tools.t/u.approval",
        "mcpServers.g.gavel.tools.t/u.idempotency",
        "mcpServers.g.gavel.tools.t/u.timeoutMs",
        "mcpServers.g.gavel.tools.t/u.sideEffects",
        "mcpServers.g.gavel.tools.t/u.recipients",
        "mcpServers.g.gavel.tools.t/u.hidden[1]",
        "mcpServers.g.gavel.tools.t/u.hidden[2]",
        "mcpServers. ",
        "mcpServers.j",
    ] {
        assert!(places.contains(&place), "{place} is missing in {found:#?}");
    }
    let undefined = found
        .iter()
        .find(|issue| issue.field == "mcpServers.a.command")
        .unwrap();
    assert!(undefined.found.contains("NOPE"), "{undefined}");
    assert!(
        undefined.to_string().starts_with("mcp.json:1: mcpServers.a.command: "),
        "{undefined}"
    );
}

/// Settings of other clients are applied, or reported with their line.
#[test]
fn a_file_of_another_client_is_read_as_intended() {
    let text = "\u{feff}{
      // VS Code's word for mcpServers
      \"servers\": {
        \"My Files\": {\"command\": \"x\", \"env\": {\"K\": \"${env:TOKEN}\"}, \"cwd\": null,
                     \"timeout\": 60, /* meant as seconds */ },
        \"off\": {\"command\": \"${NOPE}\", \"enabled\": false},
        \"off too\": {\"command\": \"x\", \"enabled\": true, \"disabled\": true},
      },
    }";
    let config = McpConfig::from_file("mcp.json", text, &env).unwrap();
    let states: Vec<_> = config
        .servers
        .iter()
        .map(|server| (&*server.name, server.off.is_some()))
        .collect();
    assert_eq!(states, [("My-Files", false), ("off", true), ("off-too", true)]);
    assert_eq!(config.servers[0].timeout, Duration::from_millis(60));
    let reported: Vec<String> = config.warnings.iter().map(ToString::to_string).collect();
    for part in [
        "mcp.json:5: servers.My Files.timeout: found 60 milliseconds; allowed: 60000 for 60 seconds",
        "mcp.json:4: servers.My Files: found a name with white space; allowed: a name without; the name `My-Files` is used",
    ] {
        assert!(reported.iter().any(|warning| warning == part), "{part}: {reported:#?}");
    }
    let invalid =
        issues("{\n \"servers\": {\n  \"a b\": {\"command\": \"${input:key}\"},\n  \"a-b\": {\"command\": \"x\"}}}");
    let reported: Vec<String> = invalid.iter().map(ToString::to_string).collect();
    assert!(
        reported[0].starts_with("mcp.json:3: servers.a b.command: found the variable `input:key`"),
        "{reported:?}"
    );
    let twice = issues("{\"mcpServers\": {\"a b\": {\"command\": \"x\"},\n  \"a-b\": {\"command\": \"x\"}}}");
    assert_eq!(
        twice[0].to_string(),
        "mcp.json:2: mcpServers.a-b: found a second server `a-b`; allowed: each name once"
    );
}

#[test]
fn a_file_that_is_not_a_list_of_servers_is_an_error() {
    assert!(issues("{").first().unwrap().found.contains("not JSON"));
    assert!(issues("{}")[0].field == "mcpServers");
    assert_eq!(issues(r#"{"mcpServers": []}"#)[0].field, "mcpServers");
}

#[test]
fn an_identity_token_requires_a_strong_secret() {
    let text = r#"{"mcpServers": {"s": {"command": "x", "gavel": {"identity": "token"}}}}"#;
    let missing = McpConfig::from_file("mcp.json", text, &|_| None).unwrap_err();
    assert!(missing[0].found.contains("GAVEL_IDENTITY_SECRET"), "{missing:?}");
    let short = McpConfig::from_file("mcp.json", text, &|_| Some("short".into())).unwrap_err();
    assert!(short[0].allowed.contains("32 bytes"), "{short:?}");
    assert!(McpConfig::from_file("mcp.json", text, &|_| Some("x".repeat(32))).is_ok());
}

/// A server that acts as the given user receives the tenant, unless its entry says otherwise.
#[test]
fn a_server_with_an_identity_receives_users_with_their_tenant() {
    for (gavel, tells) in [
        (json!({}), false),
        (json!({"tenantUsers": true}), true),
        (json!({"identity": {"argument": "user"}}), true),
        (json!({"identity": "token"}), true),
        (json!({"identity": "token", "tenantUsers": false}), false),
    ] {
        let text = json!({"mcpServers": {"s": {"command": "x", "gavel": gavel}}}).to_string();
        let config = McpConfig::from_file("mcp.json", &text, &|_| Some("x".repeat(32))).unwrap();
        assert_eq!(config.servers[0].gavel.tells_tenants(), tells, "{text}");
    }
}

/// A grant covers only what is declared free, so an operator who has not thought of it reads a warning.
#[test]
fn recipients_without_free_arguments_cause_a_warning() {
    let tools = json!({"send": {"recipients": ["to"]}});
    let text = json!({"mcpServers": {"a": {"command": "x", "gavel": {"tools": tools}}}}).to_string();
    let warned = McpConfig::from_file("mcp.json", &text, &env).unwrap().warnings;
    let says = "gavel.tools.send: found `recipients` without `freeArguments`";
    assert!(
        warned.iter().any(|warning| warning.to_string().contains(says)),
        "{warned:?}"
    );
}

/// A server that is off until its settings are given may use them in its entry without a default.
#[test]
fn a_server_with_a_missing_setting_is_off_and_names_it() {
    let text = r#"{"mcpServers": {"a": {"command": "x", "env": {"K": "${GITHUB_TOKEN}"}, "gavel": {"requiredEnv": [["GITHUB_TOKEN"]]}},
                                  "b": {"command": "x"}}}"#;
    let config = McpConfig::from_file("mcp.json", text, &env).unwrap();
    let off = config.servers[0].off.as_deref();
    assert_eq!(off, Some("needs GITHUB_TOKEN, which is not set"));
    assert!(config.servers[1].off.is_none());
}

/// A misspelled key would change what the server does: it might stay on, or run without its settings. But the keys of
/// other clients are only ignored.
#[test]
fn a_misspelled_key_is_an_error_and_a_key_of_another_client_is_not() {
    for (written, meant) in [
        ("comand", "command"),
        ("cmd", "command"),
        ("disable", "disabled"),
        ("enable", "enabled"),
        ("timeoutMs", "timeout"),
        ("includeTool", "includeTools"),
        ("header", "headers"),
    ] {
        let text = json!({"mcpServers": {"s": {"command": "x", written: "y"}}}).to_string();
        let found = McpConfig::from_file("own.json", &text, &env).unwrap_err();
        assert_eq!(
            found.iter().map(ToString::to_string).collect::<Vec<_>>(),
            [format!(
                "own.json:1: mcpServers.s.{written}: found an unknown field; allowed: did you mean `{meant}`?"
            )]
        );
    }
    for theirs in [
        "alwaysAllow",
        "alwaysLoad",
        "auth",
        "authProviderType",
        "autoApprove",
        "dev",
        "disabledTools",
        "disabled_tools",
        "enabled_tools",
        "envFile",
        "env_vars",
        "extensionName",
        "gallery",
        "headersHelper",
        "http_headers",
        "name",
        "oauth",
        "sandbox",
        "serverUrl",
        "source",
        "startup_timeout_sec",
        "targetAudience",
        "tcp",
        "tool_timeout_sec",
        "tools",
        "transport",
        "trust",
        "version",
    ] {
        let text = json!({"mcpServers": {"s": {"command": "x", theirs: "y"}}}).to_string();
        let config =
            McpConfig::from_file("mcp.json", &text, &env).unwrap_or_else(|issues| panic!("{theirs}: {issues:?}"));
        let warned: Vec<_> = config.warnings.iter().map(ToString::to_string).collect();
        assert_eq!(
            warned,
            [format!(
                "mcp.json:1: mcpServers.s.{theirs}: found an unknown field; allowed: a key of another program, which is ignored"
            )]
        );
    }
}

/// R-12: an invalid path would leave recipients unchecked.
#[test]
fn invalid_paths_are_errors_with_their_location() {
    let text = json!({"mcpServers": {"s": {"command": "x", "gavel": {"tools": {"send": {
        "recipients": ["to", "cc[0]"], "singleLine": [""], "times": {"begin": "start", "end": "events[].end"},
    }}}}}});
    let issues = McpConfig::from_file("mcp.json", &text.to_string(), &env).unwrap_err();
    let reported: Vec<_> = issues.iter().map(ToString::to_string).collect();
    let at = "mcp.json:1: mcpServers.s.gavel.tools.send";
    assert_eq!(
        reported,
        [
            format!("{at}.recipients[1]: found \"cc[0]\"; allowed: a path such as to, message.cc or attendees[].email"),
            format!("{at}.singleLine[0]: found \"\"; allowed: a path such as to, message.cc or attendees[].email"),
            format!(
                "{at}.times.end: found \"events[].end\"; allowed: a path to one argument, such as start or event.start"
            ),
            format!("{at}.times.start: found nothing; allowed: a path to one argument, such as start or event.start"),
            format!("{at}.times.begin: found an unknown field; allowed: start, end, zone, allowPast"),
        ]
    );
}

/// A server with missing settings is off, and names them.
#[test]
fn a_server_is_off_until_one_list_of_required_settings_is_complete() {
    let text = json!({"mcpServers": {"mail": {"command": "x", "gavel": {"requiredEnv": [["ID", "SECRET", "KEY"], ["ACCOUNT"]]}}}});
    let off = |set: &[&str]| {
        let env = |name: &str| match set.iter().find(|set| set.trim_end_matches('=') == name) {
            Some(set) if set.ends_with('=') => Some(String::new()),
            found => found.map(|_| "value".to_owned()),
        };
        let config = McpConfig::from_file("mcp.json", &text.to_string(), &env).unwrap();
        assert_eq!(config.servers[0].off.is_some(), config.servers[0].transport.is_none());
        config.servers[0].off.clone()
    };
    let nothing = Some("needs ID and SECRET and KEY, or ACCOUNT; none of them is set".to_owned());
    assert_eq!(off(&[]), nothing);
    assert_eq!(off(&["ID=", "ACCOUNT="]), nothing, "empty is not set");
    assert_eq!(off(&["ID"]), Some("needs SECRET and KEY in addition to ID".to_owned()));
    assert_eq!(
        off(&["ID", "KEY_FILE"]),
        Some("needs SECRET in addition to ID and KEY".to_owned())
    );
    assert_eq!(off(&["ID", "SECRET_FILE", "KEY"]), None);
    assert_eq!(off(&["ACCOUNT"]), None);
    for invalid in [json!("ID"), json!(["ID"]), json!([[]]), json!([[1]])] {
        let text = json!({"mcpServers": {"mail": {"command": "x", "gavel": {"requiredEnv": invalid}}}});
        assert_eq!(
            issues(&text.to_string())[0].field,
            "mcpServers.mail.gavel.requiredEnv",
            "{invalid}"
        );
    }
}

/// A required setting may be in the entry itself, as with other programs. An entry that passes on an unset variable
/// does not count as set.
#[test]
fn required_settings_may_be_in_the_entry() {
    let off = |value: &str| {
        let text = json!({"mcpServers": {"mail": {"command": "x", "env": {"ACCOUNT_FILE": value}, "gavel": {"requiredEnv": [["ACCOUNT"]]}}}});
        let config = McpConfig::from_file("mcp.json", &text.to_string(), &|name| {
            (name == "DIR").then(|| "/run/keys".to_owned())
        });
        config.unwrap().servers[0].off.clone()
    };
    for given in [
        "/run/keys/account.json",
        "${DIR}/account.json",
        "${ACCOUNT_FILE:-/run/keys/account.json}",
    ] {
        assert_eq!(off(given), None, "{given}");
    }
    for missing in ["", "${ACCOUNT_FILE:-}", "${ACCOUNT_FILE}"] {
        assert_eq!(
            off(missing),
            Some("needs ACCOUNT, which is not set".to_owned()),
            "{missing}"
        );
    }
}

/// The entry in the Google server's README has the same variables as the built-in one.
#[test]
fn the_entry_in_the_google_servers_readme_is_like_the_built_in_one() {
    let built_in: serde_json::Value = serde_json::from_str(include_str!("../../mcp.json")).unwrap();
    let readme = include_str!("../../mcp-servers/google/README.md");
    let (_, entry) = readme.split_once("```json\n{\n  \"mcpServers\"").unwrap();
    let entry = format!("{{\"mcpServers\"{}", entry.split_once("```").unwrap().0);
    let copied: serde_json::Value = serde_json::from_str(&entry).unwrap();
    for path in [
        "/mcpServers/google/gavel/tenantUsers",
        "/mcpServers/google/timeout",
        "/mcpServers/google/env",
    ] {
        assert!(
            built_in.pointer(path).is_some() && copied.pointer(path) == built_in.pointer(path),
            "{path}"
        );
    }
}

/// What a bundled server reads from the environment and `mcp.json` does not pass on, with the reason.
const NOT_PASSED_ON: [(&str, &str, &str); 6] = [
    (
        "github",
        "GITHUB_TOKEN_FILE",
        "a setting of gavel, which reads the file and passes on the token",
    ),
    (
        "tasks",
        "GAVEL_IDENTITY_SECRET",
        "only for HTTP, and this server is a child",
    ),
    (
        "tasks",
        "GAVEL_IDENTITY_SECRET_FILE",
        "only for HTTP, and this server is a child",
    ),
    (
        "tasks",
        "TASKS_ALLOWED_HOSTS",
        "only for HTTP, and this server is a child",
    ),
    (
        "web",
        "GEMINI_API_KEY_FILE",
        "a setting of gavel, which reads the file and passes on the key",
    ),
    (
        "web",
        "VERTEX_AI_API_KEY_FILE",
        "a setting of gavel, which reads the file and passes on the key",
    ),
];

/// The names of the variables that a server's options are read from.
fn variables<A: clap::Args>() -> std::collections::BTreeSet<String> {
    let args = A::augment_args(clap::Command::new("server"));
    let names = args.get_arguments().filter_map(|arg| arg.get_env()?.to_str());
    names.map(str::to_owned).collect()
}

/// Every setting of every bundled server reaches it and is documented. An omitted one is empty, which counts as unset.
#[test]
fn every_setting_of_a_bundled_server_reaches_it_and_is_on_its_page() {
    let servers = [
        (
            "docker",
            variables::<gavel_mcp_docker::Args>(),
            include_str!("../../docs/reference/docker-server.md"),
        ),
        (
            "files",
            variables::<gavel_mcp_files::Args>(),
            include_str!("../../docs/reference/files-server.md"),
        ),
        (
            "github",
            variables::<gavel_mcp_github::Args>(),
            include_str!("../../docs/reference/github-server.md"),
        ),
        (
            "google",
            variables::<gavel_mcp_google::Args>(),
            include_str!("../../mcp-servers/google/README.md"),
        ),
        (
            "shell",
            variables::<gavel_mcp_shell::Args>(),
            include_str!("../../docs/reference/shell-server.md"),
        ),
        (
            "tasks",
            variables::<gavel_mcp_tasks::Args>(),
            include_str!("../../mcp-servers/tasks/README.md"),
        ),
        (
            "web",
            variables::<gavel_mcp_web::Args>(),
            include_str!("../../docs/reference/web-server.md"),
        ),
    ];
    let built_in: serde_json::Value = serde_json::from_str(gavel::app::BUILT_IN_SERVERS).unwrap();
    let entries = built_in["mcpServers"].as_object().unwrap();
    assert!(
        servers
            .iter()
            .map(|(name, ..)| *name)
            .eq(entries.keys().map(String::as_str))
    );
    for (server, mut names, page) in servers {
        for name in &names {
            let option = name.strip_suffix("_FILE").unwrap_or(name);
            assert!(
                page.contains(&format!("`{name}`")) || page.contains(&format!("`{option}`")),
                "{server}: {name} is not on its page"
            );
        }
        for (_, name, _) in NOT_PASSED_ON.iter().filter(|(of, ..)| *of == server) {
            assert!(names.remove(*name), "{server} does not read {name}");
        }
        let none = serde_json::Map::new();
        let given = entries[server]["env"].as_object().unwrap_or(&none);
        let given_names: std::collections::BTreeSet<_> = given.keys().cloned().collect();
        assert_eq!(given_names, names, "{server}");
        for (name, value) in given {
            assert_eq!(value, &json!(format!("${{{name}:-}}")), "{server}");
        }
    }
}

/// Every tool of the GitHub server that takes a repository is bound to that of the session, and the branches that it
/// writes by their prefix.
#[test]
fn every_tool_of_the_github_server_that_names_a_repository_has_a_scope() {
    let mut bound = 0;
    for tool in gavel_mcp_github::tools() {
        let tool = serde_json::to_value(tool).unwrap();
        let declared = tool["inputSchema"]["properties"].as_object().unwrap();
        let reads = tool["annotations"]["readOnlyHint"] == true;
        let scope = &tool["_meta"]["gavel/settings"]["scope"];
        for (argument, value) in [
            ("owner", "session.owner"),
            ("repo", "session.repo"),
            ("head", "session.branch"),
            ("base", "session.base"),
        ] {
            let expected = match declared.contains_key(argument) && (argument.len() > 4 || argument == "repo" || !reads)
            {
                true => json!(value),
                false => serde_json::Value::Null,
            };
            assert_eq!(scope[argument], expected, "{} {argument}", tool["name"]);
        }
        bound += usize::from(!scope["owner"].is_null());
    }
    assert_eq!(bound, 12);
}

/// `scope` names arguments and values of the session; what it does not know is an error with its place.
#[test]
fn the_scope_of_a_tool_is_read_strictly() {
    let of = |scope: serde_json::Value| {
        json!({"mcpServers": {"s": {"command": "x", "gavel": {"tools": {"t": {"scope": scope}}}}}}).to_string()
    };
    let good = of(json!({"project": "session.owner", "name": "session.repo", "ref": "session.branch"}));
    let config = McpConfig::from_file("mcp.json", &good, &env).unwrap();
    let scope = config.servers[0].gavel.tools["t"].scope.as_ref().unwrap();
    let pairs: Vec<_> = scope.iter().map(|(path, value)| (path.to_string(), *value)).collect();
    assert_eq!(
        pairs,
        [
            ("name".to_owned(), SessionValue::Repo),
            ("project".to_owned(), SessionValue::Owner),
            ("ref".to_owned(), SessionValue::Branch)
        ]
    );
    let empty = McpConfig::from_file("mcp.json", &of(json!({})), &env).unwrap();
    assert!(empty.servers[0].gavel.tools["t"].scope.as_ref().unwrap().is_empty());
    let at = "mcpServers.s.gavel.tools.t.scope";
    for (invalid, place, says) in [
        (json!("owner"), at.to_owned(), "found \"owner\"; allowed: a map"),
        (
            json!({"": "session.owner"}),
            format!("{at}."),
            "allowed: a path such as",
        ),
        (
            json!({"a/b": "session.user"}),
            format!("{at}.a/b"),
            "found \"session.user\"; allowed: session.owner, session.repo",
        ),
        (json!({"owner": 1}), format!("{at}.owner"), "found 1; allowed: "),
    ] {
        let found = issues(&of(invalid.clone()));
        let found: Vec<_> = found
            .iter()
            .map(|issue| (issue.field.clone(), issue.to_string()))
            .collect();
        assert!(
            matches!(&*found, [(pointer, message)] if *pointer == place && message.contains(says)),
            "{invalid}: {found:?}"
        );
    }
}

/// Credentials of the model do not turn the web server on. What it may request does.
#[test]
fn the_built_in_web_server_is_off_until_its_hosts_are_named() {
    let off = |set: &'static [&str]| {
        let env = |name: &str| match name {
            "GAVEL_PROGRAM" => Some("gavel".to_owned()),
            name => set.contains(&name).then(|| "*".to_owned()),
        };
        let servers = McpConfig::from_file("mcp.json", gavel::app::BUILT_IN_SERVERS, &env)
            .unwrap()
            .servers;
        servers.into_iter().find(|server| &*server.name == "web").unwrap().off
    };
    let credentials = &[
        "GEMINI_API_KEY",
        "VERTEX_AI_PROJECT_ID",
        "VERTEX_AI_LOCATION",
        "GOOGLE_CSE_KEY",
    ];
    assert_eq!(off(credentials).as_deref(), Some("needs WEB_ALLOW, which is not set"));
    assert_eq!(off(&["WEB_ALLOW"]), None);
}

/// Off, with the reason, until it has a token or all of an App.
#[test]
fn the_built_in_github_server_is_off_until_it_has_credentials() {
    let off = |set: &[&str]| {
        let env = |name: &str| set.contains(&name).then(|| "value".to_owned());
        let program = |name: &str| (name == "GAVEL_PROGRAM").then(|| "gavel".to_owned());
        let config = McpConfig::from_file("mcp.json", gavel::app::BUILT_IN_SERVERS, &|name| {
            env(name).or_else(|| program(name))
        });
        let servers = config.unwrap().servers.into_iter();
        let mut github = servers.filter(|server| &*server.name == "github");
        github.next().unwrap().off
    };
    assert_eq!(
        off(&[]).as_deref(),
        Some(
            "needs GITHUB_TOKEN, or GITHUB_APP_ID and GITHUB_APP_PRIVATE_KEY and GITHUB_APP_INSTALLATION_ID; none of them \
             is set"
        )
    );
    assert_eq!(
        off(&["GITHUB_APP_ID", "GITHUB_APP_PRIVATE_KEY_FILE"]).as_deref(),
        Some("needs GITHUB_APP_INSTALLATION_ID in addition to GITHUB_APP_ID and GITHUB_APP_PRIVATE_KEY")
    );
    for enough in [
        &["GITHUB_TOKEN"][..],
        &["GITHUB_APP_ID", "GITHUB_APP_PRIVATE_KEY", "GITHUB_APP_INSTALLATION_ID"],
    ] {
        assert_eq!(off(enough), None, "{enough:?}");
    }
}

/// R-1: data that servers keep for users is not shared by users with the same name in two tenants.
#[test]
fn built_in_servers_with_user_data_receive_the_tenant() {
    let built_in: serde_json::Value = serde_json::from_str(gavel::app::BUILT_IN_SERVERS).unwrap();
    for name in ["tasks", "google", "docker", "shell", "github"] {
        assert_eq!(built_in["mcpServers"][name]["gavel"]["tenantUsers"], true, "{name}");
    }
}
