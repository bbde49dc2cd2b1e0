//! `GET /api/runs/{id}/events` (D-R6): the events of a run, from any point on.

use std::sync::Arc;
use std::time::Duration;

use gavel::domain::ids::{RunId, TenantId};
use gavel::surfaces::caller::{Caller, Identity};
use serde_json::{Value, json};

use super::{asks, both, chief_and_helper, id, lines, path_of, said, types};
use crate::gemini::Reply;
use crate::harness::{Answer, spawn_app, until};

/// D-R6, X-15: the events of the called agent appear where the caller calls it, with the called run's id. The end of
/// the run is the last event.
#[tokio::test]
async fn events_of_a_called_agent_appear_where_it_is_called() {
    for setup in both() {
        let app = spawn_app(setup.script(vec![chief_and_helper()])).await;
        let chief = app.triggered("chief", "milk").await;
        let events = app.events(&id(&chief)).await;
        assert_eq!(
            types(&events),
            [
                "input",
                "turn",
                "agent_call", // the chief
                "input",
                "turn",
                "tool_call",
                "tool_result",
                "turn", // the helper
                "tool_result",
                "turn",
                "end", // the chief again
            ],
            "{events:#?}"
        );
        let helper = &events[2]["child_run_id"];
        for (at, event) in events.iter().enumerate() {
            let run = if (3..8).contains(&at) { helper } else { &chief["id"] };
            assert_eq!(event["run_id"], *run, "{event}");
        }
        assert_eq!(
            (&events[2]["agent"], &events[2]["parameters"]),
            (&json!("helper"), &json!({"query": "add milk"})),
            "{events:?}"
        );
        assert_eq!(events[5]["parameters"], json!({"description": "milk"}), "{events:?}");
        assert_eq!(
            (&events[6]["tool"], &events[6]["success"]),
            (&json!("add_task"), &json!(true))
        );
        assert_eq!(
            (&events[8]["tool"], &events[8]["data"]),
            (&json!("helper"), &json!({"output": "Added."}))
        );
        assert_eq!(events[10]["run"], chief, "the end is the run");
    }
}

/// A reader can resume after every event id, by header or parameter, in both formats. It receives exactly the rest.
#[tokio::test]
async fn a_reader_can_resume_after_every_event_and_receives_exactly_the_rest() {
    for setup in both() {
        let app = spawn_app(setup.script(vec![chief_and_helper()])).await;
        let chief = app.triggered("chief", "milk").await;
        let path = format!("/api/runs/{}/events", id(&chief));
        let all = app.events(&id(&chief)).await;
        let ids: Vec<_> = all
            .iter()
            .map(|event| event["id"].as_str().unwrap().to_owned())
            .collect();
        let mut apart = ids.clone();
        apart.dedup();
        assert_eq!(apart, ids, "each event has its own id");
        for (at, id) in ids.iter().enumerate().take(ids.len() - 1) {
            let rest = &all[at + 1..];
            assert_eq!(
                app.events_with(&path, &[("last-event-id", id)]).await,
                rest,
                "after {id}"
            );
            assert_eq!(
                app.events_with(&format!("{path}?after={id}"), &[]).await,
                rest,
                "after {id}"
            );
            let sse = [("last-event-id", id.as_str()), ("accept", "text/event-stream")];
            let answer = Answer::of(app.request("GET", &path, &sse)).await;
            assert_eq!(answer.header("content-type"), "text/event-stream");
            let text = answer.body.as_str().unwrap_or_default().to_owned();
            let messages: Vec<_> = text.split_terminator("\n\n").collect();
            assert_eq!(messages.len(), rest.len(), "{text}");
            for (message, event) in messages.iter().zip(rest) {
                let (id, data) = message.split_once('\n').unwrap();
                assert_eq!(id, format!("id: {}", event["id"].as_str().unwrap()));
                let data: Value = serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
                assert_eq!(data, *event);
            }
        }
        for invalid in ["x", "1.", "-1", "1.2", ""] {
            let request = app.request("GET", &path, &[("last-event-id", invalid)]);
            Answer::of(request).await.problem(400, "invalid_request");
        }
        let request = app.request("GET", &format!("{path}?before=1"), &[]);
        Answer::of(request).await.problem(400, "invalid_request");
    }
}

