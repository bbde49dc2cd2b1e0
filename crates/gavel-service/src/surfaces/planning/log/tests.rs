#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use serde_json::json;
use serde_json::value::RawValue;

use super::*;
use crate::domain::action::ActionStatus;
use crate::domain::decision::Usage;
use crate::domain::journal::{CallResult, FunctionCall, ModelTurn, PolicyDecision, Proposed, Target, Verdict};
use crate::domain::policy::DecidedBy;
use crate::domain::reflection::Reflection;
use crate::domain::tool::{FailureCode, Tool};

fn raw(value: &serde_json::Value) -> Arc<RawValue> {
    Arc::from(serde_json::value::to_raw_value(value).unwrap())
}

fn call(tool: &str) -> Proposed {
    let arguments = serde_json::value::to_raw_value(&json!({"title": "as written"})).unwrap();
    Proposed::of(&Arc::new(Tool::named("github", tool)), arguments)
}

fn turn(calls: Vec<Proposed>) -> Entry {
    let turn = ModelTurn {
        content: raw(&json!({})),
        parts: Vec::new(),
        usage: Usage::default(),
        served: crate::domain::journal::Served::by("m"),
    };
    Entry::ModelTurn { turn, calls }
}

fn reflects() -> Entry {
    let reflection = Reflection {
        is_task_complete: false,
        summary: "Not yet.".to_owned(),
        evidence: Vec::new(),
        learnings: Vec::new(),
        plan_changes: Vec::new(),
        give_up: None,
    };
    let call = Proposed {
        id: ActionId::new(),
        sequence: 9,
        call: FunctionCall {
            id: None,
            name: "reflect".to_owned(),
            args: serde_json::value::to_raw_value(&json!({})).unwrap(),
        },
        target: Target::Verdict(Ok(Verdict::Reflect(Box::new(reflection)))),
    };
    turn(vec![call])
}

fn allowed(call: ActionId, by: Option<DecidedBy>) -> Entry {
    let arguments = raw(&json!({"title": "as sent"}));
    let decision = PolicyDecision::Allow { arguments, by };
    Entry::Decided {
        call,
        decision,
        lost: Vec::new(),
    }
}

fn started(call: ActionId, at_us: i64) -> Entry {
    Entry::Started {
        call,
        at_us,
        child: None,
    }
}

fn result(call: ActionId, outcome: Result<Arc<RawValue>, CallFailure>) -> Entry {
    let result = CallResult {
        outcome,
        sent: true,
        duration_us: 2_500,
    };
    Entry::Result { call, result }
}

/// The entries of a step that succeeds.
fn step(tool: &str, data: &serde_json::Value) -> Vec<Entry> {
    let call = call(tool);
    let id = call.id;
    vec![
        turn(vec![call]),
        allowed(id, None),
        started(id, 7),
        result(id, Ok(raw(data))),
        reflects(),
    ]
}

fn log(entries: &[Entry], after: u32, most: usize, settled: &HashMap<ActionId, bool>) -> Vec<LoggedAction> {
    let read = Read {
        journal: entries.iter().cloned().collect(),
        times: vec![5; entries.len()],
    };
    let mut page = Page {
        after,
        most,
        count: 0,
        settled: settled.clone(),
        is_at_work: true,
        actions: Vec::new(),
    };
    page.add(Some(TaskId::of(1)), &read, read.of_task());
    page.actions
}

