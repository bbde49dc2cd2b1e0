//! `gavel audit list`: audit entries, newest first.

use clap::builder::PossibleValuesParser;
use serde_json::Value;

use crate::adapters::store::{AuditFilter, AuditKind, AuditLog, AuditRow};
use crate::cli::exit::Exit;
use crate::cli::output;
use crate::cli::since::Since;
use crate::cli::table::{clipped, table};
use crate::domain::time::rfc3339;

/// Options of `gavel audit list`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Args {
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
    #[arg(long, value_parser = Since::parse, value_name = "TIME")]
    since: Option<Since>,
    /// Most rows, 1 to 1000
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000), value_name = "N")]
    limit: u32,
    /// Print rows as JSON, one per line
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Examples:
  gavel audit list --kind effect_in_doubt
  gavel audit list --since 24h --limit 1000
  gavel audit list --run 01a203d9-6130-725a-b0b3-78a83c5c1704 --json | jq .detail

The table shows the main detail of each entry; --json shows everything.";

pub(super) async fn run(args: Args, log: &mut AuditLog) -> anyhow::Result<Exit> {
    let filter = AuditFilter {
        kind: args.kind,
        tenant: args.tenant,
        actor: args.actor,
        decision: args.run,
        action: args.action,
        tool: args.tool,
        since: args.since.map(Since::at),
    };
    let rows = log.latest(args.limit, &filter).await?;
    if args.json {
        for row in &rows {
            output::line(&serde_json::to_string(row)?)?;
        }
    } else if rows.is_empty() {
        output::note("no entries");
    } else {
        let rows: Vec<_> = rows.iter().map(line).collect();
        output::line(&table(
            &["row", "at (UTC)", "what", "who", "tool", "run", "detail"],
            &rows,
        ))?;
    }
    Ok(Exit::Done)
}

fn line(row: &AuditRow) -> Vec<String> {
    let opt = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
    vec![
        row.number.to_string(),
        rfc3339(row.at).chars().take(19).collect::<String>().replace('T', " "),
        row.kind.clone(),
        clipped(&row.actor, 32),
        clipped(&opt(&row.tool), 24),
        opt(&row.decision_id),
        clipped(&render(row), 120),
    ]
}

/// The main detail of an entry.
fn render(row: &AuditRow) -> String {
    let detail: Value = serde_json::from_str(&row.detail).unwrap_or_default();
    let text = |field: &str| detail[field].as_str().unwrap_or_default().to_owned();
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
        Some(AuditKind::TriggerRestored) => format!("{} was {}", text("trigger"), text("was")),
        // Not one of gavel's kinds: another program wrote it.
        None => row.detail.clone(),
    }
}
