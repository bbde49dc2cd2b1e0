//! Why a decision was made as it was, from its rows alone.

use serde::Deserialize;
use serde_json::Value;

use super::{DecisionQueries, Toolset, only_user};
use crate::api::decisions::{DecisionDetail, DecisionRecord, ToolInvocation};
use crate::api::why::{
    Absent, AbsentBecause, CallApproval, ChangedField, GatedCall, TimeSplit, Why, WhyDefinition, WhyOutcome, WhyTurn,
};
use crate::domain::canonical;
use crate::domain::decision::{LimitName, LimitReached, Outcome};
use crate::domain::ids::{DecisionId, ProjectId, TenantId, UserId};
use crate::domain::policy::Effect;
use crate::domain::tool::FailureCode;
use crate::surfaces::caller::Caller;
use crate::surfaces::problem::Problem;

/// What answers name of a function.
#[derive(Deserialize)]
struct Function {
    name: String,
}

type Offered = Toolset<Vec<Function>>;

impl DecisionQueries {
    /// Why a decision was made as it was; `None` as for [`Self::get`].
    ///
    /// # Errors
    /// The store is unavailable.
    pub async fn why(&self, caller: &Caller, user: Option<&UserId>, id: DecisionId) -> Result<Option<Why>, Problem> {
        let Some(DecisionDetail { decision, tool_calls }) = self.get(caller, user, id).await? else {
            return Ok(None);
        };
        let evidence = self.store.evidence(&caller.tenant, id, None).await?;
        let hashes = [Some(&*decision.definition_hash), decision.toolset_hash.as_deref()];
        let hashes: Vec<_> = hashes.into_iter().flatten().collect();
        let texts = self.texts(&caller.tenant, &decision.user_id, &hashes).await?;
        let text = |hash: &str| texts.get(hash).cloned().flatten();
        let definition = text(&decision.definition_hash).and_then(|text| serde_json::from_str::<Value>(&text).ok());
        let toolset = decision.toolset_hash.as_deref().and_then(text);
        let is_for_its_user = only_user(caller).or(user).is_some();
        let toolset = toolset.and_then(|text| Offered::read(&text, is_for_its_user));
        let toolset = toolset.unwrap_or_default();
        let current = self.current(&caller.tenant, &decision, evidence.project).await?;
        Ok(Some(Why {
            outcome: outcome(&decision, &tool_calls),
            absent: absent(&decision, &tool_calls, definition.as_ref(), &toolset),
            definition: compared(&decision.definition_hash, definition, current),
            offered: toolset.functions.into_iter().map(|function| function.name).collect(),
            turns: turns(&decision, &tool_calls),
            gate: gate(&decision, tool_calls, evidence.approvals),
            time: TimeSplit::new(&decision),
            status: decision.status,
            decision_id: decision.decision_id,
            requested_model: decision.requested_model,
            model: decision.model,
            cost_nano: decision.cost_nano,
            price_id: decision.price_id,
            audit: evidence.audit,
        }))
    }

    /// The definition that a decision like this would run under now.
    async fn current(
        &self,
        tenant: &TenantId,
        decision: &DecisionRecord,
        project: Option<ProjectId>,
    ) -> Result<Option<Value>, Problem> {
        let (agent, project) = match (&decision.agent_id, project) {
            (None, _) => return Ok(self.constitution.as_ref().map(|current| current.to_json())),
            (Some(_), None) => return Ok(None),
            (Some(agent), Some(project)) => (agent, project),
        };
        let found = Problem::or_none(self.directory.get(tenant, &project, agent).await)?;
        Ok(found.map(|found| found.definition))
    }
}

fn compared(hash: &str, then: Option<Value>, now: Option<Value>) -> WhyDefinition {
    let is_current = now
        .as_ref()
        .map(|now| *canonical::hash(canonical::to_raw(now).get()) == *hash);
    let name = then.as_ref().and_then(|then| Some(then["name"].as_str()?.to_owned()));
    WhyDefinition {
        hash: hash.to_owned(),
        name,
        diff_to_current: match (is_current, then, now) {
            (Some(false), Some(then), Some(now)) => {
                let mut changed = Vec::new();
                changes("", &then, &now, &mut changed);
                Some(changed)
            }
            _ => None,
        },
        is_current,
    }
}

