//! A connection that a silent or stuck peer cannot hold for ever.
//!
//! actix bounds the first head of a connection and the pause between requests. It does not bound a
//! second head that trickles in, nor a peer that takes no bytes of its answer. Here a connection on
//! which no request is worked on and nothing was sent for the quiet time is closed, and so is one
//! whose peer has taken nothing for that long.

use std::cell::Cell;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use actix_web::HttpRequest;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

/// What goes on on one connection. Shared by the connection and its requests, which live on one thread.
#[derive(Clone)]
pub(super) struct Activity(Rc<Inner>);

struct Inner {
    /// Requests being worked on; several on HTTP/2.
    busy: Cell<u32>,
    /// When the last one ended, or the last byte was sent.
    last: Cell<Instant>,
}

/// Held while a request is worked on.
pub(super) struct Busy(Activity);

impl Busy {
    /// Marks the request's connection; absent in tests without one.
    pub(super) fn on(request: &HttpRequest) -> Option<Self> {
        let activity = request.conn_data::<Activity>()?.clone();
        activity.0.busy.set(activity.0.busy.get() + 1);
        Some(Self(activity))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let inner = &self.0.0;
        inner.busy.set(inner.busy.get().saturating_sub(1));
        inner.last.set(Instant::now());
    }
}

/// A stream with one lazy timer: it fires once in a quiet time, not once a request, so a connection
/// is closed after one to two quiet times.
pub(super) struct Guarded<T> {
    io: T,
    activity: Activity,
    quiet: Duration,
    timer: Pin<Box<Sleep>>,
    stuck_since: Option<Instant>,
}

impl<T> Guarded<T> {
    /// Guards `io`, which is quiet from now on.
    pub(super) fn new(io: T, quiet: Duration) -> Self {
        let inner = Inner {
            busy: Cell::new(0),
            last: Cell::new(Instant::now()),
        };
        Self {
            io,
            activity: Activity(Rc::new(inner)),
            quiet,
            timer: Box::pin(tokio::time::sleep(quiet)),
            stuck_since: None,
        }
    }

    /// For the requests of this connection.
    pub(super) fn activity(&self) -> Activity {
        self.activity.clone()
    }

    /// Has nothing gone on for too long? Otherwise the task is woken to ask again.
    fn is_over(&mut self, cx: &mut Context<'_>) -> bool {
        while self.timer.as_mut().poll(cx).is_ready() {
            let now = Instant::now();
            let resting = (self.activity.0.busy.get() == 0).then(|| self.activity.0.last.get());
            let since = [resting, self.stuck_since].into_iter().flatten().min().unwrap_or(now);
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
            self.activity.0.last.set(Instant::now());
            return written;
        }
        self.stuck_since.get_or_insert_with(Instant::now);
        if self.is_over(cx) {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        Poll::Pending
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Guarded<T> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match Pin::new(&mut self.io).poll_read(cx, buffer) {
            // No bytes: as if the peer had closed.
            Poll::Pending if self.is_over(cx) => Poll::Ready(Ok(())),
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

    const QUIET: Duration = Duration::from_millis(20);

    #[tokio::test]
    async fn a_silent_peer_is_let_go_after_the_quiet_time() {
        let (_peer, io) = duplex(64);
        let mut guarded = Guarded::new(io, QUIET);
        assert_eq!(guarded.read(&mut [0; 8]).await.unwrap(), 0, "as if it had closed");
    }

    #[tokio::test]
    async fn a_peer_that_waits_for_its_answer_is_not_let_go() {
        let (mut peer, io) = duplex(64);
        let mut guarded = Guarded::new(io, QUIET);
        guarded.activity.0.busy.set(1);
        let busy = Busy(guarded.activity());
        let read = tokio::time::timeout(QUIET * 5, guarded.read(&mut [0; 8])).await;
        assert!(read.is_err(), "still open while the request is worked on");
        drop(busy);
        peer.write_all(b"next").await.unwrap();
        assert_eq!(guarded.read(&mut [0; 8]).await.unwrap(), 4);
    }

    #[tokio::test]
    async fn a_peer_that_takes_nothing_is_cut_even_while_it_is_served() {
        let (_peer, io) = duplex(4);
        let mut guarded = Guarded::new(io, QUIET);
        guarded.activity.0.busy.set(1);
        let error = guarded.write_all(&[0; 64]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}
