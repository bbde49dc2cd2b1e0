//! Runs the tests of a policy file.

use std::sync::Arc;

use super::{Attempt, Decision, Facts, decide};
use crate::domain::canonical;
use crate::domain::definition::{Approval, ReadError};
use crate::domain::ids::TenantId;
use crate::domain::journal::{PolicyDecision, Proposed};
use crate::domain::policy::{AGENTS, Case, DecidedBy, Effect, Policy};
use crate::domain::tool::Tool;
use crate::domain::tool_settings::ToolSettings;

/// The result of one test.
#[derive(Clone, Debug)]
pub struct CaseResult<'a> {
    /// The test.
    pub case: &'a Case,
    /// Is the result as expected?
    pub passed: bool,
    /// The actual effect, what decided it, and the reason.
    pub found: String,
}

/// Runs all tests of a policy. `floor` returns the least approval that the surface of a name demands.
pub fn results(policy: &Arc<Policy>, floor: impl Fn(&str) -> Approval) -> Vec<CaseResult<'_>> {
    let tests = policy.tests.iter();
    tests
        .map(|case| result(policy, case, floor(case.call.surface)))
        .collect()
}

/// The failing tests, as errors of the file.
pub fn failures(policy: &Arc<Policy>, floor: impl Fn(&str) -> Approval) -> Vec<ReadError> {
    let failed = results(policy, floor).into_iter().filter(|result| !result.passed);
    failed
        .map(|result| ReadError {
            file: policy.file.to_string(),
            line: Some(result.case.line),
            field: format!("test {:?}", result.case.name),
            found: result.found,
            allowed: match &result.case.rule {
                None => result.case.expect.as_str().to_owned(),
                Some(rule) => format!("{} by rule {rule:?}", result.case.expect.as_str()),
            },
        })
        .collect()
}

fn result<'a>(policy: &Arc<Policy>, case: &'a Case, floor: Approval) -> CaseResult<'a> {
    let call = &case.call;
    // Only rules decide on a call of an agent.
    let is_agent = &*call.server == AGENTS;
    let tool = Tool {
        side_effect: call.side_effect && !is_agent,
        settings: ToolSettings {
            recipients: call.recipients.clone(),
            ..ToolSettings::default()
        },
        ..Tool::named(&call.server, &call.tool)
    };
    let facts = Facts {
        agent: call.agent.clone(),
        approval: if is_agent { Approval::Never } else { call.approval },
        floor,
        bound: Some(Arc::new(call.session.clone())),
        ..Facts::new(TenantId::default(), call.user.clone(), call.surface, Arc::clone(policy))
    };
    let call = Proposed::of(&Arc::new(tool), canonical::to_raw(&call.arguments));
    let decision = decide(&call, &facts, None, Attempt::First);
    let Some(answer) = &decision.answer else {
        return CaseResult {
            case,
            passed: case.expect == Effect::Deny && case.rule.is_none(),
            found: format!("deny, before any rule is evaluated: {}", message(&decision)),
        };
    };
    let by_rule = |name| answer.by.contains(&DecidedBy::Rule(name));
    let passed = answer.effect == case.expect && case.rule.clone().is_none_or(by_rule);
    let mut found = answer.effect.as_str().to_owned();
    if let Some(by) = answer.by.first() {
        found.push_str(&format!(" by {by}"));
    }
    if !answer.reason.is_empty() {
        found.push_str(&format!(" ({})", answer.reason));
    }
    CaseResult { case, passed, found }
}

