//! Leave: the questions that a run puts to a person, their answers, and what comes of the calls they are about (DESIGN.md
//! section 6). All of it is read off the journal; the store keeps it for those who answer.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::act::{allowed, failed};
use super::events::tool_name;
use super::next::has_result;
use super::{Run, derive, record};
use crate::domain::action::{self, Action, ActionStatus, Details};
use crate::domain::address::{self, Recipients};
use crate::domain::ids::{ActionId, ApprovalId, GrantId};
use crate::domain::journal::{CallResult, Entry, PolicyDecision, Proposed, Target};
use crate::domain::policy::{DecidedBy, Grant};
use crate::domain::templates::Text;
use crate::domain::text::{capped, numbered};
use crate::domain::tool::{FailureCode, Tool};
use crate::ports::records::Intent;
use crate::ports::runs::{ActionOutcome, NewAction};

/// How long a question stands, unless it is configured (DESIGN.md section 12).
pub const STANDS: Duration = Duration::from_secs(24 * 3600);

/// Bytes of the arguments in the words of a question, which are read in a thread; who answers is shown them whole.
const MOST_ARGUMENTS: usize = 400;
/// Bytes of the longest id, and of the longest result in which one is looked for.
const MOST_ID: usize = 200;
const MOST_RECEIPT: usize = 64 * 1024;
/// A value of so many bytes is a long one.
const LONG: usize = 120;

/// What reads like another argument, or another item, is quoted: nobody shall take a subject for a recipient.
fn in_a_sentence(text: &str) -> String {
    let words = numbered(text).split_whitespace().collect::<Vec<_>>().join(" ");
    match words.contains([';', ',', '"', '(', ')', '?']) || words.contains(": ") || words.is_empty() {
        true => Value::from(words).to_string(),
        false => words,
    }
}

/// Arguments as one reads them in a sentence, in the order in which one reads a call; what nobody could see is told by its number.
fn in_short(tool: Option<&Tool>, arguments: &RawValue, recipients: Option<&Recipients>) -> String {
    let plain = |value: &Value| match value {
        Value::String(text) => in_a_sentence(text),
        // JSON leaves these two line breaks as they are.
        other => numbered(&other.to_string()).replace(['\u{2028}', '\u{2029}'], " "),
    };
    let Ok(object) = serde_json::from_str::<Map<String, Value>>(arguments.get()) else {
        return capped(arguments.get(), MOST_ARGUMENTS).into_owned();
    };
    let mut told: Vec<_> = object
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
    told.sort_by_key(|(place, words)| (*place, words.len()));
    let told: Vec<_> = told.into_iter().map(|(_, words)| words).collect();
    let told = told.join("; ");
    match recipients.map(|recipients| recipients.all().len()) {
        Some(many) if told.len() > MOST_ARGUMENTS => format!("{many} recipients; {}", capped(&told, MOST_ARGUMENTS)),
        _ => capped(&told, MOST_ARGUMENTS).into_owned(),
    }
}

/// A call as one reads of it in a sentence: its tool, and what it was called with.
pub(super) fn render_call(journal: &[Entry], id: ActionId) -> String {
    let proposed = journal.iter().flat_map(Entry::calls).find(|call| call.id == id);
    let name = proposed.map(tool_name).unwrap_or_default();
    let decided = journal.iter().rev().find_map(|entry| match entry {
        Entry::Decided {
            call,
            decision: PolicyDecision::Allow { arguments, .. } | PolicyDecision::RequireApproval { arguments, .. },
        } if *call == id => Some(arguments),
        _ => None,
    });
    let recipients = asked_for(journal, id).and_then(|(_, details)| details.recipients);
    let tool = proposed.and_then(tool).map(AsRef::as_ref);
    match decided.map(|arguments| in_short(tool, arguments, recipients.as_ref())) {
        Some(with) if !with.is_empty() => format!("{name} ({with})"),
        _ => name.to_string(),
    }
}

/// A person's answer for a call.
pub(super) enum Answer<'a> {
    /// It may run, with exactly these arguments.
    Yes(&'a Arc<RawValue>),
    /// It must not: code and words for the model.
    No(FailureCode, String),
}

