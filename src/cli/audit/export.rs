//! `gavel audit export`: unchanged rows, for an archive or an auditor.

use std::fs::{self, File};
use std::io::{BufWriter, ErrorKind, Write};
use std::path::PathBuf;

use anyhow::Context;
use serde_json::json;

use crate::adapters::store::{AuditFilter, AuditLog, Head};
use crate::cli::exit::{Exit, Usage};
use crate::cli::output;

/// Options of `gavel audit export`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Args {
    /// Only rows after this number; such a part can be verified too
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(i64).range(0..), value_name = "NUMBER")]
    since: i64,
    /// Write to this file, which must not exist yet
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

const EXAMPLES: &str = "\
The last line is {\"head\": {\"number\": …, \"hash\": …}}.

In a part of the chain it also has \"after\", the row before the first.

Examples:
  gavel audit export --out audit-2026-11.ndjson
  gavel audit export --since 1042 --out audit-2026-12.ndjson
  gavel audit verify --export audit-2026-11.ndjson";

pub(super) async fn run(args: &Args, log: &mut AuditLog) -> anyhow::Result<Exit> {
    let follows = match args.since {
        0 => None,
        since => Some(before(log, since).await?),
    };
    let Some(path) = &args.out else {
        write(args, log, follows, |line| output::line(&line)).await?;
        return Ok(Exit::Done);
    };
    let shown = path.display();
    let mut options = File::options();
    options.write(true).create_new(true);
    // Like the databases, it contains what users wrote.
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        options.mode(0o600);
    }
    let file = match options.open(path) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            return Err(Usage(format!(
                "--out {shown} already exists and is not overwritten; name another file"
            ))
            .into());
        }
        made => made.with_context(|| format!("{shown} cannot be created"))?,
    };
    if let Err(error) = fill(args, log, follows, file).await {
        // A partial export is useless, and would block the next one.
        let error = error.context(format!("{shown} cannot be written"));
        return Err(match fs::remove_file(path) {
            Ok(()) => error,
            Err(left) => error.context(format!("{shown} is incomplete and cannot be removed: {left}")),
        });
    }
    output::note(&format!("the audit log is in {shown}"));
    Ok(Exit::Done)
}

async fn fill(args: &Args, log: &mut AuditLog, follows: Option<Head>, file: File) -> anyhow::Result<()> {
    let mut file = BufWriter::new(file);
    write(args, log, follows, |line| Ok(writeln!(file, "{line}")?)).await?;
    Ok(file.into_inner()?.sync_all()?)
}

async fn write(
    args: &Args,
    log: &mut AuditLog,
    follows: Option<Head>,
    mut line: impl FnMut(String) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let all = AuditFilter::default();
    let mut after = args.since;
    let mut last = None;
    loop {
        let page = log.page(after, &all).await?;
        for row in &page {
            line(serde_json::to_string(row)?)?;
        }
        let Some(row) = page.last() else { break };
        after = row.number;
        last = Some(Head {
            number: row.number,
            hash: row.hash.clone(),
        });
    }
    // The head of the last row written, since more rows may have been added since then.
    let head = match last {
        Some(head) => head,
        None => log.head().await?.context("audit_head has no row")?,
    };
    line(match follows {
        None => json!({ "head": head }).to_string(),
        Some(after) => json!({ "head": head, "after": after }).to_string(),
    })
}

/// The row before this part of the chain.
async fn before(log: &mut AuditLog, number: i64) -> anyhow::Result<Head> {
    let page = log.page(number - 1, &AuditFilter::default()).await?;
    let row = page.into_iter().next().filter(|row| row.number == number);
    let row = row.ok_or_else(|| Usage(format!("--since {number}: this row does not exist")))?;
    Ok(Head { number, hash: row.hash })
}
