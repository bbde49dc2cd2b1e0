//! Every error of a policy file, and what names in it match.
#![allow(clippy::unwrap_used)]

use serde_json::json;

use super::*;
use crate::domain::policy::{Evaluation, Facts, SessionFacts};

fn errors(text: &str) -> Vec<String> {
    let errors = read(text, "policy.yaml").unwrap_err();
    errors.iter().map(ToString::to_string).collect()
}

#[test]
fn an_empty_file_has_no_rules() {
    for text in ["", "# nothing yet\n", "rules: []\n", "rules:\ntests:\n"] {
        let policy = read(text, "policy.yaml").unwrap();
        assert!(policy.rules.is_empty() && policy.tests.is_empty() && policy.most_recipients == 50);
    }
}

#[test]
fn every_error_is_reported_at_once_with_file_and_line() {
    let text = "\
max_recipients: 0
rule: []
rules:
  - name: a
    tools: [x]
    then: permit
    reason: because
  - name: a
    tols: [x]
    when: argument.to == 'x'
    then: deny
    reason: because
  - name: b
    tools: []
    then: deny
  - 7
tests:
  - name: t
    call: {tool: x, side_effect: maybe, recipients: ['a[0]'], arguments: [1]}
    expect: denied
";
    let found = errors(text);
    let expected = [
        "policy.yaml:1: max_recipients: found 0; allowed: a whole number from 1 to 10000",
        "policy.yaml:2: rule: found an unknown field; allowed: did you mean `rules`?",
        "policy.yaml:6: rules[0].then: found \"permit\"; allowed: allow, require_approval or deny",
        "policy.yaml:9: rules[1].tols: found an unknown field; allowed: did you mean `tools`?",
        "policy.yaml:10: rules[1].when: found \"argument.to == 'x'\", which names `argument`; variables are",
        "policy.yaml:13: rules[2].reason: found nothing; allowed: why",
        "policy.yaml:14: rules[2].tools: found a list; allowed: a list of names",
        "policy.yaml:16: rules[3]: found 7; allowed: a map",
        "policy.yaml:19: tests[0].call.arguments: found a list; allowed: a map",
        "policy.yaml:19: tests[0].call.side_effect: found \"maybe\"; allowed: true or false",
        "policy.yaml:19: tests[0].call.recipients[0]: found \"a[0]\"; allowed: a path",
        "policy.yaml:20: tests[0].expect: found \"denied\"; allowed: allow, require_approval or deny",
    ];
    assert_eq!(found.len(), expected.len(), "{found:#?}");
    for (found, expected) in found.iter().zip(expected) {
        assert!(found.starts_with(expected), "{found}\n{expected}");
    }
}

/// A called agent has no recipients, and no settings of a tool.
#[test]
fn a_rule_or_a_test_about_an_agent_says_nothing_that_only_tools_have() {
    let text = "\
rules:
  - name: a
    tools: [agent__researcher]
    when: recipients.size() > 1
    then: deny
    reason: because
  - {name: b, tools: agent__researcher, when: arguments.depth > 1, then: deny, reason: because}
tests:
  - name: t
    call: {tool: agent__researcher, recipients: [to], approval: never}
    expect: deny
";
    let found = errors(text);
    let expected = [
        "policy.yaml:4: rules[0].when: found \"recipients.size() > 1\"; allowed: a condition without `recipients`",
        "policy.yaml:10: tests[0].call.recipients: found a list; allowed: nothing: a call of an agent",
        "policy.yaml:10: tests[0].call.approval: found \"never\"; allowed: nothing: a call of an agent",
    ];
    assert_eq!(found.len(), expected.len(), "{found:#?}");
    for (found, expected) in found.iter().zip(expected) {
        assert!(found.starts_with(expected), "{found}\n{expected}");
    }
}

#[test]
fn invalid_yaml_and_names_given_twice_are_errors() {
    assert!(errors("rules: [")[0].starts_with("policy.yaml:"));
    assert!(errors("- a")[0].contains("the file: found a list"));
    let twice = "rules:\n- {name: a, tools: x, then: deny, reason: r}\n- {name: a, tools: x, then: deny, reason: r}\n";
    assert_eq!(
        errors(twice),
        ["policy.yaml:3: rules[1].name: found \"a\" a second time, after line 2; allowed: each name once"]
    );
    let unknown = "tests:\n- {name: t, call: {tool: x}, expect: deny, rule: b}\n";
    assert!(errors(unknown)[0].starts_with("policy.yaml:2: tests[0].rule: found \"b\"; allowed: the name of a rule"));
}

