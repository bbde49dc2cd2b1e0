//! What the engine says to the model at the beginning of each phase.

use crate::journal::Journal;
use std::collections::BTreeMap;
use std::time::Duration;

use sha2::{Digest, Sha256};

use super::task::TaskState;
use super::{NOTICED_FROM, PERSISTENT, failures_in_a_row, most_steps};
use crate::domain::journal::{CallMode, Cause, Entry, Phase};
use crate::domain::reflection::REFLECT;
use crate::domain::templates::Template;
use crate::limits::Limits;
use crate::strategy::plan::TaskWork;
use crate::toolset::Toolset;

/// The entry with which a phase begins. `again`: it was asked for before, and the answer could not be used.
pub(crate) fn prompt(
    (phase, again): (Phase, bool),
    work: &TaskWork,
    journal: &Journal,
    toolset: &Toolset,
    (limits, elapsed): (&Limits, Duration),
) -> Entry {
    let templates = &work.rules.templates;
    let template = match phase {
        Phase::Reason => &templates.reason,
        Phase::Act => &templates.act,
        Phase::Reflect => &templates.reflect,
    };
    let mode = match phase {
        Phase::Reason => CallMode::None,
        Phase::Act => {
            let names = toolset.functions.declarations.iter().map(|function| &function.name);
            CallMode::Any(names.filter(|name| *name != REFLECT).cloned().collect())
        }
        Phase::Reflect => CallMode::Any(vec![REFLECT.to_owned()]),
    };
    let steps = TaskState::of(journal, work).steps;
    let step = match phase {
        Phase::Reason if !again => steps + 1,
        Phase::Reason | Phase::Act | Phase::Reflect => steps,
    };
    let values = BTreeMap::from([
        ("step", step.to_string()),
        ("steps_left", most_steps(work).saturating_sub(step).to_string()),
        ("time_left", time_left(limits.until_deadline(elapsed))),
        ("notice", notice(phase, again, journal, most_steps(work) <= step)),
    ]);
    // Checked where it is read.
    let (read, _) = Template::read(template);
    let text = read.render(|name| Some(values.get(name).cloned().unwrap_or_default()));
    Entry::Prompted {
        text: text.unwrap_or_else(|_| template.clone()).trim().to_owned(),
        mode,
        cause: Cause::Phase {
            phase,
            again,
            template: hash(template),
        },
    }
}

/// The time that is left, for the model: whole minutes, below two minutes in seconds.
fn time_left(left: Option<Duration>) -> String {
    match left {
        None => "no limit".to_owned(),
        Some(left) if left < Duration::from_secs(120) => format!("{} s", left.as_secs()),
        Some(left) => format!("{} min", left.as_secs() / 60),
    }
}

/// What the model has to know besides; empty if nothing.
fn notice(phase: Phase, again: bool, journal: &Journal, is_last: bool) -> String {
    let mut notices = Vec::new();
    if again {
        notices.push(match phase {
            Phase::Reason => "Your last answer could not be used. Answer in text, and call no function.".to_owned(),
            Phase::Act => "Your last answer could not be used. Call exactly one function.".to_owned(),
            Phase::Reflect => format!("Your last answer could not be used. Call {REFLECT}, and nothing else."),
        });
    }
    if phase != Phase::Act
        && let Some((times, failure)) = failures_in_a_row(&journal.ledger())
        && times >= NOTICED_FROM
    {
        notices.push(format!(
            "The same tool has failed {times} times in a row with {}. Try another way: after {PERSISTENT} times the task \
             fails.",
            failure.most_specific_code()
        ));
    }
    if phase == Phase::Reflect && is_last {
        notices.push(
            "This was the last step of this task. If it is not complete, it fails, unless you add a task that replaces it."
                .to_owned(),
        );
    }
    notices.join("\n")
}

/// The first eight bytes of a template's SHA-256.
fn hash(template: &str) -> u64 {
    let digest = Sha256::digest(template);
    digest
        .iter()
        .take(8)
        .fold(0, |number, byte| (number << 8) | u64::from(*byte))
}
