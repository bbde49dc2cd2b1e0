#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

use super::*;
use crate::domain::action::Details;
use crate::domain::decision::Usage;
use crate::domain::ids::PlanningSessionId;
use crate::domain::journal::{
    CallFailure, CallMode, CallResult, FunctionCall, ModelTurn, Part, PolicyDecision, ToolRef,
};
use crate::domain::plan::{Plan, Task};
use crate::domain::settings::TaskLimits;
use crate::domain::tool::FailureCode;
use crate::engine::strategy::plan::{PhaseTemplates, TaskRules};

fn raw(value: &Value) -> Arc<RawValue> {
    Arc::from(to_raw_value(value).unwrap())
}

fn execution() -> Execution {
    let session = PlanningSessionId::new();
    let task = Task {
        title: "Run the tests".to_owned(),
        ..Task::new(TaskId::of(1), session)
    };
    Execution {
        session,
        goal: "g".to_owned(),
        repo_url: "https://github.com/acme/dates".to_owned(),
        plan: Plan {
            tasks: vec![task],
            last: 1,
        },
        tools: vec!["executeScript".to_owned()],
        rules: TaskRules {
            limits: TaskLimits::default(),
            templates: PhaseTemplates {
                reason: String::new(),
                act: String::new(),
                reflect: String::new(),
            },
        },
    }
}

fn proposed(target: Target, name: &str, arguments: &Value) -> Proposed {
    Proposed {
        id: ActionId::new(),
        sequence: 1,
        call: FunctionCall {
            id: None,
            name: name.to_owned(),
            args: to_raw_value(arguments).unwrap(),
        },
        target,
    }
}

fn tool(name: &str, arguments: &Value) -> Proposed {
    let tool = ToolRef {
        server: "docker".into(),
        name: name.into(),
        digest: "d".into(),
        side_effect: true,
    };
    proposed(Target::Unresolved(tool), name, arguments)
}

fn turn(text: &str, calls: Vec<Proposed>) -> Entry {
    Entry::ModelTurn {
        turn: ModelTurn {
            content: raw(&json!({})),
            parts: vec![Part::Text(text.to_owned())],
            usage: Usage::default(),
            served: crate::domain::journal::Served::by("m"),
        },
        calls,
    }
}

fn phase(phase: Phase) -> Entry {
    Entry::Prompted {
        text: String::new(),
        mode: CallMode::None,
        cause: Cause::Phase {
            phase,
            again: false,
            template: 1,
        },
    }
}

fn started(call: ActionId, child: Option<RunId>) -> Entry {
    Entry::Started { call, at_us: 0, child }
}

fn result(call: ActionId, outcome: Result<Value, FailureCode>) -> Entry {
    Entry::Result {
        call,
        result: CallResult {
            outcome: outcome
                .map(|data| raw(&data))
                .map_err(|code| CallFailure::new(code, "why not")),
            sent: true,
            duration_us: 2_500,
        },
    }
}

/// A projection in a task's run, whose first step has begun.
struct InTask {
    root: RunId,
    run: RunId,
    step: Proposed,
    projection: Projection,
}

impl InTask {
    fn new() -> Self {
        let (root, run) = (RunId::new(), RunId::new());
        let mut task = Self {
            root,
            run,
            step: proposed(Target::Agent("task_worker".into()), "task_worker", &json!({})),
            projection: Projection::new(root, Some(&execution())),
        };
        let step = Entry::Step {
            step: 1,
            round: 1,
            call: task.step.clone(),
        };
        assert_eq!(task.of(root, &step), json!([]));
        let begun = task.of(root, &started(task.step.id, Some(run)));
        assert_eq!(
            begun,
            json!([{"type": "task_started", "taskId": "t1", "title": "Run the tests", "runId": run, "maxSteps": 25}])
        );
        // After a crash the same run continues.
        assert_eq!(task.of(root, &started(task.step.id, Some(run))), json!([]));
        task.next(&phase(Phase::Reason));
        task
    }

    /// The events of an entry of this run; a change of the plan is `"changed"`.
    fn of(&mut self, run: RunId, entry: &Entry) -> Value {
        let events = self
            .projection
            .events(run, entry)
            .into_iter()
            .map(|projected| match projected {
                Projected::Event(event) | Projected::Live(event) => serde_json::to_value(event).unwrap(),
                Projected::PlanChanged => json!("changed"),
            });
        events.collect()
    }

