//! Memory that grows while work is in progress.

use std::borrow::Cow;
use std::sync::Arc;

use super::{Budget, Exceeded, Share};

/// Smaller amounts are not counted: their number is bounded by the work in progress, and nearly all are small.
pub const FREE: usize = 64 * 1024;
/// Bytes that are taken from a budget at a time, so that small additions do not each access it.
const STEP: usize = 128 * 1024;

/// What one piece of work has taken from a budget of bytes. Dropping it returns the bytes.
#[derive(Debug)]
pub struct Held<'a> {
    budget: Cow<'a, Arc<Budget>>,
    tenant: Cow<'a, str>,
    user: Cow<'a, str>,
    /// How many copies of each byte are in memory.
    copies: usize,
    /// Bytes so far.
    bytes: usize,
    /// Bytes taken from the budget.
    taken: usize,
    share: Option<Share>,
}

impl<'a> Held<'a> {
    /// For work of this user, which holds `copies` copies of each byte in memory.
    pub fn new(
        budget: impl Into<Cow<'a, Arc<Budget>>>,
        tenant: impl Into<Cow<'a, str>>,
        user: impl Into<Cow<'a, str>>,
        copies: usize,
    ) -> Self {
        Self {
            budget: budget.into(),
            tenant: tenant.into(),
            user: user.into(),
            copies,
            bytes: 0,
            taken: 0,
            share: None,
        }
    }

    /// Adds bytes.
    ///
    /// # Errors
    /// The budget is exceeded. What was taken is kept until it is dropped.
    pub fn add(&mut self, bytes: usize) -> Result<(), Exceeded> {
        self.grow_to(self.bytes.saturating_add(bytes))
    }

    /// Grows to at least this many bytes.
    ///
    /// # Errors
    /// As [`Held::add`].
    pub fn grow_to(&mut self, bytes: usize) -> Result<(), Exceeded> {
        self.bytes = self.bytes.max(bytes);
        let needed = self.bytes.saturating_mul(self.copies);
        if self.bytes <= FREE || needed <= self.taken {
            return Ok(());
        }
        let more = (needed - self.taken).next_multiple_of(STEP);
        match &mut self.share {
            Some(share) => share.grow(more as u64)?,
            None => self.share = Some(self.budget.take(&self.tenant, &self.user, more as u64)?),
        }
        self.taken += more;
        Ok(())
    }

    /// Bytes so far.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns what was taken, and counts from zero again.
    pub fn take(&mut self) -> Option<Share> {
        (self.bytes, self.taken) = (0, 0);
        self.share.take()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::super::{Limits, Pool};
    use super::*;

    #[test]
    fn what_is_small_is_free_and_what_is_large_counts_until_it_is_dropped() {
        let limits = Limits {
            process: 1 << 20,
            tenant: 1 << 20,
            user: 1 << 20,
        };
        let budget = Budget::new(Pool::Answers, limits);
        let mut held = Held::new(Cow::Borrowed(&budget), "t", "u", 2);
        held.add(FREE).unwrap();
        assert_eq!(budget.used(), 0);
        held.add(1).unwrap();
        assert_eq!(budget.used(), 256 * 1024);
        held.grow_to(FREE).unwrap();
        assert_eq!(held.bytes(), FREE + 1, "it never shrinks");
        let share = held.take();
        held.add(FREE).unwrap();
        assert_eq!(budget.used(), 256 * 1024, "the next one counts from zero");
        drop(share);
        assert_eq!(budget.used(), 0);
        assert!(held.grow_to(1 << 20).is_err());
    }
}
