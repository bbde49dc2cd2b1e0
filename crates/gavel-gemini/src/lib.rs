//! The port [`Model`] for Gemini: Developer API and Vertex AI, unary and streamed. The facts of the wire that this code
//! relies on are in `docs/explanation/gemini.md`.
//!
//! A call passes through these modules, in this order:
//!
//! 1. `settings` (with `domain/family.rs`) translates a definition's settings for the model that will answer, as far as
//!    `address` knows it; `request` writes the body.
//! 2. `call` makes attempts and follows `CONTINUATION` hops. It is the only place that retries, limited by its delays
//!    and budget and by the endpoint's `breaker`.
//! 3. `auth` sets the key or an access token; `client` sends the request, with a limit on every wait and every byte.
//! 4. `wire` splits a stream into JSON texts, and parses them. `content` assembles the parts so that they can be
//!    echoed as received. `reply` evaluates the whole by its `finish` reason, and `api_error` evaluates an error.
//! 5. `client` passes text on as it arrives, and withdraws it when an attempt fails.
//!
//! Deliberately absent: no other layer retries (reqwest's own retries are off). Nothing is executed from an answer that
//! was incomplete, blocked or garbled, because such an answer is a [`ModelFault`] without calls. No key is ever part of
//! a URL. Nothing of a prompt or an answer is logged or put into an error.
//!
//! Decisions where the API is not specified: a unary request is streamed internally if the model would reject its size.
//! Every hop of a continued answer has its own attempts. A 499 in mid-stream is retried, because gavel did not cancel
//! the request. Usage is the sum over all attempts and hops, because all of them are billed.

mod address;
mod api_error;
mod auth;
mod call;
mod check;
mod client;
mod config;
mod content;
#[cfg(fuzzing)]
pub mod fuzzing;
mod reply;
mod request;
mod settings;
mod wire;

use gavel_core::domain;
use gavel_ports as ports;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Instant;

use self::address::{Address, Method, Routes};
use self::auth::Auth;
pub use self::auth::{
    AdcSources, AuthorizedUser, CredentialSource, Credentials, METADATA_BASE, ServiceAccount, TokenSource,
};
pub use self::call::RetrySettings;
use self::call::{Budget, Call, Retry};
pub use self::check::{CheckError, ModelInfo};
use self::client::{Client, DefaultMetrics, Delivery, Metrics, Target};
use self::config::invalid;
pub use self::config::{BreakerSettings, ConfigError, Endpoint, GeminiConfig, Timeouts};
use self::config::{DEVELOPER_BASE, EXPRESS_BASE};
use self::request::{Prefixes, RequestBody};
pub use self::settings::advice;
use self::settings::{Asked, Warned};
use crate::domain::decision::Usage;
use crate::domain::definition::ThinkingLevel;
use crate::domain::family::{Family, bare_model};
use crate::domain::journal::{FaultKind, ModelTurn, Served};
use crate::ports::BoxFuture;
use crate::ports::model::{Model, ModelEvent, ModelFault, ModelRequest, ModelSettings};
use gavel_upstream::breaker::Breaker;
pub use gavel_upstream::breaker::BreakerState;

/// One Gemini endpoint with its connections, token, breaker and retry budget. Share it.
pub struct Gemini {
    client: Client,
    auth: Auth,
    address: Address,
    /// `developer`, `express` or `vertex`.
    endpoint: &'static str,
    default_model: Arc<str>,
    /// Targets of the default model: unary, stream.
    default_targets: (Arc<Target>, Arc<Target>),
    timeouts: Timeouts,
    max_body: usize,
    retry: RetrySettings,
    budget: Budget,
    breaker: Breaker,
    prefixes: Prefixes,
    warned: Warned,
    routes: Routes,
    thinking_level: Option<ThinkingLevel>,
    metrics: DefaultMetrics,
}

/// A request, ready to be sent.
struct Prepared {
    /// The body of every hop, but for its continuation token.
    body: RequestBody,
    /// The answer may begin late, because the model thinks long first.
    thinks_long: bool,
    /// The model would reject it unless it is streamed.
    too_long: bool,
}

