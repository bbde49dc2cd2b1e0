//! The provider's error body: its content, whether to retry, and which of its text is safe to report.

use std::time::Duration;

use serde_json::Value;

use super::call::Retry;
use super::call::{Failure, Health};
use super::reply::label;
use super::wire;
use crate::domain::journal::FaultKind;

/// A parsed `google.rpc.Status`.
#[derive(Debug, Default, PartialEq)]
pub(super) struct ApiError {
    /// HTTP status, or the code in the body when the body came in a stream.
    pub(super) code: u16,
    /// `RESOURCE_EXHAUSTED` …
    pub(super) status: Option<String>,
    /// `ErrorInfo.reason`.
    pub(super) reason: Option<String>,
    /// The exceeded quota.
    pub(super) quota: Option<String>,
    /// The invalid field of the request.
    pub(super) field: Option<String>,
    /// When to retry.
    pub(super) retry_after: Option<Duration>,
    /// The quota is a daily one or zero: a short wait does not help.
    pub(super) exhausted: bool,
    /// It may be about a signature: repeating the request without signatures may help.
    pub(super) of_signature: bool,
    /// The message, sanitized. Absent if it may quote the request.
    pub(super) message: Option<String>,
}

impl ApiError {
    /// Parses an error body. Any other body gives only the status.
    pub(super) fn of_body(http_status: u16, body: &[u8]) -> Self {
        let value = wire::read::<Value>(body).unwrap_or_default();
        // On the stream endpoint, the body may be an array with one element.
        let error = value.get("error").or_else(|| value.get(0)?.get("error"));
        match error {
            Some(error) => Self::of_value(http_status, error),
            None => Self {
                code: http_status,
                message: Some(format!("the body ({} bytes) is not a Google error", body.len())),
                ..Self::default()
            },
        }
    }

    /// Parses the value of `error` from a response body.
    pub(super) fn of_text(error: &str) -> Self {
        let error = wire::read::<Value>(error.as_bytes()).unwrap_or_default();
        let code = error
            .get("code")
            .and_then(Value::as_u64)
            .and_then(|code| u16::try_from(code).ok());
        Self::of_value(code.unwrap_or(0), &error)
    }

    fn of_value(code: u16, error: &Value) -> Self {
        let text = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
        let message = text(error, "message").unwrap_or_default();
        let mut read = Self {
            code,
            status: text(error, "status").map(|status| label(&status)),
            ..Self::default()
        };
        for detail in error.get("details").and_then(Value::as_array).into_iter().flatten() {
            let each = |key: &str| detail.get(key).and_then(Value::as_array).into_iter().flatten();
            match text(detail, "@type")
                .as_deref()
                .and_then(|name| name.rsplit('.').next())
            {
                Some("ErrorInfo") => {
                    read.reason = text(detail, "reason").map(|reason| label(&reason));
                    let metadata = detail.get("metadata").unwrap_or(&Value::Null);
                    let limit = text(metadata, "quota_limit_value");
                    read.note_quota(text(metadata, "quota_limit"), limit.as_deref());
                }
                Some("RetryInfo") => {
                    read.retry_after =
                        text(detail, "retryDelay").and_then(|delay| duration(delay.strip_suffix('s')?.parse().ok()?));
                }
                Some("QuotaFailure") => {
                    for violation in each("violations") {
                        let limit = text(violation, "quotaValue");
                        read.note_quota(text(violation, "quotaId"), limit.as_deref());
                    }
                }
                Some("BadRequest") => {
                    let field = each("fieldViolations").find_map(|violation| text(violation, "field"));
                    read.field = field.filter(|field| is_path(field));
                }
                _ => {}
            }
        }
        // A limit of zero can also appear in the message: "… limit: 0, model: …".
        read.exhausted |= message
            .split("limit: ")
            .skip(1)
            .any(|rest| leading_number(rest) == Some(0.0));
        read.retry_after = read.retry_after.or_else(|| delay_in(&message));
        let about = message.to_ascii_lowercase().replace('_', " ");
        // The second text can hide a missing signature.
        read.of_signature =
            code == 400 && (about.contains("thought signature") || about == "request contains an invalid argument.");
        read.message = (!message.is_empty() && may_be_repeated(read.code, &message)).then(|| sanitize(&message));
        read
    }

    fn note_quota(&mut self, quota: Option<String>, limit: Option<&str>) {
        self.exhausted |= limit == Some("0") || quota.as_deref().is_some_and(|quota| quota.contains("PerDay"));
        self.quota = self.quota.take().or_else(|| quota.map(|quota| label(&quota)));
    }

