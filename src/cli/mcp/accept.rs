//! `gavel mcp accept`: an operator's word that a pinned tool may be what it is now.

use std::sync::Arc;

use anyhow::bail;
use serde_json::{Value, json};

use crate::adapters::mcp::{AcceptedTool, Mcp, PinError};
use crate::cli::exit::Exit;
use crate::cli::output;

/// Options of `gavel mcp accept`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(in crate::cli) struct Args {
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
A server with \"pin\": true in mcp.json has its tools held back when their definition changes. This writes the \
digest of the definition that the server gives now into the file of GAVEL_MCP_PINS, and prints that definition. A \
running gavel that uses the same file offers the tool again within seconds.

A server can give another definition to each who asks. With --digest the one that was looked at is accepted, or none.

Examples:
  gavel mcp list                          which tools are left out, and why
  gavel mcp inspect crm find_customer     what it is now, with its digest
  gavel mcp accept crm find_customer --digest DIGEST";

/// # Errors
/// It is no SHA-256 in hexadecimal.
fn digest(text: &str) -> Result<String, String> {
    if text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        Ok(text.to_ascii_lowercase())
    } else {
        Err("64 hexadecimal digits are expected, as `gavel mcp inspect` prints them".to_owned())
    }
}

pub(super) fn run(args: &Args, mcp: &Arc<Mcp>) -> anyhow::Result<Exit> {
    let accepted = match mcp.accept_pin(&args.server, &args.tool, args.digest.as_deref()) {
        Ok(accepted) => accepted,
        Err(error @ PinError::UnknownTool { .. }) => {
            // Why it offers none, where that is because it is not there.
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
        text.push_str(&format!("  unchanged, accepted already: {}\n", tool.digest));
    }
    let description = tool.description.trim();
    text.push_str(&format!("  description: {}\n", indented(description)));
    let schema: Value = serde_json::from_str(tool.input.original().get())?;
    let schema = serde_json::to_string_pretty(&schema)?;
    text.push_str(&format!("  input schema: {}", indented(&schema)));
    Ok(text)
}

/// A server's text, without what a terminal would obey.
fn indented(text: &str) -> String {
    output::printable(text).replace('\n', "\n  ")
}
