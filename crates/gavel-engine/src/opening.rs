//! What code reads before a run's first turn, and the message that is made of it. The reads are calls like any other:
//! the gate decides on them, and they are recorded. As everywhere, the next one is read from the journal.

use crate::journal::Journal;
use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::flow;
use super::ledger::{Call, Ledger};
use super::limits::Limits;
use super::next::{self, Ending, Next};
use super::toolset::Toolset;
use crate::domain::journal::{CallResult, Entry};
use crate::domain::templates::Template;
use crate::domain::text;

/// What code reads before the first turn, and the template of the first message.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opening {
    /// The reads, in order.
    pub reads: Vec<Read>,
    /// The template of the message. Its placeholders are the names of the reads and of the values.
    pub message: String,
    /// Further values.
    pub values: BTreeMap<String, String>,
}

/// One read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Read {
    /// The name of what it reads, unique among the reads.
    pub name: String,
    /// The tool.
    pub tool: String,
    /// Its arguments.
    pub arguments: Map<String, Value>,
    /// JSON pointer to what is read, in the tool's result.
    pub pointer: String,
    /// How it appears in the message.
    pub shown: Shown,
    /// Does the run end if there is nothing, or the call fails?
    pub is_required: bool,
}

/// How a result appears in the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Shown {
    /// As JSON.
    Json,
    /// A text, cut at this many bytes.
    Text(usize),
    /// A list of objects with a `path`: at most this many paths, those in the fewest directories first. `truncated` in the
    /// result says whether the list is incomplete.
    Paths(usize),
}

/// A required read without a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unread {
    /// There is no such thing.
    Missing,
    /// The call failed: the reason.
    Failed(String),
}

/// Decides from the journal: the next read, then the message, and then what follows from the model's turns.
pub(super) fn next<'a>(journal: &'a Journal, opening: &Opening, limits: &Limits, elapsed: Duration) -> Next<'a> {
    if journal.iter().any(|entry| matches!(entry, Entry::User(_))) {
        return next::next(journal, limits, elapsed);
    }
    let ledger = journal.ledger();
    let last = ledger.last_step();
    if let Some((call, ..)) = last
        && call.result().is_none()
    {
        return flow::unfinished_step(call, limits.is_past_deadline(elapsed));
    }
    if limits.is_past_deadline(elapsed) {
        return Next::End(Ending::PAST_DEADLINE);
    }
    if let Some(unread) = unread(journal, opening) {
        return Next::End(Ending::StepFailed(match unread {
            Unread::Missing => "there is nothing to begin with".to_owned(),
            Unread::Failed(why) => format!("what the run begins with could not be read: {why}"),
        }));
    }
    let due = last.map_or(0, |(_, step, _)| step + 1);
    match (due as usize) < opening.reads.len() {
        true => Next::Step(due, 1),
        false => Next::Open,
    }
}

/// The required read that led to nothing, if there is one.
pub fn unread(journal: &Journal, opening: &Opening) -> Option<Unread> {
    let ledger = journal.ledger();
    let mut reads = opening.reads.iter().enumerate().filter(|(_, read)| read.is_required);
    reads.find_map(|(at, read)| found(read_call(ledger, at)?, read).err())
}

/// The reads that have a result, in order, each with it.
pub(super) fn results<'a>(opening: &'a Opening, journal: &'a Journal) -> Vec<(&'a Read, &'a CallResult)> {
    let ledger = journal.ledger();
    let reads = opening.reads.iter().enumerate();
    let with_result = reads.filter_map(|(at, read)| Some((read, read_call(ledger, at)?.result()?)));
    with_result.collect()
}

/// The journal entry of a read.
pub(super) fn step(opening: &Opening, toolset: &Toolset, journal: &Journal, step: u32) -> Entry {
    let read = opening.reads.get(step as usize);
    let (name, arguments) = read.map_or_else(Default::default, |read| (read.tool.clone(), read.arguments.clone()));
    journal.step((step, 1), toolset.target(&name), name, &Value::Object(arguments))
}

