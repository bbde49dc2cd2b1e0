//! What the calls of every bundled tool with side effects reach, and what the gate answers within a confirmed plan.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;

use serde_json::Value;

use std::sync::Arc;

use super::*;
use crate::adapters::mcp::tools_of;
use crate::domain::canonical;
use crate::domain::definition::Approval;
use crate::domain::ids::{TenantId, UserId};
use crate::domain::journal::{PolicyDecision, Proposed};
use crate::domain::policy::PLANNING;
use crate::domain::tool::{ApprovalDefault, Tool};
use crate::engine::gate::{Attempt, Facts, decide};
use crate::engine::strategy::plan::Scope;

fn listed(tools: &[impl serde::Serialize]) -> Vec<Value> {
    tools.iter().map(|tool| serde_json::to_value(tool).unwrap()).collect()
}

fn shell(level: Level) -> Value {
    let meta = json!({"gavel/settings": gavel_mcp_shell::safety(level)});
    json!({"name": gavel_mcp_shell::NAME, "inputSchema": {"type": "object"}, "_meta": meta})
}

/// The bundled servers, by name, with all their tools that can have side effects.
fn servers() -> Vec<(&'static str, Vec<Value>)> {
    vec![
        ("docker", listed(&gavel_mcp_docker::tools())),
        ("files", listed(&gavel_mcp_files::tools())),
        ("github", listed(&gavel_mcp_github::tools())),
        ("google", listed(&gavel_mcp_google::tools())),
        ("host", vec![shell(Level::Host)]),
        ("shell", vec![shell(Level::Bwrap)]),
        ("tasks", listed(&gavel_mcp_tasks::tools())),
    ]
}

/// The tools as a server offers them that any command starts.
fn offered(name: &str, list: &[Value], gavel: &Value) -> Vec<Arc<Tool>> {
    let text = json!({"mcpServers": {name: {"command": "env", "args": ["any", "wrapper"], "gavel": gavel}}});
    let config = McpConfig::from_file("mcp.json", &text.to_string(), &|_| None).unwrap();
    tools_of(&config.servers[0], list)
}

/// A work on acme/dates, whose plan names every tool. It has opened pull request 7 and issue 8.
fn facts(tools: &[Arc<Tool>]) -> Facts {
    let ours = json!({"owner": "acme", "repo": "dates"});
    let made = json!({"pullRequest": {"number": 7}, "issue": {"number": 8}});
    let scope = Scope {
        tools: tools.iter().map(|tool| tool.name.to_string()).collect(),
        branch_prefix: "gavel/".to_owned(),
        base: Some("main".to_owned()),
        created: tools.iter().flat_map(|tool| tool.created(&ours, &made)).collect(),
        ..Scope::default()
    };
    let bound = [("id", "1"), ("owner", "acme"), ("repo", "dates")];
    let bound: BTreeMap<_, _> = bound.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    Facts {
        floor: Approval::SideEffects,
        bound: Some(Arc::new(bound)),
        scope: Some(Arc::new(scope)),
        ..Facts::new(
            TenantId::default(),
            UserId::parse("ann").unwrap(),
            PLANNING,
            Arc::default(),
        )
    }
}

fn answer(tool: &Arc<Tool>, arguments: &Value, facts: &Facts) -> &'static str {
    let call = Proposed::of(tool, canonical::to_raw(arguments));
    match decide(&call, facts, None, Attempt::First).outcome {
        PolicyDecision::Allow { .. } => "runs",
        PolicyDecision::RequireApproval { .. } => "asks",
        PolicyDecision::Refuse { message, .. } => panic!("{}: {arguments}: {message}", tool.name),
    }
}

fn of_repository(more: Value) -> Value {
    let mut arguments = json!({"owner": "acme", "repo": "dates"});
    arguments
        .as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    arguments
}

