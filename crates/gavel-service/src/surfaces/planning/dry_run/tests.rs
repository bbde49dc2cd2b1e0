#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::domain::argument_path::ArgumentPath;
use crate::domain::ids::{TenantId, UserId};
use crate::domain::planning_session::TASK_WORKER;
use crate::domain::policy::{PLANNING, Policy};
use crate::domain::repository::Repository;
use crate::domain::tool::{AmountsTo, ApprovalDefault};
use crate::domain::tool_settings::ToolSettings;
use crate::engine::strategy::plan::Scope;
use crate::surfaces::planning::FLOOR;

const GRANTED: [&str; 8] = [
    "getFileContents",
    "createPullRequest",
    "createIssue",
    "closeIssue",
    "updateIssue",
    "notify",
    "web_fetch",
    "rm",
];

fn tool(name: &str, side_effect: bool, approval: Option<ApprovalDefault>) -> Arc<Tool> {
    Arc::new(Tool {
        side_effect,
        open_world: name == "web_fetch",
        is_bound: name != "notify",
        settings: ToolSettings {
            approval,
            amounts_to: match name {
                "updateIssue" => vec![AmountsTo {
                    tool: "closeIssue".into(),
                    argument: ArgumentPath::parse("updates.state").unwrap(),
                    values: vec!["closed".into()],
                }],
                _ => Vec::new(),
            },
            scope: Some(match name {
                "createPullRequest" => ["target.owner", "targets[].owner", "targets[].owners"]
                    .map(|path| (ArgumentPath::parse(path).unwrap(), SessionValue::Owner))
                    .to_vec(),
                _ => Vec::new(),
            }),
            ..ToolSettings::default()
        },
        ..Tool::named("github", name)
    })
}

fn catalog() -> Catalog {
    Catalog {
        tools: vec![
            tool("getFileContents", false, None),
            tool("web_fetch", false, None),
            tool("createPullRequest", true, None),
            tool("createIssue", true, None),
            tool("closeIssue", true, Some(ApprovalDefault::Required)),
            tool("updateIssue", true, None),
            tool("notify", true, None),
            tool("mergePullRequest", true, None),
        ],
        down: BTreeMap::from([("shell".into(), "needs SHELL_SANDBOX, which is not set".to_owned())]),
        ..Catalog::default()
    }
}

fn worker() -> Definition {
    let text = include_str!("../../../../../../agents/task_worker.md");
    Definition::read(
        text.as_bytes(),
        crate::domain::definition::Form::Markdown,
        "task_worker.md",
    )
    .unwrap()
}

/// What the gate would answer about a tool, under these rules and with these tools that always ask.
fn asked(name: &str, rules: &str, ask_for: &[&str]) -> (DryRunAnswer, String) {
    let confirmation = Confirmable {
        repository: Repository {
            owner: "acme".to_owned(),
            name: "dates".to_owned(),
        },
        scope: Scope {
            tools: GRANTED.iter().map(ToString::to_string).collect(),
            branch_prefix: "gavel/".to_owned(),
            ask_for: ask_for.iter().map(ToString::to_string).collect::<BTreeSet<_>>(),
            ..Scope::default()
        },
    };
    let policy = Policy::read(rules, "policy.yaml").unwrap();
    let worker = worker();
    let (catalog, granted) = (catalog(), GRANTED.map(str::to_owned).into());
    let check = Check {
        catalog: &catalog,
        worker: &worker,
        granted,
        values: SessionValues::of(&confirmation),
        facts: Facts {
            agent: Some(TASK_WORKER.into()),
            approval: worker.approval,
            floor: FLOOR,
            bound: Some(Arc::new(BTreeMap::from([("owner".to_owned(), "acme".to_owned())]))),
            scope: Some(Arc::new(confirmation.scope)),
            ..Facts::new(
                TenantId::default(),
                UserId::parse("ann").unwrap(),
                PLANNING,
                Arc::new(policy),
            )
        },
    };
    let answer = check.tool(name);
    (answer.answer, answer.reason)
}

