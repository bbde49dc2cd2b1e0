//! Reads the list of a server's tools, page by page.

use std::collections::HashSet;

use rmcp::model::{ClientRequest, ListToolsRequest, PaginatedRequestParams, ServerResult};
use rmcp::service::{Peer, RoleClient, ServiceError};
use serde_json::Value;

use super::definition::MAX_LISTED;
use super::fault::MAX_WORDS;
use super::http;
use super::log;
use super::source::Source;
use super::unsolicited::Unsolicited;
use crate::domain::budget::Share;

/// Maximum pages of a list.
const MAX_PAGES: usize = 64;
/// Maximum bytes of a list, all pages together.
const MAX_LIST: usize = 16 * 1024 * 1024;
/// Maximum bytes of a cursor that are shown.
const SHOWN: usize = 64;

/// A list of tools, and its share of the answer budget.
pub(super) struct List {
    pub(super) tools: Vec<Value>,
    _held: Vec<Share>,
}

/// Why there is no list of tools.
pub(super) struct NoList {
    /// Was there an answer, or may one still come? Then the connection may be healthy.
    pub(super) answered: bool,
    /// Would another request fail in the same way?
    pub(super) is_lasting: bool,
    pub(super) words: String,
}

impl NoList {
    fn lasting(words: String) -> Self {
        Self {
            answered: true,
            is_lasting: true,
            words,
        }
    }
}

/// Lists all tools, each as the JSON that was received, so that one invalid tool does not hide the others. A list with
/// more than [`MAX_LISTED`] tools ends with the first one beyond the limit.
///
/// # Errors
/// Why there is no list.
pub(super) async fn read(peer: &Peer<RoleClient>, unsolicited: &Unsolicited) -> Result<List, NoList> {
    let listing = unsolicited.reads_list();
    let tools = pages(peer, &unsolicited.source).await?;
    Ok(List {
        tools,
        _held: listing.end(),
    })
}

async fn pages(peer: &Peer<RoleClient>, source: &Source) -> Result<Vec<Value>, NoList> {
    let mut tools = Vec::new();
    let mut known = HashSet::new();
    let mut cursors = HashSet::new();
    let mut cursor: Option<String> = None;
    let mut bytes = 0;
    for _ in 0..MAX_PAGES {
        let is_first = cursor.is_none();
        let Some(mut page) = page(peer, source, cursor.take()).await? else {
            return Ok(tools);
        };
        bytes += page.to_string().len();
        if bytes > MAX_LIST {
            let words = format!("its list of tools has more than {MAX_LIST} bytes");
            return Err(NoList::lasting(words));
        }
        let more = match page.get_mut("tools").map(Value::take) {
            Some(Value::Array(more)) => more,
            // Go and PHP write an empty list like this.
            Some(Value::Null) => Vec::new(),
            Some(Value::Object(members)) if members.is_empty() => Vec::new(),
            _ => {
                let words = "its answer to `tools/list` has no list as `tools`".to_owned();
                return Err(NoList::lasting(words));
            }
        };
        let new = more
            .iter()
            .filter(|tool| known.insert(tool["name"].to_string()))
            .count();
        if new == 0 && !more.is_empty() && !is_first {
            // The server sends the same tools for every cursor, so the list is complete.
            log::line!(
                source.log,
                warn,
                "cursor without effect",
                "a `nextCursor` of its list of tools returned no new tools; the list is treated as complete"
            );
            return Ok(tools);
        }
        tools.extend(more);
        if tools.len() > MAX_LISTED {
            tools.truncate(MAX_LISTED + 1);
            return Ok(tools);
        }
        let next = match page.get("nextCursor") {
            Some(Value::String(next)) if !next.is_empty() => next.clone(),
            Some(Value::Number(next)) => next.to_string(),
            _ => return Ok(tools),
        };
        if !cursors.insert(next.clone()) {
            let next = source.words(&next, SHOWN);
            let words = format!("its list of tools has the same `nextCursor` twice, `{next}`, and has no end");
            return Err(NoList::lasting(words));
        }
        cursor = Some(next);
    }
    let words = format!("its list of tools has more than {MAX_PAGES} pages, each with another `nextCursor`");
    Err(NoList::lasting(words))
}

/// One page; `None` if the server has no lists.
async fn page(peer: &Peer<RoleClient>, source: &Source, cursor: Option<String>) -> Result<Option<Value>, NoList> {
    // Not with `list_tools`, which may answer from a cache.
    let request = ListToolsRequest {
        method: Default::default(),
        params: Some(PaginatedRequestParams::default().with_cursor(cursor)),
        extensions: Default::default(),
    };
    let page = match peer.send_request(ClientRequest::ListToolsRequest(request)).await {
        Ok(ServerResult::ListToolsResult(page)) => serde_json::to_value(page),
        // rmcp reads a list with a malformed tool as a result that it does not know.
        Ok(ServerResult::CustomResult(page)) => Ok(page.0),
        Ok(other) => serde_json::to_value(other),
        Err(ServiceError::McpError(error)) if error.code == rmcp::model::ErrorCode::METHOD_NOT_FOUND => {
            return Ok(None);
        }
        Err(error) => {
            let words = match &error {
                ServiceError::McpError(error) => format!("{} (code {})", error.message, error.code.0),
                ServiceError::TransportSend(error) => http::words(&*error.error),
                other => other.to_string(),
            };
            return Err(NoList {
                answered: matches!(error, ServiceError::McpError(_)),
                is_lasting: false,
                words: format!("its tools could not be listed: {}", source.words(&words, MAX_WORDS)),
            });
        }
    };
    page.map(Some).map_err(|error| NoList::lasting(error.to_string()))
}
