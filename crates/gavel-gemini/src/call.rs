//! One model call: attempts, one at a time, until one succeeds; and hops, until the turn is complete.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use gavel_upstream::breaker::Permit;
use gavel_upstream::upstream::Response;
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use tracing::field::Empty;
use tracing::{Instrument, Span};

use super::api_error::ApiError;
use super::client::Metrics;
use super::client::{self, Delivery, Target, Waiting, too_large};
use super::content::Pieces;
use super::reply::{Hop, Reply};
use super::request::RequestBody;
use super::wire::{Frame, Framer};
use crate::domain::budget::Held;
use crate::domain::decision::Usage;
use crate::domain::journal::{FaultKind, ModelTurn, Served};
use crate::ports::model::{ModelEvent, ModelFault, ModelRequest};
use crate::{Gemini, Prepared};

/// 16 hops of 64K tokens cover the context window of every existing model.
const MAX_HOPS: u32 = 16;

const SERVER_TIMEOUT: HeaderName = HeaderName::from_static("x-server-timeout");

/// A call in progress.
pub(super) struct Call<'a, 'd> {
    pub(super) gemini: &'a Gemini,
    pub(super) metrics: &'a Metrics,
    pub(super) request: ModelRequest<'a>,
    pub(super) prepared: Prepared,
    /// The one repaired try was made.
    pub(super) repaired: bool,
    pub(super) target: Arc<Target>,
    pub(super) stream: bool,
    pub(super) delivery: Delivery<'d>,
    /// Tokens used by all attempts, including failed ones.
    pub(super) usage: Usage,
    pub(super) served: Served,
}

impl Call<'_, '_> {
    /// Makes the call.
    pub(super) async fn run(mut self) -> Result<ModelTurn, ModelFault> {
        match self.turn().await {
            Ok(turn) => Ok(turn),
            Err(failure) => {
                self.metrics.fault(failure.kind);
                Err(ModelFault {
                    kind: failure.kind,
                    detail: self.gemini.auth.redact(failure.detail),
                    usage: self.usage,
                    served: Box::new(self.served),
                    said: failure.said,
                })
            }
        }
    }

    async fn turn(&mut self) -> Result<ModelTurn, Failure> {
        let mut pieces = Pieces::default();
        let mut token: Option<String> = None;
        for _ in 0..MAX_HOPS {
            let hop = match self.hop(token.as_deref(), pieces.is_empty()).await {
                Ok(hop) => hop,
                Err(failure) => {
                    let said = failure.said.map(|said| pieces.text() + &said);
                    return Err(Failure { said, ..failure });
                }
            };
            if hop.next.is_some() && self.delivery.has_listener() {
                self.delivery.settle(hop.pieces.parts());
            }
            pieces.append(hop.pieces);
            // Each hop repeats the original request with the latest token. Content already received is not sent as
            // history.
            token = match hop.next {
                None => return self.complete(pieces),
                next => next,
            };
        }
        Err(Failure::malformed(format!(
            "not complete after {MAX_HOPS} continuations"
        )))
    }

    fn complete(&self, pieces: Pieces) -> Result<ModelTurn, Failure> {
        if let Some(why) = pieces.no_answer() {
            return Err(Failure::malformed(why));
        }
        let (content, parts) = pieces
            .finish()
            .map_err(|_| Failure::malformed("the answer cannot be echoed"))?;
        client::check(&parts)?;
        Ok(ModelTurn {
            content,
            parts,
            usage: self.usage,
            served: Served {
                // A gateway may not name the model that answered.
                model: self
                    .served
                    .model
                    .clone()
                    .or(Some(Arc::clone(&self.served.requested_model))),
                ..self.served.clone()
            },
        })
    }

