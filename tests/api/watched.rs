//! The events of planning sessions (P-103, P-302, P-305): one stream from the first plan to the end, the same at every
//! replica, after every reconnection and after a restart.

use std::process::Command;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::crash::{Process, start_beside};
use crate::gemini::{Gemini, Reply};
use crate::github::{Fault, GitHub};
use crate::harness::{Answer, binary, client, until};
use crate::planning::{HOUR, act, ahead, done, github, plan, reason, task};
use crate::postgres;
use crate::task_model::{model, worded};

/// A database, a GitHub and a model, for several processes.
struct Place {
    directory: TempDir,
    database: String,
    github: GitHub,
    servers: Value,
    gemini: Gemini,
}

impl Place {
    async fn on(database: Option<String>) -> Self {
        Self::with(database, Duration::from_millis(20)).await
    }

    /// With a model that takes this long for each answer.
    async fn with(database: Option<String>, pause: Duration) -> Self {
        Self::scripted(database, vec![Reply::After(pause, Box::new(model()))]).await
    }

    async fn scripted(database: Option<String>, script: Vec<Reply>) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let sqlite = format!("sqlite://{}", directory.path().join("gavel.db").display());
        let (github, entry) = github().await;
        Self {
            database: database.unwrap_or(sqlite),
            servers: json!({"mcpServers": {"github": entry}}),
            gemini: Gemini::scripted(script).await,
            github,
            directory,
        }
    }

    async fn start(&self) -> Process {
        let mut command = Command::new(binary());
        command.env("GAVEL_RUNS_LEASE_SECONDS", "1");
        let (url, directory) = (&self.gemini.url, self.directory.path());
        start_beside(command, url, &self.database, directory, &self.servers).await
    }
}

fn kill(mut process: Process) {
    process.child.0.kill().unwrap();
    process.child.0.wait().unwrap();
}

async fn send(process: &Process, method: &str, path: &str, headers: &[(&str, &str)], body: &Value) -> Answer {
    let method = reqwest::Method::from_bytes(method.as_bytes()).unwrap();
    let mut request = client()
        .request(method, format!("{}{path}", process.url))
        .header("x-gavel-user", "ann")
        .json(body);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    Answer::of(request).await
}

async fn session(process: &Process, path: &str) -> Value {
    send(process, "GET", path, &[], &Value::Null).await.expect(200)
}

async fn start(process: &Process, deadline: Duration) -> String {
    let body =
        json!({"prompt": "Accept ISO weeks", "repoUrl": "https://github.com/acme/dates", "deadline": ahead(deadline)});
    let begun = send(process, "POST", "/v1/sessions", &[], &body).await.expect(201);
    format!("/v1/sessions/{}", begun["sessionId"].as_str().unwrap())
}

/// A reader of a session's events.
struct Reader {
    response: reqwest::Response,
    bytes: Vec<u8>,
}

impl Reader {
    async fn after(process: &Process, path: &str, after: Option<&str>) -> Self {
        let mut request = client().get(format!("{}{path}/events", process.url));
        request = request.header("x-gavel-user", "ann").timeout(Duration::from_secs(90));
        if let Some(after) = after {
            request = request.header("last-event-id", after);
        }
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), 200);
        Self {
            response,
            bytes: Vec::new(),
        }
    }

    /// The next event; `None` at the end of the stream, or once it breaks off.
    async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.bytes.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.bytes.drain(..=end).collect();
                let event: Value = serde_json::from_slice(&line).unwrap();
                if event["type"] != "heartbeat" {
                    return Some(event);
                }
            } else {
                self.bytes.extend(self.response.chunk().await.ok()??);
            }
        }
    }

    /// The events up to one of this type, and it.
    async fn until(&mut self, kind: &str) -> Vec<Value> {
        let mut events = Vec::new();
        while let Some(event) = self.next().await {
            events.push(event);
            if events.last().is_some_and(|event| event["type"] == kind) {
                return events;
            }
        }
        panic!("no {kind} follows {events:?}");
    }
}

