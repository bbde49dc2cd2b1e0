#![allow(clippy::unwrap_used)]

use std::fmt::Write;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::domain::address::{Recipients, recipients};
use crate::domain::argument_path::ArgumentPath;
use crate::domain::policy::SessionFacts;

fn set(addresses: &[&str]) -> Recipients {
    let to = [ArgumentPath::parse("to").unwrap()];
    recipients(&to, &json!({"to": addresses}), 50, || false)
        .unwrap()
        .recipients
}

fn grant(addresses: &[&str]) -> Grant {
    Grant {
        id: "g".into(),
        user: "ann".into(),
        server: "google".into(),
        tool: "gmail_send".into(),
        digest: "as it was".into(),
        recipients: set(addresses),
    }
}

/// A policy whose rules have these effects, and, if `broken`, one rule that cannot be evaluated.
fn policy(says: &[Effect], broken: bool) -> Policy {
    let mut text = "rules:\n".to_owned();
    for (n, says) in says.iter().enumerate() {
        writeln!(
            text,
            "- {{name: r{n}, tools: gmail_send, then: {}, reason: because {n}}}",
            says.as_str()
        )
        .unwrap();
    }
    if broken {
        text.push_str("- {name: broken, tools: gmail_send, when: arguments.none == 1, then: allow, reason: r}\n");
    }
    Policy::read(&text, "policy.yaml").unwrap()
}

/// One call of `gmail_send` on `google` by `ann`.
fn decision_on(
    tool: Option<ApprovalDefault>,
    side_effect: bool,
    approval: Approval,
    policy: &Policy,
    to: Option<&Recipients>,
    grants: &[Grant],
) -> Answer {
    answered(Approval::Never, tool, side_effect, approval, policy, to, grants)
}

fn answered(
    floor: Approval,
    tool: Option<ApprovalDefault>,
    side_effect: bool,
    approval: Approval,
    policy: &Policy,
    to: Option<&Recipients>,
    grants: &[Grant],
) -> Answer {
    answer(&Question {
        facts: Facts {
            server: "google",
            tool: "gmail_send",
            user: "ann",
            agent: None,
            surface: "agent",
            arguments: &Value::Object(serde_json::Map::new()),
            recipients: to,
            session: SessionFacts::default(),
        },
        uncertain: false,
        digest: "as it was",
        tool,
        side_effect,
        approval,
        floor,
        policy,
        grants,
        plan: None,
        effects: &[],
        sends: None,
    })
}

const TOOL: [Option<ApprovalDefault>; 3] = [
    None,
    Some(ApprovalDefault::Required),
    Some(ApprovalDefault::NotRequired),
];
const MODES: [Approval; 3] = [Approval::Never, Approval::SideEffects, Approval::Always];

/// Every combination of hint, setting, definition, rules and grant, against the order that the module page states.
///
/// R-10, R-11
#[test]
fn the_strictest_wins_in_every_combination() {
    let all_rules: [&[Effect]; 8] = [
        &[],
        &[Effect::Allow],
        &[Effect::RequireApproval],
        &[Effect::Deny],
        &[Effect::Allow, Effect::RequireApproval],
        &[Effect::Allow, Effect::Deny],
        &[Effect::RequireApproval, Effect::Deny],
        &[Effect::Deny, Effect::Allow, Effect::RequireApproval],
    ];
    let to = set(&["bo@x.org"]);
    let mut seen = 0;
    for (floor, tool) in MODES.into_iter().flat_map(|floor| TOOL.map(|tool| (floor, tool))) {
        for side_effect in [false, true] {
            for approval in MODES {
                for rules in all_rules {
                    for broken in [false, true] {
                        for granted in [false, true] {
                            let grants = if granted { vec![grant(&["bo@x.org"])] } else { vec![] };
                            let policy = policy(rules, broken);
                            let decision = answered(floor, tool, side_effect, approval, &policy, Some(&to), &grants);
                            let lifted = tool == Some(ApprovalDefault::NotRequired) && floor == Approval::Never;
                            let approval = approval.max(floor);
                            let default = approval == Approval::SideEffects && side_effect && !lifted;
                            let asked = tool == Some(ApprovalDefault::Required)
                                || approval == Approval::Always
                                || rules.contains(&Effect::RequireApproval)
                                || (default && !rules.contains(&Effect::Allow));
                            let expected = if broken || rules.contains(&Effect::Deny) {
                                Effect::Deny
                            } else if asked && !granted {
                                Effect::RequireApproval
                            } else {
                                Effect::Allow
                            };
                            assert_eq!(
                                decision.effect, expected,
                                "{floor:?} {tool:?} {side_effect} {approval:?} {rules:?} {broken} {granted}: {decision:?}"
                            );
                            assert_eq!(decision.reason.is_empty(), expected == Effect::Allow);
                            seen += 1;
                        }
                    }
                }
            }
        }
    }
    assert_eq!(seen, 3 * 3 * 2 * 3 * 8 * 2 * 2);
}

