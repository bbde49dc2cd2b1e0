//! `gavel policy test`: runs the tests in the policy file.

use std::sync::Arc;

use serde_json::json;

use super::needs_file;
use crate::app;
use crate::cli::exit::Exit;
use crate::cli::output;
use crate::config::Config;
use crate::engine::gate::results;
use crate::surfaces;

/// Options of `gavel policy test`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Args {
    /// Print the tests as JSON, one per line: {name, line, expect, found, passed}
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  gavel policy test --policy policy.yaml
  gavel policy test --json | jq 'select(.passed | not)'

Exit status 0 if all pass, 1 if one fails, 2 if the file is invalid. `gavel serve` runs them too, and \
does not start if one fails.";

pub(super) fn run(args: &Args, config: &Config) -> anyhow::Result<Exit> {
    needs_file(config)?;
    let policy = Arc::new(app::read_policy(config)?);
    let results = results(&policy, surfaces::floor);
    let failed = results.iter().filter(|result| !result.passed).count();
    if args.json {
        output::json_lines(results.iter().map(|result| {
            json!({
                "name": &*result.case.name, "line": result.case.line, "expect": result.case.expect,
                "rule": result.case.rule.as_deref(), "found": result.found, "passed": result.passed,
            })
        }))?;
    } else {
        for result in &results {
            let (mark, name) = (if result.passed { "ok    " } else { "FAILED" }, &result.case.name);
            let mut line = format!("{mark} {}:{} {name}", policy.file, result.case.line);
            if !result.passed {
                line.push_str(&format!(
                    "\n       expected {}{}, found {}",
                    result.case.expect.as_str(),
                    result
                        .case
                        .rule
                        .as_ref()
                        .map_or_else(String::new, |rule| format!(" by rule {rule}")),
                    result.found
                ));
            }
            output::line(&line)?;
        }
        output::line(&format!(
            "{}, {}, {failed} failed",
            crate::cli::agents::count(policy.rules.len(), "rule"),
            crate::cli::agents::count(results.len(), "test")
        ))?;
    }
    Ok(if failed == 0 { Exit::Done } else { Exit::Failed })
}
