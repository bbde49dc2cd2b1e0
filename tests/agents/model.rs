//! A model that answers from a script, records the requests it gets, and checks that a provider would have accepted
//! them.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gavel::domain::decision::Usage;
use gavel::domain::journal::{FaultKind, FunctionCall, ModelTurn, Part, Speaker};
use gavel::domain::tool::FailureCode;
use gavel::ports::BoxFuture;
use gavel::ports::clock::Clock;
use gavel::ports::model::{CallMode, Content, Model, ModelEvent, ModelFault, ModelRequest};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::rig::ManualClock;

/// One turn of the model.
#[derive(Clone, Debug, Default)]
pub(crate) struct Say {
    words: String,
    calls: Vec<(String, String)>,
    tokens: u64,
    takes: Duration,
    how: How,
}

#[derive(Clone, Copy, Debug, Default)]
enum How {
    #[default]
    Turn,
    Fault(FaultKind),
    /// Still answering at the deadline.
    Hangs,
    /// Never answers.
    Never,
}

pub(crate) fn words(words: &str) -> Say {
    Say {
        words: words.to_owned(),
        ..Say::default()
    }
}

pub(crate) fn call(name: &str, arguments: Value) -> Say {
    Say::default().and(name, arguments)
}

/// A call with exactly this JSON text as its arguments.
pub(crate) fn call_text(name: &str, arguments: &str) -> Say {
    Say {
        calls: vec![(name.to_owned(), arguments.to_owned())],
        ..Say::default()
    }
}

pub(crate) fn fault(kind: FaultKind) -> Say {
    Say {
        how: How::Fault(kind),
        ..Say::default()
    }
}

pub(crate) fn hangs() -> Say {
    Say {
        how: How::Hangs,
        ..Say::default()
    }
}

pub(crate) fn never_answers() -> Say {
    Say {
        how: How::Never,
        ..Say::default()
    }
}

impl Say {
    /// Adds a call to the same turn.
    pub(crate) fn and(mut self, name: &str, arguments: Value) -> Self {
        self.calls.push((name.to_owned(), arguments.to_string()));
        self
    }

    /// Adds text beside the calls.
    pub(crate) fn saying(self, words: &str) -> Self {
        Self {
            words: words.to_owned(),
            ..self
        }
    }

    /// Takes this long.
    pub(crate) fn after(self, takes: Duration) -> Self {
        Self { takes, ..self }
    }

    /// Costs this many tokens.
    pub(crate) fn costing(self, tokens: u64) -> Self {
        Self { tokens, ..self }
    }
}

/// A request that the model received.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) system: String,
    /// Names and parameter schemas of the offered functions.
    pub(crate) functions: Vec<(String, Value)>,
    /// `auto`, `none`, or the names of the only functions allowed.
    pub(crate) mode: String,
    pub(crate) contents: Vec<Piece>,
    /// Model turns in the contents, plus failed model calls.
    pub(crate) before: usize,
    /// The time limit of the request.
    pub(crate) time: Duration,
    pub(crate) temperature: Option<f64>,
    pub(crate) model: Option<String>,
}

/// The name of a function, and the result of its call.
pub(crate) type Response = (String, Result<Value, (FailureCode, String)>);

/// One content.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Piece {
    User(String),
    Assistant(String),
    Turn(String),
    Responses(Vec<Response>),
}

impl Asked {
    pub(crate) fn names(&self) -> Vec<&str> {
        self.functions.iter().map(|(name, _)| name.as_str()).collect()
    }

    /// The first text, which is the task.
    pub(crate) fn task(&self) -> &str {
        self.users().next().unwrap_or_default()
    }

    /// The last text that is not the model's.
    pub(crate) fn last_words(&self) -> &str {
        self.users().last().unwrap_or_default()
    }

    fn users(&self) -> impl Iterator<Item = &str> {
        self.contents.iter().filter_map(|piece| match piece {
            Piece::User(text) => Some(text.as_str()),
            _ => None,
        })
    }

    /// The responses to the last turn's calls.
    pub(crate) fn responses(&self) -> &[Response] {
        let last = self.contents.iter().rev().find_map(|piece| match piece {
            Piece::Responses(responses) => Some(responses.as_slice()),
            _ => None,
        });
        last.unwrap_or_default()
    }

    /// The failure of each of the last responses; `None` for one that succeeded.
    pub(crate) fn failures(&self) -> Vec<Option<FailureCode>> {
        let outcomes = self.responses().iter();
        outcomes
            .map(|(_, outcome)| outcome.as_ref().err().map(|(code, _)| *code))
            .collect()
    }
}

type Script = Box<dyn Fn(&Asked) -> Say + Send + Sync>;

