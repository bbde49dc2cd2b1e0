//! Commits as tests write them: builders with defaults, and a name for each use.

use std::sync::Arc;

use gavel::adapters::store::Store;
use gavel::api::runs::InDoubtCall;
use gavel::domain::agent_run::{RunStatus, StopReason};
use gavel::domain::decision::Usage;
use gavel::domain::ids::{ActionId, RunId};
use gavel::ports::claims::{Claim, Claimant, Claimed};
use gavel::ports::commit::{ActionOutcome, Commit, Committed, Fact, NewAction, Recorder, RunEnd, Spent, Wait, Writer};
use gavel::ports::records::{ClosedCall, ClosedDecision, OpenCall, OpenDecision, RecordError};
use gavel::ports::runs::{Lease, NewRun, Reopen, ReopenedFor, Settled, StoredEntry};
use serde_json::value::RawValue;

use crate::support::{T0, closed, entry, open_decision, raw};

/// Further entries of a run, with what happens in them.
#[derive(Clone, Debug)]
pub(crate) struct Append {
    pub(crate) lease: Lease,
    pub(crate) run: RunId,
    pub(crate) entries: Vec<StoredEntry>,
    pub(crate) intents: Vec<OpenCall>,
    /// Approved calls that begin.
    pub(crate) asked: Vec<ActionId>,
    pub(crate) actions: Vec<NewAction>,
    pub(crate) outcomes: Vec<ActionOutcome>,
    pub(crate) spent: Vec<Spent>,
}

impl From<Append> for Commit {
    fn from(append: Append) -> Self {
        let spent = append.spent.into_iter().map(Fact::Spent);
        let facts = spent.chain(append.intents.into_iter().map(Fact::Intended));
        let facts = facts.chain(append.outcomes.into_iter().map(Fact::Outcome));
        let facts = facts.chain(append.actions.into_iter().map(Fact::Action));
        Self {
            writer: Writer::Holder {
                lease: append.lease,
                run: append.run,
            },
            entries: append.entries,
            facts: facts.chain(append.asked.into_iter().map(Fact::Begun)).collect(),
            cleans_up: false,
            progresses: false,
        }
    }
}

/// Entries of the outermost run's journal.
pub(crate) fn entries(lease: Lease, numbers: std::ops::RangeInclusive<u64>) -> Append {
    Append {
        lease,
        run: lease.run,
        entries: numbers.map(entry).collect(),
        intents: Vec::new(),
        asked: Vec::new(),
        actions: Vec::new(),
        outcomes: Vec::new(),
        spent: Vec::new(),
    }
}

/// A wait of a run for these calls.
pub(crate) fn suspend(lease: Lease, run: RunId, actions: Vec<NewAction>) -> Commit {
    let wait = Wait::Calls(actions.iter().map(|action| action.id).collect());
    let facts = actions.into_iter().map(Fact::Action).chain([Fact::Waits(wait)]);
    Commit {
        writer: Writer::Holder { lease, run },
        entries: Vec::new(),
        facts: facts.collect(),
        cleans_up: false,
        progresses: false,
    }
}

/// A run that has ended.
#[derive(Clone, Debug)]
pub(crate) struct FinishedRun {
    pub(crate) lease: Lease,
    pub(crate) run: RunId,
    pub(crate) status: RunStatus,
    pub(crate) summary: Option<Arc<str>>,
    pub(crate) output: Option<Arc<RawValue>>,
    pub(crate) error_message: Option<Arc<str>>,
    pub(crate) stop_reason: Option<StopReason>,
    pub(crate) recovered_from: Option<StopReason>,
    pub(crate) in_doubt: Vec<InDoubtCall>,
    pub(crate) entries: Vec<StoredEntry>,
    pub(crate) outcomes: Vec<ActionOutcome>,
    pub(crate) words: Option<Arc<str>>,
    pub(crate) completed_at: i64,
    pub(crate) decision: ClosedDecision,
}

