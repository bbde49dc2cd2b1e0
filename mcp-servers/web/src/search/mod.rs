//! The search: a question to Google, and what it found.

mod api;
mod citations;
mod custom;
mod gemini;
mod token;

use gavel_mcp_base::{Secret, ServiceAccount, ToolError, internal};
use reqwest::Request;
use reqwest::header::HeaderValue;
use url::Url;

use api::Api;
use token::Tokens;

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
        citations::inserted(&self.answer, &self.citations)
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
            Service::CustomSearch { url, key, engine } => custom::find(&self.api, url, key, engine, query).await,
        }
    }
}

/// Adds a header with a credential, which no log shows.
fn authorize(request: &mut Request, name: &'static str, value: &str) -> Result<(), ToolError> {
    let mut value = HeaderValue::from_str(value).map_err(|_| internal())?;
    value.set_sensitive(true);
    request.headers_mut().insert(name, value);
    Ok(())
}
