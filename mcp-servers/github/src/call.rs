//! One call: its time, and whether it is a further attempt.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use gavel_mcp_base::{Code as Common, Fault, Moment, ToolError, key_reused};
use serde::de::DeserializeOwned;
use tokio::sync::{Mutex as Lock, OwnedMutexGuard};
use tokio::time::Instant;

use crate::error::Code;
use crate::github::Reply;
use crate::marker::Marker;

/// The time of a call, its idempotency key, and its first attempt.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) deadline: Instant,
    /// What the call creates carries this.
    pub(crate) marker: Option<Marker>,
    /// When the call was first sent, if this is a further attempt.
    pub(crate) first_attempt: Option<Moment>,
    /// Whose containers the call may use.
    pub(crate) owner: Option<String>,
    /// Owner and name of the repository that the session is limited to.
    pub(crate) repository: Option<(String, String)>,
    /// The patterns of the repositories that the caller may use; `None`: all.
    pub(crate) allowed: Option<Vec<String>>,
    /// Keeps other attempts with the same key waiting until this one has ended.
    pub(crate) alone: Option<OwnedMutexGuard<()>>,
}

impl Call {
    /// Waits for other attempts with the same key.
    pub(crate) async fn begin<A>(
        tool: &str,
        given: &gavel_mcp_base::Call<A>,
        attempts: &Attempts,
        deadline: Instant,
    ) -> Result<Self, Fault> {
        let meta = &given.meta;
        let mut call = Self {
            deadline,
            marker: None,
            first_attempt: meta.first_attempt()?,
            owner: meta.owner()?,
            repository: meta.repository()?,
            allowed: meta.repositories()?,
            alone: None,
        };
        let Some(key) = meta.idempotency_key()? else {
            if call.first_attempt.is_some() {
                let words = "A further attempt of a call needs its idempotency key in `_meta`.";
                return Err(ToolError::new(Common::InvalidMeta, words).into());
            }
            return Ok(call);
        };
        let scoped = format!("{tool} {key}");
        let attempt = attempts.arrives(&scoped, given.digest.clone(), call.first_attempt, Moment::now())?;
        call.marker = Some(Marker::of(&key));
        call.first_attempt = attempt.first;
        call.alone = attempt.alone(deadline).await;
        match call.alone {
            Some(_) => Ok(call),
            None => Err(call.unsettled("another attempt with the same idempotency key is under way")),
        }
    }

    /// May the caller use this repository (`owner/name`)?
    pub(crate) fn allows(&self, repository: &str) -> bool {
        let repository = repository.to_ascii_lowercase();
        let fits = |pattern: &String| fits(&pattern.to_ascii_lowercase(), &repository);
        self.allowed.as_ref().is_none_or(|patterns| patterns.iter().any(fits))
    }

    pub(crate) fn not_allowed(&self, words: &str) -> ToolError {
        let allowed = self.allowed.as_deref().unwrap_or_default().join(", ");
        let words = format!("Only some repositories may be used here: {allowed}. {words} Nothing was done.");
        ToolError::new(Code::Forbidden, words)
    }

    /// An error before it is known what an earlier attempt did. Only on a first attempt it means that nothing was done.
    pub(crate) fn before_looking(&self, error: ToolError) -> Fault {
        match self.first_attempt {
            None => Fault::Refused(error),
            Some(_) => self.unsettled(&format!("an earlier attempt could not be looked up ({})", error.code())),
        }
    }

    /// The fault of a change that needs no looking up, since a further attempt has the same result. If the request was
    /// not sent now, an earlier attempt may still have made the change.
    pub(crate) fn natural(&self, fault: Fault) -> Fault {
        match fault {
            Fault::Refused(error) => self.before_looking(error),
            Fault::Unsettled(why) => Fault::Unsettled(why),
        }
    }

    /// The body of what the call creates, with its marker.
    pub(crate) fn marked(&self, body: String) -> String {
        match &self.marker {
            Some(marker) => marker.added_to(&body),
            None => body,
        }
    }

    /// What GitHub says that it made.
    pub(crate) fn made<T: DeserializeOwned>(&self, reply: &Reply) -> Result<T, Fault> {
        let made = reply.json();
        made.ok_or_else(|| self.unsettled("GitHub's answer cannot be read"))
    }

    /// The fault of a request that may have taken effect.
    pub(crate) fn unsettled(&self, why: &str) -> Fault {
        let next = match self.marker {
            Some(_) => "a further attempt with the same idempotency key looks first, so it takes effect only once",
            None => "the call has no idempotency key, so look at GitHub before it is sent again",
        };
        Fault::Unsettled(format!("it is unknown whether this call took effect: {why}; {next}"))
    }
}

/// Does a pattern describe this text? `*` is any part of a name.
fn fits(pattern: &str, text: &str) -> bool {
    let Some((head, rest)) = pattern.split_once('*') else {
        return pattern == text;
    };
    let Some(text) = text.strip_prefix(head) else {
        return false;
    };
    let of_name = text.find('/').unwrap_or(text.len());
    (0..=of_name).any(|at| text.get(at..).is_some_and(|text| fits(rest, text)))
}

/// How many keys are remembered.
const REMEMBERED: usize = 10_000;

