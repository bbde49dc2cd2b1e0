//! The credentials: a token, or the tokens of an App's installation, which last an hour.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use anyhow::Context;
use chrono::Utc;
use gavel_mcp_base::http::bearer;
use gavel_mcp_base::{Moment, Secret, ToolError, internal};
use jsonwebtoken::{Algorithm, Header, encode};
use reqwest::header::{AUTHORIZATION, HeaderValue};
use reqwest::{Method, Request};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::Instant;
use url::Url;

use crate::error::{Code, unavailable};
use crate::github::{ATTEMPTS, Http, Lost, Reply, Retries, at, new_request, rate_limit};
use crate::settings::{App, Credentials};

/// A token that ends within this time is renewed, in seconds.
const MARGIN: i64 = 300;
/// How long an App's statement about itself is valid, in seconds; GitHub accepts at most ten minutes.
const STATEMENT: i64 = 540;
/// How many tokens for git are remembered.
const REMEMBERED: usize = 1000;
const REDACTED: &str = "[redacted]";

/// What authorizes a request.
#[derive(Debug, Clone)]
pub(crate) struct Access {
    header: HeaderValue,
    secret: Secret,
}

impl Access {
    fn new(secret: Secret) -> Result<Self, ToolError> {
        let header = bearer(&secret)?;
        Ok(Self { header, secret })
    }

    pub(crate) fn authorize(&self, request: &mut Request) {
        request.headers_mut().insert(AUTHORIZATION, self.header.clone());
    }
}

/// The source of access.
#[derive(Debug)]
pub(crate) enum Tokens {
    Fixed(Access),
    Installation(Box<Installation>),
}

/// An App's installation and its current token.
#[derive(Debug)]
pub(crate) struct Installation {
    http: Http,
    api: Url,
    app: App,
    current: Mutex<Option<Current>>,
    /// The tokens for git, the newest last. No answer shows them.
    for_git: Mutex<VecDeque<Secret>>,
    /// One renewal at a time.
    renewal: tokio::sync::Mutex<()>,
}

#[derive(Debug, Clone)]
struct Current {
    access: Access,
    until: Moment,
}

/// A token of an installation.
#[derive(Deserialize)]
struct Granted {
    token: String,
    expires_at: String,
}

/// The account that an App is installed in.
#[derive(Debug, Deserialize)]
pub(crate) struct Account {
    pub(crate) login: String,
    #[serde(default)]
    r#type: Option<String>,
}

impl Account {
    pub(crate) fn is_organization(&self) -> bool {
        self.r#type.as_deref() == Some("Organization")
    }
}

/// An installation, as GitHub describes it.
#[derive(Debug, Deserialize)]
pub(crate) struct Installed {
    pub(crate) account: Account,
    /// What it may do: `read`, `write` or `admin`, by the name of the permission.
    #[serde(default)]
    pub(crate) permissions: BTreeMap<String, String>,
    #[serde(default)]
    pub(crate) suspended_at: Option<String>,
}

impl Tokens {
    pub(crate) fn new(credentials: Credentials, http: Http, api: Url) -> anyhow::Result<Self> {
        Ok(match credentials {
            Credentials::Token(token) => Self::Fixed(Access::new(token).ok().context("GITHUB_TOKEN is not a token")?),
            Credentials::App(app) => Self::Installation(Box::new(Installation {
                http,
                api,
                app,
                current: Mutex::default(),
                for_git: Mutex::default(),
                renewal: tokio::sync::Mutex::default(),
            })),
        })
    }

    pub(crate) async fn access(&self, deadline: Instant) -> Result<Access, ToolError> {
        match self {
            Self::Fixed(access) => Ok(access.clone()),
            Self::Installation(installation) => installation.access(None, deadline).await,
        }
    }

    /// Access in place of one that GitHub rejected; `None` if there is no other.
    pub(crate) async fn renewed(&self, stale: &Access, deadline: Instant) -> Result<Option<Access>, ToolError> {
        match self {
            Self::Fixed(_) => Ok(None),
            Self::Installation(installation) => installation.access(Some(stale), deadline).await.map(Some),
        }
    }

    /// A token for git. An App's is a new one, which lasts an hour, can read and write contents and pull requests, and is
    /// limited to this repository if one is named.
    pub(crate) async fn for_git(&self, repository: Option<&str>, deadline: Instant) -> Result<Secret, ToolError> {
        match self {
            Self::Fixed(access) => Ok(access.secret.clone()),
            Self::Installation(installation) => installation.for_git(repository, deadline).await,
        }
    }

    /// Whether the credentials are those of an installation, which has repositories of its own.
    pub(crate) fn are_an_installations(&self) -> bool {
        match self {
            Self::Fixed(access) => access.secret.expose().starts_with("ghs_"),
            Self::Installation(_) => true,
        }
    }

