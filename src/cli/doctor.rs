//! `gavel doctor`: checks that everything is in place. One line per check: ✓ ok, ! warning, ✗ error with what to do
//! next.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, ensure};
use secrecy::ExposeSecret;
use serde_json::Value;

use crate::adapters::gemini::{CheckError, Endpoint, advice};
use crate::adapters::mcp::ServerState;
use crate::adapters::store::{AuditLog, KEY_IN_DATABASE, KeyPlace, Store, StoreError};
use crate::api::planning::Fitness;
use crate::app;
use crate::app::BundledConditions;
use crate::cli::exit::Exit;
use crate::cli::output;
use crate::cli::serve::callers;
use crate::cli::serve::{not_bound, unbound};
use crate::cli::{agents as agents_command, mcp as mcp_command, policy as policy_command};
use crate::config::{Config, ConfigErrors, Provider, Resolved, masked_url};
use crate::domain::definition::{Agents, Checked, Constitution, answerer};
use crate::domain::time::rfc3339;
use crate::engine::Toolset;
use crate::http::google::CALLBACK;
use crate::ports::clock::{Clock, SystemClock};
use crate::ports::conditions::Conditions;
use crate::ports::keys::KeySource;
use crate::ports::tools::{Catalog, Tools};
use crate::surfaces::definitions::Lack;

/// Prints findings, and counts the errors.
#[derive(Default)]
struct Findings {
    errors: usize,
    unwritten: Option<anyhow::Error>,
}

impl Findings {
    fn good(&mut self, what: &str) {
        self.print(&format!("✓ {}", output::printable(what)));
    }

    fn warn(&mut self, what: &str) {
        self.print(&format!("! {}", output::printable(what)));
    }

    fn error(&mut self, what: &str, next: &str) {
        self.errors += 1;
        self.print(&format!("✗ {}", output::printable(what)));
        if !next.is_empty() {
            self.print(&format!("    → {next}"));
        }
    }

    fn print(&mut self, text: &str) {
        if self.unwritten.is_none() {
            self.unwritten = output::line(text).err();
        }
    }

    fn end(self) -> anyhow::Result<Exit> {
        match self.unwritten {
            Some(error) => Err(error),
            None if self.errors == 0 => Ok(Exit::Done),
            None => Ok(Exit::Failed),
        }
    }
}

/// Reports an invalid configuration, which also prevents the other checks.
pub(super) fn refused(errors: &ConfigErrors) -> anyhow::Result<Exit> {
    let mut findings = Findings::default();
    for error in &errors.0 {
        let next = "`gavel config --reference` lists the settings";
        findings.error(&format!("configuration: {error}"), next);
    }
    findings.end()
}

pub(super) async fn run(resolved: Resolved) -> anyhow::Result<Exit> {
    let mut findings = Findings::default();
    let config = &resolved.config;
    let origins = resolved.origins.iter();
    let given = origins.filter(|effective| !effective.origin.is_default()).count();
    let are = if given == 1 { "is" } else { "are" };
    let settings = output::count(given as u64, "setting");
    findings.good(&format!("configuration: {settings} {are} set, the rest are defaults"));
    for warning in &resolved.warnings {
        findings.warn(&format!("configuration: {warning}"));
    }
    findings.good(&format!("callers: {}", callers(&config.auth)));
    address(config.listen, &mut findings).await;
    let constitution = constitution(config, &mut findings);
    policy(config, &mut findings);
    if let Err(error) = app::prices(config) {
        findings.error(
            &error.to_string(),
            "correct the file that GAVEL_PRICES names; gavel serve rejects this file",
        );
    }
    database(config, &mut findings).await;
    audit(config, &mut findings).await;
    let agents = agents(config, &mut findings);
    servers(config, constitution.as_ref(), &agents, &mut findings).await;
    bundled(config, &mut findings).await;
    google(config, &mut findings);
    if let Some(other) = &config.model.other {
        gemini(config, other, "other model", &mut findings).await;
    }
    match &config.model.provider {
        Provider::Gemini(endpoint) => gemini(config, endpoint, "model", &mut findings).await,
        Provider::Demo { by_name: true } => findings.warn("model: the demo model answers: it is configured by name"),
        Provider::Demo { by_name: false } => {
            findings.warn("model: the demo model answers: no credentials are set; set GEMINI_API_KEY to use Gemini")
        }
    }
    names(config, constitution.as_ref(), &agents, &mut findings);
    if let Some(issuer) = app::issuer(config)? {
        let next = "check GAVEL_AUTH_JWT_JWKS_URL, and that the issuer runs";
        match issuer.current().await {
            Ok(set) if set.keys.is_empty() => findings.error("issuer: none of its keys can check a token", next),
            Ok(set) => findings.good(&format!("issuer: {} keys that can check tokens", set.keys.len())),
            Err(error) => findings.error(&format!("issuer: {error}"), next),
        }
    }
    findings.end()
}

