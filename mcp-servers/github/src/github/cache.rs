//! Answers that GitHub may confirm with a 304, which costs no quota.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use reqwest::header::ETAG;
use url::Url;

use super::Reply;

/// The bytes of all kept answers.
const CAPACITY: usize = 64 << 20;
/// One answer may fill this part of the cache.
const MAX_SHARE: usize = 4;
/// What an entry takes beside its body: its headers, its keys.
const OVERHEAD: usize = 4096;

/// The least recently used answers go first.
#[derive(Debug)]
pub(crate) struct Cache {
    capacity: usize,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    entries: HashMap<Url, Entry>,
    uses: u64,
    bytes: usize,
}

#[derive(Debug)]
struct Entry {
    reply: Arc<Reply>,
    used: u64,
}

impl Default for Cache {
    fn default() -> Self {
        Self {
            capacity: CAPACITY,
            kept: Mutex::default(),
        }
    }
}

impl Cache {
    /// The kept answer of a GET.
    pub(crate) fn get(&self, url: &Url) -> Option<Arc<Reply>> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.uses += 1;
        let now = kept.uses;
        let entry = kept.entries.get_mut(url)?;
        entry.used = now;
        Some(entry.reply.clone())
    }

    /// Keeps a successful answer that has an `ETag`.
    pub(crate) fn keep(&self, url: &Url, reply: &Arc<Reply>) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.remove(url);
        if !reply.status.is_success() || !reply.headers.contains_key(ETAG) || size(reply) > self.capacity / MAX_SHARE {
            return;
        }
        kept.bytes += size(reply);
        kept.uses += 1;
        let used = kept.uses;
        let reply = reply.clone();
        kept.entries.insert(url.clone(), Entry { reply, used });
        while kept.bytes > self.capacity
            && let Some((oldest, _)) = kept.entries.iter().min_by_key(|(_, entry)| entry.used)
        {
            let oldest = oldest.clone();
            kept.remove(&oldest);
        }
    }
}

impl Kept {
    fn remove(&mut self, url: &Url) {
        if let Some(entry) = self.entries.remove(url) {
            self.bytes -= size(&entry.reply);
        }
    }
}

fn size(reply: &Reply) -> usize {
    reply.body.len() + OVERHEAD
}

#[cfg(test)]
mod tests {
    use reqwest::StatusCode;
    use reqwest::header::{HeaderMap, HeaderValue};

    use super::*;

    fn url(name: &str) -> Url {
        Url::parse(&format!("https://api.example/{name}")).expect("a URL")
    }

    fn reply(bytes: usize) -> Arc<Reply> {
        Arc::new(Reply {
            status: StatusCode::OK,
            headers: HeaderMap::from_iter([(ETAG, HeaderValue::from_static("\"1\""))]),
            body: vec![b'x'; bytes],
        })
    }

    #[test]
    fn the_cache_never_exceeds_its_capacity_and_forgets_what_was_not_used() {
        let cache = Cache {
            capacity: 10 * OVERHEAD,
            kept: Mutex::default(),
        };
        for name in ["a", "b", "c", "d", "e"] {
            cache.keep(&url(name), &reply(OVERHEAD));
            assert!(cache.get(&url("a")).is_some());
        }
        cache.keep(&url("f"), &reply(OVERHEAD));
        assert!(cache.get(&url("a")).is_some() && cache.get(&url("f")).is_some());
        assert!(cache.get(&url("b")).is_none());
        // The same address again replaces its answer.
        cache.keep(&url("a"), &reply(0));
        assert_eq!(cache.get(&url("a")).map(|reply| reply.body.len()), Some(0));
        // Too large for the others' sake.
        cache.keep(&url("g"), &reply(3 * OVERHEAD));
        assert!(cache.get(&url("g")).is_none() && cache.get(&url("f")).is_some());
        let kept = cache.kept.lock().expect("kept");
        assert!(kept.bytes <= cache.capacity);
    }
}
