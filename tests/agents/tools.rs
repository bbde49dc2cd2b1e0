//! Tools with scripted behavior, and a log of their effects.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use gavel::domain::argument_path::ArgumentPath;
use gavel::domain::journal::CallFailure;
use gavel::domain::tool::{FailureCode, Idempotency, Tool};
use gavel::ports::BoxFuture;
use gavel::ports::tools::{CallReply, CallRequest, Catalog, Tools};
use serde_json::Value;
use tokio::sync::Notify;

use crate::rig::ManualClock;

/// What a tool does with a call.
#[derive(Clone, Debug)]
pub(crate) enum Does {
    /// Returns this.
    Answers(Value),
    /// Reports an error and has no effect.
    Fails(&'static str),
    /// Has its effect, and the answer is lost.
    LosesTheAnswer,
    /// As `LosesTheAnswer`, after this long.
    LosesTheAnswerAfter(Duration),
    /// The call is lost on its way, and the caller does not know.
    IsLost,
    /// The server is unreachable.
    IsAway,
    /// Still running when its time ends.
    Hangs,
    /// Never answers.
    Never,
    /// Answers after this long.
    Takes(Duration),
    /// Answers when the test releases it with `continues`.
    Waits,
    /// Is lost when the test releases it, without an effect.
    WaitsAndIsLost,
}

/// A call as the server received it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sent {
    pub(crate) tool: String,
    pub(crate) arguments: String,
    pub(crate) key: String,
    pub(crate) run: String,
    /// From the call itself, in microseconds.
    pub(crate) first_attempt_us: Option<i64>,
    pub(crate) timeout: Duration,
}

/// The tools of one server.
pub(crate) struct ScriptedTools {
    clock: Arc<ManualClock>,
    catalog: Mutex<Arc<Catalog>>,
    scripts: Mutex<HashMap<String, VecDeque<Does>>>,
    sent: Mutex<Vec<Sent>>,
    /// Tool and arguments of each effect, in order.
    effects: Mutex<Vec<(String, String)>>,
    keys: Mutex<HashSet<String>>,
    /// A tool that has changed, which no process has read yet.
    unread: Mutex<Option<String>>,
    /// Notified when a call starts that never ends, or that the test releases.
    pub(crate) waited_for: Notify,
    pub(crate) continues: Notify,
}

impl ScriptedTools {
    /// `read` and `look` only read. `send` has an effect each time, `book` once per key, `put` the same effect however
    /// often it is called. `mail`, `letter` (`mail` with a key) and `peek` (only reads) name their recipients in `to`; a
    /// grant covers any `n`.
    pub(crate) fn new(clock: Arc<ManualClock>) -> Arc<Self> {
        let tools = [
            ("read", false, Idempotency::None),
            ("look", false, Idempotency::None),
            ("complete_task", false, Idempotency::None),
            ("send", true, Idempotency::None),
            ("book", true, Idempotency::Key),
            ("put", true, Idempotency::Natural),
        ];
        let tools = tools.map(|(name, side_effect, idempotency)| tool(name, side_effect, idempotency));
        let mails = [
            ("mail", true, Idempotency::None),
            ("letter", true, Idempotency::Key),
            ("peek", false, Idempotency::None),
        ];
        let mails = mails.map(|(name, side_effect, idempotency)| {
            let mut mail = tool(name, side_effect, idempotency);
            let path = |text: &str| vec![ArgumentPath::parse(text).unwrap()];
            let settings = &mut Arc::get_mut(&mut mail).unwrap().settings;
            (settings.recipients, settings.free_arguments) = (path("to"), path("n"));
            mail
        });
        let catalog = Catalog {
            generation: 1,
            tools: tools.into_iter().chain(mails).collect(),
            ..Catalog::default()
        };
        Arc::new(Self {
            clock,
            catalog: Mutex::new(Arc::new(catalog)),
            scripts: Mutex::default(),
            sent: Mutex::default(),
            effects: Mutex::default(),
            keys: Mutex::default(),
            unread: Mutex::default(),
            waited_for: Notify::new(),
            continues: Notify::new(),
        })
    }

    /// What a tool does with its next calls. After those it succeeds.
    pub(crate) fn script(&self, tool: &str, does: impl IntoIterator<Item = Does>) {
        self.scripts
            .lock()
            .unwrap()
            .insert(tool.to_owned(), does.into_iter().collect());
    }

    /// The tool is no longer offered.
    pub(crate) fn withdraw(&self, name: &str) {
        self.offer_instead(name, None);
    }

    /// A tool with effects is offered again, unchanged.
    pub(crate) fn bring_back(&self, name: &str, idempotency: Idempotency) {
        self.offer_instead(name, Some(tool(name, true, idempotency)));
    }

    /// The tool changes under the same name.
    pub(crate) fn redefine(&self, name: &str) {
        let mut tool = tool(name, true, Idempotency::Key);
        Arc::get_mut(&mut tool).unwrap().digest = "another digest".into();
        self.offer_instead(name, Some(tool));
    }

