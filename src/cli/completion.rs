//! `gavel completion`: what a shell needs to know of the command line.

use clap_complete::Shell;

use crate::cli::exit::Exit;
use crate::cli::{help, output};

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
