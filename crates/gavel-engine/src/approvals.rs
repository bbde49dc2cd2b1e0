//! Approvals: the approval requests of a run, their resolutions, and the outcomes of the calls they are about.
//! Everything is read from the journal; the store keeps a copy for approvers.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::derive;
use super::journal::Journal;
use super::ledger::Call;
use super::record::Record;
use super::run::Run;
use crate::api::approvals;
use crate::domain::action::{Action, ActionStatus, Details};
use crate::domain::address;
use crate::domain::address::Recipients;
use crate::domain::ids::{ActionId, ApprovalId};
use crate::domain::journal::{CallResult, Entry, Proposed, Target, ToolRef};
use crate::domain::policy::{AGENTS, Grant};
use crate::domain::templates::Text;
use crate::domain::text::{capped, numbered};
use crate::domain::tool::{FailureCode, Tool};
use crate::ports::commit::{ActionOutcome, NewAction};
use crate::ports::records::OpenCall;

/// The servers of approved calls that have no result. A rejected call needs no server.
pub(super) fn servers(journal: &Journal, actions: &[Action]) -> BTreeSet<Arc<str>> {
    let approved = |id| {
        actions
            .iter()
            .any(|action| action.id == id && action.status == ActionStatus::Approved)
    };
    let ledger = journal.ledger();
    let open = ledger
        .calls()
        .filter(|call| call.is_open() && call.requested().is_some() && approved(call.id()));
    open.filter_map(Call::server).map(Arc::clone).collect()
}

/// The grants of the run's user for the called tools. If they cannot be read, there are none, so approval is requested.
pub(super) async fn grants(run: &Run, calls: &[Proposed]) -> Vec<Grant> {
    let Some(place) = &run.context.agent else {
        return Vec::new();
    };
    let mut grants = Vec::new();
    let mut known = BTreeSet::new();
    for tool in calls.iter().filter_map(|call| call.target.tool()) {
        if tool.settings.recipients.is_empty() || !known.insert((&tool.server, &tool.name)) {
            continue;
        }
        let (tenant, user) = (&run.record.decision.tenant, &run.record.decision.user);
        match place.actions.granted(tenant, user, &tool.server, &tool.name).await {
            Ok(found) => grants.extend(found.into_iter().filter_map(approvals::Grant::to_policy)),
            Err(error) => {
                tracing::warn!(run_id = %run.record.decision.id, %error, "grants cannot be read, so the call needs an approval")
            }
        }
    }
    grants
}

/// The approval requests for these calls. They expire with the run's deadline, which is `left` from now, at the latest.
pub(super) fn questions(run: &Run, calls: &[ActionId], lifetime: Duration, left: Option<Duration>) -> Vec<NewAction> {
    let lifetime = left.map_or(lifetime, |left| left.min(lifetime));
    let model = model(run);
    let ledger = run.record.journal.ledger();
    let waiting = ledger.calls().filter(|call| calls.contains(&call.id()));
    waiting
        .filter_map(|call| {
            let callee = callee(run, call)?;
            let (arguments, details) = (call.requested()?, call.details()?);
            let tool = call.tool().map(AsRef::as_ref);
            let with = in_short(tool, arguments, details.recipients.as_ref());
            let account = details.account.as_deref().map(in_a_sentence);
            let account = account.map_or_else(String::new, |account| format!(" from {account}"));
            let with = if with.is_empty() { with } else { format!(" ({with})") };
            let asked = format!("{}{account}{with}", callee.name);
            let words = Text::ApprovalRequest.with(&[("call", &asked), ("reason", &details.reason)]);
            let details = Details {
                request: Some(words.clone()),
                ..details.clone()
            };
            Some(NewAction {
                id: call.id(),
                approval: Some((ApprovalId::new(), lifetime)),
                sequence: call.proposed.sequence,
                tool: callee,
                arguments: Arc::clone(arguments),
                model: Arc::clone(&model),
                policy: call.policy(),
                details,
                grant: None,
                words: words.into(),
            })
        })
        .collect()
}

