//! The settings of the search: which service, and with what credentials.

use std::path::Path;

use anyhow::{Context, bail, ensure};
use gavel_mcp_base::{Secret, secret};
use jsonwebtoken::EncodingKey;
use serde::Deserialize;
use url::{Host, Url};

use crate::args::Args;
use crate::search::{Access, Account, Credentials, Service};

const GEMINI: &str = "https://generativelanguage.googleapis.com";
const VERTEX: &str = "https://aiplatform.googleapis.com";
const CUSTOM_SEARCH: &str = "https://customsearch.googleapis.com/customsearch/v1";
const MODEL: &str = "gemini-3.8-flash";
/// The name of gavel's own model, which cannot search.
const DEMO: &str = "demo";
const METADATA: &str = "http://metadata.google.internal/computeMetadata/v1/instance/service-accounts/default/token";

/// The service, if one is configured: Custom Search, or else Vertex AI, or else the Gemini API.
pub(super) fn service(args: &Args) -> anyhow::Result<Option<Service>> {
    if let Some(service) = custom_search(args)? {
        return Ok(Some(service));
    }
    let model = given(args.gemini_model.as_deref())
        .filter(|model| *model != DEMO)
        .unwrap_or(MODEL);
    let is_name = model.chars().all(|c| c.is_ascii_alphanumeric() || "-._".contains(c));
    ensure!(is_name, "GEMINI_MODEL is not the name of a model, such as {MODEL}");
    if let Some(access) = vertex(args, model)? {
        return Ok(Some(Service::Gemini(access)));
    }
    let names = ("GEMINI_API_KEY", "GEMINI_API_KEY_FILE");
    let key = args.gemini_api_key.as_ref().map(Secret::expose);
    let Some(key) = secret::either("the API key", names, key, args.gemini_api_key_file.as_deref())? else {
        return Ok(None);
    };
    let base = address(
        "GEMINI_BASE_URL",
        given(args.gemini_base_url.as_deref()).unwrap_or(GEMINI),
    )?;
    Ok(Some(Service::Gemini(Access {
        name: "the Gemini API",
        url: joined(&base, &format!("v1beta/models/{model}:generateContent"))?,
        credentials: Credentials::Key(key_of("GEMINI_API_KEY", &key)?),
    })))
}

fn custom_search(args: &Args) -> anyhow::Result<Option<Service>> {
    let names = ("GOOGLE_CSE_KEY", "GOOGLE_CSE_KEY_FILE");
    let key = args.google_cse_key.as_ref().map(Secret::expose);
    let key = secret::either(
        "the API key of Custom Search",
        names,
        key,
        args.google_cse_key_file.as_deref(),
    )?;
    match (key, given(args.google_cse_id.as_deref())) {
        (None, None) => Ok(None),
        (Some(key), Some(engine)) => Ok(Some(Service::CustomSearch {
            url: address(
                "GOOGLE_CSE_URL",
                given(args.google_cse_url.as_deref()).unwrap_or(CUSTOM_SEARCH),
            )?,
            key: key_of("GOOGLE_CSE_KEY", &key)?,
            engine: engine.to_owned(),
        })),
        _ => bail!("GOOGLE_CSE_KEY and GOOGLE_CSE_ID belong together: set both, or none of them"),
    }
}

fn vertex(args: &Args, model: &str) -> anyhow::Result<Option<Access>> {
    let endpoint = given(args.vertex_ai_endpoint.as_deref()).map(|text| match text.contains("://") {
        true => address("VERTEX_AI_ENDPOINT", text),
        false => address("VERTEX_AI_ENDPOINT", &format!("https://{text}")),
    });
    let endpoint = endpoint.transpose()?;
    let project = given(args.vertex_ai_project_id.as_deref());
    let location = given(args.vertex_ai_location.as_deref());
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
    let names = ("VERTEX_AI_API_KEY", "VERTEX_AI_API_KEY_FILE");
    let key = args.vertex_ai_api_key.as_ref().map(Secret::expose);
    let Some(key) = secret::either(
        "the API key of Vertex AI",
        names,
        key,
        args.vertex_ai_api_key_file.as_deref(),
    )?
    else {
        return Ok(None);
    };
    let base = endpoint.map_or_else(|| address("VERTEX_AI_ENDPOINT", VERTEX), Ok)?;
    Ok(Some(Access {
        name: "Vertex AI in express mode",
        url: joined(&base, &format!("v1/publishers/google/models/{model}:generateContent"))?,
        credentials: Credentials::Key(key_of("VERTEX_AI_API_KEY", &key)?),
    }))
}

/// The parts of a service account's file that are needed.
#[derive(Deserialize)]
struct AccountFile {
    r#type: String,
    client_email: String,
    private_key: String,
    private_key_id: Option<String>,
    token_uri: String,
}

/// A service account's, if a file is given, or else those of the machine.
fn account(args: &Args) -> anyhow::Result<Credentials> {
    const NAME: &str = "GOOGLE_APPLICATION_CREDENTIALS";
    let Some(path) = args
        .google_application_credentials
        .as_deref()
        .filter(|path| !path.is_empty())
    else {
        return Ok(Credentials::Metadata(Url::parse(METADATA)?));
    };
    let text = secret::file(NAME, Path::new(path))?;
    // The parser's message could quote the key.
    let file: Option<AccountFile> = serde_json::from_str(&text).ok();
    let file = file
        .filter(|file| file.r#type == "service_account")
        .with_context(|| format!("{NAME} is not the file of a service account"))?;
    let key = EncodingKey::from_rsa_pem(file.private_key.as_bytes()).ok();
    Ok(Credentials::Account(Account {
        email: file.client_email,
        key: key.with_context(|| format!("{NAME} has no RSA key in PEM form"))?,
        key_id: file.private_key_id,
        token_url: address(NAME, &file.token_uri)?,
    }))
}

/// An empty setting counts as unset.
fn given(text: Option<&str>) -> Option<&str> {
    text.map(str::trim).filter(|text| !text.is_empty())
}

fn key_of(name: &str, key: &str) -> anyhow::Result<Secret> {
    let key = key.trim();
    ensure!(
        !key.is_empty() && key.chars().all(|c| c.is_ascii_graphic()),
        "{name} has to be one key, without spaces or line breaks"
    );
    Ok(Secret::new(key))
}

fn joined(base: &Url, path: &str) -> anyhow::Result<Url> {
    let text = format!("{}/{path}", base.as_str().trim_end_matches('/'));
    Url::parse(&text).context("the address of the search service is not a URL")
}

/// An address to which credentials are sent: https, or this machine. The text is not quoted: it may have a password.
fn address(name: &str, text: &str) -> anyhow::Result<Url> {
    let url = Url::parse(text)
        .ok()
        .with_context(|| format!("{name} is not a URL such as {GEMINI}"))?;
    let safe = url.scheme() == "https" || url.scheme() == "http" && is_loopback(&url);
    let plain = url.query().is_none() && url.fragment().is_none();
    let anonymous = url.username().is_empty() && url.password().is_none();
    ensure!(
        safe && plain && anonymous,
        "{name} must begin with https:// (http:// only for a loopback address), without a query or a user"
    );
    Ok(url)
}

fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        Some(Host::Domain(name)) => name == "localhost",
        None => false,
    }
}
