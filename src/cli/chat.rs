//! `gavel chat`: one decision, or a conversation. The service keeps no state between messages, so this command keeps
//! the history and sends it along, as any client does.

mod answer;
mod conversation;
mod history;

use std::sync::Arc;

use anyhow::{Context, anyhow};
use serde_json::{Value, json};

use self::history::History;
use super::client::Client;
use super::exit::Exit;
use super::interrupt::unless_stopped;
use super::{operator, output};
use crate::app::App;
use crate::config::Resolved;
use crate::domain::ids::{DecisionId, TenantId, UserId};
use crate::surfaces::chat::request::ChatRequest;
use crate::surfaces::chat::{ChatError, RequestMeta};

/// Options of `gavel chat`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// The message; without it, a conversation begins (or one message per line is read from a pipe)
    #[arg(value_name = "MESSAGE", num_args = 0..)]
    message: Vec<String>,
    /// The user on whose behalf to act
    #[arg(long, default_value = "me", value_parser = operator::user, value_name = "NAME")]
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
    #[arg(long, default_value = "default", value_parser = operator::tenant, value_name = "NAME", conflicts_with = "server")]
    tenant: TenantId,
}

const EXAMPLES: &str = "\
Examples:
  gavel chat \"add a task to call mom\"
  gavel chat --json \"show my tasks\" | jq .outcome_category
  gavel chat                          a conversation; /quit ends it, /new clears the history
  gavel chat --server https://gavel.internal --user ann \"show my tasks\"";

/// The service that decides.
enum Decider {
    Here(Arc<crate::surfaces::chat::Chat>, Box<crate::surfaces::caller::Caller>),
    There(Client),
}

impl Decider {
    /// The decision's body.
    async fn decide(&self, body: &Value) -> anyhow::Result<String> {
        match self {
            Self::There(client) => client.decide(body).await,
            Self::Here(chat, caller) => {
                let request = ChatRequest::from_json(body.to_string().as_bytes()).map_err(|errors| invalid(&errors))?;
                let user = request.user.clone().context("the message has no user")?;
                let request_id = Arc::from(format!("cli-{}", DecisionId::new()));
                let meta = RequestMeta {
                    request_id,
                    traceparent: None,
                    idempotency: None,
                    shed: None,
                };
                match chat.decide(caller, user, request, meta, None).await {
                    Ok(answer) => Ok(answer.body.to_string()),
                    Err(ChatError::Invalid(errors)) => Err(invalid(&errors)),
                    Err(error) => Err(error.into()),
                }
            }
        }
    }
}

fn invalid(errors: &[crate::surfaces::chat::request::FieldError]) -> anyhow::Error {
    let lines: Vec<_> = errors.iter().map(ToString::to_string).collect();
    anyhow!("the message was rejected: {}", lines.join("; "))
}

/// Decides in this process, with its own servers and decision log.
pub(super) async fn run(args: Args, resolved: Resolved) -> anyhow::Result<Exit> {
    if matches!(
        resolved.config.model.provider,
        crate::config::Provider::Demo { asked: false }
    ) && output::person_reads_notes()
    {
        output::note("No credentials are set: the demo model answers. Set GEMINI_API_KEY to use Gemini.");
    }
    let caller = operator::caller(args.tenant.clone(), None);
    let app = App::build_for_command(resolved.config).await?;
    let decider = Decider::Here(Arc::clone(&app.chat), Box::new(caller));
    let talked = talk(&args, &decider).await;
    // A decision in progress is still recorded; after a second Ctrl-C, recovery closes it.
    unless_stopped(app.shutdown(None)).await?;
    talked
}

/// Decides through a remote gavel.
pub(super) async fn run_remote(args: Args) -> anyhow::Result<Exit> {
    let decider = Decider::There(Client::new(args.server.as_deref().unwrap_or_default())?);
    talk(&args, &decider).await
}

async fn talk(args: &Args, decider: &Decider) -> anyhow::Result<Exit> {
    if args.message.is_empty() {
        return conversation::hold(args, decider).await;
    }
    let body = body(args, &args.message.join(" "), &History::default());
    match unless_stopped(decider.decide(&body)).await? {
        None => Ok(Exit::Interrupted),
        Some(decision) => {
            show(args, &decision?)?;
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
