//! Attends an open connection until it is lost: reads its list, and follows changes of it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::super::attempt::Fault;
use super::super::connect::Open;
use super::super::connection::Connection;
use super::super::inbox::Flood;
use super::super::list::{self, List};
use super::super::log;
use super::Settle;
use super::{CLOSE, Link, State};

/// Delay before an unreadable list is read again, doubled each time.
const RELIST: Duration = Duration::from_secs(10);

const LONGEST_RELIST: Duration = Duration::from_secs(600);

/// How long a server may take to show that it is alive, or to close.
const PROBE: Duration = Duration::from_secs(2);

impl Link {
    /// Monitors an open connection until it ends, and returns why it ended. Its list was started under this number.
    // Longer than a screen: one loop over everything that can happen to a connection, with one branch for each.
    pub(super) async fn attend(&self, open: Open, number: u64) -> String {
        let Open { connection, list } = open;
        // Its tools are offered a moment before it can be called. A very early caller waits for that moment.
        self.state.send_if_modified(|state| match state {
            State::Down(reason) => {
                let lost = Some(reason.clone());
                *state = State::Connecting { lost };
                true
            }
            _ => false,
        });
        self.opened.fetch_add(1, Ordering::Relaxed);
        log::line!(
            self.source.log,
            info,
            "connected",
            protocol = connection.hello.protocol,
            software = connection.hello.software.as_deref().unwrap_or_default(),
            tools = list.tools.len(),
            "connected"
        );
        self.breaker.reset();
        self.tell_of(&connection, list).await;
        self.state.send_replace(State::Up(connection.clone()));
        self.has_ended(number);

        let mut closed = std::pin::pin!(connection.closed());
        // At most one of each is in progress, alongside everything else.
        let (mut listening, mut probe, mut relist) = (Some(Box::pin(connection.listen())), None, None);
        let mut listen_at = None;
        let read = |limit| {
            let number = self.next_number();
            let list = read_list(&connection, limit);
            Some(Box::pin(async move { (number, list.await) }))
        };
        let (mut relist_at, mut relist_pause) = (None, RELIST);
        let mut settle = Settle::new();
        let reason = loop {
            tokio::select! {
                biased;
                () = self.stop.cancelled() => break "stopped".to_owned(),
                () = connection.inbox.flooded() => break Flood.to_string(),
                reason = &mut closed => return reason,
                () = self.poke.notified() => if let Some(why) = connection.ended() {
                    break why.to_owned();
                },
                () = self.background.suspect.notified(), if probe.is_none() && self.rests().is_none() && connection.is_usable() => {
                    probe = read(PROBE);
                }
                // An approval waits for it, so it is read without a pause.
                () = self.relist.notified(), if relist.is_none() && self.rests().is_none() => {
                    relist_at = None;
                    relist = read(self.attempt_limit);
                }
                () = self.background.changed.notified(), if relist.is_none() => {
                    let now = Instant::now();
                    let rests = self.rests().map_or(Duration::ZERO, |until| until.duration_since(now));
                    let soon = now + settle.after(now).max(rests);
                    relist_at = Some(relist_at.map_or(soon, |at: Instant| at.min(soon)));
                }
                () = until(relist_at), if relist.is_none() => {
                    relist_at = None;
                    relist = read(self.attempt_limit);
                }
                (number, listed) = under_way(&mut probe) => match listed {
                    Ok(list) => self.listed(&connection, list, number).await,
                    // The server accepts calls but answers none, or is unreachable.
                    Err(fault) if connection.is_usable() => break fault.words,
                    Err(_) => {}
                },
                (number, listed) = under_way(&mut relist) => match listed {
                    Ok(list) => {
                        relist_pause = RELIST;
                        settle.is_read(Instant::now());
                        self.listed(&connection, list, number).await;
                    }
                    // Its calls may still succeed, so the known tools remain. If the request got no answer at all, the
                    // server is checked.
                    Err(fault) => {
                        let reason = fault.words;
                        log::line!(
                            self.source.log,
                            warn,
                            "changed list not read",
                            reason,
                            "the changed list could not be read"
                        );
                        relist_at = Some(Instant::now() + relist_pause);
                        relist_pause = (relist_pause * 2).min(LONGEST_RELIST);
                        if !fault.answered {
                            self.background.suspect.notify_one();
                        }
                    }
                },
                again = under_way(&mut listening) => listen_at = again,
                () = until(listen_at) => {
                    listen_at = None;
                    listening = Some(Box::pin(connection.listen()));
                    // Changes during the time without a subscription are found by listing.
                    self.background.changed.notify_one();
                }
            }
        };
        drop(listening);
        // No more calls are sent over it.
        connection.end("the connection has ended");
        // Over stdio this ends the child: its stdin is closed, then SIGTERM, then SIGKILL.
        if tokio::time::timeout(CLOSE, connection.close()).await.is_err() {
            log::line!(
                self.source.log,
                warn,
                "connection not closed",
                "the connection did not close in time"
            );
        }
        reason
    }

    async fn listed(&self, connection: &Arc<Connection>, list: List, number: u64) {
        self.tell_of(connection, list).await;
        self.has_ended(number);
    }

    async fn tell_of(&self, connection: &Arc<Connection>, list: List) {
        let connection = connection.clone();
        self.tell(move |listener| {
            connection.now_lists(&list.tools);
            listener.listed(&list.tools);
        })
        .await;
    }
}

/// Lists the tools.
async fn read_list(connection: &Connection, limit: Duration) -> Result<List, Fault> {
    tokio::time::timeout(limit, list::read(connection))
        .await
        .unwrap_or_else(|_| {
            Err(Fault {
                // The server may be slow but healthy. A failing call triggers a check.
                answered: true,
                ..Fault::passing(format!("no answer to `tools/list` within {} ms", limit.as_millis()))
            })
        })
}

/// Waits for the work in progress, if any.
async fn under_way<F: Future + Unpin>(work: &mut Option<F>) -> F::Output {
    match work {
        Some(running) => {
            let done = running.await;
            *work = None;
            done
        }
        None => std::future::pending().await,
    }
}

pub(super) async fn until(instant: Option<Instant>) {
    match instant {
        Some(instant) => tokio::time::sleep_until(instant.into()).await,
        None => std::future::pending().await,
    }
}
