#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::domain::canonical;
use crate::domain::schema::{Effort, JsonSchema};

fn tools() -> Vec<String> {
    ["createContainer", "executeScript", "createPullRequest"]
        .map(str::to_owned)
        .to_vec()
}

fn task(title: &str) -> DraftTask {
    DraftTask {
        id: None,
        title: title.to_owned(),
        goal: format!("{title} is done"),
        done_when: "the tests pass".to_owned(),
        tools: vec!["executeScript".to_owned()],
    }
}

fn draft(tasks: Vec<DraftTask>) -> Draft {
    Draft {
        summary: "In short.".to_owned(),
        tasks,
        ..Draft::default()
    }
}

fn titles(plan: &Plan) -> Vec<(String, &str)> {
    plan.tasks
        .iter()
        .map(|task| (task.id.to_string(), task.title.as_str()))
        .collect()
}

/// P-201: a draft becomes a plan whose tasks are numbered and not begun.
#[test]
fn the_tasks_of_a_first_draft_are_numbered_in_their_order() {
    let session = PlanningSessionId::new();
    let plan = Plan::of(draft(vec![task("Clone"), task("  Test ")]), session, None, &tools()).unwrap();
    assert_eq!(titles(&plan), [("t1".to_owned(), "Clone"), ("t2".to_owned(), "Test")]);
    assert!(
        plan.tasks
            .iter()
            .all(|task| task.status == TaskStatus::Pending && task.session_id == session)
    );
    assert_eq!(Plan::read(&plan.to_json(), plan.last).unwrap(), plan);
}

/// P-204: what a refinement keeps keeps its id, by id or by title, and a removed task's id is not used again.
#[test]
fn a_refinement_keeps_the_ids_of_the_tasks_that_it_keeps() {
    let session = PlanningSessionId::new();
    let first = Plan::of(
        draft(vec![task("Clone"), task("Parse"), task("Document")]),
        session,
        None,
        &tools(),
    )
    .unwrap();
    let parse = DraftTask {
        id: TaskId::parse("t2"),
        ..task("Parse ISO weeks")
    };
    let second = draft(vec![task("Write failing tests"), task("Clone"), parse]);
    let second = Plan::of(second, session, Some(&first), &tools()).unwrap();
    assert_eq!(
        titles(&second),
        [
            ("t4".to_owned(), "Write failing tests"),
            ("t1".to_owned(), "Clone"),
            ("t2".to_owned(), "Parse ISO weeks")
        ]
    );
    let words = |text: &str| text.to_owned();
    let id = |text| TaskId::parse(text).unwrap();
    assert_eq!(
        difference(Some(&first), &second),
        [
            Change {
                op: PlanOperation::Add,
                task: id("t4"),
                title: words("Write failing tests")
            },
            Change {
                op: PlanOperation::Modify,
                task: id("t2"),
                title: words("Parse ISO weeks")
            },
            Change {
                op: PlanOperation::Remove,
                task: id("t3"),
                title: words("Document")
            },
        ]
    );
    let third = Plan::of(draft(vec![task("Document")]), session, Some(&second), &tools()).unwrap();
    assert_eq!(titles(&third), [("t5".to_owned(), "Document")]);
}

/// The plan that is stored and worked through is the one that was checked and confirmed.
#[test]
fn a_control_character_is_refused_wherever_a_plan_has_text() {
    let session = PlanningSessionId::new();
    for control in ['\0', '\u{1b}', '\u{7f}', '\u{9b}'] {
        let text = || format!("a{control}b");
        let mut invalid = draft(vec![task("Clone")]);
        (invalid.summary, invalid.assumptions, invalid.risks) = (text(), vec![String::new(), text()], vec![text()]);
        let one = &mut invalid.tasks[0];
        (one.title, one.goal, one.done_when) = (text(), text(), text());
        let errors = Plan::of(invalid, session, None, &tools()).unwrap_err();
        let places: Vec<_> = errors.iter().map(|error| error.pointer.as_str()).collect();
        let expected = [
            "/tasks/0/title",
            "/tasks/0/goal",
            "/tasks/0/doneWhen",
            "/summary",
            "/assumptions/1",
            "/risks/0",
        ];
        assert_eq!(places, expected, "{control:?}");
        let detail = format!("contains the control character U+{:04X}", u32::from(control));
        assert!(
            errors.iter().all(|error| error.detail.starts_with(&detail)),
            "{errors:?}"
        );
    }
    let lines = DraftTask {
        goal: "one\r\n\ttwo".to_owned(),
        ..task("Clone")
    };
    assert!(Plan::of(draft(vec![lines]), session, None, &tools()).is_ok());
}

