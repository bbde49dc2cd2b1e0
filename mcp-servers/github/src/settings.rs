//! Combines the options; rejects combinations that are unsafe or meaningless.

use std::fmt;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use gavel_mcp_base::Secret;
use gavel_mcp_base::settings::{self, given};
use jsonwebtoken::EncodingKey;
use url::Url;

use crate::args::Args;

const GITHUB: &str = "https://github.com";

/// The author of commits. Its address is that of no account: GitHub shows a commit as that of the owner of its address.
const COMMIT_NAME: &str = "gavel";
const COMMIT_EMAIL: &str = "gavel@gavel.invalid";

/// Consistent settings.
#[derive(Debug, Clone)]
pub struct Settings {
    pub(crate) credentials: Credentials,
    /// The base of the REST API.
    pub(crate) api: Url,
    /// How git is configured in containers; `None` if there is no container engine.
    pub(crate) git: Option<Git>,
    /// How long one call may take.
    pub(crate) timeout: Duration,
}

/// How git is configured in containers.
#[derive(Debug, Clone)]
pub(crate) struct Git {
    /// The socket of the container engine: `DOCKER_HOST`.
    pub(crate) engine: String,
    /// Scheme and host of GitHub, with the port if it has one of its own.
    pub(crate) url: String,
    /// The host, as above.
    pub(crate) host: String,
    /// The author of commits.
    pub(crate) name: String,
    pub(crate) email: String,
}

/// How requests are authorized.
#[derive(Debug, Clone)]
pub(crate) enum Credentials {
    /// One token, which does not change.
    Token(Secret),
    /// Tokens of an hour, for the installation of an App.
    App(App),
}

#[derive(Clone)]
pub(crate) struct App {
    pub(crate) id: String,
    pub(crate) key: EncodingKey,
    pub(crate) installation: u64,
}

impl fmt::Debug for App {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("App").field("id", &self.id).finish_non_exhaustive()
    }
}

impl TryFrom<Args> for Settings {
    type Error = anyhow::Error;

    fn try_from(args: Args) -> anyhow::Result<Self> {
        let github = settings::address("GITHUB_URL", given(&args.url).unwrap_or(GITHUB), GITHUB)?;
        let api = match given(&args.api_url) {
            Some(api) => settings::address("GITHUB_API_URL", api, GITHUB)?,
            None => api_of(&github)?,
        };
        let timeout = settings::number("GITHUB_TIMEOUT_SECONDS", &args.timeout_seconds, 30, 1..=600)?;
        Ok(Self {
            credentials: credentials(&args)?,
            api,
            git: git(&args, &github)?,
            timeout: Duration::from_secs(timeout),
        })
    }
}

/// An engine that cannot be used takes the tool away and not the server: `DOCKER_HOST` is a variable of other programs
/// too.
fn git(args: &Args, github: &Url) -> anyhow::Result<Option<Git>> {
    let author = |name: &str, text: &Option<String>, default: &str| {
        let text = given(text).unwrap_or(default);
        // Git would change these characters.
        let is_plain = !text.contains(|c: char| c.is_control() || "<>".contains(c));
        ensure!(is_plain, "{name} must be one line without < and >");
        Ok(text.to_owned())
    };
    let name = author("GITHUB_COMMIT_NAME", &args.commit_name, COMMIT_NAME)?;
    let email = author("GITHUB_COMMIT_EMAIL", &args.commit_email, COMMIT_EMAIL)?;
    let Some(engine) = given(&args.docker_host) else {
        tracing::info!("configureGitClientInContainer is not offered: DOCKER_HOST is not set");
        return Ok(None);
    };
    if let Err(error) = gavel_mcp_docker::check_host(engine) {
        tracing::warn!(%error, "configureGitClientInContainer is not offered");
        return Ok(None);
    }
    let url = github.origin().ascii_serialization();
    let host = url.split_once("://").map_or(url.as_str(), |(_, host)| host).to_owned();
    Ok(Some(Git {
        engine: engine.to_owned(),
        url,
        host,
        name,
        email,
    }))
}

fn credentials(args: &Args) -> anyhow::Result<Credentials> {
    let token = settings::key("GITHUB_TOKEN", &args.token, &args.token_file)?;
    let app = given(&args.app_id);
    match (token, app) {
        (Some(_), Some(_)) => bail!("GITHUB_TOKEN and GITHUB_APP_ID exclude each other: keep one of them"),
        (Some(token), None) => Ok(Credentials::Token(token)),
        (None, Some(id)) => app_of(id, args).map(Credentials::App),
        (None, None) => bail!(
            "no credentials: set GITHUB_TOKEN, or GITHUB_APP_ID, GITHUB_APP_PRIVATE_KEY and GITHUB_APP_INSTALLATION_ID"
        ),
    }
}

fn app_of(id: &str, args: &Args) -> anyhow::Result<App> {
    let (value, path) = (&args.app_private_key, &args.app_private_key_file);
    let key = settings::secret("the private key of the App", "GITHUB_APP_PRIVATE_KEY", value, path)?
        .context("GITHUB_APP_ID is set, so GITHUB_APP_PRIVATE_KEY (or GITHUB_APP_PRIVATE_KEY_FILE) must be set too")?;
    // A variable often has its line breaks written as \n. The parser's message could quote the key.
    let key = EncodingKey::from_rsa_pem(key.expose().replace("\\n", "\n").as_bytes())
        .ok()
        .context("GITHUB_APP_PRIVATE_KEY is not an RSA key in PEM form")?;
    let installation = given(&args.app_installation_id)
        .context("GITHUB_APP_ID is set, so GITHUB_APP_INSTALLATION_ID must be set too")?;
    let installation = installation
        .parse()
        .ok()
        .context("GITHUB_APP_INSTALLATION_ID has to be a whole number")?;
    Ok(App {
        id: id.to_owned(),
        key,
        installation,
    })
}

/// The API of a GitHub: a host of its own for github.com and ghe.com, a path of GitHub Enterprise Server.
fn api_of(github: &Url) -> anyhow::Result<Url> {
    let mut api = github.clone();
    match github.domain() {
        Some(host) if host == "github.com" || host.ends_with(".ghe.com") => {
            let host = format!("api.{host}");
            api.set_host(Some(&host)).context("GITHUB_URL has no host")?;
            api.set_path("");
        }
        _ => {
            let path = format!("{}/api/v3", github.path().trim_end_matches('/'));
            api.set_path(&path);
        }
    }
    Ok(api)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_api_follows_from_githubs_address() {
        let api = |text: &str| api_of(&Url::parse(text).expect("a URL")).expect("an API").to_string();
        assert_eq!(api("https://github.com"), "https://api.github.com/");
        assert_eq!(api("https://acme.ghe.com/"), "https://api.acme.ghe.com/");
        assert_eq!(api("https://github.example.com"), "https://github.example.com/api/v3");
        assert_eq!(api("http://127.0.0.1:8080"), "http://127.0.0.1:8080/api/v3");
    }
}
