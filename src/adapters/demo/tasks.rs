//! A task list as a tool returned it, and which of its tasks the user means.

use serde::Deserialize;
use serde_json::Value;

use super::english::english;
use super::language::Place;

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Task {
    pub(super) id: String,
    pub(super) description: String,
    #[serde(default)]
    pub(super) due: Option<String>,
    #[serde(default)]
    pub(super) priority: Option<String>,
    #[serde(default)]
    pub(super) status: Option<String>,
}

/// A page of tasks, in the order of the answer.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct List {
    #[serde(default)]
    pub(super) tasks: Vec<Task>,
    #[serde(default)]
    pub(super) next_cursor: Option<String>,
}

impl List {
    /// Reads an answer. Anything that is not a list of tasks gives an empty list.
    pub(super) fn read(data: &Value) -> Self {
        Self::deserialize(data).unwrap_or_default()
    }

    pub(super) fn at(&self, place: Place) -> Option<&Task> {
        match place {
            Place::Nth(n) => self.tasks.get(n - 1),
            Place::Last => self.tasks.last(),
        }
    }

    /// The tasks that match `words`: their description contains all significant words. If several match, the weak words
    /// decide, and then the task whose full description is named.
    pub(super) fn fitting(&self, words: &str) -> Vec<&Task> {
        let all = content(words);
        let strong: Vec<_> = all.iter().filter(|word| !word.weak).collect();
        let asked: Vec<_> = if strong.is_empty() {
            all.iter().collect()
        } else {
            strong
        };
        if asked.is_empty() {
            return Vec::new();
        }
        let has = |task: &Task, asked: &[&Word]| {
            let given = content(&task.description);
            asked.iter().all(|word| given.iter().any(|other| other.same(word)))
        };
        let mut fitting: Vec<_> = self.tasks.iter().filter(|task| has(task, &asked)).collect();
        if fitting.len() > 1 {
            let every: Vec<_> = all.iter().collect();
            narrow(&mut fitting, |task| has(task, &every));
        }
        if fitting.len() > 1 {
            let named = plain(words);
            narrow(&mut fitting, |task| plain(&task.description) == named);
        }
        fitting
    }
}

/// Keeps the tasks that pass, unless none does.
fn narrow<'a>(tasks: &mut Vec<&'a Task>, pass: impl Fn(&Task) -> bool) {
    let passing: Vec<&'a Task> = tasks.iter().copied().filter(|task| pass(task)).collect();
    if !passing.is_empty() {
        *tasks = passing;
    }
}

struct Word {
    stem: String,
    weak: bool,
}

impl Word {
    /// Equal stems, or one is a prefix of the other and at least 5 characters long ("grocer", "groceri").
    fn same(&self, other: &Self) -> bool {
        let (short, long) = if self.stem.len() < other.stem.len() {
            (&self.stem, &other.stem)
        } else {
            (&other.stem, &self.stem)
        };
        short == long || (short.chars().count() >= 5 && long.starts_with(short.as_str()))
    }
}

fn content(text: &str) -> Vec<Word> {
    let words = plain(text);
    let tables = english().tables;
    words
        .split(' ')
        .filter(|word| !word.is_empty() && !tables.stop.contains(word))
        .map(|word| Word {
            stem: stem(word),
            weak: tables.weak.contains(&word),
        })
        .collect()
}

fn plain(text: &str) -> String {
    let spaced: String = text
        .chars()
        .map(|c| if c.is_alphanumeric() { c } else { ' ' })
        .flat_map(char::to_lowercase)
        .collect();
    spaced.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Removes the most common endings. This is crude, but the same for both sides.
fn stem(word: &str) -> String {
    for (ending, instead) in [("ies", "y"), ("ing", ""), ("es", ""), ("en", ""), ("s", "")] {
        if let Some(rest) = word.strip_suffix(ending)
            && rest.chars().count() >= 3
        {
            return format!("{rest}{instead}");
        }
    }
    word.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn fitting(tasks: &[&str], words: &str) -> Vec<String> {
        let tasks: Vec<_> = tasks
            .iter()
            .map(|task| json!({"id": task, "description": task}))
            .collect();
        let list = List::read(&json!({"tasks": tasks}));
        list.fitting(words).into_iter().map(|task| task.id.clone()).collect()
    }

    /// C-US1-3, C-US6-1
    #[test]
    fn a_task_is_found_by_its_words_not_by_its_letters() {
        let tasks = ["call mom", "buy groceries", "write the report"];
        assert_eq!(fitting(&tasks, "grocery shopping"), ["buy groceries"]);
        assert_eq!(fitting(&tasks, "the grocery one"), ["buy groceries"]);
        assert_eq!(fitting(&tasks, "Report"), ["write the report"]);
        assert_eq!(fitting(&tasks, "mom"), ["call mom"]);
    }

    /// C-SC-4
    #[test]
    fn a_task_that_merely_comes_close_does_not_fit() {
        let tasks = ["write the report", "call mom", "buy milk"];
        for words in [
            "write tests",
            "call dad",
            "buy bread",
            "milk and cookies",
            "",
            "the task",
        ] {
            assert!(fitting(&tasks, words).is_empty(), "{words}");
        }
    }

    #[test]
    fn several_fit_unless_the_words_decide() {
        let tasks = ["call mom", "email mom", "call mom about the party"];
        assert_eq!(fitting(&tasks, "mom"), tasks);
        assert_eq!(fitting(&tasks, "email mom"), ["email mom"]);
        assert_eq!(fitting(&tasks, "call mom"), ["call mom"]);
        assert_eq!(fitting(&tasks, "party"), ["call mom about the party"]);
    }

    #[test]
    fn what_is_no_list_is_an_empty_list() {
        for data in [json!(null), json!("x"), json!({"tasks": 1}), json!([1])] {
            assert!(List::read(&data).tasks.is_empty());
        }
    }
}
