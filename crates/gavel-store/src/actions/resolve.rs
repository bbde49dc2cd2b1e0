//! Resolutions of approvals, the grants that they create, and settlements of in-doubt actions.

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};

use serde::Deserialize;
use sha2::{Digest, Sha256};

use super::super::audit::{AuditKind, Entry, Whose, field};
use super::super::db::{Conn, sql, values};
use super::super::error::Fault;
use super::super::runs::in_doubt;
use super::super::table::Insert;
use super::super::transition::{may_be_settled_as_any, may_become_any};
use super::{GRANT, NewGrant};
use crate::api::runs::InDoubtCall;
use crate::domain::action::ActionStatus::{self, Approved, AwaitingConfirmation, Completed, Expired, Failed, Rejected};
use crate::domain::action::{DID_NOT_HAPPEN, Details, Resolution};
use crate::domain::agent_run::RunStatus;
use crate::domain::ids::{ActionId, GrantId, PlanningSessionId, RunId, TenantId, UserId};
use crate::domain::thread::MessageKind;
use crate::domain::tool::FailureCode;
use crate::ports::actions::{Resolve, Resolved, Revoke, Settle, SettleDone};
use crate::queue::Batch;

/// Minimum time, in microseconds, that an approved action has to start, even if it was approved just before its expiry.
const TO_BEGIN_US: i64 = 60_000_000;

/// An approval request.
#[derive(Deserialize)]
struct Request {
    status: ActionStatus,
    resolution: Option<Resolution>,
    resolved_by: Option<String>,
    has_expired: bool,
    tenant: TenantId,
    user_id: UserId,
    server: String,
    tool: String,
    tool_digest: String,
    /// JSON.
    details: String,
    run_id: RunId,
}

