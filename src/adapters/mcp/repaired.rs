//! Answers to rmcp's requests (handshake and lists), repaired if they deviate from the protocol and their meaning is
//! certain.

use rmcp::model::{ProtocolVersion, RequestId};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::message::{self, Envelope, Message, Says};
use crate::domain::surrogates;

/// Replaces a missing or non-numeric code.
const NO_CODE: i64 = -32603;

/// What a message on the way to rmcp is.
pub(super) enum Read {
    Answer(Box<Message>),
    /// A result for another request, with a description.
    Foreign(String),
    /// Not an answer to this request.
    Other,
}

/// Reads the answer to the request `id`.
///
/// # Errors
/// It is the answer, but its meaning is uncertain: a message that names the member.
pub(super) fn answer(json: &[u8], id: &RequestId) -> Result<Read, String> {
    let json = json.trim_ascii();
    let json = json.strip_prefix(b"\xef\xbb\xbf").unwrap_or(json);
    match json.first() {
        Some(b'{') => one(json, id),
        // Several messages as one list, as in the protocol of March 2025.
        Some(b'[') => {
            let messages: Vec<&RawValue> = serde_json::from_slice(json).unwrap_or_default();
            for message in messages.iter().filter(|message| message.get().starts_with('{')) {
                if let answer @ (Read::Answer(_) | Read::Foreign(_)) = one(message.get().as_bytes(), id)? {
                    return Ok(answer);
                }
            }
            Ok(Read::Other)
        }
        _ => Ok(Read::Other),
    }
}

fn unreadable(error: &serde_json::Error) -> String {
    format!("the answer is not a JSON-RPC message: {}", message::fault(error))
}

fn one(json: &[u8], id: &RequestId) -> Result<Read, String> {
    let repaired = surrogates::repaired(json);
    let envelope: Envelope<'_> = serde_json::from_slice(&repaired).map_err(|error| unreadable(&error))?;
    if !envelope.is_answer() {
        return match envelope.method {
            Some(_) => Ok(Read::Other),
            None => nothing(&envelope, id),
        };
    }
    let ours = is_ours(envelope.id, id);
    match envelope.says() {
        Says::Error(error) => {
            let error = json!({"code": error.code.unwrap_or(NO_CODE), "message": error.message});
            built(&json!({"jsonrpc": "2.0", "id": id, "error": error}))
        }
        _ if !ours => Ok(Read::Foreign(format!(
            "the answer has the `id` {}, and the request has {}",
            envelope.id.map_or("", RawValue::get),
            json!(id)
        ))),
        Says::Nothing(why) => Err(why),
        Says::Result(result) => match serde_json::from_str(result.get()) {
            Ok(result) => built(&json!({"jsonrpc": "2.0", "id": id, "result": whole(result)})),
            // It is nested too deeply for a tree.
            Err(_) => message::read(json)
                .map(|message| Read::Answer(Box::new(message)))
                .map_err(|error| error.to_string()),
        },
    }
}

/// For a message without content: is it meant for this request?
fn nothing(envelope: &Envelope<'_>, id: &RequestId) -> Result<Read, String> {
    match (envelope.id, envelope.says()) {
        (Some(_), Says::Nothing(why)) if is_ours(envelope.id, id) => Err(why),
        _ => Ok(Read::Other),
    }
}

/// Servers omit the id, send null, or write a number as text.
fn is_ours(raw: Option<&RawValue>, id: &RequestId) -> bool {
    let Some(raw) = raw.filter(|raw| raw.get() != "null") else {
        return true;
    };
    match id {
        RequestId::Number(id) => message::number(raw) == Some(*id),
        RequestId::String(id) => serde_json::from_str::<String>(raw.get()).is_ok_and(|text| text == **id),
    }
}

fn built(message: &Value) -> Result<Read, String> {
    let message = Message::deserialize(message).map_err(|error| unreadable(&error))?;
    Ok(Read::Answer(Box::new(message)))
}

