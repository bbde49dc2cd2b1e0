//! D-R6: the model's thoughts, streamed beside its answer and never part of it.

use serde_json::{Value, json};

use super::{HELPER, both, id, lines, types};
use crate::gemini::{Gemini, Mouth, Reply, turn};
use crate::harness::{App, Setup, spawn_app};
use crate::streaming::{PlacedEvent, delta, run_path};
use crate::threads;

/// The thinking configuration in the model request.
fn thinking(gemini: &Gemini) -> Value {
    gemini.requests()[0]["generationConfig"]["thinkingConfig"].clone()
}

async fn watch(app: &App, run: &str) -> PlacedEvent {
    PlacedEvent::of(app.request("GET", &format!("/api/runs/{run}/events"), &[])).await
}

fn what(event: &Value) -> (&str, &str) {
    (
        event["type"].as_str().unwrap(),
        event["text"].as_str().unwrap_or_default(),
    )
}

/// A thought and text in one chunk.
fn thinks_and_says(thought: &str, words: &str) -> Reply {
    let parts = [json!({"text": thought, "thought": true}), json!({"text": words})];
    Reply::Raw(200, turn(1, &parts))
}

/// D-R6: each thought arrives before the model sends the next. The journal keeps them, and the answer has none.
#[tokio::test]
async fn thoughts_are_streamed_and_kept_but_not_part_of_the_answer() {
    for setup in both() {
        let (mouth, spoken) = Mouth::new();
        let app = spawn_app(setup.script(vec![spoken])).await;
        let run = app.queued("helper", "hi").await;
        app.asked(1).await;
        assert_eq!(thinking(&app.gemini), json!({"includeThoughts": true}));
        let mut events = watch(&app, &run).await;
        assert_eq!(events.line().await["type"], "input");
        for thought in ["The user ", "says hi."] {
            mouth.thinks(thought);
            let event = events.line().await;
            assert_eq!(what(&event), ("thought", thought), "{event}");
            assert_eq!((&event["run_id"], &event["id"]), (&json!(run), &json!("1")));
        }
        mouth.says("Hel");
        assert_eq!(what(&events.line().await), ("delta", "Hel"));
        // A reader that joins within the turn receives the thoughts and text so far, each once.
        let mut late = watch(&app, &run).await;
        assert_eq!(late.line().await["type"], "input");
        assert_eq!(what(&late.line().await), ("thought", "The user says hi."));
        assert_eq!(what(&late.line().await), ("delta", "Hel"));
        mouth.ends("lo.");
        for rest in [events.rest().await, late.rest().await] {
            assert_eq!(types(&rest), ["delta", "turn", "end"], "{rest:?}");
            assert_eq!(
                (&rest[1]["text"], &rest[1]["thoughts"]),
                (&json!("Hello."), &json!(["The user says hi."])),
                "{rest:?}"
            );
        }
        let over = app.over(&run).await;
        assert_eq!(
            (&over["status"], &over["summary"]),
            (&json!("completed"), &json!("Hello."))
        );
        assert!(!over.to_string().contains("The user"), "{over}");
        let kept = app.events(&run).await;
        assert_eq!(types(&kept), ["input", "turn", "end"], "{kept:?}");
        assert_eq!(kept[1]["thoughts"], json!(["The user says hi."]), "{kept:?}");
    }
}

/// An attempt that produced only thoughts is reset like any other.
#[tokio::test]
async fn thoughts_of_an_attempt_that_broke_off_are_reset() {
    for setup in both() {
        let [(first, a), (second, b)] = [(); 2].map(|()| Mouth::new());
        let app = spawn_app(setup.script(vec![a, b])).await;
        let run = app.queued("helper", "hi").await;
        app.asked(1).await;
        let mut events = watch(&app, &run).await;
        assert_eq!(events.line().await["type"], "input");
        first.thinks("Hm");
        assert_eq!(what(&events.line().await), ("thought", "Hm"));
        drop(first);
        assert_eq!(events.line().await["type"], "reset");
        second.thinks("Greet.");
        assert_eq!(what(&events.line().await), ("thought", "Greet."));
        second.ends("Hello.");
        let rest = events.rest().await;
        assert_eq!(types(&rest), ["delta", "turn", "end"], "{rest:?}");
        assert_eq!(rest[1]["thoughts"], json!(["Greet."]), "{rest:?}");
    }
}

/// Promise: recorded. Thoughts are neither an answer nor text that a cancelled run keeps.
#[tokio::test]
async fn a_run_with_only_thoughts_has_no_answer() {
    for setup in both() {
        let thought = Reply::Raw(200, turn(1, &[json!({"text": "Secretly yes.", "thought": true})]));
        let app = spawn_app(setup.clone().script(vec![thought])).await;
        let run = app.triggered("helper", "hi").await;
        assert_eq!(run["status"], "failed", "{run}");
        assert!(!run.to_string().contains("Secretly"), "{run}");
        assert_eq!(app.gemini.requests().len(), 2, "the model is asked once more");

        let (mouth, spoken) = Mouth::new();
        let app = spawn_app(setup.script(vec![spoken])).await;
        let run = app.queued("helper", "hi").await;
        app.asked(1).await;
        let mut events = watch(&app, &run).await;
        assert_eq!(events.line().await["type"], "input");
        mouth.thinks("Secretly yes.");
        assert_eq!(events.line().await["type"], "thought");
        assert_eq!(app.cancel(&run).await.status / 100, 2);
        let run = app.over(&run).await;
        assert_eq!(run["status"], "cancelled", "{run}");
        assert!(!run.to_string().contains("Secretly"), "{run}");
    }
}

