//! Whatever a model sends, a run ends within its limits and nothing runs without approval.

use crate::journal::Journal;
use std::collections::HashSet;
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::domain::decision::Usage;
use crate::domain::definition::Approval;
use crate::domain::ids::{TenantId, UserId};
use crate::domain::journal::PolicyDecision;
use crate::domain::journal::{CallFailure, CallResult, FunctionCall};
use crate::gate::{Attempt, Facts, decide};
use crate::testing::{catalog_of, function_call, raw, tool_on, tool_with, turn_of};
use crate::toolset::Toolset;
use crate::verdict::VerdictFunction;
use std::sync::Arc;

/// What a model may send in one turn.
#[derive(Clone, Debug)]
enum Says {
    Turn(String, Vec<FunctionCall>),
    Fault(FaultKind),
}

fn any_call() -> impl Strategy<Value = FunctionCall> {
    let name = prop_oneof![
        Just("add_task".to_owned()),
        Just("drop_table".to_owned()),
        Just("secret".to_owned()),
        Just("request_clarification".to_owned()),
        Just("refuse".to_owned()),
        ".{0,12}",
    ];
    let args = prop_oneof![
        Just("{}"),
        Just("[]"),
        Just(r#"{"description":"x"}"#),
        Just(r#"{"description":1}"#),
        Just(r#"{"question":"Which?","kind":"UNCLEAR_INTENT"}"#),
        Just(r#"{"message":"No.","kind":"OUT_OF_SCOPE"}"#),
    ];
    (name, args).prop_map(|(name, args)| function_call(&name, args))
}

fn any_turn() -> impl Strategy<Value = Says> {
    prop_oneof![
        8 => (".{0,6}", prop::collection::vec(any_call(), 0..5)).prop_map(|(text, calls)| Says::Turn(text, calls)),
        1 => prop::collection::vec(any_call(), 90..110).prop_map(|calls| Says::Turn(String::new(), calls)),
        1 => prop_oneof![Just(FaultKind::Timeout), Just(FaultKind::Blocked)].prop_map(Says::Fault),
    ]
}

fn toolset() -> Toolset {
    let schema = r#"{"type":"object","properties":{"description":{"type":"string"}},"required":["description"]}"#;
    let catalog = catalog_of([tool_with("add_task", schema, |_| {}), tool_on("tasks", "secret")]);
    Toolset::build(&catalog, &["add_task".to_owned()], &VerdictFunction::CHAT)
}

struct Played {
    ending: Ending,
    journal: Journal,
    ran: Vec<ActionId>,
}

/// Plays a script against `next` like the engine; every allowed call succeeds.
fn play(script: &[Says], approval: Approval, can_wait: bool, step: Duration) -> Played {
    let (toolset, limits, user) = (toolset(), Limits::CHAT, UserId::parse("ann").unwrap());
    let facts = Facts {
        approval,
        can_wait,
        ..Facts::new(TenantId::default(), user, "chat", Arc::default())
    };
    let mut journal = Journal::from(vec![Entry::User("hello".to_owned())]);
    let (mut script, mut ran, mut elapsed) = (script.iter().cycle(), Vec::new(), Duration::ZERO);
    for _ in 0..1000 {
        let ok = |call: &Proposed| Entry::Result {
            call: call.id,
            result: CallResult {
                outcome: Ok(Arc::from(raw("1"))),
                sent: true,
                duration_us: 1,
            },
        };
        let failed = |call: &Proposed, code| Entry::Result {
            call: call.id,
            result: CallResult {
                outcome: Err(CallFailure::new(code, String::new())),
                sent: false,
                duration_us: 0,
            },
        };
        let mut new = Vec::new();
        match next(&journal, &limits, elapsed) {
            Next::Ask => new.push(match script.next().unwrap() {
                Says::Turn(text, calls) => {
                    let (turn, calls) = turn_of(&toolset, text, calls);
                    Entry::ModelTurn { turn, calls }
                }
                Says::Fault(kind) => Entry::ModelFault {
                    said: None,
                    served: Default::default(),
                    kind: *kind,
                    usage: Usage::default(),
                },
            }),
            Next::Act(calls) => {
                for call in calls {
                    let decision = decide(call, &facts, None, Attempt::First).outcome;
                    new.push(Entry::Decided {
                        call: call.id,
                        decision: decision.clone(),
                        lost: Vec::new(),
                    });
                    match decision {
                        PolicyDecision::Allow { .. } => {
                            ran.push(call.id);
                            new.push(Entry::Started {
                                call: call.id,
                                at_us: 0,
                                child: None,
                            });
                            new.push(ok(call));
                        }
                        PolicyDecision::Refuse { code, .. } => new.push(failed(call, code)),
                        PolicyDecision::RequireApproval { .. } => {}
                    }
                }
            }
            Next::Refuse(calls, code) => new.extend(calls.into_iter().map(|call| failed(call, code))),
            Next::Suspend(calls) => {
                return Played {
                    ending: Ending::Suspended(calls),
                    journal,
                    ran,
                };
            }
            Next::End(ending) => return Played { ending, journal, ran },
            other => panic!("{other:?} does not occur in a chat"),
        }
        journal.extend(new);
        elapsed += step;
    }
    panic!("the run did not end: {journal:?}");
}

proptest! {
    /// C-FR-009, C-FR-011, C-FR-012, C-SC-6
    #[test]
    fn a_run_ends_in_bounds_and_answers_every_call_once(
        script in prop::collection::vec(any_turn(), 1..8),
        step_ms in 0_u64..4000,
    ) {
        let played = play(&script, Approval::Never, false, Duration::from_millis(step_ms));
        prop_assert!(Some(iterations(&played.journal)) <= Limits::CHAT.iterations);
        prop_assert!(!matches!(played.ending, Ending::Suspended(_)));
        let mut answered = HashSet::new();
        for entry in &played.journal {
            if let Entry::Result { call, .. } = entry {
                prop_assert!(answered.insert(*call), "answered twice");
            }
        }
        for entry in &played.journal {
            if let Entry::ModelTurn { calls, .. } = entry {
                let ended_here = matches!(played.ending, Ending::Verdict(_)) && calls.len() == 1;
                for call in calls {
                    prop_assert!(ended_here || answered.contains(&call.id));
                    let ran = played.ran.contains(&call.id);
                    prop_assert!(!ran || matches!(&call.target, Target::Tool(tool) if tool.name.as_ref() == "add_task"));
                    prop_assert!(!ran || !calls.iter().any(|c| matches!(c.target, Target::Verdict(_))));
                }
                let ran_here = calls.iter().filter(|call| played.ran.contains(&call.id)).count();
                prop_assert!(ran_here <= Limits::CHAT.parallel_calls);
            }
        }
    }

    #[test]
    fn where_a_person_must_agree_nothing_runs_before(script in prop::collection::vec(any_turn(), 1..8)) {
        let played = play(&script, Approval::Always, true, Duration::ZERO);
        prop_assert!(played.ran.is_empty());
    }
}

/// C-EC-3
#[test]
fn an_endless_loop_ends_at_the_fifth_iteration_and_the_last_turns_calls_do_not_run() {
    let script = [Says::Turn(
        String::new(),
        vec![function_call("add_task", r#"{"description":"x"}"#)],
    )];
    let played = play(&script, Approval::Never, false, Duration::ZERO);
    assert_eq!(played.ending, Ending::LoopLimit);
    assert_eq!(iterations(&played.journal), 5);
    assert_eq!(played.ran.len(), 4);
}

#[test]
fn a_verdict_beside_a_call_runs_nothing_and_costs_an_iteration() {
    let mixed = vec![
        function_call("add_task", r#"{"description":"x"}"#),
        function_call("refuse", r#"{"message":"No.","kind":"OUT_OF_SCOPE"}"#),
    ];
    let script = [Says::Turn(String::new(), mixed), Says::Turn("Done.".to_owned(), vec![])];
    let played = play(&script, Approval::Never, false, Duration::ZERO);
    assert!(played.ran.is_empty());
    assert_eq!(played.ending, Ending::Responded("Done.".to_owned()));
    assert_eq!(iterations(&played.journal), 2);
}

/// C-FR-004
#[test]
fn a_verdict_alone_ends_the_run() {
    let ask = function_call(
        "request_clarification",
        r#"{"question":"Add it, or find it?","kind":"UNCLEAR_INTENT"}"#,
    );
    let played = play(
        &[Says::Turn(String::new(), vec![ask])],
        Approval::Never,
        false,
        Duration::ZERO,
    );
    assert!(matches!(played.ending, Ending::Verdict(Verdict::Clarify { .. })));
}

#[test]
fn an_exceeded_time_limit_ends_the_run() {
    let script = [Says::Turn(
        String::new(),
        vec![function_call("add_task", r#"{"description":"x"}"#)],
    )];
    let played = play(&script, Approval::Never, false, Duration::from_secs(12));
    assert_eq!(played.ending, Ending::TimeLimit);
}

/// C-EC-2
#[test]
fn a_turn_of_nothing_is_a_malformed_answer() {
    let played = play(
        &[Says::Turn(" \n".to_owned(), vec![])],
        Approval::Never,
        false,
        Duration::ZERO,
    );
    assert_eq!(played.ending, Ending::Fault(FaultKind::Malformed));
}
