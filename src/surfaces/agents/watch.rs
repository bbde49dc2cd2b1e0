//! The events of a run, read from its journal: from the beginning or from a reader's position, on any process. The text
//! of a turn as it arrives is available only on the process that executes the run.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::sync::Semaphore;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use utoipa::ToSchema;

use super::AgentError;
use super::told_turn::ToldTurn;
use super::work::Unrecorded;
use crate::domain::agent_run::{AgentRun, RunStatus, StopReason};
use crate::domain::decision::{ToolFailure, Usage};
use crate::domain::ids::{ActionId, RunId, TenantId};
use crate::domain::journal::{CallResult, Entry, Part, PolicyDecision, Proposed};
use crate::engine::agent::{Agents, Begins};
use crate::engine::live::{LiveEvent, Said};
use crate::engine::{log, tool_name};

/// Entries per read, and their bytes without the last one. A reader that does not read holds no more of a journal than
/// this.
const PAGE: u32 = 32;
const PAGE_BYTES: usize = 64 << 10;
/// Interval between reads for a run that this process executes. It announces new entries, so the reads only catch lost
/// announcements.
pub(super) const TOLD: Duration = Duration::from_secs(5);
/// Interval between reads without announcements: at first, and after a while without new entries.
pub(super) const LOOK: Duration = Duration::from_millis(300);
pub(super) const SELDOM: Duration = Duration::from_secs(1);
/// How often in a row a failed read is repeated, after a pause that grows by `BREATH` each time. The pauses add up to
/// some seconds, enough for a busy database to recover or a restarted one to be available again.
const ASKED_AGAIN: u32 = 6;
const BREATH: Duration = Duration::from_millis(250);

/// A reader's position: the number of the last entry received. For a call of an agent, the number within that agent's
/// run follows, and so on. Written with dots; it is the id of an event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cursor(Vec<u64>);

impl Cursor {
    /// Parses `12` or `12.5`; `None` if invalid.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        // Digits only: the parser would accept a sign.
        let number = |part: &str| {
            part.parse()
                .ok()
                .filter(|_| part.bytes().all(|byte| byte.is_ascii_digit()))
        };
        let numbers = text.split('.').map(number);
        let numbers: Vec<u64> = numbers.collect::<Option<_>>()?;
        (numbers.len() <= 16).then_some(Self(numbers))
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let numbers: Vec<_> = self.0.iter().map(u64::to_string).collect();
        f.write_str(&numbers.join("."))
    }
}

/// One event of a run. Serialized as one JSON object with a `type` and the `run_id` it belongs to.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct RunEvent {
    /// The run: the watched one, or one that it called.
    #[schema(value_type = String, format = "uuid")]
    pub run_id: RunId,
    /// What happened.
    #[serde(flatten)]
    pub what: RunEventKind,
}

