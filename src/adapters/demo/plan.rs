//! Chooses the next move from a wish and the calls made so far.

use std::collections::VecDeque;

use serde_json::{Map, Value, json};

use super::conversation::Done;
use super::english::english;
use super::language::Act;
use super::tasks::{List, Task};
use super::turn::Move;
use super::wish::{Filter, Patch, Step, Target, Wish};
use crate::domain::templates::Template;
use crate::domain::tool::FailureCode;

/// Decides the next move. `offered` says which functions are available.
pub(super) fn next(wish: Wish, done: Vec<Done<'_>>, offered: &dyn Fn(&str) -> bool) -> Move {
    let phrases = &english().tables.phrases;
    // A verdict that was answered with an error is not tried again; its message is returned as text.
    let tried: Vec<_> = done
        .iter()
        .map(|done| done.name)
        .filter(|name| [REFUSE, CLARIFY].contains(name))
        .collect();
    let offered: &dyn Fn(&str) -> bool = &|name| offered(name) && !tried.contains(&name);
    match wish {
        Wish::Steps(steps) => Plan {
            offered,
            done: done.into(),
            list: None,
            said: Vec::new(),
        }
        .follow(&steps),
        Wish::Talk(act) => Move::say(match act {
            Act::HowAreYou => phrases.how_are_you,
            Act::Thanks => phrases.thanks,
            Act::Bye => phrases.bye,
            Act::Capabilities => phrases.capabilities,
            Act::Joke => phrases.joke,
            _ => phrases.greeting,
        }),
        Wish::Decline(act) => {
            let (message, kind) = match act {
                Act::Harmful => (phrases.harmful, "OUT_OF_SCOPE"),
                Act::DeleteAll => (phrases.delete_all, "OUT_OF_SCOPE"),
                Act::OthersTasks => (phrases.others, "MISSING_PERMISSION"),
                _ => (phrases.out_of_scope, "OUT_OF_SCOPE"),
            };
            verdict(REFUSE, json!({"message": message, "kind": kind}), message, offered)
        }
        Wish::Unclear(thing) => ask(fill(phrases.unclear, &[("thing", &thing)]), "UNCLEAR_INTENT", offered),
        Wish::UnclearPointer => ask(phrases.unclear_pointer.to_owned(), "UNCLEAR_INTENT", offered),
    }
}

fn ask(question: String, kind: &str, offered: &dyn Fn(&str) -> bool) -> Move {
    verdict(CLARIFY, json!({"question": question, "kind": kind}), &question, offered)
}

/// If the function is not offered, the same message is returned as text.
fn verdict(name: &str, arguments: Value, words: &str, offered: &dyn Fn(&str) -> bool) -> Move {
    if offered(name) {
        Move::call(name, arguments)
    } else {
        Move::say(words)
    }
}

fn fill(text: &str, values: &[(&str, &str)]) -> String {
    let value = |name: &str| {
        values
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, value)| (*value).to_owned())
    };
    let rendered = Template::parse(text)
        .ok()
        .and_then(|template| template.render(value).ok());
    rendered.unwrap_or_else(|| text.to_owned())
}

/// Follows the steps through the calls that have answers.
struct Plan<'a> {
    offered: &'a dyn Fn(&str) -> bool,
    done: VecDeque<Done<'a>>,
    list: Option<List>,
    said: Vec<String>,
}

/// Why following stops before the end.
enum Stop {
    Now(Move),
}

