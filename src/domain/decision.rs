//! gavel's answer: one typed decision.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;
use utoipa::openapi::{Object, RefOr, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

use super::ids::{ConversationId, DecisionId};
use super::tool::FailureCode;

/// The type of a decision: the first that applies, in the order REFUSE, REQUEST_CLARIFICATION, INVOKE_TOOL,
/// RESPOND_ONLY.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum DecisionType {
    /// Refused: out of scope, blocked, over quota, or rejected under load.
    Refuse,
    /// The agent asks the user a question.
    RequestClarification,
    /// At least one tool ran.
    InvokeTool,
    /// Answered with text. Includes an error without a tool call.
    RespondOnly,
}

impl DecisionType {
    /// Every value, in order of precedence.
    pub const ALL: [Self; 4] = [
        Self::Refuse,
        Self::RequestClarification,
        Self::InvokeTool,
        Self::RespondOnly,
    ];

    /// The name on the wire and in the log.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Refuse => "REFUSE",
            Self::RequestClarification => "REQUEST_CLARIFICATION",
            Self::InvokeTool => "INVOKE_TOOL",
            Self::RespondOnly => "RESPOND_ONLY",
        }
    }
}

macro_rules! outcomes {
    ($($(#[$doc:meta])* $variant:ident = $text:literal,)+) => {
        /// The outcome of a decision, `CATEGORY:SUBCATEGORY`: a closed list.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Outcome { $($(#[$doc])* $variant,)+ }

        impl Outcome {
            /// Every outcome.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The name on the wire and in the log.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)+ }
            }

            /// Parses a name; `None` if it is not in the list.
            #[must_use]
            pub fn parse(text: &str) -> Option<Self> {
                match text { $($text => Some(Self::$variant),)+ _ => None }
            }
        }
    };
}

outcomes! {
    /// A tool completed the task.
    TaskCompleted = "SUCCESS:TASK_COMPLETED",
    /// Answered without tools.
    ResponseGiven = "SUCCESS:RESPONSE_GIVEN",
    /// The agent asks the user a question.
    UnclearIntent = "AMBIGUITY:UNCLEAR_INTENT",
    /// The agent asks the user a question because a tool result had several candidates.
    MultipleMatches = "AMBIGUITY:MULTIPLE_MATCHES",
    /// The model refused, harmful requests included.
    OutOfScope = "REFUSAL:OUT_OF_SCOPE",
    /// The caller lacks a permission.
    MissingPermission = "REFUSAL:MISSING_PERMISSION",
    /// The policy denied what the answer needed.
    PolicyDenied = "REFUSAL:POLICY_DENIED",
    /// Gemini blocked the prompt or the answer.
    SafetyBlocked = "REFUSAL:SAFETY_BLOCKED",
    /// The caller's quota was exceeded.
    RateLimited = "REFUSAL:RATE_LIMITED",
    /// Rejected under load: too many requests in progress.
    Overloaded = "REFUSAL:OVERLOADED",
    /// The run was cancelled.
    Cancelled = "REFUSAL:CANCELLED",
    /// The message or the history exceeds its limit.
    UserInput = "ERROR:USER_INPUT",
    /// The model could not be reached, after retries.
    ModelUnavailable = "ERROR:MODEL_UNAVAILABLE",
    /// The model took too long.
    ModelTimeout = "ERROR:MODEL_TIMEOUT",
    /// The model's answer was truncated, empty, invalid or unknown.
    MalformedOutput = "ERROR:MALFORMED_OUTPUT",
    /// A tool failed, and no later call repaired it.
    ToolInvocation = "ERROR:TOOL_INVOCATION",
    /// The iteration limit was reached.
    LoopLimit = "ERROR:LOOP_LIMIT",
    /// The time limit was reached.
    Deadline = "ERROR:DEADLINE",
    /// A fault of gavel, or a crash that was found later.
    Internal = "ERROR:INTERNAL",
}

impl Outcome {
    /// The subcategory as a code: `model_timeout` of `ERROR:MODEL_TIMEOUT`.
    #[must_use]
    pub fn code(self) -> String {
        let (_, subcategory) = self.as_str().split_once(':').unwrap_or_default();
        subcategory.to_ascii_lowercase()
    }
}

impl PartialSchema for Outcome {
    fn schema() -> RefOr<Schema> {
        let names = Self::ALL.iter().map(|outcome| outcome.as_str());
        let description = "The outcome of the decision, `CATEGORY:SUBCATEGORY`; a closed list.";
        Object::builder()
            .schema_type(Type::String)
            .enum_values(Some(names))
            .description(Some(description))
            .into()
    }
}

impl ToSchema for Outcome {}

impl<'de> Deserialize<'de> for Outcome {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        Self::parse(&name).ok_or_else(|| D::Error::custom(format!("{name:?} is not an outcome")))
    }
}

