//! The memory that answers of servers take while they are read.
//!
//! The cap of one answer does not bound many of them at once. So an answer takes a share of one [`Budget`] while its bytes
//! come, and gives it back when what is left of it, capped, leaves this adapter. Small answers are not counted: their number
//! is bounded by the calls under way (`maxConcurrent`), and nearly all answers are small.

use std::borrow::Cow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::domain::budget::{self, Budget, Exceeded, Limits, Share};

const MIB: u64 = 1024 * 1024;
/// What answers may take at once, in bytes of memory. One of the largest (16 MiB) takes 32 MiB, so a user may receive three
/// of them at a time, a tenant four and the process five; of answers of the usual size thousands fit.
const LIMITS: Limits = Limits {
    process: 160 * MIB,
    tenant: 128 * MIB,
    user: 96 * MIB,
};
/// How often a byte of an answer is in memory: as it came, and in the buffer that puts the pieces together.
const COPIES: usize = 2;

/// The budget that all answers share.
pub(super) fn budget() -> Arc<Budget> {
    Budget::new("bytes of answers", LIMITS)
}

/// An answer found no room in the budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("gavel is holding too many large answers, so this one was not read; try again ({0})")]
pub(super) struct NoRoom(Exceeded);

/// What one answer has taken of the budget; given back when it is dropped.
#[derive(Debug)]
pub(super) struct Held<'a>(budget::Held<'a>);

impl<'a> Held<'a> {
    /// For an answer to a call of this user.
    pub(super) fn of_call(budget: &'a Arc<Budget>, tenant: &'a str, user: &'a str) -> Self {
        Self(budget::Held::new(Cow::Borrowed(budget), tenant, user, COPIES))
    }

    /// For what a server sends that no user asked for, such as its list of tools.
    pub(super) fn of_server(budget: &Arc<Budget>, server: &str) -> Held<'static> {
        let holder = format!("the server {server}");
        Held(budget::Held::new(Cow::Owned(budget.clone()), holder, "", COPIES))
    }

    /// More bytes of it have come.
    ///
    /// # Errors
    /// There is no room for them; what was taken is kept until it is dropped.
    pub(super) fn add(&mut self, bytes: usize) -> Result<(), NoRoom> {
        self.0.add(bytes).map_err(NoRoom)
    }

    /// Bytes of the answer so far.
    pub(super) fn bytes(&self) -> usize {
        self.0.bytes()
    }

    /// What was taken, to be kept as long as the answer is; the next answer begins anew.
    pub(super) fn take(&mut self) -> Option<Share> {
        self.0.take()
    }
}

/// [`Held`] by those who read pieces and by those who put them together to messages.
#[derive(Clone, Debug)]
pub(super) struct Reading<'a>(Arc<Mutex<Held<'a>>>);

impl<'a> Reading<'a> {
    pub(super) fn new(held: Held<'a>) -> Self {
        Self(Arc::new(Mutex::new(held)))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Held<'a>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// No one user takes the room of the others.
    #[test]
    fn a_user_may_hold_three_of_the_largest_answers_and_others_still_find_room() {
        let budget = budget();
        let largest = 16 * 1024 * 1024;
        let mut held: Vec<_> = (0..4).map(|_| Held::of_call(&budget, "t", "u")).collect();
        for held in &mut held[..3] {
            held.add(largest).unwrap();
        }
        let refused = held[3].add(largest).unwrap_err().to_string();
        let words = "gavel is holding too many large answers, so this one was not read; try again \
                     (100663296 bytes of answers at once are allowed for a user)";
        assert_eq!(refused, words);
        for (tenant, user) in [("t", "v"), ("o", "u")] {
            let mut other = Held::of_call(&budget, tenant, user);
            other.add(largest).unwrap();
            held.push(other);
        }
        assert!(
            Held::of_server(&budget, "s").add(largest).is_err(),
            "the process is full"
        );
        drop(held);
        assert_eq!(budget.used(), 0);
    }
}
