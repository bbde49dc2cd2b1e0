//! The events of a run, as JSON. From elsewhere they are joined again, after the last one that came, when the
//! connection breaks.

use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use reqwest::{Response, StatusCode};
use serde_json::Value;

use super::place::There;
use crate::cli::client::{Refused, problem};
use crate::domain::ids::RunId;
use crate::surfaces::agents::{Told, Watch};

/// Without a word, or a sign of life, for so long, a connection is taken for dead. The server gives one every 10 s.
const SILENCE: Duration = Duration::from_secs(45);
/// Longest line. An event holds the result of one tool call at most.
const MOST_LINE: usize = 32 << 20;
/// Waits between two tries to join again: the first, and the longest.
const PAUSES: [Duration; 2] = [Duration::from_millis(250), Duration::from_secs(5)];
/// A server that is away for longer is given up.
const PATIENCE: Duration = Duration::from_secs(120);

/// Where they come from.
pub(super) enum Events<'a> {
    Here(Box<Watch>),
    There(Box<Joined<'a>>),
}

/// What comes next.
pub(super) enum Heard {
    Event(Value),
    /// The connection is lost, and is joined again.
    Lost(String),
}

/// A stream of another gavel.
pub(super) struct Joined<'a> {
    there: &'a There,
    run: RunId,
    /// The id of the last event.
    after: Option<String>,
    response: Option<Response>,
    /// Bytes of a line that has not ended yet.
    line: Vec<u8>,
    /// Of which so many bytes hold no end.
    scanned: usize,
    /// Since when nothing came.
    lost: Option<Instant>,
    pause: Duration,
}

impl<'a> Events<'a> {
    pub(super) fn there(there: &'a There, run: RunId) -> Self {
        Self::There(Box::new(Joined {
            there,
            run,
            after: None,
            response: None,
            line: Vec::new(),
            scanned: 0,
            lost: None,
            pause: PAUSES[0],
        }))
    }

    /// The next one. The last has the type `end`; after it nothing is to be asked for. May be dropped while it waits:
    /// nothing is lost.
    ///
    /// # Errors
    /// There will be no more.
    pub(super) async fn next(&mut self) -> anyhow::Result<Heard> {
        match self {
            Self::Here(watch) => match watch.next().await? {
                Some(told) => Ok(Heard::Event(document(&told)?)),
                None => bail!("the run said no more, and did not end"),
            },
            Self::There(joined) => joined.next().await,
        }
    }
}

/// As a line of the API has it.
fn document(told: &Told) -> anyhow::Result<Value> {
    let mut event = serde_json::to_value(&told.event)?;
    event["id"] = told.cursor.to_string().into();
    Ok(event)
}

impl Joined<'_> {
    async fn next(&mut self) -> anyhow::Result<Heard> {
        match self.event().await {
            Ok(event) => Ok(Heard::Event(event)),
            Err(Break::Final(error)) => Err(error),
            Err(Break::Lost(error)) => {
                let reason = format!("{error:#}");
                (self.response, self.line, self.scanned) = (None, Vec::new(), 0);
                let since = *self.lost.get_or_insert_with(Instant::now);
                if since.elapsed() > PATIENCE {
                    return Err(error).context("the server is away");
                }
                Ok(Heard::Lost(reason))
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
            let chunk = chunk.context("the server has fallen silent")?;
            let chunk = chunk
                .map_err(reqwest::Error::without_url)
                .context("the stream broke off")?;
            self.line.extend(chunk.context("the server ended the stream")?);
        }
    }

    async fn join(&mut self) -> Result<(), Break> {
        if self.lost.is_some() {
            tokio::time::sleep(self.pause).await;
            self.pause = (self.pause * 2).min(PAUSES[1]);
        }
        let id = self.run.to_string();
        let (client, user) = (&self.there.client, self.there.user.as_ref());
        let joined = client
            .lines(&["api", "runs", &id, "events"], user, self.after.as_deref())
            .await;
        match joined {
            Ok(response) => {
                self.response = Some(response);
                Ok(())
            }
            // What the server says of the request will not change; that it is away, or too busy, will.
            Err(error) if is_final(&error) => Err(Break::Final(error)),
            Err(error) => Err(Break::Lost(error)),
        }
    }

    /// What a line says; nothing for a sign of life.
    fn read(&mut self, line: &[u8]) -> Result<Option<Value>, Break> {
        let event: Value = serde_json::from_slice(line).context("the stream holds a line that is no JSON")?;
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

/// Why no event came.
enum Break {
    /// It is worth another try.
    Lost(anyhow::Error),
    Final(anyhow::Error),
}

impl From<anyhow::Error> for Break {
    fn from(error: anyhow::Error) -> Self {
        Self::Lost(error)
    }
}

fn is_final(error: &anyhow::Error) -> bool {
    let refused = error.downcast_ref::<Refused>();
    refused.is_some_and(|refused| {
        let status = refused.status;
        status.is_redirection() || (status.is_client_error() && status != StatusCode::TOO_MANY_REQUESTS)
    })
}
