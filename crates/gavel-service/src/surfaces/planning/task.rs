//! A task of a session with its history: the steps, as the journal of its run has them (P-305).

use std::sync::Arc;

use serde_json::value::{RawValue, to_raw_value};

use super::Planning;
use super::log::{self, Settled};
use crate::api::planning::{Step, StepDone, StepEvidence, StepReflection, TaskDetail};
use crate::api::problem::Code;
use crate::domain::ids::{PlanningSessionId, UserId};
use crate::domain::journal::CallFailure;
use crate::domain::plan::TaskId;
use crate::domain::reflection::Reflection;
use crate::domain::time::Timestamp;
use crate::engine::ledger::Call;
use crate::engine::strategy::react::{StepState, steps};
use crate::surfaces::caller::Caller;
use crate::surfaces::problem::Problem;

impl Planning {
    /// A task of the current plan, with its steps after number `after`.
    ///
    /// # Errors
    /// There is no such session or task; the store is unavailable.
    pub async fn task(
        &self,
        caller: &Caller,
        user: Option<&UserId>,
        session: PlanningSessionId,
        (task, after): (TaskId, u32),
    ) -> Result<TaskDetail, Problem> {
        let stored = self.readable(caller, user, session).await?;
        let task = stored.plan.task(task).cloned().ok_or(Code::NotFound)?;
        let react_history = match task.run_id {
            Some(run) => {
                // A settlement is in the journal of the run that works through the plan.
                let settled = self.settled(stored.run).await?;
                let (journal, _) = self.runs.journal(run).await?;
                let later = steps(&journal).into_iter().filter(|step| step.n > after);
                later.map(|step| shown(step, &settled)).collect()
            }
            None => Vec::new(),
        };
        Ok(TaskDetail {
            task,
            react_history,
            raw_react_history: None,
        })
    }
}

fn shown(state: StepState<'_>, settled: &Settled) -> Step {
    let StepState {
        n,
        reason,
        action: call,
        reflection,
    } = state;
    let observation = |call: Call<'_>| match &call.result()?.outcome {
        Ok(data) => Some(Arc::clone(data)),
        Err(failure) => Some(error(failure)),
    };
    Step {
        n,
        reason,
        action: call.map(|call| StepDone {
            tool: call.name().to_string(),
            arguments: call.arguments(),
        }),
        observation: call.and_then(observation),
        reflection: reflection.cloned().map(concluded),
        action_id: call.map(Call::id),
        state: call.map(|call| log::ended(call, settled).0),
        started_at: call.and_then(Call::first_started_us).map(Timestamp),
        duration_ms: call
            .and_then(Call::duration_us)
            .map(|time| time.max(0).unsigned_abs() / 1000),
    }
}

/// A failure as an observation.
fn error(failure: &CallFailure) -> Arc<RawValue> {
    let shown = serde_json::json!({"error": log::error(failure)});
    let raw = to_raw_value(&shown);
    Arc::from(raw.unwrap_or_else(|error| unreachable!("a failure prints as JSON: {error}")))
}

