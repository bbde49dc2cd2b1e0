//! The HTTP client, and one exchange through it with a limit on every wait and on every byte.

use std::borrow::Cow;
use std::sync::{Arc, LazyLock, OnceLock};
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes};
use gavel_upstream::breaker::BreakerState;
use gavel_upstream::handover::SendGate;
use gavel_upstream::labels::Labels;
use gavel_upstream::upstream::{Joined, Limits, NoResponse, Plain, Response, is_loopback, why};
use reqwest::Request;
use reqwest::header::{HeaderMap, HeaderValue, USER_AGENT};
use tokio::time::timeout_at;
use url::Url;

use super::call::{Failure, Health};
use super::config::{ConfigError, Timeouts};
use super::request::RequestBody;
use crate::domain::budget::{Budget, Exceeded, Held, Pool};
use crate::domain::decision::Usage;
use crate::domain::journal::{FaultKind, Part};
use crate::domain::nesting;
use crate::ports::metrics::{
    Counter, Gauge, Histogram, MODEL_ATTEMPTS, MODEL_BREAKER, MODEL_FAULTS, MODEL_RETRIES, MODEL_SECONDS, MODEL_TOKENS,
    Metric,
};
use crate::ports::model::ModelEvent;

/// Longer error bodies are not read.
const MAX_ERROR_BODY: usize = 64 * 1024;

/// How long an unused connection is kept, and how many are kept for each thread.
const IDLE: Duration = Duration::from_secs(90);
const KEPT: usize = 256;

const AGENT: &str = concat!("gavel/", env!("CARGO_PKG_VERSION"));

/// The destination of a request.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) url: Url,
    /// The target for the request line, if it can be written as one.
    line: Option<hyper::Uri>,
}

impl Target {
    pub(super) fn new(url: Url) -> Self {
        Self {
            line: Plain::target(&url),
            url,
        }
    }
}

/// The HTTP client for requests to models.
pub(super) struct Client {
    general: reqwest::Client,
    /// For a gateway or a stand-in model on this machine.
    plain: Option<Arc<Plain>>,
    connect: Duration,
}

impl Client {
    /// # Errors
    /// The system's TLS roots cannot be read.
    pub(super) fn new(timeouts: &Timeouts, origin: &Url) -> Result<Self, ConfigError> {
        let limits = Limits {
            connect: timeouts.connect,
            idle: IDLE,
            kept: KEPT,
        };
        Ok(Self {
            general: build(timeouts, origin.scheme() == "http", is_loopback(origin))?,
            plain: Plain::new(origin, limits),
            connect: timeouts.connect,
        })
    }

    pub(super) fn general(&self) -> &reqwest::Client {
        &self.general
    }

    async fn post(&self, target: &Target, mut headers: HeaderMap, body: RequestBody) -> Result<Response, Failure> {
        headers.insert(USER_AGENT, HeaderValue::from_static(AGENT));
        if let (Some(plain), Some(line)) = (&self.plain, &target.line) {
            let [prefix, rest] = body.parts();
            let sent = plain
                .post(line, &headers, prefix.chain(rest), &SendGate::default())
                .await;
            return sent.map_err(|error| match error {
                NoResponse::ConnectTimeout(limit) => Failure::timeout("no connection", limit),
                error => Failure::connection(error.to_string()),
            });
        }
        let mut request = Request::new(reqwest::Method::POST, target.url.clone());
        *request.headers_mut() = headers;
        *request.body_mut() = Some(body.parts().concat().into());
        match self.general.execute(request).await {
            Ok(response) => Ok(response.into()),
            Err(error) => Err(no_response(&error, self.connect)),
        }
    }
}

/// `connect` is the timeout that the client enforces itself.
fn no_response(error: &reqwest::Error, connect: Duration) -> Failure {
    match error.is_timeout() && error.is_connect() {
        true => Failure::timeout("no connection", connect),
        false => Failure::connection(why(error)),
    }
}

