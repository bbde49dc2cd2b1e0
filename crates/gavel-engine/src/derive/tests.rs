//! One test for each row of the outcome table.

use super::*;
use crate::domain::journal::CallFailure;
use crate::domain::journal::{CallResult, PolicyDecision};
use crate::journal::Journal;
use crate::testing::{catalog_of, function_call, raw, tool_with, turn_of};
use crate::toolset::Toolset;
use crate::verdict::VerdictFunction;

/// A journal in which each inner slice is one turn of `(tool, outcome)`; `None` succeeded.
fn journal(turns: &[&[(&str, Option<FailureCode>)]]) -> Journal {
    let tool = |name: &str| {
        tool_with(name, r#"{"type":"object"}"#, |tool| {
            tool.server = "tasks".into();
            tool.side_effect = name != "list_tasks";
        })
    };
    let catalog = catalog_of(["add_task", "list_tasks", "complete_task"].map(tool));
    let grant: Vec<_> = catalog.tools.iter().map(|tool| tool.name.to_string()).collect();
    let toolset = Toolset::build(&catalog, &grant, &VerdictFunction::CHAT);
    let mut journal = Journal::from(vec![Entry::User("hi".to_owned())]);
    for turn in turns {
        let named: Vec<_> = turn.iter().map(|(name, _)| function_call(name, "{}")).collect();
        let (model_turn, calls) = turn_of(&toolset, "", &named);
        let mut after = Vec::new();
        for (call, (_, failure)) in calls.iter().zip(turn.iter()) {
            let refused = [
                FailureCode::UnknownTool,
                FailureCode::Denied,
                FailureCode::InvalidArguments,
            ];
            let allowed = failure.is_none_or(|code| !refused.contains(&code));
            if allowed {
                let arguments = Arc::from(raw("{}"));
                after.push(Entry::Decided {
                    call: call.id,
                    decision: PolicyDecision::Allow { arguments, by: None },
                    lost: Vec::new(),
                });
                after.push(Entry::Started {
                    call: call.id,
                    at_us: 1,
                    child: None,
                });
            }
            let outcome = match failure {
                None => Ok(Arc::from(raw("1"))),
                Some(code) => Err(CallFailure::new(*code, String::new())),
            };
            after.push(Entry::Result {
                call: call.id,
                result: CallResult {
                    outcome,
                    sent: allowed && *failure != Some(FailureCode::Unavailable),
                    duration_us: 5,
                },
            });
        }
        journal.push(Entry::ModelTurn {
            turn: model_turn,
            calls,
        });
        journal.extend(after);
    }
    journal
}

fn said() -> Ending {
    Ending::Responded("words".to_owned())
}

fn shape(turns: &[&[(&str, Option<FailureCode>)]], ending: &Ending) -> (DecisionType, Outcome, String) {
    let derived = derive(&journal(turns), ending);
    (derived.decision_type, derived.outcome, derived.intent.to_string())
}

const FAILED: Option<FailureCode> = Some(FailureCode::ToolError);

/// C-US4-1, C-US2-1
#[test]
fn a_tool_that_did_the_job_and_an_answer_without_tools_are_distinguished() {
    let tool = shape(&[&[("add_task", None)]], &said());
    assert_eq!(
        tool,
        (DecisionType::InvokeTool, Outcome::TaskCompleted, "add_task".to_owned())
    );
    assert_eq!(
        shape(&[], &said()),
        (DecisionType::RespondOnly, Outcome::ResponseGiven, "respond".to_owned())
    );
}

/// C-US6-2
#[test]
fn a_failure_that_a_later_call_repaired_is_a_success() {
    let (_, outcome, _) = shape(&[&[("add_task", FAILED)], &[("add_task", None)]], &said());
    assert_eq!(outcome, Outcome::TaskCompleted);
    let (_, outcome, _) = shape(&[&[("complete_task", FAILED)], &[("list_tasks", None)]], &said());
    assert_eq!(
        outcome,
        Outcome::ToolInvocation,
        "another tool's success repairs nothing"
    );
    let (_, outcome, _) = shape(&[&[("add_task", None), ("complete_task", FAILED)]], &said());
    assert_eq!(outcome, Outcome::ToolInvocation);
}

/// Promise: truthful states. A call that was never sent does not count as run, and another call does not repair it.
#[test]
fn a_call_that_was_not_sent_is_no_tool_that_ran() {
    const AWAY: Option<FailureCode> = Some(FailureCode::Unavailable);
    assert_eq!(
        shape(&[&[("add_task", AWAY)]], &said()),
        (
            DecisionType::RespondOnly,
            Outcome::ToolInvocation,
            "add_task".to_owned()
        )
    );
    assert_eq!(
        shape(&[&[("add_task", AWAY), ("list_tasks", None)]], &said()),
        (
            DecisionType::InvokeTool,
            Outcome::ToolInvocation,
            "list_tasks".to_owned()
        )
    );
    let (_, outcome, _) = shape(&[&[("add_task", AWAY)], &[("list_tasks", None)]], &said());
    assert_eq!(outcome, Outcome::ToolInvocation);
    let (_, outcome, _) = shape(&[&[("add_task", AWAY)], &[("add_task", None)]], &said());
    assert_eq!(outcome, Outcome::TaskCompleted);
}

