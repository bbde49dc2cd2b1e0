//! The Google server as a separate program.

use clap::Parser;

/// Gmail and Google Calendar over MCP: send an e-mail, create an event, each at most once.
#[derive(Debug, Parser)]
#[command(name = "gavel-mcp-google", version, after_long_help = gavel_mcp_google::Args::EXAMPLES)]
struct Cli {
    #[command(flatten)]
    args: gavel_mcp_google::Args,
}

fn main() -> anyhow::Result<()> {
    gavel_mcp_base::run(gavel_mcp_google::run(Cli::parse().args))
}
