//! `gavel policy`.

use std::fs;

use serde_json::{Value, json};

use super::harness::Place;

const POLICY: &str = r#"
rules:
  - name: no-milk
    tools: [tasks__add_task]
    when: arguments.description.contains("milk")
    then: deny
    reason: milk is not ordered here
  - name: look-at-deletes
    tools: [delete_task]
    then: require_approval
    reason: what is deleted is gone
  - name: own-list
    tools: [tasks__add_task]
    users: [ann]
    then: allow
    reason: ann may
tests:
  - name: milk
    call: {tool: tasks__add_task, arguments: {description: buy milk}}
    expect: deny
    rule: no-milk
  - name: bread, for ann
    call: {tool: tasks__add_task, user: ann, arguments: {description: buy bread}}
    expect: allow
    rule: own-list
"#;

fn place(policy: &str) -> Place {
    let place = Place::new();
    fs::write(place.path().join("policy.yaml"), policy).unwrap();
    place
}

/// R-10: `check` prints the decision, what decided, and the result of every check.
#[test]
fn check_prints_the_decision_its_source_and_every_check() {
    let place = place(POLICY);
    let check = |more: &[&str]| {
        let args = [&["policy", "check", "--policy", "policy.yaml"][..], more].concat();
        place.run(&args)
    };
    let milk = check(&["--tool", "add_task", "--arguments", r#"{"description": "buy milk"}"#]);
    let reported = milk.ended(8);
    assert!(
        reported.starts_with("deny, decided by rule no-milk\n  denied by the policy: milk is not ordered here"),
        "{reported}"
    );
    assert!(
        reported.contains("rule look-at-deletes  -     does not apply"),
        "{reported}"
    );

    fs::write(place.path().join("call.json"), r#"{"description": "buy bread"}"#).unwrap();
    let bread = check(&["--tool", "tasks__add_task", "--arguments", "@call.json", "--json"]).json();
    assert_eq!((&bread["answer"], &bread["by"]), (&json!("allow"), &json!([])));
    assert_eq!(bread["arguments"], json!({"description": "buy bread"}));

    // The model cannot call a tool that it is not offered.
    for (more, says) in [
        (
            &["--tool", "add_task", "--agent", "workspace"][..],
            "unknown_tool, without an approval request: workspace does not list tasks__add_task",
        ),
        (
            &["--tool", "add_task", "--surface", "thread"],
            "workspace does not list tasks__add_task",
        ),
    ] {
        let reported = check(more).ended(8);
        assert!(reported.contains(says), "{reported}");
    }
    let default = check(&["--tool", "add_task", "--arguments", r#"{"description": "buy bread"}"#]);
    assert!(
        default.err.contains("in a thread it is unknown_tool"),
        "{}",
        default.err
    );

    let delete = check(&["--tool", "delete_task", "--arguments", r#"{"id": "x"}"#]);
    assert!(
        delete.err.contains("the chat surface cannot request approval"),
        "{}",
        delete.err
    );
    delete.ended(6);

    // A definition without `approval` requires it for side effects, and the rule for ann lifts that.
    fs::create_dir(place.path().join("agents")).unwrap();
    let agent = "---\nname: helper\ndescription: Helps.\ntools: [add_task]\n---\nHelp.\n";
    fs::write(place.path().join("agents/helper.md"), agent).unwrap();
    let of = |user: &str| {
        let arguments = r#"{"description": "buy bread"}"#;
        let run = check(&[
            "--tool",
            "add_task",
            "--agent",
            "helper",
            "--user",
            user,
            "--arguments",
            arguments,
            "--json",
        ]);
        serde_json::from_str::<Value>(&run.out).unwrap()
    };
    assert_eq!(
        (&of("bob")["answer"], &of("bob")["by"]),
        (&json!("require_approval"), &json!(["side_effects"]))
    );
    assert_eq!(
        (&of("ann")["answer"], &of("ann")["by"]),
        (&json!("allow"), &json!([{"rule": "own-list"}]))
    );

    let invalid = check(&["--tool", "add_task", "--arguments", r#"{"description": 7}"#]).ended(8);
    assert!(
        invalid.starts_with("invalid_arguments, without an approval request: /description"),
        "{invalid}"
    );
    for (more, status, says) in [
        (
            &["--tool", "nope"][..],
            1,
            "no server offers \"nope\"; offered are add_task",
        ),
        (
            &["--tool", "add_task", "--agent", "stranger"],
            2,
            "this configuration has no agent \"stranger\"",
        ),
        (&["--tool", "add_task", "--arguments", "{"], 2, "give a JSON object"),
        (
            &["--tool", "add_task", "--arguments", "@none.json"],
            2,
            "none.json: cannot be read",
        ),
    ] {
        let ran = check(more);
        assert_eq!(ran.status, status, "{}", ran.err);
        assert!(ran.err.contains(says), "{}", ran.err);
    }
}

#[test]
fn check_shows_the_recipients_of_a_call_and_look_alike_addresses() {
    let place = place("");
    let mcp = json!({"mcpServers": {"tasks": {
        "command": env!("CARGO_BIN_EXE_gavel"), "args": ["mcp-server", "tasks"],
        "gavel": {"tools": {"add_task": {"recipients": ["description"], "approval": "required"}}},
    }}});
    fs::write(place.path().join("mcp.json"), mcp.to_string()).unwrap();
    let arguments = json!({"description": "Ann <ann@p\u{430}ypal.com>"}).to_string();
    let reported = place
        .run(&[
            "policy",
            "check",
            "--mcp-config",
            "mcp.json",
            "--tool",
            "add_task",
            "--arguments",
            &arguments,
        ])
        .ended(6);
    assert!(reported.contains("reaches ann@xn--pypal-4ve.com"), "{reported}");
    assert!(reported.contains("its domain is not \"paypal.com\""), "{reported}");
}

/// R-11: a grant counts, for that user and these recipients only.
#[test]
fn check_applies_grants() {
    let place = place("");
    let mcp = json!({"mcpServers": {"tasks": {
        "command": env!("CARGO_BIN_EXE_gavel"), "args": ["mcp-server", "tasks"],
        "gavel": {"tools": {"add_task": {"recipients": ["description"], "freeArguments": []}}},
    }}});
    fs::write(place.path().join("mcp.json"), mcp.to_string()).unwrap();
    fs::create_dir(place.path().join("agents")).unwrap();
    let agent = "---\nname: todo\ndescription: Helps.\ntools: [add_task]\n---\nHelp.\n";
    fs::write(place.path().join("agents/todo.md"), agent).unwrap();
    let gavel = |args: &[&str]| place.run_with(args, &[("GAVEL_MCP_CONFIG", "mcp.json")]);
    let check = |user: &str, address: &str| {
        let arguments = json!({ "description": address }).to_string();
        let args = [
            "policy", "check", "--tool", "add_task", "--agent", "todo", "--json", "--user", user,
        ];
        gavel(&[&args[..], &["--arguments", &arguments]].concat())
    };
    let before = check("ann", "bea@example.org");
    assert_eq!(before.status, 6, "{}", before.err);
    assert!(
        before.err.contains("grants are ignored"),
        "no database yet: {}",
        before.err
    );
    let asked = gavel(&[
        "agents",
        "run",
        "todo",
        "--user",
        "ann",
        "add a task to bea@example.org",
    ]);
    assert_eq!(asked.status, 6, "{}", asked.err);
    let waiting = gavel(&["approvals", "list", "--json"]).json();
    let id = waiting["approvalId"].as_str().unwrap();
    gavel(&["approvals", "approve", id, "--always"]).ended(0);
    for (user, address, status) in [
        ("ann", "Bea <bea@example.org>", 0),
        ("ann", "eve@example.org", 6),
        ("bob", "bea@example.org", 6),
    ] {
        let checked = check(user, address);
        assert_eq!(
            (checked.status, checked.err.as_str()),
            (status, ""),
            "{user} {address}: {}",
            checked.out
        );
        assert_eq!(checked.out.contains("\"grant\""), status == 0, "{}", checked.out);
    }
}

#[test]
fn test_runs_the_tests_of_the_file() {
    let right = place(POLICY);
    let reported = right.run(&["policy", "test", "--policy", "policy.yaml"]).ended(0);
    assert!(
        reported.contains("ok     policy.yaml:18 milk") && reported.ends_with("3 rules, 2 tests, 0 failed\n"),
        "{reported}"
    );

    let failing = place(&POLICY.replace("expect: allow\n    rule: own-list", "expect: deny"));
    let reported = failing.run(&["policy", "test", "--policy", "policy.yaml"]).ended(1);
    assert!(
        reported.contains("FAILED policy.yaml:22 bread, for ann\n       expected deny, found allow by rule own-list"),
        "{reported}"
    );
    // The service does not start with it.
    let serve = failing.run_with(
        &["serve"],
        &[("GAVEL_POLICY", "policy.yaml"), ("GAVEL_LISTEN", "127.0.0.1:0")],
    );
    assert!(
        serve
            .err
            .contains("policy.yaml:22: test \"bread, for ann\": found allow"),
        "{}",
        serve.err
    );
    serve.ended(2);

    let invalid = place("rules:\n- {name: a}\n");
    let ran = invalid.run(&["policy", "test", "--policy", "policy.yaml"]);
    assert!(
        ran.err.contains("policy.yaml:2: rules[0].tools: found nothing"),
        "{}",
        ran.err
    );
    ran.ended(2);
    let none = invalid.run(&["policy", "test"]);
    assert!(
        none.err.contains("there is no policy file; set --policy PATH"),
        "{}",
        none.err
    );
    none.ended(2);
}

/// `simulate` prints what the policy would have allowed, put up for approval or denied, compared with what happened.
#[test]
fn simulate_shows_changed_decisions_and_pages_through_the_log() {
    let place = place(POLICY);
    for message in ["add a task to buy milk", "add a task to buy bread", "show my tasks"] {
        place.run(&["chat", message]).ended(0);
    }
    let simulate = |more: &[&str]| {
        let args = [&["policy", "simulate", "--policy", "policy.yaml"][..], more].concat();
        place.run(&args)
    };
    let lines = |out: &str| -> Vec<Value> { out.lines().map(|line| serde_json::from_str(line).unwrap()).collect() };
    let reported = lines(&simulate(&["--json"]).ended(0));
    assert_eq!(reported.len(), 2, "{reported:?}");
    assert_eq!(
        (&reported[0]["happened"], &reported[0]["now"]),
        (&json!("ran"), &json!("deny"))
    );
    assert_eq!(
        (&reported[0]["tool"], &reported[0]["surface"]),
        (&json!("add_task"), &json!("chat"))
    );
    let counts = json!([
        {"happened": "ran", "now": "allow", "calls": 2, "changed": false},
        {"happened": "ran", "now": "deny", "calls": 1, "changed": true},
    ]);
    assert_eq!(
        reported[1]["summary"],
        json!({"calls": 3, "changed": 1, "not_judged": 0, "counts": counts})
    );
    let text = simulate(&[]).ended(0);
    assert!(
        text.contains("milk is not ordered here") && text.contains("3 calls, 1 would have a different answer"),
        "{text}"
    );
    let later = simulate(&["--since", "2100-01-01", "--json"]).ended(0);
    assert_eq!(lines(&later)[0]["summary"]["calls"], 0);

    // More than two pages at the same timestamp: no call is omitted or counted twice.
    let database = rusqlite::Connection::open(place.path().join("gavel.db")).unwrap();
    let copied = database
        .execute(
            "WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 1200) \
             INSERT INTO tool_invocation_log (decision_id, sequence, id, tenant, user_id, tool, server, tool_digest, \
             side_effect, arguments, argument_bytes, input_hash, policy, decided_by, idempotency_key, status, created_at, started_at, \
             duration_us, result, error_code, error_message) SELECT decision_id, sequence + n, id || '-' || n, tenant, user_id, tool, server, \
             tool_digest, side_effect, arguments, argument_bytes, input_hash, policy, decided_by, idempotency_key, status, created_at, \
             started_at, duration_us, result, error_code, error_message FROM tool_invocation_log, n \
             WHERE arguments LIKE '%milk%'",
            [],
        )
        .unwrap();
    assert_eq!(copied, 1200);
    let reported = lines(&simulate(&["--json"]).ended(0));
    assert_eq!(reported.last().unwrap()["summary"]["changed"], 1201);
    assert_eq!(reported.len(), 1202);
}

/// A call that the tool's own schema refused is refused again under any policy. A call that the argument checks refused
/// is decided again, because the policy sets the maximum number of recipients.
#[test]
fn simulate_skips_calls_that_their_schema_refused() {
    let place = place(POLICY);
    place.run(&["chat", "add a task to buy bread"]).ended(0);
    let database = rusqlite::Connection::open(place.path().join("gavel.db")).unwrap();
    for by in ["NULL", "'parameters'"] {
        let refused = format!(
            "INSERT INTO tool_invocation_log (decision_id, sequence, id, tenant, user_id, tool, server, tool_digest, side_effect, \
             arguments, argument_bytes, input_hash, policy, decided_by, idempotency_key, status, created_at, started_at, duration_us, result, \
             error_code, error_message) SELECT decision_id, sequence + 1 + ({by} IS NULL), id || {by} IS NULL, tenant, user_id, tool, \
             server, tool_digest, side_effect, arguments, argument_bytes, input_hash, 'deny', {by}, idempotency_key, 'not_sent', created_at, \
             NULL, 0, NULL, 'invalid_arguments', 'no' FROM tool_invocation_log WHERE status = 'completed'"
        );
        assert_eq!(database.execute(&refused, []).unwrap(), 1);
    }
    let reported = place
        .run(&["policy", "simulate", "--policy", "policy.yaml", "--json"])
        .ended(0);
    let reported: Value = serde_json::from_str(reported.lines().last().unwrap()).unwrap();
    let counts = json!([
        {"happened": "invalid_arguments", "now": "allow", "calls": 1, "changed": true},
        {"happened": "ran", "now": "allow", "calls": 1, "changed": false},
        {"happened": "schema_mismatch", "now": "allow", "calls": 1, "changed": false},
    ]);
    assert_eq!(reported["summary"]["counts"], counts);
}

#[test]
fn simulate_reports_how_many_calls_it_cannot_decide() {
    let place = place(POLICY);
    let none = [("GAVEL_RECORDS_CONTENT", "none")];
    place.run_with(&["chat", "add a task to buy milk"], &none).ended(0);
    let hash = [
        ("GAVEL_RECORDS_CONTENT", "hash"),
        ("GAVEL_RECORDS_KEY", "0123456789abcdef0123456789abcdef"),
    ];
    place.run_with(&["chat", "add a task to buy milk"], &hash).ended(0);
    let ran = place.run(&["policy", "simulate", "--policy", "policy.yaml"]);
    assert!(ran.err.contains("2 calls could not be checked"), "{}", ran.err);
    assert!(ran.ended(0).contains("2 calls, 0 would have a different answer"));
}
