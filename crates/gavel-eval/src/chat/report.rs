//! The results of an evaluation.

mod score;

use std::collections::BTreeSet;
use std::time::Duration;

use serde::Serialize;

pub use self::score::{Confusion, KindScore, Rate};
use super::case::{Case, Kind};
use super::subject::Observed;

/// C-SC-1: the share of clear requests that must succeed.
const THRESHOLD: f64 = 0.9;

/// Models that stand in for a real one; their scores are no evidence about it.
pub const STAND_INS: [&str; 4] = ["demo", "obeying", "hostile", "random"];

/// The results of an evaluation.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The models that answered.
    pub models: BTreeSet<String>,
    /// False if a stand-in answered, or no model did: then the scores say nothing about Gemini.
    pub evidence: bool,
    /// Cases that were not run; no rate counts them.
    pub not_run: usize,
    /// C-SC-1: how many of the clear requests that were run succeeded.
    pub clear_requests: Rate,
    /// The least share of clear requests that must succeed.
    pub threshold: f64,
    /// Scores by kind.
    pub kinds: Vec<KindScore>,
    /// Expected decision type against observed.
    pub confusion: Confusion,
    /// Breaches of the invariants, each with its case.
    pub invariants_broken: Vec<String>,
    /// Elapsed time of all cases, in milliseconds.
    pub elapsed_ms: u64,
    /// Each case, in the order given.
    pub cases: Vec<CaseResult>,
}

/// The observed side of a case that was not run.
pub(super) const NOT_RUN: &str = "NOT_RUN";

/// The result of a case.
#[derive(Clone, Debug, Serialize)]
pub struct CaseResult {
    /// Its id.
    pub id: String,
    /// `file:line`
    pub place: String,
    /// Its kind.
    pub kind: &'static str,
    /// Its language.
    pub language: String,
    /// Does it count for C-SC-1?
    pub clear: bool,
    /// The message.
    pub message: String,
    /// The verdict.
    #[serde(flatten)]
    pub verdict: Verdict,
    /// Breaches of the invariants.
    pub invariants_broken: Vec<String>,
    /// The accepted decision types; the first counts as expected.
    pub expected: Vec<&'static str>,
    /// The decision type; absent if the case was not run.
    pub decision_type: Option<String>,
    /// The outcome.
    pub outcome: Option<String>,
    /// The reply, its first 2,000 characters.
    pub response: Option<String>,
    /// The tools called, in order.
    pub calls: Vec<String>,
    /// Model calls made.
    pub iterations: Option<u32>,
    /// The model that answered.
    pub model: Option<String>,
    /// How long the decision took.
    pub duration_ms: Option<u64>,
}

/// The verdict on a case.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "verdict", rename_all = "snake_case")]
pub enum Verdict {
    /// As expected.
    Succeeded,
    /// Not as expected.
    Failed {
        /// The differences.
        differences: Vec<String>,
    },
    /// There was no decision, or not one of the model's: the set-up failed.
    NotRun {
        /// The cause.
        error: String,
    },
}

impl CaseResult {
    pub(super) fn of(case: &Case, verdict: Verdict, observed: Option<Observed>, broken: Vec<String>) -> Self {
        let observed = observed.as_ref();
        Self {
            id: case.id.clone(),
            place: format!("{}:{}", case.place.0, case.place.1),
            kind: case.kind.as_str(),
            language: case.language.clone(),
            clear: case.is_clear(),
            message: case.message.clone(),
            verdict,
            invariants_broken: broken,
            expected: case.expect.decision.clone(),
            decision_type: observed.map(|observed| observed.decision_type.clone()),
            outcome: observed.map(|observed| observed.outcome.clone()),
            response: observed.map(|observed| observed.response.chars().take(2_000).collect()),
            calls: observed
                .map(|observed| observed.tool_calls.iter().map(|call| call.tool.clone()).collect())
                .unwrap_or_default(),
            iterations: observed.map(|observed| observed.iterations),
            model: observed.and_then(|observed| observed.model.clone()),
            duration_ms: observed.map(|observed| observed.duration_ms),
        }
    }

    /// Is the result as expected?
    pub fn succeeded(&self) -> bool {
        self.verdict == Verdict::Succeeded
    }

    /// Did the model answer?
    pub fn ran(&self) -> bool {
        !matches!(self.verdict, Verdict::NotRun { .. })
    }
}

