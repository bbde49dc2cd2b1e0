//! What a run does for a planning session, and what its end leads to there.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::journal::Journal;
use super::next::Ending;
use super::opening::{self, Opening, Shown, Unread};
use crate::api::planning::{FileRead, RepositoryRead};
use crate::domain::agent_run::StopReason;
use crate::domain::ids::PlanningSessionId;
use crate::domain::journal::{Completion, FaultKind, Verdict};
use crate::domain::plan::{Basis, Plan, PlanError, Task, difference};
use crate::domain::planning_session::SessionReason;
use crate::ports::commit::Planned;
use crate::ports::planning::{MadePlan, PlanNotes};

/// What a run that plans is given. Stored with its settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanningWork {
    /// The tools that a task may name.
    pub tools: Vec<String>,
    /// The tasks of the version that it refines; none for the first one.
    pub current: Option<Vec<Task>>,
    /// The number of the last task id that was given.
    pub last: u32,
    /// Who asks for the plan.
    pub by: Arc<str>,
    /// The person's own text: the goal, or what to change.
    pub why: Arc<str>,
}

impl PlanningWork {
    /// What the end of the run leads to. `message` is the run's own error, if it has one.
    pub fn planned(
        &self,
        session: PlanningSessionId,
        opening: Option<&Opening>,
        journal: &Journal,
        ending: &Ending,
        message: Option<&str>,
    ) -> Planned {
        let detail = |otherwise: &str| Arc::from(message.unwrap_or(otherwise));
        let (reason, detail) = match ending {
            Ending::Verdict(Verdict::Complete {
                output: Completion::Output(draft),
                ..
            }) => match self.made(session, draft, opening.map(|opening| read(opening, journal))) {
                Ok(made) => return Planned::Made(Box::new(made)),
                Err(errors) => (SessionReason::PlanInvalid, errors),
            },
            Ending::StepFailed(_) => match opening.and_then(|opening| opening::unread(journal, opening)) {
                Some(Unread::Missing) => (
                    SessionReason::RepositoryNotFound,
                    "There is no such repository, or gavel's access to GitHub does not include it.".into(),
                ),
                Some(Unread::Failed(why)) => (SessionReason::RepositoryUnreadable, why.into()),
                None => (SessionReason::Internal, detail("the run failed")),
            },
            Ending::Stopped(StopReason::Deadline, _) => (
                SessionReason::Deadline,
                "The deadline passed before there was a plan.".into(),
            ),
            Ending::Stopped(StopReason::TokenLimit, _) => (SessionReason::TokenLimit, detail("the token limit")),
            Ending::Stopped(StopReason::StepLimit | StopReason::TimeLimit, _)
            | Ending::LoopLimit
            | Ending::TimeLimit
            | Ending::DoomLoop(_) => (SessionReason::StepLimit, detail("a limit was reached")),
            Ending::Unable(_) | Ending::Waiting(_) => {
                (SessionReason::ToolsUnavailable, detail("a tool is unavailable"))
            }
            Ending::Fault(FaultKind::Blocked) => (SessionReason::ModelBlocked, detail("the answer was blocked")),
            Ending::Fault(_) => (SessionReason::ModelUnavailable, detail("the model was unavailable")),
            Ending::Cancelled => (SessionReason::Cancelled, detail("The run that plans was cancelled.")),
            Ending::InvalidOutput(..)
            | Ending::MissingOutput(_)
            | Ending::TooLong(_)
            | Ending::Responded(_)
            | Ending::Verdict(_)
            | Ending::Flow(_) => (SessionReason::PlanInvalid, detail("the model handed in no plan")),
            Ending::Stopped(..)
            | Ending::Task(..)
            | Ending::Suspended(_)
            | Ending::Unsettled(_)
            | Ending::Rejected(..)
            | Ending::Broken => (SessionReason::Internal, detail("the run failed")),
        };
        Planned::None(reason, detail)
    }

    /// What the drafts of the run are checked against.
    pub fn basis(&self, session: PlanningSessionId) -> Basis {
        Basis {
            session,
            tools: self.tools.clone(),
            current: self.current.as_ref().map(|tasks| Plan {
                tasks: tasks.clone(),
                last: self.last,
            }),
        }
    }

    /// The plan of a draft that fits its schema. `read` is what it was made from.
    fn made(
        &self,
        session: PlanningSessionId,
        draft: &str,
        read: Option<RepositoryRead>,
    ) -> Result<MadePlan, Arc<str>> {
        let basis = self.basis(session);
        let (draft, plan) = basis.plan(draft).map_err(|errors| words(&errors))?;
        let notes = PlanNotes {
            summary: draft.summary,
            assumptions: draft.assumptions,
            risks: draft.risks,
            read,
        };
        Ok(MadePlan {
            changes: difference(basis.current.as_ref(), &plan),
            plan,
            notes,
            by: Arc::clone(&self.by),
            why: Arc::clone(&self.why),
        })
    }
}

fn words(errors: &[PlanError]) -> Arc<str> {
    let errors: Vec<_> = errors
        .iter()
        .map(|error| format!("{}: {}", error.pointer, error.detail))
        .collect();
    errors.join("; ").into()
}

// What was read of a repository before the planner's first turn, from the results in the journal.