/// Builds the pooled client. `plain` means an endpoint without TLS: no root certificates are loaded.
pub(super) fn build(timeouts: &Timeouts, plain: bool, direct: bool) -> Result<reqwest::Client, ConfigError> {
    // The binary installs ring. Library users and tests need not do so.
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // If another thread installed a provider first, that one is used.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
    let mut builder = reqwest::Client::builder()
        .user_agent(AGENT)
        .connect_timeout(timeouts.connect)
        // A redirect would send the key to another host.
        .redirect(reqwest::redirect::Policy::none())
        .retry(reqwest::retry::never())
        .referer(false)
        .tcp_nodelay(true)
        .tcp_keepalive(Duration::from_secs(30))
        .pool_idle_timeout(IDLE);
    builder = if plain {
        builder.http1_only().tls_certs_only([])
    } else {
        builder
            .http2_adaptive_window(true)
            .http2_keep_alive_interval(Duration::from_secs(20))
            .http2_keep_alive_timeout(Duration::from_secs(10))
    };
    if direct {
        builder = builder.no_proxy();
    }
    builder.build().map_err(|error| ConfigError::Client(why(&error)))
}

/// Limits a wait by a timeout and by the deadline, and reports which one was reached.
pub(super) struct Waiting<'a> {
    pub(super) timeouts: &'a Timeouts,
    pub(super) deadline: Instant,
    pub(super) begun: Instant,
}

impl Waiting<'_> {
    /// Sends the request and waits for the response head.
    pub(super) async fn send(&self, client: &reqwest::Client, request: Request) -> Result<Response, Failure> {
        let connect = self.timeouts.connect;
        let head = async {
            let response = client.execute(request).await;
            response
                .map(Response::from)
                .map_err(|error| no_response(&error, connect))
        };
        self.head(head).await
    }

    /// Sends a POST and waits for the response head.
    pub(super) async fn post(
        &self,
        client: &Client,
        target: &Target,
        headers: HeaderMap,
        body: RequestBody,
    ) -> Result<Response, Failure> {
        self.head(client.post(target, headers, body)).await
    }

    async fn head(&self, head: impl Future<Output = Result<Response, Failure>>) -> Result<Response, Failure> {
        let first_byte = self.timeouts.first_byte;
        match self.wait(first_byte, head).await {
            Ok(head) => head,
            Err(over) => Err(over.unwrap_or_else(|| Failure::timeout("no answer", first_byte))),
        }
    }

    /// Waits for the next piece of the body, or `None` at the end.
    pub(super) async fn piece(&self, response: &mut Response) -> Result<Option<Bytes>, Failure> {
        let idle = self.timeouts.idle;
        match self.wait(idle, response.chunk()).await {
            Ok(Ok(piece)) => Ok(piece),
            Ok(Err(error)) => Err(Failure::connection(error.to_string())),
            Err(over) => Err(over.unwrap_or_else(|| Failure::timeout("the answer stopped: nothing more", idle))),
        }
    }

    /// Reads the whole body, up to `cap` bytes.
    pub(super) async fn body(&self, mut response: Response, cap: usize, held: &mut Held<'_>) -> Result<Bytes, Failure> {
        if response.content_length().is_some_and(|length| length > cap as u64) {
            return Err(too_large(cap));
        }
        let mut body = Joined::default();
        while let Some(piece) = self.piece(&mut response).await? {
            if body.len() + piece.len() > cap {
                return Err(too_large(cap));
            }
            held.add(piece.len()).map_err(no_room)?;
            body.push(piece);
            if response.is_read() {
                break;
            }
        }
        Ok(body.into())
    }

    /// Reads the body of an error. If it is slow or too long, it is ignored: this is not a separate failure.
    pub(super) async fn error_body(&self, response: Response) -> Bytes {
        let brief = Waiting {
            deadline: self.deadline.min(Instant::now() + self.timeouts.connect),
            ..*self
        };
        // Error bodies are too short to need a memory budget of their own.
        let mut held = held(("", ""));
        brief
            .body(response, MAX_ERROR_BODY, &mut held)
            .await
            .unwrap_or_default()
    }

    /// `Err(None)`: the limit was reached. `Err(Some(failure))`: the deadline was reached.
    async fn wait<T>(&self, limit: Duration, wait: impl Future<Output = T>) -> Result<T, Option<Failure>> {
        let now = Instant::now();
        let limit = now.checked_add(limit).unwrap_or(self.deadline);
        let until = limit.min(self.deadline);
        timeout_at(until.into(), wait).await.map_err(|_| {
            (self.deadline <= limit).then(|| {
                // An endpoint that was silent for longer than the connect timeout counts as unhealthy.
                let waited = Instant::now().duration_since(self.begun);
                Failure::deadline(if waited > self.timeouts.connect {
                    Health::Sick
                } else {
                    Health::Unknown
                })
            })
        })
    }
}

