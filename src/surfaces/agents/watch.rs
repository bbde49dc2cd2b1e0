//! What a run does, told from its journal: from the beginning or from where a reader left off, on whatever process the
//! run is worked on. The words of a turn as they come are told where the run is worked on by this one.

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

/// Entries read at once, and their bytes but for the last: a reader that takes nothing holds no more of a journal than this.
const PAGE: u32 = 32;
const PAGE_BYTES: usize = 64 << 10;
/// Between two looks for more at a run that this process works on: it tells what it has written, and the looks are for what got
/// lost on the way.
pub(super) const TOLD: Duration = Duration::from_secs(5);
/// Between two looks for more, where nobody tells: at first, and once nothing has come for a while.
pub(super) const LOOK: Duration = Duration::from_millis(300);
pub(super) const SELDOM: Duration = Duration::from_secs(1);
/// How often in a row a record that cannot be read is asked again, after a pause that grows by as much each time: some seconds
/// in all, in which a busy database finds its breath and one that is begun anew is there again.
const ASKED_AGAIN: u32 = 6;
const BREATH: Duration = Duration::from_millis(250);

/// Where a reader is: the number of the last entry told, and where that was a call of an agent, the number within that
/// agent's run, and so on. Written with dots; the id of an event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cursor(Vec<u64>);

impl Cursor {
    /// Reads `12`, `12.5`; `None` for what is none.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        // Digits alone: a sign would be taken by the parser.
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
    /// The run: the one that is watched, or one that it called.
    #[schema(value_type = String, format = "uuid")]
    pub run_id: RunId,
    /// What happened.
    #[serde(flatten)]
    pub what: RunEventKind,
}

/// What happened.
#[derive(Clone, Debug, Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum RunEventKind {
    /// The task, as the model is told it.
    Input {
        /// The words.
        text: String,
    },
    /// More words of the model; they come whole with `turn`.
    Delta {
        /// The words.
        text: String,
    },
    /// More of the model's thinking, no part of its answer; it comes whole with `turn`.
    Thought {
        /// The words.
        text: String,
    },
    /// The words and thoughts of this turn so far are void: the model is asked again.
    Reset,
    /// A turn of the model is complete.
    Turn {
        /// Its words.
        text: String,
        /// What it tells of its thinking.
        thoughts: Vec<String>,
        /// Calls that it proposes.
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
    /// A step of a flow begins.
    Step {
        /// Which, from 0.
        step: u32,
        /// In which round, from 1.
        round: u32,
        /// Who does it.
        agent: String,
    },
    /// A tool is called.
    ToolCall {
        /// Place in the run.
        sequence: u32,
        /// The tool.
        tool: String,
        /// What it is given.
        #[schema(value_type = Object)]
        parameters: Value,
    },
    /// An agent is called; what it does follows, under its own run.
    AgentCall {
        /// Place in the run.
        sequence: u32,
        /// The agent.
        agent: String,
        /// What it is given.
        #[schema(value_type = Object)]
        parameters: Value,
        /// Its run.
        #[schema(value_type = String, format = "uuid")]
        child_run_id: RunId,
    },
    /// A call has its result.
    ToolResult {
        /// Place in the run.
        sequence: u32,
        /// The tool or the agent.
        tool: String,
        /// Did it do its job?
        success: bool,
        /// What it answered.
        #[schema(value_type = Option<Object>, required = true)]
        data: Option<Value>,
        /// Why it did not.
        #[schema(required = true)]
        error: Option<ToolFailure>,
        /// From sending to the answer.
        duration_ms: u64,
    },
    /// A word from gavel to the model.
    Notice {
        /// The limit that is reached, where one is.
        #[schema(required = true)]
        reason: Option<StopReason>,
        /// The words.
        text: String,
    },
    /// A person is asked whether a call may run.
    ApprovalRequired {
        /// The call.
        #[schema(value_type = String, format = "uuid")]
        action_id: ActionId,
        /// Place in the run.
        sequence: u32,
        /// The tool.
        tool: String,
        /// Exactly what it would be given.
        #[schema(value_type = Object)]
        parameters: Value,
        /// Why it needs leave.
        reason: String,
    },
    /// A person has answered, or nobody did in time.
    ApprovalResolved {
        /// The call.
        #[schema(value_type = String, format = "uuid")]
        action_id: ActionId,
        /// Place in the run.
        sequence: u32,
        /// The tool.
        tool: String,
        /// May it run?
        approved: bool,
        /// Why not.
        #[schema(required = true)]
        reason: Option<String>,
    },
    /// The run waits for a person; it goes on when they have answered.
    AwaitingConfirmation,
    /// The process that worked on the run was stopped in order; another one goes on.
    HandedOver,
    /// Another process took the run up, since the one before had died.
    Recovered,
    /// The run goes on with one that was paused.
    Resumed {
        /// That one.
        #[schema(value_type = String, format = "uuid")]
        from: RunId,
    },
    /// The run is over; the last event.
    End {
        /// How it came out.
        run: Box<AgentRun>,
    },
}

/// A call that a model proposes.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct ProposedCall {
    /// Place in the run.
    pub sequence: u32,
    /// The tool, the agent, or the function by which the run ends.
    pub tool: String,
    /// As the model wrote them.
    #[schema(value_type = Object)]
    pub parameters: Value,
}

