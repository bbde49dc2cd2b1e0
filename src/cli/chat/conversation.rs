//! Reads messages until the input ends.

use anyhow::Context;
use serde_json::Value;

use super::history::History;
use super::{Args, body, show};
use crate::cli::client::Client;
use crate::cli::exit::Exit;
use crate::cli::interrupt::unless_stopped;
use crate::cli::lines::{Lines, Next};
use crate::cli::output;

const COMMANDS: &str = "/quit ends the conversation, /new clears the history, /help shows this";

/// One message per line. A terminal gets a prompt, and a failed message does not end the conversation; from a pipe, the
/// first failure ends it. Ctrl-C drops the typed text, or stops waiting; if there is neither, it ends the conversation.
pub(super) async fn hold(args: &Args, client: &Client) -> anyhow::Result<Exit> {
    let mut lines = Lines::new();
    let person = lines.person;
    if person {
        output::note(&format!("Talking as {}. {COMMANDS}.", args.user));
    }
    let mut history = History::default();
    loop {
        let next = lines.next("> ").await.context("standard input cannot be read")?;
        if person && !matches!(next, Next::Line(_)) {
            // The text typed last has not ended the terminal's line.
            output::note("");
        }
        let line = match next {
            Next::Line(line) => line,
            Next::Dropped => continue,
            Next::Stopped => return Ok(Exit::Interrupted),
            Next::End => return Ok(Exit::Done),
        };
        match line.trim() {
            "" => continue,
            "/quit" | "/exit" => return Ok(Exit::Done),
            "/new" => {
                history = History::default();
                continue;
            }
            command if command.starts_with('/') => {
                output::note(COMMANDS);
                continue;
            }
            message => match unless_stopped(client.decide(&body(args, message, &history))).await? {
                // The decision continues and is recorded; its answer is not awaited.
                None if person => output::note("stopped waiting; the decision continues"),
                None => return Ok(Exit::Interrupted),
                Some(Ok(decision)) => {
                    show(args, &decision)?;
                    history.keep(message, &serde_json::from_str::<Value>(&decision)?);
                }
                Some(Err(error)) if person => output::note(&format!("error: {error:#}")),
                Some(Err(error)) => return Err(error),
            },
        }
    }
}
