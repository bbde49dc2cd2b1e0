//! The measurements, in this order: start, low load, saturation, runs, many at once, memory, steps, analysts.

mod analysts;
mod low;
mod many;
mod memory;
mod rig;
mod runs;
mod saturation;
mod start;
mod steps;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::ValueEnum;
use tokio_util::task::TaskTracker;

use crate::contender::Setting;
use crate::machine::{Machine, raise_descriptors};
use crate::report::Report;
use crate::stand_ins::StandIns;
use rig::Rig;

/// Options of `run`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The gavel binary, built with --profile dist
    #[arg(long, env = "GAVEL_BIN", default_value = "target/dist/gavel")]
    gavel: PathBuf,
    /// Gavel's built-in constitution; the bare server sends the same
    #[arg(long, default_value = "constitution.md")]
    prompt: PathBuf,
    /// How often each phase is measured, gavel and the bare server in turns; medians count
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=9))]
    passes: u8,
    /// Number of decisions in the log that analysts query
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1_000..=5_000_000))]
    decisions: u32,
    /// A new PostgreSQL database, on which steps are measured too: postgres://…
    #[arg(long, env = "BENCH_POSTGRES", hide_env_values = true)]
    postgres: Option<String>,
    /// Measure only these phases
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Phase>,
    /// One short pass of each phase: shows that it works, the figures mean little
    #[arg(long)]
    quick: bool,
    /// Print JSON instead of the table
    #[arg(long)]
    json: bool,
}

/// One measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Phase {
    /// From the start of the process to the first valid response, on an empty database
    Start,
    /// One connection, 50 ms per model call: the time added to that of the model
    Low,
    /// 64 connections, 0 ms per model call: throughput, CPU time
    Saturation,
    /// 64 connections, 0 ms per model call: runs of an agent beside chat decisions
    Runs,
    /// 256 connections, 300 ms per model call: the slowest responses
    Many,
    /// Idle, and with 1,000 requests in flight
    Memory,
    /// Steps of planning sessions, one after another: the time added to model and tool, commits
    Steps,
    /// The first page of filtered lists over a large decision log
    Analysts,
}

/// The duration of each phase.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    pub(crate) passes: u8,
    pub(crate) starts: u8,
    /// Requests of the low-load phase in a pass.
    pub(crate) singles: u64,
    /// The duration of a pass at saturation or with many at once.
    pub(crate) window: Duration,
    pub(crate) decisions: u32,
    /// Steps of a planning session, and sessions of a pass.
    pub(crate) steps: u64,
    pub(crate) sessions: u32,
}

impl Pace {
    fn of(args: &Args) -> Self {
        let full = Self {
            passes: args.passes,
            starts: 5,
            singles: 200,
            window: Duration::from_secs(5),
            decisions: args.decisions,
            steps: 60,
            sessions: 3,
        };
        if !args.quick {
            return full;
        }
        Self {
            passes: 1,
            starts: 1,
            singles: 20,
            window: Duration::from_secs(1),
            decisions: args.decisions.min(20_000),
            steps: 10,
            sessions: 1,
        }
    }
}

#[tokio::main]
pub(crate) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    ensure!(
        !cfg!(debug_assertions),
        "this is a debug build, whose figures mean nothing: build with --profile dist"
    );
    let directory = tempfile::Builder::new().prefix("gavel-bench-").tempdir()?;
    let setting = Setting {
        gavel: args
            .gavel
            .canonicalize()
            .with_context(|| format!("{} (--gavel) is not there", args.gavel.display()))?,
        prompt: args
            .prompt
            .canonicalize()
            .with_context(|| format!("{} (--prompt) is not there", args.prompt.display()))?,
        directory: directory.path().to_owned(),
        postgres: args.postgres.clone(),
    };
    let machine = Machine::look();
    raise_descriptors()?;
    let tasks = TaskTracker::new();
    let mut rig = Rig {
        setting,
        upstream: StandIns::start(&tasks)?,
        pace: Pace::of(&args),
        report: Report::new(machine, args.quick),
    };
    measure(&args.only, &mut rig).await?;
    let Rig { upstream, report, .. } = rig;
    drop(upstream);
    tasks.close();
    tasks.wait().await;
    if args.json {
        println!("{}", serde_json::to_string_pretty(&report.json())?);
    } else {
        print!("{report}");
    }
    Ok(match (report.works(), report.all_met()) {
        (false, _) => ExitCode::FAILURE,
        (true, false) => ExitCode::from(3),
        (true, true) => ExitCode::SUCCESS,
    })
}

async fn measure(only: &[Phase], rig: &mut Rig) -> anyhow::Result<()> {
    let wanted = |phase| only.is_empty() || only.contains(&phase);
    if wanted(Phase::Start) {
        start::measure(rig).await?;
    }
    if [Phase::Low, Phase::Saturation, Phase::Runs, Phase::Many, Phase::Memory]
        .into_iter()
        .any(wanted)
    {
        let mut both = rig.start_both().await?;
        if wanted(Phase::Memory) {
            memory::idle(rig, &both).await?;
        }
        if wanted(Phase::Low) {
            low::measure(rig, &mut both).await?;
        }
        if wanted(Phase::Saturation) {
            saturation::measure(rig, &mut both).await?;
        }
        if wanted(Phase::Runs) {
            let [gavel, _] = &mut both;
            runs::measure(rig, gavel).await?;
        }
        if wanted(Phase::Many) {
            many::measure(rig, &mut both).await?;
        }
        if wanted(Phase::Memory) {
            memory::in_flight(rig, &mut both).await?;
        }
        rig.stop_both(both).await?;
    }
    if wanted(Phase::Steps) {
        steps::measure(rig).await?;
    }
    if wanted(Phase::Analysts) {
        analysts::measure(rig).await?;
    }
    Ok(())
}
