//! The gate: may this call run, and with which exact arguments?
//!
//! [`decide`] alone reads the allowlist, a tool's schema, the identity, recipients and times, the policy, approvals
//! and grants. It is pure: its callers gather the [`Facts`]. First it checks the call itself ([`arguments`]), before any
//! approval is requested. Then all checks answer ([`answer`]): the strictest answer wins, and a check that cannot be made
//! denies. Calls of other agents pass it too.

mod answer;
mod cases;
mod checked;
mod undeclared;

use std::collections::BTreeMap;
use std::sync::Arc;

use chrono_tz::Tz;
use serde_json::value::RawValue;

pub use self::answer::{Answer, Check};
pub use self::cases::{CaseResult, failures, results};
use self::checked::{Checked, Refused, Unread, delegation, refused, tool_call};
use super::ledger::Resolution;
use super::snapshot::DefinitionSnapshot;
use super::strategy::plan::Scope;
use super::toolset::Missing;
use crate::domain::action::Details;
use crate::domain::canonical;
use crate::domain::definition::Approval;
use crate::domain::ids::{TenantId, UserId};
use crate::domain::journal::{PolicyDecision, Proposed, Target};
use crate::domain::known::Known;
use crate::domain::policy::{DecidedBy, Effect, Grant, Policy};
use crate::domain::schema::{CheckError, Effort};
use crate::domain::tool::FailureCode;

/// A decision on one call, with its reasons.
#[derive(Clone, Debug)]
pub struct Decision {
    /// The decision, as the journal stores it.
    pub outcome: PolicyDecision,
    /// The canonical arguments; `None` if the call itself is invalid.
    pub arguments: Option<Arc<RawValue>>,
    /// What the arguments contain, for an approver.
    pub details: Details,
    /// The answers of the policy's checks; `None` if the call itself is invalid.
    pub answer: Option<Answer>,
}

impl Decision {
    /// The call could not be checked.
    pub(crate) fn busy(why: String) -> Self {
        Self::refused(refused(FailureCode::LimitReached, why))
    }

    fn refused(refused: Refused) -> Self {
        Self {
            outcome: PolicyDecision::Refuse {
                code: refused.code,
                message: refused.message,
                by: refused.by.into_iter().collect(),
            },
            arguments: None,
            details: Details::default(),
            answer: None,
        }
    }

    /// The effect.
    pub fn effect(&self) -> Effect {
        match &self.outcome {
            PolicyDecision::Allow { .. } => Effect::Allow,
            PolicyDecision::RequireApproval { .. } => Effect::RequireApproval,
            PolicyDecision::Refuse { .. } => Effect::Deny,
        }
    }
}

/// Decides on one call. May take a second, depending on the tool's schema.
pub fn decide(call: &Proposed, facts: &Facts, approval: Option<&Resolution>, attempt: Attempt) -> Decision {
    within(call, facts, approval, attempt, Effort::Full).unwrap_or_else(|| {
        let message = CheckError::TooCostly.to_string();
        Decision::refused(refused(FailureCode::InvalidArguments, message))
    })
}

/// The same for fast checks; `None` if the tool's schema takes longer.
pub(crate) fn decide_quickly(
    call: &Proposed,
    facts: &Facts,
    approval: Option<&Resolution>,
    attempt: Attempt,
) -> Option<Decision> {
    within(call, facts, approval, attempt, Effort::Quick)
}

fn within(
    call: &Proposed,
    facts: &Facts,
    approval: Option<&Resolution>,
    attempt: Attempt,
    effort: Effort,
) -> Option<Decision> {
    let approved = match approval {
        None => None,
        Some(Resolution::Approved(arguments)) => Some(arguments),
        Some(Resolution::Refused(code, message)) => {
            return Some(Decision::refused(refused(*code, message.as_str())));
        }
    };
    let checked = match &call.target {
        Target::Tool(tool) => tool_call(tool, &call.call.args, facts, attempt, effort),
        Target::Agent(name) => delegation(name, &call.call.args, facts).map_err(Unread::Refused),
        Target::Unresolved(_) | Target::Verdict(_) | Target::Unknown => Err(not_granted(call, facts).into()),
    };
    match checked {
        Ok(checked) => Some(checked.decided(call, facts, approved, attempt)),
        Err(Unread::Refused(refused)) => Some(Decision::refused(refused)),
        Err(Unread::TooCostly) => None,
    }
}

