//! `gavel decisions`: the decision log, read only.

use std::collections::BTreeMap;
use std::time::Duration;

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::api::Page;
use crate::api::decisions::{
    AskedWith, DecisionDetail, DecisionPage, DecisionRecord, Erased, ErasureBody, ToolInvocation, Turn,
};
use crate::api::filter::Listed;
use crate::cli::client::{Client, Query, Wait, seen};
use crate::cli::exit::{Exit, Usage};
use crate::cli::gavel::{Gavel, OfTenant, Talk, Work};
use crate::cli::interrupt::or_stopped;
use crate::cli::lines::Lines;
use crate::cli::list::{Column, Filtered, at, clipped, cost, known, table_of};
use crate::cli::{commands, output, shows, why};
use crate::domain::ids::{DecisionId, UserId};
use crate::domain::time::Timestamp;

commands! {
    /// The commands of `gavel decisions`.
    Command {
        /// List decisions, newest first
        List(List, OfTenant),
        /// Show one decision with its tool calls
        Show(Show, OfTenant),
        /// Show what the model was asked with: definition, functions, earlier conversation, message
        Request(Request, OfTenant),
        /// Show why it was made as it was: rules, limits, time, changes of the definition, audit
        Why(Why, OfTenant),
        /// Erase the texts of a user in the logs; rows, counts and the audit chain remain
        Erase(Erase, OfTenant),
        /// Print new decisions as they are made
        Tail(Tail, OfTenant),
    }
}

/// How a filter is written.
fn filters() -> String {
    format!(
        "A filter is FIELD OP \"VALUE\", joined by AND or OR, with parentheses and NOT. Fields: {}, and call.FIELD for \
         those of `gavel calls list`. Operators: = != < <= > >=, and : for a part of a text. A * at the end of a value \
         matches every ending; a text alone is found in message and response.",
        DecisionPage::fields()
    )
}

/// Options of `gavel decisions list`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = format!("{}\n\n{LIST_EXAMPLES}", filters()))]
pub(super) struct List {
    #[command(flatten)]
    rows: Filtered,
}

const LIST_EXAMPLES: &str = "\
Examples:
  gavel decisions list --filter 'outcome_category = \"ERROR:*\" AND created_at >= \"2026-11-20T00:00:00Z\"'
  gavel decisions list --json --limit 1000 | jq -r .outcome_category | sort | uniq -c";

impl Talk for List {
    async fn talk(&self, gavel: &Gavel) -> anyhow::Result<Exit> {
        let page = gavel
            .page::<DecisionPage, _>("v1/decisions", &self.rows.query())
            .await?;
        self.rows.paging.print(&page, "no decisions", COLUMNS)
    }
}

const COLUMNS: &[Column<DecisionRecord>] = &[
    ("at (UTC)", |row| at(row.created_at)),
    ("decision", |row| row.decision_id.clone()),
    ("type", |row| known(row.decision_type)),
    ("outcome", |row| known(row.outcome_category)),
    ("user", |row| clipped(&row.user_id, 20)),
    ("intent", |row| clipped(&known(row.intent.as_deref()), 20)),
    ("ms", |row| known(row.duration_ms)),
    ("cost", |row| cost(row.cost_nano)),
    ("message", |row| clipped(&known(row.message.as_deref()), 48)),
];

#[cfg(test)]
mod list_tests {
    use serde_json::json;

    use super::*;
    use crate::cli::tests::samples::sample;

    #[test]
    fn a_row_shows_what_is_known_and_marks_what_is_not() {
        let item: DecisionRecord = sample(json!({
            "created_at": "2026-11-20T10:20:30.123456Z", "decision_id": "d", "decision_type": "RESPOND_ONLY",
            "outcome_category": null, "user_id": "ann", "intent": "respond", "duration_ms": 12, "cost_nano": 4_113_000, "message": "a\nb",
        }));
        let table = table_of(COLUMNS, &[item]);
        assert!(
            table
                .ends_with("2026-11-20 10:20:30  d         RESPOND_ONLY  -        ann   respond  12  $0.004113  a b\n"),
            "{table}"
        );
    }
}

shows! {
    /// Options of `gavel decisions show`.
    Show("The decision's id" DecisionId) = "v1/decisions/{}", show_text;
    /// Options of `gavel decisions request`.
    Request("The decision's id" DecisionId) = "v1/decisions/{}/request", request_text;
    /// Options of `gavel decisions why`.
    Why("The decision's id" DecisionId) = "v1/decisions/{}/why", why::of_decision;
}

/// Options of `gavel decisions erase`.
#[derive(Debug, clap::Args)]
pub(super) struct Erase {
    /// The user
    #[arg(value_parser = crate::cli::gavel::user, value_name = "USER")]
    user: UserId,
    /// Do not ask whether to do it
    #[arg(long)]
    yes: bool,
    /// As JSON
    #[arg(long)]
    json: bool,
}

impl Talk for Erase {
    const WORK: Work = Work::Export;

