//! `gavel doctor`.

use std::fs;
use std::io::Write;
use std::net::TcpListener;

use super::harness::Place;

#[test]
fn doctor_advises_on_each_problem() {
    let place = Place::new();
    let healthy = place.run(&["doctor", "--listen", "127.0.0.1:0"]).ended(0);
    for part in [
        "configuration",
        "address",
        "constitution",
        "policy: none",
        "database",
        "agents: 6 agents (built in)",
        "MCP server tasks",
        "tools",
    ] {
        assert!(
            healthy.lines().any(|line| line.starts_with(&format!("✓ {part}"))),
            "{part}: {healthy}"
        );
    }
    // A part without its setting is off, and blocks nothing.
    assert!(
        healthy.contains("! agent codebase_investigator is unavailable: ls, read_file, glob, grep: ")
            && healthy.contains("FILES_ROOT"),
        "{healthy}"
    );
    assert!(
        healthy.contains("! threads: workspace answers, but is unavailable"),
        "{healthy}"
    );
    let rules = "rules:\n- {name: r, tools: add_task, then: deny, reason: no}\ntests:\n\
                 - {name: t, call: {tool: add_task}, expect: EXPECT}\n";
    for (expect, status, says) in [
        ("deny", 0, "✓ policy: policy.yaml, 1 rule, 1 test"),
        ("allow", 1, "✗ the policy is invalid:\npolicy.yaml:4: test \"t\""),
        ("alow", 1, "✗ the policy is invalid:\npolicy.yaml:4"),
    ] {
        fs::write(place.path().join("policy.yaml"), rules.replace("EXPECT", expect)).unwrap();
        let reported = place.run(&["doctor", "--listen", "127.0.0.1:0", "--policy", "policy.yaml"]);
        assert!(reported.ended(status).contains(says), "{expect}");
    }
    assert!(healthy.contains("! model: the demo model answers"), "{healthy}");
    assert!(!place.path().join("gavel.db").exists(), "the doctor changes no data");

    fs::create_dir(place.path().join("agents")).unwrap();
    fs::write(place.path().join("agents/wrong.md"), "---\nnmae: x\n---\nhello\n").unwrap();
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
        ("GOOGLE_CLIENT_ID", "app"),
        ("GOOGLE_CLIENT_SECRET", "canary"),
        ("GOOGLE_TOKEN_KEY", "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="),
        ("GOOGLE_CALLBACK_URL", "https://gavel.example/callback"),
    ];
    let ill = place.run_with(&["doctor"], &environment).ended(1);
    assert!(!ill.contains("canary"), "{ill}");
    for part in [
        "address: 192.0.2.1:8080: ",
        "the constitution is invalid",
        "database: postgres://me:********@",
        "agents: agents/wrong.md:2: nmae: found an unknown field",
        "model: Gemini cannot be reached",
        "issuer: the issuer's keys are unavailable",
    ] {
        let mut lines = ill.lines().skip_while(|line| !line.starts_with(&format!("✗ {part}")));
        assert!(lines.any(|line| line.trim_start().starts_with("→ ")), "{part}: {ill}");
    }
    for part in [
        "google: sent actions are recorded in the file google.db, but decisions in PostgreSQL",
        "google: GOOGLE_CALLBACK_URL ends in /callback, but gavel answers at /oauth/google/callback",
    ] {
        assert!(ill.contains(&format!("! {part}")), "{part}: {ill}");
    }
    let refused = place.run_with(&["doctor"], &[("GAVEL_LISTEN", "x")]).ended(1);
    assert!(
        refused.starts_with("✗ configuration: environment GAVEL_LISTEN"),
        "{refused}"
    );
}

#[test]
fn doctor_names_the_program_that_uses_its_address() {
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
            // 200, because other programs may answer any path.
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

/// Users with the same name in several tenants are one user to a server that does not receive the tenant.
#[test]
fn doctor_warns_of_servers_without_tenant_support_if_there_are_several_tenants() {
    let place = Place::new();
    let entry = |gavel: serde_json::Value| serde_json::json!({"command": "false", "gavel": gavel});
    let servers = serde_json::json!({"mcpServers": {
        "open": entry(serde_json::json!({})),
        "said": entry(serde_json::json!({"tenantUsers": false})),
        "told": entry(serde_json::json!({"tenantUsers": true})),
        "known": entry(serde_json::json!({"identity": {"argument": "user"}})),
    }});
    fs::write(place.path().join("mcp.json"), servers.to_string()).unwrap();
    let key = |name: &str, tenant: &str| serde_json::json!({"name": name, "sha256": name.repeat(64), "tenant": tenant});
    let one = serde_json::json!([key("a", "acme"), key("b", "acme")]).to_string();
    let several = serde_json::json!([key("a", "acme"), key("b", "other")]).to_string();
    let run = |keys: &str| {
        let environment = [
            ("GAVEL_MCP_CONFIG", "mcp.json"),
            ("GAVEL_AUTH_MODE", "api_key"),
            ("GAVEL_AUTH_KEYS", keys),
            ("GAVEL_LISTEN", "127.0.0.1:0"),
        ];
        place.run_with(&["doctor"], &environment).ended(1)
    };
    let warning = "! MCP servers: mcp.json: mcpServers.open.gavel.tenantUsers: found nothing";
    let seen = run(&several);
    assert!(seen.contains(warning), "{seen}");
    assert_eq!(seen.matches("tenantUsers").count(), 1, "{seen}");
    assert!(!run(&one).contains("tenantUsers"));

    // A server that acts as the given user must not confuse two users.
    let servers = serde_json::json!({"mcpServers": {"s": entry(
        serde_json::json!({"identity": {"argument": "user"}, "tenantUsers": false}),
    )}});
    fs::write(place.path().join("mcp.json"), servers.to_string()).unwrap();
    let refused = run(&several);
    assert!(
        refused.contains("mcpServers.s.gavel.tenantUsers: found false, and users of several"),
        "{refused}"
    );
    assert!(!run(&one).contains("tenantUsers"));
}

#[test]
fn doctor_prints_each_finding_once_and_names_every_unavailable_server() {
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
        assert!(tool.contains(server), "{tool}");
    }
    let asked = place.run_with(&args, &[("RUST_LOG", "warn")]);
    assert!(asked.err.contains("WARN"), "a requested log is printed: {}", asked.err);
}

