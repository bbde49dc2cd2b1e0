//! `gavel policy check`: one call, judged by the gate itself with the tool as its server offers it now.

use std::fs;
use std::sync::Arc;

use anyhow::bail;
use serde_json::json;
use serde_json::value::RawValue;

use super::{AGENT, Modes};
use crate::adapters::mcp::{ServerState, ServerStatus};
use crate::app;
use crate::cli::exit::{Exit, Usage};
use crate::cli::interrupt::unless_stopped;
use crate::cli::table::table;
use crate::cli::{mcp, operator, output};
use crate::config::Config;
use crate::domain::ids::UserId;
use crate::domain::policy::{DecidedBy, Effect, Policy};
use crate::domain::tool::Tool;
use crate::engine::policy::{Bounds, Opinion, opinion};
use crate::ports::clock::{Clock, SystemClock};
use crate::ports::tools::{Catalog, Tools};

/// Options of `gavel policy check`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(in crate::cli) struct Args {
    /// The tool: its name, or server__tool where several servers have it
    #[arg(long, value_name = "NAME")]
    tool: String,
    /// A JSON object, or @FILE that holds one
    #[arg(long, default_value = "{}", value_name = "JSON")]
    arguments: String,
    /// Who acts
    #[arg(long, default_value = "me", value_parser = operator::user, value_name = "NAME")]
    user: UserId,
    /// The agent whose run it would be
    #[arg(long, value_name = "NAME")]
    agent: Option<String>,
    /// Where it would be called [default: agent with --agent, else chat]
    #[arg(long, value_parser = ["chat", "agent", "thread"], value_name = "NAME")]
    surface: Option<String>,
    /// As JSON: {answer, by, reason, recipients, warnings, checks, arguments}
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Nothing is called. The MCP servers are asked for their tools, and the call is judged as a model's would be: schema, \
recipients and times first, then the policy file of this configuration. What people have allowed for good is not \
looked at.

Examples:
  gavel policy check --tool add_task --arguments '{\"description\": \"call mom\"}'
  gavel policy check --policy policy.yaml --tool gmail_send --arguments @mail.json --agent workspace
  gavel policy check --tool delete_task --json | jq .checks

Exit status 0 allowed, 3 a person must agree, 4 denied or refused, 1 failed, 2 wrong usage or configuration.";

pub(super) async fn run(args: &Args, config: &Config) -> anyhow::Result<Exit> {
    let arguments = arguments(&args.arguments)?;
    let policy = app::policy(config)?;
    let modes = Modes::read(config)?;
    if let Some(agent) = args.agent.as_deref().filter(|agent| !modes.has(agent)) {
        return Err(Usage(format!("no agent of this configuration is called {agent:?}")).into());
    }
    let surface = match &args.surface {
        Some(surface) => surface,
        None if args.agent.is_some() => AGENT,
        None => "chat",
    };
    let bridge = app::mcp(config)?;
    let settled = unless_stopped(mcp::settled(&bridge)).await;
    let (catalog, servers) = (bridge.catalog(), bridge.status());
    bridge.shutdown().await;
    if settled?.is_none() {
        return Ok(Exit::Interrupted);
    }
    let tool = find(&catalog, &servers, &args.tool)?;
    let bounds = Bounds {
        user: &args.user,
        agent: args.agent.as_deref(),
        surface,
        approval: modes.of(surface, args.agent.as_deref()),
        // What matters is what the gate thinks; that nobody can be asked is told beside it.
        can_wait: true,
        policy: &policy,
        grants: &[],
        now_us: SystemClock.now_us(),
    };
    match opinion(tool, &arguments, &bounds) {
        Ok(opinion) => told(args, &opinion, &policy, surface),
        Err(message) => refused(args, &message),
    }
}

fn arguments(given: &str) -> anyhow::Result<Box<RawValue>> {
    let text = match given.strip_prefix('@') {
        None => given.to_owned(),
        Some(path) => fs::read_to_string(path).map_err(|error| Usage(format!("{path} cannot be read: {error}")))?,
    };
    RawValue::from_string(text).map_err(|error| Usage(format!("--arguments: give a JSON object: {error}")).into())
}

