//! The table of open connections, and the guard of each.
//!
//! A new connection always finds a place: when the table is full, it takes the place of those that do least. So neither
//! idle connections nor those of one address or tenant shut others out.
//!
//! actix limits the time of a connection's first head and of the pause between requests. It does not limit a second
//! head that arrives slowly, nor a peer that reads none of its response: [`Guarded`] closes a connection that has no
//! request in progress and sent nothing for the quiet time, and one whose peer has read nothing for that long. Nor does
//! actix limit the memory of many heads together: a head that exceeds [`FREE_HEAD`] takes its bytes from a budget; when
//! the budget is exhausted, the connection is closed.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::future::poll_fn;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use actix_web::HttpRequest;
use futures_util::task::AtomicWaker;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

use crate::domain::budget::{Budget, Exceeded, Share};
use crate::http::console::network;
use crate::surfaces::caller::Caller;

/// The part of the table that is closed at once, since the search takes time.
const AT_ONCE: usize = 64;
/// The part of the table that connections without a request may take from one address, however new they are.
const SHARE: usize = 8;
/// How long a connection without a request is new: its first request may be on its way.
const NEW: Duration = Duration::from_secs(1);

/// All open connections of the process.
pub(super) struct Connections {
    most: usize,
    began: Instant,
    open: Mutex<HashMap<u64, Arc<Connection>>>,
    last: AtomicU64,
}

/// What is known of a connection.
pub(super) struct Connection {
    table: Arc<Connections>,
    id: u64,
    address: u64,
    /// The tenant of its first authenticated request.
    tenant: OnceLock<u64>,
    /// Requests in progress.
    busy: AtomicU32,
    /// When the last request ended or the last byte was sent, in milliseconds since the table began.
    last: AtomicU64,
    is_closed: AtomicBool,
    waker: AtomicWaker,
}

/// The place of a connection in the table, until it is dropped.
pub(super) struct Place(pub(super) Arc<Connection>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.table.open().remove(&self.0.id);
    }
}

impl Connections {
    pub(super) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self {
            most,
            began: Instant::now(),
            open: Mutex::default(),
            last: AtomicU64::new(0),
        })
    }

    fn open(&self) -> MutexGuard<'_, HashMap<u64, Arc<Connection>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The place of a new connection.
    pub(super) fn enter(self: &Arc<Self>, peer: Option<SocketAddr>) -> Place {
        let mut open = self.open();
        if open.len() >= self.most {
            self.make_room(&mut open);
        }
        let connection = Arc::new(Connection {
            table: Arc::clone(self),
            id: self.last.fetch_add(1, Ordering::Relaxed),
            address: hash(&network(peer.map(|peer| peer.ip()))),
            tenant: OnceLock::new(),
            busy: AtomicU32::new(0),
            last: AtomicU64::new(0),
            is_closed: AtomicBool::new(false),
            waker: AtomicWaker::new(),
        });
        connection.touch();
        open.insert(connection.id, Arc::clone(&connection));
        Place(connection)
    }

    /// Closes idle connections without an authenticated request; if there are none, other idle ones; and if there are none,
    /// new ones and those at work. Of these, those of the tenant or address that has most, and that were idle longest.
    fn make_room(&self, open: &mut HashMap<u64, Arc<Connection>>) {
        let mut sizes: HashMap<u64, usize> = HashMap::new();
        open.values()
            .for_each(|one| *sizes.entry(one.holder()).or_default() += 1);
        let mut all: Vec<_> = open
            .values()
            .map(|one| {
                let size = sizes[&one.holder()];
                let kind = match (one.idle_since(), one.tenant.get()) {
                    (Some(since), None) if since.elapsed() >= NEW || size > (self.most / SHARE).max(1) => 0,
                    (Some(_), Some(_)) => 1,
                    (Some(_), None) | (None, _) => 2,
                };
                (kind, Reverse(size), one.last.load(Ordering::Relaxed), one.id)
            })
            .collect();
        all.sort_unstable();
        let first = all.first().map_or(0, |(kind, ..)| *kind);
        let most = (self.most / AT_ONCE).max(1);
        let closing: Vec<_> = all.iter().take_while(|(kind, ..)| *kind == first).take(most).collect();
        tracing::warn!(
            connections = self.most,
            closing = closing.len(),
            "closing connections: all are in use"
        );
        for connection in closing.into_iter().filter_map(|(.., id)| open.remove(id)) {
            connection.is_closed.store(true, Ordering::Release);
            connection.waker.wake();
        }
    }
}

impl Connection {
    /// Whose connections count together.
    fn holder(&self) -> u64 {
        self.tenant.get().copied().unwrap_or(self.address)
    }