impl From<FinishedRun> for Commit {
    fn from(run: FinishedRun) -> Self {
        let end = RunEnd {
            status: run.status,
            summary: run.summary.as_deref().map(str::to_owned),
            output: run.output,
            error_message: run.error_message.as_deref().map(str::to_owned),
            stop_reason: run.stop_reason,
            recovered_from: run.recovered_from,
            in_doubt: run.in_doubt,
            steps: 2,
            usage: Usage {
                input_tokens: 11,
                output_tokens: 7,
                thought_tokens: 3,
                cached_tokens: 1,
            },
            completed_at: Some(run.completed_at),
        };
        let facts = run.outcomes.into_iter().map(Fact::Outcome);
        let facts = facts.chain([Fact::Closed(run.decision), Fact::Ended(end, true)]);
        Self {
            writer: Writer::Holder {
                lease: run.lease,
                run: run.run,
            },
            entries: run.entries,
            facts: facts.chain(run.words.map(Fact::Said)).collect(),
            cleans_up: false,
            progresses: false,
        }
    }
}

/// The end of a run with all its `calls` completed.
pub(crate) fn finished(lease: Lease, run: &NewRun, status: RunStatus, calls: Vec<ClosedCall>) -> FinishedRun {
    FinishedRun {
        lease,
        run: run.id,
        status,
        summary: Some("It was mom.".into()),
        output: None,
        error_message: (status != RunStatus::Completed).then(|| "cut short".into()),
        stop_reason: None,
        recovered_from: None,
        in_doubt: Vec::new(),
        entries: Vec::new(),
        outcomes: Vec::new(),
        words: None,
        completed_at: T0 + 1_234_567,
        decision: closed(run.decision.clone(), calls, true),
    }
}

/// A paused run to be reopened and claimed at once; it was reopened `attempt` times before.
pub(crate) fn reopen(run: RunId, attempt: u32) -> Reopen {
    Reopen {
        session: None,
        run,
        attempt,
        place: by_caller(false, None, &[]),
        settings: raw(r#"{"max_steps":5}"#),
        entry: r#"{"resumed":{}}"#.into(),
        at_us: T0,
    }
}

/// A caller that resumes a run, and what it reports about the run's in-doubt calls.
pub(crate) fn by_caller(queued: bool, claim: Option<Claim>, settled: &[(ActionId, bool)]) -> ReopenedFor {
    ReopenedFor::Caller {
        queued,
        settled: Settled {
            by: "grace".into(),
            calls: settled.iter().copied().collect(),
        },
        claim,
    }
}

/// A claim by a chat request.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) claim: Claim,
    pub(crate) decision: OpenDecision,
}

pub(crate) fn key(scope: &str, fingerprint: &str) -> Claim {
    Claim {
        scope: scope.into(),
        fingerprint: fingerprint.into(),
    }
}

pub(crate) fn claim(scope: &str, fingerprint: &str) -> Asked {
    Asked {
        claim: key(scope, fingerprint),
        decision: open_decision(),
    }
}

/// The uses of a commit, by name.
pub(crate) trait Writes {
    async fn open(&self, row: OpenDecision, intents: Vec<OpenCall>) -> Result<(), RecordError>;
    async fn intend(&self, intents: Vec<OpenCall>) -> Result<(), RecordError>;
    async fn close(&self, decision: ClosedDecision) -> Result<(), RecordError>;
    async fn claims(&self, asked: Asked) -> Result<Claimed, RecordError>;
    async fn append(&self, append: Append) -> Result<Committed, RecordError>;
    async fn finish(&self, run: FinishedRun) -> Result<Committed, RecordError>;
}

impl Writes for Store {
    async fn open(&self, row: OpenDecision, intents: Vec<OpenCall>) -> Result<(), RecordError> {
        let facts = [Fact::Opened(row)]
            .into_iter()
            .chain(intents.into_iter().map(Fact::Intended));
        self.commit(Commit::of_process(facts.collect())).await.map(drop)
    }
    async fn intend(&self, intents: Vec<OpenCall>) -> Result<(), RecordError> {
        let facts = intents.into_iter().map(Fact::Intended).collect();
        self.commit(Commit::of_process(facts)).await.map(drop)
    }
    async fn close(&self, decision: ClosedDecision) -> Result<(), RecordError> {
        self.commit(Commit::of_process(vec![Fact::Closed(decision)]))
            .await
            .map(drop)
    }
    async fn claims(&self, asked: Asked) -> Result<Claimed, RecordError> {
        let by = Claimant::Decision(Box::new(asked.decision));
        self.claim(asked.claim, by).await
    }
    async fn append(&self, append: Append) -> Result<Committed, RecordError> {
        self.commit(append.into()).await
    }
    async fn finish(&self, run: FinishedRun) -> Result<Committed, RecordError> {
        self.commit(run.into()).await
    }
}
