//! What the operator should know of the credentials: what they allow, and how much of the quota remains.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{anyhow, ensure};
use gavel_mcp_base::{Moment, ToolError};
use serde::Deserialize;
use tokio::time::Instant;

use crate::args::Args;
use crate::auth::Tokens;
use crate::error::Code;
use crate::github::GitHub;
use crate::github::Reply;
use crate::github::refusal::refusal;
use crate::settings::Settings;

/// How long all requests of a probe may take.
const LIMIT: Duration = Duration::from_secs(15);

/// What GitHub says of the credentials. It has no secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GitHubInfo {
    /// What they are, and what they allow.
    pub access: AccessInfo,
    /// The requests of the current hour; `None` if GitHub does not limit them.
    pub quota: Option<Quota>,
}

/// A kind of credentials.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AccessInfo {
    /// A token.
    Token {
        /// Its scopes (`X-OAuth-Scopes`); `None` if it has permissions instead, which GitHub does not list.
        scopes: Option<Vec<String>>,
        /// When it expires, as GitHub writes it; `None` if it does not, or GitHub does not say.
        expires: Option<String>,
    },
    /// The installation of an App.
    Installation {
        /// The account that it is installed in.
        account: String,
        /// Names of permissions, each with `read`, `write` or `admin`.
        permissions: Vec<(String, String)>,
        /// GitHub refuses its requests, because the account has suspended it.
        is_suspended: bool,
    },
}

/// How many requests the credentials have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Quota {
    /// In an hour.
    pub limit: u64,
    /// Left of them.
    pub remaining: u64,
    /// When all are there again (RFC 3339).
    pub resets: String,
}

/// The credentials of these options, and what GitHub says of them. It changes nothing and costs no quota.
///
/// # Errors
/// An option is invalid, GitHub does not answer, or it does not accept the credentials.
pub async fn probe(args: Args) -> anyhow::Result<GitHubInfo> {
    let deadline = Instant::now() + LIMIT;
    let github = GitHub::new(Settings::try_from(args)?)?;
    if let Tokens::Installation(installation) = &github.tokens {
        let described = installation.described(deadline).await.map_err(|error| said(&error))?;
        let is_suspended = described.suspended_at.is_some();
        // GitHub gives a suspended installation no token to ask with.
        let quota = match is_suspended {
            true => None,
            false => {
                let reply = ask(&github, deadline).await?;
                quota(&reply)?
            }
        };
        return Ok(GitHubInfo {
            access: AccessInfo::Installation {
                account: described.account.login,
                permissions: described.permissions.into_iter().collect(),
                is_suspended,
            },
            quota,
        });
    }
    let reply = ask(&github, deadline).await?;
    let scopes = reply.header("x-oauth-scopes").map(|scopes| {
        let scopes = scopes.split(',').map(str::trim).filter(|scope| !scope.is_empty());
        scopes.map(str::to_owned).collect()
    });
    Ok(GitHubInfo {
        access: AccessInfo::Token {
            scopes,
            expires: reply
                .header("github-authentication-token-expiration")
                .map(str::to_owned),
        },
        quota: quota(&reply)?,
    })
}

/// Asks for the quota. The headers of the answer describe the token.
async fn ask(github: &GitHub, deadline: Instant) -> anyhow::Result<Arc<Reply>> {
    github
        .read(&github.url(&["rate_limit"]), deadline)
        .await
        .map_err(|error| said(&error))
}

fn quota(reply: &Reply) -> anyhow::Result<Option<Quota>> {
    #[derive(Deserialize)]
    struct Limits {
        resources: Resources,
    }
    #[derive(Deserialize)]
    struct Resources {
        core: Core,
    }
    #[derive(Deserialize)]
    struct Core {
        limit: u64,
        remaining: u64,
        reset: i64,
    }
    // A GitHub of one's own that limits no requests does not have this page.
    if reply.status == 404 {
        return Ok(None);
    }
    ensure!(reply.status.is_success(), said(&refusal(reply, "The quota")));
    let limits: Limits = reply
        .json()
        .ok_or_else(|| anyhow!("GitHub's answer about the quota cannot be read"))?;
    let Core {
        limit,
        remaining,
        reset,
    } = limits.resources.core;
    Ok(Some(Quota {
        limit,
        remaining,
        resets: Moment(reset.saturating_mul(1_000_000)).text(),
    }))
}

/// The messages of these are for callers of a tool, who can only wait.
fn said(error: &ToolError) -> anyhow::Error {
    let is = |code: Code| error.code() == <&str>::from(code);
    if is(Code::Unavailable) {
        return anyhow!("GitHub does not answer, or reports a failure of its own");
    }
    if is(Code::RateLimited) {
        return anyhow!("GitHub accepts no more requests for now");
    }
    anyhow!(error.message().to_owned())
}
