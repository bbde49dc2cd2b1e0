//! The credentials: a token, or the tokens of an App's installation, which last an hour.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use anyhow::Context;
use chrono::Utc;
use gavel_mcp_base::{Moment, Secret, ToolError};
use jsonwebtoken::{Algorithm, Header, encode};
use reqwest::header::{AUTHORIZATION, HeaderValue};
use reqwest::{Method, Request};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::Instant;
use url::Url;

use crate::error::{Code, internal, unavailable};
use crate::github::http::{Http, Lost, Reply, at, new_request, parsed};
use crate::github::limits;
use crate::settings::{App, Credentials};

/// A token that ends within this time is renewed, in seconds.
const MARGIN: i64 = 300;
/// How long an App's statement about itself is valid, in seconds; GitHub accepts at most ten minutes.
const STATEMENT: i64 = 540;
const ATTEMPTS: u32 = 3;
const REDACTED: &str = "[redacted]";

/// What authorizes a request.
#[derive(Debug, Clone)]
pub(crate) struct Access {
    header: HeaderValue,
    secret: Secret,
}

impl Access {
    fn new(token: &str) -> anyhow::Result<Self> {
        let mut header = HeaderValue::from_str(&format!("Bearer {token}"))
            .ok()
            .context("a token")?;
        header.set_sensitive(true);
        Ok(Self {
            header,
            secret: Secret::new(token),
        })
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
    /// One renewal at a time.
    renewal: tokio::sync::Mutex<()>,
}

#[derive(Debug, Clone)]
struct Current {
    access: Access,
    until: Moment,
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
            Credentials::Token(token) => Self::Fixed(Access::new(token.expose())?),
            Credentials::App(app) => Self::Installation(Box::new(Installation {
                http,
                api,
                app,
                current: Mutex::default(),
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

    /// Whether the credentials are those of an installation, which has repositories of its own.
    pub(crate) fn are_an_installations(&self) -> bool {
        match self {
            Self::Fixed(access) => access.secret.expose().starts_with("ghs_"),
            Self::Installation(_) => true,
        }
    }

    /// Removes the credentials from what GitHub said: a file or a text may contain them.
    pub(crate) fn redact(&self, value: &mut Value) {
        let current = match self {
            Self::Fixed(access) => Some(access.clone()),
            Self::Installation(installation) => installation.current().map(|current| current.access),
        };
        if let Some(access) = current {
            redact(value, access.secret.expose());
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
        #[derive(Deserialize)]
        struct Granted {
            token: String,
            expires_at: String,
        }
        let granted: Granted = self.ask(Method::POST, &["access_tokens"], deadline).await?;
        let access = Access::new(&granted.token).map_err(|_| unavailable())?;
        let current = Current {
            access: access.clone(),
            until: Moment::parse(&granted.expires_at).ok_or_else(unavailable)?,
        };
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = Some(current);
        Ok(access)
    }

    /// The account that the App is installed in.
    pub(crate) async fn account(&self, deadline: Instant) -> Result<Account, ToolError> {
        self.described(deadline).await.map(|installed| installed.account)
    }

    /// What GitHub says of the installation.
    pub(crate) async fn described(&self, deadline: Instant) -> Result<Installed, ToolError> {
        self.ask(Method::GET, &[], deadline).await
    }

    /// A request as the App itself. Both that there are do no harm when they are repeated.
    async fn ask<T: DeserializeOwned>(&self, method: Method, rest: &[&str], deadline: Instant) -> Result<T, ToolError> {
        let id = self.app.installation.to_string();
        let url = at(&self.api, &[&["app", "installations", &id], rest].concat());
        let mut attempt = 1;
        loop {
            let mut request = new_request(method.clone(), url.clone());
            self.statement()?.authorize(&mut request);
            let reply = match self.http.send(request, deadline).await {
                Ok(reply) if reply.status.is_success() => return parsed(&reply).ok_or_else(unavailable),
                Ok(reply) if is_refused(&reply) => return Err(not_accepted(&reply)),
                Ok(reply) => Some(reply),
                Err(Lost::NotSent | Lost::Unknown | Lost::TooLarge) => None,
            };
            let wait = limits::pause(attempt, reply.as_ref());
            if attempt == ATTEMPTS || Instant::now() + wait >= deadline {
                return Err(unavailable());
            }
            tokio::time::sleep(wait).await;
            attempt += 1;
        }
    }

    /// The App's signed statement of who it is.
    fn statement(&self) -> Result<Access, ToolError> {
        // In the past, since clocks differ.
        let now = Utc::now().timestamp() - 60;
        let claims = json!({ "iat": now, "exp": now + STATEMENT, "iss": self.app.id });
        let signed = encode(&Header::new(Algorithm::RS256), &claims, &self.app.key);
        signed.ok().and_then(|token| Access::new(&token).ok()).ok_or_else(|| {
            tracing::error!("a statement of the App could not be signed");
            internal()
        })
    }
}

fn is_refused(reply: &Reply) -> bool {
    reply.status.is_client_error() && limits::limit(reply).is_none() && reply.status != 408
}

fn not_accepted(reply: &Reply) -> ToolError {
    tracing::warn!(
        status = reply.status.as_u16(),
        "GitHub does not accept the App or its installation"
    );
    ToolError::new(
        Code::Unauthorized,
        "GitHub does not accept the App's credentials. The operator has to check its id, its key and its installation.",
    )
}
