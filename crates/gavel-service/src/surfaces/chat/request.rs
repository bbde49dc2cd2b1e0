//! A chat request that was checked: it is always valid.

use crate::api::chat::{ChatBody, HistoryRole};
use crate::api::problem::FieldError;
use crate::domain::ids::{ConversationId, IdError, UserId};
use crate::domain::journal::Speaker;
use crate::domain::object::Object;
use crate::surfaces::request::time_zone;

/// Maximum bytes of a message.
pub const MAX_MESSAGE: usize = 32 * 1024;
/// Maximum entries of a history.
pub const MAX_HISTORY: usize = 200;
/// Maximum total bytes of a history's contents.
pub const MAX_HISTORY_BYTES: usize = 256 * 1024;

/// A valid request.
#[derive(Clone, Debug)]
pub struct ChatRequest {
    /// The user's message. Not blank, no NUL.
    pub message: String,
    /// The acting user; absent only when the caller's token names the user.
    pub user: Option<UserId>,
    /// The conversation's id; absent: a new one is assigned.
    pub conversation: Option<ConversationId>,
    /// Earlier messages, oldest first.
    pub history: Vec<(Speaker, String)>,
    /// A subset of the allowlist; absent: all of it.
    pub tools: Option<Vec<String>>,
    /// For "today" and "tomorrow"; absent: UTC.
    pub time_zone: chrono_tz::Tz,
}

impl ChatRequest {
    /// Checks a body.
    ///
    /// # Errors
    /// All errors at once.
    pub fn new(body: ChatBody) -> Result<Self, Vec<FieldError>> {
        let mut errors = Vec::new();
        if body.message.trim().is_empty() {
            errors.push(FieldError::new("/message", "must not be empty"));
        }
        no_nul(&body.message, "/message", &mut errors);
        let user = body.user_id.map(UserId::parse);
        let user = user.and_then(|id| external(id, "/user_id", &mut errors));
        let conversation = body.conversation_id.map(ConversationId::parse);
        let conversation = conversation.and_then(|id| external(id, "/conversation_id", &mut errors));
        let mut history = Vec::new();
        for (n, Object(line)) in body.history.into_iter().flatten().enumerate() {
            no_nul(&line.content, &format!("/history/{n}/content"), &mut errors);
            let speaker = match line.role {
                HistoryRole::User => Speaker::User,
                HistoryRole::Assistant => Speaker::Assistant,
            };
            history.push((speaker, line.content));
        }
        let zone = time_zone(body.time_zone.as_deref());
        let zone = zone.map_err(|detail| errors.push(FieldError::new("/time_zone", detail)));
        match zone {
            Ok(zone) if errors.is_empty() => Ok(Self {
                message: body.message,
                user,
                conversation,
                history,
                tools: body.tools,
                time_zone: zone.unwrap_or(chrono_tz::Tz::UTC),
            }),
            _ => Err(errors),
        }
    }

    /// The part of the request that exceeds its limit. Such a request is answered with a decision, `ERROR:USER_INPUT`.
    pub fn over_limit(&self) -> Option<OverLimit> {
        let bytes: usize = self.history.iter().map(|(_, text)| text.len()).sum();
        if self.message.len() > MAX_MESSAGE {
            Some(OverLimit {
                subject: "message",
                limit: "32 KiB",
            })
        } else if self.history.len() > MAX_HISTORY {
            Some(OverLimit {
                subject: "history",
                limit: "200 entries",
            })
        } else {
            (bytes > MAX_HISTORY_BYTES).then_some(OverLimit {
                subject: "history",
                limit: "256 KiB",
            })
        }
    }
}

/// Which part is too long, and its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OverLimit {
    /// `message` or `history`.
    pub subject: &'static str,
    /// The limit, with its unit.
    pub limit: &'static str,
}

fn no_nul(text: &str, pointer: &str, errors: &mut Vec<FieldError>) {
    if text.contains('\0') {
        errors.push(FieldError::new(
            pointer,
            "contains a NUL character, which is not allowed",
        ));
    }
}

fn external<T>(parsed: Result<T, IdError>, pointer: &str, errors: &mut Vec<FieldError>) -> Option<T> {
    parsed
        .map_err(|error| errors.push(FieldError::new(pointer, error.to_string())))
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(body: &str) -> Result<ChatRequest, Vec<FieldError>> {
        let Object(body) = serde_json::from_str(body).unwrap();
        ChatRequest::new(body)
    }

    /// The places of all errors, sorted.
    fn pointers(body: &str) -> Vec<String> {
        let mut pointers: Vec<_> = parsed(body)
            .unwrap_err()
            .into_iter()
            .map(|error| error.pointer)
            .collect();
        pointers.sort();
        pointers
    }

    /// Fields are identified by name, never by position.
    #[test]
    fn an_array_is_no_object() {
        for body in [
            r#"["hi", "ann"]"#,
            r#"{"message": "hi", "history": [["user", "hello"]]}"#,
        ] {
            let error = serde_json::from_str::<Object<ChatBody>>(body).unwrap_err();
            assert!(error.to_string().contains("an object"), "{error}");
        }
    }

    #[test]
    fn every_invalid_value_is_reported_at_once() {
        assert_eq!(
            pointers(r#"{"message":" ","user_id":"","time_zone":"Mars/Base"}"#),
            ["/message", "/time_zone", "/user_id"]
        );
        assert_eq!(pointers(r#"{"message":"a\u0000b","user_id":"u"}"#), ["/message"]);
        assert_eq!(
            pointers(&format!(r#"{{"message":"a","user_id":"{}"}}"#, "x".repeat(10_000))),
            ["/user_id"]
        );
    }

    #[test]
    fn what_is_merely_too_long_parses_and_says_so() {
        let body = format!(r#"{{"message":"{}","user_id":"u"}}"#, "x".repeat(MAX_MESSAGE + 1));
        assert!(
            parsed(&body)
                .unwrap()
                .over_limit()
                .is_some_and(|over| over.subject == "message")
        );
    }
}