/// All events until the end of the stream.
async fn all(process: &Process, path: &str, after: Option<&str>) -> Vec<Value> {
    let mut reader = Reader::after(process, path, after).await;
    let events = reader.until("result").await;
    assert_eq!(reader.next().await, None, "nothing follows the result");
    events
}

fn stored(events: Vec<Value>) -> Vec<Value> {
    let is_stored = |event: &Value| event["type"] != "delta" && event["type"] != "reset";
    events.into_iter().filter(is_stored).collect()
}

fn numbers(event: &Value) -> [u64; 3] {
    let parts = event["id"].as_str().unwrap().split('.');
    let parts: Vec<u64> = parts.map(|part| part.parse().unwrap()).collect();
    parts.try_into().unwrap()
}

/// One word for each event that tells its step of the story; `before` is the event before it.
fn word(before: Option<&Value>, event: &Value) -> Option<String> {
    let text = |field: &str| event[field].as_str().unwrap_or_default().to_owned();
    Some(match event["type"].as_str().unwrap() {
        "status" => text("status"),
        "plan" => format!(
            "{} {}",
            event["version"]["kind"].as_str().unwrap(),
            event["version"]["version"]
        ),
        kind @ ("task_started" | "task_ended") => format!("{kind} {}", text("taskId")),
        "turn" if before.is_some_and(|before| before["phase"] == "reason") => "reasoned".to_owned(),
        "phase" => text("phase"),
        "reflection" => format!("accepted {}", event["accepted"]),
        "approval_resolved" => format!("approved {}", event["approved"]),
        // The outermost run is suspended with it.
        "awaiting_confirmation" if event["taskId"].is_null() => return None,
        "turn" | "input" | "step" | "notice" => return None,
        other => other.to_owned(),
    })
}

/// Plays a session with a plan, a refinement that fails, an edit, a refinement, and the work, in which a call is
/// approved. Returns its path.
async fn play(process: &Process) -> String {
    let path = start(process, HOUR).await;
    let refine = async |change: &str| {
        let body = json!({"refinementPrompt": change});
        send(process, "POST", &format!("{path}/refine"), &[], &body)
            .await
            .expect(200)
    };
    assert_eq!(refine("something odd").await["refinement"]["code"], "model_blocked");
    let task = worded("Read the readme", "getFileContents");
    let edited = json!({"summary": "Mine.", "tasks": [task, worded("Open an issue", "createIssue")], "risks": ["odd"]});
    let edited = send(
        process,
        "PUT",
        &format!("{path}/plan"),
        &[("if-match", "\"1\"")],
        &edited,
    )
    .await;
    assert_eq!(edited.expect(200)["planVersion"], 2);
    assert_eq!(refine("in other words").await["planVersion"], 3);
    let execute = json!({"planVersion": 3, "askFor": ["createIssue"]});
    send(process, "POST", &format!("{path}/execute"), &[], &execute)
        .await
        .expect(202);
    path
}

async fn approve(process: &Process, path: &str) {
    let approval = session(process, path).await["waitingFor"][0]["approvalId"].clone();
    let answer = json!({"approvalId": approval, "decision": "approve_once"});
    send(process, "POST", "/api/agent/approvals/resolve", &[], &answer)
        .await
        .expect(200);
}