pub(super) fn too_large(cap: usize) -> Failure {
    Failure::malformed(format!("the answer is larger than {cap} bytes"))
}

// Limits for model answers: the arguments of one answer's calls, and the memory of all answers being read at the same
// time.

/// Number of copies of an answer in memory: the received bytes, and the parsed content.
const COPIES: usize = 2;
/// Maximum argument bytes of one answer's calls. A model writes at most a fifth of this.
const MOST_ARGUMENTS: usize = 1024 * 1024;
/// Maximum values in the arguments of one call, including field names.
const MOST_VALUES: usize = 65_536;

static ANSWERS: LazyLock<Arc<Budget>> = LazyLock::new(|| Budget::new(Pool::ModelAnswers, Pool::ModelAnswers.limits(0)));

/// For an answer to this user of this tenant.
pub(super) fn held<'a>((tenant, user): (&'a str, &'a str)) -> Held<'a> {
    Held::new(Cow::Borrowed(&*ANSWERS), tenant, user, COPIES)
}

/// The answer is not read any further.
pub(super) fn no_room(exceeded: Exceeded) -> Failure {
    Failure::unavailable(format!("gavel is reading too many large model answers: {exceeded}"))
}

/// Checks that the arguments of its calls are small enough to process without starving other requests.
///
/// # Errors
/// They exceed a limit. Nothing of the answer is executed.
pub(super) fn check(parts: &[Part]) -> Result<(), Failure> {
    let calls = parts.iter().filter_map(|part| match part {
        Part::Call(call) => Some(call.args.get().as_bytes()),
        Part::Text(_) | Part::Thought(_) | Part::Other => None,
    });
    let mut bytes = 0;
    for arguments in calls {
        bytes += arguments.len();
        if bytes > MOST_ARGUMENTS {
            let why = format!("the arguments of its calls have more than {MOST_ARGUMENTS} bytes");
            return Err(Failure::malformed(why));
        }
        if nesting::has_more(arguments, MOST_VALUES) {
            let why = format!("the arguments of a call have more than {MOST_VALUES} values and names");
            return Err(Failure::malformed(why));
        }
    }
    Ok(())
}

// What the caller has received so far, so that the output of a failed attempt can be withdrawn.

