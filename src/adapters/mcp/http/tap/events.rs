//! The stream of events of one request, message by message.

use futures_util::StreamExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use futures_util::stream;
use rmcp::model::RequestId;
use rmcp::transport::streamable_http_client::SseError;
use sse_stream::SseStream;

use super::super::body::{Body, bounded};
use super::{Events, Tap, broken};
use crate::adapters::mcp::answers::Reading;
use crate::adapters::mcp::message::{self, Envelope, Message};
use crate::adapters::mcp::repaired::{self, Read};
use crate::adapters::mcp::unsolicited::{Answer, Flood, MAX_ID, Unsolicited, Verdict};
use crate::adapters::upstream::why;

impl Tap {
    /// The events of a response for rmcp: answers, and what its subscriptions need. `id` is the id of the answered
    /// request, if any. `post` is a request to the server under the same session.
    pub(super) fn events(
        &self,
        body: Body,
        max: usize,
        id: Option<RequestId>,
        post: reqwest::RequestBuilder,
    ) -> Events {
        let unsolicited = self.unsolicited.clone();
        let tap = self.clone();
        let ended = self.clone();
        // A stream that does not belong to a request does not need to contain an answer.
        let answered = Arc::new(AtomicBool::new(id.is_none()));
        let is_answered = answered.clone();
        let reading = Reading::new(unsolicited.source.held());
        let events = SseStream::from_bytes_stream(bounded(body, reading.clone(), max));
        let events = events.map(move |event| {
            let mut event = event.inspect_err(|error| {
                if let SseError::Body(fault) = error
                    && let Some(fault) = fault.downcast_ref()
                {
                    tap.unreadable(fault);
                }
            })?;
            // Data that arrived in the same piece is counted with the event.
            let mut held = reading.lock();
            // rmcp skips events with other names. Here they are distinguished by their content.
            event.event = None;
            // rmcp keeps the id, so its length is limited.
            event.id = event.id.filter(|id| id.len() <= MAX_ID);
            let data = event.data.take().unwrap_or_default();
            let mut for_rmcp = own(&unsolicited, data, &post).map_err(broken)?;
            if let Some(data) = &for_rmcp {
                let tree = message::tree_bytes(data.as_bytes()).map_err(broken)?;
                held.add(tree).map_err(broken)?;
                unsolicited.keep(&mut held);
            }
            for_rmcp = match (for_rmcp, &id) {
                (Some(data), Some(id)) => match repaired::answer(data.as_bytes(), id) {
                    Ok(Read::Answer(message)) => {
                        answered.store(true, Ordering::Relaxed);
                        serde_json::to_string(&message).ok()
                    }
                    Ok(Read::Foreign(_)) => None,
                    Ok(Read::Other) => readable(data),
                    Err(words) => return Err(broken(tap.failed(words, true))),
                },
                (data, _) => data.and_then(readable),
            };
            drop(held.take());
            event.data = for_rmcp;
            Ok(event)
        });
        let end = stream::poll_fn(move |_| {
            if !is_answered.swap(true, Ordering::Relaxed) {
                ended.failed("the event stream ended before the answer", false);
            }
            Poll::Ready(None)
        });
        events.chain(end).boxed()
    }
}

/// The data of an event, if it is for rmcp. The server's own messages are handled here.
pub(super) fn own(
    unsolicited: &Arc<Unsolicited>,
    data: String,
    post: &reqwest::RequestBuilder,
) -> Result<Option<String>, Flood> {
    let envelope = serde_json::from_str::<Envelope<'_>>(&data).ok();
    let envelope = envelope.filter(|envelope| !envelope.is_answer());
    let Some((id, method)) = envelope.and_then(|envelope| Some((envelope.id, envelope.method?))) else {
        unsolicited.noise(data.len())?;
        return Ok((!data.trim().is_empty()).then_some(data));
    };
    match unsolicited.receive(&method, id, data.len())? {
        Verdict::Dropped => return Ok(None),
        Verdict::Passed => {}
        Verdict::Answer(answer) => {
            send(unsolicited, answer, post);
            return Ok(None);
        }
    }
    Ok(Some(data))
}

/// The data in a form that rmcp can read; usually unchanged. A message that turns out to be a request once it can be
/// read is dropped.
fn readable(data: String) -> Option<String> {
    match serde_json::from_str::<Message>(&data) {
        Ok(Message::Request(_)) => None,
        Ok(_) => Some(data),
        Err(_) => match message::read(data.as_bytes()) {
            Ok(Message::Request(_)) | Err(_) => None,
            Ok(message) => serde_json::to_string(&message).ok(),
        },
    }
}

/// Posts an answer to a request of the server.
pub(super) fn send(unsolicited: &Arc<Unsolicited>, answer: Answer, post: &reqwest::RequestBuilder) {
    let Some(post) = post.try_clone() else { return };
    let request = post.body(answer.body.clone());
    unsolicited.answer(answer, async move {
        if let Err(error) = request.send().await {
            tracing::debug!(error = why(&error), "an answer to the server was not delivered");
        }
    });
}
