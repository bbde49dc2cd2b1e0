//! Closes connections of silent or stuck peers.
//!
//! actix limits the time of a connection's first head and of the pause between requests. It does not limit a second
//! head that arrives slowly, nor a peer that reads none of its response. This module closes a connection that has no
//! request in progress and sent nothing for the quiet time, and one whose peer has read nothing for that long.
//!
//! actix also does not limit the memory of many heads together. A head that exceeds [`FREE_HEAD`] takes its bytes from
//! a budget; when the budget is exhausted, the connection is closed.
//!
//! A connection also ends when the table of `connections` needs its place.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use actix_web::HttpRequest;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

use super::connections::{Connection, Place};
use crate::domain::budget::{Budget, Exceeded, Share};
use crate::surfaces::caller::Caller;

/// Head bytes that each connection may hold without a share: several times what browsers send with a token and cookies.
const FREE_HEAD: usize = 16 << 10;
/// Most head bytes that actix holds per connection; further bytes are a body that is discarded.
const MOST_HEAD: usize = 128 << 10;

/// The activity of one connection. Shared by the connection and its requests, which live on one thread.
#[derive(Clone)]
pub(super) struct Activity(Rc<Inner>);

struct Inner {
    place: Place,
    /// Bytes read of the next request, until its handler starts.
    head: RefCell<Head>,
}

#[derive(Default)]
struct Head {
    bytes: usize,
    /// Share for the bytes beyond [`FREE_HEAD`].
    share: Option<Share>,
}

impl Head {
    fn grow(&mut self, more: usize, heads: &Arc<Budget>) -> Result<(), Exceeded> {
        let before = self.bytes.max(FREE_HEAD);
        self.bytes = (self.bytes + more).min(MOST_HEAD);
        let beyond = self.bytes.saturating_sub(before) as u64;
        match &mut self.share {
            _ if beyond == 0 => Ok(()),
            Some(share) => share.grow(beyond),
            // The caller is not known yet, so the share belongs to no tenant or user.
            None => heads.take("", "", beyond).map(|share| self.share = Some(share)),
        }
    }
}

/// Held while a request is in progress.
pub(super) struct Busy(Activity);

impl Busy {
    /// Marks the request's connection; absent in tests without one.
    pub(super) fn on(request: &HttpRequest) -> Option<Self> {
        let activity = request.conn_data::<Activity>()?.clone();
        activity.begin();
        Some(Self(activity))
    }
}

/// The request's connection had a request of this caller, so it is not closed before those without one.
pub(super) fn belongs_to(request: &HttpRequest, caller: &Caller) {
    if let Some(activity) = request.conn_data::<Activity>() {
        activity.connection().belongs_to(caller.tenant.as_str());
    }
}

impl Activity {
    /// A request is in progress from now on, so its head is complete.
    fn begin(&self) {
        self.connection().begin();
        self.0.head.take();
    }

    pub(super) fn connection(&self) -> &Connection {
        &self.0.place.0
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.connection().end();
    }
}

/// A stream with one lazy timer: the timer fires once per quiet time, not once per request, so a connection closes
/// after one to two quiet times.
pub(super) struct Guarded<T> {
    io: T,
    activity: Activity,
    heads: Arc<Budget>,
    quiet: Duration,
    timer: Pin<Box<Sleep>>,
    stuck_since: Option<Instant>,
}

impl<T> Guarded<T> {
    /// Guards `io`, which counts as quiet from now on. `heads` is the budget for the large heads of all connections.
    pub(super) fn new(io: T, quiet: Duration, heads: Arc<Budget>, place: Place) -> Self {
        place.0.touch();
        let inner = Inner {
            place,
            head: RefCell::default(),
        };
        Self {
            io,
            activity: Activity(Rc::new(inner)),
            heads,
            quiet,
            timer: Box::pin(tokio::time::sleep(quiet)),
            stuck_since: None,
        }
    }

    /// The activity handle for the requests of this connection.
    pub(super) fn activity(&self) -> Activity {
        self.activity.clone()
    }

    /// Whether the connection was quiet for too long; otherwise wakes the task to check again.
    fn has_ended(&mut self, cx: &mut Context<'_>) -> bool {
        while self.timer.as_mut().poll(cx).is_ready() {
            let now = Instant::now();
            let since = [self.activity.connection().idle_since(), self.stuck_since]
                .into_iter()
                .flatten()
                .min()
                .unwrap_or(now);
            if now.saturating_duration_since(since) >= self.quiet {
                return true;
            }
            self.timer.as_mut().reset((since + self.quiet).into());
        }
        false
    }

