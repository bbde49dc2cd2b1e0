//! What a shutdown does to requests: those in progress are finished, or interrupted and answered as such; new ones are
//! shed.

use std::process::Command;
use std::time::Duration;

use reqwest::header::{CONNECTION, RETRY_AFTER};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::crash::{Process, start_by};
use crate::gemini::{Gemini, Reply};
use crate::harness::{Setup, binary, client, spawn_app, until};
use crate::postgres;
use crate::raw::{Answer, RawServer};

struct Place {
    directory: TempDir,
    database: String,
}

async fn places() -> [Place; 2] {
    let directory = tempfile::tempdir().unwrap();
    let sqlite = format!("sqlite://{}", directory.path().join("gavel.db").display());
    let on_sqlite = Place {
        directory,
        database: sqlite,
    };
    let on_postgres = Place {
        directory: tempfile::tempdir().unwrap(),
        database: postgres::database().await,
    };
    [on_sqlite, on_postgres]
}

impl Place {
    async fn start(&self, gemini: &Gemini) -> Process {
        start_by(
            Command::new(binary()),
            &gemini.url,
            &self.database,
            self.directory.path(),
        )
        .await
    }
}

fn terminate(process: &Process) {
    let pid = process.child.0.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
}

async fn decisions(process: &Process) -> Vec<Value> {
    let page = client()
        .get(format!("{}/v1/decisions", process.url))
        .send()
        .await
        .unwrap();
    let page: Value = page.json().await.unwrap();
    page["decisions"].as_array().unwrap().clone()
}

fn message(text: &str) -> Value {
    json!({"message": text, "user_id": "ann"})
}

/// C-FR-006. Promise: recorded. The client has disconnected, and the service is asked to stop.
// Two threads, because waiting for the process blocks one while the model answers on the other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_decision_whose_client_disconnected_survives_the_shutdown() {
    for place in places().await {
        let gemini = Gemini::scripted(vec![Reply::After(
            Duration::from_millis(1500),
            Box::new(Reply::Text("Done.")),
        )])
        .await;
        let mut process = place.start(&gemini).await;
        let request = client().post(format!("{}/v1/chat", process.url));
        let request = tokio::spawn(request.json(&message("hi")).send());
        until("the model to be asked", || async { gemini.requests().len() == 1 }).await;
        // Aborting the task closes the client's connection.
        request.abort();
        terminate(&process);
        assert!(process.child.0.wait().unwrap().success());

        let again = place.start(&gemini).await;
        let found = decisions(&again).await;
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0]["outcome_category"], "SUCCESS:RESPONSE_GIVEN", "{found:?}");
        assert_eq!(found[0]["recovered"], false, "{found:?}");
    }
}

/// A request during the drain is shed and recorded, with `Retry-After`.
#[tokio::test]
async fn requests_during_the_drain_are_shed_and_recorded_while_others_finish() {
    for place in places().await {
        let gemini = Gemini::scripted(vec![Reply::After(
            Duration::from_millis(2500),
            Box::new(Reply::Text("Done.")),
        )])
        .await;
        let mut process = place.start(&gemini).await;
        let chat = format!("{}/v1/chat", process.url);
        let under_way = tokio::spawn(client().post(&chat).json(&message("first")).send());
        until("the model to be asked", || async { gemini.requests().len() == 1 }).await;
        terminate(&process);
        let ready = format!("{}/readyz", process.url);
        until("readiness to report the shutdown", || async {
            client()
                .get(&ready)
                .send()
                .await
                .is_ok_and(|answer| answer.status() == 503)
        })
        .await;

        let shed = client().post(&chat).json(&message("second")).send().await.unwrap();
        assert_eq!(shed.status(), 503);
        assert_eq!(shed.headers()[RETRY_AFTER], "1");
        assert_eq!(
            shed.headers()[CONNECTION],
            "close",
            "the next request goes to another replica"
        );
        let shed: Value = shed.json().await.unwrap();
        assert_eq!(shed["outcome_category"], "REFUSAL:OVERLOADED", "{shed}");
        let finished: Value = under_way.await.unwrap().unwrap().json().await.unwrap();
        assert_eq!(finished["outcome_category"], "SUCCESS:RESPONSE_GIVEN", "{finished}");
        assert!(process.child.0.wait().unwrap().success());
        assert_eq!(gemini.requests().len(), 1, "the model was not asked for the second");

        let again = place.start(&gemini).await;
        let mut outcomes: Vec<_> = decisions(&again)
            .await
            .iter()
            .map(|decision| decision["outcome_category"].as_str().unwrap().to_owned())
            .collect();
        outcomes.sort();
        assert_eq!(outcomes, ["REFUSAL:OVERLOADED", "SUCCESS:RESPONSE_GIVEN"]);
    }
}

/// Promises: at most once, truthful states. Each call of an interrupted turn reports how far it came.
#[tokio::test]
async fn calls_of_an_interrupted_run_report_their_actual_state() {
    for setup in [Setup::stdio_sqlite(), Setup::stdio_postgres()] {
        // `look` only reads, `act` does not; neither is ever answered. Side effects run one after another.
        let mut server = RawServer::start(|request| match request.method() {
            "tools/list" => Some(Answer::Result(json!({"tools": [
                {"name": "look", "inputSchema": {"type": "object"}},
                {"name": "act", "inputSchema": {"type": "object"}},
            ]}))),
            "tools/call" => Some(Answer::Hang),
            _ => None,
        })
        .await;
        let entry = json!({"url": server.url, "gavel": {"tools": {"look": {"sideEffect": false}}}});
        let calls = vec![
            ("look", json!({})),
            ("look", json!({})),
            ("act", json!({})),
            ("act", json!({})),
        ];
        let script = vec![Reply::from(move |request| {
            let words = request["contents"][0]["parts"][0]["text"].as_str().unwrap();
            Reply::Calls(match words.ends_with("look") {
                true => calls.clone(),
                false => calls[2..].to_vec(),
            })
        })];
        let setup = setup
            .mcp(json!({"mcpServers": {"s": entry}}))
            .grant(&["look", "act"], 30)
            .env("GAVEL_DRAIN_SECONDS", "1")
            .script(script);
        let mut app = spawn_app(setup).await;
        let chat = |words: &'static str| {
            let request = client().post(format!("{}/v1/chat", app.url));
            tokio::spawn(request.json(&message(words)).send())
        };
        let (looks, acts) = (chat("look"), chat("act"));
        for _ in 0..3 {
            server.saw("tools/call").await;
        }
        let stopped = app.begin_stop();
        let mut reported = Vec::new();
        for answer in [looks, acts] {
            let decision: Value = answer.await.unwrap().unwrap().json().await.unwrap();
            assert_eq!(decision["outcome_category"], "ERROR:INTERNAL", "{decision}");
            let calls = decision["tool_calls"].as_array().unwrap();
            let codes: Vec<_> = calls
                .iter()
                .map(|call| call["result"]["error"]["code"].clone())
                .collect();
            reported.push(json!(codes));
        }
        assert_eq!(
            reported,
            [
                json!(["timeout", "timeout", "limit_reached", "limit_reached"]),
                json!(["in_doubt", "limit_reached"])
            ]
        );
        stopped.await.unwrap();
    }
}
