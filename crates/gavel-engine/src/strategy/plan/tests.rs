#![allow(clippy::unwrap_used)]

use crate::journal::Journal;
use std::collections::BTreeSet;
use std::sync::Arc;

use super::super::plan;
use super::*;
use crate::domain::canonical;
use crate::domain::decision::Usage;
use crate::domain::ids::RunId;
use crate::domain::journal::{CallFailure, CallResult, PolicyDecision};
use crate::domain::plan::Task;
use crate::domain::planning_session::{SessionReason, SessionStatus};
use crate::domain::tool::FailureCode;
use crate::flow::StepOutput;
use crate::testing::raw;

fn execution(tasks: u32) -> Execution {
    let session = PlanningSessionId::new();
    let tasks: Vec<_> = (1..=tasks)
        .map(|number| Task {
            title: format!("Task {number}"),
            goal: "a goal".to_owned(),
            done_when: "it is seen".to_owned(),
            tools: vec!["read".to_owned()],
            ..Task::new(TaskId::of(number), session)
        })
        .collect();
    Execution {
        session,
        goal: "the goal".to_owned(),
        repo_url: "https://github.com/acme/dates".to_owned(),
        plan: Plan {
            last: tasks.len() as u32,
            tasks,
        },
        tools: vec!["read".to_owned()],
        rules: TaskRules {
            limits: TaskLimits {
                max_steps: 10,
                max_tokens: Some(1000),
                ..TaskLimits::default()
            },
            templates: PhaseTemplates {
                reason: String::new(),
                act: String::new(),
                reflect: String::new(),
            },
        },
    }
}

/// The work on a plan whose tasks these tests play.
struct Played {
    execution: Execution,
    journal: Journal,
    limits: Limits,
}

impl Played {
    fn new(tasks: u32) -> Self {
        Self {
            execution: execution(tasks),
            journal: Journal::default(),
            limits: Limits::AGENT,
        }
    }

    fn next(&self) -> Next<'_> {
        next(&self.journal, &self.execution, &self.limits, Duration::ZERO)
    }

    /// Begins the task that is due.
    fn begin(&mut self) -> (TaskId, ActionId) {
        let Next::Step(number, 1) = self.next() else {
            panic!("no task is due: {:?}", self.next());
        };
        let entry = plan::step(&self.execution, &self.journal, number);
        let id = entry.calls()[0].id;
        self.journal.push(entry);
        assert!(matches!(self.next(), Next::Act(_)));
        self.journal.push(Entry::Decided {
            call: id,
            decision: PolicyDecision::Allow {
                arguments: raw("{}").into(),
                by: None,
            },
            lost: Vec::new(),
        });
        self.journal.push(Entry::Started {
            call: id,
            at_us: 1,
            child: Some(RunId::new()),
        });
        assert!(matches!(self.next(), Next::Recover(_)));
        (TaskId::of(number), id)
    }

    /// Plays the task that is due, with this change of its outcome.
    fn task(&mut self, change: impl FnOnce(&mut TaskOutcome)) -> TaskId {
        let (task, call) = self.begin();
        let work = Progress::of(&self.journal, &self.execution).work(task, &self.execution, 0);
        assert_eq!(work.plan.task(task).unwrap().status, TaskStatus::InProgress);
        let mut outcome = TaskOutcome {
            status: TaskStatus::Completed,
            reason: None,
            detail: String::new(),
            summary: format!("{task} is done"),
            learnings: Vec::new(),
            steps: 2,
            plan: work.plan,
            changes: 0,
            in_doubt: BTreeSet::new(),
            created: BTreeSet::new(),
        };
        change(&mut outcome);
        let output = StepOutput {
            output: serde_json::to_value(outcome).unwrap(),
            exits_loop: false,
            steps: 6,
            usage: Usage {
                input_tokens: 100,
                ..Usage::default()
            },
        };
        self.result(call, Ok(output.to_raw().get()));
        task
    }

    fn result(&mut self, call: ActionId, outcome: Result<&str, FailureCode>) {
        let outcome = match outcome {
            Ok(text) => Ok(Arc::from(canonical::to_raw(&serde_json::from_str(text).unwrap()))),
            Err(code) => Err(CallFailure::new(code, "the run broke down")),
        };
        let result = CallResult {
            outcome,
            sent: true,
            duration_us: 1,
        };
        self.journal.push(Entry::Result { call, result });
    }

    fn ended(&self) -> (SessionStatus, Option<SessionReason>) {
        let Next::End(ending) = self.next() else {
            panic!("it has not ended: {:?}", self.next());
        };
        let ended = self.execution.ended(&self.journal, &ending, None).ended.unwrap();
        (ended.status, ended.reason.map(|(code, _)| code))
    }

    fn past_deadline(&mut self) {
        self.limits.until = Some(crate::limits::Until::new(0, 1, Duration::ZERO));
    }
}

fn fails(outcome: &mut TaskOutcome) {
    outcome.status = TaskStatus::Failed;
    outcome.reason = Some(TaskReason::GaveUp);
}

/// P-302, P-306: in order, until every task is done.
#[test]
fn tasks_are_taken_in_order_until_none_is_left() {
    let mut work = Played::new(2);
    assert_eq!(work.task(|_| {}).to_string(), "t1");
    let entry = plan::step(&work.execution, &work.journal, 2);
    assert!(entry.calls()[0].call.args.get().contains("t1 is done"));
    assert_eq!(work.task(|_| {}).to_string(), "t2");
    // Looked at before the deadline.
    work.past_deadline();
    assert_eq!(work.ended(), (SessionStatus::Completed, None));
}

