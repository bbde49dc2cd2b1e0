//! `gavel chat`: one decision, or a conversation. The service keeps no state between messages, so this command keeps
//! the history and sends it along, as any client does.

mod answer;
mod conversation;
mod history;

use anyhow::{Context, anyhow};
use serde_json::{Value, json};

use self::history::History;
use super::client::Client;
use super::exit::Exit;
use super::gavel::{self, Gavel};
use super::interrupt::unless_stopped;
use super::output;
use crate::app::Work;
use crate::config::{Config, Provider};
use crate::domain::ids::{TenantId, UserId};

/// Options of `gavel chat`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// The message; without it, a conversation begins (or one message per line is read from a pipe)
    #[arg(value_name = "MESSAGE", num_args = 0..)]
    message: Vec<String>,
    /// The user on whose behalf to act
    #[arg(long, default_value = "me", value_parser = gavel::user, value_name = "NAME")]
    user: UserId,
    /// The user's time zone, for "today" and "tomorrow" [default: this machine's]
    #[arg(long, value_name = "IANA NAME")]
    time_zone: Option<String>,
    /// Print the complete decision as JSON, one per line
    #[arg(long)]
    json: bool,
    /// Use a remote gavel, with the key in GAVEL_API_KEY, instead of deciding in this process
    #[arg(long, value_name = "URL")]
    pub(super) server: Option<String>,
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

/// `config` is absent if a remote gavel decides.
pub(super) async fn run(args: Args, config: Option<Config>) -> anyhow::Result<Exit> {
    let gavel = match (&args.server, config) {
        (Some(server), _) => Gavel::at(server, None)?,
        (None, config) => {
            let config = config.context("there is no configuration")?;
            if matches!(config.model.provider, Provider::Demo { asked: false }) && output::person_reads_notes() {
                output::note("No credentials are set: the demo model answers. Set GEMINI_API_KEY to use Gemini.");
            }
            Gavel::start(config, Work::Act, args.tenant.clone(), None).await?
        }
    };
    gavel.talk(async |gavel| talk(&args, gavel).await).await
}

async fn talk(args: &Args, client: &Client) -> anyhow::Result<Exit> {
    if args.message.is_empty() {
        return conversation::hold(args, client).await;
    }
    let body = body(args, &args.message.join(" "), &History::default());
    match unless_stopped(client.decide(&body)).await? {
        None => Ok(Exit::Interrupted),
        Some(decision) => {
            // A message that the server rejects is no invalid usage of the command.
            show(args, &decision.map_err(|error| anyhow!("{error:#}"))?)?;
            Ok(Exit::Done)
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
