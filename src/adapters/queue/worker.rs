//! Keeps one worker going.

use std::sync::Arc;
use std::time::Duration;

use apalis_core::worker::event::Event;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::hands::Work;
use super::{Shared, meters};

/// Waits between two tries: the first, and the longest.
const PAUSES: [Duration; 2] = [Duration::from_millis(250), Duration::from_secs(5)];

/// Makes the tables, if need be when the database is back.
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

/// Runs a worker, and another when it has ended, until `end`.
pub(super) async fn keep(shared: Arc<Shared>, work: Work, end: CancellationToken) {
    end.run_until_cancelled(async {
        // The sender is in `shared`: it cannot be gone.
        shared.ready.subscribe().wait_for(|ready| *ready).await.ok();
        let mut pause = PAUSES[0];
        for number in 1_u64.. {
            // A name of its own: a worker that is thought alive would be refused.
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

/// One worker's life. Returns why it ended.
async fn one(shared: &Arc<Shared>, work: &Work, name: &str, beats: &watch::Sender<u64>) -> String {
    // Names are made here, so what they leave is cleared away here.
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

/// Ends when others take the worker for dead. A database that says nothing at all is no error to apalis.
async fn silence(shared: &Shared, mut beats: watch::Receiver<u64>) -> String {
    let limit = shared.options.heartbeat * shared.options.missed_heartbeats;
    while timeout(limit, beats.changed()).await.is_ok() {}
    "the database does not answer".into()
}

fn longer(pause: Duration) -> Duration {
    (pause * 2).min(PAUSES[1])
}
