//! `gavel doctor`: is everything in place? One line a check: ✓ good, ! odd, ✗ wrong with what to do next.

use std::io;

use secrecy::ExposeSecret;

use super::exit::Exit;
use super::{agents as agents_verb, live, mcp as mcp_verb, output};
use crate::adapters::gemini::CheckError;
use crate::adapters::mcp::{Mcp, ServerState};
use crate::adapters::store::{AuditLog, KEY_IN_DATABASE, KeyPlace, Store, StoreError};
use crate::app;
use crate::config::{Config, ConfigErrors, Provider, Resolved, masked_url};
use crate::domain::definition::{Agents, Checked, Constitution, answerer};
use crate::engine::Toolset;
use crate::http::google::path as callback_path;
use crate::ports::keys::KeySource;
use crate::ports::tools::Tools;

/// What was found so far.
#[derive(Default)]
struct Findings {
    wrong: usize,
}

impl Findings {
    fn good(&self, what: &str) -> anyhow::Result<()> {
        output::line(&format!("✓ {}", output::printable(what)))
    }

    fn odd(&self, what: &str) -> anyhow::Result<()> {
        output::line(&format!("! {}", output::printable(what)))
    }

    /// One of several, of which the last says what to do.
    fn wrong_too(&mut self, what: &str) -> anyhow::Result<()> {
        self.wrong += 1;
        output::line(&format!("✗ {}", output::printable(what)))
    }

    fn wrong(&mut self, what: &str, next: &str) -> anyhow::Result<()> {
        self.wrong += 1;
        output::line(&format!("✗ {}\n    → {next}", output::printable(what)))
    }
}

/// A configuration that stops the start stops the other checks as well.
pub(super) fn refused(errors: &ConfigErrors) -> anyhow::Result<Exit> {
    let mut findings = Findings::default();
    for error in &errors.0 {
        findings.wrong(
            &format!("configuration: {error}"),
            "`gavel config --reference` lists what may be given",
        )?;
    }
    Ok(Exit::Failed)
}

pub(super) async fn run(resolved: Resolved) -> anyhow::Result<Exit> {
    let mut findings = Findings::default();
    let config = &resolved.config;
    let given = resolved
        .origins
        .iter()
        .filter(|effective| !effective.origin.is_default())
        .count();
    findings.good(&format!("configuration: {given} settings given, the rest are defaults"))?;
    for warning in &resolved.warnings {
        findings.odd(&format!("configuration: {warning}"))?;
    }
    address(config, &mut findings).await?;
    let constitution = constitution(config, &mut findings)?;
    policy(config, &mut findings)?;
    database(config, &mut findings).await?;
    audit(config, &mut findings).await?;
    let agents = agents(config, &mut findings)?;
    servers(config, constitution.as_ref(), &agents, &mut findings).await?;
    google(config, &findings)?;
    model(config, &mut findings).await?;
    issuer(config, &mut findings).await?;
    Ok(if findings.wrong == 0 { Exit::Done } else { Exit::Failed })
}

/// Could it be listened on? One that a gavel listens on already is in order: that may well be the one that is looked after.
async fn address(config: &Config, findings: &mut Findings) -> anyhow::Result<()> {
    let listen = config.listen;
    let next = "stop the other program, or name another address with GAVEL_LISTEN";
    match app::listen(listen) {
        Ok(_) if listen.port() == 0 => findings.good(&format!("address: {listen} takes any free port")),
        Ok(_) => findings.good(&format!("address: {listen} is free")),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => match live::ask(listen).await {
            Ok(_) => findings.good(&format!("address: {listen} is in use by a gavel, which answers")),
            Err(error) => findings.wrong(
                &format!("address: {listen} is in use, and not by a gavel: {error}"),
                next,
            ),
        },
        Err(error) => findings.wrong(
            &format!("address: {listen}: {error}"),
            "name an address of this machine with GAVEL_LISTEN, and a port that may be used",
        ),
    }
}

