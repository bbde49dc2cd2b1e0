//! The metrics of a fresh process.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;

use super::harness::{Place, Running};

/// An alert on an increase sees the first event only if the line existed before it.
#[test]
fn each_metric_of_the_page_has_a_line_from_the_start() {
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/reference/metrics.md")).unwrap();
    let (_, section) = page.split_once("\n## Metrics\n").unwrap();
    let (table, text) = section.split_once("\n\n").unwrap().1.split_once("\n\n").unwrap();
    let listed: Vec<_> = table
        .lines()
        .filter_map(|row| row.strip_prefix("| `")?.split_once('`'))
        .map(|(name, _)| name)
        .collect();
    // The families that the page lists as initially absent, as `gavel_http_…`.
    let later: Vec<_> = text
        .split("\n## ")
        .next()
        .unwrap()
        .split('`')
        .filter_map(|word| word.strip_suffix('…'))
        .collect();
    assert!(listed.len() > 20 && later.len() == 3, "{listed:?} {later:?}");

    let place = Place::new();
    let mut serving = Running::start(place.command(&["--listen", "127.0.0.1:0"], &[]));
    let address = serving.line_with("gavel ").split("http://").nth(1).unwrap().to_owned();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
    let mut metrics = String::new();
    stream.read_to_string(&mut metrics).unwrap();
    let has = |name: &str| {
        metrics.lines().any(|line| {
            let rest = line.strip_prefix(name).map(|rest| rest.trim_start_matches("_count"));
            rest.is_some_and(|rest| rest.starts_with([' ', '{']))
        })
    };
    for name in listed {
        let expected = !later.iter().any(|family| name.starts_with(family));
        assert!(has(name) || !expected, "{name}\n{metrics}");
    }
    for line in [
        "gavel_mcp_connections_lost_total{server=\"tasks\"} 0",
        "gavel_mcp_calls_total{server=\"tasks\",outcome=\"unknown\"} 0",
        "gavel_store_failures_total{kind=\"unavailable\"} 0",
        "gavel_store_failures_total{kind=\"refused\"} 0",
        "gavel_store_failures_total{kind=\"connect\"} 0",
        "gavel_store_failures_total{kind=\"queue\"} 0",
        "gavel_store_lost_total 0",
        "gavel_store_recovered_calls_total 0",
    ] {
        assert!(metrics.lines().any(|shown| shown == line), "{line}\n{metrics}");
    }
    assert_eq!(serving.stop(), Some(0));
}
