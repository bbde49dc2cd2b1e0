//! Measures only the store. It is not a test: it asserts nothing about time.
//!
//! ```text
//! cargo run --release --example store_bench -- write sqlite:/tmp/b.db 100000 64   # closes decisions, 64 at once
//! cargo run --release --example store_bench -- list  sqlite:/tmp/b.db 1000000     # inserts, then reads first pages
//! cargo run --release --example store_bench -- stats sqlite:/tmp/c.db 1000000     # inserts a month, then asks about it
//! ```
#![allow(clippy::print_stdout, clippy::unwrap_used)]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use gavel::adapters::store::{Store, StoreConfig};
use gavel::api::stats::StatsSource;
use gavel::domain::decision::{DecisionType, Outcome, Usage};
use gavel::domain::definition::{Constitution, Definition};
use gavel::domain::ids::{ActionId, ConversationId, DecisionId, InstanceId, TenantId, UserId};
use gavel::domain::journal::{CallFailure, Speaker};
use gavel::domain::time::Timestamp;
use gavel::domain::tool::{FailureCode, Tool};
use gavel::ports::commit::{Commit, Fact, Recorder};
use gavel::ports::records::{
    Asked, ClosedCall, ClosedDecision, Decisions, Kept, ListQuery, OpenCall, OpenDecision, Page, QueryError, Times,
    Turn,
};
use gavel::ports::stats::{Stats, StatsQuestion, Units};
use serde_json::value::RawValue;
use sqlx::Connection;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |place: usize, default: usize| {
        arguments
            .get(place)
            .and_then(|text| text.parse().ok())
            .unwrap_or(default)
    };
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["write", url, ..] => write(url, number(2, 100_000), number(3, 64)).await,
        ["list", url, ..] => list(url, number(2, 1_000_000)).await,
        ["stats", url, ..] => stats(url, number(2, 1_000_000)).await,
        _ => anyhow::bail!("usage: store_bench write|list|stats URL [COUNT] [IN_FLIGHT]"),
    }
}

async fn open(url: &str) -> anyhow::Result<Arc<Store>> {
    Ok(Store::open(StoreConfig {
        close_deadline: Duration::from_secs(60),
        ..StoreConfig::new(url, InstanceId::new())
    })
    .await?)
}

/// Closes `count` decisions with one call each, `in_flight` at a time.
async fn write(url: &str, count: usize, in_flight: usize) -> anyhow::Result<()> {
    let store = open(url).await?;
    let tools = tools();
    let (start, cpu) = (Instant::now(), cpu());
    let mut latencies = close_many(&store, count, in_flight, move |n| decision(n, &tools)).await?;
    let (wall, cpu) = (start.elapsed().as_secs_f64(), self::cpu() - cpu);
    latencies.sort_unstable();
    println!(
        "{count} decisions, {in_flight} in flight: {:.0}/s, {:.3} CPU-s per 1,000, p50 {:?}, p99 {:?}, max {:?}",
        count as f64 / wall,
        cpu / count as f64 * 1000.0,
        latencies[count / 2],
        latencies[count * 99 / 100],
        latencies[count - 1],
    );
    store.shutdown().await;
    Ok(())
}

/// Inserts decisions up to `count`, then measures the first page of many queries.
async fn list(url: &str, count: usize) -> anyhow::Result<()> {
    let store = open(url).await?;
    let tenant = TenantId::parse("default").unwrap();
    if store.list(&tenant, &question("")).await?.items.is_empty() {
        let start = Instant::now();
        let tools = tools();
        close_many(&store, count, 512, move |n| decision(n, &tools)).await?;
        println!("filled in {:?}", start.elapsed());
    }
    for filter in [
        "",
        r#"user_id = "user-77""#,
        r#"user_id = "stranger""#,
        r#"conversation_id = "conversation-4242""#,
        r#"outcome_category = "SUCCESS:TASK_COMPLETED""#,
        r#"outcome_category = "ERROR:DEADLINE""#,
        r#"outcome_category = "ERROR:*""#,
        r#"outcome_category != "SUCCESS:TASK_COMPLETED""#,
        r#"decision_type = "REFUSE""#,
        r#"decision_type = "INVOKE_TOOL" AND outcome_category = "ERROR:*""#,
        r#"user_id = "user-77" AND outcome_category = "SUCCESS:TASK_COMPLETED""#,
        r#"status = "open""#,
        r#"created_at >= "2026-11-20T00:10:00Z" AND created_at < "2026-11-20T00:11:00Z""#,
        r#"duration_ms > 100000"#,
        r#"intent = "none such""#,
        r#"model = "none such""#,
    ] {
        time("decisions", filter, async |ask| store.list(&tenant, ask).await).await?;
    }
    for filter in [
        "",
        r#"tool = "complete_task""#,
        r#"tool = "none such""#,
        r#"status = "in_doubt""#,
        r#"success = false"#,
        r#"user_id = "user-77""#,
        r#"server = "none such""#,
    ] {
        time("tool calls", filter, async |ask| {
            store.tool_invocations(&tenant, ask).await
        })
        .await?;
    }
    store.shutdown().await;
    Ok(())
}

