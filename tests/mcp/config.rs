//! `mcp.json`.

use std::time::Duration;

use gavel::adapters::mcp::config::{Connection, Identity, TransportConfig};
use gavel::adapters::mcp::{ConfigIssue, McpConfig};
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
fn a_standard_mcp_json_is_read_unchanged() {
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
fn gavels_own_settings_are_under_gavel() {
    let text = json!({"mcpServers": {"s": {"command": "x", "gavel": {
        "identity": {"argument": "user_id"}, "connection": "per_user", "tenantUsers": true, "trustHints": true, "maxConcurrent": 4, "pin": true,
        "tools": {"send": {"sideEffect": true, "approval": "required", "timeoutMs": 900, "idempotency": "key",
                           "recipients": ["to", "cc"], "hidden": ["token"], "singleLine": ["subject"], "freeArguments": ["folder"],
                           "times": {"start": "start", "end": "event.end", "zone": "zone", "allowPast": "past"}}}
    }}}})
    .to_string();
    let config = McpConfig::from_json(&text, &env).unwrap();
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
        "/mcpServers/g/gavel/tools/t~1u/hidden/1",
        "/mcpServers/g/gavel/tools/t~1u/hidden/2",
        "/mcpServers/ ",
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
        undefined
            .to_string()
            .starts_with("mcp.json line 1, /mcpServers/a/command: "),
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
    let config = McpConfig::from_json(text, &env).unwrap();
    let states: Vec<_> = config
        .servers
        .iter()
        .map(|server| (&*server.name, server.off.is_some()))
        .collect();
    assert_eq!(states, [("My-Files", false), ("off", true), ("off-too", true)]);
    assert_eq!(config.servers[0].timeout, Duration::from_millis(60));
    let reported: Vec<String> = config.warnings.iter().map(ToString::to_string).collect();
    for part in [
        "mcp.json line 5, /servers/My Files/timeout: 60 milliseconds; for 60 seconds write 60000",
        "mcp.json line 4, /servers/My Files: a server's name must not contain white space; the name `My-Files` is used",
    ] {
        assert!(reported.iter().any(|warning| warning == part), "{part}: {reported:#?}");
    }
    let invalid =
        issues("{\n \"servers\": {\n  \"a b\": {\"command\": \"${input:key}\"},\n  \"a-b\": {\"command\": \"x\"}}}");
    let reported: Vec<String> = invalid.iter().map(ToString::to_string).collect();
    assert!(
        reported[0].starts_with("mcp.json line 3, /servers/a b/command: `input:key` is not the name"),
        "{reported:?}"
    );
    let twice = issues("{\"mcpServers\": {\"a b\": {\"command\": \"x\"},\n  \"a-b\": {\"command\": \"x\"}}}");
    assert_eq!(
        twice[0].to_string(),
        "mcp.json line 2, /mcpServers/a-b: there are two servers `a-b`"
    );
}

#[test]
fn a_file_that_is_not_a_list_of_servers_is_an_error() {
    assert!(issues("{").first().unwrap().message.contains("not JSON"));
    assert!(issues("{}")[0].message.contains("`mcpServers` is missing"));
    assert_eq!(issues(r#"{"mcpServers": []}"#)[0].pointer, "/mcpServers");
}

#[test]
fn an_identity_token_requires_a_strong_secret() {
    let text = r#"{"mcpServers": {"s": {"command": "x", "gavel": {"identity": "token"}}}}"#;
    let missing = McpConfig::from_json(text, &|_| None).unwrap_err();
    assert!(missing[0].message.contains("GAVEL_IDENTITY_SECRET"), "{missing:?}");
    let short = McpConfig::from_json(text, &|_| Some("short".into())).unwrap_err();
    assert!(short[0].message.contains("32 bytes"), "{short:?}");
    assert!(McpConfig::from_json(text, &|_| Some("x".repeat(32))).is_ok());
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
        let config = McpConfig::from_json(&text, &|_| Some("x".repeat(32))).unwrap();
        assert_eq!(config.servers[0].gavel.tells_tenants(), tells, "{text}");
    }
}

/// Keys that were renamed are read under their old names for one release, each with a warning that says the new one. Both
/// at once are an error.
#[test]
fn a_renamed_key_is_read_under_its_old_name_with_a_warning() {
    let entry = |gavel: serde_json::Value| json!({"mcpServers": {"a": {"command": "x", "gavel": gavel}}}).to_string();
    let tool = json!({"recipients": ["to"], "oneLine": ["subject"], "ungrantable": ["folder"], "ready": "check"});
    let old = entry(json!({"needs": [["KEY"]], "tools": {"send": tool}}));
    let config = McpConfig::from_json(&old, &env).unwrap();
    let gavel = &config.servers[0].gavel;
    let send = &gavel.tools["send"];
    assert_eq!(gavel.required_env, [["KEY"]]);
    assert_eq!(&*send.single_line[0].to_string(), "subject");
    assert_eq!(send.preflight.as_deref(), Some("check"));
    let warned: Vec<_> = config.warnings.iter().map(ToString::to_string).collect();
    for (old, new) in [
        ("needs", "requiredEnv"),
        ("oneLine", "singleLine"),
        ("ready", "preflight"),
    ] {
        let says = format!("`{old}` is now `{new}`; rename it");
        assert_eq!(
            warned.iter().filter(|warning| warning.contains(&says)).count(),
            1,
            "{warned:?}"
        );
    }
    // What `freeArguments` does not list is not covered anyway.
    for says in [
        "gavel/tools/send/ungrantable: ignored",
        "gavel/tools/send: `freeArguments` is missing",
    ] {
        assert!(warned.iter().any(|warning| warning.contains(says)), "{warned:?}");
    }
    let both = issues(&entry(json!({"needs": [["KEY"]], "requiredEnv": [["KEY"]]})));
    assert_eq!(both[0].pointer, "/mcpServers/a/gavel/needs");
    assert!(both[0].message.contains("remove `needs`"), "{}", both[0].message);
}

/// A server that is off until its settings are given may use them in its entry without a default.
#[test]
fn a_server_with_a_missing_setting_is_off_and_names_it() {
    let text = r#"{"mcpServers": {"a": {"command": "x", "env": {"K": "${GITHUB_TOKEN}"}, "gavel": {"requiredEnv": [["GITHUB_TOKEN"]]}},
                                  "b": {"command": "x"}}}"#;
    let config = McpConfig::from_json(text, &env).unwrap();
    let off = config.servers[0].off.as_deref();
    assert_eq!(off, Some("needs GITHUB_TOKEN, which is not set"));
    assert!(config.servers[1].off.is_none());
}

