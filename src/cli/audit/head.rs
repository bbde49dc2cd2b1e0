//! `gavel audit head`: one line to keep elsewhere.

use anyhow::Context;

use crate::adapters::store::AuditLog;
use crate::cli::exit::Exit;
use crate::cli::output;

pub(super) async fn run(log: &mut AuditLog) -> anyhow::Result<Exit> {
    let head = log.head().await?;
    let head = head.context("audit_head has no row; `gavel audit verify` shows details")?;
    output::line(&head.to_string())?;
    Ok(Exit::Done)
}