    /// Sends one request until it is answered or a retry is pointless. The first hop may contain the complete answer.
    async fn hop(&mut self, token: Option<&str>, is_first: bool) -> Result<Hop, Failure> {
        self.gemini.budget.deposit();
        let (mut attempt, mut renewed) = (0, false);
        let mut last: Option<Failure> = None;
        loop {
            let Ok(permit) = self.gemini.breaker.admit(Instant::now()) else {
                return Err(
                    last.unwrap_or_else(|| Failure::unavailable("the breaker is open: Gemini has been failing"))
                );
            };
            attempt += 1;
            self.served.attempts += 1;
            self.served.finish_reason = None;
            let (begun, spent) = (Instant::now(), self.usage);
            let span = self.span(attempt);
            let body = match token {
                None => self.prepared.body.clone(),
                Some(token) => self.prepared.body.with_continuation(token),
            };
            let answer = self.attempt(body, is_first).instrument(span.clone()).await;
            if let (false, Err(failure)) = (span.is_disabled(), &answer) {
                span.record("error.type", failure.kind.as_str());
                span.record("otel.status_code", "ERROR");
            }
            let health = answer.as_ref().map_or_else(|failure| failure.health, |_| Health::Well);
            health.report(permit);
            self.metrics.breaker(self.gemini.state());
            let fault = answer.as_ref().err().map(|failure| failure.kind);
            self.metrics.attempt(fault, begun.elapsed(), since(spent, self.usage));
            let failure = match answer {
                Ok(hop) => return Ok(hop),
                Err(failure) => failure,
            };
            let wait = match failure.retry {
                repair @ (Retry::Once | Retry::Unsigned | Retry::ThinkLess) if self.repair(repair) => Duration::ZERO,
                Retry::Reauthenticate if !std::mem::replace(&mut renewed, true) => Duration::ZERO,
                Retry::No | Retry::Once | Retry::Unsigned | Retry::ThinkLess | Retry::Reauthenticate => {
                    return Err(failure);
                }
                Retry::Backoff => backoff(&self.gemini.retry, attempt),
                // Jitter is added so that callers with the same delay do not retry at the same moment.
                Retry::After(reported) => reported.saturating_add(backoff(&self.gemini.retry, 1)),
            };
            self.may_repeat(attempt, wait, &failure)?;
            tracing::warn!(
                model = &*self.served.requested_model,
                attempt,
                detail = self.gemini.auth.redact(failure.detail.clone()),
                wait_ms = wait.as_millis(),
                "a request to Gemini failed; retrying"
            );
            self.metrics.retry(failure.kind);
            self.delivery.take_back();
            if !wait.is_zero() {
                tokio::time::sleep(wait).await;
            }
            last = Some(failure);
        }
    }

    /// Prepares the one repaired try of the call. False if it was made already, or would send the same again.
    fn repair(&mut self, how: Retry) -> bool {
        if std::mem::replace(&mut self.repaired, true) {
            return false;
        }
        let repaired = self.gemini.prepare(&self.request, &self.served.requested_model, how);
        let before = std::mem::replace(&mut self.prepared, repaired);
        how == Retry::Once || before.body != self.prepared.body
    }

    /// The span of one attempt, named like an HTTP client span of OpenTelemetry.
    fn span(&self, attempt: u32) -> Span {
        tracing::debug_span!(
            "model_attempt",
            otel.kind = "client",
            otel.status_code = Empty,
            gen_ai.request.model = &*self.served.requested_model,
            gen_ai.request.stream = self.stream,
            http.request.method = "POST",
            // Signed, because OpenTelemetry integers are signed; an unsigned value would be exported as text.
            http.request.resend_count = (attempt > 1).then(|| i64::from(attempt) - 1),
            server.address = self.target.url.host_str(),
            server.port = self.target.url.port_or_known_default().map(i64::from),
            error.type = Empty,
        )
    }

    /// Are there an attempt, time and retry budget left?
    fn may_repeat(&self, attempt: u32, wait: Duration, failure: &Failure) -> Result<(), Failure> {
        let give_up = |why: String| {
            Err(Failure {
                detail: format!("{}; {why}", failure.detail),
                ..failure.clone()
            })
        };
        if attempt >= self.gemini.retry.max_attempts {
            return give_up(format!("given up after attempt {attempt}"));
        }
        if Instant::now()
            .checked_add(wait)
            .is_none_or(|then| then >= self.request.deadline)
        {
            return give_up(format!("the next attempt, in {wait:?}, would come after the deadline"));
        }
        if !self.gemini.budget.withdraw() {
            return give_up("not retried: the retry budget is exhausted".to_owned());
        }
        Ok(())
    }

