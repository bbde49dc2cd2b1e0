//! `gavel audit`: the audit log, read only.

use std::fs::{self, File};
use std::io::{BufReader, BufWriter, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::Context;
use clap::builder::PossibleValuesParser;
use secrecy::ExposeSecret;
use serde_json::{Value, json};

use crate::adapters::store::{AuditFilter, AuditKind, AuditLog, AuditRow, Head, Verifier};
use crate::app;
use crate::cli::client::parameters;
use crate::cli::exit::{Exit, Usage};
use crate::cli::list::{self, Column, at, clipped, known, since, table_of};
use crate::cli::output;
use crate::config::Resolved;
use crate::domain::time::Timestamp;

/// The commands of `gavel audit`.
#[derive(Debug, clap::Subcommand)]
#[command(after_long_help = ABOUT)]
pub(super) enum Command {
    /// Verify the chain, and report every row that was changed, removed, moved or added
    Verify(Verify),
    /// Write all rows as JSON, one per line, and the head at the end
    Export(Export),
    /// Print the head of the chain as NUMBER:HASH, to be kept elsewhere
    Head,
    /// List entries, newest first
    List(List),
}

const ABOUT: &str = "\
Every side effect has two entries, one before it is sent and one when its outcome is known. Approvals, grants, \
settled actions, definitions and cancelled runs have entries too. The database rejects changes to rows. A change \
that bypasses this breaks the chain of keyed hashes, and verify reports where. Only a head that is kept elsewhere \
detects two attacks. One is a change by an attacker who has the key. The other is the removal of the last rows \
with their head. So save a head regularly, with gavel audit head.";

pub(super) async fn run(command: Command, resolved: Resolved) -> anyhow::Result<Exit> {
    if let Command::Verify(args) = &command
        && let Some(path) = &args.export
    {
        return verify_export(args, path, &resolved).await;
    }
    let keys = app::audit_secrets(&resolved.config);
    let log = AuditLog::open(resolved.config.database_url.expose_secret(), &keys).await;
    let mut log = log.context("the audit log cannot be read")?;
    let read = match command {
        Command::Verify(args) => verify(&args, &mut log).await,
        Command::Export(args) => export(&args, &mut log).await,
        Command::Head => head(&mut log).await,
        Command::List(args) => latest(args, &mut log).await,
    };
    log.close().await;
    read
}

/// Options of `gavel audit list`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = LIST_EXAMPLES)]
pub(super) struct List {
    /// Only this kind of entry
    #[arg(long, value_parser = PossibleValuesParser::new(AuditKind::ALL.iter().map(|kind| kind.as_str())), value_name = "KIND")]
    kind: Option<String>,
    /// Only this actor's
    #[arg(long, value_name = "NAME")]
    actor: Option<String>,
    /// Only this run's or decision's
    #[arg(long, visible_alias = "decision", value_name = "ID")]
    run: Option<String>,
    /// Only this action's
    #[arg(long, value_name = "ID")]
    action: Option<String>,
    /// Only this tool's
    #[arg(long, value_name = "NAME")]
    tool: Option<String>,
    /// Only this tenant's; without it, every tenant's
    #[arg(long, value_name = "NAME")]
    tenant: Option<String>,
    /// Not before this time: 2026-11-20T08:00:00Z, 2026-11-20 (UTC), or an age: 45m, 24h, 7d
    #[arg(long, value_parser = since, value_name = "TIME")]
    since: Option<i64>,
    /// Most rows, 1 to 1000
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000), value_name = "N")]
    limit: u32,
    /// Print rows as JSON, one per line
    #[arg(long)]
    json: bool,
}

const LIST_EXAMPLES: &str = "\
Examples:
  gavel audit list --kind effect_in_doubt
  gavel audit list --since 24h --limit 1000
  gavel audit list --run 01a203d9-6130-725a-b0b3-78a83c5c1704 --json | jq .detail

The table shows the main detail of each entry; --json shows everything.";