/// The month that statistics are asked about ends with this hour.
fn month() -> (i64, i64) {
    let hour = 3_600_000_000;
    let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_micros() as i64;
    let end = now / hour * hour - hour;
    (end - 30 * 24 * hour, end)
}

/// Inserts decisions of a month with two calls each, waits until their quarters are counted, and asks questions.
async fn stats(url: &str, count: usize) -> anyhow::Result<()> {
    let store = open(url).await?;
    let tenant = TenantId::parse("default").unwrap();
    let (from, to) = month();
    if store.list(&tenant, &question("")).await?.items.is_empty() {
        let (start, tools, step) = (Instant::now(), tools(), (to - from) / count as i64);
        let make = move |n: usize| of_a_month(decision(n, &tools), n, from + n as i64 * step);
        close_many(&store, count, 512, make).await?;
        println!("filled in {:?}", start.elapsed());
    }
    let start = Instant::now();
    while marks(url).await? > 0 {
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    println!("counted after {:?}", start.elapsed());
    let text = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let days = Some(Units {
        quarters: 96,
        offsets: vec![(22, i64::MAX)],
    });
    let (decisions, calls) = (StatsSource::Decisions, StatsSource::ToolInvocations);
    type Asked<'a> = (
        &'a str,
        StatsSource,
        &'a [&'a str],
        &'a [&'a str],
        &'a [&'a str],
        &'a str,
        Option<Units>,
    );
    let questions: &[Asked<'_>] = &[
        (
            "outcomes by day",
            decisions,
            &["outcome_category"],
            &[],
            &[],
            "",
            days.clone(),
        ),
        (
            "p95 by model",
            decisions,
            &["model"],
            &[],
            &["duration_ms", "model_ms"],
            "",
            None,
        ),
        ("p95 by day", decisions, &[], &[], &["duration_ms"], "", days.clone()),
        (
            "cost by model",
            decisions,
            &["model"],
            &["cost_nano", "input_tokens"],
            &[],
            "",
            None,
        ),
        (
            "cost of a surface by day",
            decisions,
            &["model"],
            &["cost_nano"],
            &[],
            "surface = \"chat\"",
            days,
        ),
        (
            "tools",
            calls,
            &["server", "tool", "status"],
            &[],
            &["duration_ms"],
            "",
            None,
        ),
        ("intents, from the log", decisions, &["intent"], &[], &[], "", None),
        (
            "a user, from the log",
            decisions,
            &["outcome_category"],
            &[],
            &[],
            "user_id = \"user-77\"",
            None,
        ),
    ];
    for (name, source, by, sums, lengths, filter, units) in questions {
        let question = StatsQuestion {
            source: *source,
            time: (from, to + 3_600_000_000),
            filter: Some((*filter).to_owned()),
            by: text(by),
            units: units.clone(),
            rates: Vec::new(),
            sums: text(sums),
            lengths: text(lengths),
            user: None,
        };
        let mut took = Vec::new();
        let mut rows = 0;
        for _ in 0..3 {
            let start = Instant::now();
            let found = store.tally(&tenant, &question).await?;
            took.push(start.elapsed());
            rows = found.tallies.iter().map(|tally| tally.count).sum();
        }
        println!("{name:26} {took:>10.1?}, {rows} rows");
    }
    store.shutdown().await;
    Ok(())
}

