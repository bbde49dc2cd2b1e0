//! Actions, grants and threads: port [`Actions`]. `requests` and `resolve` write in the writer's
//! transaction. Reads here use connections that analysts do not use.
//!
//! Every change of an action first locks its outermost run. So of two concurrent changes the second sees the first.

mod requests;
mod resolve;

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use async_trait::async_trait;
use serde::Deserialize;
use sha2::{Digest, Sha256};

use super::Store;
use super::config::capped;
use super::db::{Conn, Value, sql, values};
use super::decisions::lost;
use super::error::{Fault, unavailable};
use super::op::Op;
use super::read::{ACTIONS, Literal, OF_USER, THREADS, Term};
use super::table::{Column, Insert, Table};
use crate::api::approvals::Grant;
use crate::api::threads::{Thread, ThreadMessage, ThreadSummary};
use crate::domain::action::{Action, ActionStatus, in_words};
use crate::domain::agent_run::RunStatus;
use crate::domain::ids::{ActionId, ApprovalId, GrantId, RunId, TenantId, ThreadId, UserId};
use crate::domain::thread::MessageRole;
use crate::ports::actions::{Actions, Resolve, Resolved, Revoke, Settle, SettleDone, Which};
use crate::ports::commit::{ActionOutcome, NewAction};
use crate::ports::records::{ListQuery, Page, QueryError, RecordError};
use crate::ports::runs::{InThread, NewRun, Started};
use crate::queue::Batch;

#[async_trait]
impl Actions for Store {
    async fn list(&self, tenant: &TenantId, which: Which, query: &ListQuery) -> Result<Page<Action>, QueryError> {
        let status = |statuses| Term::fixed("status", Literal::OneOf(statuses));
        let terms = match which {
            Which::In(status_is) => vec![status(vec![status_is.as_str()])],
            Which::Answered => {
                let mut answered = ActionStatus::ALL.to_vec();
                answered.retain(|status| *status != ActionStatus::AwaitingConfirmation);
                vec![
                    status(answered.into_iter().map(ActionStatus::as_str).collect()),
                    Term::text("policy", "require_approval"),
                ]
            }
        };
        self.reading.page(&ACTIONS, tenant, terms, query).await
    }

    async fn of_approval(
        &self,
        tenant: &TenantId,
        user: Option<&UserId>,
        approval: ApprovalId,
    ) -> Result<Option<Action>, QueryError> {
        let sql = sql!(
            "SELECT {} FROM agent_action WHERE approval_id = $1 AND {OF_USER}",
            ACTION.selected()
        );
        self.working.one(sql, values![approval, tenant, user]).await
    }

    async fn action(
        &self,
        tenant: &TenantId,
        user: Option<&UserId>,
        action: ActionId,
    ) -> Result<Option<Action>, QueryError> {
        let sql = sql!(
            "SELECT {} FROM agent_action WHERE id = $1 AND {OF_USER}",
            ACTION.selected()
        );
        self.working.one(sql, values![action, tenant, user]).await
    }

    async fn of_run(&self, root: RunId) -> Result<Vec<Action>, QueryError> {
        // A long run may have many large arguments.
        let sql = sql!(
            "SELECT {} FROM agent_action WHERE root_id = $1 OR run_id = $1 ORDER BY created_at, run_id, sequence",
            ACTION
                .selected()
                .replace(
                    "arguments AS",
                    "CASE WHEN status IN ('awaiting_confirmation', 'approved') THEN arguments ELSE '{}' END AS"
                )
                .replace(
                    "details AS",
                    "CASE status WHEN 'awaiting_confirmation' THEN details END AS"
                )
        );
        self.working.all(sql, values![root]).await
    }

    async fn resolve(&self, resolve: Resolve) -> Result<Resolved, RecordError> {
        self.write(Op::Resolve(resolve)).await
    }

    async fn settle(&self, settle: Settle) -> Result<SettleDone, RecordError> {
        self.write(Op::Settle(settle)).await
    }

    async fn expire(&self, most: u32) -> Result<Vec<RunId>, RecordError> {
        // Outermost runs with an approval request that has expired, oldest first.
        let sql = "SELECT root_id FROM agent_action WHERE status = 'awaiting_confirmation' AND expires_at <= @now \
                   GROUP BY root_id ORDER BY MIN(expires_at) LIMIT $1";
        let due: Vec<RunId> = self.working.all(sql, values![most]).await.map_err(unavailable)?;
        if !due.is_empty() {
            self.write::<()>(Op::ExpireApprovals(due.clone())).await?;
        }
        Ok(due)
    }