impl Serialize for Outcome {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// Tokens, summed over the model calls of one decision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Usage {
    /// Prompt tokens, including cached ones.
    pub input_tokens: u64,
    /// Tokens of the answer, without thoughts.
    pub output_tokens: u64,
    /// Thinking tokens.
    pub thought_tokens: u64,
    /// The part of `input_tokens` that came from a cache.
    pub cached_tokens: u64,
}

impl Usage {
    /// All tokens, each counted once: a cached token is an input token.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.input_tokens
            .saturating_add(self.output_tokens)
            .saturating_add(self.thought_tokens)
    }
}

impl std::ops::AddAssign for Usage {
    fn add_assign(&mut self, other: Self) {
        self.input_tokens = self.input_tokens.saturating_add(other.input_tokens);
        self.output_tokens = self.output_tokens.saturating_add(other.output_tokens);
        self.thought_tokens = self.thought_tokens.saturating_add(other.thought_tokens);
        self.cached_tokens = self.cached_tokens.saturating_add(other.cached_tokens);
    }
}

/// One tool call with its result, as the caller sees it.
#[derive(Debug, Serialize, ToSchema)]
pub struct ToolCall {
    /// 1, 2, 3 … in the order the model proposed them.
    pub sequence: u32,
    /// The tool's own name on its server, or the name that the model used if the allowlist has no such tool.
    pub tool: String,
    /// The canonical arguments as sent, or the model's arguments if nothing was sent.
    #[schema(value_type = Object)]
    pub parameters: Box<RawValue>,
    /// The result.
    pub result: ToolResult,
}

/// The result of a tool call.
#[derive(Debug, Serialize, ToSchema)]
pub struct ToolResult {
    /// True only if the tool ran and reported no error.
    pub success: bool,
    /// What the tool returned; null if it returned nothing.
    #[schema(value_type = Option<serde_json::Value>, required = true)]
    pub data: Option<Box<RawValue>>,
    /// Why it failed; null if it succeeded.
    #[schema(required = true)]
    pub error: Option<ToolFailure>,
    /// Time from sending to the answer; 0 if nothing was sent.
    pub duration_ms: u64,
}

/// Why a tool call failed, in a form that is safe to show.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ToolFailure {
    /// A code from a closed list; docs/reference/outcomes.md explains it.
    pub code: FailureCode,
    /// Text for people.
    pub message: String,
}

/// The answer to one chat message.
#[derive(Debug, Serialize, ToSchema)]
pub struct AgentDecision {
    /// The id of the decision; `GET /v1/decisions/{id}` returns its log entry.
    #[schema(value_type = String, format = "uuid")]
    pub decision_id: DecisionId,
    /// The caller's conversation id, or a generated one.
    #[schema(value_type = String)]
    pub conversation_id: ConversationId,
    /// The type of the decision.
    pub decision_type: DecisionType,
    /// The outcome of the decision.
    pub outcome_category: Outcome,
    /// The text for the user.
    pub response: String,
    /// Every call that the model proposed, in order.
    pub tool_calls: Vec<ToolCall>,
    /// Number of model calls, without retries.
    pub iterations: u32,
    /// The model that answered last; null if none did.
    #[schema(required = true)]
    pub model: Option<String>,
    /// The model that was asked. Google answers some names with another model.
    pub requested_model: String,
    /// Tokens over all iterations.
    pub usage: Usage,
    /// Wall-clock time from the parsed request to the answer.
    pub duration_ms: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_outcome_reads_back_from_its_name() {
        for outcome in Outcome::ALL {
            assert_eq!(Outcome::parse(outcome.as_str()), Some(*outcome));
        }
        assert_eq!(Outcome::parse("SUCCESS:ANYTHING"), None);
    }
}
