//! The policy check: may this call run, and with which exact arguments?
//!
//! Pure. First it checks the call itself (grant, identity, schema and arguments: [`parameters`]), before any approval
//! is requested. Then it decides what is allowed ([`decision`]): the strictest answer wins, and a check that cannot be
//! made denies.

mod cases;
mod decision;
mod parameters;
mod undeclared_arguments;

use std::sync::Arc;

use chrono_tz::Tz;
use serde_json::Value;
use serde_json::value::RawValue;

pub use cases::{CaseResult, failures, results};
pub use decision::{Check, Decision, Question, rule};
pub use parameters::Parameters;

use super::toolset::Missing;

use crate::domain::canonical;
pub use crate::domain::definition::Approval;
use crate::domain::ids::{TenantId, UserId};
use crate::domain::journal::{PolicyDecision, Proposed, Target};
use crate::domain::malformed;
use crate::domain::nesting;
use crate::domain::policy::{DecidedBy, Effect, Facts, Grant, Policy};
use crate::domain::schema::{CheckError, Effort};
use crate::domain::tool::{FailureCode, Tool};
use crate::domain::warnings;

/// Maximum bytes of arguments that are searched for misleading text on a shared thread; this takes some milliseconds.
const MOST_AT_ONCE: usize = 16 * 1024;

/// The acting user of a call, and what its run allows.
#[derive(Clone, Copy, Debug)]
pub struct Bounds<'a> {
    /// The tenant of the acting user.
    pub tenant: &'a TenantId,
    /// The acting user; set by gavel, never chosen by the model.
    pub user: &'a UserId,
    /// The run's agent; `None` on the chat surface.
    pub agent: Option<&'a str>,
    /// The surface's name in the decision log.
    pub surface: &'a str,
    /// The approval mode of the definition.
    pub approval: Approval,
    /// Can this run wait for an approval? A stateless request cannot.
    pub can_wait: bool,
    /// The operator's policy.
    pub policy: &'a Policy,
    /// Grants. Those of other users and tools have no effect.
    pub grants: &'a [Grant],
    /// Granted tools that no server offers now.
    pub missing: &'a [Missing],
    /// The user's time zone, if it is known: approvers are shown times with other offsets in this zone.
    pub zone: Option<Tz>,
    /// Now, microseconds since the epoch.
    pub now_us: i64,
}

/// Owned [`Bounds`], for use on a separate thread.
pub(in crate::engine) struct OwnBounds {
    tenant: TenantId,
    user: UserId,
    agent: Option<String>,
    surface: String,
    approval: Approval,
    can_wait: bool,
    policy: Arc<Policy>,
    grants: Vec<Grant>,
    zone: Option<Tz>,
    now_us: i64,
}

impl OwnBounds {
    /// `policy` must be the policy of `bounds`.
    pub(in crate::engine) fn new(bounds: Bounds<'_>, policy: &Arc<Policy>) -> Self {
        Self {
            tenant: bounds.tenant.clone(),
            user: bounds.user.clone(),
            agent: bounds.agent.map(str::to_owned),
            surface: bounds.surface.to_owned(),
            approval: bounds.approval,
            can_wait: bounds.can_wait,
            policy: Arc::clone(policy),
            grants: bounds.grants.to_vec(),
            zone: bounds.zone,
            now_us: bounds.now_us,
        }
    }

    /// The borrowed form.
    pub(in crate::engine) fn bounds(&self) -> Bounds<'_> {
        Bounds {
            tenant: &self.tenant,
            user: &self.user,
            agent: self.agent.as_deref(),
            surface: &self.surface,
            approval: self.approval,
            can_wait: self.can_wait,
            policy: &self.policy,
            grants: &self.grants,
            // A call that takes long to check always has a tool.
            missing: &[],
            zone: self.zone,
            now_us: self.now_us,
        }
    }
}

/// What the policy check found about a call of a tool.
#[derive(Clone, Debug)]
pub struct CheckedCall {
    /// Checked, canonical, with the identity inserted.
    pub arguments: Arc<RawValue>,
    /// Its recipients, and details for the approver.
    pub parameters: Parameters,
    /// The decision.
    pub decision: Decision,
}

/// Decides on one call: grant, identity, schema, arguments, policy. May take a second, depending on the schema.
#[must_use]
pub fn decide(call: &Proposed, bounds: Bounds<'_>) -> PolicyDecision {
    within(call, bounds, Effort::Full)
        .unwrap_or_else(|| refuse(FailureCode::InvalidArguments, CheckError::TooCostly.to_string()))
}

