//! Memory that grows while work goes on.

use std::borrow::Cow;
use std::sync::Arc;

use super::{Budget, Exceeded, Share};

/// What is so small is not counted: its number is bounded by the work under way, and nearly all is small.
pub const FREE: usize = 64 * 1024;
/// Bytes that are taken of a budget at a time, so that it is not asked for every piece.
const STEP: usize = 128 * 1024;

/// What one piece of work has taken of a budget of bytes; given back when it is dropped.
#[derive(Debug)]
pub struct Held<'a> {
    budget: Cow<'a, Arc<Budget>>,
    tenant: Cow<'a, str>,
    user: Cow<'a, str>,
    /// How often a byte of it is in memory.
    copies: usize,
    /// Bytes so far.
    bytes: usize,
    /// Bytes taken of the budget.
    taken: usize,
    share: Option<Share>,
}

impl<'a> Held<'a> {
    /// For work of this user. Of each byte so many copies are in memory.
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

    /// More bytes have come.
    ///
    /// # Errors
    /// There is no room for them; what was taken is kept until it is dropped.
    pub fn add(&mut self, bytes: usize) -> Result<(), Exceeded> {
        self.grow_to(self.bytes.saturating_add(bytes))
    }

    /// It has so many bytes now, or more.
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

    /// What was taken, to be kept by itself; counting begins anew.
    pub fn take(&mut self) -> Option<Share> {
        (self.bytes, self.taken) = (0, 0);
        self.share.take()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::super::Limits;
    use super::*;

    #[test]
    fn what_is_small_is_free_and_what_is_large_counts_until_it_is_dropped() {
        let limits = Limits {
            process: 1 << 20,
            tenant: 1 << 20,
            user: 1 << 20,
        };
        let budget = Budget::new("bytes", limits);
        let mut held = Held::new(Cow::Borrowed(&budget), "t", "u", 2);
        held.add(FREE).unwrap();
        assert_eq!(budget.used(), 0);
        held.add(1).unwrap();
        assert_eq!(budget.used(), 256 * 1024);
        held.grow_to(FREE).unwrap();
        assert_eq!(held.bytes(), FREE + 1, "it never shrinks");
        let share = held.take();
        held.add(FREE).unwrap();
        assert_eq!(budget.used(), 256 * 1024, "the next one begins anew");
        drop(share);
        assert_eq!(budget.used(), 0);
        assert!(held.grow_to(1 << 20).is_err());
    }
}