/// A confirmation covers effects. Whatever a plan names, only what stays within its repository, on its
/// branches, and on what the session has created itself runs unasked.
#[test]
fn a_confirmed_plan_covers_the_effects_of_its_tools_and_not_their_names() {
    let updates = |number: &str, n: u32, updates: Value| of_repository(json!({number: n, "updates": updates}));
    let pull = |n, changes: Value| updates("prNumber", n, changes);
    let issue = |n, changes: Value| updates("issueNumber", n, changes);
    let opens = |head: &str, base: &str| of_repository(json!({"title": "x", "head": head, "base": base}));
    let container = || json!({"containerId": "c1"});
    let rows = [
        // What opens a pull request from a branch of the session into one that it may change.
        ("createPullRequest", opens("gavel/x", "main"), "runs"),
        ("createPullRequest", opens("gavel/x", "gavel/y"), "runs"),
        ("createPullRequest", opens("gavel/x", "production"), "asks"),
        ("createPullRequest", opens("gavel/x", "Main"), "asks"),
        ("createPullRequest", opens("gavel/x", " main"), "asks"),
        ("createPullRequest", opens("gavel/x", "refs/heads/main"), "asks"),
        ("createPullRequest", opens("main", "main"), "asks"),
        ("createPullRequest", opens("mallory:gavel/x", "main"), "asks"),
        // What changes one of the session's own.
        ("updatePullRequest", pull(7, json!({"title": "y", "body": "z"})), "runs"),
        ("updatePullRequest", pull(7, json!({"base": "main"})), "runs"),
        ("updatePullRequest", pull(7, json!({"state": "open"})), "runs"),
        // Another base, and a closed pull request, by the name of an update.
        ("updatePullRequest", pull(7, json!({"base": "production"})), "asks"),
        ("updatePullRequest", pull(7, json!({"state": "closed"})), "asks"),
        (
            "updatePullRequest",
            pull(7, json!({"title": "y", "state": "closed"})),
            "asks",
        ),
        // Another person's: its title, its base, its state. 8 is an issue.
        ("updatePullRequest", pull(6, json!({"title": "y"})), "asks"),
        ("updatePullRequest", pull(6, json!({"base": "main"})), "asks"),
        ("updatePullRequest", pull(6, json!({"state": "open"})), "asks"),
        ("updatePullRequest", pull(8, json!({"title": "y"})), "asks"),
        ("closePullRequest", of_repository(json!({"prNumber": 7})), "asks"),
        (
            "createIssue",
            of_repository(json!({"title": "x", "labels": ["bug"]})),
            "runs",
        ),
        (
            "updateIssue",
            issue(8, json!({"title": "y", "assignees": ["ann"]})),
            "runs",
        ),
        (
            "updateIssue",
            issue(8, json!({"state": "open", "stateReason": "reopened"})),
            "runs",
        ),
        ("updateIssue", issue(8, json!({"state": "closed"})), "asks"),
        ("updateIssue", issue(6, json!({"labels": []})), "asks"),
        ("updateIssue", issue(6, json!({"state": "open"})), "asks"),
        ("updateIssue", issue(7, json!({"title": "y"})), "asks"),
        ("closeIssue", of_repository(json!({"issueNumber": 8})), "asks"),
        ("createRepository", json!({"name": "x"}), "asks"),
        ("createRepository", json!({"name": "x", "isPrivate": false}), "asks"),
        (
            "configureGitClientInContainer",
            json!({"containerId": "c1", "username": "x"}),
            "runs",
        ),
        // What the container engine or the sandbox limits to the session.
        ("createContainer", json!({"options": {"image": "debian:12"}}), "runs"),
        ("destroyContainer", container(), "runs"),
        ("cleanupGroupContainers", json!({"group": "1"}), "runs"),
        (
            "executeScript",
            json!({"containerId": "c1", "script": "rm -rf ~"}),
            "runs",
        ),
        ("shell__run_shell_command", json!({"command": "make"}), "runs"),
        ("host__run_shell_command", json!({"command": "make"}), "asks"),
        // What no session limits: the user's own mail, calendar and tasks.
        (
            "gmail_send",
            json!({"to": ["bo@example.org"], "subject": "x", "body": "y"}),
            "asks",
        ),
        (
            "calendar_event_create",
            json!({"summary": "x", "start": "2100-01-01", "end": "2100-01-02"}),
            "asks",
        ),
        ("add_task", json!({"description": "x"}), "asks"),
        ("update_task", json!({"id": "1", "notes": "x"}), "asks"),
        ("complete_task", json!({"id": "1"}), "asks"),
        ("delete_task", json!({"id": "1"}), "asks"),
    ];
    let trusted = json!({"trustHints": true});
    let servers = servers();
    let tools: Vec<_> = servers
        .iter()
        .flat_map(|(name, list)| offered(name, list, &trusted))
        .collect();
    let facts = facts(&tools);
    let mut covered = BTreeSet::new();
    for (name, arguments, expected) in rows {
        let tool = tools
            .iter()
            .find(|tool| tool.is_called(name))
            .unwrap_or_else(|| panic!("{name}"));
        assert_eq!(answer(tool, &arguments, &facts), expected, "{name}: {arguments}");
        covered.insert(tool.qualified_name());
    }
    let acting = tools
        .iter()
        .filter(|tool| tool.side_effect)
        .map(|tool| tool.qualified_name());
    assert_eq!(
        acting.collect::<BTreeSet<_>>(),
        covered,
        "a tool with side effects is not in this table"
    );
}

