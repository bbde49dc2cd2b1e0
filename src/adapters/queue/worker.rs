//! Keeps one worker running.

use std::sync::Arc;
use std::time::Duration;

use apalis_core::worker::event::Event;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::job_service::JobContext;
use super::{Shared, meters};

/// Pauses between two attempts: the first and the longest.
const PAUSES: [Duration; 2] = [Duration::from_millis(250), Duration::from_secs(5)];

/// Creates the tables, and retries until the database is available.
pub(super) async fn prepare(shared: Arc<Shared>, stop: CancellationToken) {
    let mut pause = PAUSES[0];
    while let Err(reason) = shared.jobs.migrate().await {
        shared.state.down(&reason);
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = stop.cancelled() => return,
        }
        pause = longer(pause);
    }
    shared.state.up();
    shared.ready.send_replace(true);
}

/// Runs a worker, and replaces it when it ends, until `end`.
pub(super) async fn keep(shared: Arc<Shared>, work: JobContext, end: CancellationToken) {
    end.run_until_cancelled(async {
        // The sender is in `shared`, so it cannot be dropped.
        shared.ready.subscribe().wait_for(|ready| *ready).await.ok();
        let mut pause = PAUSES[0];
        for number in 1_u64.. {
            // Each worker needs a new name: apalis rejects the name of a worker that it considers alive.
            let name = format!("{}-{number}", shared.instance);
            let beats = watch::Sender::new(0_u64);
            let reason = one(&shared, &work, &name, &beats).await;
            shared.state.down(&reason);
            meters::worker_restarts().increment(1);
            if *beats.borrow() > 1 {
                pause = PAUSES[0];
            }
            tokio::time::sleep(pause).await;
            pause = longer(pause);
        }
    })
    .await;
}

/// Runs one worker. Returns why it ended.
async fn one(shared: &Arc<Shared>, work: &JobContext, name: &str, beats: &watch::Sender<u64>) -> String {
    // Each worker adds a name to the list, so old names are deleted here.
    if let Err(reason) = shared.jobs.prune().await {
        return reason;
    }
    let (beaten, alive) = (beats.clone(), Arc::clone(shared));
    let on_event = move |event: &Event| {
        if matches!(event, Event::HeartBeat) {
            beaten.send_modify(|count| *count += 1);
            alive.state.up();
        }
    };
    tokio::select! {
        reason = shared.jobs.run(name, Arc::clone(shared), work, on_event) => reason,
        reason = shared.jobs.listen(&shared.woken) => reason,
        reason = silence(shared, beats.subscribe()) => reason,
    }
}

/// Ends when other processes consider the worker dead. apalis does not treat a silent database as an error.
async fn silence(shared: &Shared, mut beats: watch::Receiver<u64>) -> String {
    let limit = shared.options.heartbeat * shared.options.missed_heartbeats;
    while timeout(limit, beats.changed()).await.is_ok() {}
    "the database does not answer".into()
}

fn longer(pause: Duration) -> Duration {
    (pause * 2).min(PAUSES[1])
}