/// Can gavel listen on the address? An address that a gavel already uses is fine: it may be the service under
/// inspection.
async fn address(listen: SocketAddr, findings: &mut Findings) {
    let next = "set GAVEL_LISTEN to an address of this machine and a port that gavel may use";
    match app::bind(listen) {
        Ok(_) if listen.port() == 0 => findings.good(&format!("address: {listen} uses any free port")),
        Ok(_) => findings.good(&format!("address: {listen} is free")),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => match ask(listen).await {
            Ok(_) => findings.good(&format!(
                "address: {listen} is in use by a gavel that answers; this is about the settings here, which it may not have"
            )),
            Err(error) => findings.error(
                &format!("address: {listen} is in use, and not by a gavel: {error}"),
                "stop the other program, or set GAVEL_LISTEN to another address",
            ),
        },
        Err(error) => findings.error(&format!("address: {listen}: {error}"), next),
    }
}

fn constitution(config: &Config, findings: &mut Findings) -> Option<Constitution> {
    let read = app::constitution(config);
    match &read {
        Ok(Constitution { definition, limits, .. }) => {
            let place = config.constitution.as_ref().map(|path| path.display().to_string());
            findings.good(&format!(
                "constitution: {}, {} tools, {} iterations, {} s",
                place.as_deref().unwrap_or("built in"),
                definition.tools.len(),
                limits.iterations,
                limits.deadline.as_secs()
            ));
        }
        Err(error) => findings.error(&error.to_string(), "correct the file that GAVEL_CONSTITUTION names"),
    }
    read.ok()
}

/// The same check as at the start of the service, including the policy's tests.
fn policy(config: &Config, findings: &mut Findings) {
    match (&config.policy.file, app::policy(config)) {
        (None, _) => findings.good("policy: none, so agent definitions and tool settings decide"),
        (Some(path), Ok(policy)) => {
            let (rules, tests) = (policy.rules.len() as u64, policy.tests.len() as u64);
            let (rules, tests) = (output::count(rules, "rule"), output::count(tests, "test"));
            findings.good(&format!("policy: {}, {rules}, {tests}", path.display()));
        }
        (_, Err(error)) => findings.error(
            &error.to_string(),
            "correct the file that GAVEL_POLICY names; `gavel policy test` runs its tests; gavel serve rejects this file",
        ),
    }
}

async fn database(config: &Config, findings: &mut Findings) {
    let url = config.database_url.expose_secret();
    let shown = masked_url(url);
    let status = match Store::status(url).await {
        Ok(status) => status,
        Err(error) => {
            let next = match &error {
                StoreError::Unavailable(reason) if reason.contains("certificate") => {
                    "give in sslrootcert the CA that signed the server's certificate; one that is its own CA is refused"
                }
                StoreError::Unavailable(_) | StoreError::Url(_) => {
                    "check what DATABASE_URL names (host, user, password, database, file), and that the database runs"
                }
                StoreError::NotADatabase => "set DATABASE_URL to another file, or move this one",
                _ => "docs/how-to/upgrade.md describes which binaries fit which databases",
            };
            return findings.error(&format!("database: {shown}: {error}"), next);
        }
    };
    match (Store::try_write(url).await, status.pending.len()) {
        (Ok(()), 0) => findings.good(&format!(
            "database: {shown} can be written, {} migrations applied",
            status.applied.len()
        )),
        (Ok(()), pending) => findings.good(&format!(
            "database: {shown}, {pending} migrations pending; `gavel serve` and `gavel migrate` apply them"
        )),
        (Err(StoreError::Unfit(why)), _) => findings.error(
            &format!("database: {shown} {why}"),
            "gavel serve and gavel migrate refuse it",
        ),
        (Err(error), _) => findings.error(
            &format!("database: {shown} answers, but cannot be written: {error}"),
            "check whether it is full, read-only, or locked by another program",
        ),
    }
}

