//! The entries of the audit log.

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value as Json, json};
use sha2::{Digest, Sha256};

use super::super::config::ContentMode;
use super::super::content::capped;
use super::super::db::Value;
use crate::domain::names::names;
use crate::domain::tool::FailureCode;
use crate::ports::records::{ClosedCall, OpenCall, OpenDecision};

names! {
    /// What happened.
    AuditKind {
        /// A tool call with side effects is about to be sent.
        EffectIntended = "effect_intended",
        /// The tool call succeeded.
        EffectCompleted = "effect_completed",
        /// The tool call failed, or was not sent.
        EffectFailed = "effect_failed",
        /// The tool call was sent, and its outcome is unknown.
        EffectInDoubt = "effect_in_doubt",
        /// An approval was requested.
        ApprovalRequested = "approval_requested",
        /// An approver resolved the request.
        ApprovalResolved = "approval_resolved",
        /// The approval request expired, or its run ended first.
        ApprovalExpired = "approval_expired",
        /// A grant was created.
        GrantCreated = "grant_created",
        /// A grant was revoked.
        GrantRevoked = "grant_revoked",
        /// A user settled whether an in-doubt action had happened.
        DoubtSettled = "doubt_settled",
        /// An agent definition was uploaded.
        DefinitionPut = "definition_put",
        /// The cancellation of a run was requested.
        RunCancelled = "run_cancelled",
        /// A person confirmed a version of a planning session's plan.
        PlanConfirmed = "plan_confirmed",
        /// A planning session was cancelled.
        SessionCancelled = "session_cancelled",
        /// A planning session ended in another way.
        SessionEnded = "session_ended",
        /// gavel restored a trigger that keeps the audit append-only.
        TriggerRestored = "trigger_restored",
    }
}

/// A string field in the detail of an entry.
pub(crate) fn field(detail: &str, name: &str) -> Option<String> {
    let detail: Json = serde_json::from_str(detail).ok()?;
    detail.get(name)?.as_str().map(str::to_owned)
}

/// The user on whose behalf gavel acted, and the surface.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Whose {
    pub(super) tenant: String,
    pub(super) user: String,
    /// `None` if no surface was involved.
    pub(super) surface: Option<String>,
}

impl Whose {
    pub(crate) fn new(tenant: &str, user: &str) -> Self {
        Self {
            tenant: tenant.to_owned(),
            user: user.to_owned(),
            surface: None,
        }
    }

    pub(super) fn of(decision: &OpenDecision) -> Self {
        Self {
            surface: Some(decision.surface.to_owned()),
            ..Self::new(decision.tenant.as_str(), decision.user.as_str())
        }
    }
}

/// One audit entry, before it has a place in the chain.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(super) kind: AuditKind,
    pub(super) subject: String,
    /// The actor, if it is not the user.
    pub(super) actor: Option<String>,
    /// If unknown here, it is read from the decision.
    pub(super) whose: Option<Whose>,
    pub(super) decision: Option<String>,
    pub(super) action: Option<String>,
    pub(super) tool: Option<String>,
    pub(super) detail: Map<String, Json>,
}

impl Entry {
    pub(crate) fn new(kind: AuditKind, subject: impl ToString) -> Self {
        Self {
            kind,
            subject: subject.to_string(),
            actor: None,
            whose: None,
            decision: None,
            action: None,
            tool: None,
            detail: Map::new(),
        }
    }

    /// An entry about a tool call.
    pub(crate) fn of_action(kind: AuditKind, action: impl ToString, decision: impl ToString, tool: &str) -> Self {
        let mut entry = Self::new(kind, action).decision(decision).tool(tool);
        entry.action = Some(entry.subject.clone());
        entry
    }

    pub(crate) fn by(mut self, actor: &str) -> Self {
        self.actor = Some(actor.to_owned());
        self
    }

    pub(crate) fn for_(mut self, whose: Whose) -> Self {
        self.whose = Some(whose);
        self
    }

    pub(crate) fn decision(mut self, decision: impl ToString) -> Self {
        self.decision = Some(decision.to_string());
        self
    }

    pub(crate) fn action(mut self, action: impl ToString) -> Self {
        self.action = Some(action.to_string());
        self
    }

    pub(crate) fn tool(mut self, tool: &str) -> Self {
        self.tool = Some(capped(tool).to_owned());
        self
    }

    pub(crate) fn with(mut self, field: &str, value: impl Into<Json>) -> Self {
        self.detail.insert(field.to_owned(), value.into());
        self
    }

    /// Adds text written by users, reduced according to the content mode.
    pub(crate) fn with_content(self, field: &str, content: &ContentMode, text: &str) -> Self {
        match content.text(text) {
            Value::Text(Some(kept)) => self.with(field, &*kept),
            _ => self,
        }
    }

    /// Adds arguments, reduced according to the content mode, and always their hash.
    pub(crate) fn with_arguments(mut self, content: &ContentMode, arguments: &RawValue) -> Self {
        if let Value::Text(Some(kept)) = content.json(arguments) {
            // As text, so that large numbers are not rounded by JSON readers.
            self = self.with("arguments", &*kept);
        }
        self.with("arguments_sha256", hex::encode(Sha256::digest(arguments.get())))
    }

    pub(crate) fn with_tool(self, server: &str, digest: &str) -> Self {
        self.with("server", server).with("tool_digest", digest)
    }

    pub(crate) fn with_code(self, code: FailureCode) -> Self {
        self.with("error_code", code.as_str())
    }

    /// A side effect that is about to be sent; `None` for a read-only call.
    pub(crate) fn intended(call: &OpenCall, decision: Option<&OpenDecision>, content: &ContentMode) -> Option<Self> {
        let tool = call.tool.as_ref().filter(|tool| tool.side_effect)?;
        let mut entry = Self::of_action(AuditKind::EffectIntended, call.id, call.decision, &tool.name)
            .with_tool(&tool.server, &tool.digest)
            .with_arguments(content, &call.arguments)
            .with("idempotency_key", call.idempotency_key.as_deref());
        entry.whose = decision.map(Whose::of);
        Some(entry)
    }

    /// The outcome of a side effect that was sent; `None` for a read-only call or one that was not sent.
    pub(crate) fn ended(call: &ClosedCall, decision: &OpenDecision) -> Option<Self> {
        let tool = call.open.tool.as_ref().filter(|tool| tool.side_effect)?;
        call.started_at?;
        let code = call.outcome.as_ref().err().map(|failure| failure.code);
        let entry = Self::outcome(call.open.id, decision.id, &tool.name, code);
        Some(entry.for_(Whose::of(decision)))
    }

    /// The outcome of a side effect: success, or an error code.
    pub(crate) fn outcome(
        action: impl ToString,
        decision: impl ToString,
        tool: &str,
        code: Option<FailureCode>,
    ) -> Self {
        let kind = match code {
            None => AuditKind::EffectCompleted,
            Some(FailureCode::InDoubt) => AuditKind::EffectInDoubt,
            Some(_) => AuditKind::EffectFailed,
        };
        let entry = Self::of_action(kind, action, decision, tool);
        match code {
            Some(code) => entry.with_code(code),
            None => entry,
        }
    }

    /// The detail as it is stored.
    pub(super) fn detail(&self, whose: &Whose) -> String {
        let mut detail = self.detail.clone();
        detail.insert("user".to_owned(), json!(whose.user));
        if let Some(surface) = &whose.surface {
            detail.insert("surface".to_owned(), json!(surface));
        }
        Json::Object(detail).to_string()
    }
}
