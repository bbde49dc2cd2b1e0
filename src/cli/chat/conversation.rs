//! Reading messages until there are no more.

use std::io::IsTerminal;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader};

use super::history::History;
use super::{Args, Decider, body, show};
use crate::cli::exit::Exit;
use crate::cli::interrupt::unless_stopped;
use crate::cli::output;

const COMMANDS: &str = "/quit ends the conversation, /new forgets what was said, /help shows this";

/// One message a line. On a terminal there is a prompt, and a message that fails does not end the conversation;
/// from a pipe, the first failure ends it.
pub(super) async fn hold(args: &Args, decider: &Decider) -> anyhow::Result<Exit> {
    let person = std::io::stdin().is_terminal();
    if person {
        output::note(&format!("Talking as {}. {COMMANDS}.", args.user));
    }
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    let mut history = History::default();
    loop {
        if person {
            output::prompt("> ");
        }
        let Some(line) = unless_stopped(lines.next_line()).await? else {
            output::note("");
            return Ok(Exit::Done);
        };
        let Some(line) = line? else { return Ok(Exit::Done) };
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
            message => match unless_stopped(decider.decide(&body(args, message, &history))).await? {
                // The decision goes on and is recorded; nobody waits for its answer.
                None if person => output::note("not waited for"),
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
