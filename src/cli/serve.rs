//! `gavel serve`: the service, until it receives a stop signal.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use secrecy::ExposeSecret;

use crate::adapters::gemini::Endpoint;
use crate::adapters::mcp::{Mcp, ServerState, ServerStatus};
use crate::app::{App, CLOSED, reachable};
use crate::cli::exit::Exit;
use crate::cli::mcp::headline;
use crate::cli::output;
use crate::cli::output::printable;
use crate::cli::stopping::Stopping;
use crate::config::{ApiKey, Auth, Config, Provider, Resolved, masked_url};
use crate::domain::definition::{Agent, Agents, answerer};
use crate::domain::planning_session::TASK_WORKER;
use crate::domain::tool::{ApprovalDefault, Tool};
use crate::ports::tools::{Catalog, Tools};
use crate::surfaces::definitions::FileAgents;

/// How long the list of tools waits for servers that are still connecting.
const SERVERS: Duration = Duration::from_secs(15);

pub(super) async fn run(resolved: Resolved) -> anyhow::Result<Exit> {
    let warnings = resolved.warnings;
    let app = App::build(resolved.config).await?;
    // Before this, a signal ends the process at once; nothing has begun yet.
    let (chat, runs) = (Arc::clone(&app.chat), Arc::clone(&app.runs));
    let stopping = Stopping::listen(app.config.drain_seconds + CLOSED, move || {
        let (requests, runs) = (chat.under_way(), runs.under_way());
        format!("{requests} chat requests, {runs} runs of agents")
    })
    .context("signals cannot be handled")?;
    let mut serving = match app.serve() {
        Ok(serving) => serving,
        Err(error) => {
            app.shutdown(None).await;
            return Err(error);
        }
    };
    tracing::info!(version = env!("CARGO_PKG_VERSION"), address = %serving.address, "gavel is serving");
    let files = app.directory.files();
    tell(&greeting(
        &app.config,
        serving.address,
        &files.agents,
        &files.place,
        &warnings,
    ));
    let mut servers = std::pin::pin!(servers(Arc::clone(&app.mcp), app.chat.allowlist().to_vec(), files));
    let mut logged = false;
    loop {
        tokio::select! {
            error = serving.ended() => {
                app.shutdown(None).await;
                return Err(error);
            }
            tools = &mut servers, if !logged => {
                logged = true;
                tell(&tools);
            }
            () = stopping.stop.cancelled() => break,
        }
    }
    tracing::info!("finishing requests and runs in progress (a second signal stops gavel at once)");
    let shutdown = app.shutdown(Some(serving));
    if stopping.at_once.run_until_cancelled(shutdown).await.is_none() {
        tracing::warn!("stopped at once; recovery at the next start closes what was in progress");
        return Ok(Exit::Interrupted);
    }
    Ok(Exit::Done)
}

/// A service continues even if its output is not read.
fn tell(text: &str) {
    if let Err(error) = output::line(text) {
        tracing::debug!(%error, "the greeting could not be written");
    }
}

/// Waits for the servers, then lists their tools.
async fn servers(mcp: Arc<Mcp>, names: Vec<String>, files: Arc<FileAgents>) -> String {
    mcp.ready(&names, Instant::now() + SERVERS).await;
    tools(&mcp.status(), &mcp.catalog(), &files.agents)
}