/// The same for fast checks; `None` if the tool's schema takes longer.
pub(in crate::engine) fn decide_quickly(call: &Proposed, bounds: Bounds<'_>) -> Option<PolicyDecision> {
    within(call, bounds, Effort::Quick)
}

fn within(call: &Proposed, bounds: Bounds<'_>, effort: Effort) -> Option<PolicyDecision> {
    let tool = match &call.target {
        Target::Tool(tool) => tool,
        // The tool is granted, so a missing server is no denial. The reason is for operators.
        Target::Unknown if bounds.missing.iter().any(|one| one.name == call.call.name) => {
            return Some(refuse(
                FailureCode::Unavailable,
                format!(
                    "{} is unavailable: no connected server offers a usable tool of this name",
                    call.call.name
                ),
            ));
        }
        Target::Unknown => {
            return Some(refuse(
                FailureCode::UnknownTool,
                format!("{:?} is not among the functions offered", call.call.name),
            ));
        }
        // It was granted when it was proposed, but no server offers it unchanged.
        Target::Unresolved(tool) => {
            return Some(refuse(FailureCode::Unavailable, not_as_it_was(&tool.name)));
        }
        // Agents are decided on by their own inputs; their calls are decided on one by one, under the agent's name.
        Target::Agent(name) => {
            let message = format!("{:?} is an agent", name.as_ref());
            return Some(refuse(FailureCode::UnknownTool, message));
        }
        // `next` handles these itself; a verdict is never a tool call.
        Target::Verdict(_) => {
            let message = "a verdict is not a tool call".to_owned();
            return Some(refuse(FailureCode::MixedWithVerdict, message));
        }
    };
    match opinion_within(tool, &call.call.args, &bounds, effort) {
        Ok(checked) => Some(decision(checked, bounds.can_wait)),
        Err(Unread::TooCostly) => None,
        Err(Unread::Unfit(unfit)) => Some(PolicyDecision::Refuse {
            code: FailureCode::InvalidArguments,
            message: unfit.message,
            by: unfit.by.into_iter().collect(),
        }),
    }
}

fn decision(checked: CheckedCall, can_wait: bool) -> PolicyDecision {
    let (arguments, decision) = (checked.arguments, checked.decision);
    match decision.effect {
        Effect::Allow => PolicyDecision::Allow {
            arguments,
            by: decision.by.into_iter().next(),
        },
        Effect::RequireApproval if can_wait => PolicyDecision::RequireApproval {
            arguments,
            reason: decision.reason,
            by: decision.by,
            warnings: checked.parameters.warnings,
            recipients: checked.parameters.recipients.unwrap_or_default(),
            ungrantable: checked.parameters.ungrantable,
            account: None,
        },
        Effect::RequireApproval => PolicyDecision::Refuse {
            code: FailureCode::Denied,
            message: format!("{}, and this request cannot wait for one", decision.reason),
            by: decision.by,
        },
        Effect::Deny => PolicyDecision::Refuse {
            code: FailureCode::Denied,
            message: decision.reason,
            by: decision.by,
        },
    }
}

/// Arguments that cannot be used for a call.
#[derive(Debug)]
pub struct Unfit {
    /// The error, with its place.
    pub message: String,
    /// The argument checks; `None` if the tool's schema rejects the arguments.
    pub by: Option<DecidedBy>,
}

/// Why a call could not be decided on.
enum Unread {
    Unfit(Unfit),
    /// The check took too much effort.
    TooCostly,
}

/// Decides on a call, even if no approval can be requested. May take a second, depending on the schema.
///
/// # Errors
/// [`Unfit`]: the call is refused before any approval is requested.
pub fn checked(tool: &Tool, given: &RawValue, bounds: &Bounds<'_>) -> Result<CheckedCall, Unfit> {
    opinion_within(tool, given, bounds, Effort::Full).map_err(|unread| match unread {
        Unread::Unfit(unfit) => unfit,
        Unread::TooCostly => Unfit {
            message: CheckError::TooCostly.to_string(),
            by: None,
        },
    })
}

