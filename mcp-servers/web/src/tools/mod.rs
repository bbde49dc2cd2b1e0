//! The tools: their descriptions for models, how their arguments become requests, and their answers.

mod web_fetch;

use std::sync::LazyLock;

use gavel_mcp_base::{Answer, ToolError};
use rmcp::model::{JsonObject, Tool};

use crate::error::internal;
use crate::fetch::Fetcher;

/// The property of an answer that is its text.
pub(crate) const TEXT: &str = "text";

/// All tools, always in the same order.
pub(crate) fn all() -> &'static [Tool] {
    static TOOLS: LazyLock<Vec<Tool>> = LazyLock::new(|| vec![web_fetch::tool()]);
    &TOOLS
}

/// Carries out a call of an existing tool.
pub(crate) async fn carry_out(
    name: &str,
    arguments: Option<JsonObject>,
    fetcher: &Fetcher,
) -> Result<Answer, ToolError> {
    match name {
        web_fetch::NAME => web_fetch::carry_out(arguments, fetcher).await,
        _ => Err(internal()),
    }
}