/// The kind of an event, with its data.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum RunEventKind {
    /// The task, as the model gets it.
    Input {
        /// The text.
        text: String,
    },
    /// More text of the model. The whole text follows with `turn`.
    Delta {
        /// The text.
        text: String,
    },
    /// More of the model's thinking, which is not part of its answer. The whole thinking follows with `turn`.
    Thought {
        /// The text.
        text: String,
    },
    /// The text and thoughts of this turn so far are void: the model is asked again.
    Reset,
    /// A turn of the model is complete.
    Turn {
        /// The text of the turn.
        text: String,
        /// The summary of the model's thinking.
        thoughts: Vec<String>,
        /// The calls that the model proposes.
        calls: Vec<ProposedCall>,
        /// The model that answered.
        model: String,
        /// Tokens of this turn.
        usage: Usage,
    },
    /// The model gave no usable answer.
    ModelFault {
        /// `unavailable`, `credentials`, `permission`, `no_such_model`, `quota`, `rejected`, `timeout`, `malformed`,
        /// `blocked`.
        fault: &'static str,
    },
    /// A step of a flow starts.
    Step {
        /// The number of the step, from 0.
        step: u32,
        /// The number of the round, from 1.
        round: u32,
        /// The agent that executes the step.
        agent: String,
    },
    /// A tool is called.
    ToolCall {
        /// Position in the run.
        sequence: u32,
        /// The tool.
        tool: String,
        /// The arguments.
        #[schema(value_type = Object)]
        parameters: Value,
    },
    /// An agent is called. Its own events follow, under its own run.
    AgentCall {
        /// Position in the run.
        sequence: u32,
        /// The agent.
        agent: String,
        /// The arguments.
        #[schema(value_type = Object)]
        parameters: Value,
        /// The run of the agent.
        #[schema(value_type = String, format = "uuid")]
        child_run_id: RunId,
    },
    /// A call has its result.
    ToolResult {
        /// Position in the run.
        sequence: u32,
        /// The tool or the agent.
        tool: String,
        /// Did the call succeed?
        success: bool,
        /// The result.
        #[schema(value_type = Option<Object>, required = true)]
        data: Option<Value>,
        /// Why the call failed.
        #[schema(required = true)]
        error: Option<ToolFailure>,
        /// Time from sending to the answer.
        duration_ms: u64,
    },
    /// A message from gavel to the model.
    Notice {
        /// The limit that was reached, if any.
        #[schema(required = true)]
        reason: Option<StopReason>,
        /// The text.
        text: String,
    },
    /// A call requires approval.
    ApprovalRequired {
        /// The call.
        #[schema(value_type = String, format = "uuid")]
        action_id: ActionId,
        /// Position in the run.
        sequence: u32,
        /// The tool.
        tool: String,
        /// Exactly the arguments of the call.
        #[schema(value_type = Object)]
        parameters: Value,
        /// Why the call requires approval.
        reason: String,
    },
    /// An approval was resolved, or has expired.
    ApprovalResolved {
        /// The call.
        #[schema(value_type = String, format = "uuid")]
        action_id: ActionId,
        /// Position in the run.
        sequence: u32,
        /// The tool.
        tool: String,
        /// Was the call approved?
        approved: bool,
        /// Why it was not approved.
        #[schema(required = true)]
        reason: Option<String>,
    },
    /// The run waits for an approval, and continues when the approval is resolved.
    AwaitingConfirmation,
    /// The process that executed the run was shut down; another one continues it.
    HandedOver,
    /// Another process claimed the run, because the previous one died.
    Recovered,
    /// The run resumes a paused run.
    Resumed {
        /// The paused run.
        #[schema(value_type = String, format = "uuid")]
        from: RunId,
    },
    /// The run has ended. This is the last event.
    End {
        /// The final state of the run.
        run: Box<AgentRun>,
    },
}

/// A call that a model proposes.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct ProposedCall {
    /// Position in the run.
    pub sequence: u32,
    /// The tool, the agent, or the function that ends the run.
    pub tool: String,
    /// The arguments, as the model wrote them.
    #[schema(value_type = Object)]
    pub parameters: Value,
}

/// An event with the reader's position. Live events have no position of their own.
#[derive(Clone, Debug)]
pub struct PlacedEvent {
    /// The position to continue after this event.
    pub cursor: Cursor,
    /// What happened.
    pub event: RunEvent,
}

/// A reader of one run.
pub struct Watch {
    agents: Arc<Agents>,
    /// The runs that cannot be recorded, so that waiting for them is pointless.
    unrecorded: Arc<Unrecorded>,
    tenant: TenantId,
    root: RunId,
    /// The run, its child run, and so on.
    levels: Vec<Level>,
    /// The reader's position below the current level.
    ahead: VecDeque<u64>,
    live: Option<Receiver<LiveEvent>>,
    /// The text already sent of turns that are not in the journal yet, by run.
    under_way: HashMap<RunId, ToldTurn>,
    /// True if the execution stopped before these turns were recorded. The text already sent is then void.
    void: bool,
    /// The text of the current turn from before `live` was subscribed, until it is sent.
    said: Said,
    /// Has everything been read that was written, as far as `live` reports?
    caught_up: bool,
    /// The next wait for more, if there are no announcements.
    patience: Duration,
    /// How often in a row the store could not be read.
    faults: u32,
    /// Fires when the service stops: the reader continues at another process.
    stop: CancellationToken,
    ended: bool,
    /// Limits the concurrent store reads of all that wait for runs in this process.
    looks: Arc<Semaphore>,
}

/// The read position in one run.
struct Level {
    run: RunId,
    after: u64,
    read: VecDeque<(u64, Entry)>,
    calls: HashMap<ActionId, ProposedCall>,
}

impl Watch {
    pub(super) fn new(
        agents: Arc<Agents>,
        unrecorded: Arc<Unrecorded>,
        tenant: TenantId,
        run: RunId,
        cursor: Cursor,
        stop: CancellationToken,
        looks: Arc<Semaphore>,
    ) -> Self {
        Self {
            agents,
            unrecorded,
            tenant,
            root: run,
            levels: vec![Level::new(run)],
            ahead: cursor.0.into(),
            live: None,
            under_way: HashMap::new(),
            void: false,
            said: Said::default(),
            caught_up: false,
            patience: LOOK,
            faults: 0,
            stop,
            ended: false,
            looks,
        }
    }

