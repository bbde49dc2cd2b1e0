//! The journal of a run: its whole state.
//!
//! Provider requests, log rows, streams and spans are projections of these entries. The entries of an agent's run are
//! stored as one JSON text each. A journal that is read back leads to the same next step.

mod result;
mod turn;

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::action::Details;
use super::agent_run::StopReason;
use super::decision::{Outcome, Usage};
use super::ids::{ActionId, RunId};
use super::names::names;
use super::policy::{DecidedBy, Lost};
use super::reflection::Reflection;
use super::tool::{FailureCode, Tool};
pub use result::{CallFailure, CallResult, OwnError, WordsOf};
pub use turn::{FaultKind, FunctionCall, ModelTurn, Part, Served};

/// The speaker of an earlier line of the conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Speaker {
    /// The user.
    User,
    /// The service, as plain text.
    Assistant,
}

/// A call that the model proposed, with its position in the run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Proposed {
    /// gavel's id; the provider's id is in `call`.
    pub id: ActionId,
    /// 1, 2, 3 … across the run.
    pub sequence: u32,
    /// The call as the model wrote it.
    pub call: FunctionCall,
    /// The target.
    pub target: Target,
}

impl Proposed {
    /// A call of a tool that no model has proposed, for asking the policy about it.
    pub fn of(tool: &Arc<Tool>, arguments: Box<RawValue>) -> Self {
        Self {
            id: ActionId::new(),
            sequence: 1,
            call: FunctionCall {
                id: None,
                name: tool.name.to_string(),
                args: arguments,
            },
            target: Target::Tool(Arc::clone(tool)),
        }
    }
}

/// May the model call functions?
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallMode {
    /// The model decides.
    Auto,
    /// Text only.
    None,
    /// The model must call one of these.
    Any(Vec<String>),
}

/// Why the engine says something to the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// The run is resumed.
    Resumed,
    /// The model ended with text where its structured output is required. The engine asks for the output, once.
    OutputDue,
    /// The next phase of a step begins.
    Phase {
        /// Which phase.
        phase: Phase,
        /// Is the phase asked for a second time, since the first answer was unusable?
        again: bool,
        /// The first eight bytes of the SHA-256 of its template, as a number.
        template: u64,
    },
    /// A limit was reached. The engine asks the model for a summary, with one last call.
    Limit {
        /// The limit.
        reason: StopReason,
        /// Elapsed time of the run, in microseconds.
        elapsed_us: i64,
    },
}

names! {
    /// A phase of a step of a task.
    Phase {
        /// The model says in text what to do next, and why.
        Reason = "reason",
        /// It calls one function.
        Act = "act",
        /// It says what the result showed.
        Reflect = "reflect",
    }
}

/// The function with which a model returns its output.
pub const COMPLETE_TASK: &str = "complete_task";

/// One entry of a journal.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Entry {
    /// The user's message.
    User(String),
    /// A turn of the model.
    ModelTurn {
        /// The turn, verbatim and parsed.
        turn: ModelTurn,
        /// Its calls with their targets.
        calls: Vec<Proposed>,
    },
    /// The model call failed, after all retries.
    ModelFault {
        /// The kind of failure.
        kind: FaultKind,
        /// Tokens that were used all the same.
        usage: Usage,
        /// How the model call was served.
        served: Served,
        /// The text of the model's turn so far, if the turn was cut or the time limit interrupted it.
        said: Option<String>,
    },
    /// The policy's decision on a call.
    Decided {
        /// The call.
        call: ActionId,
        /// The decision.
        decision: PolicyDecision,
        /// What matched the call and did not decide.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        lost: Vec<Lost>,
    },
    /// An approver's answer for a call, or that none came in time.
    ApprovalResolved {
        /// The call.
        call: ActionId,
        /// Whether it may run.
        approved: bool,
        /// The approver; `None` if the approval request expired.
        by: Option<String>,
        /// Why not: the approver's reason.
        reason: Option<String>,
        /// When approval was requested, and when that was resolved; microseconds since the epoch.
        waited: (i64, i64),
    },
    /// The call is about to be sent. The intent of a side effect is already durable.
    Started {
        /// The call.
        call: ActionId,
        /// Microseconds since the epoch.
        at_us: i64,
        /// The run of the called agent.
        child: Option<RunId>,
    },
    /// The result of a call. Each call has exactly one; `InDoubt` is one of its failure codes.
    Result {
        /// The call.
        call: ActionId,
        /// The result.
        result: CallResult,
    },
    /// The next step of a flow: a call that comes from the definition, not from a model.
    Step {
        /// The step, counted from 0; always 0 in a loop without steps.
        step: u32,
        /// The round, counted from 1.
        round: u32,
        /// The call.
        call: Proposed,
    },
    /// The engine says something to the model.
    Prompted {
        /// The text.
        text: String,
        /// May the model call functions, until the next entry of this kind?
        mode: CallMode,
        /// Why.
        cause: Cause,
    },
    /// The process that ran it was shut down in an orderly way, between two steps.
    Halted,
    /// The run waits for an approver; a worker continues it after the answer.
    Suspended,
    /// A person settled a call in doubt of a run that this one called.
    OutcomeSettled {
        /// The call.
        call: ActionId,
        /// Did it have its effect?
        happened: bool,
        /// The person's name.
        by: String,
    },
    /// Another process continues the run, because the previous one died.
    Recovered,
    /// The paused run was resumed. Its limits count from here.
    Resumed {
        /// Model calls until then; for a flow, those of its steps.
        steps: u32,
        /// Their tokens.
        usage: Usage,
    },
}

