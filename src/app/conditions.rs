//! Looks at what the bundled servers act on: the container engine, GitHub, the sandbox of commands, and the search.

use std::time::Duration;

use clap::Args;
use gavel_mcp_docker::EngineInfo;
use gavel_mcp_github::{AccessInfo, GitHubInfo};
use gavel_mcp_shell::{Finding, Level, Probe};

use super::bundled;
use crate::api::planning::{Fitness, Subject};
use crate::config::Config;
use crate::ports::BoxFuture;
use crate::ports::conditions::{Condition, Conditions};
use crate::ports::tools::Catalog;

/// How long a container engine may take to describe itself.
const ENGINE_LIMIT: Duration = Duration::from_secs(10);
/// Fewer remaining requests than this are soon used up by one planning session.
const FEW_REQUESTS: u64 = 100;
/// What the tools of the github server need; `createRepository` also needs administration.
const PERMISSIONS: [(&str, &str); 3] = [("contents", "write"), ("issues", "write"), ("pull_requests", "write")];

/// The bundled servers, as this configuration starts them.
pub struct BundledConditions(pub Config);

impl Conditions for BundledConditions {
    fn look(&self) -> BoxFuture<'_, Vec<Condition>> {
        Box::pin(async {
            let (engine, github, shell) = tokio::join!(engine(&self.0), github(&self.0), shell(&self.0));
            let found = [engine, github, shell, web(&self.0)];
            found.map(|found| found.unwrap_or_else(|instead| instead)).concat()
        })
    }
}

/// How the shell server, and a look at it, start this program again for a command.
pub fn shell_launcher() -> gavel_mcp_shell::Launcher {
    gavel_mcp_shell::Launcher::this_program(["mcp-server", "shell-launch"])
}

/// The level of the sandbox in which a connected server runs commands. It is read from what the server lists, so nothing
/// is asked.
pub(super) fn sandbox_of(server: &str, catalog: &Catalog) -> Option<Level> {
    let mut tools = catalog.tools.iter().filter(|tool| *tool.server == *server);
    tools.find_map(|tool| gavel_mcp_shell::level_of(&tool.name, &tool.description))
}

fn condition(of: Subject, state: Fitness, detail: impl Into<String>, next: Option<&str>) -> Condition {
    Condition {
        of,
        state,
        detail: detail.into(),
        next: next.map(str::to_owned),
    }
}

fn good(of: Subject, detail: String) -> Condition {
    condition(of, Fitness::Good, detail, None)
}

fn warning(of: Subject, detail: impl Into<String>) -> Condition {
    condition(of, Fitness::Warning, detail, None)
}

fn error(of: Subject, detail: String, next: &str) -> Condition {
    condition(of, Fitness::Error, detail, Some(next))
}

/// What was found, or what is to be said instead: nothing of a server that is off.
type Found = Result<Vec<Condition>, Vec<Condition>>;

/// The options of a server that is on.
///
/// # Errors
/// What is to be said instead: nothing of a server that is off.
fn options<A: Args>(config: &Config, name: &str, of: Subject) -> Result<A, Vec<Condition>> {
    match bundled(config, name) {
        Ok(Some(options)) => Ok(options),
        Ok(None) => Err(Vec::new()),
        Err(cause) => Err(vec![error(of, format!("{cause:#}"), "correct its entry in mcp.json")]),
    }
}

