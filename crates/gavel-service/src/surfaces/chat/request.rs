//! Parses `POST /v1/chat` once, into a type that is always valid.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::Value;

use crate::api::problem::FieldError;
use crate::domain::ids::{ConversationId, UserId};
use crate::domain::journal::Speaker;
use crate::domain::object::Object;

/// Maximum bytes of a message.
pub const MAX_MESSAGE: usize = 32 * 1024;
/// Maximum entries of a history.
pub const MAX_HISTORY: usize = 200;
/// Maximum total bytes of a history's contents.
pub const MAX_HISTORY_BYTES: usize = 256 * 1024;

const FIELDS: &str = "message, user_id, conversation_id, history, tools, time_zone";

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

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Body<'a> {
    #[serde(borrow)]
    message: Cow<'a, str>,
    #[serde(borrow, default)]
    user_id: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    conversation_id: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    history: Option<Vec<Object<Line<'a>>>>,
    #[serde(default)]
    tools: Option<Vec<String>>,
    #[serde(borrow, default)]
    time_zone: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line<'a> {
    role: Role,
    #[serde(borrow)]
    content: Cow<'a, str>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Role {
    User,
    Assistant,
}

impl ChatRequest {
    /// Parses a body.
    ///
    /// # Errors
    /// All errors at once.
    pub fn from_json(body: &[u8]) -> Result<Self, Vec<FieldError>> {
        match serde_json::from_slice::<Object<Body<'_>>>(body) {
            Ok(Object(read)) => Self::check(read),
            Err(error) => Err(diagnose(body, &error)),
        }
    }

    fn check(body: Body<'_>) -> Result<Self, Vec<FieldError>> {
        let mut errors = Vec::new();
        check_message(&body.message, &mut errors);
        let user = body
            .user_id
            .and_then(|id| external(UserId::parse(id), "/user_id", &mut errors));
        let conversation = body
            .conversation_id
            .and_then(|id| external(ConversationId::parse(id), "/conversation_id", &mut errors));
        let mut history = Vec::new();
        for (n, Object(line)) in body.history.into_iter().flatten().enumerate() {
            no_nul(&line.content, &format!("/history/{n}/content"), &mut errors);
            let speaker = match line.role {
                Role::User => Speaker::User,
                Role::Assistant => Speaker::Assistant,
            };
            history.push((speaker, line.content.into_owned()));
        }
        let time_zone = match body.time_zone {
            None => chrono_tz::Tz::UTC,
            Some(name) => name.parse().unwrap_or_else(|_| {
                errors.push(FieldError::new(
                    "/time_zone",
                    format!("{name:?} is not an IANA time zone; a name such as \"Europe/Berlin\" is allowed"),
                ));
                chrono_tz::Tz::UTC
            }),
        };
        if errors.is_empty() {
            let message = body.message.into_owned();
            Ok(Self {
                message,
                user,
                conversation,
                history,
                tools: body.tools,
                time_zone,
            })
        } else {
            Err(errors)
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

fn check_message(message: &str, errors: &mut Vec<FieldError>) {
    if message.trim().is_empty() {
        errors.push(FieldError::new("/message", "must not be empty"));
    }
    no_nul(message, "/message", errors);
}

fn no_nul(text: &str, pointer: &str, errors: &mut Vec<FieldError>) {
    if text.contains('\0') {
        errors.push(FieldError::new(
            pointer,
            "contains a NUL character, which is not allowed",
        ));
    }
}

fn external<T>(
    parsed: Result<T, crate::domain::ids::IdError>,
    pointer: &str,
    errors: &mut Vec<FieldError>,
) -> Option<T> {
    parsed
        .map_err(|error| errors.push(FieldError::new(pointer, error.to_string())))
        .ok()
}

// Every error of a body that does not parse.

/// The slow path: checks an invalid body field by field, to report all errors at once.
fn diagnose(body: &[u8], error: &serde_json::Error) -> Vec<FieldError> {
    let value: Value = match serde_json::from_slice(body) {
        Ok(value) => value,
        Err(error) => {
            return vec![FieldError::new("", format!("the body is not JSON: {error}"))];
        }
    };
    let Value::Object(object) = value else {
        return vec![FieldError::new(
            "",
            format!("the body is {}; an object is allowed", kind(&value)),
        )];
    };
    let mut errors = Vec::new();
    if !object.contains_key("message") {
        errors.push(FieldError::new("/message", "is missing; a string is required"));
    }
    for (name, value) in &object {
        let pointer = format!("/{}", name.replace('~', "~0").replace('/', "~1"));
        match name.as_str() {
            "message" => match value.as_str() {
                Some(message) => check_message(message, &mut errors),
                None => expect_string(value, &pointer, &mut errors),
            },
            "user_id" | "conversation_id" | "time_zone" if value.is_null() => {}
            "user_id" | "conversation_id" if value.is_string() => {
                let id = value.as_str().unwrap_or_default();
                external(UserId::parse(id), &pointer, &mut errors);
            }
            "user_id" | "conversation_id" | "time_zone" => expect_string(value, &pointer, &mut errors),
            "history" => diagnose_history(value, &mut errors),
            "tools" => diagnose_tools(value, &mut errors),
            _ => errors.push(FieldError::new(
                pointer,
                format!("is not a known field; allowed are {FIELDS}"),
            )),
        }
    }
    if errors.is_empty() {
        errors.push(FieldError::new("", error.to_string()));
    }
    errors
}

fn diagnose_history(value: &Value, errors: &mut Vec<FieldError>) {
    let lines = match value {
        Value::Null => return,
        Value::Array(lines) => lines,
        other => {
            errors.push(FieldError::new(
                "/history",
                format!("is {}; an array is allowed", kind(other)),
            ));
            return;
        }
    };
    for (n, line) in lines.iter().enumerate() {
        let at = format!("/history/{n}");
        let Value::Object(line) = line else {
            errors.push(FieldError::new(
                at,
                format!("is {}; {{\"role\", \"content\"}} is allowed", kind(line)),
            ));
            continue;
        };
        match line.get("role") {
            Some(Value::String(role)) if role == "user" || role == "assistant" => {}
            Some(other) => errors.push(FieldError::new(
                format!("{at}/role"),
                format!("is {}; \"user\" or \"assistant\" is allowed", shown(other)),
            )),
            None => errors.push(FieldError::new(format!("{at}/role"), "is missing")),
        }
        match line.get("content") {
            Some(content) => expect_string(content, &format!("{at}/content"), errors),
            None => errors.push(FieldError::new(format!("{at}/content"), "is missing")),
        }
        for name in line.keys().filter(|name| *name != "role" && *name != "content") {
            errors.push(FieldError::new(
                format!("{at}/{name}"),
                "is not a known field; allowed are role, content",
            ));
        }
    }
}

fn diagnose_tools(value: &Value, errors: &mut Vec<FieldError>) {
    match value {
        Value::Null => {}
        Value::Array(names) => {
            for (n, name) in names.iter().enumerate() {
                expect_string(name, &format!("/tools/{n}"), errors);
            }
        }
        other => errors.push(FieldError::new(
            "/tools",
            format!("is {}; an array of tool names is allowed", kind(other)),
        )),
    }
}

fn expect_string(value: &Value, pointer: &str, errors: &mut Vec<FieldError>) {
    if !value.is_string() {
        errors.push(FieldError::new(
            pointer,
            format!("is {}; a string is allowed", kind(value)),
        ));
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

fn shown(value: &Value) -> String {
    let text = value.to_string();
    if text.len() > 40 {
        format!("{} …", kind(value))
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The places of all errors, sorted.
    fn pointers(body: &str) -> Vec<String> {
        let errors = ChatRequest::from_json(body.as_bytes()).unwrap_err();
        let mut pointers: Vec<_> = errors.into_iter().map(|error| error.pointer).collect();
        pointers.sort();
        pointers
    }

    /// Fields are identified by name, never by position.
    #[test]
    fn an_array_is_no_object() {
        for (body, place) in [
            (r#"["hi", "ann"]"#, ""),
            (r#"{"message": "hi", "history": [["user", "hello"]]}"#, "/history/0"),
        ] {
            let errors = ChatRequest::from_json(body.as_bytes()).unwrap_err();
            assert_eq!(errors.len(), 1, "{errors:?}");
            assert!(
                errors[0].pointer == place && errors[0].detail.contains("is an array"),
                "{errors:?}"
            );
        }
    }

    #[test]
    fn every_error_is_reported_at_once() {
        let body = r#"{"message":7,"user_id":[],"history":[{"role":"system","content":1},3],"tools":"x","colour":1}"#;
        let found = pointers(body);
        let expected = [
            "/colour",
            "/history/0/content",
            "/history/0/role",
            "/history/1",
            "/message",
            "/tools",
            "/user_id",
        ];
        assert_eq!(found, expected);
        assert_eq!(
            pointers(r#"{"message":" ","user_id":"","colour":1}"#),
            ["/colour", "/message", "/user_id"]
        );
    }

    #[test]
    fn blank_messages_nul_long_ids_and_unknown_zones_are_named() {
        assert_eq!(pointers(r#"{"message":"  ","user_id":"u"}"#), ["/message"]);
        assert_eq!(pointers(r#"{"message":"a\u0000b","user_id":"u"}"#), ["/message"]);
        assert_eq!(
            pointers(&format!(r#"{{"message":"a","user_id":"{}"}}"#, "x".repeat(10_000))),
            ["/user_id"]
        );
        assert_eq!(
            pointers(r#"{"message":"a","user_id":"u","time_zone":"Mars/Base"}"#),
            ["/time_zone"]
        );
        assert_eq!(pointers("{"), [""]);
        assert_eq!(pointers("[1]"), [""]);
        assert_eq!(pointers(r#"{"message":"a","message":"b"}"#), [""]);
    }

    #[test]
    fn what_is_merely_too_long_parses_and_says_so() {
        let body = format!(r#"{{"message":"{}","user_id":"u"}}"#, "x".repeat(MAX_MESSAGE + 1));
        assert!(
            ChatRequest::from_json(body.as_bytes())
                .unwrap()
                .over_limit()
                .is_some_and(|over| over.subject == "message")
        );
    }

    proptest! {
        #[test]
        fn no_body_makes_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = ChatRequest::from_json(&bytes);
        }
    }
}