/// An EventSource reconnects whenever a stream ends; 204 stops it.
#[tokio::test]
async fn a_reader_that_has_the_end_is_answered_204() {
    for setup in both() {
        let app = spawn_app(setup.script(vec![
            Reply::call("list_tasks", json!({})),
            Reply::After(Duration::from_secs(1), Box::new(Reply::Text("Done."))),
        ]))
        .await;
        let run = app.queued("helper", "x").await;
        app.asked(2).await;
        let path = format!("/api/runs/{run}/events");
        // A run in progress has no end that a reader could have received.
        let early = app.events_with(&path, &[("last-event-id", "9999")]).await;
        // Deltas that arrive meanwhile have no id, and the reader has not received them.
        let (end, deltas) = early.split_last().unwrap();
        assert_eq!(end["type"], "end", "{early:?}");
        assert!(types(deltas).iter().all(|kind| *kind == "delta"), "{early:?}");
        app.over(&run).await;
        let events = app.events(&run).await;
        let [.., before, end] = events.as_slice() else {
            panic!("{events:?}")
        };
        let of = |event: &Value| event["id"].as_str().unwrap().to_owned();
        for had in [of(end), "9999".to_owned(), u64::MAX.to_string()] {
            for accept in ["text/event-stream", "application/x-ndjson"] {
                let headers = [("last-event-id", had.as_str()), ("accept", accept)];
                let answer = Answer::of(app.request("GET", &path, &headers)).await;
                assert_eq!((answer.status, answer.body), (204, json!("")), "{had}");
            }
            let answer = Answer::of(app.request("GET", &format!("{path}?after={had}"), &[])).await;
            assert_eq!(answer.status, 204, "{had}");
        }
        let rest = app.events_with(&path, &[("last-event-id", &of(before))]).await;
        assert_eq!(rest, std::slice::from_ref(end));
    }
}

/// D-R6: deltas arrive from the model as they are produced, once, before the turn they belong to.
#[tokio::test]
async fn deltas_arrive_as_they_are_produced_and_before_their_turn() {
    const WORDS: &[&str] = &["Hel", "lo ", "there", "."];
    for setup in both() {
        let script = vec![
            Reply::After(Duration::from_secs(1), Box::new(Reply::call("list_tasks", json!({})))),
            Reply::Words(Duration::from_millis(150), WORDS),
        ];
        let app = spawn_app(setup.script(script)).await;
        let run = app.queued("helper", "x").await;
        app.asked(1).await;
        let events = app.events(&run).await;
        assert_eq!(
            types(&events),
            [
                "input",
                "turn",
                "tool_call",
                "tool_result",
                "delta",
                "delta",
                "delta",
                "delta",
                "turn",
                "end"
            ]
        );
        let words: Vec<_> = events[4..8]
            .iter()
            .map(|event| event["text"].as_str().unwrap())
            .collect();
        assert_eq!(words, WORDS);
        assert_eq!(events[8]["text"], "Hello there.");
        // Deltas are not stored and have no id.
        for event in &events[4..8] {
            assert_eq!(event["id"], events[3]["id"]);
        }
        let later = app.events(&run).await;
        let kept: Vec<_> = events
            .iter()
            .filter(|event| event["type"] != "delta")
            .cloned()
            .collect();
        assert_eq!(later, kept);
    }
}

/// A reader that connected before the run started and one that connected in the middle receive the same events.
#[tokio::test]
async fn every_reader_receives_all_events_whenever_it_connects() {
    for setup in both() {
        let chief = chief_and_helper();
        let slow = Reply::After(Duration::from_millis(200), Box::new(chief));
        let app = spawn_app(setup.script(vec![slow])).await;
        let run = app.queued("chief", "milk").await;
        let at_once = app.events(&run);
        let in_its_middle = async {
            app.asked(3).await;
            app.events(&run).await
        };
        let (at_once, in_its_middle) = tokio::join!(at_once, in_its_middle);
        let all = app.events(&run).await;
        assert_eq!(all.len(), 11, "{all:?}");
        for mut reported in [at_once, in_its_middle] {
            reported.retain(|event| event["type"] != "delta");
            assert_eq!(reported, all);
        }
    }
}