fn opinion_within(tool: &Tool, given: &RawValue, bounds: &Bounds<'_>, effort: Effort) -> Result<CheckedCall, Unread> {
    let unfit = |message, by| Unread::Unfit(Unfit { message, by });
    let value =
        arguments(given, tool, &tool.user(bounds.tenant, bounds.user)).map_err(|message| unfit(message, None))?;
    tool.input.check(&value, effort).map_err(|error| match error {
        CheckError::TooCostly => Unread::TooCostly,
        invalid @ CheckError::Invalid(_) => unfit(invalid.to_string(), None),
    })?;
    let mut parameters = parameters::check(tool, &value, bounds)
        .map_err(|errors| unfit(errors.join("; "), Some(DecidedBy::Parameters)))?;
    let decision = rule(&Question {
        facts: Facts {
            server: &tool.server,
            tool: &tool.name,
            user: bounds.user.as_str(),
            agent: bounds.agent,
            surface: bounds.surface,
            arguments: &value,
            recipients: parameters.recipients.as_ref(),
        },
        reaches_others: parameters.reaches_others,
        digest: &tool.digest,
        tool: tool.approval,
        side_effect: tool.side_effect,
        approval: bounds.approval,
        policy: bounds.policy,
        // Grants state recipients, and cannot cover other arguments.
        grants: if parameters.ungrantable { &[] } else { bounds.grants },
    });
    // If no approval can be requested, the call is denied without warnings.
    if decision.effect == Effect::RequireApproval && bounds.can_wait {
        if matches!(effort, Effort::Quick) && given.get().len() > MOST_AT_ONCE {
            return Err(Unread::TooCostly);
        }
        warnings::of_texts(&tool.input.value(), &value, &mut parameters.warnings);
    }
    Ok(CheckedCall {
        arguments: Arc::from(canonical::to_raw(&value)),
        parameters,
        decision,
    })
}

/// Why a tool's call is not run although it was granted or approved.
pub(in crate::engine) fn not_as_it_was(tool: &str) -> String {
    format!("{tool:?} was changed or removed since it was called")
}

fn refuse(code: FailureCode, message: String) -> PolicyDecision {
    PolicyDecision::Refuse {
        code,
        message,
        by: Vec::new(),
    }
}

