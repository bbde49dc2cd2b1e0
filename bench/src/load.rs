//! A closed loop: each connection sends its next request after the response to the last one, and every response is
//! checked.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use crate::client::Connection;
use crate::contender::Asks;
use crate::loopback::Loopback;
use crate::stats;

/// The longest time of one response.
const PATIENCE: Duration = Duration::from_secs(30);

/// After this many errors the measurement stops.
const MOST_ERRORS: u64 = 200;

/// Numbers that make each request of this process unique.
static NUMBER: AtomicU64 = AtomicU64::new(1);

/// The load and its duration: both limits apply.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) asks: Asks,
    pub(crate) connections: usize,
    pub(crate) duration: Duration,
    pub(crate) requests: u64,
}

/// The results of a load.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// Milliseconds of the valid responses, sorted.
    pub(crate) latencies_ms: Vec<f64>,
    pub(crate) errors: u64,
    /// The number of errors by kind.
    pub(crate) kinds: BTreeMap<String, u64>,
    /// From the first request to the last response.
    pub(crate) wall: Duration,
}

impl Outcome {
    pub(crate) fn good(&self) -> usize {
        self.latencies_ms.len()
    }

    /// Valid responses per second.
    pub(crate) fn rate(&self) -> f64 {
        self.good() as f64 / self.wall.as_secs_f64()
    }

    pub(crate) fn percentile_ms(&self, share: f64) -> f64 {
        stats::percentile(&self.latencies_ms, share)
    }
}

/// Applies the load to `to` and waits until every sent request is answered.
pub(crate) async fn put(load: Load, to: Loopback) -> Outcome {
    let left = Arc::new(AtomicU64::new(load.requests));
    let errors = Arc::new(AtomicU64::new(0));
    let start = Instant::now();
    let end = start + load.duration;
    let mut clients = JoinSet::new();
    for _ in 0..load.connections {
        clients.spawn(client(load.asks, to, end, Arc::clone(&left), Arc::clone(&errors)));
    }
    let mut outcome = Outcome::default();
    while let Some(done) = clients.join_next().await {
        match done {
            Ok((latencies, kinds)) => {
                outcome.latencies_ms.extend(latencies);
                for (kind, times) in kinds {
                    *outcome.kinds.entry(kind).or_default() += times;
                }
            }
            Err(error) => *outcome.kinds.entry(error.to_string()).or_default() += 1,
        }
    }
    outcome.wall = start.elapsed();
    outcome.errors = outcome.kinds.values().sum();
    stats::sort(&mut outcome.latencies_ms);
    outcome
}

async fn client(
    asks: Asks,
    to: Loopback,
    end: Instant,
    left: Arc<AtomicU64>,
    errors: Arc<AtomicU64>,
) -> (Vec<f64>, BTreeMap<String, u64>) {
    let uri = asks.uri();
    let mut latencies = Vec::new();
    let mut kinds = BTreeMap::new();
    let mut idle = None;
    while Instant::now() < end
        && errors.load(Relaxed) < MOST_ERRORS
        && left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok()
    {
        let number = NUMBER.fetch_add(1, Relaxed);
        let (headers, body) = (asks.headers(number), asks.body(number));
        let sent = Instant::now();
        let exchange = async {
            let mut connection = match idle.take() {
                Some(connection) => connection,
                None => Connection::open(to).await?,
            };
            let (status, body) = connection.post(&uri, &headers, body).await?;
            anyhow::Ok((connection, status, body))
        };
        let checked = match tokio::time::timeout(PATIENCE, exchange).await {
            Ok(Ok((mut connection, status, body))) => {
                let took = sent.elapsed();
                let checked = asks.check(number, status, &body).map(|()| took);
                idle = connection.ready().await.then_some(connection);
                checked
            }
            Ok(Err(error)) => Err(format!("{error:#}")),
            Err(_) => Err(format!("no reply within {PATIENCE:?}")),
        };
        match checked {
            Ok(took) => latencies.push(took.as_secs_f64() * 1000.0),
            Err(kind) => {
                errors.fetch_add(1, Relaxed);
                *kinds.entry(kind).or_default() += 1;
            }
        }
    }
    (latencies, kinds)
}
