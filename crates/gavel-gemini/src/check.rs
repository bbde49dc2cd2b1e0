//! Checks for `gavel doctor`: do the credentials work, do they have access, does the model exist?

use std::time::{Duration, Instant};

use bytes::Bytes;
use reqwest::Request;
use reqwest::header::{CONTENT_TYPE, HeaderValue};
use serde::Deserialize;

use super::address::Method;
use super::api_error::ApiError;
use super::call::Failure;
use super::client::Waiting;
use super::wire::{self, Count};
use super::{Gemini, client};
use crate::domain::journal::FaultKind;

/// The model that answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelInfo {
    /// Its name.
    pub model: String,
    /// Maximum tokens of a prompt, if the endpoint reports it.
    pub input_token_limit: Option<u64>,
    /// Maximum tokens of an answer, if the endpoint reports it.
    pub output_token_limit: Option<u64>,
}

/// What failed, for an operator.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CheckError {
    /// The key, token or credentials were rejected, or no token could be fetched.
    #[error("the credentials do not work: {0}")]
    Credentials(String),
    /// The credentials are valid, but lack permission.
    #[error("the credentials may not use this API, project or model: {0}")]
    Permission(String),
    /// The model does not exist at this endpoint.
    #[error("there is no model {model:?} at this endpoint: {detail}")]
    UnknownModel {
        /// The requested model.
        model: String,
        /// The provider's answer.
        detail: String,
    },
    /// The quota is exceeded.
    #[error("the quota is exceeded: {0}")]
    Quota(String),
    /// Gemini did not answer.
    #[error("Gemini cannot be reached: {0}")]
    Unreachable(String),
    /// Any other answer.
    #[error("unexpected answer from Gemini: {0}")]
    Unexpected(String),
}

const PATIENCE: Duration = Duration::from_secs(10);

impl Gemini {
    /// Requests the default model's description (Developer API), or counts the tokens of one word (Vertex AI, which
    /// does not describe models). It is free, is not retried, and does not affect the breaker or the retry budget.
    ///
    /// # Errors
    /// [`CheckError`].
    pub async fn check(&self) -> Result<ModelInfo, CheckError> {
        let deadline = Instant::now() + PATIENCE;
        let model = &*self.default_model;
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
        let applied = self.auth.apply(request.headers_mut(), deadline).await;
        applied.map_err(|failure| CheckError::Credentials(self.auth.redact(failure.detail)))?;
        let waiting = Waiting {
            timeouts: &self.timeouts,
            deadline,
            begun: Instant::now(),
        };
        let sent = waiting.send(self.client.general(), request).await;
        let response = sent.map_err(|failure| self.verdict(failure))?;
        let status = response.status();
        if !status.is_success() {
            let error = ApiError::of_body(status.as_u16(), &waiting.error_body(response).await);
            return Err(self.verdict(error.into_failure(false)));
        }
        let mut held = client::held(("", "gavel doctor"));
        let body = waiting.body(response, self.max_body, &mut held).await;
        let body = body.map_err(|failure| self.verdict(failure))?;
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

    fn verdict(&self, failure: Failure) -> CheckError {
        let detail = self.auth.redact(failure.detail);
        match failure.kind {
            FaultKind::Credentials => CheckError::Credentials(detail),
            FaultKind::Permission => CheckError::Permission(detail),
            FaultKind::NoSuchModel => CheckError::UnknownModel {
                model: self.default_model.to_string(),
                detail,
            },
            FaultKind::Quota => CheckError::Quota(detail),
            FaultKind::Unavailable | FaultKind::Timeout => CheckError::Unreachable(detail),
            FaultKind::Rejected | FaultKind::Malformed | FaultKind::Blocked => CheckError::Unexpected(detail),
        }
    }
}