/// Approved calls whose start is not written yet.
pub(super) fn asked(run: &Run) -> Vec<ActionId> {
    let started = newly_started(run);
    if started.is_empty() {
        return started;
    }
    let ledger = run.record.journal.ledger();
    let requested = |id: &ActionId| ledger.call(*id).is_some_and(|call| call.requested().is_some());
    started.into_iter().filter(requested).collect()
}

/// Calls whose start is not written yet.
fn newly_started(run: &Run) -> Vec<ActionId> {
    let new = run.record.journal.iter().skip(run.record.written());
    new.filter_map(Entry::started).collect()
}

/// Actions that start without an approval request: side effects, and read-only calls that a grant allows.
pub(super) fn unasked(run: &Run, intents: &[OpenCall]) -> Vec<NewAction> {
    let started = newly_started(run);
    if started.is_empty() {
        return Vec::new();
    }
    let (model, ledger) = (model(run), run.record.journal.ledger());
    let action = |call: Call<'_>, tool: &Arc<Tool>, arguments: &Arc<RawValue>| NewAction {
        id: call.id(),
        approval: None,
        sequence: call.proposed.sequence,
        tool: ToolRef::from(&**tool),
        arguments: Arc::clone(arguments),
        model: Arc::clone(&model),
        policy: call.policy(),
        details: reached(tool, arguments),
        grant: call.grant(),
        words: "".into(),
    };
    let effects = intents.iter().filter_map(|intent| {
        let call = ledger.call(intent.id).filter(|call| call.requested().is_none())?;
        Some(action(call, intent.tool.as_ref()?, &intent.arguments))
    });
    let reads = started.iter().filter_map(|id| {
        let call = ledger.call(*id).filter(|call| call.grant().is_some())?;
        let tool = call.tool().filter(|tool| !tool.side_effect)?;
        Some(action(call, tool, call.allowed()?))
    });
    effects.chain(reads).collect()
}

/// The recipients of a call, for users who must find out its outcome. They were checked when the call was decided.
fn reached(tool: &Tool, arguments: &RawValue) -> Details {
    if tool.settings.recipients.is_empty() {
        return Details::default();
    }
    let found = serde_json::from_str(arguments.get()).map_err(|error| vec![error.to_string()]);
    let found =
        found.and_then(|arguments| address::recipients(&tool.settings.recipients, &arguments, usize::MAX, || false));
    match found {
        Ok(found) => Details {
            recipients: Some(found.recipients).filter(|recipients| !recipients.is_empty()),
            ..Details::default()
        },
        Err(errors) => {
            tracing::error!(tool = %tool.name, ?errors, "the recipients of a call cannot be read, so its approval request names none");
            Details::default()
        }
    }
}

/// Did an approval request expire with the deadline of its run? The store's clock says so, even if that of this process
/// is behind. `lifetime`: that of a request without a deadline.
pub(super) fn expired_with_deadline(actions: &[Action], lifetime: Duration) -> bool {
    let lifetime_us = i64::try_from(lifetime.as_micros()).unwrap_or(i64::MAX);
    actions.iter().any(|action| {
        let is_shorter = |at: i64| at.saturating_sub(action.created_at) < lifetime_us;
        action.status == ActionStatus::Expired
            && action.resolution.is_none()
            && action
                .expires_at
                .is_some_and(|at| is_shorter(at) && action.completed_at >= Some(at))
    })
}

