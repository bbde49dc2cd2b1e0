//! Limits failed logins by address.
//!
//! A valid login is always accepted: behind a proxy all users share one address, and failed logins of others must not
//! lock them out. Keys have too many bits to be guessed.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Failed logins that an address has at once; after that, one more per pause.
const AT_ONCE: u32 = 10;
const PAUSE: Duration = Duration::from_secs(6);
/// Most addresses that are counted. Beyond that, the one with the oldest failure is forgotten.
const MOST: usize = 4096;

/// The addresses with recent failures. Each process counts separately.
#[derive(Default)]
pub(crate) struct Attempts(Mutex<HashMap<IpAddr, Failed>>);

/// Time at which the address has all its attempts again.
struct Failed {
    whole_at: Instant,
}

impl Attempts {
    /// Counts a failure. If no attempt was left, returns the seconds to wait, and does not count this one.
    pub(super) fn failed(&self, address: Option<IpAddr>) -> Option<u32> {
        self.failed_at(address, Instant::now())
    }

    fn failed_at(&self, address: Option<IpAddr>, now: Instant) -> Option<u32> {
        let mut failed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let network = network(address);
        if failed.len() >= MOST && !failed.contains_key(&network) {
            failed.retain(|_, one| one.whole_at > now);
            let first = failed
                .iter()
                .min_by_key(|(_, one)| one.whole_at)
                .map(|(address, _)| *address);
            if failed.len() >= MOST
                && let Some(first) = first
            {
                failed.remove(&first);
            }
        }
        let one = failed.entry(network).or_insert(Failed { whole_at: now });
        let over = one
            .whole_at
            .saturating_duration_since(now)
            .checked_sub(PAUSE * (AT_ONCE - 1));
        if let Some(over) = over.filter(|over| !over.is_zero()) {
            return Some(u32::try_from(over.as_secs()).unwrap_or(u32::MAX).saturating_add(1));
        }
        one.whole_at = one.whole_at.max(now) + PAUSE;
        None
    }
}

/// The network of an address. An IPv6 user has at least 2^64 addresses, so these count as one.
pub(crate) fn network(address: Option<IpAddr>) -> IpAddr {
    match address.map(|address| address.to_canonical()) {
        Some(IpAddr::V6(address)) => {
            let [a, b, c, d, ..] = address.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
        Some(address) => address,
        None => Ipv6Addr::UNSPECIFIED.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> Option<IpAddr> {
        Some(text.parse().unwrap())
    }

    #[test]
    fn an_address_that_failed_too_often_waits_and_others_do_not() {
        let (attempts, now) = (Attempts::default(), Instant::now());
        let eve = address("10.0.0.1");
        for n in 0..AT_ONCE {
            assert_eq!(attempts.failed_at(eve, now), None, "attempt {n}");
        }
        assert_eq!(attempts.failed_at(eve, now), Some(7));
        assert_eq!(attempts.failed_at(address("10.0.0.2"), now), None);
        let later = now + PAUSE;
        assert_eq!(attempts.failed_at(eve, later), None, "one is back");
        assert!(attempts.failed_at(eve, later).is_some());
    }

    #[test]
    fn attempts_at_the_same_time_are_no_more() {
        let (attempts, now) = (Attempts::default(), Instant::now());
        let reported = std::thread::scope(|scope| {
            let tries = || (0..AT_ONCE).filter(|_| attempts.failed_at(None, now).is_none()).count();
            let all: Vec<_> = (0..8).map(|_| scope.spawn(tries)).collect();
            all.into_iter().map(|one| one.join().unwrap()).sum::<usize>()
        });
        assert_eq!(reported, AT_ONCE as usize);
    }

    #[test]
    fn the_addresses_of_one_network_of_ipv6_are_one() {
        let (attempts, now) = (Attempts::default(), Instant::now());
        for n in 0..AT_ONCE {
            attempts.failed_at(address(&format!("2001:db8::{n:x}")), now);
        }
        assert!(attempts.failed_at(address("2001:db8::ffff"), now).is_some());
        assert!(attempts.failed_at(address("2001:db8:0:1::1"), now).is_none());
    }

    #[test]
    fn memory_is_bounded_however_many_addresses_fail() {
        let (attempts, now) = (Attempts::default(), Instant::now());
        for n in 0..u32::try_from(MOST).unwrap() + 100 {
            attempts.failed_at(Some(IpAddr::V4(n.into())), now);
        }
        assert_eq!(attempts.0.lock().unwrap().len(), MOST);
    }
}