type Listener<'a> = &'a mut (dyn FnMut(ModelEvent<'_>) + Send);

/// Delivers text and thoughts to the caller.
pub(super) struct Delivery<'a> {
    listener: Option<Listener<'a>>,
    /// Were thoughts requested? If not, they are not delivered.
    thoughts: bool,
    /// Text and thoughts of completed hops. They remain valid if a later hop fails.
    settled: Vec<Part>,
    /// Has the current hop delivered anything?
    unsettled: bool,
}

impl<'a> Delivery<'a> {
    pub(super) fn new(listener: Option<Listener<'a>>, thoughts: bool) -> Self {
        Self {
            listener,
            thoughts,
            settled: Vec::new(),
            unsettled: false,
        }
    }

    /// Is there a listener?
    pub(super) fn has_listener(&self) -> bool {
        self.listener.is_some()
    }

    /// Delivers text or thoughts.
    pub(super) fn tell(&mut self, event: ModelEvent<'_>) {
        let is_asked_for = self.thoughts || !matches!(event, ModelEvent::Thought(_));
        if let Some(listener) = &mut self.listener
            && is_asked_for
        {
            self.unsettled = true;
            listener(event);
        }
    }

    /// The attempt failed and another follows. If it delivered anything, the caller is reset and receives the completed
    /// hops again.
    pub(super) fn take_back(&mut self) {
        if let Some(listener) = &mut self.listener
            && std::mem::take(&mut self.unsettled)
        {
            listener(ModelEvent::Reset);
            for part in &self.settled {
                match part {
                    Part::Text(words) => listener(ModelEvent::Delta(words)),
                    Part::Thought(text) if self.thoughts => listener(ModelEvent::Thought(text)),
                    Part::Thought(_) | Part::Call(_) | Part::Other => {}
                }
            }
        }
    }

    /// The hop is complete and another follows.
    pub(super) fn settle<'p>(&mut self, parts: impl Iterator<Item = &'p Part>) {
        self.unsettled = false;
        let said = parts.filter(|part| matches!(part, Part::Text(text) | Part::Thought(text) if !text.is_empty()));
        self.settled.extend(said.cloned());
    }
}

/// The metrics of one model at one endpoint. Cached for the default model, because the lookup costs more than counting.
#[derive(Clone)]
pub(super) struct Metrics {
    answered: Counter,
    seconds: Histogram,
    input: Counter,
    output: Counter,
    thought: Counter,
    cached: Counter,
    breaker: Gauge,
    endpoint: &'static str,
    model: String,
}

/// Label values for models, because definitions can name any model.
pub(super) static MODELS: Labels = Labels::new();

impl Metrics {
    pub(super) fn of(endpoint: &'static str, model: &str) -> Self {
        let model = MODELS.of(model);
        let name = || model.to_owned().into();
        let tokens = |kind: &'static str| MODEL_TOKENS.with([endpoint.into(), name(), kind.into()]);
        Self {
            answered: MODEL_ATTEMPTS.with([endpoint.into(), name(), "answered".into()]),
            seconds: MODEL_SECONDS.with([endpoint.into(), name()]),
            input: tokens("input"),
            output: tokens("output"),
            thought: tokens("thought"),
            cached: tokens("cached"),
            breaker: MODEL_BREAKER.with([endpoint.into()]),
            endpoint,
            model: model.to_owned(),
        }
    }

    /// Records one finished request.
    pub(super) fn attempt(&self, fault: Option<FaultKind>, took: Duration, usage: Usage) {
        match fault {
            None => self.answered.increment(1),
            Some(fault) => self.counter(&MODEL_ATTEMPTS, fault).increment(1),
        }
        self.seconds.record(took);
        self.input.increment(usage.input_tokens);
        self.output.increment(usage.output_tokens);
        self.thought.increment(usage.thought_tokens);
        self.cached.increment(usage.cached_tokens);
    }

    /// Records that a request is about to be retried.
    pub(super) fn retry(&self, after: FaultKind) {
        self.counter(&MODEL_RETRIES, after).increment(1);
    }

    /// Records a call that finally failed.
    pub(super) fn fault(&self, fault: FaultKind) {
        self.counter(&MODEL_FAULTS, fault).increment(1);
    }

    /// The breaker's state: 0 closed, 1 half-open, 2 open.
    pub(super) fn breaker(&self, state: BreakerState) {
        self.breaker.set(match state {
            BreakerState::Closed => 0.0,
            BreakerState::HalfOpen => 1.0,
            BreakerState::Open => 2.0,
        });
    }