/// The name of the read of the repository itself.
pub const REPOSITORY: &str = "repository";
/// The name of the read of its files and directories.
pub const TREE: &str = "tree";
/// The name of the read of AGENT.md.
pub const AGENT_MD: &str = "agent_md";
/// The name of the read of AGENTS.md, which counts if there is no AGENT.md.
pub const AGENTS_MD: &str = "agents_md";

fn read(opening: &Opening, journal: &Journal) -> RepositoryRead {
    let results = opening::results(opening, journal);
    let duration_us: i64 = results.iter().map(|(_, result)| result.duration_us.max(0)).sum();
    let calls = u32::try_from(results.len()).unwrap_or(u32::MAX);
    let data = results.iter().filter_map(|(read, result)| {
        let data = result.outcome.as_ref().ok()?;
        Some((read.name.as_str(), serde_json::from_str(data.get()).ok()?))
    });
    let data: BTreeMap<&str, Value> = data.collect();
    let text = |of: &str, pointer: &str| data.get(of)?.pointer(pointer)?.as_str().map(str::to_owned);
    let file = |of: &str| {
        Some(FileRead {
            path: text(of, "/file/path")?,
            bytes: text(of, "/file/content")?.len() as u64,
        })
    };
    let entries = data.get(TREE).and_then(|tree| tree["entries"].as_array());
    let entries = entries.map_or(&[][..], Vec::as_slice);
    let is_file = |entry: &&Value| !matches!(entry["kind"].as_str(), Some("directory" | "submodule"));
    let most = opening.reads.iter().find_map(|read| match read.shown {
        Shown::Paths(most) => Some(most),
        Shown::Json | Shown::Text(_) => None,
    });
    RepositoryRead {
        default_branch: text(REPOSITORY, "/repository/defaultBranch"),
        commit: text(TREE, "/commit"),
        files: entries.iter().filter(is_file).count() as u64,
        tree_truncated: data.get(TREE).is_some_and(|tree| tree["truncated"] == true)
            || most.is_some_and(|most| entries.len() > most),
        agent_file: file(AGENT_MD).or_else(|| file(AGENTS_MD)),
        calls,
        duration_ms: duration_us.unsigned_abs() / 1000,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::sync::Arc;

    use crate::domain::journal::Entry;

    use serde_json::{Map, json};

    use super::*;
    use crate::domain::canonical;
    use crate::domain::journal::{CallFailure, CallResult};
    use crate::domain::tool::FailureCode;
    use crate::opening::{Read, step};
    use crate::ports::tools::Catalog;
    use crate::toolset::Toolset;

    /// What is said after the reads had these outcomes, one by one.
    fn said(outcomes: [Option<Value>; 4]) -> RepositoryRead {
        let read = |name: &str, shown: Shown| Read {
            name: name.to_owned(),
            tool: name.to_owned(),
            arguments: Map::new(),
            pointer: String::new(),
            shown,
            is_required: false,
        };
        let opening = Opening {
            reads: vec![
                read(REPOSITORY, Shown::Json),
                read(TREE, Shown::Paths(2)),
                read(AGENT_MD, Shown::Text(9)),
                read(AGENTS_MD, Shown::Text(9)),
            ],
            ..Opening::default()
        };
        let toolset = Toolset::build(&Catalog::default(), &[], &[]);
        let mut journal = Journal::default();
        for (at, outcome) in (0..).zip(outcomes) {
            let entry = step(&opening, &toolset, &journal, at);
            let call = entry.calls()[0].id;
            let failure = CallFailure::new(FailureCode::ToolError, "it failed".to_owned());
            let result = CallResult {
                outcome: outcome.map(|data| Arc::from(canonical::to_raw(&data))).ok_or(failure),
                sent: true,
                duration_us: 1_250_000,
            };
            journal.extend([entry, Entry::Result { call, result }]);
        }
        super::read(&opening, &journal)
    }

    /// P-201: branch, commit, files, the agent file, and what the reads took.
    #[test]
    fn what_was_read_is_known_from_the_results() {
        let files = json!({"commit": "3f1c9ab", "truncated": false, "entries": [
            {"path": "src", "kind": "directory"}, {"path": "a", "kind": "file"}, {"path": "b", "kind": "link"},
            {"path": "c", "kind": "submodule"},
        ]});
        let agents_md = json!({"file": {"path": "AGENTS.md", "size": 9, "content": "Be brief."}});
        let none = json!({"file": null});
        let repository = json!({"repository": {"defaultBranch": "main"}});
        let read = said([Some(repository.clone()), Some(files), Some(none), Some(agents_md)]);
        let expected = RepositoryRead {
            default_branch: Some("main".to_owned()),
            commit: Some("3f1c9ab".to_owned()),
            files: 2,
            // The message shows two of the four paths.
            tree_truncated: true,
            agent_file: Some(FileRead {
                path: "AGENTS.md".to_owned(),
                bytes: 9,
            }),
            calls: 4,
            duration_ms: 5_000,
        };
        assert_eq!(read, expected);

        let empty = json!({"commit": null, "truncated": false, "entries": []});
        let read = said([Some(repository.clone()), Some(empty), None, None]);
        assert_eq!((read.commit, read.files, read.tree_truncated), (None, 0, false));
        assert_eq!(read.agent_file, None);
        let cut = json!({"commit": "3f1c9ab", "truncated": true, "entries": [{"path": "a", "kind": "file"}]});
        assert!(said([Some(repository), Some(cut), None, None]).tree_truncated);
    }
}
