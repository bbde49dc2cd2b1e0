use serde_json::json;

use super::*;

fn story() -> SessionStory {
    let session = json!({"deadline": "2026-11-22T12:00:00Z"});
    SessionStory::new(&crate::cli::tests::samples::sample(session))
}

/// Two steps of a task, with all phases.
fn events() -> Vec<Value> {
    let call = |step: u32, id: &str, script: &str| json!({"type": "tool_call", "taskId": "t1", "step": step, "actionId": id, "tool": "executeScript", "parameters": {"containerId": "c", "script": script}});
    vec![
        json!({"type": "status", "status": "EXECUTING", "planVersion": 2, "detail": null, "runId": "a"}),
        json!({"type": "task_started", "taskId": "t1", "title": "Run the tests", "runId": "b", "maxSteps": 25}),
        json!({"type": "phase", "at": "2026-11-22T10:03:00Z", "taskId": "t1", "step": 1, "phase": "reason", "again": false}),
        json!({"type": "delta", "taskId": "t1", "text": "First "}),
        json!({"type": "turn", "taskId": "t1", "step": 1, "text": "First\nrun them.", "calls": []}),
        json!({"type": "phase", "taskId": "t1", "step": 1, "phase": "act", "again": false}),
        call(1, "x", "make \u{1b}[2J test"),
        json!({"type": "tool_result", "taskId": "t1", "step": 1, "actionId": "x", "tool": "executeScript", "success": true, "data": {"exitCode": 0}, "error": null, "durationMs": 41_200}),
        json!({"type": "phase", "taskId": "t1", "step": 1, "phase": "reflect", "again": false}),
        json!({"type": "reflection", "taskId": "t1", "step": 1, "accepted": false, "error": "no step shows \"119 passed\"", "isTaskComplete": true, "summary": "Done.", "evidence": [], "giveUp": null}),
        json!({"type": "reflection", "taskId": "t1", "step": 1, "accepted": true, "error": null, "isTaskComplete": true, "summary": "Done.", "evidence": [{"observation": 1, "quote": "118 passed"}], "giveUp": null}),
        json!({"type": "task_ended", "taskId": "t1", "status": "COMPLETED", "reason": null, "detail": "", "summary": "All pass.", "steps": 1}),
    ]
}

fn lines(story: &mut SessionStory, events: &[Value], is_live: bool) -> Vec<String> {
    events.iter().flat_map(|event| story.event(event, is_live)).collect()
}

/// P-303: each step has its time left and its number, and each phase a line. On a terminal a call and its result are one.
#[test]
fn a_step_shows_its_phases_and_the_time_left() {
    let head =
        "1 h 57 min left   t1  Run the tests                                                 step 1 of at most 25";
    let rest = [
        "  reflect  not accepted: no step shows \"119 passed\"",
        "  reflect  complete: step 1 shows \"118 passed\"",
        "t1 COMPLETED after 1 step: All pass.",
    ];
    let begin = ["the work on plan 2 begins", head, "  reason   First run them."];
    let piped = [
        "  act      executeScript \"make \\u001b[2J test\"",
        "  result   executeScript                                                 ok  41.2 s  exit 0",
    ];
    assert_eq!(
        lines(&mut story(), &events(), false),
        [&begin[..], &piped, &rest].concat()
    );
    let live = ["  act      executeScript \"make \\u001b[2J test\"                           ok  41.2 s  exit 0"];
    assert_eq!(
        lines(&mut story(), &events(), true),
        [&begin[..], &live, &rest].concat()
    );
}

#[test]
fn the_line_that_lives_shows_the_step_and_what_is_under_way() {
    let mut story = story();
    let all = events();
    lines(&mut story, &all[..3], true);
    assert!(
        story
            .now()
            .ends_with("t1 step 1 of at most 25 · reason: waiting for the model"),
        "{}",
        story.now()
    );
    lines(&mut story, &all[3..4], true);
    assert!(story.now().ends_with("· First"), "{}", story.now());
    lines(&mut story, &all[4..7], true);
    assert!(
        story.now().ends_with("· executeScript \"make \\u001b[2J test\""),
        "{}",
        story.now()
    );
}

/// P-304, P-306: what changes the plan, what a person must decide, and what is left at the end.
#[test]
fn changes_waits_failures_and_the_cleanup_have_a_line_each() {
    let change = json!({"op": "add", "task": "t5", "title": "Pin the\nversion"});
    let plan = json!({"version": 3, "kind": "changed", "changes": [change], "why": "main does not build"});
    let lost = json!({"code": "in_doubt", "message": "no answer"});
    let failed = json!({"code": "rejected", "message": "not now"});
    let all = [
        json!({"type": "plan", "taskId": null, "version": plan}),
        json!({"type": "approval_required", "taskId": "t1", "actionId": "x", "tool": "closeIssue", "parameters": {}, "reason": "the operator requires it"}),
        json!({"type": "awaiting_confirmation", "taskId": "t1"}),
        json!({"type": "awaiting_confirmation", "taskId": null}),
        json!({"type": "approval_resolved", "taskId": "t1", "approved": false, "by": "ann", "tool": "closeIssue", "actionId": "x", "reason": "not now"}),
        json!({"type": "tool_result", "taskId": "t1", "actionId": "y", "tool": "createIssue", "data": null, "error": lost, "durationMs": 0}),
        json!({"type": "awaiting_confirmation", "taskId": null}),
        json!({"type": "outcome_settled", "taskId": "t1", "actionId": "y", "happened": true, "by": "ann"}),
        json!({"type": "recovered", "taskId": "t1"}),
        json!({"type": "recovered", "taskId": null}),
        json!({"type": "tool_result", "taskId": "t1", "actionId": "x", "tool": "closeIssue", "data": null, "error": failed, "durationMs": 0}),
        json!({"type": "phase", "taskId": "t1", "step": 2, "phase": "act", "again": true}),
        json!({"type": "model_fault", "taskId": "t1", "fault": "unavailable"}),
        json!({"type": "reset", "taskId": "t1"}),
        json!({"type": "task_ended", "taskId": "t1", "status": "FAILED", "reason": "gave_up", "detail": "no access", "summary": "", "steps": 2}),
        json!({"type": "status", "status": "AWAITING_CONFIRMATION", "planVersion": 3, "detail": "the model was blocked"}),
        json!({"type": "cleanup", "removed": ["c1"], "left": ["c2"]}),
        json!({"type": "cleanup", "removed": [], "left": []}),
        json!({"type": "of_a_later_gavel"}),
    ];
    assert_eq!(
        lines(&mut story(), &all, false),
        [
            "Plan 3   + t5 Pin the version: main does not build",
            "waits for an approval of closeIssue: the operator requires it",
            "closeIssue is rejected: not now",
            "  act      createIssue                                                   error  0 ms  in_doubt: no answer",
            "waits: createIssue may have been done; a person must settle it",
            "createIssue is settled: it happened",
            "! another process continues the work",
            "  act      closeIssue                                                    error  0 ms  rejected: not now",
            "  act      the answer cannot be used; the model is asked again",
            "! the model gave no usable answer: unavailable; it is asked again",
            "t1 FAILED after 2 steps: gave_up: no access",
            "the refinement failed, and plan 3 remains: the model was blocked",
            "cleanup: 1 container removed; left: c2",
        ]
    );
}