    fn counter(&self, metric: &Metric<Counter, 3>, fault: FaultKind) -> Counter {
        metric.with([self.endpoint.into(), self.model.clone().into(), fault.as_str().into()])
    }
}

/// The default model's metrics, made on first use. They also reach a recorder that was installed after the adapter was
/// made.
pub(super) struct DefaultMetrics(OnceLock<Metrics>);

impl DefaultMetrics {
    /// Reserves the label value of the default model, however many other models follow.
    pub(super) fn of(model: &str) -> Self {
        MODELS.of(model);
        Self(OnceLock::new())
    }

    pub(super) fn get(&self, endpoint: &'static str, model: &str) -> &Metrics {
        self.0.get_or_init(|| Metrics::of(endpoint, model))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::domain::journal::FunctionCall;

    /// Promise: bounded faults.
    #[test]
    fn calls_with_arguments_beyond_their_limits_are_not_run() {
        let call = |arguments: String| {
            Part::Call(FunctionCall {
                id: None,
                name: "f".to_owned(),
                args: serde_json::value::RawValue::from_string(arguments).unwrap(),
            })
        };
        let text = |bytes: usize| call(format!("{{\"x\":\"{}\"}}", "x".repeat(bytes)));
        let values = |many: usize| call(format!("{{\"x\":[{}1]}}", "1,".repeat(many)));
        for (parts, reported) in [
            (vec![text(1_000_000)], None),
            (vec![values(60_000)], None),
            (vec![Part::Text("x".repeat(2_000_000))], None),
            (vec![text(1_100_000)], Some("1048576 bytes")),
            (vec![text(600_000), text(600_000)], Some("1048576 bytes")),
            (vec![values(70_000)], Some("65536 values")),
        ] {
            let checked = check(&parts).map_err(|failure| failure.detail);
            match reported {
                None => assert_eq!(checked, Ok(())),
                Some(reported) => assert!(checked.unwrap_err().contains(reported)),
            }
        }
    }
}

#[cfg(test)]
mod delivery_tests {
    use super::*;

    #[test]
    fn only_delivered_text_is_withdrawn_and_finished_hops_are_delivered_again() {
        let mut received = Vec::new();
        let mut listener = |event: ModelEvent<'_>| received.push(format!("{event:?}"));
        let mut delivery = Delivery::new(Some(&mut listener), true);
        delivery.take_back();
        delivery.tell(ModelEvent::Delta("a"));
        delivery.take_back();
        delivery.tell(ModelEvent::Thought("hm"));
        delivery.take_back();
        delivery.tell(ModelEvent::Thought("Hm"));
        delivery.tell(ModelEvent::Delta("A"));
        let parts = [Part::Thought("Hm".to_owned()), Part::Text("A".to_owned())];
        delivery.settle(parts.iter());
        delivery.take_back();
        delivery.tell(ModelEvent::Delta("b"));
        delivery.take_back();
        assert_eq!(
            received,
            [
                r#"Delta("a")"#,
                "Reset",
                r#"Thought("hm")"#,
                "Reset",
                r#"Thought("Hm")"#,
                r#"Delta("A")"#,
                r#"Delta("b")"#,
                "Reset",
                r#"Thought("Hm")"#,
                r#"Delta("A")"#
            ]
        );
    }

    #[test]
    fn thoughts_that_were_not_asked_for_are_not_passed_on() {
        let mut received = Vec::new();
        let mut listener = |event: ModelEvent<'_>| received.push(format!("{event:?}"));
        let mut delivery = Delivery::new(Some(&mut listener), false);
        delivery.tell(ModelEvent::Thought("hm"));
        delivery.take_back();
        delivery.settle([Part::Thought("hm".to_owned())].iter());
        delivery.tell(ModelEvent::Delta("a"));
        delivery.take_back();
        assert_eq!(received, [r#"Delta("a")"#, "Reset"]);
    }
}
