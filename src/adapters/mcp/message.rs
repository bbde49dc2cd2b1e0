//! A server's message, read as far as it can be.
//!
//! What JSON readers refuse costs no more than what it is about: halves of characters are replaced (`surrogates`), a result
//! that nests too deeply becomes text, and of a list of tools the one that does is left out by name.

use std::collections::BTreeMap;

use rmcp::RoleClient;
use rmcp::service::RxJsonRpcMessage;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::definition::{MAX_LEVELS, TOO_DEEP};
use crate::domain::{nesting, surrogates};

/// What a server says.
pub(super) type Message = RxJsonRpcMessage<RoleClient>;

/// Reads one message.
///
/// # Errors
/// It is none.
pub(super) fn read(json: &[u8]) -> Result<Message, serde_json::Error> {
    let error = match serde_json::from_slice(json) {
        Ok(message) => return Ok(message),
        Err(error) => error,
    };
    let mended = surrogates::mended(json);
    if let Ok(message) = serde_json::from_slice(&mended) {
        return Ok(message);
    }
    shallow(&mended).ok_or(error)
}

/// The members of an answer, each as it came.
#[derive(Deserialize)]
struct Answer<'a> {
    id: Value,
    #[serde(borrow)]
    result: BTreeMap<String, &'a RawValue>,
}

/// An answer without what nests so deeply that readers stop. They take raw JSON of any depth.
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

/// A list of tools, in which one that nests too deeply has nothing but its name.
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
