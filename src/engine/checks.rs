//! Checks that take longer than a thread that serves others may be kept.
//!
//! Most values are checked by a schema in microseconds, where they are. What needs more is checked again on a thread of its
//! own, for a second at most; how many may wait for that is limited for a user, a tenant and the process, and half of the
//! cores are left to everything else.

use std::num::NonZeroUsize;
use std::panic::resume_unwind;
use std::sync::{Arc, LazyLock};
use std::thread;

use tokio::sync::Semaphore;

use crate::domain::budget::{Budget, Limits};
use crate::domain::ids::{TenantId, UserId};

/// Long checks that are made or wait for their turn.
const AT_ONCE: Limits = Limits {
    process: 64,
    tenant: 8,
    user: 2,
};

static WAITING: LazyLock<Arc<Budget>> = LazyLock::new(|| Budget::new("long checks", AT_ONCE));
static PLACES: LazyLock<Arc<Semaphore>> = LazyLock::new(|| {
    let cores = thread::available_parallelism().map_or(1, NonZeroUsize::get);
    Arc::new(Semaphore::new((cores / 2).max(1)))
});

/// Makes a check on a thread of its own.
///
/// # Errors
/// Why it is not made: too many are under way.
pub(super) async fn apart<T: Send + 'static>(
    tenant: &TenantId,
    user: &UserId,
    check: impl FnOnce() -> T + Send + 'static,
) -> Result<T, String> {
    let busy =
        |why: String| format!("the value was not checked, since gavel is checking too much: {why}; try again later");
    let share = WAITING
        .take(tenant.as_str(), user.as_str(), 1)
        .map_err(|exceeded| busy(exceeded.to_string()))?;
    let place = Arc::clone(&PLACES).acquire_owned().await;
    let place = place.map_err(|closed| busy(closed.to_string()))?;
    let checked = tokio::task::spawn_blocking(move || {
        // Both are held until the check has ended, also where the run that asked for it has ended before.
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
