//! The pages of the documentation that the binary prints: about the command line, what `--help` prints, about the
//! analysts' views and about metrics.

use std::fmt::Write as _;

use clap::Command;
use clap::builder::Resettable;

use crate::adapters::store::reference_of_views;
use crate::cli::exit::{self, Exit};
use crate::cli::{help, output};
use crate::ports::metrics;

/// The first page, with every command that has no commands of its own. Each of the others has a page, `cli-NAME`.
const FIRST: &str = "cli";

/// The beginning of the page about the analysts' views.
const VIEWS: &str = "
Analysts read the logs by SQL in these views: on PostgreSQL in the schema `gavel_v1` (`gavel_v1.decisions`), on SQLite
with the prefix `gavel_v1_` (`gavel_v1_decisions`). The tables behind them can change with any version; a column of a
view keeps its name and its meaning, and new ones come at the end. [Give analysts
access](../how-to/give-analysts-access.md) to them, and [analyze the logs](../how-to/analyze.md) by them.

On PostgreSQL times are `timestamptz`, and `COMMENT ON` shows this page's words in your client. On SQLite they are RFC
3339 in UTC, so filter by `created_us`, which has an index. Durations are in milliseconds.
";

/// The beginning of the page about metrics.
const METRICS: &str = "
Each process serves its metrics at `GET /metrics`, as Prometheus text. [Monitor](../how-to/monitor.md) has a dashboard
and alerts for them; [logs and traces](logs-and-traces.md) have the rest.

- Counters and histograms are those of one process: add them over replicas (`sum by (le)`, then `histogram_quantile`).
- `gavel_approvals_…` and `gavel_actions_…` are read from the database every 15 s. All replicas that share it report
  the same, so take `max`, not `sum`. They are `NaN` while the database cannot be read.
- Times are in seconds. `model` is the name from definitions: the first 64 names in a process, and always the default
  model's, have their own label value, each up to 128 bytes; later names have the value `other`. `server` is the name in
  `mcp.json`.
- A line exists from the start, and counters begin with 0, so that alerts see the first increase. There are two
  exceptions. Requests (`gavel_http_request…`), durations of decisions and Gemini (`gavel_model_…`) have lines from the
  first event of their labels on. `gavel_quota_shared` exists only on PostgreSQL.

";

/// Columns of the help on a page.
const WIDTH: usize = 120;

/// Options of the hidden command `gavel reference`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The page: the name of a file in docs/reference that begins with cli, or views or metrics, without .md
    page: String,
}

pub(super) fn run(args: &Args) -> anyhow::Result<Exit> {
    let Some((_, page)) = pages().into_iter().find(|(name, _)| *name == args.page) else {
        anyhow::bail!("there is no page {:?}", args.page);
    };
    output::line(&page)?;
    Ok(Exit::Done)
}

/// Each page with its name, as Markdown.
fn pages() -> Vec<(String, String)> {
    let mut gavel = help::complete().disable_help_flag(true).term_width(WIDTH);
    gavel.build();
    let (mut first, mut others) = (String::new(), Vec::new());
    let mut links = String::from("\n## The other commands\n\n");
    for command in visible(&gavel) {
        if !command.has_subcommands() {
            describe(command, &mut first);
            continue;
        }
        let (name, page) = (command.get_name(), format!("{FIRST}-{}", command.get_name()));
        let _ = writeln!(links, "- [`gavel {name}`]({page}.md)");
        let intro = format!("[The first page]({FIRST}.md) has the settings that every command accepts.\n");
        let mut text = title(&format!("Command line: {name}"), &page) + &intro;
        describe(command, &mut text);
        others.push((page, text));
    }
    let mut text = title("Command line", FIRST);
    section("gavel", &shown(&help::command().term_width(WIDTH), false), &mut text);
    section("Exit status", &exit::table(), &mut text);
    others.insert(0, (FIRST.to_owned(), text + &links + &first));
    others.push((
        "views".to_owned(),
        title("Views", "views") + VIEWS + &reference_of_views(),
    ));
    others.push((
        "metrics".to_owned(),
        title("Metrics", "metrics") + METRICS + &metrics::reference(),
    ));
    others
}

fn title(title: &str, page: &str) -> String {
    format!("# {title}\n\n`gavel reference {page}` prints this page; a test compares both.\n")
}

fn visible(command: &Command) -> impl Iterator<Item = &Command> {
    let all = command.get_subcommands();
    all.filter(|inner| !inner.is_hide_set() && inner.get_name() != "help")
}

/// A command and the commands below it.
fn describe(command: &Command, text: &mut String) {
    section(command.get_bin_name().unwrap_or_default(), &shown(command, true), text);
    visible(command).for_each(|inner| describe(inner, text));
}

fn section(title: &str, block: &str, text: &mut String) {
    let lines: Vec<_> = block.trim().lines().map(str::trim_end).collect();
    let _ = writeln!(text, "\n## {title}\n\n```text\n{}\n```", lines.join("\n"));
}

/// The long help in the form of the short one, in which an option has a line and not a paragraph. The settings are part of
/// the first.
fn shown(command: &Command, hide_settings: bool) -> String {
    let after = command.get_after_long_help().cloned();
    let mut command = command.clone().after_help(Resettable::from(after)).mut_args(|arg| {
        let help = arg.get_long_help().or(arg.get_help()).cloned();
        let is_hidden = arg.is_hide_set() || hide_settings && arg.get_help_heading().is_some();
        arg.help(Resettable::from(help)).hide(is_hidden).hide_env_values(true)
    });
    command.render_help().to_string().replace(help::END, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The documentation of the command line equals what its definitions say.
    #[test]
    fn the_documentation_has_the_pages_of_the_command_line_as_they_are() {
        for (name, generated) in pages() {
            let file = format!("{}/docs/reference/{name}.md", env!("CARGO_MANIFEST_DIR"));
            let found = std::fs::read_to_string(&file).unwrap_or_default();
            assert_eq!(
                found, generated,
                "put the output of `gavel reference {name}` into docs/reference/{name}.md"
            );
        }
    }
}