    async fn granted(
        &self,
        tenant: &TenantId,
        user: &UserId,
        server: &str,
        tool: &str,
    ) -> Result<Vec<Grant>, QueryError> {
        let sql = sql!(
            "SELECT {} FROM approval_grant WHERE tenant = $1 AND user_id = $2 AND server = $3 AND tool = $4 \
             AND revoked_at IS NULL ORDER BY created_at, id",
            GRANT.selected_in_camel_case()
        );
        self.working.all(sql, values![tenant, user, server, tool]).await
    }

    async fn grants(&self, tenant: &TenantId, query: &ListQuery) -> Result<Page<Grant>, QueryError> {
        self.reading.grants(tenant, query).await
    }

    async fn grant(
        &self,
        tenant: &TenantId,
        user: Option<&UserId>,
        grant: GrantId,
    ) -> Result<Option<Grant>, QueryError> {
        let sql = sql!(
            "SELECT {} FROM approval_grant WHERE id = $1 AND {OF_USER}",
            GRANT.selected_in_camel_case()
        );
        self.working.one(sql, values![grant, tenant, user]).await
    }

    async fn revoke(
        &self,
        tenant: &TenantId,
        user: Option<&UserId>,
        grant: GrantId,
        by: &str,
    ) -> Result<bool, RecordError> {
        self.write(Op::Revoke(Revoke {
            tenant: tenant.clone(),
            user: user.cloned(),
            grant,
            by: by.into(),
        }))
        .await
    }

    async fn thread(
        &self,
        tenant: &TenantId,
        user: Option<&UserId>,
        thread: ThreadId,
        before: Option<u64>,
        most: u32,
    ) -> Result<Option<Thread>, QueryError> {
        let sql = sql!(
            "SELECT id AS \"threadId\", user_id AS \"userId\", agent_id AS \"agentId\", created_at AS \"createdAt\", \
             updated_at AS \"updatedAt\", messages AS \"messageCount\" FROM thread WHERE id = $1 AND {OF_USER}"
        );
        let found: Option<Thread> = self.working.one(sql, values![thread, tenant, user]).await?;
        let Some(mut found) = found else { return Ok(None) };
        let latest = sql!(
            "SELECT {} FROM thread_message WHERE thread_id = $1 AND number < $2 ORDER BY number DESC LIMIT $3",
            LINE.selected_in_camel_case()
        );
        let values = values![thread, before.unwrap_or(u64::MAX), most];
        found.messages = self.working.all(latest, values).await?;
        found.messages.reverse();
        Ok(Some(found))
    }

    async fn threads(&self, tenant: &TenantId, query: &ListQuery) -> Result<Page<ThreadSummary>, QueryError> {
        self.reading.page(&THREADS, tenant, vec![], query).await
    }

    async fn history(&self, run: RunId, most: u32) -> Result<Vec<ThreadMessage>, QueryError> {
        #[derive(Deserialize)]
        struct Own {
            thread_id: ThreadId,
            number: i64,
        }
        let own = "SELECT thread_id, number FROM thread_message WHERE run_id = $1 AND role = 'user'";
        let own: Option<Own> = self.working.one(own, values![run]).await?;
        let Some(Own { thread_id, number }) = own else {
            return Ok(Vec::new());
        };
        // Ordered by run: a queued message is stored before the answers that arrive meanwhile, and is answered after
        // them.
        let sql = sql!(
            "SELECT {} FROM (SELECT message.*, began.number AS began FROM (SELECT run_id, number \
                 FROM thread_message WHERE thread_id = $1 AND role = 'user' AND number < $2 \
                 ORDER BY number DESC LIMIT $3) AS began \
                 JOIN thread_message message ON message.run_id = began.run_id AND message.thread_id = $1 \
                 ORDER BY began.number DESC, message.number DESC LIMIT $3) AS said ORDER BY began, number",
            LINE.selected_in_camel_case()
        );
        self.working.all(sql, values![thread_id, number, most]).await
    }