/// Every error is reported at once, each with its place, the value and what is allowed.
#[test]
fn a_draft_is_answered_with_all_its_errors() {
    let invalid = DraftTask {
        id: TaskId::parse("t9"),
        title: "x".repeat(121),
        goal: " ".to_owned(),
        tools: vec!["closeIssue".to_owned()],
        ..task("")
    };
    let without = DraftTask {
        tools: Vec::new(),
        ..task("Push")
    };
    let errors = Plan::of(draft(vec![invalid, without]), PlanningSessionId::new(), None, &tools()).unwrap_err();
    let lines: Vec<_> = errors
        .iter()
        .map(|error| format!("{}: {}", error.pointer, error.detail))
        .collect();
    assert_eq!(
        lines,
        [
            "/tasks/0/title: has 121 characters; at most 120 are allowed",
            "/tasks/0/goal: is empty; it is required",
            "/tasks/0/tools: \"closeIssue\" is no tool of a task; allowed: createContainer, executeScript, createPullRequest",
            "/tasks/1/tools: is empty; a task needs at least one of: createContainer, executeScript, createPullRequest",
            "/tasks/0/id: t9 is no task of the current plan; a new task has no id",
        ]
    );
    for count in [0, 31] {
        let many = (0..count).map(|at| task(&format!("Task {at}"))).collect();
        let errors = Plan::of(draft(many), PlanningSessionId::new(), None, &tools()).unwrap_err();
        assert_eq!(errors[0].detail, format!("has {count} tasks; a plan has 1 to 30"));
    }
    let long = DraftTask {
        goal: "ü".repeat(GOAL),
        ..task("Long")
    };
    let long: Vec<_> = (0..20).map(|_| long.clone()).collect();
    let errors = Plan::of(draft(long), PlanningSessionId::new(), None, &tools()).unwrap_err();
    assert!(errors[0].detail.contains("at most 65536 are allowed"), "{errors:?}");
}

/// An id has one spelling, so that two spellings never name one task.
#[test]
fn a_task_id_has_one_spelling() {
    for invalid in ["", "t", "t0", "t01", "t+1", "T1", "1", "t1 ", "t99999999999"] {
        assert_eq!(TaskId::parse(invalid), None, "{invalid:?}");
    }
    assert_eq!(TaskId::parse("t12").unwrap().to_string(), "t12");
}

/// What the schema tells the model and what the check accepts do not contradict each other.
#[test]
fn the_schema_for_the_model_accepts_what_the_check_accepts() {
    let session = PlanningSessionId::new();
    let first = Plan::of(draft(vec![task("Clone")]), session, None, &tools()).unwrap();
    let schema = JsonSchema::compile(canonical::to_raw(&schema(&tools(), Some(&first)))).unwrap();
    let accepts = |value: &serde_json::Value| {
        let by_schema = schema.check(value, Effort::Full).is_ok();
        let by_check = serde_json::from_value::<Draft>(value.clone())
            .is_ok_and(|draft| Plan::of(draft, session, Some(&first), &tools()).is_ok());
        (by_schema, by_check)
    };
    let of = |task: serde_json::Value| json!({"summary": "s", "tasks": [task]});
    let good = json!({"title": "T", "goal": "G", "doneWhen": "D", "tools": ["executeScript"]});
    let with = |field: &str, value: serde_json::Value| {
        let mut task = good.clone();
        task[field] = value;
        of(task)
    };
    assert_eq!(accepts(&of(good.clone())), (true, true));
    assert_eq!(accepts(&with("id", json!("t1"))), (true, true));
    let invalid = [
        with("id", json!("t7")),
        with("title", json!("x".repeat(121))),
        with("title", json!(" ")),
        with("goal", json!("")),
        with("doneWhen", json!("x".repeat(501))),
        with("tools", json!([])),
        with("tools", json!(["closeIssue"])),
        with("status", json!("COMPLETED")),
        json!({"summary": "s", "tasks": []}),
    ];
    for value in invalid {
        assert_eq!(accepts(&value), (false, false), "{value}");
    }
}

