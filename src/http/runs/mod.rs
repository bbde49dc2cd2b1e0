//! Runs of agents: trigger, get, list, cancel, resume.

pub(super) mod events;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use actix_web::http::StatusCode;
use actix_web::http::header::{self, HeaderMap, HeaderName, HeaderValue};
use actix_web::web::{Data, Payload};
use actix_web::{HttpRequest, HttpResponse};
use chrono_tz::Tz;
use serde_json::{Map, Value};
use tracing::Instrument;

use super::agents::{agent, project, response};
use super::body::Media;
use super::error::Error;
use super::exchange::Exchange;
use super::headers::{self, IDEMPOTENCY_REPLAYED};
use super::routes::Route;
use super::{State, acting, body, query};
use crate::domain::agent_run::{AgentRun, RunStatus};
use crate::domain::definition::strict_json;
use crate::domain::ids::{ActionId, RunId, UserId};
use crate::domain::text;
use crate::http::page;
use crate::http::spelling::Spelling;
use crate::surfaces::agents::{Inputs, MOST_TIME, Resume, Trigger, Triggered};
use crate::surfaces::caller::Caller;
use crate::surfaces::chat::request::FieldError;
use crate::surfaces::chat::{Idempotency, RequestMeta};

const PREFER: HeaderName = HeaderName::from_static("prefer");
const PREFERENCE_APPLIED: HeaderName = HeaderName::from_static("preference-applied");

pub(super) async fn trigger(state: Data<State>, request: HttpRequest, payload: Payload) -> HttpResponse {
    let exchange = Exchange::begin(&state, &request, Some(Route::Trigger));
    let answer = triggered(&state, &exchange, &request, payload);
    let answer = answer.instrument(exchange.span.clone()).await;
    exchange.finish(answer)
}

pub(super) async fn resume(state: Data<State>, request: HttpRequest, payload: Payload) -> HttpResponse {
    let exchange = Exchange::begin(&state, &request, Some(Route::ResumeRun));
    let answer = resumed(&state, &exchange, &request, payload);
    let answer = answer.instrument(exchange.span.clone()).await;
    exchange.finish(answer)
}

pub(super) async fn list(state: Data<State>, request: HttpRequest) -> HttpResponse {
    let exchange = Exchange::begin(&state, &request, Some(Route::Runs));
    exchange.finish(page(&state, &request).await)
}

pub(super) async fn get(state: Data<State>, request: HttpRequest) -> HttpResponse {
    let exchange = Exchange::begin(&state, &request, Some(Route::Run));
    exchange.finish(one(&state, &request).await)
}

pub(super) async fn cancel(state: Data<State>, request: HttpRequest) -> HttpResponse {
    let exchange = Exchange::begin(&state, &request, Some(Route::CancelRun));
    exchange.finish(cancelled(&state, &request).await)
}

