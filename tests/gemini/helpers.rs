//! An adapter with short timeouts, and one way to call it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use gavel::adapters::gemini::{Endpoint, Gemini, GeminiConfig, RetrySettings, Timeouts};
use gavel::domain::journal::{FaultKind, ModelTurn, Speaker};
use gavel::ports::model::{
    CallMode, Content, Declaration, Functions, Model, ModelEvent, ModelFault, ModelRequest, ModelSettings,
};
use serde_json::value::RawValue;

pub(crate) const MODEL: &str = "gemini-3.8-flash";
pub(crate) const KEY: &str = "test-key";

/// Long enough that only a hang exceeds it, short enough to wait for.
pub(crate) const SHORT: Duration = Duration::from_millis(150);

pub(crate) fn developer(url: &str) -> GeminiConfig {
    let endpoint = Endpoint::Developer {
        base_url: Some(url.to_owned()),
        api_key: KEY.into(),
    };
    quick(GeminiConfig::new(endpoint, MODEL))
}

pub(crate) fn quick(config: GeminiConfig) -> GeminiConfig {
    GeminiConfig {
        timeouts: Timeouts {
            connect: Duration::from_millis(500),
            first_byte: Duration::from_secs(20),
            idle: Duration::from_secs(20),
            token: Duration::from_secs(5),
        },
        retry: RetrySettings {
            base_delay: Duration::from_millis(1),
            budget_reserve: 100,
            ..RetrySettings::default()
        },
        ..config
    }
}

pub(crate) fn gemini(url: &str) -> Gemini {
    Gemini::new(developer(url)).unwrap()
}

pub(crate) fn raw(json: &str) -> Box<RawValue> {
    RawValue::from_string(json.to_owned()).unwrap()
}

pub(crate) fn functions() -> Arc<Functions> {
    Arc::new(Functions {
        declarations: vec![Declaration {
            name: "add_task".to_owned(),
            description: "Adds a task.".to_owned(),
            parameters: raw(r#"{"type":"object","properties":{"title":{"type":"string"}}}"#),
        }],
        ..Functions::default()
    })
}

/// Marks a thought among the received chunks.
pub(crate) const THOUGHT: &str = "<thought>";

/// A request with everything that tests vary.
pub(crate) struct Question<'a> {
    pub(crate) settings: ModelSettings,
    pub(crate) contents: Vec<Content<'a>>,
    pub(crate) thoughts: bool,
    pub(crate) within: Duration,
}

impl Default for Question<'_> {
    fn default() -> Self {
        Self {
            settings: ModelSettings::default(),
            contents: vec![Content::Text(Speaker::User, "add milk")],
            thoughts: false,
            within: Duration::from_secs(20),
        }
    }
}

impl Question<'_> {
    pub(crate) async fn ask(&self, gemini: &Gemini) -> Result<ModelTurn, ModelFault> {
        self.put(gemini, None).await
    }

    /// Requests a stream; also returns the received chunks, with thoughts marked.
    pub(crate) async fn listen(&self, gemini: &Gemini) -> (Result<ModelTurn, ModelFault>, Vec<String>) {
        let mut received = Vec::new();
        let mut listener = |event: ModelEvent<'_>| {
            received.push(match event {
                ModelEvent::Delta(words) => words.to_owned(),
                ModelEvent::Thought(text) => format!("{THOUGHT}{text}"),
                ModelEvent::Reset => "<reset>".to_owned(),
            });
        };
        let answer = self.put(gemini, Some(&mut listener)).await;
        (answer, received)
    }

    async fn put(
        &self,
        gemini: &Gemini,
        events: Option<&mut (dyn FnMut(ModelEvent<'_>) + Send)>,
    ) -> Result<ModelTurn, ModelFault> {
        let functions = functions();
        let request = ModelRequest {
            settings: &self.settings,
            system: "Be useful.",
            functions: &functions,
            contents: &self.contents,
            mode: &CallMode::Auto,
            holder: ("t", "u"),
            thoughts: self.thoughts,
            deadline: Instant::now() + self.within,
        };
        // Outside of the Option the listener's lifetime can be shortened to the request's.
        match events {
            Some(listener) => gemini.generate(request, Some(listener)).await,
            None => gemini.generate(request, None).await,
        }
    }
}

pub(crate) async fn ask(gemini: &Gemini) -> Result<ModelTurn, ModelFault> {
    Question::default().ask(gemini).await
}

pub(crate) async fn listen(gemini: &Gemini) -> (Result<ModelTurn, ModelFault>, Vec<String>) {
    Question::default().listen(gemini).await
}

/// A reply with these parts and a finish reason; `rest` is more of the candidate.
pub(crate) fn reply(parts: &str, finish: &str, rest: &str) -> String {
    format!(
        r#"{{"candidates":[{{"content":{{"role":"model","parts":[{parts}]}},"finishReason":"{finish}"{rest}}}],{USAGE}}}"#
    )
}

/// A chunk without a finish reason.
pub(crate) fn chunk(parts: &str) -> String {
    format!(r#"{{"candidates":[{{"content":{{"role":"model","parts":[{parts}]}}}}]}}"#)
}

pub(crate) const USAGE: &str =
    r#""usageMetadata":{"promptTokenCount":10,"candidatesTokenCount":3,"thoughtsTokenCount":2}"#;

pub(crate) fn said(words: &str) -> String {
    reply(&format!(r#"{{"text":"{words}"}}"#), "STOP", "")
}

/// A Google error body.
pub(crate) fn error(code: u16, status: &str, details: &str) -> String {
    format!(r#"{{"error":{{"code":{code},"message":"It went wrong.","status":"{status}","details":[{details}]}}}}"#)
}

/// The fault must be of this kind, and its detail must contain these words.
#[track_caller]
pub(crate) fn assert_fault(
    answer: Result<ModelTurn, ModelFault>,
    kind: FaultKind,
    words: &str,
    attempts: u32,
) -> ModelFault {
    let fault = answer.expect_err("this cannot be a turn");
    assert_eq!((fault.kind, fault.served.attempts), (kind, attempts), "{fault:?}");
    assert!(fault.detail.contains(words), "{:?} lacks {words:?}", fault.detail);
    fault
}