/// What was answered for a call, if anything was.
pub(super) fn answer(journal: &[Entry], id: ActionId) -> Option<Answer<'_>> {
    let settled = journal.iter().rev().find_map(|entry| match entry {
        Entry::ApprovalResolved {
            call,
            approved,
            by,
            reason,
        } if *call == id => Some((*approved, by, reason)),
        _ => None,
    })?;
    Some(match settled {
        (true, ..) => match asked_for(journal, id) {
            Some((arguments, _)) => Answer::Yes(arguments),
            None => Answer::No(FailureCode::Denied, "nobody was asked for it".to_owned()),
        },
        (false, Some(_), reason) => {
            let why = reason
                .as_deref()
                .map_or_else(String::new, |reason| format!(": {reason}"));
            Answer::No(FailureCode::Rejected, format!("a person rejected this call{why}"))
        }
        (false, None, reason) => {
            let why = reason.as_deref().unwrap_or("nobody answered in time");
            Answer::No(FailureCode::Expired, format!("it was not run: {why}"))
        }
    })
}

/// The arguments that leave is asked for, and what a person should know.
pub(super) fn asked_for(journal: &[Entry], id: ActionId) -> Option<(&Arc<RawValue>, Details)> {
    journal.iter().rev().find_map(|entry| match entry {
        Entry::Decided {
            call,
            decision:
                PolicyDecision::RequireApproval {
                    arguments,
                    reason,
                    warnings,
                    recipients,
                    ungrantable,
                    account,
                    ..
                },
        } if *call == id => Some((
            arguments,
            Details {
                reason: reason.clone(),
                request: None,
                warnings: warnings.clone(),
                recipients: (!recipients.is_empty()).then(|| recipients.clone()),
                ungrantable: *ungrantable,
                account: account.clone(),
            },
        )),
        _ => None,
    })
}

/// The account that a person was shown with the question, if they were asked and one was named.
pub(super) fn account(journal: &[Entry], id: ActionId) -> Option<&str> {
    journal.iter().rev().find_map(|entry| match entry {
        Entry::Decided {
            call,
            decision: PolicyDecision::RequireApproval { account, .. },
        } if *call == id => account.as_deref(),
        _ => None,
    })
}

/// Is a person to be asked for it, as it was judged last?
pub(super) fn waits(journal: &[Entry], id: ActionId) -> bool {
    let last = journal.iter().rev().find_map(|entry| match entry {
        Entry::Decided { call, decision } if *call == id => Some(decision),
        _ => None,
    });
    matches!(last, Some(PolicyDecision::RequireApproval { .. })) && !has_result(id, journal)
}

/// The servers of calls that a person has approved and that have no result. One that was rejected needs none.
pub(super) fn servers(journal: &[Entry], actions: &[Action]) -> BTreeSet<Arc<str>> {
    let approved = |id| {
        actions
            .iter()
            .any(|action| action.id == id && action.status == ActionStatus::Approved)
    };
    let open = journal.iter().flat_map(Entry::calls).filter(|call| {
        let over = |entry: &Entry| matches!(entry, Entry::Result { call: over, .. } if *over == call.id);
        approved(call.id) && asked_for(journal, call.id).is_some() && !journal.iter().any(over)
    });
    open.filter_map(|call| match &call.target {
        Target::Tool(tool) => Some(Arc::clone(&tool.server)),
        Target::Unresolved(tool) => Some(Arc::clone(&tool.server)),
        Target::Agent(_) | Target::Verdict(_) | Target::Unknown => None,
    })
    .collect()
}

/// The grant by which nobody is asked for a call, as it was judged last: one that counted before may have been taken back since.
pub(super) fn granted(journal: &[Entry], id: ActionId) -> Option<GrantId> {
    let last = journal.iter().rev().find_map(|entry| match entry {
        Entry::Decided { call, decision } if *call == id => Some(decision),
        _ => None,
    });
    match last {
        Some(PolicyDecision::Allow {
            by: Some(DecidedBy::Grant(grant)),
            ..
        }) => GrantId::parse(grant),
        _ => None,
    }
}

