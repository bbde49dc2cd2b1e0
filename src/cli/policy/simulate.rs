//! `gavel policy simulate`: checks past calls against the current policy.
//!
//! It reads the calls page by page, and keeps only counts. It queries no servers: tool details come from the decision
//! log, mcp.json and the bundled servers' own words, so that the result does not depend on which servers are connected.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use anyhow::{Context, anyhow};
use secrecy::ExposeSecret;
use serde_json::json;
use serde_json::value::RawValue;

use super::{Modes, needs_file};
use crate::adapters::store::{PastCall, ReadOnly};
use crate::app;
use crate::cli::exit::Exit;
use crate::cli::interrupt::or_stopped;
use crate::cli::list::{at, clipped, since, table};
use crate::cli::{gavel, output};
use crate::config::Config;
use crate::domain::ids::{TenantId, UserId};
use crate::domain::journal::{PolicyDecision, Proposed};
use crate::domain::policy::{CHAT, DecidedBy, Effect, Policy};
use crate::domain::tool::{FailureCode, Tool};
use crate::engine::gate::{Attempt, Facts, decide};

/// Options of `gavel policy simulate`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Args {
    /// The start: a date, a time (RFC 3339), or an age such as 12h or 30d
    #[arg(long, default_value = "30d", value_parser = since, value_name = "WHEN")]
    since: i64,
    /// Show this many of the calls with a different answer; --json shows all
    #[arg(long, default_value_t = 20, value_name = "N")]
    show: usize,
    /// As JSON, one per line: each call with a different answer, then the counts
    #[arg(long)]
    json: bool,
    /// The tenant
    #[arg(long, default_value = "default", value_parser = gavel::tenant, value_name = "NAME")]
    tenant: TenantId,
}

const EXAMPLES: &str = "\
No tool is called and nothing is changed. Each past call is checked as of its own time, under the policy file \
of this configuration and the current constitution and agents. Grants are ignored.

Examples:
  gavel policy simulate --policy new.yaml                     the last 30 days
  gavel policy simulate --policy new.yaml --since 2026-11-01
  gavel policy simulate --since 7d --json | jq -c 'select(.now == \"deny\")'

Exit status 0, even if many answers would differ.";

/// What happened to a call, and what the policy decides now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Difference {
    happened: &'static str,
    now: &'static str,
}

const RAN: &str = "ran";
/// An approver approved it.
const APPROVED: &str = "approved";
const REJECTED: &str = "rejected";
/// The approval request expired.
const EXPIRED: &str = "expired";
/// A grant allowed it.
const GRANTED: &str = "granted";
const DENIED: &str = "denied";
const INVALID: &str = "invalid_arguments";
/// The tool's own schema, or its server, rejected the arguments before approval was requested.
const OFF_SCHEMA: &str = "schema_mismatch";
/// Not run for a reason outside the gate: a limit, an unavailable server, a tool that was not on the allowlist.
const NOT_RUN: &str = "not_run";
const NOT_KEPT: &str = "not_judged";

impl Difference {
    /// Was the call ended by what the policy decides? Schemas, limits and servers are not asked again.
    fn is_comparable(self) -> bool {
        !matches!(self.happened, NOT_RUN | OFF_SCHEMA)
    }

    /// Does the gate's answer differ?
    fn is_change(self) -> bool {
        match (self.happened, self.now) {
            _ if !self.is_comparable() => false,
            (_, NOT_KEPT) => false,
            (APPROVED | REJECTED | EXPIRED, now) => now != Effect::RequireApproval.as_str(),
            // Grants are ignored: a call that would now require approval would be granted again.
            (GRANTED, now) => now != Effect::RequireApproval.as_str() && now != Effect::Allow.as_str(),
            (RAN, now) => now != Effect::Allow.as_str(),
            (DENIED, now) => now != Effect::Deny.as_str(),
            (happened, now) => happened != now,
        }
    }
}