/// The decision at this time, with other values in some columns, and a second call.
fn of_a_month(mut decision: ClosedDecision, n: usize, at: i64) -> ClosedDecision {
    let open = &mut decision.open;
    open.created_at = at;
    open.surface = ["chat", "chat", "agent", "thread"][n % 4];
    open.agent_id = [None, None, Some("clerk".into()), Some("planner".into())][n % 4].clone();
    open.definition_hash = format!("{:064x}", n * 4 / 1_000_000).into();
    decision.model = [Some("gemini-3-flash".into()), Some("gemini-3-pro".into())][n % 7 / 6].clone();
    decision.duration_us = (spread(n) % 4_000_000) as i64 + 200_000;
    decision.closed_at = at + decision.duration_us;
    let mut second = decision.calls[0].clone();
    second.open.id = ActionId::new();
    second.open.sequence = 2;
    decision.calls.push(second);
    for call in &mut decision.calls {
        call.open.created_at = at + 500;
        call.duration_us = (spread(n) % 90_000) as i64 + 1000;
    }
    decision
}

/// Quarters that are not counted yet.
async fn marks(url: &str) -> anyhow::Result<i64> {
    let count = "SELECT COUNT(*) FROM stats_dirty WHERE quarter < $1";
    let quarter = month().1 / 900_000_000;
    Ok(match url.starts_with("sqlite") {
        true => {
            let mut conn = sqlx::SqliteConnection::connect(url).await?;
            sqlx::query_scalar(count).bind(quarter).fetch_one(&mut conn).await?
        }
        false => {
            let mut conn = sqlx::PgConnection::connect(url).await?;
            sqlx::query_scalar(count).bind(quarter).fetch_one(&mut conn).await?
        }
    })
}

async fn time<T>(
    what: &str,
    filter: &str,
    read: impl AsyncFn(&ListQuery) -> Result<Page<T>, QueryError>,
) -> anyhow::Result<()> {
    let ask = question(filter);
    let start = Instant::now();
    let rows = read(&ask).await?.items.len();
    let first = start.elapsed();
    let start = Instant::now();
    read(&ask).await?;
    let again = start.elapsed();
    println!("{what:11} {first:>10.1?} then {again:>10.1?}, {rows:3} rows: {filter}");
    Ok(())
}

fn question(filter: &str) -> ListQuery {
    ListQuery {
        page_size: 50,
        filter: Some(filter.to_owned()),
        ..ListQuery::default()
    }
}

async fn close_many(
    store: &Arc<Store>,
    count: usize,
    in_flight: usize,
    make: impl Fn(usize) -> ClosedDecision + Clone + Send + 'static,
) -> anyhow::Result<Vec<Duration>> {
    let next = Arc::new(AtomicUsize::new(0));
    let mut workers = tokio::task::JoinSet::new();
    for _ in 0..in_flight {
        let (store, next, make) = (Arc::clone(store), Arc::clone(&next), make.clone());
        workers.spawn(async move {
            let mut latencies = Vec::new();
            loop {
                let n = next.fetch_add(1, Ordering::Relaxed);
                if n >= count {
                    return anyhow::Ok(latencies);
                }
                let decision = make(n);
                let start = Instant::now();
                store.commit(Commit::of_process(vec![Fact::Closed(decision)])).await?;
                latencies.push(start.elapsed());
            }
        });
    }
    let mut all = Vec::with_capacity(count);
    while let Some(latencies) = workers.join_next().await {
        all.extend(latencies??);
    }
    Ok(all)
}

fn tools() -> Vec<Arc<Tool>> {
    ["add_task", "list_tasks", "update_task", "complete_task"]
        .into_iter()
        .map(|name| {
            Arc::new(Tool {
                side_effect: false,
                digest: "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08".into(),
                ..Tool::named("tasks", name)
            })
        })
        .collect()
}

/// The definition and the functions that every model was asked with.
static OFFERED: LazyLock<(Arc<Definition>, Arc<Kept>)> = LazyLock::new(|| {
    let constitution = Constitution::from_markdown(Constitution::BUILT_IN, "").unwrap();
    (constitution.definition, Arc::new(Kept::new("x".repeat(8000))))
});

