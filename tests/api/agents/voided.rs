//! Streamed text of a turn that was never recorded: the next worker asks the model again. A reader receives `reset`
//! before it receives the text of the turn again.

use std::time::Duration;

use serde_json::{Value, json};

use super::processes::Place;
use super::{HELPER, both, path_of};
use crate::crash::signal;
use crate::docs::execute;
use crate::gemini::{Gemini, Mouth, Reply};
use crate::harness::{App, client, spawn_app, until};
use crate::threads::refusal;

/// Reads a stream line by line, an agent's events or a thread's stream. It keeps the text since the last `reset`.
struct Reader {
    answer: reqwest::Response,
    read: Vec<u8>,
    words: String,
    resets: usize,
    turns: Vec<String>,
}

impl Reader {
    async fn of(request: reqwest::RequestBuilder) -> Self {
        let answer = request.send().await.unwrap();
        assert!(answer.status().is_success(), "{}", answer.status());
        Self {
            answer,
            read: Vec::new(),
            words: String::new(),
            resets: 0,
            turns: Vec::new(),
        }
    }

    /// The next line; `None` at the end.
    async fn line(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.read.iter().position(|byte| *byte == b'\n') {
                let line: Vec<_> = self.read.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).unwrap());
            }
            let chunk = tokio::time::timeout(Duration::from_secs(40), self.answer.chunk()).await;
            self.read.extend(chunk.expect("more, or the end").unwrap()?);
        }
    }

    /// Reads until this text, or to the end without it.
    async fn reads(&mut self, until: Option<&str>) {
        while until.is_none_or(|words| !self.words.contains(words)) {
            let Some(line) = self.line().await else {
                assert!(until.is_none(), "the stream ended: {:?}", self.words);
                return;
            };
            match line["type"].as_str().unwrap() {
                "delta" => self
                    .words
                    .push_str(line["text"].as_str().or(line["delta"].as_str()).unwrap()),
                "reset" => {
                    self.words.clear();
                    self.resets += 1;
                }
                "turn" => {
                    let turn = line["text"].as_str().unwrap();
                    assert!(
                        turn.starts_with(&self.words),
                        "{:?} is voided before {turn:?}",
                        self.words
                    );
                    self.words.clear();
                    self.turns.push(turn.to_owned());
                }
                // The deltas of a thread's stream are the text of its result.
                "result" => assert_eq!(line["result"]["summary"], self.words.as_str(), "{line}"),
                "error" => panic!("{line}"),
                _ => {}
            }
        }
    }
}

/// The only run.
async fn only_run(app: &App) -> String {
    until("the run to exist", || async {
        app.runs("status != \"completed\"").await.len() == 1
    })
    .await;
    super::id(&app.runs("status != \"completed\"").await[0])
}

/// The turn is streamed and cannot be recorded. The same process claims the run again.
#[tokio::test]
async fn text_of_an_unrecorded_turn_is_reset_before_the_model_is_asked_again() {
    for setup in both() {
        for in_thread in [false, true] {
            let (mouth, spoken) = Mouth::new();
            let (other, other_words) = Mouth::new();
            let setup = setup
                .clone()
                .env("GAVEL_RUNS_AGENT", "helper")
                .env("GAVEL_RUNS_LEASE_SECONDS", "2");
            let app = spawn_app(setup.script(vec![spoken, other_words])).await;
            let mut reader = if in_thread {
                let say = app.request("POST", "/api/agent/run/stream", &[("x-gavel-user", "ann")]);
                let reader = tokio::spawn(Reader::of(say.json(&json!({"prompt": "Go."}))));
                app.asked(1).await;
                reader.await.unwrap()
            } else {
                app.queued("helper", "Go.").await;
                app.asked(1).await;
                let path = format!("/api/runs/{}/events", only_run(&app).await);
                Reader::of(app.request("GET", &path, &[])).await
            };
            mouth.says("These words ");
            reader.reads(Some("These words ")).await;
            let [refuse, allow] = refusal(&app.database_url, "agent_run_entry", "1 = 1");
            execute(&app.database_url, &refuse).await;
            mouth.ends("are lost.");
            // By now the turn was rejected. The next one can be recorded.
            app.asked(2).await;
            execute(&app.database_url, &allow).await;
            other.ends("Other words.");
            reader.reads(None).await;
            assert_eq!(app.gemini.requests().len(), 2, "the model was asked again");
            assert!(reader.resets > 0);
            app.stop().await;
        }
    }
}

/// The watched process is suspended within a turn. Another one claims the run and ends it.
async fn taken_over(postgres: bool) {
    for in_thread in [false, true] {
        let place = Place::on(postgres).await;
        place.agent("helper.md", HELPER);
        let (mouth, spoken) = Mouth::new();
        let gemini = Gemini::scripted(vec![spoken, Reply::Text("Other words.")]).await;
        let one = place.start_with(&gemini, &json!({"trustHints": true})).await;
        let client = client();
        let mut reader = if in_thread {
            let say = client.post(format!("{}/api/agent/run/stream", one.url));
            Reader::of(say.json(&json!({"prompt": "Go."}))).await
        } else {
            let trigger = client.post(format!("{}{}", one.url, path_of("helper")));
            let trigger = trigger.header("prefer", "respond-async").json(&json!({"query": "Go."}));
            let run: Value = trigger.send().await.unwrap().json().await.unwrap();
            Reader::of(client.get(format!("{}/api/runs/{}/events", one.url, super::id(&run)))).await
        };
        mouth.says("These words ");
        reader.reads(Some("These words ")).await;
        assert!(signal("-STOP", one.child.0.id()));
        let other = place.start_with(&gemini, &json!({"trustHints": true})).await;
        until("the other process to have ended the run", || async {
            let all = super::processes::all_runs(&other).await;
            all.iter().all(super::has_ended)
        })
        .await;
        assert_eq!(gemini.requests().len(), 2, "the model was asked again");
        assert!(signal("-CONT", one.child.0.id()));
        reader.reads(None).await;
        assert!(reader.resets > 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn text_of_a_suspended_process_is_reset_before_that_of_the_next_on_sqlite() {
    taken_over(false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn text_of_a_suspended_process_is_reset_before_that_of_the_next_on_postgres() {
    taken_over(true).await;
}
