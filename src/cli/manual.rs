//! `gavel man` and `gavel completion`: what the system and its shells need to know of the command line, from the same
//! definitions as `--help`.

use std::cmp::Reverse;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Command;
use clap::builder::Resettable;
use clap_complete::Shell;
use clap_mangen::Man;
use roff::{Roff, roman};

use crate::cli::exit::{Exit, STATUSES};
use crate::cli::{help, output};

/// Options of `gavel man`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct Args {
    /// The directory that the pages are written to, one for each command
    dir: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  gavel man | man -l -                        read the first page
  gavel man ~/.local/share/man/man1           install all pages; then: man gavel-agents-run";

/// Writes the page of `gavel` to standard output, or the pages of all commands to a directory.
pub(super) fn run(args: &Args) -> anyhow::Result<Exit> {
    let mut gavel = help::complete().disable_help_subcommand(true);
    gavel.build();
    let Some(dir) = &args.dir else {
        output::file(&page(gavel)?)?;
        return Ok(Exit::Done);
    };
    let wanted = || format!("the pages cannot be written to {}", dir.display());
    std::fs::create_dir_all(dir).with_context(wanted)?;
    write(gavel, dir).with_context(wanted)?;
    output::line(&format!("the pages are in {}; the first is gavel.1", dir.display()))?;
    Ok(Exit::Done)
}

fn write(command: Command, dir: &Path) -> anyhow::Result<()> {
    for inner in command.get_subcommands().filter(|inner| !inner.is_hide_set()) {
        write(inner.clone(), dir)?;
    }
    let name = Man::new(command.clone()).get_filename();
    std::fs::write(dir.join(name), page(command)?)?;
    Ok(())
}

fn page(command: Command) -> anyhow::Result<Vec<u8>> {
    let after = after_help(&command);
    // The heading in the help names a command, which a heading in capitals would spell wrongly.
    let command = command.mut_args(|arg| match arg.get_help_heading() {
        Some(_) => arg.help_heading("Settings"),
        None => arg,
    });
    // What the library would write below the heading EXTRA.
    let command = command.after_help(Resettable::Reset).after_long_help(Resettable::Reset);
    let mut page = Vec::new();
    Man::new(command).render(&mut page)?;
    after.to_writer(&mut page)?;
    Ok(page)
}

/// The text below a long help in sections, and every exit status on the first page.
fn after_help(command: &Command) -> Roff {
    let text = command.get_after_long_help().or_else(|| command.get_after_help());
    let text = text.map(ToString::to_string).unwrap_or_default();
    let lines = text.lines().filter(|line| !line.is_empty() && *line != help::END);
    let mut lines: Vec<_> = lines
        .filter(|line| !line.starts_with("Example"))
        .map(|line| match line.strip_prefix("Exit status: ") {
            Some(statuses) => ("EXIT STATUS", statuses.to_owned()),
            None if line.starts_with(' ') => ("EXAMPLES", line.strip_prefix("  ").unwrap_or(line).to_owned()),
            None => ("NOTES", line.to_owned()),
        })
        .collect();
    if command.get_display_name().is_none_or(|name| name == "gavel") {
        lines.extend(STATUSES.map(|(_, status, meaning)| ("EXIT STATUS", format!("{status} {meaning}"))));
    }
    // Examples come last, since they are filled into no paragraphs.
    lines.sort_by_key(|(heading, _)| Reverse(*heading));
    let (mut roff, mut section) = (Roff::new(), "");
    for (heading, line) in lines {
        if heading != section {
            section = heading;
            roff.control("SH", [heading]);
            if heading == "EXAMPLES" {
                roff.control("nf", []);
            }
        } else if heading != "EXAMPLES" {
            roff.control("PP", []);
        }
        roff.text([roman(line)]);
    }
    roff
}

/// Options of `gavel completion`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = COMPLETION)]
pub(super) struct Completion {
    /// The shell
    shell: Shell,
}

const COMPLETION: &str = "\
Examples:
  gavel completion bash >~/.local/share/bash-completion/completions/gavel
  gavel completion zsh >~/.zfunc/_gavel       with fpath+=(~/.zfunc) before compinit in ~/.zshrc
  gavel completion fish >~/.config/fish/completions/gavel.fish";

/// Writes the completion script to standard output.
pub(super) fn completion(args: &Completion) -> anyhow::Result<Exit> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut help::complete(), "gavel", &mut script);
    output::file(&script)?;
    Ok(Exit::Done)
}
