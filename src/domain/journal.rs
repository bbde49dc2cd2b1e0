//! The journal of a run: its whole state (DESIGN.md section 2).
//!
//! Provider requests, log rows, streams and spans are projections of these entries. Those of an agent's run are kept
//! as JSON, one text for each, and what is read back leads to the same next step.

use std::borrow::Cow;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::action::in_words;
use super::address::Recipients;
use super::agent_run::StopReason;
use super::decision::{Outcome, Usage};
use super::ids::{ActionId, RunId};
use super::policy::DecidedBy;
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
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
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
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FunctionCall {
    /// The provider's id, when it issued one: echoed if and only if it did (WIRE.md section 4).
    pub id: Option<String>,
    /// The name the model used.
    pub name: String,
    /// A JSON object; `{}` when the model gave none.
    pub args: Box<RawValue>,
}

/// One complete answer of a model.
#[derive(Clone, Debug, Serialize, Deserialize)]
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
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(from = "StoredTarget", into = "StoredTarget")]
pub enum Target {
    /// A granted tool.
    Tool(Arc<Tool>),
    /// A granted tool of an earlier process, as it was then. It is a tool again once it is found as it was.
    Gone(ToolRef),
    /// Another agent.
    Agent(Arc<str>),
    /// A function that the engine answers itself; `Err` holds why its arguments do not fit.
    Verdict(Result<Verdict, String>),
    /// Nothing that was offered.
    Unknown,
}

/// What a journal keeps of a tool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolRef {
    /// The server's name in `mcp.json`.
    pub server: Arc<str>,
    /// The name on that server.
    pub name: Arc<str>,
    /// Of its definition.
    pub digest: Arc<str>,
    /// Could a call change something?
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

impl From<Target> for StoredTarget {
    fn from(target: Target) -> Self {
        match target {
            Target::Tool(tool) => Self::Tool(ToolRef {
                server: Arc::clone(&tool.server),
                name: Arc::clone(&tool.name),
                digest: Arc::clone(&tool.digest),
                side_effect: tool.side_effect,
            }),
            Target::Gone(tool) => Self::Tool(tool),
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
            StoredTarget::Tool(tool) => Self::Gone(tool),
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
    /// `complete_task`, or `exit_loop`.
    Complete {
        /// What was handed in.
        output: Completion,
        /// Shall the loop that the agent goes round in end here?
        exits_loop: bool,
    },
}

/// What an agent hands in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Completion {
    /// JSON that conforms to the agent's output schema.
    Output(Arc<str>),
    /// Words, of an agent without an output schema.
    Text(String),
}

/// A call the model proposed, with its place.
#[derive(Clone, Debug, Serialize, Deserialize)]
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
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Judgement {
    /// It may run, with exactly these canonical arguments.
    Allow {
        /// Identity injected, checked, canonical.
        arguments: Arc<RawValue>,
        /// What gave leave; nothing where none was needed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<DecidedBy>,
    },
    /// A person must agree first.
    RequireApproval {
        /// Identity injected, checked, canonical.
        arguments: Arc<RawValue>,
        /// Why it needs leave.
        reason: String,
        /// What asks for it.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        by: Vec<DecidedBy>,
        /// What whoever agrees should know, in words.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        warnings: Vec<String>,
        /// Everybody whom it would reach.
        #[serde(default, skip_serializing_if = "Recipients::is_empty")]
        recipients: Recipients,
        /// It gives an argument that leave for good does not cover.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        ungrantable: bool,
        /// The account from which it would be done, as the tool's server named it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        account: Option<String>,
    },
    /// It does not run.
    Refuse {
        /// Why, from the closed list.
        code: FailureCode,
        /// Why, for the model and the record.
        message: String,
        /// What of the policy decided it; nothing where the call was wrong in itself.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        by: Vec<DecidedBy>,
    },
}

/// What came of a call.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CallResult {
    /// The tool's data on success (JSON), or the failure.
    pub outcome: Result<Arc<RawValue>, CallFailure>,
    /// Did it leave this process, or may it have? A call that was started need not have: its server was away, say.
    pub sent: bool,
    /// From its start to the answer, in microseconds; 0 when it was not started.
    pub duration_us: i64,
}

/// A failed call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallFailure {
    /// Why, from the closed list.
    pub code: FailureCode,
    /// Why, in words. They may be the server's: untrusted data, but for the codes whose words are all gavel's own.
    pub message: String,
    /// Whose words these are.
    #[serde(default, skip_serializing_if = "WordsOf::are_gavels")]
    pub words_of: WordsOf,
}

/// Who put a failure into words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WordsOf {
    /// gavel.
    #[default]
    Gavel,
    /// The tool's server. They may hold the inside of a program, credentials included, so callers do not get them.
    Server,
    /// The tool's server, whose first line callers get (`exposeErrors` of `mcp.json`).
    TrustedServer,
}

impl WordsOf {
    fn are_gavels(&self) -> bool {
        *self == Self::Gavel
    }
}

impl CallFailure {
    /// A failure in gavel's own words.
    #[must_use]
    pub fn new(code: FailureCode, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            words_of: WordsOf::Gavel,
        }
    }

    /// The words for callers (R-16). The model, the tool-call log and operators have [`CallFailure::message`].
    #[must_use]
    pub fn for_callers(&self) -> Cow<'_, str> {
        match self.words_of {
            WordsOf::Gavel => Cow::Borrowed(&self.message),
            WordsOf::Server => Cow::Borrowed(self.code.for_callers()),
            WordsOf::TrustedServer => Cow::Owned(in_words(&self.message)),
        }
    }
}

