//! Changes of a session that no run makes: a person edits its plan or cancels it, time ends it, and retention deletes
//! it.

use std::time::Duration;

use super::super::audit::{AuditKind, Entry};
use super::super::batch::Batch;
use super::super::db::{Conn, Value};
use super::super::error::Fault;
use super::super::parsed::opt_parsed;
use super::super::runs::{RunDone, each, id, int, parse};
use super::op::PlanningOp;
use super::row::number;
use super::statements::PRUNED_AT_ONCE;
use super::write::{NewVersion, hash, moved, version};
use crate::domain::agent_run::RunStatus;
use crate::domain::ids::{PlanningSessionId, RunId};
use crate::domain::plan::Plan;
use crate::domain::planning_session::{SessionReason, SessionStatus};
use crate::ports::claims::Claimed;
use crate::ports::commit::{SessionEnd, Worked};
use crate::ports::planning::{Cleanup, Moved, PlanEdit, SessionCancel, VersionKind};

impl Batch<'_> {
    pub(in super::super) async fn write_planning(&self, conn: &mut Conn, op: &PlanningOp) -> Result<RunDone, Fault> {
        Ok(match op {
            PlanningOp::Edit(edit) => RunDone::Moved(self.edit_plan(conn, edit).await?),
            PlanningOp::Cancel(cancel) => RunDone::Moved(self.cancel_session(conn, cancel).await?),
            PlanningOp::Sweep(sessions, now_us, unconfirmed_us) => {
                let mut swept = 0;
                for session in sessions {
                    swept += u32::from(self.sweep_session(conn, *session, *now_us, *unconfirmed_us).await?);
                }
                RunDone::Swept(swept)
            }
        })
    }

    async fn edit_plan(&self, conn: &mut Conn, edit: &PlanEdit) -> Result<Moved, Fault> {
        let texts = self.planning_texts();
        let session = edit.session.to_string();
        // An earlier commit of the same op, whose acknowledgement was lost, has written the version.
        let values = vec![
            id(edit.session),
            int(i64::from(edit.version) + 1),
            int(edit.at_us),
            Value::shared(&edit.made.by),
            Value::text(&hash(&edit.made.plan.to_json())),
        ];
        if conn.first(&texts.is_edited, values).await?.is_some() {
            return Ok(Moved::Yes);
        }
        if let Some(claim) = &edit.claim {
            match self.claim(conn, claim, &session, None).await? {
                Claimed::New => {}
                Claimed::Mismatch => return Ok(Moved::Mismatch),
                // The same request has edited the plan before: otherwise the key would be free.
                Claimed::Run(_) | Claimed::Running | Claimed::Answered(_) => return Ok(Moved::Yes),
            }
        }
        let mut values = vec![id(edit.session), int(i64::from(edit.version))];
        values.extend(version(&edit.made)?);
        values.push(int(edit.at_us));
        if let Some(row) = conn.first(&texts.edited, values).await? {
            let version = NewVersion::of(&edit.made, VersionKind::Edited, None);
            self.add_version(conn, edit.session, &row, &version).await?;
            return Ok(Moved::Yes);
        }
        if let Some(claim) = &edit.claim {
            self.release_claim(conn, &claim.scope, edit.session).await?;
        }
        Ok(match conn.first(&texts.now, vec![id(edit.session)]).await? {
            Some(row) => {
                let (status, version) = moved(&row, edit.at_us)?;
                Moved::No(status, version)
            }
            None => Moved::NotFound,
        })
    }

    async fn cancel_session(&self, conn: &mut Conn, cancel: &SessionCancel) -> Result<Moved, Fault> {
        let texts = self.planning_texts();
        let detail = match &cancel.why {
            Some(why) => format!("cancelled by {}: {why}", cancel.by),
            None => format!("cancelled by {}", cancel.by),
        };
        let values = vec![
            id(cancel.session),
            Value::text(SessionReason::Cancelled.as_str()),
            Value::text(&detail),
            int(cancel.at_us),
        ];
        let Some(row) = conn.first(&texts.cancel, values).await? else {
            let Some(row) = conn.first(&texts.now, vec![id(cancel.session)]).await? else {
                return Ok(Moved::NotFound);
            };
            // The time as it is stored: what has ended is not ended again by its deadline.
            let (status, version) = moved(&row, i64::MIN)?;
            // From an earlier commit of the same op, whose acknowledgement was lost.
            let own = status == SessionStatus::Cancelled && row.opt_int(3)? == Some(cancel.at_us);
            return Ok(if own { Moved::Yes } else { Moved::No(status, version) });
        };
        let run = parse(&row.text(0)?, RunId::parse)?;
        self.cancel(conn, run, &cancel.by).await?;
        let entry = Entry::new(AuditKind::SessionCancelled, cancel.session)
            .decision(run)
            .by(&cancel.by);
        self.audit(match &cancel.why {
            Some(why) => entry.with_content("reason", &self.writing.content, why),
            None => entry,
        });
        Ok(Moved::Yes)
    }

    /// Ends a session whose deadline has passed or whose plan waited too long, or moves it on if its run ended without
    /// doing so. A run that waits for a settlement continues after the deadline, so that it can end. True if that changed
    /// anything.
    async fn sweep_session(
        &self,
        conn: &mut Conn,
        session: PlanningSessionId,
        now_us: i64,
        unconfirmed_us: i64,
    ) -> Result<bool, Fault> {
        let texts = self.planning_texts();
        let values = vec![id(session), int(now_us), int(unconfirmed_us)];
        let expired = conn.first(&texts.expire, values).await?;
        if let Some(row) = &expired {
            let run = parse(&row.text(0)?, RunId::parse)?;
            let reason = parse(&row.text(1)?, SessionReason::parse)?;
            self.audit_end(session, run, SessionStatus::DeadlineExceeded, Some(reason));
        }
        let waits = conn.first(&texts.waits_past, vec![id(session), int(now_us)]).await?;
        if let Some(row) = waits {
            self.wake(conn, parse(&row.text(0)?, RunId::parse)?).await?;
            return Ok(true);
        }
        if expired.is_some() {
            return Ok(true);
        }
        let Some(row) = conn.first(&texts.left_behind, vec![id(session)]).await? else {
            return Ok(false);
        };
        let run = parse(&row.text(0)?, RunId::parse)?;
        let status = row.opt_text(1)?;
        let works = parse(&row.text(3)?, SessionStatus::parse)? == SessionStatus::Executing;
        let (reason, detail) = match status.as_deref().and_then(RunStatus::parse) {
            Some(RunStatus::Cancelled) => (SessionReason::Cancelled, "its run was cancelled".to_owned()),
            _ => {
                let missing = if works { "a result" } else { "a plan" };
                let ended = || format!("its run ended without {missing}");
                (SessionReason::Internal, row.opt_text(2)?.unwrap_or_else(ended))
            }
        };
        let (detail, at) = (detail.into(), Some(now_us));
        if works {
            // A confirmed plan never waits for its confirmation again.
            let status = SessionStatus::without_plan(reason, false);
            let last = number(&row, 5)?;
            let plan = opt_parsed(&row, 4, |text| Plan::read(text, last).ok())?;
            let mut worked = Worked {
                plan: plan.unwrap_or_default(),
                changed: None,
                ended: Some(SessionEnd {
                    status,
                    reason: Some((reason, detail)),
                    // The processes that would have cleaned up were lost.
                    cleanup: (row.int(6)? > 0).then(|| Cleanup::unknown("it was not done")),
                }),
            };
            worked.plan.end_with(status);
            self.work(conn, session, run, &worked, at).await?;
            return Ok(true);
        }
        self.make_no_plan(conn, session, run, reason, &detail, at).await
    }

    /// Deletes sessions that ended this long ago, with the versions of their plans. Their runs follow, once no session
    /// refers to them. True if there may be more.
    pub(in super::super) async fn prune_planning(&self, conn: &mut Conn, kept: Duration) -> Result<bool, Fault> {
        let kept = i64::try_from(kept.as_micros()).unwrap_or(i64::MAX / 2);
        let texts = self.planning_texts();
        let mut sessions = Vec::new();
        each(conn, &texts.prunable, vec![int(kept)], |row| {
            sessions.push(Value::text(&row.text(0)?));
            Ok(())
        })
        .await?;
        let more = sessions.len() == PRUNED_AT_ONCE;
        for session in sessions {
            conn.execute(&texts.prune_versions, vec![session.clone()]).await?;
            conn.execute(&texts.prune, vec![session]).await?;
        }
        Ok(more)
    }
}
