//! Steps, time and tokens: soft stop, hard stop, grace period (X-5 to X-10).

use gavel::domain::agent_run::{RunStatus, StopReason};
use gavel::domain::journal::FaultKind;
use gavel::domain::tool::FailureCode;
use serde_json::{Value, json};

use crate::crash::{Death, Dying};
use crate::model::{Asked, Piece, Say, call, fault, hangs, words};
use crate::rig::{Rig, seconds};
use crate::tools::Does;

/// An agent with these limits that ends with text.
fn worker(limits: &str) -> String {
    format!(
        r#"
name: worker
description: Works.
promptConfig: {{ query: "${{query}}", systemPrompt: worker }}
toolConfig: {{ tools: [read, look, send] }}
approval: never
runConfig: {limits}
"#
    )
}

/// An agent with these limits that submits a number as its output.
fn counter(limits: &str) -> String {
    worker(limits) + "outputConfig: { outputName: n, description: A number., schema: { type: integer } }\n"
}

async fn rig(definition: String, script: impl IntoIterator<Item = Say>) -> Rig {
    let rig = Rig::new(&[definition.as_str()]).await;
    rig.model.script("worker", script);
    rig
}

fn go() -> Value {
    json!({"query": "go"})
}

fn read(n: u32) -> Say {
    call("read", json!({"n": n}))
}

fn interrupted(asked: &Asked, words: &str) {
    assert!(asked.last_words().starts_with(words), "{}", asked.last_words());
}

/// X-5: an agent at the top level may take as many steps as it needs.
#[tokio::test]
async fn a_top_level_agent_may_take_as_many_steps_as_it_needs() {
    let rig = Rig::new(&[worker("{}").as_str()]).await;
    rig.model.answers("worker", |asked| match asked.before {
        600 => words("Done."),
        n => call("read", json!({"n": n})),
    });
    let run = rig.run("worker", go()).await;
    assert_eq!((run.status(), run.row.steps), (RunStatus::Completed, 601));
    assert_eq!(rig.tools.calls("read"), 600);
}

/// X-6: the calls of the last step run; then the model has one more turn, without functions, to sum up.
#[tokio::test]
async fn at_the_step_limit_the_model_sums_up_and_the_run_is_paused() {
    let rig = rig(
        worker("{ max_turns: 2 }"),
        [read(1), read(2), words("I read two of five.")],
    )
    .await;
    let run = rig.run("worker", go()).await;
    assert_eq!(run.status(), RunStatus::Paused);
    assert_eq!(run.row.stop_reason, Some(StopReason::StepLimit));
    assert_eq!(run.summary(), "I read two of five.");
    assert_eq!((run.row.steps, rig.tools.calls("read")), (3, 2));
    let asked = rig.model.asked();
    assert_eq!(
        [&asked[0].mode, &asked[1].mode, &asked[2].mode],
        ["auto", "auto", "none"]
    );
    interrupted(
        &asked[2],
        "The step limit for this task is reached. You can call no more functions. Write a final summary now",
    );
    assert_eq!(asked[2].names(), ["read", "look", "send"], "the declarations stay");
}

/// X-6: a run that ends within its limit is not stopped.
#[tokio::test]
async fn a_run_that_ends_at_its_last_step_is_completed() {
    let rig = rig(worker("{ max_turns: 2 }"), [read(1), words("Done.")]).await;
    let run = rig.run("worker", go()).await;
    assert_eq!((run.status(), run.row.steps), (RunStatus::Completed, 2));
    assert_eq!(run.row.recovered_from, None);
}