/// Adds the fields in which two values differ.
fn changes(field: &str, then: &Value, now: &Value, changed: &mut Vec<ChangedField>) {
    match (then, now) {
        (Value::Object(before), Value::Object(after)) => {
            let added = after.keys().filter(|name| !before.contains_key(*name));
            for name in before.keys().chain(added) {
                let place = match field {
                    "" => name.clone(),
                    _ => format!("{field}.{name}"),
                };
                changes(&place, &then[name], &now[name], changed);
            }
        }
        _ if then == now => {}
        _ => changed.push(ChangedField {
            field: field.to_owned(),
            then: then.clone(),
            now: now.clone(),
        }),
    }
}

fn absent(
    decision: &DecisionRecord,
    calls: &[ToolInvocation],
    definition: Option<&Value>,
    toolset: &Offered,
) -> Vec<Absent> {
    let one = |tool: &str, because, detail: Option<&String>| Absent {
        tool: tool.to_owned(),
        because,
        detail: detail.cloned(),
    };
    let missing = toolset.missing.iter();
    let missing = missing.map(|named| one(&named.name, AbsentBecause::Unavailable, named.reason.as_ref()));
    let listed = definition.and_then(|definition| definition.get("tools")?.as_array());
    let asked = decision.tools_subset.as_ref();
    let left_out = listed
        .into_iter()
        .flatten()
        .filter_map(|tool| tool.as_str())
        .filter(|tool| asked.is_some_and(|asked| asked.iter().all(|asked| asked != tool)));
    let left_out = left_out.map(|tool| one(tool, AbsentBecause::Subset, None));
    let unknown = calls.iter().filter(|call| code(call) == Some(FailureCode::UnknownTool));
    let unknown = unknown.map(|call| one(&call.tool, AbsentBecause::Allowlist, None));
    let mut absent: Vec<Absent> = Vec::new();
    for found in missing.chain(left_out).chain(unknown) {
        if absent.iter().all(|known| known.tool != found.tool) {
            absent.push(found);
        }
    }
    absent
}

fn turns(decision: &DecisionRecord, calls: &[ToolInvocation]) -> Vec<WhyTurn> {
    let turns = (1..).zip(&decision.turns).map(|(number, turn)| {
        let asked = || calls.iter().filter(move |call| call.turn == Some(number));
        WhyTurn {
            turn: turn.clone(),
            words: asked().find_map(|call| call.words.clone()),
            asked: asked().map(|call| call.sequence).collect(),
        }
    });
    turns.collect()
}

fn gate(decision: &DecisionRecord, calls: Vec<ToolInvocation>, approvals: Vec<CallApproval>) -> Vec<GatedCall> {
    let approval = |call: &ToolInvocation| {
        let mut approvals = approvals.iter();
        approvals.find(|approval| approval.action_id.to_string() == call.tool_invocation_id)
    };
    let gated = |call: ToolInvocation| GatedCall {
        approval: approval(&call).cloned(),
        limit: limit(decision, code(&call)),
        error_code: code(&call),
        sequence: call.sequence,
        turn: call.turn,
        tool: call.tool,
        server: call.server,
        verdict: call.policy,
        rule: call.decided_by,
        lost: call.lost,
        status: call.status,
        started_at: call.started_at,
        duration_ms: call.result.duration_ms,
    };
    calls.into_iter().map(gated).collect()
}

