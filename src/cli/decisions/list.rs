//! `gavel decisions list`: one page of decisions.

use crate::api::decisions::DecisionRecord;
use crate::app::Work;
use crate::cli::client::Query;
use crate::cli::exit::Exit;
use crate::cli::gavel::{self, Gavel, Talk, Where};
use crate::cli::list::{Paging, at, rows};
use crate::cli::table::clipped;
use crate::domain::decision::{DecisionType, Outcome};
use crate::domain::ids::TenantId;

/// Options of `gavel decisions list`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = format!("{}\n\n{EXAMPLES}", super::filters()))]
pub(crate) struct Args {
    /// Only matching decisions, such as 'outcome_category = "ERROR:*"'
    #[arg(long, value_name = "FILTER")]
    filter: Option<String>,
    /// Oldest first
    #[arg(long)]
    oldest_first: bool,
    #[command(flatten)]
    paging: Paging,
    /// The tenant
    #[arg(long, default_value = "default", value_parser = gavel::tenant, value_name = "NAME")]
    pub(super) tenant: TenantId,
}

const EXAMPLES: &str = "\
Examples:
  gavel decisions list --filter 'outcome_category = \"ERROR:*\" AND created_at >= \"2026-11-20T00:00:00Z\"'
  gavel decisions list --json --limit 1000 | jq -r .outcome_category | sort | uniq -c";

impl Talk for Args {
    const WORK: Work = Work::Read;

    fn place(&self) -> Where {
        Where::of_tenant(&self.tenant, None)
    }

    async fn talk(&self, gavel: &Gavel) -> anyhow::Result<Exit> {
        let query = Query {
            filter: self.filter.clone(),
            order_by: self.oldest_first.then_some("created_at"),
            ..self.paging.query()
        };
        let page = gavel.decisions(&query).await?;
        self.paging.print(&page, "no decisions", as_table)
    }
}

const HEADS: [&str; 8] = [
    "at (UTC)", "decision", "type", "outcome", "user", "intent", "ms", "message",
];

/// Decisions as a table.
pub(super) fn as_table(items: &[DecisionRecord]) -> String {
    rows(&HEADS, items, row)
}

fn row(item: &DecisionRecord) -> Vec<String> {
    let known = |text: Option<&str>| text.unwrap_or("-").to_owned();
    vec![
        at(item.created_at),
        item.decision_id.clone(),
        known(item.decision_type.map(DecisionType::as_str)),
        known(item.outcome_category.map(Outcome::as_str)),
        clipped(&item.user_id, 20),
        clipped(&known(item.intent.as_deref()), 20),
        item.duration_ms.map_or_else(|| "-".to_owned(), |ms| ms.to_string()),
        clipped(&known(item.message.as_deref()), 48),
    ]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cli::tests::samples::sample;

    #[test]
    fn a_row_shows_what_is_known_and_marks_what_is_not() {
        let item: DecisionRecord = sample(json!({
            "created_at": "2026-11-20T10:20:30.123456Z", "decision_id": "d", "decision_type": "RESPOND_ONLY",
            "outcome_category": null, "user_id": "ann", "intent": "respond", "duration_ms": 12, "message": "a\nb",
        }));
        let table = as_table(&[item]);
        assert!(
            table.ends_with("2026-11-20 10:20:30  d         RESPOND_ONLY  -        ann   respond  12  a b\n"),
            "{table}"
        );
    }
}