/// The purpose of an evaluation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// Tests the model: C-SC-1, and no invariant broken.
    Quality,
    /// Tests gavel's code: no invariant broken, whatever the scores.
    Invariants,
}

/// The result of an evaluation, for CI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// All requirements are met.
    Met,
    /// Too few clear requests succeeded.
    BelowThreshold,
    /// An invariant is broken.
    InvariantBroken,
    /// A case could not be run, so the result is unknown.
    NotRun,
}

impl Report {
    pub(super) fn new(cases: Vec<CaseResult>, bystander: Option<String>, elapsed: Duration) -> Self {
        let answered = cases.iter().filter(|case| case.ran());
        let models: BTreeSet<_> = answered.filter_map(|case| case.model.clone()).collect();
        let evidence = !models.is_empty() && !models.iter().any(|model| STAND_INS.contains(&model.as_str()));
        let mut confusion = Confusion::default();
        let mut broken = Vec::new();
        for case in &cases {
            let observed = case.decision_type.as_deref().filter(|_| case.ran()).unwrap_or(NOT_RUN);
            // A case that allows several decisions expects the one it got, if that is among them.
            let expected = if case.expected.contains(&observed) {
                observed
            } else {
                case.expected[0]
            };
            let row = confusion.0.entry(expected.to_owned()).or_default();
            *row.entry(observed.to_owned()).or_default() += 1;
            broken.extend(
                case.invariants_broken
                    .iter()
                    .map(|breach| format!("{}: {breach}", case.id)),
            );
        }
        broken.extend(bystander);
        let kinds: Vec<_> = Kind::NAMES
            .iter()
            .filter_map(|(name, _)| kind_score(name, &cases))
            .collect();
        Self {
            models,
            evidence,
            not_run: cases.iter().filter(|case| !case.ran()).count(),
            clear_requests: kinds.iter().map(|kind| kind.clear_requests).sum(),
            threshold: THRESHOLD,
            kinds,
            confusion,
            invariants_broken: broken,
            elapsed_ms: u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX),
            cases,
        }
    }

    /// C-SC-1: did enough clear requests succeed?
    pub fn meets_threshold(&self) -> bool {
        self.clear_requests.share() >= self.threshold
    }

    /// C-SC-1 as text: which cases count, how many succeeded, and how many must.
    pub fn clear_requests_in_words(&self) -> String {
        let counted: Vec<_> = self
            .kinds
            .iter()
            .filter(|kind| kind.clear_requests.total > 0)
            .map(KindScore::counted)
            .collect();
        let counted = if counted.is_empty() {
            String::new()
        } else {
            format!(" ({})", counted.join(", "))
        };
        format!(
            "{} of {} clear requests succeeded, {}{counted}; at least {} % are required",
            self.clear_requests.succeeded,
            self.clear_requests.total,
            self.clear_requests.percent(),
            // A share such as 0.55 is not exact, and neither is a hundred times that.
            (self.threshold * 1e6).round() / 1e4,
        )
    }

    /// Is something that `gate` needs unknown? A decision's effects are known even if the model gave no answer.
    fn unknown(&self, gate: Gate) -> bool {
        match gate {
            Gate::Quality => self.not_run > 0,
            Gate::Invariants => self.cases.iter().any(|case| case.decision_type.is_none()),
        }
    }

    /// The result for `gate`.
    pub fn exit(&self, gate: Gate) -> Exit {
        if !self.invariants_broken.is_empty() {
            Exit::InvariantBroken
        } else if self.cases.is_empty() || self.unknown(gate) {
            Exit::NotRun
        } else if gate == Gate::Quality && !self.meets_threshold() {
            Exit::BelowThreshold
        } else {
            Exit::Met
        }
    }
}

fn kind_score(kind: &'static str, cases: &[CaseResult]) -> Option<KindScore> {
    let (mut rate, mut clear_requests) = (Rate::default(), Rate::default());
    let mut durations = Vec::new();
    let mut some = false;
    for case in cases.iter().filter(|case| case.kind == kind) {
        some = true;
        if case.ran() {
            rate.count(case.succeeded());
            if case.clear {
                clear_requests.count(case.succeeded());
            }
            durations.extend(case.duration_ms);
        }
    }
    durations.sort_unstable();
    let median_ms = durations.get(durations.len() / 2).copied().unwrap_or(0);
    some.then_some(KindScore {
        kind,
        rate,
        clear_requests,
        median_ms,
    })
}
