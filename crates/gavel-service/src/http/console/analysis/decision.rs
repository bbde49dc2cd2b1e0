//! One decision: its conversation, where its time went, each model call and tool call.

use chrono_tz::Tz;
use maud::{Markup, html};

use super::{Ways, condition, navigation};
use crate::api::decisions::{AskedWith, DecisionDetail, DecisionRecord, ToolInvocation, Turn};
use crate::api::why::TimeSplit;
use crate::domain::action::Action;
use crate::domain::ids::DecisionId;
use crate::http::console::session::Visitor;
use crate::http::console::view::{address, chart, words};
use crate::http::console::{Page, paths};
use crate::http::error::Code;
use crate::http::request::{Id, Open};

/// Rendered bytes of a text of the conversation, and of the arguments or the result of a call.
const TEXT: usize = 32 * 1024;
const DATA: usize = 8 * 1024;
/// The most messages and steps that are shown.
const MOST: usize = 200;

/// A stretch of the time of a decision.
struct Step {
    class: &'static str,
    begin: i64,
    /// Microseconds; absent if it has none.
    length: Option<i64>,
    what: Markup,
    ended: Markup,
    cost: Option<u64>,
}

pub(crate) async fn show(edge: Open, visitor: Visitor, Id(id): Id<DecisionId>) -> Page {
    let user = visitor.rows();
    let found = edge.decisions.get(&visitor.caller, user.as_ref(), id).await?;
    let found = found.ok_or(Code::NotFound)?;
    let asked = edge.decisions.asked_with(&visitor.caller, user.as_ref(), id).await?;
    // The run of a decision has its id; who may read it may read how long its approvals took.
    let actions = edge.approvals.of_run(id.run()).await?;
    let steps = steps(&found, &actions, visitor.zone);
    let decision = &found.decision;
    let ways = Ways {
        json: format!("/v1/decisions/{id}"),
        csv: None,
        sql: Some(format!(
            "SELECT * FROM gavel_v1.decisions WHERE decision_id = '{id}';\nSELECT * FROM gavel_v1.model_turns WHERE decision_id = '{id}';\n\
             SELECT * FROM gavel_v1.tool_invocations WHERE decision_id = '{id}';"
        )),
    };
    let outcome = decision
        .outcome_category
        .map_or("In progress", |outcome| outcome.as_str());
    let body = html! {
        div.analysis {
            (navigation(paths::DECISIONS, None))
            h1 { (outcome) }
            p.lead { "Decision " code { (decision.decision_id) } ", " (words::at(decision.created_at.0, visitor.zone)) }
            (facts(decision))
            @if let Some(detail) = &decision.error_detail { p.flash.bad { (words::beginning(detail, TEXT)) } }
            section aria-labelledby="conversation" { h2 #conversation { "Conversation" } (conversation(decision, asked.as_ref(), &found.tool_calls)) }
            section aria-labelledby="time" { h2 #time { "Where the time went" } (time(decision)) (waterfall(decision, &steps)) }
            (ways.markup(&visitor))
        }
    };
    Ok(visitor.page("Decision", &body))
}

/// Its values; each leads to the decisions that share it.
fn facts(decision: &DecisionRecord) -> Markup {
    let usage = decision.usage.unwrap_or_default();
    let value = |field: &str, value: Option<&str>| {
        let link = |value| {
            let filter = condition(field, "=", Some(value));
            address(paths::DECISIONS, &[("last", Some("30d")), ("filter", Some(&filter))])
        };
        html! { @match value { Some(value) => a href=(link(value)) { bdi { (words::beginning(value, 256)) } }, None => span.none { "none" } } }
    };
    let model = decision.model.as_deref();
    let other = model != Some(&decision.requested_model);
    let asked = other.then_some(("Asked", "requested_model", Some(&*decision.requested_model)));
    let about = [
        ("User", "user_id", Some(&*decision.user_id)),
        ("Surface", "surface", Some(&decision.surface)),
        ("Agent", "agent_id", decision.agent_id.as_deref()),
        ("Model", "model", model),
    ];
    let context = [
        ("Conversation", "conversation_id", Some(&*decision.conversation_id)),
        ("Definition", "definition_hash", Some(&decision.definition_hash)),
    ];
    let fields = about.into_iter().chain(asked).chain(context);
    html! {
        dl.tiles {
            div { dt { "Took" } dd { @match decision.duration_ms { Some(ms) => (words::took(ms)), None => "–" } } }
            div { dt { "Cost" } dd { @match decision.cost_nano { Some(nano) => (words::dollars(nano as f64 / 1e9)), None => "unknown" } } }
            div { dt { "Tokens" } dd { (words::grouped(usage.total())) } }
            div { dt { "Model calls" } dd { (decision.turns.len()) } }
        }
        dl.about {
            @for (title, field, of) in fields { div { dt { (title) } dd { (value(field, of)) } } }
            @if let Some(price) = &decision.price_id { div { dt { "Price" } dd { (words::beginning(price, 512)) } } }
        }
    }
}

fn conversation(decision: &DecisionRecord, asked: Option<&AskedWith>, calls: &[ToolInvocation]) -> Markup {
    let said = asked.map_or(&[][..], |asked| &asked.history);
    let message = |class: &'static str, who: &str, content: Option<&str>| {
        html! {
            li class=(class) {
                p.said-by { b { (who) } }
                @match content { Some(content) => div.prose dir="auto" { (words::beginning(content, TEXT)) }, None => p.none { "Content not stored" } }
            }
        }
    };
    html! {
        ol.thread {
            @if said.len() > MOST { li { (said.len() - MOST) " earlier messages" } }
            @for said in &said[said.len().saturating_sub(MOST)..] {
                @let class = if said.role == "user" { "user" } else { "assistant" };
                (message(class, &format!("Earlier, {}", said.role), said.content.as_deref()))
            }
            (message("user", &decision.user_id, decision.message.as_deref()))
            @for words in calls.iter().filter_map(|call| call.words.as_deref()).take(MOST) { (message("assistant", "Model, beside a call", Some(words))) }
            @if decision.outcome_category.is_some() { (message("assistant", "Answer", decision.response.as_deref())) }
        }
    }
}

/// Model calls, tool calls and approvals, in the order of their begin.
fn steps(found: &DecisionDetail, actions: &[Action], zone: Tz) -> Vec<Step> {
    let turns = found.decision.turns.iter().map(|turn| model_call(turn, zone));
    let calls = found.tool_calls.iter().map(tool_call);
    let approvals = actions.iter().filter(|action| action.approval.is_some()).map(approval);
    let mut steps: Vec<_> = turns.chain(calls).chain(approvals).collect();
    steps.sort_by_key(|step| step.begin);
    steps
}

fn us(ms: u64) -> i64 {
    i64::try_from(ms.saturating_mul(1000)).unwrap_or(i64::MAX)
}

fn model_call(turn: &Turn, zone: Tz) -> Step {
    Step {
        class: "s1",
        begin: turn.started_at.0,
        length: Some(us(turn.duration_ms)),
        what: html! {
            details {
                summary { "Model " bdi { (words::beginning(turn.model.as_deref().unwrap_or(&turn.requested_model), 128)) } }
                p { (words::at(turn.started_at.0, zone)) "; " (words::count(turn.attempts.into(), "request")) "; tokens: " (words::grouped(turn.usage.input_tokens)) " in ("
                    (words::grouped(turn.usage.cached_tokens)) " cached), " (words::grouped(turn.usage.thought_tokens)) " thought, " (words::grouped(turn.usage.output_tokens)) " out"
                    @if let Some(ms) = turn.first_text_ms { "; first text after " (words::took(ms)) } }
            }
        },
        ended: html! { @if let Some(reason) = &turn.finish_reason { (words::beginning(reason, 128)) } },
        cost: turn.cost_nano,
    }
}

fn tool_call(call: &ToolInvocation) -> Step {
    Step {
        class: "s2",
        begin: call.started_at.unwrap_or(call.created_at).0,
        length: call.result.duration_ms.filter(|_| call.started_at.is_some()).map(us),
        what: html! {
            details {
                summary { (words::code(words::cut(&call.tool, 128).0)) }
                p { @if let Some(server) = &call.server { "Server " (words::code(server)) "; " } "arguments " (words::bytes(call.argument_bytes as f64)) }
                (data("Arguments", call.parameters.as_ref().map(|json| json.get())))
                (data("Result", call.result.data.as_ref().map(|json| json.get())))
            }
        },
        ended: html! {
            (words::name(call.status.as_str()))
            @if let Some(policy) = &call.policy { ", policy: " (words::beginning(policy, 128)) @if let Some(by) = &call.decided_by { " by " (words::beginning(by, 256)) } }
            @if let Some(error) = &call.result.error { ": " (words::code(error.code.as_str())) " " (words::beginning(&error.message, 1024)) }
        },
        cost: None,
    }
}

fn approval(action: &Action) -> Step {
    Step {
        class: "s5",
        begin: action.created_at,
        length: action.resolved_at.map(|at| at - action.created_at),
        what: html! { a href={ "/console/actions/" (action.id) } { "Approval of " (words::code(words::cut(&action.tool, 128).0)) } },
        ended: html! { (words::name(&action.status.as_str().to_lowercase())) },
        cost: None,
    }
}

/// The parts of its duration in one bar, and their numbers.
fn time(decision: &DecisionRecord) -> Markup {
    let Some(whole) = decision.duration_ms else {
        return html! { p.lead { "It has not ended." } };
    };
    let split = TimeSplit::new(decision);
    let parts = [
        ("s1", "Model", split.model_ms),
        ("s2", "Tools", split.tool_ms),
        ("s5", "People", split.human_ms),
        ("s3", "gavel itself", split.own_ms),
    ];
    let parts = parts.map(|(class, name, ms)| (class, name, ms.unwrap_or_default()));
    let mut begin = 0.0;
    let bars: Vec<_> = parts
        .iter()
        .filter(|(.., ms)| *ms > 0)
        .map(|(class, name, ms)| {
            let (at, length) = (begin, *ms as f64 / whole.max(1) as f64);
            begin += length;
            (*class, at, length, format!("{name}: {}", words::took(*ms)))
        })
        .collect();
    html! {
        (chart::bars(&bars))
        ul.legend { @for (class, name, ms) in parts { li { svg.key aria-hidden="true" { rect.(class) width="100%" height="100%" {} } (name) " " b { (words::took(ms)) } } } }
    }
}

fn waterfall(decision: &DecisionRecord, steps: &[Step]) -> Markup {
    let begin = decision.created_at.0;
    let ends = steps.iter().map(|step| step.begin + step.length.unwrap_or_default());
    let own = decision.duration_ms.map(|ms| begin + ms as i64 * 1000);
    let span = ends.chain(own).max().unwrap_or(begin).saturating_sub(begin).max(1) as f64;
    html! {
        @if steps.is_empty() { p.lead { "No model was asked and no tool was called." } } @else {
            div.wide tabindex="0" role="region" aria-label="Steps" {
                table.numbers.waterfall {
                    caption { "Model calls, tool calls and approvals, in order" }
                    thead { tr { th scope="col" { "Step" } th scope="col" { "Over time" } th.number scope="col" { "Begins" } th.number scope="col" { "Took" } th scope="col" { "How it ended" } th.number scope="col" { "Cost" } } }
                    tbody {
                        @for step in steps.iter().take(MOST) {
                            @let offset = (step.begin - begin).max(0);
                            @let took = step.length.map(|us| words::took(us.max(0) as u64 / 1000));
                            tr {
                                th scope="row" { (step.what) }
                                td.over { (chart::bar(step.class, offset as f64 / span, step.length.unwrap_or_default() as f64 / span, took.as_deref().unwrap_or("not sent"))) }
                                td.number { "+" (words::took(offset as u64 / 1000)) }
                                td.number { @match took { Some(took) => (took), None => span.none { "–" } } }
                                td { (step.ended) }
                                td.number { @if let Some(nano) = step.cost { (words::dollars(nano as f64 / 1e9)) } }
                            }
                        }
                    }
                }
            }
            @if steps.len() > MOST { p { (steps.len() - MOST) " more steps; the API has all of them." } }
        }
    }
}

fn data(name: &str, json: Option<&str>) -> Markup {
    html! { p { b { (name) } } @match json { Some(json) => pre.raw dir="auto" { (words::beginning(json, DATA)) }, None => p.none { "not stored" } } }
}