    async fn talk(&self, gavel: &Gavel) -> anyhow::Result<Exit> {
        let user_id = self.user.clone();
        if !self.yes {
            let mut lines = Lines::new();
            if !lines.person {
                return Err(
                    Usage("there is no terminal to ask at, and this cannot be undone: add --yes".to_owned()).into(),
                );
            }
            let prompt = format!("Erase all texts of {user_id}? This cannot be undone. [y]es, [n]o: ");
            if !matches!(lines.choose(&prompt, &["yes", "no"]).await?, Some(("yes", _))) {
                return Ok(Exit::Done);
            }
        }
        let erased: Erased = gavel
            .post("v1/erasures", &[], Wait::No, &ErasureBody { user_id })
            .await?;
        output::answer(self.json, &erased, |erased| {
            let left = match erased.left {
                0 => String::new(),
                left => format!("\n{left} in progress or in doubt: erase again once they have ended"),
            };
            let decisions = output::count(erased.decisions, "decision");
            let calls = output::count(erased.tool_invocations, "tool call");
            format!("erased the texts of {decisions} and {calls}{left}")
        })
    }
}

/// The fields in order, then a line for each earlier message, then the message.
fn request_text(asked: &AskedWith) -> String {
    let said = asked
        .history
        .iter()
        .map(|said| (said.role.as_str(), said.content.as_deref()));
    let lines = said
        .chain([("message", asked.message.as_deref())])
        .map(|(role, content)| {
            let words = content.map_or_else(|| "(not kept)".to_owned(), output::printable);
            format!(
                "{:<18}  {}\n",
                output::printable(role),
                words.replace('\n', "\n                    ")
            )
        });
    fields(asked, &["history", "message"]) + &lines.collect::<String>()
}

/// One decision with its tool calls; `None` if there is none, or the caller may not see it.
pub(super) async fn decision(client: &Client, id: DecisionId) -> anyhow::Result<Option<DecisionDetail>> {
    seen(client.get(&format!("v1/decisions/{id}")).await)
}

/// The fields in order, then a line for each model call, then the tool calls.
fn show_text(decision: &DecisionDetail) -> String {
    let turns = (1..).zip(&decision.decision.turns).map(turn);
    let calls = decision.tool_calls.iter().map(call);
    let cost = decision
        .decision
        .cost_nano
        .map(|nano| format!("{:<18}  {}\n", "cost", cost(Some(nano))));
    fields(&decision.decision, &["turns", "cost_nano"])
        + &cost.unwrap_or_default()
        + &turns.chain(calls).collect::<String>()
}

fn turn((number, turn): (usize, &Turn)) -> String {
    let model = turn.model.as_deref().unwrap_or(&turn.requested_model);
    let ended = match (&turn.finish_reason, &turn.model) {
        (Some(reason), _) => reason,
        (None, Some(_)) => "answered",
        (None, None) => "no answer",
    };
    let first = turn.first_text_ms.map(|ms| format!(", first text after {ms} ms"));
    format!(
        "{:<18}  {}  {}  {} ms{}  {} tokens in, {} out{}\n",
        format!("model call {number}"),
        output::printable(model),
        output::printable(ended),
        turn.duration_ms,
        first.unwrap_or_default(),
        turn.usage.input_tokens,
        turn.usage.output_tokens + turn.usage.thought_tokens,
        turn.cost_nano
            .map(|nano| format!("  {}", cost(Some(nano))))
            .unwrap_or_default()
    )
}

/// A line for each field of an object that has a value, except these.
pub(super) fn fields(of: &impl Serialize, except: &[&str]) -> String {
    let mut text = String::new();
    let of = serde_json::to_value(of).unwrap_or_default();
    for (name, value) in of.as_object().into_iter().flatten() {
        let value = match value {
            _ if except.contains(&name.as_str()) => continue,
            Value::Null => continue,
            Value::String(words) => output::printable(words).replace('\n', "\n                    "),
            other => output::printable(&other.to_string()),
        };
        text.push_str(&format!("{name:<18}  {value}\n"));
    }
    text
}

/// A tool call.
pub(super) fn call(call: &ToolInvocation) -> String {
    let json = |value: &Option<Box<RawValue>>| {
        // On one line, with sorted names.
        let value = value
            .as_ref()
            .map(|value| serde_json::from_str::<Value>(value.get()).unwrap_or_default());
        output::printable(&value.unwrap_or_default().to_string())
    };
    let mut text = format!(
        "\ncall {}  {} / {}  {}\n  parameters  {}\n",
        call.sequence,
        output::printable(&known(call.server.as_deref())),
        output::printable(&call.tool),
        call.status,
        json(&call.parameters)
    );
    if let Some(words) = &call.words {
        text.push_str(&format!("  words       {}\n", output::printable(words)));
    }
    if let Some(by) = &call.decided_by {
        text.push_str(&format!("  decided by  {}\n", output::printable(by)));
    }
    match &call.result.error {
        Some(error) => {
            let error = json!({"code": error.code, "message": error.message}).to_string();
            text.push_str(&format!("  error       {}\n", output::printable(&error)));
        }
        None => text.push_str(&format!("  data        {}\n", json(&call.result.data))),
    }
    text
}