/// Checks the audit log's keys and triggers.
async fn audit(config: &Config, findings: &mut Findings) {
    let (url, keys) = (config.database_url.expose_secret(), app::audit_secrets(config));
    // A database that is unavailable, or was never migrated, has been reported already.
    if let Ok(mut log) = AuditLog::open(url, &keys).await {
        for damage in log.triggers().await.unwrap_or_default() {
            findings.error(
                &format!("audit: {damage}"),
                "find out what changed the database, and run `gavel audit verify`",
            );
        }
        for (key, rows) in log.lost_keys().await.unwrap_or_default() {
            let rows = output::count(rows.unsigned_abs(), "row");
            findings.error(
                &format!("audit: the key {key} is missing; {rows} hashed with it cannot be verified"),
                "restore it from a backup into audit.old_keys (GAVEL_AUDIT_OLD_KEYS)",
            );
        }
        log.close().await;
    }
    match AuditLog::key_place(url, &keys) {
        Ok(KeyPlace::Given) => findings.good("audit: chained with audit.key"),
        Ok(KeyPlace::File(path)) if !path.exists() => findings.warn(&format!(
            "audit: its key will be created in {}; if there was a key before, restore it from a backup before gavel starts",
            path.display()
        )),
        Ok(KeyPlace::File(path)) => findings.good(&format!(
            "audit: chained with the key in {}; keep copies of it and of the output of `gavel audit head` elsewhere",
            path.display()
        )),
        Ok(KeyPlace::Database) => findings.warn(&format!("audit: {KEY_IN_DATABASE}")),
        // The database error has been reported already.
        Err(_) => {}
    }
}

