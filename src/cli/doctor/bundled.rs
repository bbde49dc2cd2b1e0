//! Checks of what the bundled servers act on: the container engine, the sandbox of commands, GitHub, and the search. A
//! server that is off has one line, which says what it needs.

use std::time::Duration;

use gavel_mcp_docker::EngineInfo;
use gavel_mcp_github::{AccessInfo, GitHubInfo};
use gavel_mcp_shell::{Finding, Level, Probe};

use super::Findings;
use crate::app;
use crate::cli::mcp_server::shell_launcher;
use crate::config::Config;

/// How long a container engine may take to describe itself.
const ENGINE_LIMIT: Duration = Duration::from_secs(10);
/// Fewer remaining requests than this are soon used up by one planning session.
const FEW_REQUESTS: u64 = 100;
/// What the tools of the github server need; `createRepository` also needs administration.
const PERMISSIONS: [(&str, &str); 3] = [("contents", "write"), ("issues", "write"), ("pull_requests", "write")];

pub(super) async fn bundled(config: &Config, findings: &mut Findings) -> anyhow::Result<()> {
    engine(config, findings).await?;
    github(config, findings).await?;
    shell(config, findings).await?;
    web(config, findings)
}

async fn engine(config: &Config, findings: &mut Findings) -> anyhow::Result<()> {
    let next = "start the engine, or set DOCKER_HOST to its socket (unix:///run/user/1000/podman/podman.sock); gavel's user \
                must be allowed to use it (docs/docker-server.md)";
    let args: gavel_mcp_docker::Args = match app::bundled(config, "docker") {
        Ok(Some(args)) => args,
        Ok(None) => return Ok(()),
        Err(error) => return findings.error(&format!("container engine: {error:#}"), "correct its entry in mcp.json"),
    };
    let host = args.host.unwrap_or_default();
    let probed = tokio::time::timeout(ENGINE_LIMIT, gavel_mcp_docker::probe(&host)).await;
    let seconds = ENGINE_LIMIT.as_secs();
    match probed {
        Err(_) => findings.error(&format!("container engine: no answer from {host} in {seconds} s"), next),
        Ok(Err(error)) => findings.error(&format!("container engine: {error:#}"), next),
        Ok(Ok(info)) if info.root_is_host_root => findings.warn(&format!(
            "container engine: {}, rootful without user namespaces: what escapes from a container is root of this machine; \
             use a rootless engine, or userns-remap of Docker (docs/docker-server.md)",
            version(&info)
        )),
        Ok(Ok(info)) => findings.good(&format!(
            "container engine: {}, rootless or with user namespaces",
            version(&info)
        )),
    }
}

fn version(info: &EngineInfo) -> String {
    format!("{} {} (API {})", info.name, info.version, info.api_version)
}

async fn github(config: &Config, findings: &mut Findings) -> anyhow::Result<()> {
    let next = "check GITHUB_TOKEN (or GITHUB_APP_ID, its key and its installation), GITHUB_URL and GITHUB_API_URL, and the \
                network (docs/github-server.md)";
    let args: gavel_mcp_github::Args = match app::bundled(config, "github") {
        Ok(Some(args)) => args,
        Ok(None) => return Ok(()),
        Err(error) => return findings.error(&format!("github: {error:#}"), "correct its entry in mcp.json"),
    };
    match gavel_mcp_github::probe(args).await {
        Ok(info) => credentials(&info, findings),
        Err(error) => findings.error(&format!("github: {error:#}"), next),
    }
}

fn credentials(info: &GitHubInfo, findings: &mut Findings) -> anyhow::Result<()> {
    let quota = match &info.quota {
        None => "no limit of requests".to_owned(),
        Some(quota) => format!(
            "{} of {} requests remain until {}",
            quota.remaining, quota.limit, quota.resets
        ),
    };
    let (what, problem) = match &info.access {
        AccessInfo::Token { scopes, expires } => {
            let expires = expires.as_ref().map(|at| format!(", expires {at}")).unwrap_or_default();
            match scopes {
                None => (format!("a token with permissions of its own{expires}"), None),
                Some(scopes) => {
                    let named = match scopes.is_empty() {
                        true => "no scopes".to_owned(),
                        false => format!("the scopes {}", scopes.join(", ")),
                    };
                    let is_enough = scopes.iter().any(|scope| scope == "repo" || scope == "public_repo");
                    let problem = "it changes nothing without the scope repo (or public_repo): give it one at GitHub";
                    (
                        format!("a token with {named}{expires}"),
                        (!is_enough).then(|| problem.to_owned()),
                    )
                }
            }
        }
        AccessInfo::Installation {
            account,
            is_suspended: true,
            ..
        } => {
            let next = "unsuspend the App in the settings of that account";
            return findings.error(&format!("github: the App is suspended in {account}"), next);
        }
        AccessInfo::Installation {
            account, permissions, ..
        } => {
            let named: Vec<_> = permissions.iter().map(|(name, may)| format!("{name} {may}")).collect();
            (
                format!("an App in {account} with {}", named.join(", ")),
                lacking(permissions),
            )
        }
    };
    findings.good(&format!("github: {what}; {quota}"))?;
    if let Some(problem) = problem {
        findings.warn(&format!("github: {problem}"))?;
    }
    match &info.quota {
        Some(quota) if quota.remaining < FEW_REQUESTS => findings.warn(&format!(
            "github: the quota is nearly used up: tools wait or fail until {}; see what else uses these credentials",
            quota.resets
        )),
        Some(_) | None => Ok(()),
    }
}

