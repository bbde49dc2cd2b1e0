//! Bodies of answers, bounded.

use bytes::Bytes;
use futures_util::{Stream, StreamExt, TryStreamExt};

use crate::adapters::mcp::answers::{Held, NoRoom, Reading};
use crate::adapters::upstream::{BodyError, Response};

/// Why a body could not be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum BodyFault {
    #[error("the answer has more than {0} bytes")]
    TooLarge(usize),
    #[error("the answer broke off: {0}")]
    Broken(#[from] BodyError),
    #[error(transparent)]
    NoRoom(#[from] NoRoom),
}

/// Reads a whole body of at most `max` bytes, which it takes of the budget of answers.
pub(super) async fn whole(mut response: Response, max: usize, held: &mut Held<'_>) -> Result<Bytes, BodyFault> {
    let mut next = async || -> Result<_, BodyFault> {
        let chunk = response.chunk().await?;
        if let Some(chunk) = &chunk {
            if held.bytes() + chunk.len() > max {
                return Err(BodyFault::TooLarge(max));
            }
            held.add(chunk.len())?;
        }
        Ok((chunk, response.is_read()))
    };
    let mut body = match next().await? {
        (None, _) => return Ok(Bytes::new()),
        // A body that came in one piece, as most do, is not copied.
        (Some(first), true) => return Ok(first),
        (Some(first), false) => match next().await?.0 {
            None => return Ok(first),
            Some(second) => [first, second].concat(),
        },
    };
    while let (Some(chunk), _) = next().await? {
        body.extend_from_slice(&chunk);
    }
    Ok(body.into())
}

/// The bytes of an event stream, ended with an error when more than `max` come without an event, or find no room; who reads
/// the events begins `reading` anew at each.
pub(super) fn bounded<'a>(
    response: Response,
    reading: Reading<'a>,
    max: usize,
) -> impl Stream<Item = Result<Bytes, BodyFault>> + Send + Unpin + 'a {
    response
        .pieces()
        .map_err(BodyFault::from)
        .map(move |chunk| {
            let chunk = chunk?;
            let mut held = reading.lock();
            if held.bytes() + chunk.len() > max {
                return Err(BodyFault::TooLarge(max));
            }
            held.add(chunk.len())?;
            drop(held);
            Ok(chunk)
        })
        .boxed()
}