    async fn next_after(&self, run: RunId) -> Result<Option<RunId>, QueryError> {
        #[derive(Deserialize)]
        struct Other {
            id: RunId,
            status: RunStatus,
        }
        let sql = "SELECT other.id, other.status FROM agent_run run JOIN agent_run other ON other.thread_id = run.thread_id \
                       WHERE run.id = $1 AND (other.status = 'queued' OR other.status = 'running' \
                       OR other.status = 'awaiting_confirmation') \
                       ORDER BY CASE other.status WHEN 'queued' THEN 1 ELSE 0 END, other.created_at, other.id LIMIT 1";
        let next: Option<Other> = self.working.one(sql, values![run]).await?;
        let is_queued = |other: &Other| other.status == RunStatus::Queued;
        Ok(next.filter(is_queued).map(|other| other.id))
    }
}

type ActionColumn = Column<NewAction, ActionOutcome>;

fn status(action: &NewAction) -> ActionStatus {
    match action.approval {
        Some(_) => ActionStatus::AwaitingConfirmation,
        None => ActionStatus::Executing,
    }
}

fn lifetime(action: &NewAction) -> Option<Duration> {
    action.approval.map(|(_, lifetime)| lifetime)
}

/// The columns of `agent_action`. A row begins as a copy of its run's (`run`) and that of the outermost run (`root`).
#[rustfmt::skip] // A line for each.
pub(super) static ACTION: Table<NewAction, ActionOutcome> = Table { name: "agent_action", columns: &[
    ActionColumn::open("id", |new, _| new.id.into()).shown(),
    ActionColumn::open("approval_id", |new, _| new.approval.map(|(approval, _)| approval).into()).shown(),
    ActionColumn::computed("run_id", "run.id").shown(),
    ActionColumn::computed("root_id", "run.root_id").shown(),
    ActionColumn::computed("thread_id", "root.thread_id").shown(),
    ActionColumn::elsewhere("(SELECT root.session_id FROM agent_run root WHERE root.id = agent_action.root_id)")
        .shown_as("session_id"),
    ActionColumn::computed("tenant", "run.tenant"),
    ActionColumn::computed("project_id", "run.project_id"),
    ActionColumn::both("status", |new, _| status(new).as_str().into(), |end, _| end.status.as_str().into())
        .shown(),
    ActionColumn::open("policy", |new, _| if new.approval.is_some() { "require_approval" } else { "allow" }.into())
        .shown(),
    ActionColumn::open("decided_by", |new, _| new.policy.as_ref().and_then(|policy| policy.by.as_ref()).into()).shown(),
    ActionColumn::open("lost", |new, _| Value::json(lost(new.policy.as_ref()))).shown(),
    ActionColumn::open("tool", |new, _| capped(&new.tool.name).into()).shown(),
    ActionColumn::computed("user_id", "run.user_id").shown(),
    ActionColumn::computed("agent_id", "run.agent_id").shown(),
    ActionColumn::computed("created_at", "@now").shown(),
    ActionColumn::open("sequence", |new, _| new.sequence.into()).shown(),
    ActionColumn::open("server", |new, _| (&new.tool.server).into()).shown(),
    ActionColumn::open("tool_digest", |new, _| (&new.tool.digest).into()).shown(),
    ActionColumn::open("side_effect", |new, _| new.tool.side_effect.into()).shown(),
    ActionColumn::open("arguments", |new, _| (&*new.arguments).into()).shown(),
    ActionColumn::open("input_hash", |new, _| hex::encode(Sha256::digest(new.arguments.get())).into()).shown(),
    ActionColumn::open("details", |new, _| Value::json(&new.details)).shown(),
    ActionColumn::open("model", |new, _| (&new.model).into()).shown(),
    ActionColumn::open("grant_id", |new, _| new.grant.into()).shown(),
    ActionColumn::derived("expires_at", "@now + CAST(? AS BIGINT)", |new, _| {
        lifetime(new).map_or(Value::Int(None), Value::from)
    }).shown(),
    ActionColumn::derived("started_at", "CASE WHEN ? THEN NULL ELSE @now END", |new, _| new.approval.is_some().into()).shown(),
    ActionColumn::elsewhere("completed_at").closed("@now").shown(),
    ActionColumn::close("error_code", |end, _| end.error.as_ref().map(|(code, _)| code.as_str()).into()).shown(),
    ActionColumn::close("error_message", |end, with| match &end.error {
        Some((code, message)) => with.content.failure(*code, &in_words(message)),
        None => Value::Text(None),
    }).shown(),
    ActionColumn::elsewhere("resolution").shown(),
    ActionColumn::elsewhere("resolved_by").shown(),
    ActionColumn::elsewhere("resolved_at").shown(),
    ActionColumn::elsewhere("reason").shown(),
    ActionColumn::elsewhere("settled_by").shown(),
] };

