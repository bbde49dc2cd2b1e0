//! The search: a question to Google, and what it found.

mod api;
mod gemini;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use api::Api;
use gavel_mcp_base::http::{credential, post};
use gavel_mcp_base::{Secret, ServiceAccount, ToolError};
use reqwest::header::HeaderValue;
use reqwest::{Method, Request};
use serde::Deserialize;
use tokio::sync::Mutex;
use url::Url;

/// The header with an API key.
const API_KEY: &str = "x-goog-api-key";

/// A search service.
#[derive(Debug, Clone)]
pub(crate) enum Service {
    /// Gemini with its own search.
    Gemini(Access),
    CustomSearch {
        url: Url,
        key: Secret,
        engine: String,
    },
}

/// Where requests to Gemini go, and how they are authorized.
#[derive(Debug, Clone)]
pub(crate) struct Access {
    /// What it is, for the operator.
    pub(crate) name: &'static str,
    pub(crate) url: Url,
    pub(crate) credentials: Credentials,
}

#[derive(Debug, Clone)]
pub(crate) enum Credentials {
    Key(Secret),
    /// The account, and where its tokens come from.
    Account(ServiceAccount, Url),
    /// The URL of the machine's tokens.
    Metadata(Url),
}

/// A page that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Source {
    pub(crate) title: Option<String>,
    pub(crate) url: String,
}

/// What a search found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Found {
    /// The answer without citations.
    pub(crate) answer: String,
    pub(crate) sources: Vec<Source>,
    /// What was searched for.
    pub(crate) queries: Vec<String>,
    /// Where in the answer, in bytes, sources are cited, by their positions; in ascending order.
    pub(crate) citations: Vec<(usize, Vec<usize>)>,
    /// HTML that Google's terms require to be shown to the user.
    pub(crate) entry_point: Option<String>,
}

impl Found {
    /// The answer with the numbers of its sources.
    pub(crate) fn cited(&self) -> String {
        inserted(&self.answer, &self.citations)
    }
}

/// Searches.
#[derive(Debug)]
pub(crate) struct Search {
    service: Service,
    api: Api,
    tokens: Tokens,
}

impl Search {
    pub(crate) fn new(service: Service) -> anyhow::Result<Self> {
        Ok(Self {
            service,
            api: Api::new()?,
            tokens: Tokens::default(),
        })
    }

    /// One request to the service, and one for a token where it needs one.
    pub(crate) async fn find(&self, query: &str) -> Result<Found, ToolError> {
        match &self.service {
            Service::Gemini(access) => gemini::find(&self.api, &self.tokens, access, query).await,
            Service::CustomSearch { url, key, engine } => custom_search(&self.api, url, key, engine, query).await,
        }
    }
}

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

async fn custom_search(api: &Api, url: &Url, key: &Secret, engine: &str, query: &str) -> Result<Found, ToolError> {
    let mut asked = url.clone();
    asked
        .query_pairs_mut()
        .append_pair("cx", engine)
        .append_pair("q", query);
    // The key is in a header: a URL is written to logs.
    let mut request = Request::new(Method::GET, asked);
    request.headers_mut().insert(API_KEY, credential(key.expose())?);
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

// Access tokens for Vertex AI: of a service account, or of the machine in Google Cloud.

const SCOPE: &str = "https://www.googleapis.com/auth/cloud-platform";
/// The longest lifetime that Google accepts, in seconds.
const SECONDS: u64 = 3600;
/// A token that ends sooner is replaced.
const MARGIN: Duration = Duration::from_secs(60);

/// The token that is in use.
#[derive(Debug, Default)]
struct Tokens(Mutex<Option<(Secret, Instant)>>);

#[derive(Deserialize)]
struct WireToken {
    access_token: String,
    expires_in: u64,
}

impl Tokens {
    /// A token, or None if the credentials are a key. Concurrent calls share one request.
    async fn get(&self, api: &Api, credentials: &Credentials) -> Result<Option<Secret>, ToolError> {
        let mut kept = self.0.lock().await;
        if let Some((token, _)) = kept.as_ref().filter(|(_, end)| *end > Instant::now() + MARGIN) {
            return Ok(Some(token.clone()));
        }
        let token: WireToken = match credentials {
            Credentials::Key(_) => return Ok(None),
            Credentials::Account(account, url) => {
                let form = account.form(url, SCOPE, None)?;
                let kind = "application/x-www-form-urlencoded";
                api.send(post(url.clone(), kind, form)).await?
            }
            Credentials::Metadata(url) => {
                let mut request = Request::new(Method::GET, url.clone());
                let flavor = HeaderValue::from_static("Google");
                request.headers_mut().insert("Metadata-Flavor", flavor);
                api.send(request).await?
            }
        };
        let end = Instant::now() + Duration::from_secs(token.expires_in.min(SECONDS));
        let token = Secret::new(token.access_token);
        *kept = Some((token.clone(), end));
        Ok(Some(token))
    }
}

// Where an answer cites its sources. Gemini counts in bytes of UTF-8.

/// A part of the answer, as Gemini describes it.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Segment {
    part_index: usize,
    start_index: usize,
    end_index: usize,
    text: String,
}

