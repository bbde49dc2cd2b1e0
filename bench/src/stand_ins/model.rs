//! A model that speaks Gemini's wire format, unary and streamed (SSE). It calls [`TOOL`] on a first turn, and confirms
//! once the tool's result has returned together with the model's own signature.

use std::borrow::Cow;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::{Request, StatusCode};
use memchr::memmem;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::script::{FOUND, SIGNATURE, TOOL, WORDS};
use crate::precise;
use crate::serve::{Answer, reply};

#[derive(Default)]
pub(super) struct Model {
    latency_us: AtomicU64,
    calls: AtomicU64,
    faults: AtomicU64,
}

impl Model {
    pub(super) fn set_latency(&self, latency: Duration) {
        self.latency_us
            .store(u64::try_from(latency.as_micros()).unwrap_or(u64::MAX), Relaxed);
    }

    pub(super) fn calls(&self) -> u64 {
        self.calls.load(Relaxed)
    }

    pub(super) fn faults(&self) -> u64 {
        self.faults.load(Relaxed)
    }

    /// Answers one request, `latency` after its head has arrived.
    pub(super) async fn answer(self: Arc<Self>, request: Request<Incoming>) -> Answer {
        let came = Instant::now();
        let latency = Duration::from_micros(self.latency_us.load(Relaxed));
        let Some(streamed) = method(request.uri().path()) else {
            return self.refuse(StatusCode::NOT_FOUND, "NOT_FOUND", "no such model method");
        };
        let body = match request.into_body().collect().await {
            Ok(body) => body.to_bytes(),
            Err(error) => return self.refuse(StatusCode::BAD_REQUEST, "INVALID_ARGUMENT", &error.to_string()),
        };
        let call = self.calls.fetch_add(1, Relaxed);
        let answer = match next_turn(&body) {
            Ok(turn) if streamed => reply(StatusCode::OK, "text/event-stream", events(&turn, call)),
            Ok(turn) => reply(StatusCode::OK, "application/json; charset=UTF-8", whole(&turn, call)),
            Err(fault) => return self.refuse(StatusCode::BAD_REQUEST, "INVALID_ARGUMENT", fault),
        };
        match precise::sleep(latency.saturating_sub(came.elapsed())).await {
            Ok(()) => answer,
            Err(error) => self.refuse(StatusCode::INTERNAL_SERVER_ERROR, "INTERNAL", &error.to_string()),
        }
    }

    fn refuse(&self, status: StatusCode, name: &str, message: &str) -> Answer {
        if self.faults.fetch_add(1, Relaxed) < 10 {
            eprintln!("the model stand-in refused a request: {message}");
        }
        let error = serde_json::json!({"error": {"code": status.as_u16(), "status": name, "message": message}});
        reply(status, "application/json", error.to_string())
    }
}

/// Whether a path requests a stream; `None` if this model does not serve it.
fn method(path: &str) -> Option<bool> {
    match path.rsplit_once(':')?.1 {
        "generateContent" => Some(false),
        "streamGenerateContent" => Some(true),
        _ => None,
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Ask<'a> {
    #[serde(borrow)]
    contents: Vec<Content<'a>>,
    #[serde(borrow, default)]
    tools: Vec<Tools<'a>>,
    #[serde(borrow)]
    system_instruction: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Tools<'a> {
    #[serde(borrow, default)]
    function_declarations: Vec<Declaration<'a>>,
}

#[derive(Deserialize)]
struct Declaration<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
}

#[derive(Deserialize)]
struct Content<'a> {
    #[serde(borrow)]
    parts: Vec<Part<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Part<'a> {
    #[serde(borrow)]
    function_response: Option<&'a RawValue>,
}

/// The model's next turn.
#[derive(Debug, PartialEq, Eq)]
enum Turn {
    /// Calls the tool under its declared name.
    Call(String),
    /// Ends with text.
    Confirm,
}

/// The turn for a request, or the reason why a real model would reject it.
fn next_turn(body: &[u8]) -> Result<Turn, &'static str> {
    let ask: Ask<'_> = serde_json::from_slice(body).map_err(|_| "the body is no generateContent request")?;
    let last = ask.contents.last().ok_or("contents is empty")?;
    if ask.system_instruction.is_none() {
        return Err("there is no systemInstruction");
    }
    if let Some(response) = last.parts.iter().find_map(|part| part.function_response) {
        if memmem::find(response.get().as_bytes(), FOUND.as_bytes()).is_none() {
            return Err("the function response lacks what the tool returned");
        }
        if memmem::find(body, SIGNATURE.as_bytes()).is_none() {
            return Err("function call is missing a thought_signature");
        }
        return Ok(Turn::Confirm);
    }
    ask.tools
        .iter()
        .flat_map(|tools| &tools.function_declarations)
        .map(|declared| declared.name.as_ref())
        .find(|name| *name == TOOL || name.ends_with(&format!("__{TOOL}")))
        .map(|name| Turn::Call(name.to_owned()))
        .ok_or("the tool is not declared")
}