proptest! {
    /// Over any sequence of drafts: ids are unique, a task that keeps its title keeps its id, and an id never comes
    /// back once its task is gone.
    #[test]
    fn ids_are_never_used_again(drafts in prop::collection::vec(prop::collection::vec(0u8..12, 1..8), 1..12)) {
        let session = PlanningSessionId::new();
        let mut current: Option<Plan> = None;
        let mut gone: BTreeMap<TaskId, usize> = BTreeMap::new();
        for (at, titles) in drafts.into_iter().enumerate() {
            let tasks = titles.iter().map(|title| task(&format!("Task {title}"))).collect();
            let next = Plan::of(draft(tasks), session, current.as_ref(), &tools()).unwrap();
            let mut seen = std::collections::BTreeSet::new();
            for task in &next.tasks {
                prop_assert!(seen.insert(task.id), "{} twice in draft {at}", task.id);
                prop_assert!(!gone.contains_key(&task.id), "{} came back in draft {at}", task.id);
                prop_assert!(task.id.0 <= next.last);
            }
            if let Some(before) = &current {
                for task in before.tasks.iter().filter(|task| next.task(task.id).is_none()) {
                    gone.insert(task.id, at);
                }
                let changes = difference(Some(before), &next);
                let unchanged = before.tasks.len() + changes.iter().filter(|change| change.op == PlanOperation::Add).count()
                    - changes.iter().filter(|change| change.op == PlanOperation::Remove).count();
                prop_assert_eq!(unchanged, next.tasks.len());
            }
            current = Some(next);
        }
    }
}

mod changes {
    use super::*;
    use crate::domain::ids::PlanningSessionId;
    use serde_json::json;

    const STATUSES: [TaskStatus; 5] = [
        TaskStatus::Completed,
        TaskStatus::InProgress,
        TaskStatus::Pending,
        TaskStatus::Pending,
        TaskStatus::Obsolete,
    ];

    fn plan() -> (Plan, PlanningSessionId) {
        let session = PlanningSessionId::new();
        let tasks = STATUSES.iter().zip(1..).map(|(status, number)| Task {
            title: format!("Task {number}"),
            goal: "g".to_owned(),
            done_when: "d".to_owned(),
            tools: vec!["read".to_owned()],
            status: *status,
            ..Task::new(TaskId::of(number), session)
        });
        let tasks: Vec<_> = tasks.collect();
        (Plan { tasks, last: 5 }, session)
    }

    fn changed(changes: serde_json::Value) -> Result<Plan, Vec<PlanError>> {
        let (plan, session) = plan();
        let changes: Vec<TaskChange> = serde_json::from_value(changes).unwrap();
        plan.changed(session, TaskId::of(2), &changes, &["read".to_owned()])
    }

    fn ids(plan: &Plan) -> Vec<String> {
        plan.tasks.iter().map(|task| task.id.to_string()).collect()
    }

    fn add(further: serde_json::Value) -> serde_json::Value {
        let mut add = json!({"op": "add", "title": "New", "goal": "g", "doneWhen": "d", "tools": ["read"], "why": "w"});
        let further = further.as_object().unwrap().clone();
        add.as_object_mut().unwrap().extend(further);
        add
    }

    /// P-304: new tasks take their place, in the order in which they were asked for.
    #[test]
    fn tasks_are_added_last_or_after_the_task_that_is_named() {
        let plan = changed(json!([
            add(json!({})),
            add(json!({"after": "t2"})),
            add(json!({"after": "t2"}))
        ]))
        .unwrap();
        assert_eq!(ids(&plan), ["t1", "t2", "t7", "t8", "t3", "t4", "t5", "t6"]);
        let plan =
            changed(json!([add(json!({"replaces": "t2"})), {"op": "obsolete", "task": "t3", "why": "w"}])).unwrap();
        assert_eq!(ids(&plan), ["t1", "t2", "t6", "t3", "t4", "t5"]);
        assert_eq!(plan.next_task().unwrap().id.to_string(), "t6");
        let code = plan.tasks[3].status_reason.as_ref().map(|reason| reason.code);
        assert_eq!(code, Some(TaskReason::Obsolete));
        let (before, _) = self::plan();
        let shown = serde_json::to_value(difference(Some(&before), &plan)).unwrap();
        assert_eq!(
            shown,
            json!([
                {"op": "add", "task": "t6", "title": "New"},
                {"op": "obsolete", "task": "t3", "title": "Task 3"},
            ])
        );
        assert_eq!(difference(Some(&plan), &plan), []);
    }

