//! `gavel man` and `gavel completion`: what the system and its shells need to know of the command line, from the same
//! definitions as `--help`.

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Command;
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
    let is_first = command.get_display_name().is_none_or(|name| name == "gavel");
    let after = AfterHelp::of(&command);
    // The heading in the help names a command, which a heading in capitals would spell wrongly.
    let command = command.mut_args(|arg| match arg.get_help_heading() {
        Some(heading) if heading.starts_with("Settings") => arg.help_heading("Settings"),
        Some(_) | None => arg,
    });
    let (has_commands, man) = (command.has_subcommands(), Man::new(command));
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    after.notes(&mut page)?;
    man.render_options_section(&mut page)?;
    if has_commands {
        man.render_subcommands_section(&mut page)?;
    }
    exit_statuses(after.statuses.as_deref(), is_first).to_writer(&mut page)?;
    after.examples(&mut page)?;
    Ok(page)
}

/// The text below a long help, in parts.
#[derive(Default)]
struct AfterHelp {
    notes: Vec<String>,
    statuses: Option<String>,
    examples: Vec<String>,
}

impl AfterHelp {
    fn of(command: &Command) -> Self {
        let text = command.get_after_long_help().or_else(|| command.get_after_help());
        let text = text.map(ToString::to_string).unwrap_or_default();
        let mut parts = Self::default();
        for line in text.lines().filter(|line| !line.is_empty() && *line != help::END) {
            if line.starts_with(' ') {
                parts.examples.push(line.strip_prefix("  ").unwrap_or(line).to_owned());
            } else if let Some(statuses) = line.strip_prefix("Exit status: ") {
                parts.statuses = Some(statuses.to_owned());
            } else if !line.starts_with("Example") {
                parts.notes.push(line.to_owned());
            }
        }
        parts
    }

    fn notes(&self, page: &mut Vec<u8>) -> std::io::Result<()> {
        let mut roff = Roff::new();
        for note in &self.notes {
            roff.control("PP", []).text([roman(note.as_str())]);
        }
        roff.to_writer(page)
    }

    /// As they are in the help, line by line.
    fn examples(&self, page: &mut Vec<u8>) -> std::io::Result<()> {
        if self.examples.is_empty() {
            return Ok(());
        }
        let mut roff = Roff::new();
        roff.control("SH", ["EXAMPLES"]).control("nf", []);
        for example in &self.examples {
            roff.text([roman(example.as_str())]);
        }
        roff.control("fi", []).to_writer(page)
    }
}

/// All of them on the first page; on another one what the help says of its command.
fn exit_statuses(own: Option<&str>, is_first: bool) -> Roff {
    let mut roff = Roff::new();
    roff.control("SH", ["EXIT STATUS"]);
    if is_first {
        for (_, status, meaning) in STATUSES {
            let status = status.to_string();
            roff.control("TP", []).text([roman(status)]).text([roman(meaning)]);
        }
        return roff;
    }
    if let Some(own) = own {
        roff.text([roman(own)]);
    }
    roff.text([roman("All exit statuses are in gavel(1).")]);
    roff
}

/// Options of `gavel completion`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = COMPLETION)]
pub(super) struct Completion {
    /// The shell
    #[arg(value_enum)]
    shell: Shells,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Shells {
    Bash,
    Zsh,
    Fish,
}

const COMPLETION: &str = "\
Examples:
  gavel completion bash >~/.local/share/bash-completion/completions/gavel
  gavel completion zsh >~/.zfunc/_gavel       with fpath+=(~/.zfunc) before compinit in ~/.zshrc
  gavel completion fish >~/.config/fish/completions/gavel.fish";

/// Writes the completion script to standard output.
pub(super) fn completion(args: &Completion) -> anyhow::Result<Exit> {
    let shell = match args.shell {
        Shells::Bash => Shell::Bash,
        Shells::Zsh => Shell::Zsh,
        Shells::Fish => Shell::Fish,
    };
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut help::complete(), "gavel", &mut script);
    output::file(&script)?;
    Ok(Exit::Done)
}
