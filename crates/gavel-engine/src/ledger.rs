//! The state of each call of a run: the only projection of the journal. Every query about a call is a method here.

use std::sync::Arc;

use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::projection::tool_name;
use crate::domain::action::{ActionStatus, Details};
use crate::domain::canonical;
use crate::domain::ids::{ActionId, GrantId, RunId};
use crate::domain::journal::{CallFailure, CallNews, CallResult, Entry, PolicyDecision, Proposed, Target};
use crate::domain::nesting;
use crate::domain::policy::{DecidedBy, Effect, Lost};
use crate::domain::tool::{FailureCode, Tool};
use crate::ports::records::PolicyOutcome;

/// The calls of a journal, in the order in which they were proposed.
#[derive(Clone, Copy, Debug)]
pub struct Ledger<'a> {
    entries: &'a [Entry],
    calls: &'a [State],
}

/// The state of a call: the positions of the entries in the journal that determine it.
#[derive(Clone, Copy, Debug)]
pub(super) struct State {
    id: ActionId,
    /// The entry that proposed it, and its place there.
    proposed: (usize, usize),
    turn: u32,
    step: Option<(u32, u32)>,
    decision: Option<usize>,
    request: Option<usize>,
    allowed: Option<usize>,
    policy: Option<usize>,
    resolution: Option<usize>,
    started: Option<Started>,
    child: Option<RunId>,
    result: Option<usize>,
}

/// Adds an entry at this position to the states of the calls.
pub(super) fn add(calls: &mut Vec<State>, entries: &[Entry], at: usize) {
    let entry = &entries[at];
    let turn = calls.last().map_or(0, |last| last.turn) + 1;
    let new = entry.calls().iter().enumerate().map(|(place, call)| State {
        step: entry.step(),
        ..State::new(call.id, (at, place), turn)
    });
    calls.extend(new);
    // Usually a call of the last turn.
    if let Some((id, news)) = entry.news()
        && let Some(call) = calls.iter_mut().rev().find(|call| call.id == id)
    {
        match news {
            CallNews::Decided(decision) => call.decided(at, decision, entries),
            CallNews::Resolved => call.resolution = Some(at),
            CallNews::Started { at_us, child } => call.start(at, at_us, child),
            CallNews::Result(_) => call.result = Some(at),
        }
    }
}

impl State {
    fn new(id: ActionId, proposed: (usize, usize), turn: u32) -> Self {
        Self {
            id,
            proposed,
            turn,
            step: None,
            decision: None,
            request: None,
            allowed: None,
            policy: None,
            resolution: None,
            started: None,
            child: None,
            result: None,
        }
    }

    fn decided(&mut self, at: usize, decision: &PolicyDecision, entries: &[Entry]) {
        self.decision = Some(at);
        let asked = |at: &usize| matches!(decision_at(entries, *at), Some(PolicyDecision::RequireApproval { .. }));
        // An approver has approved the call since, so the effect remains "requires approval".
        let stays =
            matches!(decision, PolicyDecision::Allow { by: None, .. }) && self.policy.as_ref().is_some_and(asked);
        if !stays {
            self.policy = Some(at);
        }
        match decision {
            PolicyDecision::Allow { .. } => self.allowed = Some(at),
            PolicyDecision::RequireApproval { .. } => self.request = Some(at),
            PolicyDecision::Refuse { .. } => {}
        }
    }

    fn start(&mut self, at: usize, at_us: i64, child: Option<RunId>) {
        let (first_us, first_at) = self
            .started
            .map_or((at_us, at), |started| (started.first_us, started.first_at));
        let again = self.started.filter(|_| child == self.child);
        self.started = Some(Started {
            first_us,
            first_at,
            last_us: at_us,
            at,
            count: again.map_or(1, |started| started.count + 1),
        });
        self.child = child.or(self.child);
    }
}

