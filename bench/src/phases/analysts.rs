//! The first page of filtered lists over a large decision log, through the HTTP API.

use std::fmt::Write;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use hyper::{StatusCode, Uri};
use serde_json::Value;

use super::rig::Rig;
use crate::client::Connection;
use crate::contender::{Contender, Who};
use crate::report::{Figure, Target};
use crate::seed::seed;

/// How often each list is requested; for the first request nothing is cached in gavel.
const TIMES: usize = 20;

/// Lists with one filter each, whose matching rows are many, few, or spread thinly over the whole log.
const LISTS: [(&str, &str); 12] = [
    ("/v1/decisions", ""),
    ("/v1/decisions", r#"outcome_category = "ERROR:TOOL_INVOCATION""#),
    ("/v1/decisions", r#"outcome_category = "REFUSAL:*""#),
    ("/v1/decisions", r#"decision_type = "REFUSE""#),
    ("/v1/decisions", r#"user_id = "user-4711""#),
    (
        "/v1/decisions",
        r#"user_id = "user-4700" AND outcome_category = "ERROR:*""#,
    ),
    ("/v1/decisions", r#"conversation_id = "conversation-4711""#),
    ("/v1/decisions", r#"intent = "delete_task""#),
    ("/v1/decisions", "duration_ms > 29000"),
    ("/v1/tool-invocations", ""),
    ("/v1/tool-invocations", r#"tool = "delete_task""#),
    ("/v1/tool-invocations", "success = false"),
];

pub(super) async fn measure(rig: &mut Rig) -> anyhow::Result<()> {
    let count = rig.pace.decisions;
    rig.report.phase(&format!(
        "analysts: first page of {count} decisions, slowest of {TIMES}"
    ));
    let directory = tempfile::Builder::new().tempdir_in(&rig.setting.directory)?;
    let database = directory.path().join("data.db");
    seed(&rig.setting.gavel, &database, count)
        .await
        .context("the decision log could not be created")?;
    rig.upstream.set_latency(Duration::ZERO);
    let gavel = Contender::start_on(Who::Gavel, &rig.setting, &rig.upstream, database).await?;
    let mut connection = Connection::open(gavel.at).await?;
    for (path, filter) in LISTS {
        let uri: Uri = format!("{path}?page_size=50{}", query(filter)).parse()?;
        let mut slowest = 0.0_f64;
        for _ in 0..TIMES {
            let asked = Instant::now();
            let (status, body) = connection.get(&uri).await?;
            slowest = slowest.max(asked.elapsed().as_secs_f64() * 1000.0);
            check(status, &body).with_context(|| format!("GET {uri}"))?;
        }
        let filter = if filter.is_empty() { "all" } else { filter };
        rig.report.add(Figure {
            what: format!("{path}: {filter}"),
            unit: "ms",
            gavel: vec![slowest],
            bare: Vec::new(),
            target: Target::AtMost(100.0),
        });
    }
    drop(connection);
    gavel.stop().await
}

/// `&filter=…`, percent-encoded (RFC 3986).
fn query(filter: &str) -> String {
    let mut query = String::new();
    if !filter.is_empty() {
        query.push_str("&filter=");
    }
    for byte in filter.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            query.push(char::from(byte));
        } else {
            // Writing to a String cannot fail.
            let _ = write!(query, "%{byte:02X}");
        }
    }
    query
}

/// A list must have rows, or its time means nothing.
fn check(status: StatusCode, body: &[u8]) -> anyhow::Result<()> {
    let shown = || String::from_utf8_lossy(&body[..body.len().min(400)]).into_owned();
    ensure!(status == StatusCode::OK, "{status}: {}", shown());
    let page: Value = serde_json::from_slice(body)?;
    let rows = page
        .as_object()
        .and_then(|page| page.values().find_map(Value::as_array));
    ensure!(rows.is_some_and(|rows| !rows.is_empty()), "no rows: {}", shown());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_is_encoded_so_that_it_stays_one_parameter() {
        assert_eq!(query(""), "");
        assert_eq!(query(r#"a = "b&c""#), "&filter=a%20%3D%20%22b%26c%22");
    }

    #[test]
    fn an_empty_page_or_a_problem_is_an_invalid_answer() {
        assert!(check(StatusCode::OK, br#"{"decisions":[{}],"next_page_token":"x"}"#).is_ok());
        assert!(check(StatusCode::OK, br#"{"decisions":[]}"#).is_err());
        assert!(check(StatusCode::BAD_REQUEST, br#"{"errors":[{}]}"#).is_err());
    }
}
