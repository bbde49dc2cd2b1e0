//! The lines of events. Text of models, tools and persons is on one line, as output shows it.

use serde_json::Value;

use super::{ARGUMENTS, WORDS};
use crate::cli::output::count;
use crate::cli::plan::text::changes;
use crate::cli::table::{clipped, single_line};
use crate::domain::plan::Change;

/// The width of the name of a phase.
const PHASE: usize = 8;

pub(super) fn text<'a>(event: &'a Value, field: &str) -> &'a str {
    event[field].as_str().unwrap_or_default()
}

/// A line below the head of a step.
pub(super) fn of_phase(phase: &str, words: &str) -> String {
    format!("  {:<PHASE$} {words}", single_line(phase))
        .trim_end()
        .to_owned()
}

/// The phase of a call; those of no task are made while a plan is made, or at the end.
pub(super) fn word(event: &Value) -> &'static str {
    match event["taskId"].is_null() {
        true => "call",
        false => "act",
    }
}

/// `executeScript "make test"`: the tool with its only text, or with all arguments.
pub(super) fn call(event: &Value) -> String {
    let tool = single_line(text(event, "tool"));
    let arguments = event["arguments"].as_object();
    let texts: Vec<_> = arguments
        .into_iter()
        .flatten()
        .filter(|(name, _)| matches!(name.as_str(), "script" | "command" | "query" | "url" | "path" | "title"))
        .filter_map(|(_, value)| value.as_str())
        .collect();
    let shown = match texts[..] {
        [only] => format!("\"{}\"", clipped(only, ARGUMENTS)),
        _ => clipped(&event["arguments"].to_string(), ARGUMENTS),
    };
    format!("{tool} {shown}")
}

pub(super) fn status(event: &Value) -> Option<String> {
    let plan = event["planVersion"].as_u64().unwrap_or_default();
    let detail = event["detail"].as_str().map(|detail| clipped(detail, WORDS));
    match (text(event, "status"), plan, detail) {
        ("PLANNING", 0, _) => Some("a plan is being made".to_owned()),
        ("PLANNING", plan, _) => Some(format!("plan {plan} is being refined")),
        ("EXECUTING", plan, _) => Some(format!("the work on plan {plan} begins")),
        ("AWAITING_CONFIRMATION", plan, Some(detail)) => {
            Some(format!("the refinement failed, and plan {plan} remains: {detail}"))
        }
        _ => None,
    }
}

/// The changes of a version on one line.
pub(super) fn version(event: &Value) -> String {
    let known: Vec<Change> = serde_json::from_value(event["changes"].clone()).unwrap_or_default();
    let version = event["version"].as_u64().unwrap_or_default();
    changes(u32::try_from(version).unwrap_or(u32::MAX), &known)
}

pub(super) fn reflection(event: &Value) -> String {
    if event["accepted"] != true {
        return format!("not accepted: {}", clipped(text(event, "error"), WORDS));
    }
    if let Some(why) = event["giveUp"].as_str() {
        return format!("gives up: {}", clipped(why, WORDS));
    }
    let summary = clipped(text(event, "summary"), WORDS);
    if event["isTaskComplete"] != true {
        return summary;
    }
    let evidence = event["evidence"].as_array().into_iter().flatten();
    let shown = evidence.map(|one| {
        let step = one["observation"].as_u64().unwrap_or_default();
        format!("step {step} shows \"{}\"", clipped(text(one, "quote"), ARGUMENTS))
    });
    let shown: Vec<_> = shown.collect();
    match shown.is_empty() {
        true => format!("complete: {summary}"),
        false => format!("complete: {}", shown.join("; ")),
    }
}

pub(super) fn waiting(call: &Value) -> String {
    let tool = single_line(text(call, "tool"));
    let reason = clipped(text(call, "reason"), WORDS);
    match text(call, "kind") {
        "in_doubt" => format!("waits: {tool} may have been done; a person must settle it"),
        _ => format!("waits for an approval of {tool}: {reason}"),
    }
}

pub(super) fn resumed(event: &Value) -> String {
    let tool = single_line(text(event, "tool"));
    let detail = event["detail"].as_str();
    let detail = detail.map_or_else(String::new, |detail| format!(": {}", clipped(detail, WORDS)));
    match text(event, "why") {
        "approved" => format!("{tool} is approved"),
        "rejected" => format!("{tool} is rejected{detail}"),
        "expired" => format!("the approval of {tool} expired; it was not done"),
        "happened" => format!("{tool} is settled: it happened"),
        "did_not_happen" => format!("{tool} is settled: it did not happen"),
        _ => "! another process continues the work".to_owned(),
    }
}

pub(super) fn cleanup(event: &Value) -> Option<String> {
    let names = |field: &str| -> Vec<String> {
        let names = event[field].as_array().into_iter().flatten();
        names.filter_map(Value::as_str).map(single_line).collect()
    };
    let (removed, left) = (names("removed"), names("left"));
    let parts = [
        (!removed.is_empty()).then(|| format!("{} removed", count(removed.len() as u64, "container"))),
        (!left.is_empty()).then(|| format!("left: {}", clipped(&left.join(", "), WORDS))),
    ];
    let parts: Vec<_> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| format!("cleanup: {}", parts.join("; ")))
}
