//! The pages of the documentation about the command line, from the same definitions as `--help`.

use std::fmt::Write as _;

use clap::builder::PossibleValue;
use clap::{Arg, Command};

use crate::cli::exit::{Exit, STATUSES};
use crate::cli::help::END;
use crate::cli::{help, output};

/// Each page: its name in docs/reference, its title, and the commands that it describes, with all commands below them.
const PAGES: [(&str, &str, &[&str]); 10] = [
    (
        "cli",
        "Command line",
        &[
            "serve",
            "chat",
            "config",
            "doctor",
            "migrate",
            "eval",
            "completion",
            "man",
        ],
    ),
    ("cli-agents", "Command line: agents", &["agents"]),
    ("cli-runs", "Command line: runs and threads", &["runs", "threads"]),
    (
        "cli-plan",
        "Command line: making and executing plans",
        &["plan start", "plan refine", "plan edit", "plan execute", "plan cancel"],
    ),
    (
        "cli-plan-show",
        "Command line: showing planning sessions",
        &[
            "plan watch",
            "plan show",
            "plan diff",
            "plan history",
            "plan log",
            "plan list",
        ],
    ),
    ("cli-approvals", "Command line: approvals", &["approvals"]),
    ("cli-logs", "Command line: logs", &["decisions", "audit"]),
    ("cli-policy", "Command line: policy", &["policy"]),
    ("cli-mcp", "Command line: tools and Google accounts", &["mcp", "google"]),
    ("cli-mcp-server", "Command line: bundled MCP servers", &["mcp-server"]),
];

/// An option of at least this many commands of a page is described once.
const SHARED: usize = 3;

/// Options of the hidden command `gavel reference`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The page: the name of a file in docs/reference that begins with cli, without .md
    page: String,
}

pub(super) fn run(args: &Args) -> anyhow::Result<Exit> {
    let Some(page) = page(&args.page) else {
        anyhow::bail!("there is no page {:?}", args.page);
    };
    output::line(page.trim_end())?;
    Ok(Exit::Done)
}

/// A page as Markdown, if there is one of this name.
fn page(name: &str) -> Option<String> {
    let mut gavel = help::complete();
    gavel.build();
    let (_, title, commands) = PAGES.iter().find(|(page, ..)| *page == name)?;
    let mut text = format!("# {title}\n\n");
    if name == PAGES[0].0 {
        overview(&gavel, &mut text);
    } else {
        text.push_str("`gavel reference` generates this page from the help of the commands; a test compares both.\n");
        text.push_str("[The first page](cli.md) has the settings that every command accepts.\n");
    }
    let commands: Vec<_> = commands.iter().filter_map(|path| find(&gavel, path)).collect();
    let shared = shared(&commands);
    if !shared.is_empty() {
        text.push_str("\n## Options of several commands\n\n");
        table(shared.iter().copied(), "option", &mut text);
    }
    for command in commands {
        describe(command, &shared, &mut text);
    }
    Some(text)
}

/// A command by its path, such as `plan start`.
fn find<'a>(gavel: &'a Command, path: &str) -> Option<&'a Command> {
    path.split(' ')
        .try_fold(gavel, |command, name| command.find_subcommand(name))
}

/// The options with the same text that many of these commands have, in the order of their first use.
fn shared<'a>(commands: &[&'a Command]) -> Vec<&'a Arg> {
    fn collect<'a>(command: &'a Command, into: &mut Vec<&'a Arg>) {
        into.extend(
            command
                .get_arguments()
                .filter(|arg| is_own(arg) && !arg.is_positional()),
        );
        command.get_subcommands().for_each(|inner| collect(inner, into));
    }
    let mut all = Vec::new();
    commands.iter().for_each(|command| collect(command, &mut all));
    let same = |one: &Arg, other: &Arg| row(one) == row(other);
    let mut shared: Vec<&Arg> = Vec::new();
    for arg in &all {
        let count = all.iter().filter(|other| same(arg, other)).count();
        if count >= SHARED && !shared.iter().any(|known| same(arg, known)) {
            shared.push(arg);
        }
    }
    shared
}

fn overview(gavel: &Command, text: &mut String) {
    text.push_str("`gavel reference` generates these pages from the help of the commands; a test compares both.\n");
    text.push_str("Each command prints its help for `-h`, and with examples for `--help`.\n\n");
    text.push_str("| command | what it does |\n| --- | --- |\n");
    for (group, names) in help::GROUPS {
        let _ = writeln!(text, "| **{group}** | |");
        for name in names {
            let about = gavel.find_subcommand(name).map(about).unwrap_or_default();
            let _ = writeln!(text, "| [`gavel {name}`]({}) | {about} |", place(name));
        }
    }
    text.push_str("\n## Settings\n\n");
    text.push_str("Every command accepts these. [Configuration](configuration.md) has the other settings.\n\n");
    table(gavel.get_arguments().filter(|arg| is_setting(arg)), "setting", text);
    text.push_str("\n## Exit status\n\nEach status has one meaning, whatever the command.\n\n");
    text.push_str("| exit status | meaning |\n| --- | --- |\n");
    for (_, status, meaning) in STATUSES {
        let _ = writeln!(text, "| {status} | {meaning} |");
    }
}

