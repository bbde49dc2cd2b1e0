//! `gavel eval`: how often the model decides as expected, and whether gavel's promises hold whatever the model says.

mod scratch;
mod subject;
mod tasks;

pub(super) use self::tasks::Tasks;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use indicatif::{ProgressBar, ProgressStyle};

pub(super) use self::scratch::Scratch;
use self::subject::ChatSubject;
use super::exit::{Exit as Ended, Usage};
use super::interrupt::unless_stopped;
use super::{mcp, output};
use crate::adapters::demo::ModelKind;
use crate::app::App;
use crate::config::Resolved;
use crate::domain::ids::DecisionId;
use crate::evaluation::{self, Case, Exit, Gate, Kind, Options, Report, render};

/// Options of `gavel eval`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct Args {
    /// Directory of cases, or one file
    #[arg(default_value = "evaluation", value_name = "DIR")]
    cases: PathBuf,
    /// Only cases of this kind (repeatable)
    #[arg(long = "kind", value_name = "KIND", value_parser = clap::builder::PossibleValuesParser::new(Kind::NAMES.map(|(name, _)| name)))]
    kinds: Vec<String>,
    /// Only the case with this id (repeatable)
    #[arg(long = "case", value_name = "ID")]
    ids: Vec<String>,
    /// Cases to run at once
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=256), value_name = "N")]
    concurrency: u16,
    /// The least share of clear requests that must succeed, 0 to 1
    #[arg(long, default_value_t = 0.9, value_parser = share, value_name = "SHARE")]
    fail_under: f64,
    /// Only check that gavel's promises hold whatever the model says; scores do not count
    #[arg(long)]
    invariants_only: bool,
    /// A stand-in instead of the configured model; the misbehaving ones imply --invariants-only
    #[arg(long, value_name = "NAME", value_parser = clap::builder::PossibleValuesParser::new(ModelKind::NAMES.map(|(name, _)| name)))]
    model_kind: Option<String>,
    /// Seed of the randomized stand-ins
    #[arg(long, default_value_t = 1, value_name = "N", requires = "model_kind")]
    seed: u64,
    /// Write the report as JSON (- is standard output)
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the report as JUnit XML
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Tasks and records go to a scratch directory that is removed at the end, and the bundled task server is used. With an \
mcp.json of your own (--mcp-config), its servers are used unchanged, for users named eval-….

Examples:
  gavel eval                                                       the demo model, or Gemini with a key set
  gavel eval --kind clear --kind multi_step --json report.json
  gavel eval --model-kind hostile                                  do gavel's promises hold?

Of the clear requests 9 in 10 must succeed. They are the cases of the kinds clear and multi_step, and those in \
other languages that expect an action or an answer. The demo model does not reach this share.

Exit status: 0 met, 1 too few clear requests succeeded, an invariant is broken, or a case could not be run, 2 the cases \
cannot be read or are invalid.";

/// Longer than the deadline of a decision with its seeds; a hanging case must not block the evaluation.
const CASE_TIMEOUT: Duration = Duration::from_secs(180);

fn share(text: &str) -> Result<f64, String> {
    let share = text.parse::<f64>().ok().filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| "give a number from 0 to 1".to_owned())
}

pub(super) async fn run(args: Args, resolved: Resolved) -> anyhow::Result<Ended> {
    let cases = cases(&args)?;
    let scratch = Scratch::make()?;
    let config = scratch.apply(resolved.config)?;
    let kind = args
        .model_kind
        .as_deref()
        .and_then(|name| ModelKind::NAMES.iter().find(|(known, _)| *known == name));
    let app = match kind {
        Some((_, kind)) => App::build_with(config, kind.make(args.seed)).await?,
        None => App::build_for_command(config).await?,
    };
    let evaluated = unless_stopped(evaluate(&args, &cases, &app)).await;
    app.shutdown(None).await;
    let Some(mut report) = evaluated?.transpose()? else {
        return Ok(Ended::Interrupted);
    };
    report.threshold = args.fail_under;
    write(&args, &report)?;
    let misbehaves = kind.is_some_and(|(_, kind)| *kind != ModelKind::Demo);
    let gate = if args.invariants_only || misbehaves {
        Gate::Invariants
    } else {
        Gate::Quality
    };
    Ok(ended(&report, gate))
}

