//! The gate: may this call run, and with which exact arguments?
//!
//! Pure. First what the call is: grant, identity, schema, and what its parameters say ([`parameters`]), before anybody is
//! asked anything. Then what it may do ([`decision`]): the strictest answer wins, and a check that cannot be made denies.

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

/// Bytes of arguments that are looked through for what could mislead on a thread that serves others; it takes some milliseconds.
const MOST_AT_ONCE: usize = 16 * 1024;

/// Whose call it is, and what the run it belongs to allows.
#[derive(Clone, Copy, Debug)]
pub struct Bounds<'a> {
    /// The tenant of whoever acts.
    pub tenant: &'a TenantId,
    /// The acting user; injected, never chosen by the model.
    pub user: &'a UserId,
    /// The agent whose run it is; none on the chat surface.
    pub agent: Option<&'a str>,
    /// The surface's name in the record.
    pub surface: &'a str,
    /// The definition's rule.
    pub approval: Approval,
    /// Can this run wait for a person? A stateless request cannot.
    pub can_wait: bool,
    /// The operator's rules.
    pub policy: &'a Policy,
    /// What people have allowed for good. Those of other users and tools make no difference.
    pub grants: &'a [Grant],
    /// Granted tools that no server offers now.
    pub missing: &'a [Missing],
    /// The user's time zone, where it is known: an approver is told what a time with another offset is there.
    pub zone: Option<Tz>,
    /// Now, microseconds since the epoch.
    pub now_us: i64,
}

/// [`Bounds`] that hold what they name, for a thread of their own.
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
    /// `policy` is the one of `bounds`, shared.
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

    /// The same, borrowed.
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
            // A call that takes long to check has a tool.
            missing: &[],
            zone: self.zone,
            now_us: self.now_us,
        }
    }
}

/// What the gate found of a call of a tool.
#[derive(Clone, Debug)]
pub struct CheckedCall {
    /// Identity injected, checked, canonical.
    pub arguments: Arc<RawValue>,
    /// Whom it reaches, and what an approver should know.
    pub parameters: Parameters,
    /// What may become of it.
    pub decision: Decision,
}

/// Judges one call: grant, identity, schema, parameters, policy. May take a second, if the schema does.
#[must_use]
pub fn decide(call: &Proposed, bounds: Bounds<'_>) -> PolicyDecision {
    within(call, bounds, Effort::Full)
        .unwrap_or_else(|| refuse(FailureCode::InvalidArguments, CheckError::TooCostly.to_string()))
}

/// The same in a moment; `None` where the tool's schema takes longer.
pub(in crate::engine) fn decide_quickly(call: &Proposed, bounds: Bounds<'_>) -> Option<PolicyDecision> {
    within(call, bounds, Effort::Quick)
}

fn within(call: &Proposed, bounds: Bounds<'_>, effort: Effort) -> Option<PolicyDecision> {
    let tool = match &call.target {
        Target::Tool(tool) => tool,
        // Granted all the same: that no server can be asked for it is no denial. Why is for operators.
        Target::Unknown if bounds.missing.iter().any(|one| one.name == call.call.name) => {
            return Some(refuse(
                FailureCode::Unavailable,
                format!(
                    "{} cannot be called now: no connected server offers it in a way that can be used",
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
        // It was granted when it was proposed; nobody offers it as it was then.
        Target::Unresolved(tool) => {
            return Some(refuse(FailureCode::Unavailable, not_as_it_was(&tool.name)));
        }
        // Judged by its own inputs; what it does is judged call by call, under its own name.
        Target::Agent(name) => {
            let message = format!("{:?} is an agent", name.as_ref());
            return Some(refuse(FailureCode::UnknownTool, message));
        }
        // `next` answers these itself; a verdict is never a call.
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

/// Arguments that no call is made with.
#[derive(Debug)]
pub struct Unfit {
    /// What is wrong, with its place.
    pub message: String,
    /// The checks of parameters; nothing where the tool's schema does not take them.
    pub by: Option<DecidedBy>,
}

/// Why there is no opinion of a call.
enum Unread {
    Unfit(Unfit),
    /// The effort was used up.
    TooCostly,
}

/// What the gate thinks of a call, whether or not somebody can be asked. May take a second, if the schema does.
///
/// # Errors
/// [`Unfit`]: such a call is refused before anybody is asked.
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
        // They say whom a call reaches, and nothing of the arguments that they do not cover.
        grants: if parameters.ungrantable { &[] } else { bounds.grants },
    });
    // Where nobody can be asked it is denied, and nobody is warned.
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

/// Why a tool's call does not run, though it was granted or approved.
pub(in crate::engine) fn not_as_it_was(tool: &str) -> String {
    format!("{tool:?} is not offered any more as it was when it was called")
}

fn refuse(code: FailureCode, message: String) -> PolicyDecision {
    PolicyDecision::Refuse {
        code,
        message,
        by: Vec::new(),
    }
}

/// Depth and identity, before the tool's own schema.
fn arguments(given: &RawValue, tool: &Tool, user: &str) -> Result<Value, String> {
    if !nesting::within(given.get().as_bytes(), nesting::MAX_LEVELS) {
        return Err(format!("the arguments nest deeper than {} levels", nesting::MAX_LEVELS));
    }
    let mut value: Value = serde_json::from_str(given.get())
        .map_err(|error| format!("the arguments are no JSON: {}", malformed::words(&error)))?;
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

    /// Promise 5: what takes some milliseconds to look through for an approver is not done on a thread that serves others, and where
    /// nobody is asked it is not done at all.
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

    /// C-FR-012, C-EC-2: what passes can be read back by whoever reads the reply or the record.
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
