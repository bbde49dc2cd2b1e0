//! `gavel chat`: one decision, or a conversation. The service keeps no state between messages, so this command keeps
//! the history and sends it along, as any client does.

use std::collections::VecDeque;

use serde_json::{Value, json};

use crate::app::Work;
use crate::cli::client::Client;
use crate::cli::exit::Exit;
use crate::cli::gavel::{Gavel, Talk, Where};
use crate::cli::interrupt::{or_stopped, unless_stopped};
use crate::cli::lines::{Lines, Next};
use crate::cli::output;
use crate::cli::output::printable;
use crate::config::{Config, Provider};
use crate::domain::ids::{TenantId, UserId};
use crate::surfaces::chat::request::{MAX_HISTORY, MAX_HISTORY_BYTES};

/// Options of `gavel chat`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct Args {
    /// The message; without it, a conversation begins (or one message per line is read from a pipe)
    #[arg(value_name = "MESSAGE", num_args = 0..)]
    message: Vec<String>,
    /// The user on whose behalf to act
    #[arg(long, default_value = "local", value_name = "NAME")]
    user: UserId,
    /// The user's time zone, for "today" and "tomorrow" [default: this machine's]
    #[arg(long, value_name = "IANA NAME")]
    time_zone: Option<String>,
    /// Print the complete decision as JSON, one per line
    #[arg(long)]
    json: bool,
}

/// Where the decision is made: each message names its user itself.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Place {
    /// Use a remote gavel, with the key in GAVEL_API_KEY, instead of deciding in this process
    #[arg(long, value_name = "URL")]
    server: Option<String>,
    /// The tenant for the records, if this process decides
    #[arg(long, default_value = "default", value_name = "NAME", conflicts_with = "server")]
    tenant: TenantId,
}

impl From<Place> for Where {
    fn from(place: Place) -> Self {
        Self::of_tenant(&place.tenant, place.server.as_ref())
    }
}

const EXAMPLES: &str = "\
Examples:
  gavel chat \"add a task to call mom\"
  gavel chat --json \"show my tasks\" | jq .outcome_category
  gavel chat                          a conversation; /quit ends it, /new clears the history
  gavel chat --server https://gavel.internal --user ann \"show my tasks\"";

impl Talk for Args {
    const WORK: Work = Work::Act;

    async fn before(&self, config: &Config) -> anyhow::Result<()> {
        if matches!(config.model.provider, Provider::Demo { by_name: false }) && output::person_reads_notes() {
            output::note("No credentials are set: the demo model answers. Set GEMINI_API_KEY to use Gemini.");
        }
        Ok(())
    }