/// P-302, P-305: everything that happens is in the stream, in order, also what happened before the reader came.
async fn tell(database: Option<String>) {
    let place = Place::on(database).await;
    let process = place.start().await;
    let path = play(&process).await;
    let mut reader = Reader::after(&process, &path, None).await;
    let mut events = reader.until("awaiting_confirmation").await;
    let asked = events
        .iter()
        .rfind(|event| event["type"] == "approval_required")
        .unwrap();
    assert_eq!(
        (&asked["tool"], &asked["taskId"]),
        (&json!("createIssue"), &json!("t2"))
    );
    approve(&process, &path).await;
    events.extend(reader.until("result").await);
    assert_eq!(reader.next().await, None);
    let events = stored(events);
    let ids: Vec<_> = events.iter().map(numbers).collect();
    assert!(ids.is_sorted_by(|one, next| one < next), "{ids:?}");
    let reads = |word: &String| word == "tool_call" || word == "tool_result";
    let befores = std::iter::once(None).chain(events.iter().map(Some));
    let words: Vec<_> = befores
        .zip(&events)
        .filter_map(|(before, event)| word(before, event))
        .collect();
    let (planned, worked) = words.split_at(words.iter().position(|word| word == "EXECUTING").unwrap());
    let planned: Vec<_> = planned.iter().filter(|word| !reads(word)).collect();
    assert_eq!(
        planned,
        [
            "PLANNING",
            "proposed 1",
            "AWAITING_CONFIRMATION",
            "PLANNING",
            "model_fault",
            "AWAITING_CONFIRMATION",
            "edited 2",
            "PLANNING",
            "refined 3",
            "AWAITING_CONFIRMATION"
        ]
    );
    let step = ["reason", "reasoned", "act"];
    let first = [
        "tool_call",
        "tool_result",
        "reflect",
        "accepted false",
        "accepted true",
        "changed 4",
    ];
    let second = [
        "approval_required",
        "awaiting_confirmation",
        "approved true",
        "tool_call",
        "tool_result",
        "reflect",
        "accepted true",
        "task_ended t2",
        "result",
    ];
    let expected = [
        &["EXECUTING", "task_started t1"],
        &step[..],
        &first,
        &["task_ended t1", "task_started t2"],
        &step,
        &second,
    ];
    assert_eq!(worked, expected.concat());
    let result = &events.last().unwrap()["session"];
    assert_eq!(
        (&result["status"], &result["planVersion"]),
        (&json!("COMPLETED"), &json!(4))
    );
    let changed = events.iter().find(|event| event["version"]["kind"] == "changed");
    let changed = &changed.unwrap()["version"];
    assert_eq!(
        (&changed["why"], &changed["plan"][1]["title"]),
        (&json!("one is enough"), &json!("Open one issue"))
    );
    let failed = events
        .iter()
        .filter(|event| event["status"] == "AWAITING_CONFIRMATION")
        .nth(1)
        .unwrap();
    assert!(failed["detail"].is_string() && failed["planVersion"] == 1, "{failed}");
    // From each event the rest is the same, also at a process that starts now.
    kill(process);
    let process = place.start().await;
    assert_eq!(stored(all(&process, &path, None).await), events);
    for (at, event) in events.iter().enumerate().take(events.len() - 1) {
        let rest = all(&process, &path, event["id"].as_str()).await;
        assert_eq!(rest, events[at + 1..], "after {}", event["id"]);
    }
    let last = events.last().unwrap()["id"].as_str().unwrap();
    let sse = [("last-event-id", last), ("accept", "text/event-stream")];
    let reported = send(&process, "GET", &format!("{path}/events"), &sse, &Value::Null).await;
    assert_eq!(reported.status, 204);
    for (unknown, code) in [("9.1.0", "invalid_request"), ("12", "invalid_request")] {
        let headers = [("last-event-id", unknown)];
        let refused = send(&process, "GET", &format!("{path}/events"), &headers, &Value::Null).await;
        refused.problem(400, code);
    }
    kill(process);
    place.github.finish();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_events_of_a_session_are_one_stream_on_sqlite() {
    tell(None).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_events_of_a_session_are_one_stream_on_postgres() {
    tell(Some(postgres::database().await)).await;
}

/// One replica works, the other is read; the first dies in a step, and the second does the rest.
#[tokio::test(flavor = "multi_thread")]
async fn a_reader_at_another_replica_sees_it_take_the_work_over() {
    let place = Place::with(Some(postgres::database().await), Duration::from_millis(500)).await;
    let works = place.start().await;
    let path = start(&works, HOUR).await;
    let reads = place.start().await;
    let mut reader = Reader::after(&reads, &path, None).await;
    let execute = json!({"askFor": ["createIssue"]});
    send(&works, "POST", &format!("{path}/execute"), &[], &execute)
        .await
        .expect(202);
    let mut events = reader.until("task_started").await;
    // Its model has not answered for the first time yet.
    kill(works);
    let more = reader.until("awaiting_confirmation").await;
    assert!(more.iter().any(|event| event["type"] == "recovered"), "{more:?}");
    events.extend(more);
    approve(&reads, &path).await;
    events.extend(reader.until("result").await);
    assert_eq!(reader.next().await, None);
    let events = stored(events);
    let ids: Vec<_> = events.iter().map(numbers).collect();
    assert!(ids.is_sorted_by(|one, next| one < next), "{ids:?}");
    assert_eq!(events.iter().filter(|event| event["type"] == "result").count(), 1);
    assert_eq!(stored(all(&reads, &path, None).await), events);
    kill(reads);
    place.github.finish();
}

/// gavel is killed after GitHub has opened the pull request and before it has answered. There is one, and one step.
#[tokio::test(flavor = "multi_thread")]
async fn a_pull_request_whose_answer_dies_with_the_process_is_opened_once() {
    let walks = [None, Some(postgres::database().await)].map(|database| async {
        let pull = json!({"title": "ISO weeks", "head": "gavel/weeks", "base": "main"});
        let script = vec![
            plan(vec![task("Open a pull request")]),
            reason("It is pushed."),
            act("createPullRequest", pull),
            done(1, "https://github.com/acme/dates/pull/1"),
        ];
        let place = Place::scripted(database, script).await;
        let pulls = || {
            place
                .github
                .state(|state| state.repository("acme", "dates").pulls.len())
        };
        place.github.fail("POST", "/repos/acme/dates/pulls", [Fault::SlowAfter]);
        let process = place.start().await;
        let path = start(&process, HOUR).await;
        send(&process, "POST", &format!("{path}/execute"), &[], &json!({}))
            .await
            .expect(202);
        until("the pull request", || async { pulls() == 1 }).await;
        kill(process);
        let process = place.start().await;
        until("the session to end", || async {
            !session(&process, &path).await["completedAt"].is_null()
        })
        .await;
        let ended = session(&process, &path).await;
        assert_eq!(ended["status"], "COMPLETED", "{ended}");
        assert_eq!((pulls(), place.github.seen("POST").len()), (1, 1));
        assert_eq!(ended["pullRequests"].as_array().unwrap().len(), 1, "{ended}");
        let task = session(&process, &format!("{path}/tasks/t1")).await;
        assert_eq!(task["reactHistory"].as_array().unwrap().len(), 1, "{task}");
        assert_eq!(place.gemini.requests().len(), 4);
        kill(process);
        place.github.finish();
    });
    join_all(walks).await;
}

/// P-205: a client that leaves its request and a killed process confirm no plan.
#[tokio::test(flavor = "multi_thread")]
async fn a_plan_that_waits_is_confirmed_by_no_dropped_connection_and_no_restart() {
    let walks = [None, Some(postgres::database().await)].map(|database| async {
        let place = Place::with(database, Duration::from_millis(200)).await;
        let process = place.start().await;
        let path = start(&process, HOUR).await;
        let body = json!({"refinementPrompt": "in other words"});
        let refine = format!("{path}/refine");
        let refined = send(&process, "POST", &refine, &[], &body);
        let left = tokio::time::timeout(Duration::from_millis(100), refined).await;
        assert!(left.is_err(), "the model takes longer than the client waits");
        kill(process);
        let process = place.start().await;
        until("the plan to wait", || async {
            session(&process, &path).await["status"] == "AWAITING_CONFIRMATION"
        })
        .await;
        tokio::time::sleep(Duration::from_secs(3)).await;
        let waits = session(&process, &path).await;
        assert_eq!(waits["status"], "AWAITING_CONFIRMATION", "{waits}");
        assert_eq!(waits["startedAt"], Value::Null, "{waits}");
        assert!(place.github.seen("POST").is_empty());
        kill(process);
        place.github.finish();
    });
    join_all(walks).await;
}

/// The deadline also passes while gavel is off: at the next start the sessions end within 5 s, with the approval that
/// one of them waited for, and nothing is sent any more.
#[tokio::test(flavor = "multi_thread")]
async fn a_deadline_that_passes_while_gavel_is_off_ends_the_sessions_at_the_next_start() {
    let walks = [None, Some(postgres::database().await)].map(|database| async {
        let place = Place::on(database).await;
        let process = place.start().await;
        let time = Duration::from_secs(13);
        let asks = start(&process, time).await;
        let waits = start(&process, time).await;
        let passed = Instant::now() + time;
        let confirm = json!({"askFor": ["getFileContents"]});
        send(&process, "POST", &format!("{asks}/execute"), &[], &confirm)
            .await
            .expect(202);
        until("an approval to be open", || async {
            !session(&process, &asks).await["waitingFor"][0].is_null()
        })
        .await;
        let approval = session(&process, &asks).await["waitingFor"][0]["approvalId"].clone();
        kill(process);
        let asked = place.gemini.requests().len();
        assert!(Instant::now() < passed, "the deadline passes only now");
        tokio::time::sleep_until(passed.into()).await;
        let process = place.start().await;
        let began = Instant::now();
        for path in [&asks, &waits] {
            until("the session to end", || async {
                session(&process, path).await["status"] == "DEADLINE_EXCEEDED"
            })
            .await;
        }
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
        let approve = json!({"approvalId": approval, "decision": "approve_once"});
        let late = send(&process, "POST", "/api/agent/approvals/resolve", &[], &approve).await;
        assert_eq!(late.problem(409, "already_resolved")["outcome"]["state"], "expired");
        let pending = session(&process, "/api/agent/approvals/pending").await;
        assert_eq!(pending["approvals"], json!([]));
        let ended = session(&process, &asks).await;
        assert_eq!(ended["waitingFor"], json!([]), "{ended}");
        assert_eq!(ended["statusReason"]["code"], "deadline", "{ended}");
        assert_eq!(place.gemini.requests().len(), asked, "no model is asked");
        kill(process);
        place.github.finish();
    });
    join_all(walks).await;
}

/// P-205, P-306: while the plan waits for its confirmation the stream stays open, and readers come and leave without an
/// effect; a cancellation or the deadline ends it soon.
#[tokio::test(flavor = "multi_thread")]
async fn the_stream_of_a_plan_that_waits_stays_open_until_the_session_ends() {
    let place = Place::on(None).await;
    let process = place.start().await;
    let path = start(&process, HOUR).await;
    let soon = start(&process, Duration::from_secs(12)).await;
    for _ in 0..5 {
        let mut reader = Reader::after(&process, &path, None).await;
        reader.until("plan").await;
    }
    let mut reader = Reader::after(&process, &path, None).await;
    let mut events = reader.until("plan").await;
    events.extend(reader.until("status").await);
    let more = tokio::time::timeout(Duration::from_secs(2), reader.next()).await;
    assert!(more.is_err(), "{more:?}");
    assert_eq!(session(&process, &path).await["status"], "AWAITING_CONFIRMATION");
    let cancel = json!({"reason": "not needed"});
    send(&process, "POST", &format!("{path}/cancel"), &[], &cancel)
        .await
        .expect(200);
    let ended = tokio::time::timeout(Duration::from_secs(5), reader.until("result")).await;
    assert_eq!(ended.unwrap().last().unwrap()["session"]["status"], "CANCELLED");
    let mut reader = Reader::after(&process, &soon, None).await;
    let ended = tokio::time::timeout(Duration::from_secs(20), reader.until("result")).await;
    assert_eq!(ended.unwrap().last().unwrap()["session"]["status"], "DEADLINE_EXCEEDED");
    until("the sessions to end", || async {
        session(&process, &soon).await["status"] == "DEADLINE_EXCEEDED"
    })
    .await;
    let others = client()
        .get(format!("{}{path}/events", process.url))
        .header("x-gavel-user", "bob");
    Answer::of(others).await.problem(404, "not_found");
    kill(process);
    place.github.finish();
}
