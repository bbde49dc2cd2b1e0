//! The table of open connections. A new connection always finds a place: when the table is full, it takes the place of
//! those that do least. So neither idle connections nor those of one address or tenant shut others out.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::future::poll_fn;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use futures_util::task::AtomicWaker;

use super::console::network;

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
