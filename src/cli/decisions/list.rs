//! `gavel decisions list`: one page of decisions.

use serde_json::Value;

use super::Reader;
use crate::cli::exit::Exit;
use crate::cli::operator;
use crate::cli::output;
use crate::cli::table::{clipped, table};
use crate::domain::ids::TenantId;
use crate::ports::records::ListQuery;

/// Options of `gavel decisions list`.
#[derive(Debug, clap::Args)]
#[command(after_help = super::FILTERS, after_long_help = EXAMPLES)]
pub(in crate::cli) struct Args {
    /// Only matching decisions, such as 'outcome_category = "ERROR:*"'
    #[arg(long, value_name = "FILTER")]
    filter: Option<String>,
    /// Rows per page, 1 to 1000
    #[arg(long, visible_alias = "page-size", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000), value_name = "N")]
    limit: u32,
    /// Oldest first
    #[arg(long)]
    oldest_first: bool,
    /// Continue after the previous page; filter, order and tenant must be the same
    #[arg(long, allow_hyphen_values = true, value_name = "TOKEN")]
    page_token: Option<String>,
    /// Print rows as JSON, one per line
    #[arg(long)]
    json: bool,
    /// The tenant
    #[arg(long, default_value = "default", value_parser = operator::tenant, value_name = "NAME")]
    pub(super) tenant: TenantId,
}

const EXAMPLES: &str = "\
A filter is FIELD OP \"VALUE\", joined by AND. Fields: decision_type, outcome_category, intent, user_id, \
conversation_id, surface, model, status, created_at, duration_ms, iterations. Operators: = != < <= > >=. \
A * at the end of a value matches every ending.

Examples:
  gavel decisions list --filter 'outcome_category = \"ERROR:*\" AND created_at >= \"2026-11-20T00:00:00Z\"'
  gavel decisions list --json --limit 1000 | jq -r .outcome_category | sort | uniq -c";

pub(super) async fn run(args: Args, reader: &Reader) -> anyhow::Result<Exit> {
    let query = ListQuery {
        page_size: args.limit,
        page_token: args.page_token,
        filter: args.filter,
        order_by: args.oldest_first.then(|| "created_at".to_owned()),
        user: None,
    };
    let page = reader.queries.list(&reader.caller, query).await?;
    if args.json {
        for row in &page.items {
            output::line(&row.to_string())?;
        }
    } else if page.items.is_empty() {
        output::note("no decisions");
    } else {
        output::line(&rows(&page.items))?;
    }
    if let Some(token) = page.next_page_token {
        output::note(&format!("more: the same command with --page-token {token}"));
    }
    Ok(Exit::Done)
}

/// Decisions as a table.
pub(super) fn rows(items: &[Value]) -> String {
    let rows: Vec<_> = items.iter().map(row).collect();
    table(
        &[
            "at (UTC)", "decision", "type", "outcome", "user", "intent", "ms", "message",
        ],
        &rows,
    )
}

fn row(item: &Value) -> Vec<String> {
    let text = |field: &str| match item.get(field) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Null) | None => "-".to_owned(),
        Some(other) => other.to_string(),
    };
    // 2026-11-20T10:20:30.123456Z to the second.
    let at = text("created_at")
        .chars()
        .take(19)
        .collect::<String>()
        .replace('T', " ");
    vec![
        at,
        text("decision_id"),
        text("decision_type"),
        text("outcome_category"),
        clipped(&text("user_id"), 20),
        clipped(&text("intent"), 20),
        text("duration_ms"),
        clipped(&text("message"), 48),
    ]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_row_shows_what_is_known_and_marks_what_is_not() {
        let item = json!({
            "created_at": "2026-11-20T10:20:30.123456Z", "decision_id": "d", "decision_type": "RESPOND_ONLY",
            "outcome_category": null, "user_id": "ann", "intent": "respond", "duration_ms": 12, "message": "a\nb",
        });
        let table = rows(&[item]);
        assert!(
            table.ends_with("2026-11-20 10:20:30  d         RESPOND_ONLY  -        ann   respond  12  a b\n"),
            "{table}"
        );
    }
}
