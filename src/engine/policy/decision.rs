//! What may become of a call whose parameters are right: the answers of all checks, and what they come to together.
//!
//! In this order: a deny wins. Else leave is needed if the tool's setting, the agent's definition or a rule asks for it,
//! or because of side effects where no rule allows the call; nor the tool's setting, which in threads allows none. Leave that a person has given for good, to exactly these
//! recipients, is leave. A rule that cannot be evaluated denies, whatever it would have answered. Where it is not certain whom a call
//! reaches, a rule that looks at recipients does not allow it, and one that would be stricter asks.

use crate::domain::definition::Approval;
use crate::domain::policy::{DecidedBy, Effect, Evaluation, Facts, Grant, Policy, THREAD};
use crate::domain::tool::ApprovalDefault;

/// All that a ruling depends on.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// The call.
    pub facts: Facts<'a>,
    /// May it reach others than its recipients?
    pub reaches_others: bool,
    /// Of the tool's definition.
    pub digest: &'a str,
    /// The tool's own setting.
    pub tool: Option<ApprovalDefault>,
    /// Does a call change something?
    pub side_effect: bool,
    /// The definition's rule.
    pub approval: Approval,
    /// The operator's rules.
    pub policy: &'a Policy,
    /// What people have allowed for good.
    pub grants: &'a [Grant],
}

/// What one check answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// Which check.
    pub by: DecidedBy,
    /// Its answer.
    pub says: Effect,
    /// Why, in words.
    pub reason: String,
}

/// What all checks come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The answer.
    pub effect: Effect,
    /// What decided it; empty where nothing asked for leave.
    pub by: Vec<DecidedBy>,
    /// Why, in words for people and models; empty where it is allowed.
    pub reason: String,
    /// Every check that had something to say, in the order of this list.
    pub checks: Vec<Check>,
}

/// Rules on a call.
#[must_use]
pub fn rule(question: &Question<'_>) -> Decision {
    let mut checks = Vec::new();
    defaults(question, &mut checks);
    rules(question, &mut checks);
    grants(question, &mut checks);
    decide(checks)
}

/// What the tool, the definition and the side effects say.
fn defaults(question: &Question<'_>, checks: &mut Vec<Check>) {
    let tool = question.facts.tool;
    let mut says = |by, says, reason| checks.push(Check { by, says, reason });
    match question.tool {
        Some(ApprovalDefault::Required) => says(
            DecidedBy::Tool,
            Effect::RequireApproval,
            format!("{tool:?} is configured to need a person's approval"),
        ),
        // In threads side effects need leave whatever a setting says: only a rule or a person allows one.
        Some(ApprovalDefault::NotRequired) if question.facts.surface != THREAD => says(
            DecidedBy::Tool,
            Effect::Allow,
            format!("{tool:?} is configured to need nobody's approval"),
        ),
        Some(ApprovalDefault::NotRequired) | None => {}
    }
    match question.approval {
        Approval::Always => says(
            DecidedBy::Definition,
            Effect::RequireApproval,
            "every call of this agent needs a person's approval".to_owned(),
        ),
        Approval::SideEffects if question.side_effect && question.tool != Some(ApprovalDefault::Required) => says(
            DecidedBy::SideEffects,
            Effect::RequireApproval,
            format!("{tool:?} has side effects and needs a person's approval"),
        ),
        Approval::SideEffects | Approval::Never => {}
    }
}

fn rules(question: &Question<'_>, checks: &mut Vec<Check>) {
    let mut evaluation = Evaluation::new(question.facts);
    for rule in &question.policy.rules {
        let uncertain = question.reaches_others && rule.looks_at_recipients();
        let (says, reason) = match rule.applies(&mut evaluation) {
            Ok(true) if uncertain && rule.then == Effect::Allow => continue,
            Ok(false) if uncertain && rule.then != Effect::Allow && rule.is_about(&question.facts) => {
                (Effect::RequireApproval, format!("{REACHES_OTHERS}: {}", rule.reason))
            }
            Ok(false) => continue,
            Ok(true) => (rule.then, rule.reason.to_string()),
            Err(error) => (Effect::Deny, format!("it cannot be evaluated for this call: {error}")),
        };
        checks.push(Check {
            by: DecidedBy::Rule(rule.name.clone()),
            says,
            reason,
        });
    }
}

const REACHES_OTHERS: &str = "it is not certain whom this reaches, since an argument that the tool's schema does not name holds what \
    could be an address";

fn grants(question: &Question<'_>, checks: &mut Vec<Check>) {
    let facts = &question.facts;
    let Some(recipients) = facts.recipients else { return };
    let covers = |grant: &&Grant| grant.covers(facts.user, facts.server, facts.tool, question.digest, recipients);
    if let Some(grant) = question.grants.iter().find(covers) {
        checks.push(Check {
            by: DecidedBy::Grant(grant.id.clone()),
            says: Effect::Allow,
            reason: "the user has allowed this tool for exactly these recipients".to_owned(),
        });
    }
}

fn decide(checks: Vec<Check>) -> Decision {
    let of = |says: Effect| checks.iter().filter(move |check| check.says == says);
    let permits = |check: &&Check| matches!(check.by, DecidedBy::Rule(_) | DecidedBy::Tool);
    let is_grant = |check: &&Check| matches!(check.by, DecidedBy::Grant(_));
    let allowing = of(Effect::Allow).find(permits);
    let denies: Vec<_> = of(Effect::Deny).collect();
    let asks: Vec<_> = of(Effect::RequireApproval)
        .filter(|check| allowing.is_none() || check.by != DecidedBy::SideEffects)
        .collect();
    let (effect, deciding) = if !denies.is_empty() {
        (Effect::Deny, denies)
    } else if asks.is_empty() {
        // Without it, would leave have been needed?
        let needed = of(Effect::RequireApproval).next().is_some();
        (Effect::Allow, allowing.into_iter().filter(|_| needed).collect())
    } else if let Some(grant) = of(Effect::Allow).find(is_grant) {
        (Effect::Allow, vec![grant])
    } else {
        (Effect::RequireApproval, asks)
    };
    let reason = match effect {
        Effect::Allow => String::new(),
        Effect::RequireApproval => joined(&deciding),
        Effect::Deny => format!("denied by the policy: {}", joined(&deciding)),
    };
    Decision {
        effect,
        by: deciding.iter().map(|check| check.by.clone()).collect(),
        reason,
        checks,
    }
}

/// Rules are named, so that whoever reads it finds the rule.
fn joined(checks: &[&Check]) -> String {
    let words: Vec<_> = checks
        .iter()
        .map(|check| match &check.by {
            DecidedBy::Rule(name) => format!("{} (rule {name:?})", check.reason),
            _ => check.reason.clone(),
        })
        .collect();
    words.join("; ")
}

#[cfg(test)]
#[path = "decision_tests.rs"]
mod tests;
