//! Every metric, in one list: its name, kind, labels and meaning. The exporter, the page about metrics and the tests of
//! dashboard and alerts read this list, and only its handles can count.

use std::fmt::Write as _;
use std::marker::PhantomData;

pub use metrics::{Counter, Gauge, Histogram, SharedString};
use metrics::{Label, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram};

/// Bounds in seconds for what people and programs wait for: requests, models, tools, decisions.
const WORK: &[f64] = &[
    0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 60.0, 180.0, 600.0, 1800.0,
];
/// Bounds in seconds for the database.
const DATABASE: &[f64] = &[
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0,
];
/// Bounds for numbers of writes.
const WRITES: &[f64] = &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0];

/// What a metric counts, with the upper bounds of a histogram.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// It only grows.
    Counter,
    /// It grows and shrinks.
    Gauge,
    /// How many values are at most each bound.
    Histogram(&'static [f64]),
}

impl Kind {
    /// Its name, as in `# TYPE`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram(_) => "histogram",
        }
    }
}

/// What is known of a metric.
#[derive(Debug)]
pub struct About {
    /// As Prometheus shows it; its end says the unit.
    pub name: &'static str,
    /// Its kind.
    pub kind: Kind,
    /// The labels of each of its lines, whose values are of bounded number: no user, tenant or text of people.
    pub labels: &'static [&'static str],
    /// What it says, as Markdown.
    pub help: &'static str,
}

impl About {
    /// Describes it to the recorder. One without labels has its line from now on, since an alert sees no increase of a
    /// line that begins with 1; a gauge is set by its owner.
    pub fn register(&self) {
        match self.kind {
            Kind::Counter => describe_counter!(self.name, self.help),
            Kind::Gauge => describe_gauge!(self.name, self.help),
            Kind::Histogram(_) => describe_histogram!(self.name, self.help),
        }
        match self.kind {
            Kind::Counter if self.labels.is_empty() => drop(counter!(self.name)),
            Kind::Histogram(_) if self.labels.is_empty() => drop(histogram!(self.name)),
            _ => {}
        }
    }
}

/// The handle of one kind.
pub trait Handle {
    /// The line of the metric with these labels.
    fn of(name: &'static str, labels: Vec<Label>) -> Self;
}

impl Handle for Counter {
    fn of(name: &'static str, labels: Vec<Label>) -> Self {
        counter!(name, labels)
    }
}

impl Handle for Gauge {
    fn of(name: &'static str, labels: Vec<Label>) -> Self {
        gauge!(name, labels)
    }
}

impl Handle for Histogram {
    fn of(name: &'static str, labels: Vec<Label>) -> Self {
        histogram!(name, labels)
    }
}

/// A metric of kind `H` with `N` labels.
#[derive(Debug)]
pub struct Metric<H, const N: usize> {
    about: About,
    handle: PhantomData<fn() -> H>,
}

impl<H: Handle, const N: usize> Metric<H, N> {
    /// The line with these values of its labels. A lookup: code that counts often keeps it.
    pub fn with(&self, values: [SharedString; N]) -> H {
        let labels = self.about.labels.iter().zip(values);
        let labels = labels.map(|(label, value)| Label::new(*label, value)).collect();
        H::of(self.about.name, labels)
    }
}

impl<H: Handle> Metric<H, 0> {
    /// Its only line.
    pub fn get(&self) -> H {
        self.with([])
    }
}

macro_rules! metrics {
    ($($metric:ident: $kind:ident $(($bounds:ident))? $name:literal [$($label:literal),*] $help:literal;)+) => {
        $(#[doc = $help] pub static $metric: Metric<$kind, { <[&str]>::len(&[$($label),*]) }> = Metric {
            about: About {
                name: $name,
                kind: Kind::$kind $(($bounds))?,
                labels: &[$($label),*],
                help: $help,
            },
            handle: PhantomData,
        };)+

        /// Every metric.
        pub static ALL: &[&About] = &[$(&$metric.about),+];
    };
}