    /// Has the reader already received the end? Then there is nothing more to read.
    ///
    /// # Errors
    /// The store is unavailable.
    pub async fn is_told(&self) -> Result<bool, AgentError> {
        // The end comes after the last entry.
        let Some(last) = self.ahead.front().and_then(|had| had.checked_sub(1)) else {
            return Ok(false);
        };
        let _look = self.looks.acquire().await;
        let run = self.agents.runs.get(&self.tenant, None, self.root).await?;
        if !run.is_some_and(|run| run.status.is_over()) {
            return Ok(false);
        }
        Ok(self.agents.runs.journal(self.root, last, 1).await?.is_empty())
    }

    /// The next event; `None` after the last one, and when the service stops.
    ///
    /// # Errors
    /// The store remains unavailable, or contains unreadable data; [`AgentError::Begun`] for a run that repeatedly
    /// cannot be recorded.
    pub async fn next(&mut self) -> Result<Option<PlacedEvent>, AgentError> {
        while !self.ended && !self.stop.is_cancelled() {
            if self.live.is_none() {
                self.join();
                self.caught_up = false;
            }
            match self.step().await {
                Ok(Some(told)) => {
                    self.faults = 0;
                    return Ok(Some(told));
                }
                Ok(None) => self.faults = 0,
                Err(AgentError::RecordUnavailable) if self.faults < ASKED_AGAIN => {
                    self.faults += 1;
                    let _ = timeout(BREATH * self.faults, self.stop.cancelled()).await;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// Handles one entry, or waits once for more.
    async fn step(&mut self) -> Result<Option<PlacedEvent>, AgentError> {
        if !self.caught_up && self.levels.last().is_some_and(|level| level.read.is_empty()) {
            let looks = Arc::clone(&self.looks);
            let _look = looks.acquire().await;
            self.read().await?;
        }
        let skip = self.ahead.front().copied();
        let cursor = self.levels.iter().map(|level| level.after);
        let mut cursor: Vec<u64> = cursor.collect();
        let Some(level) = self.levels.last_mut() else {
            self.ended = true;
            return Ok(None);
        };
        let run = level.run;
        // The next turn may differ from the one whose text was sent: the process was stopped, or this reader missed
        // events.
        if let Some((_, Entry::ModelTurn { turn, .. })) = level.read.front()
            && let Some(words) = self.under_way.remove(&run)
            && !words.begin(turn)
        {
            return Ok(Some(reset(cursor, run)));
        }
        if let Some((number, entry)) = level.read.pop_front() {
            self.patience = LOOK;
            level.after = number;
            level.learn(&entry);
            if matches!(entry, Entry::ModelFault { .. }) {
                self.under_way.remove(&run);
            }
            let child = match &entry {
                Entry::Started { child, .. } => *child,
                _ => None,
            };
            let event = level.event(entry);
            // Entries that the reader has already received only update the state. If its position is within another
            // run, reading continues there.
            let had = skip.is_some_and(|skip| number <= skip);
            if skip == Some(number) {
                self.ahead.pop_front();
            } else if !had {
                self.ahead.clear();
            }
            match child {
                Some(child) if !had || skip == Some(number) => self.levels.push(Level::new(child)),
                _ if skip == Some(number) => self.ahead.clear(),
                _ => {}
            }
            if had {
                return Ok(None);
            }
            if let Some(last) = cursor.last_mut() {
                *last = number;
            }
            return Ok(event.map(|what| PlacedEvent {
                cursor: Cursor(cursor),
                event: RunEvent { run_id: run, what },
            }));
        }
        if !self.caught_up
            && let Some(told) = self.look_up(&cursor).await?
        {
            return Ok(Some(told));
        }
        // Entries that `look_up` found come first.
        if self.caught_up {
            return Ok(self.wait(cursor).await);
        }
        Ok(None)
    }

    /// Fills the innermost level with available entries.
    async fn read(&mut self) -> Result<(), AgentError> {
        let Some(level) = self.levels.last_mut() else {
            return Ok(());
        };
        if level.read.is_empty() {
            let entries = entries(&self.agents, level.run, level.after).await?;
            for (_, entry) in &entries {
                if let Entry::Resumed { from } = entry {
                    level.learn_of(&self.agents, *from).await?;
                }
            }
            // The text of these turns was sent live before they were written, and late text would come after the turn.
            // So the received text is dropped, and the subscription is renewed.
            let turns = entries
                .iter()
                .any(|(_, entry)| matches!(entry, Entry::ModelTurn { .. }));
            level.read.extend(entries);
            if turns && self.live.is_some() {
                self.join();
            }
        }
        Ok(())
    }

    /// Subscribes to live events, with the text of the current turn so far. The text of a turn is complete before the
    /// turn is written.
    fn join(&mut self) {
        let joined = self.agents.running.live(self.root).map(|live| live.watch());
        (self.said, self.live) = joined.map_or_else(Default::default, |(said, live)| (said, Some(live)));
    }

    /// Nothing can be read now: has this level ended, or will more come?
    async fn look_up(&mut self, cursor: &[u64]) -> Result<Option<PlacedEvent>, AgentError> {
        let Some(run) = self.levels.last().map(|level| level.run) else {
            return Ok(None);
        };
        let looks = Arc::clone(&self.looks);
        let _look = looks.acquire().await;
        let row = self.agents.runs.get(&self.tenant, None, run).await?;
        let is_over = row.as_ref().is_some_and(|row| row.status.is_over());
        let waits = row
            .as_ref()
            .is_some_and(|row| row.status == RunStatus::AwaitingConfirmation);
        // Reads what was written between the two reads.
        self.read().await?;
        if self.levels.last().is_some_and(|level| !level.read.is_empty()) {
            return Ok(None);
        }
        match (row, self.levels.len()) {
            (Some(row), 1) if is_over => {
                self.ended = true;
                let last = cursor.last().copied().unwrap_or_default() + 1;
                // A reader that has already received the end has everything.
                let had = self.ahead.front().is_some_and(|ahead| *ahead >= last);
                let what = RunEventKind::End { run: Box::new(row) };
                return Ok((!had).then(|| PlacedEvent {
                    cursor: Cursor(vec![last]),
                    event: RunEvent { run_id: run, what },
                }));
            }
            (_, 2..) if is_over || self.caller_went_on().await? => {
                self.levels.pop();
                self.ahead.clear();
            }
            _ if !is_over && !waits && self.live.is_none() && self.unrecorded.is_hopeless(self.root) => {
                return Err(AgentError::Begun(self.root));
            }
            _ => self.caught_up = true,
        }
        Ok(None)
    }

    /// Has the parent run continued? Then this run has no further events, or was never created.
    async fn caller_went_on(&self) -> Result<bool, AgentError> {
        let Some(above) = self.levels.iter().rev().nth(1) else {
            return Ok(false);
        };
        if !above.read.is_empty() {
            return Ok(true);
        }
        Ok(!self.agents.runs.journal(above.run, above.after, 1).await?.is_empty())
    }

    /// Waits for more entries, or for the model's text.
    async fn wait(&mut self, cursor: Vec<u64>) -> Option<PlacedEvent> {
        // The next worker asks the model again.
        if self.void {
            let run = self.under_way.keys().next().copied();
            let Some(run) = run else {
                self.void = false;
                return None;
            };
            self.under_way.remove(&run);
            return Some(reset(cursor, run));
        }
        let stop = self.stop.clone();
        let Some(live) = &mut self.live else {
            let begins = self.agents.running.begins(self.root);
            if self.agents.running.live(self.root).is_none() {
                tokio::select! {
                    _ = timeout(self.patience, begins.wait()) => {}
                    () = stop.cancelled() => {}
                }
            }
            self.patience = (self.patience * 2).min(SELDOM);
            self.caught_up = false;
            return None;
        };
        if let Some(what) = said_before(&mut self.said) {
            let told = self.under_way.entry(self.root).or_default();
            match &what {
                RunEventKind::Thought { text } => told.add_thought(text),
                RunEventKind::Delta { text } => told.add(text),
                _ => {}
            }
            return Some(PlacedEvent {
                cursor: Cursor(cursor),
                event: RunEvent {
                    run_id: self.root,
                    what,
                },
            });
        }
        let heard = tokio::select! {
            heard = timeout(TOLD, live.recv()) => heard,
            () = stop.cancelled() => return None,
        };
        let (run_id, what) = match heard {
            Ok(Ok(LiveEvent::Delta(run, text))) => {
                self.under_way.entry(run).or_default().add(&text);
                (run, RunEventKind::Delta { text: text.to_string() })
            }
            Ok(Ok(LiveEvent::Thought(run, text))) => {
                self.under_way.entry(run).or_default().add_thought(&text);
                (run, RunEventKind::Thought { text: text.to_string() })
            }
            Ok(Ok(LiveEvent::Reset(run))) => {
                self.under_way.remove(&run);
                (run, RunEventKind::Reset)
            }
            Ok(Err(RecvError::Closed)) => {
                // This process stopped executing the run, and may claim it again.
                self.live = None;
                self.void = !self.under_way.is_empty();
                self.caught_up = false;
                tokio::time::sleep(Duration::from_millis(20)).await;
                return None;
            }
            Ok(Ok(LiveEvent::Written) | Err(RecvError::Lagged(_))) | Err(_) => {
                self.caught_up = false;
                return None;
            }
        };
        Some(PlacedEvent {
            cursor: Cursor(cursor),
            event: RunEvent { run_id, what },
        })
    }
}

/// The text of a turn from before a watcher subscribed: its thoughts, then its text, each once.
fn said_before(said: &mut Said) -> Option<RunEventKind> {
    let thoughts = std::mem::take(&mut said.thoughts);
    if !thoughts.is_empty() {
        return Some(RunEventKind::Thought { text: thoughts });
    }
    let words = std::mem::take(&mut said.words);
    (!words.is_empty()).then_some(RunEventKind::Delta { text: words })
}

/// The text sent of the current turn is void.
fn reset(cursor: Vec<u64>, run_id: RunId) -> PlacedEvent {
    PlacedEvent {
        cursor: Cursor(cursor),
        event: RunEvent {
            run_id,
            what: RunEventKind::Reset,
        },
    }
}

/// The next page of a journal.
pub(super) async fn entries(agents: &Agents, run: RunId, after: u64) -> Result<Vec<(u64, Entry)>, AgentError> {
    let stored = agents.runs.journal_within(run, after, PAGE, PAGE_BYTES).await?;
    let read = stored.iter().map(|stored| match log::read(stored) {
        Ok(entry) => Ok((stored.number, entry)),
        Err(error) => {
            tracing::error!(run_id = %run, %error, "the journal of a run cannot be read");
            Err(AgentError::RecordUnavailable)
        }
    });
    read.collect()
}

/// Waits for an announcement of a run that this process executes. Otherwise waits until execution starts, or for a time
/// that doubles with each call.
pub(super) async fn pause(live: &mut Option<Receiver<LiveEvent>>, begins: Begins<'_>, patience: &mut Duration) {
    let Some(receiver) = live else {
        let _ = timeout(*patience, begins.wait()).await;
        *patience = (*patience * 2).min(SELDOM);
        return;
    };
    let written = async {
        loop {
            match receiver.recv().await {
                Ok(LiveEvent::Written) | Err(RecvError::Lagged(_)) => return true,
                Ok(LiveEvent::Delta(..) | LiveEvent::Thought(..) | LiveEvent::Reset(_)) => {}
                Err(RecvError::Closed) => return false,
            }
        }
    };
    if let Ok(false) = timeout(TOLD, written).await {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

impl Level {
    fn new(run: RunId) -> Self {
        Self {
            run,
            after: 0,
            read: VecDeque::new(),
            calls: HashMap::new(),
        }
    }

    /// Learns the calls of the resumed runs: the settlement of these calls, and the rest of a flow's open step, are
    /// events of this run.
    async fn learn_of(&mut self, agents: &Agents, from: RunId) -> Result<(), AgentError> {
        let mut at = Some(from);
        while let Some(run) = at.take() {
            let mut after = 0;
            loop {
                let page = entries(agents, run, after).await?;
                if page.is_empty() {
                    break;
                }
                for (number, entry) in &page {
                    after = *number;
                    self.learn(entry);
                    self.forget(entry);
                    if let Entry::Resumed { from } = entry {
                        at = Some(*from);
                    }
                }
            }
        }
        Ok(())
    }

    fn learn(&mut self, entry: &Entry) {
        for call in entry.calls() {
            self.calls.insert(call.id, proposed(call));
        }
        // The sent arguments are the allowed ones.
        if let Entry::Decided {
            call,
            decision: PolicyDecision::Allow { arguments, .. },
        } = entry
            && let Some(known) = self.calls.get_mut(call)
        {
            known.parameters = serde_json::from_str(arguments.get()).unwrap_or_default();
        }
    }

    /// A successful call has no further events in the resuming run; an in-doubt call may still be settled.
    fn forget(&mut self, entry: &Entry) {
        if let Entry::Result { call, result } = entry
            && result.outcome.is_ok()
        {
            self.calls.remove(call);
        }
    }

    /// The event of an entry, if it has one.
    fn event(&mut self, entry: Entry) -> Option<RunEventKind> {
        Some(match entry {
            Entry::User(text) => RunEventKind::Input { text },
            Entry::ModelTurn { turn, calls } => RunEventKind::Turn {
                text: turn.text(),
                thoughts: turn
                    .parts
                    .iter()
                    .filter_map(|part| match part {
                        Part::Thought(text) => Some(text.clone()),
                        Part::Text(_) | Part::Call(_) | Part::Other => None,
                    })
                    .collect(),
                calls: calls.iter().map(proposed).collect(),
                model: turn.model,
                usage: turn.usage,
            },
            Entry::ModelFault { kind, .. } => RunEventKind::ModelFault { fault: kind.as_str() },
            Entry::Step { step, round, call } => RunEventKind::Step {
                step,
                round,
                agent: call.call.name,
            },
            Entry::Started { call, child, .. } => self.started(call, child)?,
            Entry::Result { call, result } => self.result(call, &result),
            Entry::Notice(text) | Entry::OutputDue(text) => RunEventKind::Notice { reason: None, text },
            Entry::SoftStop { reason, notice, .. } => RunEventKind::Notice {
                reason: Some(reason),
                text: notice,
            },
            Entry::Halted => RunEventKind::HandedOver,
            Entry::Suspended => RunEventKind::AwaitingConfirmation,
            Entry::Recovered => RunEventKind::Recovered,
            Entry::Resumed { from } => RunEventKind::Resumed { from },
            Entry::Decided {
                call,
                decision: PolicyDecision::RequireApproval { arguments, reason, .. },
            } => self.approval_required(call, &arguments, reason)?,
            Entry::ApprovalResolved {
                call, approved, reason, ..
            } => self.approval_resolved(call, approved, reason),
            Entry::Decided { .. } => return None,
        })
    }

    fn approval_required(&self, call: ActionId, arguments: &RawValue, reason: String) -> Option<RunEventKind> {
        let ProposedCall { sequence, tool, .. } = self.calls.get(&call).cloned()?;
        Some(RunEventKind::ApprovalRequired {
            action_id: call,
            sequence,
            tool,
            parameters: serde_json::from_str(arguments.get()).unwrap_or_default(),
            reason,
        })
    }

    fn approval_resolved(&self, call: ActionId, approved: bool, reason: Option<String>) -> RunEventKind {
        let known = self.calls.get(&call);
        let (sequence, tool) = known.map_or((0, String::new()), |call| (call.sequence, call.tool.clone()));
        RunEventKind::ApprovalResolved {
            action_id: call,
            sequence,
            tool,
            approved,
            reason,
        }
    }

    fn started(&self, call: ActionId, child: Option<RunId>) -> Option<RunEventKind> {
        let ProposedCall {
            sequence,
            tool,
            parameters,
        } = self.calls.get(&call).cloned()?;
        Some(match child {
            Some(child_run_id) => RunEventKind::AgentCall {
                sequence,
                agent: tool,
                parameters,
                child_run_id,
            },
            None => RunEventKind::ToolCall {
                sequence,
                tool,
                parameters,
            },
        })
    }

    /// The last event of a call.
    fn result(&mut self, call: ActionId, result: &CallResult) -> RunEventKind {
        let known = self.calls.remove(&call);
        let (sequence, tool) = known.map_or((0, String::new()), |call| (call.sequence, call.tool));
        let (data, error) = match &result.outcome {
            Ok(data) => (serde_json::from_str(data.get()).ok(), None),
            Err(failure) => (
                None,
                Some(ToolFailure {
                    code: failure.code.as_str(),
                    message: failure.for_callers().into_owned(),
                }),
            ),
        };
        RunEventKind::ToolResult {
            sequence,
            tool,
            success: error.is_none(),
            data,
            error,
            duration_ms: u64::try_from(result.duration_us / 1000).unwrap_or(0),
        }
    }
}

fn proposed(call: &Proposed) -> ProposedCall {
    ProposedCall {
        sequence: call.sequence,
        tool: tool_name(call).to_string(),
        parameters: serde_json::from_str(call.call.args.get()).unwrap_or_default(),
    }
}