/// X-6: an agent with an output schema may still submit its output. The run then reports that it recovered from its
/// limit.
#[tokio::test]
async fn a_valid_output_at_the_soft_stop_completes_the_run() {
    let rig = rig(
        counter("{ max_turns: 1 }"),
        [read(1), call("complete_task", json!({"n": 7}))],
    )
    .await;
    let run = rig.run("worker", go()).await;
    assert_eq!((run.status(), run.output()), (RunStatus::Completed, json!(7)));
    assert_eq!(run.row.recovered_from, Some(StopReason::StepLimit));
    assert_eq!(run.row.stop_reason, None);
    let asked = rig.model.asked();
    assert_eq!(asked[1].mode, "complete_task");
    interrupted(
        &asked[1],
        "The step limit for this task is reached. Call complete_task now with what you have",
    );
}

/// X-6, X-7: an invalid output at the soft stop does not count, and there is no second attempt.
#[tokio::test]
async fn an_invalid_output_at_the_soft_stop_pauses_the_run() {
    let bad = call("complete_task", json!({"n": "many"})).saying("About seven.");
    let rig = rig(counter("{ max_turns: 1 }"), [read(1), bad]).await;
    let run = rig.run("worker", go()).await;
    assert_eq!(run.status(), RunStatus::Paused);
    assert_eq!((run.summary(), run.output()), ("About seven.", Value::Null));
    assert_eq!(run.row.stop_reason, Some(StopReason::StepLimit));
    assert_eq!(rig.model.asked().len(), 2);
}

/// X-7: a call after the soft stop is refused, and the text beside it is kept.
#[tokio::test]
async fn a_call_after_the_soft_stop_is_refused_and_the_text_is_kept() {
    let stubborn = call("send", json!({})).saying("Halfway there, one more thing.");
    let rig = rig(worker("{ max_turns: 1 }"), [read(1), stubborn, words("Never said.")]).await;
    let run = rig.run("worker", go()).await;
    assert_eq!(run.status(), RunStatus::Paused);
    assert_eq!(run.row.stop_reason, Some(StopReason::StepLimit));
    assert_eq!(run.summary(), "Halfway there, one more thing.");
    assert_eq!(rig.tools.effects(), []);
    assert_eq!(rig.model.asked().len(), 2);
    assert_eq!(
        rig.db
            .rows("SELECT tool, status, error_code FROM tool_invocation_log ORDER BY sequence")
            .await[1][2]
            .as_deref(),
        Some("limit_reached")
    );
}

/// X-7: if that turn has no text, the last text before it is the summary.
#[tokio::test]
async fn a_call_without_text_after_the_soft_stop_keeps_the_earlier_text() {
    let rig = rig(
        worker("{ max_turns: 1 }"),
        [read(1).saying("I begin with one."), read(2)],
    )
    .await;
    let run = rig.run("worker", go()).await;
    assert_eq!((run.status(), run.summary()), (RunStatus::Paused, "I begin with one."));
}

/// X-6: if the model fails at the last call, the run is paused, not failed.
#[tokio::test]
async fn a_model_that_cannot_sum_up_leaves_the_run_paused() {
    let rig = rig(
        worker("{ max_turns: 1 }"),
        [read(1).saying("One."), fault(FaultKind::Unavailable)],
    )
    .await;
    let run = rig.run("worker", go()).await;
    assert_eq!((run.status(), run.summary()), (RunStatus::Paused, "One."));
    assert_eq!(run.row.stop_reason, Some(StopReason::StepLimit));
}

/// X-8: if the time ends while the model is answering, it is asked to sum up and has 30 s to do so.
#[tokio::test]
async fn at_the_time_limit_the_model_has_thirty_seconds_to_sum_up() {
    let script = [
        read(1).after(seconds(40)),
        hangs(),
        words("So far: one.").after(seconds(29)),
    ];
    let rig = rig(worker("{ deadline_seconds: 60 }"), script).await;
    let run = rig.run("worker", go()).await;
    assert_eq!((run.status(), run.summary()), (RunStatus::Paused, "So far: one."));
    assert_eq!(run.row.stop_reason, Some(StopReason::TimeLimit));
    let asked = rig.model.asked();
    assert_eq!([asked[1].time, asked[2].time], [seconds(20), seconds(30)]);
    assert_eq!(asked[2].mode, "none");
    interrupted(
        &asked[2],
        "The time limit for this task is reached. You can call no more functions. Write a final summary now",
    );
    assert_eq!(run.row.duration_ms, Some(89_000));
}

