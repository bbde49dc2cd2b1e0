//! A single agent: its inputs, its outputs, and its record.

use gavel::domain::agent_run::{RunStatus, StopReason};
use gavel::domain::journal::FaultKind;
use gavel::domain::time::Timestamp;
use gavel::domain::tool::FailureCode;
use gavel::ports::runs::Runs;
use serde_json::json;

use crate::model::{Piece, call, fault, words};
use crate::rig::{Rig, seconds};
use crate::support::{TestDb, tenant};
use crate::tools::Does;

const READER: &str = r#"
name: reader
description: Reads.
promptConfig: { query: "Do: ${query}", systemPrompt: reader }
modelConfig: { model: gemini-test, temp: 0.1 }
toolConfig: { tools: [read] }
approval: never
"#;

/// Submits an output that conforms to a schema.
const REPORTER: &str = r#"
name: reporter
description: Reports.
promptConfig: { query: "Report: ${query}", systemPrompt: reporter }
outputConfig:
  outputName: report
  description: What came of it.
  schema:
    type: object
    properties: { title: { type: string }, count: { type: integer } }
    required: [title, count]
    additionalProperties: false
toolConfig: { tools: [read, complete_task] }
"#;

/// X-1, D-R1 to D-R3: prompt, persona, model settings and exactly the granted tools reach the model.
#[tokio::test]
async fn an_agent_uses_exactly_its_definition_and_its_last_text_is_the_summary() {
    let rig = Rig::new(&[READER]).await;
    rig.model
        .script("reader", [call("read", json!({"path": "a"})), words("It says hello.")]);
    rig.tools.script("read", [Does::Answers(json!({"text": "hello"}))]);
    let run = rig.run("reader", json!({"query": "look into a"})).await;
    assert_eq!(run.status(), RunStatus::Completed);
    assert_eq!(run.summary(), "It says hello.");
    assert_eq!((run.row.steps, run.row.recovered_from), (2, None));

    let asked = rig.model.asked();
    assert_eq!(asked.len(), 2);
    assert_eq!(asked[0].names(), ["read"]);
    assert_eq!(asked[0].mode, "auto");
    assert_eq!(
        (asked[0].model.as_deref(), asked[0].temperature),
        (Some("gemini-test"), Some(0.1))
    );
    assert_eq!(
        asked[0].task(),
        "Today is Friday, 2026-11-20 (time zone UTC; that of the user is not known).\n\nDo: look into a"
    );
    assert_eq!(
        asked[1].responses(),
        [("read".to_owned(), Ok(json!({"text": "hello"})))]
    );
    let sent = rig.tools.sent();
    assert_eq!(sent.len(), 1);
    assert_eq!(
        (sent[0].arguments.as_str(), sent[0].run.as_str()),
        (r#"{"path":"a"}"#, run.id.to_string().as_str())
    );
}

/// X-4: the row is `running` before execution starts, then has the result, with times of the clock.
pub(crate) async fn a_run_is_recorded_before_it_starts_and_when_it_has_ended(db: TestDb) {
    let rig = Rig::on(db, &[READER]).await;
    rig.model.script(
        "reader",
        [
            call("read", json!({})).after(seconds(3)),
            words("Done.").after(seconds(4)),
        ],
    );
    let begun = rig.begin("reader", json!({"query": "go"}), None).await;
    let row = rig.store.get(&tenant(), None, begun.id).await.unwrap().unwrap();
    assert_eq!(
        (row.status, row.completed_at, row.duration_ms),
        (RunStatus::Running, None, None)
    );
    let run = rig.finish(begun).await;
    assert_eq!(run.status(), RunStatus::Completed);
    assert_eq!(run.row.started_at, Timestamp::parse("2026-11-20T00:00:00.000001Z"));
    assert_eq!(run.row.completed_at, Timestamp::parse("2026-11-20T00:00:07.000001Z"));
    assert_eq!(run.row.duration_ms, Some(7_000));
    assert_eq!(run.error(), "");

    rig.model
        .script("reader", [fault(FaultKind::Unavailable).after(seconds(2))]);
    let run = rig.run("reader", json!({"query": "go"})).await;
    assert_eq!(run.status(), RunStatus::Failed);
    assert_eq!(
        run.error(),
        "The model could not be reached, or answered with an error."
    );
    assert!(run.row.completed_at.is_some() && run.row.duration_ms.is_some());
    let decisions = "SELECT count(*) FROM decision_log WHERE status = 'closed' AND surface = 'agent'";
    assert_eq!(rig.db.count(decisions).await, 2);
}

/// X-4: steps and tokens of a running run come from its journal. Those of a flow include all its steps, also the one in
/// progress.
pub(crate) async fn steps_and_tokens_of_a_running_run_are_known(db: TestDb) {
    let flow = "name: flow\ndescription: d\nflow_type: sequential\nsteps: [reader, { name: again, agent: reader }]\n";
    let outer = "name: outer\ndescription: d\nflow_type: sequential\nsteps: [reader, flow]\n";
    let rig = Rig::on(db, &[READER, flow, outer]).await;
    let turns = || {
        [
            call("read", json!({})).costing(7),
            call("read", json!({"n": 2})).costing(5),
            words("Done.").costing(3),
        ]
    };
    let cases = [
        ("reader", 1, 1, (2, 12)),
        ("flow", 2, 3, (5, 27)),
        ("outer", 3, 5, (8, 42)),
    ];
    for (agent, scripts, answers, before) in cases {
        rig.model.script("reader", (0..scripts).flat_map(|_| turns()));
        let done = (0..answers).map(|_| Does::Answers(json!("read")));
        rig.tools.script("read", done.chain([Does::Waits]));
        let begun = rig.begin(agent, json!({"query": "go"}), None).await;
        let process = rig.process(rig.store.clone());
        let (ended, ()) = tokio::join!(rig.drive(&process, begun), async {
            rig.tools.waited_for.notified().await;
            // The start of a read is written while it takes long.
            let known = async {
                loop {
                    let row = rig.store.get(&tenant(), None, begun.id).await.unwrap().unwrap();
                    assert_eq!(row.status, RunStatus::Running);
                    if (row.steps, row.usage.input_tokens) == before {
                        return;
                    }
                    tokio::task::yield_now().await;
                }
            };
            let known = tokio::time::timeout(seconds(20), known).await;
            known.unwrap_or_else(|_| panic!("{agent}"));
            rig.tools.continues.notify_one();
        });
        let ended = ended.unwrap();
        assert_eq!(
            (ended.end.steps, ended.end.usage.input_tokens),
            (3 * scripts, 15 * u64::from(scripts)),
            "{agent}"
        );
    }
}

/// D-5: an output that violates the schema is returned with its errors. D-6: without a template, the final text is
/// JSON.
#[tokio::test]
async fn an_output_off_its_schema_goes_back_with_the_errors_until_it_conforms() {
    let rig = Rig::new(&[REPORTER]).await;
    rig.model.script(
        "reporter",
        [
            call("complete_task", json!({"report": {"title": "T", "count": "many"}})),
            call("complete_task", json!({})),
            call(
                "complete_task",
                json!({"report": {"title": "T", "count": 2}, "more": 1}),
            ),
            call("complete_task", json!({"report": {"title": "T", "count": 2}})),
        ],
    );
    let run = rig.run("reporter", json!({"query": "go"})).await;
    assert_eq!(run.status(), RunStatus::Completed);
    assert_eq!(run.output(), json!({"title": "T", "count": 2}));
    assert_eq!(run.summary(), r#"{"count":2,"title":"T"}"#);
    let asked = rig.model.asked();
    let reported = |n: usize| match &asked[n].responses()[0] {
        (name, Err((FailureCode::InvalidArguments, message))) if name == "complete_task" => message.clone(),
        other => panic!("{other:?}"),
    };
    assert!(reported(1).contains("/report/count"), "{}", reported(1));
    assert!(reported(2).contains("\"report\" is missing"), "{}", reported(2));
    assert!(reported(3).contains("\"more\" is not known"), "{}", reported(3));
    assert_eq!(run.row.steps, 4);
}

/// D-5: an invalid output is returned at most five times in a row, whatever its errors. Then the run fails and names
/// the errors of the last one. Any other turn resets the count.
#[tokio::test]
async fn after_five_invalid_outputs_in_a_row_the_run_has_failed() {
    let rig = Rig::new(&[REPORTER]).await;
    let bad = |n: u32| {
        call(
            "complete_task",
            json!({"report": {"title": "T", "count": format!("many {n}")}}),
        )
    };
    rig.model
        .answers("reporter", move |asked| bad(u32::try_from(asked.before).unwrap()));
    let run = rig.run("reporter", json!({"query": "go"})).await;
    assert_eq!((run.status(), run.row.steps), (RunStatus::Failed, 5));
    assert_eq!(run.row.stop_reason, Some(StopReason::InvalidOutput));
    assert!(
        run.error()
            .starts_with("Its output was invalid 5 times in a row; the last time: ")
            && run.error().contains("/report/count"),
        "{}",
        run.error()
    );

    // The same five outputs, one beside another call, and one without the argument.
    let rig = Rig::new(&[REPORTER]).await;
    let same = || call("complete_task", json!({"report": {}}));
    let mixed = || call("read", json!({})).and("complete_task", json!({"report": {"title": "T", "count": 2}}));
    rig.model.script(
        "reporter",
        [same(), same(), mixed(), call("complete_task", json!({})), same()],
    );
    let run = rig.run("reporter", json!({"query": "go"})).await;
    assert_eq!(
        (run.status(), run.row.stop_reason),
        (RunStatus::Failed, Some(StopReason::InvalidOutput))
    );

    let rig = Rig::new(&[REPORTER]).await;
    let good = call("complete_task", json!({"report": {"title": "T", "count": 2}}));
    rig.model.script(
        "reporter",
        [
            bad(1),
            bad(2),
            bad(3),
            bad(4),
            call("read", json!({})),
            bad(5),
            bad(6),
            bad(7),
            bad(8),
            good,
        ],
    );
    let run = rig.run("reporter", json!({"query": "go"})).await;
    assert_eq!((run.status(), run.row.steps), (RunStatus::Completed, 10));
}

/// D-5: `complete_task` together with other calls runs none of them.
#[tokio::test]
async fn an_output_beside_other_calls_runs_none_of_them() {
    let rig = Rig::new(&[REPORTER]).await;
    let output = json!({"report": {"title": "T", "count": 2}});
    rig.model.script(
        "reporter",
        [
            call("read", json!({})).and("complete_task", output.clone()),
            call("complete_task", output),
        ],
    );
    let run = rig.run("reporter", json!({"query": "go"})).await;
    assert_eq!((run.status(), run.row.steps), (RunStatus::Completed, 2));
    assert_eq!(
        rig.model.asked()[1].failures(),
        [Some(FailureCode::MixedWithVerdict); 2]
    );
    assert_eq!(rig.tools.sent(), []);
}

/// D-5: a run that ends with text gets one last chance, and may only submit its output.
#[tokio::test]
async fn a_run_that_ends_with_text_instead_of_its_output_has_one_last_chance() {
    let rig = Rig::new(&[REPORTER]).await;
    let output = json!({"report": {"title": "T", "count": 2}});
    rig.model
        .script("reporter", [words("All done!"), call("complete_task", output)]);
    let run = rig.run("reporter", json!({"query": "go"})).await;
    assert_eq!(run.status(), RunStatus::Completed);
    assert_eq!(run.row.recovered_from, Some(StopReason::MissingOutput));
    let asked = rig.model.asked();
    assert_eq!(asked[0].mode, "auto");
    assert_eq!(asked[1].mode, "complete_task");
    assert!(
        asked[1]
            .last_words()
            .contains("Return your output now with complete_task")
    );
}

/// D-5: a run without its required output is not completed.
#[tokio::test]
async fn a_run_that_ends_twice_with_text_instead_of_its_output_fails() {
    let rig = Rig::new(&[REPORTER]).await;
    rig.model
        .script("reporter", [words("All done!"), words("Really, I am done.")]);
    let run = rig.run("reporter", json!({"query": "go"})).await;
    assert_eq!(run.status(), RunStatus::Failed);
    assert_eq!(run.row.stop_reason, Some(StopReason::MissingOutput));
    assert_eq!(
        run.error(),
        "It ended twice without the output that its definition asks for."
    );
    assert_eq!(run.summary(), "Really, I am done.");
    assert_eq!(run.row.recovered_from, None);
}

/// D-5: ending with text is allowed once. The last chance counts, even if its output is repaired in between.
#[tokio::test]
async fn an_invalid_last_chance_may_be_corrected_but_not_replaced_by_text() {
    let rig = Rig::new(&[REPORTER]).await;
    let bad = json!({"report": {"title": "T"}});
    rig.model.script(
        "reporter",
        [words("Done!"), call("complete_task", bad), words("Well then.")],
    );
    let run = rig.run("reporter", json!({"query": "go"})).await;
    assert_eq!((run.status(), run.row.steps), (RunStatus::Failed, 3));
    assert_eq!(run.row.stop_reason, Some(StopReason::MissingOutput));
}

/// Calls are routed by origin, not by bare name.
#[tokio::test]
async fn a_tool_named_complete_task_works_beside_an_output() {
    let rig = Rig::new(&[REPORTER]).await;
    rig.tools.script("complete_task", [Does::Answers(json!("ticked off"))]);
    // The engine reserves the output's name, so the tool has a longer one.
    rig.model.script(
        "reporter",
        [
            call("desk__complete_task", json!({"id": 7})),
            call("complete_task", json!({"report": {"title": "T", "count": 1}})),
        ],
    );
    let run = rig.run("reporter", json!({"query": "go"})).await;
    assert_eq!(run.status(), RunStatus::Completed);
    let asked = rig.model.asked();
    assert_eq!(asked[0].names(), ["read", "desk__complete_task", "complete_task"]);
    assert_eq!(
        asked[1].responses(),
        [("desk__complete_task".to_owned(), Ok(json!("ticked off")))]
    );
    assert_eq!(rig.tools.calls("complete_task"), 1);
}

/// D-6: the output goes through the definition's template. A value that is not text is inserted as JSON, an absent one
/// as nothing.
#[tokio::test]
async fn process_output_makes_the_final_text() {
    let rig = Rig::new(&[r#"
name: critic
description: Judges.
promptConfig: { query: "${query}", systemPrompt: critic }
outputConfig:
  outputName: verdict
  description: What came of it.
  schema:
    type: object
    properties: { accept: { type: boolean }, places: { type: array }, note: { type: string } }
    required: [accept, places]
processOutput: "accepted: ${accept}; at ${places}; ${note}| ${verdict}"
"#])
    .await;
    rig.model.script(
        "critic",
        [call(
            "complete_task",
            json!({"verdict": {"accept": true, "places": [{"line": 3}]}}),
        )],
    );
    let run = rig.run("critic", json!({"query": "go"})).await;
    assert_eq!(
        run.summary(),
        r#"accepted: true; at [{"line":3}]; | {"accept":true,"places":[{"line":3}]}"#
    );
    assert_eq!(run.output(), json!({"accept": true, "places": [{"line": 3}]}));
}

/// D-4, D-7: inputs in query and persona: text as it is, other values as JSON, an absent one as nothing.
#[tokio::test]
async fn structured_inputs_are_rendered_as_json() {
    let rig = Rig::new(&[r#"
name: sorter
description: Sorts.
inputConfig:
  inputs:
    names: { description: What to sort., type: "string[]", required: true }
    most: { description: How many., type: integer, required: true }
    strict: { description: How., type: boolean }
    note: { description: A note., type: string }
promptConfig: { query: "Sort ${names}, at most ${most}. ${note}$${literal}", systemPrompt: "sorter${strict}" }
"#])
    .await;
    rig.model.script("sorter", [words("Sorted.")]);
    let names = json!(["b \"x\"", "a ${most}"]);
    let run = rig.run("sorter", json!({"names": names, "most": 5})).await;
    assert_eq!(run.status(), RunStatus::Completed);
    let asked = rig.model.asked();
    assert!(
        asked[0]
            .task()
            .ends_with(r#"Sort ["b \"x\"","a ${most}"], at most 5. ${literal}"#),
        "{}",
        asked[0].task()
    );
}

/// D-R4: all errors of the inputs are reported at once. A `null` counts as absent.
#[tokio::test]
async fn inputs_are_checked_against_their_types() {
    let rig = Rig::new(&[r#"
name: sorter
description: Sorts.
inputConfig:
  inputs:
    names: { description: What., type: "string[]", required: true }
    most: { description: How many., type: integer, required: true }
    share: { description: A part., type: number }
    strict: { description: How., type: boolean }
promptConfig: { query: "${names} ${most} ${share} ${strict}", systemPrompt: sorter }
"#])
    .await;
    let check = |inputs: serde_json::Value| {
        let given = inputs.as_object().unwrap().clone();
        let checked = rig.definition("sorter").check_arguments(given);
        checked.map_err(|errors| errors.iter().map(ToString::to_string).collect::<Vec<_>>())
    };
    let right = json!({"names": ["a"], "most": 2.0, "share": 1, "strict": true});
    assert_eq!(check(right.clone()).unwrap(), *right.as_object().unwrap());
    let absent = check(json!({"names": [], "most": 3, "share": null})).unwrap();
    assert!(!absent.contains_key("share"));
    assert_eq!(
        check(json!({"names": ["a", 1], "most": null, "share": "half", "strikt": 1})).unwrap_err(),
        [
            "names: holds a number; allowed: string[]",
            "share: is a string; allowed: number",
            "strikt: is not an argument of sorter; allowed: did you mean `strict`?",
            "most: is missing; integer is required",
        ]
    );
    assert_eq!(
        check(json!({"names": "a", "most": 1.5})).unwrap_err(),
        [
            "most: is a number; allowed: integer",
            "names: is a string; allowed: string[]"
        ]
    );
}

/// X-4: an agent that cannot start fails and names the reason.
#[tokio::test]
async fn an_agent_with_missing_tools_fails_and_names_them() {
    let rig = Rig::new(&[READER]).await;
    rig.tools.withdraw("read");
    let run = rig.run("reader", json!({"query": "go"})).await;
    assert_eq!(run.status(), RunStatus::Failed);
    assert_eq!(
        run.error(),
        "tools that it needs are unavailable: read; `gavel doctor` shows the reason"
    );
    assert_eq!(rig.model.asked().len(), 0);
}

/// X-1. Promise: decided by code. A tool that is not granted does not run.
#[tokio::test]
async fn a_tool_that_is_not_granted_does_not_run() {
    let rig = Rig::new(&[r#"
name: clerk
description: Writes.
promptConfig: { query: "${query}", systemPrompt: clerk }
toolConfig: { tools: [send] }
"#])
    .await;
    rig.model
        .script("clerk", [call("book", json!({})), words("I could not.")]);
    let run = rig.run("clerk", json!({"query": "go"})).await;
    assert_eq!(run.status(), RunStatus::Completed);
    assert_eq!(rig.model.asked()[1].failures(), [Some(FailureCode::UnknownTool)]);
    assert_eq!(rig.tools.effects(), []);
}

/// X-1: side effects run one after another in the model's order. Each is recorded before it starts.
#[tokio::test]
async fn the_calls_of_a_turn_run_in_order_and_a_failure_is_reported() {
    let rig = Rig::new(&[r#"
name: clerk
description: Writes.
promptConfig: { query: "${query}", systemPrompt: clerk }
toolConfig: { tools: [send, read, book] }
approval: never
"#])
    .await;
    rig.tools
        .script("send", [Does::Answers(json!(1)), Does::Fails("no such address")]);
    rig.model.script(
        "clerk",
        [
            call("send", json!({"n": 1}))
                .and("read", json!({}))
                .and("send", json!({"n": 2}))
                .and("book", json!({"n": 3})),
            words("One of them failed."),
        ],
    );
    let run = rig.run("clerk", json!({"query": "go"})).await;
    assert_eq!(run.status(), RunStatus::Completed);
    let effects: Vec<_> = rig.tools.effects().into_iter().map(|(tool, _)| tool).collect();
    assert_eq!(effects, ["send", "book"]);
    let asked = rig.model.asked();
    assert_eq!(asked[1].failures(), [None, None, Some(FailureCode::ToolError), None]);
    assert!(matches!(
        &asked[1].contents[..],
        [Piece::User(_), Piece::Turn(_), Piece::Responses(_)]
    ));
    let rows = rig
        .db
        .rows("SELECT sequence, tool, status FROM tool_invocation_log ORDER BY sequence")
        .await;
    assert_eq!(rows.len(), 4, "{rows:?}");
}
