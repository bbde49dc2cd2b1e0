//! `google_web_search`

use std::time::Duration;

use gavel_mcp_base::schema::{self, Behaviour};
use gavel_mcp_base::{Answer, Arguments, ToolError, missing};
use rmcp::model::{JsonObject, Tool};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::ENTRY_POINT;
use crate::error;
use crate::fetch::Fetcher;
use crate::page::visible;
use crate::search::{Found, Search, Source};

pub(super) const NAME: &str = "google_web_search";
/// The property of an answer that is its text.
pub(super) const TEXT: &str = "answer";

const MAX_QUERY: usize = 2_000;

const ABOUT: &str = "\
Search the public web with Google. The answer cites its sources by number and ends with their URLs; web_fetch reads \
them. If it says that it has no sources, it is not from a search: do not rely on it.";

pub(super) fn tool() -> Tool {
    let arguments = json!({
        "query": { "type": "string", "description": "What to find, as a question or in key words." }
    });
    let source = json!({
        "type": "object",
        "properties": { "title": { "type": ["string", "null"] }, "url": { "type": "string" } },
        "required": ["title", "url"],
        "additionalProperties": false
    });
    let results = schema::properties([
        (
            TEXT,
            json!({ "type": "string", "description": "The answer, with [1] for the first source, and the sources." }),
        ),
        (
            "sources",
            json!({ "type": "array", "items": source, "description": "In the order of their numbers." }),
        ),
        (
            "queries",
            json!({
                "type": "array",
                "items": { "type": "string" },
                "description": "What was searched for."
            }),
        ),
    ]);
    schema::tool(
        NAME,
        "Search the web",
        ABOUT,
        schema::input(arguments, &["query"]),
        schema::output(results, &[TEXT, "sources", "queries"]),
        Behaviour {
            read_only: true,
            destructive: false,
            idempotent: true,
            open_world: true,
        },
    )
}

pub(super) async fn carry_out(
    arguments: Option<JsonObject>,
    search: &Search,
    fetcher: &Fetcher,
) -> Result<Answer, ToolError> {
    let arguments = Arguments::new(arguments, &["query"])?;
    let query = arguments
        .visible_text("query", MAX_QUERY)?
        .ok_or_else(|| missing("query"))?;
    let limit: Duration = fetcher.limit;
    let found = timeout(limit, async {
        let mut found = search.find(&query).await?;
        fetcher.complete(&mut found.sources).await;
        Ok(found)
    });
    let found = found.await.unwrap_or_else(|_| Err(error::timeout(limit)))?;
    Ok(Answer::of(&body(&found)))
}

fn body(found: &Found) -> Value {
    let sources: Vec<_> = found.sources.iter().map(shown).collect();
    let mut body = json!({ TEXT: text(found, &sources), "sources": sources, "queries": found.queries });
    if let Some(html) = &found.entry_point {
        body[ENTRY_POINT] = html.as_str().into();
    }
    body
}

fn shown(source: &Source) -> Value {
    let title = source.title.as_deref().map(visible);
    json!({ "title": title, "url": source.url })
}

fn text(found: &Found, sources: &[Value]) -> String {
    let answer = visible(&found.cited());
    if sources.is_empty() {
        return match answer.is_empty() {
            true => "The search found nothing.".to_owned(),
            false => format!("{answer}\n\nNo sources: the model answered without a search."),
        };
    }
    let mut text = format!("{answer}\n\nSources:");
    for (number, source) in (1..).zip(sources) {
        let title = source["title"].as_str().unwrap_or_default();
        let url = source["url"].as_str().unwrap_or_default();
        text.push_str(&format!("\n[{number}] {title} {url}"));
    }
    text
}