/// X-8: a tool that runs when the time ends is cancelled and reported as an error, then the model is asked to sum up.
#[tokio::test]
async fn a_tool_that_outlasts_the_run_is_cancelled_before_the_model_sums_up() {
    let script = [read(1).after(seconds(50)), words("The read did not come back.")];
    let rig = rig(worker("{ deadline_seconds: 60 }"), script).await;
    rig.tools.script("read", [Does::Hangs]);
    let run = rig.run("worker", go()).await;
    assert_eq!(
        (run.status(), run.summary()),
        (RunStatus::Paused, "The read did not come back.")
    );
    assert_eq!(rig.tools.sent()[0].timeout, seconds(10));
    let asked = rig.model.asked();
    assert_eq!(asked[1].failures(), [Some(FailureCode::Timeout)]);
    assert_eq!((asked[1].mode.as_str(), asked[1].time), ("none", seconds(30)));
    assert_eq!(rig.clock.passed(), seconds(60));
}

/// X-8: calls that the time limit leaves no time for are not started, and each gets a result.
#[tokio::test]
async fn calls_that_cannot_start_in_time_are_refused() {
    let script = [
        call("send", json!({"n": 1}))
            .and("send", json!({"n": 2}))
            .after(seconds(45)),
        words("One was sent."),
    ];
    let rig = rig(worker("{ deadline_seconds: 60 }"), script).await;
    rig.tools
        .script("send", [Does::Takes(seconds(14)), Does::Takes(seconds(14))]);
    let run = rig.run("worker", go()).await;
    // The second call had one second left and may have had its effect, so the run does not continue by itself.
    assert_eq!(run.status(), RunStatus::Paused);
    assert_eq!(run.row.stop_reason, Some(StopReason::InDoubt));
    assert_eq!(run.row.in_doubt.len(), 1);

    let script = [
        call("send", json!({"n": 1})).after(seconds(60)),
        words("Nothing was sent."),
    ];
    rig.model.script("worker", script);
    let effects = rig.tools.effects();
    let run = rig.run("worker", go()).await;
    assert_eq!((run.status(), run.summary()), (RunStatus::Paused, "Nothing was sent."));
    assert_eq!(run.row.stop_reason, Some(StopReason::TimeLimit));
    assert_eq!(
        rig.model.asked().last().unwrap().failures(),
        [Some(FailureCode::LimitReached)]
    );
    assert_eq!(rig.tools.effects(), effects);
}

/// X-9: without a summary in the grace period, the run is stopped and keeps its results.
#[tokio::test]
async fn without_a_summary_in_the_grace_period_the_run_stops_and_keeps_its_results() {
    let script = [
        read(1).saying("I begin.").after(seconds(40)),
        hangs(),
        hangs(),
        words("Never said."),
    ];
    let rig = rig(worker("{ deadline_seconds: 60 }"), script).await;
    let run = rig.run("worker", go()).await;
    assert_eq!((run.status(), run.summary()), (RunStatus::Paused, "I begin."));
    assert_eq!(run.row.stop_reason, Some(StopReason::TimeLimit));
    assert_eq!(rig.model.asked().len(), 3);
    assert_eq!(rig.clock.passed(), seconds(90));
}