    /// Removes the credentials from what GitHub said: a file or a text may contain them.
    pub(crate) fn redact(&self, value: &mut Value) {
        match self {
            Self::Fixed(access) => redact(value, access.secret.expose()),
            Self::Installation(installation) => {
                if let Some(current) = installation.current() {
                    redact(value, current.access.secret.expose());
                }
                let issued = installation.for_git.lock().unwrap_or_else(PoisonError::into_inner);
                issued.iter().for_each(|token| redact(value, token.expose()));
            }
        }
    }
}

fn redact(value: &mut Value, secret: &str) {
    match value {
        Value::String(text) if text.contains(secret) => *text = text.replace(secret, REDACTED),
        Value::Array(items) => items.iter_mut().for_each(|item| redact(item, secret)),
        Value::Object(members) => members.values_mut().for_each(|member| redact(member, secret)),
        Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

impl Installation {
    fn current(&self) -> Option<Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn access(&self, stale: Option<&Access>, deadline: Instant) -> Result<Access, ToolError> {
        let Ok(_one) = tokio::time::timeout_at(deadline, self.renewal.lock()).await else {
            return Err(unavailable());
        };
        let is_usable = |current: &Current| {
            let ends = current.until.0 / 1_000_000 - Utc::now().timestamp();
            ends > MARGIN && stale.is_none_or(|stale| stale.secret != current.access.secret)
        };
        if let Some(current) = self.current().filter(is_usable) {
            return Ok(current.access);
        }
        let granted: Granted = self.ask(Method::POST, &["access_tokens"], None, deadline).await?;
        let access = Access::new(Secret::new(granted.token)).map_err(|_| unavailable())?;
        let current = Current {
            access: access.clone(),
            until: Moment::parse(&granted.expires_at).ok_or_else(unavailable)?,
        };
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = Some(current);
        Ok(access)
    }

    async fn for_git(&self, repository: Option<&str>, deadline: Instant) -> Result<Secret, ToolError> {
        let mut limits = json!({ "permissions": { "contents": "write", "pull_requests": "write" } });
        if let Some(repository) = repository {
            limits["repositories"] = json!([repository]);
        }
        let granted: Granted = self
            .ask(Method::POST, &["access_tokens"], Some(&limits), deadline)
            .await?;
        let token = Secret::new(granted.token);
        let mut issued = self.for_git.lock().unwrap_or_else(PoisonError::into_inner);
        if issued.len() == REMEMBERED {
            issued.pop_front();
        }
        issued.push_back(token.clone());
        Ok(token)
    }

    /// The account that the App is installed in.
    pub(crate) async fn account(&self, deadline: Instant) -> Result<Account, ToolError> {
        self.described(deadline).await.map(|installed| installed.account)
    }

    /// What GitHub says of the installation.
    pub(crate) async fn described(&self, deadline: Instant) -> Result<Installed, ToolError> {
        self.ask(Method::GET, &[], None, deadline).await
    }

    /// A request as the App itself. None of them does harm when it is repeated.
    async fn ask<T: DeserializeOwned>(
        &self,
        method: Method,
        rest: &[&str],
        body: Option<&Value>,
        deadline: Instant,
    ) -> Result<T, ToolError> {
        let id = self.app.installation.to_string();
        let url = at(&self.api, &[&["app", "installations", &id], rest].concat());
        let mut retries = Retries::new(ATTEMPTS, deadline);
        loop {
            let mut request = new_request(method.clone(), url.clone(), body);
            self.statement()?.authorize(&mut request);
            let reply = match self.http.send(request, deadline).await {
                Ok(reply) if reply.status.is_success() => return reply.json().ok_or_else(unavailable),
                Ok(reply) if is_refused(&reply) => return Err(not_accepted(&reply)),
                Ok(reply) => Some(reply),
                Err(Lost::NotSent | Lost::Unknown | Lost::TooLarge) => None,
            };
            if !retries.again(reply.as_ref()).await {
                return Err(unavailable());
            }
        }
    }

    /// The App's signed statement of who it is.
    fn statement(&self) -> Result<Access, ToolError> {
        // In the past, since clocks differ.
        let now = Utc::now().timestamp() - 60;
        let claims = json!({ "iat": now, "exp": now + STATEMENT, "iss": self.app.id });
        let signed = encode(&Header::new(Algorithm::RS256), &claims, &self.app.key);
        let signed = signed.map_err(|error| {
            tracing::error!(%error, "a statement of the App could not be signed");
            internal()
        });
        Access::new(Secret::new(signed?))
    }
}

fn is_refused(reply: &Reply) -> bool {
    reply.status.is_client_error() && rate_limit(reply).is_none() && reply.status != 408
}

fn not_accepted(reply: &Reply) -> ToolError {
    if reply.status == 422 {
        return ToolError::new(
            Code::Forbidden,
            "The App's installation does not have this repository, or may not write its contents and pull requests.",
        )
        .with("needed", "contents=write,pull_requests=write");
    }
    tracing::warn!(
        status = reply.status.as_u16(),
        "GitHub does not accept the App or its installation"
    );
    ToolError::new(
        Code::Unauthorized,
        "GitHub does not accept the App's credentials. The operator has to check its id, its key and its installation.",
    )
}
