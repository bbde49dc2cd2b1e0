//! Giving git in a container the credential for one host. For the GitHub server: no tool of this crate does it.

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use thiserror::Error;

use gavel_mcp_base::Secret;

use crate::engine::Command;
use crate::engine::{Engine, EngineFault};
use crate::settings;

/// The file with the container's credentials. It is on a tmpfs, no tool reads it, and what it has is redacted.
pub const CREDENTIALS: &str = "/run/gavel/git-credentials";

/// The credential comes by standard input, as one line: in an argument or a variable, `inspect` would show it.
const CONFIGURE: &str = r#"
umask 077
IFS= read -r line || exit 1
printf '%s\n' "$line" >"$1.new" && mv "$1.new" "$1" || exit 1
command -v git >/dev/null || { echo no-git; exit 1; }
git config --global "credential.$2.helper" "store --file $1" &&
  git config --global user.name "$3" && git config --global user.email "$4" && echo configured
"#;

/// An account at a git host.
#[derive(Debug, Clone)]
pub struct GitAccount {
    /// `https://` and the host, without a path: `https://github.com`.
    pub url: String,
    /// The user of the credential, such as `x-access-token`.
    pub username: String,
    /// The password of the credential.
    pub token: Secret,
    /// The author of commits.
    pub name: String,
    /// The author's e-mail address.
    pub email: String,
}

/// Why git was not configured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum GitFault {
    /// There is no such container, or it belongs to another session.
    #[error("there is no such container")]
    NotFound,
    /// The container has stopped.
    #[error("the container has stopped")]
    NotRunning,
    /// The engine does not answer, or reports a failure. Nothing was done.
    #[error("the container engine does not answer")]
    Unavailable,
    /// The engine's answer was lost. It may have been configured.
    #[error("the container engine's answer was lost")]
    Unsettled,
    /// The container has no git, or its user has no home directory.
    #[error("git cannot be configured in the container")]
    NoGit,
    /// The host is not a URL of the allowed form.
    #[error("the host of the account is not https://HOST")]
    InvalidHost,
}

/// Writes the credential to the container's file and makes git use it for its host. Doing it again renews it. `host` is
/// `DOCKER_HOST`; `owner` is that of the call.
pub async fn configure_git(
    host: &str,
    owner: Option<&str>,
    container: &str,
    account: &GitAccount,
) -> Result<(), GitFault> {
    let socket = settings::socket(Some(host)).map_err(|_| GitFault::Unavailable)?;
    let line = line(account).ok_or(GitFault::InvalidHost)?;
    let engine = Engine::new(socket);
    let found = engine.find(container, owner).await.map_err(fault)?;
    let found = found.ok_or(GitFault::NotFound)?;
    let command = Command {
        code: CONFIGURE,
        arguments: vec![
            CREDENTIALS.to_owned(),
            account.url.clone(),
            account.name.clone(),
            account.email.clone(),
        ],
        input: line.expose().as_bytes(),
        most: 64 * 1024,
    };
    let prepared = engine.prepare_exec(&found.id, &command).await.map_err(fault)?;
    let written = engine.run_exec(prepared).await.map_err(|lost| match fault(lost) {
        GitFault::Unavailable => GitFault::Unsettled,
        known => known,
    })?;
    match written.out.trim_ascii().ends_with(b"configured") {
        true => Ok(()),
        false => Err(GitFault::NoGit),
    }
}

/// The line of the file, in the form of git's credential store.
fn line(account: &GitAccount) -> Option<Secret> {
    let (scheme, host) = account.url.split_once("://")?;
    let plain = !host.is_empty() && host.chars().all(|c| c.is_ascii_alphanumeric() || ".-:[]".contains(c));
    if !plain || !["https", "http"].contains(&scheme) {
        return None;
    }
    let encode = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
    let (user, password) = (encode(&account.username), encode(account.token.expose()));
    Some(Secret::new(format!("{scheme}://{user}:{password}@{host}\n")))
}

fn fault(fault: EngineFault) -> GitFault {
    match fault {
        EngineFault::Missing => GitFault::NotFound,
        EngineFault::Conflict => GitFault::NotRunning,
        EngineFault::Unavailable | EngineFault::Failed | EngineFault::Full => GitFault::Unavailable,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_one_url_whatever_the_credential_has() {
        let account = |url: &str| GitAccount {
            url: url.to_owned(),
            username: "x-access-token".to_owned(),
            token: Secret::new("a/b@c\nd"),
            name: String::new(),
            email: String::new(),
        };
        let line = line(&account("https://github.com")).expect("a line");
        assert_eq!(line.expose(), "https://x%2Daccess%2Dtoken:a%2Fb%40c%0Ad@github.com\n");
        for url in ["github.com", "https://", "https://a/b", "ssh://a", "https://a\nb"] {
            assert!(super::line(&account(url)).is_none(), "{url}");
        }
    }
}