/// Where a command of the top level is described, seen from the first page.
fn place(name: &str) -> String {
    let is_of = |path: &str| path.split(' ').next() == Some(name);
    let Some((page, _, paths)) = PAGES.iter().find(|(_, _, paths)| paths.iter().any(|path| is_of(path))) else {
        return String::new();
    };
    let file = if *page == PAGES[0].0 {
        String::new()
    } else {
        format!("{page}.md")
    };
    // The commands of some have several pages.
    if paths.contains(&name) {
        format!("{file}#gavel-{name}")
    } else {
        file
    }
}

/// A command and the commands below it.
fn describe(command: &Command, shared: &[&Arg], text: &mut String) {
    let path = command.get_bin_name().unwrap_or(command.get_name());
    let _ = writeln!(text, "\n## {path}\n\n{}", wrapped(&format!("{}.", about(command))));
    let is_visible = |inner: &&Command| !inner.is_hide_set() && inner.get_name() != "help";
    let inner: Vec<_> = command.get_subcommands().filter(is_visible).collect();
    let own: Vec<_> = command.get_arguments().filter(|arg| is_own(arg)).collect();
    if inner.is_empty() || !own.is_empty() {
        let usage = command.clone().render_usage().to_string();
        let usage = usage.trim_start_matches("Usage: ").replace("\n       ", "\n    ");
        let _ = writeln!(text, "\n    {usage}");
    }
    let (elsewhere, here): (Vec<&Arg>, Vec<&Arg>) = own
        .into_iter()
        .partition(|arg| shared.iter().any(|shared| row(shared) == row(arg)));
    if !here.is_empty() {
        text.push('\n');
        table(here.into_iter(), "argument", text);
    }
    if !elsewhere.is_empty() {
        let names: Vec<_> = elsewhere.iter().map(|arg| format!("`{}`", name(arg))).collect();
        let also = format!(
            "Also ([options of several commands](#options-of-several-commands)): {}.",
            names.join(", ")
        );
        let _ = writeln!(text, "\n{}", wrapped(&also));
    }
    let mut words = String::new();
    notes(command, &mut words);
    if !words.is_empty() {
        let _ = write!(text, "\n{words}");
    }
    inner.into_iter().for_each(|inner| describe(inner, shared, text));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The documentation of the command line equals what its definitions say.
    #[test]
    fn the_documentation_has_the_pages_of_the_command_line_as_they_are() {
        for (name, ..) in PAGES {
            let file = format!("{}/docs/reference/{name}.md", env!("CARGO_MANIFEST_DIR"));
            let found = std::fs::read_to_string(&file).unwrap_or_default();
            let generated = page(name).unwrap();
            assert_eq!(
                found, generated,
                "put the output of `gavel reference {name}` into docs/reference/{name}.md"
            );
        }
    }

    /// A new command needs a page.
    #[test]
    fn every_command_is_on_one_page() {
        fn check(command: &Command, path: &str) {
            let pages = PAGES
                .iter()
                .flat_map(|(_, _, paths)| *paths)
                .filter(|found| **found == path)
                .count();
            if pages == 1 {
                return;
            }
            assert!(pages == 0 && command.has_subcommands(), "{path} is on {pages} pages");
            for inner in command.get_subcommands().filter(|inner| !inner.is_hide_set()) {
                check(inner, format!("{path} {}", inner.get_name()).trim());
            }
        }
        check(&help::complete(), "");
    }
}

/// The most characters of a line of prose.
const WIDTH: usize = 118;

/// A setting that every command accepts.
fn is_setting(arg: &Arg) -> bool {
    arg.get_help_heading()
        .is_some_and(|heading| heading.starts_with("Settings"))
}

/// An argument of the command itself.
fn is_own(arg: &Arg) -> bool {
    !is_setting(arg) && !arg.is_hide_set() && !["help", "version"].contains(&arg.get_id().as_str())
}

/// What a command does, in one line.
fn about(command: &Command) -> String {
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    cell(&about)
}

/// A table of arguments.
fn table<'a>(args: impl Iterator<Item = &'a Arg>, first: &str, text: &mut String) {
    let _ = writeln!(text, "| {first} | meaning |\n| --- | --- |");
    for arg in args {
        let _ = writeln!(text, "{}", row(arg));
    }
}

/// The line of an argument in a table.
fn row(arg: &Arg) -> String {
    format!("| `{}` | {} |", arg.to_string().replace('|', "\\|"), meaning(arg))
}

/// `--server`, without its value.
fn name(arg: &Arg) -> String {
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
fn notes(command: &Command, text: &mut String) {
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
fn wrapped(text: &str) -> String {
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
mod text_tests {
    use super::*;

    /// A comma inside of a meaning begins no status.
    #[test]
    fn exit_statuses_are_a_table_and_the_sentences_after_it_are_prose() {
        let table = exit_statuses("0 intact, 3 not, or changed; 130 interrupted. Another sentence.");
        let rows = "| 0 | intact |\n| 3 | not, or changed |\n| 130 | interrupted |\n\nAnother sentence.";
        assert_eq!(table, format!("| exit status | meaning |\n| --- | --- |\n{rows}"));
    }
}