impl Batch<'_> {
    pub(crate) async fn resolve(&self, conn: &mut Conn, resolve: &Resolve) -> Result<Resolved, Fault> {
        let request = "SELECT status, resolution, resolved_by, expires_at <= @now AS has_expired, tenant, user_id, server, \
                       tool, tool_digest, COALESCE(details, '') AS details, run_id FROM agent_action WHERE id = $1";
        let request: Option<Request> = conn.one(request, values![resolve.action]).await?;
        let request = request.ok_or_else(|| Fault::Refused("the action does not exist".into()))?;
        if request.status != AwaitingConfirmation {
            // The reason is not compared: the first one is kept.
            let same =
                request.resolution == Some(resolve.resolution) && request.resolved_by.as_deref() == Some(&*resolve.by);
            return Ok(match same {
                true => Resolved::Again,
                false => Resolved::Late(request.status, request.resolution, request.resolved_by),
            });
        }
        if request.has_expired {
            self.expire_actions(conn, resolve.root).await?;
            return Ok(Resolved::Late(Expired, None, None));
        }
        let status = match resolve.resolution.approves() {
            true => Approved,
            false => Rejected,
        };
        if status == Approved && !self.is_as_asked(conn, resolve.action).await? {
            return Ok(Resolved::Changed);
        }
        let (run, tool) = (request.run_id, request.tool.clone());
        let grant = match resolve.grant {
            Some(new) => Some(self.grant(conn, resolve, new, request).await?),
            None => None,
        };
        let update = sql!(
            "UPDATE agent_action SET status = $2, resolution = $3, resolved_by = $4, reason = $5, grant_id = $6, \
             resolved_at = @now, completed_at = CASE WHEN $2 = 'rejected' THEN @now ELSE NULL END, \
             expires_at = CASE WHEN $2 = 'approved' AND expires_at < @now + {TO_BEGIN_US} THEN @now + {TO_BEGIN_US} \
             ELSE expires_at END WHERE id = $1 AND {}",
            may_become_any("$2", &[Approved, Rejected])
        );
        let (status, reason) = (status.as_str(), resolve.reason.as_ref());
        let answer = resolve.resolution.as_str();
        let values = values![resolve.action, status, answer, &resolve.by, reason, grant];
        conn.execute(update, values).await?;
        let mut entry = Entry::of_action(AuditKind::ApprovalResolved, resolve.action, run, &tool)
            .by(&resolve.by)
            .with("approval_id", resolve.approval.to_string())
            .with("decision", answer);
        if let Some(reason) = reason {
            entry = entry.with_content("reason", &self.writing.content, reason);
        }
        self.audit(entry);
        let kind = MessageKind::Approval.as_str();
        self.add_thread_line(conn, run, Some(resolve.action), kind, &resolve.words)
            .await?;
        self.wake(conn, resolve.root).await?;
        Ok(Resolved::Done)
    }

    /// Whether an approval request still matches its audit entry. Its row holds what the approver is shown.
    async fn is_as_asked(&self, conn: &mut Conn, action: ActionId) -> Result<bool, Fault> {
        #[derive(Deserialize)]
        struct Asked {
            arguments: String,
            details: Option<String>,
            entered: String,
        }
        let asked = "SELECT q.arguments, q.details, a.detail AS entered FROM agent_action q \
                     JOIN audit a ON a.subject = q.id AND a.kind = 'approval_requested' WHERE q.id = $1";
        let Some(asked) = conn.one::<Asked>(asked, values![action]).await? else {
            return Ok(true);
        };
        let same = |text: &str, name: &str| {
            field(&asked.entered, name).is_none_or(|hash| hash == hex::encode(Sha256::digest(text)))
        };
        let details = asked.details.as_deref().unwrap_or_default();
        Ok(same(&asked.arguments, "arguments_sha256") && same(details, "question_sha256"))
    }

    /// The grant that a resolution creates: `new`, unless an identical grant exists.
    async fn grant(
        &self,
        conn: &mut Conn,
        resolve: &Resolve,
        new: GrantId,
        request: Request,
    ) -> Result<GrantId, Fault> {
        static CREATE: LazyLock<Insert> = LazyLock::new(|| GRANT.inserts("ON CONFLICT DO NOTHING"));
        let details: Details = serde_json::from_str(&request.details)
            .map_err(|error| Fault::Refused(format!("the details of an action are unreadable: {error}").into()))?;
        let recipients = details.recipients.unwrap_or_default();
        let grant = NewGrant {
            id: new,
            tenant: request.tenant,
            user: request.user_id,
            server: request.server,
            tool: request.tool,
            recipients: serde_json::to_string(&recipients)
                .unwrap_or_else(|error| unreachable!("recipients print as JSON: {error}")),
            tool_digest: request.tool_digest,
            action: resolve.action,
            by: resolve.by.clone(),
        };
        let live = "SELECT id FROM approval_grant WHERE tenant = $1 AND user_id = $2 AND server = $3 AND tool = $4 \
                    AND recipients = $5 AND tool_digest = $6 AND revoked_at IS NULL";
        let key = values![
            &grant.tenant,
            &grant.user,
            &grant.server,
            &grant.tool,
            &grant.recipients,
            &grant.tool_digest,
        ];
        // Not if there is the same grant.
        CREATE.run(conn, GRANT.begin(&grant, self.writing)).await?;
        if let Some(first) = conn.one(live, key).await?
            && first != new
        {
            return Ok(first);
        }
        let entry = Entry::new(AuditKind::GrantCreated, new)
            .decision(request.run_id)
            .action(resolve.action)
            .tool(&grant.tool)
            .by(&resolve.by)
            .with("server", grant.server)
            .with("tool_digest", grant.tool_digest)
            .with_content("recipients", &self.writing.content, &grant.recipients);
        self.audit(entry);
        Ok(new)
    }

    pub(crate) async fn revoke(&self, conn: &mut Conn, revoke: &Revoke) -> Result<bool, Fault> {
        #[derive(Deserialize)]
        struct Revoked {
            user_id: String,
            server: String,
            tool: String,
            recipients: String,
        }
        let values = values![revoke.grant, &revoke.tenant, revoke.user.as_ref(), &revoke.by];
        let update = "UPDATE approval_grant SET revoked_by = $4, revoked_at = @now WHERE id = $1 AND tenant = $2 \
                      AND (CAST($3 AS TEXT) IS NULL OR user_id = $3) AND revoked_at IS NULL \
                      RETURNING user_id, server, tool, recipients";
        let Some(revoked) = conn.one::<Revoked>(update, values.clone()).await? else {
            // The same user may have revoked it, in a commit that was not acknowledged.
            let again = "SELECT id FROM approval_grant WHERE id = $1 AND tenant = $2 \
                         AND (CAST($3 AS TEXT) IS NULL OR user_id = $3) AND revoked_by = $4";
            return Ok(conn.exists(again, values).await?);
        };
        let entry = Entry::new(AuditKind::GrantRevoked, revoke.grant)
            .for_(Whose::new(revoke.tenant.as_str(), &revoked.user_id))
            .by(&revoke.by)
            .tool(&revoked.tool)
            .with("server", revoked.server)
            .with_content("recipients", &self.writing.content, &revoked.recipients);
        self.audit(entry);
        Ok(true)
    }
}

