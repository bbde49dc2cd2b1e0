//! Threads: send a message, read, cancel (REQUIREMENTS R, Routes).

pub(super) mod stream;

use actix_web::http::StatusCode;
use actix_web::http::header::{self, HeaderName, HeaderValue};
use actix_web::web::{Data, Payload};
use actix_web::{HttpRequest, HttpResponse};
use serde::Deserialize;
use tracing::Instrument;
use utoipa::ToSchema;

use super::agents::response;
use super::error::Error;
use super::exchange::Exchange;
use super::headers::{self, IDEMPOTENCY_REPLAYED};
use super::routes::Route;
use super::runs::{Patience, id, key, meta, time_zone};
use super::{State, acting, body, query};
use crate::domain::budget::Share;
use crate::domain::ids::ThreadId;
use crate::http::page;
use crate::http::spelling::Spelling;
use crate::surfaces::agents::{AgentError, Triggered};
use crate::surfaces::caller::Caller;
use crate::surfaces::chat::RequestMeta;
use crate::surfaces::threads::{Message, RunAnswer};

/// `POST /api/agent/run`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct SayBody {
    /// The user's message; at most 32 KiB.
    pub prompt: String,
    /// The thread of the message; absent: a new one.
    #[schema(value_type = Option<String>, format = "uuid")]
    pub thread_id: Option<ThreadId>,
    /// The IANA name of the user's time zone, such as `Europe/Berlin`, which gives "tomorrow at ten" its meaning.
    /// Absent: the agent learns that it is unknown.
    #[schema(example = "Europe/Berlin")]
    pub time_zone: Option<String>,
}

pub(super) async fn run(state: Data<State>, request: HttpRequest, payload: Payload) -> HttpResponse {
    let exchange = Exchange::begin(&state, &request, Some(Route::Say));
    let answer = answered(&state, &exchange, &request, payload);
    let answer = answer.instrument(exchange.span.clone()).await;
    exchange.finish(answer)
}

pub(super) async fn get(state: Data<State>, request: HttpRequest) -> HttpResponse {
    let exchange = Exchange::begin(&state, &request, Some(Route::ThreadRun));
    exchange.finish(one(&state, &request).await)
}

pub(super) async fn cancel(state: Data<State>, request: HttpRequest) -> HttpResponse {
    let exchange = Exchange::begin(&state, &request, Some(Route::CancelThreadRun));
    exchange.finish(cancelled(&state, &request).await)
}

pub(super) async fn list(state: Data<State>, request: HttpRequest) -> HttpResponse {
    let exchange = Exchange::begin(&state, &request, Some(Route::Threads));
    exchange.finish(all(&state, &request).await)
}

pub(super) async fn thread(state: Data<State>, request: HttpRequest) -> HttpResponse {
    let exchange = Exchange::begin(&state, &request, Some(Route::Thread));
    exchange.finish(whole(&state, &request).await)
}

/// An accepted message, and the run it created.
struct Said {
    caller: Caller,
    triggered: Triggered,
    /// Whether the request has an `Idempotency-Key`.
    keyed: bool,
    patience: Patience,
    /// The share of a streamed response.
    stream: Option<Share>,
}

/// Authenticates, reads and parses the request, then checks user and idempotency; the surface checks quota and
/// admission. Room for a stream is reserved before the run is created.
async fn said(
    state: &State,
    exchange: &Exchange,
    request: &HttpRequest,
    payload: Payload,
    streamed: bool,
) -> Result<Said, Error> {
    let caller = state.edge.auth.caller(request).await?;
    let patience = match streamed {
        true => Patience::All,
        false => Patience::of(request.headers())?,
    };
    let body = body::read(state, request, payload, &caller).await?;
    query::none(request.query_string())?;
    let given: SayBody = body::parse(&body, "{\"prompt\", \"threadId\"?, \"timeZone\"?}")?;
    let user = acting::required(state, &caller, request)?;
    let stream = streamed.then(|| state.room.stream(&caller, Some(&user))).transpose();
    let shed = stream.as_ref().err().copied();
    let meta = meta(exchange, request, &caller, &user, &body)?;
    let message = Message {
        prompt: given.prompt,
        thread: given.thread_id,
        time_zone: given.time_zone.map(|name| time_zone(&name, "/timeZone")).transpose()?,
        background: patience == Patience::None,
        meta: RequestMeta { shed, ..meta },
    };
    let keyed = message.meta.idempotency.is_some();
    let triggered = match (state.edge.threads.say(&caller, user, message).await, shed) {
        (Err(AgentError::Overloaded), Some(exceeded)) => return Err(exceeded.into()),
        (triggered, _) => triggered?,
    };
    Ok(Said {
        caller,
        triggered,
        keyed,
        patience,
        stream: stream?,
    })
}

