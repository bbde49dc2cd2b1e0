#![allow(clippy::unwrap_used)]

use crate::journal::Journal;
use std::sync::Arc;

use serde_json::{Value, json};

use super::super::plan::{PhaseTemplates, TaskRules};
use super::*;
use crate::domain::canonical;
use crate::domain::ids::PlanningSessionId;
use crate::domain::journal::{CallFailure, CallMode, CallResult, OwnError};
use crate::domain::plan::{Plan, Task, TaskId, TaskStatus};
use crate::domain::settings::TaskLimits;
use crate::testing::{catalog_of, function_call, tool_on, turn_of};
use crate::toolset::Toolset;
use crate::verdict::VerdictFunction;

const SECOND: Duration = Duration::from_secs(1);

/// A task that is worked on by a model that these tests play.
struct Played {
    journal: Journal,
    work: TaskWork,
    limits: Limits,
    toolset: Toolset,
}

fn work() -> TaskWork {
    let session = PlanningSessionId::new();
    let task = |number: u32, status| Task {
        title: format!("Task {number}"),
        goal: "a goal".to_owned(),
        done_when: "it is seen".to_owned(),
        tools: vec!["read".to_owned()],
        status,
        ..Task::new(TaskId::of(number), session)
    };
    TaskWork {
        session,
        task: TaskId::of(1),
        plan: Plan {
            tasks: vec![task(1, TaskStatus::InProgress), task(2, TaskStatus::Pending)],
            last: 2,
        },
        tools: vec!["read".to_owned(), "write".to_owned()],
        rules: TaskRules {
            limits: TaskLimits::default(),
            templates: PhaseTemplates {
                reason: "Step ${step}, ${steps_left} left, ${time_left}. ${notice}".to_owned(),
                act: "Act. ${notice}".to_owned(),
                reflect: "Reflect on step ${step}. ${notice}".to_owned(),
            },
        },
        changes: 20,
    }
}

impl Played {
    fn new() -> Self {
        Self::on(work())
    }

    fn on(work: TaskWork) -> Self {
        let tools: Vec<_> = ["read", "write"].map(|name| tool_on("tools", name)).into();
        let reflect = VerdictFunction::Reflect(work.tools.as_slice().into());
        Self {
            journal: vec![Entry::User("the task".to_owned())].into(),
            toolset: Toolset::build(&catalog_of(tools), &work.tools, &[reflect]),
            work,
            limits: Limits::AGENT,
        }
    }

