//! The metrics: dashboard and alerts read those that exist, and they take bounded memory.
#![allow(clippy::unwrap_used)]

#[path = "sources/mod.rs"]
mod sources;

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::process::Command;
use std::time::Duration;

use gavel::api::problem::Code;
use gavel::app::App;
use gavel::config::{Config, Sources};
use gavel::domain::decision::Outcome;
use gavel::ports::metrics::{ALL, About, HTTP_SECONDS, Kind};
use regex::Regex;
use serde_json::Value;
use sources::root;

/// A metric that an expression reads, with the suffix of its line, and the labels and values that it compares.
struct Series {
    metric: &'static About,
    end: &'static str,
    compared: Vec<(String, String)>,
}

fn reads(expression: &str) -> Vec<Series> {
    let series = Regex::new(r"(gavel_[a-z_]+)(?:\{([^}]*)\})?").unwrap();
    let matcher = Regex::new(r#"(\w+)\s*(?:=~|!~|!=|=)\s*"([^"]*)""#).unwrap();
    let about = |name: &str| {
        let ends = ["_bucket", "_sum", "_count"].map(|end| name.strip_suffix(end).map(|base| (base, end)));
        let whole = ALL
            .iter()
            .find(|metric| metric.name == name)
            .map(|metric| (*metric, ""));
        let part = ends.into_iter().flatten().find_map(|(base, end)| {
            let metric = ALL.iter().find(|metric| metric.name == base)?;
            Some((*metric, end))
        });
        whole
            .or(part)
            .unwrap_or_else(|| panic!("no metric {name}: {expression}"))
    };
    let found = series.captures_iter(expression).map(|series| {
        let (metric, end) = about(&series[1]);
        let compared = series.get(2).map_or("", |labels| labels.as_str());
        let compared = matcher.captures_iter(compared);
        let compared = compared.map(|pair| (pair[1].to_owned(), pair[2].to_owned())).collect();
        Series { metric, end, compared }
    });
    found.collect()
}

/// Fails unless the expression reads metrics that exist, by labels and codes that they have. `shown`: labels of a legend.
fn check(expression: &str, shown: &[String]) {
    let read = reads(expression);
    assert!(!read.is_empty(), "{expression}");
    let mut known = vec!["instance"];
    for Series { metric, end, compared } in &read {
        let is_histogram = matches!(metric.kind, Kind::Histogram(_));
        assert_eq!(is_histogram, !end.is_empty(), "{}: {expression}", metric.name);
        known.extend(metric.labels);
        known.extend(Some("le").filter(|_| *end == "_bucket"));
        for (label, value) in compared {
            let has_it = label == "instance" || metric.labels.contains(&label.as_str());
            assert!(has_it, "{} has no label {label}: {expression}", metric.name);
            let allowed: Vec<_> = match label.as_str() {
                "code" => Code::ALL.iter().map(|code| code.as_str()).collect(),
                "outcome" if metric.name == "gavel_decisions_total" => Outcome::WORDS.to_vec(),
                _ => continue,
            };
            for value in value.split('|') {
                let pattern = Regex::new(&format!("^(?:{value})$")).unwrap();
                assert!(
                    allowed.iter().any(|word| pattern.is_match(word)),
                    "{value}: {expression}"
                );
            }
        }
    }
    let by = Regex::new(r"by \(([^)]*)\)").unwrap();
    let grouped = by.captures_iter(expression);
    let grouped: Vec<_> = grouped
        .flat_map(|by| by[1].split(", ").map(str::to_owned).collect::<Vec<_>>())
        .collect();
    for label in grouped.iter().chain(shown) {
        assert!(known.contains(&label.as_str()), "{label}: {expression}");
    }
    let is_kept = |label: &&String| grouped.is_empty() || grouped.contains(label);
    assert!(shown.iter().all(|label| is_kept(&label)), "{shown:?}: {expression}");
}

/// The texts of these members, anywhere in the document, in order.
fn texts<'a>(document: &'a Value, member: &str, found: &mut Vec<&'a str>) {
    match document {
        Value::Array(items) => items.iter().for_each(|item| texts(item, member, found)),
        Value::Object(members) => {
            for (name, value) in members {
                found.extend(value.as_str().filter(|_| name == member));
                texts(value, member, found);
            }
        }
        _ => {}
    }
}

