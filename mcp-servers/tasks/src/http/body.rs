//! Request bodies with a time limit.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::{Body, Bytes, Frame, SizeHint};
use tokio::time::Sleep;

/// The time from a request's head to the end of its body.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// A body that fails when it has not arrived in time: a client that sends single bytes must not keep a connection slot.
pub(super) struct Timed<B> {
    body: B,
    deadline: Pin<Box<Sleep>>,
}

/// Why the body cannot be read.
#[derive(Debug)]
pub(super) enum BodyFault<E> {
    Late,
    Broken(E),
}

impl<B> Timed<B> {
    pub(super) fn new(body: B) -> Self {
        Self::within(BODY_TIMEOUT, body)
    }

    fn within(limit: Duration, body: B) -> Self {
        Self {
            body,
            deadline: Box::pin(tokio::time::sleep(limit)),
        }
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for Timed<B> {
    type Data = Bytes;
    type Error = BodyFault<B::Error>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        match Pin::new(&mut self.body).poll_frame(context) {
            Poll::Ready(frame) => Poll::Ready(frame.map(|frame| frame.map_err(BodyFault::Broken))),
            Poll::Pending => self
                .deadline
                .as_mut()
                .poll(context)
                .map(|()| Some(Err(BodyFault::Late))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl<E: std::fmt::Display> std::fmt::Display for BodyFault<E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Late => write!(f, "the body did not arrive within {} s", BODY_TIMEOUT.as_secs()),
            Self::Broken(error) => error.fmt(f),
        }
    }
}

impl<E: std::error::Error> std::error::Error for BodyFault<E> {}

#[cfg(test)]
mod tests {
    use http_body_util::{BodyExt, Full};

    use super::*;

    /// Sends single bytes without end.
    struct Dripping(tokio::time::Interval);

    impl Body for Dripping {
        type Data = Bytes;
        type Error = std::convert::Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
            let byte = Frame::data(Bytes::from_static(b"x"));
            self.0.poll_tick(context).map(|_| Some(Ok(byte)))
        }
    }

    /// Promise: bounded faults. A client that sends single bytes is not awaited forever.
    #[tokio::test]
    async fn a_body_that_does_not_end_in_time_is_an_error_and_one_that_does_is_whole() {
        let dripping = Dripping(tokio::time::interval(Duration::from_millis(10)));
        let late = Timed::within(Duration::from_millis(100), dripping).collect();
        let late = tokio::time::timeout(Duration::from_secs(20), late)
            .await
            .expect("it ends");
        assert!(matches!(late, Err(BodyFault::Late)));
        let whole = Timed::new(Full::new(Bytes::from_static(b"xy"))).collect().await;
        assert_eq!(whole.expect("in time").to_bytes(), "xy");
    }
}
