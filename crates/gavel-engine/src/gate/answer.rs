//! The answers of all checks on a call with valid arguments, and how they combine.
//!
//! A deny wins. Otherwise approval is required if the tool's setting, the agent's definition or a rule asks for it. It
//! is also required for side effects, unless a rule or the tool's setting allows the call; the tool's setting cannot
//! where the surface demands that approval. The confirmed plan of a planning session allows like a rule what it
//! names. A grant for exactly these recipients replaces the approval. A rule
//! that cannot be evaluated denies, whatever its effect. If the recipients are uncertain, a rule about recipients does
//! not allow the call, and a stricter one requires approval.

use serde::Serialize;

use crate::domain::definition::Approval;
use crate::domain::policy::{DecidedBy, Effect, Evaluation, Facts, Grant, Lost, Policy};
use crate::domain::tool::ApprovalDefault;

/// What the checks read.
#[derive(Clone, Copy)]
pub(super) struct Question<'a> {
    /// The call.
    pub(super) facts: Facts<'a>,
    /// May the call reach others than its recipients?
    pub(super) uncertain: bool,
    /// The digest of the tool's definition.
    pub(super) digest: &'a str,
    /// The tool's own setting.
    pub(super) tool: Option<ApprovalDefault>,
    /// Does the call have side effects?
    pub(super) side_effect: bool,
    /// The approval mode of the definition.
    pub(super) approval: Approval,
    /// The least approval that the surface demands.
    pub(super) floor: Approval,
    /// The operator's policy.
    pub(super) policy: &'a Policy,
    /// The grants that may cover the call.
    pub(super) grants: &'a [Grant],
    /// What the confirmed plan says about the call, if the run works on one.
    pub(super) plan: Option<&'a InPlan>,
    /// The other tools of the server whose effect the call has.
    pub(super) effects: &'a [&'a str],
    /// What a call that only reads would carry out of a planning session. It counts as sending; no plan allows it.
    pub(super) sends: Option<&'a str>,
}

/// The answer of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// Which check.
    pub by: DecidedBy,
    /// Its answer.
    pub says: Effect,
    /// The reason, in words.
    pub reason: String,
}

/// The combined answer of all checks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The effect.
    pub effect: Effect,
    /// What decided it; empty if nothing required approval.
    pub by: Vec<DecidedBy>,
    /// The reason, in words for users and models; empty if the call is allowed.
    pub reason: String,
    /// Every check with an answer, in the order of this list.
    pub checks: Vec<Check>,
}

impl Answer {
    /// The checks that answered otherwise than all of them together.
    pub fn lost(&self) -> impl Iterator<Item = Lost> {
        let lost = self.checks.iter().filter(|check| check.says != self.effect);
        lost.map(|check| Lost {
            by: check.by.to_string(),
            says: check.says,
        })
    }
}

/// What the confirmed plan says about a call with side effects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum InPlan {
    /// The person who confirmed the plan asks for an approval of every call of this tool.
    Asks,
    /// The plan allows it.
    Within,
    /// It does not: why.
    Outside(String),
}

/// Asks all checks.
pub(super) fn answer(question: &Question<'_>) -> Answer {
    let mut checks = Vec::new();
    defaults(question, &mut checks);
    plan(question, &mut checks);
    rules(question, &mut checks);
    grants(question, &mut checks);
    combine(checks)
}

/// The answers of the tool's setting, the definition and the side effects.
fn defaults(question: &Question<'_>, checks: &mut Vec<Check>) {
    let tool = question.facts.tool;
    let mut says = |by, says, reason| checks.push(Check { by, says, reason });
    match question.tool {
        Some(ApprovalDefault::Required) => says(
            DecidedBy::Tool,
            Effect::RequireApproval,
            format!("{tool:?} is configured to require approval"),
        ),
        // Where the surface demands approval of side effects, only a rule or an approver allows one.
        Some(ApprovalDefault::NotRequired) if question.floor == Approval::Never => says(
            DecidedBy::Tool,
            Effect::Allow,
            format!("{tool:?} is configured to require no approval"),
        ),
        Some(ApprovalDefault::NotRequired) | None => {}
    }
    for effect in question
        .effects
        .iter()
        .filter(|_| question.tool != Some(ApprovalDefault::Required))
    {
        says(
            DecidedBy::Tool,
            Effect::RequireApproval,
            format!("these arguments of {tool:?} have the effect of {effect:?}, which requires approval"),
        );
    }
    match question.approval.max(question.floor) {
        Approval::Always => says(
            DecidedBy::Definition,
            Effect::RequireApproval,
            "every call of this agent requires approval".to_owned(),
        ),
        Approval::SideEffects if question.side_effect && question.tool != Some(ApprovalDefault::Required) => says(
            DecidedBy::SideEffects,
            Effect::RequireApproval,
            match question.plan {
                Some(InPlan::Outside(why)) => {
                    format!(
                        "{tool:?} {}, and the confirmed plan does not allow it: {why}",
                        effect(question)
                    )
                }
                _ => format!("{tool:?} {}", effect(question)),
            },
        ),
        Approval::SideEffects | Approval::Never => {}
    }
    if let Some(sends) = question.sends {
        says(
            DecidedBy::SideEffects,
            Effect::RequireApproval,
            format!("{tool:?} {sends}"),
        );
    }
}

