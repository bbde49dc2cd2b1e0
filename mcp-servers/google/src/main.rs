//! The Google server as a separate program. Standard output belongs to the protocol; logs go to standard error.

use std::time::Duration;

use clap::Parser;
use tracing_subscriber::EnvFilter;

/// Gmail and Google Calendar over MCP: send an e-mail, create an event, each at most once.
#[derive(Debug, Parser)]
#[command(name = "gavel-mcp-google", version, after_long_help = gavel_mcp_google::Args::EXAMPLES)]
struct Cli {
    #[command(flatten)]
    args: gavel_mcp_google::Args,
}

fn main() -> anyhow::Result<()> {
    let cli = Cli::parse();
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info,rmcp=warn"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .init();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let served = runtime.block_on(gavel_mcp_google::run(cli.args));
    // A read from a terminal cannot be interrupted, so the runtime does not wait for it.
    runtime.shutdown_timeout(Duration::from_millis(200));
    served
}