fn message(decision: &Decision) -> &str {
    match &decision.outcome {
        PolicyDecision::Refuse { message, .. } => message,
        PolicyDecision::Allow { .. } | PolicyDecision::RequireApproval { .. } => "",
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn floor(surface: &str) -> Approval {
        match surface {
            "thread" => Approval::SideEffects,
            _ => Approval::Never,
        }
    }

    const POLICY: &str = r#"
rules:
  - name: colleagues
    tools: [google__gmail_send]
    when: recipients.all(r, r.endsWith("@example.org"))
    then: allow
    reason: mail inside the company requires no approval
tests:
  - name: a colleague
    call: {tool: google__gmail_send, recipients: [to, cc], arguments: {to: [bo@example.org]}}
    expect: allow
    rule: colleagues
  - name: another recipient in cc
    call: {tool: google__gmail_send, recipients: [to, cc], arguments: {to: [bo@example.org], cc: [eve@x.org]}}
    expect: require_approval
  - name: no address
    call: {tool: google__gmail_send, recipients: [to], arguments: {to: [bo]}}
    expect: deny
"#;

    /// R-10, R-11: tests can name agents that are called and the session of a run, and a surface's least approval holds
    /// in them as in a run.
    #[test]
    fn a_test_decides_as_a_run_would() {
        let text = r#"
rules:
  - {name: no-shell, tools: [agent__shell], agents: [planner], then: deny, reason: planners do not run commands}
  - {name: ours, tools: [createIssue], when: session.repo != "dates", then: deny, reason: only in dates}
  - {name: seen, tools: [researcher], then: require_approval, reason: research costs money}
tests:
  - {name: denied, call: {tool: agent__shell, agent: planner}, expect: deny, rule: no-shell}
  - {name: another agent may, call: {tool: agent__shell, agent: worker}, expect: allow}
  - {name: asked, call: {tool: agent__researcher}, expect: require_approval, rule: seen}
  - {name: a tool of that name, call: {tool: shell, approval: never}, expect: allow}
  - {name: in dates, call: {tool: createIssue, surface: planning, session: {owner: acme, repo: dates}, approval: never}, expect: allow}
  - {name: elsewhere, call: {tool: createIssue, surface: planning, session: {repo: other}}, expect: deny, rule: ours}
  - {name: no session, call: {tool: createIssue}, expect: deny, rule: ours}
  - {name: in a thread, call: {tool: shell, surface: thread, approval: never}, expect: require_approval}
"#;
        let policy = Arc::new(Policy::read(text, "policy.yaml").unwrap());
        assert_eq!(failures(&policy, floor), []);
    }

    #[test]
    fn tests_that_hold_are_no_errors() {
        let policy = Arc::new(Policy::read(POLICY, "policy.yaml").unwrap());
        assert_eq!(failures(&policy, floor), []);
        assert_eq!(results(&policy, floor).len(), 3);
    }

    /// The example on the page for operators is valid.
    #[test]
    fn the_example_of_the_documentation_is_right_and_its_tests_hold() {
        let page = include_str!("../../../../docs/how-to/write-a-policy.md");
        let (_, rest) = page.split_once("```yaml\n").unwrap();
        let (example, _) = rest.split_once("```").unwrap();
        let policy = Arc::new(Policy::read(example, "policy.yaml").unwrap());
        assert_eq!(
            (policy.rules.len(), policy.tests.len(), policy.most_recipients),
            (3, 5, 20)
        );
        assert_eq!(failures(&policy, floor), []);
    }

    #[test]
    fn a_test_that_fails_names_file_line_test_and_what_came_out() {
        let invalid = POLICY
            .replace("expect: allow\n    rule: colleagues", "expect: deny")
            .replace(
                "expect: require_approval",
                "expect: require_approval\n    rule: colleagues",
            )
            .replace("expect: deny\n\"", "expect: allow\n\"");
        let policy = Arc::new(Policy::read(&invalid, "policy.yaml").unwrap());
        let reported: Vec<_> = failures(&policy, floor).iter().map(ToString::to_string).collect();
        assert_eq!(
            reported,
            [
                "policy.yaml:9: test \"a colleague\": found allow by rule colleagues; allowed: deny",
                "policy.yaml:12: test \"another recipient in cc\": found require_approval by side_effects (\"gmail_send\" sends \
                 something to other people); allowed: require_approval by rule \"colleagues\"",
            ]
        );
    }
}
