//! The Custom Search JSON API: a list of pages, without an answer.

use gavel_mcp_base::{Secret, ToolError};
use reqwest::{Method, Request};
use serde::Deserialize;
use url::Url;

use super::api::Api;
use super::{Found, Source, authorize};

#[derive(Debug, Deserialize)]
struct Reply {
    #[serde(default)]
    items: Vec<Item>,
}

#[derive(Debug, Deserialize)]
struct Item {
    link: String,
    title: Option<String>,
    snippet: Option<String>,
}

pub(super) async fn find(api: &Api, url: &Url, key: &Secret, engine: &str, query: &str) -> Result<Found, ToolError> {
    let mut asked = url.clone();
    asked
        .query_pairs_mut()
        .append_pair("cx", engine)
        .append_pair("q", query);
    // The key is in a header: a URL is written to logs.
    let mut request = Request::new(Method::GET, asked);
    authorize(&mut request, "x-goog-api-key", key.expose())?;
    let reply: Reply = api.send(request).await?;
    let mut found = Found {
        queries: vec![query.to_owned()],
        ..Found::default()
    };
    for item in reply.items {
        let snippet = item.snippet.unwrap_or_default();
        found
            .answer
            .push_str(snippet.split_whitespace().collect::<Vec<_>>().join(" ").trim());
        found.citations.push((found.answer.len(), vec![found.sources.len()]));
        found.answer.push('\n');
        found.sources.push(Source {
            title: item.title,
            url: item.link,
        });
    }
    found.answer.truncate(found.answer.trim_end().len());
    Ok(found)
}
