//! `gavel doctor`: checks that everything is in place. One line per check: ✓ ok, ! warning, ✗ error with what to do
//! next.

mod bundled;
mod model;
mod servers;

use std::io;

use secrecy::ExposeSecret;

use self::bundled::bundled;
use self::model::{issuer, model, names};
use self::servers::{google, servers};
use super::exit::Exit;
use super::serve::banner::callers;
use super::{agents as agents_command, live, output};
use crate::adapters::store::{AuditLog, KEY_IN_DATABASE, KeyPlace, Store, StoreError};
use crate::app;
use crate::config::{Config, ConfigErrors, Resolved, masked_url};
use crate::domain::definition::{Agents, Checked, Constitution, answerer};

/// The findings so far.
#[derive(Default)]
struct Findings {
    error: usize,
}

impl Findings {
    fn good(&self, what: &str) -> anyhow::Result<()> {
        output::line(&format!("✓ {}", output::printable(what)))
    }

    fn warn(&self, what: &str) -> anyhow::Result<()> {
        output::line(&format!("! {}", output::printable(what)))
    }

    /// One of several errors; the last one says what to do.
    fn error_without_cure(&mut self, what: &str) -> anyhow::Result<()> {
        self.error += 1;
        output::line(&format!("✗ {}", output::printable(what)))
    }

    fn error(&mut self, what: &str, next: &str) -> anyhow::Result<()> {
        self.error += 1;
        output::line(&format!("✗ {}\n    → {next}", output::printable(what)))
    }
}

/// Reports an invalid configuration, which also prevents the other checks.
pub(super) fn refused(errors: &ConfigErrors) -> anyhow::Result<Exit> {
    let mut findings = Findings::default();
    for error in &errors.0 {
        findings.error(
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
        "configuration: {}, the rest are defaults",
        match given {
            1 => "1 setting is set".to_owned(),
            _ => format!("{given} settings are set"),
        }
    ))?;
    for warning in &resolved.warnings {
        findings.warn(&format!("configuration: {warning}"))?;
    }
    findings.good(&format!("callers: {}", callers(&config.auth)))?;
    address(config, &mut findings).await?;
    let constitution = constitution(config, &mut findings)?;
    policy(config, &mut findings)?;
    database(config, &mut findings).await?;
    audit(config, &mut findings).await?;
    let agents = agents(config, &mut findings)?;
    servers(config, constitution.as_ref(), &agents, &mut findings).await?;
    bundled(config, &mut findings).await?;
    google(config, &findings)?;
    model(config, &mut findings).await?;
    names(config, constitution.as_ref(), &agents, &findings)?;
    issuer(config, &mut findings).await?;
    Ok(if findings.error == 0 { Exit::Done } else { Exit::Failed })
}

/// Can gavel listen on the address? An address that a gavel already uses is fine: it may be the service under
/// inspection.
async fn address(config: &Config, findings: &mut Findings) -> anyhow::Result<()> {
    let listen = config.listen;
    let next = "stop the other program, or set GAVEL_LISTEN to another address";
    match app::bind(listen) {
        Ok(_) if listen.port() == 0 => findings.good(&format!("address: {listen} uses any free port")),
        Ok(_) => findings.good(&format!("address: {listen} is free")),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => match live::ask(listen).await {
            Ok(_) => findings.good(&format!("address: {listen} is in use by a gavel that answers; this is about the settings here, which it may not have")),
            Err(error) => findings.error(
                &format!("address: {listen} is in use, and not by a gavel: {error}"),
                next,
            ),
        },
        Err(error) => findings.error(
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
            findings.error(&error.to_string(), "correct the file that GAVEL_CONSTITUTION names")?;
            Ok(None)
        }
    }
}

/// The same check as at the start of the service, including the policy's tests.
fn policy(config: &Config, findings: &mut Findings) -> anyhow::Result<()> {
    let Some(path) = &config.policy.file else {
        return findings.good("policy: none, so agent definitions and tool settings decide");
    };
    match app::policy(config) {
        Ok(policy) => {
            let (rules, tests) = (policy.rules.len() as u64, policy.tests.len() as u64);
            let (rules, tests) = (output::count(rules, "rule"), output::count(tests, "test"));
            findings.good(&format!("policy: {}, {rules}, {tests}", path.display()))
        }
        Err(error) => findings.error(
            &error.to_string(),
            "correct the file that GAVEL_POLICY names; `gavel policy test` runs its tests; gavel serve rejects this file",
        ),
    }
}

async fn database(config: &Config, findings: &mut Findings) -> anyhow::Result<()> {
    let url = config.database_url.expose_secret();
    let shown = masked_url(url);
    match Store::status(url).await {
        Ok(status) => match (Store::try_write(url).await, status.pending.len()) {
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
        },
        Err(error) => findings.error(
            &format!("database: {shown}: {error}"),
            match error {
                StoreError::Unavailable(reason) if reason.contains("certificate") => {
                    "give in sslrootcert the CA that signed the server's certificate; one that is its own CA is refused"
                }
                StoreError::Unavailable(_) | StoreError::Url(_) => {
                    "check what DATABASE_URL names (host, user, password, database, file), and that the database runs"
                }
                StoreError::NotADatabase => "set DATABASE_URL to another file, or move this one",
                _ => "docs/how-to/upgrade.md describes which binaries fit which databases",
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
        findings.error(
            &format!("audit: {damage}"),
            "find out what changed the database, and run `gavel audit verify`",
        )?;
    }
    for (key, rows) in lost {
        findings.error(
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
    let loaded = match agents_command::load(config) {
        Ok(loaded) => loaded,
        Err(error) => {
            let next = "set GAVEL_AGENTS to a directory that gavel can read";
            findings.error(&format!("agents: {error:#}"), next)?;
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
        let line = format!("agents: {}", agents_command::render_error(error));
        // The remedy is the same for all errors.
        match n + 1 == errors.len() {
            true => findings.error(&line, next)?,
            false => findings.error_without_cure(&line)?,
        }
    }
    for warning in &warnings {
        findings.warn(&format!("agents: {}", agents_command::render_error(warning)))?;
    }
    if errors.is_empty() {
        let found = agents_command::count(agents.len(), "agent");
        findings.good(&format!("agents: {found} ({})", loaded.place))?;
    }
    if let Err(why) = answerer(&agents, &config.runs.threads.agent) {
        findings.warn(&format!(
            "threads: no agent answers (runs.agent): {why}; set GAVEL_RUNS_AGENT to another agent, or create it through the API"
        ))?;
    }
    Ok(agents)
}