/// What the run's user has allowed for good, of the tools that are called. Where that cannot be read nobody is taken to have
/// allowed anything, so a person is asked.
pub(super) async fn grants(run: &Run, calls: &[Proposed]) -> Vec<Grant> {
    let Some(place) = &run.agent else { return Vec::new() };
    let mut grants = Vec::new();
    let mut known = BTreeSet::new();
    for tool in calls.iter().filter_map(tool) {
        if tool.recipients.is_empty() || !known.insert((&tool.server, &tool.name)) {
            continue;
        }
        let (tenant, user) = (&run.record.tenant, &run.record.user);
        match place
            .agents
            .actions
            .granted(tenant, user, &tool.server, &tool.name)
            .await
        {
            Ok(found) => grants.extend(found.into_iter().filter_map(action::Grant::to_policy)),
            Err(error) => {
                tracing::warn!(run_id = %run.record.id, %error, "grants cannot be read, so the call needs an approval")
            }
        }
    }
    grants
}

/// The questions about these calls.
pub(super) fn questions(run: &Run, calls: &[ActionId], stands: Duration) -> Vec<NewAction> {
    let model = model(run);
    let proposed = run.journal.iter().flat_map(Entry::calls);
    let waiting = proposed.filter(|call| calls.contains(&call.id));
    waiting
        .filter_map(|call| {
            let tool = tool(call)?;
            let (arguments, details) = asked_for(&run.journal, call.id)?;
            let with = in_short(Some(tool), arguments, details.recipients.as_ref());
            let account = details.account.as_deref().map(in_a_sentence);
            let account = account.map_or_else(String::new, |account| format!(" from {account}"));
            let with = if with.is_empty() { with } else { format!(" ({with})") };
            let asked = format!("{}{account}{with}", tool.name);
            let words = Text::ApprovalRequest.with(&[("call", &asked), ("reason", &details.reason)]);
            let details = Details {
                request: Some(words.clone()),
                ..details
            };
            Some(NewAction {
                id: call.id,
                approval: Some((ApprovalId::new(), stands)),
                sequence: call.sequence,
                tool: Arc::clone(tool),
                arguments: Arc::clone(arguments),
                model: Arc::clone(&model),
                details,
                grant: None,
                words: words.into(),
            })
        })
        .collect()
}

/// Calls that a person was asked about and that begin with what is not written yet of the journal.
pub(super) fn asked(run: &Run) -> Vec<ActionId> {
    begun(run).filter(|id| asked_for(&run.journal, *id).is_some()).collect()
}

/// Calls that begin with what is not written yet of the journal.
fn begun(run: &Run) -> impl Iterator<Item = ActionId> {
    let written = run.log.as_ref().map_or(0, |log| log.written);
    run.journal.iter().skip(written).filter_map(|entry| match entry {
        Entry::Started { call, .. } => Some(*call),
        _ => None,
    })
}

/// What begins without a question: side effects, and what only reads and is let begin by leave for good.
pub(super) fn unasked(run: &Run, intents: &[Intent]) -> Vec<NewAction> {
    let model = model(run);
    let reads = begun(run).filter_map(|id| {
        let grant = granted(&run.journal, id)?;
        let mut proposed = run.journal.iter().rev().flat_map(Entry::calls);
        let call = proposed.find(|call| call.id == id)?;
        let tool = tool(call).filter(|tool| !tool.side_effect)?;
        Some(NewAction {
            id: call.id,
            approval: None,
            sequence: call.sequence,
            tool: Arc::clone(tool),
            arguments: allowed(&run.journal, call.id)?,
            model: Arc::clone(&model),
            details: reached(tool, &allowed(&run.journal, call.id)?),
            grant: Some(grant),
            words: "".into(),
        })
    });
    let unasked = intents
        .iter()
        .filter(|intent| asked_for(&run.journal, intent.id).is_none());
    unasked
        .map(|intent| NewAction {
            id: intent.id,
            approval: None,
            sequence: intent.sequence,
            tool: Arc::clone(&intent.tool),
            arguments: Arc::clone(&intent.arguments),
            model: Arc::clone(&model),
            details: reached(&intent.tool, &intent.arguments),
            grant: granted(&run.journal, intent.id),
            words: "".into(),
        })
        .chain(reads)
        .collect()
}