/// An event and where a reader is with it; what is not kept has no place of its own.
#[derive(Clone, Debug)]
pub struct PlacedEvent {
    /// To be handed in to go on after it.
    pub cursor: Cursor,
    /// What happened.
    pub event: RunEvent,
}

/// A reader of one run.
pub struct Watch {
    agents: Arc<Agents>,
    /// Which runs it is of no use to wait for.
    unrecorded: Arc<Unrecorded>,
    tenant: TenantId,
    root: RunId,
    /// The run, the run it called, and so on.
    levels: Vec<Level>,
    /// Where the reader was, below the level that is looked at.
    ahead: VecDeque<u64>,
    live: Option<Receiver<LiveEvent>>,
    /// What was told of turns that are not in the journal yet, by their run.
    under_way: HashMap<RunId, ToldTurn>,
    /// Did the work end before these turns were recorded? Then what was told of them is void.
    void: bool,
    /// What was said of the turn under way before `live` was listened to, until it is told.
    said: Said,
    /// Is everything read that was written, as far as `live` tells?
    caught_up: bool,
    /// The next wait for more, where nobody tells.
    patience: Duration,
    /// How often in a row the record could not be read.
    faults: u32,
    /// Fires when the service ends: the reader goes on elsewhere.
    stop: CancellationToken,
    ended: bool,
    /// Looks at the store at once, of all that wait for runs in this process.
    looks: Arc<Semaphore>,
}

/// One run that is read.
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

    /// Has the reader had the end already? Then there is nothing to come back for.
    ///
    /// # Errors
    /// The store is away.
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

    /// The next event; `None` after the last, and when the service ends.
    ///
    /// # Errors
    /// The store is away and stays so, or holds what cannot be read; [`AgentError::Begun`] of a run that again and again cannot be
    /// recorded.
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

    /// One entry, or one wait for more.
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
        // The turn that is told next may be another one than that whose words were told: the process was stopped, or fell behind.
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
            // What the reader has had already is only learned from; where it was within another run, it goes on there.
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
        // Whatever `look_up` found is told first.
        if self.caught_up {
            return Ok(self.wait(cursor).await);
        }
        Ok(None)
    }

    /// Fills the innermost level with what there is.
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
            // The words of these turns were told before they were written, and what is told late would stand after the turn. So what
            // was heard of them is let go, and what is said since is heard anew.
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

    /// Listens from now on, with the words so far of the turn that is under way. A turn's words are over before it is written.
    fn join(&mut self) {
        let joined = self.agents.running.live(self.root).map(|live| live.watch());
        (self.said, self.live) = joined.map_or_else(Default::default, |(said, live)| (said, Some(live)));
    }

    /// There is nothing to read now: is this level over, or is there more to come?
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
        // What was written between the two looks.
        self.read().await?;
        if self.levels.last().is_some_and(|level| !level.read.is_empty()) {
            return Ok(None);
        }
        match (row, self.levels.len()) {
            (Some(row), 1) if is_over => {
                self.ended = true;
                let last = cursor.last().copied().unwrap_or_default() + 1;
                // Who had the end already has everything.
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

    /// Has the run above this one gone on? Then this one will say no more, if it ever was there.
    async fn caller_went_on(&self) -> Result<bool, AgentError> {
        let Some(above) = self.levels.iter().rev().nth(1) else {
            return Ok(false);
        };
        if !above.read.is_empty() {
            return Ok(true);
        }
        Ok(!self.agents.runs.journal(above.run, above.after, 1).await?.is_empty())
    }

    /// Waits for more, or for the model's words.
    async fn wait(&mut self, cursor: Vec<u64>) -> Option<PlacedEvent> {
        // Whoever works on the run next asks the model again.
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
                // It was let go of, and may be taken up again.
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

/// What was said of a turn before a watcher came: its thoughts, then its words, each once.
fn said_before(said: &mut Said) -> Option<RunEventKind> {
    let thoughts = std::mem::take(&mut said.thoughts);
    if !thoughts.is_empty() {
        return Some(RunEventKind::Thought { text: thoughts });
    }
    let words = std::mem::take(&mut said.words);
    (!words.is_empty()).then_some(RunEventKind::Delta { text: words })
}

/// What was told of the turn under way is void.
fn reset(cursor: Vec<u64>, run_id: RunId) -> PlacedEvent {
    PlacedEvent {
        cursor: Cursor(cursor),
        event: RunEvent {
            run_id,
            what: RunEventKind::Reset,
        },
    }
}

/// What comes next in a journal, a page of it.
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

/// Waits for a word of a run that this process works on; else until it begins to, or for a while, which is longer the next time.
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

    /// Calls of the runs that this one goes on with: what a person says of them, and what becomes of a flow's open step, is
    /// told here.
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
        // What is sent is what was allowed.
        if let Entry::Decided {
            call,
            decision: PolicyDecision::Allow { arguments, .. },
        } = entry
            && let Some(known) = self.calls.get_mut(call)
        {
            known.parameters = serde_json::from_str(arguments.get()).unwrap_or_default();
        }
    }

    /// A call that has succeeded is not told of by the run that goes on with this one; of one in doubt a person may say more.
    fn forget(&mut self, entry: &Entry) {
        if let Entry::Result { call, result } = entry
            && result.outcome.is_ok()
        {
            self.calls.remove(call);
        }
    }

    /// What of an entry is told.
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

    /// The last that is told of a call.
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
