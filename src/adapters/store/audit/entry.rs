//! What is entered.

use serde_json::value::RawValue;
use serde_json::{Map, Value as Json, json};
use sha2::{Digest, Sha256};

use super::super::config::ContentMode;
use super::super::content::capped;
use super::super::db::Value;
use crate::domain::names::names;
use crate::domain::tool::{FailureCode, Tool};
use crate::ports::records::{CallRecord, Intent, OpenDecision};

names! {
    /// What happened.
    AuditKind {
        /// A tool with consequences is about to be called.
        EffectIntended = "effect_intended",
        /// It answered that all went well.
        EffectCompleted = "effect_completed",
        /// It failed, or was never sent after all.
        EffectFailed = "effect_failed",
        /// It was sent, and nobody knows what came of it.
        EffectInDoubt = "effect_in_doubt",
        /// A person was asked.
        ApprovalRequested = "approval_requested",
        /// A person answered.
        ApprovalResolved = "approval_resolved",
        /// Nobody answered in time, or the run was over first.
        ApprovalExpired = "approval_expired",
        /// Standing leave was given.
        GrantCreated = "grant_created",
        /// It was taken back.
        GrantRevoked = "grant_revoked",
        /// A person said whether what was in doubt had happened.
        DoubtSettled = "doubt_settled",
        /// A definition of an agent was put.
        DefinitionPut = "definition_put",
        /// Somebody asked for a run to be cancelled.
        RunCancelled = "run_cancelled",
        /// gavel restored a trigger that keeps the audit append-only.
        TriggerRestored = "trigger_restored",
    }
}

/// A text in the detail of an entry.
pub(in super::super) fn field(detail: &str, name: &str) -> Option<String> {
    let detail: Json = serde_json::from_str(detail).ok()?;
    detail.get(name)?.as_str().map(str::to_owned)
}

/// On whose behalf something is done, and where.
#[derive(Clone, Debug)]
pub(in super::super) struct Whose {
    pub(super) tenant: String,
    pub(super) user: String,
    /// None for what no surface did.
    pub(super) surface: Option<String>,
}

impl Whose {
    pub(in super::super) fn new(tenant: &str, user: &str) -> Self {
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

/// One thing that happened, before it has its place.
#[derive(Clone, Debug)]
pub(in super::super) struct Entry {
    pub(super) kind: AuditKind,
    pub(super) subject: String,
    /// Who did it, where that is not the user.
    pub(super) actor: Option<String>,
    /// Read from the decision where it is not known here.
    pub(super) whose: Option<Whose>,
    pub(super) decision: Option<String>,
    pub(super) action: Option<String>,
    pub(super) tool: Option<String>,
    pub(super) detail: Map<String, Json>,
}

impl Entry {
    pub(in super::super) fn new(kind: AuditKind, subject: impl ToString) -> Self {
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

    /// Of something that happened to a call.
    pub(in super::super) fn of_action(
        kind: AuditKind,
        action: impl ToString,
        decision: impl ToString,
        tool: &str,
    ) -> Self {
        let mut entry = Self::new(kind, action).decision(decision).tool(tool);
        entry.action = Some(entry.subject.clone());
        entry
    }

    pub(in super::super) fn by(mut self, actor: &str) -> Self {
        self.actor = Some(actor.to_owned());
        self
    }

    pub(in super::super) fn for_(mut self, whose: Whose) -> Self {
        self.whose = Some(whose);
        self
    }

    pub(in super::super) fn decision(mut self, decision: impl ToString) -> Self {
        self.decision = Some(decision.to_string());
        self
    }

    pub(in super::super) fn action(mut self, action: impl ToString) -> Self {
        self.action = Some(action.to_string());
        self
    }

    pub(in super::super) fn tool(mut self, tool: &str) -> Self {
        self.tool = Some(capped(tool).to_owned());
        self
    }

    pub(in super::super) fn with(mut self, field: &str, value: impl Into<Json>) -> Self {
        self.detail.insert(field.to_owned(), value.into());
        self
    }

    /// A text that belongs to people, as far as the content mode keeps it.
    pub(in super::super) fn with_content(self, field: &str, content: &ContentMode, text: &str) -> Self {
        match content.text(text) {
            Value::Text(Some(kept)) => self.with(field, &*kept),
            _ => self,
        }
    }

    /// Arguments, as far as the content mode keeps them; their hash in each mode.
    pub(in super::super) fn with_arguments(mut self, content: &ContentMode, arguments: &RawValue) -> Self {
        if let Value::Text(Some(kept)) = content.json(arguments) {
            // As text: a number that JSON's readers would round stays what it was.
            self = self.with("arguments", &*kept);
        }
        self.with("arguments_sha256", hex::encode(Sha256::digest(arguments.get())))
    }

    pub(in super::super) fn with_tool(self, tool: &Tool) -> Self {
        self.with("server", &*tool.server).with("tool_digest", &*tool.digest)
    }

    pub(in super::super) fn with_code(self, code: FailureCode) -> Self {
        self.with("error_code", code.as_str())
    }

    /// A side effect that is about to be sent; nothing for what only reads.
    pub(in super::super) fn intended(
        intent: &Intent,
        decision: Option<&OpenDecision>,
        content: &ContentMode,
    ) -> Option<Self> {
        intent.tool.side_effect.then(|| {
            let kind = AuditKind::EffectIntended;
            let mut entry = Self::of_action(kind, intent.id, intent.decision, &intent.tool.name)
                .with_tool(&intent.tool)
                .with_arguments(content, &intent.arguments)
                .with("idempotency_key", &*intent.idempotency_key);
            entry.whose = decision.map(Whose::of);
            entry
        })
    }

    /// What came of a side effect that was sent; nothing for what only read, or never left.
    pub(in super::super) fn ended(call: &CallRecord, decision: &OpenDecision) -> Option<Self> {
        let tool = call.tool.as_ref().filter(|tool| tool.side_effect)?;
        call.started_at?;
        let code = call.outcome.as_ref().err().map(|failure| failure.code);
        let entry = Self::outcome(call.id, decision.id, &tool.name, code);
        Some(entry.for_(Whose::of(decision)))
    }

    /// What came of a side effect: well, or why not.
    pub(in super::super) fn outcome(
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

    /// The detail as it is kept.
    pub(super) fn detail(&self, whose: &Whose) -> String {
        let mut detail = self.detail.clone();
        detail.insert("user".to_owned(), json!(whose.user));
        if let Some(surface) = &whose.surface {
            detail.insert("surface".to_owned(), json!(surface));
        }
        Json::Object(detail).to_string()
    }
}