async fn latest(args: List, log: &mut AuditLog) -> anyhow::Result<Exit> {
    let filter = AuditFilter {
        columns: parameters([
            ("kind", args.kind),
            ("tenant", args.tenant),
            ("actor", args.actor),
            ("decision_id", args.run),
            ("action_id", args.action),
            ("tool", args.tool),
        ]),
        since: args.since,
    };
    let rows = log.latest(args.limit, &filter).await?;
    if args.json {
        for row in &rows {
            output::line(&serde_json::to_string(row)?)?;
        }
        return Ok(Exit::Done);
    }
    list::print(false, &rows, "no entries", |rows| table_of(COLUMNS, rows))?;
    Ok(Exit::Done)
}

const COLUMNS: &[Column<AuditRow>] = &[
    ("row", |row| row.number.to_string()),
    ("at (UTC)", |row| at(Timestamp(row.at))),
    ("what", |row| row.kind.clone()),
    ("who", |row| clipped(&row.actor, 32)),
    ("tool", |row| clipped(&known(row.tool.as_deref()), 24)),
    ("run", |row| known(row.decision_id.as_deref())),
    ("detail", |row| clipped(&render(row), 120)),
];

/// The main detail of an entry.
fn render(row: &AuditRow) -> String {
    let detail: Value = serde_json::from_str(&row.detail).unwrap_or_default();
    let texts: Value = serde_json::from_str(row.texts.as_deref().unwrap_or_default()).unwrap_or_default();
    let text = |field: &str| {
        let found = detail[field].as_str().or_else(|| texts[field].as_str());
        found.unwrap_or_default().to_owned()
    };
    let kind = AuditKind::parse(&row.kind);
    match kind {
        Some(AuditKind::EffectIntended) => match detail["grant_id"].as_str() {
            Some(grant) => format!("by grant {grant}: {}", text("arguments")),
            None => text("arguments"),
        },
        Some(AuditKind::EffectFailed | AuditKind::EffectInDoubt) => text("error_code"),
        Some(AuditKind::ApprovalRequested | AuditKind::SessionCancelled) => text("reason"),
        Some(AuditKind::ApprovalResolved) if text("reason").is_empty() => text("decision"),
        Some(AuditKind::ApprovalResolved) => format!("{}: {}", text("decision"), text("reason")),
        Some(AuditKind::ApprovalExpired) => text("why"),
        Some(AuditKind::GrantCreated | AuditKind::GrantRevoked) => text("recipients"),
        Some(AuditKind::DoubtSettled) => match detail["happened"].as_bool() {
            Some(true) => "happened".to_owned(),
            Some(false) => "did_not_happen".to_owned(),
            None => row.detail.clone(),
        },
        Some(AuditKind::DefinitionPut) => {
            format!("{}/{} version {}", text("project"), text("agent"), detail["version"])
        }
        Some(AuditKind::PlanConfirmed) => {
            format!("version {} of session {}", detail["version"], row.subject)
        }
        Some(AuditKind::SessionEnded) => match detail["code"].as_str() {
            Some(code) => format!("{}: {code}", text("status")),
            None => text("status"),
        },
        Some(AuditKind::EffectCompleted | AuditKind::RunCancelled) => String::new(),
        Some(AuditKind::Exported) => match detail["complete"].as_bool() {
            Some(true) => format!("{} rows of {}", detail["rows"], text("source")),
            _ => format!("{} rows of {}, broken off", detail["rows"], text("source")),
        },
        Some(AuditKind::ContentErased) => format!("of {}, {} decisions", text("user"), detail["decisions"]),
        Some(AuditKind::TriggerRestored) => format!("{} was {}", text("trigger"), text("was")),
        // Not one of gavel's kinds: another program wrote it.
        None => row.detail.clone(),
    }
}

/// Options of `gavel audit export`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXPORT_EXAMPLES)]
pub(super) struct Export {
    /// Only rows after this number; such a part can be verified too
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(i64).range(0..), value_name = "NUMBER")]
    since: i64,
    /// Write to this file, which must not exist yet
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

const EXPORT_EXAMPLES: &str = "\
The last line is {\"head\": {\"number\": …, \"hash\": …}}.