    async fn talk(&self, gavel: &Gavel) -> anyhow::Result<Exit> {
        if self.message.is_empty() {
            return hold(self, gavel).await;
        }
        let body = body(self, &self.message.join(" "), &History::default());
        show(self, &or_stopped(gavel.decide(&body)).await?)?;
        Ok(Exit::Done)
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

fn show(args: &Args, decision: &Value) -> anyhow::Result<()> {
    if args.json {
        return output::line(&decision.to_string());
    }
    output::line(&words(decision))?;
    if output::person_reads_notes() {
        output::note(&footer(decision));
    }
    Ok(())
}

/// The response of the model or of a template.
fn words(decision: &Value) -> String {
    printable(text(decision, "response"))
}

/// One line about the decision: type, outcome, tools, model, time.
fn footer(decision: &Value) -> String {
    let mut parts = vec![format!(
        "{} {}",
        text(decision, "decision_type"),
        text(decision, "outcome_category")
    )];
    let calls = decision.get("tool_calls").and_then(Value::as_array);
    for call in calls.into_iter().flatten() {
        let failure = call.pointer("/result/error/code").and_then(Value::as_str);
        let mark = failure.map_or_else(|| "✓".to_owned(), |code| format!("✗ {code}"));
        parts.push(format!("{} {mark}", printable(text(call, "tool"))));
    }
    parts.push(text(decision, "model").to_owned());
    parts.push(format!(
        "{} ms",
        decision.get("duration_ms").and_then(Value::as_u64).unwrap_or_default()
    ));
    format!("  ({})", parts.join(" · "))
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value.get(field).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod answer_tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_footer_tells_type_outcome_tools_model_and_time() {
        let decision = json!({
            "decision_type": "INVOKE_TOOL", "outcome_category": "SUCCESS:TASK_COMPLETED", "response": "Done\u{1b}[0m.",
            "tool_calls": [
                {"tool": "add_task", "result": {"success": true, "error": null}},
                {"tool": "wipe", "result": {"success": false, "error": {"code": "unknown_tool", "message": ""}}},
            ],
            "model": "demo", "duration_ms": 12,
        });
        assert_eq!(words(&decision), "Done\\u001b[0m.");
        assert_eq!(
            footer(&decision),
            "  (INVOKE_TOOL SUCCESS:TASK_COMPLETED · add_task ✓ · wipe ✗ unknown_tool · demo · 12 ms)"
        );
    }
}

const COMMANDS: &str = "/quit ends the conversation, /new clears the history, /help shows this";

/// One message per line. A terminal gets a prompt, and a failed message does not end the conversation; from a pipe, the
/// first failure ends it. Ctrl-C drops the typed text, or stops waiting; if there is neither, it ends the conversation.
async fn hold(args: &Args, client: &Client) -> anyhow::Result<Exit> {
    let mut lines = Lines::new();
    let person = lines.person;
    if person {
        output::note(&format!("Talking as {}. {COMMANDS}.", args.user));
    }
    let mut history = History::default();
    loop {
        let line = match lines.next("> ").await? {
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
                    history.keep(message, &decision);
                }
                Some(Err(error)) if person => output::note(&format!("error: {error:#}")),
                Some(Err(error)) => return Err(error),
            },
        }
    }
}

/// Messages and answers, oldest first. When they exceed what a request may carry, the oldest are dropped.
#[derive(Debug, Default)]
struct History {
    /// The conversation's id, from the first answer on.
    conversation: Option<String>,
    said: VecDeque<(String, String)>,
}

impl History {
    /// Keeps a message and its decision.
    fn keep(&mut self, message: &str, decision: &Value) {
        let text = |field: &str| decision.get(field).and_then(Value::as_str).map(str::to_owned);
        self.conversation = text("conversation_id").or_else(|| self.conversation.take());
        self.said
            .push_back((message.to_owned(), text("response").unwrap_or_default()));
        let bytes = |said: &VecDeque<(String, String)>| said.iter().map(|(a, b)| a.len() + b.len()).sum::<usize>();
        while self.said.len() * 2 > MAX_HISTORY || bytes(&self.said) > MAX_HISTORY_BYTES {
            self.said.pop_front();
        }
    }

    /// Adds the history to a request.
    fn add_to(&self, body: &mut Value) {
        if let Some(conversation) = &self.conversation {
            body["conversation_id"] = conversation.as_str().into();
        }
        let lines = self.said.iter().flat_map(|(message, answer)| {
            [
                json!({"role": "user", "content": message}),
                json!({"role": "assistant", "content": answer}),
            ]
        });
        body["history"] = lines.collect();
    }
}

#[cfg(test)]
mod history_tests {
    use super::*;
    use crate::surfaces::chat::request::ChatRequest;

    #[test]
    fn a_long_conversation_stays_within_what_a_request_may_carry() {
        let mut history = History::default();
        for n in 0..150 {
            let words = "x".repeat(3000);
            history.keep(&format!("{n}"), &json!({"conversation_id": "c", "response": words}));
        }
        let mut body = json!({"message": "hello", "user_id": "me"});
        history.add_to(&mut body);
        let request = ChatRequest::new(serde_json::from_value(body).unwrap()).unwrap();
        assert_eq!(request.over_limit(), None);
        assert_eq!(request.history.len() % 2, 0);
        assert!(request.history.len() > 100);
        assert_eq!(request.history[request.history.len() - 2].1, "149");
        assert_eq!(request.conversation.unwrap().as_str(), "c");
    }
}
