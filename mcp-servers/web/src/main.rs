//! The web server as a separate program.

use clap::Parser;

/// The public web over MCP: one page as text, and a search; nothing of the private network.
#[derive(Debug, Parser)]
#[command(name = "gavel-mcp-web", version, after_long_help = gavel_mcp_web::Args::EXAMPLES)]
struct Cli {
    #[command(flatten)]
    args: gavel_mcp_web::Args,
}

fn main() -> anyhow::Result<()> {
    gavel_mcp_base::run(gavel_mcp_web::run(Cli::parse().args))
}