/// P-307: each action has what was sent, when, for how long, with which end, and what decided it. A reflection is none.
#[test]
fn an_action_is_logged_as_it_was_sent() {
    let log = log(&step("createIssue", &json!({})), 0, 10, &HashMap::new());
    assert_eq!(log.len(), 1);
    let action = &log[0];
    assert_eq!(
        (action.n, action.task_id, action.tool.as_str()),
        (1, Some(TaskId::of(1)), "createIssue")
    );
    assert_eq!(action.arguments.get(), r#"{"title":"as sent"}"#);
    assert_eq!((action.status, action.duration_ms), (ActionStatus::Completed, Some(2)));
    assert_eq!(action.at.0, 7);
}

/// Only the first call of a turn is made, so only that one is an action.
#[test]
fn further_calls_of_a_turn_are_no_actions() {
    let (first, second) = (call("createIssue"), call("closeIssue"));
    let refused = Entry::failed(second.id, FailureCode::TooManyCalls, "one call at a time");
    let log = log(&[turn(vec![first, second]), refused], 0, 10, &HashMap::new());
    let tools: Vec<_> = log.iter().map(|action| action.tool.as_str()).collect();
    assert_eq!(tools, ["createIssue"]);
}

/// What required the approval remains what decided it, after a person has approved the call.
#[test]
fn an_approved_action_says_what_required_the_approval() {
    let call = call("closeIssue");
    let id = call.id;
    let asks = Entry::Decided {
        call: id,
        decision: PolicyDecision::RequireApproval {
            arguments: raw(&json!({})),
            by: vec![DecidedBy::Tool],
            details: Default::default(),
        },
        lost: Vec::new(),
    };
    let mut entries = vec![turn(vec![call]), asks];
    let waits = &log(&entries, 0, 10, &HashMap::new())[0];
    assert_eq!(
        (waits.status, waits.duration_ms),
        (ActionStatus::AwaitingConfirmation, None)
    );
    entries.extend([
        Entry::ApprovalResolved {
            call: id,
            approved: true,
            by: Some("ann".to_owned()),
            reason: None,
            waited: (0, 0),
        },
        allowed(id, None),
        started(id, 9),
        result(id, Ok(raw(&json!({})))),
    ]);
    let done = &log(&entries, 0, 10, &HashMap::new())[0];
    assert_eq!(
        (done.status, done.decided_by.as_deref()),
        (ActionStatus::Completed, Some("tool"))
    );
}

/// A call that never started has no duration, and the time at which it was proposed.
#[test]
fn a_refused_action_was_never_sent() {
    let call = call("createIssue");
    let id = call.id;
    let refused = Entry::failed(id, FailureCode::Denied, "denied by the policy: r");
    let action = &log(&[turn(vec![call]), refused], 0, 10, &HashMap::new())[0];
    assert_eq!((action.status, action.duration_ms), (ActionStatus::Failed, None));
    assert_eq!(action.at.0, 5);
    assert_eq!(action.error.as_ref().unwrap().code, FailureCode::Denied);
}

/// A call that was repeated after a crash began when it was sent first, and is one action.
#[test]
fn a_repeated_call_is_one_action_that_began_once() {
    let call = call("createIssue");
    let id = call.id;
    let entries = [
        turn(vec![call]),
        allowed(id, None),
        started(id, 7),
        Entry::Recovered,
        started(id, 9_000_000),
        result(id, Ok(raw(&json!({})))),
    ];
    let log = log(&entries, 0, 10, &HashMap::new());
    assert_eq!((log.len(), log[0].at.0), (1, 7));
}

/// What a person found out about an action in doubt is its outcome.
#[test]
fn a_settled_action_has_the_outcome_that_a_person_found() {
    let call = call("createIssue");
    let id = call.id;
    let in_doubt = CallFailure::new(FailureCode::InDoubt, "no answer");
    let entries = [
        turn(vec![call]),
        allowed(id, None),
        started(id, 7),
        result(id, Err(in_doubt)),
    ];
    let status = |settled: &HashMap<ActionId, bool>| log(&entries, 0, 10, settled)[0].status;
    assert_eq!(status(&HashMap::new()), ActionStatus::InDoubt);
    assert_eq!(status(&HashMap::from([(id, true)])), ActionStatus::Completed);
    assert_eq!(status(&HashMap::from([(id, false)])), ActionStatus::Failed);
}

/// A page holds its own actions and no others, whatever the size of the session.
#[test]
fn a_page_holds_only_its_own_actions() {
    let entries: Vec<_> = (0..10).flat_map(|_| step("createIssue", &json!({}))).collect();
    let numbers = |after, most| {
        let log = log(&entries, after, most, &HashMap::new());
        log.iter().map(|action| action.n).collect::<Vec<_>>()
    };
    assert_eq!(numbers(0, 3), [1, 2, 3]);
    assert_eq!(numbers(3, 3), [4, 5, 6]);
    assert_eq!(numbers(8, 3), [9, 10]);
    assert_eq!(numbers(10, 3), [0; 0]);
}

/// The pull requests of a session are those that GitHub said were opened.
#[test]
fn a_pull_request_is_read_from_the_result_that_opened_it() {
    let opened = json!({"pullRequest": {"number": 7, "htmlUrl": "https://github.com/acme/dates/pull/7"}});
    let mut entries = step("readPullRequest", &opened);
    entries.extend(step("createPullRequest", &opened));
    entries.extend(step("createPullRequest", &json!("something else")));
    assert_eq!(
        pull_requests(&entries.into_iter().collect()),
        [PullRequest {
            number: 7,
            url: "https://github.com/acme/dates/pull/7".to_owned()
        }]
    );
}
