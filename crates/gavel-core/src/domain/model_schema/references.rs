//! Expands the references of a schema, and replaces the recursive ones by stubs.

use serde_json::{Map, Value, json};

use super::super::text::visible;
use super::{Translation, is_plain};

impl Translation<'_> {
    pub(super) fn reference(&mut self, reference: &Value, depth: usize) -> Result<Map<String, Value>, String> {
        let Value::String(reference) = reference else {
            return Err("a `$ref` that is not text".to_owned());
        };
        self.spend(reference.len())?;
        let Some(pointer) = reference.strip_prefix('#') else {
            return Err(format!("`$ref` {reference} points outside the schema"));
        };
        let target = match self.root.pointer(&percent_decoded(pointer)) {
            Some(Value::Object(target)) => target,
            Some(Value::Bool(true)) => return Ok(Map::new()),
            _ => return Err(format!("`$ref` {reference} has no target")),
        };
        let is_open = self.open.iter().any(|open| open == reference) || pointer.is_empty();
        if is_open || self.open.len() >= self.levels {
            return self.stub(reference, target, is_open);
        }
        self.open.push(reference.clone());
        let out = self.object(target, depth + 1);
        self.open.pop();
        out
    }

    /// Replaces a schema that has no end, or would be too large: the type, and a note about the form. Arguments are
    /// still checked against the original schema.
    fn stub(
        &mut self,
        reference: &str,
        target: &Map<String, Value>,
        is_open: bool,
    ) -> Result<Map<String, Value>, String> {
        let mut out = Map::new();
        if let Some(kind) = target.get("type").filter(|kind| is_plain(kind)) {
            out.insert("type".to_owned(), self.copy(kind, 0)?);
        } else if target.contains_key("properties") {
            out.insert("type".to_owned(), json!("object"));
        }
        let name = reference.rsplit('/').next().unwrap_or_default().trim_start_matches('#');
        let name = visible(&percent_decoded(name));
        self.spend(name.len())?;
        let words = match (is_open, name.is_empty()) {
            (true, true) => "Same structure as the whole.".to_owned(),
            (true, false) => format!("Same structure as the enclosing `{name}`."),
            (false, _) => format!("A `{name}`; its structure is validated."),
        };
        out.insert("description".to_owned(), json!(words));
        Ok(out)
    }
}

/// The pointer of a URI fragment may be percent-encoded (RFC 6901 section 6).
fn percent_decoded(pointer: &str) -> String {
    let bytes = pointer.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let hex = bytes.get(at + 1..at + 3).and_then(|hex| std::str::from_utf8(hex).ok());
        match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) if bytes[at] == b'%' => {
                out.push(byte);
                at += 3;
            }
            _ => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8(out).unwrap_or_else(|_| pointer.to_owned())
}