/// X-8, X-9: the text of a turn that the clock interrupts is kept, at the time limit, in the grace period, or at both.
/// The model that sums up is shown its own text.
#[tokio::test]
async fn the_text_of_an_interrupted_turn_is_kept_and_shown_to_the_model_that_sums_up() {
    let begins = || read(1).saying("I begin.").after(seconds(40));
    let cut = |said: &str| hangs().saying(said);
    for (script, summary, own) in [
        // Interrupted at the time limit; the model then sums up.
        (
            vec![begins(), cut("I was about"), words("In short.")],
            "In short.",
            &["I was about"][..],
        ),
        // Interrupted at the time limit; no text in the grace period.
        (
            vec![begins(), cut("I was about"), hangs()],
            "I begin.\n\nI was about",
            &["I was about"],
        ),
        // Interrupted in the grace period only.
        (vec![begins(), hangs(), cut("To sum")], "I begin.\n\nTo sum", &[]),
        (
            vec![begins(), cut("I was about"), cut("To sum")],
            "I begin.\n\nI was about\n\nTo sum",
            &["I was about"],
        ),
        (vec![cut("I was about"), hangs()], "I was about", &["I was about"]),
    ] {
        let what = format!("{script:?}");
        let rig = rig(worker("{ deadline_seconds: 60 }"), script).await;
        let run = rig.run("worker", go()).await;
        assert_eq!((run.status(), run.summary()), (RunStatus::Paused, summary), "{what}");
        assert_eq!(run.row.stop_reason, Some(StopReason::TimeLimit), "{what}");
        let asked = rig.model.asked();
        let shown = asked.last().unwrap().contents.iter().filter_map(|piece| match piece {
            Piece::Assistant(text) => Some(text.as_str()),
            _ => None,
        });
        assert_eq!(shown.collect::<Vec<_>>(), own, "{what}");
        let last = asked.last().unwrap().last_words();
        assert!(!last.is_empty() && last != "go", "the model is asked to sum up: {what}");
    }
}

/// X-9: this also holds at the caller's deadline, for an agent that ends at its limit, and for one with an output
/// schema.
#[tokio::test]
async fn the_text_of_a_turn_is_kept_whichever_deadline_interrupts_it() {
    let cut = || hangs().saying("I was about");
    let rig = rig(counter("{ deadline_seconds: 60 }"), [cut(), hangs()]).await;
    let run = rig.run("worker", go()).await;
    assert_eq!((run.status(), run.summary()), (RunStatus::Paused, "I was about"));

    rig.model.script("worker", [cut(), hangs()]);
    let run = rig.run_within("worker", json!({"query": "soon"}), seconds(5)).await;
    assert_eq!((run.status(), run.summary()), (RunStatus::Paused, "I was about"));
    assert_eq!(run.row.stop_reason, Some(StopReason::TimeLimit));
}

/// X-10: a timeout in the request replaces the timeout in the definition.
#[tokio::test]
async fn a_timeout_in_the_request_replaces_that_of_the_definition() {
    let rig = rig(worker("{ deadline_seconds: 600 }"), [hangs(), words("Short.")]).await;
    let run = rig.run_within("worker", go(), seconds(5)).await;
    assert_eq!(
        (run.status(), run.row.stop_reason),
        (RunStatus::Paused, Some(StopReason::TimeLimit))
    );
    assert_eq!(rig.model.asked()[0].time, seconds(5));
    assert_eq!(rig.clock.passed(), seconds(5));

    rig.model.script("worker", [words("Long.").after(seconds(550))]);
    let run = rig
        .run_within("worker", json!({"query": "take your time"}), seconds(3600))
        .await;
    assert_eq!(run.status(), RunStatus::Completed);
    assert_eq!(
        rig.model.asked().last().unwrap().time,
        seconds(600),
        "one model call takes ten minutes at most"
    );
}

/// Tokens are a limit too.
#[tokio::test]
async fn when_the_tokens_are_exhausted_the_model_sums_up() {
    let script = [
        read(1).costing(600),
        read(2).costing(400),
        words("Expensive.").costing(10),
    ];
    let rig = rig(worker("{ max_tokens: 1000 }"), script).await;
    let run = rig.run("worker", go()).await;
    assert_eq!((run.status(), run.summary()), (RunStatus::Paused, "Expensive."));
    assert_eq!(run.row.stop_reason, Some(StopReason::TokenLimit));
    assert_eq!(run.row.usage.input_tokens, 1010);
    interrupted(&rig.model.asked()[2], "The token limit for this task is reached.");
}

