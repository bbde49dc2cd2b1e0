//! For `gavel doctor`: does the key work, may it be used, is there such a model?

use std::time::{Duration, Instant};

use bytes::Bytes;
use reqwest::Request;
use reqwest::header::{CONTENT_TYPE, HeaderValue};
use serde::Deserialize;

use super::address::Method;
use super::api_error::ApiError;
use super::client::Waiting;
use super::failure::Failure;
use super::wire::{self, Count};
use super::{Gemini, limits};

/// The model that answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelInfo {
    /// Its name.
    pub model: String,
    /// Most tokens of a prompt, if the endpoint tells.
    pub input_token_limit: Option<u64>,
    /// Most tokens of an answer, if the endpoint tells.
    pub output_token_limit: Option<u64>,
}

/// What is wrong, in words for an operator.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CheckError {
    /// The key, token or credentials are refused, or no token could be got.
    #[error("the credentials do not work: {0}")]
    Credentials(String),
    /// They are known, but may not do this.
    #[error("the credentials may not use this API, project or model: {0}")]
    Permission(String),
    /// There is no such model here.
    #[error("there is no model {model:?} at this endpoint: {detail}")]
    UnknownModel {
        /// The name that was asked for.
        model: String,
        /// The provider's answer.
        detail: String,
    },
    /// The quota is used up.
    #[error("the quota is used up: {0}")]
    Quota(String),
    /// No answer.
    #[error("Gemini cannot be reached: {0}")]
    Unreachable(String),
    /// An answer that fits none of these.
    #[error("Gemini answered in an unexpected way: {0}")]
    Unexpected(String),
}

const PATIENCE: Duration = Duration::from_secs(10);

impl Gemini {
    /// Asks for the default model's description (Developer API), or has one word counted by it (Vertex AI, which
    /// describes no models). Costs nothing, is not repeated, and leaves breaker and budget alone.
    ///
    /// # Errors
    /// What is wrong.
    pub async fn check(&self) -> Result<ModelInfo, CheckError> {
        let deadline = Instant::now() + PATIENCE;
        let model = self.default_model.as_str();
        let describes_models = self.endpoint == "developer";
        let url = match describes_models {
            true => self.address.about(model),
            false => self.address.of(model, Method::CountTokens),
        };
        let url = url.map_err(|error| CheckError::Unexpected(error.to_string()))?;
        let mut request = Request::new(reqwest::Method::GET, url);
        if !describes_models {
            *request.method_mut() = reqwest::Method::POST;
            request
                .headers_mut()
                .insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            let body = Bytes::from_static(br#"{"contents":[{"role":"user","parts":[{"text":"hello"}]}]}"#);
            *request.body_mut() = Some(body.into());
        }
        let safe = |failure: Failure| self.auth.redact(failure.detail);
        self.auth
            .apply(request.headers_mut(), deadline)
            .await
            .map_err(|failure| CheckError::Credentials(safe(failure)))?;
        let waiting = Waiting {
            timeouts: &self.timeouts,
            deadline,
            begun: Instant::now(),
        };
        let unreachable = |failure| CheckError::Unreachable(safe(failure));
        let response = waiting
            .send(self.client.general(), request)
            .await
            .map_err(unreachable)?;
        let status = response.status();
        if !status.is_success() {
            let error = ApiError::of_body(status.as_u16(), &waiting.error_body(response).await);
            return Err(self.verdict(&error));
        }
        let mut held = limits::held(("", "gavel doctor"));
        let body = waiting
            .body(response, self.max_body, &mut held)
            .await
            .map_err(unreachable)?;
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Described {
            input_token_limit: Option<Count>,
            output_token_limit: Option<Count>,
        }
        let described: Described = wire::read(&body).map_err(CheckError::Unexpected)?;
        Ok(ModelInfo {
            model: model.to_owned(),
            input_token_limit: described.input_token_limit.map(|limit| limit.0),
            output_token_limit: described.output_token_limit.map(|limit| limit.0),
        })
    }

    fn verdict(&self, error: &ApiError) -> CheckError {
        let detail = self.auth.redact(error.to_string());
        let reason = error.reason.as_deref().unwrap_or_default();
        match error.code {
            // A bad key is a 400 here.
            400 if reason.starts_with("API_KEY") => CheckError::Credentials(detail),
            401 => CheckError::Credentials(detail),
            403 => CheckError::Permission(detail),
            404 => CheckError::UnknownModel {
                model: self.default_model.clone(),
                detail,
            },
            429 => CheckError::Quota(detail),
            500.. => CheckError::Unreachable(detail),
            _ => CheckError::Unexpected(detail),
        }
    }
}
