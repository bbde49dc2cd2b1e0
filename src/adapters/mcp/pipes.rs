//! A child's pipes as rmcp's transport: rmcp writes, and [`Lines`] reads. Closing it ends the child: its stdin is
//! closed, then SIGTERM, then SIGKILL.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use process_wrap::tokio::{ChildWrapper, CommandWrap};
use rmcp::RoleClient;
use rmcp::model::{ClientRequest, JsonRpcMessage, RequestId};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use rmcp::transport::async_rw::AsyncRwTransport;
use tokio::io::Empty;
use tokio::process::{ChildStderr, ChildStdin, ChildStdout};
use tokio::sync::Mutex;

use super::lines::{Line, Lines, Slot};
use super::log;
use super::unsolicited::{Answer, Unsolicited};
use crate::adapters::handover::SendGate;

/// How long a child may take to end after each signal.
const GRACE: Duration = Duration::from_secs(3);
const SIGTERM: i32 = 15;

/// The transport and its child.
pub(super) struct Pipes {
    child: Option<Box<dyn ChildWrapper>>,
    stdout: Lines<ChildStdout>,
    stdin: AsyncRwTransport<RoleClient, Empty, ChildStdin>,
    /// Serializes writers: a child that does not read makes them wait.
    turn: Arc<Mutex<()>>,
    unsolicited: Arc<Unsolicited>,
}

impl Pipes {
    /// Starts `command`, whose streams are pipes. Also returns its stderr.
    ///
    /// # Errors
    /// The command cannot be started.
    pub(super) fn open(mut command: CommandWrap, unsolicited: Arc<Unsolicited>) -> io::Result<(Self, ChildStderr)> {
        let mut child = command.spawn()?;
        let not_a_pipe = || io::Error::other("a stream of the child is not a pipe");
        let inner = child.inner_mut();
        let stdin = inner.stdin().take().ok_or_else(not_a_pipe)?;
        let stdout = inner.stdout().take().ok_or_else(not_a_pipe)?;
        let stderr = inner.stderr().take().ok_or_else(not_a_pipe)?;
        let pipes = Self {
            child: Some(child),
            stdout: Lines::new(stdout, unsolicited.clone()),
            stdin: AsyncRwTransport::new_client(tokio::io::empty(), stdin),
            turn: Arc::default(),
            unsolicited,
        };
        Ok((pipes, stderr))
    }

    /// Its process id.
    pub(super) fn id(&self) -> Option<u32> {
        self.child.as_ref()?.id()
    }

    /// Answers a request of the child. If the child does not read, the answer is delayed and then dropped.
    fn answer(&mut self, answer: Answer) {
        let log = &self.unsolicited.source.log;
        let message = match serde_json::from_str(&answer.body) {
            Ok(message) => message,
            Err(error) => {
                let error: serde_json::Error = error;
                log::line!(*log, warn, "answer without id", %error, "a request of the server has no usable id, so it is not answered");
                return;
            }
        };
        let turn = Arc::clone(&self.turn);
        let sending = self.stdin.send(message);
        self.unsolicited.answer(answer, async move {
            let _turn = turn.lock().await;
            // This fails if the child has ended, which the reader notices as well.
            let _ = sending.await;
        });
    }
}

impl Transport<RoleClient> for Pipes {
    type Error = io::Error;

    fn send(&mut self, message: TxJsonRpcMessage<RoleClient>) -> impl Future<Output = io::Result<()>> + Send + 'static {
        let (turn, gate) = (Arc::clone(&self.turn), part_of_call::<SendGate>(&message));
        if let JsonRpcMessage::Request(request) = &message
            && let RequestId::Number(id) = &request.id
            && let Some(slot) = part_of_call::<Slot>(&message)
        {
            self.stdout.expect(*id, slot);
        }
        let sending = self.stdin.send(message);
        async move {
            let _turn = turn.lock().await;
            // Nothing can delay the write between this check and the pipe.
            if let Some(gate) = gate {
                gate.pass().map_err(io::Error::other)?;
            }
            sending.await
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        loop {
            match self.stdout.next().await {
                Ok(Some(Line::Message(message))) => return Some(*message),
                Ok(Some(Line::Answer(answer))) => self.answer(answer),
                Ok(None) => return None,
                Err(error) => {
                    let log = &self.unsolicited.source.log;
                    log::line!(*log, error, "stdout not read", %error, "stdout of a child cannot be read any more");
                    return None;
                }
            }
        }
    }

    async fn close(&mut self) -> io::Result<()> {
        // The child stays in `self` until it has ended. Dropping this future therefore leads to dropping and killing
        // the child.
        let Some(child) = &mut self.child else {
            return self.stdin.close().await;
        };
        if self.unsolicited.is_flooded() {
            // The child keeps writing until it is killed, and may not read what is still to be written.
            Box::into_pin(child.kill()).await?;
            self.child = None;
            return self.stdin.close().await;
        }
        self.stdin.close().await?;
        if tokio::time::timeout(GRACE, child.wait()).await.is_err() {
            // This fails if the child has just ended.
            let _ = child.signal(SIGTERM);
            if tokio::time::timeout(GRACE, child.wait()).await.is_err() {
                Box::into_pin(child.kill()).await?;
            }
        }
        self.child = None;
        Ok(())
    }
}

/// Data that accompanies a call and is not part of the message.
fn part_of_call<T: Clone + Send + Sync + 'static>(message: &TxJsonRpcMessage<RoleClient>) -> Option<T> {
    let JsonRpcMessage::Request(request) = message else {
        return None;
    };
    let ClientRequest::CallToolRequest(call) = &request.request else {
        return None;
    };
    call.extensions.get::<T>().cloned()
}

impl Drop for Pipes {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            #[expect(clippy::disallowed_methods, reason = "ends as soon as the killed child is reaped")]
            tokio::spawn(async move {
                if let Err(error) = Box::into_pin(child.kill()).await {
                    tracing::warn!(%error, "a child could not be killed");
                }
            });
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::process::Stdio;

    use rmcp::model::{CallToolRequest, CallToolRequestParams};
    use tokio::process::Command;

    use super::*;
    use crate::adapters::mcp::unsolicited::testing::unsolicited;

    fn call(gate: &SendGate) -> TxJsonRpcMessage<RoleClient> {
        let mut call = CallToolRequest::new(CallToolRequestParams::new("add"));
        call.extensions.insert(gate.clone());
        JsonRpcMessage::request(ClientRequest::CallToolRequest(call), RequestId::Number(1))
    }

    /// Promise: at most once. What was reported as not sent is not written later, when the pipe is free.
    #[tokio::test]
    async fn a_call_that_is_given_up_before_its_turn_is_not_written() {
        let mut process = Command::new("cat");
        process
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let (mut pipes, _stderr) = Pipes::open(CommandWrap::from(process), unsolicited()).unwrap();
        let (first, second) = (SendGate::default(), SendGate::default());
        let turn = Arc::clone(&pipes.turn).lock_owned().await;
        let (waiting, later) = (pipes.send(call(&first)), pipes.send(call(&second)));
        assert!(!first.give_up());
        drop(turn);
        assert_eq!(waiting.await.unwrap_err().to_string(), "given up before it was sent");
        assert!(!first.is_sent() && !second.is_sent());
        later.await.unwrap();
        assert!(second.give_up() && second.is_sent());
        pipes.close().await.unwrap();
    }
}
