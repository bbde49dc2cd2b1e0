//! The calls to one server that may be in progress. A call beyond them waits.

use std::sync::Arc;

use tokio::sync::{Notify, Semaphore, SemaphorePermit};

use crate::domain::budget::{Budget, Limits, Pool, Share};

/// The slots of one server: a call takes one of its user's share first, and then one of all.
pub(super) struct Slots {
    all: Semaphore,
    shares: Arc<Budget>,
    /// Signals that a share was returned, or that the slots are closed.
    changed: Notify,
}

/// The slot of one call. Dropping it returns it.
pub(super) struct Slot<'a> {
    // Returned before the share, so that a call that waits for the share finds a slot.
    _one: SemaphorePermit<'a>,
    _share: Shared<'a>,
}

struct Shared<'a> {
    share: Option<Share>,
    slots: &'a Slots,
}

impl Drop for Shared<'_> {
    fn drop(&mut self) {
        self.share = None;
        self.slots.changed.notify_waiters();
    }
}

impl Slots {
    /// `most` calls at once.
    pub(super) fn new(most: usize) -> Self {
        let limits = Limits {
            // The semaphore limits all calls, and serves them in the order in which they came.
            process: u64::MAX,
            ..Pool::CallsToServer.limits(most as u64)
        };
        Self {
            all: Semaphore::new(most),
            shares: Budget::new(Pool::CallsToServer, limits),
            changed: Notify::new(),
        }
    }

    /// Waits for a slot. `None`: the slots are closed.
    pub(super) async fn acquire(&self, tenant: &str, user: &str) -> Option<Slot<'_>> {
        let share = loop {
            let changed = self.changed.notified();
            if let Ok(share) = self.shares.take(tenant, user, 1) {
                break share;
            }
            if self.all.is_closed() {
                return None;
            }
            changed.await;
        };
        let share = Shared {
            share: Some(share),
            slots: self,
        };
        Some(Slot {
            _one: self.all.acquire().await.ok()?,
            _share: share,
        })
    }

    /// Gives out no more slots. Waiting calls stop waiting.
    pub(super) fn close(&self) {
        self.all.close();
        self.changed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    /// As many slots as the user gets at once.
    fn fill<'a>(slots: &'a Slots, user: &str) -> Vec<Slot<'a>> {
        std::iter::from_fn(|| slots.acquire("t", user).now_or_never().flatten()).collect()
    }

    #[tokio::test]
    async fn no_user_and_no_tenant_takes_all_slots_and_a_waiting_call_gets_the_next_one() {
        let slots = Slots::new(16);
        let mut anns = fill(&slots, "ann");
        let bobs = fill(&slots, "bob");
        assert_eq!((anns.len(), bobs.len()), (12, 2));
        assert!(slots.acquire("other", "ann").now_or_never().flatten().is_some());

        let mut waiting = Box::pin(slots.acquire("t", "ann"));
        assert!(waiting.as_mut().now_or_never().is_none());
        drop(anns.pop());
        assert!(waiting.await.is_some());
        drop((anns, bobs));
        assert_eq!(fill(&slots, "ann").len(), 12);
    }

    #[tokio::test]
    async fn one_slot_is_for_all_in_turn() {
        let slots = Slots::new(1);
        let anns = fill(&slots, "ann");
        let mut bob = Box::pin(slots.acquire("t", "bob"));
        let mut next = Box::pin(slots.acquire("t", "ann"));
        assert!(bob.as_mut().now_or_never().is_none() && next.as_mut().now_or_never().is_none());
        drop(anns);
        let bob = bob.await;
        assert!(bob.is_some() && next.as_mut().now_or_never().is_none());
        drop(bob);
        assert!(next.await.is_some());
    }

    #[tokio::test]
    async fn a_call_stops_waiting_when_the_slots_are_closed() {
        let slots = Slots::new(16);
        let anns = fill(&slots, "ann");
        let waiting = slots.acquire("t", "ann");
        let closing = async { slots.close() };
        assert!(futures_util::join!(waiting, closing).0.is_none());
        drop(anns);
        assert!(slots.acquire("t", "ann").await.is_none());
    }
}
