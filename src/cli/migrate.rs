//! `gavel migrate`: migrates the database's schema. `gavel serve` migrates too; this is for operators who migrate
//! separately.

use anyhow::Context;
use secrecy::ExposeSecret;

use crate::adapters::store::{Analyst, MigrationStatus, Store};
use crate::cli::exit::Exit;
use crate::cli::gavel::tenant;
use crate::cli::output;
use crate::config::{Resolved, masked_url};
use crate::domain::ids::TenantId;

/// Options of `gavel migrate`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Only show what is applied and what is pending; exit status 1 if anything is
    #[arg(long)]
    status: bool,
    /// Let this role of PostgreSQL read the analysts' views, and nothing else; create it if it does not exist
    #[arg(long, value_name = "NAME", value_parser = role, conflicts_with = "status")]
    analyst_role: Option<String>,
    /// With --analyst-role: only the rows of this tenant
    #[arg(long, value_name = "NAME", value_parser = tenant, requires = "analyst_role")]
    tenant: Option<TenantId>,
    /// With --analyst-role: without the texts of users, models and tools
    #[arg(long, requires = "analyst_role")]
    no_content: bool,
}

/// With the name of its schema, which begins with `gavel_v1_`, at most 63 bytes.
fn role(name: &str) -> Result<String, String> {
    match name.len() {
        1..=54 if !name.starts_with("pg_") && !name.contains('\0') => Ok(name.to_owned()),
        _ => Err("a role has a name of 1 to 54 bytes that does not begin with pg_".to_owned()),
    }
}

pub(super) async fn run(args: Args, resolved: Resolved) -> anyhow::Result<Exit> {
    let url = resolved.config.database_url.expose_secret();
    let shown = masked_url(url);
    if args.status {
        let status = Store::status(url).await.with_context(|| shown.clone())?;
        output::line(&text(&status))?;
        return Ok(if status.pending.is_empty() && status.has_views {
            Exit::Done
        } else {
            Exit::Failed
        });
    }
    if let Some(name) = args.analyst_role {
        let analyst = Analyst {
            name,
            tenant: args.tenant,
            content: !args.no_content,
        };
        Store::allow(url, &analyst).await.with_context(|| shown.clone())?;
        output::note(&format!(
            "{} may read the views in {}; before it can log in it needs a password: ALTER ROLE … LOGIN PASSWORD '…'",
            output::printable(&analyst.name),
            output::printable(&analyst.schema())
        ));
        return Ok(Exit::Done);
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
    let views = if status.has_views { "applied" } else { "pending" };
    applied
        .chain(pending)
        .chain([format!("   -  {views}  the analysts' views\n")])
        .collect()
}
