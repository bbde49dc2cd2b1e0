//! Whose turn it is among the runs that wait for a process.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use super::Runs;
use crate::domain::budget::{Budget, Pool, Scope, Share};
use crate::domain::ids::{RunId, TenantId};
use crate::ports::records::RecordError;
use crate::ports::runs::{Lease, MOST_CLAIMS, MOST_TAKES, Turn};

/// How often another process may claim a run first before this one waits for the next sweep.
const TRIES: u32 = 64;
/// Maximum number of tenants whose last user is remembered. When it is reached, all are forgotten, and their turns
/// restart.
const TENANTS_REMEMBERED: usize = 4096;

/// The background runs: how many there may be, and whose turn it is.
///
/// Tenants take turns, and so do the users within a tenant, whichever process asks: waiting runs are read from their
/// rows. One tenant cannot use the whole limit ([`Limits::with_reserve`]), so slow runs of one tenant do not block the
/// others.
pub(crate) struct Background {
    places: Arc<Budget>,
    /// Signals that this process has queued a run. Runs of other processes are found by the sweep.
    pub(super) queued: Notify,
    turns: tokio::sync::Mutex<Turns>,
    /// At most one run that earlier processes did not return is executed at a time: if this process is lost as well,
    /// that run is the cause.
    last_take: Arc<Semaphore>,
}

/// The tenant and the users whose turn was last.
#[derive(Default)]
struct Turns {
    tenant: String,
    users: HashMap<TenantId, String>,
}

/// A run that was claimed in its turn, with its share of the limit.
pub(super) struct Taken {
    pub(super) lease: Lease,
    /// The instant before the lease was requested.
    pub(super) asked: Instant,
    _counted: Counted,
    _place: Share,
    _last_take: Option<OwnedSemaphorePermit>,
}

/// A background run that this process works on, in the metric `gavel_background_runs`.
struct Counted;

impl Counted {
    fn gauge() -> metrics::Gauge {
        metrics::gauge!("gavel_background_runs")
    }

    fn new() -> Self {
        Self::gauge().increment(1.0);
        Self
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        Self::gauge().decrement(1.0);
    }
}

impl Background {
    pub(crate) fn new(places: usize) -> Self {
        Counted::gauge().set(0.0);
        Self {
            places: Budget::new(Pool::Background, Pool::Background.limits(places as u64)),
            queued: Notify::new(),
            turns: tokio::sync::Mutex::default(),
            last_take: Arc::new(Semaphore::new(1)),
        }
    }
}

impl Runs {
    /// Claims the run whose turn it is, if there is one and the limit allows it.
    async fn take_next(&self) -> Result<Option<Taken>, RecordError> {
        let background = &self.background;
        let runs = &self.agents.runs;
        // Serialized; otherwise all workers would request the same run.
        let mut turns = background.turns.lock().await;
        let last_take = Arc::clone(&background.last_take).try_acquire_owned().ok();
        let takes = if last_take.is_some() {
            MOST_CLAIMS
        } else {
            MOST_TAKES - 1
        };
        let mut full = HashSet::new();
        let mut after = turns.tenant.clone();
        'tenants: for _ in 0..TRIES {
            if self.halt.is_cancelled() {
                break;
            }
            let first = match runs.waiting(Turn::Tenant(&after), takes).await? {
                None if after.is_empty() => break,
                // Restarts from the first tenant.
                None => {
                    after.clear();
                    continue;
                }
                Some(first) => first,
            };
            let tenant = first.tenant.clone();
            if full.contains(tenant.as_str()) {
                break;
            }
            let mut full_users = HashSet::new();
            let mut user = turns.users.get(&tenant).cloned().unwrap_or_default();
            for _ in 0..TRIES {
                let Some(next) = runs.waiting(Turn::User(&tenant, &user), takes).await? else {
                    if user.is_empty() {
                        break;
                    }
                    user.clear();
                    continue;
                };
                if full_users.contains(next.user.as_str()) {
                    break;
                }
                let place = match background.places.take(tenant.as_str(), next.user.as_str(), 1) {
                    Ok(place) => place,
                    Err(exceeded) => match exceeded.scope {
                        Scope::Process => break 'tenants,
                        Scope::Tenant => break,
                        Scope::User => {
                            user = next.user.as_str().to_owned();
                            full_users.insert(user.clone());
                            continue;
                        }
                    },
                };
                // A run that is just being released here is claimed at the next sweep.
                if self.leases.has(next.run) {
                    break;
                }
                let asked = self.now();
                if let Some(lease) = runs.take(next.run).await? {
                    if turns.users.len() >= TENANTS_REMEMBERED {
                        turns.users.clear();
                    }
                    turns.users.insert(tenant.clone(), next.user.as_str().to_owned());
                    turns.tenant = tenant.as_str().to_owned();
                    return Ok(Some(Taken {
                        lease,
                        asked,
                        _counted: Counted::new(),
                        _place: place,
                        _last_take: last_take.filter(|_| next.takes + 1 >= MOST_TAKES),
                    }));
                }
            }
            after = tenant.as_str().to_owned();
            full.insert(after.clone());
        }
        Ok(None)
    }

    /// Like [`Runs::take_next`]; after an error, the next sweep tries again.
    pub(super) async fn next_in_turn(&self) -> Option<Taken> {
        self.take_next().await.unwrap_or_else(|error| {
            tracing::debug!(%error, "waiting runs could not be continued; this process tries again");
            None
        })
    }
}

// Runs that this process executed and could not record.

/// Waiting callers get an error after this many failures in a row to record a run.
const PATIENCE: u32 = 2;
/// How long a failure to record a run is remembered.
const REMEMBERED: Duration = Duration::from_secs(3600);

/// Runs that this process executed and could not record: the time of the last failure, and the number of failures in a
/// row.
#[derive(Default)]
pub(crate) struct Unrecorded(Mutex<HashMap<RunId, (Instant, u32)>>);

impl Unrecorded {
    fn lock(&self) -> MutexGuard<'_, HashMap<RunId, (Instant, u32)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn failed(&self, run: RunId) {
        let mut runs = self.lock();
        let (last, times) = runs.entry(run).or_insert((Instant::now(), 0));
        (*last, *times) = (Instant::now(), times.saturating_add(1));
    }

    pub(crate) fn continued(&self, run: RunId) {
        self.lock().remove(&run);
    }

    /// This process does not learn that others have claimed such runs meanwhile.
    pub(super) fn forget_old(&self) {
        self.lock().retain(|_, (last, _)| last.elapsed() < REMEMBERED);
    }

    /// Did this process's last execution of the run end without a record?
    pub(crate) fn has(&self, run: RunId) -> bool {
        self.lock().contains_key(&run)
    }

    /// Is it pointless to wait for this run?
    pub(crate) fn is_hopeless(&self, run: RunId) -> bool {
        self.lock().get(&run).is_some_and(|(_, times)| *times >= PATIENCE)
    }
}