/// Adds resolved approvals to the journal.
pub(super) fn apply_resolutions(run: &mut Run, actions: &[Action]) {
    for action in actions {
        let ledger = run.record.journal.ledger();
        let call = ledger.call(action.id);
        let asked = call.filter(|call| call.is_open()).and_then(Call::requested);
        let asked = asked.map(|arguments| arguments.get() == action.arguments.get());
        let known = call.and_then(Call::was_approved);
        let approved = match action.status {
            // The approver saw the arguments in the action's row, so the approval is for these alone.
            ActionStatus::Approved if asked == Some(false) => {
                tracing::error!(action_id = %action.id, "the arguments of an approval request are not those of its call");
                let message = "the approved arguments are not those of this call: the approval request was changed in the database";
                run.push(Entry::failed(action.id, FailureCode::Denied, message.to_owned()));
                continue;
            }
            ActionStatus::Approved => true,
            ActionStatus::Rejected | ActionStatus::Expired => false,
            _ => continue,
        };
        // An approved action expires as well if it could not start in time.
        if asked.is_some() && known.is_none_or(|known| known && !approved) {
            run.push(Entry::ApprovalResolved {
                call: action.id,
                approved,
                by: action
                    .resolved_by
                    .clone()
                    .filter(|_| action.status != ActionStatus::Expired),
                // The reason of an approver who approved in time is about the approval, not about the expiry.
                reason: match (action.status, action.resolution) {
                    (ActionStatus::Expired, Some(_)) => {
                        Some("it was approved, but the approval expired before it could start".into())
                    }
                    _ => action.reason.clone(),
                },
                waited: (
                    action.created_at,
                    (action.resolved_at.or(action.completed_at)).unwrap_or(action.created_at),
                ),
            });
        }
    }
    for call in cannot_be_asked(run, actions) {
        let message = "it requires approval, and its tool was changed or removed since it was called";
        run.push(Entry::failed(call, FailureCode::Unavailable, message.to_owned()));
    }
}

/// Calls that require approval, were never requested because their process died, and whose tools no server offers
/// unchanged. Their approval cannot be requested anymore, so the run would wait forever.
fn cannot_be_asked(run: &Run, actions: &[Action]) -> Vec<ActionId> {
    let ledger = run.record.journal.ledger();
    let unasked = ledger.calls().filter(|call| {
        matches!(call.proposed.target, Target::Unresolved(_))
            && call.is_open()
            && call.requested().is_some()
            && actions.iter().all(|action| action.id != call.id())
    });
    unasked.map(Call::id).collect()
}

/// The tool or the agent that a call is of; `None` if it is of neither.
fn callee(run: &Run, call: Call<'_>) -> Option<ToolRef> {
    match &call.proposed.target {
        Target::Tool(tool) => Some(ToolRef::from(&**tool)),
        Target::Agent(name) => {
            let member = run.context.agent.as_ref()?.snapshot.get(name)?;
            Some(ToolRef {
                server: AGENTS.into(),
                name: Arc::clone(name),
                digest: Arc::clone(&member.definition.hash),
                side_effect: false,
            })
        }
        Target::Unresolved(_) | Target::Verdict(_) | Target::Unknown => None,
    }
}

fn model(run: &Run) -> Arc<str> {
    let served = derive::served(&run.record.journal);
    served.and_then(|served| served.model.clone()).unwrap_or_default()
}

// What became of the calls that approvers see, with the id of what was created.

/// Maximum bytes of an id, and of a result that is searched for one.
const MOST_ID: usize = 200;

const MOST_RECEIPT: usize = 64 * 1024;

/// Outcomes of actions in the entries of a record that are not written yet.
pub(crate) fn outcomes(record: &Record) -> Vec<ActionOutcome> {
    let journal = &record.journal;
    let ledger = journal.ledger();
    let results = journal.iter().skip(record.written()).filter_map(Entry::result);
    let results = results.filter_map(|(call, result)| Some((ledger.call(call)?, result)));
    results
        .filter(|(call, _)| call.is_action())
        .map(|(call, result)| {
            let (status, error) = match &result.outcome {
                Ok(_) => (ActionStatus::Completed, None),
                Err(failure) => {
                    // The run of a called agent has its own in-doubt actions, which a user can settle.
                    let status = match (failure.code, &call.proposed.target) {
                        (FailureCode::InDoubt, Target::Tool(_) | Target::Unresolved(_)) => ActionStatus::InDoubt,
                        _ => ActionStatus::Failed,
                    };
                    (status, Some((failure.code, Arc::from(failure.for_callers()))))
                }
            };
            ActionOutcome {
                id: call.id(),
                status,
                error,
                words: executed(call, result),
            }
        })
        .collect()
}

