//! The five tools: their descriptions for models, and how their arguments become a request.

mod add;
mod complete;
mod delete;
pub(crate) mod list;
mod schema;
mod target;
mod update;

use std::sync::LazyLock;

use gavel_mcp_base::{Code, ToolError};
use rmcp::model::{JsonObject, Tool};

use crate::task::Change;

pub(crate) const MAX_DESCRIPTION: usize = 500;
pub(crate) const MAX_NOTES: usize = 4000;

/// A call with parsed arguments.
#[derive(Debug)]
pub(crate) enum Request {
    List(list::ListRequest),
    Change(Change),
}

/// All tools, always in the same order.
pub(crate) fn all() -> &'static [Tool] {
    static TOOLS: LazyLock<Vec<Tool>> = LazyLock::new(|| {
        vec![
            add::tool(),
            list::tool(),
            update::tool(),
            complete::tool(),
            delete::tool(),
        ]
    });
    &TOOLS
}

pub(crate) fn parse(name: &str, arguments: Option<JsonObject>) -> Result<Request, ToolError> {
    match name {
        add::NAME => add::parse(arguments).map(Request::Change),
        list::NAME => list::parse(arguments).map(Request::List),
        update::NAME => update::parse(arguments).map(Request::Change),
        complete::NAME => complete::parse(arguments).map(Request::Change),
        delete::NAME => delete::parse(arguments).map(Request::Change),
        _ => Err(ToolError::new(Code::Internal, "There is no such tool.")),
    }
}
