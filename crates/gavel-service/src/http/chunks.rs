//! Large chunks of streams: each is held once in the process, however many clients have yet to read it.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use bytes::Bytes;

/// The large chunks that some stream still has to send.
#[derive(Default)]
pub(super) struct Chunks {
    /// By hash. A chunk is freed with its last stream, its entry when the next chunk comes.
    held: Mutex<HashMap<u64, Weak<Vec<u8>>>>,
    hasher: RandomState,
}

/// What keeps a chunk: a stream that has not sent all of it.
struct Holder(Arc<Vec<u8>>);

impl AsRef<[u8]> for Holder {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Chunks {
    /// These bytes, shared with every stream that holds the same ones.
    pub(super) fn share(&self, bytes: &[u8]) -> Bytes {
        let hash = self.hasher.hash_one(bytes);
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        let known = held.get(&hash).and_then(Weak::upgrade);
        let chunk = known.filter(|known| known.as_slice() == bytes).unwrap_or_else(|| {
            held.retain(|_, chunk| chunk.strong_count() > 0);
            let chunk = Arc::new(bytes.to_vec());
            held.insert(hash, Arc::downgrade(&chunk));
            chunk
        });
        Bytes::from_owner(Holder(chunk))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Promise: bounded faults. Many readers of one event cost its bytes once.
    #[test]
    fn equal_chunks_are_held_once_and_freed_with_the_last_reader() {
        let chunks = Chunks::default();
        let (one, other) = (chunks.share(b"a turn"), chunks.share(b"a turn"));
        assert_eq!(one.as_ptr(), other.as_ptr());
        let different = chunks.share(b"another turn");
        assert_eq!(different.as_ref(), b"another turn");
        assert_eq!(chunks.held.lock().unwrap().len(), 2);
        drop((one, other));
        drop(chunks.share(b"a third turn"));
        assert_eq!(chunks.held.lock().unwrap().len(), 2);
    }
}
