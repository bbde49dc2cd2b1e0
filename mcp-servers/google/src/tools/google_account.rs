//! `google_account`

use gavel_mcp_base::schema::{self, Behaviour};
use gavel_mcp_base::{Answer, Arguments, ToolError, missing};
use rmcp::model::{JsonObject, Tool};
use serde_json::json;

use super::{Request, calendar_event_create, gmail_send};
use crate::google::Google;
use crate::rights::{As, Right};
use crate::settings::Limits;

pub(crate) const NAME: &str = "google_account";

const DESCRIPTION: &str = "\
Check whether another tool could be called: whether the user's Google account is connected and allows what it needs, and, if its \
arguments are given, whether they are valid. It changes nothing. If the call is not possible, the error says what to do; \
otherwise the other tool can be called, and acts from the account in the answer.";

/// The tools that can be checked.
const FOR: [(&str, &str); 2] = [
    (gmail_send::NAME, gmail_send::NAME),
    (calendar_event_create::NAME, calendar_event_create::NAME),
];

pub(crate) fn tool() -> Tool {
    schema::tool(
        NAME,
        "Check whether a call can be made",
        DESCRIPTION,
        schema::input(
            json!({
                "for": {
                    "type": "string",
                    "enum": FOR.map(|(name, _)| name),
                    "description": "The tool to check."
                },
                "arguments": { "type": "object", "description": "Its arguments." }
            }),
            &["for"],
        ),
        schema::output(
            schema::properties([
                ("ready", json!({ "type": "boolean", "description": "Always true." })),
                (
                    "account",
                    json!({ "type": "string", "description": "The address of the account from which it acts, if known." }),
                ),
            ]),
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

/// What to check.
#[derive(Debug)]
pub(crate) enum Question {
    /// Could a tool be called that needs this right?
    Any(Right),
    /// Could this call be made?
    Call(Box<Request>),
}

pub(crate) fn parse(arguments: Option<JsonObject>, limits: &Limits) -> Result<Question, ToolError> {
    let arguments = Arguments::new(arguments, &["for", "arguments"])?;
    let tool = arguments.choice("for", &FOR)?.ok_or_else(|| missing("for"))?;
    match arguments.object("arguments")? {
        Some(call) => Request::parse(tool, Some(call.clone()), limits).map(|call| Question::Call(Box::new(call))),
        None if tool == gmail_send::NAME => Ok(Question::Any(Right::Send)),
        None => Ok(Question::Any(Right::WriteEvents)),
    }
}

/// Fetches a token if there is none, so that Google reports a revoked consent.
pub(crate) async fn carry_out(
    google: &Google,
    who: As<'_>,
    question: &Question,
    limits: &Limits,
) -> Result<Answer, ToolError> {
    let right = match question {
        Question::Any(right) => *right,
        Question::Call(request) => request.right(),
    };
    let access = google.access(who, right).await?;
    match question {
        Question::Any(_) => {}
        Question::Call(call) => match &**call {
            Request::Mail(request) => gmail_send::check(google, who, request, limits).await?,
            Request::Event(request) => calendar_event_create::check(request)?,
        },
    }
    let mut answer = json!({ "ready": true });
    if access.mailbox.contains('@') {
        answer["account"] = access.mailbox.into();
    }
    Ok(Answer::of(&answer))
}