    /// It had a request of a caller of this tenant.
    pub(super) fn belongs_to(&self, tenant: &str) {
        self.tenant.get_or_init(|| hash(&tenant));
    }

    pub(super) fn begin(&self) {
        self.busy.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn end(&self) {
        self.busy.fetch_sub(1, Ordering::Relaxed);
        self.touch();
    }

    /// It is idle from now on, unless a request is in progress.
    pub(super) fn touch(&self) {
        let now = u64::try_from(self.table.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last.store(now, Ordering::Relaxed);
    }

    /// Since when no request is in progress.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        let last = Duration::from_millis(self.last.load(Ordering::Relaxed));
        (self.busy.load(Ordering::Relaxed) == 0).then(|| self.table.began + last)
    }

    /// Whether the connection has to be closed; otherwise wakes the task when it has.
    pub(super) fn poll_closed(&self, context: &Context<'_>) -> Poll<()> {
        self.waker.register(context.waker());
        match self.is_closed.load(Ordering::Acquire) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }

    /// Waits until it has to be closed.
    pub(super) async fn closed(&self) {
        poll_fn(|context| self.poll_closed(context)).await;
    }
}

fn hash(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

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
    use super::*;

    fn from(address: &str) -> Option<SocketAddr> {
        Some(SocketAddr::new(address.parse().unwrap(), 1))
    }

    fn is_closed(place: &Place) -> bool {
        place.0.is_closed.load(Ordering::Acquire)
    }

    /// Which of four connections, each idle for more than a second, gives way to a fifth.
    fn gives_way(prepare: impl Fn(&[Place])) -> Vec<usize> {
        let table = Arc::new(Connections {
            most: 4,
            began: Instant::now() - 2 * NEW,
            open: Mutex::default(),
            last: AtomicU64::new(0),
        });
        let addresses = ["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"];
        let four = addresses.map(|address| table.enter(from(address)));
        for (place, at) in four.iter().zip(1..) {
            place.0.last.store(at, Ordering::Relaxed);
        }
        prepare(&four);
        let _fifth = table.enter(from("10.0.0.5"));
        let closed = four.iter().enumerate().filter(|(_, place)| is_closed(place));
        closed.map(|(n, _)| n).collect()
    }

    #[test]
    fn the_connection_that_does_least_gives_way() {
        let of = |tenants: [&'static str; 4]| {
            move |four: &[Place]| {
                let known = four.iter().zip(tenants).filter(|(_, tenant)| !tenant.is_empty());
                known.for_each(|(place, tenant)| place.0.belongs_to(tenant));
            }
        };
        assert_eq!(gives_way(|_| ()), [0], "idle longest");
        assert_eq!(gives_way(of(["a", "", "", ""])), [1], "without a key");
        assert_eq!(gives_way(of(["a", "b", "c", "d"])), [0], "all have a key: idle longest");
        assert_eq!(gives_way(of(["a", "b", "c", "c"])), [2], "of the tenant that has most");
        assert_eq!(gives_way(|four| four[0].0.begin()), [1], "not at work");
        let worked = |four: &[Place]| {
            four[0].0.begin();
            four[0].0.end();
        };
        assert_eq!(gives_way(worked), [1], "it was at work until now");
        let at_work = |four: &[Place]| {
            of(["a", "b", "b", "b"])(four);
            four.iter().for_each(|place| place.0.begin());
        };
        assert_eq!(gives_way(at_work), [1], "all are at work: of the tenant that has most");
        let is_new = |four: &[Place]| {
            of(["", "b", "b", "b"])(four);
            four[1..].iter().for_each(|place| place.0.begin());
            four[0].0.touch();
        };
        assert_eq!(gives_way(is_new), [1], "its first request may be on its way");
    }

    #[test]
    fn the_addresses_of_one_network_count_together() {
        let table = Connections::new(4);
        let other = table.enter(from("2001:db8:9::1"));
        let one = ["2001:db8::1", "2001:db8::2", "2001:db8::3"].map(|address| table.enter(from(address)));
        let _fifth = table.enter(from("10.0.0.1"));
        assert!(is_closed(&one[0]) && !is_closed(&other));
    }

    /// The search for connections that do least is paid once for many that come.
    #[test]
    fn a_flood_finds_places_quickly() {
        let table = Connections::new(4096);
        let began = Instant::now();
        let flood: Vec<_> = (0..12_288).map(|_| table.enter(from("10.0.0.1"))).collect();
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
        assert!(table.open().len() <= 4096);
        assert!(flood[..8192].iter().all(is_closed));
        drop(flood);
        assert!(table.open().is_empty());
    }
}

#[cfg(test)]
mod activity_tests {
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
