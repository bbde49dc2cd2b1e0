//! `gavel mcp`: the MCP servers of this configuration, started for the duration of the command.

mod inspect;

use std::sync::Arc;

use anyhow::{Context, bail, ensure};
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use crate::adapters::mcp::{AcceptedTool, Mcp, PinError, ServerState, ServerStatus};
use crate::app;
use crate::cli::exit::Exit;
use crate::cli::interrupt::or_stopped;
use crate::cli::list::{clipped, table};
use crate::cli::{gavel, lines, output};
use crate::config::{Config, Resolved};
use crate::domain::canonical;
use crate::domain::ids::{ActionId, DEFAULT_TENANT, UserId};
use crate::domain::schema::{CheckError, Effort, Mismatch};
use crate::domain::tool::Tool;
use crate::ports::tools::{CallReply, CallRequest, Catalog, Tools};

/// The commands of `gavel mcp`.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// List the servers and their tools
    List(List),
    /// Show complete tools: what a call does, and how Gemini gets each schema
    Inspect(inspect::Args),
    /// Accept a pinned tool's current definition, so that it is offered again
    Accept(Accept),
    /// Call a tool directly; the constitution's allowlist and the policy do not apply
    Call(Call),
}

pub(super) async fn run(command: Command, resolved: Resolved) -> anyhow::Result<Exit> {
    let mcp = app::mcp(&resolved.config)?;
    let done = or_stopped(async {
        settled(&mcp).await;
        match command {
            Command::List(args) => list(&args, &mcp),
            Command::Inspect(args) => inspect::run(&args, &mcp),
            Command::Accept(args) => accept(&args, &mcp),
            Command::Call(args) => call(args, &mcp).await,
        }
    });
    let done = done.await;
    mcp.shutdown().await;
    done
}

/// What the servers of this configuration offer, and their states.
pub(super) async fn offered(config: &Config) -> anyhow::Result<(Arc<Catalog>, Vec<ServerStatus>)> {
    let mcp = app::mcp(config)?;
    let offered = or_stopped(async {
        settled(&mcp).await;
        Ok((mcp.catalog(), mcp.status()))
    });
    let offered = offered.await;
    mcp.shutdown().await;
    offered
}

/// Waits until every server is connected or known to be down. Its status has the reason.
pub(super) async fn settled(mcp: &Arc<Mcp>) {
    let servers = mcp.status();
    let asked = servers.iter().map(|server| async {
        if let Err(reason) = mcp.refresh(&server.name).await {
            tracing::debug!(server = %server.name, %reason, "not connected");
        }
    });
    futures_util::future::join_all(asked).await;
}

/// The catalog for a page on which many agents and tools name the servers that are not connected: without the reasons,
/// which [`not_connected`] lists once.
pub(super) fn without_reasons(catalog: &Catalog) -> Catalog {
    let mut catalog = catalog.clone();
    catalog.down.values_mut().for_each(String::clear);
    catalog
}

/// The servers that are not connected, one per line, each with the reason; empty if all are connected.
pub(super) fn not_connected(catalog: &Catalog) -> String {
    let servers = catalog.down.iter();
    let lines: String = servers.map(|(name, reason)| format!("\n  {name}: {reason}")).collect();
    match lines.as_str() {
        "" => lines,
        lines => format!("Not connected:{lines}\n"),
    }
}

/// Options of `gavel mcp accept`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = ACCEPT_EXAMPLES)]
pub(super) struct Accept {
    /// The server, by its name in mcp.json
    server: String,
    /// The tool, by its own name
    tool: String,
    /// Accept only the definition with this digest, which `gavel mcp inspect` shows
    #[arg(long, value_name = "SHA-256", value_parser = digest)]
    digest: Option<String>,
    /// As JSON
    #[arg(long)]
    json: bool,
}

const ACCEPT_EXAMPLES: &str = "\
Tools of a server with \"pin\": true in mcp.json are held back if their definition changes. This command writes the \
digest of the definition that the server gives now into the file of GAVEL_MCP_PINS, and prints that definition. A \
running gavel that uses the same file offers the tool again within seconds.

