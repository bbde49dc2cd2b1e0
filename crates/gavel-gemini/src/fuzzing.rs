//! Entry points for `fuzz/`: decodes arbitrary bytes as Gemini's answers.

use super::call::Failure;
use super::reply::Reply;
use super::wire::{Frame, Framer};

/// Decodes the body of a unary answer.
pub fn unary(body: &[u8]) {
    let mut reply = Reply::default();
    if reply.take_whole(body, false).is_ok() {
        let _ = reply.usage();
        let _ = reply.finish();
    }
}

/// Decodes a stream that arrives in pieces of `piece` bytes.
pub fn stream(body: &[u8], piece: usize) {
    let (mut framer, mut reply) = (Framer::default(), Reply::default());
    let mut take = |frame: Frame<'_>| match frame {
        Frame::Event(json) => reply.take_chunk(json, false, &mut |_| {}),
        Frame::Bare(json) => reply.take_bare(json, false, &mut |_| {}),
    };
    let fed: Result<(), Failure> = body
        .chunks(piece.max(1))
        .try_for_each(|piece| framer.feed(piece, &mut take));
    if fed.and_then(|()| framer.end(&mut take)).is_ok() {
        let _ = reply.finish();
    }
}
