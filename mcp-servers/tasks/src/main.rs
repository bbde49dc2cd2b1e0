//! The task server as a separate program.

use clap::Parser;

/// A task list over MCP: add, list, update, complete and delete a user's own tasks.
#[derive(Debug, Parser)]
#[command(name = "gavel-mcp-tasks", version, after_long_help = gavel_mcp_tasks::Args::EXAMPLES)]
struct Cli {
    #[command(flatten)]
    args: gavel_mcp_tasks::Args,
}

fn main() -> anyhow::Result<()> {
    gavel_mcp_base::run(gavel_mcp_tasks::run(Cli::parse().args))
}