/// The limit that kept a call with this failure from running.
fn limit(decision: &DecisionRecord, code: Option<FailureCode>) -> Option<LimitReached> {
    let is_own = |limit: &&LimitReached| match code {
        Some(FailureCode::TooManyCalls) => limit.name == LimitName::ParallelCalls,
        Some(FailureCode::DoomLoop) => limit.name == LimitName::RepeatedCalls,
        Some(FailureCode::LimitReached) => limit.name != LimitName::ParallelCalls,
        _ => false,
    };
    decision.limits_reached.iter().find(is_own).cloned()
}

fn code(call: &ToolInvocation) -> Option<FailureCode> {
    call.result.error.as_ref().map(|error| error.code)
}

/// The last call with such a failure that no later call made up for, by the rule of the engine's derivation.
fn unrepaired(calls: &[ToolInvocation], is_such: impl Fn(FailureCode) -> bool) -> Option<&ToolInvocation> {
    let is_repaired = |failed: &ToolInvocation| {
        let ran = failed.policy.as_deref() == Some(Effect::Allow.as_str()) || failed.started_at.is_some();
        code(failed) != Some(FailureCode::InDoubt)
            && calls.iter().any(|later| {
                let follows = later.turn > failed.turn || later.turn.is_none() && later.sequence > failed.sequence;
                follows && later.result.success && (!ran || later.tool == failed.tool)
            })
    };
    calls
        .iter()
        .rev()
        .find(|call| code(call).is_some_and(&is_such) && !is_repaired(call))
}

/// What each outcome follows from: the closed list of sentences. Only what stands in braces varies.
#[rustfmt::skip] // A line for each.
const fn sentence(outcome: Outcome, has_call: bool) -> &'static str {
    match outcome {
        Outcome::TaskCompleted => "{call} succeeded, and no failure was left that a later call did not make up for.",
        Outcome::ResponseGiven => "The model answered, and no call succeeded or was left failed.",
        Outcome::UnclearIntent => "The model asked the user what was meant.",
        Outcome::MultipleMatches => "The model asked the user which of several matches was meant.",
        Outcome::OutOfScope => "The model refused the request as out of scope.",
        Outcome::MissingPermission => "The model refused, since the caller lacks a permission.",
        Outcome::PolicyDenied => "{call} was not allowed, and no later call made up for it.",
        Outcome::SafetyBlocked => "The provider blocked the request or the answer.",
        Outcome::RateLimited => "The caller's quota was exceeded before the model was asked.",
        Outcome::Overloaded => "Too many requests were in progress.",
        Outcome::Cancelled => "It was cancelled.",
        Outcome::UserInput => "The message, the history or the run exceeded its size limit.",
        Outcome::ModelUnavailable => "There was no answer to {model call}, after all attempts.",
        Outcome::ModelTimeout => "The answer of {model call} took too long.",
        Outcome::MalformedOutput => "The answer of {model call} was not usable.",
        Outcome::ToolInvocation if has_call => "{call} failed, and no later call made up for it.",
        Outcome::ToolInvocation => "A tool, a step or a model that the run needs was unavailable.",
        Outcome::LoopLimit => "The run reached a limit{limits}.",
        Outcome::Deadline => "The time limit was reached{limits}.",
        Outcome::Internal => "A fault of gavel ended it.",
    }
}

fn outcome(decision: &DecisionRecord, calls: &[ToolInvocation]) -> WhyOutcome {
    let call = match decision.outcome_category {
        Some(Outcome::TaskCompleted) => calls.iter().rev().find(|call| call.result.success),
        Some(Outcome::PolicyDenied) => unrepaired(calls, FailureCode::is_denial),
        Some(Outcome::ToolInvocation) => unrepaired(calls, |_| true),
        _ => None,
    };
    let sentence = match decision.outcome_category {
        None => "It has no outcome yet.",
        Some(_) if decision.recovered => "The process that decided died before it recorded an outcome.",
        Some(outcome) => sentence(outcome, call.is_some()),
    };
    let limits = decision.limits_reached.iter();
    let limits: String = limits
        .map(|limit| format!(" ({} {})", limit.name, limit.limit))
        .collect();
    let model_call = format!("model call {}", decision.turns.len());
    let named = call.map_or_else(|| "A call".to_owned(), named);
    let because = sentence
        .replace("{limits}", &limits)
        .replace("{model call}", &model_call);
    WhyOutcome {
        category: decision.outcome_category,
        because: because.replace("{call}", &named),
        call: call.map(|call| call.sequence),
        limits: decision.limits_reached.clone(),
    }
}

