#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};

use super::*;
use crate::domain::action::Details;
use crate::domain::decision::Usage;
use crate::domain::ids::PlanningSessionId;
use crate::domain::journal::{
    CallFailure, CallMode, CallResult, Cause, Entry, FunctionCall, ModelTurn, Part, PolicyDecision, Proposed, Target,
    ToolRef, Verdict,
};
use crate::domain::plan::{Plan, Task};
use crate::domain::reflection::Reflection;
use crate::domain::settings::TaskLimits;
use crate::domain::tool::FailureCode;
use crate::engine::projection::Projection;
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

/// A reader in a task's run, whose first step has begun.
struct InTask {
    root: RunId,
    run: RunId,
    step: Proposed,
    projections: HashMap<RunId, Projection>,
    places: Places,
}

impl InTask {
    /// Before the first entry.
    fn before(execution: Option<&Execution>) -> Self {
        Self {
            root: RunId::new(),
            run: RunId::new(),
            step: proposed(Target::Agent("task_worker".into()), "task_worker", &json!({})),
            projections: HashMap::new(),
            places: Places::new(execution),
        }
    }

    fn new() -> Self {
        let mut task = Self::before(Some(&execution()));
        let (root, run) = (task.root, task.run);
        let step = Entry::Step {
            step: 1,
            round: 1,
            call: task.step.clone(),
        };
        assert_eq!(task.of(root, &step), Value::Null);
        let begun = task.of(root, &started(task.step.id, Some(run)));
        assert_eq!(
            begun,
            json!({"task": "t1", "run_id": run, "type": "task_started", "title": "Run the tests", "max_steps": 25})
        );
        // After a crash the same run continues.
        assert_eq!(task.of(root, &started(task.step.id, Some(run))), Value::Null);
        let begins = task.next(&phase(Phase::Reason));
        assert_eq!(
            (&begins["type"], &begins["task"], &begins["step"]),
            (&json!("phase"), &json!("t1"), &json!(1))
        );
        task
    }

    /// The event of an entry of this run, with its task and step; null if there is none.
    fn of(&mut self, run: RunId, entry: &Entry) -> Value {
        let Some(what) = self.projections.entry(run).or_default().event(entry) else {
            return Value::Null;
        };
        let (at, run_id) = (None, run);
        let placed = self.places.place(RunEvent { run_id, at, what });
        placed.map_or(Value::Null, |((task, step), event)| {
            let mut event = serde_json::to_value(event).unwrap();
            if let Some(task) = task {
                event["task"] = json!(task);
            }
            if let Some(step) = step {
                event["step"] = json!(step);
            }
            event
        })
    }

    fn next(&mut self, entry: &Entry) -> Value {
        self.of(self.run, entry)
    }
}

/// P-303, P-305: the phases of a step, its call, and what the model concluded, under the task and the step.
#[test]
fn the_phases_of_a_step_are_events_of_its_task() {
    let mut task = InTask::new();
    let run = task.run;
    let reason = task.next(&turn("Run them.", Vec::new()));
    assert_eq!(
        (&reason["type"], &reason["text"], &reason["task"], &reason["step"]),
        (&json!("turn"), &json!("Run them."), &json!("t1"), &json!(1))
    );
    let act = task.next(&phase(Phase::Act));
    assert_eq!(
        act,
        json!({"task": "t1", "step": 1, "run_id": run, "type": "phase", "phase": "act", "again": false})
    );
    let call = tool("executeScript", &json!({"script": "make"}));
    task.next(&turn("", vec![call.clone()]));
    let allowed = Entry::Decided {
        call: call.id,
        decision: PolicyDecision::Allow {
            arguments: raw(&json!({"script": "make test"})),
            by: None,
        },
        lost: Vec::new(),
    };
    assert_eq!(task.next(&allowed), Value::Null);
    let sent = task.next(&started(call.id, None));
    assert_eq!(
        sent,
        json!({"task": "t1", "step": 1, "run_id": run, "type": "tool_call", "action_id": call.id, "sequence": 1,
            "tool": "executeScript", "parameters": {"script": "make test"}})
    );
    let seen = task.next(&result(call.id, Ok(json!({"exitCode": 0}))));
    assert_eq!(
        seen,
        json!({"task": "t1", "step": 1, "run_id": run, "type": "tool_result", "action_id": call.id, "sequence": 1,
            "tool": "executeScript", "success": true, "data": {"exitCode": 0}, "error": null, "duration_ms": 2})
    );
    task.next(&phase(Phase::Reflect));
    let said: Reflection = serde_json::from_value(json!({
        "is_task_complete": true, "summary": "They pass.", "evidence": [{"observation": 1, "quote": "118 passed"}],
        "plan_changes": [{"op": "obsolete", "task": "t2", "why": "it is done"}],
    }))
    .unwrap();
    for (outcome, accepted) in [(Err(FailureCode::Denied), false), (Ok(json!({})), true)] {
        let reflect = proposed(
            Target::Verdict(Ok(Verdict::Reflect(Box::new(said.clone())))),
            "reflect",
            &json!({}),
        );
        task.next(&turn("", vec![reflect.clone()]));
        let event = task.next(&result(reflect.id, outcome));
        assert_eq!(event["type"], "reflection");
        assert_eq!((&event["task"], &event["step"]), (&json!("t1"), &json!(1)));
        assert_eq!(
            (&event["accepted"], &event["is_task_complete"]),
            (&json!(accepted), &json!(true))
        );
        assert_eq!(event["error"].is_null(), accepted);
        assert_eq!(event["plan_changes"][0]["op"], "obsolete");
    }
    // The next step has the next number.
    assert_eq!(task.next(&phase(Phase::Reason))["step"], 2);
}