/// R-17: an answer names what decided it, and nothing else.
#[test]
fn an_answer_names_what_decided_it() {
    let to = set(&["bo@x.org"]);
    let none = Policy::default();
    let by = |tool, approval, policy: &Policy, grants: &[Grant]| {
        let decision = decision_on(tool, true, approval, policy, Some(&to), grants);
        let by: Vec<_> = decision.by.iter().map(ToString::to_string).collect();
        by.join(", ")
    };
    assert_eq!(by(None, Approval::Never, &none, &[]), "");
    assert_eq!(by(None, Approval::SideEffects, &none, &[]), "side_effects");
    assert_eq!(
        by(Some(ApprovalDefault::Required), Approval::Always, &none, &[]),
        "tool, definition"
    );
    let lifted = Some(ApprovalDefault::NotRequired);
    assert_eq!(by(lifted, Approval::SideEffects, &none, &[]), "tool");
    assert_eq!(by(lifted, Approval::Never, &none, &[]), "", "nothing required approval");
    let allow = policy(&[Effect::Allow], false);
    assert_eq!(by(None, Approval::SideEffects, &allow, &[]), "rule r0");
    assert_eq!(by(None, Approval::Never, &allow, &[]), "", "nothing required approval");
    let both = policy(&[Effect::Allow, Effect::RequireApproval], false);
    assert_eq!(by(None, Approval::SideEffects, &both, &[]), "rule r1");
    assert_eq!(
        by(None, Approval::SideEffects, &both, &[grant(&["bo@x.org"])]),
        "grant g"
    );
    let decision = decision_on(
        None,
        true,
        Approval::SideEffects,
        &policy(&[Effect::Allow, Effect::Deny], true),
        Some(&to),
        &[],
    );
    assert!(
        decision
            .reason
            .starts_with("denied by the policy: because 1 (rule \"r1\"); it cannot be evaluated for this call: ")
            && decision.reason.ends_with("(rule \"broken\")"),
        "{}",
        decision.reason
    );
    assert_eq!(decision.checks.len(), 4);
}

/// A grant is for a user, a tool and an exact set of recipients.
#[test]
fn a_grant_covers_exactly_what_it_names() {
    let none = Policy::default();
    let of = |grant: Grant, to: &[&str]| {
        decision_on(None, true, Approval::SideEffects, &none, Some(&set(to)), &[grant]).effect == Effect::Allow
    };
    let both = ["bo@x.org", "cy@x.org"];
    assert!(of(grant(&both), &["Cy <cy@X.org>", "bo@x.org", "bo@x.org"]));
    assert!(!of(grant(&both), &["bo@x.org", "cy@x.org", "eve@x.org"]));
    assert!(!of(grant(&both), &["bo@x.org"]));
    assert!(!of(grant(&both), &[]));
    assert!(!of(grant(&[]), &[]), "an empty set of recipients has no grant");
    let other = |change: fn(&mut Grant)| {
        let mut grant = grant(&both);
        change(&mut grant);
        of(grant, &both)
    };
    assert!(!other(|grant| grant.user = "bob".into()));
    assert!(!other(|grant| grant.tool = "gmail_draft".into()));
    assert!(!other(|grant| grant.server = "evil".into()));
    let hidden = [ArgumentPath::parse("bcc").unwrap()];
    let hidden = recipients(&hidden, &json!({"bcc": both}), 50, || false)
        .unwrap()
        .recipients;
    assert_eq!(hidden.all(), set(&both).all());
    let decision = decision_on(None, true, Approval::SideEffects, &none, Some(&hidden), &[grant(&both)]);
    assert_eq!(
        decision.effect,
        Effect::RequireApproval,
        "the same, in another argument"
    );
    let decision = decision_on(None, true, Approval::SideEffects, &none, None, &[grant(&both)]);
    assert_eq!(decision.effect, Effect::RequireApproval, "a tool without recipients");
}