/// Authenticates, reads and parses the request, then checks user and idempotency; the surface checks quota and
/// admission.
async fn triggered(
    state: &State,
    exchange: &Exchange,
    request: &HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, Error> {
    let caller = state.edge.auth.caller(request).await?;
    let (body, media) = body::read_input(state, request, payload, &caller).await?;
    let inputs = inputs(&body, media)?;
    let (timeout, time_zone) = options(request.query_string(), "timeout_s, time_zone")?;
    let patience = Patience::of(request.headers())?;
    let user = acting::required(state, &caller, request)?;
    let trigger = Trigger {
        project: project(request)?,
        agent: agent(request)?.to_owned(),
        inputs,
        timeout,
        time_zone,
        background: patience == Patience::None,
        meta: meta(exchange, request, &caller, &user, &body)?,
    };
    let keyed = trigger.meta.idempotency.is_some();
    let triggered = state.edge.agents.trigger(&caller, user, trigger).await?;
    wait(state, &caller, triggered, patience, keyed).await
}

/// Parses the body of `POST /api/runs/{id}/resume`: `settled` reports for each in-doubt call whether it happened. A
/// call that is settled twice is an error, even under different spellings of its id.
fn settled(body: &[u8]) -> Result<BTreeMap<ActionId, bool>, Error> {
    const ALLOWED: &str = r#"{"settled": {ACTION_ID: true or false}}"#;
    let wrong = |pointer: String, found: &str| {
        let detail = format!("is not valid: {found}; allowed: {ALLOWED}");
        FieldError { pointer, detail }
    };
    let refused = |error: FieldError| Err(Error::Invalid(vec![error]));
    let mut fields = match strict_json(body) {
        Ok(Value::Object(fields)) => fields,
        Ok(_) => return refused(wrong(String::new(), "it is not an object")),
        Err(error) => return refused(wrong(String::new(), &error)),
    };
    let given = fields.remove("settled");
    let mut errors: Vec<_> = fields
        .keys()
        .map(|name| wrong(format!("/{}", text::prefix(name, 64)), "an unknown field"))
        .collect();
    let mut settled = BTreeMap::new();
    match given {
        None => {}
        Some(Value::Object(given)) => {
            for (key, happened) in given {
                let pointer = || format!("/settled/{}", text::prefix(&key, 64));
                match (ActionId::parse(&key), happened) {
                    (None, _) => errors.push(wrong(pointer(), "not the id of a call")),
                    (Some(id), Value::Bool(happened)) => {
                        if settled.insert(id, happened).is_some() {
                            errors.push(wrong(pointer(), "a call that is given more than once"));
                        }
                    }
                    (Some(_), _) => errors.push(wrong(pointer(), "neither true nor false")),
                }
            }
        }
        Some(_) => errors.push(wrong("/settled".to_owned(), "it is not an object")),
    }
    if errors.is_empty() {
        Ok(settled)
    } else {
        Err(Error::Invalid(errors))
    }
}

async fn resumed(
    state: &State,
    exchange: &Exchange,
    request: &HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, Error> {
    let caller = state.edge.auth.caller(request).await?;
    let body = body::read(state, request, payload, &caller).await?;
    let settled = settled(&body)?;
    let (timeout, _) = options(request.query_string(), "timeout_s")?;
    let patience = Patience::of(request.headers())?;
    let user = acting::user(state, &caller, request)?;
    let id = id(request)?;
    // The run keeps its own user, independent of the caller; the key is bound to the caller.
    let asking = user.clone().or_else(|| UserId::parse(caller.name()).ok());
    let asking = asking.ok_or(Error::Internal)?;
    let resume = Resume {
        settled,
        timeout,
        background: patience == Patience::None,
        meta: meta(exchange, request, &caller, &asking, &body)?,
    };
    let keyed = resume.meta.idempotency.is_some();
    let triggered = state.edge.agents.resume(&caller, user, id, resume).await?;
    wait(state, &caller, triggered, patience, keyed).await
}

async fn page(state: &State, request: &HttpRequest) -> Result<HttpResponse, Error> {
    let caller = state.edge.auth.caller(request).await?;
    let user = acting::user(state, &caller, request)?;
    let query = query::list(Spelling::Snake, request.query_string())?;
    let page = state
        .edge
        .agents
        .list(&caller, user.as_ref(), &project(request)?, query)
        .await?;
    Ok(page::list(
        Spelling::Snake,
        "runs",
        &page.runs,
        page.next_page_token.as_deref(),
    ))
}

async fn one(state: &State, request: &HttpRequest) -> Result<HttpResponse, Error> {
    let caller = state.edge.auth.caller(request).await?;
    query::none(request.query_string())?;
    let user = acting::user(state, &caller, request)?;
    let run = state.edge.agents.get(&caller, user.as_ref(), id(request)?).await?;
    Ok(response(StatusCode::OK, &run))
}

async fn cancelled(state: &State, request: &HttpRequest) -> Result<HttpResponse, Error> {
    let caller = state.edge.auth.caller(request).await?;
    query::none(request.query_string())?;
    let user = acting::user(state, &caller, request)?;
    let key = key(request, &caller, user.as_ref(), b"")?;
    let run = state
        .edge
        .agents
        .cancel(&caller, user.as_ref(), id(request)?, key.as_ref());
    let run = run.await?;
    // A run in progress ends when its worker receives the cancellation.
    let status = if run.status.is_over() {
        StatusCode::OK
    } else {
        StatusCode::ACCEPTED
    };
    let mut response = response(status, &run);
    locate(&mut response, run.id);
    Ok(response)
}

/// How long the caller wants to wait (RFC 7240).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Patience {
    /// Until the run has ended.
    All,
    /// `wait=N`: at most this long.
    Some(Duration),
    /// `respond-async`: not at all.
    None,
}

impl Patience {
    pub(super) fn of(headers: &HeaderMap) -> Result<Self, Error> {
        let mut patience = Self::All;
        for value in headers.get_all(PREFER) {
            let text = value
                .to_str()
                .map_err(|_| Error::InvalidHeader("Prefer", "is not ASCII"))?;
            for preference in text.split([',', ';']).map(str::trim) {
                let (name, value) = preference.split_once('=').unwrap_or((preference, ""));
                if name.trim().eq_ignore_ascii_case("respond-async") {
                    patience = Self::None;
                } else if name.trim().eq_ignore_ascii_case("wait") && patience != Self::None {
                    let seconds = query::number(value.trim().trim_matches('"'));
                    let seconds = seconds.ok_or(Error::InvalidHeader("Prefer", "wait must be whole seconds"))?;
                    patience = Self::Some(Duration::from_secs(seconds));
                }
            }
        }
        Ok(patience)
    }

    const fn applied(self) -> Option<&'static str> {
        match self {
            Self::All => None,
            Self::Some(_) => Some("wait"),
            Self::None => Some("respond-async"),
        }
    }
}