    fn next(&self) -> Next<'_> {
        next(&self.journal, &self.work, &self.limits, Duration::ZERO)
    }

    /// Takes the phase that is due, which must be this one, and plays the model's turn.
    fn turn(&mut self, phase: Phase, text: &str, calls: &[(&str, Value)]) {
        let again = match self.next() {
            Next::Phase(due, again) if due == phase => Some(again),
            Next::Ask => None,
            other => panic!("{phase:?} is not due, but {other:?}"),
        };
        if let Some(again) = again {
            let now = (&self.limits, Duration::ZERO);
            let entry = prompt((phase, again), &self.work, &self.journal, &self.toolset, now);
            self.journal.push(entry);
            assert!(matches!(self.next(), Next::Ask));
        }
        let calls: Vec<_> = calls
            .iter()
            .map(|(name, args)| function_call(name, &args.to_string()))
            .collect();
        let (turn, calls) = turn_of(&self.toolset, text, &calls);
        self.journal.push(Entry::ModelTurn { turn, calls });
    }

    fn result(&mut self, call: &Proposed, outcome: Result<Value, FailureCode>) {
        self.ended(call, outcome.map_err(|code| CallFailure::new(code, "it went amiss")));
    }

    fn ended(&mut self, call: &Proposed, outcome: Result<Value, CallFailure>) {
        let outcome = outcome.map(|value| Arc::from(canonical::to_raw(&value)));
        let result = CallResult {
            outcome,
            sent: true,
            duration_us: 1,
        };
        self.journal.push(Entry::Result { call: call.id, result });
    }

    /// Plays Reason and Act of a step, with this result.
    fn act(&mut self, args: Value, outcome: Result<Value, FailureCode>) {
        self.turn(Phase::Reason, "I read it.", &[]);
        self.turn(Phase::Act, "", &[("read", args)]);
        let Next::Act(calls) = self.next() else {
            panic!("the call is not made: {:?}", self.next());
        };
        let call = calls[0].clone();
        self.result(&call, outcome);
    }

    /// A step whose tool fails with a code of its own.
    fn fails(&mut self, n: usize, own: &str) {
        self.turn(Phase::Reason, "I try.", &[]);
        self.turn(Phase::Act, "", &[("read", json!({"n": n}))]);
        let Next::Act(calls) = self.next() else {
            panic!("the call is not made: {:?}", self.next());
        };
        let call = calls[0].clone();
        let failure = CallFailure {
            own: OwnError::read(&json!({"code": own})).map(Box::new),
            ..CallFailure::new(FailureCode::ToolError, "it went amiss")
        };
        self.ended(&call, Err(failure));
    }

    /// Plays a reflection. Returns why it was not accepted.
    fn reflect(&mut self, reflection: Value) -> Option<String> {
        self.turn(Phase::Reflect, "", &[("reflect", reflection)]);
        let Next::Reflected(call, answer) = self.next() else {
            panic!("the reflection is not answered: {:?}", self.next());
        };
        let call = call.clone();
        match answer {
            Ok(()) => {
                self.result(&call, Ok(json!({"accepted": true})));
                None
            }
            Err((code, message)) => {
                self.journal.push(Entry::failed(call.id, code, message.clone()));
                Some(message)
            }
        }
    }

    fn step(&mut self, n: usize) {
        self.act(json!({"n": n}), Ok(json!({"content": format!("result {n}")})));
        assert_eq!(
            self.reflect(json!({"is_task_complete": false, "summary": format!("saw {n}")})),
            None
        );
    }

    fn ending(&self) -> Option<Ending> {
        match self.next() {
            Next::End(ending) => Some(ending),
            _ => None,
        }
    }

    fn outcome(&self) -> super::super::plan::TaskOutcome {
        let ending = self.ending().unwrap();
        outcome(&self.journal, &self.work, &ending, None, Default::default())
    }
}

fn complete(observation: u32, quote: &str) -> Value {
    json!({"is_task_complete": true, "summary": "done", "evidence": [{"observation": observation, "quote": quote}]})
}

/// P-303: text, then one call of a tool, then a reflection; each with the functions of its phase.
#[test]
fn a_step_is_reason_act_and_reflect_each_with_its_own_functions() {
    let mut task = Played::new();
    task.step(1);
    assert!(matches!(task.next(), Next::Phase(Phase::Reason, false)));
    let modes: Vec<_> = task
        .journal
        .iter()
        .filter_map(|entry| match entry {
            Entry::Prompted { mode, text, .. } => Some((mode.clone(), text.clone())),
            _ => None,
        })
        .collect();
    let any = |names: &[&str]| CallMode::Any(names.iter().map(ToString::to_string).collect());
    assert_eq!(
        modes,
        [
            (CallMode::None, "Step 1, 24 left, no limit.".to_owned()),
            (any(&["read", "write"]), "Act.".to_owned()),
            (any(&["reflect"]), "Reflect on step 1.".to_owned()),
        ]
    );
}

