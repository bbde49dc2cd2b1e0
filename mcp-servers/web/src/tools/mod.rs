//! The tools: their descriptions for models, how their arguments become requests, and their answers.

mod google_web_search;
mod web_fetch;

use std::sync::Arc;

use gavel_mcp_base::Tool;

use crate::fetch::Fetcher;
use crate::guard::Guard;
use crate::search::Search;

/// All tools, always in the same order. The search is one of them if it is configured.
pub(crate) fn all(guard: &Guard, search: Option<Search>) -> Vec<Tool<Fetcher>> {
    let search = search.map(|search| google_web_search::tool(Arc::new(search)));
    [web_fetch::tool(guard)].into_iter().chain(search).collect()
}
