//! Verdict functions: how a model ends its turn without being guessed at (DESIGN.md section 2).

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::domain::decision::Outcome;
use crate::domain::journal::Verdict;
use crate::ports::model::Declaration;

/// A function that the engine answers itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VerdictFunction {
    /// `request_clarification {question, kind}`.
    RequestClarification,
    /// `refuse {message, kind}`.
    Refuse,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Clarification {
    question: String,
    kind: ClarificationKind,
}

#[derive(Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
enum ClarificationKind {
    UnclearIntent,
    MultipleMatches,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Refusal {
    message: String,
    kind: RefusalKind,
}

#[derive(Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
enum RefusalKind {
    OutOfScope,
    MissingPermission,
}

impl VerdictFunction {
    /// Those of the chat surface.
    pub const CHAT: [Self; 2] = [Self::RequestClarification, Self::Refuse];

    /// The name the model calls.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::RequestClarification => "request_clarification",
            Self::Refuse => "refuse",
        }
    }

    /// What the model is shown.
    #[must_use]
    pub fn declaration(self) -> Declaration {
        match self {
            Self::RequestClarification => Declaration::own(
                self.name(),
                "Ask the person one question instead of acting, when it is not clear what they want. \
                 Call it alone, never together with another function.",
                r#"{"type":"object","properties":{"question":{"type":"string","minLength":1,"description":"The question, in the person's language."},"kind":{"type":"string","enum":["UNCLEAR_INTENT","MULTIPLE_MATCHES"],"description":"MULTIPLE_MATCHES when a tool result held several candidates, else UNCLEAR_INTENT."}},"required":["question","kind"]}"#,
            ),
            Self::Refuse => Declaration::own(
                self.name(),
                "Decline politely, with the reason, what you cannot or must not do. \
                 Call it alone, never together with another function.",
                r#"{"type":"object","properties":{"message":{"type":"string","minLength":1,"description":"The reason and what you can do instead, in the person's language."},"kind":{"type":"string","enum":["OUT_OF_SCOPE","MISSING_PERMISSION"],"description":"MISSING_PERMISSION when a tool said that the person lacks the right, else OUT_OF_SCOPE."}},"required":["message","kind"]}"#,
            ),
        }
    }

    /// Reads the arguments.
    pub(super) fn read(self, args: &RawValue) -> Result<Verdict, String> {
        match self {
            Self::RequestClarification => {
                let read: Clarification = serde_json::from_str(args.get()).map_err(|error| error.to_string())?;
                let outcome = match read.kind {
                    ClarificationKind::UnclearIntent => Outcome::UnclearIntent,
                    ClarificationKind::MultipleMatches => Outcome::MultipleMatches,
                };
                Ok(Verdict::Clarify {
                    question: said(read.question, "question")?,
                    outcome,
                })
            }
            Self::Refuse => {
                let read: Refusal = serde_json::from_str(args.get()).map_err(|error| error.to_string())?;
                let outcome = match read.kind {
                    RefusalKind::OutOfScope => Outcome::OutOfScope,
                    RefusalKind::MissingPermission => Outcome::MissingPermission,
                };
                Ok(Verdict::Refuse {
                    message: said(read.message, "message")?,
                    outcome,
                })
            }
        }
    }
}

fn said(text: String, field: &str) -> Result<String, String> {
    if text.trim().is_empty() {
        Err(format!("{field:?} must not be empty"))
    } else {
        Ok(text)
    }
}