A server can give each client a different definition. With --digest, only the definition that you inspected is accepted.

Examples:
  gavel mcp list                          show which tools are left out, and why
  gavel mcp inspect crm find_customer     show its current definition, with its digest
  gavel mcp accept crm find_customer --digest DIGEST";

/// # Errors
/// The text is not a SHA-256 in hexadecimal.
fn digest(text: &str) -> Result<String, String> {
    if text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        Ok(text.to_ascii_lowercase())
    } else {
        Err("give 64 hexadecimal digits, as `gavel mcp inspect` prints them".to_owned())
    }
}

fn accept(args: &Accept, mcp: &Arc<Mcp>) -> anyhow::Result<Exit> {
    let accepted = match mcp.accept_pin(&args.server, &args.tool, args.digest.as_deref()) {
        Ok(accepted) => accepted,
        Err(error @ PinError::UnknownTool { .. }) => {
            // Shows the server's state, since an unconnected server offers no tools.
            for server in mcp.status().iter().filter(|server| *server.name == *args.server) {
                output::note(headline(server).trim_end());
            }
            bail!(error)
        }
        Err(error) => bail!(error),
    };
    if args.json {
        output::json(&document(&accepted))?;
    } else {
        output::line(&accept_text(&accepted)?)?;
    }
    Ok(Exit::Done)
}

fn changed(accepted: &AcceptedTool) -> bool {
    accepted.before.as_deref() != Some(&*accepted.tool.digest)
}

fn document(accepted: &AcceptedTool) -> Value {
    let tool = &accepted.tool;
    json!({
        "server": tool.server,
        "name": tool.name,
        "digest_before": accepted.before,
        "digest": tool.digest,
        "changed": changed(accepted),
        "description": tool.description,
        "input_schema": tool.input.original(),
    })
}

fn accept_text(accepted: &AcceptedTool) -> anyhow::Result<String> {
    let tool = &accepted.tool;
    let mut text = format!("{} / {}\n", tool.server, tool.name);
    if changed(accepted) {
        let before = accepted.before.as_deref().unwrap_or("nothing");
        text.push_str(&format!(
            "  accepted before  {before}\n  accepted now     {}\n",
            tool.digest
        ));
    } else {
        text.push_str(&format!("  unchanged, already accepted: {}\n", tool.digest));
    }
    let description = tool.description.trim();
    text.push_str(&format!("  description: {}\n", indented(description)));
    let schema: Value = serde_json::from_str(tool.input.original().get())?;
    let schema = serde_json::to_string_pretty(&schema)?;
    text.push_str(&format!("  input schema: {}", indented(&schema)));
    Ok(text)
}

/// A server's text, with terminal control characters escaped.
fn indented(text: &str) -> String {
    output::printable(text).replace('\n', "\n  ")
}

/// Options of `gavel mcp call`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = CALL_EXAMPLES)]
pub(super) struct Call {
    /// The server, by its name in mcp.json
    server: String,
    /// The tool, by its own name
    tool: String,
    /// A JSON object, @FILE with one, or - for standard input
    #[arg(default_value = "{}", value_parser = lines::object, value_name = "ARGUMENTS")]
    arguments: Map<String, Value>,
    /// The user name to send to the server
    #[arg(long, default_value = "local", value_parser = gavel::user, value_name = "NAME")]
    user: UserId,
    /// Sent as the idempotency key, so that a repeated command has one effect if the tool supports it [default: a new
    /// one]
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
}

const CALL_EXAMPLES: &str = "\
The tool is called directly: the constitution's allowlist, approvals and limits do not apply, and the decision log \
gets no row. Arguments are checked against the tool's schema.

Examples:
  gavel mcp call tasks add_task '{\"description\": \"call mom\"}' --user ann
  gavel mcp call tasks list_tasks | jq .tasks";

