//! The journal of a run: its whole state (DESIGN.md section 2).
//!
//! Provider requests, log rows, streams and spans are projections of these entries. The entries of an agent's run are
//! stored as one JSON text each. A journal that is read back leads to the same next step.

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

/// The speaker of an earlier line of the conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Speaker {
    /// The user.
    User,
    /// The service, as plain text.
    Assistant,
}

/// A part of a model's turn, as far as gavel reads it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// Text for the user.
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
    /// The provider's id, if it issued one. gavel returns it only in that case (WIRE.md section 4).
    pub id: Option<String>,
    /// The name that the model used.
    pub name: String,
    /// A JSON object; `{}` if the model sent none.
    pub args: Box<RawValue>,
}

/// One complete answer of a model.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ModelTurn {
    /// The provider's content object, which gavel sends back unchanged.
    pub content: Arc<RawValue>,
    /// The same content, parsed.
    pub parts: Vec<Part>,
    /// Tokens of this model call.
    pub usage: Usage,
    /// The model that answered, as the provider names it.
    pub model: String,
}

impl ModelTurn {
    /// The function calls, in order.
    pub fn calls(&self) -> impl Iterator<Item = &FunctionCall> {
        self.parts.iter().filter_map(|part| match part {
            Part::Call(call) => Some(call),
            _ => None,
        })
    }

    /// The text for the user, joined.
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

/// The target of a call: decided by the functions that the model was offered, never by the bare name alone.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(from = "StoredTarget", into = "StoredTarget")]
pub enum Target {
    /// A granted tool.
    Tool(Arc<Tool>),
    /// A granted tool as an earlier process stored it. It becomes `Tool` again once the same tool is found.
    Unresolved(ToolRef),
    /// Another agent.
    Agent(Arc<str>),
    /// A function that the engine answers itself; `Err` holds why its arguments are invalid.
    Verdict(Result<Verdict, String>),
    /// A name that the model was not offered.
    Unknown,
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
    #[must_use]
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

/// The policy's decision on one call.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PolicyDecision {
    /// It may run, with exactly these canonical arguments.
    Allow {
        /// Identity injected, checked, canonical.
        arguments: Arc<RawValue>,
        /// What approved it; `None` if no approval was required.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        by: Option<DecidedBy>,
    },
    /// An approver must approve it first.
    RequireApproval {
        /// Identity injected, checked, canonical.
        arguments: Arc<RawValue>,
        /// Why it requires approval.
        reason: String,
        /// What requires the approval.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        by: Vec<DecidedBy>,
        /// What the approver should know, as text.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        warnings: Vec<String>,
        /// All recipients of the call.
        #[serde(default, skip_serializing_if = "Recipients::is_empty")]
        recipients: Recipients,
        /// The call sets an argument that no grant can cover.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        ungrantable: bool,
        /// The account that would be used, as named by the tool's server.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        account: Option<String>,
    },
    /// It must not run.
    Refuse {
        /// Why: a code from the closed list.
        code: FailureCode,
        /// Why, as text for the model and the logs.
        message: String,
        /// The part of the policy that decided it; empty if the call itself was invalid.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        by: Vec<DecidedBy>,
    },
}

/// The result of a call.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CallResult {
    /// The tool's data on success (JSON), or the failure.
    pub outcome: Result<Arc<RawValue>, CallFailure>,
    /// Whether the call was sent, or may have been sent. A started call may remain unsent, for example if its server is
    /// unavailable.
    pub sent: bool,
    /// Time from start to answer, in microseconds; 0 if the call was not started.
    pub duration_us: i64,
}

/// A failed call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallFailure {
    /// Why: a code from the closed list.
    pub code: FailureCode,
    /// Why, as text. It may come from the server and is then untrusted, except for codes whose text is always gavel's
    /// own.
    pub message: String,
    /// The author of `message`.
    #[serde(default, skip_serializing_if = "WordsOf::are_gavels")]
    pub words_of: WordsOf,
}

/// The author of a failure's text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WordsOf {
    /// gavel.
    #[default]
    Gavel,
    /// The tool's server. The text may contain program internals, including credentials, so callers do not see it.
    Server,
    /// The tool's server. Callers see its first line (`exposeErrors` of `mcp.json`).
    TrustedServer,
}

impl WordsOf {
    fn are_gavels(&self) -> bool {
        *self == Self::Gavel
    }
}

