//! The Docker server as a separate program.

use clap::Parser;

/// Containers over MCP: create one, run scripts in it, read its files; nothing of the host.
#[derive(Debug, Parser)]
#[command(name = "gavel-mcp-docker", version, after_long_help = gavel_mcp_docker::Args::EXAMPLES)]
struct Cli {
    #[command(flatten)]
    args: gavel_mcp_docker::Args,
}

fn main() -> anyhow::Result<()> {
    gavel_mcp_base::run(gavel_mcp_docker::run(Cli::parse().args))
}