/// P-303: complete means shown.
#[test]
fn a_task_is_complete_only_if_the_result_of_a_step_has_what_is_quoted() {
    let refused = |outcome: Result<Value, FailureCode>, reflection: Value| {
        let mut task = Played::new();
        task.act(json!({}), outcome);
        let answer = task.reflect(reflection);
        assert_eq!(task.ending().is_none(), answer.is_some());
        answer
    };
    let passed = || Ok(json!({"stdout": "118 passed", "exitCode": 0}));
    assert_eq!(refused(passed(), complete(1, "118 passed")), None);
    let cases = [
        (passed(), complete(1, "119 passed"), "does not occur"),
        (passed(), complete(1, "118"), "shows too little"),
        (passed(), complete(1, r#""exitCode":0"#), "does not occur"),
        (passed(), complete(2, "118 passed"), "no step of this task"),
        (passed(), complete(0, "118 passed"), "no step of this task"),
        (
            passed(),
            json!({"is_task_complete": true, "summary": "done"}),
            "only with evidence",
        ),
        (
            Ok(json!({"stdout": "118 passed", "exitCode": 1})),
            complete(1, "118 passed"),
            "exit code 1",
        ),
        (
            Ok(json!({"stdout": "118 passed", "exitCode": null, "signal": "SIGKILL", "timedOut": true})),
            complete(1, "118 passed"),
            "was cut short",
        ),
        (
            Ok(json!({"stdout": "118 passed", "exitCode": 0, "timedOut": true})),
            complete(1, "118 passed"),
            "was cut short",
        ),
        (
            Ok(json!({"stdout": "118 passed", "exitCode": 0, "interrupted": true})),
            complete(1, "118 passed"),
            "was cut short",
        ),
        (
            Ok(json!({"stdout": "118 passed", "exitCode": null, "signal": "SIGSEGV"})),
            complete(1, "118 passed"),
            "did not end by itself",
        ),
        (
            Err(FailureCode::ToolError),
            complete(1, "it went amiss, as it seems"),
            "did not succeed",
        ),
        (
            Err(FailureCode::InDoubt),
            complete(1, "it went amiss"),
            "did not succeed",
        ),
    ];
    for (outcome, reflection, why) in cases {
        let answer = refused(outcome, reflection.clone());
        assert!(
            answer.as_ref().is_some_and(|answer| answer.contains(why)),
            "{reflection}: {answer:?}"
        );
    }
}

/// Three claims in a row that nothing shows.
#[test]
fn a_task_that_is_called_complete_three_times_without_proof_fails() {
    let mut task = Played::new();
    task.act(json!({}), Ok(json!({"content": "nothing of it"})));
    for _ in 0..2 {
        assert!(task.reflect(complete(1, "118 passed")).is_some());
        assert!(matches!(task.next(), Next::Ask));
    }
    assert!(task.reflect(complete(1, "118 passed")).is_some());
    let outcome = task.outcome();
    assert_eq!(
        (outcome.status, outcome.reason),
        (TaskStatus::Failed, Some(TaskReason::Unproven))
    );
    // An honest answer in between begins the count again.
    let mut task = Played::new();
    task.act(json!({}), Ok(json!({"content": "nothing of it"})));
    for _ in 0..2 {
        assert!(task.reflect(complete(1, "118 passed")).is_some());
    }
    assert_eq!(
        task.reflect(json!({"is_task_complete": false, "summary": "not yet"})),
        None
    );
    task.act(json!({"n": 2}), Ok(json!({"content": "118 passed"})));
    assert!(task.reflect(complete(1, "118 passed")).is_some());
    assert_eq!(task.reflect(complete(2, "118 passed")), None);
    assert_eq!(task.outcome().status, TaskStatus::Completed);
}

/// Errors go back to the model, at most two rounds.
#[test]
fn an_invalid_reflection_is_answered_with_its_errors_and_the_third_ends_the_task() {
    let mut task = Played::new();
    task.act(json!({}), Ok(json!({})));
    let cases = [
        (json!({"summary": "x"}), "is_task_complete"),
        (json!({"is_task_complete": false, "summary": " "}), "/summary"),
        (
            json!({"is_task_complete": false, "summary": "x", "plan_changes": [{"op": "obsolete", "task": "t1", "why": "w"}]}),
            "IN_PROGRESS",
        ),
    ];
    for (reflection, why) in cases {
        let answer = task.reflect(reflection).unwrap();
        assert!(answer.contains(why), "{answer}");
    }
    assert_eq!(task.outcome().reason, Some(TaskReason::ModelUnavailable));
}

/// A round is counted, whatever was refused in it.
#[test]
fn a_reflection_that_alternates_between_invalid_and_unproven_ends_the_task() {
    let mut task = Played::new();
    task.act(json!({}), Ok(json!({"content": "nothing of it"})));
    for round in 1..5 {
        let reflection = match round % 2 {
            0 => json!({"summary": "x"}),
            _ => complete(1, "118 passed"),
        };
        assert!(task.reflect(reflection).is_some());
        assert!(matches!(task.next(), Next::Ask), "round {round}");
    }
    assert!(task.reflect(complete(1, "118 passed")).is_some());
    assert_eq!(task.outcome().reason, Some(TaskReason::ModelUnavailable));
}

/// One function call.
#[test]
fn only_the_first_of_several_calls_runs_and_none_at_all_is_asked_for_once_more() {
    let mut task = Played::new();
    task.turn(Phase::Reason, "I read both.", &[]);
    task.turn(Phase::Act, "", &[("read", json!({"n": 1})), ("write", json!({"n": 2}))]);
    let Next::Refuse(refused, FailureCode::TooManyCalls) = task.next() else {
        panic!("{:?}", task.next());
    };
    assert_eq!(refused.iter().map(|call| call.sequence).collect::<Vec<_>>(), [2]);
    let mut task = Played::new();
    task.turn(Phase::Reason, "", &[]);
    task.turn(Phase::Reason, "I read it.", &[]);
    task.turn(Phase::Act, "I would rather talk.", &[]);
    assert!(matches!(task.next(), Next::Phase(Phase::Act, true)));
    task.turn(Phase::Act, "Still.", &[]);
    assert_eq!(task.ending(), Some(Ending::Fault(FaultKind::Malformed)));
}

/// X-11 to X-13: reflections between the calls do not hide that they are the same.
#[test]
fn the_same_call_again_and_again_is_refused_and_ends_the_task() {
    let mut task = Played::new();
    for _ in 0..2 {
        task.act(json!({"n": 1}), Ok(json!({})));
        task.reflect(json!({"is_task_complete": false, "summary": "again"}));
    }
    for last in [false, false, true] {
        task.turn(Phase::Reason, "Again.", &[]);
        task.turn(Phase::Act, "", &[("read", json!({"n": 1}))]);
        let Next::Refuse(calls, FailureCode::DoomLoop) = task.next() else {
            panic!("{:?}", task.next());
        };
        let call = calls[0].clone();
        task.result(&call, Err(FailureCode::DoomLoop));
        if !last {
            task.reflect(json!({"is_task_complete": false, "summary": "again"}));
        }
    }
    assert_eq!(task.outcome().reason, Some(TaskReason::DoomLoop));
}

/// P-306: a persistent error fails the task; before, the model receives a notice.
#[test]
fn a_tool_that_fails_in_the_same_way_five_times_fails_the_task() {
    let mut task = Played::new();
    for n in 1..=4 {
        task.act(json!({"n": n}), Err(FailureCode::ToolError));
        task.reflect(json!({"is_task_complete": false, "summary": "it failed"}));
    }
    let notices = task.journal.iter().filter(
        |entry| matches!(entry, Entry::Prompted { text, .. } if text.contains("times in a row with tool_error")),
    );
    assert_eq!(notices.count(), 3);
    task.act(json!({"n": 5}), Err(FailureCode::ToolError));
    assert_eq!(task.outcome().reason, Some(TaskReason::PersistentError));
}

/// P-306: errors with different codes of the tool's own are different errors; the same one five times is persistent.
#[test]
fn different_errors_of_a_tool_are_not_one_persistent_error() {
    let mut task = Played::new();
    let codes = [
        "is_directory",
        "too_large",
        "already_exists",
        "is_directory",
        "rate_limited",
        "too_large",
    ];
    for (n, code) in codes.into_iter().enumerate() {
        task.fails(n, code);
        task.reflect(json!({"is_task_complete": false, "summary": "it failed"}));
    }
    assert!(task.ending().is_none());
    let mut task = Played::new();
    for n in 1..=4 {
        task.fails(n, "is_directory");
        task.reflect(json!({"is_task_complete": false, "summary": "it failed"}));
    }
    let is_notice =
        |entry: &&Entry| matches!(entry, Entry::Prompted { text, .. } if text.contains("with is_directory."));
    assert_eq!(task.journal.iter().filter(is_notice).count(), 3);
    task.fails(5, "is_directory");
    let outcome = task.outcome();
    assert_eq!(outcome.reason, Some(TaskReason::PersistentError));
    assert!(outcome.detail.contains("is_directory"), "{}", outcome.detail);
}

/// P-304: a task can end with its place taken by another one.
#[test]
fn a_task_ends_when_it_is_replaced_or_given_up() {
    let mut task = Played::new();
    task.act(json!({}), Ok(json!({})));
    let add = json!({"op": "add", "title": "Another way", "goal": "g", "doneWhen": "seen", "tools": ["write"], "replaces": "t1", "why": "no way"});
    let reflection =
        json!({"is_task_complete": false, "summary": "no way", "learnings": ["it is locked"], "plan_changes": [add]});
    assert_eq!(task.reflect(reflection), None);
    let outcome = task.outcome();
    assert_eq!(
        (outcome.status, outcome.reason),
        (TaskStatus::Failed, Some(TaskReason::Replaced))
    );
    let ids: Vec<_> = outcome.plan.tasks.iter().map(|task| task.id.to_string()).collect();
    assert_eq!((ids, outcome.changes), (vec!["t1".into(), "t3".into(), "t2".into()], 1));
    assert_eq!(outcome.learnings, ["it is locked"]);
    let mut task = Played::new();
    task.act(json!({}), Ok(json!({})));
    task.reflect(json!({"is_task_complete": false, "summary": "no", "give_up": "there is no such file"}));
    assert_eq!(task.outcome().reason, Some(TaskReason::GaveUp));
}

/// P-304: a reflection that changes the plan makes a new version, in the commit that has it.
#[test]
fn what_a_reflection_changes_is_written_with_it() {
    let mut task = Played::new();
    task.act(json!({}), Ok(json!({})));
    let written = task.journal.len();
    let modify = json!({"op": "modify", "task": "t2", "title": "A better title", "why": "clearer"});
    let obsolete = json!({"op": "obsolete", "task": "t2", "why": "done already"});
    let reflection = |changes: &[&Value]| json!({"is_task_complete": false, "summary": "s", "plan_changes": changes});
    // All of them or none.
    assert!(
        task.reflect(reflection(&[&obsolete, &modify]))
            .unwrap()
            .contains("OBSOLETE")
    );
    assert_eq!(worked(&task.journal, written, &task.work), None);
    assert_eq!(task.reflect(reflection(&[&modify])), None);
    let worked = worked(&task.journal, written, &task.work).unwrap();
    assert_eq!(&*worked.changed.unwrap().why, "clearer");
    assert_eq!(worked.plan.tasks[1].title, "A better title");
    assert_eq!(worked.plan.tasks[0].steps, 1);
    assert_eq!(super::worked(&task.journal, task.journal.len(), &task.work), None);
}

/// Limits of steps and tokens, and the deadline.
#[test]
fn the_last_step_may_still_complete_the_task_and_nothing_follows_it() {
    let mut work = work();
    work.rules.limits.max_steps_per_task = 2;
    let mut task = Played::on(work);
    task.step(1);
    task.step(2);
    assert_eq!(task.outcome().reason, Some(TaskReason::StepLimit));
    let last = task.journal.iter().rev().find_map(|entry| match entry {
        Entry::Prompted { text, .. } => Some(text.clone()),
        _ => None,
    });
    assert!(last.unwrap().contains("the last step"));
    let mut task = Played::new();
    task.step(1);
    task.work.rules.limits.max_tokens = Some(0);
    let mut limited = Played::on(task.work);
    assert!(matches!(limited.next(), Next::Phase(Phase::Reason, false)));
    limited.limits.until = Some(crate::limits::Until::new(0, 1, Duration::ZERO));
    assert_eq!(limited.ending(), Some(Ending::PAST_DEADLINE));
}

/// The model is waited for, longer and longer, up to a limit.
#[test]
fn an_unavailable_model_is_waited_for_as_long_as_the_setting_says() {
    let patience = Duration::from_secs(900);
    let pauses: Vec<_> = (1..).map_while(|faults| pause(faults, patience)).collect();
    let seconds: Vec<_> = pauses.iter().map(Duration::as_secs).collect();
    assert_eq!(seconds[..7], [5, 10, 20, 40, 80, 120, 120]);
    assert_eq!(pauses.iter().sum::<Duration>(), patience);
    let mut task = Played::new();
    let now = (&task.limits, Duration::ZERO);
    let entry = prompt((Phase::Reason, false), &task.work, &task.journal, &task.toolset, now);
    task.journal.push(entry);
    let fault = |kind| Entry::ModelFault {
        kind,
        usage: Default::default(),
        served: Default::default(),
        said: None,
    };
    task.journal.push(fault(FaultKind::Unavailable));
    // Another process that takes the run over continues to wait.
    task.journal.push(Entry::Recovered);
    assert!(matches!(task.next(), Next::AskAfter(pause) if pause == 5 * SECOND));
    task.journal.push(fault(FaultKind::Unavailable));
    assert!(matches!(task.next(), Next::AskAfter(pause) if pause == 10 * SECOND));
    task.journal.push(fault(FaultKind::Blocked));
    assert_eq!(task.outcome().reason, Some(TaskReason::ModelBlocked));
}

/// The last five to nine results are whole; what is before them changes only every five steps.
#[test]
fn of_a_long_history_the_model_sees_the_last_results_whole() {
    let mut task = Played::new();
    task.work.rules.limits.max_steps_per_task = 100;
    let mut before = 0;
    for n in 1..=30 {
        let content = "x".repeat(1000);
        task.act(json!({"n": n}), Ok(json!({"content": content})));
        task.reflect(json!({"is_task_complete": false, "summary": format!("saw {n}")}));
        task.turn(Phase::Reason, "And on.", &[]);
        let short = shortened(&task.journal, 200_000).results.len();
        let whole = n - short;
        assert!(n < 10 && short == 0 || (5..=9).contains(&whole), "{n}: {whole}");
        assert!(short == before || short == before + 5, "{n}");
        before = short;
        let kept = task.journal.len() - 2;
        task.journal = task.journal[..kept].to_vec().into();
    }
    let steps = steps(&task.journal);
    assert_eq!(steps.len(), 30);
    assert!(steps.iter().all(|step| step.reason.as_deref() == Some("I read it.")));
    assert!(
        steps
            .iter()
            .all(|step| step.reflection.is_some() && step.action.is_some())
    );
    // With little room the oldest steps are a line each.
    task.turn(Phase::Reason, "And on.", &[]);
    let short = shortened(&task.journal, 4_000);
    let (range, text) = short.left_out.unwrap();
    assert!(
        range.start == 1 && text.contains("[step 1: read. saw 1]") && !text.contains("saw 30"),
        "{text}"
    );
}