/// What an entry takes beside its words, in bytes; about.
const ENTRY: usize = 256;

impl Entry {
    /// About how much memory it takes, in bytes: its words, and a little for itself.
    #[must_use]
    pub fn size(&self) -> usize {
        let args = |call: &Proposed| call.call.args.get().len();
        let words = match self {
            Self::User(text) | Self::Notice(text) | Self::OutputDue(text) | Self::SoftStop { notice: text, .. } => {
                text.len()
            }
            Self::ModelFault { said, .. } => said.as_ref().map_or(0, String::len),
            Self::ModelTurn { turn, calls } => turn.content.get().len() + calls.iter().map(args).sum::<usize>(),
            Self::Step { call, .. } => args(call),
            Self::Judged { judgement, .. } => match judgement {
                Judgement::Allow { arguments, .. } | Judgement::RequireApproval { arguments, .. } => {
                    arguments.get().len()
                }
                Judgement::Refuse { message, .. } => message.len(),
            },
            Self::Result { result, .. } => match &result.outcome {
                Ok(data) => data.get().len(),
                Err(failure) => failure.message.len(),
            },
            _ => 0,
        };
        ENTRY + words
    }
}

/// Why a model call gave no turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultKind {
    /// Not reached, or an error answer of the provider's own, after retries.
    Unavailable,
    /// The provider does not accept the key or the token.
    Credentials,
    /// Key or account may not do this.
    Permission,
    /// The provider has no model of this name.
    NoSuchModel,
    /// The provider's quota is spent.
    Quota,
    /// The provider takes the request for invalid.
    Rejected,
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
            Self::Credentials => "credentials",
            Self::Permission => "permission",
            Self::NoSuchModel => "no_such_model",
            Self::Quota => "quota",
            Self::Rejected => "rejected",
            Self::Timeout => "timeout",
            Self::Malformed => "malformed",
            Self::Blocked => "blocked",
        }
    }
}

/// One entry.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
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
        /// What the model had said when the clock cut its turn.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        said: Option<String>,
    },
    /// The gate's answer for a call.
    Judged {
        /// Which call.
        call: ActionId,
        /// The answer.
        judgement: Judgement,
    },
    /// A person's answer for a call, or that none came in time.
    Settled {
        /// Which call.
        call: ActionId,
        /// Whether it may run.
        approved: bool,
        /// Who answered; nobody did in time where it is absent.
        by: Option<String>,
        /// Why not, in the person's words.
        reason: Option<String>,
    },
    /// The call is about to be sent; for a side effect its intent is durable.
    Started {
        /// Which call.
        call: ActionId,
        /// Microseconds since the epoch.
        at_us: i64,
        /// The run of the agent that is called.
        child: Option<RunId>,
    },
    /// What came of a call. Exactly one for each call; `InDoubt` is one of its failure codes.
    Result {
        /// Which call.
        call: ActionId,
        /// What came of it.
        result: CallResult,
    },
    /// The next step of a flow: a call that the definition made, not a model.
    Step {
        /// Which step, from 0; in a loop without steps always 0.
        step: u32,
        /// Which round, from 1.
        round: u32,
        /// The call.
        call: Proposed,
    },
    /// A word from the engine to the model.
    Notice(String),
    /// A limit is reached: the model is told to sum up, with a last call.
    SoftStop {
        /// Which limit.
        reason: StopReason,
        /// The words to the model.
        notice: String,
        /// The run's clock, microseconds.
        elapsed_us: i64,
    },
    /// The model ended in words where its output is due: it is told so, once.
    OutputDue(String),
    /// The process that ran it was stopped, in order, between two steps of it.
    Halted,
    /// It waits for a person; whoever takes it up after the answer goes on.
    Suspended,
    /// Another process took the run up, since the one before had died.
    Recovered,
    /// What follows belongs to the run that goes on with the one before; its limits count from here.
    Resumed {
        /// The run before.
        from: RunId,
    },
}

impl Entry {
    /// Calls that this entry proposes.
    #[must_use]
    pub fn calls(&self) -> &[Proposed] {
        match self {
            Self::ModelTurn { calls, .. } => calls,
            Self::Step { call, .. } => std::slice::from_ref(call),
            _ => &[],
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// Runs that were begun before gates told what decided can be gone on with.
    #[test]
    fn judgements_of_older_journals_are_read() {
        let allow: Judgement = serde_json::from_str(r#"{"allow":{"arguments":{"a":1}}}"#).unwrap();
        assert!(matches!(&allow, Judgement::Allow { arguments, by: None } if arguments.get() == r#"{"a":1}"#));
        assert_eq!(
            serde_json::to_string(&allow).unwrap(),
            r#"{"allow":{"arguments":{"a":1}}}"#
        );
        let ask: Judgement = serde_json::from_str(r#"{"require_approval":{"arguments":{},"reason":"r"}}"#).unwrap();
        assert!(
            matches!(&ask, Judgement::RequireApproval { reason, by, warnings, recipients, .. }
                if reason == "r" && by.is_empty() && warnings.is_empty() && recipients.is_empty())
        );
    }

    #[test]
    fn what_decided_is_kept_in_the_journal() {
        let by = vec![
            DecidedBy::SideEffects,
            DecidedBy::Rule("r".into()),
            DecidedBy::Grant("g".into()),
        ];
        let text = serde_json::to_string(&by).unwrap();
        assert_eq!(text, r#"["side_effects",{"rule":"r"},{"grant":"g"}]"#);
        assert_eq!(serde_json::from_str::<Vec<DecidedBy>>(&text).unwrap(), by);
    }
}