/// Approximate size of an entry without its texts, in bytes.
const ENTRY: usize = 256;

/// What an entry says of a call that an earlier one proposed.
#[derive(Clone, Copy, Debug)]
pub enum CallNews<'a> {
    /// The policy decided on it.
    Decided(&'a PolicyDecision),
    /// Its approval request is resolved.
    Resolved,
    /// It is about to be sent.
    Started {
        /// Microseconds since the epoch.
        at_us: i64,
        /// The run of the called agent.
        child: Option<RunId>,
    },
    /// It has a result.
    Result(&'a CallResult),
}

/// What the model sees of an entry, besides the results of its calls.
#[derive(Clone, Copy, Debug)]
pub enum Line<'a> {
    /// The user's message.
    User(&'a str),
    /// A turn of its own, with its calls.
    Turn(&'a ModelTurn, &'a [Proposed]),
    /// Its own text, of a turn that was cut.
    Cut(&'a str),
    /// The engine's text, which comes after the responses to its calls.
    Notice(&'a str),
}

impl Entry {
    /// The result of a call that failed without being sent.
    pub fn failed(call: ActionId, code: FailureCode, message: impl Into<String>) -> Self {
        Self::Result {
            call,
            result: CallResult::not_sent(code, message),
        }
    }

    /// What it says of a call, if it is about one.
    pub fn news(&self) -> Option<(ActionId, CallNews<'_>)> {
        match self {
            Self::Decided { call, decision, .. } => Some((*call, CallNews::Decided(decision))),
            Self::ApprovalResolved { call, .. } => Some((*call, CallNews::Resolved)),
            &Self::Started { call, at_us, child } => Some((call, CallNews::Started { at_us, child })),
            Self::Result { call, result } => Some((*call, CallNews::Result(result))),
            Self::User(_)
            | Self::ModelTurn { .. }
            | Self::ModelFault { .. }
            | Self::Step { .. }
            | Self::Prompted { .. }
            | Self::Halted
            | Self::Suspended
            | Self::OutcomeSettled { .. }
            | Self::Recovered
            | Self::Resumed { .. } => None,
        }
    }

    /// What the model sees of it.
    pub fn line(&self) -> Option<Line<'_>> {
        match self {
            Self::User(text) => Some(Line::User(text)),
            Self::ModelTurn { turn, calls } => Some(Line::Turn(turn, calls)),
            Self::ModelFault { said, .. } => said.as_deref().map(Line::Cut),
            Self::Prompted { text, .. } => Some(Line::Notice(text)),
            Self::Decided { .. }
            | Self::ApprovalResolved { .. }
            | Self::Started { .. }
            | Self::Result { .. }
            | Self::Step { .. }
            | Self::Halted
            | Self::Suspended
            | Self::OutcomeSettled { .. }
            | Self::Recovered
            | Self::Resumed { .. } => None,
        }
    }

    /// Approximate memory size in bytes: its texts plus a constant.
    pub fn size(&self) -> usize {
        let line = match self.line() {
            Some(Line::User(text) | Line::Cut(text) | Line::Notice(text)) => text.len(),
            Some(Line::Turn(turn, _)) => turn.content.get().len(),
            None => 0,
        };
        let calls = self.calls().iter().map(|call| call.call.args.get().len());
        let news = match self.news() {
            Some((_, CallNews::Decided(decision))) => match decision {
                PolicyDecision::Allow { arguments, .. } | PolicyDecision::RequireApproval { arguments, .. } => {
                    arguments.get().len()
                }
                PolicyDecision::Refuse { message, .. } => message.len(),
            },
            Some((_, CallNews::Result(result))) => match &result.outcome {
                Ok(data) => data.get().len(),
                Err(failure) => failure.message.len(),
            },
            Some((_, CallNews::Resolved | CallNews::Started { .. })) | None => 0,
        };
        ENTRY + line + calls.sum::<usize>() + news
    }

    /// What matched the call that it decides on, and did not decide.
    pub fn lost(&self) -> &[Lost] {
        match self {
            Self::Decided { lost, .. } => lost,
            _ => &[],
        }
    }

    /// The call that starts with it.
    pub fn started(&self) -> Option<ActionId> {
        match self.news()? {
            (call, CallNews::Started { .. }) => Some(call),
            _ => None,
        }
    }

    /// The result of a call.
    pub fn result(&self) -> Option<(ActionId, &CallResult)> {
        match self.news()? {
            (call, CallNews::Result(result)) => Some((call, result)),
            _ => None,
        }
    }

    /// Does it bring the run further? What a process adds when it takes a run over does not.
    pub fn is_progress(&self) -> bool {
        self.turn().is_some() || self.result().is_some()
    }

    /// The turn of the model, with its calls.
    pub fn turn(&self) -> Option<(&ModelTurn, &[Proposed])> {
        match self {
            Self::ModelTurn { turn, calls } => Some((turn, calls)),
            _ => None,
        }
    }

    /// What the model call used that it ends, and how it was served, usable or not.
    pub fn model_call(&self) -> Option<(&Usage, &Served)> {
        match self {
            Self::ModelTurn { turn, .. } => Some((&turn.usage, &turn.served)),
            Self::ModelFault { usage, served, .. } => Some((usage, served)),
            _ => None,
        }
    }

    /// From when until when it was waited for a person; microseconds since the epoch.
    pub const fn waited(&self) -> Option<(i64, i64)> {
        match self {
            Self::ApprovalResolved { waited, .. } => Some(*waited),
            _ => None,
        }
    }

    /// Why the engine says something to the model.
    pub const fn cause(&self) -> Option<&Cause> {
        match self {
            Self::Prompted { cause, .. } => Some(cause),
            _ => None,
        }
    }

    /// The phase of a step that begins, and whether the model is asked for it again.
    pub const fn phase(&self) -> Option<(Phase, bool)> {
        match self.cause() {
            Some(Cause::Phase { phase, again, .. }) => Some((*phase, *again)),
            _ => None,
        }
    }

    /// Does a step of a task begin?
    pub const fn begins_step(&self) -> bool {
        matches!(self.phase(), Some((Phase::Reason, false)))
    }

    /// How a person settled a call in doubt of a run below this one: did it happen?
    pub const fn settled(&self) -> Option<(ActionId, bool)> {
        match self {
            Self::OutcomeSettled { call, happened, .. } => Some((*call, *happened)),
            _ => None,
        }
    }

    /// The calls that this entry proposes.
    pub fn calls(&self) -> &[Proposed] {
        match self {
            Self::ModelTurn { calls, .. } => calls,
            Self::Step { call, .. } => std::slice::from_ref(call),
            _ => &[],
        }
    }

    /// The step of a flow that begins, from 0, and its round, from 1.
    pub const fn step(&self) -> Option<(u32, u32)> {
        match self {
            Self::Step { step, round, .. } => Some((*step, *round)),
            _ => None,
        }
    }
}

// The policy's decision on one call.

/// The policy's decision on one call.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PolicyDecision {
    /// It may run, with exactly these canonical arguments.
    Allow {
        /// Identity injected, checked, canonical.
        arguments: Arc<RawValue>,
        /// What approved it; `None` if no approval was required.
        by: Option<DecidedBy>,
    },
    /// An approver must approve it first.
    RequireApproval {
        /// Identity injected, checked, canonical.
        arguments: Arc<RawValue>,
        /// What requires the approval.
        by: Vec<DecidedBy>,
        /// What the approver should know.
        details: Details,
    },
    /// It must not run.
    Refuse {
        /// Why: a code from the closed list.
        code: FailureCode,
        /// Why, as text for the model and the logs.
        message: String,
        /// The part of the policy that decided it; empty if the call itself was invalid.
        by: Vec<DecidedBy>,
    },
}

// The target of a call, as it is used and as it is stored.

/// The target of a call: decided by the functions that the model was offered, never by the bare name alone.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(from = "StoredTarget", into = "StoredTarget")]
pub enum Target {
    /// A tool on the allowlist.
    Tool(Arc<Tool>),
    /// Such a tool as an earlier process stored it. It becomes `Tool` again once the same tool is found.
    Unresolved(ToolRef),
    /// Another agent.
    Agent(Arc<str>),
    /// A function that the engine answers itself; `Err` holds why its arguments are invalid.
    Verdict(Result<Verdict, String>),
    /// A name that the model was not offered.
    Unknown,
}

impl Target {
    /// The tool, if it is one of the toolset.
    pub fn tool(&self) -> Option<&Arc<Tool>> {
        match self {
            Self::Tool(tool) => Some(tool),
            Self::Unresolved(_) | Self::Agent(_) | Self::Verdict(_) | Self::Unknown => None,
        }
    }
}

/// The part of a tool that a journal stores.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolRef {
    /// The server's name in `mcp.json`.
    pub server: Arc<str>,
    /// The name on that server.
    pub name: Arc<str>,
    /// Digest of its definition.
    pub digest: Arc<str>,
    /// Whether a call can change something.
    pub side_effect: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum StoredTarget {
    Tool(ToolRef),
    Agent(Arc<str>),
    Verdict(Verdict),
    InvalidVerdict(String),
    Unknown,
}

impl From<&Tool> for ToolRef {
    fn from(tool: &Tool) -> Self {
        Self {
            server: Arc::clone(&tool.server),
            name: Arc::clone(&tool.name),
            digest: Arc::clone(&tool.digest),
            side_effect: tool.side_effect,
        }
    }
}

impl From<Target> for StoredTarget {
    fn from(target: Target) -> Self {
        match target {
            Target::Tool(tool) => Self::Tool(ToolRef::from(&*tool)),
            Target::Unresolved(tool) => Self::Tool(tool),
            Target::Agent(name) => Self::Agent(name),
            Target::Verdict(Ok(verdict)) => Self::Verdict(verdict),
            Target::Verdict(Err(error)) => Self::InvalidVerdict(error),
            Target::Unknown => Self::Unknown,
        }
    }
}

impl From<StoredTarget> for Target {
    fn from(stored: StoredTarget) -> Self {
        match stored {
            StoredTarget::Tool(tool) => Self::Unresolved(tool),
            StoredTarget::Agent(name) => Self::Agent(name),
            StoredTarget::Verdict(verdict) => Self::Verdict(Ok(verdict)),
            StoredTarget::InvalidVerdict(error) => Self::Verdict(Err(error)),
            StoredTarget::Unknown => Self::Unknown,
        }
    }
}

/// How the model ended its turn by a verdict function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// `request_clarification {question, kind}`.
    Clarify {
        /// The question for the user.
        question: String,
        /// `UNCLEAR_INTENT` or `MULTIPLE_MATCHES`.
        outcome: Outcome,
    },
    /// `refuse {message, kind}`.
    Refuse {
        /// The reason, for the user.
        message: String,
        /// `OUT_OF_SCOPE` or `MISSING_PERMISSION`.
        outcome: Outcome,
    },
    /// `complete_task`, or `exit_loop`.
    Complete {
        /// The output.
        output: Completion,
        /// Whether this ends the loop that the agent is a step of.
        exits_loop: bool,
    },
    /// `reflect`: what the model says about a step of a task. It ends the run only if the task ends with it.
    Reflect(Box<Reflection>),
}

/// The output of an agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Completion {
    /// JSON that conforms to the agent's output schema.
    Output(Arc<str>),
    /// Text, from an agent without an output schema.
    Text(String),
}

#[cfg(test)]
mod tests;