/// A database file that cannot be created is an error before the first start, not at it.
#[test]
fn doctor_says_that_a_database_file_cannot_be_created() {
    let place = Place::new();
    fs::write(place.path().join("file"), "").unwrap();
    let args = ["doctor", "--listen", "127.0.0.1:0"];
    let seen = place
        .run_with(&args, &[("DATABASE_URL", "sqlite://file/gavel.db")])
        .ended(1);
    assert!(
        seen.contains(
            "✗ database: sqlite://file/gavel.db: the database is unavailable: file/gavel.db cannot be created"
        ),
        "{seen}"
    );
    let seen = place
        .run_with(&args, &[("DATABASE_URL", "sqlite://new/gavel.db")])
        .ended(0);
    assert!(
        seen.contains("✓ database: sqlite://new/gavel.db, ") && seen.contains(" migrations pending"),
        "{seen}"
    );
    assert!(!place.path().join("new").exists(), "doctor creates nothing");
}

/// The advice for many errors of one kind is printed once, and it names no missing file.
#[test]
fn doctor_prints_advice_once_and_names_no_missing_file() {
    let place = Place::new();
    fs::create_dir(place.path().join("agents")).unwrap();
    fs::write(
        place.path().join("agents/wrong.md"),
        "---\nnmae: x\ntemp: 3\n---\nhello\n",
    )
    .unwrap();
    let args = ["doctor", "--listen", "127.0.0.1:0"];
    let seen = place.run_with(&args, &[("FILES_ROOT", "nowhere")]).ended(1);
    let errors = seen.lines().filter(|line| line.starts_with("✗ agents: ")).count();
    assert!(errors >= 3, "{seen}");
    assert_eq!(
        seen.matches("`gavel agents validate` shows every error").count(),
        1,
        "{seen}"
    );
    let mut lines = seen.lines().skip_while(|line| !line.starts_with("✗ MCP server files"));
    let next = lines.nth(1).unwrap();
    assert!(
        next.contains("FILES_ROOT") && !seen.contains("entry in mcp.json"),
        "{seen}"
    );
}

/// A server that is off has one line, however many agents name its tools.
#[test]
fn doctor_says_once_what_a_server_that_is_off_needs() {
    let seen = Place::new().run(&["doctor", "--listen", "127.0.0.1:0"]).ended(0);
    for needed in [
        "DOCKER_IMAGES",
        "FILES_ROOT",
        "GITHUB_APP_ID",
        "GOOGLE_CLIENT_ID",
        "SHELL_SANDBOX",
        "WEB_ALLOW",
    ] {
        let lines: Vec<_> = seen.lines().filter(|line| line.contains(needed)).collect();
        assert_eq!(lines.len(), 1, "{needed}: {lines:#?}");
        assert!(lines[0].starts_with("! MCP server "), "{}", lines[0]);
    }
    assert!(seen.contains("! agent planner is unavailable: "), "{seen}");
}

/// An old name still works, so only this tells the operator which model answers.
#[test]
fn doctor_says_which_models_google_answers_with_another_one() {
    let place = Place::new();
    fs::create_dir(place.path().join("agents")).unwrap();
    fs::write(
        place.path().join("agents/old.md"),
        "---\nname: old\ndescription: x\nmodel: models/gemini-2.0-flash-001\n---\nhello\n",
    )
    .unwrap();
    let environment = [
        ("GEMINI_API_KEY", "x"),
        ("GEMINI_BASE_URL", "http://127.0.0.1:9"),
        ("GEMINI_MODEL", "gemini-3.7-flash"),
    ];
    let seen = place
        .run_with(&["doctor", "--listen", "127.0.0.1:0"], &environment)
        .ended(1);
    for advice in [
        "! model: since 2026-10-08 Google answers gemini-3.7-flash with gemini-3.8-flash; name gemini-3.8-flash\n",
        "! model: Google shut down gemini-2.0-flash-001 on 2026-06-01; name a newer model\n",
    ] {
        assert!(seen.contains(advice), "{advice}\n{seen}");
    }
}
