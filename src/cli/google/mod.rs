//! `gavel google`: users' Google accounts. It talks to Google and to the google server's database; no server has to
//! run.

mod browser;
mod connect;
mod loopback;

use gavel_mcp_google::connect::{Account, Connector, Disconnected};
use serde_json::json;

use super::exit::Exit;
use super::interrupt::unless_stopped;
use super::output;
use super::table::table;
use crate::app;
use crate::config::Resolved;

/// The commands of `gavel google`.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// Connect a user's Google account: prints the address where the user consents, and waits
    Connect(connect::Args),
    /// List the connected accounts
    List(List),
    /// Delete a user's connection, and revoke the consent at Google
    Disconnect(Disconnect),
}

/// Options of `gavel google list`.
#[derive(Debug, clap::Args)]
pub(super) struct List {
    /// Print the accounts as JSON, one per line
    #[arg(long)]
    json: bool,
}

/// Options of `gavel google disconnect`.
#[derive(Debug, clap::Args)]
pub(super) struct Disconnect {
    /// The user's id, as `gavel google list` shows it
    user: String,
}

pub(super) async fn run(command: Command, resolved: Resolved) -> anyhow::Result<Exit> {
    let settings = app::google(&resolved.config)?;
    let connector = Connector::open(&settings).await?;
    let done = unless_stopped(async {
        match command {
            Command::Connect(args) => connect::run(args, &connector).await,
            Command::List(args) => list(&args, &connector).await,
            Command::Disconnect(args) => disconnect(&args, &connector).await,
        }
    });
    let done = done.await;
    connector.close().await;
    done?.unwrap_or(Ok(Exit::Interrupted))
}

/// What to do about a consent that does not cover all requested scopes.
const TICKED: &str = "Actions that need a missing scope do not work; to allow them, run `gavel google connect USER` again and keep every box checked.";

async fn list(args: &List, connector: &Connector) -> anyhow::Result<Exit> {
    let accounts = connector.connected().await?;
    if args.json {
        let document = |account: &Account| {
            json!({
                "user": account.user, "account": account.address, "scopes": account.scopes, "missing": account.missing,
                "connected_at": account.connected_at.text(), "reconnect_required": account.reconnect_required,
            })
        };
        output::json_lines(accounts.iter().map(document))?;
        return Ok(Exit::Done);
    }
    if accounts.is_empty() {
        output::line("no account is connected; `gavel google connect USER` connects one")?;
        return Ok(Exit::Done);
    }
    let row = |account: &Account| {
        let state = match account.lacks() {
            _ if account.reconnect_required => "must be reconnected".to_owned(),
            Some(lacks) => format!("connected, without {lacks}"),
            None => "connected".to_owned(),
        };
        vec![
            account.user.clone(),
            address(account).to_owned(),
            state,
            account.connected_at.text(),
        ]
    };
    let rows: Vec<_> = accounts.iter().map(row).collect();
    output::line(&table(&["user", "account", "state", "since"], &rows))?;
    if accounts
        .iter()
        .any(|account| !account.reconnect_required && account.lacks().is_some())
    {
        output::note(TICKED);
    }
    Ok(Exit::Done)
}

async fn disconnect(args: &Disconnect, connector: &Connector) -> anyhow::Result<Exit> {
    let user = &args.user;
    let error = match connector.disconnect(user).await? {
        Disconnected::TakenBack => {
            output::line(&format!("the account of {user} is disconnected"))?;
            return Ok(Exit::Done);
        }
        Disconnected::Forgotten => format!(
            "error: the account of {user} was deleted here, but Google did not revoke the consent; {user} can revoke it at \
             https://myaccount.google.com/permissions"
        ),
        Disconnected::None => {
            format!("error: {user} has no connected account; `gavel google list` shows connected users")
        }
    };
    output::note(&error);
    Ok(Exit::Failed)
}

/// The account's own address, if Google provides it.
fn address(account: &Account) -> &str {
    account.address.as_deref().unwrap_or("(address unknown)")
}
