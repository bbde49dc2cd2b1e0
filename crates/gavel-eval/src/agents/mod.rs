//! `gavel agents eval`: runs agents on their evaluation cases and compares the results.

mod cases;
mod run;
mod session;
mod stage;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use gavel_testing::github::GitHub;
use indicatif::ProgressBar;
use serde_json::json;

pub use self::cases::{AgentCase, AgentCases, CaseResult, Expected, PlanTask, SeedIssue, judge, load};
pub use self::run::REPOSITORIES;
use self::stage::{Observed, Stage};
use crate::{Gavel, Request, bar};

/// Options of `gavel agents eval`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Args {
    /// Only these agents
    // Not `agents`: that is the name of the global flag for the directory of definitions.
    #[arg(value_name = "AGENT")]
    only: Vec<String>,
    /// Directory of cases
    #[arg(long, default_value = "evaluation/agents", value_name = "DIR")]
    cases: PathBuf,
    /// The longest one case may take; then its run is cancelled [default: the agent's time limit plus 2 minutes, or 15
    /// minutes without a limit]
    #[arg(long, value_name = "SECONDS", value_parser = timeout)]
    case_timeout: Option<Duration>,
    /// Print one JSON object per case, as soon as it is evaluated
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Each case runs its agent with the configured model. Tasks and records go into a scratch directory, and \
the files server serves the directory that the cases name. The agents of planning work in a session \
about the repository that the cases name, on a stand-in for GitHub. The result of the run is compared with \
what the case expects, and printed at once.

With an mcp.json of your own (--mcp-config) its servers are used unchanged. Cases that name a \
directory (root, repository) are rejected then, since other files would answer them.

Examples:
  gavel agents eval
  gavel agents eval codebase_investigator --json

The demo model understands no agents, so its results mean nothing.

Exit status: 0 all as expected, 1 some are not, 2 the cases are invalid. Ctrl-C ends with 130, and reports what was evaluated so far.";

/// The longest time that `--case-timeout` accepts: a day.
const MOST_TIME: u64 = 24 * 3600;
/// What a case may take beyond its agent's time limit: for its servers, the grace after a limit, and the decision log.
const MARGIN: Duration = Duration::from_secs(120);
/// What a case may take if its agent has no time limit.
const UNLIMITED: Duration = Duration::from_secs(15 * 60);

fn timeout(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds| (1..=MOST_TIME).contains(seconds));
    let seconds = seconds.ok_or_else(|| format!("give whole seconds from 1 to {MOST_TIME}"))?;
    Ok(Duration::from_secs(seconds))
}

impl Args {
    /// The requested cases.
    ///
    /// # Errors
    /// They cannot be evaluated: a message for the user. `mcp_config` is the user's own mcp.json, whose servers would
    /// read other directories than those of the cases.
    pub fn read(&self, mcp_config: Option<&std::path::Path>) -> Result<Vec<AgentCases>, String> {
        let mut files = load(&self.cases).map_err(|errors| errors.join("\n"))?;
        if let Some(unknown) = self
            .only
            .iter()
            .find(|name| files.iter().all(|file| file.agent != **name))
        {
            return Err(format!("{unknown} has no cases in {}", self.cases.display()));
        }
        files.retain(|file| self.only.is_empty() || self.only.contains(&file.agent));
        let directory = |file: &'_ AgentCases| file.root.clone().or_else(|| file.repository.clone());
        let mut with_root = files.iter().filter_map(|file| Some((&file.agent, directory(file)?)));
        if let (Some(mcp), Some((agent, root))) = (mcp_config, with_root.next()) {
            return Err(format!(
                "the cases of {agent} use the directory {}, but the servers of {} would be used instead; omit \
                --mcp-config and GAVEL_MCP_CONFIG, or name agents without such cases",
                root.display(),
                mcp.display()
            ));
        }
        Ok(files)
    }
}

/// The stand-in for GitHub that the cases of a file need, if they need one.
///
/// # Errors
/// It cannot start.
pub async fn github(file: &AgentCases) -> anyhow::Result<Option<GitHub>> {
    match file.repository {
        Some(_) => Ok(Some(GitHub::start().await.context("the stand-in for GitHub")?)),
        None => Ok(None),
    }
}

/// The results so far, each of which is printed at once.
pub struct Tally<'a> {
    right: usize,
    evaluated: usize,
    of: usize,
    bar: ProgressBar,
    args: &'a Args,
    print: fn(&str) -> anyhow::Result<()>,
}