    async fn attempt(&mut self, body: RequestBody, is_first: bool) -> Result<Hop, Failure> {
        let (begun, deadline) = (Instant::now(), self.request.deadline);
        if begun >= deadline {
            return Err(Failure::deadline(Health::Unknown));
        }
        let mut headers = HeaderMap::with_capacity(8);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if self.stream {
            headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        }
        self.gemini.auth.apply(&mut headers, deadline).await?;
        // Whole seconds, rounded up: the provider must not give up before gavel does.
        let left = deadline
            .saturating_duration_since(Instant::now())
            .as_millis()
            .div_ceil(1000)
            .max(1);
        headers.insert(SERVER_TIMEOUT, u64::try_from(left).unwrap_or(u64::MAX).into());
        let sent = self.gemini.auth.is_oauth().then(|| headers.clone());

        let mut timeouts = self.gemini.timeouts;
        if self.prepared.thinks_long {
            timeouts.first_byte = Duration::MAX;
            if self.stream {
                timeouts.idle = Duration::MAX;
            }
        }
        let waiting = Waiting {
            timeouts: &timeouts,
            deadline,
            begun,
        };
        let client = &self.gemini.client;
        let response = waiting.post(client, &self.target, headers, body).await?;
        let status = response.status();
        if !status.is_success() {
            if status.as_u16() == 401
                && let Some(sent) = sent
            {
                self.gemini.auth.refused(&sent);
            }
            let after = retry_after(response.headers());
            let mut error = ApiError::of_body(status.as_u16(), &waiting.error_body(response).await);
            error.retry_after = error.retry_after.or(after);
            return Err(error.into_failure(self.gemini.auth.is_oauth()));
        }
        let mut reply = Reply::default();
        let mut held = client::held(self.request.holder);
        let read = match self.stream {
            true => self.read_stream(&waiting, response, &mut reply, &mut held).await,
            false => match waiting.body(response, self.gemini.max_body, &mut held).await {
                Ok(body) => reply.take_whole(&body, self.gemini.auth.is_oauth()),
                Err(failure) => Err(failure),
            },
        };
        self.usage += reply.usage();
        self.note(&reply);
        let hop = match read {
            Ok(()) => reply.finish()?,
            Err(failure) => return Err(reply.interrupted(failure)),
        };
        match hop.pieces.no_answer() {
            // The model may do better on a retry.
            Some(why) if is_first && hop.next.is_none() => Err(Failure::garbled(why)),
            _ => Ok(hop),
        }
    }

    /// Keeps which model answered, also if its reply is not usable.
    fn note(&mut self, reply: &Reply) {
        let (model, tier) = reply.served_by();
        let (gemini, requested) = (self.gemini, &self.served.requested_model);
        let model = model.map(|model| gemini.routes.note(gemini.endpoint, requested, model));
        self.served.model = model.or(self.served.model.take());
        self.served.service_tier = tier.map(Arc::from).or(self.served.service_tier.take());
        self.served.finish_reason = reply.ended_by().map(Arc::from);
    }

    /// Reads until the connection closes, because a finish reason is not always the end. A model that thinks long may
    /// be silent until it answers.
    async fn read_stream(
        &mut self,
        thinking: &Waiting<'_>,
        mut response: Response,
        reply: &mut Reply,
        held: &mut Held<'_>,
    ) -> Result<(), Failure> {
        let (cap, oauth) = (self.gemini.max_body, self.gemini.auth.is_oauth());
        let (mut framer, mut total) = (Framer::default(), 0_usize);
        let answering = Waiting {
            timeouts: &self.gemini.timeouts,
            ..*thinking
        };
        loop {
            let waiting = if reply.has_begun() { &answering } else { thinking };
            let piece = waiting.piece(&mut response).await?;
            let mut each = |frame: Frame<'_>| {
                let mut tell = |event: ModelEvent<'_>| self.delivery.tell(event);
                match frame {
                    Frame::Event(json) => reply.take_chunk(json, oauth, &mut tell),
                    Frame::Bare(json) => reply.take_bare(json, oauth, &mut tell),
                }
            };
            let Some(piece) = piece else {
                return framer.end(&mut each);
            };
            total = total.saturating_add(piece.len());
            if total > cap {
                return Err(too_large(cap));
            }
            held.add(piece.len()).map_err(client::no_room)?;
            framer.feed(&piece, &mut each)?;
        }
    }
}

