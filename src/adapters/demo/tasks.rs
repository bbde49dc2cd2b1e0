//! What the demo model understands, and the move that comes next. Each message stands alone: earlier ones do not count.

use std::sync::LazyLock;

use regex::Regex;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{Conversation, Move, call, say};

#[derive(Clone, Copy)]
enum Verb {
    List,
    Add,
    Complete,
    Delete,
    Say(&'static str),
    Refuse(&'static str),
}

const EXAMPLES: &str = "I am the demo model. I understand one short request at a time: “show my tasks”, “add buy \
                        milk”, “done with buy milk”, “delete buy milk”, or call TOOL {…}";
const HELLO: &str = "I keep your task list. What would you like to do?";
const SCOPE: &str = "I'm sorry, I can only help with your task list.";
const ONE_BY_ONE: &str = "I'm sorry, I delete tasks one at a time, each by its name.";
const WHICH: &str = "Which task do you mean? Tell me its words.";

/// The form of each request. The first that matches the whole message counts; `x` is the task.
const FORMS: [(Verb, &str); 10] = [
    (
        Verb::Refuse(ONE_BY_ONE),
        r"(?:delete|remove|clear|wipe|erase) (?:all|every|everything|my (?:tasks|list|account))\b.*",
    ),
    (
        Verb::List,
        r"(?:show|list|what(?:'s| is| are)?)?(?: me)?(?: on)?(?: my)?(?: tasks| (?:to-?do )?list)|list",
    ),
    (
        Verb::Add,
        r"(?:add|new|remind me|i need)(?: an?)?(?: task)?(?: to|:)? (?P<x>.+?)(?: to my list)?",
    ),
    (Verb::Complete, r"mark (?P<x>.+) as (?:done|complete)"),
    (
        Verb::Complete,
        r"(?:complete|finish|done with|i(?:'ve)? (?:finished|did)) (?P<x>.+)",
    ),
    (Verb::Delete, r"(?:delete|remove) (?P<x>.+?)(?: from my list)?"),
    (
        Verb::Say(HELLO),
        r"(?:hi|hello|hey|how are you|thanks|thank you|bye|goodbye)\b.*",
    ),
    (Verb::Say(EXAMPLES), r"help|what can (?:you|i)\b.*"),
    (
        Verb::Refuse(SCOPE),
        r"(?:what|who|when|where|why|how|is|are|can|could|should|write|book|order|send|tell|translate|ignore)\b.*",
    ),
    (
        Verb::Refuse(SCOPE),
        r"(?:play|explain|give|draw|search|find|turn|print|forget|pretend|does|will|would)\b.*",
    ),
];

/// A request without courtesy.
const REQUEST: &str = concat!(
    r"(?i)^(?:(?:(?:hi|hello)[,!.]|please|(?:can|could) you) )*",
    r"(?P<request>.*?)(?:,? (?:please|thanks)|[.!?… ])*$",
);

/// Words that single out no task.
const STOP: &str =
    "the a an my to of for and task tasks item one number list it that this them other same all everything";

/// The longest text of others that an answer quotes, in characters.
const QUOTED: usize = 500;

#[derive(Deserialize)]
struct Task {
    id: String,
    description: String,
    due: Option<String>,
}

/// A page of tasks. What is no list of tasks is read as an empty one.
#[derive(Default, Deserialize)]
#[serde(default)]
struct List {
    tasks: Vec<Task>,
    next_cursor: Option<String>,
}

/// What can be done for the newest message.
pub(super) struct Turn<'a> {
    pub(super) conversation: Conversation<'a>,
    /// Says which functions are available.
    pub(super) offered: &'a dyn Fn(&str) -> bool,
}

impl Turn<'_> {
    /// The next move.
    pub(super) fn next(&self) -> Move {
        if let Some((tool, arguments)) = by_name(self.conversation.message) {
            let said = |result: &str| format!("{tool} answered: {}", quoted(result));
            return self.step(tool, Value::Object(arguments), said);
        }
        let message = self.conversation.message.replace(['’', '‘'], "'");
        let message = message.split_whitespace().collect::<Vec<_>>().join(" ");
        let Some((verb, x)) = understood(&message) else {
            let question = format!("I did not understand “{}”. {EXAMPLES}.", quoted(&message));
            return self.ask(question, "UNCLEAR_INTENT");
        };
        let words = significant(&x);
        match verb {
            Verb::Say(text) => say(text),
            Verb::Refuse(text) => self.verdict("refuse", "message", format!("{text} {EXAMPLES}."), "OUT_OF_SCOPE"),
            Verb::List => self.step("list_tasks", json!({}), show),
            _ if words.is_empty() => self.ask(WHICH.to_owned(), "UNCLEAR_INTENT"),
            Verb::Add => self.step("add_task", json!({"description": x}), |_| format!("Added “{x}”.")),
            Verb::Complete | Verb::Delete => self.change(verb, &words, &x),
        }
    }

