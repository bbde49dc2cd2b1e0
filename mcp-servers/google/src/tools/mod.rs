//! The tools: what they tell a model, how their arguments become a request, and how it is carried out once.

pub(crate) mod calendar_event_create;
pub(crate) mod gmail_send;
pub(crate) mod google_account;

use std::sync::LazyLock;

use gavel_mcp_base::{Class, ToolError, UserId};
use rmcp::model::{JsonObject, Tool};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::google::Right;
use crate::settings::Limits;

/// A call whose arguments have been understood.
#[derive(Debug)]
pub(crate) enum Request {
    Mail(gmail_send::Request),
    Event(calendar_event_create::Request),
}

impl Request {
    /// What the tool of this name is to do.
    pub(crate) fn parse(name: &str, arguments: Option<JsonObject>, limits: &Limits) -> Result<Self, ToolError> {
        let request = match name {
            gmail_send::NAME => gmail_send::parse(arguments, limits).map(Self::Mail),
            _ => calendar_event_create::parse(arguments, limits).map(Self::Event),
        };
        request.map_err(|error| error.class(Class::Arguments))
    }

    /// What the user must have consented to.
    pub(crate) fn right(&self) -> Right {
        match self {
            Self::Mail(_) => Right::Send,
            Self::Event(_) => Right::WriteEvents,
        }
    }
}

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
