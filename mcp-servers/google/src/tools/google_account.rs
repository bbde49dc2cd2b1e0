//! `google_account`

use std::sync::Arc;

use gavel_mcp_base::{Call, Fault, Kind, Tool, ToolError, UserId, digest, read};
use rmcp::model::JsonObject;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::{calendar_event_create, gmail_send, of_arguments};
use crate::rights::{As, Right};
use crate::server::Service;

const DESCRIPTION: &str = "\
Check whether another tool could be called: whether the user's Google account is connected and allows what it needs, and, if its \
arguments are given, whether they are valid. It changes nothing. If the call is not possible, the error says what to do; \
otherwise the other tool can be called, and acts from the account in the answer.";

#[derive(Deserialize, JsonSchema)]
struct Arguments {
    /// The tool to check.
    r#for: Checked,
    /// Its arguments.
    arguments: Option<JsonObject>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Checked {
    GmailSend,
    CalendarEventCreate,
}

/// A call that is checked.
enum Request {
    Mail(gmail_send::Request),
    Event(calendar_event_create::Request),
}

#[derive(Serialize, JsonSchema)]
struct Ready {
    /// Always true.
    ready: bool,
    /// The address of the account from which it acts, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    account: Option<String>,
}

pub(super) fn tool() -> Tool<Service> {
    let title = "Check whether a call can be made";
    Tool::new("google_account", title, DESCRIPTION, Kind::Reads, look).open_world(true)
}

async fn look(service: Arc<Service>, call: Call<Arguments>) -> Result<Ready, Fault> {
    let user = service.user(&call.meta)?;
    let checked = check(&service, &user, call.arguments).await;
    checked.map_err(|error| service.refused(error.into(), &user))
}

/// Is the account connected, and does it allow the call? This has no effect, so it needs no idempotency key. It fetches a
/// token if there is none, so that Google reports a revoked consent.
async fn check(service: &Service, user: &UserId, arguments: Arguments) -> Result<Ready, ToolError> {
    let Arguments { r#for, arguments } = arguments;
    let limits = &service.limits;
    let request = arguments.map(|given| {
        let digest = digest(Some(&given));
        match r#for {
            Checked::GmailSend => read(given).and_then(|given| gmail_send::parse(given, limits).map(Request::Mail)),
            Checked::CalendarEventCreate => {
                read(given).and_then(|given| calendar_event_create::parse(given, limits, digest).map(Request::Event))
            }
        }
    });
    let request = request.transpose().map_err(of_arguments)?;
    let right = match r#for {
        Checked::GmailSend => Right::Send,
        Checked::CalendarEventCreate => Right::WriteEvents,
    };
    let who = As {
        user,
        mailbox: None,
        deadline: Instant::now() + limits.timeout,
    };
    let access = service.google.access(who, right).await?;
    match &request {
        None => {}
        Some(Request::Mail(request)) => gmail_send::check(&service.google, who, request, limits).await?,
        Some(Request::Event(request)) => calendar_event_create::check(request)?,
    }
    Ok(Ready {
        ready: true,
        account: Some(access.mailbox).filter(|mailbox| mailbox.contains('@')),
    })
}
