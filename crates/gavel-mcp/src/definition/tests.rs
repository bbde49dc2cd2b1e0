//! Which definitions are left out and why, and what the digest covers.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::config::McpConfig;

fn server(gavel: &str) -> ServerConfig {
    let text =
        format!(r#"{{"mcpServers": {{"s": {{"command": "x", "excludeTools": ["hidden"], "gavel": {gavel}}}}}}}"#);
    McpConfig::from_file("mcp.json", &text, &|_| None)
        .unwrap()
        .servers
        .remove(0)
}

fn read(server: &ServerConfig, list: &[Value], known: &[Arc<Tool>]) -> Offer {
    super::read(server, &Source::new(server, &crate::source::budget()), list, known)
}

fn plain(name: &str) -> Value {
    json!({"name": name, "inputSchema": {"type": "object", "properties": {"user_id": {"type": "string"}}}})
}

#[test]
fn a_bad_tool_never_takes_the_rest_down() {
    let list = [
        plain("b"),
        json!({"name": "no_schema"}),
        json!(7),
        json!({"name": "", "inputSchema": {}}),
        json!({"name": "two words", "inputSchema": {"type": "object"}}),
        json!({"name": "bad", "inputSchema": {"type": "object", "properties": {"a": {"$ref": "http://x/y"}}}}),
        json!({"name": "none", "inputSchema": {"type": "object", "properties": {"a": {"type": "strange"}}}}),
        plain("hidden"),
        plain("b"),
        plain("a"),
    ];
    let offer = read(&server("{}"), &list, &[]);
    let names: Vec<_> = offer.tools.iter().map(|tool| &*tool.name).collect();
    assert_eq!(names, ["a", "b"]);
    let left: Vec<_> = offer.left_out.iter().map(|left| left.tool.as_str()).collect();
    assert_eq!(left, ["no_schema", "#2", "", "two words", "bad", "none", "b"]);
    assert!(offer.left_out.iter().all(|left| !left.reason.is_empty()));
}

/// Promise: bounded faults. The report about an endless list has a bounded size.
#[test]
fn a_list_without_end_is_reported_in_few_words() {
    let list: Vec<_> = (0..20_000).map(|n| plain(&format!("t{n}"))).collect();
    let offer = read(&server("{}"), &list, &[]);
    assert_eq!(offer.tools.len(), MAX_TOOLS);
    assert_eq!(offer.left_out.len(), MAX_LEFT_OUT + 2);
    assert_eq!(offer.left_out[0].reason, "the server lists more than 512 tools");
    let last: Vec<_> = offer.left_out[MAX_LEFT_OUT..]
        .iter()
        .map(|left| left.reason.as_str())
        .collect();
    let counted = MAX_LISTED - MAX_TOOLS - MAX_LEFT_OUT;
    assert!(last[0].starts_with(&format!("{counted} more tools")), "{last:?}");
    assert!(last[1].contains("more than 1024 tools"), "{last:?}");
}

#[test]
fn a_reason_quotes_the_server_briefly_and_without_what_steers_a_terminal() {
    let evil = format!("\u{1b}[2J\n\t\u{202e}{}", "x".repeat(400_000));
    for schema in [
        json!({"type": evil}),
        json!({"type": "object", "properties": {"a": {"$ref": evil}}}),
        json!({"type": "object", "properties": {"a": evil}}),
        json!({"type": "object", "properties": {"a": {"minimum": evil}}}),
    ] {
        let offer = read(&server("{}"), &[json!({"name": "t", "inputSchema": schema})], &[]);
        let reason = &offer.left_out[0].reason;
        assert!(reason.len() <= MAX_REASON && is_visible(reason), "{reason:?}");
        assert!(!reason.contains(['\n', '\t']), "{reason:?}");
    }
}

#[test]
fn hints_count_only_where_they_are_trusted_and_settings_override_them() {
    let mut tool = plain("t");
    tool["annotations"] = json!({"readOnlyHint": true, "idempotentHint": true});
    let of = |gavel: &str, tool: &Value| read(&server(gavel), std::slice::from_ref(tool), &[]).tools.remove(0);
    let untrusted = of("{}", &tool);
    assert!(untrusted.side_effect);
    assert_eq!(untrusted.idempotency, Idempotency::None);
    let trusted = of(r#"{"trustHints": true}"#, &tool);
    assert!(!trusted.side_effect);
    assert_eq!(trusted.idempotency, Idempotency::Natural);
    tool["_meta"] = json!({"gavel/idempotency": "key"});
    assert_eq!(of(r#"{"trustHints": true}"#, &tool).idempotency, Idempotency::Key);
    let set = of(
        r#"{"trustHints": true, "tools": {"t": {"sideEffect": true, "idempotency": "none", "timeoutMs": 5}}}"#,
        &tool,
    );
    assert!(set.side_effect);
    assert_eq!(set.idempotency, Idempotency::None);
    assert_eq!(set.timeout.as_millis(), 5);
}

/// What the bundled GitHub server lists, read with its entry: every tool that changes something is a side effect, and
/// may be sent again under its key.
#[test]
fn the_bundled_github_server_changes_nothing_without_a_side_effect() {
    let built_in = include_str!("../../../../mcp.json");
    let config = McpConfig::from_file("mcp.json", built_in, &|_| Some("x".to_owned())).unwrap();
    let mut servers = config.servers.into_iter();
    let server = servers.find(|server| &*server.name == "github").unwrap();
    let snapshot = include_str!("../../../../mcp-servers/github/tests/api/snapshots/api__startup__tools_list.snap");
    let list: Vec<Value> = serde_json::from_str(&snapshot[snapshot.find("\n[").unwrap()..]).unwrap();
    let offer = read(&server, &list, &[]);
    assert!(offer.left_out.is_empty(), "{:?}", offer.left_out);
    let (acting, reading): (Vec<_>, Vec<_>) = offer.tools.iter().partition(|tool| tool.side_effect);
    let names = |tools: &[&Arc<Tool>]| tools.iter().map(|tool| tool.name.to_string()).collect::<Vec<_>>();
    assert_eq!(
        names(&acting),
        [
            "closeIssue",
            "closePullRequest",
            "configureGitClientInContainer",
            "createIssue",
            "createPullRequest",
            "createRepository",
            "updateIssue",
            "updatePullRequest",
        ]
    );
    assert_eq!(
        names(&reading),
        [
            "getFileContents",
            "getRepositoryTree",
            "listPullRequests",
            "listRepositories",
            "readIssue",
            "readPullRequest",
            "retrieveRepository",
        ]
    );
    assert!(acting.iter().all(|tool| tool.idempotency == Idempotency::Key));
    let configure = &acting[2];
    assert!(configure.input.original().get().contains("\"token\""));
    assert!(
        !configure.model_schema.get().contains("\"token\""),
        "a person's token is never the model's"
    );
}

#[test]
fn the_identity_argument_is_hidden_and_must_exist() {
    let with = r#"{"identity": {"argument": "user_id"}}"#;
    let tool = read(&server(with), &[plain("t")], &[]).tools.remove(0);
    assert_eq!(tool.identity_argument.as_deref(), Some("user_id"));
    assert!(!tool.model_schema.get().contains("user_id"));
    assert!(tool.input.original().get().contains("user_id"));
    let offer = read(&server(r#"{"identity": {"argument": "actor"}}"#), &[plain("t")], &[]);
    assert!(offer.tools.is_empty());
    assert!(offer.left_out[0].reason.contains("`actor`"));
}

/// The server sets a hidden argument, so a tool that requires it could never be called.
#[test]
fn a_hidden_argument_is_not_in_the_schema_of_the_model_and_cannot_be_required() {
    let with = r#"{"tools": {"t": {"hidden": ["token", "gone"]}}}"#;
    let mut tool = plain("t");
    tool["inputSchema"] = json!({"type": "object", "properties": {"a": {}, "token": {"type": "string"}}});
    let read_tool = read(&server(with), &[tool.clone()], &[]).tools.remove(0);
    assert_eq!(*read_tool.settings.hidden, ["token".into(), "gone".into()]);
    assert!(!read_tool.model_schema.get().contains("token"));
    assert!(read_tool.model_schema.get().contains("\"a\""));
    assert!(read_tool.input.original().get().contains("token"));
    tool["inputSchema"]["required"] = json!(["token"]);
    let offer = read(&server(with), &[tool], &[]);
    assert!(offer.tools.is_empty());
    assert!(
        offer.left_out[0].reason.contains("`token` is required"),
        "{:?}",
        offer.left_out
    );
}

#[test]
fn the_digest_covers_what_counts_and_nothing_else() {
    let tool = plain("t");
    let same = digest(&tool);
    assert_eq!(same.len(), 64);
    let mut icon = tool.clone();
    icon["icons"] = json!([]);
    icon["_meta"] = json!({"x": 1});
    assert_eq!(digest(&icon), same);
    let mut described = tool.clone();
    described["description"] = json!("d");
    let mut titled = described.clone();
    titled["title"] = json!("t");
    assert_eq!(
        digest(&titled),
        digest(&described),
        "a title next to a description is ignored"
    );
    for (key, value) in [
        ("description", json!("d")),
        ("inputSchema", json!({"type": "object"})),
        ("outputSchema", json!({"type": "object"})),
        ("annotations", json!({"readOnlyHint": true})),
        ("name", json!("u")),
        // The title replaces a missing description, and the key decides whether a call is sent twice.
        ("title", json!("d")),
        ("_meta", json!({"gavel/idempotency": "key"})),
    ] {
        let mut changed = tool.clone();
        changed[key] = value;
        assert_ne!(digest(&changed), same, "{key}");
    }
}

#[test]
fn an_unchanged_tool_stays_the_same_value() {
    let server = server("{}");
    let first = read(&server, &[plain("t")], &[]);
    let second = read(&server, &[plain("t"), plain("u")], &first.tools);
    assert!(Arc::ptr_eq(&first.tools[0], &second.tools[0]));
}
