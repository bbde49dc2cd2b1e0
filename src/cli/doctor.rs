//! `gavel doctor`: checks that everything is in place. One line per check: ✓ ok, ! warning, ✗ error with what to do
//! next.

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

/// The findings so far.
#[derive(Default)]
struct Findings {
    wrong: usize,
}

impl Findings {
    fn good(&self, what: &str) -> anyhow::Result<()> {
        output::line(&format!("✓ {}", output::printable(what)))
    }

    fn warn(&self, what: &str) -> anyhow::Result<()> {
        output::line(&format!("! {}", output::printable(what)))
    }

    /// One of several errors; the last one says what to do.
    fn wrong_too(&mut self, what: &str) -> anyhow::Result<()> {
        self.wrong += 1;
        output::line(&format!("✗ {}", output::printable(what)))
    }

    fn wrong(&mut self, what: &str, next: &str) -> anyhow::Result<()> {
        self.wrong += 1;
        output::line(&format!("✗ {}\n    → {next}", output::printable(what)))
    }
}

/// Reports an invalid configuration, which also prevents the other checks.
pub(super) fn refused(errors: &ConfigErrors) -> anyhow::Result<Exit> {
    let mut findings = Findings::default();
    for error in &errors.0 {
        findings.wrong(
            &format!("configuration: {error}"),
            "`gavel config --reference` lists the settings",
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
    findings.good(&format!(
        "configuration: {given} settings are set, the rest are defaults"
    ))?;
    for warning in &resolved.warnings {
        findings.warn(&format!("configuration: {warning}"))?;
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

/// Can gavel listen on the address? An address that a gavel already uses is fine: it may be the service under
/// inspection.
async fn address(config: &Config, findings: &mut Findings) -> anyhow::Result<()> {
    let listen = config.listen;
    let next = "stop the other program, or set GAVEL_LISTEN to another address";
    match app::listen(listen) {
        Ok(_) if listen.port() == 0 => findings.good(&format!("address: {listen} uses any free port")),
        Ok(_) => findings.good(&format!("address: {listen} is free")),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => match live::ask(listen).await {
            Ok(_) => findings.good(&format!("address: {listen} is in use by a gavel that answers")),
            Err(error) => findings.wrong(
                &format!("address: {listen} is in use, and not by a gavel: {error}"),
                next,
            ),
        },
        Err(error) => findings.wrong(
            &format!("address: {listen}: {error}"),
            "set GAVEL_LISTEN to an address of this machine and a port that gavel may use",
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

/// The same check as at the start of the service, including the policy's tests.
fn policy(config: &Config, findings: &mut Findings) -> anyhow::Result<()> {
    let Some(path) = &config.policy else {
        return findings.good("policy: none, so agent definitions and tool settings decide");
    };
    match app::policy(config) {
        Ok(policy) => {
            let (rules, tests) = (policy.rules.len() as u64, policy.tests.len() as u64);
            let (rules, tests) = (output::count(rules, "rule"), output::count(tests, "test"));
            findings.good(&format!("policy: {}, {rules}, {tests}", path.display()))
        }
        Err(error) => findings.wrong(
            &error.to_string(),
            "correct the file that GAVEL_POLICY names; `gavel policy test` runs its tests; gavel serve rejects this file",
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
                "check whether it is full, read-only, or locked by another program",
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
                _ => "docs/operations.md describes which binaries fit which databases",
            },
        ),
    }
}

/// Checks the audit log's keys and triggers.
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
    // A database that is unavailable, or was never migrated, has been reported already.
    let (lost, triggers) = found.await.unwrap_or_default();
    for damage in triggers {
        findings.wrong(
            &format!("audit: {damage}"),
            "find out what changed the database, and run `gavel audit verify`",
        )?;
    }
    for (key, rows) in lost {
        findings.wrong(
            &format!(
                "audit: the key {key} is missing; {} hashed with it cannot be verified",
                output::count(rows.unsigned_abs(), "row")
            ),
            "restore it from a backup into audit.old_keys (GAVEL_AUDIT_OLD_KEYS)",
        )?;
    }
    match AuditLog::key_place(url, &keys) {
        Ok(KeyPlace::Given) => findings.good("audit: chained with audit.key"),
        Ok(KeyPlace::File(path)) if !path.exists() => findings.warn(&format!(
            "audit: its key will be created in {}; if there was a key before, restore it from a backup before gavel starts",
            path.display()
        )),
        Ok(KeyPlace::File(path)) => {
            let path = path.display();
            findings.good(&format!(
                "audit: chained with the key in {path}; keep copies of it and of the output of `gavel audit head` elsewhere"
            ))
        }
        Ok(KeyPlace::Database) => findings.warn(&format!("audit: {KEY_IN_DATABASE}")),
        // The database error has been reported already.
        Err(_) => Ok(()),
    }
}

/// Returns the valid agents; reports every error in the others.
fn agents(config: &Config, findings: &mut Findings) -> anyhow::Result<Agents> {
    let loaded = match agents_verb::load(config) {
        Ok(loaded) => loaded,
        Err(error) => {
            let next = "set GAVEL_AGENTS to a directory that gavel can read";
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
    // In a directory that no setting names, gavel serve omits invalid agents.
    let next = match config.agents {
        Some(_) => "`gavel agents validate` shows every error; gavel serve does not start with one",
        None => "`gavel agents validate` shows every error; the agent is left out, and so are agents that need it",
    };
    for (n, error) in errors.iter().enumerate() {
        let line = format!("agents: {}", agents_verb::render_error(error));
        // The remedy is the same for all errors.
        match n + 1 == errors.len() {
            true => findings.wrong(&line, next)?,
            false => findings.wrong_too(&line)?,
        }
    }
    for warning in &warnings {
        findings.warn(&format!("agents: {}", agents_verb::render_error(warning)))?;
    }
    if errors.is_empty() {
        let found = agents_verb::count(agents.len(), "agent");
        findings.good(&format!("agents: {found} ({})", loaded.place))?;
    }
    if let Err(why) = answerer(&agents, &config.runs.agent) {
        findings.warn(&format!(
            "threads: no agent answers (runs.agent): {why}; set GAVEL_RUNS_AGENT to another agent, or create it through the API"
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
        findings.warn("MCP servers: none are configured")?;
    }
    for warning in bridge.warnings() {
        findings.warn(&format!("MCP servers: {warning}"))?;
    }
    for server in &servers {
        let line = format!("MCP server {}", mcp_verb::headline(server).trim_end());
        match server.state {
            ServerState::Up => findings.good(&format!("{line}, {} tools", server.tools))?,
            ServerState::Off => findings.warn(&line)?,
            ServerState::Down | ServerState::Connecting => {
                let next = match config.mcp_config {
                    Some(_) => "check its entry in mcp.json; RUST_LOG=info shows its output",
                    None => {
                        "it is built in: check its settings (FILES_ROOT for files, TASKS_DATABASE_URL for \
                             tasks, docs/google.md for google); RUST_LOG=info shows its output"
                    }
                };
                findings.wrong(&line, next)?;
            }
        }
    }
    for left in &bridge.catalog().left_out {
        findings.warn(&format!(
            "MCP server {}: {} is left out: {}",
            left.server, left.tool, left.reason
        ))?;
    }
    Ok(())
}

/// Checks the google server's settings. If it is off, or cannot start, its state reports that.
fn google(config: &Config, findings: &Findings) -> anyhow::Result<()> {
    let Ok(settings) = app::google(config) else {
        return Ok(());
    };
    if let (Some(file), true) = (
        settings.database_file(),
        config.database_url.expose_secret().starts_with("postgres"),
    ) {
        findings.warn(&format!(
            "google: sent actions are recorded in the file {}, but decisions in PostgreSQL; with several gavels each would have its \
             own file and not know what the others sent: set GOOGLE_DATABASE_URL to one PostgreSQL database for all",
            file.display()
        ))?;
    }
    if let Some(callback) = settings.callback().filter(|url| url.path() != callback_path()) {
        findings.warn(&format!(
            "google: GOOGLE_CALLBACK_URL ends in {}, but gavel answers at {}: unless a proxy maps one to the other, browsers cannot return",
            callback.path(),
            callback_path()
        ))?;
    }
    Ok(())
}

/// Checks that servers offer the tools that the constitution grants.
fn granted(bridge: &Mcp, constitution: Option<&Constitution>, findings: &mut Findings) -> anyhow::Result<()> {
    let Some(constitution) = constitution else {
        return Ok(());
    };
    let tools = &constitution.definition.tools;
    let missing = Toolset::build(&bridge.catalog(), tools, &[]).missing;
    if missing.is_empty() {
        return findings.good(&format!(
            "tools: all {} granted by the constitution are offered",
            tools.len()
        ));
    }
    for one in missing {
        let next = "connect a server that offers it, or remove it from the constitution";
        findings.wrong(&format!("tool {}: {}", one.name, one.reason), next)?;
    }
    Ok(())
}

/// Reports unavailable agents as warnings: an unavailable agent stops nothing else.
fn able(bridge: &Mcp, agents: &Agents, config: &Config, findings: &Findings) -> anyhow::Result<()> {
    let unavailable = agents_verb::unavailable(agents, &bridge.catalog(), config);
    for (name, reason) in &unavailable {
        findings.warn(&format!("agent {name} is unavailable: {reason}"))?;
    }
    let answers = &config.runs.agent;
    match answerer(agents, answers) {
        Ok(_) if unavailable.iter().any(|(name, _)| *name == answers.as_str()) => findings.warn(&format!(
            "threads: {answers} answers, but is unavailable: messages in threads fail until that is fixed"
        )),
        Ok(_) => findings.good(&format!("threads: {answers} answers")),
        // It has been reported already.
        Err(_) => Ok(()),
    }
}

async fn model(config: &Config, findings: &mut Findings) -> anyhow::Result<()> {
    if let Some(other) = &config.model.other {
        one_model(config, other, "other model", findings).await?;
    }
    one_model(config, &config.model.provider, "model", findings).await
}

/// Checks one configured provider; `what` is its name in the output.
async fn one_model(config: &Config, provider: &Provider, what: &str, findings: &mut Findings) -> anyhow::Result<()> {
    let gemini = match app::gemini(&config.model, provider) {
        Ok(Some(gemini)) => gemini,
        Ok(None) => {
            let why = match provider {
                Provider::Demo { asked: true } => "it is configured by name",
                _ => "no credentials are set; set GEMINI_API_KEY to use Gemini",
            };
            return findings.warn(&format!("{what}: the demo model answers: {why}"));
        }
        Err(error) => return findings.wrong(&format!("{what}: {error:#}"), "correct the settings of the credentials"),
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
        CheckError::UnknownModel { .. } => "set GEMINI_MODEL to an existing model",
        CheckError::Unreachable(_) => "check the network, a proxy, and GEMINI_BASE_URL",
        CheckError::Quota(_) => "wait, or raise the quota of the key",
        CheckError::Unexpected(_) => "check that GEMINI_BASE_URL speaks the Gemini API",
    }
}
