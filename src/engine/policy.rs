//! The gate: may this call run, and with which exact arguments?
//!
//! Pure. The strictest answer wins, and a check that cannot be made denies.

use std::sync::Arc;

use serde_json::Value;

use crate::domain::canonical;
pub use crate::domain::definition::Approval;
use crate::domain::ids::UserId;
use crate::domain::journal::{Judgement, Proposed, Target};
use crate::domain::nesting;
use crate::domain::tool::{ApprovalDefault, FailureCode, Tool};

/// Whose call it is, and what the run it belongs to allows.
#[derive(Clone, Copy, Debug)]
pub struct Bounds<'a> {
    /// The acting user; injected, never chosen by the model.
    pub user: &'a UserId,
    /// The definition's rule.
    pub approval: Approval,
    /// Can this run wait for a person? A stateless request cannot.
    pub can_wait: bool,
}

/// Judges one call: grant, identity, schema, approval.
#[must_use]
pub fn judge(call: &Proposed, bounds: Bounds<'_>) -> Judgement {
    let tool = match &call.target {
        Target::Tool(tool) => tool,
        Target::Unknown => {
            return refuse(
                FailureCode::UnknownTool,
                format!("{:?} is not among the functions offered", call.call.name),
            );
        }
        // It was granted when it was proposed; nobody offers it as it was then.
        Target::Gone(tool) => {
            return refuse(
                FailureCode::Unavailable,
                format!(
                    "{:?} is not offered any more as it was when it was called",
                    tool.name.as_ref()
                ),
            );
        }
        // Judged by its own inputs; what it does is judged call by call, under its own name.
        Target::Agent(name) => {
            return refuse(FailureCode::UnknownTool, format!("{:?} is an agent", name.as_ref()));
        }
        // `next` answers these itself; a verdict is never a call.
        Target::Verdict(_) => return refuse(FailureCode::MixedWithVerdict, "a verdict is not a tool call".to_owned()),
    };
    let arguments = match arguments(call, tool, bounds.user) {
        Ok(arguments) => arguments,
        Err(message) => return refuse(FailureCode::InvalidArguments, message),
    };
    match approval_reason(tool, bounds.approval) {
        None => Judgement::Allow { arguments },
        Some(reason) if bounds.can_wait => Judgement::RequireApproval { arguments, reason },
        Some(reason) => refuse(
            FailureCode::Denied,
            format!("{reason}, and this request cannot wait for one"),
        ),
    }
}

fn refuse(code: FailureCode, message: String) -> Judgement {
    Judgement::Refuse { code, message }
}

/// Depth and identity first, then the tool's own schema, then one canonical text of the result.
fn arguments(call: &Proposed, tool: &Tool, user: &UserId) -> Result<Arc<serde_json::value::RawValue>, String> {
    if !nesting::within(call.call.args.get().as_bytes(), nesting::MAX_LEVELS) {
        return Err(format!("the arguments nest deeper than {} levels", nesting::MAX_LEVELS));
    }
    let mut value: Value =
        serde_json::from_str(call.call.args.get()).map_err(|error| format!("the arguments are no JSON: {error}"))?;
    let Value::Object(object) = &mut value else {
        return Err("the arguments must be a JSON object".to_owned());
    };
    if let Some(name) = &tool.identity_argument {
        if object.contains_key(name.as_ref()) {
            return Err(format!("{name:?} is set by the service and must not be given"));
        }
        object.insert(name.to_string(), Value::String(user.as_str().to_owned()));
    }
    tool.input.check(&value).map_err(|errors| errors.join("; "))?;
    Ok(Arc::from(canonical::to_raw(&value)))
}

fn approval_reason(tool: &Tool, approval: Approval) -> Option<String> {
    if tool.approval == Some(ApprovalDefault::Required) {
        return Some(format!(
            "{:?} is configured to need a person's approval",
            tool.name.as_ref()
        ));
    }
    match approval {
        Approval::Always => Some("every call of this agent needs a person's approval".to_owned()),
        Approval::SideEffects if tool.side_effect && tool.approval != Some(ApprovalDefault::NotRequired) => {
            Some(format!(
                "{:?} has side effects and needs a person's approval",
                tool.name.as_ref()
            ))
        }
        Approval::SideEffects | Approval::Never => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::testing::{call_of, tool_with};

    fn bounds(user: &UserId) -> Bounds<'_> {
        Bounds {
            user,
            approval: Approval::Never,
            can_wait: false,
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
        let judged = judge(&call_of(&tool, r#"{"description":1}"#), bounds(&user));
        assert!(
            matches!(&judged, Judgement::Refuse { code: FailureCode::InvalidArguments, message } if message.contains("/description")),
            "{judged:?}"
        );
    }

    /// C-FR-012, C-EC-2: what passes can be read back by whoever reads the reply or the record.
    #[test]
    fn arguments_that_nest_too_deeply_are_refused_before_they_are_read() {
        let user = UserId::parse("ann").unwrap();
        let tool = tool_with("add_task", r#"{"type":"object"}"#, |_| {});
        let nested = |levels: usize| format!("{}1{}", r#"{"a":"#.repeat(levels), "}".repeat(levels));
        let judged = |levels| judge(&call_of(&tool, &nested(levels)), bounds(&user));
        assert!(matches!(judged(nesting::MAX_LEVELS), Judgement::Allow { .. }));
        for levels in [nesting::MAX_LEVELS + 1, 100_000] {
            let judged = judged(levels);
            assert!(
                matches!(&judged, Judgement::Refuse { code: FailureCode::InvalidArguments, message } if message.contains("deeper than 60")),
                "{judged:?}"
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
        let judged = judge(&call_of(&tool, "{}"), bounds(&user));
        assert!(
            matches!(&judged, Judgement::Allow { arguments } if arguments.get() == r#"{"user_id":"ann"}"#),
            "{judged:?}"
        );
        let judged = judge(&call_of(&tool, r#"{"user_id":"bob"}"#), bounds(&user));
        assert!(matches!(
            judged,
            Judgement::Refuse {
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
            let judged = judge(
                &call_of(&tool, "{}"),
                Bounds {
                    approval,
                    ..bounds(&user)
                },
            );
            assert_eq!(matches!(judged, Judgement::Allow { .. }), allowed, "{approval:?}");
        }
        let strict = tool_with("send", r#"{"type":"object"}"#, |tool| {
            tool.approval = Some(ApprovalDefault::Required)
        });
        assert!(matches!(
            judge(&call_of(&strict, "{}"), bounds(&user)),
            Judgement::Refuse {
                code: FailureCode::Denied,
                ..
            }
        ));
    }

    #[test]
    fn the_arguments_that_run_are_one_canonical_text() {
        let user = UserId::parse("ann").unwrap();
        let tool = tool_with("add_task", r#"{"type":"object"}"#, |_| {});
        let judged = judge(
            &call_of(&tool, "{ \"b\": 1,\n \"a\" : {\"d\":2, \"c\":1} }"),
            bounds(&user),
        );
        assert!(matches!(&judged, Judgement::Allow { arguments } if arguments.get() == r#"{"a":{"c":1,"d":2},"b":1}"#));
    }
}
