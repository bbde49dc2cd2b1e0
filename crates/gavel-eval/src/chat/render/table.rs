//! Text for a terminal: scores by kind, the confusion matrix, and the failures.

use std::fmt::Write;

use super::no_evidence;
use crate::chat::case::{CLARIFY, INVOKE, REFUSE, RESPOND};
use crate::chat::report::{NOT_RUN, Rate, Report, Verdict};

/// The report as text. Writing to a String cannot fail, so results of `writeln!` are dropped.
pub fn table(report: &Report) -> String {
    let mut out = String::new();
    kinds(report, &mut out);
    confusion(report, &mut out);
    failures(report, &mut out);
    summary(report, &mut out);
    out
}

fn kinds(report: &Report, out: &mut String) {
    let _ = writeln!(
        out,
        "{:<14} {:>9} {:>7} {:>9} {:>15}",
        "kind", "succeeded", "share", "median", "clear requests"
    );
    for kind in &report.kinds {
        let _ = writeln!(
            out,
            "{:<14} {:>9} {:>7} {:>6} ms {:>15}",
            kind.kind,
            of(kind.rate),
            kind.rate.percent(),
            kind.median_ms,
            of(kind.clear_requests)
        );
    }
    let all: Rate = report.kinds.iter().map(|kind| kind.rate).sum();
    let _ = writeln!(
        out,
        "{:<14} {:>9} {:>7} {:>9} {:>15}\n",
        "all",
        of(all),
        all.percent(),
        "",
        of(report.clear_requests)
    );
}

fn of(rate: Rate) -> String {
    if rate.total == 0 {
        "-".to_owned()
    } else {
        format!("{}/{}", rate.succeeded, rate.total)
    }
}

fn confusion(report: &Report, out: &mut String) {
    const SHORT: [(&str, &str); 4] = [
        (REFUSE, "refuse"),
        (CLARIFY, "clarify"),
        (INVOKE, "tool"),
        (RESPOND, "respond"),
    ];
    let _ = write!(out, "{:<22}", "expected \\ observed");
    for (_, short) in SHORT {
        let _ = write!(out, "{short:>9}");
    }
    let _ = writeln!(out, "{:>9}", "not run");
    for (expected, _) in SHORT {
        let _ = write!(out, "{expected:<22}");
        for observed in SHORT.map(|(observed, _)| observed).into_iter().chain([NOT_RUN]) {
            let count = match report.confusion.get(expected, observed) {
                0 => ".".to_owned(),
                count => count.to_string(),
            };
            let _ = write!(out, "{count:>9}");
        }
        out.push('\n');
    }
    out.push('\n');
}

fn failures(report: &Report, out: &mut String) {
    for case in &report.cases {
        let reasons = match &case.verdict {
            Verdict::Succeeded => continue,
            Verdict::Failed { differences } => differences.clone(),
            Verdict::NotRun { error } => vec![format!("not run: {}", safe(error))],
        };
        let _ = writeln!(
            out,
            "✗ {} ({}): {}",
            safe(&case.id),
            safe(&case.place),
            safe(&short(&case.message))
        );
        for reason in reasons {
            let _ = writeln!(out, "    {}", safe(&reason));
        }
    }
    for breach in &report.invariants_broken {
        let _ = writeln!(out, "‼ invariant broken: {}", safe(breach));
    }
    let quiet = report.invariants_broken.is_empty() && report.cases.iter().all(|case| case.succeeded());
    if !quiet {
        out.push('\n');
    }
}

fn summary(report: &Report, out: &mut String) {
    let models: Vec<_> = report.models.iter().map(|model| safe(model)).collect();
    let _ = writeln!(
        out,
        "model: {}",
        if models.is_empty() {
            "none answered".to_owned()
        } else {
            models.join(", ")
        }
    );
    let verdict = if report.meets_threshold() { "met" } else { "not met" };
    let _ = writeln!(out, "target {verdict}: {}", report.clear_requests_in_words());
    let broken = report.invariants_broken.len();
    let invariants = if broken == 0 {
        "all hold".to_owned()
    } else {
        format!("{broken} broken")
    };
    let _ = writeln!(
        out,
        "invariants: {invariants}; {} cases in {:.1} s",
        report.cases.len(),
        report.elapsed_ms as f64 / 1000.0
    );
    if report.not_run > 0 {
        let _ = writeln!(out, "{} cases were not run and are not counted above", report.not_run);
    }
    if let Some(note) = no_evidence(report) {
        let _ = writeln!(out, "{note}");
    }
}

fn short(message: &str) -> String {
    let mut short: String = message.chars().take(70).collect();
    if short.len() < message.len() {
        short.push('…');
    }
    short
}

/// A model's text must not control the terminal.
fn safe(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect()
}
