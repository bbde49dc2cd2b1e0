//! The model settings: Vertex AI, the Gemini Developer API, or the demo model.

use std::net::SocketAddr;
use std::time::Duration;

use secrecy::SecretString;
use url::Url;

use super::origin::Origin;
use super::read::Read;
use super::values;
use crate::domain::definition::ThinkingLevel;
use crate::domain::family::Family;

/// The name that selects the demo model.
const DEMO: &str = "demo";

/// The model, and how long to wait for it.
#[derive(Clone, Debug)]
pub struct ModelConfig {
    /// The provider used where a definition names none.
    pub provider: Provider,
    /// The other one of the Developer API and Vertex AI, if both are configured: definitions may name it.
    pub other: Option<Provider>,
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
    /// The Gemini Developer API.
    Developer {
        /// The API key.
        api_key: SecretString,
        /// Scheme, host and port; absent: Google's address.
        base_url: Option<String>,
    },
    /// Vertex AI in express mode.
    VertexExpress {
        /// The API key.
        api_key: SecretString,
        /// Scheme, host and port; absent: Google's address.
        base_url: Option<String>,
    },
    /// Vertex AI with an access token.
    Vertex {
        /// Project id or number.
        project: String,
        /// `global`, `us`, `eu` or a region.
        location: String,
        /// Scheme, host and port in place of the address that the location implies.
        endpoint: Option<String>,
        /// Where application default credentials are searched for.
        credentials: GoogleEnvironment,
    },
}

/// The environment variables in which Google's tools look for credentials, unparsed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GoogleEnvironment {
    /// `GOOGLE_APPLICATION_CREDENTIALS`.
    pub application_credentials: Option<String>,
    /// `CLOUDSDK_CONFIG`.
    pub cloudsdk_config: Option<String>,
    /// `HOME`.
    pub home: Option<String>,
    /// `GCE_METADATA_HOST`.
    pub metadata_host: Option<String>,
    /// `GOOGLE_CLOUD_QUOTA_PROJECT`.
    pub quota_project: Option<String>,
}

/// Timeouts of model requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelTimeouts {
    /// Connecting.
    pub connect: Duration,
    /// Until the response headers arrive.
    pub first_byte: Duration,
    /// Between two chunks of a response.
    pub idle: Duration,
}

/// The settings given for a real model.
struct Real {
    project: Option<String>,
    location: Option<String>,
    endpoint: Option<String>,
    express_key: Option<SecretString>,
    api_key: Option<SecretString>,
    base_url: Option<String>,
}

pub(super) fn read(read: &mut Read<'_>, listen: Option<SocketAddr>) -> Option<ModelConfig> {
    let name = read.word("gemini.model");
    let thinking_level = read.parse("gemini.thinking_level", values::thinking_level);
    let real = Real {
        project: read.parse("vertex.project_id", values::google_name),
        location: read.parse("vertex.location", values::google_name),
        endpoint: read.parse("vertex.endpoint", values::endpoint),
        express_key: read.secret("vertex.api_key"),
        api_key: read.secret("gemini.api_key"),
        base_url: read.parse("gemini.base_url", values::base_url),
    };
    let connect = read.parse("model.connect_seconds", values::seconds);
    let first_byte = read.parse("model.first_byte_seconds", values::seconds);
    let idle = read.parse("model.idle_seconds", values::seconds);
    warn_of_plain_http(read, &real);
    let name = name?;
    let (provider, other) = if name == DEMO {
        (Provider::Demo { by_name: true }, None)
    } else {
        providers(read, real, &name, listen)?
    };
    warn_of_level(read, &name, thinking_level);
    let name = match provider {
        Provider::Demo { .. } => DEMO.to_owned(),
        Provider::Developer { .. } | Provider::VertexExpress { .. } | Provider::Vertex { .. } => name,
    };
    Some(ModelConfig {
        provider,
        other,
        name,
        thinking_level,
        timeouts: ModelTimeouts {
            connect: connect?,
            first_byte: first_byte?,
            idle: idle?,
        },
    })
}

/// The default provider, and the other configured one. Project and location of Vertex AI take precedence over any key,
/// and a Vertex AI key over a Developer API key.
fn providers(
    read: &mut Read<'_>,
    real: Real,
    name: &str,
    listen: Option<SocketAddr>,
) -> Option<(Provider, Option<Provider>)> {
    let base_url = real.base_url.clone();
    let developer = real
        .api_key
        .clone()
        .map(|api_key| Provider::Developer { api_key, base_url });
    if let Some(vertex) = vertex(read, real)? {
        return Some((vertex, developer));
    }
    match developer {
        Some(developer) => Some((developer, None)),
        None => demo_by_default(read, name, listen).map(|demo| (demo, None)),
    }
}

