//! Repeated identical calls (X-11 to X-13).

use gavel::domain::agent_run::{RunStatus, StopReason};
use gavel::domain::tool::FailureCode;
use serde_json::json;

use crate::model::{Say, call, call_text, words};
use crate::rig::{Outcome, Rig};

const LOOKER: &str = r#"
name: looker
description: Looks.
promptConfig: { query: "${query}", systemPrompt: looker }
toolConfig: { tools: [read, look] }
"#;

async fn played(script: impl IntoIterator<Item = Say>) -> (Rig, Outcome) {
    let rig = Rig::new(&[LOOKER]).await;
    rig.model.script("looker", script);
    let run = rig.run("looker", json!({"query": "go"})).await;
    (rig, run)
}

fn read(n: u32) -> Say {
    call("read", json!({"n": n}))
}

const REFUSED: Option<FailureCode> = Some(FailureCode::DoomLoop);

/// X-11: the third identical call in a row is refused, and the error asks the model to try something else.
#[tokio::test]
async fn the_third_identical_call_in_a_row_is_refused_with_advice_to_the_model() {
    let (rig, run) = played([read(1), read(1), read(1), words("I gave up.")]).await;
    assert_eq!(run.status(), RunStatus::Completed);
    assert_eq!(rig.tools.calls("read"), 2);
    let asked = rig.model.asked();
    assert_eq!([asked[1].failures(), asked[2].failures()], [[None], [None]]);
    let (name, outcome) = &asked[3].responses()[0];
    let (code, message) = outcome.as_ref().unwrap_err();
    assert_eq!((name.as_str(), *code), ("read", FailureCode::DoomLoop));
    assert!(message.contains("Use other arguments or another function"), "{message}");
}

/// X-12: the fifth identical call in a row ends the run as failed.
#[tokio::test]
async fn the_fifth_identical_call_in_a_row_ends_the_run_as_failed() {
    let (rig, run) = played([read(1), read(1), read(1), read(1), read(1), words("Never said.")]).await;
    assert_eq!(run.status(), RunStatus::Failed);
    assert_eq!(run.row.stop_reason, Some(StopReason::DoomLoop));
    assert!(
        run.error().contains("doom loop") && run.error().contains("read"),
        "{}",
        run.error()
    );
    assert_eq!(
        (rig.tools.calls("read"), rig.model.asked().len(), run.row.steps),
        (2, 5, 5)
    );
}

/// X-13: a call of another tool or with other arguments resets the counter.
#[tokio::test]
async fn another_tool_or_other_arguments_reset_the_counter() {
    let look = || call("look", json!({"n": 1}));
    let (rig, run) = played([
        read(1),
        read(1),
        look(),
        read(1),
        read(1),
        read(2),
        read(1),
        read(1),
        read(1),
        words("Done."),
    ])
    .await;
    assert_eq!(run.status(), RunStatus::Completed);
    assert_eq!((rig.tools.calls("read"), rig.tools.calls("look")), (7, 1));
    let asked = rig.model.asked();
    assert_eq!(asked[9].failures(), [REFUSED]);
    assert!(asked[1..9].iter().all(|asked| asked.failures() == [None]));
}

/// X-11: calls count one by one, within one turn and across turns.
#[tokio::test]
async fn identical_calls_of_one_turn_count_one_by_one() {
    let four = read(1)
        .and("read", json!({"n": 1}))
        .and("read", json!({"n": 1}))
        .and("read", json!({"n": 1}));
    let (rig, run) = played([four, words("Done.")]).await;
    assert_eq!(run.status(), RunStatus::Completed);
    assert_eq!(rig.model.asked()[1].failures(), [None, None, REFUSED, REFUSED]);
    assert_eq!(rig.tools.calls("read"), 2);

    let (rig, run) = played([
        read(2).and("read", json!({"n": 1})),
        read(1).and("read", json!({"n": 1})).and("look", json!({})),
        words("Done."),
    ])
    .await;
    assert_eq!(run.status(), RunStatus::Completed);
    assert_eq!(rig.model.asked()[2].failures(), [None, REFUSED, None]);
    assert_eq!(rig.tools.calls("read"), 3);
}

/// X-12: calls after the one that ends the run are not started.
#[tokio::test]
async fn five_identical_calls_in_one_turn_end_the_run_and_later_calls_do_not_run() {
    let mut turn = call("look", json!({}));
    for _ in 0..5 {
        turn = turn.and("read", json!({}));
    }
    let (rig, run) = played([turn.and("look", json!({"after": 1})), words("Never said.")]).await;
    assert_eq!(run.status(), RunStatus::Failed);
    assert_eq!(run.row.stop_reason, Some(StopReason::DoomLoop));
    assert_eq!((rig.tools.calls("read"), rig.tools.calls("look")), (2, 1));
    assert_eq!(rig.model.asked().len(), 1);
}

/// X-11: two calls are identical if their arguments have the same value, however the JSON is written.
#[tokio::test]
async fn arguments_written_differently_are_the_same() {
    let (rig, run) = played([
        call_text("read", r#"{"a":1,"b":{"c":2,"d":"ü"}}"#),
        call_text("read", r#"{ "b" : {"d":"ü", "c":2}, "a":1 }"#),
        call_text("read", r#"{"b":{"c":2,"d":"\u00fc"},"a":1}"#),
        words("Done."),
    ])
    .await;
    assert_eq!(run.status(), RunStatus::Completed);
    assert_eq!(rig.model.asked()[3].failures(), [REFUSED]);
    assert_eq!(rig.tools.calls("read"), 2);
}

/// X-12: refused calls and calls of unknown tools count too.
#[tokio::test]
async fn refused_calls_count_as_well() {
    let drop = || call("drop_all", json!({}));
    let (rig, run) = played([drop(), drop(), drop(), drop(), drop(), words("Never said.")]).await;
    assert_eq!(run.row.stop_reason, Some(StopReason::DoomLoop));
    let asked = rig.model.asked();
    let unknown = Some(FailureCode::UnknownTool);
    let reported: Vec<_> = asked[1..].iter().map(|asked| asked.failures()[0]).collect();
    assert_eq!(reported, [unknown, unknown, REFUSED, REFUSED]);
}

/// X-12: repeating the same invalid output ends the run as well.
#[tokio::test]
async fn repeating_the_same_invalid_output_ends_the_run() {
    let rig = Rig::new(&[r#"
name: reporter
description: Reports.
promptConfig: { query: "${query}", systemPrompt: reporter }
outputConfig: { outputName: n, description: A number., schema: { type: integer } }
"#])
    .await;
    rig.model
        .answers("reporter", |_| call("complete_task", json!({"n": "many"})));
    let run = rig.run("reporter", json!({"query": "go"})).await;
    assert_eq!((run.status(), run.row.steps), (RunStatus::Failed, 5));
    assert_eq!(run.row.stop_reason, Some(StopReason::DoomLoop));
}
