//! `google_account`

use gavel_mcp_base::schema::{self, Behaviour};
use gavel_mcp_base::{Answer, Arguments, ToolError, missing};
use rmcp::model::{JsonObject, Tool};
use serde_json::json;

use super::{calendar_event_create, gmail_send};
use crate::google::{As, Google, Right};

pub(crate) const NAME: &str = "google_account";

const DESCRIPTION: &str = "\
Tell whether the user's Google account is connected, and allows what another tool needs. It changes nothing. Where it is not so, the \
error says what the user has to do; otherwise the other tool can be called.";

/// What is to be done.
const FOR: [(&str, Right); 2] = [
    (gmail_send::NAME, Right::Send),
    (calendar_event_create::NAME, Right::WriteEvents),
];

pub(crate) fn tool() -> Tool {
    schema::tool(
        NAME,
        "Look whether the account is connected",
        DESCRIPTION,
        schema::input(
            json!({
                "for": {
                    "type": "string",
                    "enum": FOR.map(|(name, _)| name),
                    "description": "The tool that is to be called."
                }
            }),
            &["for"],
        ),
        schema::output(
            schema::properties([("ready", json!({ "type": "boolean", "description": "Always true." }))]),
            &["ready"],
        ),
        Behaviour {
            read_only: true,
            destructive: false,
            idempotent: true,
            open_world: true,
        },
    )
}

/// For which right is asked?
pub(crate) fn parse(arguments: Option<JsonObject>) -> Result<Right, ToolError> {
    let arguments = Arguments::new(arguments, &["for"])?;
    arguments.choice("for", &FOR)?.ok_or_else(|| missing("for"))
}

/// A token is asked for where there is none: Google says then that consent was taken back.
pub(crate) async fn carry_out(google: &Google, who: As<'_>, right: Right) -> Result<Answer, ToolError> {
    google.access(who, right).await?;
    Ok(Answer::of(&json!({ "ready": true })))
}