/// A grant that a resolution creates.
pub(super) struct NewGrant {
    id: GrantId,
    tenant: TenantId,
    user: UserId,
    server: String,
    tool: String,
    /// JSON.
    recipients: String,
    tool_digest: String,
    action: ActionId,
    by: Arc<str>,
}

type GrantColumn = Column<NewGrant>;

/// The columns of `approval_grant`.
#[rustfmt::skip] // A line for each.
pub(super) static GRANT: Table<NewGrant> = Table { name: "approval_grant", columns: &[
    GrantColumn::open("id", |new, _| new.id.into()).shown_as("grant_id"),
    GrantColumn::open("tenant", |new, _| (&new.tenant).into()),
    GrantColumn::open("tool", |new, _| (&new.tool).into()).shown(),
    GrantColumn::open("user_id", |new, _| (&new.user).into()).shown(),
    GrantColumn::computed("created_at", "@now").shown(),
    GrantColumn::open("server", |new, _| (&new.server).into()).shown(),
    GrantColumn::open("recipients", |new, _| (&new.recipients).into()).shown(),
    GrantColumn::elsewhere("recipients").shown_as("recipients_by_argument"),
    GrantColumn::open("tool_digest", |new, _| (&new.tool_digest).into()).shown(),
    GrantColumn::open("action_id", |new, _| new.action.into()),
    GrantColumn::open("created_by", |new, _| (&new.by).into()).shown(),
    GrantColumn::elsewhere("uses").shown(),
    GrantColumn::elsewhere("last_used_at").shown(),
    GrantColumn::elsewhere("revoked_at").shown(),
] };

/// A column of a thread's latest run; NULL if its runs have been deleted.
macro_rules! latest_run {
    ($what:literal) => {
        concat!(
            "(SELECT ",
            $what,
            " FROM agent_run run WHERE run.thread_id = thread.id ORDER BY run.created_at DESC, run.id DESC LIMIT 1)"
        )
    };
}

type ThreadColumn = Column<NewRun>;

/// The columns of `thread`, which begins with a run. Each subquery reads one or two rows of an index. Its alias keeps it
/// apart from the columns that the list is ordered by.
#[rustfmt::skip] // A line for each.
pub(super) static THREAD: Table<NewRun> = Table { name: "thread", columns: &[
    ThreadColumn::open("id", |run, _| run.origin.thread().map(|place| place.thread).into()).shown_as("thread_id"),
    ThreadColumn::open("tenant", |run, _| (&run.decision.tenant).into()),
    ThreadColumn::open("agent_id", |run, _| (&run.agent).into()).shown(),
    ThreadColumn::open("user_id", |run, _| (&run.decision.user).into()).shown(),
    ThreadColumn::open("created_at", |run, _| run.decision.created_at.into()).shown(),
    ThreadColumn::open("updated_at", |run, _| run.decision.created_at.into()).shown(),
    ThreadColumn::elsewhere("messages").shown_as("message_count"),
    ThreadColumn::elsewhere("(SELECT substr(said.body, 1, 1000) FROM thread_message said \
        WHERE said.thread_id = thread.id AND said.role = 'user' ORDER BY said.number LIMIT 1)").shown_as("title"),
    ThreadColumn::elsewhere(latest_run!("run.id")).shown_as("latest_run.run_id"),
    ThreadColumn::elsewhere(latest_run!("run.status")).shown_as("latest_run.status"),
    ThreadColumn::elsewhere(latest_run!(
        "(SELECT CASE MAX(CASE acted.status WHEN 'executing' THEN 2 WHEN 'in_doubt' THEN 1 ELSE 0 END) \
         WHEN 2 THEN 'executing' WHEN 1 THEN 'in_doubt' END FROM agent_action acted WHERE acted.root_id = run.id)"
    )).shown_as("latest_run.acted"),
] };

type LineColumn = Column<Line>;

/// A line of a thread.
struct Line {
    thread: ThreadId,
    number: i64,
    run: RunId,
    action: Option<ActionId>,
    /// The role of a message, or the kind of any other line.
    role: &'static str,
    text: Arc<str>,
}