    fn next(&mut self, entry: &Entry) -> Value {
        self.of(self.run, entry)
    }
}

/// P-303, P-305: the phases of a step, its call, and what the model concluded, under the task and the step.
#[test]
fn the_phases_of_a_step_are_events_of_its_task() {
    let mut task = InTask::new();
    let reason = task.next(&turn("Run them.", Vec::new()));
    assert_eq!(
        reason,
        json!([{"type": "phase", "taskId": "t1", "step": 1, "phase": "reason", "again": false, "text": "Run them."}])
    );
    let act = task.next(&phase(Phase::Act));
    assert_eq!(
        act,
        json!([{"type": "phase", "taskId": "t1", "step": 1, "phase": "act", "again": false, "text": null}])
    );
    let call = tool("executeScript", &json!({"script": "make"}));
    assert_eq!(task.next(&turn("", vec![call.clone()])), json!([]));
    let allowed = Entry::Decided {
        call: call.id,
        decision: PolicyDecision::Allow {
            arguments: raw(&json!({"script": "make test"})),
            by: None,
        },
    };
    assert_eq!(task.next(&allowed), json!([]));
    let sent = task.next(&started(call.id, None));
    assert_eq!(
        sent,
        json!([{"type": "tool_call", "taskId": "t1", "step": 1, "actionId": call.id, "tool": "executeScript", "arguments": {"script": "make test"}}])
    );
    // It is sent again under its key after a crash, which is the same call.
    assert_eq!(task.next(&started(call.id, None)), json!([]));
    let seen = task.next(&result(call.id, Ok(json!({"exitCode": 0}))));
    assert_eq!(
        seen,
        json!([{"type": "tool_result", "taskId": "t1", "step": 1, "actionId": call.id, "tool": "executeScript", "success": true, "data": {"exitCode": 0}, "error": null, "durationMs": 2}])
    );
    task.next(&phase(Phase::Reflect));
    let said: Reflection = serde_json::from_value(json!({
        "is_task_complete": true, "summary": "They pass.", "evidence": [{"observation": 1, "quote": "118 passed"}],
        "plan_changes": [{"op": "obsolete", "task": "t2", "why": "it is done"}],
    }))
    .unwrap();
    for (outcome, changes) in [(Err(FailureCode::Denied), false), (Ok(json!({})), true)] {
        let reflect = proposed(
            Target::Verdict(Ok(Verdict::Reflect(Box::new(said.clone())))),
            "reflect",
            &json!({}),
        );
        assert_eq!(task.next(&turn("", vec![reflect.clone()])), json!([]));
        let events = task.next(&result(reflect.id, outcome));
        assert_eq!(events[0]["type"], "reflection");
        assert_eq!((&events[0]["taskId"], &events[0]["step"]), (&json!("t1"), &json!(1)));
        assert_eq!(
            (&events[0]["accepted"], &events[0]["isTaskComplete"]),
            (&json!(changes), &json!(true))
        );
        assert_eq!(events[0]["error"].is_null(), changes);
        assert_eq!(events[0]["planChanges"][0]["op"], "obsolete");
        assert_eq!(events.get(1).is_some(), changes, "{events}");
    }
    // The next step has the next number.
    assert_eq!(task.next(&phase(Phase::Reason))[0]["step"], 2);
}

