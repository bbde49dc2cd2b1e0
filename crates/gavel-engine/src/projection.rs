//! Turns the entries of a journal into events: one vocabulary for chat, agents and threads.

use std::collections::HashMap;
use std::sync::Arc;

use crate::api::events::{Event, ProposedCall};
use crate::api::planning::StepEvidence;
use crate::domain::ids::ActionId;
use crate::domain::journal::{CallResult, Cause, Entry, ModelTurn, Part, PolicyDecision, Proposed, Target, Verdict};
use crate::domain::reflection::{REFLECT, Reflection};

/// What later entries of a journal refer to.
#[derive(Clone, Debug, Default)]
pub struct Projection {
    turns: u32,
    calls: HashMap<ActionId, ProposedCall>,
    /// The reflections on steps that have no result yet. One whose form is invalid says nothing.
    reflections: HashMap<ActionId, Reflection>,
}

impl Projection {
    /// Takes an entry into account: its turn, its calls, and with which arguments they are allowed.
    pub fn learn(&mut self, entry: &Entry) {
        self.turns += u32::from(entry.turn().is_some());
        for call in entry.calls() {
            match &call.target {
                Target::Verdict(Ok(Verdict::Reflect(said))) => {
                    self.reflections.insert(call.id, Reflection::clone(said));
                }
                Target::Verdict(Err(_)) if call.call.name == REFLECT => {
                    self.reflections.insert(call.id, Reflection::default());
                }
                _ => {
                    self.calls.insert(call.id, proposed(call));
                }
            }
        }
        if let Entry::Decided {
            call,
            decision: PolicyDecision::Allow { arguments, .. },
            ..
        } = entry
            && let Some(known) = self.calls.get_mut(call)
        {
            known.parameters = Arc::clone(arguments);
        }
    }

    /// The event of the next entry, if it has one.
    // Longer than a screen: a table, with one branch for each entry.
    pub fn event(&mut self, entry: &Entry) -> Option<Event> {
        self.learn(entry);
        Some(match entry {
            Entry::User(text) => Event::Input { text: text.clone() },
            Entry::ModelTurn { turn, calls } => Event::Turn {
                iteration: self.turns,
                text: turn.text(),
                thoughts: thoughts(turn),
                calls: calls.iter().map(proposed).collect(),
                model: turn.model().to_owned(),
                requested_model: turn.served.requested_model.to_string(),
                usage: turn.usage,
            },
            Entry::ModelFault { kind, .. } => Event::ModelFault {
                fault: kind.as_str().into(),
            },
            Entry::Step { step, round, call } => Event::Step {
                action_id: call.id,
                step: *step,
                round: *round,
                agent: call.call.name.clone(),
            },
            Entry::Started { call, child, .. } => {
                let ProposedCall {
                    sequence,
                    tool,
                    parameters,
                } = self.calls.get(call).cloned()?;
                match *child {
                    Some(child_run_id) => Event::AgentCall {
                        action_id: *call,
                        sequence,
                        agent: tool,
                        parameters,
                        child_run_id,
                    },
                    None => Event::ToolCall {
                        action_id: *call,
                        sequence,
                        tool,
                        parameters,
                    },
                }
            }
            Entry::Result { call, result } => self.result(*call, result),
            Entry::Prompted {
                cause: Cause::Phase { phase, again, .. },
                ..
            } => Event::Phase {
                phase: *phase,
                again: *again,
            },
            Entry::Prompted { text, cause, .. } => Event::Notice {
                reason: match cause {
                    Cause::Limit { reason, .. } => Some(*reason),
                    Cause::Resumed | Cause::OutputDue | Cause::Phase { .. } => None,
                },
                text: text.clone(),
            },
            Entry::OutcomeSettled { call, happened, by } => Event::OutcomeSettled {
                action_id: *call,
                happened: *happened,
                by: by.clone(),
            },
            Entry::Halted => Event::HandedOver,
            Entry::Suspended => Event::AwaitingConfirmation,
            Entry::Recovered => Event::Recovered,
            Entry::Resumed { .. } => Event::Resumed,
            Entry::Decided {
                call,
                decision: PolicyDecision::RequireApproval { arguments, details, .. },
                ..
            } => {
                let ProposedCall { sequence, tool, .. } = self.calls.get(call).cloned()?;
                Event::ApprovalRequired {
                    action_id: *call,
                    sequence,
                    tool,
                    parameters: Arc::clone(arguments),
                    reason: details.reason.clone(),
                }
            }
            Entry::ApprovalResolved {
                call,
                approved,
                by,
                reason,
                ..
            } => {
                let ProposedCall { sequence, tool, .. } = self.calls.get(call).cloned()?;
                Event::ApprovalResolved {
                    action_id: *call,
                    sequence,
                    tool,
                    approved: *approved,
                    by: by.clone(),
                    reason: reason.clone(),
                }
            }
            Entry::Decided { .. } => return None,
        })
    }

    /// The result of a call. That of an in-doubt call may be replaced, when a user has settled it.
    fn result(&mut self, call: ActionId, result: &CallResult) -> Event {
        if let Some(said) = self.reflections.remove(&call) {
            return reflected(said, result);
        }
        let known = match result.outcome {
            Ok(_) => self.calls.remove(&call),
            Err(_) => self.calls.get(&call).cloned(),
        };
        let (sequence, tool) = known.map_or_else(|| (0, Arc::from("")), |call| (call.sequence, call.tool));
        let (data, error) = match &result.outcome {
            Ok(data) => (Some(Arc::clone(data)), None),
            Err(failure) => (None, Some(failure.into())),
        };
        Event::ToolResult {
            action_id: call,
            sequence,
            tool,
            success: error.is_none(),
            data,
            error,
            duration_ms: u64::try_from(result.duration_us / 1000).unwrap_or(0),
        }
    }
}

/// What the model concluded, once it is known whether that is accepted.
fn reflected(said: Reflection, result: &CallResult) -> Event {
    let error = result.outcome.as_ref().err();
    let error = error.map(|failure| failure.for_callers().into_owned());
    Event::Reflection {
        accepted: error.is_none(),
        error,
        is_task_complete: said.is_task_complete,
        summary: said.summary,
        evidence: said.evidence.into_iter().map(StepEvidence::from).collect(),
        learnings: said.learnings,
        plan_changes: said.plan_changes,
        give_up: said.give_up,
    }
}

fn thoughts(turn: &ModelTurn) -> Vec<String> {
    let thoughts = turn.parts.iter().filter_map(|part| match part {
        Part::Thought(text) => Some(text.clone()),
        Part::Text(_) | Part::Call(_) | Part::Other => None,
    });
    thoughts.collect()
}

fn proposed(call: &Proposed) -> ProposedCall {
    ProposedCall {
        sequence: call.sequence,
        tool: tool_name(call),
        parameters: Arc::from(call.call.args.clone()),
    }
}

/// The tool's own name, or the model's name for an unknown tool.
pub fn tool_name(call: &Proposed) -> Arc<str> {
    match &call.target {
        Target::Tool(tool) => Arc::clone(&tool.name),
        Target::Unresolved(tool) => Arc::clone(&tool.name),
        Target::Agent(name) => Arc::clone(name),
        Target::Verdict(_) | Target::Unknown => Arc::from(call.call.name.as_str()),
    }
}
