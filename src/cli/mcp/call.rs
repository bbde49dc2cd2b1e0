//! `gavel mcp call`: an operator calls a tool directly. It bypasses allowlist, approval and decision log, and says so.

use std::io::Read;
use std::sync::Arc;

use anyhow::{Context, bail, ensure};
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use crate::adapters::mcp::Mcp;
use crate::cli::exit::{Exit, Usage};
use crate::cli::{gavel, output};
use crate::domain::canonical;
use crate::domain::ids::{ActionId, DEFAULT_TENANT, UserId};
use crate::domain::schema::{CheckError, Effort};
use crate::domain::tool::Tool;
use crate::ports::tools::{CallReply, CallRequest, Tools};

/// Options of `gavel mcp call`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Args {
    /// The server, by its name in mcp.json
    server: String,
    /// The tool, by its own name
    tool: String,
    /// A JSON object; - reads it from standard input
    #[arg(default_value = "{}", value_parser = given, value_name = "ARGUMENTS")]
    arguments: Given,
    /// The user name to send to the server
    #[arg(long, default_value = "local", value_parser = gavel::user, value_name = "NAME")]
    user: UserId,
    /// Sent as the idempotency key, so that a repeated command has one effect if the tool supports it [default: a new
    /// one]
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
}

const EXAMPLES: &str = "\
The tool is called directly: the constitution's allowlist, approvals and limits do not apply, and the decision log \
gets no row. Arguments are checked against the tool's schema.

Examples:
  gavel mcp call tasks add_task '{\"description\": \"call mom\"}' --user ann
  gavel mcp call tasks list_tasks | jq .tasks";

pub(super) async fn run(args: Args, mcp: &Arc<Mcp>) -> anyhow::Result<Exit> {
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
pub(crate) async fn direct(
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

/// Where the arguments come from.
#[derive(Clone, Debug)]
enum Given {
    Here(Map<String, Value>),
    Input,
}

fn given(text: &str) -> Result<Given, String> {
    match text {
        "-" => Ok(Given::Input),
        text => object(text).map(Given::Here),
    }
}

fn object(text: &str) -> Result<Map<String, Value>, String> {
    serde_json::from_str(text).map_err(|error| format!("give a JSON object, such as {{}}: {error}"))
}

/// The arguments with the identity argument that the server requires, checked against its schema.
fn arguments(args: &Args, tool: &Tool) -> anyhow::Result<Map<String, Value>> {
    let mut arguments = match &args.arguments {
        Given::Here(arguments) => arguments.clone(),
        Given::Input => {
            let input = std::io::stdin().lock().take(MOST);
            let text = std::io::read_to_string(input).context("standard input cannot be read")?;
            object(&text).map_err(|error| Usage(format!("the arguments on standard input: {error}")))?
        }
    };
    if let Some(name) = &tool.identity_argument {
        let given = arguments.insert(name.to_string(), args.user.as_str().into());
        ensure!(given.is_none(), "{name:?} is set from --user");
    }
    match tool.input.check(&Value::Object(arguments.clone()), Effort::Full) {
        Ok(()) => {}
        Err(CheckError::Invalid(errors)) => {
            bail!("the arguments do not fit the tool's schema:\n  {}", errors.join("\n  "));
        }
        Err(CheckError::TooCostly) => bail!("{}", CheckError::TooCostly),
    }
    Ok(arguments)
}

/// Most bytes of arguments read from standard input.
const MOST: u64 = 16 << 20;

fn absence(args: &Args, mcp: &Mcp) -> String {
    let servers = mcp.status();
    let Some(server) = servers.iter().find(|server| *server.name == *args.server) else {
        let known: Vec<_> = servers.iter().map(|server| server.name.as_ref()).collect();
        return format!(
            "there is no server {:?}; configured are {}",
            args.server,
            known.join(", ")
        );
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
        return super::list::headline(server).trim_end().to_owned();
    }
    format!(
        "{} offers no tool {:?}; it offers {}",
        args.server,
        args.tool,
        offered.join(", ")
    )
}
