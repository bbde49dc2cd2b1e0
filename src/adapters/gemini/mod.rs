//! The port [`Model`] for Gemini: Developer API and Vertex AI, unary and streamed.
//!
//! A call passes through these modules, in this order:
//!
//! 1. `settings` (with `family`) translates a definition's settings for the requested model; `request` writes the body.
//! 2. `call` makes attempts and follows `CONTINUATION` hops. It is the only place that retries, limited by the delays
//!    and the budget of `retry` and by the endpoint's `breaker`.
//! 3. `auth` sets the key or an access token; `client` sends the request, with a limit on every wait and every byte.
//! 4. `sse` splits a stream into JSON texts, and `wire` parses them. `content` assembles the parts so that they can be
//!    echoed as received. `reply` evaluates the whole by its `finish` reason, and `api_error` evaluates an error.
//! 5. `delivery` passes text on as it arrives, and withdraws it when an attempt fails.
//!
//! Deliberately absent: no other layer retries (reqwest's own retries are off). Nothing is executed from an answer that
//! was incomplete, blocked or garbled, because such an answer is a [`ModelFault`] without calls. No key is ever part of
//! a URL. Nothing of a prompt or an answer is logged or put into an error.
//!
//! Decisions where the API is not specified: a unary request is streamed internally if the model would reject its size
//! (Gemini 4 above 32,768 output tokens). Every hop of a continued answer has its own attempts. A 499 in mid-stream is
//! retried, because gavel did not cancel the request. Usage is the sum over all attempts and hops, because all of them
//! are billed.

mod address;
mod api_error;
mod auth;
mod call;
mod check;
mod client;
mod config;
mod config_error;
mod content;
mod delivery;
mod failure;
mod family;
mod finish;
#[cfg(fuzzing)]
pub mod fuzzing;
mod limits;
mod metrics;
mod no_answer;
mod reply;
mod request;
mod retry;
mod settings;
mod sse;
mod timeouts;
mod wire;
mod wire_enum;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Instant;

use self::address::{Address, Method, bare_model};
use self::auth::Auth;
pub use self::auth::{AdcSources, AuthorizedUser, Credentials, METADATA_BASE, ServiceAccount, adc_from_env_values};
use self::call::Call;
pub use self::check::{CheckError, ModelInfo};
use self::client::{Client, Target};
pub use self::config::{BreakerSettings, DEVELOPER_BASE, EXPRESS_BASE, Endpoint, GeminiConfig};
pub use self::config_error::ConfigError;
use self::config_error::invalid;
use self::delivery::Delivery;
use self::family::Family;
use self::metrics::{DefaultMetrics, Metrics};
use self::request::SystemCache;
use self::retry::Budget;
pub use self::retry::RetrySettings;
use self::settings::Warned;
pub use self::timeouts::Timeouts;
use super::breaker::Breaker;
pub use super::breaker::BreakerState;
use crate::domain::decision::Usage;
use crate::domain::journal::{FaultKind, ModelTurn};
use crate::ports::BoxFuture;
use crate::ports::model::{Model, ModelEvent, ModelFault, ModelRequest};

/// One Gemini endpoint with its connections, token, breaker and retry budget. Share it.
pub struct Gemini {
    client: Client,
    auth: Auth,
    address: Address,
    /// `developer`, `express` or `vertex`.
    endpoint: &'static str,
    default_model: String,
    /// Targets of the default model: unary, stream.
    default_targets: (Arc<Target>, Arc<Target>),
    timeouts: Timeouts,
    max_body: usize,
    retry: RetrySettings,
    budget: Budget,
    breaker: Breaker,
    system: SystemCache,
    warned: Warned,
    metrics: DefaultMetrics,
}