/// A settled action.
#[derive(Deserialize)]
pub(crate) struct Settled {
    run_id: RunId,
    tool: String,
}

impl Batch<'_> {
    pub(crate) async fn settle(&self, conn: &mut Conn, settle: &Settle) -> Result<SettleDone, Fault> {
        /// An action, and its outermost run.
        #[derive(Deserialize)]
        struct Doubt {
            status: ActionStatus,
            settled_by: Option<String>,
            root_status: RunStatus,
            root_in_doubt: Vec<InDoubtCall>,
            session_id: Option<PlanningSessionId>,
            /// While it is suspended.
            waits_for: Vec<ActionId>,
        }
        let doubt = "SELECT action.status, action.settled_by, root.status AS root_status, root.in_doubt AS root_in_doubt, \
                     root.session_id, CASE root.status WHEN 'awaiting_confirmation' THEN root.waits_for END AS waits_for \
                     FROM agent_action action JOIN agent_run root ON root.id = action.root_id WHERE action.id = $1";
        let doubt: Option<Doubt> = conn.one(doubt, values![settle.action]).await?;
        let doubt = doubt.ok_or_else(|| Fault::Refused("the action does not exist".into()))?;
        if doubt.status != ActionStatus::InDoubt {
            let again =
                doubt.status == settled_status(settle.happened) && doubt.settled_by.as_deref() == Some(&*settle.by);
            return Ok(match again {
                true => SettleDone::Again,
                false => SettleDone::NotInDoubt(doubt.status),
            });
        }
        // The next steps of the root run depend on the outcome in its journal. A planning session's run reads the
        // settlement, and may wait for it.
        if !doubt.root_status.has_ended() && doubt.session_id.is_none() {
            return Ok(SettleDone::RunInProgress);
        }
        let is_it = |call: &InDoubtCall| call.action_id == settle.action;
        if doubt.root_status == RunStatus::Paused && doubt.root_in_doubt.iter().any(is_it) {
            return Ok(SettleDone::WithRun);
        }
        let settled = self.settle_action(conn, settle.action, settle.happened, &settle.by);
        if let Some(Settled { run_id, tool }) = settled.await? {
            let kind = MessageKind::Settlement.as_str();
            self.add_thread_line(conn, run_id, Some(settle.action), kind, &settle.words)
                .await?;
            self.no_more_in_doubt(conn, settle.root, settle.action).await?;
            let entry = Entry::of_action(AuditKind::DoubtSettled, settle.action, run_id, &tool)
                .by(&settle.by)
                .with("happened", settle.happened);
            self.audit(entry);
        }
        if !doubt.waits_for.is_empty() && self.all_settled(conn, &doubt.waits_for).await? {
            self.wake(conn, settle.root).await?;
        }
        Ok(SettleDone::Done)
    }

    /// Whether a person has settled all of these actions.
    pub(super) async fn all_settled(&self, conn: &mut Conn, actions: &[ActionId]) -> Result<bool, Fault> {
        let is_settled = "SELECT id FROM agent_action WHERE id = $1 AND settled_by IS NOT NULL";
        for action in actions {
            if !conn.exists(is_settled, values![*action]).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The settled actions of a planning session's run and of the runs that it called, if they matter: they can be settled
    /// while the run is in progress. What a person has settled is not overwritten with the outcome in a journal. Every
    /// other run gets the answers when it is resumed, and keeps them until its journal has them.
    pub(crate) async fn settled_among(
        &self,
        conn: &mut Conn,
        root: RunId,
        matter: bool,
    ) -> Result<BTreeSet<ActionId>, Fault> {
        if !matter {
            return Ok(BTreeSet::new());
        }
        let settled = "SELECT id FROM agent_action WHERE root_id = $1 AND settled_by IS NOT NULL \
                       AND EXISTS (SELECT 1 FROM agent_run root WHERE root.id = $1 AND root.session_id IS NOT NULL)";
        Ok(conn.all(settled, values![root]).await?.into_iter().collect())
    }

    /// Removes a settled call from the in-doubt lists of its run and of the runs above it.
    async fn no_more_in_doubt(&self, conn: &mut Conn, root: RunId, settled: ActionId) -> Result<(), Fault> {
        #[derive(Deserialize)]
        struct Run {
            id: RunId,
            in_doubt: Vec<InDoubtCall>,
        }
        let runs = "SELECT id, in_doubt FROM agent_run WHERE root_id = $1 AND in_doubt IS NOT NULL ORDER BY id";
        let update = "UPDATE agent_run SET in_doubt = $2, error_message = CASE WHEN stop_reason = 'in_doubt' \
                      AND CAST($2 AS TEXT) IS NULL THEN 'the outcome of a call was unknown; a user has settled it since' \
                      ELSE error_message END WHERE id = $1";
        for mut run in conn.all::<Run>(runs, values![root]).await? {
            run.in_doubt.retain(|call| call.action_id != settled);
            conn.execute(update, values![run.id, in_doubt(&run.in_doubt)]).await?;
        }
        Ok(())
    }

    /// Records a settlement as the outcome of an in-doubt action, in its row and in the tool-call log. `None` if the call
    /// has no action, as that of an agent.
    pub(crate) async fn settle_action(
        &self,
        conn: &mut Conn,
        action: ActionId,
        happened: bool,
        by: &Arc<str>,
    ) -> Result<Option<Settled>, Fault> {
        let status = settled_status(happened).as_str();
        let code = (!happened).then_some(FailureCode::ToolError.as_str());
        let message = (!happened).then_some(DID_NOT_HAPPEN);
        // Replaces an earlier settlement whose resume never started.
        let settle = sql!(
            "UPDATE agent_action SET status = $2, error_code = $3, error_message = $4, settled_by = $5, \
             settled_at = @now WHERE id = $1 AND {} AND (status = 'in_doubt' OR settled_by IS NOT NULL) \
             RETURNING run_id, tool",
            may_be_settled_as_any("$2", &[Completed, Failed])
        );
        let settled: Option<Settled> = conn.one(settle, values![action, status, code, message, by]).await?;
        if let Some(settled) = &settled {
            let record = "UPDATE tool_invocation_log SET status = $2, error_code = $3, error_message = $4 \
                          WHERE decision_id = $5 AND id = $1 \
                          AND (status = 'in_doubt' OR status = 'completed' OR status = 'failed')";
            let values = values![action, status, code, message, settled.run_id];
            conn.execute(record, values).await?;
        }
        Ok(settled)
    }
}

/// The status that a settlement gives to an in-doubt action.
const fn settled_status(happened: bool) -> ActionStatus {
    match happened {
        true => Completed,
        false => Failed,
    }
}
