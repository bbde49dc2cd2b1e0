//! `gavel mcp accept`: the operator accepts the current definition of a pinned tool.

use std::sync::Arc;

use anyhow::bail;
use serde_json::{Value, json};

use crate::adapters::mcp::{AcceptedTool, Mcp, PinError};
use crate::cli::exit::Exit;
use crate::cli::output;

/// Options of `gavel mcp accept`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Args {
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

const EXAMPLES: &str = "\
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

pub(super) fn run(args: &Args, mcp: &Arc<Mcp>) -> anyhow::Result<Exit> {
    let accepted = match mcp.accept_pin(&args.server, &args.tool, args.digest.as_deref()) {
        Ok(accepted) => accepted,
        Err(error @ PinError::UnknownTool { .. }) => {
            // Shows the server's state, since an unconnected server offers no tools.
            for server in mcp.status().iter().filter(|server| *server.name == *args.server) {
                output::note(super::list::headline(server).trim_end());
            }
            bail!(error)
        }
        Err(error) => bail!(error),
    };
    if args.json {
        output::json(&document(&accepted))?;
    } else {
        output::line(&text(&accepted)?)?;
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

fn text(accepted: &AcceptedTool) -> anyhow::Result<String> {
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
