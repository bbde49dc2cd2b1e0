//! Why a decision was made as it was, and why an action needed a person, as text: the point first, then what proves it.

use crate::api::why::{ActionWhy, AuditProof, GatedCall, Why, WhyDefinition};
use crate::cli::list::{at, cost, known, single_line};
use crate::domain::action::Resolution;
use crate::domain::ids::GrantId;
use crate::domain::policy::Lost;
use crate::domain::time::Timestamp;

/// The width of the waterfall, in characters.
const WIDTH: usize = 32;

fn field(label: &str, value: &str) -> String {
    format!("{label:<12}  {}\n", single_line(value))
}

pub(super) fn of_decision(why: &Why) -> String {
    let outcome = why.outcome.category.map_or("open", |category| category.as_str());
    let mut text = format!("{outcome}\n{}\n\n", single_line(&why.outcome.because));
    text += &field("definition", &definition(&why.definition));
    text += &field(
        "model",
        &match &why.model {
            Some(model) if *model != why.requested_model => format!("{} asked, {model} answered", why.requested_model),
            _ => why.requested_model.clone(),
        },
    );
    for absent in &why.absent {
        let detail = absent
            .detail
            .as_ref()
            .map_or_else(String::new, |detail| format!(": {detail}"));
        text += &field("not offered", &format!("{} ({}){detail}", absent.tool, absent.because));
    }
    let ms = |ms: Option<u64>| known(ms.map(|ms| format!("{ms} ms")));
    let time = &why.time;
    let [all, model, tool, human, own] =
        [time.total_ms, time.model_ms, time.tool_ms, time.human_ms, time.own_ms].map(ms);
    text += &field(
        "time",
        &format!("{all}: model {model}, tools {tool}, approvers {human}, gavel {own}"),
    );
    text += &field("cost", &cost(why.cost_nano));
    text += &audit(&why.audit);
    text += &waterfall(why);
    text + &why.gate.iter().map(gated).collect::<String>()
}

fn definition(definition: &WhyDefinition) -> String {
    let state = match (definition.is_current, &definition.diff_to_current) {
        (Some(true), _) => "still the current one".to_owned(),
        (Some(false), Some(changed)) => {
            let fields: Vec<_> = changed.iter().map(|changed| changed.field.as_str()).collect();
            format!("changed since: {}", fields.join(", "))
        }
        (Some(false), None) => "changed since".to_owned(),
        (None, _) => "the current one is not known".to_owned(),
    };
    let hash: String = definition.hash.chars().take(12).collect();
    format!("{} {hash}, {state}", known(definition.name.as_deref()))
}

fn audit(proof: &AuditProof) -> String {
    let rows: Vec<_> = proof
        .rows
        .iter()
        .map(|row| format!("{} {}", row.number, row.kind))
        .collect();
    let verified = match proof.verified {
        None => "no rows",
        Some(true) => "verified: ",
        Some(false) => "NOT VERIFIED, see `gavel audit verify`: ",
    };
    field("audit", &format!("{verified}{}", rows.join(", ")))
}

/// A line for each step, with a bar where its time lies between the first and the last.
fn waterfall(why: &Why) -> String {
    let turns = (1..).zip(&why.turns).map(|(number, turn)| {
        let (start, ms) = (turn.turn.started_at.0, turn.turn.duration_ms);
        (start, ms, format!("model call {number}"))
    });
    let calls = why.gate.iter().filter_map(|call| {
        let label = format!("call {} {}", call.sequence, call.tool);
        Some((call.started_at?.0, call.duration_ms?, label))
    });
    let waits = why.gate.iter().filter_map(|call| {
        let approval = call.approval.as_ref()?;
        let (from, until) = (approval.requested_at.0, approval.resolved_at?.0);
        let ms = u64::try_from((until - from) / 1000).unwrap_or(0);
        Some((from, ms, format!("approval of call {}", call.sequence)))
    });
    let mut steps: Vec<_> = turns.chain(calls).chain(waits).collect();
    steps.sort_by_key(|(start, ..)| *start);
    let end = |(start, ms, _): &(i64, u64, String)| start.saturating_add_unsigned(ms.saturating_mul(1000));
    let first = steps.first().map_or(0, |(start, ..)| *start);
    let whole = steps.iter().map(end).max().unwrap_or(0).abs_diff(first).max(1);
    let column = |at: i64| (at.abs_diff(first) as f64 / whole as f64 * WIDTH as f64) as usize;
    let line = |step: &(i64, u64, String)| {
        let from = column(step.0).min(WIDTH - 1);
        let length = column(end(step)).saturating_sub(from).clamp(1, WIDTH - from);
        let bar = format!("{}{}", " ".repeat(from), "█".repeat(length));
        format!("{bar:<WIDTH$}  {:>8} ms  {}\n", step.1, single_line(&step.2))
    };
    match steps.is_empty() {
        true => String::new(),
        false => format!("\n{}", steps.iter().map(line).collect::<String>()),
    }
}

