//! Reads what a server sends, as far as its meaning is certain: the one reader of messages, for both transports.
//!
//! Servers write ids as text, leave members out, repeat the method in an answer, and send PHP's empty lists. What an
//! answer holds is passed on as text, because its reader decides what it needs of it.

use std::borrow::Cow;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::domain::surrogates;

/// Largest list of messages that is read. Each message takes more memory than a short one has text.
const MAX_BATCH: usize = 1024 * 1024;
/// Maximum values in text that is read as a tree: each takes a hundred bytes of memory or more. A list of 512 tools has
/// some 50,000.
const MAX_VALUES: usize = 300_000;
/// Bytes that each value takes in a tree, in addition to its text.
const VALUE_BYTES: usize = 64;

/// One message of a server.
pub(super) enum Incoming<'a> {
    /// The answer to a request.
    Answer(Id, Says),
    Request {
        id: &'a RawValue,
        method: &'a str,
        /// As the protocol requires it, with `"jsonrpc": "2.0"`.
        is_versioned: bool,
    },
    Notification {
        method: &'a str,
        is_versioned: bool,
    },
    /// Its members say nothing.
    Other,
}

/// The id of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Id {
    /// Missing, or null.
    Absent,
    Number(i64),
    /// Not a number, which gavel never sends.
    Other,
}

impl Id {
    /// May the answer be to the request with this id?
    pub(super) fn may_be(self, id: u32) -> bool {
        self == Self::Absent || self == Self::Number(id.into())
    }
}

/// The content of an answer.
#[derive(Debug)]
pub(super) enum Says {
    /// The JSON text of the result.
    Result(Bytes),
    Error(RpcError),
    /// Neither a result nor an error, or both: the reason, with the member's name. It may quote the server.
    Nothing(String),
}

/// The unparsed members of a message. Parsing costs no more than the message's length.
#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow, default)]
    jsonrpc: Option<&'a RawValue>,
    #[serde(borrow, default)]
    id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    method: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    result: Option<&'a RawValue>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
}

impl Envelope<'_> {
    /// What `text`, which it was read from, is. No request has a result or an error, so a message with a method and one
    /// of these is an answer that repeats the method.
    fn visit(&self, text: &Bytes, visit: &mut dyn FnMut(Incoming<'_>)) {
        let is_answer = self.result.is_some() || self.error.is_some();
        let id = match self.id {
            None => Id::Absent,
            Some(id) => number(id).map_or(Id::Other, Id::Number),
        };
        let is_versioned = self.jsonrpc.map(RawValue::get) == Some(r#""2.0""#);
        visit(match (self.method.as_deref(), self.id) {
            (Some(method), Some(id)) if !is_answer => Incoming::Request {
                id,
                method,
                is_versioned,
            },
            (Some(method), None) if !is_answer => Incoming::Notification { method, is_versioned },
            _ if is_answer || matches!(id, Id::Number(_)) => Incoming::Answer(id, self.says(text)),
            _ => Incoming::Other,
        });
    }

    fn says(&self, text: &Bytes) -> Says {
        match (self.result, self.error.and_then(RpcError::read)) {
            (Some(result), None) => Says::Result(text.slice_ref(result.get().as_bytes())),
            (None, Some(error)) => Says::Error(error),
            // It is uncertain which one is valid, and neither may count as success.
            (Some(_), Some(error)) => Says::Nothing(format!(
                "the answer has both a `result` and an `error`, which says: {}",
                error.message
            )),
            (None, None) => Says::Nothing("the answer has neither a `result` nor an `error`".to_owned()),
        }
    }
}

/// Why text is not a message. It quotes nothing of the text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unreadable {
    /// It is not meant as one.
    #[error("it is not a JSON-RPC message")]
    NoMessage,
    /// It begins as one.
    #[error("the server's answer is not a JSON-RPC message: {0}")]
    Broken(String),
}

