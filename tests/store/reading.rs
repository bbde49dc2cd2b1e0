//! Analysts' reads.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::support::AsJson as _;
use gavel::adapters::store::{ReadOnly, Store, StoreConfig};
use gavel::domain::decision::{DecisionType, Outcome};
use gavel::domain::ids::{ConversationId, DecisionId, TenantId, UserId};
use gavel::domain::tool::FailureCode;
use gavel::ports::records::{ClosedCall, ClosedDecision, ListQuery, OpenCall, QueryError};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};

use crate::commits::Writes;
use crate::support::{T0, TestDb, closed, done, failed, intent, open_decision, tenant, tool, turn};

fn query(filter: &str) -> ListQuery {
    ListQuery {
        page_size: 1000,
        filter: Some(filter.to_owned()),
        ..ListQuery::default()
    }
}

fn invalid<T: std::fmt::Debug>(result: Result<T, QueryError>, named: &str) -> String {
    match result {
        Err(QueryError::Invalid { field, detail }) if field == named => detail,
        other => panic!("{other:?}"),
    }
}

/// SHA-256 of `{"description":"call mom"}`, by an independent tool.
const INPUT_HASH: &str = "54ff3d9ce6c0c513ae87b0deadb56703d61e8a6bac97aa56452fcbde95638ff4";

/// C-FR-007, R-17: a decision reads back with the field names of the response, and its calls.
pub(crate) async fn a_decision_reads_back_as_in_the_response(db: TestDb) {
    let store = db.open().await;
    let open = open_decision();
    let unknown = OpenCall {
        tool: None,
        name: "nope".into(),
        policy: None,
        idempotency_key: None,
        created_at: T0,
        ..intent(&open, 2)
    };
    let calls = vec![
        done(&intent(&open, 1)),
        ClosedCall {
            started_at: None,
            duration_us: 0,
            ..failed(&unknown, FailureCode::UnknownTool, "no such tool")
        },
    ];
    store.close(closed(open.clone(), calls.clone(), false)).await.unwrap();
    let id = open.id.to_string();
    let row = json!({
        "decision_id": id,
        "conversation_id": "c-1",
        "decision_type": "INVOKE_TOOL",
        "outcome_category": "SUCCESS:TASK_COMPLETED",
        "response": "Done: call mom.",
        "iterations": 2,
        "model": "gemini-answers",
        "requested_model": "gemini-test",
        "service_tier": "standard",
        "usage": {"input_tokens": 11, "output_tokens": 7, "thought_tokens": 3, "cached_tokens": 1},
        "duration_ms": 1234,
        "human_ms": 0,
        "model_ms": 1000,
        "tool_ms": 2,
        "closed_at": "2026-11-20T00:00:01.234568Z",
        "finish_reason": "STOP",
        "attempts": 2,
        "cost_nano": 4_000_246,
        "price_id": "gemini-answers@2026-10-01:3/0.15/15",
        "turns": [turn(), turn()],
        "limits_reached": [],
        "agent_id": null,
        "time_zone": "Europe/Berlin",
        "tools_subset": ["add_task"],
        "history_entries": 2,
        "history_hash": null,
        "toolset_hash": null,
        "trace_id": "4bf92f3577b34da6a3ce929d0e0e4736",
        "surface": "chat",
        "user_id": "ann",
        "status": "closed",
        "intent": "add_task",
        "message": "add a task to call mom",
        "created_at": "2026-11-20T00:00:00.000001Z",
        "definition_hash": "c0ffee",
        "error_detail": null,
        "request_id": "req-1",
        "recovered": false,
    });
    assert_eq!(
        store.list(&tenant(), &query("")).await.unwrap().items,
        std::slice::from_ref(&row)
    );

    let mut whole = row;
    whole["tool_calls"] = json!([
        {
            "tool_invocation_id": calls[0].open.id, "decision_id": id, "user_id": "ann",
            "created_at": "2026-11-20T00:00:00.000002Z", "started_at": "2026-11-20T00:00:00.000002Z",
            "sequence": 1, "tool": "add_task", "server": "tasks", "status": "completed", "tool_digest": "d1gest",
            "side_effect": true, "parameters": {"description": "call mom"},
            "words": "I will call mom", "input_hash": INPUT_HASH, "policy": "allow", "decided_by": "rule tasks",
            "turn": 1, "lost": [{"by": "side_effects", "says": "require_approval"}],
            "argument_bytes": 26,
            "result": {"success": true, "data": {"id": "t-1"}, "bytes": 12, "error": null, "duration_ms": 1},
        },
        {
            "tool_invocation_id": calls[1].open.id, "decision_id": id, "user_id": "ann",
            "created_at": "2026-11-20T00:00:00.000001Z", "started_at": null,
            "sequence": 2, "tool": "nope", "server": null, "status": "not_sent", "tool_digest": null,
            "side_effect": false, "parameters": {"description": "call mom"},
            "words": null, "input_hash": INPUT_HASH, "policy": null, "decided_by": null, "argument_bytes": 26,
            "turn": 1, "lost": [],
            "result": {"success": false, "data": null, "bytes": null, "error": {"code": "unknown_tool", "message": "no such tool"},
                "duration_ms": 0},
        },
    ]);
    assert_eq!(store.get(&tenant(), open.id).await.unwrap(), Some(whole.clone()));

    let page = store
        .tool_invocations(&tenant(), &query("success = true"))
        .await
        .unwrap();
    assert_eq!(page.items, whole["tool_calls"].as_array().unwrap()[..1]);
    // The key in the request opens what it protects: only operators with database access see it.
    assert!(!whole.to_string().contains("key-1"));
}