fn cases(args: &Args) -> Result<Vec<Case>, Usage> {
    let cases = evaluation::load(&args.cases).map_err(|errors| {
        let lines: Vec<_> = errors.iter().map(ToString::to_string).collect();
        Usage(format!("the cases are invalid:\n  {}", lines.join("\n  ")))
    })?;
    if let Some(unknown) = args.ids.iter().find(|id| !cases.iter().any(|case| case.id == **id)) {
        return Err(Usage(format!("there is no case {unknown:?}")));
    }
    let wanted = |case: &Case| {
        (args.kinds.is_empty() || args.kinds.iter().any(|kind| kind == case.kind.as_str()))
            && (args.ids.is_empty() || args.ids.contains(&case.id))
    };
    let cases: Vec<_> = cases.into_iter().filter(wanted).collect();
    if cases.is_empty() {
        return Err(Usage("no case has the requested kinds and ids".to_owned()));
    }
    Ok(cases)
}

async fn evaluate(args: &Args, cases: &[Case], app: &App) -> anyhow::Result<Report> {
    mcp::settled(&app.mcp).await;
    let missing = app.chat.unavailable_tools();
    if let Some(one) = missing.first() {
        bail!("the tool {} is not offered: {}", one.name, one.reason);
    }
    let subject = ChatSubject::new(app)?;
    let options = Options {
        concurrency: usize::from(args.concurrency),
        run_id: format!("eval-{}", DecisionId::new()),
        case_timeout: CASE_TIMEOUT,
    };
    let bar = bar(cases.len());
    let tell = |progress: evaluation::Progress<'_>| {
        bar.set_position(u64::try_from(progress.done).unwrap_or(u64::MAX));
        if !progress.result.succeeded() {
            bar.set_message(format!("last not as expected: {}", progress.result.id));
        }
    };
    let report = evaluation::run(cases, &subject, &options, &tell).await;
    bar.finish_and_clear();
    Ok(report)
}

/// A progress bar on standard error, only if that is a terminal.
pub(super) fn bar(cases: usize) -> ProgressBar {
    let bar = ProgressBar::new(u64::try_from(cases).unwrap_or(u64::MAX));
    let style = ProgressStyle::with_template("{bar:32} {pos}/{len} {elapsed} {wide_msg}");
    if let Ok(style) = style {
        bar.set_style(style);
    }
    bar
}

fn write(args: &Args, report: &Report) -> anyhow::Result<()> {
    let to_stdout = args.json.as_deref() == Some(Path::new("-"));
    if to_stdout {
        output::line(&render::json(report)?)?;
    } else {
        output::line(&render::table(report))?;
    }
    if let Some(path) = args.json.as_deref().filter(|_| !to_stdout) {
        save(path, &render::json(report)?)?;
    }
    if let Some(path) = &args.junit {
        save(path, &render::junit(report))?;
    }
    Ok(())
}

fn save(path: &Path, text: &str) -> anyhow::Result<()> {
    std::fs::write(path, text).with_context(|| format!("{} cannot be written", path.display()))
}

/// 2 means invalid usage for every command, so every unmet gate is 1 here; the message says which gate.
fn ended(report: &Report, gate: Gate) -> Ended {
    let why = match report.exit(gate) {
        Exit::Met => return Ended::Done,
        Exit::BelowThreshold => report.clear_requests_in_words(),
        Exit::InvariantBroken => "an invariant is broken".to_owned(),
        Exit::NotRun => "not every case could be run".to_owned(),
    };
    output::note(&format!("not met: {why}"));
    Ended::Failed
}