    /// Looks the task up, and then changes it.
    fn change(&self, verb: Verb, words: &[String], x: &str) -> Move {
        let done = self.conversation.done.iter().find(|done| done.name == "list_tasks");
        let Some(Ok(data)) = done.map(|done| done.outcome) else {
            return self.step("list_tasks", json!({}), show);
        };
        let list = list(data.get());
        let task = match fitting(&list.tasks, words).as_slice() {
            [one] => *one,
            [] => return say(format!("I found no task that fits “{x}”, so I changed nothing.")),
            several => {
                let names: Vec<_> = several
                    .iter()
                    .take(10)
                    .map(|task| format!("“{}”", task.description))
                    .collect();
                let question = format!("Several tasks fit: {}. Which one do you mean?", names.join(", "));
                return self.ask(question, "MULTIPLE_MATCHES");
            }
        };
        let name = &task.description;
        let (tool, said) = match verb {
            Verb::Delete => ("delete_task", format!("Deleted “{name}”.")),
            _ => ("complete_task", format!("Marked “{name}” as done.")),
        };
        self.step(tool, json!({"id": task.id}), |_| said.clone())
    }

    /// Calls the tool, or says what its answer confirms.
    fn step(&self, tool: &str, arguments: Value, said: impl Fn(&str) -> String) -> Move {
        let done = self.conversation.done.iter().rfind(|done| done.name == tool);
        match done.map(|done| done.outcome) {
            Some(Ok(result)) => say(said(result.get())),
            Some(Err(failure)) => say(format!("{tool} did not do it: {}", quoted(&failure.message))),
            None if (self.offered)(tool) => call(tool, arguments),
            None => say(format!("I have no tool {tool}.")),
        }
    }

    fn ask(&self, question: String, kind: &str) -> Move {
        self.verdict("request_clarification", "question", question, kind)
    }

    /// Without the function, or if it failed, the same words are the answer.
    fn verdict(&self, name: &str, field: &str, words: String, kind: &str) -> Move {
        let failed = self.conversation.done.iter().any(|done| done.name == name);
        match (self.offered)(name) && !failed {
            true => call(name, json!({field: words, "kind": kind})),
            false => say(words),
        }
    }
}

/// The function and its arguments, if the message asks for a call by name: `call order_article {"article": "tea"}`.
/// With it, one's own server, policy and approvals can be tried without a key.
fn by_name(message: &str) -> Option<(&str, Map<String, Value>)> {
    static CALL: LazyLock<Regex> = LazyLock::new(|| super::pattern(r"(?is)^call\s+([\w.-]+)\s*(\{.*)$"));
    let (_, [name, arguments]) = CALL.captures(message)?.extract();
    Some((name, serde_json::from_str(arguments).ok()?))
}

/// The verb of a message, and the task. A greeting is courtesy only before a request.
fn understood(message: &str) -> Option<(Verb, String)> {
    static REQUESTS: LazyLock<Regex> = LazyLock::new(|| super::pattern(REQUEST));
    static PATTERNS: LazyLock<Vec<(Verb, Regex)>> = LazyLock::new(|| {
        let whole = |(verb, form): &(Verb, &str)| (*verb, super::pattern(&format!("(?i)^(?:{form})$")));
        FORMS.iter().map(whole).collect()
    });
    let read = |text: &str| {
        PATTERNS.iter().find_map(|(verb, form)| {
            let found = form.captures(text)?;
            Some((*verb, unquoted(found.name("x").map_or("", |x| x.as_str().trim()))))
        })
    };
    read(&REQUESTS.captures(message)?["request"]).or_else(|| read(message))
}