/// An open decision is shown as open, without an outcome.
pub(crate) async fn an_open_decision_is_shown_as_open(db: TestDb) {
    let store = db.open().await;
    let open = open_decision();
    store.open(open.clone(), vec![intent(&open, 1)]).await.unwrap();
    let row = store.get(&tenant(), open.id).await.unwrap().unwrap();
    assert_eq!(row["status"], "open");
    assert_eq!(row["outcome_category"], Value::Null);
    assert_eq!(row["tool_calls"][0]["status"], "started");
    assert_eq!(row["tool_calls"][0]["result"]["success"], false);
    assert_eq!(store.get(&tenant(), DecisionId::new()).await.unwrap(), None);
}

/// Another tenant's decision is not found; a user sees only their own.
pub(crate) async fn no_user_sees_another_users_rows(db: TestDb) {
    let store = db.open().await;
    let other = TenantId::parse("other").unwrap();
    let (mine, mut theirs, mut ben) = (open_decision(), open_decision(), open_decision());
    theirs.tenant = other.clone();
    ben.user = UserId::parse("ben").unwrap();
    for open in [&mine, &theirs, &ben] {
        store
            .close(closed(open.clone(), vec![done(&intent(open, 1))], false))
            .await
            .unwrap();
    }
    assert_eq!(store.get(&tenant(), theirs.id).await.unwrap(), None);
    assert!(store.get(&other, theirs.id).await.unwrap().is_some());
    for filter in [
        "",
        r#"user_id = "ann""#,
        r#"outcome_category = "SUCCESS:*""#,
        r#"user_id != "x""#,
    ] {
        let page = store.list(&tenant(), &query(filter)).await.unwrap();
        assert!(
            !page.items.iter().any(|row| row["decision_id"] == theirs.id.to_string()),
            "{filter}"
        );
    }
    let as_ben = ListQuery {
        user: Some(UserId::parse("ben").unwrap()),
        ..query(r#"outcome_category = "SUCCESS:*""#)
    };
    let page = store.list(&tenant(), &as_ben).await.unwrap();
    assert_eq!(page.items.len(), 1);
    assert_eq!(page.items[0]["user_id"], "ben");
    let as_ben = ListQuery {
        filter: Some(r#"user_id = "ann""#.into()),
        ..as_ben
    };
    assert!(store.list(&tenant(), &as_ben).await.unwrap().items.is_empty());
    let as_ben = ListQuery { filter: None, ..as_ben };
    assert_eq!(store.tool_invocations(&tenant(), &as_ben).await.unwrap().items.len(), 1);
}

/// Pages join to the complete list: each row once, in order, even if many have the same time.
pub(crate) async fn pages_join_to_the_complete_list(db: TestDb) {
    let store = db.open().await;
    fill(&store).await;
    for (order_by, filter) in [
        (None, ""),
        (Some("created_at"), ""),
        (Some("created_at desc"), r#"outcome_category = "ERROR:*""#),
        (Some("created_at asc"), r#"outcome_category != "SUCCESS:*""#),
        (
            Some("iterations desc"),
            r#"created_at >= "2026-11-19T00:00:00Z" AND created_at < "2026-12-19T00:00:00Z""#,
        ),
        (
            Some("duration_ms"),
            r#"created_at >= "2026-11-20T00:00:00Z" AND created_at < "2026-11-21T00:00:00Z" AND outcome_category = "ERROR:*""#,
        ),
    ] {
        let mut ask = ListQuery {
            order_by: order_by.map(str::to_owned),
            ..query(filter)
        };
        let whole = store.list(&tenant(), &ask).await.unwrap();
        assert_eq!(whole.next_page_token, None);
        ask.page_size = 7;
        let mut joined = Vec::new();
        loop {
            let page = store.list(&tenant(), &ask).await.unwrap();
            assert!(page.items.len() <= 7);
            joined.extend(page.items);
            match page.next_page_token {
                Some(token) => ask.page_token = Some(token),
                None => break,
            }
        }
        assert_eq!(joined, whole.items, "{order_by:?} {filter}");
        let by = order_by
            .and_then(|by| by.split(' ').next())
            .filter(|by| *by != "created_at");
        let place = |row: &Value| {
            let number = by.map(|by| row[by].as_i64().unwrap());
            (number, row["created_at"].to_string(), row["decision_id"].to_string())
        };
        let ascending = matches!(order_by, Some("created_at" | "created_at asc" | "duration_ms"));
        assert!(joined.is_sorted_by(|a, b| if ascending {
            place(a) < place(b)
        } else {
            place(a) > place(b)
        }));
    }
}

/// A page that would have too many bytes ends early and returns a token for the rest.
pub(crate) async fn a_page_is_bounded_in_bytes(db: TestDb) {
    let store = db.open().await;
    for _ in 0..5 {
        let mut decision = closed(open_decision(), vec![], false);
        decision.response = "x".repeat(3 << 20).into();
        store.close(decision).await.unwrap();
    }
    let (mut ask, mut sizes) = (query(""), Vec::new());
    loop {
        let page = store.list(&tenant(), &ask).await.unwrap();
        sizes.push(page.items.len());
        match page.next_page_token {
            Some(token) => ask.page_token = Some(token),
            None => break,
        }
    }
    assert_eq!(sizes, [2, 2, 1]);
}

/// A query error is named, with what is allowed. `/readyz` reports on the database, not on slow
/// queries of analysts.
pub(crate) async fn a_slow_query_gets_an_error_and_the_store_stays_ready(db: TestDb) {
    let limit = Duration::from_millis(700);
    let store = Store::open(StoreConfig {
        read_limit: limit,
        ..db.config()
    })
    .await
    .unwrap();
    // A table that takes for ever to read.
    let _lock = if db.is_sqlite() {
        db.run(
            "ALTER TABLE decision_log RENAME TO away; CREATE VIEW decision_log AS \
             WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) \
             SELECT away.* FROM n CROSS JOIN away WHERE n.i < 0",
        )
        .await;
        None
    } else {
        Some(db.lock_out_readers().await)
    };
    let slow = query("");
    let tenant = tenant();
    let analysts = futures_util::future::join_all((0..4).map(|_| store.list(&tenant, &slow)));
    let probe = async {
        tokio::time::sleep(limit / 7).await;
        let asked = Instant::now();
        store.ping().await.unwrap();
        asked.elapsed()
    };
    let (reported, probed) = tokio::join!(analysts, probe);
    for reported in reported {
        assert_eq!(reported, Err(QueryError::TooSlow { limit }));
    }
    assert!(probed < limit / 2, "{probed:?}");
    store.shutdown().await;
}

/// A reader of the log neither creates nor changes a database, and needs no writer's lock.
pub(crate) async fn a_reader_changes_nothing(db: TestDb) {
    let db = db.emptied().await;
    let refused = ReadOnly::open(&db.url).await.err().unwrap().to_string();
    if db.is_sqlite() {
        assert!(refused.starts_with("there is no database at "), "{refused}");
        assert!(!db.file().exists() && !db.file().parent().unwrap().exists());
    } else {
        assert!(refused.contains("`gavel migrate` applies them"), "{refused}");
        let tables = "SELECT count(*) FROM information_schema.tables WHERE table_schema = current_schema()";
        assert_eq!(db.count(tables).await, 0);
    }
    let store = db.open().await;
    let decision = closed(open_decision(), vec![], false);
    store.close(decision).await.unwrap();
    store.shutdown().await;
    db.run("DELETE FROM instance").await;

    let lock = db.lock().await;
    let reader = ReadOnly::open(&db.url).await.unwrap();
    let calls = reader.past_calls(&tenant(), &(0, String::new())).await.unwrap();
    assert_eq!(calls, []);
    reader.close().await;
    drop(lock);
    assert_eq!(db.count("SELECT count(*) FROM instance").await, 0);
}

pub(crate) async fn an_invalid_query_gets_an_error_with_the_allowed_values(db: TestDb) {
    let store = db.open().await;
    fill(&store).await;
    for page_size in [0, 1001] {
        let ask = ListQuery {
            page_size,
            ..ListQuery::default()
        };
        assert!(invalid(store.list(&tenant(), &ask).await, "page_size").contains("1..=1000"));
    }
    for (order_by, filter, part) in [
        ("message", "", "allowed are created_at, duration_ms"),
        ("created_at down", "", "each alone or with desc"),
        // All rows that it allows are read.
        ("duration_ms", "", "at most 31 days"),
        (
            "iterations desc",
            "created_at >= \"2026-01-01T00:00:00Z\"",
            "at most 31 days",
        ),
        (
            "iterations desc",
            "created_at >= \"2026-11-29T00:00:00Z\" OR iterations = 1",
            "at most 31 days",
        ),
    ] {
        let ask = ListQuery {
            order_by: Some(order_by.into()),
            ..query(filter)
        };
        let detail = invalid(store.list(&tenant(), &ask).await, "order_by");
        assert!(detail.contains(part), "{order_by}: {detail}");
    }
    let detail = invalid(store.list(&tenant(), &query("tool = \"x\"")).await, "filter");
    assert!(
        detail.contains("at character 1") && detail.contains("outcome_category"),
        "{detail}"
    );

    let mut ask = query(r#"outcome_category = "SUCCESS:*""#);
    ask.page_size = 1;
    let token = store.list(&tenant(), &ask).await.unwrap().next_page_token;
    assert!(token.is_some());
    for other in [
        ListQuery {
            filter: None,
            ..ask.clone()
        },
        ListQuery {
            order_by: Some("created_at".into()),
            ..ask.clone()
        },
        ListQuery {
            user: Some(UserId::parse("ann").unwrap()),
            ..ask.clone()
        },
    ] {
        let ask = ListQuery {
            page_token: token.clone(),
            ..other
        };
        let detail = invalid(store.list(&tenant(), &ask).await, "page_token");
        assert!(detail.contains("belongs to another query"), "{detail}");
    }
    let stolen = ListQuery {
        page_token: token.clone(),
        ..ask.clone()
    };
    invalid(
        store.list(&TenantId::parse("other").unwrap(), &stolen).await,
        "page_token",
    );
    invalid(
        store.tool_invocations(&tenant(), &stolen_for_tools(token)).await,
        "page_token",
    );
    let ask = ListQuery {
        page_token: Some("no-token".into()),
        ..ask
    };
    invalid(store.list(&tenant(), &ask).await, "page_token");
}

fn stolen_for_tools(token: Option<String>) -> ListQuery {
    ListQuery {
        page_size: 1,
        page_token: token,
        ..ListQuery::default()
    }
}

const USERS: [&str; 4] = ["ann", "anna", "b\"en*", "Ärzte"];
const TOOLS: [&str; 3] = ["add_task", "list_tasks", "tasks"];
const OUTCOMES: [Outcome; 6] = [
    Outcome::TaskCompleted,
    Outcome::ResponseGiven,
    Outcome::UnclearIntent,
    Outcome::OutOfScope,
    Outcome::Deadline,
    Outcome::Internal,
];

/// Decisions of every kind; some share a time, some are open.
async fn fill(store: &Arc<Store>) -> (Vec<Stored>, Vec<Stored>) {
    let (mut decisions, mut calls) = (Vec::new(), Vec::new());
    for n in 0..120_u32 {
        let pick = |modulus: u32| ((n * 7 + n / 11) % modulus) as usize;
        let mut open = open_decision();
        open.user = UserId::parse(USERS[pick(4)]).unwrap();
        open.conversation = ConversationId::parse(format!("c-{}", pick(9))).unwrap();
        open.created_at = T0 + i64::from(n / 3) * 1_000_000;
        let call = intent(&open, 1);
        let mut row = Stored {
            id: open.id.to_string(),
            user: open.user.to_string(),
            conversation: open.conversation.to_string(),
            created_at: open.created_at,
            ..Stored::default()
        };
        if n % 10 == 9 {
            row.status = "open";
            store.open(open.clone(), vec![]).await.unwrap();
            decisions.push(row);
            continue;
        }
        let mut record = match n % 4 {
            0 => failed(&call, FailureCode::ToolError, "words"),
            1 => failed(&call, FailureCode::InDoubt, "words"),
            _ => done(&call),
        };
        record.open.tool = Some(tool(TOOLS[pick(3)]));
        record.duration_us = took_us(n, 400);
        let status = ["failed", "in_doubt", "completed", "completed"][(n % 4) as usize];
        let mut decision: ClosedDecision = closed(open, vec![record], false);
        decision.decision_type = DecisionType::ALL[pick(4)];
        decision.outcome = OUTCOMES[pick(6)];
        decision.turns = vec![turn(); n as usize % 5];
        decision.duration_us = took_us(n, 777);
        decision.intent = TOOLS[pick(3)].into();
        row.status = "closed";
        row.decision_type = Some(decision.decision_type.as_str());
        row.outcome = Some(decision.outcome.as_str());
        row.tool = Some(TOOLS[pick(3)].to_owned());
        row.iterations = Some(i64::from(n % 5));
        row.duration_ms = Some(decision.duration_us / 1000);
        let call = Stored {
            status,
            created_at: call.created_at,
            duration_ms: Some(took_us(n, 400) / 1000),
            ..row.clone()
        };
        row.call = Some(Box::new(call.clone()));
        calls.push(call);
        decisions.push(row);
        store.close(decision).await.unwrap();
    }
    (decisions, calls)
}

/// Half of all are fast, half take about a second or more.
fn took_us(n: u32, unit: i64) -> i64 {
    let quick = i64::from(n) * unit;
    if n.is_multiple_of(2) {
        quick
    } else {
        990_000 + quick * 1000
    }
}

/// A row as the test knows it.
#[derive(Clone, Debug, Default)]
struct Stored {
    id: String,
    user: String,
    conversation: String,
    created_at: i64,
    status: &'static str,
    decision_type: Option<&'static str>,
    outcome: Option<&'static str>,
    tool: Option<String>,
    iterations: Option<i64>,
    duration_ms: Option<i64>,
    /// The call of a decision.
    call: Option<Box<Stored>>,
}

/// A condition, rendered both as the filter's text and as its naive meaning.
#[derive(Clone, Debug)]
enum Condition {
    Text {
        field: &'static str,
        not: bool,
        text: String,
        prefix: bool,
    },
    Number {
        field: &'static str,
        op: &'static str,
        number: i64,
    },
    Success {
        not: bool,
        yes: bool,
    },
    Has {
        field: &'static str,
        part: String,
    },
    Null {
        field: &'static str,
        not: bool,
    },
    /// At least one.
    All(Vec<Self>),
    /// At least one.
    Any(Vec<Self>),
    Not(Box<Self>),
    /// Of the call of a decision.
    Call(Box<Self>),
}

impl Condition {
    fn joined(of: &[Self], by: &str) -> String {
        format!("({})", of.iter().map(Self::render).collect::<Vec<_>>().join(by))
    }

    fn render(&self) -> String {
        match self {
            Self::Text {
                field,
                not,
                text,
                prefix,
            } => {
                let mut escaped = String::new();
                for c in text.chars() {
                    if matches!(c, '"' | '\\' | '*') {
                        escaped.push('\\');
                    }
                    escaped.push(c);
                }
                let (op, star) = (if *not { "!=" } else { "=" }, if *prefix { "*" } else { "" });
                format!("{field} {op} \"{escaped}{star}\"")
            }
            Self::Number {
                field: "created_at",
                op,
                number,
            } => {
                let time = chrono::DateTime::from_timestamp_micros(*number).unwrap().to_rfc3339();
                format!("created_at {op} \"{time}\"")
            }
            Self::Number { field, op, number } => format!("{field} {op} {number}"),
            Self::Success { not, yes } => format!("success {} {yes}", if *not { "!=" } else { "=" }),
            Self::Has { field, part } => format!("{field}:{part:?}"),
            Self::Null { field, not } => format!("{field} {} null", if *not { "!=" } else { "=" }),
            Self::All(of) => Self::joined(of, " AND "),
            Self::Any(of) => Self::joined(of, " OR "),
            Self::Not(of) => format!("NOT {}", of.render()),
            Self::Call(of) => format!("call.{}", of.render()),
        }
    }

    fn text<'a>(field: &str, row: &'a Stored) -> Option<&'a str> {
        match field {
            "user_id" => Some(row.user.as_str()),
            "conversation_id" => Some(row.conversation.as_str()),
            "status" => Some(row.status),
            "decision_type" => row.decision_type,
            "outcome_category" => row.outcome,
            "intent" | "tool" => row.tool.as_deref(),
            other => unreachable!("{other}"),
        }
    }

    fn holds(&self, row: &Stored) -> bool {
        match self {
            Self::Text {
                field,
                not,
                text,
                prefix,
            } => {
                let equal = Self::text(field, row).is_some_and(|value| {
                    if *prefix {
                        value.starts_with(text)
                    } else {
                        value == text
                    }
                });
                equal != *not
            }
            Self::Number { field, op, number } => {
                let value = match *field {
                    "created_at" => Some(row.created_at),
                    "iterations" => row.iterations,
                    "duration_ms" => row.duration_ms,
                    other => unreachable!("{other}"),
                };
                match (*op, value) {
                    ("!=", value) => value != Some(*number),
                    (_, None) => false,
                    ("=", Some(value)) => value == *number,
                    ("<", Some(value)) => value < *number,
                    ("<=", Some(value)) => value <= *number,
                    (">", Some(value)) => value > *number,
                    (">=", Some(value)) => value >= *number,
                    (other, _) => unreachable!("{other}"),
                }
            }
            Self::Success { not, yes } => ((row.status == "completed") == *yes) != *not,
            Self::Has { field, part } => {
                Self::text(field, row).is_some_and(|text| text.to_lowercase().contains(&part.to_lowercase()))
            }
            Self::Null { field, not } => Self::text(field, row).is_none() != *not,
            Self::All(of) => of.iter().all(|one| one.holds(row)),
            Self::Any(of) => of.iter().any(|one| one.holds(row)),
            Self::Not(of) => !of.holds(row),
            Self::Call(of) => row.call.as_ref().is_some_and(|call| of.holds(call)),
        }
    }
}

/// Conditions up to three deep.
fn combined(of: impl Strategy<Value = Condition> + 'static) -> BoxedStrategy<Vec<Condition>> {
    let tree = of.prop_recursive(3, 8, 3, |inner| {
        let some = || prop::collection::vec(inner.clone(), 1..4);
        prop_oneof![
            some().prop_map(Condition::All),
            some().prop_map(Condition::Any),
            inner.clone().prop_map(|of| Condition::Not(Box::new(of))),
        ]
    });
    prop::collection::vec(tree, 0..4).boxed()
}

fn has(field: &'static str, parts: Vec<&'static str>) -> BoxedStrategy<Condition> {
    prop::sample::select(parts)
        .prop_map(move |part| Condition::Has {
            field,
            part: part.to_owned(),
        })
        .boxed()
}

fn null(field: &'static str) -> BoxedStrategy<Condition> {
    any::<bool>()
        .prop_map(move |not| Condition::Null { field, not })
        .boxed()
}

fn of_call(of: BoxedStrategy<Condition>) -> BoxedStrategy<Condition> {
    of.prop_map(|of| Condition::Call(Box::new(of))).boxed()
}

fn text(field: &'static str, values: Vec<&'static str>) -> BoxedStrategy<Condition> {
    (
        any::<bool>(),
        prop::sample::select(values),
        prop::option::weighted(0.3, 0..10_usize),
    )
        .prop_map(move |(not, value, cut)| Condition::Text {
            field,
            not,
            text: cut.map_or(value.to_owned(), |cut| value.chars().take(cut).collect()),
            prefix: cut.is_some(),
        })
        .boxed()
}

fn number(field: &'static str, range: std::ops::Range<i64>) -> BoxedStrategy<Condition> {
    (prop::sample::select(vec!["=", "!=", "<", "<=", ">", ">="]), range)
        .prop_map(move |(op, number)| Condition::Number { field, op, number })
        .boxed()
}

fn time() -> BoxedStrategy<Condition> {
    (
        prop::sample::select(vec!["=", "!=", "<", "<=", ">", ">="]),
        -2..45_i64,
        0..3_i64,
    )
        .prop_map(|(op, second, us)| Condition::Number {
            field: "created_at",
            op,
            number: T0 + second * 1_000_000 + us,
        })
        .boxed()
}

fn users() -> BoxedStrategy<Condition> {
    text("user_id", USERS.into_iter().chain(["stranger"]).collect())
}

/// Filters are correct: they find exactly the rows that a naive evaluation of the filter finds.
pub(crate) async fn a_filter_finds_exactly_the_matching_rows(db: TestDb) {
    let store = db.open().await;
    let (decisions, calls) = fill(&store).await;
    let of_decisions = combined(prop_oneof![
        users(),
        text("conversation_id", vec!["c-1", "c-5", "c-77"]),
        text("status", vec!["open", "closed"]),
        text(
            "decision_type",
            DecisionType::ALL.iter().map(|kind| kind.as_str()).collect()
        ),
        text(
            "outcome_category",
            Outcome::ALL.iter().map(|outcome| outcome.as_str()).collect()
        ),
        text("intent", TOOLS.to_vec()),
        number("iterations", -1..6),
        number("duration_ms", -1..100),
        number("duration_ms", 900..70_000),
        time(),
        has("intent", vec!["TASK", "d_t", "%", "_"]),
        has("conversation_id", vec!["C-", "5", "\\"]),
        null("intent"),
        null("outcome_category"),
        of_call(text("tool", TOOLS.to_vec())),
        of_call(text("status", vec!["completed", "failed", "in_doubt"])),
        of_call(number("duration_ms", -1..60)),
    ]);
    let of_calls = combined(prop_oneof![
        users(),
        text("status", vec!["started", "completed", "failed", "in_doubt", "not_sent"]),
        text("tool", TOOLS.to_vec()),
        (any::<bool>(), any::<bool>()).prop_map(|(not, yes)| Condition::Success { not, yes }),
        number("duration_ms", -1..60),
        number("duration_ms", 900..40_000),
        time(),
        has("tool", vec!["TASK", "d_t", "%"]),
    ]);
    let tenant = tenant();
    let check = |conditions: &[Condition], known: &[Stored], of_calls: bool| {
        let filter = conditions
            .iter()
            .map(Condition::render)
            .collect::<Vec<_>>()
            .join(" AND ");
        let expected: BTreeSet<&str> = known
            .iter()
            .filter(|row| conditions.iter().all(|condition| condition.holds(row)))
            .map(|row| row.id.as_str())
            .collect();
        let ask = query(&filter);
        let page = tokio::task::block_in_place(|| {
            tokio::runtime::Handle::current().block_on(async {
                if of_calls {
                    store.tool_invocations(&tenant, &ask).await
                } else {
                    store.list(&tenant, &ask).await
                }
            })
        });
        let page = page.map_err(|error| TestCaseError::fail(format!("{filter}: {error}")))?;
        let found: BTreeSet<&str> = page
            .items
            .iter()
            .map(|row| row["decision_id"].as_str().unwrap())
            .collect();
        prop_assert_eq!(page.items.len(), found.len(), "{}: a row twice", &filter);
        prop_assert_eq!(found, expected, "{}", filter);
        Ok(())
    };
    let config = || Config {
        failure_persistence: None,
        ..Config::with_cases(200)
    };
    TestRunner::new(config())
        .run(&of_decisions, |conditions| check(&conditions, &decisions, false))
        .unwrap();
    TestRunner::new(config())
        .run(&of_calls, |conditions| check(&conditions, &calls, true))
        .unwrap();
}

/// Conditions that AND joins are about one call; each of those that parentheses keep apart may be about another.
pub(crate) async fn conditions_on_calls_are_about_one_call(db: TestDb) {
    let store = db.open().await;
    let open = open_decision();
    let mut calls = vec![
        done(&intent(&open, 1)),
        failed(&intent(&open, 2), FailureCode::Timeout, "late"),
    ];
    calls[1].open.tool = Some(tool("list_tasks"));
    store.close(closed(open, calls, false)).await.unwrap();
    store.close(closed(open_decision(), vec![], false)).await.unwrap();
    for (filter, found) in [
        (r#"call.tool = "list_tasks" AND call.error_code = "timeout""#, 1),
        (r#"call.tool = "add_task" AND call.error_code = "timeout""#, 0),
        (
            r#"call.tool = "add_task" AND status = "closed" AND call.success = true"#,
            1,
        ),
        (r#"NOT call.tool = "add_task""#, 1),
        (r#"call.tool != "add_task""#, 1),
        (r#"-call.sequence >= 0"#, 1),
        (r#"call.tool = "add_task" OR call.tool = "nothing""#, 1),
        (r#"(call.tool = "add_task") AND (call.error_code = "timeout")"#, 1),
        (
            r#"(call.tool = "add_task" AND user_id = "ann") AND call.error_code = "timeout""#,
            1,
        ),
        (
            r#"(call.tool = "add_task" AND call.error_code = "timeout") AND user_id = "ann""#,
            0,
        ),
    ] {
        let page = store.list(&tenant(), &query(filter)).await.unwrap();
        assert_eq!(page.items.len(), found, "{filter}");
    }
    store.shutdown().await;
}

/// A text alone is found in message and reply, and what one user is not shown cannot be found out by asking.
pub(crate) async fn a_text_is_found_and_what_is_not_shown_is_not(db: TestDb) {
    let store = db.open().await;
    let mut decision = closed(open_decision(), vec![], false);
    decision.open.message = "Call Mom at Müller's, 100% sure".into();
    decision.error_detail = Some("upstream 10.0.0.7".into());
    store.close(decision).await.unwrap();
    for (filter, found) in [
        ("mom", 1),
        ("\"call mom\"", 1),
        ("dad", 0),
        ("Müller OR dad", 1),
        ("(müller)", 1),
        ("(MÜLLER)", 0),
        ("\"0%\"", 1),
        ("\"0_\"", 0),
        ("mom AND done", 1),
        ("-mom", 0),
        ("error_detail:\"10.0\"", 1),
        ("error_detail != null", 1),
        ("recovered = false AND mom", 1),
    ] {
        let page = store.list(&tenant(), &query(filter)).await.unwrap();
        assert_eq!(page.items.len(), found, "{filter}");
    }
    let own = |filter| ListQuery {
        user: Some(UserId::parse("ann").unwrap()),
        ..query(filter)
    };
    assert_eq!(store.list(&tenant(), &own("mom")).await.unwrap().items.len(), 1);
    for filter in [
        "error_detail = null",
        "mom OR NOT (user_id = \"x\" OR error_detail:\"1\")",
    ] {
        let refused = store.list(&tenant(), &own(filter)).await.unwrap_err();
        assert!(refused.to_string().contains("error_detail is not shown"), "{refused}");
    }
    store.shutdown().await;
}
