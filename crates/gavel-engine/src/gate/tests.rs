#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::domain::argument_path::ArgumentPath;
use crate::domain::definition::{self, Approval, Form, Source};
use crate::domain::ids::{ActionId, TenantId, UserId};
use crate::domain::known::Known;
use crate::domain::nesting;
use crate::domain::policy::{Grant, Policy};
use crate::domain::repository::{AllowedRepositories, RepositoryPattern};
use crate::domain::tool::{AmountsTo, ApprovalDefault, Tool};
use crate::domain::tool_settings::SessionValue;
use crate::limits::MOST_DEPTH;
use crate::snapshot::DefinitionSnapshot;
use crate::strategy::plan::Scope;
use crate::testing::{call_of, function_call, raw, tool_with};

fn facts() -> Facts {
    let user = UserId::parse("ann").unwrap();
    Facts {
        approval: Approval::Never,
        can_wait: false,
        ..Facts::new(TenantId::default(), user, "chat", Arc::default())
    }
}

fn first(call: &Proposed, facts: &Facts) -> PolicyDecision {
    decide(call, facts, None, Attempt::First).outcome
}

fn policy(rules: &str) -> Arc<Policy> {
    Arc::new(Policy::read(rules, "policy.yaml").unwrap())
}

/// Promise: bounded faults. The search for misleading text takes some milliseconds, so long arguments are not searched
/// on a shared thread. Without an approval request, they are not searched at all.
#[test]
fn large_texts_are_searched_on_a_thread_of_their_own() {
    let tool = tool_with("send", r#"{"type":"object"}"#, |_| {});
    for (length, can_wait, at_once) in [(100, true, true), (20_000, true, false), (20_000, false, true)] {
        let facts = Facts {
            approval: Approval::Always,
            can_wait,
            ..facts()
        };
        let call = call_of(&tool, &format!(r#"{{"body":"{}"}}"#, "x".repeat(length)));
        let quick = decide_quickly(&call, &facts, None, Attempt::First);
        assert_eq!(quick.is_some(), at_once, "{length} {can_wait}");
        let asks = matches!(first(&call, &facts), PolicyDecision::RequireApproval { .. });
        assert_eq!(asks, can_wait, "{length}");
    }
}

const REPOSITORY: &[(&str, SessionValue)] = &[("owner", SessionValue::Owner), ("repo", SessionValue::Repo)];

/// `scope` of `mcp.json`.
fn scope(arguments: &[(&str, SessionValue)]) -> Vec<(ArgumentPath, SessionValue)> {
    let arguments = arguments.iter();
    let parsed = arguments.map(|(name, value)| (ArgumentPath::parse(name).unwrap(), *value));
    parsed.collect()
}

/// Which arguments a session prescribes is said in `mcp.json`, by whatever name a tool has for them.
#[test]
fn arguments_are_bound_by_the_scope_of_the_tool_and_not_by_their_names() {
    let values = [("owner", "acme"), ("repo", "dates")].map(|(name, value)| (name.to_owned(), value.to_owned()));
    let names = ["putFile".to_owned()];
    let facts = Facts {
        approval: Approval::SideEffects,
        can_wait: true,
        bound: Some(Arc::new(values.into())),
        scope: Some(Arc::new(Scope {
            tools: names.into(),
            branch_prefix: "gavel/".to_owned(),
            ..Scope::default()
        })),
        ..facts()
    };
    let decided = |side_effect: bool, of: &[(&str, SessionValue)], arguments: &str| {
        let tool = tool_with("putFile", r#"{"type":"object"}"#, |tool| {
            tool.side_effect = side_effect;
            tool.settings.scope = Some(scope(of));
            tool.is_bound = true;
        });
        first(&call_of(&tool, arguments), &facts)
    };
    let elsewhere = r#"{"owner":"mallory","repo":"x","project":"mallory","ref":"main","head":"main"}"#;
    let free = decided(true, &[], elsewhere);
    assert!(matches!(free, PolicyDecision::Allow { .. }), "{free:?}");
    let project: &[(&str, SessionValue)] = &[("project", SessionValue::Owner), ("ref", SessionValue::Branch)];
    assert!(matches!(
        decided(false, project, elsewhere),
        PolicyDecision::Refuse { .. }
    ));
    for outside in [
        elsewhere,
        r#"{"project":"acme","ref":"main"}"#,
        r#"{"project":"acme","ref":["gavel/x"]}"#,
        // The server would choose them.
        r#"{"project":"acme"}"#,
        r#"{"ref":"gavel/x"}"#,
    ] {
        let asked = decided(true, project, outside);
        assert!(
            matches!(asked, PolicyDecision::RequireApproval { .. }),
            "{outside}: {asked:?}"
        );
    }
    let ours = decided(true, project, r#"{"project":"ACME","ref":"gavel/x","head":"main"}"#);
    assert!(matches!(ours, PolicyDecision::Allow { .. }), "{ours:?}");
}

/// P, words leave by reading: in a planning session a tool that reads and reaches the open world asks before it carries
/// out text that is not known. No plan and no setting of the tool allows it, and a rule does.
#[test]
fn a_read_that_carries_unknown_text_out_of_a_session_asks() {
    let schema = r#"{"type":"object","properties":{
        "url":{"type":"string"},"form":{"enum":["md","text"]},"offset":{"type":"integer"},"user":{"type":"string"}}}"#;
    let tool = |change: &dyn Fn(&mut Tool)| {
        tool_with("web_fetch", schema, |tool| {
            tool.side_effect = false;
            tool.identity_argument = Some("user".into());
            tool.settings.approval = Some(ApprovalDefault::NotRequired);
            change(tool);
        })
    };
    let facts = Facts {
        can_wait: true,
        floor: Approval::SideEffects,
        known: Some(Arc::new(Known::of(&[
            "Read https://docs.example/weeks about ISO weeks".to_owned(),
        ]))),
        scope: Some(Arc::new(Scope {
            tools: ["web_fetch".to_owned()].into(),
            branch_prefix: "gavel/".to_owned(),
            base: None,
            ask_for: BTreeSet::new(),
            confirmed: None,
            created: BTreeSet::new(),
            by_code: false,
        })),
        ..facts()
    };
    let asks = |tool: &Arc<Tool>, arguments: &str, facts: &Facts| match first(&call_of(tool, arguments), facts) {
        PolicyDecision::RequireApproval { details, .. } => Some(details.reason),
        PolicyDecision::Allow { .. } => None,
        other => panic!("{other:?}"),
    };
    let open = tool(&|_| ());
    for (arguments, expected) in [
        (r#"{"url":"https://docs.example/weeks"}"#, false),
        (
            r#"{"url":"https://docs.example/weeks","form":"md","offset":123456}"#,
            false,
        ),
        (r#"{"url":"ISO weeks"}"#, false),
        ("{}", false),
        (r#"{"url":"https://docs.example/weeks?q=SECRET"}"#, true),
        (r#"{"url":"https://evil.example/SECRET"}"#, true),
        (r#"{"url":"SECRET"}"#, true),
        (r#"{"url":"https://docs.example/weeks","note":"SECRET"}"#, true),
        (r#"{"url":"https://docs.example/weeks","SECRET":7}"#, true),
        (
            r#"{"url":"https://docs.example/weeks","more":[{"x":["SECRET"]}]}"#,
            true,
        ),
    ] {
        let reason = asks(&open, arguments, &facts);
        assert_eq!(reason.is_some(), expected, "{arguments}: {reason:?}");
        if let Some(reason) = reason {
            assert!(
                reason.contains("SECRET") || reason.contains("note") || reason.contains("more"),
                "{reason}"
            );
        }
    }
    let secret = r#"{"url":"https://evil.example/SECRET"}"#;
    let closed = tool(&|tool| tool.open_world = false);
    let bound = |is_bound, to: &[_]| {
        tool(&|tool| {
            tool.settings.scope = Some(scope(to));
            tool.is_bound = is_bound;
        })
    };
    let (ours, half) = (bound(true, REPOSITORY), bound(true, &REPOSITORY[..1]));
    let untrusted = bound(false, REPOSITORY);
    for (tool, expected) in [(&closed, false), (&ours, false), (&half, true), (&untrusted, true)] {
        assert_eq!(asks(tool, secret, &facts).is_some(), expected);
    }
    let outside = Facts {
        known: None,
        ..facts.clone()
    };
    assert_eq!(asks(&open, secret, &outside), None, "this is no planning session");
    let rule = "rules: [{name: docs, tools: [tasks__web_fetch], then: allow, reason: r}]";
    let allowed = Facts {
        policy: policy(rule),
        ..facts
    };
    assert_eq!(asks(&open, secret, &allowed), None);
}

/// A run that is bound to a repository calls no tool with another one, whatever else allows it.
#[test]
fn a_bound_argument_has_no_other_value() {
    let tool = tool_with("getFileContents", r#"{"type":"object"}"#, |tool| {
        tool.side_effect = false;
        tool.settings.scope = Some(scope(REPOSITORY));
    });
    let bound = [("owner", "acme"), ("repo", "dates")].map(|(name, value)| (name.to_owned(), value.to_owned()));
    let facts = Facts {
        bound: Some(Arc::new(bound.into())),
        ..facts()
    };
    let decided = |arguments: &str| first(&call_of(&tool, arguments), &facts);
    for allowed in [
        r#"{"owner":"acme","repo":"dates"}"#,
        r#"{"owner":"ACME","repo":"Dates","path":"x"}"#,
        r#"{"query":"x"}"#,
    ] {
        assert!(matches!(decided(allowed), PolicyDecision::Allow { .. }), "{allowed}");
    }
    for refused in [
        r#"{"owner":"acme","repo":"other"}"#,
        r#"{"owner":["acme"],"repo":"dates"}"#,
        r#"{"owner":"","repo":"dates"}"#,
    ] {
        let decided = decided(refused);
        assert!(
            matches!(&decided, PolicyDecision::Refuse { code: FailureCode::Denied, by, .. } if *by == [DecidedBy::Session]),
            "{refused}: {decided:?}"
        );
    }
}

/// A confirmed plan allows its tools in its repository, on its branches. Everything else asks, and what is stricter
/// holds.
#[test]
fn a_confirmed_plan_is_an_approval_and_its_limit() {
    let writes = |name: &str, approval| {
        tool_with(name, r#"{"type":"object"}"#, |tool| {
            tool.side_effect = true;
            tool.settings.approval = approval;
            tool.settings.scope = Some(scope(&[REPOSITORY, &[("head", SessionValue::Branch)]].concat()));
            tool.is_bound = true;
        })
    };
    let bound = [("owner", "acme"), ("repo", "dates")].map(|(name, value)| (name.to_owned(), value.to_owned()));
    let names = |names: &[&str]| names.iter().map(ToString::to_string).collect();
    let facts = Facts {
        approval: Approval::SideEffects,
        floor: Approval::SideEffects,
        can_wait: true,
        bound: Some(Arc::new(bound.into())),
        scope: Some(Arc::new(Scope {
            tools: names(&["createPullRequest", "createIssue", "closeIssue", "tasks__updateIssue"]),
            branch_prefix: "gavel/".to_owned(),
            ask_for: names(&["createIssue"]),
            ..Scope::default()
        })),
        ..facts()
    };
    let by = |name: &str, approval, arguments: &str, facts: &Facts| match first(
        &call_of(&writes(name, approval), arguments),
        facts,
    ) {
        PolicyDecision::Allow { by, .. } => ("allow", by.into_iter().collect()),
        PolicyDecision::RequireApproval { by, .. } => ("ask", by),
        PolicyDecision::Refuse { by, .. } => ("deny", by),
    };
    let ours = r#"{"owner":"acme","repo":"dates","head":"gavel/iso"}"#;
    let plan = ("allow", vec![DecidedBy::Plan]);
    let asks = ("ask", vec![DecidedBy::SideEffects]);
    assert_eq!(by("createPullRequest", None, ours, &facts), plan);
    assert_eq!(by("updateIssue", None, ours, &facts), plan);
    for outside in [
        r#"{"owner":"acme","repo":"other","head":"gavel/iso"}"#,
        r#"{"owner":"acme","repo":"dates","head":"main"}"#,
        r#"{"owner":"acme","repo":"dates","head":"mallory:gavel/iso"}"#,
        // The server would choose the branch.
        r#"{"owner":"acme","repo":"dates"}"#,
    ] {
        assert_eq!(by("createPullRequest", None, outside, &facts), asks, "{outside}");
    }
    // A tool that no person confirmed, one that the confirmation asks for, and one that always asks.
    assert_eq!(by("executeScript", None, "{}", &facts), asks);
    assert_eq!(
        by("createIssue", None, ours, &facts),
        ("ask", vec![DecidedBy::SideEffects, DecidedBy::Session])
    );
    let required = Some(ApprovalDefault::Required);
    assert_eq!(by("closeIssue", required, ours, &facts), ("ask", vec![DecidedBy::Tool]));
    // Rules are as strict as ever.
    for (then, effect) in [("require_approval", "ask"), ("deny", "deny")] {
        let rule = format!("rules:\n- {{name: r, tools: createPullRequest, then: {then}, reason: because}}\n");
        let ruled = Facts {
            policy: policy(&rule),
            ..facts.clone()
        };
        assert_eq!(by("createPullRequest", None, ours, &ruled).0, effect);
    }
    // What only reads cannot leave the repository at all.
    let reads = tool_with("getFileContents", r#"{"type":"object"}"#, |tool| {
        tool.side_effect = false;
        tool.settings.scope = Some(scope(REPOSITORY));
    });
    let elsewhere = call_of(&reads, r#"{"owner":"acme","repo":"other"}"#);
    assert!(matches!(first(&elsewhere, &facts), PolicyDecision::Refuse { .. }));
}

/// A tool that no `scope` binds is not within the session, although the confirmed plan names it. A rule can allow it.
#[test]
fn a_tool_without_a_scope_asks_on_every_call_although_the_plan_names_it() {
    let facts = |rules: &str| Facts {
        floor: Approval::SideEffects,
        can_wait: true,
        scope: Some(Arc::new(Scope {
            tools: BTreeSet::from(["deploy".to_owned()]),
            ..Scope::default()
        })),
        policy: policy(rules),
        ..facts()
    };
    let decided_by = |is_bound: bool, side_effect: bool, rules: &str, by_code: bool| {
        let tool = tool_with("deploy", r#"{"type":"object"}"#, |tool| {
            (tool.is_bound, tool.side_effect) = (is_bound, side_effect);
        });
        let mut facts = facts(rules);
        Arc::make_mut(facts.scope.as_mut().unwrap()).by_code = by_code;
        first(&call_of(&tool, "{}"), &facts)
    };
    let decided = |is_bound, side_effect, rules| decided_by(is_bound, side_effect, rules, false);
    let asked = decided(false, true, "rules: []");
    assert!(
        matches!(&asked, PolicyDecision::RequireApproval { details, .. } if details.reason.contains("is not bound to the session")),
        "{asked:?}"
    );
    let rule = "rules:\n- {name: r, tools: deploy, then: allow, reason: because}\n";
    for allowed in [
        decided(true, true, "rules: []"),
        decided(false, false, "rules: []"),
        decided(false, true, rule),
        // The cleanup at the end, which code binds.
        decided_by(false, true, "rules: []", true),
    ] {
        assert!(matches!(allowed, PolicyDecision::Allow { .. }), "{allowed:?}");
    }
}

/// `planning.repositories` holds for every call that names a repository, on whatever surface and in whatever spelling.
#[test]
fn a_call_names_only_repositories_that_its_tenant_may_use() {
    let tool = tool_with("readIssue", r#"{"type":"object"}"#, |tool| {
        tool.side_effect = false;
        tool.settings.scope = Some(scope(REPOSITORY));
    });
    let patterns = ["acme/*", "t2:other/one"].map(|text| RepositoryPattern::parse(text).unwrap());
    let policy = Arc::new(Policy {
        repositories: AllowedRepositories(Some(patterns.into())),
        ..Policy::default()
    });
    let decided = |tenant: &str, owner: Value, repo: Value| {
        let facts = Facts {
            tenant: TenantId::parse(tenant).unwrap(),
            policy: Arc::clone(&policy),
            ..facts()
        };
        first(
            &call_of(&tool, &json!({"owner": owner, "repo": repo}).to_string()),
            &facts,
        )
    };
    for (tenant, owner, repo) in [
        ("default", "acme", "dates"),
        ("t1", "ACME", "x"),
        ("t2", "Other", "ONE"),
    ] {
        let allowed = decided(tenant, json!(owner), json!(repo));
        assert!(
            matches!(allowed, PolicyDecision::Allow { .. }),
            "{owner}/{repo}: {allowed:?}"
        );
    }
    for (owner, repo) in [
        (json!("other"), json!("one")),
        (json!("acme2"), json!("x")),
        (json!(" acme"), json!("x")),
        (json!("acme"), json!("x ")),
        (json!("acme"), json!("x.git")),
        (json!("acme"), json!("..")),
        (json!("acme"), json!("x/../../other/one")),
        (json!("acme/x"), json!("y")),
        (json!("acme"), json!("%78")),
        (json!("acme"), json!("")),
        (json!("acme"), json!(["x"])),
        (json!("acme"), Value::Null),
        (Value::Null, json!("x")),
    ] {
        let refused = decided("default", owner.clone(), repo.clone());
        assert!(
            matches!(&refused, PolicyDecision::Refuse { code: FailureCode::Denied, by, .. } if *by == [DecidedBy::Repositories]),
            "{owner}/{repo}: {refused:?}"
        );
    }
}

/// Values with the effect of another tool ask as that one does, and rules about that one hold for them.
#[test]
fn values_that_amount_to_another_tool_ask_as_that_tool_does() {
    let tool = tool_with("updateIssue", r#"{"type":"object"}"#, |tool| {
        tool.is_bound = true;
        tool.settings.amounts_to = vec![AmountsTo {
            tool: "closeIssue".into(),
            argument: ArgumentPath::parse("updates.state").unwrap(),
            values: vec![json!("closed")],
        }];
    });
    let decided = |rules: &str, arguments: Value| {
        let facts = Facts {
            floor: Approval::SideEffects,
            can_wait: true,
            scope: Some(Arc::new(Scope {
                tools: BTreeSet::from(["updateIssue".to_owned()]),
                ..Scope::default()
            })),
            policy: policy(rules),
            ..facts()
        };
        match first(&call_of(&tool, &arguments.to_string()), &facts) {
            PolicyDecision::Allow { .. } => "allow",
            PolicyDecision::RequireApproval { .. } => "ask",
            PolicyDecision::Refuse { .. } => "deny",
        }
    };
    let rule =
        |tool: &str, then: &str| format!("rules:\n- {{name: r, tools: {tool}, then: {then}, reason: because}}\n");
    let (none, closes) = ("rules: []", json!({"updates": {"state": "closed"}}));
    for other in [
        json!({"updates": {"state": "open"}}),
        json!({"updates": {"title": "closed"}}),
        json!({}),
    ] {
        assert_eq!(decided(none, other.clone()), "allow", "{other}");
        assert_eq!(decided(&rule("closeIssue", "deny"), other.clone()), "allow", "{other}");
    }
    for closing in [
        closes.clone(),
        json!({"updates": {"state": " Closed "}}),
        // A server may read these in its own way.
        json!({"updates": "{\"state\":\"closed\"}"}),
        json!({"updates": [{"state": "closed"}]}),
    ] {
        assert_eq!(decided(none, closing.clone()), "ask", "{closing}");
    }
    assert_eq!(decided(&rule("tasks__closeIssue", "deny"), closes.clone()), "deny");
    assert_eq!(decided(&rule("closeIssue", "allow"), closes.clone()), "ask");
    assert_eq!(decided(&rule("updateIssue", "allow"), closes), "ask");
}

/// C-FR-012
#[test]
fn arguments_off_the_schema_are_refused_with_the_place() {
    let tool = tool_with(
        "add_task",
        r#"{"type":"object","properties":{"description":{"type":"string"}},"required":["description"]}"#,
        |_| {},
    );
    let decided = first(&call_of(&tool, r#"{"description":1}"#), &facts());
    assert!(
        matches!(&decided, PolicyDecision::Refuse { code: FailureCode::InvalidArguments, message, .. } if message.contains("/description")),
        "{decided:?}"
    );
}

/// C-FR-012, C-EC-2: accepted arguments can be parsed by every reader of the reply or the decision log.
#[test]
fn arguments_that_nest_too_deeply_are_refused_before_they_are_read() {
    let tool = tool_with("add_task", r#"{"type":"object"}"#, |_| {});
    let nested = |levels: usize| format!("{}1{}", r#"{"a":"#.repeat(levels), "}".repeat(levels));
    let decided = |levels| first(&call_of(&tool, &nested(levels)), &facts());
    assert!(matches!(decided(nesting::MAX_LEVELS), PolicyDecision::Allow { .. }));
    for levels in [nesting::MAX_LEVELS + 1, 100_000] {
        let decided = decided(levels);
        assert!(
            matches!(&decided, PolicyDecision::Refuse { code: FailureCode::InvalidArguments, message, .. } if message.contains("deeper than 60")),
            "{decided:?}"
        );
    }
}

/// The model never chooses the user.
#[test]
fn identity_comes_from_the_request_and_an_identity_from_the_model_is_an_error() {
    let schema = r#"{"type":"object","properties":{"user_id":{"type":"string"}},"required":["user_id"],"additionalProperties":false}"#;
    let tool = tool_with("list_tasks", schema, |tool| {
        tool.identity_argument = Some("user_id".into())
    });
    let decided = first(&call_of(&tool, "{}"), &facts());
    assert!(
        matches!(&decided, PolicyDecision::Allow { arguments, .. } if arguments.get() == r#"{"user_id":"ann"}"#),
        "{decided:?}"
    );
    let decided = first(&call_of(&tool, r#"{"user_id":"bob"}"#), &facts());
    assert!(matches!(
        decided,
        PolicyDecision::Refuse {
            code: FailureCode::InvalidArguments,
            ..
        }
    ));
}

/// What `mcp.json` hides, the model does not give either: not even with the value null.
#[test]
fn a_hidden_argument_from_the_model_is_an_error_that_names_it() {
    let schema = r#"{"type":"object","properties":{"token":{"type":["string","null"]}}}"#;
    let tool = tool_with("configure", schema, |tool| tool.settings.hidden = vec!["token".into()]);
    for given in [r#"{"token":"t"}"#, r#"{"token":null}"#] {
        let decided = first(&call_of(&tool, given), &facts());
        assert!(
            matches!(&decided, PolicyDecision::Refuse { code: FailureCode::InvalidArguments, message, .. }
                if message.contains("\"token\"") && message.contains("must not be given")),
            "{decided:?}"
        );
    }
    let decided = first(&call_of(&tool, "{}"), &facts());
    assert!(matches!(decided, PolicyDecision::Allow { .. }), "{decided:?}");
}

#[test]
fn where_no_approval_can_be_requested_a_required_one_is_a_denial() {
    let tool = tool_with("send", r#"{"type":"object"}"#, |_| {});
    let decided = |tool, approval, floor| {
        let facts = Facts {
            approval,
            floor,
            ..facts()
        };
        first(&call_of(tool, "{}"), &facts)
    };
    for (approval, floor, allowed) in [
        (Approval::Never, Approval::Never, true),
        (Approval::Never, Approval::SideEffects, false),
        (Approval::SideEffects, Approval::Never, false),
        (Approval::Always, Approval::Never, false),
    ] {
        let decided = decided(&tool, approval, floor);
        assert_eq!(
            matches!(decided, PolicyDecision::Allow { .. }),
            allowed,
            "{approval:?} {floor:?}"
        );
    }
    let strict = tool_with("send", r#"{"type":"object"}"#, |tool| {
        tool.settings.approval = Some(ApprovalDefault::Required)
    });
    assert!(matches!(
        decided(&strict, Approval::Never, Approval::Never),
        PolicyDecision::Refuse {
            code: FailureCode::Denied,
            ..
        }
    ));
}

#[test]
fn the_arguments_that_run_are_one_canonical_text() {
    let tool = tool_with("add_task", r#"{"type":"object"}"#, |_| {});
    let decided = first(&call_of(&tool, "{ \"b\": 1,\n \"a\" : {\"d\":2, \"c\":1} }"), &facts());
    assert!(
        matches!(&decided, PolicyDecision::Allow { arguments, .. } if arguments.get() == r#"{"a":{"c":1,"d":2},"b":1}"#)
    );
}

/// A call of the agent `shell` by `planner`, which may call it.
fn delegation(rules: &str, depth: u32) -> (Proposed, Facts) {
    let source = |name: &str, more: &str| Source {
        file: format!("{name}.md"),
        form: Form::Markdown,
        bytes: format!("---\nname: {name}\ndescription: d\n{more}---\nWork.\n").into_bytes(),
    };
    let checked = definition::check(&[source("planner", "tools: [shell]\n"), source("shell", "")], &[]);
    assert_eq!(checked.errors, []);
    let snapshot = Arc::new(DefinitionSnapshot::of("planner", &checked.agents).unwrap());
    let call = Proposed {
        id: ActionId::new(),
        sequence: 1,
        call: function_call("shell", r#"{"query":"go"}"#),
        target: Target::Agent("shell".into()),
    };
    let facts = Facts {
        agent: Some("planner".into()),
        approval: Approval::Always,
        floor: Approval::SideEffects,
        can_wait: true,
        delegates: Some(Delegates { snapshot, depth }),
        policy: policy(rules),
        ..facts()
    };
    (call, facts)
}

/// R-10, D-4: an agent may call the agents that it is granted; a rule that names the called agent can deny that, or
/// require approval, and the approval covers exactly that call.
#[test]
fn a_delegation_passes_the_policy() {
    let deny = |tools: &str, more: &str| {
        format!("rules:\n- {{name: r, tools: ['{tools}'], {more}then: deny, reason: because}}\n")
    };
    let allows = |rules: &str, depth| {
        let (call, facts) = delegation(rules, depth);
        matches!(first(&call, &facts), PolicyDecision::Allow { .. })
    };
    assert!(allows("", 0));
    assert!(!allows("", MOST_DEPTH));
    for named in ["shell", "agent__shell", "*", "sh*"] {
        assert!(!allows(&deny(named, ""), 0), "{named}");
    }
    assert!(!allows(&deny("shell", "agents: planner, "), 0));
    assert!(allows(&deny("shell", "agents: worker, "), 0));
    assert!(allows(&deny("planner", ""), 0));
    let (call, facts) = delegation(
        "rules:\n- {name: r, tools: shell, then: require_approval, reason: because}\n",
        0,
    );
    let PolicyDecision::RequireApproval { arguments, by, .. } = first(&call, &facts) else {
        panic!("it requires approval");
    };
    assert_eq!(by, [DecidedBy::Rule("r".into())]);
    let decided = |approval| decide(&call, &facts, Some(&approval), Attempt::First).effect();
    assert_eq!(decided(Resolution::Approved(arguments)), Effect::Allow);
    assert_eq!(
        decided(Resolution::Approved(Arc::from(raw(r#"{"a":1}"#)))),
        Effect::Deny
    );
    assert_eq!(
        decided(Resolution::Refused(FailureCode::Rejected, "no".to_owned())),
        Effect::Deny
    );
    let unknown = Proposed {
        target: Target::Agent("other".into()),
        ..call.clone()
    };
    assert_eq!(decide(&unknown, &facts, None, Attempt::First).effect(), Effect::Deny);
}

/// A tool with the recipients `to`, of which `body` and `m.subject` are free.
fn mail() -> Arc<Tool> {
    let paths = |paths: &[&str]| paths.iter().map(|path| ArgumentPath::parse(path).unwrap()).collect();
    tool_with("send", r#"{"type":"object"}"#, |tool| {
        tool.settings.recipients = paths(&["to"]);
        tool.settings.free_arguments = paths(&["body", "m.subject"]);
    })
}

fn grant(tool: &Tool) -> Grant {
    let checked =
        crate::domain::address::recipients(&tool.settings.recipients, &json!({"to": "bo@x.org"}), 9, || false);
    Grant {
        id: "g".into(),
        user: "ann".into(),
        server: Arc::clone(&tool.server),
        tool: Arc::clone(&tool.name),
        digest: Arc::clone(&tool.digest),
        recipients: checked.unwrap().recipients,
    }
}

/// R-15: if an argument is not declared free, no grant covers the call, and the approver reads which one it is.
#[test]
fn the_approver_reads_why_a_grant_does_not_cover_a_call() {
    let tool = mail();
    let facts = Facts {
        approval: Approval::SideEffects,
        can_wait: true,
        grants: vec![grant(&tool)],
        ..facts()
    };
    let decided = |arguments: &str| first(&call_of(&tool, arguments), &facts);
    let free = decided(r#"{"to": "bo@x.org", "body": {"any": "thing"}, "m": {"subject": "Hi"}}"#);
    assert!(
        matches!(
            free,
            PolicyDecision::Allow {
                by: Some(DecidedBy::Grant(_)),
                ..
            }
        ),
        "{free:?}"
    );
    let PolicyDecision::RequireApproval { details, .. } =
        decided(r#"{"to": "bo@x.org", "calendar": "team", "m": {"x": 1}}"#)
    else {
        panic!("a grant must not cover it");
    };
    assert!(details.ungrantable);
    assert_eq!(
        details.warnings,
        [
            r#"a grant cannot cover this call: besides the recipients it sets "/calendar", "/m/x", which are not declared free"#
        ]
    );
}

const MODES: [Approval; 3] = [Approval::Never, Approval::SideEffects, Approval::Always];

/// Facts about a run with one rule for each of these effects.
fn any_facts() -> impl Strategy<Value = (Facts, bool)> {
    let effects = prop::collection::vec(0usize..3, 0..3);
    (effects, 0usize..3, 0usize..3, any::<bool>(), any::<bool>(), 0usize..4).prop_map(
        |(effects, mode, floor, can_wait, granted, offered)| {
            let rule = |n: usize| {
                let then = ["allow", "require_approval", "deny"][n];
                format!("- {{name: r, tools: send, then: {then}, reason: because}}\n")
            };
            let rules: String = effects
                .iter()
                .enumerate()
                .map(|(at, n)| rule(*n).replace("name: r", &format!("name: r{at}")))
                .collect();
            let tool = mail();
            let facts = Facts {
                approval: MODES[mode],
                floor: MODES[floor],
                can_wait,
                policy: policy(&format!("rules:\n{rules}")),
                grants: if granted { vec![grant(&tool)] } else { Vec::new() },
                offered: [
                    Offered::Later,
                    Offered::Unknown,
                    Offered::Tool(Some(Arc::clone(&tool.digest))),
                    Offered::Tool(Some("changed".into())),
                ][offered]
                    .clone(),
                ..facts()
            };
            (facts, effects.contains(&2))
        },
    )
}

fn any_arguments() -> impl Strategy<Value = Value> {
    let to = prop_oneof![4 => Just(json!("bo@x.org")), 1 => Just(json!(["bo@x.org", "eve@x.org"]))];
    let more = prop::collection::btree_map(
        prop_oneof![Just("body"), Just("bcc"), Just("x")],
        prop_oneof![Just(json!(1)), Just(json!(null)), Just(json!({"y": "eve@x.org"}))],
        0..3,
    );
    (to, more).prop_map(|(to, more)| {
        let mut arguments = json!({"to": to});
        for (name, value) in more {
            arguments[name] = value;
        }
        arguments
    })
}

fn any_approval() -> impl Strategy<Value = Option<Resolution>> {
    prop_oneof![
        Just(None),
        any_arguments().prop_map(|arguments| Some(Resolution::Approved(Arc::from(canonical::to_raw(&arguments))))),
        Just(Some(Resolution::Refused(FailureCode::Rejected, "no".to_owned()))),
    ]
}

proptest! {
    /// R-10, R-15. Promises: decided by code, exact approvals. Whatever else is known, a denied call does not run; an
    /// approval covers exactly its arguments of the tool as it was; a grant covers no other recipients, and no argument
    /// that is not free; a refusal of the approver is final; and no call is sent again that could not be sent first.
    #[test]
    fn a_call_runs_only_by_what_covers_it(
        (facts, denied) in any_facts(), arguments in any_arguments(), approval in any_approval(), started in 0i64..9,
    ) {
        let call = call_of(&mail(), &arguments.to_string());
        let allowed = |attempt| {
            let decision = decide(&call, &facts, approval.as_ref(), attempt);
            match decision.outcome {
                PolicyDecision::Allow { arguments, by } => Some((arguments, by)),
                PolicyDecision::RequireApproval { .. } | PolicyDecision::Refuse { .. } => None,
            }
        };
        prop_assert!(allowed(Attempt::Again(started)).is_none() || allowed(Attempt::First).is_some());
        if let Some((runs, by)) = allowed(Attempt::First) {
            prop_assert!(!denied);
            let canonical = canonical::to_raw(&arguments);
            prop_assert_eq!(runs.get(), canonical.get());
            let is_as_it_was = matches!(&facts.offered, Offered::Later)
                || facts.offered == Offered::Tool(Some(Arc::clone(&mail().digest)));
            match &approval {
                None => {}
                Some(Resolution::Approved(approved)) => {
                    prop_assert_eq!(approved.get(), runs.get());
                    prop_assert!(is_as_it_was);
                }
                Some(Resolution::Refused(..)) => prop_assert!(false, "the approver refused it"),
            }
            if let Some(DecidedBy::Grant(_)) = by {
                prop_assert_eq!(&arguments["to"], &json!("bo@x.org"));
                prop_assert!(arguments.get("bcc").is_none() && arguments.get("x").is_none());
                prop_assert!(is_as_it_was);
            }
        }
        let waits = matches!(
            decide(&call, &facts, approval.as_ref(), Attempt::Again(started)).outcome,
            PolicyDecision::RequireApproval { .. }
        );
        prop_assert!(!waits, "a call that was sent cannot wait for an approval");
    }
}