fn constitution(config: &Config, findings: &mut Findings) -> anyhow::Result<Option<Constitution>> {
    match app::constitution(config) {
        Ok(constitution) => {
            let (definition, limits) = (&constitution.definition, &constitution.limits);
            let place = config
                .constitution
                .as_ref()
                .map_or_else(|| "built in".to_owned(), |path| path.display().to_string());
            findings.good(&format!(
                "constitution: {place}, {} tools, {} iterations, {} s",
                definition.tools.len(),
                limits.iterations,
                limits.deadline.as_secs()
            ))?;
            Ok(Some(constitution))
        }
        Err(error) => {
            findings.wrong(&error.to_string(), "correct the file that GAVEL_CONSTITUTION names")?;
            Ok(None)
        }
    }
}

/// As the start looks at it, its tests included.
fn policy(config: &Config, findings: &mut Findings) -> anyhow::Result<()> {
    let Some(path) = &config.policy else {
        return findings.good("policy: none, so definitions and tools' own settings decide");
    };
    match app::policy(config) {
        Ok(policy) => {
            let (rules, tests) = (policy.rules.len() as u64, policy.tests.len() as u64);
            let (rules, tests) = (output::count(rules, "rule"), output::count(tests, "test"));
            findings.good(&format!("policy: {}, {rules}, {tests}", path.display()))
        }
        Err(error) => findings.wrong(
            &error.to_string(),
            "correct the file that GAVEL_POLICY names; `gavel policy test` runs its tests, and gavel serve does not start with this",
        ),
    }
}

async fn database(config: &Config, findings: &mut Findings) -> anyhow::Result<()> {
    let url = config.database_url.expose_secret();
    let shown = masked_url(url);
    match Store::status(url).await {
        Ok(status) if status.pending.is_empty() => match Store::try_write(url).await {
            Ok(()) => findings.good(&format!(
                "database: {shown} can be written, {} migrations applied",
                status.applied.len()
            )),
            Err(error) => findings.wrong(
                &format!("database: {shown} answers, but cannot be written: {error}"),
                "see whether it is full, read only, or locked by another program",
            ),
        },
        Ok(status) => findings.good(&format!(
            "database: {shown}, {} migrations pending; `gavel serve` and `gavel migrate` apply them",
            status.pending.len()
        )),
        Err(error) => findings.wrong(
            &format!("database: {shown}: {error}"),
            match error {
                StoreError::Unavailable(_) => "check DATABASE_URL, and that the database runs",
                _ => "docs/operations.md says how databases and binaries go together",
            },
        ),
    }
}

/// What the audit's chain is worth.
async fn audit(config: &Config, findings: &mut Findings) -> anyhow::Result<()> {
    let (url, keys) = (config.database_url.expose_secret(), app::audit_secrets(config));
    let found = async {
        let mut log = AuditLog::open(url, &keys).await?;
        let found = match log.lost_keys().await {
            Ok(lost) => log.triggers().await.map(|triggers| (lost, triggers)),
            Err(error) => Err(error),
        };
        log.close().await;
        found
    };
    // A database that is unavailable, or was never migrated, was told of.
    let (lost, triggers) = found.await.unwrap_or_default();
    for damage in triggers {
        findings.wrong(
            &format!("audit: {damage}"),
            "find out who changed the database, and run `gavel audit verify`",
        )?;
    }
    for (key, rows) in lost {
        findings.wrong(
            &format!(
                "audit: the key {key} is not there, with which {} were hashed; they cannot be verified",
                output::count(rows.unsigned_abs(), "row")
            ),
            "take it from a backup, and put it into audit.old_keys (GAVEL_AUDIT_OLD_KEYS)",
        )?;
    }
    match AuditLog::key_place(url, &keys) {
        Ok(KeyPlace::Given) => findings.good("audit: chained with audit.key"),
        Ok(KeyPlace::File(path)) if !path.exists() => findings.odd(&format!(
            "audit: its key will be made in {}; where there was one, put it back from a backup before gavel starts",
            path.display()
        )),
        Ok(KeyPlace::File(path)) => {
            let path = path.display();
            findings.good(&format!(
                "audit: chained with the key in {path}; keep a copy of it, and `gavel audit head`, elsewhere"
            ))
        }
        Ok(KeyPlace::Database) => findings.odd(&format!("audit: {KEY_IN_DATABASE}")),
        // The database was told of.
        Err(_) => Ok(()),
    }
}