/// P-304: what a task changes in the plan holds for those after it.
#[test]
fn a_task_that_an_earlier_one_made_obsolete_never_begins() {
    let mut work = Played::new(3);
    work.task(|outcome| {
        let task = outcome.plan.task_mut(TaskId::of(2)).unwrap();
        task.status = TaskStatus::Obsolete;
        outcome.changes = 1;
    });
    assert_eq!(work.task(|_| {}).to_string(), "t3");
    assert_eq!(work.ended(), (SessionStatus::Completed, None));
    let progress = Progress::of(&work.journal, &work.execution);
    assert_eq!(
        progress.work(TaskId::of(3), &work.execution, 0).changes,
        MOST_CHANGES - 1
    );
}

/// P-306: a failed task that nothing replaces fails the session.
#[test]
fn a_failed_task_fails_the_session_unless_another_one_takes_its_place() {
    let mut work = Played::new(2);
    work.task(fails);
    assert_eq!(work.ended(), (SessionStatus::Failed, Some(SessionReason::TaskFailed)));
    let mut work = Played::new(1);
    let session = work.execution.session;
    work.task(|outcome| {
        outcome.plan.tasks.push(Task {
            replaces: Some(TaskId::of(1)),
            ..Task::new(TaskId::of(2), session)
        });
        fails(outcome);
        outcome.reason = Some(TaskReason::Replaced);
    });
    assert_eq!(work.task(|_| {}).to_string(), "t2");
    assert_eq!(work.ended(), (SessionStatus::Completed, None));
    // A run that broke down has no outcome.
    let mut work = Played::new(1);
    let (_, call) = work.begin();
    work.result(call, Err(FailureCode::Unavailable));
    assert_eq!(work.ended(), (SessionStatus::Failed, Some(SessionReason::Internal)));
}

/// A session with an unsettled action in doubt is never complete.
#[test]
fn a_session_waits_for_the_settlement_of_calls_in_doubt_when_nothing_else_is_left() {
    let mut work = Played::new(1);
    let call = ActionId::new();
    work.task(|outcome| outcome.in_doubt = BTreeSet::from([call]));
    assert!(matches!(work.next(), Next::AwaitSettlement(calls) if calls == [call]));
    let mut late = Played {
        journal: work.journal.clone(),
        execution: work.execution.clone(),
        limits: work.limits,
    };
    late.past_deadline();
    assert_eq!(
        late.ended(),
        (SessionStatus::DeadlineExceeded, Some(SessionReason::Deadline))
    );
    work.journal.push(Entry::OutcomeSettled {
        call,
        happened: false,
        by: "ann".to_owned(),
    });
    assert_eq!(work.ended(), (SessionStatus::Completed, None));
}

/// Limits of the session.
#[test]
fn a_session_ends_when_its_steps_tokens_or_time_are_used_up() {
    let mut work = Played::new(3);
    work.task(|outcome| outcome.steps = 10);
    assert_eq!(work.ended(), (SessionStatus::Failed, Some(SessionReason::StepLimit)));
    // A task has what those before it have left.
    let of_task = Progress::of(&work.journal, &work.execution).work(TaskId::of(2), &work.execution, 400);
    assert_eq!(
        (of_task.rules.limits.max_steps, of_task.rules.limits.max_tokens),
        (0, Some(600))
    );
    // A task that is not done had the last steps of the session, or those of its own limit alone.
    for (steps, reason) in [(10, SessionReason::StepLimit), (9, SessionReason::TaskFailed)] {
        let mut work = Played::new(3);
        work.task(|outcome| {
            fails(outcome);
            (outcome.reason, outcome.steps) = (Some(TaskReason::StepLimit), steps);
        });
        assert_eq!(work.ended(), (SessionStatus::Failed, Some(reason)));
    }
    let mut work = Played::new(3);
    work.task(|_| {});
    work.execution.rules.limits.max_tokens = Some(100);
    assert_eq!(work.ended(), (SessionStatus::Failed, Some(SessionReason::TokenLimit)));
    let mut work = Played::new(3);
    work.task(|_| {});
    work.past_deadline();
    let status = (SessionStatus::DeadlineExceeded, Some(SessionReason::Deadline));
    assert_eq!(work.ended(), status);
    // The deadline passed during a task.
    let mut work = Played::new(3);
    work.task(|outcome| {
        outcome.status = TaskStatus::Failed;
        outcome.reason = Some(TaskReason::Deadline);
    });
    assert_eq!(work.ended(), status);
}

/// The plan is written with the entries that change it.
#[test]
fn the_plan_is_written_when_a_task_begins_and_ends() {
    let mut work = Played::new(1);
    let (task, call) = work.begin();
    let at = work.journal.len();
    let plan = worked(&work.journal, at - 1, &work.execution).unwrap().plan;
    let begun = plan.task(task).unwrap();
    assert!(begun.status == TaskStatus::InProgress && begun.run_id.is_some() && begun.started_at.is_some());
    assert_eq!(worked(&work.journal, at, &work.execution), None);
    work.result(call, Err(FailureCode::Cancelled));
    let plan = worked(&work.journal, at, &work.execution).unwrap().plan;
    let ended = plan.task(task).unwrap();
    assert!(ended.status == TaskStatus::Failed && ended.completed_at.is_some());
}

/// A session that was cancelled or cut by its deadline has no task in progress.
#[test]
fn the_end_of_a_session_ends_the_task_in_progress() {
    let mut work = Played::new(1);
    work.begin();
    for (ending, reason) in [
        (Ending::Cancelled, TaskReason::Cancelled),
        (Ending::PAST_DEADLINE, TaskReason::Deadline),
    ] {
        let worked = work.execution.ended(&work.journal, &ending, None);
        let task = &worked.plan.tasks[0];
        assert_eq!(task.status_reason.as_ref().map(|reason| reason.code), Some(reason));
    }
}