/// Returns the valid agents; reports every error in the others.
fn agents(config: &Config, findings: &mut Findings) -> Agents {
    let loaded = match agents_command::load(config) {
        Ok(loaded) => loaded,
        Err(error) => {
            let next = "set GAVEL_AGENTS to a directory that gavel can read";
            findings.error(&format!("agents: {error:#}"), next);
            return Agents::new();
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
    for (error, left) in errors.iter().zip((0..errors.len()).rev()) {
        // The remedy is the same for all errors.
        let next = if left == 0 { next } else { "" };
        findings.error(&format!("agents: {}", agents_command::render_error(error)), next);
    }
    for warning in &warnings {
        findings.warn(&format!("agents: {}", agents_command::render_error(warning)));
    }
    if errors.is_empty() {
        let found = agents_command::count(agents.len(), "agent");
        findings.good(&format!("agents: {found} ({})", loaded.place));
    }
    if let Err(why) = answerer(&agents, &config.runs.threads.agent) {
        findings.warn(&format!(
            "threads: no agent answers (runs.agent): {why}; set GAVEL_RUNS_AGENT to another agent, or create it through the API"
        ));
    }
    agents
}

async fn bundled(config: &Config, findings: &mut Findings) {
    for condition in BundledConditions(config.clone()).look().await {
        let what = format!("{}: {}", condition.of.as_str().replace('_', " "), condition.detail);
        let next = condition.next.as_deref();
        match condition.state {
            Fitness::Good => findings.good(&what),
            Fitness::Warning => findings.warn(&what),
            Fitness::Error => findings.error(&what, next.unwrap_or("see docs/how-to/github-and-containers.md")),
        }
    }
}

/// Warns about the names of models that Google answers with another model, or shuts down.
fn names(config: &Config, constitution: Option<&Constitution>, agents: &Agents, findings: &mut Findings) {
    let definitions = agents.values().map(|agent| &*agent.definition);
    let definitions = definitions.chain(constitution.map(|constitution| &*constitution.definition));
    let named = definitions.filter_map(|definition| definition.model.model.as_deref());
    let names: BTreeSet<_> = named.chain([config.model.name.as_str()]).collect();
    let today = rfc3339(SystemClock.now_us());
    for advice in names.into_iter().filter_map(|name| advice(name, &today[..10])) {
        findings.warn(&format!("model: {advice}"));
    }
}

/// Asks one configured provider; `what` is its name in the output.
async fn gemini(config: &Config, endpoint: &Endpoint, what: &str, findings: &mut Findings) {
    let gemini = match app::gemini(&config.model, endpoint) {
        Ok(gemini) => gemini,
        Err(error) => return findings.error(&format!("{what}: {error:#}"), "correct the settings of the credentials"),
    };
    match gemini.check().await {
        Ok(info) => {
            let limits = match (info.input_token_limit, info.output_token_limit) {
                (Some(input), Some(output)) => format!(" ({input} tokens in, {output} out)"),
                _ => String::new(),
            };
            findings.good(&format!("{what}: {} answers{limits}", info.model));
        }
        Err(error) => {
            let next = match &error {
                CheckError::Credentials(_) => "check GEMINI_API_KEY, or the Google credentials of Vertex AI",
                CheckError::Permission(_) => "allow the API for this key or account in the Google Cloud console",
                CheckError::UnknownModel { .. } => "set GEMINI_MODEL to an existing model",
                CheckError::Unreachable(_) => "check the network, a proxy, and GEMINI_BASE_URL",
                CheckError::Quota(_) => "wait, or raise the quota of the key",
                CheckError::Unexpected(_) => "check that GEMINI_BASE_URL speaks the Gemini API",
            };
            findings.error(&format!("{what}: {error}"), next);
        }
    }
}

async fn servers(config: &Config, constitution: Option<&Constitution>, agents: &Agents, findings: &mut Findings) {
    let bridge = match app::mcp(config) {
        Ok(bridge) => bridge,
        Err(error) => return findings.error(&format!("{error:#}"), "correct the file that GAVEL_MCP_CONFIG names"),
    };
    mcp_command::settled(&bridge).await;
    let (catalog, servers) = (bridge.catalog(), bridge.status());
    if servers.is_empty() {
        findings.warn("MCP servers: none are configured");
    }
    for warning in bridge.warnings() {
        findings.warn(&format!("MCP servers: {warning}"));
    }
    bridge.shutdown().await;
    for server in &servers {
        let line = format!("MCP server {}", mcp_command::headline(server).trim_end());
        match server.state {
            ServerState::Up => findings.good(&format!("{line}, {} tools", server.tools)),
            ServerState::Off => findings.warn(&line),
            ServerState::Down | ServerState::Connecting => {
                let next = match config.mcp_config {
                    Some(_) => "check its entry in mcp.json".to_owned(),
                    None => format!("it is built in: check its settings ({})", settings_of(&server.name)),
                };
                findings.error(&line, &format!("{next}; RUST_LOG=info shows its output"));
            }
        }
    }
    for (tool, server) in unbound(&catalog, agents) {
        findings.warn(&format!("MCP server {server}: {}", not_bound(&tool)));
    }
    for left in &catalog.left_out {
        findings.warn(&format!(
            "MCP server {}: {} is left out: {}",
            left.server, left.tool, left.reason
        ));
    }
    // Each server has a line of its own with the reason, and an agent names many servers.
    let known = mcp_command::without_reasons(&catalog);
    if let Some(constitution) = constitution {
        granted(&known, &constitution.definition.tools, findings);
    }
    able(&known, agents, config, findings);
    // A policy that cannot be read has been reported already.
    if let Ok(policy) = app::policy(config) {
        for unknown in policy_command::unknown_names(&policy, &catalog, &servers, agents) {
            findings.warn(&format!("policy: {unknown}"));
        }
    }
}

/// Where the settings of a built-in server are described.
fn settings_of(server: &str) -> String {
    match server {
        "tasks" => "TASKS_DATABASE_URL; docs/reference/tasks-server.md".to_owned(),
        "files" => "FILES_ROOT; docs/reference/files-server.md".to_owned(),
        "google" => "docs/how-to/google.md".to_owned(),
        other => format!("docs/reference/{other}-server.md"),
    }
}

/// Checks the google server's settings. If it is off, or cannot start, its state reports that.
fn google(config: &Config, findings: &mut Findings) {
    let Ok(settings) = app::google(config) else { return };
    let is_shared = config.database_url.expose_secret().starts_with("postgres");
    if let Some(file) = settings.database_file().filter(|_| is_shared) {
        findings.warn(&format!(
            "google: sent actions are recorded in the file {}, but decisions in PostgreSQL; with several gavels each would have its \
             own file and not know what the others sent: set GOOGLE_DATABASE_URL to one PostgreSQL database for all",
            file.display()
        ));
    }
    if let Some(callback) = settings.callback().filter(|url| url.path() != CALLBACK) {
        findings.warn(&format!(
            "google: GOOGLE_CALLBACK_URL ends in {}, but gavel answers at {CALLBACK}: unless a proxy maps one to the other, browsers cannot return",
            callback.path()
        ));
    }
}

/// Checks that servers offer the tools that the constitution lists.
fn granted(catalog: &Catalog, tools: &[String], findings: &mut Findings) {
    let missing = Toolset::build(catalog, tools, &[]).missing;
    if missing.is_empty() {
        let count = tools.len();
        findings.good(&format!(
            "tools: all {count} on the constitution's allowlist are offered"
        ));
    }
    for one in missing {
        let next = "connect a server that offers it, or remove it from the constitution";
        findings.error(&format!("tool {}: {}", one.name, one.reason), next);
    }
}

/// Reports unavailable agents as warnings: an unavailable agent stops nothing else.
fn able(catalog: &Catalog, agents: &Agents, config: &Config, findings: &mut Findings) {
    let lacking = agents_command::lacking(agents, catalog, config);
    for (name, lack) in &lacking {
        findings.warn(&format!("agent {}", agents_command::sentence(name, lack)));
    }
    let answers = &config.runs.threads.agent;
    match answerer(agents, answers) {
        Ok(_) if matches!(lacking.get(answers.as_str()), Some(Lack::Unavailable(_))) => findings.warn(&format!(
            "threads: {answers} answers, but is unavailable: messages in threads fail until that is fixed"
        )),
        Ok(_) => findings.good(&format!("threads: {answers} answers")),
        // It has been reported already.
        Err(_) => {}
    }
}

/// Health checks run every few seconds and must not accumulate.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Requests `/livez` at this configuration's address.
///
/// # Errors
/// No answer, or an answer other than 200.
pub(super) async fn live(resolved: Resolved) -> anyhow::Result<Exit> {
    let listen = resolved.config.listen;
    ensure!(
        listen.port() != 0,
        "listen = {listen} uses any free port, which only the running service knows"
    );
    let url = ask(listen).await?;
    output::line(&format!("✓ {url} answers"))?;
    Ok(Exit::Done)
}

/// Requests `/livez` of the service at `listen`, and returns the requested URL.
///
/// # Errors
/// No answer, or not a gavel's answer.
async fn ask(listen: SocketAddr) -> anyhow::Result<String> {
    let url = format!("http://{}/livez", reachable(listen));
    // A proxy for outgoing requests must not be used for this machine.
    let client = reqwest::Client::builder()
        .timeout(TIMEOUT)
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy()
        .build()?;
    let mut response = client
        .get(&url)
        .send()
        .await
        .with_context(|| format!("{url} does not answer"))?;
    ensure!(
        response.status() == reqwest::StatusCode::OK,
        "{url} answers {}",
        response.status()
    );
    // Reads only one chunk, which holds gavel's whole answer: another program may listen there.
    let first = response.chunk().await.ok().flatten().unwrap_or_default();
    let answer: Option<Value> = serde_json::from_slice(&first).ok();
    ensure!(
        answer.is_some_and(|answer| answer["status"] == "ok"),
        "{url} does not give a gavel's answer"
    );
    Ok(url)
}

/// The address at which this machine reaches a service that listens at `address`.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

#[cfg(test)]
mod live_tests {
    use super::*;

    #[test]
    fn a_service_that_listens_everywhere_is_asked_on_loopback() {
        for (listen, asked) in [
            ("0.0.0.0:8080", "127.0.0.1:8080"),
            ("[::]:80", "[::1]:80"),
            ("192.0.2.1:80", "192.0.2.1:80"),
        ] {
            assert_eq!(reachable(listen.parse().unwrap()).to_string(), asked);
        }
    }
}
