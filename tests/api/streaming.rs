//! `POST /api/agent/run/stream` while the run is in progress: the path from a streaming model to a reading client.

use std::time::Duration;

use serde_json::{Value, json};

use crate::agents::types;
use crate::docs::execute;
use crate::gemini::{Mouth, Reply};
use crate::harness::{Answer, App, spawn_app, until};
use crate::threads::{add, both, no_approval_required, said};

/// Long enough for a heartbeat, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// A stream that is read line by line. Dropping it cuts the connection.
pub(crate) struct PlacedEvent {
    answer: reqwest::Response,
    read: Vec<u8>,
}

impl PlacedEvent {
    pub(crate) async fn of(request: reqwest::RequestBuilder) -> Self {
        let answer = request.send().await.unwrap();
        assert_eq!(answer.status(), 200);
        assert_eq!(answer.headers()["content-type"], "application/x-ndjson");
        let read = Vec::new();
        Self { answer, read }
    }

    /// The stream for a prompt of ann's.
    pub(crate) async fn by(app: &App, prompt: &str) -> Self {
        let request = app.request("POST", "/api/agent/run/stream", &[("x-gavel-user", "ann")]);
        Self::of(request.json(&json!({"prompt": prompt}))).await
    }

    /// The next line; `None` at the end.
    async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.read.iter().position(|byte| *byte == b'\n') {
                let line: Vec<_> = self.read.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).unwrap());
            }
            let chunk = tokio::time::timeout(PATIENCE, self.answer.chunk()).await;
            match chunk.expect("more, or the end").unwrap() {
                Some(chunk) => self.read.extend(chunk),
                None => {
                    assert!(self.read.is_empty(), "it ends within a line");
                    return None;
                }
            }
        }
    }

    /// The next line that is not a heartbeat.
    pub(crate) async fn line(&mut self) -> Value {
        loop {
            let line = self.next().await.expect("a line, and not the end");
            if line["type"] != "heartbeat" {
                return line;
            }
        }
    }

    /// The rest of the stream, without heartbeats.
    pub(crate) async fn rest(mut self) -> Vec<Value> {
        let mut rest = Vec::new();
        while let Some(line) = self.next().await {
            rest.push(line);
        }
        rest.retain(|line| line["type"] != "heartbeat");
        rest
    }
}

pub(crate) fn delta(text: &str) -> Value {
    json!({"type": "delta", "delta": text})
}

pub(crate) fn run_path(begun: &Value) -> String {
    format!("/api/agent/runs/{}", begun["runId"].as_str().unwrap())
}

/// How many clients have disconnected before the end of such a stream.
async fn left(app: &App) -> u64 {
    let (_, page) = app.get("/metrics").await;
    let page = page.as_str().unwrap_or_default();
    let is_it = |line: &&str| {
        line.starts_with("gavel_http_requests_total{")
            && line.contains("\"/api/agent/run/stream\"")
            && line.contains("\"499\"")
    };
    let line = page.lines().find(is_it);
    line.map_or(0, |line| line.rsplit(' ').next().unwrap().parse().unwrap())
}

/// R, Routes: "real streaming, not a finished text cut up". The thread line arrives before any model output, and the
/// model sends no chunk before the previous one has arrived.
#[tokio::test]
async fn each_chunk_arrives_before_the_model_sends_the_next() {
    for setup in both() {
        let (mouth, spoken) = Mouth::new();
        let app = spawn_app(setup.script(vec![spoken])).await;
        let mut reported = PlacedEvent::by(&app, "Hello.").await;
        assert!(
            reported.answer.headers().contains_key("ratelimit"),
            "as for any message"
        );
        let first = reported.line().await;
        assert_eq!(
            (&first["type"], &first["status"]),
            (&json!("status"), &json!("planning")),
            "{first}"
        );
        app.asked(1).await;
        for piece in ["What ", "should I ", "wri"] {
            mouth.says(piece);
            assert_eq!(reported.line().await, delta(piece));
        }
        let run = app.get_by("ann", &run_path(&first)).await.expect(200);
        assert_eq!(
            (&run["status"], &run["summary"]),
            (&json!("planning"), &json!("Working on it.")),
            "{run}"
        );
        mouth.ends("te?");
        assert_eq!(reported.line().await, delta("te?"));
        let rest = reported.rest().await;
        assert_eq!(types(&rest), ["result"], "{rest:?}");
        let run = app.get_by("ann", &run_path(&first)).await.expect(200);
        assert_eq!(rest[0]["result"], run, "the result is the run's response");
        assert_eq!(
            (&run["status"], &run["summary"], &run["threadId"]),
            (&json!("completed"), &json!("What should I write?"), &first["threadId"]),
            "{run}"
        );
        app.stop().await;
    }
}

