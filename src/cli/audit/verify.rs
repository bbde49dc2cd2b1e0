//! `gavel audit verify`: is the chain intact?

use std::fs::{self, File};
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::Context;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use secrecy::ExposeSecret;
use serde_json::json;

use crate::adapters::store::{AuditLog, Head, Verifier};
use crate::app;
use crate::cli::exit::{Exit, Usage};
use crate::cli::output;
use crate::config::Resolved;

/// Options of `gavel audit verify`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Args {
    /// A head kept elsewhere: this row must still exist, with this hash (repeatable)
    #[arg(long = "head", value_parser = Head::from_str, value_name = "NUMBER:HASH")]
    heads: Vec<Head>,
    /// A file with such heads, one per line
    #[arg(long, value_name = "FILE")]
    head_file: Option<PathBuf>,
    /// Verify an export instead of the database
    #[arg(long, value_name = "FILE")]
    pub(super) export: Option<PathBuf>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Reads every row of the chain and every side effect in the tool-call log; a service may keep running meanwhile. Needs \
the keys that rows were hashed with: audit.key, audit.old_keys, the file next to a SQLite database, or the \
database's own. An export is verified with the same keys; on another machine give them in audit.key and audit.old_keys.

Exit status: 0 intact, 9 not intact (each finding is reported), 1 it could not be verified, for example because a key \
is missing, or because a part of the chain was given without the head before it, 2 invalid usage.

Examples:
  gavel audit head >> /somewhere/else/heads
  gavel audit verify --head-file /somewhere/else/heads";

pub(super) async fn run(args: &Args, log: &mut AuditLog) -> anyhow::Result<Exit> {
    let bar = match output::person_reads_notes() && !args.json {
        true => ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr()),
        false => ProgressBar::hidden(),
    };
    bar.set_style(
        ProgressStyle::with_template("{bar:40} {pos} of {len} rows, {per_sec}")
            .unwrap_or_else(|error| unreachable!("the template is valid: {error}")),
    );
    let verified = log.verify(args.kept()?, |read, all| {
        bar.set_length(all);
        bar.set_position(read);
    });
    let verified = verified.await;
    bar.finish_and_clear();
    print(&verified?, args.json)
}

/// Verifies an export; the database is read only for its keys, if it exists.
pub(super) async fn export(args: &Args, path: &Path, resolved: &Resolved) -> anyhow::Result<Exit> {
    let config = &resolved.config;
    let given = app::audit_secrets(config);
    let (keys, all) = AuditLog::keys(config.database_url.expose_secret(), &given).await;
    let verified = Verifier::of_export(&keys, args.kept()?, || File::open(path).map(BufReader::new));
    let verified = verified.with_context(|| path.display().to_string())?;
    if verified.lacks_keys_alone()
        && let Err(error) = all
    {
        output::note(&format!(
            "the database and its key are missing: {:#}",
            anyhow::Error::from(error)
        ));
    }
    print(&verified, args.json)
}

impl Args {
    fn kept(&self) -> anyhow::Result<Vec<Head>> {
        let mut heads = self.heads.clone();
        if let Some(path) = &self.head_file {
            let shown = path.display();
            let text = fs::read_to_string(path).with_context(|| format!("{shown} cannot be read"))?;
            for line in text.lines().filter(|line| !line.trim().is_empty()) {
                heads.push(
                    line.parse()
                        .map_err(|error| Usage(format!("{shown}: {line:?}: {error}")))?,
                );
            }
        }
        Ok(heads)
    }
}

fn print(verified: &Verifier, as_json: bool) -> anyhow::Result<Exit> {
    let (found, findings) = (verified.found(), verified.findings());
    if as_json {
        output::json(&json!({
            "whole": found == 0 && verified.joins(), "rows": verified.rows(), "after": verified.after(),
            "head": verified.last(), "found": found, "findings": findings,
        }))?;
    } else {
        for finding in findings {
            output::line(&format!("✗ {finding}"))?;
        }
        let rows = output::count(verified.rows(), "row");
        let after = match verified.after().number {
            0 => String::new(),
            number => format!(" after row {number}"),
        };
        match found {
            0 if !verified.joins() => {
                output::line(&format!(
                    "✓ this part is intact: {rows}{after}, head {}",
                    verified.last()
                ))?;
                output::note(
                    "it could not be verified that nothing is missing before this part: give the head of the previous part with --head",
                );
            }
            0 => output::line(&format!(
                "✓ the audit log is intact: {rows}{after}, head {}",
                verified.last()
            ))?,
            _ if verified.lacks_keys_alone() => {
                output::note(
                    "the audit log could not be verified, since keys are missing; there are no other findings",
                );
            }
            _ => output::note(&format!(
                "the audit log is not intact: {} in {rows}",
                output::count(found, "finding")
            )),
        }
        let unreported = found.saturating_sub(findings.len() as u64);
        if unreported > 0 {
            output::note(&format!("{unreported} more are not shown"));
        }
    }
    Ok(match found {
        0 if verified.joins() => Exit::Done,
        0 => Exit::Failed,
        _ if verified.lacks_keys_alone() => Exit::Failed,
        _ => Exit::NotIntact,
    })
}
