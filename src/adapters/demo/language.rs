//! What the demo model knows of a language: tables of patterns and phrases.

use regex::{Regex, RegexBuilder};

/// What a clause does. Rules are tried in the order of a language's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    /// Asks for harm or for other instructions.
    Harmful,
    /// Deletes all tasks at once.
    DeleteAll,
    /// Tries to reach another user's tasks.
    OthersTasks,
    /// Adds `x`; `tail` may hold the date.
    Add,
    /// Adds each of `x`, which is a list.
    AddMany,
    /// Adds what the user named before.
    AddIt,
    /// Lists; `f` and `tail` narrow it down.
    List,
    /// Lists completed tasks.
    ListDone,
    /// Completes `x`.
    Complete,
    /// Deletes `x`.
    Delete,
    /// Changes `x` to `y`: a date, a priority or new words.
    Change,
    /// Gives `x` the note `y`.
    Note,
    /// Small talk and questions about the assistant.
    Greeting,
    HowAreYou,
    Thanks,
    Bye,
    Capabilities,
    Joke,
    /// Anything else that is clearly a request.
    OutOfScope,
}

/// A day in words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum When {
    /// This many days from today.
    Days(u64),
    /// The next such day after today, Monday = 0.
    Weekday(u32),
    /// Monday of next week.
    NextWeek,
}

/// A position in a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// From 1.
    Nth(usize),
    Last,
}

/// The tables of one language. Patterns ignore case.
pub(super) struct Language {
    /// The first match wins.
    pub(super) rules: &'static [(Act, &'static str)],
    /// Courtesy and filler before a clause, removed repeatedly.
    pub(super) lead: &'static str,
    /// Courtesy after a clause.
    pub(super) trail: &'static str,
    /// Separates clauses, whatever follows.
    pub(super) then: &'static str,
    /// Separates clauses if a command follows, otherwise items.
    pub(super) and: &'static str,
    /// Words that refer to something without naming it.
    pub(super) pointer: &'static str,
    /// A complete reference that is a position in the list.
    pub(super) places: &'static [(&'static str, Place)],
    /// Words before a day that belong to it.
    pub(super) day_lead: &'static str,
    pub(super) days: &'static [(&'static str, When)],
    /// "in `n` days"; group 1 is the number.
    pub(super) in_days: &'static str,
    pub(super) high: &'static str,
    pub(super) low: &'static str,
    pub(super) normal: &'static str,
    pub(super) overdue: &'static str,
    pub(super) this_week: &'static str,
    /// Words that do not identify a task.
    pub(super) stop: &'static [&'static str],
    /// Words that barely identify a task: they only decide between tasks that match equally well.
    pub(super) weak: &'static [&'static str],
    pub(super) phrases: Phrases,
}

/// What the demo model says. `${…}` is replaced.
pub(super) struct Phrases {
    pub(super) greeting: &'static str,
    pub(super) how_are_you: &'static str,
    pub(super) thanks: &'static str,
    pub(super) bye: &'static str,
    pub(super) capabilities: &'static str,
    pub(super) joke: &'static str,
    /// `${task}`, `${due}`
    pub(super) added: &'static str,
    /// `${task}`
    pub(super) completed: &'static str,
    /// `${task}`
    pub(super) deleted: &'static str,
    /// `${task}`
    pub(super) changed: &'static str,
    /// `${day}`
    pub(super) due: &'static str,
    pub(super) list: &'static str,
    pub(super) empty: &'static str,
    pub(super) more: &'static str,
    /// `${task}`
    pub(super) not_found: &'static str,
    /// `${reason}`
    pub(super) failed: &'static str,
    pub(super) reason_refused: &'static str,
    pub(super) reason_not_approved: &'static str,
    pub(super) reason_down: &'static str,
    /// `${choices}`
    pub(super) which: &'static str,
    pub(super) or: &'static str,
    /// `${thing}`
    pub(super) unclear: &'static str,
    pub(super) unclear_pointer: &'static str,
    pub(super) out_of_scope: &'static str,
    pub(super) harmful: &'static str,
    pub(super) delete_all: &'static str,
    pub(super) others: &'static str,
    pub(super) unavailable: &'static str,
}

/// A language with its patterns compiled.
pub(super) struct Compiled {
    pub(super) tables: &'static Language,
    pub(super) rules: Vec<(Act, Regex)>,
    pub(super) lead: Regex,
    pub(super) trail: Regex,
    pub(super) then: Regex,
    pub(super) and: Regex,
    pub(super) pointer: Regex,
    pub(super) places: Vec<(Regex, Place)>,
    pub(super) days: Vec<(Regex, When)>,
    pub(super) in_days: Regex,
    pub(super) iso: Regex,
    pub(super) high: Regex,
    pub(super) low: Regex,
    pub(super) normal: Regex,
    pub(super) overdue: Regex,
    pub(super) this_week: Regex,
}

pub(super) fn compile(tables: &'static Language) -> Compiled {
    let whole = |text: &str| folded(&format!("^(?:{text})$"));
    let word = |text: &str| folded(&format!(r"\b(?:{text})\b"));
    let day = |text: &str| folded(&format!(r"\b(?:(?:{})\s+)*(?:{text})\b", tables.day_lead));
    Compiled {
        tables,
        rules: tables.rules.iter().map(|(act, text)| (*act, folded(text))).collect(),
        lead: folded(&format!("^(?:{})", tables.lead)),
        trail: folded(&format!("(?:{})$", tables.trail)),
        then: folded(tables.then),
        and: folded(tables.and),
        pointer: whole(tables.pointer),
        places: tables
            .places
            .iter()
            .map(|(text, place)| (whole(text), *place))
            .collect(),
        days: tables.days.iter().map(|(text, when)| (day(text), *when)).collect(),
        in_days: word(tables.in_days),
        iso: day(r"(\d{4}-\d{2}-\d{2})"),
        high: word(tables.high),
        low: word(tables.low),
        normal: word(tables.normal),
        overdue: word(tables.overdue),
        this_week: word(tables.this_week),
    }
}

fn folded(text: &str) -> Regex {
    RegexBuilder::new(text)
        .case_insensitive(true)
        .build()
        .unwrap_or_else(|error| unreachable!("a test compiles every pattern: {error}"))
}
