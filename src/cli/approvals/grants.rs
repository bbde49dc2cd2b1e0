//! `gavel approvals grants` and `revoke`: list and revoke grants.

use serde_json::Value;

use crate::cli::exit::Exit;
use crate::cli::interrupt::unless_stopped;
use crate::cli::output;
use crate::cli::runs::{Place, Record, Service, Where};
use crate::cli::table::{clipped, table};
use crate::cli::threads::at;
use crate::domain::ids::GrantId;
use crate::ports::records::ListQuery;

/// Options of `gavel approvals grants`.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Args {
    /// Rows per page, 1 to 1000
    #[arg(long, visible_alias = "page-size", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000), value_name = "N")]
    limit: u32,
    /// Continue after the previous page
    #[arg(long, allow_hyphen_values = true, value_name = "TOKEN")]
    page_token: Option<String>,
    /// Print grants as JSON, one per line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    pub(super) place: Where,
}

/// Options of `gavel approvals revoke`.
#[derive(Debug, clap::Args)]
pub(in crate::cli) struct Revoke {
    /// The grant; it no longer applies to any call that has not been checked yet
    #[arg(value_parser = grant)]
    id: GrantId,
    #[command(flatten)]
    pub(super) place: Where,
}

fn grant(text: &str) -> Result<GrantId, &'static str> {
    GrantId::parse(text).ok_or("a grant's id is a UUID; `gavel approvals grants` shows them")
}

pub(super) async fn run(args: &Args, place: Place) -> anyhow::Result<Exit> {
    let query = ListQuery {
        page_size: args.limit,
        page_token: args.page_token.clone(),
        ..ListQuery::default()
    };
    let answering = args.place.answering(&place).await?;
    let record = Record::open(place).await?;
    let page = record.grants(query).await;
    record.close().await;
    let page = page?;
    let grants = page["grants"].as_array().map(Vec::as_slice).unwrap_or_default();
    if args.json {
        for grant in grants {
            output::line(&grant.to_string())?;
        }
    } else if grants.is_empty() {
        output::note("there are no grants");
    } else {
        let rows: Vec<_> = grants.iter().map(row).collect();
        output::line(&table(
            &[
                "grant",
                "user",
                "tool",
                "used",
                "given by",
                "given",
                "state",
                "recipients",
            ],
            &rows,
        ))?;
        if let Some(counts) = grants.iter().find(|grant| !grant["revokedAt"].is_string()) {
            let place = answering.for_call_of(counts["userId"].as_str()).repeated();
            let id = counts["grantId"].as_str().unwrap_or_default();
            output::note(&format!("to revoke a grant: gavel approvals revoke{place} {id}"));
        }
    }
    if let Some(token) = page["next_page_token"].as_str() {
        output::note(&format!("more: the same command with --page-token {token}"));
    }
    Ok(Exit::Done)
}

fn row(grant: &Value) -> Vec<String> {
    let text = |field: &str| grant[field].as_str().unwrap_or_default();
    let recipients = grant["recipientsByArgument"].as_object().into_iter().flatten();
    let recipients: Vec<_> = recipients
        .map(|(argument, addresses)| {
            let addresses = addresses.as_array().into_iter().flatten();
            let addresses: Vec<_> = addresses.filter_map(Value::as_str).collect();
            format!("{argument}: {}", addresses.join(", "))
        })
        .collect();
    vec![
        text("grantId").to_owned(),
        clipped(text("userId"), 24),
        clipped(text("tool"), 32),
        grant["uses"].to_string(),
        clipped(text("createdBy"), 32),
        at(text("createdAt")),
        match grant["revokedAt"].as_str() {
            Some(when) => format!("revoked {}", at(when)),
            None => "counts".to_owned(),
        },
        // Not clipped: the user must see all that the grant covers.
        recipients.join("; "),
    ]
}

pub(super) async fn revoke(args: &Revoke, place: Place) -> anyhow::Result<Exit> {
    let service = Service::open(place).await?;
    let revoked = unless_stopped(service.revoke(args.id)).await;
    service.close(false).await?;
    let Some(revoked) = revoked? else {
        return Ok(Exit::Interrupted);
    };
    revoked?;
    output::line(&format!("grant {} is revoked", args.id))?;
    Ok(Exit::Done)
}