/// P-306: what the work waits for, and the answers.
#[test]
fn approvals_and_settlements_are_waited_for_and_answered() {
    let mut task = InTask::new();
    let call = tool("closeIssue", &json!({"issueNumber": 7}));
    task.next(&phase(Phase::Act));
    task.next(&turn("", vec![call.clone()]));
    let asks = Entry::Decided {
        call: call.id,
        decision: PolicyDecision::RequireApproval {
            arguments: raw(&json!({"issueNumber": 7})),
            by: Vec::new(),
            details: Details {
                reason: "the operator requires it".to_owned(),
                ..Details::default()
            },
        },
    };
    // Its approval can be answered once the run is suspended.
    assert_eq!(task.next(&asks), json!([]));
    let root = task.root;
    let waits = task.next(&Entry::Suspended);
    assert_eq!(
        waits,
        json!([{"type": "waiting", "waitingFor": [{"kind": "approval", "taskId": "t1", "actionId": call.id, "tool": "closeIssue", "arguments": {"issueNumber": 7}, "reason": "the operator requires it"}]}])
    );
    // The outermost run is suspended with it.
    assert_eq!(task.of(root, &Entry::Suspended), json!([]));
    let rejected = task.next(&Entry::ApprovalResolved {
        call: call.id,
        approved: false,
        by: Some("ann".to_owned()),
        reason: Some("not now".to_owned()),
    });
    assert_eq!(
        rejected,
        json!([{"type": "resumed", "why": "rejected", "actionId": call.id, "taskId": "t1", "tool": "closeIssue", "detail": "not now"}])
    );
    let failed = task.next(&result(call.id, Err(FailureCode::Rejected)));
    assert_eq!(
        (&failed[0]["success"], &failed[0]["error"]["code"]),
        (&json!(false), &json!("rejected"))
    );
    let lost = tool("createIssue", &json!({}));
    task.next(&turn("", vec![lost.clone()]));
    task.next(&started(lost.id, None));
    assert_eq!(
        task.next(&result(lost.id, Err(FailureCode::InDoubt)))[0]["error"]["code"],
        "in_doubt"
    );
    let waits = task.of(root, &Entry::Suspended);
    assert_eq!(waits[0]["waitingFor"][0]["kind"], "in_doubt", "{waits}");
    assert_eq!(waits[0]["waitingFor"][0]["actionId"], json!(lost.id));
    let settled = task.of(
        root,
        &Entry::OutcomeSettled {
            call: lost.id,
            happened: true,
            by: "ann".to_owned(),
        },
    );
    assert_eq!(
        (&settled[0]["type"], &settled[0]["why"]),
        (&json!("resumed"), &json!("happened"))
    );
    assert_eq!(task.of(root, &Entry::Suspended), json!([]));
}

/// P-302: the end of a task says how it ended, also where its run failed without an outcome.
#[test]
fn a_task_ends_with_its_outcome() {
    let ended = |result: Entry, task: &mut InTask| task.of(task.root, &result);
    let plan = json!({"tasks": [], "last": 1});
    let outcome = json!({"status": "COMPLETED", "reason": null, "detail": "", "summary": "All pass.", "learnings": [],
        "steps": 3, "plan": plan, "changes": 0, "in_doubt": [], "created": []});
    let mut task = InTask::new();
    let step = task.step.id;
    assert_eq!(
        ended(
            result(
                step,
                Ok(json!({"output": outcome, "exits_loop": false, "steps": 9, "usage": Usage::default()}))
            ),
            &mut task
        ),
        json!([{"type": "task_ended", "taskId": "t1", "status": "COMPLETED", "reason": null, "detail": "", "summary": "All pass.", "steps": 3}])
    );
    let mut task = InTask::new();
    let step = task.step.id;
    assert_eq!(
        ended(result(step, Err(FailureCode::Cancelled)), &mut task),
        json!([{"type": "task_ended", "taskId": "t1", "status": "FAILED", "reason": "cancelled", "detail": "why not", "summary": "", "steps": 1}])
    );
}

/// What the planner says when it hands in its plan is no tool call; what it reads is, of no task.
#[test]
fn a_planning_run_shows_what_it_reads_and_no_verdict() {
    let root = RunId::new();
    let mut projection = Projection::new(root, None);
    let read = Entry::Step {
        step: 0,
        round: 1,
        call: tool("getFileContents", &json!({"path": "README.md"})),
    };
    let id = read.calls()[0].id;
    assert!(projection.events(root, &read).is_empty());
    let sent = projection.events(root, &started(id, None));
    assert!(
        matches!(
            &sent[..],
            [Projected::Event(SessionEvent::ToolCall {
                task_id: None,
                step: None,
                ..
            })]
        ),
        "{sent:?}"
    );
    let hands_in = proposed(Target::Verdict(Err("no plan".to_owned())), "complete_task", &json!({}));
    assert!(
        projection
            .events(root, &turn("Here.", vec![hands_in.clone()]))
            .is_empty()
    );
    assert!(
        projection
            .events(root, &result(hands_in.id, Err(FailureCode::InvalidArguments)))
            .is_empty()
    );
}