In a part of the chain it also has \"after\", the row before the first.

Examples:
  gavel audit export --out audit-2026-11.ndjson
  gavel audit export --since 1042 --out audit-2026-12.ndjson
  gavel audit verify --export audit-2026-11.ndjson";

async fn export(args: &Export, log: &mut AuditLog) -> anyhow::Result<Exit> {
    let follows = match args.since {
        0 => None,
        since => Some(before(log, since).await?),
    };
    let Some(path) = &args.out else {
        write(args, log, follows, |line| output::line(&line)).await?;
        return Ok(Exit::Done);
    };
    let shown = path.display();
    let file = match output::new_file(path) {
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

async fn fill(args: &Export, log: &mut AuditLog, follows: Option<Head>, file: File) -> anyhow::Result<()> {
    let mut file = BufWriter::new(file);
    write(args, log, follows, |line| Ok(writeln!(file, "{line}")?)).await?;
    Ok(file.into_inner()?.sync_all()?)
}

async fn write(
    args: &Export,
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

async fn head(log: &mut AuditLog) -> anyhow::Result<Exit> {
    let head = log.head().await?;
    let head = head.context("audit_head has no row; `gavel audit verify` shows details")?;
    output::line(&head.to_string())?;
    Ok(Exit::Done)
}

/// Options of `gavel audit verify`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = VERIFY_EXAMPLES)]
pub(super) struct Verify {
    /// A head kept elsewhere: this row must still exist, with this hash (repeatable)
    #[arg(long = "head", value_parser = Head::from_str, value_name = "NUMBER:HASH")]
    heads: Vec<Head>,
    /// A file with such heads, one per line
    #[arg(long, value_name = "FILE")]
    head_file: Option<PathBuf>,
    /// Verify an export instead of the database
    #[arg(long, value_name = "FILE")]
    export: Option<PathBuf>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

const VERIFY_EXAMPLES: &str = "\
Reads every row of the chain and every side effect in the tool-call log; a service may keep running meanwhile. Needs \
the keys that rows were hashed with: audit.key, audit.old_keys, the file next to a SQLite database, or the \
database's own. An export is verified with the same keys; on another machine give them in audit.key and audit.old_keys.

Exit status: 0 intact, 9 not intact (each finding is reported), 1 it could not be verified, for example because a key \
is missing, or because a part of the chain was given without the head before it, 2 invalid usage.

Examples:
  gavel audit head >> /somewhere/else/heads
  gavel audit verify --head-file /somewhere/else/heads";

async fn verify(args: &Verify, log: &mut AuditLog) -> anyhow::Result<Exit> {
    let bar = output::progress(!args.json, None, "{bar:40} {pos} of {len} rows, {per_sec}");
    let verified = log.verify(args.kept()?, |read, all| {
        bar.set_length(all);
        bar.set_position(read);
    });
    let verified = verified.await;
    bar.finish_and_clear();
    print(&verified?, args.json)
}

/// Verifies an export; the database is read only for its keys, if it exists.
async fn verify_export(args: &Verify, path: &Path, resolved: &Resolved) -> anyhow::Result<Exit> {
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

impl Verify {
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
    let (found, findings) = (verified.found, &verified.findings);
    if as_json {
        output::json(&json!({
            "whole": found == 0 && verified.joins(), "rows": verified.rows, "after": verified.after,
            "head": verified.last, "found": found, "findings": findings,
        }))?;
    } else {
        for finding in findings {
            output::line(&format!("✗ {finding}"))?;
        }
        let rows = output::count(verified.rows, "row");
        let after = match verified.after.number {
            0 => String::new(),
            number => format!(" after row {number}"),
        };
        match found {
            0 if !verified.joins() => {
                output::line(&format!("✓ this part is intact: {rows}{after}, head {}", verified.last))?;
                output::note(
                    "it could not be verified that nothing is missing before this part: give the head of the previous part with --head",
                );
            }
            0 => output::line(&format!(
                "✓ the audit log is intact: {rows}{after}, head {}",
                verified.last
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
