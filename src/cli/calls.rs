//! `gavel calls`: the tool-call log, read only.

use crate::api::decisions::{ToolInvocation, ToolInvocationPage};
use crate::api::filter::Listed;
use crate::cli::commands;
use crate::cli::exit::Exit;
use crate::cli::gavel::{Gavel, OfTenant, Talk};
use crate::cli::list::{Column, Filtered, at, clipped, known};

commands! {
    /// The commands of `gavel calls`.
    Command {
        /// List tool calls, newest first
        List(List, OfTenant),
    }
}

/// How a filter is written.
fn filters() -> String {
    format!(
        "A filter is written as that of `gavel decisions list --help`. Fields: {}. A text alone is found in what the model \
         said, in arguments and in results.",
        ToolInvocationPage::fields()
    )
}

/// Options of `gavel calls list`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = format!("{}\n\n{EXAMPLES}", filters()))]
pub(super) struct List {
    #[command(flatten)]
    rows: Filtered,
}

const EXAMPLES: &str = "\
Examples:
  gavel calls list --filter 'success = false AND created_at >= \"2026-11-20T00:00:00Z\"'
  gavel calls list --json --limit 1000 | jq -r .result.error.code | sort | uniq -c";

impl Talk for List {
    async fn talk(&self, gavel: &Gavel) -> anyhow::Result<Exit> {
        let page = gavel
            .page::<ToolInvocationPage, _>("v1/tool-invocations", &self.rows.query())
            .await?;
        self.rows.paging.print(&page, "no tool calls", COLUMNS)
    }
}

const COLUMNS: &[Column<ToolInvocation>] = &[
    ("at (UTC)", |row| at(row.created_at)),
    ("decision", |row| row.decision_id.clone()),
    ("server", |row| clipped(&known(row.server.as_deref()), 16)),
    ("tool", |row| clipped(&row.tool, 24)),
    ("status", |row| row.status.to_string()),
    ("error", |row| known(row.result.error.as_ref().map(|error| error.code))),
    ("policy", |row| known(row.policy.as_deref())),
    ("user", |row| clipped(&row.user_id, 20)),
    ("ms", |row| known(row.result.duration_ms)),
];
