//! The command line. One file a verb; each writes answers to standard output and everything else to standard
//! error, and ends with an [`Exit`].

mod agents;
mod approvals;
mod audit;
mod chat;
mod client;
mod config;
mod decisions;
mod doctor;
mod eval;
mod exit;
mod google;
mod interrupt;
mod lines;
mod live;
mod logs;
mod mcp;
mod mcp_server;
mod migrate;
mod new_key;
mod operator;
mod output;
mod policy;
mod runs;
mod serve;
mod since;
mod stopping;
mod table;
mod threads;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::{Parser, Subcommand};

use self::exit::Exit;
use self::logs::Voice;
use crate::config::{Config, Flags, Resolved};
use crate::telemetry::Telemetry;

/// A read of a terminal cannot be interrupted, so the end of the process does not wait for one.
const LAST_TASKS: Duration = Duration::from_millis(200);

/// Turns chat messages into typed, logged decisions: Gemini under a constitution, tools over MCP.
#[derive(Debug, Parser)]
#[command(name = "gavel", version, max_term_width = 100, after_help = EXAMPLES, after_long_help = EXAMPLES)]
struct Cli {
    #[command(flatten)]
    flags: Flags,
    #[command(subcommand)]
    verb: Option<Verb>,
}

const EXAMPLES: &str = "\
Examples:
  gavel                                     serve on 127.0.0.1:8080 (the same as gavel serve)
  gavel chat \"add a task to call mom\"       one decision, without a server
  gavel agents run NAME \"what to do\"        one run of an agent, with its progress
  gavel doctor                              is everything in place?
  gavel config                              every setting, and where its value came from
  GEMINI_API_KEY_FILE=key gavel serve       with Gemini instead of the demo model

Exit status: 0 done, 1 failed, 2 wrong usage or configuration, 130 interrupted. \
Who follows a run of an agent also gets 3 for one that failed, 4 for one that was cancelled, 5 for \
one that is paused, and 6 for one that waits for a person. gavel policy check ends with 3 where a person \
must agree, and with 4 for a denial; gavel audit verify with 3 where the audit is not whole.";

#[derive(Debug, Subcommand)]
enum Verb {
    /// Serve the HTTP API (what gavel does when no verb is given)
    Serve,
    /// Ask for a decision: one with a message, a conversation without
    Chat(chat::Args),
    /// Run agents; check, list, show and convert their definitions
    #[command(subcommand)]
    Agents(agents::Verb),
    /// Look at the runs of agents; watch, cancel and resume them
    #[command(subcommand)]
    Runs(runs::Verb),
    /// Answer what waits for a person's leave: approve, reject, settle; see and take back leave for good
    #[command(subcommand)]
    Approvals(approvals::Verb),
    /// Look at the threads that people have with agents
    #[command(subcommand)]
    Threads(threads::Verb),
    /// Look at MCP servers and their tools, and call one by hand
    #[command(subcommand)]
    Mcp(mcp::Verb),
    /// Start one of the MCP servers that come with gavel
    #[command(subcommand)]
    McpServer(mcp_server::Server),
    /// Connect users' Google accounts, list and disconnect them
    #[command(subcommand)]
    Google(google::Verb),
    /// Read the record of decisions
    #[command(subcommand)]
    Decisions(decisions::Verb),
    /// Verify, export and list the audit of what was done
    #[command(subcommand)]
    Audit(audit::Verb),
    /// Ask the policy about a call, run its tests, or see what it would have said of the past
    #[command(subcommand)]
    Policy(policy::Verb),
    /// Run the evaluation cases against the model and report how it decides
    Eval(eval::Args),
    /// Bring the database to this version's schema
    Migrate(migrate::Args),
    /// Show the settings in effect and where each came from
    Config(config::Args),
    /// Check configuration, address, database, constitution, MCP servers, agents and model
    Doctor(DoctorArgs),
}

/// Options of `doctor`.
#[derive(Debug, clap::Args)]
struct DoctorArgs {
    /// Only ask the service that runs under this configuration whether it is alive (for health checks)
    #[arg(long)]
    live: bool,
}

/// Runs the process: what `main` returns.
#[must_use]
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    // Fails only when a provider is installed already, which is then the same one.
    let _ = rustls::crypto::ring::default_provider().install_default();
    exit::code(run(cli))
}

