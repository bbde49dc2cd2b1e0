//! Measures gavel beside a bare server that does the same raw I/O and nothing else.
//!
//! Both are child processes. Their model and MCP server are scripted stand-ins in this process, which also generates
//! the load. Machines differ, so most targets are ratios of the two, measured in turns in one run. Everything listens
//! on and connects to 127.0.0.1 only, and is bounded in time and count.
//!
//! - [`stand_ins`]: the model and the MCP server.
//! - [`bare`]: the bare server (a command of this binary).
//! - [`contender`]: how gavel and the bare server are started, and which replies are valid.
//! - [`load`]: the closed loop that checks every reply.
//! - [`phases`]: the measurements.
//! - [`report`]: targets, table, JSON.
#![allow(clippy::print_stdout, reason = "the report is what this program prints")]

mod bare;
mod client;
mod contender;
mod load;
mod loopback;
mod machine;
mod phases;
mod precise;
mod process;
mod report;
mod seed;
mod serve;
mod stand_ins;
mod stats;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(version, about, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Measure gavel and the bare server, and print a table with the targets
    ///
    /// Exit code: 0 all targets met, 1 an error occurred, 2 invalid usage, 3 a target was missed.
    Run(phases::Args),
    /// The bare server (started by `run`)
    #[command(hide = true)]
    Bare(bare::Args),
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().verb {
        Verb::Run(args) => phases::run(args),
        Verb::Bare(args) => bare::run(args).map(|()| ExitCode::SUCCESS),
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("gavel-bench: {error:#}");
        ExitCode::FAILURE
    })
}