/// What a call does that has side effects, as far as gavel knows.
fn effect(question: &Question<'_>) -> &'static str {
    let recipients = question.facts.recipients;
    match recipients.is_some_and(|recipients| !recipients.all().is_empty()) {
        true => "sends something to other people",
        false => "changes something outside gavel",
    }
}

/// The confirmed plan: an approval of what it names, as strong as a rule, and no stronger than a tool's own setting.
fn plan(question: &Question<'_>, checks: &mut Vec<Check>) {
    let tool = question.facts.tool;
    let (by, says, reason) = match question.plan {
        Some(InPlan::Asks) => (
            DecidedBy::Session,
            Effect::RequireApproval,
            format!("the confirmation of the plan asks for an approval of every call of {tool:?}"),
        ),
        Some(InPlan::Within) => (
            DecidedBy::Plan,
            Effect::Allow,
            format!("{tool:?} is a tool of the confirmed plan, within its repository"),
        ),
        Some(InPlan::Outside(_)) | None => return,
    };
    checks.push(Check { by, says, reason });
}

/// The rules about the tool, and those that restrict another one whose effect the call has.
fn rules(question: &Question<'_>, checks: &mut Vec<Check>) {
    rules_about(question, question.facts, checks);
    for effect in question.effects {
        let mut others = Vec::new();
        rules_about(
            question,
            Facts {
                tool: effect,
                ..question.facts
            },
            &mut others,
        );
        others.retain(|check| check.says != Effect::Allow && !checks.contains(check));
        checks.append(&mut others);
    }
}

fn rules_about(question: &Question<'_>, facts: Facts<'_>, checks: &mut Vec<Check>) {
    let mut evaluation = Evaluation::new(facts);
    for rule in &question.policy.rules {
        let uncertain = question.uncertain && rule.looks_at_recipients();
        let (says, reason) = match rule.applies(&mut evaluation) {
            Ok(true) if uncertain && rule.then == Effect::Allow => continue,
            Ok(false) if uncertain && rule.then != Effect::Allow && rule.is_about(&facts) => {
                (Effect::RequireApproval, format!("{UNCERTAIN}: {}", rule.reason))
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

const UNCERTAIN: &str =
    "the recipients are uncertain, since the tool's schema does not describe every argument of this call";

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

fn combine(checks: Vec<Check>) -> Answer {
    let of = |says: Effect| checks.iter().filter(move |check| check.says == says);
    let permits = |check: &&Check| matches!(check.by, DecidedBy::Rule(_) | DecidedBy::Tool | DecidedBy::Plan);
    let is_grant = |check: &&Check| matches!(check.by, DecidedBy::Grant(_));
    let allowing = of(Effect::Allow).find(permits);
    let denies: Vec<_> = of(Effect::Deny).collect();
    let asks: Vec<_> = of(Effect::RequireApproval)
        .filter(|check| allowing.is_none() || check.by != DecidedBy::SideEffects)
        .collect();
    let (effect, deciding) = if !denies.is_empty() {
        (Effect::Deny, denies)
    } else if asks.is_empty() {
        // Without the allowing check, would approval have been required?
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
    Answer {
        effect,
        by: deciding.iter().map(|check| check.by.clone()).collect(),
        reason,
        checks,
    }
}

/// Rules are named, so that a reader can find them.
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
#[path = "answer_tests.rs"]
mod tests;