/// A reader that disconnects or does not read blocks nothing.
#[tokio::test]
async fn a_reader_that_disconnects_or_does_not_read_blocks_nothing() {
    for setup in both() {
        let slow = Reply::After(Duration::from_millis(200), Box::new(chief_and_helper()));
        let app = spawn_app(setup.script(vec![slow])).await;
        let run = app.queued("chief", "milk").await;
        let path = format!("/api/runs/{run}/events");
        let mut leaves = app.request("GET", &path, &[]).send().await.unwrap();
        let first = leaves.chunk().await.unwrap().unwrap();
        assert!(first.starts_with(b"{\"id\":\"1\""), "{first:?}");
        drop(leaves);
        // Never read, and kept open.
        let _silent = app.request("GET", &path, &[]).send().await.unwrap();
        let run = app.over(&run).await;
        assert_eq!(run["status"], "completed", "{run}");
    }
}

/// A stream without events carries heartbeats, as docs/reference/events.md describes.
#[tokio::test]
async fn a_stream_without_events_carries_heartbeats() {
    let [setup, _] = both();
    let app = spawn_app(setup.script(vec![Reply::Hang])).await;
    let run = app.queued("helper", "x").await;
    let mut stream = app
        .request("GET", &format!("/api/runs/{run}/events"), &[])
        .send()
        .await
        .unwrap();
    let (mut text, heartbeat) = (String::new(), "{\"type\":\"heartbeat\"}\n");
    while !text.contains(heartbeat) {
        let chunk = tokio::time::timeout(Duration::from_secs(20), stream.chunk()).await;
        text.push_str(std::str::from_utf8(&chunk.expect("a heartbeat").unwrap().unwrap()).unwrap());
    }
    assert!(!types(&lines(&text)).contains(&"end"), "{text}");
    assert_eq!(app.cancel(&run).await.status / 100, 2);
    app.over(&run).await;
}

/// A run that can no longer be read answers as a missing one. A failed run ends its stream too.
#[tokio::test]
async fn a_failed_run_ends_its_stream_like_any_other() {
    for setup in both() {
        let app = spawn_app(setup.script(vec![Reply::error(400, "INVALID_ARGUMENT", json!([]))])).await;
        let answer = app.trigger_with(&path_of("helper"), &[], &json!({"query": "x"})).await;
        let run = answer.expect(200);
        assert_eq!(run["status"], "failed", "{run}");
        let events = app.events(&id(&run)).await;
        assert_eq!(types(&events), ["input", "model_fault", "end"], "{events:?}");
        assert_eq!(events[1]["fault"], "rejected", "{events:?}");
    }
}

/// A service that shuts down ends the stream without an end of the run; the reader gets the rest from the next process.
#[tokio::test]
async fn a_shutdown_ends_the_streams_of_its_readers() {
    for setup in both() {
        let mut app = spawn_app(setup.env("GAVEL_DRAIN_SECONDS", "1").script(vec![Reply::Hang])).await;
        let run = app.queued("helper", "x").await;
        app.asked(1).await;
        let stream = app
            .request("GET", &format!("/api/runs/{run}/events"), &[])
            .send()
            .await
            .unwrap();
        let stopped = app.begin_stop();
        let reported = tokio::time::timeout(Duration::from_secs(10), stream.text()).await;
        let events = lines(&reported.expect("the stream to end").unwrap());
        assert!(!types(&events).contains(&"end"), "{events:?}");
        stopped.await.unwrap();
    }
}