impl Plan<'_> {
    fn follow(mut self, steps: &[Step]) -> Move {
        match self.walk(steps) {
            Ok(()) => Move::say(self.said.join("\n")),
            Err(Stop::Now(chosen)) => chosen,
        }
    }

    fn walk(&mut self, steps: &[Step]) -> Result<(), Stop> {
        let mut waiting = Vec::new();
        for step in steps {
            let calls = match step {
                Step::Add { .. } | Step::List(_) => vec![call_for(step)],
                Step::Complete(target) | Step::Delete(target) | Step::Change(target, _) => {
                    let found = self.find(target, &mut waiting)?;
                    found.into_iter().map(|task| call_on(step, &task)).collect()
                }
            };
            for (name, arguments) in calls {
                if !(self.offered)(name) {
                    self.said.push(english().tables.phrases.unavailable.to_owned());
                    continue;
                }
                // Calls after a list may depend on it, and a list must show the effect of earlier calls.
                if name == LIST {
                    flush(&mut waiting)?;
                }
                match self.done.pop_front() {
                    Some(done) => self.report(step, &done),
                    None => waiting.push((name.to_owned(), arguments)),
                }
                if name == LIST {
                    flush(&mut waiting)?;
                }
            }
        }
        flush(&mut waiting)
    }

    /// The tasks that a target refers to, looked up in the newest list.
    fn find(&mut self, target: &Target, waiting: &mut Vec<(String, Value)>) -> Result<Vec<Task>, Stop> {
        let phrases = &english().tables.phrases;
        if self.list.is_none() {
            if !(self.offered)(LIST) {
                return Err(Stop::Now(Move::say(phrases.unavailable)));
            }
            flush(waiting)?;
            match self.done.pop_front() {
                Some(done) => match done.outcome {
                    Ok(data) => self.list = Some(List::read(&data)),
                    Err(failure) => {
                        self.said.push(self.failed(failure.code));
                        return Err(Stop::Now(Move::say(self.said.join("\n"))));
                    }
                },
                None => return Err(Stop::Now(Move::call(LIST, json!({})))),
            }
        }
        let list = self.list.clone().unwrap_or_default();
        let words = match target {
            Target::Place(place) => {
                if let Some(task) = list.at(*place) {
                    return Ok(vec![task.clone()]);
                }
                self.said.push(if list.tasks.is_empty() {
                    phrases.empty.to_owned()
                } else {
                    fill(phrases.not_found, &[("task", &format!("{place:?}").to_lowercase())])
                });
                return Ok(Vec::new());
            }
            Target::Words(words) => words,
        };
        let whole = list.fitting(words);
        let mut found = Vec::new();
        match whole.as_slice() {
            [one] => found.push((*one).clone()),
            [] => {
                for part in english().and.split(words) {
                    let place = super::refer::place(part.trim()).and_then(|place| list.at(place));
                    match place.map_or_else(|| list.fitting(part), |task| vec![task]).as_slice() {
                        [one] => found.push((*one).clone()),
                        [] => self.said.push(fill(phrases.not_found, &[("task", part.trim())])),
                        several => return Err(Stop::Now(self.which(several))),
                    }
                }
            }
            several => return Err(Stop::Now(self.which(several))),
        }
        Ok(found)
    }

    fn which(&self, tasks: &[&Task]) -> Move {
        let phrases = &english().tables.phrases;
        let names: Vec<_> = tasks
            .iter()
            .take(10)
            .map(|task| format!("“{}”", task.description))
            .collect();
        let choices = match names.split_last() {
            Some((last, others)) if !others.is_empty() => format!("{} {} {last}", others.join(", "), phrases.or),
            _ => names.join(", "),
        };
        ask(
            fill(phrases.which, &[("choices", &choices)]),
            "MULTIPLE_MATCHES",
            self.offered,
        )
    }

    /// Says only what the answer confirms.
    fn report(&mut self, step: &Step, done: &Done<'_>) {
        let phrases = &english().tables.phrases;
        let data = match &done.outcome {
            Ok(data) => data,
            Err(failure) => {
                self.said.push(self.failed(failure.code));
                return;
            }
        };
        if let Step::List(_) = step {
            let list = List::read(data);
            self.said.push(self.shown(&list));
            self.list = Some(list);
            return;
        }
        let task = data.get("task").or_else(|| data.get("deleted")).unwrap_or(data);
        let given = done.arguments.get("description").and_then(Value::as_str);
        let name = task.get("description").and_then(Value::as_str).or(given).unwrap_or("…");
        let due = match task.get("due").and_then(Value::as_str) {
            Some(day) => fill(phrases.due, &[("day", day)]),
            None => String::new(),
        };
        let phrase = match step {
            Step::Add { .. } => phrases.added,
            Step::Complete(_) => phrases.completed,
            Step::Delete(_) => phrases.deleted,
            Step::Change(..) | Step::List(_) => phrases.changed,
        };
        self.said.push(fill(phrase, &[("task", name), ("due", &due)]));
    }

    fn failed(&self, code: FailureCode) -> String {
        let phrases = &english().tables.phrases;
        let reason = match code {
            FailureCode::Unavailable | FailureCode::Timeout | FailureCode::InDoubt | FailureCode::NotRecorded => {
                phrases.reason_down
            }
            FailureCode::Denied | FailureCode::Rejected | FailureCode::Expired => phrases.reason_not_approved,
            _ => phrases.reason_refused,
        };
        fill(phrases.failed, &[("reason", reason)])
    }

    fn shown(&self, list: &List) -> String {
        let phrases = &english().tables.phrases;
        if list.tasks.is_empty() {
            return phrases.empty.to_owned();
        }
        let mut text = phrases.list.to_owned();
        for (task, n) in list.tasks.iter().zip(1..) {
            text.push_str(&format!("\n{n}. {}", task.description));
            if let Some(day) = &task.due {
                text.push_str(&fill(phrases.due, &[("day", day)]));
            }
            if let Some(level) = task.priority.as_deref().filter(|level| *level != "normal") {
                text.push_str(&format!(" ({level})"));
            }
            if task.status.as_deref() == Some("done") {
                text.push_str(" ✓");
            }
        }
        if list.next_cursor.is_some() {
            text.push('\n');
            text.push_str(phrases.more);
        }
        text
    }
}