/// Quotes around the whole text go, those within it stay.
fn unquoted(text: &str) -> String {
    let quotes = ['"', '\'', '“', '”', '„'];
    let is_quoted = text.starts_with(quotes) && text.ends_with(quotes);
    if is_quoted { text.trim_matches(quotes) } else { text }.to_owned()
}

/// The tasks that have all of the words: of several the only one that has no others.
fn fitting<'a>(tasks: &'a [Task], words: &[String]) -> Vec<&'a Task> {
    let given = |task: &Task| significant(&task.description);
    let has = |task: &&Task| words.iter().all(|word| given(task).contains(word));
    let found: Vec<_> = tasks.iter().filter(has).collect();
    let is_named = |task: &&Task| given(task).len() == words.len();
    let named: Vec<_> = found.iter().copied().filter(is_named).collect();
    if named.len() == 1 { named } else { found }
}

fn significant(text: &str) -> Vec<String> {
    let text = text.to_lowercase();
    let words = text.split(|letter: char| !letter.is_alphanumeric());
    words
        .filter(|word| !word.is_empty() && STOP.split(' ').all(|stop| stop != *word))
        .map(str::to_owned)
        .collect()
}

fn list(data: &str) -> List {
    serde_json::from_str(data).unwrap_or_default()
}

fn show(data: &str) -> String {
    let list = list(data);
    if list.tasks.is_empty() {
        return "There are no tasks here.".to_owned();
    }
    let mut text = "Your tasks:".to_owned();
    for (task, n) in list.tasks.iter().zip(1..) {
        text.push_str(&format!("\n{n}. {}", task.description));
        text.extend(task.due.iter().map(|day| format!(", due {day}")));
    }
    if list.next_cursor.is_some() {
        text.push_str("\nThere are more tasks than shown.");
    }
    text
}

fn quoted(text: &str) -> String {
    text.chars().take(QUOTED).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_asked_for_by_its_name_and_an_object() {
        for asks in [
            r#"call order {"n": 1}"#,
            r#"Call order{"n": 1}"#,
            "call order\n{\"n\":\n1}",
        ] {
            let (name, arguments) = by_name(asks).unwrap_or_else(|| panic!("{asks}"));
            assert_eq!((name, &arguments["n"]), ("order", &Value::from(1)));
        }
        for other in [
            "call mom",
            "call",
            "add a task to call mom {now}",
            "call order {n: 1}",
            r#"call order [1]"#,
            r#"call my mom {"n": 1}"#,
            r#"please call order {"n": 1}"#,
        ] {
            assert!(by_name(other).is_none(), "{other}");
        }
    }

    fn found(tasks: &[&str], words: &str) -> Vec<String> {
        let task = |description: &&str| Task {
            id: String::new(),
            description: (*description).to_owned(),
            due: None,
        };
        let tasks: Vec<_> = tasks.iter().map(task).collect();
        let found = fitting(&tasks, &significant(words));
        found.into_iter().map(|task| task.description.clone()).collect()
    }

    /// C-US1-3, C-US6-1, C-SC-4
    #[test]
    fn a_task_is_found_by_its_words_and_not_by_its_letters() {
        let tasks = ["call mom", "buy milk", "write the report"];
        for (words, task) in [
            ("the milk task", "buy milk"),
            ("Report", "write the report"),
            ("“call mom”", "call mom"),
        ] {
            assert_eq!(found(&tasks, words), [task], "{words}");
        }
        for words in ["write tests", "call dad", "milk and cookies", "mil", "0", "4"] {
            assert!(found(&tasks, words).is_empty(), "{words}");
        }
    }

    #[test]
    fn several_fit_unless_the_words_decide() {
        let tasks = ["call mom", "email mom", "call mom about the party", "buy 2 cakes"];
        assert_eq!(found(&tasks, "mom"), tasks[..3]);
        assert_eq!(found(&tasks, "call mom"), ["call mom"]);
        assert_eq!(found(&tasks, "party"), ["call mom about the party"]);
        assert_eq!(found(&["buy milk", "buy milk"], "buy milk").len(), 2);
    }

    #[test]
    fn what_is_no_list_is_an_empty_list() {
        for data in ["null", "\"x\"", r#"{"tasks": 1}"#, "[1]", ""] {
            assert_eq!(show(data), "There are no tasks here.");
        }
    }
}
