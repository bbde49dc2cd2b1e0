//! Combines the options; rejects those that are invalid.

use std::time::Duration;

use anyhow::{Context, bail, ensure};
use gavel_mcp_base::ServiceAccount;
use gavel_mcp_base::settings::{self, given};
use url::Url;

use crate::args::Args;
use crate::guard::{Guard, Hosts, private_hosts};
use crate::search::{Access, Credentials, Service};

/// Consistent settings.
#[derive(Debug, Clone)]
pub struct Settings {
    pub(crate) guard: Guard,
    pub(crate) respects_robots: bool,
    /// How long one call may take.
    pub(crate) timeout: Duration,
    /// Without it, there is no search.
    pub(crate) search: Option<Service>,
}

impl Settings {
    /// What the search asks, such as `Custom Search`; `None` if there is no search.
    pub fn search(&self) -> Option<&'static str> {
        Some(match self.search.as_ref()? {
            Service::Gemini(access) => access.name,
            Service::CustomSearch { .. } => "Custom Search",
        })
    }

    /// Whether every host of the public web may be requested.
    pub fn is_open(&self) -> bool {
        self.guard.allow.is_unlimited()
    }
}

impl TryFrom<Args> for Settings {
    type Error = anyhow::Error;

    fn try_from(args: Args) -> anyhow::Result<Self> {
        let hosts = |option| settings::given(option).unwrap_or_default();
        let guard = Guard {
            allow: Hosts::parse("WEB_ALLOW", hosts(&args.allow))?,
            deny: Hosts::parse("WEB_DENY", hosts(&args.deny))?,
            private: private_hosts("WEB_ALLOW_PRIVATE", hosts(&args.allow_private))?,
        };
        let robots = [("respect", true), ("ignore", false)];
        let timeout = settings::number("WEB_TIMEOUT_SECONDS", &args.timeout_seconds, 30, 1..=120)?;
        Ok(Self {
            guard,
            respects_robots: settings::choice("WEB_ROBOTS", &args.robots, &robots)?,
            timeout: Duration::from_secs(timeout),
            search: service(&args)?,
        })
    }
}

// The settings of the search: which service, and with what credentials.

const GEMINI: &str = "https://generativelanguage.googleapis.com";
const VERTEX: &str = "https://aiplatform.googleapis.com";
const CUSTOM_SEARCH: &str = "https://customsearch.googleapis.com/customsearch/v1";
const MODEL: &str = "gemini-3.8-flash";
/// The name of gavel's own model, which cannot search.
const DEMO: &str = "demo";
const METADATA: &str = "http://metadata.google.internal/computeMetadata/v1/instance/service-accounts/default/token";

/// The service, if one is configured: Custom Search, or else Vertex AI, or else the Gemini API.
fn service(args: &Args) -> anyhow::Result<Option<Service>> {
    if let Some(service) = custom_search(args)? {
        return Ok(Some(service));
    }
    let model = given(&args.gemini_model)
        .filter(|model| *model != DEMO)
        .unwrap_or(MODEL);
    let is_name = model.chars().all(|c| c.is_ascii_alphanumeric() || "-._".contains(c));
    ensure!(is_name, "GEMINI_MODEL is not the name of a model, such as {MODEL}");
    if let Some(access) = vertex(args, model)? {
        return Ok(Some(Service::Gemini(access)));
    }
    let Some(key) = settings::key("GEMINI_API_KEY", &args.gemini_api_key, &args.gemini_api_key_file)? else {
        return Ok(None);
    };
    let base = address("GEMINI_BASE_URL", given(&args.gemini_base_url).unwrap_or(GEMINI))?;
    Ok(Some(Service::Gemini(Access {
        name: "the Gemini API",
        url: joined(&base, &format!("v1beta/models/{model}:generateContent"))?,
        credentials: Credentials::Key(key),
    })))
}

