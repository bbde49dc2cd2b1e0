//! The one writer of streams: lines from a surface, heartbeats while it is silent, and the end of the exchange.
//!
//! A client that disconnects cancels nothing: only its stream ends.

use std::convert::Infallible;
use std::ops::ControlFlow;

use actix_web::http::StatusCode;
use actix_web::http::header::{self, HeaderValue};
use actix_web::web::Data;
use actix_web::{HttpResponse, HttpResponseBuilder};
use bytes::{Bytes, BytesMut};
use futures_util::stream;
use tokio::time::{Interval, MissedTickBehavior};

use super::State;
use super::exchange::Exchange;
use super::headers::{self, ACCEL_BUFFERING};
use super::lines::Form;
use crate::domain::budget::Share;

/// Unused bytes that a chunk may hold.
const SPARE: usize = 4 << 10;

/// The most that is handed to a connection at once. What is larger is shared with the other streams that send it.
const PIECE: usize = 64 << 10;

/// Where the lines of a stream come from.
pub(super) trait Lines {
    /// Whether a client can continue the stream at another process. Such a stream ends when this process stops, since
    /// its run may continue for hours.
    const RESUMABLE: bool;

    /// Writes the next lines, or none; `Break` after the last one. If the future is dropped, no line is lost.
    async fn next(&mut self, out: &mut Out<'_>) -> ControlFlow<()>;
}

/// The destination of lines.
pub(super) struct Out<'a> {
    /// Formats problems.
    pub(super) exchange: &'a Exchange,
    pub(super) form: Form,
    pub(super) bytes: &'a mut BytesMut,
}

/// The head of a stream's response.
pub(super) fn head(status: StatusCode, form: Form) -> HttpResponseBuilder {
    let mut response = HttpResponse::build(status);
    response.insert_header((header::CONTENT_TYPE, form.content_type()));
    // A buffering proxy would delay the lines.
    response.insert_header((ACCEL_BUFFERING, HeaderValue::from_static("no")));
    response
}

/// The response that streams `lines`, after those of `first`. It holds the share while the stream is open.
pub(super) fn respond<L: Lines + 'static>(
    mut head: HttpResponseBuilder,
    state: &Data<State>,
    exchange: Exchange,
    form: Form,
    share: Option<Share>,
    first: BytesMut,
    lines: L,
) -> HttpResponse {
    head.insert_header((headers::REQUEST_ID, exchange.id.header.clone()));
    head.insert_header((header::CACHE_CONTROL, headers::NO_STORE));
    let mut heartbeat = tokio::time::interval(state.edge.limits.heartbeat);
    heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    heartbeat.reset();
    let writer = Writer {
        state: Data::clone(state),
        exchange,
        form,
        lines: Some(lines),
        heartbeat,
        ready: first,
        rest: Bytes::new(),
        _share: share,
    };
    head.streaming(stream::unfold(writer, Writer::next))
}

/// A stream in progress. If dropped before its last line, it counts as a client that left.
struct Writer<L> {
    state: Data<State>,
    exchange: Exchange,
    form: Form,
    /// Absent after the last line.
    lines: Option<L>,
    heartbeat: Interval,
    /// Lines that are not sent yet.
    ready: BytesMut,
    /// The part of a large chunk that is not sent yet.
    rest: Bytes,
    _share: Option<Share>,
}

impl<L: Lines> Writer<L> {
    /// The next chunk of the stream, once there is one.
    async fn next(mut self) -> Option<(Result<Bytes, Infallible>, Self)> {
        while self.ready.is_empty() && self.rest.is_empty() {
            let mut lines = self.lines.take()?;
            let mut out = Out {
                exchange: &self.exchange,
                form: self.form,
                bytes: &mut self.ready,
            };
            let flow = tokio::select! {
                flow = lines.next(&mut out) => flow,
                _ = self.heartbeat.tick() => {
                    self.form.heartbeat(&mut self.ready);
                    match L::RESUMABLE && self.state.edge.surroundings.stopping() {
                        true => ControlFlow::Break(()),
                        false => ControlFlow::Continue(()),
                    }
                }
            };
            match flow {
                ControlFlow::Continue(()) => self.lines = Some(lines),
                ControlFlow::Break(()) => self.exchange.answered(StatusCode::OK),
            }
        }
        self.heartbeat.reset();
        if self.rest.is_empty() {
            let ready = std::mem::take(&mut self.ready);
            self.rest = match ready.len() {
                large if large > PIECE => self.state.chunks.share(&ready),
                // A client that does not read keeps it: without the room that it grew by.
                len if ready.capacity() - len > SPARE => Bytes::copy_from_slice(&ready),
                _ => ready.freeze(),
            };
        }
        let chunk = self.rest.split_to(self.rest.len().min(PIECE));
        Some((Ok(chunk), self))
    }
}