/// Calls `visit` with each message in `text`: one, or several as a list, as in the protocol of March 2025.
///
/// # Errors
/// The text is not a message.
pub(super) fn read(text: &Bytes, visit: &mut dyn FnMut(Incoming<'_>)) -> Result<(), Unreadable> {
    let text = trimmed(text);
    // serde would also accept an array as the members in order, so the first byte decides.
    match text.first() {
        Some(b'{') => one(&text, visit),
        Some(b'[') if text.len() <= MAX_BATCH => {
            let messages: Vec<&RawValue> = serde_json::from_slice(&text).map_err(|_| Unreadable::NoMessage)?;
            let mut messages = messages.iter().filter(|message| message.get().starts_with('{'));
            messages.try_for_each(|message| one(&text.slice_ref(message.get().as_bytes()), visit))
        }
        _ => Err(Unreadable::NoMessage),
    }
}

fn one(text: &Bytes, visit: &mut dyn FnMut(Incoming<'_>)) -> Result<(), Unreadable> {
    let error = match serde_json::from_slice::<Envelope<'_>>(text) {
        Ok(envelope) => {
            envelope.visit(text, visit);
            return Ok(());
        }
        Err(error) => error,
    };
    // Half characters within a result are left to the reader of the result. Those outside of it are repaired here.
    let repaired = Bytes::from(surrogates::repaired(text).into_owned());
    match serde_json::from_slice::<Envelope<'_>>(&repaired) {
        Ok(envelope) => {
            envelope.visit(&repaired, visit);
            Ok(())
        }
        Err(_) => Err(Unreadable::Broken(fault(&error))),
    }
}

/// The text without surrounding white space and byte order mark (RFC 8259 section 8.1).
pub(super) fn trimmed(text: &Bytes) -> Bytes {
    let inner = text.trim_ascii();
    text.slice_ref(inner.strip_prefix(b"\xef\xbb\xbf").unwrap_or(inner).trim_ascii_start())
}

/// A JSON-RPC error, without its data.
#[derive(Debug)]
pub(super) struct RpcError {
    /// `None` if it is missing or not a number.
    pub(super) code: Option<i64>,
    pub(super) message: String,
}

impl RpcError {
    /// Parses the member `error`. `None` if it means that there is no error, like `false` and PHP's empty array.
    fn read(raw: &RawValue) -> Option<Self> {
        #[derive(Default, Deserialize)]
        struct Members<'a> {
            #[serde(borrow, default)]
            code: Option<&'a RawValue>,
            #[serde(borrow, default)]
            message: Option<&'a RawValue>,
        }
        let text = |raw: &RawValue| {
            // Half characters are replaced here, because this text is shown.
            let repaired = surrogates::repaired(raw.get().as_bytes());
            serde_json::from_slice(&repaired).unwrap_or_else(|_| raw.get().to_owned())
        };
        let (code, message) = match raw.get() {
            "false" | "[]" | "{}" | "\"\"" | "null" => return None,
            object if object.starts_with('{') => {
                let members: Members<'_> = serde_json::from_str(object).unwrap_or_default();
                (
                    members.code.and_then(number),
                    members.message.map(text).unwrap_or_default(),
                )
            }
            _ => (None, text(raw)),
        };
        Some(Self { code, message })
    }
}

/// A whole number as servers may write it: `7`, `"7"` or `7.0`.
pub(super) fn number(raw: &RawValue) -> Option<i64> {
    let text = raw.get().trim_matches('"');
    let whole = text
        .split_once('.')
        .filter(|(_, zeros)| zeros.bytes().all(|digit| digit == b'0'));
    whole.map_or(text, |(whole, _)| whole).parse().ok()
}

/// What is invalid in JSON text, without quoting it.
pub(super) fn fault(error: &serde_json::Error) -> String {
    match error.classify() {
        serde_json::error::Category::Eof => "its JSON is cut off".to_owned(),
        serde_json::error::Category::Syntax | serde_json::error::Category::Io => {
            format!(
                "its JSON is invalid from column {} of line {} on",
                error.column(),
                error.line()
            )
        }
        serde_json::error::Category::Data => "its members are not those of a JSON-RPC message".to_owned(),
    }
}

/// The memory that JSON text takes as a tree, in addition to its length.
///
/// # Errors
/// It is too large for a tree: a message.
pub(super) fn tree_bytes(json: &[u8]) -> Result<usize, String> {
    match values(json) {
        values if values > MAX_VALUES => Err(format!("it has more than {MAX_VALUES} values")),
        values => Ok(values * VALUE_BYTES),
    }
}

/// The maximum number of values in JSON text, counted by commas and opening brackets outside of strings.
fn values(json: &[u8]) -> usize {
    let (mut count, mut at) = (1, 0);
    while let Some(found) = json
        .get(at..)
        .and_then(|rest| rest.iter().position(|byte| b",[{\"".contains(byte)))
    {
        at += found + 1;
        if json[at - 1] != b'"' {
            count += 1;
            continue;
        }
        // To the end of the string.
        while let Some(found) = json.get(at..).and_then(|rest| memchr::memchr2(b'"', b'\\', rest)) {
            at += found + 1;
            if json[at - 1] == b'"' {
                break;
            }
            at += 1;
        }
    }
    count
}