#[cfg(test)]
mod show_tests {
    use super::*;
    use crate::cli::tests::samples::sample;

    #[test]
    fn a_decision_is_shown_with_its_calls_and_without_what_is_not_known() {
        let call = |with| serde_json::to_value(sample::<ToolInvocation>(with)).unwrap();
        let decision: DecisionDetail = sample(json!({
            "decision_id": "d", "outcome_category": "SUCCESS:TASK_COMPLETED", "error_detail": null, "response": "a\u{1b}b\nc",
            "cost_nano": 4_113_000,
            "turns": [{
                "requested_model": "m", "model": "m-2", "service_tier": null, "finish_reason": "STOP", "attempts": 1,
                "started_at": "2026-11-20T10:20:30Z", "duration_ms": 840, "first_text_ms": 310,
                "usage": {"input_tokens": 11, "output_tokens": 7, "thought_tokens": 3, "cached_tokens": 0},
                "cost_nano": 4_113_000,
            }],
            "tool_calls": [
                call(json!({"sequence": 1, "server": "tasks", "tool": "add_task", "parameters": {"description": "x"},
                    "result": {"success": true, "data": {"ok": true}, "error": null}})),
                call(json!({"sequence": 2, "server": null, "tool": "wipe", "status": "not_sent", "parameters": {},
                    "result": {"success": false, "data": null, "error": {"code": "unknown_tool", "message": "no"}}})),
            ],
        }));
        let shown = show_text(&decision);
        assert!(
            shown.contains("response            a\\u001bb\n                    c\n"),
            "{shown}"
        );
        assert!(shown.contains("\ncost                $0.004113\n"), "{shown}");
        assert!(!shown.contains("error_detail"));
        assert!(
            shown.contains(
                "model call 1        m-2  STOP  840 ms, first text after 310 ms  11 tokens in, 10 out  $0.004113\n"
            ),
            "{shown}"
        );
        assert!(shown.contains(
            "call 1  tasks / add_task  completed\n  parameters  {\"description\":\"x\"}\n  data        {\"ok\":true}\n"
        ));
        assert!(shown.contains("call 2  - / wipe  not_sent\n"));
        assert!(shown.contains("  error       {\"code\":\"unknown_tool\",\"message\":\"no\"}\n"));
    }
}

/// Options of `gavel decisions tail`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = filters())]
pub(super) struct Tail {
    /// Only matching decisions, such as 'decision_type = "REFUSE"'
    #[arg(long, value_name = "FILTER")]
    filter: Option<String>,
    /// Begin with this many existing decisions
    #[arg(short = 'n', long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(0..=1000), value_name = "N")]
    lines: u32,
    /// Print rows as JSON, one per line
    #[arg(long)]
    json: bool,
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

impl Talk for Tail {
    async fn talk(&self, gavel: &Gavel) -> anyhow::Result<Exit> {
        or_stopped(follow(self, gavel)).await
    }
}

/// Ends only with an error.
async fn follow(args: &Tail, client: &Client) -> anyhow::Result<Exit> {
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
async fn latest(args: &Tail, client: &Client) -> anyhow::Result<Vec<DecisionRecord>> {
    if args.lines == 0 {
        return Ok(Vec::new());
    }
    let query = Query {
        page_size: args.lines,
        filter: Some(closed(args, None)),
        ..Query::default()
    };
    let page: Page<DecisionRecord> = client.page::<DecisionPage, _>("v1/decisions", &query).await?;
    Ok(page.items)
}

/// All closed rows from `from` on, oldest first.
async fn since(args: &Tail, client: &Client, from: DateTime<Utc>) -> anyhow::Result<Vec<DecisionRecord>> {
    let query = Query {
        page_size: PAGE,
        filter: Some(closed(args, Some(from))),
        order_by: Some("created_at".to_owned()),
        ..Query::default()
    };
    client.all::<DecisionPage, _>("v1/decisions", query).await
}

/// The user's filter, limited to closed rows.
fn closed(args: &Tail, from: Option<DateTime<Utc>>) -> String {
    let mut parts = vec!["status = \"closed\"".to_owned()];
    parts.extend(from.map(|from| {
        format!(
            "created_at >= \"{}\"",
            from.to_rfc3339_opts(SecondsFormat::Micros, true)
        )
    }));
    let own = args.filter.as_deref().filter(|own| !own.trim().is_empty());
    parts.extend(own.map(|own| format!("({own})")));
    parts.join(" AND ")
}

fn print(args: &Tail, rows: &[DecisionRecord], with_heads: bool) -> anyhow::Result<()> {
    if args.json {
        return output::json_lines(rows);
    }
    if rows.is_empty() && !with_heads {
        return Ok(());
    }
    let table = table_of(COLUMNS, rows);
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
mod tail_tests {
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
