//! `gavel google connect`.

use std::time::Duration;

use anyhow::bail;
use gavel_mcp_google::connect::{Account, Connector, SETTLED_WITHIN};
use tokio::time::Instant;

use super::loopback::Loopback;
use super::{TICKED, address, browser};
use crate::cli::exit::Exit;
use crate::cli::output;
use crate::http::google::connected;

/// Options of `gavel google connect`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
pub(crate) struct Args {
    /// The user's id, as callers name it to gavel; TENANT/USER for a user of a tenant other than default
    user: String,
    /// Listen on this machine for the returning browser, even if a callback is configured
    #[arg(long)]
    here: bool,
    /// The port to listen on; 0 uses a free one
    #[arg(long, default_value_t = 0)]
    port: u16,
    /// Do not open a browser
    #[arg(long)]
    no_browser: bool,
}

const EXAMPLES: &str = "\
Examples:
  gavel google connect ann
    opens a browser here, and listens on 127.0.0.1 (client type: Desktop app)
  GOOGLE_CALLBACK_URL=https://gavel.example/oauth/google/callback gavel google connect ann
    prints an address for Ann's own browser, which returns to `gavel serve`

Any person who opens the address can connect an account, so give it only to that user. It is valid once, for ten minutes.";

/// How long an authorization is valid.
const PATIENCE: Duration = Duration::from_secs(10 * 60);
const BETWEEN_LOOKS: Duration = Duration::from_millis(500);

pub(super) async fn run(args: Args, connector: &Connector) -> anyhow::Result<Exit> {
    let account = match connector.callback().map(str::to_owned) {
        Some(callback) if !args.here => at_callback(&args, connector, &callback).await?,
        _ => here(&args, connector).await?,
    };
    let lacks = account.lacks().map(|lacks| format!(", but without {lacks}"));
    let lacks = lacks.unwrap_or_default();
    let line = format!("{} is connected for {}{lacks}", address(&account), account.user);
    output::line(&line)?;
    if !lacks.is_empty() {
        output::note(TICKED);
    }
    Ok(Exit::Done)
}

/// Connects with a listener of this process: the browser returns here.
async fn here(args: &Args, connector: &Connector) -> anyhow::Result<Account> {
    let loopback = Loopback::listen(args.port).await?;
    let begun = connector.begin(&args.user, &loopback.redirect_uri()).await?;
    show(args, &begun.url, !args.no_browser)?;
    let Ok(returned) = tokio::time::timeout(PATIENCE, loopback.returned(&begun.state)).await else {
        bail!("consent was not given within ten minutes; run the command again");
    };
    let (code, browser) = returned?;
    let Some(code) = code else {
        browser
            .tell("No account was connected, since consent was not given. You can close this page.")
            .await;
        bail!("consent was not given");
    };
    let finished = connector.finish(&args.user, &begun.state, &code).await;
    let words = match &finished {
        Ok(account) => connected(address(account), &account.user, account.lacks().as_deref()),
        Err(_) => "No account was connected; the terminal says why.".to_owned(),
    };
    browser.tell(&words).await;
    Ok(finished?)
}

/// Connects through a `gavel serve`: the browser returns there, the service stores the connection, and this process
/// polls the database.
async fn at_callback(args: &Args, connector: &Connector, callback: &str) -> anyhow::Result<Account> {
    let before = connection(connector, &args.user)
        .await?
        .map(|account| account.connected_at);
    let begun = connector.begin(&args.user, callback).await?;
    // The consenting user is rarely at this terminal.
    show(args, &begun.url, false)?;
    let end = Instant::now() + PATIENCE;
    let mut used = None;
    while Instant::now() < end {
        tokio::time::sleep(BETWEEN_LOOKS).await;
        if let Some(account) = connection(connector, &args.user).await?
            && Some(account.connected_at) != before
        {
            return Ok(account);
        }
        if used.is_none() && !connector.waits(&args.user, &begun.state).await? {
            used = Some(Instant::now());
        }
        if used.is_some_and(|since| since.elapsed() > SETTLED_WITHIN) {
            bail!(
                "no account was connected: consent was declined, Google refused it, or another authorization was begun. The page that \
                 {} returned to shows the reason, and so does the log of `gavel serve`. Run the command again",
                args.user
            );
        }
    }
    bail!(
        "no browser returned to {callback} within ten minutes; check that it is this gavel's, with the same google database, and run the command again"
    )
}

async fn connection(connector: &Connector, user: &str) -> anyhow::Result<Option<Account>> {
    let accounts = connector.connected().await?;
    Ok(accounts.into_iter().find(|account| account.user == user))
}

fn show(args: &Args, url: &str, open: bool) -> anyhow::Result<()> {
    output::note(&format!("Open this address as the user {}, and consent:", args.user));
    output::line(url)?;
    output::note("Waiting for the consent, for ten minutes at most.");
    if open && output::person_reads_notes() {
        browser::open(url);
    }
    Ok(())
}
