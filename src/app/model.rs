//! Builds the configured models.

use std::sync::Arc;

use crate::adapters::demo::Demo;
use crate::adapters::gemini::{
    Credentials, DEVELOPER_BASE, EXPRESS_BASE, Endpoint, Gemini, GeminiConfig, Timeouts, adc_from_env_values,
};
use crate::config::{GoogleEnvironment, ModelConfig, Provider};
use crate::engine::agent::Models;
use crate::ports::model::Model;

/// Builds the model of a provider.
pub(super) fn model(config: &ModelConfig, provider: &Provider) -> anyhow::Result<Arc<dyn Model>> {
    match endpoint(provider)? {
        None => Ok(Arc::new(Demo)),
        Some(endpoint) => Ok(Arc::new(gemini(config, endpoint)?)),
    }
}

/// The models that definitions may select by provider: the default, and the other configured one. `make` builds the
/// latter.
///
/// # Errors
/// The errors of `make`.
pub(super) fn by_provider<E>(
    config: &ModelConfig,
    default: &Arc<dyn Model>,
    make: impl FnOnce(&Provider) -> Result<Arc<dyn Model>, E>,
) -> Result<Models, E> {
    let mut models = Models::default();
    let other = config.other.as_ref().map(|other| make(other).map(|made| (other, made)));
    let all = std::iter::once((&config.provider, Arc::clone(default))).chain(other.transpose()?);
    for (provider, model) in all {
        match provider {
            Provider::Demo { .. } => models.one_for_all = true,
            Provider::Developer { .. } => models.gemini = Some(model),
            Provider::Vertex { .. } | Provider::VertexExpress { .. } => models.vertex = Some(model),
        }
    }
    Ok(models)
}

/// Gemini through a provider; `None` for the demo model.
pub(super) fn real(config: &ModelConfig, provider: &Provider) -> anyhow::Result<Option<Gemini>> {
    endpoint(provider)?.map(|endpoint| gemini(config, endpoint)).transpose()
}

fn gemini(config: &ModelConfig, endpoint: Endpoint) -> anyhow::Result<Gemini> {
    let timeouts = Timeouts {
        connect: config.timeouts.connect_seconds,
        first_byte: config.timeouts.first_byte_seconds,
        idle: config.timeouts.idle_seconds,
        ..Timeouts::default()
    };
    Ok(Gemini::new(GeminiConfig {
        timeouts,
        thinking_level: config.thinking_level,
        ..GeminiConfig::new(endpoint, config.name.clone())
    })?)
}

fn endpoint(provider: &Provider) -> anyhow::Result<Option<Endpoint>> {
    let base = |given: &Option<String>, default: &str| given.clone().unwrap_or_else(|| default.to_owned());
    Ok(match provider {
        Provider::Demo { .. } => None,
        Provider::Developer { api_key, base_url } => Some(Endpoint::Developer {
            base_url: base(base_url, DEVELOPER_BASE),
            api_key: api_key.clone(),
        }),
        Provider::VertexExpress { api_key, base_url } => Some(Endpoint::VertexExpress {
            base_url: base(base_url, EXPRESS_BASE),
            api_key: api_key.clone(),
        }),
        Provider::Vertex {
            project,
            location,
            endpoint,
            credentials,
        } => Some(Endpoint::Vertex {
            project: project.clone(),
            location: location.clone(),
            endpoint: endpoint.clone(),
            credentials: google_credentials(credentials)?,
        }),
    })
}

fn google_credentials(environment: &GoogleEnvironment) -> anyhow::Result<Credentials> {
    let sources = adc_from_env_values(
        environment.application_credentials.as_deref(),
        environment.cloudsdk_config.as_deref(),
        environment.home.as_deref(),
        environment.metadata_host.as_deref(),
        environment.quota_project.as_deref(),
    );
    Ok(sources.find()?)
}
