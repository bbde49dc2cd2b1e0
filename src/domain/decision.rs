//! What gavel answers with: one typed decision (DESIGN.md section 3).

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;
use utoipa::openapi::{Object, RefOr, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

use super::ids::{ConversationId, DecisionId};

/// What the decision was, the first that fits in the order REFUSE, REQUEST_CLARIFICATION,
/// INVOKE_TOOL, RESPOND_ONLY.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum DecisionType {
    /// Refused: out of scope, blocked, over quota, shed.
    Refuse,
    /// Asked back.
    RequestClarification,
    /// At least one tool ran.
    InvokeTool,
    /// Answered in words, an error without a tool included.
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
        /// How the decision came out, `CATEGORY:SUBCATEGORY`: a closed list.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Outcome { $($(#[$doc])* $variant,)+ }

        impl Outcome {
            /// Every outcome there is.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The name on the wire and in the log.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)+ }
            }

            /// Reads the name; `None` for what is not in the list.
            #[must_use]
            pub fn parse(text: &str) -> Option<Self> {
                match text { $($text => Some(Self::$variant),)+ _ => None }
            }
        }
    };
}

outcomes! {
    /// A tool did the job.
    TaskCompleted = "SUCCESS:TASK_COMPLETED",
    /// Answered without tools.
    ResponseGiven = "SUCCESS:RESPONSE_GIVEN",
    /// A question back.
    UnclearIntent = "AMBIGUITY:UNCLEAR_INTENT",
    /// A question back because a tool result had several candidates.
    MultipleMatches = "AMBIGUITY:MULTIPLE_MATCHES",
    /// The model refused, harmful requests included.
    OutOfScope = "REFUSAL:OUT_OF_SCOPE",
    /// The caller lacks the right.
    MissingPermission = "REFUSAL:MISSING_PERMISSION",
    /// The gate denied what the answer needed.
    PolicyDenied = "REFUSAL:POLICY_DENIED",
    /// Gemini blocked the prompt or the answer.
    SafetyBlocked = "REFUSAL:SAFETY_BLOCKED",
    /// Over the caller's quota.
    RateLimited = "REFUSAL:RATE_LIMITED",
    /// Shed: too much in flight.
    Overloaded = "REFUSAL:OVERLOADED",
    /// A person cancelled the run.
    Cancelled = "REFUSAL:CANCELLED",
    /// Message or history over its limit.
    UserInput = "ERROR:USER_INPUT",
    /// The model could not be reached, after retries.
    ModelUnavailable = "ERROR:MODEL_UNAVAILABLE",
    /// The model was too slow.
    ModelTimeout = "ERROR:MODEL_TIMEOUT",
    /// The model's answer was cut, empty, invalid or unknown.
    MalformedOutput = "ERROR:MALFORMED_OUTPUT",
    /// A tool failed and no later call repaired it.
    ToolInvocation = "ERROR:TOOL_INVOCATION",
    /// Iterations spent.
    LoopLimit = "ERROR:LOOP_LIMIT",
    /// Time spent.
    Deadline = "ERROR:DEADLINE",
    /// Our fault, or a crash found later.
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
        let description = "How the decision came out, `CATEGORY:SUBCATEGORY`; a closed list.";
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
        Self::parse(&name).ok_or_else(|| D::Error::custom(format!("{name:?} is no outcome")))
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
    /// Prompt tokens, cached ones included.
    pub input_tokens: u64,
    /// Tokens of the answer, without thoughts.
    pub output_tokens: u64,
    /// Tokens spent thinking.
    pub thought_tokens: u64,
    /// The part of `input_tokens` that came from a cache.
    pub cached_tokens: u64,
}

impl Usage {
    /// All of them, each counted once: a cached token is an input token.
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
    /// The tool's own name on its server (the model's word when no such tool is granted).
    pub tool: String,
    /// The arguments as they were sent (canonical), or as the model gave them when nothing was sent.
    #[schema(value_type = Object)]
    pub parameters: Box<RawValue>,
    /// What came of it.
    pub result: ToolResult,
}

/// What came of a tool call.
#[derive(Debug, Serialize, ToSchema)]
pub struct ToolResult {
    /// True only when the tool ran and did not report an error.
    pub success: bool,
    /// What the tool returned; null when it did not.
    #[schema(value_type = Option<serde_json::Value>, required = true)]
    pub data: Option<Box<RawValue>>,
    /// Why it failed.
    #[schema(required = true)]
    pub error: Option<ToolFailure>,
    /// Time from sending to the answer; 0 when nothing was sent.
    pub duration_ms: u64,
}

/// Why a tool call failed, in words that are safe to show.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct ToolFailure {
    /// A closed list, which docs/outcomes.md explains.
    #[schema(value_type = super::tool::FailureCode)]
    pub code: &'static str,
    /// For a person.
    pub message: String,
}

/// The answer to one chat message.
#[derive(Debug, Serialize, ToSchema)]
pub struct AgentDecision {
    /// The record's id; `GET /v1/decisions/{id}` finds it.
    #[schema(value_type = String, format = "uuid")]
    pub decision_id: DecisionId,
    /// The caller's, or one made for it.
    #[schema(value_type = String)]
    pub conversation_id: ConversationId,
    /// What was decided.
    pub decision_type: DecisionType,
    /// How it came out.
    pub outcome_category: Outcome,
    /// The words for the person.
    pub response: String,
    /// Every call the model proposed, in order.
    pub tool_calls: Vec<ToolCall>,
    /// Model calls made, retries not counted.
    pub iterations: u32,
    /// The model that answered (or was asked).
    pub model: String,
    /// Tokens over all iterations.
    pub usage: Usage,
    /// Wall clock, from the parsed request to the answer.
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