/// A disconnect does not cancel the run. A client that is cut off within a turn fetches the run, and receives
/// everything since its last event.
#[tokio::test]
async fn a_client_cut_off_within_a_turn_can_read_the_rest() {
    for setup in both() {
        let (mouth, spoken) = Mouth::new();
        let app = spawn_app(setup.script(vec![spoken])).await;
        let mut reported = PlacedEvent::by(&app, "Tell me.").await;
        let first = reported.line().await;
        mouth.says("Once ");
        assert_eq!(reported.line().await, delta("Once "));
        let before = left(&app).await;
        drop(reported);
        // A dead connection is only noticed when data is sent on it.
        let mut words = "Once ".to_owned();
        while left(&app).await == before {
            assert!(words.len() < 20_000, "the disconnect is never noticed");
            mouth.says("upon ");
            words.push_str("upon ");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let path = run_path(&first);
        let run = app.get_by("ann", &path).await.expect(200);
        assert_eq!(run["status"], "planning", "the run continues: {run}");

        let headers = [("x-gavel-user", "ann"), ("last-event-id", "1")];
        let mut again = PlacedEvent::of(app.request("GET", &format!("{path}/events"), &headers)).await;
        let received = again.line().await;
        assert_eq!(
            (&received["type"], &received["text"]),
            (&json!("delta"), &json!(words)),
            "the text so far, without the task again: {received}"
        );
        mouth.ends("a time.");
        words.push_str("a time.");
        let rest = again.rest().await;
        assert_eq!(types(&rest), ["delta", "turn", "end"], "{rest:?}");
        assert_eq!(
            (&rest[0]["text"], &rest[1]["text"], &rest[2]["run"]["status"]),
            (&json!("a time."), &json!(words), &json!("completed")),
            "{rest:?}"
        );
        let run = app.get_by("ann", &path).await.expect(200);
        assert_eq!(
            (&run["status"], &run["summary"]),
            (&json!("completed"), &json!(words)),
            "{run}"
        );
        let lines =
            [("user", "Tell me."), ("assistant", &words)].map(|(role, text)| (role.to_owned(), text.to_owned()));
        assert_eq!(app.thread(&run).await, lines);
        app.stop().await;
    }
}

/// R, Routes, docs/reference/http-threads.md: during a pause the stream sends heartbeats, and then the rest of the run.
#[tokio::test]
async fn a_stream_sends_heartbeats_while_the_model_is_silent() {
    for setup in both() {
        let (mouth, spoken) = Mouth::new();
        let app = spawn_app(setup.script(vec![spoken])).await;
        let mut reported = PlacedEvent::by(&app, "Think about it.").await;
        assert_eq!(reported.next().await.unwrap()["type"], "status");
        app.asked(1).await;
        assert_eq!(reported.next().await.unwrap(), json!({"type": "heartbeat"}));
        mouth.says("Well, ");
        assert_eq!(reported.next().await.unwrap(), delta("Well, "));
        assert_eq!(
            reported.next().await.unwrap(),
            json!({"type": "heartbeat"}),
            "within a turn too"
        );
        mouth.ends("no.");
        let rest = reported.rest().await;
        assert_eq!(types(&rest), ["delta", "result"], "{rest:?}");
        assert_eq!(rest[1]["result"]["summary"], "Well, no.");
        app.stop().await;
    }
}

/// After a delta was sent, a retry of the attempt is announced. The text after the last `reset` is the complete text,
/// however often the model broke off.
#[tokio::test]
async fn the_text_after_the_last_reset_is_complete() {
    for setup in both() {
        let [(first, a), (second, b)] = [(); 2].map(|()| Mouth::new());
        let app = spawn_app(setup.script(vec![a, b])).await;
        let mut reported = PlacedEvent::by(&app, "Hello.").await;
        let begun = reported.line().await;
        assert_eq!(begun["type"], "status");
        first.says("Hel");
        assert_eq!(reported.line().await, delta("Hel"));
        drop(first);
        assert_eq!(reported.line().await, json!({"type": "reset"}));
        second.says("Good ");
        assert_eq!(
            reported.line().await,
            delta("Good "),
            "as it comes, in a later attempt too"
        );
        second.ends("evening.");
        let rest = reported.rest().await;
        assert_eq!(types(&rest), ["delta", "result"], "{rest:?}");
        assert_eq!(rest[0], delta("evening."));
        assert_eq!(rest[1]["result"]["summary"], "Good evening.");
        assert_eq!(app.gemini.requests().len(), 2);
        assert_eq!(
            app.thread(&begun).await[1..],
            [("assistant".to_owned(), "Good evening.".to_owned())],
            "nothing of a discarded attempt is kept"
        );
        app.stop().await;
    }
}

/// Promise: recorded. If the model fails for good, the text of its last attempt is reset before the end, and the result
/// has it, marked as cut off.
#[tokio::test]
async fn the_text_of_a_failed_last_attempt_is_reset_before_the_result() {
    for setup in both() {
        let [(first, a), (last, b)] = [(); 2].map(|()| Mouth::new());
        let app = spawn_app(setup.script(vec![a, b])).await;
        let mut reported = PlacedEvent::by(&app, "Hello.").await;
        let begun = reported.line().await;
        first.says("Hel");
        assert_eq!(reported.line().await, delta("Hel"));
        drop(first);
        assert_eq!(reported.line().await, json!({"type": "reset"}));
        last.says("Good eve");
        assert_eq!(reported.line().await, delta("Good eve"));
        drop(last);
        let rest = reported.rest().await;
        assert_eq!(types(&rest), ["reset", "result"], "{rest:?}");
        let run = &rest[1]["result"];
        assert_eq!(
            (&run["status"], &run["errorCode"]),
            (&json!("failed"), &json!("model_unavailable")),
            "{run}"
        );
        let kept = "Good eve\n\n[The model's answer was cut off before it was complete.]";
        assert_eq!(run["summary"], kept);
        assert_eq!(*run, app.get_by("ann", &run_path(&begun)).await.expect(200));
        assert_eq!(app.gemini.requests().len(), 2);
        app.stop().await;
    }
}

/// The stream of a run that becomes unreadable within the turn after a task was added. Returns its last line and
/// request id; by then the store is readable again and the run has ended.
async fn stream_of_an_unreadable_run(app: &App, mouth: Mouth) -> (Value, String, Value) {
    let mut reported = PlacedEvent::by(app, "Put milk on my list.").await;
    let id = reported.answer.headers()["x-request-id"].to_str().unwrap().to_owned();
    let begun = reported.line().await;
    app.asked(2).await;
    mouth.says("It is ");
    assert_eq!(reported.line().await, delta("It is "));
    assert_eq!(app.task_names().await, ["milk"]);
    execute(
        &app.database_url,
        "ALTER TABLE agent_run_entry RENAME COLUMN body TO hidden",
    )
    .await;
    mouth.ends("there.");
    let rest = reported.rest().await;
    execute(
        &app.database_url,
        "ALTER TABLE agent_run_entry RENAME COLUMN hidden TO body",
    )
    .await;
    let last = rest.last().unwrap().clone();
    assert_eq!(last["type"], "error", "{rest:?}");
    assert_eq!(last["error"], last["detail"], "the text, as the problem has it");
    assert!(!types(&rest).contains(&"result"), "{rest:?}");
    let path = run_path(&begun);
    until("the run to end", || async {
        app.get_by("ann", &path).await.body["status"] == "completed"
    })
    .await;
    (last, id, app.get_by("ann", &path).await.body)
}

/// The model adds a task without approval, and the test streams its final text. The model is asked once more if that
/// text is lost.
fn adds_and_tells(spoken: Reply) -> Vec<Reply> {
    let again = Reply::from(|request| {
        assert!(said(request) > 1, "{request}");
        Reply::Text("It is there.")
    });
    vec![add("milk"), spoken, again]
}

/// R, Routes: if the run cannot be read, the stream ends with a problem as on any other route, instead of the result.
/// The run itself is not affected.
#[tokio::test]
async fn a_stream_of_an_unreadable_run_ends_with_a_problem_and_the_run_continues() {
    for setup in both() {
        let policy = no_approval_required();
        let (mouth, spoken) = Mouth::new();
        let setup = setup.env("GAVEL_POLICY", policy.path().display().to_string());
        let app = spawn_app(setup.script(adds_and_tells(spoken))).await;
        let (problem, id, run) = stream_of_an_unreadable_run(&app, mouth).await;
        assert_eq!(problem["requestId"], json!(id), "{problem}");
        assert!(
            ["run_unreadable", "outcome_unrecorded"].contains(&problem["code"].as_str().unwrap()),
            "{problem}"
        );
        for field in ["title", "detail"] {
            assert!(problem[field].is_string(), "{field}: {problem}");
        }
        assert!(problem["status"].as_u64().unwrap() >= 500, "{problem}");
        assert_eq!(run["summary"], "It is there.", "{run}");
        assert_eq!(app.task_names().await, ["milk"]);
        app.stop().await;
    }
}

/// Promise: recorded. For a run that exists and has had an effect, the problem does not say that nothing was done
/// or that the request may be repeated. It names the run.
#[tokio::test]
async fn a_stream_that_fails_after_an_effect_does_not_claim_that_nothing_was_done() {
    for setup in both() {
        let policy = no_approval_required();
        let (mouth, spoken) = Mouth::new();
        let setup = setup.env("GAVEL_POLICY", policy.path().display().to_string());
        let app = spawn_app(setup.script(adds_and_tells(spoken))).await;
        let (problem, _, run) = stream_of_an_unreadable_run(&app, mouth).await;
        assert_eq!(problem["runId"], run["runId"], "{problem}");
        assert!(!problem.to_string().contains("Nothing was done"), "{problem}");
        app.stop().await;
    }
}

/// Longer than one read of the store, and shorter than a reader's tolerance for an unreadable one.
const MOMENT: Duration = Duration::from_millis(500);

/// A reader is not disconnected by a short moment in which the store cannot be read, neither at the end of a stream nor
/// at its start.
#[tokio::test]
async fn a_reader_survives_a_short_outage_of_the_store() {
    for setup in both() {
        let (mouth, spoken) = Mouth::new();
        let app = spawn_app(setup.script(vec![spoken])).await;
        let mut reported = PlacedEvent::by(&app, "Hello.").await;
        let begun = reported.line().await;
        mouth.says("Hello ");
        assert_eq!(reported.line().await, delta("Hello "));

        let by_ann = [("x-gavel-user", "ann")];
        execute(
            &app.database_url,
            "ALTER TABLE agent_run_entry RENAME COLUMN body TO hidden",
        )
        .await;
        let path = run_path(&begun);
        let mut joins = PlacedEvent::of(app.request("GET", &format!("{path}/events"), &by_ann)).await;
        let early = tokio::time::timeout(MOMENT, joins.line()).await;
        execute(
            &app.database_url,
            "ALTER TABLE agent_run_entry RENAME COLUMN hidden TO body",
        )
        .await;
        assert!(early.is_err(), "it waits for the journal: {early:?}");
        assert_eq!(joins.line().await["type"], "input");

        // A run without calls writes nothing to this table, and its response is read from it.
        execute(
            &app.database_url,
            "ALTER TABLE agent_action RENAME COLUMN input_hash TO hidden",
        )
        .await;
        mouth.ends("Ann.");
        assert_eq!(reported.line().await, delta("Ann."));
        assert_eq!(joins.rest().await.pop().unwrap()["run"]["status"], "completed");
        let early = tokio::time::timeout(MOMENT, reported.line()).await;
        execute(
            &app.database_url,
            "ALTER TABLE agent_action RENAME COLUMN hidden TO input_hash",
        )
        .await;
        assert!(early.is_err(), "it waits for the answer: {early:?}");
        let last = reported.line().await;
        assert_eq!(
            (&last["type"], &last["result"]["summary"]),
            (&json!("result"), &json!("Hello Ann.")),
            "{last}"
        );
        app.stop().await;
    }
}

/// Promise: bounded faults. Streams are limited per user, so one user cannot block others. A refused stream creates
/// nothing, and existing streams are unaffected.
#[tokio::test]
async fn a_stream_over_the_user_limit_is_refused_without_effect_and_others_are_served() {
    let [setup, _] = both();
    let (mouth, spoken) = Mouth::new();
    let model = vec![spoken, Reply::Text("Hello, Bob."), Reply::Text("Hello again.")];
    let app = spawn_app(setup.script(model)).await;
    let mut reported = PlacedEvent::by(&app, "Take your time.").await;
    let begun = reported.line().await;
    let (path, by_ann) = (format!("{}/events", run_path(&begun)), [("x-gavel-user", "ann")]);
    let mut open = Vec::new();
    // One stream is open already.
    for _ in 1..64 {
        open.push(PlacedEvent::of(app.request("GET", &path, &by_ann)).await);
    }
    let refused = Answer::of(app.request("GET", &path, &by_ann)).await;
    assert_eq!(refused.header("retry-after"), "1");
    let problem = refused.problem(503, "overloaded");
    let detail = problem["detail"].as_str().unwrap();
    assert!(
        detail.contains("64 open streams at once are allowed for a user"),
        "{detail}"
    );
    let say = app.request("POST", "/api/agent/run/stream", &by_ann);
    let refused = Answer::of(say.json(&json!({"prompt": "One more."}))).await;
    assert_eq!(refused.header("retry-after"), "1");
    refused.problem(503, "overloaded");
    let threads = app.get_by("ann", "/api/agent/threads").await.expect(200);
    assert_eq!(threads["threads"].as_array().unwrap().len(), 1, "{threads}");
    let chat = json!({"message": "One more.", "user_id": "ann"});
    let refused = Answer::of(app.request("POST", "/v1/chat/stream", &[]).json(&chat)).await;
    assert_eq!((refused.status, refused.header("retry-after")), (503, "1"));
    assert_eq!(refused.body["outcome_category"], "REFUSAL:OVERLOADED");
    let (_, page) = app.get("/v1/decisions?page_size=1000").await;
    let shed = page["decisions"].as_array().unwrap().iter();
    let shed = shed
        .filter(|row| row["outcome_category"] == "REFUSAL:OVERLOADED")
        .count();
    assert_eq!(shed, 2, "every request that parses is recorded: {page}");

    let bob = app.request("POST", "/api/agent/run/stream", &[("x-gavel-user", "bob")]);
    let rest = PlacedEvent::of(bob.json(&json!({"prompt": "Hello."})))
        .await
        .rest()
        .await;
    assert_eq!(rest.last().unwrap()["type"], "result", "{rest:?}");
    mouth.ends("Done.");
    let rest = reported.rest().await;
    assert_eq!(rest.last().unwrap()["result"]["status"], "completed", "{rest:?}");
    drop(open);
    until("the slots of disconnected clients to be free", || async {
        let request = app.request("POST", "/api/agent/run/stream", &by_ann);
        request
            .json(&json!({"prompt": "One more."}))
            .send()
            .await
            .unwrap()
            .status()
            == 200
    })
    .await;
    app.stop().await;
}