/// The places of the citations, each with its sources, in ascending order. A segment whose text is not in the answer is
/// left out: a citation must not be in another place than Gemini meant.
fn citations(
    answer: &str,
    starts: &[usize],
    supports: impl Iterator<Item = (Segment, Vec<usize>)>,
) -> Vec<(usize, Vec<usize>)> {
    let mut places: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (segment, cited) in supports {
        let Some(end) = end(answer, starts, &segment).filter(|_| !cited.is_empty()) else {
            continue;
        };
        let place = places.entry(end).or_default();
        for source in cited {
            if !place.contains(&source) {
                place.push(source);
            }
        }
    }
    places.into_iter().collect()
}

/// Where the segment ends in the answer. Its offsets count from the beginning of its part.
fn end(answer: &str, starts: &[usize], segment: &Segment) -> Option<usize> {
    let first = starts.get(segment.part_index).copied().unwrap_or_default();
    let (start, end) = (
        first.checked_add(segment.start_index)?,
        first.checked_add(segment.end_index)?,
    );
    match answer.get(start..end) {
        Some(text) if segment.text.is_empty() || text == segment.text => Some(end),
        _ if segment.text.is_empty() => None,
        _ => answer.find(&segment.text).map(|found| found + segment.text.len()),
    }
}

/// The answer with `[1]` for the first source, and so on, at each place.
fn inserted(answer: &str, citations: &[(usize, Vec<usize>)]) -> String {
    let mut cited = String::new();
    let mut done = 0;
    for (place, sources) in citations {
        cited.push_str(answer.get(done..*place).unwrap_or_default());
        for source in sources {
            cited.push_str(&format!("[{}]", source + 1));
        }
        done = *place;
    }
    cited.push_str(answer.get(done..).unwrap_or_default());
    cited
}

#[cfg(test)]
mod citations_tests {
    use super::*;

    fn segment(start_index: usize, end_index: usize, text: &str) -> Segment {
        Segment {
            start_index,
            end_index,
            text: text.to_owned(),
            ..Segment::default()
        }
    }

    #[test]
    fn citations_are_placed_by_bytes_of_utf_8() {
        let answer = "Zürich hat 安 und mehr. Ende.";
        let first = "Zürich hat 安 und mehr.";
        let supports = [
            (segment(0, first.len(), first), vec![0, 2]),
            (segment(0, first.len(), first), vec![2, 1]),
            // In characters and not in bytes: the text says where it is.
            (segment(24, 29, "Ende."), vec![1]),
            (segment(0, 3, "Nothing"), vec![0]),
            (segment(1, 2, ""), vec![0]),
            (segment(0, 9_999, ""), vec![0]),
            (segment(usize::MAX, 1, ""), vec![0]),
            (segment(0, 1, "Z"), vec![]),
        ];
        let found = citations(answer, &[0], supports.into_iter());
        assert_eq!(inserted(answer, &found), "Zürich hat 安 und mehr.[1][3][2] Ende.[2]");
        let part = Segment {
            part_index: 2,
            ..segment(0, 3, "two")
        };
        let found = citations("one two", &[0, 0, 4], [(part, vec![4])].into_iter());
        assert_eq!(inserted("one two", &found), "one two[5]");
    }
}