impl Gemini {
    /// Makes the adapter. Nothing is sent and no token is fetched before the first request.
    ///
    /// # Errors
    /// A setting is invalid (see [`ConfigError`]), or the system's TLS roots cannot be read.
    pub fn new(config: GeminiConfig) -> Result<Self, ConfigError> {
        let (address, auth, endpoint) = match config.endpoint {
            Endpoint::Developer { api_key, base_url } => (
                Address::developer(base_url.as_deref().unwrap_or(DEVELOPER_BASE))?,
                Auth::key(&api_key)?,
                "developer",
            ),
            Endpoint::VertexExpress { api_key, base_url } => (
                Address::express(base_url.as_deref().unwrap_or(EXPRESS_BASE))?,
                Auth::key(&api_key)?,
                "express",
            ),
            Endpoint::Vertex {
                project,
                location,
                endpoint,
                credentials,
            } => (
                Address::vertex(&project, &location, endpoint.as_deref())?,
                Auth::token(credentials.find()?, &config.timeouts)?,
                "vertex",
            ),
        };
        let default_model: Arc<str> = bare_model(config.default_model.trim()).into();
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
            prefixes: Prefixes::default(),
            warned: Warned::default(),
            routes: Routes::default(),
            thinking_level: config.thinking_level,
        })
    }

    /// The state of the endpoint's breaker.
    pub fn state(&self) -> BreakerState {
        self.breaker.state(Instant::now())
    }

    /// Writes the request, `repaired` in this way. What is set must fit the model that answers, as far as it is known.
    fn prepare(&self, request: &ModelRequest<'_>, requested: &str, repaired: Retry) -> Prepared {
        let (settings, answering) = (request.settings, self.routes.answering(requested));
        let model = answering.as_deref().unwrap_or(requested);
        let asked = match repaired {
            Retry::ThinkLess => Asked::Least,
            _ => Asked::of(settings, self.thinking_level),
        };
        let signer = match repaired {
            Retry::Unsigned => Some(""),
            _ => answering.as_deref(),
        };
        let generation = settings::generation(model, settings, asked, request.thoughts, &self.warned);
        let cap = Family::of(model).unary_cap();
        Prepared {
            body: request::body(request, &generation.fields, signer, &self.prefixes),
            thinks_long: generation.thinks_long,
            too_long: cap.is_some_and(|cap| settings.max_output_tokens > Some(cap)),
        }
    }

    async fn ask<'a>(
        &'a self,
        request: ModelRequest<'a>,
        events: Option<&'a mut (dyn FnMut(ModelEvent<'_>) + Send)>,
    ) -> Result<ModelTurn, ModelFault> {
        let delivery = Delivery::new(events, request.thoughts);
        let requested = self.requested(request.settings);
        let is_default = *requested == *self.default_model;
        let served = Served {
            requested_model: match is_default {
                true => Arc::clone(&self.default_model),
                false => requested.into(),
            },
            ..Served::default()
        };
        let prepared = self.prepare(&request, requested, Retry::No);
        let stream = delivery.has_listener() || prepared.too_long;
        let target = match (is_default, stream) {
            (true, false) => self.default_targets.0.clone(),
            (true, true) => self.default_targets.1.clone(),
            (false, stream) => {
                let method = if stream { Method::Stream } else { Method::Generate };
                match self.address.of(requested, method) {
                    Ok(url) => Arc::new(Target::new(url)),
                    Err(error) => {
                        return Err(ModelFault {
                            kind: FaultKind::Unavailable,
                            detail: format!("the model's name does not form a valid URL: {error}"),
                            usage: Usage::default(),
                            served: Box::new(served),
                            said: None,
                        });
                    }
                }
            }
        };
        let metrics = match is_default {
            true => Cow::Borrowed(self.metrics.get(self.endpoint, requested)),
            false => Cow::Owned(Metrics::of(self.endpoint, requested)),
        };
        let call = Call {
            gemini: self,
            metrics: &metrics,
            request,
            prepared,
            repaired: false,
            target,
            stream,
            delivery,
            usage: Usage::default(),
            served,
        };
        call.run().await
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

    fn requested<'a>(&'a self, settings: &'a ModelSettings) -> &'a str {
        let named = settings.model.as_deref();
        named.map_or(&*self.default_model, bare_model)
    }

    fn provider(&self) -> &'static str {
        match self.endpoint {
            "developer" => "gcp.gemini",
            _ => "gcp.vertex_ai",
        }
    }
}
