//! The shell server as a separate program.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use gavel_mcp_shell::{Launch, Launcher};

/// Shell commands over MCP, in a sandbox, within limits, each at most once.
#[derive(Debug, Parser)]
#[command(name = "gavel-mcp-shell", version, after_long_help = gavel_mcp_shell::Args::EXAMPLES)]
struct Cli {
    #[command(flatten)]
    args: gavel_mcp_shell::Args,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// One command, as the server starts it
    #[command(name = LAUNCH, hide = true)]
    Launch(Launch),
}

const LAUNCH: &str = "launch";

fn main() -> anyhow::Result<ExitCode> {
    let cli = Cli::parse();
    if let Some(Command::Launch(launch)) = cli.command {
        return Ok(gavel_mcp_shell::launch(launch));
    }
    let launcher = Launcher::this_program([LAUNCH]);
    gavel_mcp_base::run_process(gavel_mcp_shell::run(cli.args, launcher))?;
    Ok(ExitCode::SUCCESS)
}