/// Checks depth and identity, before the tool's own schema.
fn arguments(given: &RawValue, tool: &Tool, user: &str) -> Result<Value, String> {
    if !nesting::within(given.get().as_bytes(), nesting::MAX_LEVELS) {
        return Err(format!("the arguments nest deeper than {} levels", nesting::MAX_LEVELS));
    }
    let mut value: Value = serde_json::from_str(given.get())
        .map_err(|error| format!("the arguments are not valid JSON: {}", malformed::words(&error)))?;
    let Value::Object(object) = &mut value else {
        return Err("the arguments must be a JSON object".to_owned());
    };
    if let Some(name) = &tool.identity_argument {
        if object.contains_key(name.as_ref()) {
            return Err(format!("{name:?} is set by the service and must not be given"));
        }
        object.insert(name.to_string(), Value::String(user.to_owned()));
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use super::*;
    use crate::domain::tool::ApprovalDefault;
    use crate::engine::testing::{call_of, tool_with};

    static NO_POLICY: LazyLock<Policy> = LazyLock::new(Policy::default);
    static DEFAULT: LazyLock<TenantId> = LazyLock::new(|| TenantId::parse("default").unwrap());

    fn bounds(user: &UserId) -> Bounds<'_> {
        Bounds {
            tenant: &DEFAULT,
            user,
            agent: None,
            surface: "chat",
            approval: Approval::Never,
            can_wait: false,
            policy: &NO_POLICY,
            grants: &[],
            missing: &[],
            zone: None,
            now_us: 0,
        }
    }

    /// Promise 5: the search for misleading text takes some milliseconds, so long arguments are not searched on a
    /// shared thread. Without an approval request, they are not searched at all.
    #[test]
    fn large_texts_are_looked_through_on_a_thread_of_their_own() {
        let user = UserId::parse("ann").unwrap();
        let tool = tool_with("send", r#"{"type":"object"}"#, |_| {});
        for (length, can_wait, at_once) in [(100, true, true), (20_000, true, false), (20_000, false, true)] {
            let asked = Bounds {
                approval: Approval::Always,
                can_wait,
                ..bounds(&user)
            };
            let call = call_of(&tool, &format!(r#"{{"body":"{}"}}"#, "x".repeat(length)));
            assert_eq!(decide_quickly(&call, asked).is_some(), at_once, "{length} {can_wait}");
            let asks = matches!(decide(&call, asked), PolicyDecision::RequireApproval { .. });
            assert_eq!(asks, can_wait, "{length}");
        }
    }

    /// C-FR-012
    #[test]
    fn arguments_off_the_schema_are_refused_with_the_place() {
        let user = UserId::parse("ann").unwrap();
        let tool = tool_with(
            "add_task",
            r#"{"type":"object","properties":{"description":{"type":"string"}},"required":["description"]}"#,
            |_| {},
        );
        let decided = decide(&call_of(&tool, r#"{"description":1}"#), bounds(&user));
        assert!(
            matches!(&decided, PolicyDecision::Refuse { code: FailureCode::InvalidArguments, message, .. } if message.contains("/description")),
            "{decided:?}"
        );
    }

    /// C-FR-012, C-EC-2: accepted arguments can be parsed by every reader of the reply or the decision log.
    #[test]
    fn arguments_that_nest_too_deeply_are_refused_before_they_are_read() {
        let user = UserId::parse("ann").unwrap();
        let tool = tool_with("add_task", r#"{"type":"object"}"#, |_| {});
        let nested = |levels: usize| format!("{}1{}", r#"{"a":"#.repeat(levels), "}".repeat(levels));
        let decided = |levels| decide(&call_of(&tool, &nested(levels)), bounds(&user));
        assert!(matches!(decided(nesting::MAX_LEVELS), PolicyDecision::Allow { .. }));
        for levels in [nesting::MAX_LEVELS + 1, 100_000] {
            let decided = decided(levels);
            assert!(
                matches!(&decided, PolicyDecision::Refuse { code: FailureCode::InvalidArguments, message, .. } if message.contains("deeper than 60")),
                "{decided:?}"
            );
        }
    }

    /// The model never chooses the user (DESIGN.md section 5).
    #[test]
    fn identity_comes_from_the_request_and_an_identity_from_the_model_is_an_error() {
        let user = UserId::parse("ann").unwrap();
        let schema = r#"{"type":"object","properties":{"user_id":{"type":"string"}},"required":["user_id"],"additionalProperties":false}"#;
        let tool = tool_with("list_tasks", schema, |tool| {
            tool.identity_argument = Some("user_id".into())
        });
        let decided = decide(&call_of(&tool, "{}"), bounds(&user));
        assert!(
            matches!(&decided, PolicyDecision::Allow { arguments, .. } if arguments.get() == r#"{"user_id":"ann"}"#),
            "{decided:?}"
        );
        let decided = decide(&call_of(&tool, r#"{"user_id":"bob"}"#), bounds(&user));
        assert!(matches!(
            decided,
            PolicyDecision::Refuse {
                code: FailureCode::InvalidArguments,
                ..
            }
        ));
    }

    #[test]
    fn where_nobody_can_be_asked_a_needed_approval_is_a_denial() {
        let user = UserId::parse("ann").unwrap();
        let tool = tool_with("send", r#"{"type":"object"}"#, |_| {});
        for (approval, allowed) in [
            (Approval::Never, true),
            (Approval::SideEffects, false),
            (Approval::Always, false),
        ] {
            let decided = decide(
                &call_of(&tool, "{}"),
                Bounds {
                    approval,
                    ..bounds(&user)
                },
            );
            assert_eq!(matches!(decided, PolicyDecision::Allow { .. }), allowed, "{approval:?}");
        }
        let strict = tool_with("send", r#"{"type":"object"}"#, |tool| {
            tool.approval = Some(ApprovalDefault::Required)
        });
        assert!(matches!(
            decide(&call_of(&strict, "{}"), bounds(&user)),
            PolicyDecision::Refuse {
                code: FailureCode::Denied,
                ..
            }
        ));
    }

    #[test]
    fn the_arguments_that_run_are_one_canonical_text() {
        let user = UserId::parse("ann").unwrap();
        let tool = tool_with("add_task", r#"{"type":"object"}"#, |_| {});
        let decided = decide(
            &call_of(&tool, "{ \"b\": 1,\n \"a\" : {\"d\":2, \"c\":1} }"),
            bounds(&user),
        );
        assert!(
            matches!(&decided, PolicyDecision::Allow { arguments, .. } if arguments.get() == r#"{"a":{"c":1,"d":2},"b":1}"#)
        );
    }
}