impl<'a> Tally<'a> {
    /// No results yet; `print` writes a line to standard output.
    pub fn new(args: &'a Args, files: &[AgentCases], print: fn(&str) -> anyhow::Result<()>) -> Self {
        let of = files.iter().map(|file| file.cases.len()).sum();
        Self {
            right: 0,
            evaluated: 0,
            of,
            bar: bar(of),
            args,
            print,
        }
    }

    /// Runs all cases of one agent, one after another. `github_url` is GitHub's address in links.
    ///
    /// # Errors
    /// The agent's time limit cannot be read; a result cannot be printed.
    pub async fn evaluate(
        &mut self,
        file: &AgentCases,
        gavel: &dyn Gavel,
        (github, github_url): (Option<&GitHub>, &str),
    ) -> anyhow::Result<()> {
        let most = match self.args.case_timeout {
            Some(most) => most,
            None => limit(gavel, &file.agent)
                .await?
                .map_or(UNLIMITED, |limit| limit + MARGIN),
        };
        for case in &file.cases {
            self.bar.set_message(format!("{} {}", file.agent, case.id));
            let stage = Stage {
                gavel,
                github,
                github_url: github_url.trim_end_matches('/'),
                most,
                user: &format!("eval-{}", case.id),
            };
            let (invalid, observed) = match run::run(stage, file, case).await {
                Ok(observed) => (judge(&case.expect, &observed.result), Some(observed)),
                Err(error) => (vec![format!("{error:#}")], None),
            };
            self.add(&file.agent, &case.id, &invalid, observed.as_ref())?;
        }
        Ok(())
    }

    fn add(&mut self, agent: &str, case: &str, invalid: &[String], observed: Option<&Observed>) -> anyhow::Result<()> {
        self.evaluated += 1;
        self.right += usize::from(invalid.is_empty());
        self.bar.inc(1);
        let mut lines = Vec::new();
        if self.args.json {
            let run = observed.and_then(|observed| observed.run.as_ref());
            // A session shows all of its work in its output.
            let session = observed.filter(|_| run.is_none());
            let line = json!({
                "agent": agent, "case": case, "as_expected": invalid.is_empty(), "wrong": invalid,
                "run": run, "session": session.and_then(|observed| observed.result.output.as_ref()),
            });
            lines.push(line.to_string());
        } else {
            let mark = if invalid.is_empty() { "ok  " } else { "FAIL" };
            lines.push(format!(
                "{mark} {agent} {case}{}",
                observed.map(effort).unwrap_or_default()
            ));
            lines.extend(invalid.iter().map(|invalid| format!("       {invalid}")));
        }
        self.bar
            .suspend(|| lines.iter().try_for_each(|line| (self.print)(line)))
    }

    /// Prints the sum. Returns whether all results are as expected.
    ///
    /// # Errors
    /// It cannot be printed.
    pub fn finish(self) -> anyhow::Result<bool> {
        self.bar.finish_and_clear();
        let Self { right, evaluated, .. } = self;
        if !self.args.json {
            (self.print)(&format!("{right} of {evaluated} cases are as expected"))?;
        }
        Ok(right == evaluated)
    }

    /// What to tell the user who interrupted the evaluation.
    #[must_use]
    pub fn interrupted(self) -> String {
        self.bar.finish_and_clear();
        let Self {
            right, evaluated, of, ..
        } = self;
        format!("interrupted: {evaluated} of {of} cases were evaluated, {right} of them as expected")
    }
}

/// The agent's time limit. If the agent does not exist, its cases report that.
async fn limit(gavel: &dyn Gavel, agent: &str) -> anyhow::Result<Option<Duration>> {
    let request = Request::get("eval", format!("/api/projects/default/agents/{agent}"));
    let (_, answer) = gavel.request(request).await?;
    let limits = &answer["definition"]["runConfig"];
    let minutes = limits["max_time_minutes"].as_f64().map(|minutes| minutes * 60.0);
    let seconds = minutes.or_else(|| limits["deadline_seconds"].as_f64());
    Ok(seconds.map(Duration::from_secs_f64))
}

/// What a case took, for the end of its line.
fn effort(observed: &Observed) -> String {
    let steps = observed.result.steps;
    let Some(run) = &observed.run else {
        return format!("  {steps} steps");
    };
    let tokens = |name| run["usage"][name].as_u64().unwrap_or_default();
    let tokens = tokens("input_tokens") + tokens("output_tokens") + tokens("thought_tokens");
    let seconds = run["duration_ms"].as_f64().unwrap_or_default() / 1e3;
    format!("  {steps} steps, {tokens} tokens, {seconds:.1} s")
}