fn run(cli: Cli) -> anyhow::Result<Exit> {
    match cli.verb.unwrap_or(Verb::Serve) {
        // These need no configuration, or are asked what is wrong with it.
        Verb::McpServer(server) => mcp_server::run(server),
        Verb::Config(args) => config::run(args, &cli.flags),
        // These ask the MCP servers; the others look at files alone.
        Verb::Agents(agents::Verb::List(args)) => with_config(Config::load(&cli.flags)?, Voice::Trouble, |resolved| {
            agents::list(args, resolved)
        }),
        Verb::Agents(agents::Verb::Eval(args)) => with_config(Config::load(&cli.flags)?, Voice::Trouble, |resolved| {
            agents::eval(args, resolved)
        }),
        Verb::Agents(agents::Verb::Validate(args)) if args.tools => {
            with_config(Config::load(&cli.flags)?, Voice::Trouble, |resolved| {
                agents::validate_with_tools(args, resolved)
            })
        }
        Verb::Agents(agents::Verb::Run(args)) if args.is_remote() => with_runtime(None, agents::start(args, None)),
        Verb::Agents(agents::Verb::Run(args)) => with_config(Config::load(&cli.flags)?, Voice::Trouble, |resolved| {
            agents::start(args, Some(resolved))
        }),
        Verb::Agents(verb) => agents::run(verb, &cli.flags),
        Verb::Runs(verb) if verb.is_remote() => with_runtime(None, runs::run(verb, None)),
        Verb::Runs(verb) => with_config(Config::load(&cli.flags)?, Voice::Trouble, |resolved| {
            runs::run(verb, Some(resolved))
        }),
        Verb::Approvals(verb) if verb.is_remote() => with_runtime(None, approvals::run(verb, None)),
        Verb::Approvals(verb) => with_config(Config::load(&cli.flags)?, Voice::Trouble, |resolved| {
            approvals::run(verb, Some(resolved))
        }),
        Verb::Threads(verb) if verb.is_remote() => with_runtime(None, threads::run(verb, None)),
        Verb::Threads(verb) => with_config(Config::load(&cli.flags)?, Voice::Trouble, |resolved| {
            threads::run(verb, Some(resolved))
        }),
        Verb::Chat(args) if args.server.is_some() => with_runtime(None, chat::run_remote(args)),
        Verb::Doctor(DoctorArgs { live: true }) => with_config(Config::load(&cli.flags)?, Voice::Trouble, live::run),
        Verb::Doctor(_) => match Config::load(&cli.flags) {
            Ok(resolved) => with_config(resolved, Voice::None, doctor::run),
            Err(errors) => doctor::refused(&errors),
        },
        Verb::Serve => with_config(Config::load(&cli.flags)?, Voice::Service, serve::run),
        Verb::Chat(args) => with_config(Config::load(&cli.flags)?, Voice::Trouble, |resolved| {
            chat::run(args, resolved)
        }),
        Verb::Mcp(verb) => with_config(Config::load(&cli.flags)?, Voice::Trouble, |resolved| {
            mcp::run(verb, resolved)
        }),
        Verb::Google(verb) => with_config(Config::load(&cli.flags)?, Voice::Trouble, |resolved| {
            google::run(verb, resolved)
        }),
        Verb::Decisions(verb) => with_config(Config::load(&cli.flags)?, Voice::Trouble, |resolved| {
            decisions::run(verb, resolved)
        }),
        Verb::Audit(verb) => with_config(Config::load(&cli.flags)?, Voice::Trouble, |resolved| {
            audit::run(verb, resolved)
        }),
        Verb::Policy(verb) => with_config(Config::load(&cli.flags)?, Voice::Trouble, |resolved| {
            policy::run(verb, resolved)
        }),
        Verb::Eval(args) => with_config(Config::load(&cli.flags)?, Voice::Trouble, |resolved| {
            eval::run(args, resolved)
        }),
        Verb::Migrate(args) => with_config(Config::load(&cli.flags)?, Voice::Trouble, |resolved| {
            migrate::run(args, resolved)
        }),
    }
}

/// Runs a verb under a configuration, with logs and traces as that says.
fn with_config<F>(resolved: Resolved, voice: Voice, verb: impl FnOnce(Resolved) -> F) -> anyhow::Result<Exit>
where
    F: Future<Output = anyhow::Result<Exit>>,
{
    let settings = logs::settings(&resolved, voice);
    let warnings = resolved.warnings.clone();
    with_runtime(Some(settings), async {
        for warning in warnings {
            tracing::warn!("{warning}");
        }
        verb(resolved).await
    })
}

fn with_runtime(
    logs: Option<logs::Settings>,
    work: impl Future<Output = anyhow::Result<Exit>>,
) -> anyhow::Result<Exit> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("the runtime cannot be started")?;
    let telemetry = {
        let _entered = runtime.enter();
        let logs = logs.unwrap_or_default();
        Telemetry::start(&logs.filter, logs.lines, logs.collector)?
    };
    let exit = runtime.block_on(work);
    telemetry.finish();
    runtime.shutdown_timeout(LAST_TASKS);
    exit
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_contradicts_itself_nowhere() {
        Cli::command().debug_assert();
    }

    /// Prose is one line, which is broken where the terminal ends; examples fit into the help's width.
    #[test]
    fn the_words_under_a_help_are_broken_once() {
        fn look(command: &clap::Command) {
            for text in [command.get_after_help(), command.get_after_long_help()]
                .into_iter()
                .flatten()
            {
                let text = text.to_string();
                let lines: Vec<_> = text.lines().collect();
                let is_prose = |line: &str| !line.is_empty() && !line.starts_with(' ');
                for pair in lines.windows(2) {
                    let is_broken = is_prose(pair[0]) && is_prose(pair[1]) && !pair[0].ends_with(':');
                    assert!(!is_broken, "{}: {}", command.get_name(), pair[0]);
                }
                for line in lines.iter().filter(|line| line.starts_with(' ')) {
                    assert!(line.chars().count() <= 120, "{}: {line}", command.get_name());
                }
            }
            command.get_subcommands().for_each(look);
        }
        look(&Cli::command());
    }

    /// What is made of doc comments is read by people who know no requirements.
    #[test]
    fn neither_a_help_nor_the_api_description_names_a_requirement_or_a_design_section() {
        fn helps(command: &mut clap::Command, into: &mut Vec<(String, String)>) {
            into.push((command.get_name().to_owned(), command.render_long_help().to_string()));
            command.get_subcommands_mut().for_each(|inner| helps(inner, into));
        }
        let mut texts = Vec::new();
        let mut command = Cli::command();
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