/// One decision, spread over 10,000 users and 100,000 conversations. One in a hundred fails; one in 10,000 is in doubt.
fn decision(n: usize, tools: &[Arc<Tool>]) -> ClosedDecision {
    let created_at = 1_795_132_800_000_000 + i64::try_from(n).unwrap() * 1000;
    let tool = &tools[n % tools.len()];
    let (decision_type, outcome) = match n % 100 {
        0 => (
            DecisionType::InvokeTool,
            if n.is_multiple_of(1000) {
                Outcome::Deadline
            } else {
                Outcome::ToolInvocation
            },
        ),
        1 => (DecisionType::Refuse, Outcome::OutOfScope),
        2 => (DecisionType::RequestClarification, Outcome::UnclearIntent),
        _ => (DecisionType::InvokeTool, Outcome::TaskCompleted),
    };
    let outcome_of_call = match n {
        n if n.is_multiple_of(10_000) => Err(CallFailure::new(FailureCode::InDoubt, "connection lost")),
        _ => Ok(raw(
            r#"{"id":"01993b5c-7d3e-7a51-b9f0-000000000000","title":"call mom","done":false}"#,
        )),
    };
    let open = OpenDecision {
        id: DecisionId::new(),
        tenant: TenantId::parse("default").unwrap(),
        surface: "chat",
        user: UserId::parse(format!("user-{}", spread(n) % 10_000)).unwrap(),
        conversation: ConversationId::parse(format!("conversation-{}", spread(n) % 100_000)).unwrap(),
        message: "add a task to call mom tomorrow at ten, please".into(),
        definition_hash: "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08".into(),
        requested_model: "gemini-3-flash".into(),
        agent_id: None,
        time_zone: Some("Europe/Berlin".into()),
        tools_subset: None,
        history_entries: 4,
        trace_id: None,
        request_id: DecisionId::new().to_string().into(),
        created_at,
    };
    let call = OpenCall {
        id: ActionId::new(),
        decision: open.id,
        tenant: open.tenant.clone(),
        sequence: 1,
        turn: Some(1),
        tool: Some(Arc::clone(tool)),
        name: Arc::clone(&tool.name),
        words: None,
        arguments: raw(r#"{"description":"call mom","due":"2026-11-21T10:00:00Z"}"#),
        policy: None,
        idempotency_key: Some("01993b5c-7d3e-7a51-b9f0-000000000001".into()),
        created_at: created_at + 500,
    };
    ClosedDecision {
        open,
        decision_type,
        outcome,
        intent: Arc::clone(&tool.name),
        response: "Done: I added \"call mom\" to your tasks, due tomorrow at 10:00.".into(),
        model: Some("gemini-3-flash".into()),
        service_tier: Some("standard".into()),
        turns: vec![turn(created_at); 2],
        usage: Usage {
            input_tokens: 1200,
            output_tokens: 60,
            thought_tokens: 100,
            cached_tokens: 1000,
        },
        duration_us: 1_234_567,
        times: Times {
            human_us: 0,
            model_us: 1_200_000,
            tool_us: 900,
        },
        limits: Vec::new(),
        closed_at: created_at + 1_234_567,
        error_detail: None,
        asked: Some(Arc::new(Asked {
            definition: Arc::clone(&OFFERED.0),
            toolset: Arc::clone(&OFFERED.1),
            // A turn of a conversation adds a message and an answer to what the one before had.
            history: (2 * n..2 * n + 4)
                .map(|line| (Speaker::User, format!("what was said in line {line}")))
                .collect(),
        })),
        calls: vec![ClosedCall {
            open: call,
            started_at: Some(created_at + 500),
            duration_us: 900,
            outcome: outcome_of_call,
        }],
        answer: None,
        opened: false,
    }
}

/// Spreads users in no order, by a multiplicative hash.
fn spread(n: usize) -> usize {
    n.wrapping_mul(2_654_435_761) >> 7
}

fn raw(json: &str) -> Arc<RawValue> {
    RawValue::from_string(json.to_owned()).unwrap().into()
}

/// CPU seconds of this process so far, user and system (Linux).
fn cpu() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let fields: Vec<f64> = after_name
        .split_whitespace()
        .map(|text| text.parse().unwrap_or(0.0))
        .collect();
    // Fields 14 and 15 of proc(5), in ticks of 1/100 s.
    fields
        .get(11)
        .zip(fields.get(12))
        .map_or(f64::NAN, |(user, system)| (user + system) / 100.0)
}

fn turn(started_at: i64) -> Turn {
    Turn {
        requested_model: "gemini-3-flash".to_owned(),
        model: Some("gemini-3-flash".to_owned()),
        service_tier: Some("standard".to_owned()),
        finish_reason: Some("STOP".to_owned()),
        attempts: 1,
        started_at: Timestamp(started_at),
        duration_ms: 600,
        first_text_ms: None,
        usage: Usage::default(),
        cost_nano: Some(2_100_000),
        price_id: Some("gemini-3-flash@2026-10-01:1/0.1/5".to_owned()),
    }
}