/// Scripts by system prompt, which in these tests is the agent's name.
pub(crate) struct ScriptedModel {
    clock: Arc<ManualClock>,
    scripts: Mutex<HashMap<String, Arc<Script>>>,
    asked: Mutex<Vec<Asked>>,
    /// Failed calls, by conversation.
    failed: Mutex<HashMap<String, usize>>,
    /// Contents that this model produced: they must come back verbatim.
    said: Mutex<HashSet<String>>,
    invalid: Mutex<Vec<String>>,
    /// Notified when a caller waits for an answer that never comes.
    pub(crate) waited_for: Notify,
}

impl ScriptedModel {
    pub(crate) fn new(clock: Arc<ManualClock>) -> Arc<Self> {
        Arc::new(Self {
            clock,
            scripts: Mutex::default(),
            asked: Mutex::default(),
            failed: Mutex::default(),
            said: Mutex::default(),
            invalid: Mutex::default(),
            waited_for: Notify::new(),
        })
    }

    /// What `agent` answers, turn by turn. The turn is derived from the conversation, so a request that is repeated
    /// after a crash gets the same answer. After the end of the script there is no answer.
    pub(crate) fn script(&self, agent: &str, script: impl IntoIterator<Item = Say>) {
        let script: Vec<_> = script.into_iter().collect();
        self.answers(agent, move |asked| {
            script
                .get(asked.before)
                .cloned()
                .unwrap_or_else(|| fault(FaultKind::Malformed))
        });
    }

    /// What `agent` answers, computed from the request.
    pub(crate) fn answers(&self, agent: &str, script: impl Fn(&Asked) -> Say + Send + Sync + 'static) {
        let script: Script = Box::new(script);
        self.scripts.lock().unwrap().insert(agent.to_owned(), Arc::new(script));
    }

    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }

    pub(crate) fn asked_of(&self, agent: &str) -> Vec<Asked> {
        self.asked().into_iter().filter(|asked| asked.system == agent).collect()
    }

    /// Asserts that a provider would have accepted every request so far.
    pub(crate) fn assert_well_formed(&self) {
        let invalid = self.invalid.lock().unwrap();
        assert!(invalid.is_empty(), "{invalid:#?}");
    }

    fn read(&self, request: &ModelRequest<'_>) -> Asked {
        let mut invalid = well_formed(request);
        let pieces: Vec<_> = request.contents.iter().map(piece).collect();
        let said = self.said.lock().unwrap();
        for piece in &pieces {
            if let Piece::Turn(text) = piece
                && !said.contains(text)
            {
                invalid.push(format!("a turn that the model never made: {text}"));
            }
        }
        drop(said);
        self.invalid.lock().unwrap().extend(invalid);
        let turns = pieces.iter().filter(|piece| matches!(piece, Piece::Turn(_))).count();
        let mut asked = Asked {
            system: request.system.to_owned(),
            functions: request
                .functions
                .declarations
                .iter()
                .map(|one| (one.name.clone(), serde_json::from_str(one.parameters.get()).unwrap()))
                .collect(),
            mode: match request.mode {
                CallMode::Auto => "auto".to_owned(),
                CallMode::None => "none".to_owned(),
                CallMode::Any(names) => names.join(" "),
            },
            contents: pieces,
            before: turns,
            time: request.deadline.saturating_duration_since(self.clock.instant()),
            temperature: request
                .settings
                .temperature
                .map(|value| value.to_string().parse().unwrap()),
            model: request.settings.model.clone(),
        };
        asked.before += self.failed.lock().unwrap().get(&conversation(&asked)).unwrap_or(&0);
        self.asked.lock().unwrap().push(asked.clone());
        asked
    }
}

fn conversation(asked: &Asked) -> String {
    format!("{}\n{}", asked.system, asked.task())
}

fn piece(content: &Content<'_>) -> Piece {
    match content {
        Content::Text(Speaker::User, text) => Piece::User((*text).to_owned()),
        Content::Text(Speaker::Assistant, text) => Piece::Assistant((*text).to_owned()),
        Content::Turn(turn, _) => Piece::Turn(turn.get().to_owned()),
        Content::Responses(responses) => Piece::Responses(
            responses
                .iter()
                .map(|response| {
                    let outcome = match response.outcome {
                        Ok(data) => Ok(serde_json::from_str(data.get()).unwrap()),
                        Err(failure) => Err((failure.code, failure.message.clone())),
                    };
                    (response.name.to_owned(), outcome)
                })
                .collect(),
        ),
    }
}

/// The calls of a turn, as in the provider's content: ids and names.
fn calls_of(turn: &RawValue) -> Vec<(Option<String>, String)> {
    let turn: Value = serde_json::from_str(turn.get()).unwrap();
    let parts = turn["parts"].as_array().cloned().unwrap_or_default();
    parts
        .iter()
        .filter_map(|part| part.get("functionCall"))
        .map(|call| {
            let id = call.get("id").and_then(Value::as_str).map(str::to_owned);
            (id, call["name"].as_str().unwrap().to_owned())
        })
        .collect()
}