impl CallFailure {
    /// A failure with gavel's own text.
    #[must_use]
    pub fn new(code: FailureCode, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            words_of: WordsOf::Gavel,
        }
    }

    /// The text for callers (R-16). The model, the tool-call log and operators get [`CallFailure::message`].
    #[must_use]
    pub fn for_callers(&self) -> Cow<'_, str> {
        match self.words_of {
            WordsOf::Gavel => Cow::Borrowed(&self.message),
            WordsOf::Server => Cow::Borrowed(self.code.for_callers()),
            WordsOf::TrustedServer => Cow::Owned(in_words(&self.message)),
        }
    }
}

/// Approximate size of an entry without its texts, in bytes.
const ENTRY: usize = 256;

impl Entry {
    /// Approximate memory size in bytes: its texts plus a constant.
    #[must_use]
    pub fn size(&self) -> usize {
        let args = |call: &Proposed| call.call.args.get().len();
        let words = match self {
            Self::User(text) | Self::Prompted { text, .. } => text.len(),
            Self::ModelFault { said, .. } => said.as_ref().map_or(0, String::len),
            Self::ModelTurn { turn, calls } => turn.content.get().len() + calls.iter().map(args).sum::<usize>(),
            Self::Step { call, .. } => args(call),
            Self::Decided { decision, .. } => match decision {
                PolicyDecision::Allow { arguments, .. } | PolicyDecision::RequireApproval { arguments, .. } => {
                    arguments.get().len()
                }
                PolicyDecision::Refuse { message, .. } => message.len(),
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

/// Why a model call returned no turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultKind {
    /// Unreachable, or the provider returned an error, after retries.
    Unavailable,
    /// The provider does not accept the key or the token.
    Credentials,
    /// The key or account lacks the permission.
    Permission,
    /// The provider has no model of this name.
    NoSuchModel,
    /// The provider's quota is exhausted.
    Quota,
    /// The provider rejected the request as invalid.
    Rejected,
    /// The model took too long.
    Timeout,
    /// The answer was truncated, empty, invalid or unknown.
    Malformed,
    /// The provider blocked the prompt or the answer.
    Blocked,
}

impl FaultKind {
    /// Its name in metrics and traces.
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
    /// A limit was reached. The engine asks the model for a summary, with one last call.
    Limit {
        /// The limit.
        reason: StopReason,
        /// Elapsed time of the run, in microseconds.
        elapsed_us: i64,
    },
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
        /// The text of the model's turn so far, if the time limit interrupted the turn.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        said: Option<String>,
    },
    /// The policy's decision on a call.
    #[serde(alias = "judged")]
    Decided {
        /// The call.
        call: ActionId,
        /// The decision.
        #[serde(alias = "judgement")]
        decision: PolicyDecision,
    },
    /// An approver's answer for a call, or that none came in time.
    #[serde(alias = "settled")]
    ApprovalResolved {
        /// The call.
        call: ActionId,
        /// Whether it may run.
        approved: bool,
        /// The approver; `None` if the approval request expired.
        by: Option<String>,
        /// Why not: the approver's reason.
        reason: Option<String>,
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
    /// Another process continues the run, because the previous one died.
    Recovered,
    /// The paused run was resumed. Its limits count from here.
    Resumed {
        /// Model calls until then; for a flow, those of its steps.
        #[serde(default)]
        steps: u32,
        /// Their tokens.
        #[serde(default)]
        usage: Usage,
        /// In journals of before: the entries until then were the journal of this run, which has its own decision.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        from: Option<RunId>,
    },
}

/// What the engine says to the model, as older journals have it.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum OlderPrompt {
    Notice(String),
    OutputDue(String),
    SoftStop {
        reason: StopReason,
        notice: String,
        elapsed_us: i64,
    },
}

impl From<OlderPrompt> for Entry {
    fn from(older: OlderPrompt) -> Self {
        let output = || CallMode::Any(vec![COMPLETE_TASK.to_owned()]);
        let (text, mode, cause) = match older {
            OlderPrompt::Notice(text) => (text, CallMode::Auto, Cause::Resumed),
            OlderPrompt::OutputDue(text) => (text, output(), Cause::OutputDue),
            OlderPrompt::SoftStop {
                reason,
                notice,
                elapsed_us,
            } => {
                // The text names the function if the run must end with it.
                let mode = if notice.contains(COMPLETE_TASK) {
                    output()
                } else {
                    CallMode::None
                };
                (notice, mode, Cause::Limit { reason, elapsed_us })
            }
        };
        Self::Prompted { text, mode, cause }
    }
}

impl Entry {
    /// Reads a stored entry, also of an older journal.
    ///
    /// # Errors
    /// The text is no entry: it is damaged, or of a later version.
    pub fn read(text: &str) -> Result<Self, serde_json::Error> {
        match serde_json::from_str::<OlderPrompt>(text) {
            Ok(older) => Ok(older.into()),
            Err(_) => serde_json::from_str(text),
        }
    }

    /// The calls that this entry proposes.
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

    /// Runs can continue that started before decisions recorded what decided.
    #[test]
    fn decisions_of_older_journals_are_read() {
        let allow: PolicyDecision = serde_json::from_str(r#"{"allow":{"arguments":{"a":1}}}"#).unwrap();
        assert!(matches!(&allow, PolicyDecision::Allow { arguments, by: None } if arguments.get() == r#"{"a":1}"#));
        assert_eq!(
            serde_json::to_string(&allow).unwrap(),
            r#"{"allow":{"arguments":{"a":1}}}"#
        );
        let ask: PolicyDecision =
            serde_json::from_str(r#"{"require_approval":{"arguments":{},"reason":"r"}}"#).unwrap();
        assert!(
            matches!(&ask, PolicyDecision::RequireApproval { reason, by, warnings, recipients, .. }
                if reason == "r" && by.is_empty() && warnings.is_empty() && recipients.is_empty())
        );
    }

    /// Entries of earlier versions had other names; runs that they belong to continue.
    #[test]
    fn entries_under_their_old_names_are_read() {
        let call = ActionId::new();
        for name in ["decided", "judged"] {
            for field in ["decision", "judgement"] {
                let text = format!(r#"{{"{name}":{{"call":"{call}","{field}":{{"allow":{{"arguments":{{}}}}}}}}}}"#);
                let entry: Entry = serde_json::from_str(&text).unwrap();
                assert!(
                    matches!(&entry, Entry::Decided { call: of, .. } if *of == call),
                    "{text}"
                );
                assert!(
                    serde_json::to_string(&entry)
                        .unwrap()
                        .starts_with(r#"{"decided":{"call":"#)
                );
            }
        }
        for name in ["approval_resolved", "settled"] {
            let text = format!(r#"{{"{name}":{{"call":"{call}","approved":true,"by":"ann","reason":null}}}}"#);
            let entry: Entry = serde_json::from_str(&text).unwrap();
            assert!(
                matches!(&entry, Entry::ApprovalResolved { approved: true, .. }),
                "{text}"
            );
        }
    }

    /// The texts of older journals say whether the run must end with its output; the mode in force follows.
    #[test]
    fn prompts_of_older_journals_are_read() {
        let output = CallMode::Any(vec!["complete_task".to_owned()]);
        let limit = Cause::Limit {
            reason: StopReason::TimeLimit,
            elapsed_us: 7,
        };
        let stop =
            |notice: &str| format!(r#"{{"soft_stop":{{"reason":"time_limit","notice":"{notice}","elapsed_us":7}}}}"#);
        for (older, text, mode, cause) in [
            (
                r#"{"notice":"Go on."}"#.to_owned(),
                "Go on.",
                &CallMode::Auto,
                Cause::Resumed,
            ),
            (r#"{"output_due":"Now."}"#.to_owned(), "Now.", &output, Cause::OutputDue),
            (
                stop("Time is up. Sum up."),
                "Time is up. Sum up.",
                &CallMode::None,
                limit,
            ),
            (
                stop("Call complete_task now."),
                "Call complete_task now.",
                &output,
                limit,
            ),
        ] {
            let entry = Entry::read(&older).unwrap();
            let Entry::Prompted {
                text: read,
                mode: read_mode,
                cause: read_cause,
            } = &entry
            else {
                panic!("{older}: {entry:?}");
            };
            assert_eq!((read.as_str(), read_mode, *read_cause), (text, mode, cause), "{older}");
            let again = Entry::read(&serde_json::to_string(&entry).unwrap()).unwrap();
            assert!(
                matches!(&again, Entry::Prompted { mode: again, .. } if again == mode),
                "{again:?}"
            );
        }
        assert!(Entry::read(r#"{"later":1}"#).unwrap_err().to_string().contains("later"));
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