/// A handshake result with the members that gavel uses, each in the protocol's form. Any other result is unchanged.
pub(super) fn whole(mut result: Value) -> Value {
    if is_empty(&result) {
        result = json!({});
    }
    let Value::Object(members) = &mut result else {
        return result;
    };
    if members.get("_meta").is_some_and(is_empty) {
        members.remove("_meta");
    }
    if members.contains_key("tools") {
        return result;
    }
    let says = |name: &str| members.contains_key(name);
    if says("supportedVersions") {
        return json!({
            "resultType": "complete",
            "supportedVersions": members["supportedVersions"],
            "capabilities": capabilities(members),
            "ttlMs": members.get("ttlMs").and_then(Value::as_u64).unwrap_or(0),
            "cacheScope": "private",
            "_meta": members.get("_meta").filter(|meta| meta.is_object()).cloned().unwrap_or(json!({})),
        });
    }
    if says("protocolVersion") || says("serverInfo") || says("capabilities") {
        let version = members.get("protocolVersion").filter(|version| !is_empty(version));
        return json!({
            // A server that names no version uses the requested one.
            "protocolVersion": version.cloned().unwrap_or(json!(ProtocolVersion::LATEST_WITH_INITIALIZE)),
            "capabilities": capabilities(members),
            "serverInfo": software(members.get("serverInfo")),
        });
    }
    result
}

/// Is it empty, as PHP writes an empty object?
fn is_empty(value: &Value) -> bool {
    value.is_null() || value.as_array().is_some_and(Vec::is_empty)
}

fn capabilities(members: &Map<String, Value>) -> Value {
    let changed = members
        .get("capabilities")
        .and_then(|all| all.pointer("/tools/listChanged"));
    json!({"tools": {"listChanged": changed == Some(&json!(true))}})
}

fn software(info: Option<&Value>) -> Value {
    let text = |name: &str| match info.and_then(|info| info.get(name)) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Number(number)) => number.to_string(),
        _ => String::new(),
    };
    let name = info.and_then(Value::as_str).map_or_else(|| text("name"), str::to_owned);
    json!({"name": name, "version": text("version")})
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn read(text: &str) -> Result<Option<Value>, String> {
        match answer(text.as_bytes(), &RequestId::Number(7))? {
            Read::Answer(message) => Ok(Some(serde_json::to_value(message).unwrap())),
            Read::Foreign(words) => Err(words),
            Read::Other => Ok(None),
        }
    }

    #[test]
    fn a_handshake_needs_no_more_members_than_its_meaning() {
        let version = json!(ProtocolVersion::LATEST_WITH_INITIALIZE);
        for (result, expected) in [
            (json!({"protocolVersion": "2025-03-26"}), json!("2025-03-26")),
            (
                json!({"protocolVersion": "2025-03-26", "capabilities": [], "serverInfo": []}),
                json!("2025-03-26"),
            ),
            (
                json!({"capabilities": {"tools": [], "experimental": []}, "_meta": []}),
                version.clone(),
            ),
            (
                json!({"serverInfo": {"name": "s", "version": 2}, "protocolVersion": null}),
                version.clone(),
            ),
            (
                json!({"serverInfo": "s", "capabilities": true, "instructions": 7}),
                version,
            ),
        ] {
            for id in ["7", "\"7\"", "7.0", "null"] {
                let text = format!(r#"{{"id":{id},"result":{result}}}"#);
                let read = read(&text).unwrap().unwrap();
                assert_eq!(read["id"], 7, "{text}");
                assert_eq!(read["result"]["protocolVersion"], expected, "{text}");
            }
        }
    }

    #[test]
    fn an_answer_whose_meaning_is_uncertain_is_reported_by_its_member() {
        for (text, word) in [
            (
                r#"{"id":7,"result":{},"error":{"code":1,"message":"no"}}"#,
                "`result` and an `error`",
            ),
            (r#"{"id":7}"#, "neither a `result` nor an `error`"),
            (r#"{"id":8,"result":{}}"#, "`id` 8"),
            (r#"{"id":7,"result":{}"#, "cut off"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(word), "{text}: {error}");
        }
        for other in [
            "pong",
            "",
            r#"{"method":"ping","id":7}"#,
            "{}",
            "[]",
            r#"[{"method":"x"}]"#,
        ] {
            assert_eq!(read(other), Ok(None), "{other}");
        }
    }

    #[test]
    fn an_error_is_one_whatever_its_members_are() {
        for (error, code, words) in [
            (r#"{"code":-32000,"message":"no"}"#, -32000, "no"),
            (r#"{"code":"-32000","message":"no"}"#, -32000, "no"),
            (r#"{"message":"no"}"#, NO_CODE, "no"),
            (r#""no""#, NO_CODE, "no"),
        ] {
            for id in ["7", "null", "\"server-error\"", "9"] {
                let read = read(&format!(r#"{{"id":{id},"error":{error}}}"#)).unwrap().unwrap();
                assert_eq!(read["error"], json!({"code": code, "message": words}), "{error}");
            }
        }
        let none = read(r#"{"id":7,"method":"tools/list","result":{"tools":[]},"error":[]}"#);
        assert_eq!(none.unwrap().unwrap()["result"], json!({"tools": []}));
    }
}