/// Why a provider would reject the request, if it would. Every call needs exactly one response. All responses of one
/// turn are alone in one content right after it, and a request ends with text or responses.
fn well_formed(request: &ModelRequest<'_>) -> Vec<String> {
    let mut invalid = Vec::new();
    let mut due: Vec<(Option<String>, String)> = Vec::new();
    for content in request.contents {
        match content {
            Content::Responses(responses) => {
                let given: Vec<_> = responses
                    .iter()
                    .map(|response| (response.id.map(str::to_owned), response.name.to_owned()))
                    .collect();
                if given != due || given.is_empty() {
                    invalid.push(format!("responses {given:?} to the calls {due:?}"));
                }
                due.clear();
            }
            _ if !due.is_empty() => {
                invalid.push(format!("something between the calls {due:?} and their responses"));
                due.clear();
            }
            Content::Text(_, text) if text.trim().is_empty() => invalid.push("a text without words".to_owned()),
            Content::Text(..) => {}
            Content::Turn(turn, _) => due = calls_of(turn),
        }
    }
    if !due.is_empty() {
        invalid.push(format!("no responses to the calls {due:?}"));
    }
    match request.contents.last() {
        None => invalid.push("a request without contents".to_owned()),
        Some(Content::Turn(..) | Content::Text(Speaker::Assistant, _)) => {
            invalid.push("a request that ends with the model's own words".to_owned());
        }
        Some(_) => {}
    }
    let names: Vec<_> = request.functions.declarations.iter().map(|one| &one.name).collect();
    if names.iter().collect::<HashSet<_>>().len() != names.len() {
        invalid.push(format!("functions with one name: {names:?}"));
    }
    if let CallMode::Any(allowed) = request.mode
        && !allowed.iter().all(|name| names.contains(&name))
    {
        invalid.push(format!("{allowed:?} is demanded, and {names:?} is offered"));
    }
    invalid
}

/// A turn as a provider would have written it.
fn turn(say: &Say, number: usize) -> ModelTurn {
    let mut parts = Vec::new();
    let mut content = Vec::new();
    if !say.words.is_empty() || say.calls.is_empty() {
        parts.push(Part::Text(say.words.clone()));
        content.push(json!({"text": say.words}));
    }
    for (n, (name, arguments)) in say.calls.iter().enumerate() {
        // Some models give their calls ids.
        let id = (n % 2 == 0).then(|| format!("{number}-{n}"));
        let mut call = json!({"name": name, "args": serde_json::from_str::<Value>(arguments).unwrap()});
        if let Some(id) = &id {
            call["id"] = id.as_str().into();
        }
        content.push(json!({"functionCall": call, "thoughtSignature": format!("signed {number}")}));
        parts.push(Part::Call(FunctionCall {
            id,
            name: name.clone(),
            args: RawValue::from_string(arguments.clone()).unwrap(),
        }));
    }
    let content = json!({"parts": content, "role": "model"}).to_string();
    ModelTurn {
        content: RawValue::from_string(content).unwrap().into(),
        parts,
        usage: Usage {
            input_tokens: say.tokens,
            ..Usage::default()
        },
        served: gavel::domain::journal::Served::by("scripted-1"),
    }
}

impl Model for ScriptedModel {
    fn generate<'a>(
        &'a self,
        request: ModelRequest<'a>,
        events: Option<&'a mut (dyn FnMut(ModelEvent<'_>) + Send)>,
    ) -> BoxFuture<'a, Result<ModelTurn, ModelFault>> {
        Box::pin(async move {
            let asked = self.read(&request);
            let script = self.scripts.lock().unwrap().get(request.system).cloned();
            let script = script.unwrap_or_else(|| panic!("no script for {:?}", request.system));
            let say = script(&asked);
            let left = request.deadline.saturating_duration_since(self.clock.instant());
            let failed = |kind| {
                *self.failed.lock().unwrap().entry(conversation(&asked)).or_default() += 1;
                ModelFault {
                    kind,
                    detail: "as scripted".to_owned(),
                    usage: Usage::default(),
                    served: Box::default(),
                    said: None,
                }
            };
            match say.how {
                How::Fault(kind) => Err(failed(kind)),
                How::Never => {
                    self.waited_for.notify_one();
                    std::future::pending().await
                }
                How::Turn if say.takes <= left => {
                    self.clock.advance(say.takes);
                    let turn = turn(&say, asked.before);
                    self.said.lock().unwrap().insert(turn.content.get().to_owned());
                    Ok(turn)
                }
                How::Hangs | How::Turn => {
                    if let Some(tell) = events
                        && !say.words.is_empty()
                    {
                        tell(ModelEvent::Delta(&say.words));
                    }
                    self.clock.advance(left);
                    Err(failed(FaultKind::Timeout))
                }
            }
        })
    }

    fn default_model(&self) -> &str {
        "scripted"
    }
}