/// Vertex AI, if configured; the outer `None` means a configuration error.
fn vertex(read: &mut Read<'_>, real: Real) -> Option<Option<Provider>> {
    match (real.project, real.location) {
        (Some(project), Some(location)) => {
            return Some(Some(Provider::Vertex {
                project,
                location,
                endpoint: real.endpoint,
                credentials: google(read),
            }));
        }
        (Some(_), None) if !read.is_given("vertex.location") => {
            read.missing("vertex.location", "is needed, because vertex.project_id is given");
            return None;
        }
        (None, Some(_)) if !read.is_given("vertex.project_id") => {
            read.missing("vertex.project_id", "is needed, because vertex.location is given");
            return None;
        }
        _ => {}
    }
    Some(real.express_key.map(|api_key| Provider::VertexExpress {
        api_key,
        base_url: real.endpoint,
    }))
}

/// The demo model is the default only if no setting refers to a real one and only this machine can reach gavel.
fn demo_by_default(read: &mut Read<'_>, name: &str, listen: Option<SocketAddr>) -> Option<Provider> {
    const CURE: &str = "set GEMINI_API_KEY (or VERTEX_AI_PROJECT_ID and VERTEX_AI_LOCATION), or select the demo \
                        model by name with GEMINI_MODEL=demo";
    // A credential that is given but invalid has been reported already; "there are no credentials" would be false.
    let credentials = [
        "gemini.api_key",
        "vertex.api_key",
        "vertex.project_id",
        "vertex.location",
    ];
    if credentials.iter().any(|key| read.is_given(key)) {
        return None;
    }
    for key in ["gemini.model", "gemini.base_url", "vertex.endpoint"] {
        if read.is_given(key) {
            let (value, origin) = match key {
                "gemini.model" => (Some(name.to_owned()), read.origin(key)),
                _ => (read.text(key)?.0.into(), read.origin(key)),
            };
            read.error(
                key,
                value,
                &origin,
                format!("applies only to a real model, and there are no credentials; {CURE}"),
            );
            return None;
        }
    }
    let away = listen.filter(|address| !values::is_loopback(*address));
    if let Some(address) = away {
        let problem = format!(
            "there are no credentials, and on a non-loopback address (listen = {address}) the demo model must be \
             selected by name; {CURE}"
        );
        read.push(super::ConfigError {
            key: "gemini.api_key".to_owned(),
            value: None,
            place: None,
            problem,
        });
        return None;
    }
    read.in_effect(
        "gemini.model",
        DEMO,
        Origin::default_because("there are no credentials for a real model"),
    );
    Some(Provider::Demo { by_name: false })
}

fn google(read: &Read<'_>) -> GoogleEnvironment {
    GoogleEnvironment {
        application_credentials: read.variable("GOOGLE_APPLICATION_CREDENTIALS"),
        cloudsdk_config: read.variable("CLOUDSDK_CONFIG"),
        home: read.variable("HOME"),
        metadata_host: read.variable("GCE_METADATA_HOST"),
        quota_project: read.variable("GOOGLE_CLOUD_QUOTA_PROJECT"),
    }
}

/// A level that the configured model does not know is replaced: the operator learns it at the start.
fn warn_of_level(read: &mut Read<'_>, model: &str, level: Option<ThinkingLevel>) {
    if let Some((level, allowed)) = level.and_then(|level| Some((level, Family::of(model).lacks(level)?))) {
        read.warn(format!(
            "gemini.thinking_level = {} is no level of {model}, so the nearest one is sent; allowed: {allowed}",
            level.as_str()
        ));
    }
}

/// The operator may send a key unencrypted, but must know it: gavel warns.
fn warn_of_plain_http(read: &mut Read<'_>, real: &Real) {
    for (key, base) in [("gemini.base_url", &real.base_url), ("vertex.endpoint", &real.endpoint)] {
        let Some(url) = base.as_deref().and_then(|base| Url::parse(base).ok()) else {
            continue;
        };
        if url.scheme() == "http" && !values::is_local(&url) {
            read.warn(format!(
                "{key} = {url} sends credentials and messages without encryption"
            ));
        }
    }
}
