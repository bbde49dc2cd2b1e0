//! Writes rows to SQLite with one thread: all queued rows go into one transaction, and their senders are notified after
//! the commit. WAL with `synchronous = NORMAL`, as gavel writes read-only decisions.

use std::path::Path;
use std::sync::mpsc;

use anyhow::Context;
use rusqlite::Connection;
use tokio::sync::oneshot;

/// The most rows of one transaction.
const BATCH: usize = 256;

const SCHEMA: &str = "
    PRAGMA journal_mode = WAL;
    PRAGMA synchronous = NORMAL;
    CREATE TABLE decision (
        id TEXT PRIMARY KEY, user_id TEXT NOT NULL, conversation_id TEXT NOT NULL,
        message TEXT NOT NULL, response TEXT NOT NULL, tokens INTEGER NOT NULL, duration_us INTEGER NOT NULL);
    CREATE TABLE tool_call (
        decision_id TEXT PRIMARY KEY, tool TEXT NOT NULL, arguments TEXT NOT NULL,
        result TEXT NOT NULL, duration_us INTEGER NOT NULL);";

/// One decision and its tool call.
pub(super) struct Row {
    pub(super) id: String,
    pub(super) user_id: String,
    pub(super) conversation_id: String,
    pub(super) message: String,
    pub(super) response: String,
    pub(super) tokens: i64,
    pub(super) duration_us: i64,
    pub(super) tool: String,
    pub(super) arguments: String,
    pub(super) result: String,
    pub(super) tool_us: i64,
    /// Notified when the row is committed; dropped if it is not.
    pub(super) committed: oneshot::Sender<()>,
}

/// Starts the writer.
pub(super) fn open(path: &Path) -> anyhow::Result<mpsc::Sender<Row>> {
    let database = Connection::open(path).with_context(|| format!("{} cannot be opened", path.display()))?;
    database.execute_batch(SCHEMA)?;
    let (sender, queue) = mpsc::channel();
    std::thread::Builder::new().name("rows".into()).spawn(move || {
        while let Ok(first) = queue.recv() {
            if let Err(error) = write(&database, first, &queue) {
                eprintln!("rows were not written: {error}");
            }
        }
    })?;
    Ok(sender)
}

fn write(database: &Connection, first: Row, queue: &mpsc::Receiver<Row>) -> rusqlite::Result<()> {
    let batch: Vec<Row> = std::iter::once(first).chain(queue.try_iter().take(BATCH - 1)).collect();
    let transaction = database.unchecked_transaction()?;
    {
        let mut decision = transaction.prepare_cached("INSERT INTO decision VALUES (?, ?, ?, ?, ?, ?, ?)")?;
        let mut call = transaction.prepare_cached("INSERT INTO tool_call VALUES (?, ?, ?, ?, ?)")?;
        for row in &batch {
            decision.execute((
                &row.id,
                &row.user_id,
                &row.conversation_id,
                &row.message,
                &row.response,
                row.tokens,
                row.duration_us,
            ))?;
            call.execute((&row.id, &row.tool, &row.arguments, &row.result, row.tool_us))?;
        }
    }
    transaction.commit()?;
    for row in batch {
        // The client may have disconnected.
        let _ = row.committed.send(());
    }
    Ok(())
}