fn decision_at(entries: &[Entry], at: usize) -> Option<&PolicyDecision> {
    match entries.get(at)?.news()? {
        (_, CallNews::Decided(decision)) => Some(decision),
        _ => None,
    }
}

/// A call and its state.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// The model's call.
    pub proposed: &'a Proposed,
    /// The entry that proposed it.
    source: (usize, &'a Entry),
    /// The number of its turn, from 1.
    pub turn: u32,
    /// For a flow: its step, from 0, and its round, from 1.
    pub step: Option<(u32, u32)>,
    /// The last decision of the policy.
    decision: Option<&'a PolicyDecision>,
    /// The last decision that required an approval.
    request: Option<&'a PolicyDecision>,
    /// The arguments that were allowed last.
    allowed: Option<&'a Arc<RawValue>>,
    /// What the policy decided, over all decisions.
    policy: Option<(Effect, &'a [DecidedBy], &'a [Lost])>,
    resolution: Option<&'a Entry>,
    started: Option<Started>,
    child: Option<RunId>,
    /// The last result, and its position in the journal. A settled result replaces an in-doubt one.
    result: Option<(usize, &'a CallResult)>,
}

/// The starts of a call.
#[derive(Clone, Copy, Debug)]
struct Started {
    /// The time of the first one, in microseconds since the epoch.
    first_us: i64,
    /// The position of the first one in the journal.
    first_at: usize,
    /// The time of the last one.
    last_us: i64,
    /// The position of the last one in the journal.
    at: usize,
    /// How often it was started, with the same child run.
    count: usize,
}

/// The resolution of a call's approval request.
#[derive(Clone, Debug)]
pub enum Resolution {
    /// The call may run, with exactly these arguments.
    Approved(Arc<RawValue>),
    /// The call must not run: code and message for the model.
    Refused(FailureCode, String),
}

impl<'a> Ledger<'a> {
    pub(super) fn new(entries: &'a [Entry], calls: &'a [State]) -> Self {
        Self { entries, calls }
    }

    fn view(&self, state: &State) -> Option<Call<'a>> {
        let (at, place) = state.proposed;
        let entries = self.entries;
        let decision = |at: usize| decision_at(entries, at);
        let source = entries.get(at)?;
        Some(Call {
            source: (at, source),
            proposed: source.calls().get(place)?,
            turn: state.turn,
            step: state.step,
            decision: state.decision.and_then(decision),
            request: state.request.and_then(decision),
            allowed: state.allowed.and_then(decision).and_then(|decision| match decision {
                PolicyDecision::Allow { arguments, .. } => Some(arguments),
                PolicyDecision::RequireApproval { .. } | PolicyDecision::Refuse { .. } => None,
            }),
            policy: state.policy.and_then(|at| {
                let (effect, by) = match decision(at)? {
                    PolicyDecision::Allow { by, .. } => (Effect::Allow, by.as_slice()),
                    PolicyDecision::RequireApproval { by, .. } => (Effect::RequireApproval, by.as_slice()),
                    PolicyDecision::Refuse { by, .. } => (Effect::Deny, by.as_slice()),
                };
                Some((effect, by, entries.get(at)?.lost()))
            }),
            resolution: state.resolution.and_then(|at| entries.get(at)),
            started: state.started,
            child: state.child,
            result: state.result.and_then(|at| Some((at, entries.get(at)?.result()?.1))),
        })
    }

    /// All calls, in order.
    pub fn calls(self) -> impl DoubleEndedIterator<Item = Call<'a>> {
        self.calls.iter().filter_map(move |state| self.view(state))
    }

    /// The calls of tools and agents: all but the functions with which the model ends a run.
    pub fn of_tools(self) -> impl DoubleEndedIterator<Item = Call<'a>> {
        self.calls()
            .filter(|call| !matches!(call.proposed.target, Target::Verdict(_)))
    }

    /// The calls of each turn that has some, in order. What code called is of no turn: the model must not get a response to
    /// it.
    pub fn turns(self) -> impl Iterator<Item = Vec<Call<'a>>> {
        let turns = self.calls.chunk_by(|a, b| a.turn == b.turn);
        let of_model = turns.filter(|calls| calls.iter().all(|call| call.step.is_none()));
        of_model.map(move |calls| calls.iter().filter_map(|state| self.view(state)).collect())
    }

    /// The last step of a flow, with its number and round.
    #[must_use]
    pub fn last_step(self) -> Option<(Call<'a>, u32, u32)> {
        let state = self.calls.iter().rev().find(|call| call.step.is_some())?;
        let (step, round) = state.step?;
        Some((self.view(state)?, step, round))
    }

    /// The call with this id.
    #[must_use]
    pub fn call(self, id: ActionId) -> Option<Call<'a>> {
        let state = self.calls.iter().rev().find(|call| call.id == id)?;
        self.view(state)
    }
}