/// Is it empty, as PHP writes an empty object?
pub(super) fn is_empty(value: &Value) -> bool {
    value.is_null() || value.as_array().is_some_and(Vec::is_empty)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn shown(text: &str) -> Result<Vec<String>, Unreadable> {
        let mut found = Vec::new();
        read(&Bytes::from(text.to_owned()), &mut |incoming| {
            found.push(match incoming {
                Incoming::Answer(id, Says::Result(text)) => {
                    format!("{id:?} result {}", String::from_utf8_lossy(&text))
                }
                Incoming::Answer(id, Says::Error(error)) => format!("{id:?} error {:?} {}", error.code, error.message),
                Incoming::Answer(id, Says::Nothing(why)) => format!("{id:?} {why}"),
                Incoming::Request { id, method, .. } => format!("request {id} {method}"),
                Incoming::Notification { method, is_versioned } => format!("notification {method} {is_versioned}"),
                Incoming::Other => "other".to_owned(),
            });
        })?;
        Ok(found)
    }

    #[test]
    fn an_answer_is_understood_whatever_form_its_id_and_its_error_have() {
        for (id, read) in [
            ("7", "Number(7)"),
            ("\"7\"", "Number(7)"),
            ("7.0", "Number(7)"),
            ("null", "Absent"),
            ("\"server-error\"", "Other"),
        ] {
            let found = shown(&format!("\u{feff} {{\"id\":{id},\"result\":{{\"a\":1}}}}\n")).unwrap();
            assert_eq!(found, [format!("{read} result {{\"a\":1}}")]);
            for (error, read_error) in [
                (r#"{"code":-32000,"message":"no"}"#, "Some(-32000) no"),
                (r#"{"code":"-32000","message":"no"}"#, "Some(-32000) no"),
                (r#"{"message":"no"}"#, "None no"),
                (r#""no""#, "None no"),
            ] {
                let found = shown(&format!(r#"{{"id":{id},"error":{error}}}"#)).unwrap();
                assert_eq!(found, [format!("{read} error {read_error}")]);
            }
        }
        let none = shown(r#"{"id":7,"method":"tools/list","result":{},"error":[]}"#);
        assert_eq!(none.unwrap(), ["Number(7) result {}"]);
    }

    #[test]
    fn an_answer_whose_meaning_is_uncertain_names_the_member() {
        for (text, word) in [
            (
                r#"{"id":7,"result":{},"error":{"code":1,"message":"no"}}"#,
                "`result` and an `error`",
            ),
            (r#"{"id":7}"#, "neither a `result` nor an `error`"),
        ] {
            let found = shown(text).unwrap().remove(0);
            assert!(found.contains(word), "{found}");
        }
        let cut = shown(r#"{"id":7,"result":{}"#).unwrap_err().to_string();
        assert!(cut.ends_with("its JSON is cut off"), "{cut}");
    }

    #[test]
    fn messages_of_the_server_and_lists_of_messages_are_distinguished() {
        for (text, expected) in [
            (r#"{"method":"ping","id":"p"}"#, &["request \"p\" ping"][..]),
            (
                r#"{"jsonrpc":"2.0","method":"x","params":{"a":"\ud83d"}}"#,
                &["notification x true"],
            ),
            ("{}", &["other"]),
            ("[]", &[]),
            (
                r#"[{"method":"x"},7,{"id":1,"result":2}]"#,
                &["notification x false", "Number(1) result 2"],
            ),
        ] {
            assert_eq!(shown(text).unwrap(), expected, "{text}");
        }
        for text in ["pong", "", "[", "7"] {
            assert_eq!(shown(text), Err(Unreadable::NoMessage), "{text}");
        }
    }

    #[test]
    fn values_are_counted_outside_of_strings() {
        for (json, count) in [
            ("7", 1),
            (r#"{"a":[1,2,3],"b":"x,[{\",\\"}"#, 6),
            (r#"["\"","\\",[]]"#, 5),
            (r#""no end,,, \"#, 1),
        ] {
            assert_eq!(values(json.as_bytes()), count, "{json}");
        }
    }
}
