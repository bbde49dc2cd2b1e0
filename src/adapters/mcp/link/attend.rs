//! Attends an open connection until it is lost: reads its list, and follows changes of it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rmcp::model::ServerNotification;
use rmcp::service::{Peer, RoleClient, Subscription};

use super::super::connect::{self, Open};
use super::super::list::{self, List, NoList};
use super::super::log;
use super::super::pause::Settle;
use super::super::session::{Session, State};
use super::super::unsolicited::{Flood, Unsolicited};
use super::{CLOSE, Link};

/// Delay before an unreadable list is read again, doubled each time.
const RELIST: Duration = Duration::from_secs(10);

const LONGEST_RELIST: Duration = Duration::from_secs(600);

/// Delay before an ended subscription is renewed.
const RESUBSCRIBE: Duration = Duration::from_secs(5);

/// How long a server may take to show that it is alive, or to close.
const PROBE: Duration = Duration::from_secs(2);

impl Link {
    /// Monitors an open connection until it ends, and returns why it ended. Its list was started under this number.
    // Longer than a screen: one loop over everything that can happen to a connection, with one branch for each.
    pub(super) async fn attend(&self, mut open: Open, number: u64) -> String {
        let session = Session::of(&mut open, &self.source, &self.background);
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
            protocol = session.protocol,
            software = session.software.as_deref().unwrap_or_default(),
            tools = open.list.tools.len(),
            "connected"
        );
        self.breaker.reset();
        self.tell_of(&session, open.list).await;
        self.state.send_replace(State::Up(session.clone()));
        self.has_ended(number);

        let unsolicited = open.unsolicited;
        let end = open.running.cancellation_token();
        let mut ended = std::pin::pin!(open.running.waiting());
        let mut subscription = None;
        let mut subscribe_at = Some(Instant::now());
        // At most one list per purpose is in progress, alongside everything else.
        let (mut probe, mut relist) = (None, None);
        let read = |limit| {
            let number = self.next_number();
            let list = read_list(&session.peer, &unsolicited, limit);
            Some(Box::pin(async move { (number, list.await) }))
        };
        let (mut relist_at, mut relist_pause) = (None, RELIST);
        let mut settle = Settle::new();
        let reason = loop {
            tokio::select! {
                biased;
                () = self.stop.cancelled() => break "stopped".to_owned(),
                () = unsolicited.flooded() => break Flood.to_string(),
                _ = &mut ended => {
                    return match open.last_words.get().await {
                        Some(line) => format!("the server closed the connection; on stderr it wrote: {line}"),
                        None => "the server closed the connection".to_owned(),
                    };
                }
                () = self.poke.notified() => if let Some(why) = session.ended() {
                    break why.to_owned();
                },
                () = self.background.suspect.notified(), if probe.is_none() && self.rests().is_none() => {
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
                    Ok(list) => self.listed(&session, list, number).await,
                    // The server accepts calls but answers none, or is unreachable.
                    Err(fault) => break fault.words,
                },
                (number, listed) = under_way(&mut relist) => match listed {
                    Ok(list) => {
                        relist_pause = RELIST;
                        settle.is_read(Instant::now());
                        self.listed(&session, list, number).await;
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
                () = until(subscribe_at) => {
                    subscribe_at = None;
                    subscription = tokio::time::timeout(PROBE, connect::subscribe(&session.peer, &self.source)).await.ok().flatten();
                }
                more = next_change(&mut subscription) => {
                    // Changes during the time without a subscription are found by listing.
                    self.background.changed.notify_one();
                    if !more {
                        subscription = None;
                        subscribe_at = Some(Instant::now() + RESUBSCRIBE);
                    }
                }
            }
        };
        drop(subscription);
        // No more calls are sent over it.
        session.end("the connection has ended");
        end.cancel();
        // Over stdio this ends the child: its stdin is closed, then SIGTERM, then SIGKILL.
        if tokio::time::timeout(CLOSE, ended).await.is_err() {
            log::line!(
                self.source.log,
                warn,
                "connection not closed",
                "the connection did not close in time"
            );
        }
        reason
    }

    async fn listed(&self, session: &Arc<Session>, list: List, number: u64) {
        self.tell_of(session, list).await;
        self.has_ended(number);
    }

    async fn tell_of(&self, session: &Arc<Session>, list: List) {
        let session = session.clone();
        self.tell(move |listener| {
            session.now_lists(&list.tools);
            listener.listed(&list.tools);
        })
        .await;
    }
}

/// Lists the tools.
async fn read_list(peer: &Peer<RoleClient>, unsolicited: &Unsolicited, limit: Duration) -> Result<List, NoList> {
    tokio::time::timeout(limit, list::read(peer, unsolicited))
        .await
        .unwrap_or_else(|_| {
            Err(NoList {
                // The server may be slow but healthy. A failing call triggers a check.
                answered: true,
                is_lasting: false,
                words: format!("no answer to `tools/list` within {} ms", limit.as_millis()),
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

/// Waits for a change; false when the subscription has ended.
async fn next_change(subscription: &mut Option<Subscription>) -> bool {
    let Some(open) = subscription else {
        return std::future::pending().await;
    };
    loop {
        match open.next().await {
            Ok(Some(ServerNotification::ToolListChangedNotification(_))) => return true,
            Ok(Some(_)) => {}
            Ok(None) | Err(_) => return false,
        }
    }
}
