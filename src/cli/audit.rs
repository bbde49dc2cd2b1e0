//! `gavel audit`: the audit log, read only.

mod export;
mod head;
mod list;
mod verify;

use anyhow::Context;
use secrecy::ExposeSecret;

use super::exit::Exit;
use crate::adapters::store::AuditLog;
use crate::app;
use crate::config::Resolved;

/// The commands of `gavel audit`.
#[derive(Debug, clap::Subcommand)]
#[command(after_long_help = ABOUT)]
pub(super) enum Command {
    /// Verify the chain, and report every row that was changed, removed, moved or added
    Verify(verify::Args),
    /// Write all rows as JSON, one per line, and the head at the end
    Export(export::Args),
    /// Print the head of the chain as NUMBER:HASH, to be kept elsewhere
    Head,
    /// List entries, newest first
    List(list::Args),
}

const ABOUT: &str = "\
Every side effect has two entries, one before it is sent and one when its outcome is known. Approvals, grants, \
settled actions, definitions and cancelled runs have entries too. The database rejects changes to rows. A change \
that bypasses this breaks the chain of keyed hashes, and verify reports where. Only a head that is kept elsewhere \
detects two attacks. One is a change by an attacker who has the key. The other is the removal of the last rows \
with their head. So save a head regularly, with gavel audit head.";

pub(super) async fn run(command: Command, resolved: Resolved) -> anyhow::Result<Exit> {
    if let Command::Verify(args) = &command
        && let Some(path) = &args.export
    {
        return verify::export(args, path, &resolved).await;
    }
    let keys = app::audit_secrets(&resolved.config);
    let log = AuditLog::open(resolved.config.database_url.expose_secret(), &keys).await;
    let mut log = log.context("the audit log cannot be read")?;
    let read = match command {
        Command::Verify(args) => verify::run(&args, &mut log).await,
        Command::Export(args) => export::run(&args, &mut log).await,
        Command::Head => head::run(&mut log).await,
        Command::List(args) => list::run(args, &mut log).await,
    };
    log.close().await;
    read
}