/// The first message, with everything that was read.
///
/// # Errors
/// It would be too long.
pub(super) fn message(opening: &Opening, journal: &Journal) -> Result<String, String> {
    let ledger = journal.ledger();
    let reads = opening.reads.iter().enumerate().map(|(at, read)| {
        let found = read_call(ledger, at).map_or(Err(Unread::Missing), |call| found(call, read));
        let text = match found {
            Ok(value) => closed_in(&shown(&value, read.shown)),
            Err(Unread::Missing) => "(there is none)".to_owned(),
            Err(Unread::Failed(why)) => format!("(it could not be read: {})", closed_in(&why)),
        };
        (read.name.as_str(), text)
    });
    let read: BTreeMap<_, _> = reads.collect();
    let value = |name: &str| read.get(name).or_else(|| opening.values.get(name)).cloned();
    // Checked where it comes from.
    let (template, _) = Template::read(&opening.message);
    template.render(value).map_err(|error| error.to_string())
}

fn read_call<'a>(ledger: Ledger<'a>, at: usize) -> Option<Call<'a>> {
    let mut calls = ledger.calls();
    calls.find(|call| call.step.is_some_and(|(step, _)| step as usize == at))
}

/// What a call has read.
///
/// # Errors
/// There is no such thing, or it could not be read.
fn found(call: Call<'_>, read: &Read) -> Result<Value, Unread> {
    let result = call.result().ok_or(Unread::Missing)?;
    let data = match &result.outcome {
        Ok(data) => data,
        Err(failure) => return Err(Unread::Failed(failure.for_callers().into_owned())),
    };
    let data: Value = serde_json::from_str(data.get()).unwrap_or_default();
    match data.pointer(&read.pointer) {
        Some(Value::Null) => Err(Unread::Missing),
        Some(value) => Ok(match read.shown {
            Shown::Paths(_) => json!({"entries": value, "truncated": data.get("truncated")}),
            Shown::Json | Shown::Text(_) => value.clone(),
        }),
        // What it would be in is not there.
        None if parents(&read.pointer).any(|parent| data.pointer(parent) == Some(&Value::Null)) => Err(Unread::Missing),
        // A result that exceeds the limit is cut, and is a text then.
        None => Err(Unread::Failed("the result is too large or has another form".to_owned())),
    }
}

/// The pointers to all that a value is in, the nearest first.
fn parents(pointer: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(pointer.rsplit_once('/'), |(parent, _)| parent.rsplit_once('/')).map(|(parent, _)| parent)
}

/// A text from outside, in which no tag ends: it must not leave the part of the message that marks it as data.
fn closed_in(text: &str) -> String {
    text.replace("</", "<\\/")
}

fn shown(value: &Value, shown: Shown) -> String {
    match shown {
        Shown::Json => value.to_string(),
        Shown::Text(most) => {
            let whole = flow::text(value);
            let kept = text::prefix(&whole, most);
            match whole.len() - kept.len() {
                0 => whole,
                left_out => format!("{kept}\n[{left_out} further bytes left out]"),
            }
        }
        Shown::Paths(most) => paths(value, most),
    }
}

fn paths(value: &Value, most: usize) -> String {
    let entries = value.get("entries").and_then(Value::as_array);
    let entries = entries.map_or(&[][..], Vec::as_slice);
    let is_cut = value.get("truncated") == Some(&Value::Bool(true));
    let path = |entry: &Value| Some(entry.get("path")?.as_str()?.escape_debug().to_string());
    let mut paths: Vec<_> = entries.iter().filter_map(path).collect();
    let count = paths.len();
    paths.sort_by_key(|path| path.matches('/').count());
    paths.truncate(most);
    paths.sort_unstable();
    let mut lines = paths.join("\n");
    match (count.saturating_sub(most), is_cut) {
        (0, false) => {}
        (0, true) => lines.push_str("\n[the repository has more files; the tool did not list them]"),
        (left_out, false) => lines.push_str(&format!("\n[{left_out} further paths left out, in deeper directories]")),
        (left_out, true) => lines.push_str(&format!(
            "\n[{left_out} further paths left out, in deeper directories; the repository has more files, which the tool did not \
             list]"
        )),
    }
    lines
}

#[cfg(test)]
mod tests;
