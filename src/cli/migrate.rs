//! `gavel migrate`: migrates the database's schema. `gavel serve` migrates too; this is for operators who migrate
//! separately.

use anyhow::Context;
use secrecy::ExposeSecret;

use crate::adapters::store::{MigrationStatus, Store};
use crate::cli::exit::Exit;
use crate::cli::output;
use crate::config::{Resolved, masked_url};

/// Options of `gavel migrate`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Only show applied and pending migrations; exit status 1 if any is pending
    #[arg(long)]
    status: bool,
}

pub(super) async fn run(args: Args, resolved: Resolved) -> anyhow::Result<Exit> {
    let url = resolved.config.database_url.expose_secret();
    let shown = masked_url(url);
    if args.status {
        let status = Store::status(url).await.with_context(|| shown.clone())?;
        output::line(&text(&status))?;
        return Ok(if status.pending.is_empty() {
            Exit::Done
        } else {
            Exit::Failed
        });
    }
    let status = Store::migrate(url).await.with_context(|| shown.clone())?;
    output::line(&text(&status))?;
    output::note(&format!("{shown} has this version's schema"));
    Ok(Exit::Done)
}

fn text(status: &MigrationStatus) -> String {
    let applied = status
        .applied
        .iter()
        .map(|(version, name)| format!("{version:>4}  applied  {name}\n"));
    let pending = status
        .pending
        .iter()
        .map(|(version, name)| format!("{version:>4}  pending  {name}\n"));
    applied.chain(pending).collect()
}
