//! SQLite's log is moved into the database beside the writer. Left to the writer, every now and then a commit, and with
//! it somebody's answer, waits for two more syncs of the disk.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::db::Readers;
use super::writer::Shared;

/// How often it looks.
const TICK: Duration = Duration::from_secs(1);
/// With fewer commits since the last time it is left alone, so that an idle service does not touch the disk.
const COMMITS: u64 = 50;
/// Pages of the log after which the writer does it by itself: under steady load the log is never quite empty, and only
/// the writer, between two commits, can begin it anew. 32 MiB.
pub(super) const BY_THE_WRITER: &str = "8192";

/// Runs until `stop`.
pub(super) async fn run(shared: Arc<Shared>, readers: Readers, stop: CancellationToken) {
    let mut done = 0;
    loop {
        tokio::select! {
            () = tokio::time::sleep(TICK) => {}
            () = stop.cancelled() => return,
        }
        let commits = shared.state.commits();
        if commits - done < COMMITS {
            continue;
        }
        done = commits;
        // Moves what nobody reads or writes just now, and waits for nobody.
        let moved = readers
            .fetch(&"PRAGMA wal_checkpoint(PASSIVE)".into(), vec![], &mut |_| {
                Ok(ControlFlow::Continue(()))
            })
            .await;
        if let Err(error) = moved {
            tracing::debug!(%error, "the log was not moved into the database; the writer will do it");
        }
    }
}
