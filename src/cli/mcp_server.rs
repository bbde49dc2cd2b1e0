//! `gavel mcp-server`: the servers that come with gavel, so that one binary is enough. This only starts a server's
//! library; the servers share nothing with gavel but the protocol.

use anyhow::Context;

use super::exit::Exit;
use crate::app;
use crate::telemetry::{Lines, Telemetry};

/// The server to start.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Server {
    /// Containers in which scripts run, through the API of Docker or Podman
    #[command(after_long_help = here(gavel_mcp_docker::Args::EXAMPLES))]
    Docker(gavel_mcp_docker::Args),
    /// Read-only access to the files in one directory
    #[command(after_long_help = here(gavel_mcp_files::Args::EXAMPLES))]
    Files(gavel_mcp_files::Args),
    /// Repositories, files, pull requests and issues at GitHub, with one account for all users
    #[command(after_long_help = here(gavel_mcp_github::Args::EXAMPLES))]
    Github(gavel_mcp_github::Args),
    /// Gmail and Google Calendar, each user with their own account
    #[command(after_long_help = here(gavel_mcp_google::Args::EXAMPLES))]
    Google(Box<gavel_mcp_google::Args>),
    /// Shell commands in a sandbox
    #[command(after_long_help = here(gavel_mcp_shell::Args::EXAMPLES))]
    Shell(gavel_mcp_shell::Args),
    /// One command, as the shell server starts it: see `cli::main`
    #[command(hide = true)]
    ShellLaunch(gavel_mcp_shell::Launch),
    /// Each user's task list, in SQLite or PostgreSQL
    #[command(after_long_help = here(gavel_mcp_tasks::Args::EXAMPLES))]
    Tasks(gavel_mcp_tasks::Args),
    /// Pages of the public web as text, and a search
    #[command(after_long_help = here(gavel_mcp_web::Args::EXAMPLES))]
    Web(Box<gavel_mcp_web::Args>),
}

/// A server's examples, with the command that starts it here.
fn here(examples: &str) -> String {
    examples.replace("gavel-mcp-", "gavel mcp-server ")
}

pub(super) fn run(server: Server) -> anyhow::Result<Exit> {
    let filter = std::env::var("RUST_LOG").unwrap_or_else(|_| "info,rmcp=warn".to_owned());
    // Standard output belongs to the protocol. A parent process logs these lines, so they are text.
    let telemetry = Telemetry::start(&filter, Lines::Text, None)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("the runtime cannot be started")?;
    let served = match server {
        Server::Docker(args) => runtime.block_on(gavel_mcp_docker::run(args)),
        Server::Files(args) => runtime.block_on(gavel_mcp_files::run(args)),
        Server::Github(args) => runtime.block_on(gavel_mcp_github::run(args)),
        Server::Google(args) => runtime.block_on(gavel_mcp_google::run(*args)),
        Server::Shell(args) => runtime.block_on(gavel_mcp_shell::run(args, app::shell_launcher())),
        // It has become the command.
        Server::ShellLaunch(_) => Ok(()),
        Server::Tasks(args) => runtime.block_on(gavel_mcp_tasks::run(args)),
        Server::Web(args) => runtime.block_on(gavel_mcp_web::run(*args)),
    };
    runtime.shutdown_timeout(super::LAST_TASKS);
    telemetry.finish();
    served.map(|()| Exit::Done)
}