fn concluded(reflection: Reflection) -> StepReflection {
    let Reflection {
        is_task_complete,
        summary,
        evidence,
        learnings,
        plan_changes,
        give_up,
    } = reflection;
    StepReflection {
        is_task_complete,
        summary,
        evidence: evidence.into_iter().map(StepEvidence::from).collect(),
        learnings,
        plan_changes,
        give_up,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::{Value, json};

    use super::*;
    use crate::domain::ids::PlanningSessionId;
    use crate::domain::journal::{CallResult, Entry, Proposed, WordsOf};
    use crate::domain::plan::Task;
    use crate::domain::reflection::Evidence;
    use crate::domain::tool::{FailureCode, Tool};
    use crate::engine::journal::Journal;

    fn raw(value: &Value) -> Arc<RawValue> {
        Arc::from(to_raw_value(value).unwrap())
    }

    /// The journal of a call with this outcome.
    fn journal(outcome: Option<Result<Arc<RawValue>, CallFailure>>) -> Journal {
        let tool = Arc::new(Tool::named("github", "createIssue"));
        let call = Proposed::of(&tool, to_raw_value(&json!({"title": "x"})).unwrap());
        let id = call.id;
        let begun = [
            Entry::Step {
                step: 1,
                round: 1,
                call,
            },
            Entry::Started {
                call: id,
                at_us: 1_000_000,
                child: None,
            },
        ];
        let result = outcome.map(|outcome| Entry::Result {
            call: id,
            result: CallResult {
                outcome,
                sent: true,
                duration_us: 41_200_000,
            },
        });
        begun.into_iter().chain(result).collect()
    }

    fn reflection() -> Reflection {
        Reflection {
            is_task_complete: true,
            summary: "It is there.".to_owned(),
            evidence: vec![Evidence {
                observation: 2,
                quote: "issues/7".to_owned(),
            }],
            ..Reflection::default()
        }
    }

    /// The step with this call.
    fn step<'a>(journal: &'a Journal, reflection: &'a Reflection) -> StepState<'a> {
        StepState {
            n: 2,
            reason: Some("The tests come first.".to_owned()),
            action: journal.ledger().calls().next(),
            reflection: Some(reflection),
        }
    }

    fn shown_with(outcome: Option<Result<Arc<RawValue>, CallFailure>>) -> Value {
        shown_as(step(&journal(outcome), &reflection()))
    }

    fn shown_as(state: StepState<'_>) -> Value {
        serde_json::to_value(shown(state, &Settled::new())).unwrap()
    }

    /// P-305: a step has what was thought, done, seen and concluded, under the names of the API.
    #[test]
    fn a_step_shows_reason_action_observation_and_reflection() {
        let shown = shown_with(Some(Ok(raw(&json!({"issue": {"number": 7}})))));
        assert_eq!(shown["n"], 2);
        assert_eq!(
            shown["action"],
            json!({"tool": "createIssue", "arguments": {"title": "x"}})
        );
        assert_eq!(shown["observation"], json!({"issue": {"number": 7}}));
        assert_eq!(shown["reflection"]["isTaskComplete"], true);
        assert_eq!(
            shown["reflection"]["evidence"],
            json!([{"observation": 2, "quote": "issues/7"}])
        );
        assert_eq!(
            (&shown["startedAt"], &shown["durationMs"]),
            (&json!("1970-01-01T00:00:01.000000Z"), &json!(41_200))
        );
        assert_eq!(shown["state"], "completed");
    }

    /// an error is data, in the text for callers: a server's own text may contain secrets.
    #[test]
    fn an_error_is_an_observation_without_the_text_of_the_server() {
        let failure = CallFailure {
            code: FailureCode::ToolError,
            message: "password=hunter2".to_owned(),
            words_of: WordsOf::Server,
            own: None,
        };
        let shown = shown_with(Some(Err(failure)));
        assert_eq!(
            shown["observation"],
            json!({"error": {"code": "tool_error", "message": "The tool reported an error."}})
        );
    }

    /// While a call waits or runs there is no observation, and before the call there is no action.
    #[test]
    fn a_step_under_way_shows_how_far_it_has_come() {
        let shown = shown_with(None);
        assert_eq!(shown["observation"], Value::Null);
        assert_eq!(shown["action"]["tool"], "createIssue");
        let (journal, reflection) = (Journal::default(), reflection());
        let thought = StepState {
            reflection: None,
            ..step(&journal, &reflection)
        };
        let shown = shown_as(thought);
        assert_eq!(
            (&shown["action"], &shown["actionId"], &shown["state"]),
            (&Value::Null, &Value::Null, &Value::Null)
        );
        assert_eq!(shown["reason"], "The tests come first.");
    }

    /// `view=raw` is the text of the same history, so that the two cannot disagree.
    #[test]
    fn the_raw_history_is_the_history_as_text() {
        let detail = TaskDetail {
            task: Task::new(TaskId::of(1), PlanningSessionId::new()),
            react_history: vec![shown(
                step(&journal(Some(Ok(raw(&json!("text"))))), &reflection()),
                &Settled::new(),
            )],
            raw_react_history: None,
        };
        let shown = serde_json::to_value(detail.raw()).unwrap();
        let parsed: Value = serde_json::from_str(shown["rawReactHistory"].as_str().unwrap()).unwrap();
        assert_eq!(parsed, shown["reactHistory"]);
        assert_eq!(shown["id"], "t1");
    }
}
