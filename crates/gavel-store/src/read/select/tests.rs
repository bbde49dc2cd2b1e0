//! Which index each query uses, as SQLite's query plan shows.

use super::super::super::connect::Target;
use super::super::super::db::{Conn, explain};
use super::super::super::migrate;
use super::super::filter::{DECISIONS, PLANNING_SESSIONS, RUNS, THREADS, TOOL_INVOCATIONS, parse};
use super::slow_classes;
use super::*;

const NEWEST_FIRST: Order = Order {
    by: None,
    descending: true,
};

fn filters(list: &'static List, filter: &str) -> Vec<Filter> {
    let mut filters = vec![Filter::Is(Term::fixed("tenant", Literal::Exact("t".to_owned())))];
    filters.extend(parse(list, filter).unwrap());
    filters
}

fn sql(dialect: Dialect, list: &'static List, filter: &str) -> String {
    let question = Question {
        list,
        columns: &list.columns,
        filters: &filters(list, filter),
        after: None,
        order: NEWEST_FIRST,
        limit: 51,
    };
    let (sql, _) = select(dialect, &question);
    sql.split_once(" WHERE ").unwrap().1.to_owned()
}

#[test]
fn the_most_selective_condition_drives_and_the_others_check() {
    assert_eq!(
        sql(
            Dialect::Sqlite,
            &DECISIONS,
            r#"outcome_category = "ERROR:DEADLINE" AND user_id = "ann""#
        ),
        "tenant = $1 AND +outcome_category IN ('ERROR:DEADLINE') AND user_id = $2 \
         ORDER BY created_at DESC, id DESC LIMIT 51"
    );
}

