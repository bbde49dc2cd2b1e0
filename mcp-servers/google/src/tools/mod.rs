//! The tools: their arguments and answers with their descriptions for models, and how a request is executed once.

mod calendar_event_create;
mod gmail_send;
mod google_account;

use gavel_mcp_base::{Class, Tool, ToolError};

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