/// A server is as safe as it says, whatever command starts it and whatever its entry leaves out. An entry can
/// restrict its tools further, and not less.
#[test]
fn what_a_server_says_of_its_tools_holds_however_it_is_started() {
    let list = listed(&gavel_mcp_github::tools());
    let laxer = json!({"trustHints": true, "tools": {
        "closeIssue": {"approval": "not_required"}, "updateIssue": {"scope": {}},
        "configureGitClientInContainer": {"hidden": []},
    }});
    for gavel in [json!({}), json!({"trustHints": true}), laxer] {
        let tools = offered("hub", &list, &gavel);
        let tool = |name: &str| tools.iter().find(|tool| &*tool.name == name).unwrap();
        for name in ["closeIssue", "closePullRequest", "createRepository"] {
            assert_eq!(
                tool(name).settings.approval,
                Some(ApprovalDefault::Required),
                "{name} {gavel}"
            );
        }
        assert_eq!(tool("updateIssue").settings.scope().count(), 3, "{gavel}");
        assert_eq!(tool("updateIssue").settings.amounts_to.len(), 1, "{gavel}");
        assert_eq!(
            *tool("configureGitClientInContainer").settings.hidden,
            ["token".into()],
            "{gavel}"
        );
    }
    let own = json!({"trustHints": true, "tools": {"createIssue": {"approval": "required", "hidden": ["labels"]}}});
    let stricter = offered("hub", &list, &own);
    let issue = stricter.iter().find(|tool| &*tool.name == "createIssue").unwrap();
    assert_eq!(
        (issue.settings.approval, issue.settings.scope().count()),
        (Some(ApprovalDefault::Required), 2)
    );
    assert_eq!(*issue.settings.hidden, ["labels".into()]);
}

/// A server that is not trusted can restrict its tools, and permit nothing.
#[test]
fn a_server_that_is_not_trusted_only_restricts_its_tools() {
    let said = json!({
        "sideEffect": false, "approval": "not_required", "idempotency": "natural", "scope": {}, "timeoutMs": 1,
        "creates": {"n": "n"}, "recipients": ["to"], "freeArguments": ["body"], "preflight": "look", "repositories": true,
    });
    let list = [json!({"name": "t", "inputSchema": {"type": "object"}, "_meta": {"gavel/settings": said}})];
    let tool = offered("s", &list, &json!({})).remove(0);
    assert!(
        tool.side_effect
            && !tool.is_bound
            && tool.settings.repositories == Some(true)
            && tool.settings.approval.is_none()
    );
    assert!(
        !tool.repeatable()
            && tool.settings.creates.is_empty()
            && tool.settings.free_arguments.is_empty()
            && tool.settings.preflight.is_none()
    );
    assert!(tool.settings.recipients.is_empty());
    // Its word does not make it a tool of the session's repository either, whose reads run unasked.
    let reads = json!({"o": "session.owner", "r": "session.repo"});
    let search =
        [json!({"name": "t", "inputSchema": {"type": "object"}, "_meta": {"gavel/settings": {"scope": reads}}})];
    for (trust, asks) in [(false, true), (true, false)] {
        let gavel = json!({"trustHints": trust, "tools": {"t": {"sideEffect": false}}});
        assert_eq!(offered("s", &search, &gavel)[0].asks_the_world(), asks, "{trust}");
    }
    let tool = offered("s", &list, &json!({"trustHints": true})).remove(0);
    assert!(
        !tool.side_effect
            && tool.is_bound
            && tool.settings.repositories == Some(true)
            && tool.settings.preflight.is_some()
    );
    assert_eq!(tool.settings.approval, Some(ApprovalDefault::NotRequired));
}

/// What a server says of its tool, and this gavel cannot read, may be a restriction. So the tool is not offered.
#[test]
fn a_tool_whose_settings_cannot_be_read_is_left_out() {
    for said in [
        json!({"aproval": "required"}),
        json!({"scope": {"x": "session.any"}}),
        json!("x"),
        Value::Null,
    ] {
        let definition = json!({"name": "t", "_meta": {"gavel/settings": said}});
        let error = super::said(&definition).unwrap_err();
        assert!(error.contains("gavel/settings"), "{error}");
    }
}

/// `gavel policy simulate` asks no server, and is no laxer than the servers' own words.
#[test]
fn what_is_known_without_a_server_is_what_the_bundled_servers_say() {
    let sources = crate::config::Sources {
        flags: Default::default(),
        environment: [("SHELL_SANDBOX".to_owned(), "host".to_owned())].into(),
        dotenv: Default::default(),
        file: None,
        read_file: &|_| Err(std::io::ErrorKind::NotFound.into()),
    };
    let mut config = Config::resolve(sources).unwrap().config;
    let file = tempfile::NamedTempFile::new().unwrap();
    let shell = json!({"command": "wrapper", "env": {"SHELL_SANDBOX": "host"}});
    let hub = json!({"command": "wrapper", "gavel": {"tools": {"closeIssue": {"approval": "not_required"}}}});
    let text = json!({"mcpServers": {"hub": hub, "sh": shell, "mail": {"command": "wrapper"}}});
    fs::write(file.path(), text.to_string()).unwrap();
    config.mcp_config = Some(file.path().to_owned());
    let known = known_tools(&config).unwrap();
    let required = Some(ApprovalDefault::Required);
    assert_eq!(known.of("hub", "closeIssue").approval, required);
    assert_eq!(known.of("sh", "run_shell_command").approval, required);
    assert_eq!(known.of("mail", "gmail_send").recipients.len(), 3);
    assert_eq!(known.of("mail", "other"), ToolSettings::default());
}
