//! The tools: their arguments and answers with their descriptions for models, and how a request is executed once.

mod calendar_event_create;
mod gmail_send;
mod google_account;

use gavel_mcp_base::{Class, Tool, ToolError, UserId};
use sha2::{Digest, Sha256};

use crate::server::Service;

/// All tools, always in the same order.
pub(crate) fn all() -> Vec<Tool<Service>> {
    vec![
        gmail_send::tool(),
        calendar_event_create::tool(),
        google_account::tool(),
    ]
}

/// The error says that the call can never succeed.
fn of_arguments(error: ToolError) -> ToolError {
    error.class(Class::Arguments)
}

/// A name derived from a user's key, in the characters that Calendar accepts for ids.
fn reference(tool: &str, user: &UserId, key: &str) -> String {
    let mut digest = Sha256::new();
    for part in [tool, user.as_str(), key] {
        digest.update((part.len() as u64).to_be_bytes());
        digest.update(part);
    }
    hex::encode(&digest.finalize()[..20])
}