    /// Converts the error to a failed attempt.
    pub(super) fn into_failure(self, oauth: bool) -> Failure {
        let retry = match self.code {
            401 if oauth => Retry::Reauthenticate,
            429 if self.exhausted => Retry::No,
            400 if self.of_signature => Retry::Unsigned,
            // 499 means cancelled by the client, but gavel is still waiting.
            408 | 429 | 499 | 500 | 502 | 503 | 504 => self.retry_after.map_or(Retry::Backoff, Retry::After),
            _ => Retry::No,
        };
        let health = match self.code {
            408 | 499.. => Health::Sick,
            _ => Health::Well,
        };
        let key_is_invalid = self
            .reason
            .as_deref()
            .is_some_and(|reason| reason.starts_with("API_KEY"));
        let kind = match self.code {
            401 => FaultKind::Credentials,
            400 if key_is_invalid => FaultKind::Credentials,
            403 => FaultKind::Permission,
            404 => FaultKind::NoSuchModel,
            429 => FaultKind::Quota,
            408 | 499 => FaultKind::Unavailable,
            400..=498 => FaultKind::Rejected,
            _ => FaultKind::Unavailable,
        };
        Failure {
            kind,
            retry,
            health,
            detail: self.to_string(),
            said: None,
        }
    }
}

impl std::fmt::Display for ApiError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Gemini answered {}", self.code)?;
        for part in [&self.status, &self.reason].into_iter().flatten() {
            write!(f, " {part}")?;
        }
        for (name, part) in [("quota", &self.quota), ("field", &self.field)] {
            if let Some(part) = part {
                write!(f, " {name}={part}")?;
            }
        }
        match &self.message {
            Some(message) => write!(f, ": {message}"),
            None => Ok(()),
        }
    }
}

/// Capped at one day, because no caller waits longer.
fn duration(seconds: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(seconds.min(86_400.0)).ok()
}

/// Returns `34.4` for `34.4s.`, without a trailing full stop.
fn leading_number(text: &str) -> Option<f64> {
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    text.get(..end)?.trim_end_matches('.').parse().ok()
}

/// "Please retry in 34.4s." or "… in 120ms.".
fn delay_in(message: &str) -> Option<Duration> {
    let (_, rest) = message.split_once("retry in ")?;
    let delay = leading_number(rest).and_then(duration)?;
    let unit = rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    match unit {
        _ if unit.starts_with("ms") => Some(delay / 1000),
        _ if unit.starts_with('s') => Some(delay),
        _ => None,
    }
}

/// A 400, or an error without a code, is about the request and may quote it. Its message is reported only if it begins
/// with known text; quoted parts are redacted even then. Other errors are about keys, quotas, models and the provider's
/// state.
fn may_be_repeated(code: u16, message: &str) -> bool {
    const KNOWN: [&str; 17] = [
        "* GenerateContentRequest",
        "API key",
        "Cached content is too small",
        "Corrupted thought signature",
        "Function call is missing a thought_signature",
        "Function calling config is set without function_declarations",
        "Invalid JSON payload received",
        "Invalid thought signature",
        "Invalid value at '",
        "Please ensure that",
        "Please use a valid role",
        "Request contains an invalid argument",
        "Requests ending with a model turn",
        "The input token count",
        "Thinking ",
        "Unable to submit request because it has a temperature",
        "User location is not supported",
    ];
    !matches!(code, 0 | 400) || KNOWN.iter().any(|known| message.starts_with(known))
}

/// Redacts quoted text, and possible keys or tokens, collapses white space, and keeps 200 characters.
pub(super) fn sanitize(message: &str) -> String {
    let mut kept = String::with_capacity(200);
    for (n, piece) in message.split('"').enumerate() {
        // Every second piece was quoted; an unclosed quote extends to the end.
        if n % 2 == 1 {
            kept.push_str("\"…\"");
            continue;
        }
        let is_of_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        for word in piece.split_inclusive(|c: char| !is_of_word(c)) {
            let bare = word.trim_end_matches(|c: char| !is_of_word(c));
            if looks_secret(bare) {
                kept.push('…');
                kept.push_str(word.get(bare.len()..).unwrap_or_default());
            } else {
                kept.push_str(word);
            }
        }
    }
    let flat = kept
        .split(|c: char| c.is_whitespace() || c.is_control())
        .filter(|word| !word.is_empty());
    let flat: Vec<_> = flat.collect();
    flat.join(" ").chars().take(200).collect()
}

/// Google's API keys begin with `AIza` or `AQ.`. Other keys and tokens are long and mix letters with digits, between
/// dots; the provider's own long names have no digits.
fn looks_secret(word: &str) -> bool {
    let mixed = |part: &str| {
        part.len() >= 28 && part.bytes().any(|b| b.is_ascii_digit()) && part.bytes().any(|b| b.is_ascii_alphabetic())
    };
    let after = word.strip_prefix("AIza").or_else(|| word.strip_prefix("AQ."));
    after.is_some_and(|rest| !rest.is_empty()) || word.split('.').any(mixed)
}

fn is_path(text: &str) -> bool {
    text.len() <= 200 && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._[]-".contains(&b))
}

#[cfg(test)]
mod tests;