/// Why a call of nothing that is offered is refused.
fn not_granted(call: &Proposed, facts: &Facts) -> Refused {
    let name = &call.call.name;
    match &call.target {
        // It was on the allowlist when it was proposed, but no server offers it unchanged.
        Target::Unresolved(tool) => refused(FailureCode::Unavailable, not_as_it_was(&tool.name)),
        // `next` handles these itself; a verdict is never a tool call.
        Target::Verdict(_) => refused(FailureCode::MixedWithVerdict, "a verdict is not a tool call"),
        // The tool is on the allowlist, so a missing server is no denial. The reason is for operators.
        Target::Unknown if facts.missing.iter().any(|one| one.name == *name) => refused(
            FailureCode::Unavailable,
            format!("{name} is unavailable: no connected server offers a usable tool of this name"),
        ),
        Target::Unknown | Target::Tool(_) | Target::Agent(_) => refused(
            FailureCode::UnknownTool,
            format!("{name:?} is not among the functions offered"),
        ),
    }
}

impl Checked {
    /// The decision: the answer of the checks, an approval for exactly these arguments, and the tool as it is now.
    fn decided(self, call: &Proposed, facts: &Facts, approved: Option<&Arc<RawValue>>, attempt: Attempt) -> Decision {
        let arguments: Arc<RawValue> = Arc::from(canonical::to_raw(&self.arguments));
        let answer = &self.answer;
        let refuse = |code, message, by| PolicyDecision::Refuse { code, message, by };
        let outcome = match (answer.effect, approved) {
            (Effect::Deny, _) => refuse(FailureCode::Denied, answer.reason.clone(), answer.by.clone()),
            (Effect::Allow | Effect::RequireApproval, Some(approved)) if approved.get() != arguments.get() => refuse(
                FailureCode::Denied,
                "the approval was given for other arguments".to_owned(),
                Vec::new(),
            ),
            (Effect::Allow | Effect::RequireApproval, Some(_)) => as_it_was(call, &facts.offered, &arguments, None),
            (Effect::Allow, None) => match answer.by.first() {
                Some(grant @ DecidedBy::Grant(_)) => as_it_was(call, &facts.offered, &arguments, Some(grant.clone())),
                by => PolicyDecision::Allow {
                    arguments: Arc::clone(&arguments),
                    by: by.cloned(),
                },
            },
            (Effect::RequireApproval, None) if facts.can_wait && attempt == Attempt::First => {
                let mut details = self.details.clone();
                details.reason.clone_from(&answer.reason);
                details.recipients = details.recipients.filter(|recipients| !recipients.is_empty());
                PolicyDecision::RequireApproval {
                    arguments: Arc::clone(&arguments),
                    by: answer.by.clone(),
                    details,
                }
            }
            (Effect::RequireApproval, None) => refuse(
                FailureCode::Denied,
                format!("{}, and this request cannot wait for one", answer.reason),
                answer.by.clone(),
            ),
        };
        Decision {
            outcome,
            arguments: Some(arguments),
            details: self.details,
            answer: Some(self.answer),
        }
    }
}