fn effects() -> impl Strategy<Value = Vec<Effect>> {
    let effect = prop_oneof![Just(Effect::Allow), Just(Effect::RequireApproval), Just(Effect::Deny)];
    prop::collection::vec(effect, 0..4)
}

fn people() -> impl Strategy<Value = Vec<String>> {
    prop::collection::vec("[a-e]@(x|y)\\.org", 0..5)
}

fn set_of(people: &[String]) -> Recipients {
    set(&people.iter().map(String::as_str).collect::<Vec<_>>())
}

/// R-10, R-12: if the schema does not describe every argument, a rule about recipients does not decide alone.
#[test]
fn a_rule_about_recipients_is_not_the_last_word_where_others_may_be_reached() {
    let ours = set(&["bob@x.org"]);
    let asks = |then: &str, when: &str, uncertain: bool| {
        let rule_text =
            format!("rules:\n- {{name: r, tools: gmail_send, when: '{when}', then: {then}, reason: because}}\n");
        let policy = Policy::read(&rule_text, "policy.yaml").unwrap();
        let arguments = json!({});
        let question = |approval| Question {
            facts: Facts {
                server: "google",
                tool: "gmail_send",
                user: "ann",
                agent: None,
                surface: "agent",
                arguments: &arguments,
                recipients: Some(&ours),
                session: SessionFacts::default(),
            },
            uncertain,
            digest: "as it was",
            tool: None,
            side_effect: true,
            approval,
            floor: Approval::Never,
            policy: &policy,
            grants: &[],
            plan: None,
            effects: &[],
            sends: None,
        };
        [Approval::SideEffects, Approval::Never].map(|approval| answer(&question(approval)).effect)
    };
    use Effect::{Allow, Deny, RequireApproval as Ask};
    let all_ours = r#"recipients.all(r, r.endsWith("@x.org"))"#;
    let others = r#"recipients.exists(r, !r.endsWith("@x.org"))"#;
    for (then, when, certain, uncertain) in [
        ("allow", all_ours, [Allow, Allow], [Ask, Allow]),
        ("deny", others, [Ask, Allow], [Ask, Ask]),
        ("require_approval", others, [Ask, Allow], [Ask, Ask]),
        ("deny", all_ours, [Deny, Deny], [Deny, Deny]),
        // A rule that does not look at recipients is certain.
        ("allow", "user == \"ann\"", [Allow, Allow], [Allow, Allow]),
        ("deny", "user == \"bob\"", [Ask, Allow], [Ask, Allow]),
    ] {
        assert_eq!(asks(then, when, false), certain, "{then} when {when}");
        assert_eq!(asks(then, when, true), uncertain, "{then} when {when}, uncertain");
    }
}