async fn engine(config: &Config) -> Found {
    let of = Subject::ContainerEngine;
    let args: gavel_mcp_docker::Args = options(config, "docker", of)?;
    let next = "start the engine, or set DOCKER_HOST to its socket (unix:///run/user/1000/podman/podman.sock); gavel's user \
                must be allowed to use it (docs/reference/docker-server.md)";
    let host = args.host.unwrap_or_default();
    let seconds = ENGINE_LIMIT.as_secs();
    Ok(vec![
        match tokio::time::timeout(ENGINE_LIMIT, gavel_mcp_docker::probe(&host)).await {
            Err(_) => error(of, format!("no answer from {host} in {seconds} s"), next),
            Ok(Err(cause)) => error(of, format!("{cause:#}"), next),
            Ok(Ok(info)) if info.root_is_host_root => warning(
                of,
                format!(
                    "{}, rootful without user namespaces: what escapes from a container is root of this machine; use a \
                     rootless engine, or userns-remap of Docker (docs/reference/docker-server.md)",
                    version(&info)
                ),
            ),
            Ok(Ok(info)) => good(of, format!("{}, rootless or with user namespaces", version(&info))),
        },
    ])
}

fn version(info: &EngineInfo) -> String {
    format!("{} {} (API {})", info.name, info.version, info.api_version)
}

async fn github(config: &Config) -> Found {
    let of = Subject::GitHub;
    let args: gavel_mcp_github::Args = options(config, "github", of)?;
    let next = "check GITHUB_TOKEN (or GITHUB_APP_ID, its key and its installation), GITHUB_URL and GITHUB_API_URL, and the \
                network (docs/reference/github-server.md)";
    match gavel_mcp_github::probe(args).await {
        Ok(info) => Ok(credentials(&info)),
        Err(cause) => Err(vec![error(of, format!("{cause:#}"), next)]),
    }
}

fn credentials(info: &GitHubInfo) -> Vec<Condition> {
    let of = Subject::GitHub;
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
            return vec![error(of, format!("the App is suspended in {account}"), next)];
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
    let mut found = vec![good(of, format!("{what}; {quota}"))];
    found.extend(problem.map(|problem| warning(of, problem)));
    let few = info.quota.as_ref().filter(|quota| quota.remaining < FEW_REQUESTS);
    found.extend(few.map(|quota| {
        let resets = &quota.resets;
        let detail = format!(
            "the quota is nearly used up: tools wait or fail until {resets}; see what else uses these credentials"
        );
        warning(of, detail)
    }));
    found
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

async fn shell(config: &Config) -> Found {
    let of = Subject::Shell;
    let args: gavel_mcp_shell::Args = options(config, "shell", of)?;
    let next = "install bubblewrap and allow user namespaces, or use Linux 6.7 or later with Landlock (docs/reference/shell-server.md)";
    Ok(vec![match gavel_mcp_shell::probe(args, shell_launcher()).await {
        Err(cause) => error(
            of,
            format!("{cause:#}"),
            "correct the setting (docs/reference/shell-server.md)",
        ),
        Ok(probe) => match probe.level {
            None => error(
                of,
                format!("no level of SHELL_SANDBOX works here: {}", findings_of(&probe)),
                next,
            ),
            Some(Level::Host) => warning(
                of,
                "commands run without a sandbox (SHELL_SANDBOX=host): each can do all that gavel's user can; set \
                 SHELL_SANDBOX=auto",
            ),
            Some(level) => good(of, format!("sandbox {level}, {}", limits(&probe))),
        },
    }])
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
        None => format!("no control group can be made: {}", gavel_mcp_shell::UNGROUPED),
    }
}

fn web(config: &Config) -> Found {
    let of = Subject::Web;
    let args: gavel_mcp_web::Args = options(config, "web", of)?;
    let next = "correct the setting (docs/reference/web-server.md)";
    let settings = gavel_mcp_web::Settings::try_from(args);
    let settings = settings.map_err(|cause| vec![error(of, format!("{cause:#}"), next)])?;
    let pages = match settings.is_open() {
        true => "pages of every public host",
        false => "pages of the hosts in WEB_ALLOW",
    };
    Ok(vec![match settings.search() {
        Some(search) => good(of, format!("{pages}; google_web_search asks {search}")),
        None => warning(
            of,
            format!(
                "{pages}, but no search; set GEMINI_API_KEY, Vertex AI, or GOOGLE_CSE_KEY and GOOGLE_CSE_ID (docs/reference/web-server.md)"
            ),
        ),
    }])
}
