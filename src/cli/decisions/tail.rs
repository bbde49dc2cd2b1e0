//! `gavel decisions tail`: new decisions as they are closed.

use std::collections::BTreeMap;
use std::time::Duration;

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};

use super::list;
use crate::api::decisions::DecisionRecord;
use crate::app::Work;
use crate::cli::client::{Client, Query};
use crate::cli::exit::Exit;
use crate::cli::gavel::{self, Gavel, Talk, Where};
use crate::cli::interrupt::unless_stopped;
use crate::cli::output;
use crate::domain::ids::TenantId;
use crate::domain::time::Timestamp;

/// Options of `gavel decisions tail`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = super::filters())]
pub(crate) struct Args {
    /// Only matching decisions, such as 'decision_type = "REFUSE"'
    #[arg(long, value_name = "FILTER")]
    filter: Option<String>,
    /// Begin with this many existing decisions
    #[arg(short = 'n', long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(0..=1000), value_name = "N")]
    lines: u32,
    /// Print rows as JSON, one per line
    #[arg(long)]
    json: bool,
    /// The tenant
    #[arg(long, default_value = "default", value_parser = gavel::tenant, value_name = "NAME")]
    pub(super) tenant: TenantId,
}

/// The time between two polls.
const PAUSE: Duration = Duration::from_secs(1);
/// Rows are ordered by the time of their request, and appear when it is decided. Each poll goes back further than most
/// decisions take …
const SHORT: TimeDelta = TimeDelta::seconds(60);
/// … and one in [`LONG_EVERY`] goes back the longest deadline that a constitution may set, and a minute.
const LONG: TimeDelta = TimeDelta::seconds(660);
const LONG_EVERY: u32 = 30;
/// Rows of one page.
const PAGE: u32 = 1000;

impl Talk for Args {
    const WORK: Work = Work::Read;

    fn place(&self) -> Where {
        Where::of_tenant(&self.tenant, None)
    }

    async fn talk(&self, gavel: &Gavel) -> anyhow::Result<Exit> {
        let done = unless_stopped(follow(self, gavel)).await?;
        done.unwrap_or(Ok(Exit::Interrupted))
    }
}

/// Ends only with an error.
async fn follow(args: &Args, client: &Client) -> anyhow::Result<Exit> {
    let began = Utc::now();
    let mut seen = Seen::default();
    // Rows older than the first poll are not printed, except the requested ones. Those are read second, so that a row
    // closed in between is printed with them or by the next poll.
    for row in since(args, client, began - LONG).await? {
        seen.is_new(&row);
    }
    let mut first = latest(args, client).await?;
    first.reverse();
    for row in &first {
        seen.is_new(row);
    }
    print(args, &first, true)?;
    for look in 1_u32.. {
        tokio::time::sleep(PAUSE).await;
        let back = if look % LONG_EVERY == 0 { LONG } else { SHORT };
        let rows = since(args, client, Utc::now() - back).await?;
        let new: Vec<DecisionRecord> = rows.into_iter().filter(|row| seen.is_new(row)).collect();
        seen.forget_before(Utc::now() - LONG - SHORT);
        print(args, &new, false)?;
    }
    Ok(Exit::Done)
}

/// The newest closed rows, newest first.
async fn latest(args: &Args, client: &Client) -> anyhow::Result<Vec<DecisionRecord>> {
    if args.lines == 0 {
        return Ok(Vec::new());
    }
    let query = Query {
        page_size: args.lines,
        filter: Some(closed(args, None)),
        ..Query::default()
    };
    Ok(client.decisions(&query).await?.items)
}

/// All closed rows from `from` on, oldest first.
async fn since(args: &Args, client: &Client, from: DateTime<Utc>) -> anyhow::Result<Vec<DecisionRecord>> {
    let mut rows = Vec::new();
    let mut page_token = None;
    loop {
        let query = Query {
            page_size: PAGE,
            page_token,
            filter: Some(closed(args, Some(from))),
            order_by: Some("created_at"),
        };
        let page = client.decisions(&query).await?;
        rows.extend(page.items);
        page_token = page.next_page_token;
        if page_token.is_none() {
            return Ok(rows);
        }
    }
}

/// The user's filter, limited to closed rows.
fn closed(args: &Args, from: Option<DateTime<Utc>>) -> String {
    let mut parts = vec!["status = \"closed\"".to_owned()];
    parts.extend(from.map(|from| {
        format!(
            "created_at >= \"{}\"",
            from.to_rfc3339_opts(SecondsFormat::Micros, true)
        )
    }));
    parts.extend(args.filter.clone());
    parts.join(" AND ")
}

fn print(args: &Args, rows: &[DecisionRecord], with_heads: bool) -> anyhow::Result<()> {
    if args.json {
        return output::json_lines(rows);
    }
    if rows.is_empty() && !with_heads {
        return Ok(());
    }
    let table = list::as_table(rows);
    let body = if with_heads {
        table.as_str()
    } else {
        table.split_once('\n').map_or("", |(_, body)| body)
    };
    output::line(body)
}

/// The rows seen so far, by id, with their creation time.
#[derive(Default)]
struct Seen(BTreeMap<String, Timestamp>);

impl Seen {
    fn is_new(&mut self, row: &DecisionRecord) -> bool {
        self.0.insert(row.decision_id.clone(), row.created_at).is_none()
    }

    fn forget_before(&mut self, from: DateTime<Utc>) {
        let from = Timestamp(from.timestamp_micros());
        self.0.retain(|_, at| *at >= from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_shown_once_and_not_kept_for_ever() {
        let mut seen = Seen::default();
        let row: DecisionRecord = crate::cli::tests::samples::sample(serde_json::json!({
            "decision_id": "a", "created_at": "2026-11-20T10:00:00.000000Z",
        }));
        assert!(seen.is_new(&row));
        assert!(!seen.is_new(&row));
        seen.forget_before("2026-11-20T10:00:00Z".parse().unwrap());
        assert!(!seen.is_new(&row));
        seen.forget_before("2026-11-20T10:00:01Z".parse().unwrap());
        assert!(seen.0.is_empty());
    }
}