/// R-10, R-11: "all recipients are ours" holds for an empty set, but must not allow a call without recipients.
#[test]
fn a_rule_about_recipients_allows_no_call_without_recipients() {
    let rule = |when: &str, then: &str| {
        let text =
            format!("rules:\n- {{name: r, tools: google__gmail_send, when: '{when}', then: {then}, reason: r}}\n");
        Policy::read(&text, "policy.yaml").unwrap()
    };
    let ours = r#"recipients.all(r, r.endsWith("@x.org"))"#;
    let mode = Approval::SideEffects;
    for (when, then, to, effect) in [
        (ours, "allow", &["a@x.org"][..], Effect::Allow),
        (ours, "allow", &[], Effect::RequireApproval),
        ("true", "allow", &[], Effect::Allow),
        (ours, "deny", &[], Effect::Deny),
    ] {
        let decision = decision_on(None, true, mode, &rule(when, then), Some(&set(to)), &[]);
        assert_eq!(decision.effect, effect, "{when} {then} {to:?}");
    }
}

proptest! {
    /// R-10: one more rule that asks or denies, a stricter mode, a stricter setting, or a side effect never makes the
    /// answer laxer.
    #[test]
    fn a_stricter_input_never_gives_a_laxer_answer(
        rules in effects(), tool in 0usize..3, mode in 0usize..3, side_effect: bool, granted: bool, extra in 1usize..3,
    ) {
        let to = set(&["bo@x.org"]);
        let grants = if granted { vec![grant(&["bo@x.org"])] } else { vec![] };
        let answer = |tool, side_effect, mode, rules: &[Effect], broken, grants: &[Grant]| {
            decision_on(tool, side_effect, mode, &policy(rules, broken), Some(&to), grants).effect
        };
        let before = answer(TOOL[tool], side_effect, MODES[mode], &rules, false, &grants);
        let mut more = rules.clone();
        more.push(if extra == 1 { Effect::RequireApproval } else { Effect::Deny });
        prop_assert!(answer(TOOL[tool], side_effect, MODES[mode], &more, false, &grants) >= before);
        prop_assert!(answer(TOOL[tool], true, MODES[mode], &rules, false, &grants) >= before);
        prop_assert!(answer(TOOL[tool], side_effect, MODES[2], &rules, false, &grants) >= before);
        prop_assert!(answer(TOOL[1], side_effect, MODES[mode], &rules, false, &grants) >= before);
        prop_assert!(answer(TOOL[tool], side_effect, MODES[mode], &rules, false, &[]) >= before);
        prop_assert_eq!(answer(TOOL[tool], side_effect, MODES[mode], &rules, true, &grants), Effect::Deny);
        let reversed: Vec<_> = rules.iter().rev().copied().collect();
        prop_assert_eq!(answer(TOOL[tool], side_effect, MODES[mode], &reversed, false, &grants), before);
    }

    #[test]
    fn a_grant_never_lifts_a_deny(rules in effects(), people in people()) {
        let to = set_of(&people);
        let grants = [Grant { recipients: to.clone(), ..grant(&[]) }];
        let mut rules = rules;
        rules.push(Effect::Deny);
        for mode in MODES {
            prop_assert_eq!(decision_on(None, true, mode, &policy(&rules, false), Some(&to), &grants).effect, Effect::Deny);
        }
    }

    /// R-15. Promise: exact approvals. A grant is for the tool as it was.
    #[test]
    fn a_grant_covers_no_other_definition(people in people()) {
        let to = set_of(&people);
        let other = Grant { digest: "another".into(), recipients: to.clone(), ..grant(&[]) };
        let decision = decision_on(None, true, Approval::SideEffects, &Policy::default(), Some(&to), &[other]);
        prop_assert_eq!(decision.effect, Effect::RequireApproval);
    }

    /// R-15: a grant does not cover an added recipient, in any argument.
    #[test]
    fn one_more_recipient_never_passes_by_a_grant(people in people(), more in "[a-h]@(x|z)\\.org") {
        let granted = set_of(&people);
        let grants = [Grant { recipients: granted.clone(), ..grant(&[]) }];
        let mut asked = people.clone();
        asked.push(more.clone());
        let asked = set_of(&asked);
        let allowed = decision_on(None, true, Approval::SideEffects, &Policy::default(), Some(&asked), &grants).effect == Effect::Allow;
        prop_assert_eq!(allowed, people.contains(&more), "{:?} + {}", people, more);
    }
}