#[test]
fn a_prefix_of_a_closed_list_is_a_branch_for_each_value() {
    let text = sql(Dialect::Postgres, &DECISIONS, r#"outcome_category = "AMBIGUITY:*""#);
    assert!(
        text.contains("outcome_category = 'AMBIGUITY:UNCLEAR_INTENT' ORDER BY"),
        "{text}"
    );
    assert!(text.contains("UNION ALL"), "{text}");
    assert!(
        text.contains("outcome_category = 'AMBIGUITY:MULTIPLE_MATCHES' ORDER BY"),
        "{text}"
    );
}

#[test]
fn what_did_not_complete_is_asked_of_its_own_index() {
    for filter in [
        "success = false",
        "success != true",
        r#"status != "completed""#,
        r#"status = "in_doubt""#,
    ] {
        let text = sql(Dialect::Sqlite, &TOOL_INVOCATIONS, filter);
        assert!(
            text.contains("status <> 'completed' AND status IN ("),
            "{filter}: {text}"
        );
    }
}

async fn migrated(directory: &tempfile::TempDir) -> Conn {
    let url = format!("sqlite:{}", directory.path().join("plan.db").display());
    let target = Target::parse(&url, None).unwrap();
    target.create().unwrap();
    let mut conn = target.writer().await.unwrap();
    migrate::migrate(&mut conn, migrate::PATIENCE).await.unwrap();
    conn
}

/// SQLite's query plan.
async fn plan(conn: &mut Conn, question: &Question<'_>) -> Vec<String> {
    let (sql, values) = select(Dialect::Sqlite, question);
    explain(conn, &sql, values).await
}

/// Without statistics SQLite uses any suitable index; this test pins its choice.
#[tokio::test]
async fn an_index_answers_each_question() {
    let directory = tempfile::tempdir().unwrap();
    let mut conn = migrated(&directory).await;
    for (list, filter, index) in [
        (&DECISIONS, "", "decision_by_time"),
        (&DECISIONS, "iterations > 3", "decision_by_time"),
        (&DECISIONS, r#"created_at > "2026-11-20T00:00:00Z""#, "decision_by_time"),
        (
            &DECISIONS,
            r#"user_id = "ann" AND outcome_category = "ERROR:*""#,
            "decision_by_user",
        ),
        (
            &DECISIONS,
            r#"conversation_id = "c" AND user_id = "ann""#,
            "decision_by_conversation",
        ),
        (&DECISIONS, r#"outcome_category != "SUCCESS:*""#, "decision_by_outcome"),
        (&DECISIONS, r#"decision_type = "REFUSE""#, "decision_by_type"),
        (&DECISIONS, r#"status = "open""#, "decision_open"),
        (
            &DECISIONS,
            r#"outcome_category = "ERROR:DEADLINE" OR outcome_category = "ERROR:INTERNAL""#,
            "decision_by_outcome",
        ),
        (
            &DECISIONS,
            r#"NOT (status = "closed" OR user_id = "ann")"#,
            "decision_open",
        ),
        (
            &DECISIONS,
            r#"(user_id = "ann") AND (mom OR call.tool = "x")"#,
            "decision_by_user",
        ),
        (&DECISIONS, r#"user_id = "ann" OR intent = "x""#, "decision_by_time"),
        (
            &DECISIONS,
            r#"decision_id = "d" AND user_id = "ann""#,
            "sqlite_autoindex_decision_log_1",
        ),
        (&DECISIONS, r#"intent = "delete_task""#, "decision_by_intent"),
        (
            &DECISIONS,
            r#"intent = "add_task" AND outcome_category = "ERROR:*""#,
            "decision_by_outcome",
        ),
        (
            &DECISIONS,
            r#"outcome_category = "SUCCESS:*" AND intent = "add_task""#,
            "decision_by_intent",
        ),
        (&DECISIONS, "duration_ms > 29000", "decision_slow"),
        (&DECISIONS, "duration_ms >= 1000", "decision_slow"),
        (&DECISIONS, "duration_ms > 998", "decision_by_time"),
        (&DECISIONS, "duration_ms < 29000", "decision_by_time"),
        (
            &DECISIONS,
            r#"duration_ms > 29000 AND intent = "add_task""#,
            "decision_slow",
        ),
        (
            &DECISIONS,
            r#"duration_ms > 1500 AND intent = "add_task""#,
            "decision_by_intent",
        ),
        (
            &DECISIONS,
            r#"intent = "respond" AND duration_ms > 5000"#,
            "decision_slow",
        ),
        (&TOOL_INVOCATIONS, "duration_ms = 4321", "tool_slow"),
        (&TOOL_INVOCATIONS, "", "tool_by_time"),
        (&TOOL_INVOCATIONS, "success = true", "tool_by_time"),
        (&TOOL_INVOCATIONS, r#"tool = "add_task""#, "tool_by_tool"),
        (
            &TOOL_INVOCATIONS,
            r#"user_id = "ann" AND tool = "add_task""#,
            "tool_by_user",
        ),
        (
            &TOOL_INVOCATIONS,
            r#"status = "in_doubt" AND tool = "x""#,
            "tool_unsuccessful",
        ),
        (
            &TOOL_INVOCATIONS,
            r#"success = false AND user_id = "ann""#,
            "tool_by_user",
        ),
        (
            &TOOL_INVOCATIONS,
            r#"decision_id = "d""#,
            "sqlite_autoindex_tool_invocation_log_1",
        ),
        (&RUNS, "", "agent_run_by_time"),
        (&RUNS, r#"definition_hash = "h""#, "agent_run_by_time"),
        (
            &RUNS,
            r#"agent_id = "a" AND status = "completed""#,
            "agent_run_by_agent",
        ),
        (&RUNS, r#"agent_id = "a" AND status = "running""#, "agent_run_by_status"),
        (&RUNS, r#"status != "completed""#, "agent_run_by_status"),
        (&RUNS, r#"user_id = "ann" AND agent_id = "a""#, "agent_run_by_user"),
        (
            &RUNS,
            r#"parent_run_id = "r" AND user_id = "ann""#,
            "agent_run_by_parent",
        ),
        (&PLANNING_SESSIONS, "", "planning_session_by_time"),
        (
            &PLANNING_SESSIONS,
            r#"repo_url = "https://github.com/*""#,
            "planning_session_by_time",
        ),
        (
            &PLANNING_SESSIONS,
            r#"status = "PLANNING" AND repo_url = "r""#,
            "planning_session_by_status",
        ),
        (
            &PLANNING_SESSIONS,
            r#"user_id = "ann" AND status = "PLANNING""#,
            "planning_session_by_user",
        ),
    ] {
        let mut filters = filters(list, filter);
        if list.name == RUNS.name {
            let project = Term::fixed("project_id", Literal::Exact("p".to_owned()));
            filters.insert(1, Filter::Is(project));
        }
        let question = Question {
            list,
            columns: &list.columns,
            filters: &filters,
            after: None,
            order: NEWEST_FIRST,
            limit: 51,
        };
        let plan = plan(&mut conn, &question).await;
        let of_table = |step: &&String| step.contains(&format!("{} ", list.name));
        let searches: Vec<_> = plan.iter().filter(of_table).collect();
        assert!(!searches.is_empty(), "{plan:?}");
        for step in searches {
            assert!(step.starts_with("SEARCH") && step.contains(index), "{plan:?}");
        }
    }
    conn.close().await;
}

/// A list of threads reads one page of them, and one or two index rows for each.
#[tokio::test]
async fn an_index_answers_the_list_of_threads() {
    let directory = tempfile::tempdir().unwrap();
    let mut conn = migrated(&directory).await;
    for (filter, index) in [("user_id = \"ann\"", "thread_by_user"), ("", "thread_by_activity")] {
        let question = Question {
            list: &THREADS,
            columns: &THREADS.columns,
            filters: &filters(&THREADS, filter),
            after: None,
            order: NEWEST_FIRST,
            limit: 51,
        };
        let plan = plan(&mut conn, &question).await;
        assert!(
            plan[0].starts_with("SEARCH thread ") && plan[0].contains(index),
            "{plan:?}"
        );
        for step in plan.iter().filter(|step| !step.starts_with("CORRELATED")) {
            assert!(step.starts_with("SEARCH"), "{plan:?}");
        }
    }
    conn.close().await;
}

#[test]
fn the_classes_of_a_duration_hold_every_row_it_allows() {
    let classes = |filter: &str| slow_classes(parse(&DECISIONS, filter).unwrap()[0].terms()[0]);
    for (filter, expected) in [
        ("duration_ms > 999", Some(vec![1, 2, 4, 8, 16, 32])),
        ("duration_ms >= 1000", Some(vec![1, 2, 4, 8, 16, 32])),
        ("duration_ms >= 999", None),
        ("duration_ms > 1998", Some(vec![1, 2, 4, 8, 16, 32])),
        ("duration_ms > 1999", Some(vec![2, 4, 8, 16, 32])),
        ("duration_ms = 31999", Some(vec![16])),
        ("duration_ms = 32000", Some(vec![32])),
        ("duration_ms > 9223372036854775807", Some(vec![32])),
        ("duration_ms = 5", None),
        ("duration_ms != 5000", None),
        ("duration_ms <= 5000", None),
    ] {
        assert_eq!(classes(filter), expected, "{filter}");
    }
}

#[test]
fn a_prefix_ends_before_the_next_text_of_its_length() {
    assert_eq!(after_prefix("ab"), Some("ac".to_owned()));
    assert_eq!(after_prefix("a\u{10ffff}"), Some("b".to_owned()));
    assert_eq!(after_prefix("\u{d7ff}"), Some("\u{e000}".to_owned()));
    assert_eq!(after_prefix(""), None);
}