fn named(call: &ToolInvocation) -> String {
    let code = code(call).map_or_else(String::new, |code| format!(" ({code})"));
    format!("Call {} of {}{code}", call.sequence, call.tool)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_definition_is_compared_field_by_field_with_the_current_one() {
        let then = json!({"name": "a", "model": {"model": "old", "temperature": 0.5}, "tools": ["x"]});
        let now = json!({"name": "a", "model": {"model": "new", "temperature": 0.5}, "tools": ["x", "y"], "limits": 3});
        let hash = |value: &Value| canonical::hash(canonical::to_raw(value).get());
        let same = compared(&hash(&now), Some(now.clone()), Some(now.clone()));
        assert_eq!((same.is_current, same.diff_to_current.is_none()), (Some(true), true));
        let other = compared(&hash(&then), Some(then), Some(now.clone()));
        let changed: Vec<_> = other
            .diff_to_current
            .unwrap()
            .into_iter()
            .map(|one| (one.field, one.then, one.now))
            .collect();
        let expected = [
            ("model.model".to_owned(), json!("old"), json!("new")),
            ("tools".to_owned(), json!(["x"]), json!(["x", "y"])),
            ("limits".to_owned(), Value::Null, json!(3)),
        ];
        assert_eq!((other.is_current, other.name.as_deref()), (Some(false), Some("a")));
        assert_eq!(changed, expected);
        // The text of one of the two is not known.
        let unknown = compared("h", None, Some(now));
        assert_eq!(
            (unknown.is_current, unknown.diff_to_current.is_none()),
            (Some(false), true)
        );
        assert_eq!(compared("h", None, None).is_current, None);
    }

    /// A call as the log has it: sequence, model call, tool, policy, and the code of its failure.
    fn call((sequence, turn, tool, policy, error): (u32, u32, &str, &str, Option<&str>)) -> ToolInvocation {
        let error = error.map(|code| json!({"code": code, "message": ""}));
        serde_json::from_value(json!({
            "tool_invocation_id": "", "decision_id": "", "sequence": sequence, "turn": turn, "tool": tool, "argument_bytes": 0,
            "result": {"success": error.is_none(), "error": error}, "status": "completed", "side_effect": false,
            "policy": policy, "lost": [], "user_id": "ann", "created_at": "2026-11-20T10:00:00Z",
        }))
        .unwrap()
    }

    #[test]
    fn the_call_to_blame_is_the_last_that_no_later_call_made_up_for() {
        let blamed = |calls: &[(u32, u32, &'static str, &'static str, Option<&'static str>)]| {
            let calls: Vec<_> = calls.iter().map(|one| call(*one)).collect();
            unrepaired(&calls, |_| true).map(|call| call.sequence)
        };
        let failed = (1, 1, "a", "allow", Some("tool_error"));
        let denied = (1, 1, "a", "deny", Some("denied"));
        let in_doubt = (1, 1, "a", "allow", Some("in_doubt"));
        assert_eq!(blamed(&[failed, (2, 2, "a", "allow", None)]), None);
        assert_eq!(blamed(&[failed, (2, 2, "b", "allow", None)]), Some(1), "another tool");
        assert_eq!(
            blamed(&[failed, (2, 1, "a", "allow", None)]),
            Some(1),
            "of the same turn"
        );
        assert_eq!(blamed(&[denied, (2, 2, "b", "allow", None)]), None);
        assert_eq!(blamed(&[in_doubt, (2, 2, "a", "allow", None)]), Some(1));
        assert_eq!(blamed(&[failed, (2, 2, "b", "deny", Some("denied"))]), Some(2));
    }
}
