//! The tools: their descriptions for models, how their arguments become requests, and their answers.

mod google_web_search;
mod web_fetch;

use gavel_mcp_base::{Answer, ToolError};
use rmcp::model::{CallToolResult, JsonObject, MetaObject, Tool};

use crate::error::internal;
use crate::fetch::Fetcher;
use crate::guard::Guard;
use crate::search::Search;

/// The property of an answer that is for the host alone. In the result it is in `_meta`.
const ENTRY_POINT: &str = "searchEntryPoint";
const ENTRY_POINT_META: &str = "gavel/search_entry_point";

/// All tools, always in the same order. The search is one of them if it is configured.
pub(crate) fn all(guard: &Guard, searches: bool) -> Vec<Tool> {
    let search = searches.then(google_web_search::tool);
    [web_fetch::tool(guard)].into_iter().chain(search).collect()
}

/// Carries out a call of an existing tool.
pub(crate) async fn carry_out(
    name: &str,
    arguments: Option<JsonObject>,
    fetcher: &Fetcher,
    search: Option<&Search>,
) -> Result<Answer, ToolError> {
    match (name, search) {
        (web_fetch::NAME, _) => web_fetch::carry_out(arguments, fetcher).await,
        (google_web_search::NAME, Some(search)) => google_web_search::carry_out(arguments, search, fetcher).await,
        _ => Err(internal()),
    }
}

/// The result of a call: its text is the page or the answer alone.
pub(crate) fn result(mut answer: Answer) -> CallToolResult {
    let entry_point = answer.body.as_object_mut().and_then(|body| body.remove(ENTRY_POINT));
    let text = match answer.body.get(google_web_search::TEXT) {
        Some(_) => google_web_search::TEXT,
        None => web_fetch::TEXT,
    };
    let mut result = answer.with_text_of(text);
    if let Some(entry_point) = entry_point {
        let meta = result.meta.get_or_insert_with(MetaObject::new);
        meta.insert(ENTRY_POINT_META.to_owned(), entry_point);
    }
    result
}
