//! Why a decision was made as it was, and why an action needed a person: from the logs alone.

use serde_json::Value;

use super::decisions::{CallStatus, DecisionRecord, RecordStatus, Turn};
use super::names::{names, sent};
use crate::domain::action::{ActionStatus, Resolution};
use crate::domain::decision::{LimitReached, Outcome};
use crate::domain::ids::{ActionId, ApprovalId, GrantId, RunId};
use crate::domain::policy::Lost;
use crate::domain::time::Timestamp;
use crate::domain::tool::FailureCode;

names! {
    /// Why a function was not offered.
    AbsentBecause {
        /// The request asked for other tools only.
        Subset = "subset",
        /// No connected server offered it.
        Unavailable = "unavailable",
        /// The model called it, and it is not on the allowlist.
        Allowlist = "allowlist",
    }
}

sent! {
    /// Why a decision was made as it was. What the log does not keep is null or empty.
    Why as "DecisionWhy" {
        /// The decision.
        #[shape(Shape::UUID)]
        decision_id: String,
        /// Whether it has its outcome.
        status: RecordStatus,
        /// Its outcome, and what it follows from.
        outcome: WhyOutcome,
        /// The definition that it ran under.
        definition: WhyDefinition,
        /// The model that was asked.
        requested_model: String,
        /// The model that answered last.
        model: Option<String>,
        /// The functions that the model was offered, by the names that it saw.
        offered: Vec<String>,
        /// Functions that were not offered.
        absent: Vec<Absent>,
        /// Each model call, with the tool calls that it asked for.
        turns: Vec<WhyTurn>,
        /// What was decided about each tool call, in order.
        gate: Vec<GatedCall>,
        /// Where its time went.
        time: TimeSplit,
        /// What its model calls cost, in billionths of a US dollar; null if that is not known.
        cost_nano: Option<u64>,
        /// Their prices, each once, separated by commas.
        price_id: Option<String>,
        /// Its rows of the audit log.
        audit: AuditProof,
    }
}

sent! {
    /// An outcome with its reason.
    WhyOutcome as "WhyOutcome" {
        /// The outcome; null while the decision is open.
        category: Option<Outcome>,
        /// What it follows from, in one of gavel's own sentences.
        because: String,
        /// The tool call that it follows from, by its sequence.
        call: Option<u32>,
        /// The limits that were reached.
        limits: Vec<LimitReached>,
    }
}

sent! {
    /// The definition of a decision beside the current one.
    WhyDefinition as "WhyDefinition" {
        /// Its hash.
        hash: String,
        /// Its name.
        name: Option<String>,
        /// Whether it is still the current one; null if there is none of its name, or it is not known any more.
        is_current: Option<bool>,
        /// The fields in which the current one differs; null if it is the same, or one of the two is not known.
        diff_to_current: Option<Vec<ChangedField>>,
    }
}

sent! {
    /// A field of a definition that has changed since.
    ChangedField as "ChangedField" {
        /// Its name, with a dot before the name of a field within a field.
        field: String,
        /// Its value then; null if it had none.
        then: Value,
        /// Its value now; null if it has none.
        now: Value,
    }
}

sent! {
    /// A function that was not offered.
    Absent as "AbsentFunction" {
        /// Its name.
        tool: String,
        /// Why.
        because: AbsentBecause,
        /// The details, for operators.
        detail: Option<String>,
    }
}

sent! {
    /// A model call with the tool calls that it asked for.
    WhyTurn as "WhyModelCall" {
        /// The model call.
        #[serde(flatten)]
        turn: Turn,
        /// What the model said beside its calls, depending on `records.content`.
        words: Option<String>,
        /// Its tool calls, by their sequence.
        asked: Vec<u32>,
    }
}

sent! {
    /// What was decided about a tool call.
    GatedCall as "GatedCall" {
        /// Its place in the decision.
        sequence: u32,
        /// The model call that asked for it, from 1.
        turn: Option<u32>,
        /// The tool.
        tool: String,
        /// The tool's server.
        server: Option<String>,
        /// `allow`, `require_approval` or `deny`; null if the call ended before the policy decided.
        verdict: Option<String>,
        /// What decided it: `rule NAME`, `grant ID`, `tool` …; null if nothing required approval.
        rule: Option<String>,
        /// The rules and other checks that matched, and lost.
        lost: Vec<Lost>,
        /// The limit that kept it from running.
        limit: Option<LimitReached>,
        /// Its approval or grant; null if it needed none, or its run is not kept any more.
        approval: Option<CallApproval>,
        /// What became of it.
        status: CallStatus,
        /// The code of its failure.
        error_code: Option<FailureCode>,
        /// When it was sent.
        started_at: Option<Timestamp>,
        /// Time from sending to the answer.
        duration_ms: Option<u64>,
    }
}

