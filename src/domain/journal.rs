//! The journal of a run: its whole state (DESIGN.md section 2).
//!
//! Provider requests, log rows, streams and spans are projections of these entries.

use std::sync::Arc;

use serde_json::value::RawValue;

use super::decision::{Outcome, Usage};
use super::ids::ActionId;
use super::tool::{FailureCode, Tool};

/// Who said an earlier line of the conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speaker {
    /// The person.
    User,
    /// The service, as plain text.
    Assistant,
}

/// A piece of what a model said, as far as gavel reads it.
#[derive(Clone, Debug)]
pub enum Part {
    /// Words for the person.
    Text(String),
    /// A summary of the model's thinking.
    Thought(String),
    /// A function call.
    Call(FunctionCall),
    /// Anything else; kept only in the verbatim content.
    Other,
}

/// A function call as the model wrote it.
#[derive(Clone, Debug)]
pub struct FunctionCall {
    /// The provider's id, when it issued one: echoed if and only if it did (WIRE.md section 4).
    pub id: Option<String>,
    /// The name the model used.
    pub name: String,
    /// A JSON object; `{}` when the model gave none.
    pub args: Box<RawValue>,
}

/// One complete answer of a model.
#[derive(Clone, Debug)]
pub struct ModelTurn {
    /// The provider's content object, verbatim: it is echoed as it came.
    pub content: Arc<RawValue>,
    /// The same content, read.
    pub parts: Vec<Part>,
    /// Tokens of this call.
    pub usage: Usage,
    /// The model that answered, as the provider names it.
    pub model: String,
}

impl ModelTurn {
    /// The calls in order.
    pub fn calls(&self) -> impl Iterator<Item = &FunctionCall> {
        self.parts.iter().filter_map(|part| match part {
            Part::Call(call) => Some(call),
            _ => None,
        })
    }

    /// The words for the person, joined.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        for part in &self.parts {
            if let Part::Text(piece) = part {
                text.push_str(piece);
            }
        }
        text
    }
}

/// Where a call goes, decided by what was offered, never by its bare name.
#[derive(Clone, Debug)]
pub enum Target {
    /// A granted tool.
    Tool(Arc<Tool>),
    /// A function that the engine answers itself; `Err` holds why its arguments do not fit.
    Verdict(Result<Verdict, String>),
    /// Nothing that was offered.
    Unknown,
}

/// How the model ended its turn by a verdict function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// `request_clarification {question, kind}`.
    Clarify {
        /// The question for the person.
        question: String,
        /// `UNCLEAR_INTENT` or `MULTIPLE_MATCHES`.
        outcome: Outcome,
    },
    /// `refuse {message, kind}`.
    Refuse {
        /// The reason, for the person.
        message: String,
        /// `OUT_OF_SCOPE` or `MISSING_PERMISSION`.
        outcome: Outcome,
    },
}

/// A call the model proposed, with its place.
#[derive(Clone, Debug)]
pub struct Proposed {
    /// Ours; the provider's id is in `call`.
    pub id: ActionId,
    /// 1, 2, 3 … over the run.
    pub sequence: u32,
    /// As the model wrote it.
    pub call: FunctionCall,
    /// Where it goes.
    pub target: Target,
}

/// The gate's answer for one call.
#[derive(Clone, Debug)]
pub enum Judgement {
    /// It may run, with exactly these canonical arguments.
    Allow {
        /// Identity injected, checked, canonical.
        arguments: Arc<RawValue>,
    },
    /// A person must agree first.
    RequireApproval {
        /// Identity injected, checked, canonical.
        arguments: Arc<RawValue>,
        /// Why it needs leave.
        reason: String,
    },
    /// It does not run.
    Refuse {
        /// Why, from the closed list.
        code: FailureCode,
        /// Why, for the model and the record.
        message: String,
    },
}

/// What came of a call.
#[derive(Clone, Debug)]
pub struct CallResult {
    /// The tool's data on success (JSON), or the failure.
    pub outcome: Result<Arc<RawValue>, CallFailure>,
    /// Did it leave this process, or may it have? A call that was started need not have: its server was away, say.
    pub sent: bool,
    /// From its start to the answer, in microseconds; 0 when it was not started.
    pub duration_us: i64,
}

/// A failed call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallFailure {
    /// Why, from the closed list.
    pub code: FailureCode,
    /// Why, in words. They may be the server's: untrusted data, but for the codes whose words are all gavel's own.
    pub message: String,
}

/// Why a model call gave no turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FaultKind {
    /// Not reached, refused, or an error answer, after retries.
    Unavailable,
    /// Too slow.
    Timeout,
    /// Cut, empty, invalid or unknown.
    Malformed,
    /// The provider blocked the prompt or the answer.
    Blocked,
}

impl FaultKind {
    /// Its name in meters and traces.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unavailable => "unavailable",
            Self::Timeout => "timeout",
            Self::Malformed => "malformed",
            Self::Blocked => "blocked",
        }
    }
}

/// One entry.
#[derive(Clone, Debug)]
pub enum Entry {
    /// What the person said.
    User(String),
    /// What the model said.
    ModelTurn {
        /// The turn, verbatim and read.
        turn: ModelTurn,
        /// Its calls, routed.
        calls: Vec<Proposed>,
    },
    /// The model call failed for good.
    ModelFault {
        /// How.
        kind: FaultKind,
        /// Tokens spent all the same.
        usage: Usage,
    },
    /// The gate's answer for a call.
    Judged {
        /// Which call.
        call: ActionId,
        /// The answer.
        judgement: Judgement,
    },
    /// A person's answer for a call.
    Settled {
        /// Which call.
        call: ActionId,
        /// Whether it may run.
        approved: bool,
        /// Why not, in the person's words.
        reason: Option<String>,
    },
    /// The call is about to be sent; for a side effect its intent is durable.
    Started {
        /// Which call.
        call: ActionId,
        /// Microseconds since the epoch.
        at_us: i64,
    },
    /// What came of a call. Exactly one for each call; `InDoubt` is one of its failure codes.
    Result {
        /// Which call.
        call: ActionId,
        /// What came of it.
        result: CallResult,
    },
    /// A word from the engine to the model.
    Notice(String),
}
