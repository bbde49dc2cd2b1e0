//! `POST /api/agent/run/stream`: a run of a thread told while it goes on, as NDJSON (REQUIREMENTS R, Routes): the thread first,
//! then the model's words as they come, at last the run's answer. The specification closes the list of types, so the model's thoughts
//! are no line of it: they are among the run's events.
//!
//! A client that leaves cancels nothing: the run goes on, and is there to fetch, or to join by its events.

use std::convert::Infallible;
use std::time::Duration;

use actix_web::http::StatusCode;
use actix_web::http::header::{self, HeaderName, HeaderValue};
use actix_web::web::{Data, Payload};
use actix_web::{HttpRequest, HttpResponse};
use bytes::{BufMut, Bytes, BytesMut};
use futures_util::stream;
use serde_json::{Map, Value, json};
use tokio::time::{Interval, MissedTickBehavior};
use tracing::Instrument;

use super::{Said, dressed, said};
use crate::domain::agent_run::RunStatus;
use crate::domain::budget::Share;
use crate::domain::ids::RunId;
use crate::http::State;
use crate::http::error::Error;
use crate::http::exchange::Exchange;
use crate::http::headers::{self, ACCEL_BUFFERING};
use crate::http::routes::Route;
use crate::surfaces::agents::{AgentError, Cursor, Watch, What};
use crate::surfaces::caller::Caller;

pub(in crate::http) async fn run(state: Data<State>, request: HttpRequest, payload: Payload) -> HttpResponse {
    let exchange = Exchange::begin(&state, &request, Some(Route::SayStream));
    match begun(&state, &exchange, &request, payload)
        .instrument(exchange.span.clone())
        .await
    {
        Ok(begun) => tell(&state, exchange, begun),
        Err(error) => exchange.finish(Err(error)),
    }
}

/// A run that is told.
struct Begun {
    caller: Caller,
    run: RunId,
    thread: Value,
    /// `planning`, or `queued` where another run of the thread comes first; as it stands where the request came before.
    status: &'static str,
    headers: Vec<(HeaderName, HeaderValue)>,
    watch: Watch,
    stream: Option<Share>,
}

async fn begun(state: &State, exchange: &Exchange, request: &HttpRequest, payload: Payload) -> Result<Begun, Error> {
    let Said {
        caller,
        triggered,
        keyed,
        stream,
        ..
    } = said(state, exchange, request, payload, true).await?;
    let run = triggered.run;
    let threads = &state.edge.threads;
    let begun = async {
        let answer = threads.run(&caller, None, run).await?;
        let watch = threads.watch(&caller, None, run, Cursor::default()).await?;
        Ok::<_, AgentError>((answer, watch))
    };
    // The run is there and may have had effects: what cannot be told now must not be sent again.
    let begun = begun.await;
    let (answer, watch) = begun.map_err(|error| state.edge.agents.unreadable(run, &error))?;
    let status = match triggered.waits_its_turn {
        true => "queued",
        false if triggered.replayed => answer.status,
        false => "planning",
    };
    Ok(Begun {
        headers: dressed(&triggered, keyed),
        status,
        caller,
        run,
        thread: json!(answer.thread_id),
        watch,
        stream,
    })
}