/// At most 16 calls of one turn run. Identical calls count one by one.
#[tokio::test]
async fn calls_beyond_sixteen_in_one_turn_are_refused() {
    let many = (2..=20).fold(read(1), |turn, n| turn.and("read", json!({"n": n})));
    let rig = rig(worker("{}"), [many, words("Done.")]).await;
    rig.run("worker", go()).await;
    assert_eq!(rig.tools.calls("read"), 16);
    let failures = rig.model.asked()[1].failures();
    assert!(failures[..16].iter().all(Option::is_none));
    assert_eq!(failures[16..], [Some(FailureCode::TooManyCalls); 4]);
}

/// X-5, X-6: a resumed run has a fresh budget and the whole conversation.
#[tokio::test]
async fn a_paused_run_is_resumed_where_it_stopped_with_a_fresh_budget() {
    let script = [
        read(1),
        read(2),
        words("Two of four."),
        read(3),
        read(4),
        words("Four of four, and a word more."),
    ];
    let rig = rig(worker("{ max_turns: 2 }"), script).await;
    let first = rig.run("worker", go()).await;
    assert_eq!(first.status(), RunStatus::Paused);
    let second = rig.resume(first.id, &[]).await;
    assert_eq!(second.status(), RunStatus::Paused);
    assert_eq!(second.summary(), "Four of four, and a word more.");
    assert_eq!((second.id, second.row.steps), (first.id, 6));
    let [attempt] = &second.row.attempts[..] else {
        panic!("{:?}", second.row.attempts)
    };
    assert_eq!(
        (attempt.summary.as_deref(), attempt.stop_reason, attempt.steps),
        (Some("Two of four."), Some(StopReason::StepLimit), 3)
    );
    let asked = rig.model.asked();
    assert_eq!(asked[3].mode, "auto");
    assert!(asked[3].last_words().starts_with("The task is resumed"));
    assert_eq!(asked[3].contents[..asked[2].contents.len()], asked[2].contents[..]);
    assert_eq!(rig.tools.calls("read"), 4);
}

/// X-13: the counter of identical calls starts at zero too.
#[tokio::test]
async fn a_resumed_run_resets_the_counter_of_identical_calls() {
    let script = [
        read(1),
        read(1),
        words("Stuck."),
        read(1),
        read(1),
        words("Stuck again."),
    ];
    let rig = rig(worker("{ max_turns: 2 }"), script).await;
    let first = rig.run("worker", go()).await;
    let second = rig.resume(first.id, &[]).await;
    assert_eq!(second.status(), RunStatus::Paused);
    assert_eq!(rig.tools.calls("read"), 4);
}

/// X-8, X-15: if a process dies at any write, the next one adds at most the duration of one call to the run, never the
/// whole time limit.
#[tokio::test]
async fn a_crash_after_the_time_limit_adds_no_time_to_the_run() {
    let mut fresh = Rig::new(&[worker("{ deadline_seconds: 100 }").as_str()]).await;
    for write in 1.. {
        fresh = fresh.afresh();
        fresh.model.answers("worker", |_| hangs());
        let begun = fresh.begin("worker", go(), None).await;
        let before = fresh.clock.passed();
        let dying = Dying::at(&fresh.store, write, Death::Before);
        if fresh.drive(&fresh.process(dying), begun).await.is_ok() {
            assert!(write > 3, "the end of its time is written as well");
            break;
        }
        let begun = fresh.take_over(begun).await.unwrap();
        let run = fresh.finish(begun).await;
        assert_eq!(
            run.row.stop_reason,
            Some(StopReason::TimeLimit),
            "death at write {write}"
        );
        let took = fresh.clock.passed() - before;
        assert!(took <= seconds(100 + 30 + 100), "death at write {write}: {took:?}");
    }
}