/// Whom a call reaches, for who has to find out what came of it. They were checked when it was judged.
fn reached(tool: &Tool, arguments: &RawValue) -> Details {
    if tool.recipients.is_empty() {
        return Details::default();
    }
    let found = serde_json::from_str(arguments.get()).map_err(|error| vec![error.to_string()]);
    let found = found.and_then(|arguments| address::recipients(&tool.recipients, &arguments, usize::MAX, || false));
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

/// What came of actions, in the entries from `since` on.
pub(super) fn outcomes(journal: &[Entry], since: usize) -> Vec<ActionOutcome> {
    let results = journal[since.min(journal.len())..]
        .iter()
        .filter_map(|entry| match entry {
            Entry::Result { call, result } => Some((*call, result)),
            _ => None,
        });
    results
        .filter(|(id, _)| {
            let call = journal.iter().flat_map(Entry::calls).find(|call| call.id == *id);
            call.is_some_and(|call| {
                acts(call) || asked_for(journal, call.id).is_some() || granted(journal, call.id).is_some()
            })
        })
        .map(|(id, result)| {
            let (status, error) = match &result.outcome {
                Ok(_) => (ActionStatus::Completed, None),
                Err(failure) => {
                    let status = match failure.code {
                        FailureCode::InDoubt => ActionStatus::InDoubt,
                        _ => ActionStatus::Failed,
                    };
                    (status, Some((failure.code, Arc::from(failure.for_callers()))))
                }
            };
            ActionOutcome {
                id,
                status,
                error,
                words: executed(journal, id, result),
            }
        })
        .collect()
}

/// The line by which a thread remembers an action: what was called, and the id of what came of it.
fn executed(journal: &[Entry], id: ActionId, result: &CallResult) -> Option<Arc<str>> {
    let action = render_call(journal, id);
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

/// The id that a tool's result names: its member `id`, else one whose name ends so, here or one level below.
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
    // A long result is a document, and no receipt.
    let object: Map<String, Value> = (data.get().len() <= MOST_RECEIPT)
        .then(|| serde_json::from_str(data.get()).ok())
        .flatten()?;
    own(&object).or_else(|| object.values().find_map(|value| value.as_object().and_then(own)))
}

/// Takes what people have answered into the journal.
pub(super) fn apply_resolutions(run: &mut Run, actions: &[Action]) {
    for action in actions {
        let asked = asked_for(&run.journal, action.id).filter(|_| !has_result(action.id, &run.journal));
        let asked = asked.map(|(arguments, _)| arguments.get() == action.arguments.get());
        let known = run.journal.iter().rev().find_map(|entry| match entry {
            Entry::ApprovalResolved { call, approved, .. } if *call == action.id => Some(*approved),
            _ => None,
        });
        let approved = match action.status {
            // They were shown what stands in its row: leave is for that and nothing else.
            ActionStatus::Approved if asked == Some(false) => {
                tracing::error!(action_id = %action.id, "the arguments of a question are not those that were asked about");
                let message = "what was approved is not what was asked about; the question was changed in the database";
                run.push(failed(action.id, FailureCode::Denied, message.to_owned()));
                continue;
            }
            ActionStatus::Approved => true,
            ActionStatus::Rejected | ActionStatus::Expired => false,
            _ => continue,
        };
        // What was approved expires as well, where it could not begin in time.
        if asked.is_some() && known.is_none_or(|known| known && !approved) {
            run.push(Entry::ApprovalResolved {
                call: action.id,
                approved,
                by: action
                    .resolved_by
                    .clone()
                    .filter(|_| action.status != ActionStatus::Expired),
                // Whoever said yes in time had their reason for that.
                reason: match (action.status, action.resolution) {
                    (ActionStatus::Expired, Some(_)) => {
                        Some("it was approved, and the leave ran out before it could begin".into())
                    }
                    _ => action.reason.clone(),
                },
            });
        }
    }
    for call in cannot_be_asked(run, actions) {
        let message = "it needs a person's leave, and is not offered any more as it was when it was called";
        run.push(failed(call, FailureCode::Unavailable, message.to_owned()));
    }
}

/// Calls that were to be asked about by a process that is gone, and never were, of tools that nobody offers any more as they were:
/// nobody can be asked about them now, so to wait would be for ever.
fn cannot_be_asked(run: &Run, actions: &[Action]) -> Vec<ActionId> {
    let proposed = run.journal.iter().flat_map(Entry::calls);
    let gone = proposed.filter(|call| matches!(call.target, Target::Unresolved(_)));
    let unasked = gone.filter(|call| {
        asked_for(&run.journal, call.id).is_some()
            && !has_result(call.id, &run.journal)
            && actions.iter().all(|action| action.id != call.id)
    });
    unasked.map(|call| call.id).collect()
}

fn model(run: &Run) -> Arc<str> {
    derive::model(record::own(run)).unwrap_or_default().into()
}

fn tool(call: &Proposed) -> Option<&Arc<Tool>> {
    match &call.target {
        Target::Tool(tool) => Some(tool),
        _ => None,
    }
}

fn acts(call: &Proposed) -> bool {
    match &call.target {
        Target::Tool(tool) => tool.side_effect,
        Target::Unresolved(tool) => tool.side_effect,
        Target::Agent(_) | Target::Verdict(_) | Target::Unknown => false,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;
    use crate::domain::argument_path::ArgumentPath;
    use crate::domain::times::Times;
    use crate::engine::testing::tool_with;

    fn short(arguments: &Value, recipients: &Value) -> String {
        let recipients: Recipients = serde_json::from_value(recipients.clone()).unwrap();
        let path = |text: &str| ArgumentPath::parse(text).unwrap();
        let tool = tool_with("send", "{}", |tool| {
            tool.recipients = vec![path("to"), path("cc")];
            tool.single_line = vec![path("subject")];
            tool.times = Some(Times {
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

    /// R-3: a thread remembers what came of an action by its id, wherever a server puts it.
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

    /// R-5: what is asked in a thread names whom it goes to first, and nothing in it reads like another argument.
    #[test]
    fn a_question_reads_as_what_it_is() {
        let to = json!({"to": ["a@x.org"]});
        for (arguments, told) in [
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
            // What nobody would see is told by its number.
            (
                json!({"to": ["a@x.org"], "subject": "pay \u{202e}gro.live", "n": ["a\u{200b}"]}),
                "to: a@x.org; subject: pay <U+202E>gro.live; n: a<U+200B>",
            ),
            (
                json!({"to": ["a@x.org"], "subject": "hi; to: ok@x.org"}),
                r#"to: a@x.org; subject: "hi; to: ok@x.org""#,
            ),
            // Some tools take arguments of any name.
            (
                json!({"to": ["a@x.org"], "n; to: ok@x.org": 1, "n\nto: ok@x.org": 2}),
                r#"to: a@x.org; "n to: ok@x.org": 2; "n; to: ok@x.org": 1"#,
            ),
            // As JSON nothing else breaks a line that is not written as an escape.
            (
                json!({"to": ["a@x.org"], "n": {"a\u{2028}to: b": "c\u{2029}\nd"}}),
                r#"to: a@x.org; n: {"a to: b":"c \nd"}"#,
            ),
            (
                json!({"to": ["a@x.org"], "cc": ["x, y"], "s": "say \"no\""}),
                r#"to: a@x.org; cc: "x, y"; s: "say \"no\"""#,
            ),
        ] {
            assert_eq!(short(&arguments, &to), told);
        }
        let many: Vec<_> = (0..40).map(|n| format!("someone{n:02}@example.org")).collect();
        let told = short(&json!({"to": many, "body": "x".repeat(900)}), &json!({"to": many}));
        assert!(told.starts_with("40 recipients; to: someone00@example.org, "), "{told}");
        assert!(told.len() < MOST_ARGUMENTS + 100, "{told}");
    }
}