/// The columns of `thread_message`.
#[rustfmt::skip] // A line for each.
static LINE: Table<Line> = Table { name: "thread_message", columns: &[
    LineColumn::open("thread_id", |line, _| line.thread.into()),
    LineColumn::open("number", |line, _| line.number.into()).shown(),
    LineColumn::open("run_id", |line, _| line.run.into()).shown(),
    LineColumn::open("action_id", |line, _| line.action.into()).shown(),
    LineColumn::open("role", |line, _| line.role.into()).shown(),
    LineColumn::elsewhere("role").shown_as("kind"),
    LineColumn::open("body", |line, _| (&line.text).into()).shown_as("text"),
    LineColumn::computed("created_at", "@now").shown(),
] };

impl Batch<'_> {
    /// Adds a run and the user's message to a thread, or returns why that is impossible. If the run must wait its turn,
    /// returns its creation time in microseconds since the epoch. That time is after all earlier runs of the thread,
    /// regardless of differing clocks.
    pub(crate) async fn enter_thread(
        &self,
        conn: &mut Conn,
        run: &NewRun,
        place: &InThread,
    ) -> Result<Result<Option<i64>, Started>, Fault> {
        static BEGIN: LazyLock<Insert> = LazyLock::new(|| THREAD.inserts("ON CONFLICT (id) DO NOTHING"));
        if place.is_new {
            BEGIN.run(conn, THREAD.begin(run, self.writing)).await?;
        }
        // Locked, so that concurrent runs of a thread see each other.
        let hold = "SELECT id FROM thread WHERE id = $1 AND tenant = $2 AND user_id = $3 @postgres(FOR UPDATE)";
        let owner = values![place.thread, &run.decision.tenant, &run.decision.user];
        if !conn.exists(hold, owner).await? {
            return Ok(Err(Started::NotFound));
        }
        let active = "SELECT id FROM agent_run WHERE thread_id = $1 AND id <> $2 AND (status = 'queued' \
                      OR status = 'running' OR status = 'awaiting_confirmation') ORDER BY created_at, id LIMIT 1";
        let active: Option<RunId> = conn.one(active, values![place.thread, run.id]).await?;
        if let Some(active) = active
            && !place.queue
        {
            return Ok(Err(Started::ThreadBusy(active)));
        }
        let role = MessageRole::User.as_str();
        self.say(conn, place.thread, run.id, None, role, &place.message).await?;
        if active.is_none() {
            return Ok(Ok(None));
        }
        let latest = "SELECT created_at FROM agent_run WHERE thread_id = $1 AND id <> $2 \
                      ORDER BY created_at DESC, id DESC LIMIT 1";
        let latest: Option<i64> = conn.one(latest, values![place.thread, run.id]).await?;
        let created_at = run.decision.created_at;
        Ok(Ok(Some(latest.map_or(created_at, |latest| created_at.max(latest + 1)))))
    }

    /// Adds a line to the thread of a run, if it has one. `role` is that of a message, or the kind of any other line.
    pub(crate) async fn add_thread_line(
        &self,
        conn: &mut Conn,
        run: RunId,
        action: Option<ActionId>,
        role: &'static str,
        text: &Arc<str>,
    ) -> Result<(), Fault> {
        let thread = "SELECT root.thread_id FROM agent_run run JOIN agent_run root ON root.id = run.root_id \
                      WHERE run.id = $1 AND root.thread_id IS NOT NULL";
        match conn.one(thread, values![run]).await? {
            Some(thread) => self.say(conn, thread, run, action, role, text).await,
            None => Ok(()),
        }
    }

    async fn say(
        &self,
        conn: &mut Conn,
        thread: ThreadId,
        run: RunId,
        action: Option<ActionId>,
        role: &'static str,
        text: &Arc<str>,
    ) -> Result<(), Fault> {
        static SAY: LazyLock<Insert> = LazyLock::new(|| LINE.inserts(""));
        // Written in a commit that was not acknowledged.
        let said = "SELECT number FROM thread_message WHERE run_id = $1 AND role = $2 AND COALESCE(action_id, '') = $3";
        let of = action.map_or_else(String::new, |action| action.to_string());
        if conn.exists(said, values![run, role, of]).await? {
            return Ok(());
        }
        let number = "UPDATE thread SET messages = messages + 1, updated_at = @now WHERE id = $1 RETURNING messages";
        let number = conn.one(number, values![thread]).await?;
        let line = Line {
            thread,
            number: number.ok_or_else(|| Fault::Refused("the thread does not exist".into()))?,
            run,
            action,
            role,
            text: Arc::clone(text),
        };
        SAY.run(conn, LINE.begin(&line, self.writing)).await?;
        Ok(())
    }
}