/// Google does not send this header, but a proxy may. Only whole seconds are supported.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let value = headers.get(reqwest::header::RETRY_AFTER)?.to_str().ok()?;
    Some(Duration::from_secs(value.trim().parse::<u64>().ok()?.min(86_400)))
}

fn since(before: Usage, after: Usage) -> Usage {
    Usage {
        input_tokens: after.input_tokens - before.input_tokens,
        output_tokens: after.output_tokens - before.output_tokens,
        thought_tokens: after.thought_tokens - before.thought_tokens,
        cached_tokens: after.cached_tokens - before.cached_tokens,
    }
}

// A failed attempt: how it failed, whether to retry, and what an operator may see of it.

/// What an attempt shows about the endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Health {
    /// It answered, even if it rejected the request.
    Well,
    /// It did not answer, or reported that it cannot.
    Sick,
    /// Unknown: the attempt ended too early to tell.
    Unknown,
}

impl Health {
    /// Reports the outcome of an attempt to the breaker that permitted it.
    pub(super) fn report(self, permit: Permit<'_>) {
        match self {
            Self::Well => permit.answered(),
            Self::Sick => {
                permit.fault(Instant::now());
            }
            Self::Unknown => drop(permit),
        }
    }
}

/// Why an attempt failed.
#[derive(Clone, Debug)]
pub(super) struct Failure {
    pub(super) kind: FaultKind,
    pub(super) retry: Retry,
    pub(super) health: Health,
    /// For operators. Contains no payload and no secret.
    pub(super) detail: String,
    /// The text of an answer that was cut.
    pub(super) said: Option<String>,
}

impl Failure {
    /// The answer is incomplete, empty, invalid or unknown. A retry would not help.
    pub(super) fn malformed(detail: impl Into<String>) -> Self {
        Self {
            kind: FaultKind::Malformed,
            retry: Retry::No,
            health: Health::Well,
            detail: detail.into(),
            said: None,
        }
    }

    /// The model wrote something that does not parse. A retry may help.
    pub(super) fn garbled(detail: impl Into<String>) -> Self {
        Self {
            retry: Retry::Once,
            ..Self::malformed(detail)
        }
    }

    pub(super) fn blocked(detail: impl Into<String>) -> Self {
        Self {
            kind: FaultKind::Blocked,
            ..Self::malformed(detail)
        }
    }

    /// No connection, or a broken one.
    pub(super) fn connection(detail: impl Into<String>) -> Self {
        Self {
            kind: FaultKind::Unavailable,
            retry: Retry::Backoff,
            health: Health::Sick,
            detail: detail.into(),
            said: None,
        }
    }

    /// Nothing was received for `waited`.
    pub(super) fn timeout(what: &str, waited: Duration) -> Self {
        Self {
            kind: FaultKind::Timeout,
            ..Self::connection(format!("{what} within {waited:?}"))
        }
    }

    /// The caller's deadline passed. What this shows about the endpoint depends on how long the request had.
    pub(super) fn deadline(health: Health) -> Self {
        Self {
            kind: FaultKind::Timeout,
            retry: Retry::No,
            health,
            detail: "the deadline passed".to_owned(),
            said: None,
        }
    }

    /// The request was not sent, or got nothing usable.
    pub(super) fn unavailable(detail: impl Into<String>) -> Self {
        Self {
            kind: FaultKind::Unavailable,
            ..Self::malformed(detail)
        }
    }
}

/// How attempts are retried. This is the only layer that retries.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RetrySettings {
    /// Maximum requests for one answer (for each hop of a continued one).
    pub max_attempts: u32,
    /// The longest wait before the first retry. It doubles with each further retry.
    pub base_delay: Duration,
    /// Upper limit of every wait.
    pub max_delay: Duration,
    /// Retries allowed per request, over time: 0.2 lets load grow by at most a fifth while Gemini is failing.
    pub budget_ratio: f32,
    /// Retries allowed before the ratio applies.
    pub budget_reserve: u32,
}

