//! Runs the tests of a policy file.

use crate::domain::address::recipients;
use crate::domain::definition::DefinitionError;
use crate::domain::policy::{Case, DecidedBy, Effect, Facts, Policy};

use super::decision::{Question, rule};

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

/// Runs all tests of a policy.
#[must_use]
pub fn results(policy: &Policy) -> Vec<CaseResult<'_>> {
    policy.tests.iter().map(|case| result(policy, case)).collect()
}

/// The failing tests, as errors of the file.
#[must_use]
pub fn failures(policy: &Policy) -> Vec<DefinitionError> {
    let failed = results(policy).into_iter().filter(|result| !result.passed);
    failed
        .map(|result| DefinitionError {
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

fn result<'a>(policy: &Policy, case: &'a Case) -> CaseResult<'a> {
    let call = &case.call;
    let recipients = if call.recipients.is_empty() {
        None
    } else {
        match recipients(&call.recipients, &call.arguments, policy.most_recipients, || false) {
            Ok(checked) => Some(checked.recipients),
            Err(errors) => {
                return CaseResult {
                    case,
                    passed: case.expect == Effect::Deny && case.rule.is_none(),
                    found: format!("deny, before any rule is evaluated: {}", errors.join("; ")),
                };
            }
        }
    };
    let decision = rule(&Question {
        facts: Facts {
            server: &call.server,
            tool: &call.tool,
            user: &call.user,
            agent: call.agent.as_deref(),
            surface: call.surface,
            arguments: &call.arguments,
            recipients: recipients.as_ref(),
        },
        reaches_others: false,
        digest: "",
        tool: None,
        side_effect: call.side_effect,
        approval: call.approval,
        policy,
        grants: &[],
    });
    let by_rule = |name| decision.by.contains(&DecidedBy::Rule(name));
    let passed = decision.effect == case.expect && case.rule.clone().is_none_or(by_rule);
    let mut found = decision.effect.as_str().to_owned();
    if let Some(by) = decision.by.first() {
        found.push_str(&format!(" by {by}"));
    }
    if !decision.reason.is_empty() {
        found.push_str(&format!(" ({})", decision.reason));
    }
    CaseResult { case, passed, found }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

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

    #[test]
    fn tests_that_hold_are_no_mistakes() {
        let policy = Policy::read(POLICY, "policy.yaml").unwrap();
        assert_eq!(failures(&policy), []);
        assert_eq!(results(&policy).len(), 3);
    }

    /// The example on the page for operators is valid.
    #[test]
    fn the_example_of_the_documentation_is_right_and_its_tests_hold() {
        let page = include_str!("../../../docs/policy.md");
        let (_, rest) = page.split_once("```yaml\n").unwrap();
        let (example, _) = rest.split_once("```").unwrap();
        let policy = Policy::read(example, "policy.yaml").unwrap();
        assert_eq!(
            (policy.rules.len(), policy.tests.len(), policy.most_recipients),
            (3, 5, 20)
        );
        assert_eq!(failures(&policy), []);
    }

    #[test]
    fn a_test_that_fails_names_file_line_test_and_what_came_out() {
        let wrong = POLICY
            .replace("expect: allow\n    rule: colleagues", "expect: deny")
            .replace(
                "expect: require_approval",
                "expect: require_approval\n    rule: colleagues",
            )
            .replace("expect: deny\n\"", "expect: allow\n\"");
        let policy = Policy::read(&wrong, "policy.yaml").unwrap();
        let told: Vec<_> = failures(&policy).iter().map(ToString::to_string).collect();
        assert_eq!(
            told,
            [
                "policy.yaml:9: test \"a colleague\": found allow by rule colleagues; allowed: deny",
                "policy.yaml:12: test \"another recipient in cc\": found require_approval by side_effects (\"gmail_send\" has side \
                 effects and requires approval); allowed: require_approval by rule \"colleagues\"",
            ]
        );
    }
}