async fn call(args: Call, mcp: &Arc<Mcp>) -> anyhow::Result<Exit> {
    let catalog = mcp.catalog();
    let tool = catalog
        .tools
        .iter()
        .find(|tool| *tool.server == *args.server && *tool.name == *args.tool);
    let Some(tool) = tool else {
        bail!("{}", absence(&args, mcp))
    };
    let arguments = arguments(&args, tool)?;
    output::note("This call bypasses policy: no allowlist, approval or limit applies, and no decision row is written.");
    let key = args.idempotency_key.as_deref();
    match direct(mcp, (tool, arguments), args.user.as_str(), "cli", key).await {
        CallReply::Data(data) => {
            // Parsed, since a raw value would be printed on one line.
            let data: Value = serde_json::from_str(data.get()).context("the tool's data is not JSON")?;
            output::json(&data)?;
            Ok(Exit::Done)
        }
        CallReply::NotSent(failure) | CallReply::Failed(failure) => {
            bail!("{}: {}", failure.code.as_str(), output::printable(&failure.message));
        }
        CallReply::Unknown(failure) => bail!(
            "{}: {}. The call was sent and may have had its effect",
            failure.code.as_str(),
            output::printable(&failure.message)
        ),
    }
}

/// Calls a tool for a user: no policy decides, and nothing is recorded.
pub(super) async fn direct(
    mcp: &Mcp,
    (tool, arguments): (&Arc<Tool>, Map<String, Value>),
    user: &str,
    origin: &'static str,
    key: Option<&str>,
) -> CallReply {
    let id = ActionId::new();
    let (run_id, fresh_key) = (format!("{origin}-{id}"), id.to_string());
    let request = CallRequest {
        tool,
        arguments: &canonical::to_raw(&Value::Object(arguments)),
        tenant: DEFAULT_TENANT,
        user,
        origin,
        run_id: &run_id,
        action_id: id,
        idempotency_key: key.unwrap_or(&fresh_key),
        first_attempt_us: None,
        account: None,
        session: None,
        repository: None,
        repositories: None,
        deadline_us: None,
        traceparent: None,
        timeout: tool.timeout,
        cancel: &CancellationToken::new(),
        is_approved: false,
        hold: None,
    };
    mcp.call(request).await
}

/// The arguments with the identity argument that the server requires, checked against its schema.
fn arguments(args: &Call, tool: &Tool) -> anyhow::Result<Map<String, Value>> {
    let mut arguments = args.arguments.clone();
    if let Some(name) = &tool.identity_argument {
        let given = arguments.insert(name.to_string(), args.user.as_str().into());
        ensure!(given.is_none(), "{name:?} is set from --user");
    }
    match tool.input.check(&Value::Object(arguments.clone()), Effort::Full) {
        Ok(()) => {}
        Err(CheckError::Invalid(places)) => {
            let places: Vec<_> = places.iter().map(Mismatch::to_string).collect();
            bail!("the arguments do not fit the tool's schema:\n  {}", places.join("\n  "));
        }
        Err(CheckError::TooCostly) => bail!("{}", CheckError::TooCostly),
    }
    Ok(arguments)
}

/// The server with this name.
///
/// # Errors
/// There is none; the text names the others.
fn configured<'a>(servers: &'a [ServerStatus], name: &str) -> Result<&'a ServerStatus, String> {
    servers.iter().find(|server| *server.name == *name).ok_or_else(|| {
        let known: Vec<_> = servers.iter().map(|server| server.name.as_ref()).collect();
        format!("there is no server {name:?}; configured are {}", known.join(", "))
    })
}

fn absence(args: &Call, mcp: &Mcp) -> String {
    let servers = mcp.status();
    let server = match configured(&servers, &args.server) {
        Ok(server) => server,
        Err(unknown) => return unknown,
    };
    let catalog = mcp.catalog();
    if let Some(left) = catalog
        .left_out
        .iter()
        .find(|left| left.server == server.name && left.tool == args.tool)
    {
        return format!("{} is left out: {}", args.tool, left.reason);
    }
    let offered: Vec<_> = catalog
        .tools
        .iter()
        .filter(|tool| tool.server == server.name)
        .map(|tool| tool.name.as_ref())
        .collect();
    if offered.is_empty() {
        return headline(server).trim_end().to_owned();
    }
    format!(
        "{} offers no tool {:?}; it offers {}",
        args.server,
        args.tool,
        offered.join(", ")
    )
}

