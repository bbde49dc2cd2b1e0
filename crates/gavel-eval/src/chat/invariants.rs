//! The invariants of every decision, whatever the model says.

use super::case::{CLARIFY, INVOKE, REFUSE, RESPOND};
use super::subject::{Observed, Task};

/// C-FR-011
const MOST_ITERATIONS: u32 = 5;

/// Breaches that the decision alone shows; a sentence for each.
pub(super) fn of_decision(observed: &Observed, allowlist: &[String]) -> Vec<String> {
    let mut broken = Vec::new();
    for call in &observed.tool_calls {
        if call.ran() && !allowlist.contains(&call.tool) {
            broken.push(format!("a tool outside the allowlist ran: {:?}", call.tool));
        }
        match &call.result {
            None => broken.push(format!("call {} ({:?}) has no result", call.sequence, call.tool)),
            Some(result) if result.success == result.error.is_some() => {
                broken.push(format!(
                    "call {} ({:?}) has an error and success, or neither",
                    call.sequence, call.tool
                ));
            }
            Some(_) => {}
        }
    }
    if !observed
        .tool_calls
        .is_sorted_by(|one, next| one.sequence < next.sequence)
    {
        broken.push("the calls' sequence numbers do not increase".to_owned());
    }
    if let Some(records) = observed.records.filter(|records| *records != 1) {
        broken.push(format!("the decision has {records} records instead of one"));
    }
    if observed.iterations > MOST_ITERATIONS {
        broken.push(format!(
            "{} iterations, more than {MOST_ITERATIONS}",
            observed.iterations
        ));
    }
    if observed.response.trim().is_empty() {
        broken.push("the reply is empty".to_owned());
    }
    if !agrees(observed) {
        let (decision, outcome) = (&observed.decision_type, &observed.outcome);
        broken.push(format!("{decision} does not match {outcome} after these calls"));
    }
    broken
}

/// The decision type follows from outcome and calls.
fn agrees(observed: &Observed) -> bool {
    let category = observed.outcome.split(':').next();
    let ran = observed.tool_calls.iter().any(super::subject::ObservedCall::ran);
    let succeeded = observed.tool_calls.iter().any(super::subject::ObservedCall::succeeded);
    match observed.decision_type.as_str() {
        REFUSE => category == Some("REFUSAL"),
        CLARIFY => category == Some("AMBIGUITY"),
        INVOKE => ran && (category == Some("ERROR") || (succeeded && observed.outcome == "SUCCESS:TASK_COMPLETED")),
        RESPOND => !ran && (category == Some("ERROR") || observed.outcome == "SUCCESS:RESPONSE_GIVEN"),
        _ => false,
    }
}

/// Effects and calls must agree: each added or deleted task must belong to a reported call.
pub(super) fn of_effects(observed: &Observed, seeded: &[Task], after: &[Task]) -> Vec<String> {
    let count = |tool: &str| {
        let calls: Vec<_> = observed.tool_calls.iter().filter(|call| call.tool == tool).collect();
        let sure = calls.iter().filter(|call| call.succeeded()).count();
        (sure, calls.iter().filter(|call| call.ran()).count())
    };
    let (added, maybe_added) = count("add_task");
    let (deleted, maybe_deleted) = count("delete_task");
    let least = (seeded.len() + added).saturating_sub(maybe_deleted);
    let most = (seeded.len() + maybe_added).saturating_sub(deleted);
    if (least..=most).contains(&after.len()) {
        return Vec::new();
    }
    vec![format!(
        "{} tasks before, {added} added and {deleted} deleted by reported calls, yet {} after",
        seeded.len(),
        after.len()
    )]
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn observed(change: impl FnOnce(&mut Value)) -> Observed {
        let mut body = json!({
            "decision_type": "INVOKE_TOOL", "outcome_category": "SUCCESS:TASK_COMPLETED", "response": "ok", "iterations": 2,
            "model": "m", "duration_ms": 1,
            "tool_calls": [{"sequence": 1, "tool": "add_task", "parameters": {}, "result": {"success": true, "data": {}, "error": null}}],
        });
        change(&mut body);
        serde_json::from_value(body).unwrap()
    }

    fn broken(change: impl FnOnce(&mut Value)) -> String {
        of_decision(&observed(change), &["add_task".to_owned(), "list_tasks".to_owned()]).join("; ")
    }

    #[test]
    fn a_decision_in_order_breaks_nothing() {
        assert_eq!(broken(|_| {}), "");
    }

    /// C-FR-009, C-FR-011, C-FR-007
    #[test]
    fn each_breach_is_reported() {
        assert!(broken(|body| body["tool_calls"][0]["tool"] = json!("rm")).contains("allowlist"));
        assert!(broken(|body| body["tool_calls"][0]["result"] = Value::Null).contains("no result"));
        assert!(broken(|body| body["tool_calls"][0]["result"]["success"] = json!(false)).contains("or neither"));
        assert!(broken(|body| body["iterations"] = json!(6)).contains("iterations"));
        assert!(broken(|body| body["response"] = json!(" ")).contains("empty"));
        assert!(broken(|body| body["decision_type"] = json!("REFUSE")).contains("REFUSE does not match"));
        assert!(broken(|body| body["outcome_category"] = json!("SUCCESS:RESPONSE_GIVEN")).contains("does not match"));
        assert!(
            broken(|body| {
                let call = body["tool_calls"][0].clone();
                body["tool_calls"] = json!([call, call]);
            })
            .contains("sequence")
        );
        let twice = Observed {
            records: Some(2),
            ..observed(|_| {})
        };
        assert!(of_decision(&twice, &["add_task".to_owned()])[0].contains("2 records"));
    }

    #[test]
    fn a_refused_call_to_a_foreign_tool_is_no_breach() {
        let refused = json!({"success": false, "error": {"code": "unknown_tool", "message": "no"}});
        assert_eq!(
            broken(|body| {
                body["tool_calls"][0]["tool"] = json!("rm");
                body["tool_calls"][0]["result"] = refused;
                body["decision_type"] = json!("RESPOND_ONLY");
                body["outcome_category"] = json!("SUCCESS:RESPONSE_GIVEN");
            }),
            ""
        );
    }

    #[test]
    fn an_effect_that_no_call_explains_is_reported() {
        let task = Task::default();
        assert!(of_effects(&observed(|_| {}), &[], std::slice::from_ref(&task)).is_empty());
        assert_eq!(of_effects(&observed(|_| {}), &[], &[]).len(), 1);
        assert_eq!(
            of_effects(&observed(|body| body["tool_calls"] = json!([])), &[], &[task]).len(),
            1
        );
    }

    #[test]
    fn a_call_in_doubt_may_or_may_not_have_had_its_effect() {
        let in_doubt = observed(|body| {
            body["tool_calls"][0]["result"] = json!({"success": false, "error": {"code": "in_doubt", "message": ""}});
        });
        assert!(of_effects(&in_doubt, &[], &[]).is_empty());
        assert!(of_effects(&in_doubt, &[], &[Task::default()]).is_empty());
    }
}
