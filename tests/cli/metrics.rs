//! The metrics of a process: each that gavel has, from the start, and what a first decision changes.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use gavel::ports::metrics::ALL;
use regex::Regex;

use super::harness::{Place, Running};

/// The answer to one request.
fn ask(address: &str, request: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn metrics(address: &str) -> String {
    ask(address, "GET /metrics HTTP/1.0\r\n\r\n")
}

#[track_caller]
fn has_lines(metrics: &str, lines: &[&str]) {
    for line in lines {
        assert!(metrics.lines().any(|shown| shown == *line), "{line}\n{metrics}");
    }
}

/// Whether this process cannot have it: the demo model is not Gemini and has no price, and SQLite shares no quotas.
fn is_absent(name: &str) -> bool {
    name == "gavel_quota_shared" || name.starts_with("gavel_model_") && name != "gavel_model_cost_unknown_total"
}

/// The list of metrics, which the documentation, the dashboard and the alerts follow, is that of the running program:
/// each name, its kind and its labels. An alert on an increase sees the first event only if the line existed before it.
#[test]
fn a_process_has_each_metric_of_the_list_and_no_other() {
    let place = Place::new();
    let mut serving = Running::start(place.command(
        &["--listen", "127.0.0.1:0"],
        &[("GAVEL_RATE_LIMIT_BURST", "1"), ("GAVEL_RATE_LIMIT_PER_MINUTE", "1")],
    ));
    let address = serving.line_with("gavel ").split("http://").nth(1).unwrap().to_owned();
    has_lines(
        &metrics(&address),
        &[
            "gavel_decisions_total{surface=\"chat\",outcome=\"SUCCESS:RESPONSE_GIVEN\"} 0",
            "gavel_decisions_total{surface=\"planning\",outcome=\"ERROR:INTERNAL\"} 0",
            "gavel_http_problems_total{code=\"overloaded\"} 0",
            "gavel_mcp_connections_lost_total{server=\"tasks\"} 0",
            "gavel_mcp_calls_total{server=\"tasks\",outcome=\"unknown\"} 0",
            "gavel_store_failures_total{kind=\"unavailable\"} 0",
            "gavel_store_failures_total{kind=\"refused\"} 0",
            "gavel_store_failures_total{kind=\"connect\"} 0",
            "gavel_store_failures_total{kind=\"queue\"} 0",
            "gavel_store_lost_total 0",
            "gavel_store_recovered_calls_total 0",
        ],
    );
    let body = r#"{"message": "hello", "user_id": "ann"}"#;
    let length = body.len();
    let head = "Content-Type: application/json\r\nHost: localhost\r\nConnection: close";
    let chat = format!("POST /v1/chat HTTP/1.1\r\n{head}\r\nContent-Length: {length}\r\n\r\n{body}");
    let answer = ask(&address, &chat);
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let answer = ask(&address, &chat);
    assert!(answer.starts_with("HTTP/1.1 429"), "{answer}");
    ask(&address, "GET /v1/nothing HTTP/1.0\r\n\r\n");
    let mut shown = metrics(&address);
    while shown.contains("gavel_approvals_waiting NaN") {
        std::thread::sleep(Duration::from_millis(20));
        shown = metrics(&address);
    }
    has_lines(
        &shown,
        &[
            "gavel_decisions_total{surface=\"chat\",outcome=\"SUCCESS:RESPONSE_GIVEN\"} 1",
            "gavel_decisions_total{surface=\"chat\",outcome=\"REFUSAL:RATE_LIMITED\"} 1",
            "gavel_decision_duration_seconds_count{surface=\"chat\"} 2",
            "gavel_decision_duration_seconds_bucket{surface=\"chat\",le=\"+Inf\"} 2",
            "gavel_http_problems_total{code=\"rate_limited\"} 1",
            "gavel_http_problems_total{code=\"not_found\"} 1",
            "gavel_http_requests_total{route=\"/v1/chat\",status=\"200\"} 1",
            // This request itself.
            "gavel_http_requests_in_flight 1",
            "gavel_approvals_waiting 0",
            "gavel_actions_in_doubt 0",
        ],
    );

    let types = shown
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    let mut found: Vec<_> = types.collect();
    let expected = ALL.iter().filter(|metric| !is_absent(metric.name));
    let mut expected: Vec<_> = expected.map(|metric| (metric.name, metric.kind.as_str())).collect();
    found.sort_unstable();
    expected.sort_unstable();
    assert_eq!(found, expected);
    let line = Regex::new(r"(?m)^(gavel_\w+?)(?:_bucket|_sum|_count)?(?:\{(.*)\})? \S+$").unwrap();
    let label = Regex::new(r#"(\w+)="[^"]*""#).unwrap();
    let mut lines = 0;
    for found in line.captures_iter(&shown) {
        let metric = ALL.iter().find(|metric| metric.name == &found[1]);
        let metric = metric.unwrap_or_else(|| panic!("{}", &found[0]));
        let labels = label.captures_iter(found.get(2).map_or("", |labels| labels.as_str()));
        let labels: Vec<_> = labels
            .map(|label| label[1].to_owned())
            .filter(|label| label != "le")
            .collect();
        assert_eq!(labels, metric.labels, "{}", &found[0]);
        lines += 1;
    }
    assert!(lines > 100, "{shown}");
    assert_eq!(serving.stop(), Some(0));
}
