//! Checks of the model and of the issuer of tokens, which are asked over the network.

use std::collections::BTreeSet;

use super::Findings;
use crate::adapters::gemini::{CheckError, advice};
use crate::app;
use crate::config::{Config, Provider};
use crate::domain::definition::{Agents, Constitution};
use crate::domain::time::rfc3339;
use crate::ports::clock::{Clock, SystemClock};
use crate::ports::keys::KeySource;

pub(super) async fn model(config: &Config, findings: &mut Findings) -> anyhow::Result<()> {
    if let Some(other) = &config.model.other {
        one_model(config, other, "other model", findings).await?;
    }
    one_model(config, &config.model.provider, "model", findings).await
}

/// Warns about the names of models that Google answers with another model, or shuts down.
pub(super) fn names(
    config: &Config,
    constitution: Option<&Constitution>,
    agents: &Agents,
    findings: &Findings,
) -> anyhow::Result<()> {
    let definitions = agents.values().map(|agent| &*agent.definition);
    let definitions = definitions.chain(constitution.map(|constitution| &constitution.definition));
    let named = definitions.filter_map(|definition| definition.model.model.as_deref());
    let names: BTreeSet<_> = named.chain([config.model.name.as_str()]).collect();
    let today = rfc3339(SystemClock.now_us());
    for advice in names.into_iter().filter_map(|name| advice(name, &today[..10])) {
        findings.warn(&format!("model: {advice}"))?;
    }
    Ok(())
}

/// Checks one configured provider; `what` is its name in the output.
async fn one_model(config: &Config, provider: &Provider, what: &str, findings: &mut Findings) -> anyhow::Result<()> {
    let gemini = match app::gemini(&config.model, provider) {
        Ok(Some(gemini)) => gemini,
        Ok(None) => {
            let why = match provider {
                Provider::Demo { by_name: true } => "it is configured by name",
                _ => "no credentials are set; set GEMINI_API_KEY to use Gemini",
            };
            return findings.warn(&format!("{what}: the demo model answers: {why}"));
        }
        Err(error) => return findings.error(&format!("{what}: {error:#}"), "correct the settings of the credentials"),
    };
    match gemini.check().await {
        Ok(info) => {
            let limits = match (info.input_token_limit, info.output_token_limit) {
                (Some(input), Some(output)) => format!(" ({input} tokens in, {output} out)"),
                _ => String::new(),
            };
            findings.good(&format!("{what}: {} answers{limits}", info.model))
        }
        Err(error) => findings.error(&format!("{what}: {error}"), cure(&error)),
    }
}

pub(super) async fn issuer(config: &Config, findings: &mut Findings) -> anyhow::Result<()> {
    let Some(issuer) = app::issuer(config)? else {
        return Ok(());
    };
    let next = "check GAVEL_AUTH_JWT_JWKS_URL, and that the issuer runs";
    match issuer.current().await {
        Ok(set) if set.keys.is_empty() => findings.error("issuer: none of its keys can check a token", next),
        Ok(set) => findings.good(&format!("issuer: {} keys that can check tokens", set.keys.len())),
        Err(error) => findings.error(&format!("issuer: {error}"), next),
    }
}

fn cure(error: &CheckError) -> &'static str {
    match error {
        CheckError::Credentials(_) => "check GEMINI_API_KEY, or the Google credentials of Vertex AI",
        CheckError::Permission(_) => "allow the API for this key or account in the Google Cloud console",
        CheckError::UnknownModel { .. } => "set GEMINI_MODEL to an existing model",
        CheckError::Unreachable(_) => "check the network, a proxy, and GEMINI_BASE_URL",
        CheckError::Quota(_) => "wait, or raise the quota of the key",
        CheckError::Unexpected(_) => "check that GEMINI_BASE_URL speaks the Gemini API",
    }
}