/// The thread message about an action: the call, and the id in its result.
fn executed(call: Call<'_>, result: &CallResult) -> Option<Arc<str>> {
    let action = render_call(call);
    let words = match &result.outcome {
        Ok(data) => {
            let mut words = Text::Executed.with(&[("action", &action)]);
            if let Some(id) = result_id(data) {
                words.push_str(&Text::ResultId.with(&[("id", &in_a_sentence(&id))]));
            }
            words
        }
        Err(failure) if failure.code == FailureCode::InDoubt => Text::OutcomeUnknown.with(&[("action", &action)]),
        Err(_) => return None,
    };
    Some(words.into())
}

/// The id in a tool's result: its member `id`, else a member whose name ends in `_id` or `Id`, at the top or one level
/// below.
fn result_id(data: &RawValue) -> Option<String> {
    fn plain(value: &Value) -> Option<String> {
        match value {
            Value::String(text) if !text.is_empty() && text.len() <= MOST_ID => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            _ => None,
        }
    }
    fn own(object: &Map<String, Value>) -> Option<String> {
        let named =
            |(name, value): (&String, &Value)| (name.ends_with("_id") || name.ends_with("Id")).then(|| plain(value))?;
        object
            .get("id")
            .and_then(plain)
            .or_else(|| object.iter().find_map(named))
    }
    // A long result is a document and not a receipt.
    let object: Map<String, Value> = (data.get().len() <= MOST_RECEIPT)
        .then(|| serde_json::from_str(data.get()).ok())
        .flatten()?;
    own(&object).or_else(|| object.values().find_map(|value| value.as_object().and_then(own)))
}

/// Maximum bytes of arguments in an approval request's text, which is shown in a thread. Approvers are shown all
/// arguments.
const MOST_ARGUMENTS: usize = 400;

/// A value longer than this many bytes counts as long.
const LONG: usize = 120;

/// Quotes text that could be read as another argument or another list item, so that a subject cannot pass for a
/// recipient.
fn in_a_sentence(text: &str) -> String {
    let words = numbered(text).split_whitespace().collect::<Vec<_>>().join(" ");
    match words.contains([';', ',', '"', '(', ')', '?']) || words.contains(": ") || words.is_empty() {
        true => Value::from(words).to_string(),
        false => words,
    }
}

/// Arguments as readable text, in the tool's reading order. Invisible characters are shown as code points.
fn in_short(tool: Option<&Tool>, arguments: &RawValue, recipients: Option<&Recipients>) -> String {
    let plain = |value: &Value| match value {
        Value::String(text) => in_a_sentence(text),
        // JSON does not escape these two line breaks.
        other => numbered(&other.to_string()).replace(['\u{2028}', '\u{2029}'], " "),
    };
    let Ok(object) = serde_json::from_str::<Map<String, Value>>(arguments.get()) else {
        return capped(arguments.get(), MOST_ARGUMENTS).into_owned();
    };
    let mut text: Vec<_> = object
        .iter()
        .map(|(name, value)| {
            let words = match value {
                Value::Array(items) if items.iter().all(Value::is_string) => {
                    items.iter().map(plain).collect::<Vec<_>>().join(", ")
                }
                value => plain(value),
            };
            let is_long = words.len() > LONG;
            let place = tool.map_or((usize::from(is_long), 0), |tool| tool.reading_order(name, is_long));
            (place, format!("{}: {words}", in_a_sentence(name)))
        })
        .collect();
    text.sort_by_key(|(place, words)| (*place, words.len()));
    let text: Vec<_> = text.into_iter().map(|(_, words)| words).collect();
    let text = text.join("; ");
    match recipients.map(|recipients| recipients.all().len()) {
        Some(many) if text.len() > MOST_ARGUMENTS => format!("{many} recipients; {}", capped(&text, MOST_ARGUMENTS)),
        _ => capped(&text, MOST_ARGUMENTS).into_owned(),
    }
}

