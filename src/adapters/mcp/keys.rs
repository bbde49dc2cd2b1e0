//! Finds the call that an unreadable line answers: a line that is too long, or not JSON. The id is at its beginning or
//! its end, depending on the program that wrote it.

use std::fmt;

use serde::Deserializer;
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde_json::Value;

/// Bytes that are examined at the end of a line.
pub(super) const TAIL: usize = 512;

/// What a line's readable members show.
#[derive(Default)]
pub(super) struct Keys {
    pub(super) id: Option<Value>,
    /// It is an answer.
    pub(super) answer: bool,
    /// It is a request or a notification of the server, which does not answer a call.
    pub(super) theirs: bool,
}

impl Keys {
    pub(super) fn of(line: &[u8]) -> Self {
        let mut keys = Self::default();
        // The line is cut off or not JSON, so parsing ends with an error. What was found before counts.
        let _ = serde_json::Deserializer::from_slice(line).deserialize_map(&mut keys);
        keys
    }
}

impl<'de> Visitor<'de> for &mut Keys {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON-RPC message")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "id" => {
                    self.id = Some(map.next_value()?);
                    continue;
                }
                "result" | "error" => self.answer = true,
                "method" | "params" => self.theirs = true,
                _ => {}
            }
            map.next_value::<IgnoredAny>()?;
        }
        Ok(())
    }
}

/// The id, if it is the last member of the line, or the last before `jsonrpc`. The member directly before the line's
/// last brace belongs to the message itself.
pub(super) fn last_id(tail: &[u8]) -> Option<Value> {
    let tail = String::from_utf8_lossy(&tail[tail.len().saturating_sub(TAIL)..]);
    let members = tail.trim_end().strip_suffix('}')?;
    let members = members.strip_suffix(r#","jsonrpc":"2.0""#).unwrap_or(members);
    let (_, id) = members.rsplit_once(r#","id":"#)?;
    let id: Value = serde_json::from_str(id).ok()?;
    (id.is_number() || id.is_string()).then_some(id)
}