fn tell(state: &Data<State>, exchange: Exchange, begun: Begun) -> HttpResponse {
    let mut heartbeat = tokio::time::interval(state.edge.limits.heartbeat);
    heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    heartbeat.reset();
    let mut response = HttpResponse::build(StatusCode::OK);
    response.insert_header((header::CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson")));
    // A buffering proxy would hold the lines back until there are enough of them.
    response.insert_header((ACCEL_BUFFERING, HeaderValue::from_static("no")));
    response.insert_header((headers::REQUEST_ID, exchange.id.header.clone()));
    response.insert_header((header::CACHE_CONTROL, headers::NO_STORE));
    if let Ok(location) = HeaderValue::from_str(&format!("/api/agent/runs/{}", begun.run)) {
        response.insert_header((header::LOCATION, location));
    }
    for header in begun.headers {
        response.insert_header(header);
    }
    let mut first = BytesMut::new();
    line(
        &json!({"type": "status", "status": begun.status, "threadId": begun.thread, "runId": begun.run}),
        &mut first,
    );
    let telling = Telling {
        state: Data::clone(state),
        exchange,
        caller: begun.caller,
        run: begun.run,
        watch: Some(begun.watch),
        heartbeat,
        first: Some(first.freeze()),
        told: 0,
        _share: begun.stream,
    };
    response.streaming(stream::unfold(telling, Telling::next))
}

fn line(value: &Value, out: &mut BytesMut) {
    out.put_slice(value.to_string().as_bytes());
    out.put_u8(b'\n');
}

/// Before a run that is over is read again, where its record was away.
const PAUSES: [Duration; 3] = [
    Duration::from_millis(250),
    Duration::from_secs(1),
    Duration::from_secs(3),
];

/// A stream under way. Dropped before its last line, it counts as a client that left.
struct Telling {
    state: Data<State>,
    exchange: Exchange,
    caller: Caller,
    run: RunId,
    /// Absent when the last line was told.
    watch: Option<Watch>,
    heartbeat: Interval,
    first: Option<Bytes>,
    /// How many bytes of this turn's words were told as they came.
    told: usize,
    _share: Option<Share>,
}

impl Telling {
    async fn next(mut self) -> Option<(Result<Bytes, Infallible>, Self)> {
        if let Some(first) = self.first.take() {
            return Some((Ok(first), self));
        }
        let mut watch = self.watch.take()?;
        let mut out = BytesMut::new();
        while out.is_empty() {
            tokio::select! {
                told = watch.next() => match told {
                    Ok(Some(told)) if told.event.run_id == self.run => match told.event.what {
                        What::Delta { text } => {
                            self.told += text.len();
                            line(&json!({"type": "delta", "delta": text}), &mut out);
                        }
                        // The turn came to nothing; what is said next is another one. Where only thoughts were heard, none of it
                        // was told here.
                        What::Reset | What::ModelFault { .. } if self.told > 0 => {
                            self.told = 0;
                            line(&json!({"type": "reset"}), &mut out);
                        }
                        // Who came late, or was behind, gets what is missing. The turn begins with what was told of it.
                        What::Turn { text, .. } => {
                            let told = std::mem::take(&mut self.told);
                            let missing = text.get(told..).unwrap_or_default();
                            if !missing.is_empty() {
                                line(&json!({"type": "delta", "delta": missing}), &mut out);
                            }
                        }
                        // It may have been answered since, as of a request that is sent again.
                        What::AwaitingConfirmation if !self.waits().await => {}
                        What::AwaitingConfirmation | What::End { .. } => {
                            self.end(&mut out).await;
                            return Some((Ok(out.freeze()), self));
                        }
                        _ => {}
                    },
                    Ok(Some(_)) => {}
                    // The service ends; the run goes on elsewhere.
                    Ok(None) => {
                        self.end(&mut out).await;
                        return Some((Ok(out.freeze()), self));
                    }
                    Err(error) => {
                        self.fail(&error, &mut out);
                        return Some((Ok(out.freeze()), self));
                    }
                },
                _ = self.heartbeat.tick() => line(&json!({"type": "heartbeat"}), &mut out),
            }
        }
        self.heartbeat.reset();
        self.watch = Some(watch);
        Some((Ok(out.freeze()), self))
    }

    /// Does the run wait for a person? Where that cannot be read, the end says so.
    async fn waits(&self) -> bool {
        let run = self.state.edge.threads.run(&self.caller, None, self.run).await;
        run.map_or(true, |run| run.status == RunStatus::AwaitingConfirmation.as_str())
    }

    async fn end(&mut self, out: &mut BytesMut) {
        // Words of a turn that did not come to its end count for nothing.
        if self.told > 0 {
            line(&json!({"type": "reset"}), out);
        }
        let mut pauses = PAUSES.into_iter();
        let answer = loop {
            let answer = self.state.edge.threads.run(&self.caller, None, self.run).await;
            match (answer, pauses.next()) {
                // Who was told all of it so far is not sent away for a moment in which the database is busy.
                (Err(AgentError::RecordUnavailable), Some(pause)) => tokio::time::sleep(pause).await,
                (answer, _) => break answer,
            }
        };
        match answer {
            Ok(answer) => {
                line(&json!({"type": "result", "result": answer}), out);
                self.exchange.answered(StatusCode::OK);
            }
            Err(error) => self.fail(&error, out),
        }
    }

    /// The run is there and may have had effects: what cannot be told now must not be sent again.
    fn fail(&mut self, error: &AgentError, out: &mut BytesMut) {
        let error = self.state.edge.agents.unreadable(self.run, error);
        let problem: Map<String, Value> = serde_json::from_str(&self.exchange.problem(error)).unwrap_or_default();
        line(&failed(problem), out);
        self.exchange.answered(StatusCode::OK);
    }
}

/// The last line of a run that cannot be told: what happened in words, and the fields of the problem beside it.
fn failed(mut problem: Map<String, Value>) -> Value {
    let detail = problem
        .get("detail")
        .cloned()
        .unwrap_or_else(|| "the run cannot be read".into());
    problem.insert("type".to_owned(), "error".into());
    problem.insert("error".to_owned(), detail);
    Value::Object(problem)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// R, Routes: `error` is a string.
    #[test]
    fn the_last_line_of_a_stream_that_fails_has_words_and_the_problem_beside_them() {
        let problem = json!({"type": "about:blank", "title": "Service Unavailable", "status": 503, "detail": "Later.", "code": "run_unreadable"});
        let Value::Object(problem) = problem else {
            unreachable!()
        };
        let told = json!({"type": "error", "error": "Later.", "title": "Service Unavailable", "status": 503, "detail": "Later.", "code": "run_unreadable"});
        assert_eq!(failed(problem), told);
    }
}