/// What an App's installation must be given for the tools.
fn lacking(permissions: &[(String, String)]) -> Option<String> {
    let has = |(name, needed): &(&str, &str)| {
        let mut own = permissions.iter().filter(|(own, _)| own == name);
        own.any(|(_, may)| may == needed || may == "admin")
    };
    let lacking: Vec<_> = PERMISSIONS.iter().filter(|needed| !has(needed)).collect();
    let named: Vec<_> = lacking.iter().map(|(name, may)| format!("{name} {may}")).collect();
    (!named.is_empty()).then(|| {
        format!(
            "the App lacks {}: add it in the App's settings, and accept it in the account",
            named.join(", ")
        )
    })
}

async fn shell(config: &Config, findings: &mut Findings) -> anyhow::Result<()> {
    let args: gavel_mcp_shell::Args = match app::bundled(config, "shell") {
        Ok(Some(args)) => args,
        Ok(None) => return Ok(()),
        Err(error) => return findings.error(&format!("shell: {error:#}"), "correct its entry in mcp.json"),
    };
    let probe = match gavel_mcp_shell::probe(args, shell_launcher()).await {
        Ok(probe) => probe,
        Err(error) => {
            return findings.error(
                &format!("shell: {error:#}"),
                "correct the setting (docs/shell-server.md)",
            );
        }
    };
    let next =
        "install bubblewrap and allow user namespaces, or use Linux 6.7 or later with Landlock (docs/shell-server.md)";
    match probe.level {
        None => findings.error(
            &format!("shell: no level of SHELL_SANDBOX works here: {}", findings_of(&probe)),
            next,
        ),
        Some(Level::Host) => findings.warn(
            "shell: commands run without a sandbox (SHELL_SANDBOX=host): each can do all that gavel's user can; set \
             SHELL_SANDBOX=auto",
        ),
        Some(level) => findings.good(&format!("shell: sandbox {level}, {}", limits(&probe))),
    }
}

fn findings_of(probe: &Probe) -> String {
    let line = |finding: &Finding| {
        let problem = finding.problem.as_deref();
        format!(
            "{}: {}",
            finding.level,
            problem.unwrap_or("works, but the setting names another")
        )
    };
    let lines: Vec<_> = probe.findings.iter().map(line).collect();
    lines.join("; ")
}

fn limits(probe: &Probe) -> String {
    match probe.cgroups {
        Some(version) => format!("memory and processes limited by control groups v{version}"),
        None => "memory limited for each process, since no control group can be made".to_owned(),
    }
}

fn web(config: &Config, findings: &mut Findings) -> anyhow::Result<()> {
    let args: gavel_mcp_web::Args = match app::bundled(config, "web") {
        Ok(Some(args)) => args,
        Ok(None) => return Ok(()),
        Err(error) => return findings.error(&format!("web: {error:#}"), "correct its entry in mcp.json"),
    };
    let settings = match gavel_mcp_web::Settings::try_from(args) {
        Ok(settings) => settings,
        Err(error) => return findings.error(&format!("web: {error:#}"), "correct the setting (docs/web-server.md)"),
    };
    let pages = match settings.is_open() {
        true => "pages of every public host",
        false => "pages of the hosts in WEB_ALLOW",
    };
    match settings.search() {
        Some(search) => findings.good(&format!("web: {pages}; google_web_search asks {search}")),
        None => findings.warn(&format!(
            "web: {pages}, but no search; set GEMINI_API_KEY, Vertex AI, or GOOGLE_CSE_KEY and GOOGLE_CSE_ID (docs/web-server.md)"
        )),
    }
}