fn find<'a>(catalog: &'a Catalog, servers: &[ServerStatus], name: &str) -> anyhow::Result<&'a Arc<Tool>> {
    let found: Vec<_> = catalog.tools.iter().filter(|tool| tool.is_called(name)).collect();
    match found.as_slice() {
        [tool] => Ok(tool),
        [] => {
            let names: Vec<_> = catalog.tools.iter().map(|tool| &*tool.name).collect();
            let away = servers
                .iter()
                .filter(|server| server.state != ServerState::Up)
                .map(|server| {
                    let reason = server.reason.as_deref().unwrap_or("it is not connected");
                    format!("; {} offers nothing: {reason}", server.name)
                });
            let away: String = away.collect();
            bail!("no server offers {name:?}; offered are {}{away}", names.join(", "))
        }
        several => {
            let names: Vec<_> = several.iter().map(|tool| tool.qualified_name()).collect();
            bail!("several servers offer {name:?}; give one of {}", names.join(", "))
        }
    }
}

fn refused(args: &Args, message: &str) -> anyhow::Result<Exit> {
    if args.json {
        output::json(&json!({"answer": "invalid_arguments", "reason": message}))?;
    } else {
        let line = format!("invalid_arguments, before anybody is asked: {message}");
        output::line(&output::printable(&line))?;
    }
    Ok(Exit::Denied)
}

fn told(args: &Args, opinion: &Opinion, policy: &Policy, surface: &str) -> anyhow::Result<Exit> {
    let ruling = &opinion.ruling;
    if args.json {
        let checks: Vec<_> = ruling
            .checks
            .iter()
            .map(|check| json!({"by": check.by, "says": check.says, "reason": check.reason}))
            .collect();
        output::json(&json!({
            "answer": ruling.effect, "by": ruling.by, "reason": ruling.reason,
            "recipients": opinion.parameters.recipients, "warnings": opinion.parameters.warnings,
            "checks": checks, "arguments": opinion.arguments,
        }))?;
    } else {
        output::line(&output::printable(&text(opinion, policy)))?;
        if surface == "chat" && ruling.effect == Effect::RequireApproval {
            output::note("on the chat surface nobody can be asked: there it is denied");
        }
    }
    Ok(match ruling.effect {
        Effect::Allow => Exit::Done,
        Effect::RequireApproval => Exit::NeedsApproval,
        Effect::Deny => Exit::Denied,
    })
}

fn text(opinion: &Opinion, policy: &Policy) -> String {
    let ruling = &opinion.ruling;
    let by: Vec<_> = ruling.by.iter().map(ToString::to_string).collect();
    let mut text = ruling.effect.as_str().to_owned();
    if !by.is_empty() {
        text.push_str(&format!(", decided by {}", by.join(", ")));
    }
    if !ruling.reason.is_empty() {
        text.push_str(&format!("\n  {}", ruling.reason));
    }
    if let Some(recipients) = &opinion.parameters.recipients {
        let all: Vec<_> = recipients.iter().collect();
        text.push_str(&format!(
            "\n  reaches {}",
            if all.is_empty() {
                "nobody".to_owned()
            } else {
                all.join(", ")
            }
        ));
    }
    for warning in &opinion.parameters.warnings {
        text.push_str(&format!("\n  warning: {warning}"));
    }
    let mut rows: Vec<Vec<String>> = ruling
        .checks
        .iter()
        .map(|check| {
            vec![
                check.by.to_string(),
                check.says.as_str().to_owned(),
                check.reason.clone(),
            ]
        })
        .collect();
    for rule in &policy.rules {
        let by = DecidedBy::Rule(Arc::clone(&rule.name));
        if !ruling.checks.iter().any(|check| check.by == by) {
            rows.push(vec![by.to_string(), "-".to_owned(), "not about this call".to_owned()]);
        }
    }
    text.push_str("\n\n");
    if rows.is_empty() {
        text.push_str("no check has anything to say of it");
    } else {
        text.push_str(&table(&["check", "says", "why"], &rows));
    }
    text
}
