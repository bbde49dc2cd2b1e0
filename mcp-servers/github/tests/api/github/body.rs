//! The bytes of an answer.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::{Body, Bytes, Frame};
use tokio::time::Sleep;

/// How long the second half of slow bytes takes.
const FOREVER: Duration = Duration::from_secs(600);

/// A body whose second half may never come.
pub(crate) struct Bytewise {
    halves: VecDeque<Bytes>,
    pause: Option<Pin<Box<Sleep>>>,
}

impl Bytewise {
    pub(crate) fn new(body: Vec<u8>, slow: bool) -> Self {
        let (first, second) = body.split_at(body.len() / 2);
        Self {
            halves: [first, second].map(Bytes::copy_from_slice).into(),
            pause: slow.then(|| Box::pin(tokio::time::sleep(FOREVER))),
        }
    }
}

impl Body for Bytewise {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if self.halves.len() == 1
            && let Some(pause) = self.pause.as_mut()
            && pause.as_mut().poll(context).is_pending()
        {
            return Poll::Pending;
        }
        Poll::Ready(self.halves.pop_front().map(|half| Ok(Frame::data(half))))
    }
}
