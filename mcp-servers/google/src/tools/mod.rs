//! The tools: their descriptions for models, how their arguments become a request, and how it is executed once.

pub(crate) mod calendar_event_create;
pub(crate) mod gmail_send;
pub(crate) mod google_account;

use std::sync::LazyLock;

use gavel_mcp_base::{Class, ToolError, UserId};
use rmcp::model::{JsonObject, Tool};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::rights::Right;
use crate::settings::Limits;

/// A call with parsed arguments.
#[derive(Debug)]
pub(crate) enum Request {
    Mail(gmail_send::Request),
    Event(calendar_event_create::Request),
}

impl Request {
    /// Parses the request of the named tool.
    pub(crate) fn parse(name: &str, arguments: Option<JsonObject>, limits: &Limits) -> Result<Self, ToolError> {
        let request = match name {
            gmail_send::NAME => gmail_send::parse(arguments, limits).map(Self::Mail),
            _ => calendar_event_create::parse(arguments, limits).map(Self::Event),
        };
        request.map_err(|error| error.class(Class::Arguments))
    }

    /// The right to which the user must have consented.
    pub(crate) fn right(&self) -> Right {
        match self {
            Self::Mail(_) => Right::Send,
            Self::Event(_) => Right::WriteEvents,
        }
    }
}

/// All tools, always in the same order.
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

/// A name derived from a user's key, in the characters that Calendar accepts for ids.
fn reference(tool: &str, user: &UserId, key: &str) -> String {
    let mut digest = Sha256::new();
    for part in [tool, user.as_str(), key] {
        digest.update((part.len() as u64).to_be_bytes());
        digest.update(part);
    }
    hex::encode(&digest.finalize()[..20])
}

/// A list of recipients. The README names the arguments with recipients, for operators who configure grants.
fn recipients(description: &str) -> Value {
    json!({ "type": "array", "items": { "type": "string" }, "description": description })
}