    fn wrote(&mut self, written: Poll<io::Result<usize>>, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if written.is_ready() {
            self.stuck_since = None;
            self.activity.connection().touch();
            return written;
        }
        self.stuck_since.get_or_insert_with(Instant::now);
        // A peer that does not read may not keep the file of a connection that has lost its place.
        if self.activity.connection().poll_closed(cx).is_ready() || self.has_ended(cx) {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        Poll::Pending
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Guarded<T> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.activity.connection().poll_closed(cx).is_ready() {
            return Poll::Ready(Ok(()));
        }
        let before = buffer.filled().len();
        match Pin::new(&mut self.io).poll_read(cx, buffer) {
            // Reading no bytes signals the end, as if the peer had closed.
            Poll::Pending if self.has_ended(cx) => Poll::Ready(Ok(())),
            Poll::Ready(Ok(())) if self.activity.connection().idle_since().is_some() => {
                let more = buffer.filled().len() - before;
                let grown = self.activity.0.head.borrow_mut().grow(more, &self.heads);
                Poll::Ready(grown.map_err(|exceeded| {
                    tracing::warn!(%exceeded, "closing a connection: its request head exceeds the budget for request heads");
                    io::ErrorKind::QuotaExceeded.into()
                }))
            }
            read => read,
        }
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Guarded<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(cx, bytes);
        self.wrote(written, cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write_vectored(cx, slices);
        self.wrote(written, cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;
    use crate::domain::budget::{Limits, Pool};
    use crate::http::connections::Connections;

    const QUIET: Duration = Duration::from_millis(20);

    fn guarded<T>(io: T, quiet: Duration, heads: Arc<Budget>) -> Guarded<T> {
        Guarded::new(io, quiet, heads, Connections::new(1).enter(None))
    }

    fn heads(most: u64) -> Arc<Budget> {
        let limits = Limits {
            process: most,
            tenant: most,
            user: most,
        };
        Budget::new(Pool::Answers, limits)
    }

    #[tokio::test]
    async fn large_heads_share_a_budget_until_they_are_worked_on() {
        let heads = heads(1024);
        let connect = || {
            let (peer, io) = duplex(2 * FREE_HEAD);
            (peer, guarded(io, QUIET * 100, Arc::clone(&heads)))
        };
        let mut bytes = [0; FREE_HEAD + 1000];
        let (mut one, mut large) = connect();
        one.write_all(&bytes).await.unwrap();
        large.read_exact(&mut bytes).await.unwrap();
        assert_eq!(heads.used(), 1000, "the first bytes of a head are free");
        let (mut other, mut refused) = connect();
        other.write_all(&bytes).await.unwrap();
        let error = refused.read_exact(&mut bytes).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::QuotaExceeded);
        large.activity.begin();
        assert_eq!(heads.used(), 0, "a complete head holds nothing");
    }

    #[tokio::test]
    async fn a_silent_peer_is_let_go_after_the_quiet_time() {
        let (_peer, io) = duplex(64);
        let mut connection = guarded(io, QUIET, heads(0));
        assert_eq!(connection.read(&mut [0; 8]).await.unwrap(), 0, "as if it had closed");
    }

    #[tokio::test]
    async fn a_peer_that_waits_for_its_answer_is_not_let_go() {
        let (mut peer, io) = duplex(64);
        let mut connection = guarded(io, QUIET, heads(0));
        connection.activity.connection().begin();
        let busy = Busy(connection.activity());
        let read = tokio::time::timeout(QUIET * 5, connection.read(&mut [0; 8])).await;
        assert!(read.is_err(), "still open while the request is in progress");
        drop(busy);
        peer.write_all(b"next").await.unwrap();
        assert_eq!(connection.read(&mut [0; 8]).await.unwrap(), 4);
    }

    #[tokio::test]
    async fn a_connection_whose_place_is_needed_ends_as_if_the_peer_had_closed() {
        let table = Connections::new(1);
        let (_peer, io) = duplex(64);
        let mut connection = Guarded::new(io, QUIET * 1000, heads(0), table.enter(None));
        let mut first = [0; 8];
        let ended = async {
            tokio::task::yield_now().await;
            table.enter(None)
        };
        let (read, _other) = tokio::join!(connection.read(&mut first), ended);
        assert_eq!(read.unwrap(), 0);
    }

    #[tokio::test]
    async fn a_peer_that_takes_nothing_is_cut_even_while_it_is_served() {
        let (_peer, io) = duplex(4);
        let mut connection = guarded(io, QUIET, heads(0));
        connection.activity.connection().begin();
        let error = connection.write_all(&[0; 64]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}