impl Default for RetrySettings {
    fn default() -> Self {
        Self {
            max_attempts: 3,
            base_delay: Duration::from_millis(250),
            max_delay: Duration::from_secs(8),
            budget_ratio: 0.2,
            budget_reserve: 10,
        }
    }
}

/// How to react to a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Retry {
    /// It would fail again.
    No,
    /// It may succeed after a while.
    Backoff,
    /// The provider said when to retry.
    After(Duration),
    /// The model's output was garbled: retry once, immediately.
    Once,
    /// A signature may be refused: repaired once, without signatures.
    Unsigned,
    /// The model's thoughts left no tokens for an answer: repaired once, with the least thinking.
    ThinkLess,
    /// The access token was rejected: retry once with a new one.
    Reauthenticate,
}

/// Full jitter: a uniform random wait between zero and `base · 2^(attempt − 1)`, capped.
pub(super) fn backoff(settings: &RetrySettings, attempt: u32) -> Duration {
    let doublings = attempt.saturating_sub(1).min(16);
    let ceiling = settings
        .base_delay
        .saturating_mul(1 << doublings)
        .min(settings.max_delay);
    ceiling.mul_f64(fastrand::f64())
}

const WHOLE: u32 = 1000;

/// A token bucket in thousandths. Every request adds a fraction; every retry takes a whole token.
#[derive(Debug)]
pub(super) struct Budget {
    level: AtomicU32,
    deposit: u32,
    capacity: u32,
}

impl Budget {
    pub(super) fn new(settings: &RetrySettings) -> Self {
        let capacity = settings.budget_reserve.saturating_mul(WHOLE);
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss
        )]
        let deposit = (settings.budget_ratio.clamp(0.0, 1.0) * WHOLE as f32) as u32;
        Self {
            level: AtomicU32::new(capacity),
            deposit,
            capacity,
        }
    }

    /// Records a first attempt.
    pub(super) fn deposit(&self) {
        self.change(|level| Some(level.saturating_add(self.deposit).min(self.capacity)));
    }

    /// Takes one retry; false if the budget is exhausted.
    pub(super) fn withdraw(&self) -> bool {
        self.change(|level| level.checked_sub(WHOLE))
    }

    fn change(&self, to: impl Fn(u32) -> Option<u32>) -> bool {
        self.level.try_update(Ordering::Relaxed, Ordering::Relaxed, to).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_budget_allows_the_reserve_and_then_a_fifth_of_the_requests() {
        let budget = Budget::new(&RetrySettings::default());
        let reserve = std::iter::repeat_with(|| budget.withdraw())
            .take_while(|gate| *gate)
            .count();
        assert_eq!(reserve, 10);
        let mut repeated = 0;
        for _ in 0..1000 {
            budget.deposit();
            repeated += u32::from(budget.withdraw());
        }
        assert_eq!(repeated, 200);
    }

    #[test]
    fn a_quiet_time_does_not_save_up_more_than_the_reserve() {
        let budget = Budget::new(&RetrySettings::default());
        (0..1000).for_each(|_| budget.deposit());
        assert_eq!((0..100).filter(|_| budget.withdraw()).count(), 10);
    }

    #[test]
    fn waits_are_drawn_from_the_whole_range_which_doubles_up_to_the_cap() {
        let settings = RetrySettings::default();
        for (attempt, ceiling_ms) in [(1, 250), (2, 500), (3, 1000), (9, 8000), (u32::MAX, 8000)] {
            let draws: Vec<_> = (0..2000).map(|_| backoff(&settings, attempt)).collect();
            let ceiling = Duration::from_millis(ceiling_ms);
            assert!(draws.iter().all(|wait| *wait <= ceiling));
            assert!(draws.iter().any(|wait| *wait < ceiling / 4), "no low draw in 2000");
            assert!(draws.iter().any(|wait| *wait > ceiling / 4 * 3), "no high draw in 2000");
        }
    }
}