/// C, `intent`: the last call with an effect determines the intent, else the last call; a name that the model made up
/// never does.
#[test]
fn the_intent_is_the_last_call_that_had_an_effect_else_the_last_call() {
    let failed = Some(FailureCode::ToolError);
    let unknown = Some(FailureCode::UnknownTool);
    let in_doubt = Some(FailureCode::InDoubt);
    for (turns, intent) in [
        (&[&[("list_tasks", None)][..], &[("add_task", None)]][..], "add_task"),
        (&[&[("add_task", None)], &[("list_tasks", None)]], "add_task"),
        (&[&[("add_task", None)], &[("complete_task", None)]], "complete_task"),
        (&[&[("add_task", in_doubt)], &[("list_tasks", None)]], "add_task"),
        (&[&[("add_task", failed)], &[("list_tasks", None)]], "list_tasks"),
        (
            &[&[("list_tasks", None)], &[("complete_task", failed)]],
            "complete_task",
        ),
        (&[&[("drop_table", unknown)]], "respond"),
        (&[], "respond"),
    ] {
        assert_eq!(shape(turns, &said()).2, intent, "{turns:?}");
    }
}

/// Promise: truthful states. A reply that was cut short mentions an effect only if there was one.
#[test]
fn what_only_read_is_no_progress() {
    for (turns, made) in [
        (&[&[("list_tasks", None)][..]][..], Progress::Nothing),
        (&[&[("add_task", FAILED)]], Progress::Nothing),
        (&[&[("list_tasks", None), ("add_task", None)]], Progress::Partial),
        (&[&[("add_task", Some(FailureCode::InDoubt))]], Progress::InDoubt),
    ] {
        assert_eq!(progress(&journal(turns)), made, "{turns:?}");
    }
}

/// X-6, D-5: a valid output is a success, whatever failed before; but not if an outcome is unknown.
#[test]
fn a_valid_output_is_a_success_whatever_failed_on_the_way() {
    let output = Ending::Verdict(Verdict::Complete {
        output: Completion::Output(Arc::from(r#"{"report": "x"}"#)),
        exits_loop: false,
    });
    for (failure, outcome) in [
        (FailureCode::ToolError, Outcome::TaskCompleted),
        (FailureCode::Denied, Outcome::TaskCompleted),
        (FailureCode::UnknownTool, Outcome::TaskCompleted),
        (FailureCode::InDoubt, Outcome::ToolInvocation),
    ] {
        let turns: &[&[_]] = &[&[("list_tasks", None)], &[("add_task", Some(failure))]];
        assert_eq!(shape(turns, &output).1, outcome, "{failure:?}");
    }
    assert_eq!(shape(&[], &output).1, Outcome::ResponseGiven);
    assert_eq!(
        shape(&[], &Ending::Cancelled),
        (DecisionType::Refuse, Outcome::Cancelled, "none".to_owned())
    );
}

#[test]
fn what_is_in_doubt_stays_so() {
    let (_, outcome, _) = shape(
        &[&[("add_task", Some(FailureCode::InDoubt))], &[("add_task", None)]],
        &said(),
    );
    assert_eq!(outcome, Outcome::ToolInvocation);
}

/// C-FR-009
#[test]
fn a_call_outside_the_grant_is_a_policy_denial_unless_the_model_found_another_way() {
    let denied = shape(&[&[("drop_table", Some(FailureCode::UnknownTool))]], &said());
    assert_eq!(
        denied,
        (DecisionType::Refuse, Outcome::PolicyDenied, "respond".to_owned())
    );
    let (_, outcome, _) = shape(
        &[&[("drop_table", Some(FailureCode::UnknownTool))], &[("add_task", None)]],
        &said(),
    );
    assert_eq!(outcome, Outcome::TaskCompleted);
}

/// C-US3-1, C-US5-2
#[test]
fn a_verdict_decides_even_after_tools_ran() {
    let ask = Ending::Verdict(Verdict::Clarify {
        question: "Which?".to_owned(),
        outcome: Outcome::MultipleMatches,
    });
    let asked = shape(&[&[("list_tasks", None)]], &ask);
    assert_eq!(
        asked,
        (
            DecisionType::RequestClarification,
            Outcome::MultipleMatches,
            "list_tasks".to_owned()
        )
    );
    let no = Ending::Verdict(Verdict::Refuse {
        message: "No.".to_owned(),
        outcome: Outcome::OutOfScope,
    });
    assert_eq!(
        shape(&[], &no),
        (DecisionType::Refuse, Outcome::OutOfScope, "refuse".to_owned())
    );
}

#[test]
fn every_other_ending_has_its_outcome() {
    let table = [
        (
            Ending::Fault(FaultKind::Unavailable),
            DecisionType::RespondOnly,
            Outcome::ModelUnavailable,
        ),
        (
            Ending::Fault(FaultKind::Timeout),
            DecisionType::RespondOnly,
            Outcome::ModelTimeout,
        ),
        (
            Ending::Fault(FaultKind::Malformed),
            DecisionType::RespondOnly,
            Outcome::MalformedOutput,
        ),
        (
            Ending::Fault(FaultKind::Blocked),
            DecisionType::Refuse,
            Outcome::SafetyBlocked,
        ),
        (Ending::LoopLimit, DecisionType::RespondOnly, Outcome::LoopLimit),
        (Ending::TimeLimit, DecisionType::RespondOnly, Outcome::Deadline),
        (Ending::PAST_DEADLINE, DecisionType::RespondOnly, Outcome::Deadline),
    ];
    for (ending, decision_type, outcome) in table {
        assert_eq!(shape(&[], &ending), (decision_type, outcome, "none".to_owned()));
    }
    let late = shape(&[&[("add_task", None)]], &Ending::Fault(FaultKind::Timeout));
    assert_eq!(
        late,
        (DecisionType::InvokeTool, Outcome::ModelTimeout, "add_task".to_owned())
    );
}
