//! `google_web_search`

use std::sync::Arc;

use gavel_mcp_base::{Answer, Call, Fault, Kind, Tool, Whole};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::time::timeout;

use crate::error;
use crate::fetch::Fetcher;
use crate::page::visible;
use crate::search::{Found, Search};

const ABOUT: &str = "\
Search the public web with Google. The answer cites its sources by number and ends with their URLs; web_fetch reads \
them. If it says that it has no sources, it is not from a search: do not rely on it.";

/// What Google's terms require to be shown to the user. It is for the host alone.
const ENTRY_POINT: &str = "gavel/search_entry_point";

#[derive(Deserialize, JsonSchema)]
struct Arguments {
    /// What to find, as a question or in key words.
    #[schemars(length(min = 1, max = 2_000))]
    query: String,
}

#[derive(Serialize, JsonSchema)]
struct Results {
    /// The answer, with [1] for the first source, and the sources.
    answer: String,
    /// In the order of their numbers.
    sources: Vec<Source>,
    /// What was searched for.
    queries: Vec<String>,
}

#[derive(Serialize, JsonSchema)]
struct Source {
    title: Option<String>,
    url: String,
}

pub(super) fn tool(search: Arc<Search>) -> Tool<Fetcher> {
    let find = move |fetcher, call| find(fetcher, search.clone(), call);
    let tool = Tool::new("google_web_search", "Search the web", ABOUT, Kind::Reads, find);
    tool.open_world(true).with_text("answer")
}

async fn find(fetcher: Arc<Fetcher>, search: Arc<Search>, call: Call<Arguments>) -> Result<Whole<Results>, Fault> {
    let found = timeout(fetcher.limit, async {
        let mut found = search.find(&call.arguments.query).await?;
        fetcher.complete(&mut found.sources).await;
        Ok(found)
    });
    let found = found.await.unwrap_or_else(|_| Err(error::timeout(fetcher.limit)))?;
    let shown = |source: &crate::search::Source| Source {
        title: source.title.as_deref().map(visible),
        url: source.url.clone(),
    };
    let sources: Vec<_> = found.sources.iter().map(shown).collect();
    let mut answer = Answer::from_body(&Results {
        answer: text(&found, &sources),
        sources,
        queries: found.queries,
    });
    let entry_point = found.entry_point.map(|html| (ENTRY_POINT.to_owned(), html.into()));
    answer.meta.extend(entry_point);
    Ok(answer.into())
}

fn text(found: &Found, sources: &[Source]) -> String {
    let answer = visible(&found.cited());
    if sources.is_empty() {
        return match answer.is_empty() {
            true => "The search found nothing.".to_owned(),
            false => format!("{answer}\n\nNo sources: the model answered without a search."),
        };
    }
    let mut text = format!("{answer}\n\nSources:");
    for (number, Source { title, url }) in (1..).zip(sources) {
        text.push_str(&format!("\n[{number}] {} {url}", title.as_deref().unwrap_or_default()));
    }
    text
}
