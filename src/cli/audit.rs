//! `gavel audit`: the chain of what was done, read only.

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

/// What to do with the audit.
#[derive(Debug, clap::Subcommand)]
#[command(after_long_help = ABOUT)]
pub(super) enum Verb {
    /// Verify the chain, and name every row that was changed, removed, moved or added
    Verify(verify::Args),
    /// Write all rows as JSON, one a line, and the head at the end
    Export(export::Args),
    /// Print the head of the chain as NUMBER:HASH, to be kept elsewhere
    Head,
    /// List what was done, newest first
    List(list::Args),
}

const ABOUT: &str = "\
Every side effect is entered twice, before it is sent and when its outcome is known; so are approvals, grants, \
settled doubts, definitions and cancelled runs. The database refuses to change a row. Whoever gets around that \
breaks the chain of keyed hashes, and verify says where. Who has the key, or cuts rows off at the end together \
with the head, is found out only by a head that was kept elsewhere: print one now and then with gavel audit head.";

pub(super) async fn run(verb: Verb, resolved: Resolved) -> anyhow::Result<Exit> {
    if let Verb::Verify(args) = &verb
        && let Some(path) = &args.export
    {
        return verify::export(args, path, &resolved).await;
    }
    let keys = app::audit_secrets(&resolved.config);
    let log = AuditLog::open(resolved.config.database_url.expose_secret(), &keys).await;
    let mut log = log.context("the audit cannot be read")?;
    let read = match verb {
        Verb::Verify(args) => verify::run(&args, &mut log).await,
        Verb::Export(args) => export::run(&args, &mut log).await,
        Verb::Head => head::run(&mut log).await,
        Verb::List(args) => list::run(args, &mut log).await,
    };
    log.close().await;
    read
}
