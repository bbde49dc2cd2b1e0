//! Resolutions of approvals, and the grants that they create.

use sha2::{Digest, Sha256};

use super::super::audit::{AuditKind, Entry, Whose, field};
use super::super::batch::Batch;
use super::super::db::{Conn, Row, Value};
use super::super::error::Fault;
use super::super::runs::{id, parse};
use super::Line;
use crate::domain::action::{ActionStatus, Details, Resolution};
use crate::domain::ids::{ActionId, GrantId, RunId};
use crate::domain::thread::MessageKind;
use crate::ports::actions::{Resolve, Resolved, Revoke};

impl Batch<'_> {
    pub(in super::super) async fn resolve(&self, conn: &mut Conn, resolve: &Resolve) -> Result<Resolved, Fault> {
        let Some(request) = conn
            .first(&self.action_texts().request, vec![id(resolve.action)])
            .await?
        else {
            return Err(Fault::Refused("the action does not exist".into()));
        };
        let status = parse(&request.text(0)?, ActionStatus::parse)?;
        if status != ActionStatus::AwaitingConfirmation {
            let said = request.opt_text(1)?;
            let said = said.map(|text| parse(&text, Resolution::parse)).transpose()?;
            let by = request.opt_text(2)?;
            // The reason is not compared: the first one is kept.
            let same = said == Some(resolve.resolution) && by.as_deref() == Some(&*resolve.by);
            return Ok(match same {
                true => Resolved::Again,
                false => Resolved::Late(status, said, by),
            });
        }
        if request.bool(4)? {
            self.expire_actions(conn, resolve.root).await?;
            return Ok(Resolved::Late(ActionStatus::Expired, None, None));
        }
        if resolve.resolution.approves() && !self.is_as_asked(conn, resolve.action).await? {
            return Ok(Resolved::Changed);
        }
        let (run, tool) = (parse(&request.text(10)?, RunId::parse)?, request.text(7)?);
        let grant = match resolve.grant {
            Some(new) => Some(self.grant(conn, resolve, new, &request).await?),
            None => None,
        };
        let status = match resolve.resolution.approves() {
            true => ActionStatus::Approved,
            false => ActionStatus::Rejected,
        };
        let values = vec![
            id(resolve.action),
            Value::text(status.as_str()),
            Value::text(resolve.resolution.as_str()),
            Value::shared(&resolve.by),
            resolve.reason.as_ref().map_or(Value::Text(None), Value::shared),
            grant.unwrap_or(Value::Text(None)),
        ];
        conn.execute(&self.action_texts().resolve, values).await?;
        let mut entry = Entry::of_action(AuditKind::ApprovalResolved, resolve.action, run, &tool)
            .by(&resolve.by)
            .with("approval_id", resolve.approval.to_string())
            .with("decision", resolve.resolution.as_str());
        if let Some(reason) = &resolve.reason {
            entry = entry.with_content("reason", &self.writing.content, reason);
        }
        self.audit(entry);
        let line = Line::Of(MessageKind::Approval);
        self.add_thread_line(conn, run, Some(resolve.action), line, &resolve.words)
            .await?;
        self.wake(conn, resolve.root).await?;
        Ok(Resolved::Done)
    }

    /// Whether an approval request still matches its audit entry. Its row holds what the approver is shown.
    async fn is_as_asked(&self, conn: &mut Conn, action: ActionId) -> Result<bool, Fault> {
        let Some(found) = conn.first(&self.action_texts().entered, vec![id(action)]).await? else {
            return Ok(true);
        };
        let entered = found.text(2)?;
        let same = |text: String, name: &str| {
            field(&entered, name).is_none_or(|hash| hash == hex::encode(Sha256::digest(text)))
        };
        let details = found.opt_text(1)?.unwrap_or_default();
        Ok(same(found.text(0)?, "arguments_sha256") && same(details, "question_sha256"))
    }

    /// The id of the grant that a resolution creates: `new`, unless an identical grant exists. `request` is the row of
    /// the approval request.
    async fn grant(&self, conn: &mut Conn, resolve: &Resolve, new: GrantId, request: &Row) -> Result<Value, Fault> {
        let details: Details = parse(&request.opt_text(8)?.unwrap_or_default(), |text| {
            serde_json::from_str(text).ok()
        })?;
        let recipients = serde_json::to_string(&details.recipients.unwrap_or_default())
            .unwrap_or_else(|error| unreachable!("recipients print as JSON: {error}"));
        let (server, tool, digest) = (request.text(6)?, request.text(7)?, request.text(11)?);
        let key = vec![
            Value::text(&request.text(9)?),
            Value::text(&request.text(5)?),
            Value::text(&server),
            Value::text(&tool),
            Value::text(&recipients),
            Value::text(&digest),
        ];
        let texts = self.action_texts();
        if let Some(there) = conn.first(&texts.live_grant, key.clone()).await? {
            return Ok(Value::text(&there.text(0)?));
        }
        let mut values = vec![id(new)];
        values.extend(key.clone());
        values.extend([id(resolve.action), Value::shared(&resolve.by)]);
        conn.execute(&texts.new_grant, values).await?;
        // Another transaction may have created the same grant first.
        if let Some(first) = conn.first(&texts.live_grant, key).await? {
            let first = first.text(0)?;
            if first != new.to_string() {
                return Ok(Value::text(&first));
            }
        }
        let entry = Entry::new(AuditKind::GrantCreated, new)
            .decision(parse(&request.text(10)?, RunId::parse)?)
            .action(resolve.action)
            .tool(&tool)
            .by(&resolve.by)
            .with("server", server)
            .with("tool_digest", digest)
            .with_content("recipients", &self.writing.content, &recipients);
        self.audit(entry);
        Ok(id(new))
    }

    pub(in super::super) async fn revoke(&self, conn: &mut Conn, revoke: &Revoke) -> Result<bool, Fault> {
        let user = revoke.user.as_ref().map(|user| Value::text(user.as_str()));
        let values = vec![
            id(revoke.grant),
            Value::text(revoke.tenant.as_str()),
            user.unwrap_or(Value::Text(None)),
            Value::shared(&revoke.by),
        ];
        let Some(row) = conn.first(&self.action_texts().revoke, values.clone()).await? else {
            // The same user may have revoked it, in a commit that was not acknowledged.
            return Ok(conn.first(&self.action_texts().revoked, values).await?.is_some());
        };
        let entry = Entry::new(AuditKind::GrantRevoked, revoke.grant)
            .for_(Whose::new(revoke.tenant.as_str(), &row.text(0)?))
            .by(&revoke.by)
            .tool(&row.text(2)?)
            .with("server", row.text(1)?)
            .with_content("recipients", &self.writing.content, &row.text(3)?);
        self.audit(entry);
        Ok(true)
    }
}
