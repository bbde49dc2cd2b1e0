//! `gavel mcp-server`: the servers that come with gavel, so that one binary is enough. This only starts a server's
//! library; the servers share nothing with gavel but the protocol.

use anyhow::Context;

use crate::app;
use crate::cli::exit::Exit;
use crate::config::LogFormat;
use crate::telemetry::Telemetry;

/// The bundled servers: the command, the library, and what it gives; for one that needs more than its options, also that.
macro_rules! servers {
    ($($name:ident, $library:ident $(($more:expr))?, $about:literal;)*) => {
        /// The server to start.
        #[derive(Debug, clap::Subcommand)]
        pub(super) enum Server {
            $(
                #[doc = $about]
                #[command(after_long_help = here($library::Args::EXAMPLES))]
                $name(Box<$library::Args>),
            )*
            /// One command, as the shell server starts it: see `cli::main`
            #[command(hide = true)]
            ShellLaunch(gavel_mcp_shell::Launch),
        }

        async fn serve(server: Server) -> anyhow::Result<()> {
            match server {
                $(Server::$name(args) => $library::run(*args $(, $more)?).await,)*
                // It has become the command.
                Server::ShellLaunch(_) => Ok(()),
            }
        }
    };
}

servers! {
    Docker, gavel_mcp_docker, "Containers in which scripts run, through the API of Docker or Podman";
    Files, gavel_mcp_files, "Read-only access to the files in one directory";
    Github, gavel_mcp_github, "Repositories, files, pull requests and issues at GitHub, with one account for all users";
    Google, gavel_mcp_google, "Gmail and Google Calendar, each user with their own account";
    Shell, gavel_mcp_shell(app::shell_launcher()), "Shell commands in a sandbox";
    Tasks, gavel_mcp_tasks, "Each user's task list, in SQLite or PostgreSQL";
    Web, gavel_mcp_web, "Pages of the public web as text, and a search";
}

/// A server's examples, with the command that starts it here.
fn here(examples: &str) -> String {
    examples.replace("gavel-mcp-", "gavel mcp-server ")
}

pub(super) fn run(server: Server) -> anyhow::Result<Exit> {
    let filter = std::env::var("RUST_LOG").unwrap_or_else(|_| "info,rmcp=warn".to_owned());
    // Standard output belongs to the protocol. A parent process logs these lines, so they are text.
    let telemetry = Telemetry::start(&filter, LogFormat::Text, None)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("the runtime cannot be started")?;
    let served = runtime.block_on(serve(server));
    runtime.shutdown_timeout(super::LAST_TASKS);
    telemetry.finish();
    served.map(|()| Exit::Done)
}