/// Options of `gavel mcp list`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "Exit status 1 if a server is neither connected nor off.")]
pub(super) struct List {
    /// Print the servers as JSON, one per line: each with its tools, and the tools left out
    #[arg(long)]
    json: bool,
}

fn list(args: &List, mcp: &Arc<Mcp>) -> anyhow::Result<Exit> {
    let (servers, catalog) = (mcp.status(), mcp.catalog());
    if args.json {
        output::json_lines(documents(&servers, &catalog))?;
    } else {
        output::line(&list_text(&servers, &catalog))?;
    }
    let all_up = servers
        .iter()
        .all(|server| matches!(server.state, ServerState::Up | ServerState::Off));
    Ok(if all_up { Exit::Done } else { Exit::Failed })
}

fn documents(servers: &[ServerStatus], catalog: &Catalog) -> Vec<serde_json::Value> {
    let tools = |server: &ServerStatus| -> Vec<_> {
        let own = catalog.tools.iter().filter(|tool| tool.server == server.name);
        own.map(|tool| json!({ "name": tool.name, "description": tool.description, "side_effect": tool.side_effect }))
            .collect()
    };
    let left_out = |server: &ServerStatus| -> Vec<_> {
        let own = catalog.left_out.iter().filter(|left| left.server == server.name);
        own.map(|left| json!({ "name": left.tool, "reason": left.reason }))
            .collect()
    };
    servers
        .iter()
        .map(|server| json!({ "status": server, "tools": tools(server), "left_out": left_out(server) }))
        .collect()
}

fn list_text(servers: &[ServerStatus], catalog: &Catalog) -> String {
    if servers.is_empty() {
        return "no MCP servers are configured".to_owned();
    }
    let mut text = String::new();
    for server in servers {
        text.push_str(&headline(server));
        let mut rows: Vec<Vec<String>> = catalog
            .tools
            .iter()
            .filter(|tool| tool.server == server.name)
            .map(|tool| {
                vec![
                    format!("  {}", tool.name),
                    effect(tool).to_owned(),
                    clipped(&tool.description, 80),
                ]
            })
            .collect();
        rows.extend(
            catalog
                .left_out
                .iter()
                .filter(|left| left.server == server.name)
                .map(|left| vec![format!("  {}", left.tool), "left out".to_owned(), left.reason.clone()]),
        );
        if !rows.is_empty() {
            text.push_str(&table(&["  tool", "effect", "what"], &rows));
        }
        text.push('\n');
    }
    text
}

fn effect(tool: &Tool) -> &'static str {
    if tool.side_effect {
        "changes things"
    } else {
        "only reads"
    }
}

/// `tasks: connected over stdio to gavel (gavel-mcp-tasks 0.1.0, protocol 2026-07-28)`
pub(super) fn headline(server: &ServerStatus) -> String {
    let state = match server.state {
        ServerState::Up => "connected",
        ServerState::Connecting => "still connecting",
        ServerState::Down => "not connected",
        ServerState::Off => "off",
    };
    let mut line = format!("{}: {state}", server.name);
    if let (Some(transport), Some(place)) = (server.transport, &server.place) {
        line.push_str(&format!(" over {transport} to {place}"));
    }
    let protocol = server.protocol.as_ref().map(|protocol| format!("protocol {protocol}"));
    let about: Vec<_> = [server.software.clone(), protocol].into_iter().flatten().collect();
    if !about.is_empty() {
        line.push_str(&format!(" ({})", about.join(", ")));
    }
    if let Some(reason) = &server.reason {
        line.push_str(&format!(": {reason}"));
    } else if server.state == ServerState::Connecting {
        line.push_str(
            ": no answer to initialize yet: does it speak MCP, and does it write nothing else to its output?",
        );
    }
    output::printable(&line) + "\n"
}