impl<'a> Call<'a> {
    /// Its id.
    #[must_use]
    pub fn id(self) -> ActionId {
        self.proposed.id
    }

    /// The position in the journal of the entry that proposed it.
    #[must_use]
    pub fn proposed_at(self) -> usize {
        self.source.0
    }

    /// What the model said beside it: the text of its turn, with the first call of that turn.
    #[must_use]
    pub fn words(self) -> Option<String> {
        let (turn, calls) = self.source.1.turn()?;
        let is_first = calls.first().is_some_and(|first| first.id == self.id());
        is_first.then(|| turn.text()).filter(|text| !text.trim().is_empty())
    }

    /// The model that proposed it.
    #[must_use]
    pub fn model(self) -> Option<&'a str> {
        self.source.1.turn().map(|(turn, _)| turn.model())
    }

    /// Its status, as users see it.
    #[must_use]
    pub fn status(self) -> ActionStatus {
        match self.result().map(|result| &result.outcome) {
            _ if self.is_in_progress() => ActionStatus::Executing,
            Some(Ok(_)) => ActionStatus::Completed,
            Some(Err(failure)) => match failure.code {
                FailureCode::InDoubt => ActionStatus::InDoubt,
                FailureCode::Rejected => ActionStatus::Rejected,
                FailureCode::Expired => ActionStatus::Expired,
                _ => ActionStatus::Failed,
            },
            None if self.was_approved() == Some(true) => ActionStatus::Approved,
            None if self.awaits_approval() => ActionStatus::AwaitingConfirmation,
            None => ActionStatus::Planned,
        }
    }

    /// The tool's own name, or the model's name for an unknown tool.
    #[must_use]
    pub fn name(self) -> Arc<str> {
        tool_name(self.proposed)
    }

    /// Its tool, if it is one of the toolset.
    #[must_use]
    pub fn tool(self) -> Option<&'a Arc<Tool>> {
        self.proposed.target.tool()
    }

    /// The server of its tool, also of one that is no longer offered.
    #[must_use]
    pub fn server(self) -> Option<&'a Arc<str>> {
        match &self.proposed.target {
            Target::Tool(tool) => Some(&tool.server),
            Target::Unresolved(tool) => Some(&tool.server),
            Target::Agent(_) | Target::Verdict(_) | Target::Unknown => None,
        }
    }

    /// Does its tool have side effects?
    #[must_use]
    pub fn has_side_effect(self) -> bool {
        match &self.proposed.target {
            Target::Tool(tool) => tool.side_effect,
            Target::Unresolved(tool) => tool.side_effect,
            Target::Agent(_) | Target::Verdict(_) | Target::Unknown => false,
        }
    }

    /// The arguments that were allowed.
    #[must_use]
    pub fn allowed(self) -> Option<&'a Arc<RawValue>> {
        self.allowed
    }

    /// The allowed arguments, or else the model's own. Arguments that nest too deeply are left out, since many readers
    /// could not parse them.
    #[must_use]
    pub fn arguments(self) -> Arc<RawValue> {
        let given = &self.proposed.call.args;
        match self.allowed {
            Some(allowed) => Arc::clone(allowed),
            None if nesting::within(given.get().as_bytes(), nesting::MAX_LEVELS) => Arc::from(given.clone()),
            None => Arc::from(canonical::to_raw(&Value::Object(Map::new()))),
        }
    }

    /// The arguments that the policy last accepted, allowed or to be approved.
    #[must_use]
    pub fn accepted(self) -> Option<&'a Arc<RawValue>> {
        match self.decision {
            Some(PolicyDecision::Refuse { .. }) | None => self.allowed.or_else(|| self.requested()),
            Some(PolicyDecision::Allow { arguments, .. } | PolicyDecision::RequireApproval { arguments, .. }) => {
                Some(arguments)
            }
        }
    }

    /// The arguments for which an approval was requested.
    #[must_use]
    pub fn requested(self) -> Option<&'a Arc<RawValue>> {
        match self.request {
            Some(PolicyDecision::RequireApproval { arguments, .. }) => Some(arguments),
            _ => None,
        }
    }

    /// What the approver sees, if an approval was requested.
    #[must_use]
    pub fn details(self) -> Option<&'a Details> {
        match self.request {
            Some(PolicyDecision::RequireApproval { details, .. }) => Some(details),
            _ => None,
        }
    }

    /// Does it wait for an approval that is not resolved?
    #[must_use]
    pub fn awaits_approval(self) -> bool {
        self.request.is_some() && self.resolution.is_none()
    }

    /// Does its last decision require an approval, and has it no result?
    #[must_use]
    pub fn requires_approval(self) -> bool {
        matches!(self.decision, Some(PolicyDecision::RequireApproval { .. })) && self.is_open()
    }

    /// The resolution of its approval request.
    #[must_use]
    pub fn resolution(self) -> Option<Resolution> {
        let Some(Entry::ApprovalResolved {
            approved, by, reason, ..
        }) = self.resolution
        else {
            return None;
        };
        Some(match (approved, by, self.requested()) {
            (true, _, Some(arguments)) => Resolution::Approved(Arc::clone(arguments)),
            (true, _, None) => {
                let message = "no approval was requested for this call".to_owned();
                Resolution::Refused(FailureCode::Denied, message)
            }
            (false, Some(_), _) => {
                let why = reason
                    .as_deref()
                    .map_or_else(String::new, |reason| format!(": {reason}"));
                Resolution::Refused(FailureCode::Rejected, format!("the user rejected this call{why}"))
            }
            (false, None, _) => {
                let why = reason.as_deref().unwrap_or("its approval expired");
                Resolution::Refused(FailureCode::Expired, format!("it was not run: {why}"))
            }
        })
    }

    /// Whether the approver approved it; `None` before the request is resolved.
    #[must_use]
    pub fn was_approved(self) -> Option<bool> {
        match self.resolution {
            Some(Entry::ApprovalResolved { approved, .. }) => Some(*approved),
            _ => None,
        }
    }

    /// The grant by which its last decision allowed it. An earlier grant may have been revoked since.
    #[must_use]
    pub fn grant(self) -> Option<GrantId> {
        match self.decision {
            Some(PolicyDecision::Allow {
                by: Some(DecidedBy::Grant(grant)),
                ..
            }) => GrantId::parse(grant),
            _ => None,
        }
    }

    /// Does it run by an approval or a grant, and so only as its tool was then?
    #[must_use]
    pub fn is_by_user(self) -> bool {
        self.resolution.is_some() || self.grant().is_some()
    }

    /// Is it an action: a side effect, or a call that an approval or a grant was needed for?
    #[must_use]
    pub fn is_action(self) -> bool {
        self.has_side_effect() || self.request.is_some() || self.grant().is_some()
    }

    /// What the policy decided, as the log records it; `None` if the policy was not asked.
    #[must_use]
    pub fn policy(self) -> Option<PolicyOutcome> {
        let (effect, by, lost) = self.policy?;
        let by: Vec<_> = by.iter().map(ToString::to_string).collect();
        Some(PolicyOutcome {
            effect,
            by: (!by.is_empty()).then(|| by.join(", ").into()),
            lost: lost.to_vec(),
        })
    }

    /// Was it started, by this process or an earlier one?
    #[must_use]
    pub fn was_started(self) -> bool {
        self.started.is_some()
    }

    /// Was it started by one of the entries before `at`?
    #[must_use]
    pub fn was_started_before(self, at: usize) -> bool {
        self.started.is_some_and(|started| started.first_at < at)
    }

    /// When it was started first, in microseconds since the epoch.
    #[must_use]
    pub fn first_started_us(self) -> Option<i64> {
        self.started.map(|started| started.first_us)
    }

    /// When it was started last, in microseconds since the epoch.
    #[must_use]
    pub fn last_started_us(self) -> Option<i64> {
        self.started.map(|started| started.last_us)
    }

    /// From its last start to its result, in microseconds.
    #[must_use]
    pub fn duration_us(self) -> Option<i64> {
        self.result()
            .filter(|_| self.was_started())
            .map(|result| result.duration_us)
    }

    /// When it was last sent, in microseconds since the epoch. `None` if it was not started, or started but not sent:
    /// the server was unavailable, or no time was left.
    #[must_use]
    pub fn sent_us(self) -> Option<i64> {
        let started = self.started?;
        let was_not_sent = |(at, result): (usize, &CallResult)| at > started.at && !result.sent;
        (!self.result.is_some_and(was_not_sent)).then_some(started.last_us)
    }

    /// Its last start, by its position in the journal, and how often it was started.
    #[must_use]
    pub fn last_start(self) -> Option<(usize, usize)> {
        self.started.map(|started| (started.at, started.count))
    }

    /// The run of the agent that it calls.
    #[must_use]
    pub fn child(self) -> Option<RunId> {
        self.child
    }

    /// Its last result.
    #[must_use]
    pub fn result(self) -> Option<&'a CallResult> {
        self.result.map(|(_, result)| result)
    }

    /// Has it no result?
    #[must_use]
    pub fn is_open(self) -> bool {
        self.result.is_none()
    }

    /// Was it started after its last result, or has it none?
    #[must_use]
    pub fn is_in_progress(self) -> bool {
        match (self.started, self.result) {
            (Some(started), Some((at, _))) => started.at > at,
            (Some(_), None) => true,
            (None, _) => false,
        }
    }

    /// Is its last result one of the entries from `at` on?
    #[must_use]
    pub fn has_result_from(self, at: usize) -> bool {
        self.result.is_some_and(|(place, _)| place >= at)
    }

    /// Its failure, if it failed.
    #[must_use]
    pub fn failure(self) -> Option<&'a CallFailure> {
        self.result()?.outcome.as_ref().err()
    }

    /// The code of its failure.
    #[must_use]
    pub fn failure_code(self) -> Option<FailureCode> {
        self.failure().map(|failure| failure.code)
    }

    /// The data that it returned, if it succeeded.
    #[must_use]
    pub fn data(self) -> Option<&'a Arc<RawValue>> {
        self.result()?.outcome.as_ref().ok()
    }

    /// Did it succeed?
    #[must_use]
    pub fn succeeded(self) -> bool {
        self.result().is_some_and(|result| result.outcome.is_ok())
    }

    /// Is its outcome unknown?
    #[must_use]
    pub fn is_in_doubt(self) -> bool {
        self.failure_code() == Some(FailureCode::InDoubt)
    }

    /// Did it have an effect, or is its outcome unknown? A call of an agent counts as an effect here; its own run has
    /// the details.
    #[must_use]
    pub fn may_have_acted(self) -> bool {
        let acts = self.has_side_effect() || matches!(self.proposed.target, Target::Agent(_));
        acts && (self.succeeded() || self.is_in_doubt())
    }
}

#[cfg(test)]
mod tests;