/// R-12: an invalid path would leave recipients unchecked.
#[test]
fn invalid_paths_are_errors_with_their_location() {
    let text = json!({"mcpServers": {"s": {"command": "x", "gavel": {"tools": {"send": {
        "recipients": ["to", "cc[0]"], "singleLine": [""], "times": {"begin": "start", "end": "events[].end"},
    }}}}}});
    let issues = McpConfig::from_json(&text.to_string(), &env).unwrap_err();
    let reported: Vec<_> = issues.iter().map(ToString::to_string).collect();
    let at = "mcp.json line 1, /mcpServers/s/gavel/tools/send";
    assert_eq!(
        reported,
        [
            format!("{at}/recipients/1: `cc[0]`; allowed: a path such as to, message.cc or attendees[].email"),
            format!("{at}/singleLine/0: ``; allowed: a path such as to, message.cc or attendees[].email"),
            format!("{at}/times/begin: unknown key; allowed: start, end, zone, allowPast"),
            format!("{at}/times/end: `events[].end`; allowed: a path to one argument, such as start or event.start"),
            format!("{at}/times: needs a `start`"),
        ]
    );
}

/// DESIGN.md section 10: a server with missing settings is off, and names them.
#[test]
fn a_server_is_off_until_one_list_of_required_settings_is_complete() {
    let text = json!({"mcpServers": {"mail": {"command": "x", "gavel": {"requiredEnv": [["ID", "SECRET", "KEY"], ["ACCOUNT"]]}}}});
    let off = |set: &[&str]| {
        let env = |name: &str| match set.iter().find(|set| set.trim_end_matches('=') == name) {
            Some(set) if set.ends_with('=') => Some(String::new()),
            found => found.map(|_| "value".to_owned()),
        };
        let config = McpConfig::from_json(&text.to_string(), &env).unwrap();
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
            issues(&text.to_string())[0].pointer,
            "/mcpServers/mail/gavel/requiredEnv",
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
        let config = McpConfig::from_json(&text.to_string(), &|name| {
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

/// R-12: the entry in the Google server's README has the same checks as the built-in one.
#[test]
fn the_entry_in_the_google_servers_readme_has_the_checks_of_the_built_in_one() {
    let built_in: serde_json::Value = serde_json::from_str(include_str!("../../mcp.json")).unwrap();
    let readme = include_str!("../../mcp-servers/google/README.md");
    let (_, entry) = readme.split_once("```json\n{\n  \"mcpServers\"").unwrap();
    let entry = format!("{{\"mcpServers\"{}", entry.split_once("```").unwrap().0);
    let copied: serde_json::Value = serde_json::from_str(&entry).unwrap();
    for path in [
        "/mcpServers/google/gavel/tools",
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

/// R-9: every setting in its README also reaches the built-in server. An omitted one is empty, which counts as unset.
#[test]
fn every_setting_of_the_google_server_reaches_the_built_in_one() {
    let asked = std::cell::RefCell::new(std::collections::BTreeSet::new());
    let _ = gavel_mcp_google::Args::from_variables(&|name| {
        asked.borrow_mut().insert(name.to_owned());
        None
    });
    let built_in: serde_json::Value = serde_json::from_str(gavel::app::BUILT_IN_SERVERS).unwrap();
    let given = built_in["mcpServers"]["google"]["env"].as_object().unwrap();
    assert!(asked.borrow().iter().eq(given.keys()), "{given:?}");
    let readme = include_str!("../../mcp-servers/google/README.md");
    for (name, value) in given {
        assert_eq!(value, &json!(format!("${{{name}:-}}")));
        let option = name.strip_suffix("_FILE").unwrap_or(name);
        assert!(
            readme.contains(&format!("`{option}`")) || readme.contains(&format!("`{name}`")),
            "{name}"
        );
    }
}

/// Every setting of the GitHub server reaches the built-in one and is documented. The file of the token is read by gavel,
/// whose own setting the token is.
#[test]
fn every_setting_of_the_github_server_reaches_the_built_in_one() {
    let args = <gavel_mcp_github::Args as clap::Args>::augment_args(clap::Command::new("github"));
    let names = args.get_arguments().filter_map(|arg| arg.get_env()?.to_str());
    let names: std::collections::BTreeSet<_> = names.map(str::to_owned).collect();
    let built_in: serde_json::Value = serde_json::from_str(gavel::app::BUILT_IN_SERVERS).unwrap();
    let given = built_in["mcpServers"]["github"]["env"].as_object().unwrap();
    assert!(
        names
            .iter()
            .filter(|name| *name != "GITHUB_TOKEN_FILE")
            .eq(given.keys()),
        "{given:?}"
    );
    let page = include_str!("../../docs/github-server.md");
    for name in &names {
        assert!(page.contains(&format!("`{name}`")), "{name}");
    }
    for (name, value) in given {
        assert_eq!(value, &json!(format!("${{{name}:-}}")));
    }
}

/// DESIGN.md section 10: off, with the reason, until it has a token or all of an App.
#[test]
fn the_built_in_github_server_is_off_until_it_has_credentials() {
    let off = |set: &[&str]| {
        let env = |name: &str| set.contains(&name).then(|| "value".to_owned());
        let program = |name: &str| (name == "GAVEL_PROGRAM").then(|| "gavel".to_owned());
        let config = McpConfig::from_json(gavel::app::BUILT_IN_SERVERS, &|name| {
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
    for name in ["tasks", "google"] {
        assert_eq!(built_in["mcpServers"][name]["gavel"]["tenantUsers"], true, "{name}");
    }
}