impl Gemini {
    /// Makes the adapter. Nothing is sent and no token is fetched before the first request.
    ///
    /// # Errors
    /// A setting is invalid (see [`ConfigError`]), or the system's TLS roots cannot be read.
    pub fn new(config: GeminiConfig) -> Result<Self, ConfigError> {
        let (address, auth, endpoint) = match config.endpoint {
            Endpoint::Developer { base_url, api_key } => {
                (Address::developer(&base_url)?, Auth::key(&api_key)?, "developer")
            }
            Endpoint::VertexExpress { base_url, api_key } => {
                (Address::express(&base_url)?, Auth::key(&api_key)?, "express")
            }
            Endpoint::Vertex {
                project,
                location,
                endpoint,
                credentials,
            } => (
                Address::vertex(&project, &location, endpoint.as_deref())?,
                Auth::token(credentials, &config.timeouts)?,
                "vertex",
            ),
        };
        let default_model = bare_model(config.default_model.trim()).to_owned();
        if default_model.is_empty() {
            return Err(invalid(
                "model",
                "it is empty; allowed is a model name such as gemini-3.8-flash",
            ));
        }
        let target = |method| match address.of(&default_model, method) {
            Ok(url) => Ok(Arc::new(Target::new(url))),
            Err(error) => Err(invalid("model", error.to_string())),
        };
        let default_targets = (target(Method::Generate)?, target(Method::Stream)?);
        Ok(Self {
            client: Client::new(&config.timeouts, &address.origin)?,
            auth,
            endpoint,
            default_targets,
            metrics: DefaultMetrics::of(&default_model),
            default_model,
            address,
            timeouts: config.timeouts,
            max_body: config.max_body,
            retry: config.retry,
            budget: Budget::new(&config.retry),
            breaker: config.breaker.breaker(),
            system: SystemCache::default(),
            warned: Warned::default(),
        })
    }

    /// The state of the endpoint's breaker.
    #[must_use]
    pub fn state(&self) -> BreakerState {
        self.breaker.state(Instant::now())
    }

    async fn ask<'a>(
        &'a self,
        request: ModelRequest<'a>,
        events: Option<&'a mut (dyn FnMut(ModelEvent<'_>) + Send)>,
    ) -> Result<ModelTurn, ModelFault> {
        let (settings, delivery) = (request.settings, Delivery::new(events, request.thoughts));
        let named = settings
            .model
            .as_deref()
            .map_or(self.default_model.as_str(), bare_model);
        let generation = settings::generation_config(named, settings, request.thoughts, &self.warned);
        let too_long = Family::of(named)
            .unary_cap()
            .zip(settings.max_output_tokens)
            .is_some_and(|(cap, most)| most > cap);
        let stream = delivery.has_listener() || too_long;
        let target = match (named == self.default_model, stream) {
            (true, false) => self.default_targets.0.clone(),
            (true, true) => self.default_targets.1.clone(),
            (false, stream) => self
                .address
                .of(named, if stream { Method::Stream } else { Method::Generate })
                .map(|url| Arc::new(Target::new(url)))
                .map_err(|error| ModelFault {
                    kind: FaultKind::Unavailable,
                    detail: format!("the model's name does not form a valid URL: {error}"),
                    usage: Usage::default(),
                    attempts: 0,
                })?,
        };
        let metrics = match named == self.default_model {
            true => Cow::Borrowed(self.metrics.get(self.endpoint, named)),
            false => Cow::Owned(Metrics::of(self.endpoint, named)),
        };
        let body = request::body(&request, &generation, &self.system);
        let call = Call {
            gemini: self,
            metrics: &metrics,
            model: named,
            target,
            stream,
            deadline: request.deadline,
            holder: request.holder,
            delivery,
            usage: Usage::default(),
            attempts: 0,
        };
        call.run(body.into()).await
    }
}

impl Model for Gemini {
    fn generate<'a>(
        &'a self,
        request: ModelRequest<'a>,
        events: Option<&'a mut (dyn FnMut(ModelEvent<'_>) + Send)>,
    ) -> BoxFuture<'a, Result<ModelTurn, ModelFault>> {
        Box::pin(self.ask(request, events))
    }

    fn default_model(&self) -> &str {
        &self.default_model
    }

    fn provider(&self) -> &'static str {
        match self.endpoint {
            "developer" => "gcp.gemini",
            _ => "gcp.vertex_ai",
        }
    }
}
