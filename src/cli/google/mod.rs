//! `gavel google`: users' Google accounts. It talks to Google and to the google server's database; no server has to
//! run.

use std::env;
use std::net::Ipv4Addr;
use std::process::{self, Stdio};
use std::time::Duration;

use anyhow::{Context, bail};
use gavel_mcp_google::connect::{Account, Connector, Disconnected, SETTLED_WITHIN};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;
use url::form_urlencoded;

use crate::app;
use crate::cli::exit::Exit;
use crate::cli::interrupt::or_stopped;
use crate::cli::list::{Column, table_of};
use crate::cli::output;
use crate::config::Resolved;
use crate::http::google::{connected, page};

/// The commands of `gavel google`.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// Connect a user's Google account: prints the address where the user consents, and waits
    Connect(Connect),
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
    let done = or_stopped(async {
        match command {
            Command::Connect(args) => connect(args, &connector).await,
            Command::List(args) => list(&args, &connector).await,
            Command::Disconnect(args) => disconnect(&args, &connector).await,
        }
    });
    let done = done.await;
    connector.close().await;
    done
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
    output::line(&table_of(COLUMNS, &accounts))?;
    if accounts
        .iter()
        .any(|account| !account.reconnect_required && account.lacks().is_some())
    {
        output::note(TICKED);
    }
    Ok(Exit::Done)
}

const COLUMNS: &[Column<Account>] = &[
    ("user", |account| account.user.clone()),
    ("account", |account| address(account).to_owned()),
    ("state", |account| match account.lacks() {
        _ if account.reconnect_required => "must be reconnected".to_owned(),
        Some(lacks) => format!("connected, without {lacks}"),
        None => "connected".to_owned(),
    }),
    ("since", |account| account.connected_at.text()),
];

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

/// Tries to open `url`. The address was printed before, so a failure loses nothing.
fn open_browser(url: &str) {
    let remote = env::var_os("SSH_CONNECTION").is_some();
    let opener = if cfg!(target_os = "macos") {
        "open"
    } else if env::var_os("DISPLAY").is_some() || env::var_os("WAYLAND_DISPLAY").is_some() {
        "xdg-open"
    } else {
        return;
    };
    if remote {
        return;
    }
    let started = process::Command::new(opener)
        .arg(url)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    if let Err(error) = started {
        tracing::debug!(%error, opener, "no browser was opened");
    }
}

/// The longest request head that is read, in bytes.
const MAX_HEAD: usize = 16 * 1024;
/// A silent connection must not block the browser's.
const HEAD_TIME: Duration = Duration::from_secs(5);

struct Loopback {
    listener: TcpListener,
    port: u16,
}

/// The returned browser, which waits for an answer.
struct Browser(TcpStream);

impl Loopback {
    async fn listen(port: u16) -> anyhow::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await;
        let listener = listener.with_context(|| format!("cannot listen on 127.0.0.1:{port}; name another --port"))?;
        let port = listener.local_addr()?.port();
        Ok(Self { listener, port })
    }

    fn redirect_uri(&self) -> String {
        format!("http://127.0.0.1:{}/", self.port)
    }

    /// Waits for the browser with this state. Without a code, the user declined. Other requests are rejected.
    async fn returned(&self, state: &str) -> anyhow::Result<(Option<String>, Browser)> {
        loop {
            let (stream, _) = self.listener.accept().await.context("the listener failed")?;
            let mut browser = Browser(stream);
            let Ok(Some(target)) = tokio::time::timeout(HEAD_TIME, browser.target()).await else {
                continue;
            };
            let query = target.split_once('?').map_or("", |(_, query)| query);
            let given = |wanted: &str| {
                let mut values = form_urlencoded::parse(query.as_bytes()).filter(|(name, _)| name == wanted);
                values.next().map(|(_, value)| value.into_owned())
            };
            if given("state").as_deref() == Some(state) {
                return Ok((given("code"), browser));
            }
            browser.answer("404 Not Found", "There is nothing here.").await;
        }
    }
}

impl Browser {
    /// The target of its request; `None` if that is not a GET.
    async fn target(&mut self) -> Option<String> {
        let mut head = Vec::new();
        while !head.windows(4).any(|end| end == b"\r\n\r\n") {
            if head.len() > MAX_HEAD || self.0.read_buf(&mut head).await.ok()? == 0 {
                return None;
            }
        }
        let line = std::str::from_utf8(head.split(|byte| *byte == b'\r').next()?).ok()?;
        let target = line.strip_prefix("GET ")?.strip_suffix(" HTTP/1.1")?;
        Some(target.to_owned())
    }

    async fn tell(self, words: &str) {
        self.answer("200 OK", words).await;
    }

    /// A browser that has disconnected misses nothing: the terminal shows the same.
    async fn answer(mut self, status: &str, words: &str) {
        let body = page(words);
        let answer = format!(
            "HTTP/1.1 {status}\r\ncontent-type: text/html; charset=utf-8\r\ncontent-length: {}\r\ncache-control: no-store\r\n\
             content-security-policy: default-src 'none'; frame-ancestors 'none'\r\nreferrer-policy: no-referrer\r\n\
             connection: close\r\n\r\n{body}",
            body.len()
        );
        let sent = async {
            self.0.write_all(answer.as_bytes()).await?;
            self.0.shutdown().await
        };
        if let Err(error) = sent.await {
            tracing::debug!(%error, "the answer to the browser could not be sent");
        }
    }
}

/// Options of `gavel google connect`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = CONNECT_EXAMPLES)]
pub(super) struct Connect {
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

const CONNECT_EXAMPLES: &str = "\
Examples:
  gavel google connect ann
    opens a browser here, and listens on 127.0.0.1 (client type: Desktop app)
  GOOGLE_CALLBACK_URL=https://gavel.example/oauth/google/callback gavel google connect ann
    prints an address for Ann's own browser, which returns to `gavel serve`

Any person who opens the address can connect an account, so give it only to that user. It is valid once, for ten minutes.";

/// How long an authorization is valid.
const PATIENCE: Duration = Duration::from_secs(10 * 60);
const BETWEEN_LOOKS: Duration = Duration::from_millis(500);

async fn connect(args: Connect, connector: &Connector) -> anyhow::Result<Exit> {
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
async fn here(args: &Connect, connector: &Connector) -> anyhow::Result<Account> {
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
async fn at_callback(args: &Connect, connector: &Connector, callback: &str) -> anyhow::Result<Account> {
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

fn show(args: &Connect, url: &str, open: bool) -> anyhow::Result<()> {
    output::note(&format!("Open this address as the user {}, and consent:", args.user));
    output::line(url)?;
    output::note("Waiting for the consent, for ten minutes at most.");
    if open && output::person_reads_notes() {
        open_browser(url);
    }
    Ok(())
}