/// Those that are right; every mistake in the others is told.
fn agents(config: &Config, findings: &mut Findings) -> anyhow::Result<Agents> {
    let loaded = match agents_verb::load(config) {
        Ok(loaded) => loaded,
        Err(error) => {
            let next = "name a folder with GAVEL_AGENTS that gavel may read";
            findings.wrong(&format!("agents: {error:#}"), next)?;
            return Ok(Agents::new());
        }
    };
    let Checked {
        agents,
        errors,
        warnings,
        ..
    } = loaded.checked;
    // In a folder that is only found, gavel serve leaves the wrong ones out.
    let next = match config.agents {
        Some(_) => "`gavel agents validate` tells every mistake; gavel serve does not start with one",
        None => "`gavel agents validate` tells every mistake; the agent is left out, with those that need it",
    };
    for (n, error) in errors.iter().enumerate() {
        let line = format!("agents: {}", agents_verb::told(error));
        // What to do about them is the same for all.
        match n + 1 == errors.len() {
            true => findings.wrong(&line, next)?,
            false => findings.wrong_too(&line)?,
        }
    }
    for warning in &warnings {
        findings.odd(&format!("agents: {}", agents_verb::told(warning)))?;
    }
    if errors.is_empty() {
        let found = agents_verb::count(agents.len(), "agent");
        findings.good(&format!("agents: {found} ({})", loaded.place))?;
    }
    if let Err(why) = answerer(&agents, &config.runs.agent) {
        findings.odd(&format!(
            "threads: nobody answers (runs.agent): {why}; name another with GAVEL_RUNS_AGENT, or put it by the API"
        ))?;
    }
    Ok(agents)
}

async fn servers(
    config: &Config,
    constitution: Option<&Constitution>,
    agents: &Agents,
    findings: &mut Findings,
) -> anyhow::Result<()> {
    let bridge = match app::mcp(config) {
        Ok(bridge) => bridge,
        Err(error) => return findings.wrong(&format!("{error:#}"), "correct the file that GAVEL_MCP_CONFIG names"),
    };
    mcp_verb::settled(&bridge).await;
    let checked = each_server(&bridge, config, findings)
        .and_then(|()| granted(&bridge, constitution, findings))
        .and_then(|()| able(&bridge, agents, config, findings));
    bridge.shutdown().await;
    checked
}

fn each_server(bridge: &Mcp, config: &Config, findings: &mut Findings) -> anyhow::Result<()> {
    let servers = bridge.status();
    if servers.is_empty() {
        findings.odd("MCP servers: none are configured")?;
    }
    for warning in bridge.warnings() {
        findings.odd(&format!("MCP servers: {warning}"))?;
    }
    for server in &servers {
        let line = format!("MCP server {}", mcp_verb::headline(server).trim_end());
        match server.state {
            ServerState::Up => findings.good(&format!("{line}, {} tools", server.tools))?,
            ServerState::Off => findings.odd(&line)?,
            ServerState::Down | ServerState::Connecting => {
                let next = match config.mcp_config {
                    Some(_) => "check its entry in mcp.json; RUST_LOG=info shows what it writes",
                    None => {
                        "it is built in: check the settings it needs (FILES_ROOT for files, TASKS_DATABASE_URL for \
                             tasks, docs/google.md for google); RUST_LOG=info shows what it writes"
                    }
                };
                findings.wrong(&line, next)?;
            }
        }
    }
    for left in &bridge.catalog().left_out {
        findings.odd(&format!(
            "MCP server {}: {} is left out: {}",
            left.server, left.tool, left.reason
        ))?;
    }
    Ok(())
}

/// What the google server's own settings do not fit. Where it is off, or cannot start, its state tells.
fn google(config: &Config, findings: &Findings) -> anyhow::Result<()> {
    let Ok(settings) = app::google(config) else {
        return Ok(());
    };
    if let (Some(file), true) = (
        settings.database_file(),
        config.database_url.expose_secret().starts_with("postgres"),
    ) {
        findings.odd(&format!(
            "google: what was sent stands in the file {}, and the records in PostgreSQL; beside several gavels each would have a file of its \
             own, and not know what the others sent: give GOOGLE_DATABASE_URL one PostgreSQL database for all",
            file.display()
        ))?;
    }
    if let Some(callback) = settings.callback().filter(|url| url.path() != callback_path()) {
        findings.odd(&format!(
            "google: GOOGLE_CALLBACK_URL ends in {}, and gavel answers at {}: unless a proxy leads from one to the other, nobody can come back",
            callback.path(),
            callback_path()
        ))?;
    }
    Ok(())
}