/// P-303: a reflection whose form is invalid is one that is not accepted.
#[test]
fn an_invalid_reflection_is_not_accepted() {
    let mut task = InTask::new();
    let invalid = proposed(Target::Verdict(Err("no summary".to_owned())), "reflect", &json!({}));
    task.next(&turn("", vec![invalid.clone()]));
    let event = task.next(&result(invalid.id, Err(FailureCode::InvalidArguments)));
    assert_eq!(
        (&event["type"], &event["accepted"], &event["error"]),
        (&json!("reflection"), &json!(false), &json!("why not"))
    );
}

/// P-306: an answer to an approval, and a settlement that the outermost run has, belong to the task of their call.
#[test]
fn approvals_and_settlements_belong_to_the_task_of_their_call() {
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
        lost: Vec::new(),
    };
    let asked = task.next(&asks);
    assert_eq!(
        (
            &asked["type"],
            &asked["task"],
            &asked["action_id"],
            &asked["parameters"]
        ),
        (
            &json!("approval_required"),
            &json!("t1"),
            &json!(call.id),
            &json!({"issueNumber": 7})
        )
    );
    let root = task.root;
    let waits = task.next(&Entry::Suspended);
    assert_eq!(
        (&waits["type"], &waits["task"]),
        (&json!("awaiting_confirmation"), &json!("t1"))
    );
    // The outermost run is suspended with it.
    assert_eq!(
        task.of(root, &Entry::Suspended),
        json!({"type": "awaiting_confirmation", "run_id": root})
    );
    let rejected = task.next(&Entry::ApprovalResolved {
        call: call.id,
        approved: false,
        by: Some("ann".to_owned()),
        reason: Some("not now".to_owned()),
        waited: (0, 0),
    });
    assert_eq!(
        rejected,
        json!({"task": "t1", "step": 1, "run_id": task.run, "type": "approval_resolved", "action_id": call.id,
            "sequence": 1, "tool": "closeIssue", "approved": false, "by": "ann", "reason": "not now"})
    );
    let failed = task.next(&result(call.id, Err(FailureCode::Rejected)));
    assert_eq!(
        (&failed["success"], &failed["error"]["code"]),
        (&json!(false), &json!("rejected"))
    );
    let lost = tool("createIssue", &json!({}));
    task.next(&turn("", vec![lost.clone()]));
    task.next(&started(lost.id, None));
    let in_doubt = task.next(&result(lost.id, Err(FailureCode::InDoubt)));
    assert_eq!(in_doubt["error"]["code"], "in_doubt");
    let settled = task.of(
        root,
        &Entry::OutcomeSettled {
            call: lost.id,
            happened: true,
            by: "ann".to_owned(),
        },
    );
    assert_eq!(
        settled,
        json!({"task": "t1", "step": 1, "run_id": root, "type": "outcome_settled", "action_id": lost.id,
            "happened": true, "by": "ann"})
    );
}

/// P-302: the end of a task says how it ended, also where its run failed without an outcome.
#[test]
fn a_task_ends_with_its_outcome() {
    let ended = |outcome: Result<Value, FailureCode>| {
        let mut task = InTask::new();
        let result = result(task.step.id, outcome);
        let mut event = task.of(task.root, &result);
        assert_eq!(event["run_id"].take(), json!(task.run));
        event
    };
    let plan = json!({"tasks": [], "last": 1});
    let outcome = json!({"status": "COMPLETED", "reason": null, "detail": "", "summary": "All pass.", "learnings": [],
        "steps": 3, "plan": plan, "changes": 0, "in_doubt": [], "created": []});
    assert_eq!(
        ended(Ok(
            json!({"output": outcome, "exits_loop": false, "steps": 9, "usage": Usage::default()})
        )),
        json!({"task": "t1", "run_id": null, "type": "task_ended", "status": "COMPLETED", "reason": null, "detail": "",
            "summary": "All pass.", "steps": 3})
    );
    assert_eq!(
        ended(Err(FailureCode::Cancelled)),
        json!({"task": "t1", "run_id": null, "type": "task_ended", "status": "FAILED", "reason": "cancelled",
            "detail": "why not", "summary": "", "steps": 1})
    );
}

/// What the planner reads belongs to no task.
#[test]
fn a_planning_run_has_no_tasks() {
    let mut reader = InTask::before(None);
    let root = reader.root;
    let read = Entry::Step {
        step: 0,
        round: 1,
        call: tool("getFileContents", &json!({"path": "README.md"})),
    };
    let id = read.calls()[0].id;
    assert_eq!(reader.of(root, &read), Value::Null);
    let sent = reader.of(root, &started(id, None));
    assert_eq!(
        (&sent["type"], &sent["task"], &sent["step"]),
        (&json!("tool_call"), &Value::Null, &Value::Null)
    );
}