/// What is written as `{{label}}` in a legend, or as `{{ $labels.label }}` in the summary of an alert.
fn labels_in(text: &str) -> Vec<String> {
    let label = Regex::new(r"\{\{\s*(?:\$labels\.)?(\w+)\s*\}\}").unwrap();
    label.captures_iter(text).map(|label| label[1].to_owned()).collect()
}

#[test]
fn the_dashboard_shows_only_what_gavel_measures() {
    let text = fs::read_to_string(root().join("deploy/grafana/gavel.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let (mut expressions, mut legends) = (Vec::new(), Vec::new());
    texts(&dashboard, "expr", &mut expressions);
    texts(&dashboard, "legendFormat", &mut legends);
    assert!(expressions.len() > 30 && expressions.len() == legends.len());
    for (expression, legend) in expressions.iter().zip(legends) {
        check(expression, &labels_in(legend));
    }
    let mut ids: Vec<_> = dashboard["panels"]
        .as_array()
        .unwrap()
        .iter()
        .map(|panel| &panel["id"])
        .collect();
    let panels = ids.len();
    ids.sort_by_key(|id| id.as_u64());
    ids.dedup();
    assert_eq!(ids.len(), panels, "each panel has an id of its own");
}

const ALERTS: &str = "deploy/prometheus/alerts.yaml";

/// Each alert reads metrics that exist, says what happens, and has a section that says what to do; and the reverse.
#[test]
fn each_alert_reads_what_gavel_measures_and_has_a_runbook() {
    let alerts = fs::read_to_string(root().join(ALERTS)).unwrap();
    let alerts: Value = serde_saphyr::from_str(&alerts).unwrap();
    let page = fs::read_to_string(root().join("docs/how-to/monitor.md")).unwrap();
    let sections: Vec<_> = page.lines().filter_map(|line| line.strip_prefix("### ")).collect();
    let rules = alerts["groups"][0]["rules"].as_array().unwrap();
    let names: Vec<_> = rules.iter().map(|rule| rule["alert"].as_str().unwrap()).collect();
    assert_eq!(names, sections);
    for (rule, name) in rules.iter().zip(names) {
        let summary = rule["annotations"]["summary"].as_str().unwrap();
        check(rule["expr"].as_str().unwrap(), &labels_in(summary));
        let severity = rule["labels"]["severity"].as_str().unwrap();
        assert!(
            ["critical", "warning", "info"].contains(&severity) && summary.ends_with('.'),
            "{rule}"
        );
        let runbook = format!("docs/how-to/monitor.md#{}", name.to_lowercase());
        assert_eq!(rule["annotations"]["runbook"], runbook);
    }
}

/// Prometheus itself accepts the alerts, and each fires when it should. Where it is not installed, nothing is shown.
#[test]
fn prometheus_accepts_the_alerts_and_each_fires() {
    for args in [
        ["check", "rules", ALERTS],
        ["test", "rules", "tests/metrics/alerts.yaml"],
    ] {
        match Command::new("promtool").args(args).current_dir(root()).output() {
            Ok(ran) => assert!(
                ran.status.success(),
                "{}{}",
                String::from_utf8_lossy(&ran.stdout),
                String::from_utf8_lossy(&ran.stderr)
            ),
            Err(error) => assert_eq!(error.kind(), ErrorKind::NotFound, "{error}"),
        }
    }
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
        let histogram = HTTP_SECONDS.with(["test".into()]);
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