metrics! {
    DECISIONS: Counter "gavel_decisions_total" ["surface", "outcome"] "recorded decisions, by their [outcome](outcomes.md); a run that was resumed counts at each of its ends";
    DECISION_SECONDS: Histogram(WORK) "gavel_decision_duration_seconds" ["surface"] "from a request to its recorded decision, without the time that approvers took";
    APPROVALS_WAITING: Gauge "gavel_approvals_waiting" [] "actions that wait for an approver, in the whole database";
    APPROVALS_OLDEST: Gauge "gavel_approvals_oldest_seconds" [] "how long the oldest of them waits; 0 if none does";
    ACTIONS_IN_DOUBT: Gauge "gavel_actions_in_doubt" [] "actions with an unknown outcome that no person has settled, in the whole database";
    IN_DOUBT_OLDEST: Gauge "gavel_actions_in_doubt_oldest_seconds" [] "how long the oldest of them has been in doubt; 0 if there is none";
    HTTP_REQUESTS: Counter "gavel_http_requests_total" ["route", "status"] "requests; `unmatched` if there is no such route, 499 if the client disconnected before its answer";
    HTTP_SECONDS: Histogram(WORK) "gavel_http_request_duration_seconds" ["route"] "from a request's head to the end of its answer";
    HTTP_IN_FLIGHT: Gauge "gavel_http_requests_in_flight" [] "requests in progress, open streams included";
    HTTP_PROBLEMS: Counter "gavel_http_problems_total" ["code"] "requests and streams that were refused or failed, by the [code](errors.md) of the problem, or of the decision that refuses a chat (`rate_limited`, `overloaded`)";
    MODEL_ATTEMPTS: Counter "gavel_model_attempts_total" ["endpoint", "model", "outcome"] "HTTP requests to Gemini: `answered`, or the fault (`unavailable`, `credentials`, `permission`, `no_such_model`, `quota`, `rejected`, `timeout`, `malformed`, `blocked`)";
    MODEL_SECONDS: Histogram(WORK) "gavel_model_attempt_seconds" ["endpoint", "model"] "duration of an HTTP request to Gemini";
    MODEL_RETRIES: Counter "gavel_model_retries_total" ["endpoint", "model", "after"] "repeated requests, by the previous fault";
    MODEL_FAULTS: Counter "gavel_model_faults_total" ["endpoint", "model", "kind"] "model calls that failed after all attempts";
    MODEL_TOKENS: Counter "gavel_model_tokens_total" ["endpoint", "model", "kind"] "tokens: `input`, `output`, `thought`, `cached` (a part of `input`)";
    MODEL_COST: Counter "gavel_model_cost_nanodollars_total" ["model"] "what the calls of each model cost, in billionths of a US dollar, by the [prices](prices.md) and the model that answered. Divide by 1e9";
    MODEL_COST_UNKNOWN: Counter "gavel_model_cost_unknown_total" [] "model calls that used tokens whose price is not known: `gavel prices check` says of which model";
    MODEL_ANSWERS: Counter "gavel_model_answers_total" ["endpoint", "requested", "answered"] "answers of Gemini, by the model that was asked and the one that answered";
    MODEL_BREAKER: Gauge "gavel_model_breaker_state" ["endpoint"] "0 closed, 1 probing, 2 open: gavel sends Gemini no requests";
    MCP_CALLS: Counter "gavel_mcp_calls_total" ["server", "outcome"] "tool calls: `answered`, `failed`, `unknown` (sent, and no answer), `not_sent`";
    MCP_SECONDS: Histogram(WORK) "gavel_mcp_call_seconds" ["server"] "duration of a tool call";
    MCP_UP: Gauge "gavel_mcp_server_up" ["server"] "1 when its tools can be called, else 0";
    MCP_BREAKER: Gauge "gavel_mcp_breaker_open" ["server"] "1 from five failed calls in a row until the next successful one, else 0. With `connection: per_user`, the number of users for which it is open";
    MCP_LOST: Counter "gavel_mcp_connections_lost_total" ["server"] "connections that gavel did not close itself";
    MCP_TOOLS: Gauge "gavel_mcp_catalog_tools" [] "tools on offer, of all servers";
    TOOLS_MISSING: Gauge "gavel_granted_tools_missing" [] "tools of the constitution that are unavailable: no server offers them, or two do. `/readyz` names them";
    QUOTA_SHARED: Gauge "gavel_quota_shared" [] "on PostgreSQL: 1 while users' limits apply across all replicas, 0 while this process counts separately";
    QUOTA_SECONDS: Histogram(DATABASE) "gavel_quota_query_seconds" [] "on PostgreSQL: one database query about a user's limit";
    STORE_UP: Gauge "gavel_store_up" [] "1, or 0 while gavel cannot write to the database";
    STORE_COMMIT: Histogram(DATABASE) "gavel_store_commit_seconds" [] "one transaction of the store";
    STORE_OPS: Histogram(WRITES) "gavel_store_batch_ops" [] "writes in one transaction (a number, not a time)";
    STORE_QUEUE: Gauge "gavel_store_queue_depth" [] "writes that wait behind the transaction that begins";
    STORE_REDONE: Counter "gavel_store_batches_redone_total" [] "transactions that failed because of one row, and were redone row by row";
    STORE_FAILURES: Counter "gavel_store_failures_total" ["kind"] "failed transactions: `unavailable`, `refused`, `connect`; `queue`: rejected because 4096 waited";
    STORE_LOST: Counter "gavel_store_lost_total" [] "outcomes that could not be kept; recovery closes their decisions";
    RECOVERED_DECISIONS: Counter "gavel_store_recovered_decisions_total" [] "decisions that this process closed for a dead one";
    RECOVERED_CALLS: Counter "gavel_store_recovered_calls_total" [] "calls of these that are now `in_doubt`";
    BACKGROUND_RUNS: Gauge "gavel_background_runs" [] "background runs that this process works on";
}

/// The table of metrics for the documentation, and the bounds of the histograms.
pub fn reference() -> String {
    let mut text = String::from("| metric | kind | labels | meaning |\n| --- | --- | --- | --- |\n");
    for About {
        name,
        kind,
        labels,
        help,
    } in ALL
    {
        let labels: Vec<_> = labels.iter().map(|label| format!("`{label}`")).collect();
        let _ = writeln!(
            text,
            "| `{name}` | {} | {} | {help} |",
            kind.as_str(),
            labels.join(", ")
        );
    }
    text += "\n| histogram | upper bounds |\n| --- | --- |\n";
    for About { name, kind, .. } in ALL {
        if let Kind::Histogram(bounds) = kind {
            let bounds: Vec<_> = bounds.iter().map(f64::to_string).collect();
            let _ = writeln!(text, "| `{name}` | {} |", bounds.join(", "));
        }
    }
    text
}
