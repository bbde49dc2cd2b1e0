//! The command line as people see it: commands in groups, the settings on the top level alone, examples in the long help.

use clap::{Args, Command, CommandFactory};

use crate::cli::{Cli, GROUPS, exit};
use crate::config::Flags;

/// The subcommand that is a page of the help.
const EXIT_CODES: &str = "exit-codes";

/// The command whose options the settings are in the first place.
const SERVE: &str = "serve";

/// The last words of a long help.
pub(super) const END: &str =
    "Settings, such as --config and --database: gavel --help. Exit statuses: gavel help exit-codes.";

/// The command line, for the parser: the help of the top level shows the commands in their groups.
pub(super) fn command() -> Command {
    let command = complete();
    let groups = groups(&command);
    let names: Vec<_> = command.get_subcommands().map(|one| one.get_name().to_owned()).collect();
    // Their list without groups is not shown.
    let hidden = names.into_iter().fold(command, |command, name| {
        command.mut_subcommand(name, |one| one.hide(true))
    });
    hidden
        .override_usage("gavel [OPTIONS] [COMMAND]")
        .help_template(format!(
            "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{groups}{{all-args}}{{after-help}}"
        ))
}

/// The command line with all its commands listed, for completions and manual pages.
pub(super) fn complete() -> Command {
    let settings = settings();
    let names: Vec<_> = Cli::command()
        .get_subcommands()
        .map(|one| one.get_name().to_owned())
        .collect();
    names.into_iter().fold(Cli::command(), |command, name| {
        command.mut_subcommand(&name, |one| match name.as_str() {
            SERVE => one,
            EXIT_CODES => one.about(exit::table()).help_template("{about}").args(settings.clone()),
            _ => with_end(one).args(settings.clone()),
        })
    })
}

/// The settings as options that every command accepts, and whose help only the top level shows.
fn settings() -> Vec<clap::Arg> {
    let settings = Flags::augment_args(Command::new("settings"));
    settings
        .get_arguments()
        .map(|setting| setting.clone().hide(true))
        .collect()
}

/// With the last words of a long help, at every command that has no commands.
fn with_end(command: Command) -> Command {
    if command.has_subcommands() {
        let names: Vec<_> = command.get_subcommands().map(|one| one.get_name().to_owned()).collect();
        return names
            .into_iter()
            .fold(command, |command, name| command.mut_subcommand(name, with_end));
    }
    let end = match command.get_after_long_help() {
        Some(text) => format!("{text}\n\n{END}"),
        None => END.to_owned(),
    };
    command.after_long_help(end)
}

/// The commands in their groups, each with what it does.
fn groups(command: &Command) -> String {
    let shown = command
        .get_subcommands()
        .zip(GROUPS)
        .filter(|(one, _)| !one.is_hide_set());
    let mut text = String::new();
    let mut last = "";
    for (one, group) in shown {
        if *group != last {
            let gap = if last.is_empty() { "" } else { "\n" };
            text.push_str(&format!("{gap}{group}:\n"));
            last = group;
        }
        let about = one.get_about().map(ToString::to_string).unwrap_or_default();
        text.push_str(&format!("  {:<11} {about}\n", one.get_name()));
    }
    text + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn each(command: &Command, look: &mut impl FnMut(&Command)) {
        look(command);
        let own = command.get_subcommands().filter(|inner| inner.get_name() != "help");
        own.for_each(|inner| each(inner, look));
    }

    #[test]
    fn the_command_line_contradicts_itself_nowhere() {
        command().debug_assert();
        complete().debug_assert();
    }

    #[test]
    fn every_command_fits_on_a_line() {
        let complete = complete();
        assert_eq!(complete.get_subcommands().count(), GROUPS.len());
        for line in groups(&complete).lines() {
            assert!(line.chars().count() <= 100, "{line}");
        }
    }

    /// The settings are listed once, at the top; `serve` has them too, since it is what they configure.
    #[test]
    fn a_setting_is_accepted_by_every_command_and_shown_by_the_top_level() {
        let mut top = command();
        let help = top.render_long_help().to_string();
        assert!(help.contains("--database <URL>"), "{help}");
        top.build();
        each(&top, &mut |command| {
            let setting = command
                .get_arguments()
                .find(|arg| arg.get_long() == Some("constitution"));
            let is_shown = setting.is_some_and(|setting| !setting.is_hide_set());
            let shows = ["gavel", SERVE].contains(&command.get_name());
            assert!(setting.is_some(), "{}", command.get_name());
            assert_eq!(is_shown, shows, "{}", command.get_name());
        });
        let line = ["gavel", "decisions", "list", "--database", "sqlite:x.db"];
        let matches = top.try_get_matches_from(line).expect("it is accepted");
        assert_eq!(
            matches.get_one::<String>("database_url").map(String::as_str),
            Some("sqlite:x.db")
        );
    }

    /// `-h` answers at a glance; `--help` teaches.
    #[test]
    fn the_short_help_has_no_examples() {
        let mut top = command();
        top.build();
        each(&top, &mut |command| {
            let mut command = command.clone();
            let help = command.render_help().to_string();
            assert!(!help.contains("Example"), "{help}");
        });
    }

    /// Prose is one line, which the terminal's width wraps; examples fit into the help's width.
    #[test]
    fn the_words_under_a_help_are_broken_once() {
        each(&complete(), &mut |command| {
            let texts = [command.get_after_help(), command.get_after_long_help()];
            for text in texts.into_iter().flatten() {
                let text = text.to_string();
                let lines: Vec<_> = text.lines().collect();
                let is_prose = |line: &str| !line.is_empty() && !line.starts_with(' ');
                for pair in lines.windows(2) {
                    let is_broken = is_prose(pair[0]) && is_prose(pair[1]) && !pair[0].ends_with(':');
                    assert!(!is_broken, "{}: {}", command.get_name(), pair[0]);
                }
                for line in lines.iter().filter(|line| line.starts_with(' ')) {
                    assert!(line.chars().count() <= 120, "{}: {line}", command.get_name());
                }
            }
        });
    }
}