/// What the constitution grants must be offered.
fn granted(bridge: &Mcp, constitution: Option<&Constitution>, findings: &mut Findings) -> anyhow::Result<()> {
    let Some(constitution) = constitution else {
        return Ok(());
    };
    let tools = &constitution.definition.tools;
    let missing = Toolset::build(&bridge.catalog(), tools, &[]).missing;
    if missing.is_empty() {
        return findings.good(&format!(
            "tools: all {} that the constitution grants are offered",
            tools.len()
        ));
    }
    for one in missing {
        let next = "connect a server that offers it, or take it out of the constitution";
        findings.wrong(&format!("tool {}: {}", one.name, one.reason), next)?;
    }
    Ok(())
}

/// An agent that cannot run stops nothing else.
fn able(bridge: &Mcp, agents: &Agents, config: &Config, findings: &Findings) -> anyhow::Result<()> {
    let unavailable = agents_verb::unavailable(agents, &bridge.catalog(), config);
    for (name, reason) in &unavailable {
        findings.odd(&format!("agent {name} is unavailable: {reason}"))?;
    }
    let answers = &config.runs.agent;
    match answerer(agents, answers) {
        Ok(_) if unavailable.iter().any(|(name, _)| *name == answers.as_str()) => findings.odd(&format!(
            "threads: {answers} answers, and is unavailable: what is said in a thread fails until that is mended"
        )),
        Ok(_) => findings.good(&format!("threads: {answers} answers")),
        // It was told of.
        Err(_) => Ok(()),
    }
}

async fn model(config: &Config, findings: &mut Findings) -> anyhow::Result<()> {
    if let Some(other) = &config.model.other {
        one_model(config, other, "other model", findings).await?;
    }
    one_model(config, &config.model.provider, "model", findings).await
}

/// One that is set up; `what` it is.
async fn one_model(config: &Config, provider: &Provider, what: &str, findings: &mut Findings) -> anyhow::Result<()> {
    let gemini = match app::gemini(&config.model, provider) {
        Ok(Some(gemini)) => gemini,
        Ok(None) => {
            let why = match provider {
                Provider::Demo { asked: true } => "it was asked for by name",
                _ => "no credentials are set; GEMINI_API_KEY brings in Gemini",
            };
            return findings.odd(&format!("{what}: the demo model answers: {why}"));
        }
        Err(error) => return findings.wrong(&format!("{what}: {error:#}"), "correct the credentials' settings"),
    };
    match gemini.check().await {
        Ok(info) => {
            let limits = match (info.input_token_limit, info.output_token_limit) {
                (Some(input), Some(output)) => format!(" ({input} tokens in, {output} out)"),
                _ => String::new(),
            };
            findings.good(&format!("{what}: {} answers{limits}", info.model))
        }
        Err(error) => findings.wrong(&format!("{what}: {error}"), cure(&error)),
    }
}

async fn issuer(config: &Config, findings: &mut Findings) -> anyhow::Result<()> {
    let Some(issuer) = app::issuer(config)? else {
        return Ok(());
    };
    let next = "check GAVEL_AUTH_JWT_JWKS_URL, and that the issuer runs";
    match issuer.current().await {
        Ok(set) if set.keys.is_empty() => findings.wrong("issuer: none of its keys can check a token", next),
        Ok(set) => findings.good(&format!("issuer: {} keys that can check tokens", set.keys.len())),
        Err(error) => findings.wrong(&format!("issuer: {error}"), next),
    }
}

fn cure(error: &CheckError) -> &'static str {
    match error {
        CheckError::Credentials(_) => "check GEMINI_API_KEY, or the Google credentials of Vertex AI",
        CheckError::Permission(_) => "allow the API for this key or account in the Google Cloud console",
        CheckError::UnknownModel { .. } => "name a model that exists with GEMINI_MODEL",
        CheckError::Unreachable(_) => "check the network, a proxy, and GEMINI_BASE_URL",
        CheckError::Quota(_) => "wait, or raise the quota of the key",
        CheckError::Unexpected(_) => "check that GEMINI_BASE_URL speaks the Gemini API",
    }
}
