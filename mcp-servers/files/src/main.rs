//! The files server as a separate program.

use clap::Parser;

/// Files over MCP, read-only: list, read, find and search below one directory.
#[derive(Debug, Parser)]
#[command(name = "gavel-mcp-files", version, after_long_help = gavel_mcp_files::Args::EXAMPLES)]
struct Cli {
    #[command(flatten)]
    args: gavel_mcp_files::Args,
}

fn main() -> anyhow::Result<()> {
    gavel_mcp_base::run(gavel_mcp_files::run(Cli::parse().args))
}
