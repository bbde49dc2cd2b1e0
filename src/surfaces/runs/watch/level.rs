//! Turns the entries of one journal into events.

use std::collections::{HashMap, VecDeque};

use serde_json::value::RawValue;

use super::event::{ProposedCall, RunEventKind};
use crate::domain::decision::ToolFailure;
use crate::domain::ids::{ActionId, RunId};
use crate::domain::journal::{CallResult, Cause, Entry, Part, PolicyDecision, Proposed};
use crate::engine::tool_name;

/// The read position in one run.
pub(super) struct Level {
    pub(super) run: RunId,
    pub(super) after: u64,
    pub(super) read: VecDeque<(u64, Entry)>,
    calls: HashMap<ActionId, ProposedCall>,
    /// Of a called run: the current part of its journal, and the part to be shown, counted by its resumes.
    part: Option<(usize, usize)>,
    /// How often each called run was started.
    starts: HashMap<RunId, usize>,
}

impl Level {
    pub(super) fn new(run: RunId, part: Option<usize>) -> Self {
        Self {
            part: part.map(|of| (0, of)),
            starts: HashMap::new(),
            run,
            after: 0,
            read: VecDeque::new(),
            calls: HashMap::new(),
        }
    }

    /// Moves to the next part of the journal of a called run, which begins with this entry. False: the part ends here.
    /// A run that was cut short and reopened was started by its caller once more for each part.
    pub(super) fn enters_part(&mut self) -> bool {
        let Some((part, of)) = &mut self.part else { return true };
        *part += 1;
        *part <= *of
    }

    /// Is the reader at a part of the journal that it was shown before?
    pub(super) fn is_before_its_part(&self) -> bool {
        self.part.is_some_and(|(part, of)| part < of)
    }

    /// The part of a called run's journal that begins with this start.
    pub(super) fn part_of(&mut self, child: RunId) -> usize {
        let starts = self.starts.entry(child).or_default();
        *starts += 1;
        *starts - 1
    }

    pub(super) fn learn(&mut self, entry: &Entry) {
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

    /// The event of an entry, if it has one.
    pub(super) fn event(&mut self, entry: Entry) -> Option<RunEventKind> {
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
            Entry::Prompted { text, cause, .. } => RunEventKind::Notice {
                reason: match cause {
                    Cause::Limit { reason, .. } => Some(reason),
                    Cause::Resumed | Cause::OutputDue => None,
                },
                text,
            },
            Entry::Halted => RunEventKind::HandedOver,
            Entry::Suspended => RunEventKind::AwaitingConfirmation,
            Entry::Recovered => RunEventKind::Recovered,
            Entry::Resumed { .. } => RunEventKind::Resumed,
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

    /// The result of a call.
    fn result(&mut self, call: ActionId, result: &CallResult) -> RunEventKind {
        // The result of an in-doubt call may be replaced, when a user has settled it.
        let known = match result.outcome {
            Ok(_) => self.calls.remove(&call),
            Err(_) => self.calls.get(&call).cloned(),
        };
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