const LIST: &str = "list_tasks";
const REFUSE: &str = "refuse";
const CLARIFY: &str = "request_clarification";

fn flush(waiting: &mut Vec<(String, Value)>) -> Result<(), Stop> {
    if waiting.is_empty() {
        return Ok(());
    }
    Err(Stop::Now(Move {
        text: String::new(),
        calls: std::mem::take(waiting),
    }))
}

fn call_for(step: &Step) -> (&'static str, Value) {
    match step {
        Step::Add {
            description,
            due,
            priority,
        } => {
            let due = due.map(|due| due.to_string());
            (
                "add_task",
                object([
                    ("description", Some(description.as_str())),
                    ("due", due.as_deref()),
                    ("priority", *priority),
                ]),
            )
        }
        Step::List(Filter { status, after, before }) => {
            let (after, before) = (after.map(|day| day.to_string()), before.map(|day| day.to_string()));
            (
                LIST,
                object([
                    ("status", *status),
                    ("due_after", after.as_deref()),
                    ("due_before", before.as_deref()),
                ]),
            )
        }
        Step::Complete(_) | Step::Delete(_) | Step::Change(..) => unreachable!("steps on a task go through call_on"),
    }
}

fn call_on(step: &Step, task: &Task) -> (&'static str, Value) {
    let mut arguments = json!({"id": task.id});
    let name = match step {
        Step::Delete(_) => "delete_task",
        Step::Change(_, patch) => {
            match patch {
                Patch::Description(words) => arguments["description"] = json!(words),
                Patch::Due(day) => arguments["due"] = json!(day.to_string()),
                Patch::Priority(level) => arguments["priority"] = json!(level),
                Patch::Notes(words) => arguments["notes"] = json!(words),
            }
            "update_task"
        }
        _ => "complete_task",
    };
    (name, arguments)
}

fn object<const N: usize>(fields: [(&str, Option<&str>); N]) -> Value {
    let given = fields
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), Value::from(value?))));
    Value::Object(given.collect::<Map<_, _>>())
}
