//! The lines of threads.

use std::sync::Arc;

use super::super::batch::Batch;
use super::super::db::{Conn, Value};
use super::super::error::Fault;
use super::super::runs::{id, int, parse};
use super::Line;
use crate::domain::ids::{ActionId, RunId, ThreadId};
use crate::ports::runs::{Created, InThread, NewRun};

impl Batch<'_> {
    /// Adds a run and the user's message to a thread, or returns why that is impossible. If the run must wait its turn,
    /// returns its creation time in microseconds since the epoch. That time is after all earlier runs of the thread,
    /// regardless of differing clocks.
    pub(in super::super) async fn enter_thread(
        &self,
        conn: &mut Conn,
        run: &NewRun,
        place: &InThread,
    ) -> Result<Result<Option<i64>, Created>, Fault> {
        let thread = id(place.thread);
        let owner = [
            Value::text(run.decision.tenant.as_str()),
            Value::text(run.decision.user.as_str()),
        ];
        if place.is_new {
            let mut values = vec![thread.clone()];
            values.extend(owner.clone());
            values.extend([Value::shared(&run.agent), int(run.decision.created_at)]);
            conn.execute(&self.action_texts().new_thread, values).await?;
        }
        let mut values = vec![thread.clone()];
        values.extend(owner);
        if conn.first(&self.action_texts().hold_thread, values).await?.is_none() {
            return Ok(Err(Created::NoThread));
        }
        let of_thread = vec![thread, id(run.id)];
        let going = conn.first(&self.action_texts().going, of_thread.clone()).await?;
        if let Some(going) = &going
            && !place.queue
        {
            return Ok(Err(Created::ThreadBusy(parse(&going.text(0)?, RunId::parse)?)));
        }
        self.say(conn, place.thread, run.id, None, Line::USER, &place.message)
            .await?;
        if going.is_none() {
            return Ok(Ok(None));
        }
        let latest = conn.first(&self.action_texts().latest, of_thread).await?;
        let latest = latest.map(|row| row.int(0)).transpose()?;
        let created_at = run.decision.created_at;
        Ok(Ok(Some(latest.map_or(created_at, |latest| created_at.max(latest + 1)))))
    }

    /// Adds a line to the thread of a run, if it has one.
    pub(in super::super) async fn add_thread_line(
        &self,
        conn: &mut Conn,
        run: RunId,
        action: Option<ActionId>,
        line: Line,
        words: &Arc<str>,
    ) -> Result<(), Fault> {
        let Some(thread) = conn.first(&self.action_texts().thread_of, vec![id(run)]).await? else {
            return Ok(());
        };
        let thread = parse(&thread.text(0)?, ThreadId::parse)?;
        self.say(conn, thread, run, action, line, words).await
    }

    async fn say(
        &self,
        conn: &mut Conn,
        thread: ThreadId,
        run: RunId,
        action: Option<ActionId>,
        line: Line,
        words: &Arc<str>,
    ) -> Result<(), Fault> {
        let named = action.map_or_else(String::new, |action| action.to_string());
        let values = vec![id(run), Value::text(line.as_str()), Value::text(&named)];
        if conn.first(&self.action_texts().said, values).await?.is_some() {
            return Ok(());
        }
        let number = conn.first(&self.action_texts().count_message, vec![id(thread)]).await?;
        let number = number.ok_or_else(|| Fault::Refused("the thread does not exist".into()))?;
        let values = vec![
            id(thread),
            int(number.int(0)?),
            id(run),
            action.map_or(Value::Text(None), id),
            Value::text(line.as_str()),
            Value::shared(words),
        ];
        conn.execute(&self.action_texts().say, values).await?;
        Ok(())
    }
}
