//! The digest of a tool definition, by which approvals and pins recognize it.

use sha2::Digest;
use std::collections::HashMap;

use serde_json::{Value, json};
use sha2::Sha256;

use super::{KEYED, MAX_LISTED, SETTINGS, description, name};
use crate::domain::canonical;

/// The digests of the listed tools by name. A name may occur twice; [`super::read`] uses the first.
pub(crate) fn digests(list: &[Value]) -> HashMap<String, Vec<String>> {
    let mut found: HashMap<String, Vec<String>> = HashMap::new();
    for definition in list.iter().take(MAX_LISTED) {
        if let Ok(name) = name(definition) {
            found.entry(name.to_owned()).or_default().push(digest(definition));
        }
    }
    found
}

/// Hex SHA-256 over the canonical JSON of everything that a model or the policy relies on.
pub(super) fn digest(definition: &Value) -> String {
    let part = |key: &str| definition.get(key).cloned().unwrap_or(Value::Null);
    let hint = |name: &str| {
        definition
            .pointer(&format!("/annotations/{name}"))
            .cloned()
            .unwrap_or(Value::Null)
    };
    let mut covered = json!({
        "name": part("name"),
        "description": description(definition),
        "inputSchema": part("inputSchema"),
        "outputSchema": part("outputSchema"),
        // The hints that the protocol defines. A server may add others, which gavel ignores.
        "annotations": {
            "title": hint("title"),
            "readOnlyHint": hint("readOnlyHint"),
            "destructiveHint": hint("destructiveHint"),
            "idempotentHint": hint("idempotentHint"),
            "openWorldHint": hint("openWorldHint"),
        },
    });
    if let Some(keyed) = definition.pointer(KEYED) {
        covered["idempotency"] = keyed.clone();
    }
    if let Some(said) = definition.pointer(SETTINGS) {
        covered["settings"] = said.clone();
    }
    let hash = Sha256::digest(canonical::to_raw(&covered).get().as_bytes());
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}