pub(super) async fn run(args: &Args, config: &Config) -> anyhow::Result<Exit> {
    needs_file(config)?;
    let mut decider = Decider {
        policy: app::policy(config)?,
        tenant: args.tenant.clone(),
        modes: Modes::read(config)?,
        known: app::known_tools(config)?,
        tools: HashMap::new(),
    };
    let from = args.since;
    let record = ReadOnly::open(config.database_url.expose_secret())
        .await
        .context("the database cannot be read")?;
    let counts = or_stopped(go_through(args, &mut decider, &record, from)).await;
    record.close().await;
    summary(args, &counts?)?;
    Ok(Exit::Done)
}

/// How often each difference occurred.
#[derive(Default)]
struct Counts {
    each: BTreeMap<Difference, u64>,
    shown: usize,
}

async fn go_through(args: &Args, decider: &mut Decider, record: &ReadOnly, from: i64) -> anyhow::Result<Counts> {
    let mut counts = Counts::default();
    let mut place = (from, String::new());
    let mut rows = Vec::new();
    loop {
        let calls = record.past_calls(&args.tenant, &place).await?;
        let Some(last) = calls.last() else { break };
        place = (last.at.0, last.id.clone());
        for call in &calls {
            let (difference, why) = decider.look_at(call)?;
            *counts.each.entry(difference).or_default() += 1;
            if !difference.is_change() {
                continue;
            }
            counts.shown += 1;
            if args.json {
                output::line(&difference_line(call, difference, &why).to_string())?;
            } else if rows.len() < args.show {
                rows.push(row(call, difference, &why));
            }
        }
    }
    if !rows.is_empty() {
        let heads = ["at (UTC)", "decision", "user", "tool", "happened", "now", "why"];
        output::line(&table(&heads, &rows))?;
    }
    Ok(counts)
}

fn difference_line(call: &PastCall, difference: Difference, why: &str) -> serde_json::Value {
    json!({
        "created_at": call.at, "decision_id": call.decision, "tool_invocation_id": call.id,
        "surface": call.surface, "agent": call.agent, "user_id": call.user, "server": call.server, "tool": call.tool,
        "happened": difference.happened, "now": difference.now, "reason": why,
    })
}

fn row(call: &PastCall, difference: Difference, why: &str) -> Vec<String> {
    vec![
        at(call.at),
        call.decision.clone(),
        clipped(&call.user, 20),
        clipped(&call.tool, 30),
        difference.happened.to_owned(),
        difference.now.to_owned(),
        clipped(why, 100),
    ]
}

fn summary(args: &Args, counts: &Counts) -> anyhow::Result<()> {
    let total: u64 = counts.each.values().sum();
    let of = |which: &dyn Fn(&Difference) -> bool| -> u64 {
        counts.each.iter().filter(|(one, _)| which(one)).map(|(_, n)| n).sum()
    };
    let (changed, not_kept) = (of(&|one| one.is_change()), of(&|one| one.now == NOT_KEPT));
    if args.json {
        let each: Vec<_> = counts
            .each
            .iter()
            .map(|(one, calls)| {
                json!({"happened": one.happened, "now": one.now, "calls": calls, "changed": one.is_change()})
            })
            .collect();
        let summary = json!({"calls": total, "changed": changed, "not_judged": not_kept, "counts": each});
        return output::line(&json!({ "summary": summary }).to_string());
    }
    let rows: Vec<_> = counts
        .each
        .iter()
        .map(|(one, calls)| {
            let mark = if one.is_change() { "changed" } else { "" };
            vec![
                one.happened.to_owned(),
                if one.is_comparable() { one.now } else { "not checked" }.to_owned(),
                calls.to_string(),
                mark.to_owned(),
            ]
        })
        .collect();
    if !rows.is_empty() {
        output::line(&table(&["happened", "now", "calls", ""], &rows))?;
    }
    let calls = output::count(total, "call");
    output::line(&format!("{calls}, {changed} would have a different answer"))?;
    if counts.shown > args.show {
        output::note(&format!(
            "{} of the changed calls are shown; --show N shows more",
            args.show
        ));
    }
    if not_kept > 0 {
        output::note(&format!(
            "{not_kept} calls could not be checked: the decision log does not keep their arguments (records.content)"
        ));
    }
    Ok(())
}

/// Everything that calls are checked against.
struct Decider {
    tenant: TenantId,
    policy: Arc<Policy>,
    modes: Modes,
    known: app::KnownTools,
    /// The tools so far, by server, name, and whether a call could change something.
    tools: HashMap<(String, String, bool), Arc<Tool>>,
}

