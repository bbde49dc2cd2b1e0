//! What was decided: types, outcomes and tokens.

use super::error_class::ErrorClass;
use super::names::{names, record};

names! {
    /// The type of a decision: the first that applies, in the order REFUSE, REQUEST_CLARIFICATION, INVOKE_TOOL,
    /// RESPOND_ONLY.
    DecisionType {
        /// Refused: out of scope, blocked, over quota, or rejected under load.
        Refuse = "REFUSE",
        /// The agent asks the user a question.
        RequestClarification = "REQUEST_CLARIFICATION",
        /// At least one tool ran.
        InvokeTool = "INVOKE_TOOL",
        /// Answered with text. Includes an error without a tool call.
        RespondOnly = "RESPOND_ONLY",
    }
}

names! {
    /// The outcome of the decision, `CATEGORY:SUBCATEGORY`; a closed list.
    Outcome {
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
}

impl Outcome {
    /// The class of its error, the placeholders that its fixed reply may use, and the HTTP status of its decision. No
    /// class: nothing failed. No placeholders: it has no fixed reply, since the model answers.
    #[rustfmt::skip] // A line for each.
    const fn about(self) -> (Option<ErrorClass>, Option<&'static [&'static str]>, u16) {
        use ErrorClass::{AuthError, ModelError, PolicyError, ToolExecutionError, ValidationError};
        match self {
            Self::TaskCompleted => (None, None, 200),
            Self::ResponseGiven => (None, None, 200),
            Self::UnclearIntent => (None, None, 200),
            Self::MultipleMatches => (None, None, 200),
            Self::OutOfScope => (None, None, 200),
            Self::MissingPermission => (Some(AuthError), Some(&[]), 200),
            Self::PolicyDenied => (Some(PolicyError), Some(&[]), 200),
            Self::SafetyBlocked => (Some(ModelError), Some(&[]), 200),
            Self::RateLimited => (Some(PolicyError), Some(&["time"]), 429),
            Self::Overloaded => (Some(PolicyError), Some(&["time"]), 503),
            Self::Cancelled => (Some(PolicyError), Some(&[]), 200),
            Self::UserInput => (Some(ValidationError), Some(&["subject", "limit"]), 200),
            Self::ModelUnavailable => (Some(ModelError), Some(&[]), 200),
            Self::ModelTimeout => (Some(ModelError), Some(&[]), 200),
            Self::MalformedOutput => (Some(ModelError), Some(&[]), 200),
            Self::ToolInvocation => (Some(ToolExecutionError), Some(&[]), 200),
            Self::LoopLimit => (Some(PolicyError), Some(&["steps"]), 200),
            Self::Deadline => (Some(PolicyError), Some(&["time"]), 200),
            Self::Internal => (Some(ToolExecutionError), Some(&[]), 200),
        }
    }

    /// The class of a decision or run with this outcome; `None` if nothing failed.
    #[must_use]
    pub const fn class(self) -> Option<ErrorClass> {
        self.about().0
    }

    /// The placeholders that its reply may use; `None` if it has no fixed reply, because the model answers.
    #[cfg(test)]
    pub(super) const fn placeholders(self) -> Option<&'static [&'static str]> {
        self.about().1
    }

    /// The HTTP status of its decision. Not 200: the request can be sent again.
    #[must_use]
    pub const fn status(self) -> u16 {
        self.about().2
    }

    /// The type of a decision with it; `ran`: a tool ran.
    #[must_use]
    pub fn decision_type(self, ran: bool) -> DecisionType {
        match self.as_str().split(':').next() {
            Some("REFUSAL") => DecisionType::Refuse,
            Some("AMBIGUITY") => DecisionType::RequestClarification,
            _ if ran => DecisionType::InvokeTool,
            _ => DecisionType::RespondOnly,
        }
    }

    /// The subcategory as a code: `model_timeout` of `ERROR:MODEL_TIMEOUT`.
    #[must_use]
    pub fn code(self) -> String {
        let (_, subcategory) = self.as_str().split_once(':').unwrap_or_default();
        subcategory.to_ascii_lowercase()
    }
}

record! {
    /// Tokens, summed over the model calls of one decision.
    #[derive(PartialEq, Eq, Copy, Default)]
    Usage as "Usage" {
        /// Prompt tokens, including cached ones.
        input_tokens: u64,
        /// Tokens of the answer, without thoughts.
        output_tokens: u64,
        /// Thinking tokens.
        thought_tokens: u64,
        /// The part of `input_tokens` that came from a cache.
        cached_tokens: u64,
    }
}

names! {
    /// A limit of a run.
    LimitName {
        /// Model calls.
        ModelCalls = "model_calls",
        /// Time by the run's clock, in milliseconds.
        TimeMs = "time_ms",
        /// Tokens of all model calls.
        Tokens = "tokens",
        /// Calls of one turn; those beyond it are not run.
        ParallelCalls = "parallel_calls",
        /// Identical calls in a row: that call is not run, or ends the run.
        RepeatedCalls = "repeated_calls",
        /// Turns in a row that tried to end the run with an invalid output.
        InvalidOutputs = "invalid_outputs",
    }
}

record! {
    /// A limit that a run has reached.
    #[derive(PartialEq, Eq)]
    LimitReached as "LimitReached" {
        /// Which one.
        name: LimitName,
        /// Its value.
        limit: u64,
    }
}

impl Usage {
    /// All tokens, each counted once: a cached token is an input token.
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