/// Returns the run after it has ended, or when the caller's waiting time is exhausted.
async fn wait(
    state: &State,
    caller: &Caller,
    mut triggered: Triggered,
    patience: Patience,
    keyed: bool,
) -> Result<HttpResponse, Error> {
    let agents = &state.edge.agents;
    let waited = match patience {
        Patience::All => agents.wait(caller, &mut triggered).await.map(Some),
        Patience::Some(most) => tokio::time::timeout(most, agents.wait(caller, &mut triggered))
            .await
            .ok()
            .transpose(),
        Patience::None => Ok(None),
    };
    let run = match waited {
        Ok(Some(run)) => Ok(run),
        Ok(None) => agents.get(caller, None, triggered.run).await,
        Err(error) => Err(error),
    };
    // The run exists and may have had effects: if it cannot be read now, the request must not be sent again.
    let run = run.map_err(|error| agents.unreadable(triggered.run, &error))?;
    let rests = run.status.is_over() || run.status == RunStatus::AwaitingConfirmation;
    let status = if rests { StatusCode::OK } else { StatusCode::ACCEPTED };
    let mut response = response(status, &run);
    locate(&mut response, run.id);
    dress(&mut response, &triggered, patience, keyed, &run);
    Ok(response)
}

fn dress(response: &mut HttpResponse, triggered: &Triggered, patience: Patience, keyed: bool, run: &AgentRun) {
    let headers = response.headers_mut();
    if let Some(quota) = triggered.quota.filter(|_| !triggered.replayed) {
        for (name, value) in headers::rate_limit(&quota) {
            headers.insert(name, value);
        }
    }
    if keyed && triggered.replayed {
        headers.insert(IDEMPOTENCY_REPLAYED, headers::TRUE);
    }
    if let Some(applied) = patience.applied() {
        headers.insert(PREFERENCE_APPLIED, HeaderValue::from_static(applied));
    }
    if !run.status.is_over() {
        headers.insert(header::RETRY_AFTER, headers::seconds(1));
    }
}

fn locate(response: &mut HttpResponse, run: RunId) {
    if let Ok(location) = HeaderValue::from_str(&format!("/api/runs/{run}")) {
        response.headers_mut().insert(header::LOCATION, location);
    }
}