    /// P-304: only what has not begun can be changed, and all of it or nothing.
    #[test]
    fn a_change_that_is_not_allowed_is_refused_with_its_place_and_nothing_is_changed() {
        let cases = [
            (
                json!({"op": "modify", "task": "t1", "title": "x", "why": "w"}),
                "/plan_changes/0/task",
                "COMPLETED",
            ),
            (
                json!({"op": "obsolete", "task": "t2", "why": "w"}),
                "/plan_changes/0/task",
                "IN_PROGRESS",
            ),
            (
                json!({"op": "obsolete", "task": "t9", "why": "w"}),
                "/plan_changes/0/task",
                "no task",
            ),
            (
                json!({"op": "modify", "task": "t3", "why": "w"}),
                "/plan_changes/0/task",
                "nothing of it changes",
            ),
            (
                json!({"op": "modify", "task": "t3", "tools": ["rm"], "why": "w"}),
                "/plan_changes/0/tools",
                "\"rm\"",
            ),
            (
                json!({"op": "obsolete", "task": "t3", "why": " "}),
                "/plan_changes/0/why",
                "empty",
            ),
            (add(json!({"replaces": "t3"})), "/plan_changes/0/replaces", "t2"),
            (add(json!({"after": "t9"})), "/plan_changes/0/after", "no task"),
            (add(json!({"title": "x".repeat(121)})), "/plan_changes/0/title", "120"),
        ];
        for (change, place, detail) in cases {
            let errors = changed(json!([change])).unwrap_err();
            let found = errors
                .iter()
                .any(|error| error.pointer == place && error.detail.contains(detail));
            assert!(found, "{change}: {errors:?}");
        }
    }

    /// An original task can be replaced twice, and a plan has 50 tasks at the most.
    #[test]
    fn replacements_and_tasks_have_their_limits() {
        let (mut plan, session) = plan();
        let tools = ["read".to_owned()];
        let mut at_work = TaskId::of(2);
        for replaced in 0..=MOST_REPLACED {
            let change = add(json!({"replaces": at_work}));
            let changes: Vec<TaskChange> = serde_json::from_value(json!([change])).unwrap();
            let next = plan.changed(session, at_work, &changes, &tools);
            assert_eq!(next.is_ok(), replaced < MOST_REPLACED, "{replaced}");
            let Ok(next) = next else { break };
            plan = next;
            plan.task_mut(at_work).unwrap().fail(TaskReason::Replaced, "w");
            at_work = TaskId::of(plan.last);
            plan.task_mut(at_work).unwrap().status = TaskStatus::InProgress;
        }
        let many: Vec<_> = (0..MOST_TASKS_EVER - 5).map(|_| add(json!({}))).collect();
        assert_eq!(changed(json!(many)).unwrap().tasks.len(), MOST_TASKS_EVER);
        let more: Vec<_> = (0..MOST_TASKS_EVER - 4).map(|_| add(json!({}))).collect();
        assert!(changed(json!(more)).unwrap_err()[0].detail.contains("at most 50"));
    }

    proptest! {
        /// P-304: whatever a model asks for, what has begun or ended stays as it is, and no id is used twice.
        #[test]
        fn no_change_touches_a_task_that_has_begun(
            changes in prop::collection::vec((0..3u8, 0..8u32, 0..8u32, any::<bool>()), 0..12)
        ) {
            let (before, session) = plan();
            let changes = changes.into_iter().map(|(op, task, after, replaces)| {
                let task = format!("t{}", task + 1);
                match op {
                    0 => {
                        let mut change = add(json!({"after": format!("t{}", after + 1)}));
                        if replaces {
                            change["replaces"] = json!(task);
                        }
                        change
                    }
                    1 => json!({"op": "modify", "task": task, "title": "Other", "why": "w"}),
                    _ => json!({"op": "obsolete", "task": task, "why": "w"}),
                }
            });
            let changes: Vec<TaskChange> = serde_json::from_value(json!(changes.collect::<Vec<_>>())).unwrap();
            if let Ok(after) = before.changed(session, TaskId::of(2), &changes, &["read".to_owned()]) {
                for task in before.tasks.iter().filter(|task| task.status != TaskStatus::Pending) {
                    prop_assert_eq!(Some(task), after.task(task.id));
                }
                let mut ids = ids(&after);
                ids.sort();
                ids.dedup();
                prop_assert_eq!(ids.len(), after.tasks.len());
                prop_assert!(before.tasks.iter().all(|task| after.task(task.id).is_some()));
            }
        }
    }
}