#[test]
fn a_star_matches_anything_and_no_other_character_is_special() {
    let applies = |pattern: &str, server: &str, tool: &str| {
        let text = format!("rules:\n- {{name: a, tools: ['{pattern}'], then: deny, reason: r}}\n");
        let policy = read(&text, "p").unwrap();
        let facts = Facts {
            server,
            tool,
            user: "u",
            agent: None,
            surface: "chat",
            arguments: &json!({}),
            recipients: None,
            session: SessionFacts::default(),
        };
        policy.rules[0].applies(&mut Evaluation::new(facts)).unwrap()
    };
    assert!(applies("gmail_send", "google", "gmail_send"));
    assert!(applies("google__gmail_send", "google", "gmail_send"));
    assert!(!applies("google__gmail_send", "evil", "gmail_send"));
    assert!(applies("gmail_*", "google", "gmail_send"));
    assert!(applies("google__*", "google", "gmail_send"));
    assert!(applies("*", "google", "files/read"));
    assert!(applies("**", "google", "a/b"));
    assert!(!applies("gmail_?end", "google", "gmail_send"));
    assert!(applies("a[b]", "s", "a[b]"));
    assert!(!applies("{a,b}", "s", "a"));
    assert!(!applies("gmail", "google", "gmail_send"));
    assert!(applies(r"CORP\ann", "s", r"CORP\ann") && applies(r"CORP\*", "s", r"CORP\ann"));
    assert!(!applies(r"CORP\ann", "s", "CORPann"));
    assert!(applies(r"[\]*?", "s", r"[\]x?") && !applies(r"[\]*?", "s", r"\xy"));
}

/// A server cannot gain the permissions of another server's tool through a tool name. A denied tool remains denied
/// by either name.
#[test]
fn a_bare_name_that_looks_like_another_servers_tool_lifts_nothing() {
    let applies = |then: &str, server: &str, tool: &str| {
        let text = format!("rules:\n- {{name: a, tools: 'google__*', then: {then}, reason: r}}\n");
        read(&text, "p").unwrap().rules[0].applies(&mut Evaluation::new(Facts {
            server,
            tool,
            user: "u",
            agent: None,
            surface: "chat",
            arguments: &json!({}),
            recipients: None,
            session: SessionFacts::default(),
        }))
    };
    for then in ["allow", "require_approval", "deny"] {
        assert_eq!(applies(then, "google", "gmail_send"), Ok(true), "{then}");
        assert_eq!(applies(then, "google", "odd__name"), Ok(true), "{then}");
        assert_eq!(
            applies(then, "evil", "google__gmail_send"),
            Ok(then != "allow"),
            "{then}"
        );
    }
}

/// A rule for a surface that does not exist would match nothing, and its own test would not reveal it.
#[test]
fn a_surface_that_does_not_exist_is_an_error() {
    let text = "\
rules:
- {name: a, tools: x, surfaces: [agent, threads], then: deny, reason: r}
- {name: b, tools: x, surfaces: 'api*', then: deny, reason: r}
- {name: c, tools: x, surfaces: ['*', chat, t*d], then: deny, reason: r}
tests:
- {name: t, call: {tool: x, surface: agents}, expect: deny}
- {name: u, call: {tool: x, surface: thread}, expect: deny}
";
    assert_eq!(
        errors(text),
        [
            "policy.yaml:2: rules[0].surfaces[1]: found \"threads\"; allowed: chat, agent, thread, planning, or * for any",
            "policy.yaml:3: rules[1].surfaces: found \"api*\"; allowed: chat, agent, thread, planning, or * for any",
            "policy.yaml:6: tests[0].call.surface: found \"agents\"; allowed: chat, agent, thread or planning",
        ]
    );
}

#[test]
fn a_rule_is_about_those_it_names() {
    let text =
        "rules:\n- {name: a, tools: x, agents: [w*], users: ann, surfaces: [agent, t*], then: deny, reason: r}\n";
    let policy = read(text, "p").unwrap();
    let applies = |agent, user, surface| {
        policy.rules[0].applies(&mut Evaluation::new(Facts {
            server: "s",
            tool: "x",
            user,
            agent,
            surface,
            arguments: &json!({}),
            recipients: None,
            session: SessionFacts::default(),
        }))
    };
    assert_eq!(applies(Some("workspace"), "ann", "agent"), Ok(true));
    assert_eq!(applies(Some("workspace"), "ann", "thread"), Ok(true));
    assert_eq!(applies(Some("other"), "ann", "agent"), Ok(false));
    assert_eq!(applies(None, "ann", "agent"), Ok(false));
    assert_eq!(applies(Some("workspace"), "bob", "agent"), Ok(false));
    assert_eq!(applies(Some("workspace"), "ann", "chat"), Ok(false));
}
