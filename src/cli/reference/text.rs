//! The texts of a page about the command line: its tables, and what is below a help.

use std::fmt::Write as _;

use clap::builder::PossibleValue;
use clap::{Arg, Command};

use crate::cli::help::END;

/// The most characters of a line of prose.
const WIDTH: usize = 118;

/// A setting that every command accepts.
pub(super) fn is_setting(arg: &Arg) -> bool {
    arg.get_help_heading()
        .is_some_and(|heading| heading.starts_with("Settings"))
}

/// An argument of the command itself.
pub(super) fn is_own(arg: &Arg) -> bool {
    !is_setting(arg) && !arg.is_hide_set() && !["help", "version"].contains(&arg.get_id().as_str())
}

/// What a command does, in one line.
pub(super) fn about(command: &Command) -> String {
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    cell(&about)
}

/// A table of arguments.
pub(super) fn table<'a>(args: impl Iterator<Item = &'a Arg>, first: &str, text: &mut String) {
    let _ = writeln!(text, "| {first} | meaning |\n| --- | --- |");
    for arg in args {
        let _ = writeln!(text, "{}", row(arg));
    }
}

/// The line of an argument in a table.
pub(super) fn row(arg: &Arg) -> String {
    format!("| `{}` | {} |", arg.to_string().replace('|', "\\|"), meaning(arg))
}

/// `--server`, without its value.
pub(super) fn name(arg: &Arg) -> String {
    arg.get_long()
        .map_or_else(|| arg.to_string(), |long| format!("--{long}"))
}

/// The long help of an argument with its values, its default and its variable.
fn meaning(arg: &Arg) -> String {
    let help = arg.get_long_help().or_else(|| arg.get_help()).map(ToString::to_string);
    // The first paragraph of a help has no full stop.
    let paragraphs = help.unwrap_or_default();
    let paragraphs: Vec<_> = paragraphs.split("\n\n").map(cell).collect();
    let mut text = paragraphs.join(". ").replace(".. ", ". ");
    let values: Vec<_> = arg
        .get_possible_values()
        .iter()
        .map(PossibleValue::get_name)
        .map(str::to_owned)
        .collect();
    let takes_value = arg.get_action().takes_values();
    let mut add = |name: &str, value: &str| {
        if !text.contains(&format!("[{name}")) {
            let _ = write!(text, " [{name}: {}]", cell(value));
        }
    };
    if takes_value && !values.is_empty() {
        add("values", &values.join(", "));
    }
    let defaults: Vec<_> = arg
        .get_default_values()
        .iter()
        .map(|value| value.to_string_lossy())
        .collect();
    if takes_value && !defaults.is_empty() {
        add("default", &defaults.join(", "));
    }
    if let Some(name) = arg.get_env() {
        add("env", &name.to_string_lossy());
    }
    text
}

/// What is below a help apart from its examples and the last words.
pub(super) fn notes(command: &Command, text: &mut String) {
    let after = command.get_after_long_help().or_else(|| command.get_after_help());
    let after = after.map(ToString::to_string).unwrap_or_default();
    let is_note = |line: &&str| !line.starts_with(' ') && !line.is_empty() && !line.ends_with(':') && *line != END;
    let paragraph = |line: &str| match line.strip_prefix("Exit status: ") {
        Some(statuses) => exit_statuses(statuses),
        None => wrapped(&cell(line)),
    };
    let lines: Vec<_> = after.lines().filter(is_note).map(paragraph).collect();
    if !lines.is_empty() {
        let _ = writeln!(text, "{}", lines.join("\n\n"));
    }
}

/// `0 done, 1 failed.` as a table, and the sentences after it.
fn exit_statuses(text: &str) -> String {
    let (statuses, rest) = text.split_once(". ").unwrap_or((text.trim_end_matches('.'), ""));
    let mut rows: Vec<(String, String)> = Vec::new();
    for part in statuses.split_inclusive([',', ';']) {
        let (number, meaning) = part.trim_start().split_once(' ').unwrap_or_default();
        if !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()) {
            rows.push((number.to_owned(), meaning.to_owned()));
        } else if let Some((_, before)) = rows.last_mut() {
            before.push_str(part);
        }
    }
    let mut table = "| exit status | meaning |\n| --- | --- |".to_owned();
    for (number, meaning) in rows {
        let _ = write!(table, "\n| {number} | {} |", cell(meaning.trim_end_matches([',', ';'])));
    }
    if !rest.is_empty() {
        let _ = write!(table, "\n\n{}", wrapped(&cell(rest)));
    }
    table
}

/// One line that Markdown shows as it is.
fn cell(text: &str) -> String {
    let words: Vec<_> = text.split_whitespace().collect();
    words.join(" ").replace('|', "\\|").replace('<', "\\<")
}

/// A paragraph of prose.
pub(super) fn wrapped(text: &str) -> String {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines
            .last_mut()
            .filter(|line| line.chars().count() + word.chars().count() < WIDTH);
        match line {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) => {
                line.push(' ');
                line.push_str(word);
            }
            None => lines.push(word.to_owned()),
        }
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A comma inside of a meaning begins no status.
    #[test]
    fn exit_statuses_are_a_table_and_the_sentences_after_it_are_prose() {
        let table = exit_statuses("0 intact, 3 not, or changed; 130 interrupted. Another sentence.");
        let rows = "| 0 | intact |\n| 3 | not, or changed |\n| 130 | interrupted |\n\nAnother sentence.";
        assert_eq!(table, format!("| exit status | meaning |\n| --- | --- |\n{rows}"));
    }
}
