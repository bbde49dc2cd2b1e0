//! The metrics: the documented ones are exactly the existing ones, and they take bounded memory.
#![allow(clippy::unwrap_used)]

#[path = "sources/mod.rs"]
mod sources;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::Duration;

use gavel::app::App;
use gavel::config::{Config, Sources};
use sources::{product, root};

/// The metric names between `before` and `after`.
fn names(text: &str, before: &str, after: &str) -> BTreeSet<String> {
    text.split(before)
        .skip(1)
        .filter_map(|rest| rest.split_once(after))
        .filter(|(name, _)| name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'))
        .map(|(name, _)| format!("gavel_{name}"))
        .collect()
}

/// The code and the table in docs/reference/metrics.md must name the same metrics.
#[test]
fn the_page_of_metrics_lists_each_metric_and_no_other() {
    let counted: BTreeSet<String> = product()
        .iter()
        // Cookies have names of this kind, too, and so has a schema that a test creates.
        .filter(|path| !path.ends_with("http/console/session.rs") && !path.ends_with("tests.rs"))
        .flat_map(|path| names(&fs::read_to_string(path).unwrap(), "\"gavel_", "\""))
        .collect();
    assert!(counted.len() > 15, "the metrics were not found: {counted:?}");
    let page = fs::read_to_string(root().join("docs/reference/metrics.md")).unwrap();
    let (_, section) = page.split_once("\n## Metrics\n").unwrap();
    let section = section.split("\n## ").next().unwrap();
    let listed = names(section, "\n| `gavel_", "`");
    assert_eq!(listed, counted);
    // Every metric that an alert uses is in the table as well.
    let alerts = fs::read_to_string(root().join("docs/how-to/monitor.md")).unwrap();
    let alerts = names(&alerts, "`gavel_", "`");
    assert!(alerts.len() > 5 && alerts.is_subset(&listed), "{alerts:?}");
    assert!(names(section, "`gavel_", "`").is_subset(&listed));
}

/// Resident memory of this process, in MB.
fn memory() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let (_, rest) = status.split_once("VmRSS:").unwrap();
    rest.split_whitespace().next().unwrap().parse::<u64>().unwrap() / 1024
}

/// Promise: bounded faults. Memory is bounded even if `/metrics` is never read.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn measurements_do_not_accumulate_while_metrics_are_not_read() {
    let directory = tempfile::tempdir().unwrap();
    let database = format!("sqlite://{}", directory.path().join("gavel.db").display());
    let servers = directory.path().join("mcp.json");
    fs::write(&servers, r#"{"mcpServers": {}}"#).unwrap();
    let config = Config::resolve(Sources {
        flags: Default::default(),
        environment: BTreeMap::from([
            ("DATABASE_URL".to_owned(), database),
            ("GAVEL_MCP_CONFIG".to_owned(), servers.display().to_string()),
            ("GEMINI_MODEL".to_owned(), "demo".to_owned()),
            ("GAVEL_LISTEN".to_owned(), "127.0.0.1:0".to_owned()),
        ]),
        dotenv: Default::default(),
        file: None,
        read_file: &|path| fs::read_to_string(path),
    });
    let app = App::build(config.unwrap().config).await.unwrap();
    let round = async || {
        let histogram = metrics::histogram!("gavel_http_request_duration_seconds", "route" => "test");
        (0..1_000_000).for_each(|_| histogram.record(0.001));
        tokio::time::sleep(Duration::from_millis(2500)).await;
        memory()
    };
    // The memory of one round is reused by the next.
    let first = round().await;
    let mut last = first;
    for _ in 0..4 {
        last = round().await;
    }
    assert!(
        last < first + 30,
        "{first} MB after a million measurements, {last} MB after five"
    );
    app.shutdown(None).await;
}
