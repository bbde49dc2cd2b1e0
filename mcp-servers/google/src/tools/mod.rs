//! The tools: what they tell a model, how their arguments become a request, and how it is carried out once.

pub(crate) mod calendar_event_create;
pub(crate) mod gmail_send;
pub(crate) mod google_account;

use std::sync::LazyLock;

use gavel_mcp_base::UserId;
use rmcp::model::Tool;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// Every tool, always in the same order.
pub(crate) fn all() -> &'static [Tool] {
    static TOOLS: LazyLock<Vec<Tool>> = LazyLock::new(|| {
        vec![
            gmail_send::tool(),
            calendar_event_create::tool(),
            google_account::tool(),
        ]
    });
    &TOOLS
}

/// A name that one key of one user always leads to, in the characters that Calendar takes for an id.
fn reference(tool: &str, user: &UserId, key: &str) -> String {
    let mut digest = Sha256::new();
    for part in [tool, user.as_str(), key] {
        digest.update((part.len() as u64).to_be_bytes());
        digest.update(part);
    }
    hex::encode(&digest.finalize()[..20])
}

/// A list of recipients. Which arguments hold them is told in the README, for whoever grants by recipient.
fn recipients(description: &str) -> Value {
    json!({ "type": "array", "items": { "type": "string" }, "description": description })
}