pub(super) fn meta(
    exchange: &Exchange,
    request: &HttpRequest,
    caller: &Caller,
    user: &UserId,
    body: &[u8],
) -> Result<RequestMeta, Error> {
    Ok(RequestMeta {
        request_id: Arc::clone(&exchange.id.text),
        traceparent: headers::traceparent(request.headers()),
        idempotency: key(request, caller, Some(user), body)?,
        shed: None,
    })
}

/// The request's `Idempotency-Key`, bound to the requested path: the same key for another agent is another key.
pub(super) fn key(
    request: &HttpRequest,
    caller: &Caller,
    user: Option<&UserId>,
    body: &[u8],
) -> Result<Option<Idempotency>, Error> {
    let key = headers::idempotency_key(request.headers())?;
    Ok(key.map(|key| headers::idempotency(key, caller, user, request.path(), body)))
}

/// The run id of the path; an invalid id is not found, like an id of another tenant or user.
pub(super) fn id(request: &HttpRequest) -> Result<RunId, Error> {
    let id = request.match_info().get("id").and_then(RunId::parse);
    id.ok_or(Error::NotFound)
}

/// The agent's inputs from the body: a JSON object of inputs, a text, a JSON string, or nothing.
fn inputs(body: &[u8], media: Media) -> Result<Inputs, Error> {
    let invalid = |detail: String| {
        Error::Invalid(vec![FieldError {
            pointer: String::new(),
            detail,
        }])
    };
    match media {
        _ if body.is_empty() => return Ok(Inputs::Named(Map::new())),
        Media::Json => {}
        Media::Text => {
            let text = std::str::from_utf8(body).map_err(|error| invalid(format!("is not UTF-8: {error}")))?;
            return Ok(Inputs::Text(text.to_owned()));
        }
    }
    match strict_json(body) {
        Ok(Value::Object(inputs)) => Ok(Inputs::Named(inputs)),
        Ok(Value::String(text)) => Ok(Inputs::Text(text)),
        Ok(_) => Err(invalid(
            "must be a JSON object of the agent's inputs by name, or a JSON string for an agent that takes one text"
                .to_owned(),
        )),
        Err(error) => Err(invalid(format!("is not JSON: {error}"))),
    }
}

/// Parses `timeout_s`, whole seconds from 1 to a day, and `time_zone`, an IANA name, if they are allowed.
fn options(text: &str, allowed: &str) -> Result<(Option<Duration>, Option<Tz>), Error> {
    let (mut timeout, mut zone, mut errors) = (None, None, Vec::new());
    for (name, value) in url::form_urlencoded::parse(text.as_bytes()) {
        let most = MOST_TIME.as_secs();
        let detail = if !allowed.split(", ").any(|known| known == name) {
            format!("is not a known parameter; allowed is {allowed}")
        } else if (name == "timeout_s" && timeout.is_some()) || (name == "time_zone" && zone.is_some()) {
            "is given more than once".to_owned()
        } else if name == "time_zone" {
            match value.parse() {
                Ok(known) => {
                    zone = Some(known);
                    continue;
                }
                Err(_) => query::found(&value, NAME_OF_ZONE),
            }
        } else if let Some(seconds) = query::number(&value).filter(|seconds| (1..=most).contains(seconds)) {
            timeout = Some(Duration::from_secs(seconds));
            continue;
        } else {
            query::found(&value, &format!("a whole number from 1 to {most}"))
        };
        errors.push(FieldError {
            pointer: name.into_owned(),
            detail,
        });
    }
    if errors.is_empty() {
        Ok((timeout, zone))
    } else {
        Err(Error::Invalid(errors))
    }
}

const NAME_OF_ZONE: &str = "the IANA name of a time zone, such as \"Europe/Berlin\"";

/// Parses the time zone of a body.
pub(super) fn time_zone(name: &str, pointer: &str) -> Result<Tz, Error> {
    name.parse().map_err(|_| {
        Error::Invalid(vec![FieldError {
            pointer: pointer.to_owned(),
            detail: query::found(name, NAME_OF_ZONE),
        }])
    })
}
