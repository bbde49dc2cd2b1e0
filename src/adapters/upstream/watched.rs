//! A request body that tells whether it was taken.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

/// Has the HTTP client taken the body? Until then nothing of it, and nothing a server could act on,
/// has left the process.
#[derive(Clone, Debug, Default)]
pub(in crate::adapters) struct Taken(Arc<AtomicBool>);

impl Taken {
    pub(in crate::adapters) fn get(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// A request body in one piece.
pub(in crate::adapters) struct Watched {
    bytes: Option<Bytes>,
    taken: Taken,
}

impl Watched {
    pub(in crate::adapters) fn new(bytes: Bytes, taken: &Taken) -> Self {
        Self {
            bytes: Some(bytes),
            taken: taken.clone(),
        }
    }
}

impl Body for Watched {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        self.taken.0.store(true, Ordering::Release);
        Poll::Ready(self.bytes.take().map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.bytes.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes.as_ref().map_or(0, Bytes::len) as u64)
    }
}