fn custom_search(args: &Args) -> anyhow::Result<Option<Service>> {
    let key = settings::key("GOOGLE_CSE_KEY", &args.google_cse_key, &args.google_cse_key_file)?;
    match (key, given(&args.google_cse_id)) {
        (None, None) => Ok(None),
        (Some(key), Some(engine)) => Ok(Some(Service::CustomSearch {
            url: address("GOOGLE_CSE_URL", given(&args.google_cse_url).unwrap_or(CUSTOM_SEARCH))?,
            key,
            engine: engine.to_owned(),
        })),
        _ => bail!("GOOGLE_CSE_KEY and GOOGLE_CSE_ID belong together: set both, or none of them"),
    }
}

fn vertex(args: &Args, model: &str) -> anyhow::Result<Option<Access>> {
    let endpoint = given(&args.vertex_ai_endpoint).map(|text| match text.contains("://") {
        true => address("VERTEX_AI_ENDPOINT", text),
        false => address("VERTEX_AI_ENDPOINT", &format!("https://{text}")),
    });
    let endpoint = endpoint.transpose()?;
    let project = given(&args.vertex_ai_project_id);
    let location = given(&args.vertex_ai_location);
    let (Some(project), Some(location)) = (project, location) else {
        ensure!(
            project.is_none() && location.is_none(),
            "VERTEX_AI_PROJECT_ID and VERTEX_AI_LOCATION belong together: set both, or none of them"
        );
        return express(args, endpoint, model);
    };
    let is_name = |text: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.:".contains(c));
    ensure!(
        is_name(project) && is_name(location),
        "VERTEX_AI_PROJECT_ID and VERTEX_AI_LOCATION must be names, such as my-project and europe-west4"
    );
    let base = match (endpoint, location) {
        (Some(endpoint), _) => endpoint,
        (None, "global") => address("VERTEX_AI_LOCATION", VERTEX)?,
        (None, "us" | "eu") => address(
            "VERTEX_AI_LOCATION",
            &format!("https://aiplatform.{location}.rep.googleapis.com"),
        )?,
        (None, region) => address(
            "VERTEX_AI_LOCATION",
            &format!("https://{region}-aiplatform.googleapis.com"),
        )?,
    };
    let path = format!("v1/projects/{project}/locations/{location}/publishers/google/models/{model}:generateContent");
    Ok(Some(Access {
        name: "Vertex AI",
        url: joined(&base, &path)?,
        credentials: account(args)?,
    }))
}

/// Vertex AI with an API key, without a project.
fn express(args: &Args, endpoint: Option<Url>, model: &str) -> anyhow::Result<Option<Access>> {
    let Some(key) = settings::key(
        "VERTEX_AI_API_KEY",
        &args.vertex_ai_api_key,
        &args.vertex_ai_api_key_file,
    )?
    else {
        return Ok(None);
    };
    let base = endpoint.map_or_else(|| address("VERTEX_AI_ENDPOINT", VERTEX), Ok)?;
    Ok(Some(Access {
        name: "Vertex AI in express mode",
        url: joined(&base, &format!("v1/publishers/google/models/{model}:generateContent"))?,
        credentials: Credentials::Key(key),
    }))
}

/// A service account's, if a file is given, or else those of the machine.
fn account(args: &Args) -> anyhow::Result<Credentials> {
    const NAME: &str = "GOOGLE_APPLICATION_CREDENTIALS";
    let Some(path) = settings::path(&args.google_application_credentials) else {
        return Ok(Credentials::Metadata(Url::parse(METADATA)?));
    };
    let account = ServiceAccount::read(NAME, path)?;
    let url = account
        .token_url
        .as_deref()
        .context("GOOGLE_APPLICATION_CREDENTIALS has no token_uri")?;
    let url = address(NAME, url)?;
    Ok(Credentials::Account(account, url))
}

fn joined(base: &Url, path: &str) -> anyhow::Result<Url> {
    let text = format!("{}/{path}", base.as_str().trim_end_matches('/'));
    Url::parse(&text).context("the address of the search service is not a URL")
}

fn address(name: &str, text: &str) -> anyhow::Result<Url> {
    settings::address(name, text, GEMINI)
}