    /// As `redefine`, and no process knows of it until it asks the server.
    pub(crate) fn redefine_unnoticed(&self, name: &str) {
        *self.unread.lock().unwrap() = Some(name.to_owned());
    }

    fn offer_instead(&self, name: &str, tool: Option<Arc<Tool>>) {
        let mut catalog = self.catalog.lock().unwrap();
        let others = catalog.tools.iter().filter(|tool| tool.name.as_ref() != name);
        let changed = Catalog {
            generation: catalog.generation + 1,
            tools: others.cloned().chain(tool).collect(),
            ..Catalog::default()
        };
        *catalog = Arc::new(changed);
    }

    pub(crate) fn sent(&self) -> Vec<Sent> {
        self.sent.lock().unwrap().clone()
    }

    /// How often a tool was called.
    pub(crate) fn calls(&self, tool: &str) -> usize {
        self.sent().iter().filter(|sent| sent.tool == tool).count()
    }

    pub(crate) fn effects(&self) -> Vec<(String, String)> {
        self.effects.lock().unwrap().clone()
    }

    fn have_effect(&self, request: &CallRequest<'_>) {
        let effect = (request.tool.name.to_string(), request.arguments.get().to_owned());
        let mut effects = self.effects.lock().unwrap();
        let known = match request.tool.idempotency {
            Idempotency::None => false,
            Idempotency::Natural => effects.contains(&effect),
            Idempotency::Key => !self.keys.lock().unwrap().insert(request.idempotency_key.to_owned()),
        };
        if request.tool.side_effect && !known {
            effects.push(effect);
        }
    }
}

fn tool(name: &str, side_effect: bool, idempotency: Idempotency) -> Arc<Tool> {
    Arc::new(Tool {
        description: format!("{name}s"),
        side_effect,
        idempotency,
        timeout: Duration::from_secs(20),
        digest: format!("digest of {name}").into(),
        ..Tool::named("desk", name)
    })
}

fn failure(code: FailureCode, message: &str) -> CallFailure {
    CallFailure::new(code, message)
}

impl Tools for ScriptedTools {
    fn catalog(&self) -> Arc<Catalog> {
        Arc::clone(&self.catalog.lock().unwrap())
    }

    fn ready<'a>(&'a self, _names: &'a [String], _deadline: Instant) -> BoxFuture<'a, ()> {
        Box::pin(std::future::ready(()))
    }

    fn refresh_server<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<(), String>> {
        if let Some(name) = self.unread.lock().unwrap().take() {
            self.redefine(&name);
        }
        Box::pin(async { Ok(()) })
    }

    fn call<'a>(&'a self, request: CallRequest<'a>) -> BoxFuture<'a, CallReply> {
        Box::pin(async move {
            let name = request.tool.name.to_string();
            let does = self
                .scripts
                .lock()
                .unwrap()
                .get_mut(&name)
                .and_then(VecDeque::pop_front);
            let does = does.unwrap_or(Does::Answers(Value::from("done")));
            if !matches!(does, Does::IsAway) {
                self.sent.lock().unwrap().push(Sent {
                    tool: name,
                    arguments: request.arguments.get().to_owned(),
                    key: request.idempotency_key.to_owned(),
                    run: request.run_id.to_owned(),
                    first_attempt_us: request.first_attempt_us,
                    timeout: request.timeout,
                });
            }
            let answer = |value: Value| CallReply::Data(serde_json::value::to_raw_value(&value).unwrap().into());
            match does {
                Does::Answers(value) => {
                    self.have_effect(&request);
                    answer(value)
                }
                Does::Takes(time) if time < request.timeout => {
                    self.clock.advance(time);
                    self.have_effect(&request);
                    answer(Value::from("done"))
                }
                Does::Takes(_) | Does::Hangs => {
                    self.clock.advance(request.timeout);
                    self.have_effect(&request);
                    CallReply::Unknown(failure(FailureCode::Timeout, "no answer in time"))
                }
                Does::Waits => {
                    self.waited_for.notify_one();
                    self.continues.notified().await;
                    self.have_effect(&request);
                    answer(Value::from("done"))
                }
                Does::Fails(message) => CallReply::Failed(failure(FailureCode::ToolError, message)),
                Does::LosesTheAnswer => {
                    self.have_effect(&request);
                    CallReply::Unknown(failure(FailureCode::ProtocolError, "the connection was lost"))
                }
                Does::LosesTheAnswerAfter(time) => {
                    self.clock.advance(time);
                    self.have_effect(&request);
                    CallReply::Unknown(failure(FailureCode::ProtocolError, "the connection was lost"))
                }
                Does::IsLost => CallReply::Unknown(failure(FailureCode::ProtocolError, "the connection was lost")),
                Does::WaitsAndIsLost => {
                    self.waited_for.notify_one();
                    self.continues.notified().await;
                    CallReply::Unknown(failure(FailureCode::ProtocolError, "the connection was lost"))
                }
                Does::IsAway => CallReply::NotSent(failure(FailureCode::Unavailable, "the server is unavailable")),
                Does::Never => {
                    self.have_effect(&request);
                    self.waited_for.notify_one();
                    std::future::pending().await
                }
            }
        })
    }
}
