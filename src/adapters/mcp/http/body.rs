//! Bodies of answers, bounded.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use futures_util::{Stream, StreamExt, TryStreamExt};

use crate::adapters::upstream::{BodyError, Response};

/// Why a body could not be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum BodyFault {
    #[error("the answer has more than {0} bytes")]
    TooLarge(usize),
    #[error("the answer broke off: {0}")]
    Broken(#[from] BodyError),
}

/// Reads a whole body of at most `max` bytes.
pub(super) async fn whole(mut response: Response, max: usize) -> Result<Bytes, BodyFault> {
    let mut body = match response.chunk().await? {
        None => return Ok(Bytes::new()),
        Some(first) if first.len() > max => return Err(BodyFault::TooLarge(max)),
        // A body that came in one piece, as most do, is not copied.
        Some(first) if response.is_read() => return Ok(first),
        Some(first) => match response.chunk().await? {
            None => return Ok(first),
            Some(second) if first.len() + second.len() > max => return Err(BodyFault::TooLarge(max)),
            Some(second) => [first, second].concat(),
        },
    };
    while let Some(chunk) = response.chunk().await? {
        if body.len() + chunk.len() > max {
            return Err(BodyFault::TooLarge(max));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body.into())
}

/// The bytes of an event stream, ended with an error when more than `max` come without an event;
/// who reads the events sets `since` back to 0 at each.
pub(super) fn bounded(
    response: Response,
    since: Arc<AtomicUsize>,
    max: usize,
) -> impl Stream<Item = Result<Bytes, BodyFault>> + Send + Unpin {
    response
        .pieces()
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
