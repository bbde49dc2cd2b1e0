//! The lines of threads.

use std::sync::{Arc, LazyLock};

use super::super::db::{Conn, values};
use super::super::error::Fault;
use super::super::insert::Insert;
use super::columns::{LINE, Line, THREAD};
use crate::domain::ids::{ActionId, RunId, ThreadId};
use crate::domain::thread::MessageRole;
use crate::ports::runs::{Created, InThread, NewRun};
use crate::queue::Batch;

impl Batch<'_> {
    /// Adds a run and the user's message to a thread, or returns why that is impossible. If the run must wait its turn,
    /// returns its creation time in microseconds since the epoch. That time is after all earlier runs of the thread,
    /// regardless of differing clocks.
    pub(crate) async fn enter_thread(
        &self,
        conn: &mut Conn,
        run: &NewRun,
        place: &InThread,
    ) -> Result<Result<Option<i64>, Created>, Fault> {
        static BEGIN: LazyLock<Insert> = LazyLock::new(|| THREAD.inserts("ON CONFLICT (id) DO NOTHING"));
        if place.is_new {
            BEGIN.run(conn, THREAD.begin(run, self.writing)).await?;
        }
        // Locked, so that concurrent runs of a thread see each other.
        let hold = "SELECT id FROM thread WHERE id = $1 AND tenant = $2 AND user_id = $3 @postgres(FOR UPDATE)";
        let owner = values![place.thread, &run.decision.tenant, &run.decision.user];
        if !conn.exists(hold, owner).await? {
            return Ok(Err(Created::NoThread));
        }
        let active = "SELECT id FROM agent_run WHERE thread_id = $1 AND id <> $2 AND (status = 'queued' \
                      OR status = 'running' OR status = 'awaiting_confirmation') ORDER BY created_at, id LIMIT 1";
        let active: Option<RunId> = conn.one(active, values![place.thread, run.id]).await?;
        if let Some(active) = active
            && !place.queue
        {
            return Ok(Err(Created::ThreadBusy(active)));
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
