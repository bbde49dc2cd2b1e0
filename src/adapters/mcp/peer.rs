//! `tools/call` through rmcp's `Peer`: the way to a stdio server.

use rmcp::model::{CallToolRequest, CallToolRequestParams, ClientRequest, JsonObject};
use rmcp::service::{Peer, PeerRequestOptions, RequestHandle, RoleClient, ServiceError};

use super::attempt::{Attempt, Lost, Outgoing};
use super::beside::Beside;
use super::lines::Slot;
use super::message::RpcError;
use super::meta;
use super::source::Source;

/// Makes the call. When the future is dropped, or the call given up, the server is told.
pub(super) async fn call(peer: &Peer<RoleClient>, beside: &Beside, source: &Source, call: &Outgoing<'_>) -> Attempt {
    let arguments: JsonObject = match serde_json::from_str(call.arguments.get()) {
        Ok(arguments) => arguments,
        Err(_) => return Attempt::NotSent(Lost::Connection, "the arguments are no object".to_owned()),
    };
    let params = CallToolRequestParams::new(call.request.tool.name.to_string()).with_arguments(arguments);
    let mut tool_call = CallToolRequest::new(params);
    // For the pipe; they are not part of the message. Its writer may have to wait.
    if let Some(hold) = call.request.hold {
        tool_call.extensions.insert(hold.clone());
    }
    let slot = Slot::default();
    tool_call.extensions.insert(slot.clone());
    let request = ClientRequest::CallToolRequest(tool_call);
    let options = PeerRequestOptions::no_options().with_meta(meta::object(call));
    // rmcp's queue may be full; what has not entered it is not sent.
    let handle = tokio::select! {
        biased;
        lost = call.given_up() => {
            return Attempt::NotSent(lost, format!("{}, before it could be sent", lost.words(call.request.timeout)));
        }
        handle = peer.send_cancellable_request(request, options) => match handle {
            Ok(handle) => handle,
            Err(error) => return Attempt::NotSent(Lost::Connection, error.to_string()),
        },
    };
    let mut abandoned = Abandoned {
        handle: Some(handle),
        beside,
    };
    let Some(handle) = &mut abandoned.handle else {
        return Attempt::NotSent(Lost::Connection, "no handle".to_owned());
    };
    let answer = tokio::select! {
        answer = &mut handle.rx => answer,
        lost = call.given_up() => return Attempt::Lost(lost, lost.words(call.request.timeout)),
    };
    abandoned.handle = None;
    // The pipe leaves it there before rmcp hears of an answer.
    if let Some(attempt) = slot.take() {
        return attempt;
    }
    match answer {
        Ok(Ok(_)) => Attempt::Lost(Lost::Connection, "the answer holds no result".to_owned()),
        Ok(Err(ServiceError::TransportSend(_))) if !call.may_be_sent() => call.lease_lost(),
        Ok(Err(error)) => failed(error, source),
        Err(_) => Attempt::Lost(Lost::Connection, "the server went away before it answered".to_owned()),
    }
}

fn failed(error: ServiceError, source: &Source) -> Attempt {
    match error {
        ServiceError::McpError(error) => {
            let (code, message) = (Some(i64::from(error.code.0)), error.message.into_owned());
            Attempt::error(&RpcError { code, message }, source)
        }
        // rmcp could not write the message to the pipe: its last bytes, the end of the line among them, never arrived, so
        // no server can have acted on it.
        ServiceError::TransportSend(error) => Attempt::NotSent(Lost::Connection, error.error.to_string()),
        other => Attempt::Lost(Lost::Connection, other.to_string()),
    }
}

/// Dropping rmcp's handle tells the server nothing; this does.
struct Abandoned<'a> {
    handle: Option<RequestHandle<RoleClient>>,
    beside: &'a Beside,
}

impl Drop for Abandoned<'_> {
    fn drop(&mut self) {
        if let Some(handle) = self.handle.take() {
            self.beside.spawn(async move {
                // It fails when the server is gone, and then there is nobody to tell.
                let _ = handle.cancel(Some("given up".to_owned())).await;
            });
        }
    }
}
