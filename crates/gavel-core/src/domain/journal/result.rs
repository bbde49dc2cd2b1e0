//! The result of a call, and which of its text callers see.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use super::super::action::in_words;
use super::super::tool::FailureCode;

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
    pub words_of: WordsOf,
    /// The tool's own error, beside its text.
    pub own: Option<Box<OwnError>>,
}

/// A tool's own error: data of its server, and as untrusted as its text. Its parts are short words, numbers and truth
/// values.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnError {
    /// The tool's code.
    pub code: String,
    /// Its further fields, such as the number of what exists already.
    pub details: BTreeMap<String, Value>,
}

impl OwnError {
    /// The longest code, name or value, in bytes.
    const LONGEST: usize = 64;
    /// The most fields.
    const MOST: usize = 8;

    /// Reads an error object; `None` if it has no code.
    pub fn read(error: &Value) -> Option<Self> {
        let code = word(error.get("code")?)?;
        let is_detail = |(name, value): &(&String, &Value)| {
            let is_named = name.chars().all(is_of_word) && !["code", "class"].contains(&name.as_str());
            is_named && name.len() <= Self::LONGEST && word(value).is_some()
        };
        let fields = error.as_object()?.iter().filter(is_detail).take(Self::MOST);
        let details = fields.map(|(name, value)| (name.clone(), value.clone())).collect();
        Some(Self { code, details })
    }
}

/// A short word, number or truth value.
fn word(value: &Value) -> Option<String> {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    ((1..=OwnError::LONGEST).contains(&text.len()) && text.chars().all(is_of_word)).then_some(text)
}

fn is_of_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || "_-.".contains(c)
}

/// The author of a failure's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WordsOf {
    /// gavel.
    Gavel,
    /// The tool's server. The text may contain program internals, including credentials, so callers do not see it.
    Server,
    /// The tool's server. Callers see its first line (`exposeErrors` of `mcp.json`).
    TrustedServer,
}

impl CallResult {
    /// What came of a call that was sent, after this time.
    pub fn sent(outcome: Result<Arc<RawValue>, CallFailure>, took: Duration) -> Self {
        Self {
            outcome,
            sent: true,
            duration_us: i64::try_from(took.as_micros()).unwrap_or(i64::MAX),
        }
    }

    /// A call that failed without being sent, with gavel's own text.
    pub fn not_sent(code: FailureCode, message: impl Into<String>) -> Self {
        Self {
            outcome: Err(CallFailure::new(code, message)),
            sent: false,
            duration_us: 0,
        }
    }
}

impl CallFailure {
    /// A failure with gavel's own text.
    pub fn new(code: FailureCode, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            words_of: WordsOf::Gavel,
            own: None,
        }
    }

    /// The tool's own code, or else gavel's.
    pub fn most_specific_code(&self) -> &str {
        self.own.as_ref().map_or(self.code.as_str(), |own| &own.code)
    }

    /// The text for callers. The model, the tool-call log and operators get [`CallFailure::message`].
    pub fn for_callers(&self) -> Cow<'_, str> {
        match self.words_of {
            WordsOf::Gavel => Cow::Borrowed(&self.message),
            WordsOf::Server => Cow::Borrowed(self.code.for_callers()),
            WordsOf::TrustedServer => Cow::Owned(in_words(&self.message)),
        }
    }
}