fn whole(turn: &Turn, call: u64) -> Bytes {
    let part = match turn {
        Turn::Call(name) => call_part(name, call),
        Turn::Confirm => text_part(&WORDS.concat()),
    };
    Bytes::from(chunk(&part, true, call))
}

fn events(turn: &Turn, call: u64) -> Bytes {
    let mut events = String::with_capacity(1024);
    let mut event = |part: &str, last: bool| {
        // Writing to a String cannot fail.
        let _ = write!(events, "data: {}\r\n\r\n", chunk(part, last, call));
    };
    match turn {
        Turn::Call(name) => event(&call_part(name, call), true),
        Turn::Confirm => {
            for (n, words) in WORDS.iter().enumerate() {
                event(&text_part(words), n + 1 == WORDS.len());
            }
        }
    }
    Bytes::from(events)
}

fn call_part(name: &str, call: u64) -> String {
    let id = call % 100_000_000;
    format!(r#"{{"functionCall":{{"name":"{name}","args":{{}},"id":"{id:08}"}},"thoughtSignature":"{SIGNATURE}"}}"#)
}

fn text_part(words: &str) -> String {
    format!(r#"{{"text":"{words}"}}"#)
}

fn chunk(part: &str, last: bool, call: u64) -> String {
    let finish = if last { r#","finishReason":"STOP""# } else { "" };
    format!(
        concat!(
            r#"{{"candidates":[{{"content":{{"parts":[{part}],"role":"model"}}{finish},"index":0}}],"#,
            r#""usageMetadata":{{"promptTokenCount":1630,"candidatesTokenCount":31,"thoughtsTokenCount":24,"#,
            r#""totalTokenCount":1685,"promptTokensDetails":[{{"modality":"TEXT","tokenCount":1630}}]}},"#,
            r#""modelVersion":"gemini-bench","responseId":"bench-{call}"}}"#,
        ),
        part = part,
        finish = finish,
        call = call,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const DECLARED: &str = r#""systemInstruction":{"parts":[{"text":"s"}]},
        "tools":[{"functionDeclarations":[{"name":"other"},{"name":"tasks__list_tasks"}]}]"#;

    fn asked(contents: &str) -> Result<Turn, &'static str> {
        next_turn(format!(r#"{{"contents":[{contents}],{DECLARED}}}"#).as_bytes())
    }

    #[test]
    fn a_first_turn_calls_the_tool_by_its_declared_name() {
        assert_eq!(
            asked(r#"{"role":"user","parts":[{"text":"hi"}]}"#),
            Ok(Turn::Call("tasks__list_tasks".to_owned()))
        );
    }

    #[test]
    fn only_a_result_with_the_signature_is_confirmed() {
        let answer = |signature: &str, found: &str| {
            asked(&format!(
                r#"{{"parts":[{{"functionCall":{{}},"thoughtSignature":"{signature}"}}]}},
                   {{"parts":[{{"functionResponse":{{"name":"x","response":{{"output":"{found}"}}}}}}]}}"#
            ))
        };
        assert_eq!(answer(SIGNATURE, FOUND), Ok(Turn::Confirm));
        assert!(answer("changed", FOUND).is_err());
        assert!(answer(SIGNATURE, "nothing").is_err());
    }

    #[test]
    fn a_request_that_a_real_model_rejects_is_rejected() {
        assert!(next_turn(b"{").is_err());
        assert!(asked("").is_err());
        assert!(next_turn(br#"{"contents":[{"parts":[]}]}"#).is_err());
    }

    #[test]
    fn every_event_of_a_stream_is_json_and_the_last_one_stops() {
        let text = String::from_utf8(events(&Turn::Confirm, 7).to_vec()).unwrap();
        let read: Vec<serde_json::Value> = text
            .split_terminator("\r\n\r\n")
            .map(|event| serde_json::from_str(event.strip_prefix("data: ").unwrap()).unwrap())
            .collect();
        assert_eq!(read.len(), WORDS.len());
        assert_eq!(read[WORDS.len() - 1]["candidates"][0]["finishReason"], "STOP");
        assert!(read[0]["candidates"][0].get("finishReason").is_none());
        assert!(serde_json::from_slice::<serde_json::Value>(&whole(&Turn::Call(TOOL.into()), 7)).is_ok());
    }
}