/// Allows a call that an approval or a grant covers, if its tool is as it was then (promise: exact approvals). The
/// definition of an agent is stored with the run, and cannot change.
fn as_it_was(call: &Proposed, offered: &Offered, arguments: &Arc<RawValue>, by: Option<DecidedBy>) -> PolicyDecision {
    let changed = match &call.target {
        Target::Tool(tool) => match offered {
            Offered::Later => None,
            Offered::Unknown => Some(format!(
                "{} is unavailable, so it cannot be checked whether this tool is still as approved",
                tool.server
            )),
            Offered::Tool(now) => (now.as_ref() != Some(&tool.digest)).then(|| not_as_it_was(&tool.name)),
        },
        Target::Agent(_) | Target::Unresolved(_) | Target::Verdict(_) | Target::Unknown => None,
    };
    match changed {
        None => PolicyDecision::Allow {
            arguments: Arc::clone(arguments),
            by,
        },
        Some(message) => PolicyDecision::Refuse {
            code: FailureCode::Unavailable,
            message,
            by: Vec::new(),
        },
    }
}

/// Why a tool's call is not run although it was granted or approved.
fn not_as_it_was(tool: &str) -> String {
    format!("{tool:?} was changed or removed since it was called")
}

// What the gate has to know to decide on a call.

/// What is known about a run when its calls are decided.
#[derive(Clone, Debug)]
pub struct Facts {
    /// The tenant of the acting user.
    pub tenant: TenantId,
    /// The acting user; set by gavel, never chosen by the model.
    pub user: UserId,
    /// The run's agent; `None` on the chat surface.
    pub agent: Option<Arc<str>>,
    /// The surface's name, for the rules that name it.
    pub surface: Arc<str>,
    /// The approval mode of the definition.
    pub approval: Approval,
    /// The least approval that the surface demands: neither the definition nor a tool's setting lowers it.
    pub floor: Approval,
    /// Can this run wait for an approval? A stateless request cannot.
    pub can_wait: bool,
    /// The operator's policy.
    pub policy: Arc<Policy>,
    /// Grants. Those of other users and tools have no effect.
    pub grants: Vec<Grant>,
    /// What the tool's server offers now.
    pub offered: Offered,
    /// The agents that may be called.
    pub delegates: Option<Delegates>,
    /// Tools on the allowlist that no server offers now.
    pub missing: Vec<Missing>,
    /// The values of the run's planning session, by name: `id`, `owner`, `repo`. Arguments with a `scope` have no
    /// others (case is ignored), and no answer of the policy widens them.
    pub bound: Option<Arc<BTreeMap<String, String>>>,
    /// In a planning session: the texts that a call may send out of it unasked.
    pub known: Option<Arc<Known>>,
    /// What the confirmed plan allows, if the run works on one.
    pub scope: Option<Arc<Scope>>,
    /// The user's time zone, if it is known: approvers are shown times with other offsets in this zone.
    pub zone: Option<Tz>,
    /// Now, microseconds since the epoch.
    pub now_us: i64,
}

impl Facts {
    /// A run that can wait for approvals, without an agent, grants and anything else that is known.
    pub fn new(tenant: TenantId, user: UserId, surface: &str, policy: Arc<Policy>) -> Self {
        Self {
            tenant,
            user,
            agent: None,
            surface: surface.into(),
            approval: Approval::default(),
            floor: Approval::Never,
            can_wait: true,
            policy,
            grants: Vec::new(),
            offered: Offered::Later,
            delegates: None,
            missing: Vec::new(),
            bound: None,
            known: None,
            scope: None,
            zone: None,
            now_us: 0,
        }
    }
}

/// What a tool's server offers now. A call that runs by an approval or a grant runs only as its tool was then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Offered {
    /// The server is asked right before the call is sent.
    Later,
    /// The server does not answer.
    Unknown,
    /// The digest of the tool's definition; `None` if the server offers no such tool.
    Tool(Option<Arc<str>>),
}

/// The agents that a run may call.
#[derive(Clone, Debug)]
pub struct Delegates {
    /// Their definitions.
    pub snapshot: Arc<DefinitionSnapshot>,
    /// The number of agents above the run.
    pub depth: u32,
}

/// Which attempt at a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempt {
    /// It was not started.
    First,
    /// It was started at this time, in microseconds since the epoch. Its times are checked as of then, and it cannot wait
    /// for an approval.
    Again(i64),
}

#[cfg(test)]
mod tests;
