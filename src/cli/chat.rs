//! `gavel chat`: one decision, or a conversation. The service keeps no state between messages, so this command keeps
//! the history and sends it along, as any client does.

mod answer;
mod conversation;
mod history;

use anyhow::Context;
use serde_json::{Value, json};

use self::history::History;
use super::exit::Exit;
use super::gavel::{self, Gavel, Talk, Where};
use super::interrupt::unless_stopped;
use super::output;
use crate::app::Work;
use crate::config::{Config, Provider};
use crate::domain::ids::{TenantId, UserId};

/// Options of `gavel chat`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct Args {
    /// The message; without it, a conversation begins (or one message per line is read from a pipe)
    #[arg(value_name = "MESSAGE", num_args = 0..)]
    message: Vec<String>,
    /// The user on whose behalf to act
    #[arg(long, default_value = "local", value_parser = gavel::user, value_name = "NAME")]
    user: UserId,
    /// The user's time zone, for "today" and "tomorrow" [default: this machine's]
    #[arg(long, value_name = "IANA NAME")]
    time_zone: Option<String>,
    /// Print the complete decision as JSON, one per line
    #[arg(long)]
    json: bool,
    /// Use a remote gavel, with the key in GAVEL_API_KEY, instead of deciding in this process
    #[arg(long, value_name = "URL")]
    server: Option<String>,
    /// The tenant for the records, if this process decides
    #[arg(long, default_value = "default", value_parser = gavel::tenant, value_name = "NAME", conflicts_with = "server")]
    tenant: TenantId,
}

const EXAMPLES: &str = "\
Examples:
  gavel chat \"add a task to call mom\"
  gavel chat --json \"show my tasks\" | jq .outcome_category
  gavel chat                          a conversation; /quit ends it, /new clears the history
  gavel chat --server https://gavel.internal --user ann \"show my tasks\"";

impl Talk for Args {
    const WORK: Work = Work::Act;

    /// Each message names its user itself.
    fn place(&self) -> Where {
        Where::of_tenant(&self.tenant, self.server.as_ref())
    }

    async fn before(&self, config: &Config) -> anyhow::Result<()> {
        if matches!(config.model.provider, Provider::Demo { by_name: false }) && output::person_reads_notes() {
            output::note("No credentials are set: the demo model answers. Set GEMINI_API_KEY to use Gemini.");
        }
        Ok(())
    }

    async fn talk(&self, gavel: &Gavel) -> anyhow::Result<Exit> {
        if self.message.is_empty() {
            return conversation::hold(self, gavel).await;
        }
        let body = body(self, &self.message.join(" "), &History::default());
        match unless_stopped(gavel.decide(&body)).await? {
            None => Ok(Exit::Interrupted),
            Some(decision) => {
                show(self, &decision?)?;
                Ok(Exit::Done)
            }
        }
    }
}

fn body(args: &Args, message: &str, history: &History) -> Value {
    let mut body = json!({ "message": message, "user_id": args.user.as_str() });
    // If this machine's zone has no name, the server uses UTC, as for any client that sends none.
    if let Some(zone) = args.time_zone.clone().or_else(|| iana_time_zone::get_timezone().ok()) {
        body["time_zone"] = zone.into();
    }
    history.add_to(&mut body);
    body
}

fn show(args: &Args, decision: &str) -> anyhow::Result<()> {
    if args.json {
        return output::line(decision);
    }
    let decision: Value = serde_json::from_str(decision).context("the decision is not JSON")?;
    output::line(&answer::words(&decision))?;
    if output::person_reads_notes() {
        output::note(&answer::footer(&decision));
    }
    Ok(())
}
