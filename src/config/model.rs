//! The model settings: Vertex AI, the Gemini Developer API, or the demo model.

use std::net::SocketAddr;

use url::Url;

use super::read::Read;
use super::settings::{Gemini, ModelTimeouts, Vertex};
use super::values;
use crate::adapters::demo;
use crate::adapters::gemini::{AdcSources, CredentialSource, Endpoint};
use crate::domain::definition::ThinkingLevel;
use crate::domain::family::Family;

/// The model, and how long to wait for it.
#[derive(Clone, Debug)]
pub struct ModelConfig {
    /// The provider used where a definition names none.
    pub provider: Provider,
    /// The other one of the Developer API and Vertex AI, if both are configured: definitions may name it.
    pub other: Option<Endpoint>,
    /// The model name used where a definition names none; `demo` for the demo model.
    pub name: String,
    /// How much the model thinks, where a definition sets neither a level nor a budget.
    pub thinking_level: Option<ThinkingLevel>,
    /// How long to wait for a real model.
    pub timeouts: ModelTimeouts,
}

/// The service that provides the model.
#[derive(Clone, Debug)]
pub enum Provider {
    /// The built-in demo model; overrides what definitions name.
    Demo {
        /// Whether it was selected by name; otherwise it is the default because there are no credentials.
        by_name: bool,
    },
    /// Gemini, through one of Google's APIs.
    Gemini(Endpoint),
}

pub(super) fn read(values: &Read<'_>, listen: Option<SocketAddr>) -> Option<ModelConfig> {
    let (gemini, vertex, timeouts) = (Gemini::read(values), Vertex::read(values), ModelTimeouts::read(values));
    let (gemini, vertex) = (gemini?, vertex?);
    warn_of_plain_http(values, "gemini.base_url", gemini.base_url.as_deref());
    warn_of_plain_http(values, "vertex.endpoint", vertex.endpoint.as_deref());
    let (name, thinking_level) = (gemini.model.clone(), gemini.thinking_level);
    let (provider, other) = if name == demo::NAME {
        (Provider::Demo { by_name: true }, None)
    } else {
        providers(values, gemini, vertex, listen)?
    };
    warn_of_level(values, &name, thinking_level);
    let name = match provider {
        Provider::Demo { .. } => demo::NAME.to_owned(),
        Provider::Gemini(_) => name,
    };
    Some(ModelConfig {
        provider,
        other,
        name,
        thinking_level,
        timeouts: timeouts?,
    })
}

/// The default provider, and the other configured one. Project and location of Vertex AI take precedence over any key,
/// and a Vertex AI key over a Developer API key.
fn providers(
    values: &Read<'_>,
    gemini: Gemini,
    settings: Vertex,
    listen: Option<SocketAddr>,
) -> Option<(Provider, Option<Endpoint>)> {
    let base_url = gemini.base_url;
    let developer = gemini.api_key.map(|api_key| Endpoint::Developer { api_key, base_url });
    if let Some(vertex) = vertex(values, settings)? {
        return Some((Provider::Gemini(vertex), developer));
    }
    match developer {
        Some(developer) => Some((Provider::Gemini(developer), None)),
        None => demo_by_default(values, listen).map(|demo| (demo, None)),
    }
}

/// Vertex AI, if configured; the outer `None` means a configuration error.
fn vertex(values: &Read<'_>, settings: Vertex) -> Option<Option<Endpoint>> {
    if settings.project_id.is_none() && settings.location.is_none() {
        return Some(settings.api_key.map(|api_key| Endpoint::VertexExpress {
            api_key,
            base_url: settings.endpoint,
        }));
    }
    let project = values.needed("vertex.project_id", settings.project_id, "vertex.location is given");
    let location = values.needed("vertex.location", settings.location, "vertex.project_id is given");
    Some(Some(Endpoint::Vertex {
        project: project?,
        location: location?,
        endpoint: settings.endpoint,
        // The variables in which Google's tools look for credentials.
        credentials: CredentialSource::Default(AdcSources::from_env(|name| values.variable(name))),
    }))
}

/// The demo model is the default only if no setting refers to a real one and only this machine can reach gavel.
fn demo_by_default(values: &Read<'_>, listen: Option<SocketAddr>) -> Option<Provider> {
    const CURE: &str = "GEMINI_API_KEY (or VERTEX_AI_PROJECT_ID and VERTEX_AI_LOCATION), or the demo model by name with \
                        GEMINI_MODEL=demo";
    // A credential that is given but invalid has been reported already; "there are no credentials" would be false.
    let credentials = [
        "gemini.api_key",
        "vertex.api_key",
        "vertex.project_id",
        "vertex.location",
    ];
    if credentials.iter().any(|key| values.is_given(key)) {
        return None;
    }
    let real = ["gemini.model", "gemini.base_url", "vertex.endpoint"];
    if let Some(key) = real.into_iter().find(|key| values.is_given(key)) {
        let found = format!("{}, and no credentials for a real model", values.shown(key));
        values.error(key, &found, CURE);
        return None;
    }
    if let Some(address) = listen.filter(|address| !values::is_loopback(*address)) {
        let found = format!("no credentials, and no loopback address (listen = {address})");
        values.error("gemini.api_key", &found, CURE);
        return None;
    }
    Some(Provider::Demo { by_name: false })
}

/// A level that the configured model does not know is replaced: the operator learns it at the start.
fn warn_of_level(values: &Read<'_>, model: &str, level: Option<ThinkingLevel>) {
    if let Some((level, allowed)) = level.and_then(|level| Some((level, Family::of(model).lacks(level)?))) {
        values.warn(&format!(
            "gemini.thinking_level = {} is no level of {model}, so the nearest one is sent; allowed: {allowed}",
            level.as_str()
        ));
    }
}

/// The operator may send a key unencrypted, but must know it: gavel warns.
fn warn_of_plain_http(values: &Read<'_>, key: &str, base: Option<&str>) {
    let url = base.and_then(|base| Url::parse(base).ok());
    if let Some(url) = url.filter(|url| url.scheme() == "http" && !values::is_local(url)) {
        values.warn(&format!(
            "{key} = {url} sends credentials and messages without encryption"
        ));
    }
}
