//! The options of `gavel eval`, and what the command does with a running gavel.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use clap::builder::PossibleValuesParser;
use uuid::Uuid;

use super::api::Chat;
use super::case::{Case, Kind};
use super::report::{Exit, Gate, Report, STAND_INS};
use super::runner::{self, Options, Progress};
use super::{load, render};
use crate::{Gavel, bar};

/// Options of `gavel eval`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Args {
    /// Directory of cases, or one file
    #[arg(default_value = "evaluation", value_name = "DIR")]
    cases: PathBuf,
    /// Only cases of this kind (repeatable)
    #[arg(long = "kind", value_name = "KIND", value_parser = PossibleValuesParser::new(Kind::NAMES.map(|(name, _)| name)))]
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
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(STAND_INS))]
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

impl Args {
    /// The stand-in for the model and its seed, if one is wanted.
    pub fn stand_in(&self) -> Option<(&str, u64)> {
        Some((self.model_kind.as_deref()?, self.seed))
    }

    /// The wanted cases; they may expect these outcomes.
    ///
    /// # Errors
    /// The cases are invalid, or none is wanted: a message for the user.
    pub fn read(&self, outcomes: &[&str]) -> Result<Vec<Case>, String> {
        let cases = load(&self.cases, outcomes).map_err(|errors| {
            let lines: Vec<_> = errors.iter().map(ToString::to_string).collect();
            format!("the cases are invalid:\n  {}", lines.join("\n  "))
        })?;
        if let Some(unknown) = self.ids.iter().find(|id| !cases.iter().any(|case| case.id == **id)) {
            return Err(format!("there is no case {unknown:?}"));
        }
        let wanted = |case: &Case| {
            (self.kinds.is_empty() || self.kinds.iter().any(|kind| kind == case.kind.as_str()))
                && (self.ids.is_empty() || self.ids.contains(&case.id))
        };
        let cases: Vec<_> = cases.into_iter().filter(wanted).collect();
        if cases.is_empty() {
            return Err("no case has the requested kinds and ids".to_owned());
        }
        Ok(cases)
    }

    /// Runs the cases on a gavel whose constitution has this tool allowlist.
    pub async fn evaluate(&self, cases: &[Case], gavel: &dyn Gavel, allowlist: &[String]) -> Report {
        let options = Options {
            concurrency: usize::from(self.concurrency),
            run_id: format!("eval-{}", Uuid::now_v7()),
            case_timeout: CASE_TIMEOUT,
        };
        let bar = bar(cases.len());
        let progress = |progress: Progress<'_>| {
            bar.set_position(u64::try_from(progress.done).unwrap_or(u64::MAX));
            if !progress.result.succeeded() {
                bar.set_message(format!("last not as expected: {}", progress.result.id));
            }
        };
        let mut report = runner::run(cases, &Chat { gavel, allowlist }, &options, &progress).await;
        bar.finish_and_clear();
        report.threshold = self.fail_under;
        report
    }

    /// Prints the report, then writes the wanted files.
    ///
    /// # Errors
    /// Those of `print`; a file cannot be written.
    pub fn write(&self, report: &Report, print: impl FnOnce(&str) -> anyhow::Result<()>) -> anyhow::Result<()> {
        let file = self.json.as_deref().filter(|path| *path != Path::new("-"));
        match self.json.is_some() && file.is_none() {
            true => print(&render::json(report)?)?,
            false => print(&render::table(report))?,
        }
        if let Some(path) = file {
            save(path, &render::json(report)?)?;
        }
        match &self.junit {
            Some(path) => save(path, &render::junit(report)),
            None => Ok(()),
        }
    }

    /// What is not met, if anything is.
    pub fn unmet(&self, report: &Report) -> Option<String> {
        let misbehaves = self.model_kind.as_deref().is_some_and(|name| name != STAND_INS[0]);
        let gate = match self.invariants_only || misbehaves {
            true => Gate::Invariants,
            false => Gate::Quality,
        };
        match report.exit(gate) {
            Exit::Met => None,
            Exit::BelowThreshold => Some(report.clear_requests_in_words()),
            Exit::InvariantBroken => Some("an invariant is broken".to_owned()),
            Exit::NotRun => Some("not every case could be run".to_owned()),
        }
    }
}

fn save(path: &Path, text: &str) -> anyhow::Result<()> {
    std::fs::write(path, text).with_context(|| format!("{} cannot be written", path.display()))
}
