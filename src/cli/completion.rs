//! `gavel completion` and `gavel man`: what a shell and a manual need to know of the command line.

use std::path::PathBuf;

use anyhow::Context;
use clap_complete::Shell;

use super::exit::Exit;
use super::{help, output};

/// Options of `gavel completion`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = COMPLETION)]
pub(super) struct Args {
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

/// Options of `gavel man`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = MAN)]
pub(super) struct ManArgs {
    /// The directory that the pages are written to, one for each command
    dir: Option<PathBuf>,
}

const MAN: &str = "\
Examples:
  gavel man | man -l -                        read the first page
  gavel man ~/.local/share/man/man1           install all pages; then: man gavel-agents-run";

/// Writes the completion script to standard output.
pub(super) fn run(args: &Args) -> anyhow::Result<Exit> {
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

/// Writes the manual page of `gavel` to standard output, or the pages of all commands to a directory.
pub(super) fn man(args: &ManArgs) -> anyhow::Result<Exit> {
    let command = help::complete();
    let Some(dir) = &args.dir else {
        let mut page = Vec::new();
        clap_mangen::Man::new(command)
            .render(&mut page)
            .context("the page cannot be written")?;
        output::file(&page)?;
        return Ok(Exit::Done);
    };
    let wanted = || format!("the pages cannot be written to {}", dir.display());
    std::fs::create_dir_all(dir).with_context(wanted)?;
    clap_mangen::generate_to(command, dir).with_context(wanted)?;
    output::line(&format!("the pages are in {}; the first is gavel.1", dir.display()))?;
    Ok(Exit::Done)
}
