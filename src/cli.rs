//! The command line: a file for each group of commands. A command writes answers to standard output and everything else
//! to standard error, and ends with an [`Exit`].

mod agents;
mod approvals;
mod audit;
mod calls;
mod chat;
mod client;
mod config;
mod decisions;
mod doctor;
mod eval;
mod exit;
mod export;
mod gavel;
mod google;
mod help;
mod interrupt;
mod lines;
mod list;
mod logs;
mod manual;
mod mcp;
mod mcp_server;
mod migrate;
mod output;
mod plan;
mod policy;
mod prices;
mod reference;
mod runs;
mod serve;
mod stats;
mod stopping;
mod threads;
mod why;

use std::pin::Pin;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::{FromArgMatches, Parser, Subcommand};

use self::exit::Exit;
use self::gavel::{At, Talk, Where};
use self::logs::Voice;
use crate::config::{Config, Flags, Resolved};
use crate::telemetry::Telemetry;

/// A group of commands that talk to a gavel: a line for each, with its help, its options, and those for the place if they
/// are not the usual ones.
macro_rules! commands {
    ($(#[$doc:meta])* Command { $($(#[$help:meta])* $name:ident($($options:ty),+),)+ }) => {
        $(#[$doc])*
        #[derive(Debug, clap::Subcommand)]
        pub(super) enum Command {
            $($(#[$help])* $name($crate::cli::gavel::At<$($options),+>),)+
        }

        impl Command {
            pub(super) fn run(&self, flags: &$crate::config::Flags) -> anyhow::Result<$crate::cli::exit::Exit> {
                match self {
                    $(Self::$name(at) => $crate::cli::talk(at, flags),)+
                }
            }
        }
    };
}
pub(crate) use commands;

/// Commands that show what is under a path, as text or as JSON: the options of each, with the help of the id; the path,
/// and how it is shown.
macro_rules! shows {
    ($($(#[$doc:meta])+ $name:ident($help:literal $id:ty) = $path:literal, $text:path;)+) => {
        $($(#[$doc])+
        #[derive(Debug, clap::Args)]
        pub(super) struct $name {
            #[doc = $help]
            id: $id,
            /// As JSON
            #[arg(long)]
            json: bool,
        }

        impl $crate::cli::gavel::Talk for $name {
            async fn talk(&self, gavel: &$crate::cli::gavel::Gavel) -> anyhow::Result<$crate::cli::exit::Exit> {
                $crate::cli::output::answer(self.json, &gavel.get(&format!($path, self.id)).await?, $text)
            }
        })+
    };
}
pub(crate) use shows;

/// How long the end of the process waits for its last tasks. A read from a terminal cannot be interrupted, so the wait
/// is short.
const LAST_TASKS: Duration = Duration::from_millis(200);

/// Runs AI agents whose actions require approval, and records what was done, by whom, and with whose approval.
#[derive(Debug, Parser)]
#[command(name = "gavel", version, max_term_width = 100, after_long_help = EXAMPLES)]
struct Cli {
    #[command(flatten)]
    flags: Flags,
    #[command(subcommand)]
    command: Option<Command>,
}

const EXAMPLES: &str = "\
Examples:
  gavel                                     serve on 127.0.0.1:8080 (the same as gavel serve)
  gavel chat \"add a task to call mom\"       make one decision, without a server
  gavel agents run NAME \"what to do\"        run an agent and show its progress
  gavel approvals list                      show the actions that wait for approval
  gavel policy test --policy FILE           run the tests of a policy file
  gavel audit verify                        check that the audit log is intact
  gavel doctor                              check that everything is in place
  gavel config                              show every setting and where its value came from
  GEMINI_API_KEY_FILE=key gavel serve       use Gemini instead of the demo model

Exit statuses: gavel help exit-codes";

/// The commands by purpose, in the order of the help: what each does, and its options or its own commands.
macro_rules! groups {
    ($($group:literal { $($(#[$help:meta])+ $name:ident $(($options:ty))?,)+ })+) => {
        #[derive(Debug, Subcommand)]
        enum Command { $($($(#[$help])+ $name $(($options))?,)+)+ }

        /// The group of each command, in their order.
        const GROUPS: &[&str] = &[$($((stringify!($name), $group).1,)+)+];
    };
}

groups! {
    "Run" {
        /// Serve the HTTP API (the default command)
        Serve,
        /// Request a decision on a message; without a message, start a conversation
        Chat(At<chat::Args, chat::Place>),
        /// Run agents; check, list, show and convert their definitions
        #[command(subcommand)]
        Agents(agents::Command),
        /// Make, change and show plans for a goal in a GitHub repository
        #[command(subcommand)]
        Plan(plan::Command),
    }
    "Approve" {
        /// Resolve approval requests, settle in-doubt actions, list and revoke grants
        #[command(subcommand)]
        Approvals(approvals::Command),
        /// Check a call against the policy, test the policy, or simulate it on past calls
        #[command(subcommand)]
        Policy(policy::Command),
    }
    "Inspect" {
        /// List, show, watch, cancel and resume runs of agents
        #[command(subcommand)]
        Runs(runs::Command),
        /// List and show users' threads with agents
        #[command(subcommand)]
        Threads(threads::Command),
        /// Read the decision log
        #[command(subcommand)]
        Decisions(decisions::Command),
        /// Read the tool-call log
        #[command(subcommand)]
        Calls(calls::Command),
        /// List what models cost, and check that nothing is missing
        #[command(subcommand)]
        Prices(prices::Command),
        /// Count decisions and tool calls: outcomes, durations, tools, cost, models
        #[command(subcommand)]
        Stats(stats::Command),
        /// Export all rows of a log as CSV, NDJSON or Parquet
        Export(At<export::Args>),
        /// Verify, export and list the audit log
        #[command(subcommand)]
        Audit(audit::Command),
    }
    "Operate" {
        /// Check configuration, address, database, constitution, MCP servers, agents and model
        Doctor(DoctorArgs),
        /// Show the effective settings and where each came from
        Config(config::Args),
        /// Migrate the database to this version's schema
        Migrate(migrate::Args),
        /// Inspect MCP servers and their tools; call a tool directly
        #[command(subcommand)]
        Mcp(mcp::Command),
        /// Start one of the MCP servers that come with gavel
        #[command(subcommand)]
        McpServer(mcp_server::Server),
        /// Connect, list and disconnect users' Google accounts
        #[command(subcommand)]
        Google(google::Command),
        /// Run the evaluation cases against the model and report how well it decides
        Eval(gavel_eval::chat::Args),
        /// Print the completion script for a shell
        Completion(manual::Completion),
        /// Print the manual page, or write the pages of all commands to a directory
        Man(manual::Args),
    }
    "Hidden" {
        /// A page of the help: what each exit status means
        #[command(hide = true)]
        ExitCodes,
        /// Print a page of the documentation about the command line
        #[command(hide = true)]
        Reference(reference::Args),
    }
}

/// Options of `doctor`.
#[derive(Debug, clap::Args)]
struct DoctorArgs {
    /// Only check whether the service with this configuration is alive (for health checks)
    #[arg(long)]
    live: bool,
}

/// Runs the process: what `main` returns.
pub fn main() -> ExitCode {
    let parsed = help::command()
        .try_get_matches()
        .and_then(|matches| Cli::from_arg_matches(&matches));
    let cli = match parsed {
        Ok(cli) => cli,
        // An error repeats arguments, so it is printed as all text of others, and without colors.
        Err(error) if error.use_stderr() => {
            output::note(error.render().to_string().trim_end());
            return ExitCode::from(2);
        }
        Err(help) => help.exit(),
    };
    // Before there are threads: it restricts this process, and becomes the command.
    if let Some(Command::McpServer(mcp_server::Server::ShellLaunch(launch))) = cli.command {
        return gavel_mcp_shell::launch(launch);
    }
    // Fails only when a provider is already installed, and that is the same one.
    let _ = rustls::crypto::ring::default_provider().install_default();
    exit::code(run(cli))
}

fn run(cli: Cli) -> anyhow::Result<Exit> {
    let flags = &cli.flags;
    match cli.command.unwrap_or(Command::Serve) {
        // These need no configuration, or report its errors.
        Command::McpServer(server) => mcp_server::run(server),
        Command::Completion(args) => manual::completion(&args),
        Command::Man(args) => manual::run(&args),
        Command::ExitCodes => output::line(&exit::table()).map(|()| Exit::Done),
        Command::Config(args) => config::run(args, flags),
        Command::Reference(args) => reference::run(&args),
        // These query the MCP servers; the other commands of `agents` only read files.
        Command::Agents(agents::Command::List(args)) => configured(flags, |resolved| agents::list(args, resolved)),
        Command::Agents(agents::Command::Eval(args)) => configured(flags, |resolved| eval::agents(args, resolved)),
        Command::Agents(agents::Command::Validate(args)) if args.tools => {
            configured(flags, |resolved| agents::validate_with_tools(args, resolved))
        }
        Command::Agents(agents::Command::Run(args)) => talk(&args, flags),
        Command::Agents(command) => agents::run(command, flags),
        Command::Runs(command) => command.run(flags),
        Command::Plan(command) => command.run(flags),
        Command::Approvals(command) => command.run(flags),
        Command::Threads(command) => command.run(flags),
        Command::Chat(args) => talk(&args, flags),
        Command::Decisions(command) => command.run(flags),
        Command::Calls(command) => command.run(flags),
        Command::Stats(command) => command.run(flags),
        Command::Export(args) => talk(&args, flags),
        Command::Doctor(DoctorArgs { live: true }) => configured(flags, doctor::live),
        Command::Doctor(_) => match Config::load(flags) {
            Ok(resolved) => with_config(resolved, Voice::None, doctor::run),
            Err(errors) => doctor::refused(&errors),
        },
        Command::Serve => with_config(Config::load(flags)?, Voice::Service, serve::run),
        Command::Mcp(command) => configured(flags, |resolved| mcp::run(command, resolved)),
        Command::Google(command) => configured(flags, |resolved| google::run(command, resolved)),
        Command::Audit(command) => configured(flags, |resolved| audit::run(command, resolved)),
        Command::Prices(command) => configured(flags, |resolved| prices::run(command, resolved)),
        Command::Policy(command) => configured(flags, |resolved| policy::run(command, resolved)),
        Command::Eval(args) => configured(flags, |resolved| eval::chat(args, resolved)),
        Command::Migrate(args) => configured(flags, |resolved| migrate::run(args, resolved)),
    }
}

/// Runs a command that talks to a gavel: a remote one, or with a configuration a service of its own.
fn talk<C, P>(at: &At<C, P>, flags: &Flags) -> anyhow::Result<Exit>
where
    C: Talk + clap::Args,
    P: Into<Where> + Clone + clap::Args,
{
    let (command, place) = (&at.command, at.place.clone().into());
    if place.server.is_some() {
        return with_runtime(None, Box::pin(gavel::run(command, place, None)));
    }
    configured(flags, |resolved| gavel::run(command, place, Some(resolved.config)))
}

/// Runs a command under the configuration of this process.
fn configured<F>(flags: &Flags, command: impl FnOnce(Resolved) -> F) -> anyhow::Result<Exit>
where
    F: Future<Output = anyhow::Result<Exit>>,
{
    with_config(Config::load(flags)?, Voice::Trouble, command)
}

/// Runs a command under a configuration, with that configuration's logs and traces.
fn with_config<F>(resolved: Resolved, voice: Voice, command: impl FnOnce(Resolved) -> F) -> anyhow::Result<Exit>
where
    F: Future<Output = anyhow::Result<Exit>>,
{
    let settings = logs::settings(&resolved, voice);
    let warnings = resolved.warnings.clone();
    let work = async {
        for warning in warnings {
            tracing::warn!("{warning}");
        }
        command(resolved).await
    };
    with_runtime(Some(settings), Box::pin(work))
}

/// `work` is boxed, so that the loop of the runtime is compiled once and not for each command.
fn with_runtime(
    logs: Option<logs::Settings>,
    work: Pin<Box<dyn Future<Output = anyhow::Result<Exit>> + '_>>,
) -> anyhow::Result<Exit> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("the runtime cannot be started")?;
    let telemetry = {
        let _entered = runtime.enter();
        let logs = logs.unwrap_or_default();
        Telemetry::start(&logs.filter, logs.format, logs.collector)?
    };
    let exit = runtime.block_on(work);
    telemetry.finish();
    runtime.shutdown_timeout(LAST_TASKS);
    exit
}

#[cfg(test)]
mod tests {
    pub(super) mod samples;

    use super::*;

    /// Doc comments become texts for users, who do not know the requirements.
    #[test]
    fn neither_a_help_nor_the_api_description_names_a_requirement_or_a_design_section() {
        fn helps(command: &mut clap::Command, into: &mut Vec<(String, String)>) {
            into.push((command.get_name().to_owned(), command.render_long_help().to_string()));
            command.get_subcommands_mut().for_each(|inner| helps(inner, into));
        }
        let mut texts = Vec::new();
        let mut command = help::complete();
        command.build();
        helps(&mut command, &mut texts);
        let openapi = crate::http::document().to_pretty_json().expect("it prints as JSON");
        let schema =
            serde_json::to_string_pretty(&crate::domain::definition::json_schema()).expect("it prints as JSON");
        texts.extend([
            ("openapi.json".to_owned(), openapi),
            ("agent.schema.json".to_owned(), schema),
            ("gavel config --reference".to_owned(), crate::config::reference()),
        ]);
        let internal = regex::Regex::new(
            r"\b[CDPRX]-(?:(?:FR|SC|EC)-[0-9]+|US[0-9]|[0-9]{1,2}\b)|DESIGN|REQUIREMENTS|\b[Ss]ections? [0-9]",
        );
        let internal = internal.expect("it is a pattern");
        for (name, text) in texts {
            let found: Vec<_> = text.lines().filter(|line| internal.is_match(line)).collect();
            assert!(found.is_empty(), "{name}: {found:#?}");
        }
    }
}
