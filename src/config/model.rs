//! Who answers: Vertex AI, the Gemini Developer API, or the demo model.

use std::net::SocketAddr;
use std::time::Duration;

use secrecy::SecretString;
use url::Url;

use super::origin::Origin;
use super::read::Read;
use super::values;

/// The model, where nothing names one: a current Flash model with no shutdown date.
pub const DEFAULT_MODEL: &str = "gemini-3.8-flash";
/// The name that asks for the demo model.
const DEMO: &str = "demo";

/// Who answers, and how long to wait.
#[derive(Clone, Debug)]
pub struct ModelConfig {
    /// Whose model answers where a definition names no provider.
    pub provider: Provider,
    /// The other one of the Developer API and Vertex AI, where both are set up: definitions may name it.
    pub other: Option<Provider>,
    /// Its name, where a definition names none; `demo` for the demo model.
    pub name: String,
    /// How long to wait for a real one.
    pub timeouts: ModelTimeouts,
}

/// Whose model.
#[derive(Clone, Debug)]
pub enum Provider {
    /// The built-in stand-in; overrides what definitions name.
    Demo {
        /// Was it asked for by name? Else it is here because there are no credentials.
        asked: bool,
    },
    /// The Gemini Developer API.
    Developer {
        /// Its key.
        api_key: SecretString,
        /// Scheme, host and port; absent: Google's.
        base_url: Option<String>,
    },
    /// Vertex AI in express mode.
    VertexExpress {
        /// Its key.
        api_key: SecretString,
        /// Scheme, host and port; absent: Google's.
        base_url: Option<String>,
    },
    /// Vertex AI with an access token.
    Vertex {
        /// Id or number.
        project: String,
        /// `global`, `us`, `eu` or a region.
        location: String,
        /// Scheme, host and port in place of the one the location names.
        endpoint: Option<String>,
        /// Where application default credentials are looked for.
        credentials: GoogleEnvironment,
    },
}

/// The variables in which Google's tools look for credentials, as they are in the environment.
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

/// How long to wait for a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelTimeouts {
    /// For a connection.
    pub connect: Duration,
    /// For the head of a reply.
    pub first_byte: Duration,
    /// Between two pieces of a reply.
    pub idle: Duration,
}

/// What was given of a real model.
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
        (Provider::Demo { asked: true }, None)
    } else {
        providers(read, real, &name, listen)?
    };
    let name = match provider {
        Provider::Demo { .. } => DEMO.to_owned(),
        Provider::Developer { .. } | Provider::VertexExpress { .. } | Provider::Vertex { .. } => name,
    };
    Some(ModelConfig {
        provider,
        other,
        name,
        timeouts: ModelTimeouts {
            connect: connect?,
            first_byte: first_byte?,
            idle: idle?,
        },
    })
}

/// The default, and the other one that is set up. Project and location of Vertex AI go before any key, and a key of Vertex AI before
/// one of the Developer API.
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

/// Vertex AI, where it is set up; outer `None` where that is an error.
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

/// The demo model answers by default only where nothing points to a real one, and nobody else can reach it.
fn demo_by_default(read: &mut Read<'_>, name: &str, listen: Option<SocketAddr>) -> Option<Provider> {
    const CURE: &str = "set GEMINI_API_KEY (or VERTEX_AI_PROJECT_ID and VERTEX_AI_LOCATION), or ask for the demo \
                        model by name with GEMINI_MODEL=demo";
    // A credential that is given and wrong has been told already; that there is none would be untrue.
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
                format!("is for a real model, and there are no credentials; {CURE}"),
            );
            return None;
        }
    }
    let away = listen.filter(|address| !values::is_loopback(*address));
    if let Some(address) = away {
        let problem = format!(
            "there are no credentials, and away from loopback (listen = {address}) the demo model \
                               must be asked for by name; {CURE}"
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
    Some(Provider::Demo { asked: false })
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

/// A key that travels in the clear is the operator's decision, but a known one.
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
