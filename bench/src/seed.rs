//! A log of many decisions, created directly in the database: gavel creates the tables, one statement fills each.

use std::path::Path;
use std::process::Stdio;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, ensure};
use rusqlite::{Connection, named_params};
use tokio::process::Command;

/// The age of the first decision, in days.
const DAYS: i64 = 90;

/// Numbers `0..:count` with a time each, spread evenly over [`DAYS`], and a UUIDv7 id. `k` scatters the number, so that
/// neighbors differ.
const NUMBERS: &str = "
    WITH RECURSIVE counted(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM counted WHERE n + 1 < :count),
    timed AS (SELECT n, n * 7919 % :count AS k, :first + n * :step AS at FROM counted),
    made AS (SELECT n, k, at, printf('%08x-%04x-7%03x-8%03x-%012x',
        (at / 1000) >> 16, (at / 1000) & 65535, n & 4095, k & 4095, n) AS id FROM timed)";

/// Six in ten decisions call a tool, one in a hundred fails, one in fifty thousand takes long.
const DECISIONS: &str = "
    INSERT INTO decision_log (id, tenant, surface, user_id, conversation_id, message, definition_hash,
        requested_model, request_id, created_at, owner, status, decision_type, outcome_category, intent, response, model, iterations,
        input_tokens, output_tokens, thought_tokens, cached_tokens, duration_us)
    SELECT id, 'default', 'chat', 'user-' || (k % 10000), 'conversation-' || (k % 200000),
        'Please look after task number ' || n, printf('%064x', 1), 'gemini-3.8-flash', 'request-' || n, at, 'seed', 'closed',
        CASE WHEN k % 100 < 60 THEN 'INVOKE_TOOL' WHEN k % 100 < 90 THEN 'RESPOND_ONLY'
             WHEN k % 100 < 96 THEN 'REQUEST_CLARIFICATION' ELSE 'REFUSE' END,
        CASE WHEN k % 100 = 0 THEN 'ERROR:TOOL_INVOCATION' WHEN k % 100 < 60 THEN 'SUCCESS:TASK_COMPLETED'
             WHEN k % 100 < 90 THEN 'SUCCESS:RESPONSE_GIVEN' WHEN k % 100 < 96 THEN 'AMBIGUITY:UNCLEAR_INTENT'
             ELSE 'REFUSAL:OUT_OF_SCOPE' END,
        CASE WHEN k % 2000 = 0 THEN 'delete_task' WHEN k % 100 < 60 THEN 'list_tasks' WHEN k % 100 < 90 THEN 'respond'
             WHEN k % 100 < 96 THEN 'clarify' ELSE 'refuse' END,
        'Your list has ' || (k % 40) || ' open tasks; the ferns come first.', 'gemini-3.8-flash', 1 + (k % 100 < 60),
        1200 + k % 700, 30 + k % 90, k % 50, 0, CASE WHEN k % 50000 = 7 THEN 29500000 ELSE 600000 + k % 900000 END
    FROM made";

const CALLS: &str = "
    INSERT INTO tool_invocation_log (decision_id, sequence, id, tenant, user_id, tool, server, tool_digest,
        side_effect, arguments, argument_bytes, status, created_at, started_at, duration_us, result, error_code, error_message)
    SELECT id, 1, id, 'default', 'user-' || (k % 10000), CASE WHEN k % 2000 = 0 THEN 'delete_task' ELSE 'list_tasks' END,
        'tasks', printf('%064x', 2), FALSE, '{}', 2, CASE WHEN k % 100 = 0 THEN 'failed' ELSE 'completed' END, at, at,
        4000 + k % 9000, CASE WHEN k % 100 = 0 THEN NULL ELSE '{\"tasks\":[]}' END,
        CASE WHEN k % 100 = 0 THEN 'TOOL_ERROR' END, CASE WHEN k % 100 = 0 THEN 'no such task' END
    FROM made WHERE k % 100 < 60";

/// Creates `database` with `count` decisions, the last one made just now.
pub(crate) async fn seed(gavel: &Path, database: &Path, count: u32) -> anyhow::Result<()> {
    migrate(gavel, database).await?;
    let (path, count) = (database.to_owned(), i64::from(count));
    tokio::task::spawn_blocking(move || fill(&path, count)).await?
}

async fn migrate(gavel: &Path, database: &Path) -> anyhow::Result<()> {
    let done = Command::new(gavel)
        .arg("migrate")
        .env("DATABASE_URL", format!("sqlite://{}", database.display()))
        .current_dir(database.parent().context("a database has a directory")?)
        .stdin(Stdio::null())
        .output()
        .await?;
    ensure!(
        done.status.success(),
        "gavel migrate failed:\n{}",
        String::from_utf8_lossy(&done.stderr)
    );
    Ok(())
}

fn fill(path: &Path, count: i64) -> anyhow::Result<()> {
    let database = Connection::open(path)?;
    // If the machine fails now, the file is discarded.
    database.execute_batch("PRAGMA synchronous = OFF; PRAGMA cache_size = -262144;")?;
    let now = i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_micros())?;
    let span = DAYS * 24 * 3600 * 1_000_000;
    let step = span / count;
    for insert in [DECISIONS, CALLS] {
        // SQLite expects the common table expression before the INSERT.
        database.execute(
            &format!("{NUMBERS} {insert}"),
            named_params! {":count": count, ":first": now - step * (count - 1), ":step": step},
        )?;
    }
    database.execute_batch("PRAGMA wal_checkpoint(TRUNCATE);")?;
    Ok(())
}