/// The keys that this process has seen. A client that does not say that a call is a further attempt is recognized, as
/// long as the process runs.
#[derive(Debug, Default)]
pub(crate) struct Attempts(Mutex<Remembered>);

#[derive(Debug, Default)]
struct Remembered {
    seen: HashMap<String, Seen>,
    order: VecDeque<String>,
}

#[derive(Debug)]
struct Seen {
    digest: String,
    at: Moment,
    lock: Arc<Lock<()>>,
}

/// What is known of an attempt when it arrives.
#[derive(Debug)]
pub(crate) struct Attempt {
    /// When the call was first sent, if this is a further attempt.
    pub(crate) first: Option<Moment>,
    lock: Arc<Lock<()>>,
    held: Option<OwnedMutexGuard<()>>,
}

impl Attempt {
    /// Waits until no other attempt with this key is under way: the first one does not look, so a further one that
    /// overtook it would have its effect a second time. `None` if there is no time left for that.
    pub(crate) async fn alone(self, deadline: Instant) -> Option<OwnedMutexGuard<()>> {
        match self.held {
            Some(held) => Some(held),
            None => tokio::time::timeout_at(deadline, self.lock.lock_owned()).await.ok(),
        }
    }
}

impl Attempts {
    /// An attempt that arrives now. A key belongs to one call with the same arguments.
    pub(crate) fn arrives(
        &self,
        key: &str,
        digest: String,
        named: Option<Moment>,
        now: Moment,
    ) -> Result<Attempt, ToolError> {
        let mut remembered = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(seen) = remembered.seen.get(key) {
            if seen.digest != digest {
                return Err(key_reused());
            }
            return Ok(Attempt {
                first: Some(named.map_or(seen.at, |named| named.min(seen.at))),
                lock: Arc::clone(&seen.lock),
                held: None,
            });
        }
        if remembered.order.len() == REMEMBERED
            && let Some(oldest) = remembered.order.pop_front()
        {
            remembered.seen.remove(&oldest);
        }
        remembered.order.push_back(key.to_owned());
        let at = named.unwrap_or(now);
        let lock = Arc::new(Lock::new(()));
        // No other attempt has it yet.
        let held = Arc::clone(&lock).try_lock_owned().ok();
        let seen = Seen {
            digest,
            at,
            lock: Arc::clone(&lock),
        };
        remembered.seen.insert(key.to_owned(), seen);
        Ok(Attempt {
            first: named,
            lock,
            held,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_describes_names_and_nothing_beyond_them() {
        for (pattern, text) in [
            ("acme/*", "acme/dates"),
            ("umbrella/da*s", "umbrella/dates"),
            ("*/*", "a/b"),
            ("a*c/*", "abcbc/x"),
        ] {
            assert!(fits(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in [
            ("acme/*", "acme2/dates"),
            ("acme/*", "acme/a/b"),
            ("*", "acme/dates"),
            ("acme/da*s", "acme/dat"),
            ("acme/dates", "acme/dates2"),
        ] {
            assert!(!fits(pattern, text), "{pattern} {text}");
        }
    }

    #[test]
    fn a_key_that_was_seen_makes_a_further_attempt() {
        let attempts = Attempts::default();
        let first = |digest: &str, named, now| {
            let attempt = attempts.arrives("k", digest.to_owned(), named, Moment(now));
            attempt.map(|attempt| attempt.first)
        };
        assert_eq!(first("a", None, 5).expect("new"), None);
        assert_eq!(first("a", None, 9).expect("seen"), Some(Moment(5)));
        assert_eq!(first("a", Some(Moment(3)), 9).expect("seen"), Some(Moment(3)));
        assert!(first("b", None, 9).is_err());
    }

    /// Whichever task runs first: the attempt that arrived first is alone, and a further one waits until it has ended.
    #[tokio::test]
    async fn a_further_attempt_waits_until_the_first_one_has_ended() {
        let attempts = Attempts::default();
        let arrives = || {
            attempts
                .arrives("k", String::new(), None, Moment(5))
                .expect("the same call")
        };
        let now = Instant::now();
        let later = now + std::time::Duration::from_secs(60);
        let (first, second, third) = (arrives(), arrives(), arrives());
        assert!(second.alone(now).await.is_none(), "it overtakes the first attempt");
        let first = first.alone(now).await.expect("no other attempt");
        let mut waits = std::pin::pin!(third.alone(later));
        tokio::select! {
            biased;
            _ = &mut waits => panic!("it overtakes the first attempt"),
            () = tokio::task::yield_now() => {}
        }
        drop(first);
        let third = waits.await;
        assert!(third.is_some());
        assert!(arrives().alone(now).await.is_none(), "the third attempt is under way");
        let other = attempts
            .arrives("other", String::new(), None, Moment(5))
            .expect("a new call");
        assert!(other.alone(now).await.is_some());
    }

    #[test]
    fn the_oldest_key_is_forgotten_first() {
        let attempts = Attempts::default();
        let first = |key: usize| {
            let attempt = attempts.arrives(&key.to_string(), String::new(), None, Moment(7));
            attempt.map(|attempt| attempt.first)
        };
        for key in 0..=REMEMBERED {
            assert_eq!(first(key).expect("new"), None);
        }
        assert_eq!(first(1).expect("seen"), Some(Moment(7)));
        assert_eq!(first(0).expect("forgotten"), None);
    }
}