sent! {
    /// The approval of a tool call, or the grant that made one unnecessary.
    CallApproval as "CallApproval" {
        /// The tool call.
        action_id: ActionId,
        /// The approval request; null if a grant covered the call.
        approval_id: Option<ApprovalId>,
        /// When the call was announced or its approval requested.
        requested_at: Timestamp,
        /// The approver's answer; null if there was none.
        resolution: Option<Resolution>,
        /// The approver.
        resolved_by: Option<String>,
        /// When the approver answered.
        resolved_at: Option<Timestamp>,
        /// The grant that was made with the answer, or that covered the call.
        grant_id: Option<GrantId>,
    }
}

sent! {
    /// Where the time of a decision went, in milliseconds; null while it is open.
    TimeSplit as "TimeSplit" {
        /// All of it.
        total_ms: Option<u64>,
        /// Waiting for the model.
        model_ms: Option<u64>,
        /// Waiting for tools, and for agents that were called.
        tool_ms: Option<u64>,
        /// Waiting for approvers.
        human_ms: Option<u64>,
        /// gavel's own.
        own_ms: Option<u64>,
    }
}

impl TimeSplit {
    /// That of a decision.
    pub fn new(decision: &DecisionRecord) -> Self {
        let DecisionRecord {
            duration_ms: total_ms,
            model_ms,
            tool_ms,
            human_ms,
            ..
        } = *decision;
        let own = || Some(total_ms?.saturating_sub(model_ms? + tool_ms? + human_ms?));
        Self {
            own_ms: own(),
            total_ms,
            model_ms,
            tool_ms,
            human_ms,
        }
    }
}

sent! {
    /// Rows of the audit log, at most the first 1,000.
    #[derive(Default)]
    AuditProof as "AuditProof" {
        /// The rows, in order.
        rows: Vec<ProofRow>,
        /// Whether each is as gavel wrote it, by its HMAC, and follows the row before it; null without rows.
        verified: Option<bool>,
    }
}

sent! {
    /// A row of the audit log.
    ProofRow as "ProofRow" {
        /// Its number in the chain.
        number: i64,
        /// What happened.
        kind: String,
        /// When.
        at: Timestamp,
        /// Who did it.
        actor: String,
        /// The tool.
        tool: Option<String>,
    }
}

sent! {
    /// Why an action needed a person, or did not.
    #[serde(rename_all = "camelCase")]
    ActionWhy as "ActionWhy" {
        /// The action.
        action_id: ActionId,
        /// The approval request; null if none was required.
        approval_id: Option<ApprovalId>,
        /// The run that made the call, which is also its decision.
        run_id: RunId,
        /// The user on whose behalf the call is made.
        user_id: String,
        /// The agent.
        agent_id: String,
        /// The tool's server.
        server: String,
        /// The tool.
        tool: String,
        /// The current state.
        state: ActionStatus,
        /// What the policy decided: `allow` or `require_approval`.
        verdict: String,
        /// What decided it: `rule NAME`, `grant ID`, `tool`, `side_effects` …; null if nothing required approval.
        rule: Option<String>,
        /// The reason that the approver is shown.
        reason: Option<String>,
        /// The rules and other checks that matched, and lost.
        lost: Vec<Lost>,
        /// When the call was announced or its approval requested.
        created_at: Timestamp,
        /// When the approval request expires.
        expires_at: Option<Timestamp>,
        /// The approver's answer.
        resolution: Option<Resolution>,
        /// The approver.
        resolved_by: Option<String>,
        /// When the approver answered.
        resolved_at: Option<Timestamp>,
        /// The grant that was made with the answer, or that covered the call.
        grant_id: Option<GrantId>,
        /// Its rows of the audit log.
        audit: AuditProof,
    }
}
