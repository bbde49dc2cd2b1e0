//! A request body that passes a [`SendGate`] when the HTTP client takes it.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use crate::handover::{NotHandedOver, SendGate};

/// A request body in one piece.
pub struct GatedBody {
    bytes: Option<Bytes>,
    gate: SendGate,
}

impl GatedBody {
    pub fn new(bytes: Bytes, gate: &SendGate) -> Self {
        Self {
            bytes: Some(bytes),
            gate: gate.clone(),
        }
    }
}

impl Body for GatedBody {
    type Data = Bytes;
    type Error = NotHandedOver;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let Some(bytes) = self.bytes.take() else {
            return Poll::Ready(None);
        };
        Poll::Ready(Some(self.gate.pass().map(|()| Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.bytes.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes.as_ref().map_or(0, Bytes::len) as u64)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::task::Waker;

    use super::*;

    /// Polls the body as an HTTP client does; `None` is its end.
    fn poll(body: &mut GatedBody) -> Option<Result<Bytes, NotHandedOver>> {
        match Pin::new(body).poll_frame(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(frame) => frame.map(|frame| frame.map(|data| data.into_data().unwrap())),
            Poll::Pending => panic!("a body in one piece is always there"),
        }
    }

    fn body(gate: &SendGate) -> GatedBody {
        GatedBody::new(Bytes::from_static(b"x"), gate)
    }

    #[test]
    fn a_body_is_taken_once_and_what_was_given_up_not_at_all() {
        let gate = SendGate::default();
        let (mut one, mut other) = (body(&gate), body(&gate));
        assert!(!gate.is_sent());
        assert_eq!(poll(&mut one), Some(Ok(Bytes::from_static(b"x"))));
        assert!(gate.is_sent());
        assert_eq!(poll(&mut one), None);
        assert_eq!(poll(&mut other), Some(Err(NotHandedOver::Already)));

        let gate = SendGate::default();
        let mut late = body(&gate);
        assert!(!gate.give_up());
        assert_eq!(poll(&mut late), Some(Err(NotHandedOver::GivenUp)));
        assert!(!gate.is_sent());
    }
}