/// Version, address, callers, model, database, agents, the console, and a command to paste.
fn greeting(config: &Config, address: SocketAddr, agents: &Agents, place: &str, warnings: &[String]) -> String {
    let mut lines = vec![
        format!("gavel {} on http://{}", env!("CARGO_PKG_VERSION"), reachable(address)),
        format!("  callers   {}", callers(&config.auth)),
        format!("  model     {}", model(config)),
        format!("  database  {}", masked_url(config.database_url.expose_secret())),
        format!("  agents    {} ({place}); `gavel agents list` shows them", agents.len()),
        format!("  console   http://{}/console", reachable(address)),
    ];
    // They are in the log too, which a program reads.
    lines.extend(
        warnings
            .iter()
            .map(|warning| format!("  warning   {}", printable(warning))),
    );
    lines.push(String::new());
    let (key, user) = credentials(&config.auth);
    let adds = |agent: &Agent| agent.definition.tools.iter().any(|tool| tool.ends_with("add_task"));
    if answerer(agents, &config.runs.threads.agent).is_ok_and(adds) {
        lines.push("Try a thread, whose actions can wait for an approval:".to_owned());
        let acting = if user.is_empty() {
            ""
        } else {
            " -H 'x-gavel-user: local'"
        };
        let prompt = r#""prompt":"add a task to call mom""#;
        lines.push(paste(address, "/api/agent/run", &format!("{key}{acting}"), prompt));
        lines.push("Try chat, which acts at once:".to_owned());
    } else {
        lines.push("Try it:".to_owned());
    }
    let message = format!(r#""message":"add a task to call mom"{user}"#);
    lines.push(paste(address, "/v1/chat", key, &message));
    if !agents.is_empty() {
        lines.push(format!(
            "  curl -s {}/api/projects/default/agents{key}",
            reachable(address)
        ));
    }
    lines.join("\n") + "\n"
}

/// Who may call.
pub(crate) fn callers(auth: &Auth) -> String {
    match auth {
        Auth::None => "any user of this machine (auth.mode = none)".to_owned(),
        Auth::ApiKeys(keys) => {
            let named = |key: &ApiKey| match &key.user {
                Some(user) => format!("{} (only for {user})", key.name),
                None => key.name.clone(),
            };
            let names: Vec<_> = keys.iter().map(named).collect();
            format!("with a key: {}", names.join(", "))
        }
        Auth::Jwt(jwt) => format!("users with a token of {}", jwt.issuer),
    }
}

fn model(config: &Config) -> String {
    let at = |endpoint: &Endpoint| format!("{} ({endpoint})", config.model.name);
    let default = match &config.model.provider {
        Provider::Demo { by_name: true } => {
            "demo, a rule-based model for trials and tests; it understands little and is not Gemini".to_owned()
        }
        Provider::Demo { by_name: false } => "demo, since no credentials are set: a rule-based model that understands \
                                            little and is not Gemini. Set GEMINI_API_KEY for Gemini"
            .to_owned(),
        Provider::Gemini(endpoint) => at(endpoint),
    };
    match &config.model.other {
        Some(other) => format!("{default}; for agents that name it: {}", at(other)),
        None => default,
    }
}

/// The tools of each server, or why it has none.
fn tools(servers: &[ServerStatus], catalog: &Catalog, agents: &Agents) -> String {
    let is_off = |server: &&ServerStatus| server.state == ServerState::Off;
    let off: Vec<&str> = servers.iter().filter(is_off).map(|server| &*server.name).collect();
    let mut lines: Vec<String> = servers
        .iter()
        .filter(|server| !is_off(server))
        .map(|server| {
            let own = catalog.tools.iter().filter(|tool| tool.server == server.name);
            let names: Vec<&str> = own.map(|tool| tool.name.as_ref()).collect();
            // Its tools are listed shortly before its state changes to connected.
            let line = match names.is_empty() {
                false => printable(&format!("{}: {}", server.name, names.join(", "))),
                true => headline(server),
            };
            format!("  {}", line.trim_end().replace('\n', " "))
        })
        .collect();
    lines.extend(catalog.left_out.iter().map(|left| {
        printable(&format!(
            "  {} / {} is left out: {}",
            left.server, left.tool, left.reason
        ))
    }));
    lines.extend(
        unbound(catalog, agents)
            .iter()
            .map(|(tool, server)| printable(&format!("  {server}: {}", not_bound(tool)))),
    );
    if !off.is_empty() {
        let off = printable(&format!("  off: {}", off.join(", ")));
        lines.push(format!("{off}; `gavel mcp list` says why"));
    }
    if lines.is_empty() {
        "Tools: no MCP servers are configured\n".to_owned()
    } else {
        format!("Tools:\n{}\n", lines.join("\n"))
    }
}

/// The tools of planning sessions that have side effects and no `scope`, each with its server. Not those that ask in any
/// case.
pub(crate) fn unbound(catalog: &Catalog, agents: &Agents) -> Vec<(String, String)> {
    let worker = agents.get(TASK_WORKER).map(|agent| &agent.definition.tools);
    let is_listed = |tool: &&Arc<Tool>| worker.is_some_and(|tools| tools.iter().any(|name| tool.is_called(name)));
    let is_open = |tool: &&Arc<Tool>| !tool.is_bound && tool.settings.approval != Some(ApprovalDefault::Required);
    let tools = catalog.tools.iter().filter(|tool| tool.side_effect).filter(is_open);
    let all = tools
        .filter(is_listed)
        .map(|tool| (tool.name.to_string(), tool.server.to_string()));
    all.collect()
}

/// What an operator should know of such a tool.
pub(crate) fn not_bound(tool: &str) -> String {
    format!(
        "{tool} is not bound to a planning session, so each of its calls asks a person; give it a `scope` in mcp.json, or set \
         `trustHints` if its server is trusted to name one"
    )
}

/// A command to paste on the machine that gavel runs on.
fn paste(address: SocketAddr, path: &str, headers: &str, body: &str) -> String {
    format!(
        "  curl -s {}{path}{headers} -H 'content-type: application/json' -d '{{{body}}}'",
        reachable(address)
    )
}

/// A header, and the body field that names the user if no token does.
fn credentials(auth: &Auth) -> (&'static str, &'static str) {
    match auth {
        Auth::None => ("", r#","user_id":"local""#),
        Auth::ApiKeys(_) => (" -H \"authorization: Bearer $GAVEL_API_KEY\"", r#","user_id":"local""#),
        Auth::Jwt(_) => (" -H \"authorization: Bearer $TOKEN\"", ""),
    }
}

#[cfg(test)]
mod banner_tests {
    use super::*;
    use crate::config::Sources;
    use crate::domain::definition::{Form, Source, check};

    fn config(environment: &[(&str, &str)]) -> Config {
        let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let sources = Sources {
            flags: Default::default(),
            environment: environment.iter().map(own).collect(),
            dotenv: Default::default(),
            file: None,
            read_file: &|_| Err(std::io::ErrorKind::NotFound.into()),
        };
        Config::resolve(sources).unwrap().config
    }

    /// One agent, `todo`.
    fn agents() -> Agents {
        let source = Source {
            file: "agents/todo.yaml".to_owned(),
            form: Form::Yaml,
            bytes: b"name: todo\ndescription: d\nsystemPrompt: s\ntools: [add_task]\n".to_vec(),
        };
        let checked = check(&[source], &[]);
        assert_eq!(checked.errors, []);
        checked.agents
    }

    /// The thread first: what it offers waits for an approval.
    #[test]
    fn the_greeting_offers_a_thread_if_an_agent_answers_there() {
        let address = "127.0.0.1:8080".parse().unwrap();
        let greeting = greeting(
            &config(&[("GAVEL_RUNS_AGENT", "todo")]),
            address,
            &agents(),
            "agents",
            &[],
        );
        let thread = r#"curl -s localhost:8080/api/agent/run -H 'x-gavel-user: local' -H 'content-type: application/json' -d '{"prompt":"add a task to call mom"}'"#;
        let (before, after) = greeting.split_once(thread).unwrap_or_else(|| panic!("{greeting}"));
        assert!(
            before.ends_with("Try a thread, whose actions can wait for an approval:\n  "),
            "{greeting}"
        );
        assert!(after.contains("/v1/chat"), "{greeting}");
    }

    #[test]
    fn the_greeting_says_aloud_that_the_demo_model_answers_and_how_to_try_it() {
        let greeting = greeting(
            &config(&[]),
            "127.0.0.1:8080".parse().unwrap(),
            &agents(),
            "built in",
            &[],
        );
        assert!(
            greeting.ends_with("\n  curl -s localhost:8080/api/projects/default/agents\n"),
            "{greeting}"
        );
        assert!(greeting.contains("demo, since no credentials are set"));
        assert!(greeting.contains("\n  agents    1 (built in); "), "{greeting}");
        assert!(greeting.contains("\n  console   http://localhost:8080/console\n"));
        assert!(greeting.contains(
            r#"curl -s localhost:8080/v1/chat -H 'content-type: application/json' -d '{"message":"add a task to call mom","user_id":"local"}'"#
        ));
    }

    #[test]
    fn the_greeting_shows_no_secret() {
        let config = config(&[
            ("GEMINI_API_KEY", "canary"),
            ("DATABASE_URL", "postgres://me:canary@db/x"),
        ]);
        let greeting = greeting(
            &config,
            "[::]:1".parse().unwrap(),
            &Agents::default(),
            "none",
            &["environment GAVEL_LISTN: gavel has no such setting".to_owned()],
        );
        assert!(!greeting.contains("canary"), "{greeting}");
        assert!(greeting.contains("http://localhost:1"));
        assert!(
            greeting.contains("\n  warning   environment GAVEL_LISTN: "),
            "{greeting}"
        );
    }
}
