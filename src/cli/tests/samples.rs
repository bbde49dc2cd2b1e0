//! Answers of the API for tests: whole ones, of which a test says what it is about.

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::api::approvals::PendingApproval;
use crate::api::decisions::{DecisionDetail, DecisionRecord, ToolInvocation};
use crate::api::planning::{Session, TaskDetail, Version};
use crate::api::runs::AgentRun;
use crate::api::threads::{ActionAnswer, Thread, ThreadMessage};
use crate::domain::plan::Task;

/// A type with a whole answer.
pub(crate) trait Sample: DeserializeOwned {
    fn whole() -> Value;
}

/// The whole answer with these fields.
pub(crate) fn sample<T: Sample>(with: Value) -> T {
    let mut whole = T::whole();
    let fields = with.as_object().cloned().unwrap_or_default();
    whole.as_object_mut().unwrap().extend(fields);
    serde_json::from_value(whole).unwrap_or_else(|error| panic!("{error}"))
}

macro_rules! samples {
    ($($type:ty => $whole:tt)+) => {
        $(impl Sample for $type {
            fn whole() -> Value {
                json!($whole)
            }
        })+
    };
}

const ID: &str = "01980000-0000-7000-8000-000000000000";
const AT: &str = "2026-11-22T10:00:00.000000Z";

samples! {
    PendingApproval => {
        "approvalId": ID, "runId": ID, "actionId": ID, "userId": "ann", "agentId": "workspace", "tool": "t", "arguments": {},
        "grantable": false, "reason": "", "warnings": [], "createdAt": AT, "expiresAt": AT
    }
    ActionAnswer => {
        "tool": "t", "status": "failed", "state": "failed", "requiresApproval": false, "actionId": ID,
        "record": {"modelName": "", "toolName": "t", "inputHash": "", "executionStatus": "failed"}
    }
    AgentRun => {
        "id": ID, "project_id": "default", "agent_id": "a", "status": "completed", "steps": 0, "created_at": AT,
        "definition_hash": "", "attempts": [], "in_doubt": [],
        "usage": {"input_tokens": 0, "output_tokens": 0, "thought_tokens": 0, "cached_tokens": 0}
    }
    Thread => {
        "threadId": ID, "userId": "ann", "agentId": "workspace", "createdAt": AT, "updatedAt": AT, "messages": [],
        "messageCount": 0
    }
    ThreadMessage => {
        "number": 1, "role": "user", "kind": "message", "text": "", "runId": ID, "createdAt": AT
    }
    DecisionRecord => {
        "decision_id": ID, "conversation_id": "c", "requested_model": "m", "usage": null, "surface": "chat", "user_id": "ann",
        "status": "closed", "created_at": AT, "definition_hash": "", "request_id": "", "history_entries": 0, "turns": [],
        "limits_reached": [],
        "recovered": false
    }
    DecisionDetail => {
        "decision_id": ID, "conversation_id": "c", "requested_model": "m", "usage": null, "surface": "chat", "user_id": "ann",
        "status": "closed", "created_at": AT, "definition_hash": "", "request_id": "", "history_entries": 0, "turns": [],
        "limits_reached": [],
        "recovered": false, "tool_calls": []
    }
    ToolInvocation => {
        "tool_invocation_id": ID, "decision_id": ID, "sequence": 1, "tool": "t", "result": {"success": true},
        "status": "completed", "side_effect": false, "lost": [], "argument_bytes": 0,
        "user_id": "ann", "created_at": AT
    }
    Session => {
        "sessionId": ID, "status": "AWAITING_CONFIRMATION", "prompt": "", "repoUrl": "", "deadline": AT, "timeLeftMs": 0,
        "planVersion": 0, "plan": [], "summary": "", "assumptions": [], "risks": [], "runId": ID, "createdAt": AT,
        "updatedAt": AT,
        "usage": {"modelCalls": 0, "inputTokens": 0, "outputTokens": 0, "thoughtTokens": 0, "cachedTokens": 0}
    }
    Task => {
        "id": "t1", "sessionId": ID, "title": "", "goal": "", "doneWhen": "", "tools": [], "status": "PENDING", "steps": 0
    }
    TaskDetail => {
        "id": "t1", "sessionId": ID, "title": "", "goal": "", "doneWhen": "", "tools": [], "status": "PENDING", "steps": 0,
        "reactHistory": []
    }
    Version => {
        "version": 1, "at": AT, "by": "ann", "kind": "proposed", "why": "", "changes": [], "planHash": "", "runId": ID, "plan": []
    }
}