const NONE: &str = "rules: []";

/// What a confirmed plan names needs no further person, and nothing else is allowed by it.
#[test]
fn a_confirmed_plan_allows_its_tools_and_what_only_reads() {
    assert_eq!(asked("getFileContents", NONE, &[]).0, DryRunAnswer::Allow);
    assert_eq!(asked("createPullRequest", NONE, &[]).0, DryRunAnswer::Allow);
    assert_eq!(asked("web_fetch", NONE, &[]).0, DryRunAnswer::DependsOnArguments);
    let (answer, reason) = asked("closeIssue", NONE, &[]);
    assert_eq!(answer, DryRunAnswer::RequireApproval);
    assert!(reason.contains("closeIssue"), "{reason}");
}

/// What depends on the values of a call is said, and so is that no scope binds a tool.
#[test]
fn values_that_ask_and_tools_that_are_not_bound_are_named() {
    let (answer, reason) = asked("updateIssue", NONE, &[]);
    assert_eq!(
        (answer, reason.as_str()),
        (
            DryRunAnswer::DependsOnArguments,
            r#"a person is asked if updates.state is "closed" (as closeIssue)"#
        )
    );
    let (answer, reason) = asked("notify", NONE, &[]);
    assert_eq!(answer, DryRunAnswer::RequireApproval);
    assert!(reason.contains("not bound to the session"), "{reason}");
}

/// A person may ask to be asked, whatever the plan allows.
#[test]
fn a_tool_of_ask_for_asks() {
    assert_eq!(
        asked("createIssue", NONE, &["createIssue"]).0,
        DryRunAnswer::RequireApproval
    );
}

/// A tool that cannot be called is an answer of its own, before the work begins.
#[test]
fn a_tool_that_is_missing_or_no_longer_granted_is_denied() {
    // Why its server is not connected is said, too.
    let (answer, reason) = asked("rm", NONE, &[]);
    assert_eq!(
        (answer, reason.as_str()),
        (
            DryRunAnswer::Deny,
            "no connected server offers it; not connected: shell (needs SHELL_SANDBOX, which is not set)"
        )
    );
    let (answer, reason) = asked("mergePullRequest", NONE, &[]);
    assert_eq!(answer, DryRunAnswer::Deny);
    assert!(reason.contains("no longer lists this tool"), "{reason}");
}

/// R-10: a rule without a condition on arguments is certain; one that looks at them is named instead of guessed.
#[test]
fn a_rule_that_looks_at_arguments_is_named() {
    let rule = |when: &str, then: &str| {
        format!("rules:\n  - {{name: careful, tools: [createIssue], when: '{when}', then: {then}, reason: r}}\n")
    };
    let certain = asked("createIssue", &rule("user == \"ann\"", "deny"), &[]);
    assert_eq!(certain.0, DryRunAnswer::Deny);
    let other = asked("createIssue", &rule("user == \"bob\"", "deny"), &[]);
    assert_eq!(other.0, DryRunAnswer::Allow);
    for then in ["deny", "require_approval"] {
        let (answer, reason) = asked("createIssue", &rule("arguments.title.contains(\"x\")", then), &[]);
        assert_eq!(answer, DryRunAnswer::DependsOnArguments, "{then}: {reason}");
        assert!(reason.contains("\"careful\""), "{reason}");
    }
    let relaxing = asked("createIssue", &rule("has(arguments.title)", "allow"), &[]);
    assert_eq!(relaxing.0, DryRunAnswer::Allow, "{relaxing:?}");
    let elsewhere = asked(
        "createPullRequest",
        &rule("arguments.title.contains(\"x\")", "deny"),
        &[],
    );
    assert_eq!(elsewhere.0, DryRunAnswer::Allow);
}
