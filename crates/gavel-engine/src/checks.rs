//! Checks that are too slow for a shared thread.
//!
//! Most values are checked against a schema in microseconds, in place. Slower checks are repeated on a separate thread,
//! for at most a second. The number of waiting checks is limited per user, tenant and process, and half of the cores
//! are left to other work.

use std::num::NonZeroUsize;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::thread;

use tokio::sync::Semaphore;

use crate::domain::budget::{Budget, Pool};
use crate::domain::ids::{TenantId, UserId};

/// The long checks of a service.
#[derive(Debug)]
pub struct Checks {
    waiting: Arc<Budget>,
    places: Arc<Semaphore>,
}

impl Default for Checks {
    fn default() -> Self {
        let cores = thread::available_parallelism().map_or(1, NonZeroUsize::get);
        Self {
            waiting: Budget::new(Pool::Checks, Pool::Checks.limits(0)),
            places: Arc::new(Semaphore::new((cores / 2).max(1))),
        }
    }
}

impl Checks {
    /// Runs a check on a separate thread.
    ///
    /// # Errors
    /// The check was not run because too many are running or waiting.
    pub(super) async fn apart<T: Send + 'static>(
        &self,
        tenant: &TenantId,
        user: &UserId,
        check: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, String> {
        let busy = |why: String| {
            format!("the value was not checked because too many checks are running: {why}; try again later")
        };
        let share = self
            .waiting
            .take(tenant.as_str(), user.as_str(), 1)
            .map_err(|exceeded| busy(exceeded.to_string()))?;
        let place = Arc::clone(&self.places).acquire_owned().await;
        let place = place.map_err(|closed| busy(closed.to_string()))?;
        let checked = tokio::task::spawn_blocking(move || {
            // Both are held until the check has ended, even if the run that requested it has ended before.
            let (_share, _place) = (share, place);
            check()
        });
        match checked.await {
            Ok(done) => Ok(done),
            Err(error) => match error.try_into_panic() {
                Ok(panic) => resume_unwind(panic),
                Err(cancelled) => Err(busy(cancelled.to_string())),
            },
        }
    }
}
