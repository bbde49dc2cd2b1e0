//! Sends `tools/call` through rmcp's `Peer`, for stdio servers.

use rmcp::model::{CallToolRequest, CallToolRequestParams, ClientRequest, JsonObject};
use rmcp::service::{Peer, PeerRequestOptions, RequestHandle, RoleClient, ServiceError};

use super::attempt::{Attempt, Lost, Outgoing};
use super::background::SideTasks;
use super::lines::Slot;
use super::message::RpcError;
use super::meta;
use super::source::Source;
use crate::adapters::handover::SendGate;

/// Makes the call. If the future is dropped or the call is given up, the server is notified.
pub(super) async fn call(
    peer: &Peer<RoleClient>,
    background: &SideTasks,
    source: &Source,
    call: &Outgoing<'_>,
) -> Attempt {
    let arguments: JsonObject = match serde_json::from_str(call.arguments.get()) {
        Ok(arguments) => arguments,
        Err(_) => return Attempt::NotSent(Lost::Connection, "the arguments are not an object".to_owned()),
    };
    let params = CallToolRequestParams::new(call.request.tool.name.to_string()).with_arguments(arguments);
    let mut tool_call = CallToolRequest::new(params);
    // For the pipe, which passes it when it writes; not part of the message. Its writer may have to wait.
    let gate = SendGate::under(call.request.hold);
    tool_call.extensions.insert(gate.clone());
    let slot = Slot::default();
    tool_call.extensions.insert(slot.clone());
    let request = ClientRequest::CallToolRequest(tool_call);
    let options = PeerRequestOptions::no_options().with_meta(meta::object(call));
    // rmcp's queue may be full. A call that has not entered the queue has not been sent.
    let handle = tokio::select! {
        biased;
        lost = call.given_up() => return call.give_up(lost, &gate),
        handle = peer.send_cancellable_request(request, options) => match handle {
            Ok(handle) => handle,
            Err(error) => return Attempt::NotSent(Lost::Connection, error.to_string()),
        },
    };
    let mut abandoned = Abandoned {
        handle: Some(handle),
        gate: &gate,
        background,
    };
    let Some(handle) = &mut abandoned.handle else {
        return Attempt::NotSent(Lost::Connection, "no handle".to_owned());
    };
    let answer = tokio::select! {
        answer = &mut handle.rx => answer,
        lost = call.given_up() => return call.give_up(lost, &gate),
    };
    abandoned.handle = None;
    // The pipe stores the answer there before rmcp receives its empty answer.
    if let Some(attempt) = slot.take() {
        return attempt;
    }
    match answer {
        Ok(Ok(_)) => Attempt::Lost(Lost::Connection, "the answer has no result".to_owned()),
        Ok(Err(ServiceError::TransportSend(_))) if !call.may_be_sent() => call.lease_lost(),
        Ok(Err(error)) => failed(error, source),
        Err(_) => Attempt::Lost(
            Lost::Connection,
            "the connection ended before the server answered".to_owned(),
        ),
    }
}

fn failed(error: ServiceError, source: &Source) -> Attempt {
    match error {
        ServiceError::McpError(error) => {
            let (code, message) = (Some(i64::from(error.code.0)), error.message.into_owned());
            Attempt::error(&RpcError { code, message }, source)
        }
        // rmcp could not write the message to the pipe completely. Without its last bytes, which include the line end,
        // no server can have acted on it.
        ServiceError::TransportSend(error) => Attempt::NotSent(Lost::Connection, error.error.to_string()),
        other => Attempt::Lost(Lost::Connection, other.to_string()),
    }
}

/// Dropping rmcp's handle does not notify the server; this does.
struct Abandoned<'a> {
    handle: Option<RequestHandle<RoleClient>>,
    gate: &'a SendGate,
    background: &'a SideTasks,
}

impl Drop for Abandoned<'_> {
    fn drop(&mut self) {
        // A request that has not been sent yet stays unsent.
        if let Some(handle) = self.handle.take()
            && self.gate.give_up()
        {
            self.background.spawn(async move {
                // This fails if the server is gone; then no notification is needed.
                let _ = handle.cancel(Some("given up".to_owned())).await;
            });
        }
    }
}