/// A call as readable text: its tool and its arguments.
pub(super) fn render_call(call: Call<'_>) -> String {
    let recipients = call.details().and_then(|details| details.recipients.as_ref());
    let tool = call.tool().map(AsRef::as_ref);
    let with = call.accepted().map(|arguments| in_short(tool, arguments, recipients));
    match with {
        Some(with) if !with.is_empty() => format!("{} ({with})", call.name()),
        _ => call.name().to_string(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;

    /// R-3: a thread records the id in an action's result, wherever a server puts it.
    #[test]
    fn the_id_of_a_result_is_found_where_servers_put_it() {
        for (data, id) in [
            (json!({"id": "18f", "threadId": "t"}), Some("18f")),
            (json!({"threadId": "t", "ok": true}), Some("t")),
            (json!({"message_id": 7}), Some("7")),
            (json!({"task": {"id": "a"}, "n": 1}), Some("a")),
            (json!({"id": "x".repeat(201)}), None),
            (json!({"id": {"id": ""}}), None),
            (json!("sent"), None),
            (json!({"text": "id: 7"}), None),
        ] {
            let raw = serde_json::value::to_raw_value(&data).unwrap();
            assert_eq!(result_id(&raw).as_deref(), id, "{data}");
        }
    }
}

#[cfg(test)]
mod text_tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;
    use crate::domain::argument_path::ArgumentPath;
    use crate::domain::times::Times;
    use crate::testing::tool_with;

    fn short(arguments: &Value, recipients: &Value) -> String {
        let recipients: Recipients = serde_json::from_value(recipients.clone()).unwrap();
        let path = |text: &str| ArgumentPath::parse(text).unwrap();
        let tool = tool_with("send", "{}", |tool| {
            tool.settings.recipients = vec![path("to"), path("cc")];
            tool.settings.single_line = vec![path("subject")];
            tool.settings.times = Some(Times {
                start: path("start"),
                end: Some(path("end")),
                zone: Some(path("zone")),
                allow_past: None,
            });
        });
        in_short(
            Some(&tool),
            &serde_json::value::to_raw_value(arguments).unwrap(),
            Some(&recipients),
        )
    }

    /// R-5: an approval request in a thread shows recipients first, and no value can be read as another argument.
    #[test]
    fn a_question_reads_as_what_it_is() {
        let to = json!({"to": ["a@x.org"]});
        for (arguments, text) in [
            (
                json!({"to": ["a@x.org"], "n": 1, "subject": "Late"}),
                "to: a@x.org; subject: Late; n: 1",
            ),
            (
                json!({"to": ["a@x.org"], "end": "11:00", "start": "10:00", "zone": "UTC", "body": "x".repeat(121), "n": 1}),
                &format!(
                    "to: a@x.org; start: 10:00; end: 11:00; zone: UTC; n: 1; body: {}",
                    "x".repeat(121)
                ),
            ),
            // Invisible characters are shown as code points.
            (
                json!({"to": ["a@x.org"], "subject": "pay \u{202e}gro.live", "n": ["a\u{200b}"]}),
                "to: a@x.org; subject: pay <U+202E>gro.live; n: a<U+200B>",
            ),
            (
                json!({"to": ["a@x.org"], "subject": "hi; to: ok@x.org"}),
                r#"to: a@x.org; subject: "hi; to: ok@x.org""#,
            ),
            // Some tools accept arguments of any name.
            (
                json!({"to": ["a@x.org"], "n; to: ok@x.org": 1, "n\nto: ok@x.org": 2}),
                r#"to: a@x.org; "n to: ok@x.org": 2; "n; to: ok@x.org": 1"#,
            ),
            // In JSON, these are the only line breaks that are not escaped.
            (
                json!({"to": ["a@x.org"], "n": {"a\u{2028}to: b": "c\u{2029}\nd"}}),
                r#"to: a@x.org; n: {"a to: b":"c \nd"}"#,
            ),
            (
                json!({"to": ["a@x.org"], "cc": ["x, y"], "s": "say \"no\""}),
                r#"to: a@x.org; cc: "x, y"; s: "say \"no\"""#,
            ),
        ] {
            assert_eq!(short(&arguments, &to), text);
        }
        let many: Vec<_> = (0..40).map(|n| format!("someone{n:02}@example.org")).collect();
        let text = short(&json!({"to": many, "body": "x".repeat(900)}), &json!({"to": many}));
        assert!(text.starts_with("40 recipients; to: someone00@example.org, "), "{text}");
        assert!(text.len() < MOST_ARGUMENTS + 100, "{text}");
    }
}
