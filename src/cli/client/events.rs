//! The events of a run or of a planning session, as JSON. If the connection breaks, the stream reconnects after the last received event.

use std::time::{Duration, Instant};

use anyhow::Context;
use reqwest::{Response, StatusCode};
use serde_json::Value;

use super::Client;
use super::refused::{Refused, problem};

/// A connection that delivers no event and no heartbeat for this long counts as dead. The server sends a heartbeat
/// every 10 s.
const SILENCE: Duration = Duration::from_secs(45);
/// The longest line, in bytes. An event has the result of one tool call at most.
const MOST_LINE: usize = 32 << 20;
/// Waits between two attempts to reconnect: the first, and the longest.
const PAUSES: [Duration; 2] = [Duration::from_millis(250), Duration::from_secs(5)];
/// How long an unavailable server is retried.
const PATIENCE: Duration = Duration::from_secs(120);

/// The next input.
pub(crate) enum Received {
    Event(Value),
    /// The connection is lost; the stream will reconnect.
    Lost(String),
}

/// The stream.
pub(crate) struct Events<'a> {
    client: &'a Client,
    path: Vec<String>,
    /// The id of the last event.
    after: Option<String>,
    response: Option<Response>,
    /// Bytes of an incomplete line.
    line: Vec<u8>,
    /// How many of these bytes are known to contain no line end.
    scanned: usize,
    /// When the connection was lost.
    lost: Option<Instant>,
    pause: Duration,
}

impl<'a> Events<'a> {
    /// The events under a path.
    pub(super) fn of(client: &'a Client, path: &[&str]) -> Self {
        Self {
            client,
            path: path.iter().map(|&segment| segment.to_owned()).collect(),
            after: None,
            response: None,
            line: Vec::new(),
            scanned: 0,
            lost: None,
            pause: PAUSES[0],
        }
    }

    /// Returns the next event. The last has the type `end`, or `result`; do not call this after it. Cancel safe: dropping the future
    /// loses no event.
    ///
    /// # Errors
    /// There are no more events.
    pub(crate) async fn next(&mut self) -> anyhow::Result<Received> {
        match self.event().await {
            Ok(event) => Ok(Received::Event(event)),
            Err(Break::Final(error)) => Err(error),
            Err(Break::Lost(error)) => {
                let reason = format!("{error:#}");
                (self.response, self.line, self.scanned) = (None, Vec::new(), 0);
                let since = *self.lost.get_or_insert_with(Instant::now);
                if since.elapsed() > PATIENCE {
                    return Err(error).context("the server is unavailable");
                }
                Ok(Received::Lost(reason))
            }
        }
    }

    async fn event(&mut self) -> Result<Value, Break> {
        loop {
            while let Some(end) = memchr::memchr(b'\n', &self.line[self.scanned..]).map(|end| self.scanned + end) {
                self.scanned = 0;
                let line: Vec<u8> = self.line.drain(..=end).collect();
                if let Some(event) = self.read(&line)? {
                    return Ok(event);
                }
            }
            self.scanned = self.line.len();
            if self.scanned > MOST_LINE {
                let words = format!("the server sent a line of more than {} MiB", MOST_LINE >> 20);
                return Err(Break::Final(anyhow::anyhow!(words)));
            }
            if self.response.is_none() {
                self.join().await?;
            }
            let Some(response) = &mut self.response else { continue };
            let chunk = tokio::time::timeout(SILENCE, response.chunk()).await;
            let chunk = chunk.context("the server sends nothing")?;
            let chunk = chunk
                .map_err(reqwest::Error::without_url)
                .context("the stream was cut off")?;
            self.line.extend(chunk.context("the server ended the stream")?);
        }
    }

    async fn join(&mut self) -> Result<(), Break> {
        if self.lost.is_some() {
            tokio::time::sleep(self.pause).await;
            self.pause = (self.pause * 2).min(PAUSES[1]);
        }
        let path: Vec<_> = self.path.iter().map(String::as_str).collect();
        let joined = self.client.lines(&path, self.after.as_deref()).await;
        match joined {
            Ok(response) => {
                self.response = Some(response);
                Ok(())
            }
            // The server's refusal of the request is final; unavailability or overload is not.
            Err(error) if is_final(&error) => Err(Break::Final(error)),
            Err(error) => Err(Break::Lost(error)),
        }
    }

    /// The event of a line; `None` for a heartbeat.
    fn read(&mut self, line: &[u8]) -> Result<Option<Value>, Break> {
        let event: Value = serde_json::from_slice(line).context("the stream has a line that is not JSON")?;
        let kind = event["type"].as_str();
        if kind != Some("error") {
            (self.lost, self.pause) = (None, PAUSES[0]);
        }
        match kind {
            Some("heartbeat") => Ok(None),
            Some("error") => {
                let words = problem(&event["problem"]).map(|(words, _)| words);
                Err(anyhow::anyhow!(words.unwrap_or_else(|| "the server gave up".to_owned())).into())
            }
            _ => {
                self.after = event["id"].as_str().map(str::to_owned).or_else(|| self.after.take());
                Ok(Some(event))
            }
        }
    }
}

/// Why there is no event.
enum Break {
    /// A new attempt may succeed.
    Lost(anyhow::Error),
    Final(anyhow::Error),
}

impl From<anyhow::Error> for Break {
    fn from(error: anyhow::Error) -> Self {
        Self::Lost(error)
    }
}

fn is_final(error: &anyhow::Error) -> bool {
    Refused::in_error(error).is_some_and(|refused| {
        let status = refused.status;
        status.is_redirection() || (status.is_client_error() && status != StatusCode::TOO_MANY_REQUESTS)
    })
}
