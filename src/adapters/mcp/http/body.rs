//! Bodies on their way out and in.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::{Stream, StreamExt, TryStreamExt};
use http_body::{Body, Frame, SizeHint};

/// A request body that tells whether the HTTP client has taken it. Until then nothing of it, and
/// nothing a server could act on, has left the process.
pub(super) struct Watched {
    bytes: Option<Bytes>,
    taken: Arc<AtomicBool>,
}

impl Watched {
    pub(super) fn new(bytes: Bytes, taken: Arc<AtomicBool>) -> Self {
        Self {
            bytes: Some(bytes),
            taken,
        }
    }
}

impl Body for Watched {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        self.taken.store(true, Ordering::Release);
        Poll::Ready(self.bytes.take().map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.bytes.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes.as_ref().map_or(0, Bytes::len) as u64)
    }
}

/// Why a body could not be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum BodyFault {
    #[error("the answer has more than {0} bytes")]
    TooLarge(usize),
    #[error("the answer broke off: {0}")]
    Broken(#[from] reqwest::Error),
}

/// Reads a whole body of at most `max` bytes.
pub(super) async fn whole(mut response: reqwest::Response, max: usize) -> Result<Bytes, BodyFault> {
    let Some(first) = response.chunk().await? else {
        return Ok(Bytes::new());
    };
    let Some(second) = response.chunk().await? else {
        return if first.len() > max {
            Err(BodyFault::TooLarge(max))
        } else {
            Ok(first)
        };
    };
    let mut body = Vec::from(first);
    let mut next = Some(second);
    while let Some(chunk) = next {
        if body.len() + chunk.len() > max {
            return Err(BodyFault::TooLarge(max));
        }
        body.extend_from_slice(&chunk);
        next = response.chunk().await?;
    }
    Ok(body.into())
}

/// The bytes of an event stream, ended with an error when more than `max` come without an event;
/// who reads the events sets `since` back to 0 at each.
pub(super) fn bounded(
    response: reqwest::Response,
    since: Arc<AtomicUsize>,
    max: usize,
) -> impl Stream<Item = Result<Bytes, BodyFault>> + Send + Unpin {
    response
        .bytes_stream()
        .map_err(BodyFault::from)
        .map(move |chunk| {
            let chunk = chunk?;
            if since.fetch_add(chunk.len(), Ordering::Relaxed) + chunk.len() > max {
                return Err(BodyFault::TooLarge(max));
            }
            Ok(chunk)
        })
        .boxed()
}