async fn answered(
    state: &State,
    exchange: &Exchange,
    request: &HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, Error> {
    let Said {
        caller,
        mut triggered,
        keyed,
        patience,
        ..
    } = said(state, exchange, request, payload, false).await?;
    let threads = &state.edge.threads;
    let waited = match patience {
        Patience::All => threads.wait(&caller, &mut triggered).await.map(Some),
        Patience::Some(most) => tokio::time::timeout(most, threads.wait(&caller, &mut triggered))
            .await
            .ok()
            .transpose(),
        Patience::None => Ok(None),
    };
    let run = match waited {
        Ok(Some(run)) => Ok(run),
        Ok(None) => threads.run(&caller, None, triggered.run).await,
        Err(error) => Err(error),
    };
    // The run exists and may have had effects: if it cannot be read now, the request must not be sent again.
    let run = run.map_err(|error| state.edge.agents.unreadable(triggered.run, &error))?;
    Ok(run_response(&run, Some((&triggered, keyed))))
}

async fn one(state: &State, request: &HttpRequest) -> Result<HttpResponse, Error> {
    let caller = state.edge.auth.caller(request).await?;
    query::none(request.query_string())?;
    let user = acting::user(state, &caller, request)?;
    let run = state.edge.threads.run(&caller, user.as_ref(), id(request)?).await?;
    Ok(response(StatusCode::OK, &run))
}

async fn cancelled(state: &State, request: &HttpRequest) -> Result<HttpResponse, Error> {
    let caller = state.edge.auth.caller(request).await?;
    query::none(request.query_string())?;
    let user = acting::user(state, &caller, request)?;
    let key = key(request, &caller, user.as_ref(), b"")?;
    let run = state
        .edge
        .threads
        .cancel(&caller, user.as_ref(), id(request)?, key.as_ref());
    let run = run.await?;
    Ok(run_response(&run, None))
}

/// Lists the user's own threads ([`acting::of_threads`]).
async fn all(state: &State, request: &HttpRequest) -> Result<HttpResponse, Error> {
    let caller = state.edge.auth.caller(request).await?;
    let query = query::list(Spelling::Camel, request.query_string())?;
    let user = acting::of_threads(state, &caller, request)?;
    let page = state.edge.threads.list(&caller, user, query).await?;
    Ok(page::list(
        Spelling::Camel,
        "threads",
        &page.threads,
        page.next_page_token.as_deref(),
    ))
}

async fn whole(state: &State, request: &HttpRequest) -> Result<HttpResponse, Error> {
    let caller = state.edge.auth.caller(request).await?;
    let before = before(request.query_string())?;
    let user = acting::user(state, &caller, request)?;
    let id = request
        .match_info()
        .get("id")
        .and_then(ThreadId::parse)
        .ok_or(Error::NotFound)?;
    let thread = state.edge.threads.thread(&caller, user.as_ref(), id, before).await?;
    Ok(response(StatusCode::OK, &thread))
}

/// `before=N`: the messages before number N.
fn before(text: &str) -> Result<Option<u64>, Error> {
    let mut before = None;
    for (name, value) in url::form_urlencoded::parse(text.as_bytes()) {
        if name != "before" {
            return Err(query::wrong(
                &name,
                "is not a known parameter; allowed is before".to_owned(),
            ));
        }
        let number = query::number(&value);
        before = Some(number.ok_or_else(|| query::no_such(&name, &value, "the number of a message, such as 12"))?);
    }
    Ok(before)
}

/// 200 for a run that has ended or waits for approval, else 202.
fn run_response(run: &RunAnswer, triggered: Option<(&Triggered, bool)>) -> HttpResponse {
    let rests = ["completed", "failed", "awaiting_confirmation"].contains(&run.status);
    let status = if rests { StatusCode::OK } else { StatusCode::ACCEPTED };
    let mut response = response(status, run);
    let headers = response.headers_mut();
    if let Ok(location) = HeaderValue::from_str(&format!("/api/agent/runs/{}", run.run_id)) {
        headers.insert(header::LOCATION, location);
    }
    if let Some((triggered, keyed)) = triggered {
        for (name, value) in dressed(triggered, keyed) {
            headers.insert(name, value);
        }
    }
    if !rests {
        headers.insert(header::RETRY_AFTER, headers::seconds(1));
    }
    response
}

/// Headers of the response to a request that created a run: the quota it used, or that it is a replay.
fn dressed(triggered: &Triggered, keyed: bool) -> Vec<(HeaderName, HeaderValue)> {
    let quota = triggered.quota.filter(|_| !triggered.replayed);
    let mut told: Vec<_> = quota.iter().flat_map(headers::rate_limit).collect();
    if keyed && triggered.replayed {
        told.push((IDEMPOTENCY_REPLAYED, headers::TRUE));
    }
    told
}