/// A run whose stream has no reader stores no deltas: a reader that joins late receives the whole turn.
#[tokio::test]
async fn a_reader_that_joins_within_a_turn_receives_the_whole_turn() {
    const WORDS: &[&str] = &["One ", "two ", "three ", "four."];
    for setup in both() {
        let app = spawn_app(setup.script(vec![Reply::Words(Duration::from_millis(200), WORDS)])).await;
        let run = app.queued("helper", "x").await;
        app.asked(1).await;
        tokio::time::sleep(Duration::from_millis(300)).await;
        let events = app.events(&run).await;
        let kept: Vec<_> = events.iter().filter(|event| event["type"] != "delta").collect();
        assert_eq!(kept[1]["text"], "One two three four.", "{events:?}");
        until("the run to end", || async { super::has_ended(&app.run(&run).await) }).await;
    }
}

/// Deltas are ephemeral. A delayed reader receives the whole turn, and no delta after it.
#[tokio::test]
async fn deltas_never_arrive_after_their_turn() {
    const WORDS: &[&str] = &["Add", "ed."];
    for setup in both() {
        let script = Reply::from(|request| match (asks(request, "chief"), said(request)) {
            (true, 1) => Reply::After(
                Duration::from_secs(1),
                Box::new(Reply::call("helper", json!({"query": "add milk"}))),
            ),
            (true, _) => Reply::Hang,
            (false, _) => Reply::Words(Duration::from_millis(10), WORDS),
        });
        let app = spawn_app(setup.script(vec![script])).await;
        let run = app.queued("chief", "milk").await;
        app.asked(1).await;
        let id = RunId::parse(&run).unwrap();
        let runs = &app.service().runs;
        let mut watch = runs.watch(&reader(), None, id, 0).await.unwrap();
        // The task arrives at once, and from then on the deltas. Then the reader is delayed until the helper has ended.
        let task = watch.next().await.unwrap().unwrap();
        assert_eq!(types(&[serde_json::to_value(&task.event).unwrap()]), ["input"]);
        let nothing = tokio::time::timeout(Duration::from_millis(100), watch.next()).await;
        assert!(nothing.is_err(), "{nothing:?}");
        app.asked(3).await;
        let mut reported = Vec::new();
        while let Ok(next) = tokio::time::timeout(Duration::from_secs(1), watch.next()).await {
            reported.push(serde_json::to_value(&next.unwrap().unwrap().event).unwrap());
        }
        assert_eq!(
            types(&reported),
            ["turn", "agent_call", "input", "turn", "tool_result"],
            "{reported:?}"
        );
        app.cancel(&run).await;
        app.over(&run).await;
    }
}

fn reader() -> Caller {
    Caller {
        tenant: TenantId::parse("default").unwrap(),
        identity: Identity::Service("reader".into()),
        roles: Arc::default(),
    }
}

/// A reader on the process that drives the run receives what is written without polling the store. Here the store
/// cannot answer for a while.
#[tokio::test]
async fn a_reader_on_the_driving_process_does_not_poll_the_store() {
    for setup in both() {
        let app = spawn_app(setup.script(vec![Reply::Hang])).await;
        let run = app.queued("helper", "x").await;
        app.asked(1).await;
        let stream = app.request("GET", &format!("/api/runs/{run}/events"), &[]).send();
        let mut stream = stream.await.unwrap();
        let first = stream.chunk().await.unwrap().unwrap();
        // By then it has polled once more and waits.
        tokio::time::sleep(Duration::from_millis(500)).await;
        super::execute(&app, "ALTER TABLE agent_run_entry RENAME COLUMN body TO hidden").await;
        tokio::time::sleep(Duration::from_millis(1500)).await;
        super::execute(&app, "ALTER TABLE agent_run_entry RENAME COLUMN hidden TO body").await;
        assert_eq!(app.cancel(&run).await.status / 100, 2);
        let text = format!("{}{}", String::from_utf8_lossy(&first), stream.text().await.unwrap());
        let events = lines(&text);
        let reported = types(&events);
        assert_eq!(
            (reported.first(), reported.last()),
            (Some(&"input"), Some(&"end")),
            "{text}"
        );
    }
}