/// `modelConfig.includeThoughts`: the value in the definition, by default true for agents.
#[tokio::test]
async fn an_agents_definition_decides_whether_thoughts_are_requested() {
    for (word, asked) in [("", true), ("true", true), ("false", false)] {
        for setup in [Setup::stdio_sqlite(), Setup::stdio_postgres()] {
            let model = match word {
                "" => String::new(),
                word => format!("modelConfig: {{includeThoughts: {word}}}\n"),
            };
            let helper = HELPER.replace("approval: never\n", &format!("approval: never\n{model}"));
            // A gateway may send thoughts that were not requested.
            let reply = thinks_and_says("Greet.", "Hello.");
            let app = spawn_app(setup.agent("helper.md", &helper).script(vec![reply])).await;
            let run = app.triggered("helper", "hi").await;
            let expected = match asked {
                true => json!({"includeThoughts": true}),
                false => json!(null),
            };
            assert_eq!(thinking(&app.gemini), expected, "{word}");
            assert_eq!(run["summary"], "Hello.", "{run}");
            let events = app.events(&id(&run)).await;
            assert_eq!(types(&events), ["input", "turn", "end"], "{events:?}");
        }
    }
}

/// For a chat: thoughts are streamed only if the constitution requests them.
#[tokio::test]
async fn a_chats_thoughts_are_streamed_where_its_constitution_asks_for_them() {
    for (word, asked) in [("", false), ("false", false), ("true", true)] {
        for setup in [Setup::stdio_sqlite(), Setup::stdio_postgres()] {
            let model = match word {
                "" => String::new(),
                word => format!("includeThoughts: {word}\n"),
            };
            let constitution = format!("---\nname: tester\ndescription: Greets.\n{model}---\n\nGreet.\n");
            let reply = thinks_and_says("Greet.", "Hello.");
            let app = spawn_app(setup.constitution(&constitution).script(vec![reply])).await;
            let reported = lines(&app.stream(&json!({"message": "hi", "user_id": "ann"})).await);
            match asked {
                true => {
                    assert_eq!(types(&reported), ["started", "thought", "delta", "turn", "decision"]);
                    assert_eq!(what(&reported[1]), ("thought", "Greet."));
                }
                false => assert_eq!(types(&reported), ["started", "delta", "turn", "decision"]),
            }
            assert_eq!(thinking(&app.gemini)["includeThoughts"] == true, asked, "{word}");
            let decision = reported.last().unwrap();
            assert_eq!(decision["response"], "Hello.", "{decision}");
            assert!(!decision.to_string().contains("Greet."), "{decision}");
        }
    }
}

/// R, Routes: the list of line types is closed, so thoughts are no line of it, and a broken-off attempt of only
/// thoughts causes no reset. D-R6: the events of the run have them.
#[tokio::test]
async fn a_stream_of_a_thread_shows_no_thoughts_and_the_events_of_its_run_do() {
    for setup in threads::both() {
        let [(first, a), (second, b)] = [(); 2].map(|()| Mouth::new());
        let app = spawn_app(setup.script(vec![a, b])).await;
        let mut reported = PlacedEvent::by(&app, "Hello.").await;
        let begun = reported.line().await;
        app.asked(1).await;
        let path = format!("{}/events?after=1", run_path(&begun));
        let mut events = PlacedEvent::of(app.request("GET", &path, &[("x-gavel-user", "ann")])).await;
        first.thinks("Who is it?");
        assert_eq!(events.line().await["text"], "Who is it?");
        drop(first);
        assert_eq!(events.line().await["type"], "reset");
        second.thinks("It is Ann.");
        assert_eq!(events.line().await["text"], "It is Ann.");
        second.says("Hello, ");
        assert_eq!(
            reported.line().await,
            delta("Hello, "),
            "the first line after the thread's"
        );
        second.ends("Ann.");
        let rest = reported.rest().await;
        assert_eq!(types(&rest), ["delta", "result"], "{rest:?}");
        assert_eq!(rest[1]["result"]["summary"], "Hello, Ann.");
        let rest = events.rest().await;
        assert_eq!(rest[rest.len() - 2]["thoughts"], json!(["It is Ann."]), "{rest:?}");
        assert_eq!(
            app.thread(&begun).await[1..],
            [("assistant".to_owned(), "Hello, Ann.".to_owned())]
        );
        app.stop().await;
    }
}