impl Decider {
    fn look_at(&mut self, call: &PastCall) -> anyhow::Result<(Difference, String)> {
        let happened = match (call.status.as_str(), call.error_code.as_deref()) {
            ("not_sent", Some(code)) if code == FailureCode::Denied.as_str() => DENIED,
            // Otherwise the tool's own schema rejected it, which is unknown here.
            ("not_sent", Some(code)) if code == FailureCode::InvalidArguments.as_str() => match call.by.as_deref() {
                Some(by) if by == DecidedBy::Parameters.to_string() => INVALID,
                _ => OFF_SCHEMA,
            },
            ("not_sent", Some(code)) if code == FailureCode::Rejected.as_str() => REJECTED,
            ("not_sent", Some(code)) if code == FailureCode::Expired.as_str() => EXPIRED,
            ("not_sent", _) => NOT_RUN,
            _ if call.required_approval => APPROVED,
            _ if call.granted => GRANTED,
            _ => RAN,
        };
        let is = |now, why| Ok((Difference { happened, now }, why));
        let Some(server) = &call.server else {
            return is(NOT_RUN, String::new());
        };
        // In this mode the row has a hash of the arguments, as text.
        let kept = call.arguments.as_ref().filter(|arguments| arguments.starts_with('{'));
        let Some(arguments) = kept.and_then(|kept| RawValue::from_string(kept.clone()).ok()) else {
            return is(NOT_KEPT, String::new());
        };
        let tool = self.tool(server, call);
        let user = UserId::parse(call.user.as_str())
            .map_err(|error| anyhow!("the decision log names {:?}: {error}", call.user))?;
        let facts = Facts {
            // Only a chat ends with its answer.
            can_wait: call.surface != CHAT,
            now_us: call.at.0,
            ..self
                .modes
                .facts(&self.policy, &self.tenant, &user, &call.surface, call.agent.as_deref())
        };
        let decision = decide(&Proposed::of(&tool, arguments), &facts, None, Attempt::First);
        let (now, why) = match (&decision.outcome, &decision.answer) {
            (PolicyDecision::Refuse { message, .. }, None) => (INVALID, message.clone()),
            (_, Some(answer)) if answer.reason.is_empty() => {
                let by: Vec<_> = answer.by.iter().map(ToString::to_string).collect();
                (decision.effect().as_str(), by.join(", "))
            }
            (_, answer) => {
                let reason = answer.as_ref().map(|answer| answer.reason.clone());
                (decision.effect().as_str(), reason.unwrap_or_default())
            }
        };
        is(now, why)
    }

    /// The tool as known without its server.
    fn tool(&mut self, server: &str, call: &PastCall) -> Arc<Tool> {
        let key = (server.to_owned(), call.tool.clone(), call.side_effect);
        if let Some(tool) = self.tools.get(&key) {
            return Arc::clone(tool);
        }
        let settings = self.known.of(server, &call.tool);
        let tool = Arc::new(Tool {
            side_effect: settings.side_effect.unwrap_or(call.side_effect),
            settings,
            ..Tool::named(server, &call.tool)
        });
        self.tools.insert(key, Arc::clone(&tool));
        tool
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_another_answer_of_the_gate() {
        let is = |happened, now| Difference { happened, now }.is_change();
        assert!(is(RAN, "deny") && is(RAN, "require_approval") && is(RAN, INVALID));
        assert!(is(DENIED, "allow") && is(DENIED, "require_approval"));
        assert!(is(INVALID, "allow"));
        assert!(is(APPROVED, "allow") && is(REJECTED, "deny") && is(EXPIRED, "allow") && is(GRANTED, "deny"));
        assert!(!is(APPROVED, "require_approval") && !is(REJECTED, "require_approval"));
        assert!(!is(GRANTED, "allow") && !is(GRANTED, "require_approval"));
        assert!(!is(RAN, "allow") && !is(DENIED, "deny") && !is(INVALID, INVALID));
        assert!(!is(OFF_SCHEMA, "allow") && !is(NOT_RUN, "deny") && !is(RAN, NOT_KEPT));
    }
}
