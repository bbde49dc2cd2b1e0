//! Reads a server's message as far as possible.
//!
//! An unreadable part affects only what it belongs to. Half characters are replaced (`surrogates`), a result that is
//! nested too deeply becomes text, and a tool that is nested too deeply is left out by name.

use std::borrow::Cow;
use std::collections::BTreeMap;

use rmcp::RoleClient;
use rmcp::service::RxJsonRpcMessage;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::definition::{MAX_LEVELS, TOO_DEEP};
use crate::domain::{nesting, surrogates};

/// A server's message.
pub(super) type Message = RxJsonRpcMessage<RoleClient>;

/// Maximum values in a message that is read as a tree: each takes a hundred bytes of memory or more. A list of 512
/// tools has some 50,000.
const MAX_VALUES: usize = 300_000;
/// Bytes that each value takes in a tree, in addition to its text.
const VALUE_BYTES: usize = 64;

/// The unparsed members of a message. Parsing costs no more than the message's length.
#[derive(Deserialize)]
pub(super) struct Envelope<'a> {
    #[serde(borrow, default)]
    pub(super) jsonrpc: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) method: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub(super) result: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub(super) error: Option<&'a RawValue>,
}

/// The content of an answer.
pub(super) enum Says<'a> {
    Result(&'a RawValue),
    Error(RpcError),
    /// Neither a result nor an error, or both: the reason, with the member's name. It may quote the server.
    Nothing(String),
}

impl<'a> Envelope<'a> {
    /// Is it an answer, and not a request or notification? No request has a result or an error, so a message with both
    /// a method and one of these is an answer that repeats the method.
    pub(super) fn is_answer(&self) -> bool {
        self.result.is_some() || self.error.is_some()
    }

    /// Its content as an answer.
    pub(super) fn says(&self) -> Says<'a> {
        match (self.result, self.error.and_then(RpcError::read)) {
            (Some(result), None) => Says::Result(result),
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

/// Why a message cannot be read. Unlike serde's messages, it quotes nothing of the message.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unreadable {
    /// It is not a JSON-RPC message.
    #[error("it is not a JSON-RPC message: {}", fault(.0))]
    Json(#[from] serde_json::Error),
    /// It has too many values.
    #[error("it has more than {MAX_VALUES} values")]
    Values,
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

/// Reads one message.
///
/// # Errors
/// It is not a message, or too large for a tree.
pub(super) fn read(json: &[u8]) -> Result<Message, Unreadable> {
    tree_bytes(json)?;
    let error = match serde_json::from_slice(json) {
        Ok(message) => return Ok(message),
        Err(error) => error,
    };
    let repaired = surrogates::repaired(json);
    if let Ok(message) = serde_json::from_slice(&repaired) {
        return Ok(message);
    }
    shallow(&repaired).ok_or(Unreadable::Json(error))
}

/// The memory of a message as a tree, in addition to its text.
///
/// # Errors
/// It is too large for a tree.
pub(super) fn tree_bytes(json: &[u8]) -> Result<usize, Unreadable> {
    match values(json) {
        values if values > MAX_VALUES => Err(Unreadable::Values),
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
/// The members of an answer, unparsed.
#[derive(Deserialize)]
struct Answer<'a> {
    id: Value,
    #[serde(borrow)]
    result: BTreeMap<String, &'a RawValue>,
}

/// An answer without the parts that are nested too deeply for parsers. Raw JSON may have any depth.
fn shallow(json: &[u8]) -> Option<Message> {
    let answer: Answer<'_> = serde_json::from_slice(json).ok()?;
    if !answer.result.values().any(|raw| is_deep(raw, nesting::MAX_LEVELS)) {
        return None;
    }
    let member = |(name, raw): (String, &RawValue)| {
        let value = match (name.as_str(), is_deep(raw, nesting::MAX_LEVELS)) {
            (_, false) => serde_json::from_str(raw.get()),
            ("tools", true) => tools(raw),
            (_, true) => Ok(json!(raw.get())),
        };
        value.map(|value| (name, value))
    };
    let result: Result<BTreeMap<_, Value>, _> = answer.result.into_iter().map(member).collect();
    serde_json::from_value(json!({"jsonrpc": "2.0", "id": answer.id, "result": result.ok()?})).ok()
}

/// A list of tools. A tool that is nested too deeply keeps only its name.
fn tools(list: &RawValue) -> Result<Value, serde_json::Error> {
    #[derive(Deserialize)]
    struct Named {
        #[serde(default)]
        name: Value,
    }
    let list: Vec<&RawValue> = serde_json::from_str(list.get())?;
    let tool = |raw: &&RawValue| {
        if !is_deep(raw, MAX_LEVELS) {
            return serde_json::from_str(raw.get());
        }
        let named = serde_json::from_str::<Named>(raw.get())?;
        Ok(json!({"name": named.name, TOO_DEEP: true}))
    };
    list.iter().map(tool).collect()
}

fn is_deep(raw: &RawValue, levels: usize) -> bool {
    !nesting::within(raw.get().as_bytes(), levels)
}

#[cfg(test)]
mod tests {
    use super::*;

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

    /// A tree of it would take more than a gigabyte.
    #[test]
    fn a_message_of_millions_of_small_values_is_not_read() {
        let json = format!(
            r#"{{"jsonrpc":"2.0","id":1,"result":{{"tools":[{}0]}}}}"#,
            "[],".repeat(4_000_000)
        );
        let error = read(json.as_bytes()).map(drop).map_err(|error| error.to_string());
        assert_eq!(error, Err("it has more than 300000 values".to_owned()));
    }
}
