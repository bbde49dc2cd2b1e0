//! The GitHub server as a separate program.

use clap::Parser;

/// GitHub over MCP: repositories, files, pull requests and issues, each change at most once.
#[derive(Debug, Parser)]
#[command(name = "gavel-mcp-github", version, after_long_help = gavel_mcp_github::Args::EXAMPLES)]
struct Cli {
    #[command(flatten)]
    args: gavel_mcp_github::Args,
}

fn main() -> anyhow::Result<()> {
    gavel_mcp_base::run(gavel_mcp_github::run(Cli::parse().args))
}