fn gated(call: &GatedCall) -> String {
    let code = call.error_code.map_or_else(String::new, |code| format!(" ({code})"));
    let mut text = format!(
        "\ncall {}  {} / {}  {}{code}\n",
        call.sequence,
        single_line(&known(call.server.as_deref())),
        single_line(&call.tool),
        call.status
    );
    text += &policy(call.verdict.as_deref(), call.rule.as_deref(), &call.lost);
    if let Some(limit) = &call.limit {
        text += &field("  limit", &format!("{} {}", limit.name, limit.limit));
    }
    if let Some(approval) = &call.approval {
        let by = approval.resolved_by.as_deref();
        let resolved = (approval.resolution, by, approval.resolved_at);
        let answered = answered(approval.approval_id.is_some(), resolved, approval.grant_id);
        text += &field("  approval", &answered);
    }
    text
}

fn policy(verdict: Option<&str>, rule: Option<&str>, lost: &[Lost]) -> String {
    let by = rule.map_or_else(String::new, |rule| format!(", by {rule}"));
    let verdict = field("  policy", &format!("{}{by}", verdict.unwrap_or("not asked")));
    let lost = lost
        .iter()
        .map(|lost| field("  lost", &format!("{} says {}", lost.by, lost.says)));
    verdict + &lost.collect::<String>()
}

/// What the approver answered, who it was, and when.
type Resolved<'a> = (Option<Resolution>, Option<&'a str>, Option<Timestamp>);

fn answered(was_asked: bool, resolved: Resolved<'_>, grant: Option<GrantId>) -> String {
    let grant = grant.map_or_else(String::new, |grant| format!(", grant {grant}"));
    match resolved {
        (Some(resolution), Some(by), Some(when)) => {
            let answer = match resolution {
                Resolution::Reject => "rejected",
                _ => "approved",
            };
            format!("{answer} by {by} at {}{grant}", at(when))
        }
        _ if !was_asked => format!("none needed{grant}"),
        _ => "no answer".to_owned(),
    }
}

pub(super) fn of_action(why: &ActionWhy) -> String {
    let mut text = format!(
        "{} / {}  {}\n",
        single_line(&why.server),
        single_line(&why.tool),
        why.state
    );
    if let Some(reason) = &why.reason {
        text += &format!("{}\n", single_line(reason));
    }
    text += &format!("\n{}", policy(Some(&why.verdict), why.rule.as_deref(), &why.lost));
    let resolved = (why.resolution, why.resolved_by.as_deref(), why.resolved_at);
    text += &field(
        "  approval",
        &answered(why.approval_id.is_some(), resolved, why.grant_id),
    );
    text += &field("agent", &format!("{} for {}", why.agent_id, why.user_id));
    text += &field("run", &why.run_id.to_string());
    text + &audit(&why.audit)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const EVIL: &str = "a\u{1b}[2J\u{202e}\nb";
    const AT: &str = "2026-11-22T10:00:00Z";

    /// Names of tools and models are words of others, and a line of theirs must not pass for one of gavel.
    #[test]
    fn words_of_others_are_printed_escaped_and_on_their_line() {
        let lost = json!([{"by": EVIL, "says": "deny"}]);
        let usage = json!({"input_tokens": 1, "output_tokens": 1, "thought_tokens": 0, "cached_tokens": 0});
        let why: Why = serde_json::from_value(json!({
            "decision_id": EVIL, "status": "closed", "requested_model": EVIL, "model": EVIL, "offered": [EVIL],
            "outcome": {"because": EVIL, "limits": []},
            "definition": {
                "hash": EVIL, "name": EVIL, "is_current": false,
                "diff_to_current": [{"field": EVIL, "then": EVIL, "now": EVIL}],
            },
            "absent": [{"tool": EVIL, "because": "subset", "detail": EVIL}],
            "turns": [{
                "requested_model": EVIL, "attempts": 1, "started_at": AT, "duration_ms": 10, "usage": usage, "asked": [1],
            }],
            "gate": [{
                "sequence": 1, "tool": EVIL, "server": EVIL, "verdict": EVIL, "rule": EVIL, "lost": lost,
                "status": "completed", "started_at": "2026-11-22T10:00:00.010Z", "duration_ms": 30,
            }],
            "time": {},
            "audit": {"rows": [{"number": 1, "kind": EVIL, "at": AT, "actor": EVIL}], "verified": false},
        }))
        .unwrap();
        let text = of_decision(&why);
        assert!(!text.contains(['\u{1b}', '\u{202e}']), "{text}");
        assert!(text.lines().all(|line| !line.starts_with('b')), "{text}");
        assert!(text.contains("audit         NOT VERIFIED"), "{text}");
        let bars: Vec<_> = text.lines().filter(|line| line.contains('█')).collect();
        assert!(
            bars[0].starts_with("████████  ") && bars[1].starts_with("        ████████████████████████  "),
            "{text}"
        );
    }
}
