//! `gavel eval` and `gavel agents eval`: the crate `gavel-eval` evaluates a gavel of this process, whose data is in a
//! scratch directory.

use std::env;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use async_trait::async_trait;
use gavel_eval::{Gavel, Request, Scratch, agents, chat};
use serde_json::{Map, Value, json};

use crate::adapters::demo;
use crate::app::{App, BUILT_IN_SERVERS, OwnService};
use crate::cli::client::Client;
use crate::cli::exit::{Exit, Usage};
use crate::cli::interrupt::{or_stopped, unless_stopped, until_interrupted};
use crate::cli::{mcp, output};
use crate::config::{Config, Resolved};
use crate::domain::decision::Outcome;
use crate::domain::ids::TenantId;
use crate::domain::repository::RepositoryPattern;
use crate::ports::tools::{CallReply, Tools};

/// How long a server may take to start.
const SERVERS: Duration = Duration::from_secs(15);

/// Runs `gavel eval`.
pub(super) async fn chat(args: chat::Args, resolved: Resolved) -> anyhow::Result<Exit> {
    let outcomes: Vec<_> = Outcome::ALL.iter().map(|outcome| outcome.as_str()).collect();
    let cases = args.read(&outcomes).map_err(Usage)?;
    let scratch = Scratch::new()?;
    let config = in_scratch(resolved.config, &scratch, None, None)?;
    let app = match args.stand_in().and_then(|(name, seed)| demo::by_name(name, seed)) {
        Some(model) => App::build_with(config, model).await?,
        None => App::build_for_command(config).await?,
    };
    let own = Own::serve(app).await?;
    let evaluated = or_stopped(async {
        let app = own.service.app();
        mcp::settled(&app.mcp).await;
        if let Some(missing) = app.chat.unavailable_tools().first() {
            bail!("the tool {} is not offered: {}", missing.name, missing.reason);
        }
        Ok(args.evaluate(&cases, &own, app.chat.allowlist()).await)
    })
    .await;
    own.close(false).await;
    let report = evaluated?;
    args.write(&report, output::line)?;
    // 2 means invalid usage for every command, so whatever is not met is 1; the message says what.
    Ok(match args.unmet(&report) {
        None => Exit::Done,
        Some(unmet) => {
            output::note(&format!("not met: {unmet}"));
            Exit::Failed
        }
    })
}

/// Runs `gavel agents eval`: the cases of each agent in a gavel of their own.
pub(super) async fn agents(args: agents::Args, resolved: Resolved) -> anyhow::Result<Exit> {
    let files = args.read(resolved.config.mcp_config.as_deref()).map_err(Usage)?;
    let mut tally = agents::Tally::new(&args, &files, output::line);
    // Listens from here on, so that a signal between two cases is received as well.
    let mut stopped = Box::pin(until_interrupted());
    for file in &files {
        let scratch = Scratch::new()?;
        let github = agents::github(file).await?;
        let mut config = resolved.config.clone();
        let repositories = RepositoryPattern::parse(agents::REPOSITORIES).map_err(anyhow::Error::msg)?;
        config.planning.repositories = Some(vec![repositories]);
        let address = config.github.url.to_string();
        let api = github.as_ref().map(|github| github.url());
        let config = in_scratch(config, &scratch, file.root.as_deref(), api.as_deref())?;
        let own = Own::serve(App::build_for_command(config).await?).await?;
        let evaluated = tokio::select! {
            evaluated = tally.evaluate(file, &own, (github.as_ref(), &address)) => evaluated.map(|()| false),
            stopped = &mut stopped => stopped.map(|()| true).map_err(Into::into),
        };
        // The current run is not awaited. A second signal ends it at once.
        let closed = unless_stopped(own.close(!matches!(evaluated, Ok(false)))).await?;
        if evaluated? || closed.is_none() {
            output::note(&tally.interrupted());
            return Ok(Exit::Interrupted);
        }
    }
    Ok(if tally.finish()? { Exit::Done } else { Exit::Failed })
}

/// The configuration with its database in the scratch directory. Unless other servers are configured, it uses the
/// bundled task server with tasks there, the files server on `root`, and the github server on the API at `github`.
fn in_scratch(
    mut config: Config,
    scratch: &Scratch,
    root: Option<&Path>,
    github: Option<&str>,
) -> anyhow::Result<Config> {
    config.database_url = scratch.database_url().into();
    if config.mcp_config.is_none() {
        let program = env::current_exe().context("this program's path is unknown")?;
        let built_in: Value = serde_json::from_str(BUILT_IN_SERVERS).context("the built-in mcp.json")?;
        let github = github.map(|api| {
            let mut server = built_in["mcpServers"]["github"].clone();
            let url = config.github.url.as_str().trim_end_matches('/');
            server["env"] = json!({ "GITHUB_TOKEN": "none-is-needed", "GITHUB_API_URL": api, "GITHUB_URL": url });
            server
        });
        config.mcp_config = Some(scratch.mcp_config(&program, root, github)?);
    }
    Ok(config)
}

/// A gavel of this process, and the client of its API.
struct Own {
    service: OwnService,
    client: Client,
}

impl Own {
    async fn serve(app: App) -> anyhow::Result<Self> {
        let service = OwnService::serve(app, TenantId::parse("default")?, None).await?;
        let client = Client::of_own(&service, None)?;
        Ok(Self { service, client })
    }

    async fn close(self, cut_short: bool) {
        // Ends its connections.
        drop(self.client);
        self.service.close(cut_short).await;
    }
}

#[async_trait]
impl Gavel for Own {
    async fn request(&self, request: Request<'_>) -> anyhow::Result<(u16, Value)> {
        self.client.any(request).await
    }

    async fn call_tool(&self, user: &str, name: &str, mut arguments: Map<String, Value>) -> Result<Value, String> {
        let mcp = &self.service.app().mcp;
        let catalog = mcp.catalog();
        let tool = catalog.tools.iter().find(|tool| *tool.name == *name);
        let tool = tool.ok_or_else(|| format!("no server offers {name}"))?;
        if let Some(identity) = &tool.identity_argument {
            arguments.insert(identity.to_string(), user.into());
        }
        match mcp::direct(mcp, (tool, arguments), user, "eval", None).await {
            CallReply::Data(data) => serde_json::from_str(data.get()).map_err(|error| format!("{name}: {error}")),
            CallReply::NotSent(failure) | CallReply::Failed(failure) | CallReply::Unknown(failure) => {
                Err(format!("{name}: {}: {}", failure.code.as_str(), failure.message))
            }
        }
    }

    async fn ready(&self, tools: &[String]) {
        self.service.app().mcp.ready(tools, Instant::now() + SERVERS).await;
    }
}
