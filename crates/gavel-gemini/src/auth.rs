//! Authentication: an API key, or an access token that is fetched, cached and renewed.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwapOption;
use gavel_upstream::upstream::is_loopback;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Request};
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;
use tokio::time::timeout_at;
use url::Url;
use url::form_urlencoded::Serializer;

use crate::call::{Failure, Health, Retry};
use crate::client::{self, Waiting};
use crate::config::{ConfigError, Timeouts, invalid};
use crate::domain::journal::FaultKind;
use crate::reply::label;
use crate::wire;

const API_KEY: HeaderName = HeaderName::from_static("x-goog-api-key");
const QUOTA_PROJECT: HeaderName = HeaderName::from_static("x-goog-user-project");

/// Authenticates requests.
#[derive(Debug)]
pub(super) enum Auth {
    /// `x-goog-api-key`.
    Key(HeaderValue, SecretString),
    /// `Authorization: Bearer`, and the billing project if the credentials name one.
    Token(Box<TokenCache>, Option<HeaderValue>),
}

impl Auth {
    pub(super) fn key(key: &SecretString) -> Result<Self, ConfigError> {
        let text = key.expose_secret().trim();
        let refused = || {
            invalid(
                "api_key",
                "it is empty or contains invalid characters; allowed is visible ASCII",
            )
        };
        if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(refused());
        }
        let mut header = HeaderValue::from_str(text).map_err(|_| refused())?;
        header.set_sensitive(true);
        Ok(Self::Key(header, text.into()))
    }

    pub(super) fn token(credentials: Credentials, timeouts: &Timeouts) -> Result<Self, ConfigError> {
        let quota_project = credentials
            .quota_project_id
            .as_deref()
            .map(HeaderValue::from_str)
            .transpose();
        let quota_project = quota_project.map_err(|_| invalid("quota_project_id", "not a project id"))?;
        Ok(Self::Token(
            Box::new(TokenCache::new(credentials, timeouts)?),
            quota_project,
        ))
    }

    /// Does it use access tokens, which can be renewed?
    pub(super) fn is_oauth(&self) -> bool {
        matches!(self, Self::Token(..))
    }

    /// Sets the headers. May have to fetch a token first.
    pub(super) async fn apply(&self, headers: &mut HeaderMap, deadline: Instant) -> Result<(), Failure> {
        match self {
            Self::Key(key, _) => {
                headers.insert(API_KEY, key.clone());
            }
            Self::Token(cache, quota_project) => {
                let token = cache.get(deadline).await.map_err(|failure| Failure {
                    // A failed token request says nothing about the health of the model's endpoint.
                    health: Health::Unknown,
                    ..failure
                })?;
                headers.insert(reqwest::header::AUTHORIZATION, token);
                if let Some(project) = quota_project {
                    headers.insert(QUOTA_PROJECT, project.clone());
                }
            }
        }
        Ok(())
    }

    /// The provider rejected the token in `headers`, so it is not used again.
    pub(super) fn refused(&self, headers: &HeaderMap) {
        if let (Self::Token(cache, _), Some(used)) = (self, headers.get(reqwest::header::AUTHORIZATION)) {
            cache.discard(used);
        }
    }

    /// Redacts the key or the token in a provider's answer.
    pub(super) fn redact(&self, words: String) -> String {
        match self {
            Self::Key(_, key) => blank(words, key.expose_secret()),
            Self::Token(cache, _) => match cache.current() {
                Some(token) => blank(words, token.to_str().unwrap_or_default().trim_start_matches("Bearer ")),
                None => words,
            },
        }
    }
}

fn blank(words: String, secret: &str) -> String {
    if secret.is_empty() || !words.contains(secret) {
        return words;
    }
    words.replace(secret, "…")
}

/// Where to search.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AdcSources {
    /// `GOOGLE_APPLICATION_CREDENTIALS`. If it is set, the file must exist.
    pub credentials_file: Option<PathBuf>,
    /// The file that gcloud writes to the user's home directory. Used if it exists.
    pub gcloud_file: Option<PathBuf>,
    /// Scheme, host and port of the metadata server. Absent means Google's.
    pub metadata_base: Option<String>,
    /// `GOOGLE_CLOUD_QUOTA_PROJECT`. Takes precedence over the files.
    pub quota_project: Option<String>,
}

impl AdcSources {
    /// The sources that these variables of the environment name: `GOOGLE_APPLICATION_CREDENTIALS`, `CLOUDSDK_CONFIG`,
    /// `HOME`, `GCE_METADATA_HOST`, `GOOGLE_CLOUD_QUOTA_PROJECT`. An empty value counts as absent.
    pub fn from_env(variable: impl Fn(&'static str) -> Option<String>) -> Self {
        let set = |name| {
            let value = variable(name)?.trim().to_owned();
            Some(value).filter(|value| !value.is_empty())
        };
        let gcloud = set("CLOUDSDK_CONFIG").map(PathBuf::from);
        let gcloud = gcloud.or_else(|| set("HOME").map(|home| Path::new(&home).join(".config/gcloud")));
        Self {
            credentials_file: set("GOOGLE_APPLICATION_CREDENTIALS").map(PathBuf::from),
            gcloud_file: gcloud.map(|directory| directory.join("application_default_credentials.json")),
            metadata_base: set("GCE_METADATA_HOST").map(|host| match host.contains("://") {
                true => host,
                false => format!("http://{host}"),
            }),
            quota_project: set("GOOGLE_CLOUD_QUOTA_PROJECT"),
        }
    }

    /// Returns the first credentials found. Without a file, these are the metadata server's; it is contacted only when
    /// a token is needed.
    ///
    /// # Errors
    /// A named file is missing, or an existing file cannot be used.
    pub fn find(&self) -> Result<Credentials, ConfigError> {
        let read = |path: &Path| std::fs::read_to_string(path);
        let named = self.credentials_file.as_deref().map(|path| {
            let place = format!("GOOGLE_APPLICATION_CREDENTIALS={}", path.display());
            (path, read(path).map_err(|error| invalid(place, error.to_string())))
        });
        let gcloud = || {
            let path = self.gcloud_file.as_deref()?;
            match read(path) {
                Err(error) if error.kind() == ErrorKind::NotFound => None,
                read => Some((
                    path,
                    read.map_err(|error| invalid(path.display().to_string(), error.to_string())),
                )),
            }
        };
        let mut found = match named.or_else(gcloud) {
            Some((path, json)) => Credentials::from_json(&json?, &path.display().to_string())?,
            None => Credentials::metadata(self.metadata_base.as_deref().unwrap_or(METADATA_BASE)),
        };
        found.quota_project_id = self.quota_project.clone().or(found.quota_project_id);
        Ok(found)
    }
}

/// A token is renewed when its remaining lifetime is less than this or a quarter of its total, …
const RENEW_AHEAD: Duration = Duration::from_secs(300);
/// … and no longer used when less than this or a tenth remains: it must stay valid during a request.
const TOO_OLD: Duration = Duration::from_secs(20);
/// The request that renews a token early waits no longer than this, because its current token is still valid.
const PATIENCE: Duration = Duration::from_secs(2);
/// Minimum time after a failed early renewal before the next attempt.
const PAUSE: Duration = Duration::from_secs(15);

#[derive(Debug)]
pub(super) struct TokenCache {
    fetcher: Fetcher,
    current: ArcSwapOption<Token>,
    /// Held by the request that fetches. Contains the time and cause of the last failed fetch.
    fetching: Mutex<Option<(Instant, Failure)>>,
}

struct Usable {
    header: HeaderValue,
    renew: bool,
}

impl TokenCache {
    fn new(credentials: Credentials, timeouts: &Timeouts) -> Result<Self, ConfigError> {
        Ok(Self {
            fetcher: Fetcher::new(credentials, timeouts)?,
            current: ArcSwapOption::empty(),
            fetching: Mutex::new(None),
        })
    }

    /// `Bearer …`.
    async fn get(&self, deadline: Instant) -> Result<HeaderValue, Failure> {
        let asked = Instant::now();
        let Some(Usable { header, renew }) = self.usable(asked) else {
            return self.wait_for_one(asked, deadline).await;
        };
        if renew
            && let Ok(mut last) = self.fetching.try_lock()
            && last
                .as_ref()
                .is_none_or(|(when, _)| asked.duration_since(*when) > PAUSE)
        {
            let patience = deadline.min(asked + PATIENCE);
            return Ok(self.renew(&mut last, patience).await.unwrap_or(header));
        }
        Ok(header)
    }

    /// Drops the refused token, unless it has been replaced already.
    fn discard(&self, refused: &HeaderValue) {
        let current = self.current.load();
        if current.as_ref().is_some_and(|token| token.header == refused) {
            self.current.compare_and_swap(&current, None);
        }
    }

    /// The current token, whether still usable or not.
    fn current(&self) -> Option<HeaderValue> {
        self.current.load().as_ref().map(|token| token.header.clone())
    }

    fn usable(&self, now: Instant) -> Option<Usable> {
        let current = self.current.load();
        let token = current.as_ref()?;
        let left = token.expires.checked_duration_since(now)?;
        (left > TOO_OLD.min(token.lifetime / 10)).then(|| Usable {
            header: token.header.clone(),
            renew: left < RENEW_AHEAD.min(token.lifetime / 4),
        })
    }

    async fn wait_for_one(&self, asked: Instant, deadline: Instant) -> Result<HeaderValue, Failure> {
        let Ok(mut last) = timeout_at(deadline.into(), self.fetching.lock()).await else {
            return Err(Failure::deadline(Health::Unknown));
        };
        // The previous holder of the lock may have fetched a token, or failed, on behalf of all waiting requests.
        if let Some(Usable { header, .. }) = self.usable(Instant::now()) {
            return Ok(header);
        }
        match &*last {
            Some((when, failure)) if *when >= asked => Err(failure.clone()),
            _ => self.renew(&mut last, deadline).await,
        }
    }

    async fn renew(&self, last: &mut Option<(Instant, Failure)>, deadline: Instant) -> Result<HeaderValue, Failure> {
        match self.fetcher.fetch(deadline).await {
            Ok(token) => {
                let header = token.header.clone();
                self.current.store(Some(Arc::new(token)));
                *last = None;
                Ok(header)
            }
            Err(failure) => {
                tracing::warn!(detail = failure.detail, "fetching an access token failed");
                *last = Some((Instant::now(), failure.clone()));
                Err(failure)
            }
        }
    }
}

/// Google's token endpoint, for files that do not name one.
const TOKEN_URI: &str = "https://oauth2.googleapis.com/token";
/// The metadata server of Google's machines.
pub const METADATA_BASE: &str = "http://metadata.google.internal";

/// Where access tokens come from, and who is billed.
#[derive(Clone, Debug, Deserialize)]
pub struct Credentials {
    /// The source.
    #[serde(flatten)]
    pub source: TokenSource,
    /// The token endpoint of a file.
    #[serde(default = "token_uri")]
    pub token_uri: String,
    /// The billing project.
    #[serde(default)]
    pub quota_project_id: Option<String>,
}

/// The source of access tokens.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum TokenSource {
    /// A service account's key file.
    ServiceAccount(ServiceAccount),
    /// The file that `gcloud auth application-default login` writes.
    AuthorizedUser(AuthorizedUser),
    /// The identity of the machine.
    #[serde(skip)]
    Metadata {
        /// Scheme, host and port; [`METADATA_BASE`] is Google's.
        base_url: String,
    },
}

/// Where access tokens come from.
#[derive(Clone, Debug)]
pub enum CredentialSource {
    /// These credentials.
    Given(Credentials),
    /// The application default credentials that are found when the adapter is made.
    Default(AdcSources),
}

impl CredentialSource {
    pub(super) fn find(self) -> Result<Credentials, ConfigError> {
        match self {
            Self::Given(credentials) => Ok(credentials),
            Self::Default(sources) => sources.find(),
        }
    }
}

/// A service account and its private key.
#[derive(Clone, Debug, Deserialize)]
pub struct ServiceAccount {
    /// The account's identity.
    pub client_email: String,
    /// PEM, PKCS#8 or PKCS#1.
    #[serde(deserialize_with = "secret")]
    pub private_key: SecretString,
    /// Identifies the key among the account's keys.
    #[serde(default)]
    pub private_key_id: Option<String>,
}

/// A user's refresh token.
#[derive(Clone, Debug, Deserialize)]
pub struct AuthorizedUser {
    /// The OAuth client that requested the refresh token.
    pub client_id: String,
    /// Secret of that OAuth client.
    #[serde(deserialize_with = "secret")]
    pub client_secret: SecretString,
    /// Exchanged for access tokens.
    #[serde(deserialize_with = "secret")]
    pub refresh_token: SecretString,
}

fn secret<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<SecretString, D::Error> {
    String::deserialize(deserializer).map(SecretString::from)
}

fn token_uri() -> String {
    TOKEN_URI.to_owned()
}

impl Credentials {
    /// The identity of the machine, which its metadata server knows.
    pub fn metadata(base_url: &str) -> Self {
        Self {
            source: TokenSource::Metadata {
                base_url: base_url.to_owned(),
            },
            token_uri: token_uri(),
            quota_project_id: None,
        }
    }

    /// Parses a credentials file's JSON; `place` names the file in errors.
    ///
    /// # Errors
    /// Invalid JSON, a missing field, or a `type` other than `service_account` and `authorized_user`.
    pub fn from_json(json: &str, place: &str) -> Result<Self, ConfigError> {
        serde_json::from_str(json).map_err(|error| {
            let words = error.to_string();
            // Other messages of the parser could quote a secret.
            let is_safe = words.starts_with("missing field") || words.starts_with("unknown variant");
            let (line, column) = (error.line(), error.column());
            let position = format!("not the expected JSON (line {line}, column {column})");
            invalid(place, if is_safe { words } else { position })
        })
    }
}

/// Parses the private key at startup, so that an invalid key fails the start and not the first request.
fn signing_key(account: &ServiceAccount) -> Result<EncodingKey, ConfigError> {
    EncodingKey::from_rsa_pem(account.private_key.expose_secret().as_bytes())
        .map_err(|_| invalid("private_key", "it is not an RSA key in PEM form"))
}

const SCOPE: &str = "https://www.googleapis.com/auth/cloud-platform";
const METADATA_PATH: &str = "computeMetadata/v1/instance/service-accounts/default/token";
const MAX_TOKEN_BODY: usize = 64 * 1024;

/// An access token, ready to be set on a request.
#[derive(Clone, Debug)]
struct Token {
    /// `Bearer …`, marked sensitive.
    header: HeaderValue,
    expires: Instant,
    lifetime: Duration,
}

/// Fetches tokens for one set of credentials.
#[derive(Debug)]
struct Fetcher {
    credentials: Credentials,
    key: Option<EncodingKey>,
    url: Url,
    client: Client,
    timeouts: Timeouts,
}

impl Fetcher {
    fn new(credentials: Credentials, timeouts: &Timeouts) -> Result<Self, ConfigError> {
        let key = match &credentials.source {
            TokenSource::ServiceAccount(account) => Some(signing_key(account)?),
            TokenSource::AuthorizedUser(_) | TokenSource::Metadata { .. } => None,
        };
        let (setting, place, is_metadata) = match &credentials.source {
            TokenSource::Metadata { base_url } => {
                let place = format!("{}/{METADATA_PATH}", base_url.trim_end_matches('/'));
                ("metadata server", place, true)
            }
            _ => ("token_uri", credentials.token_uri.clone(), false),
        };
        let url = Url::parse(&place).map_err(|error| invalid(setting, error.to_string()))?;
        let direct = is_metadata || is_loopback(&url);
        let client = client::build(timeouts, url.scheme() == "http", direct)?;
        Ok(Self {
            credentials,
            key,
            url,
            client,
            timeouts: Timeouts {
                first_byte: timeouts.token,
                idle: timeouts.token,
                ..*timeouts
            },
        })
    }

    /// One request to the token endpoint.
    async fn fetch(&self, deadline: Instant) -> Result<Token, Failure> {
        let begun = Instant::now();
        let request = self.request()?;
        let waiting = Waiting {
            timeouts: &self.timeouts,
            deadline: begun
                .checked_add(self.timeouts.token)
                .map_or(deadline, |limit| limit.min(deadline)),
            begun,
        };
        let reported = |failure: Failure| Failure {
            detail: format!("no access token: {}", failure.detail),
            ..failure
        };
        let response = waiting.send(&self.client, request).await.map_err(reported)?;
        let status = response.status();
        let mut held = client::held(("", ""));
        let body = waiting
            .body(response, MAX_TOKEN_BODY, &mut held)
            .await
            .map_err(reported)?;
        if !status.is_success() {
            return Err(reported(refusal(status.as_u16(), &body)));
        }
        #[derive(Deserialize)]
        struct Granted {
            access_token: String,
            #[serde(default)]
            expires_in: Option<wire::Count>,
        }
        let granted: Granted = wire::read(&body).map_err(|error| reported(Failure::unavailable(error)))?;
        let mut header = HeaderValue::from_str(&format!("Bearer {}", granted.access_token))
            .map_err(|_| reported(Failure::unavailable("the token is not a valid header value")))?;
        header.set_sensitive(true);
        // The default lifetime is 300 s, the maximum one day.
        let lifetime = Duration::from_secs(granted.expires_in.map_or(300, |seconds| seconds.0.min(86_400)));
        Ok(Token {
            header,
            expires: begun + lifetime,
            lifetime,
        })
    }

    fn request(&self) -> Result<Request, Failure> {
        let mut form = Serializer::new(String::new());
        match &self.credentials.source {
            TokenSource::Metadata { .. } => {
                let mut request = Request::new(reqwest::Method::GET, self.url.clone());
                request
                    .headers_mut()
                    .insert("Metadata-Flavor", HeaderValue::from_static("Google"));
                return Ok(request);
            }
            TokenSource::ServiceAccount(account) => {
                form.append_pair("grant_type", "urn:ietf:params:oauth:grant-type:jwt-bearer");
                form.append_pair("assertion", &self.assertion(account)?);
            }
            TokenSource::AuthorizedUser(AuthorizedUser {
                client_id,
                client_secret,
                refresh_token,
            }) => {
                form.append_pair("grant_type", "refresh_token");
                form.append_pair("client_id", client_id);
                form.append_pair("client_secret", client_secret.expose_secret());
                form.append_pair("refresh_token", refresh_token.expose_secret());
            }
        }
        let mut request = Request::new(reqwest::Method::POST, self.url.clone());
        let kind = HeaderValue::from_static("application/x-www-form-urlencoded");
        request.headers_mut().insert(CONTENT_TYPE, kind);
        *request.body_mut() = Some(form.finish().into());
        Ok(request)
    }

    /// The signed claim to exchange for a token (RFC 7523).
    fn assertion(&self, account: &ServiceAccount) -> Result<String, Failure> {
        #[derive(Serialize)]
        struct Claims<'a> {
            iss: &'a str,
            scope: &'a str,
            aud: &'a str,
            iat: u64,
            exp: u64,
        }
        let key = self
            .key
            .as_ref()
            .ok_or_else(|| Failure::unavailable("no signing key"))?;
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_secs());
        let header = Header {
            kid: account.private_key_id.clone(),
            ..Header::new(Algorithm::RS256)
        };
        let claims = Claims {
            iss: &account.client_email,
            scope: SCOPE,
            aud: &self.credentials.token_uri,
            iat: now,
            exp: now + 3600,
        };
        jsonwebtoken::encode(&header, &claims, key)
            .map_err(|error| Failure::unavailable(format!("the claim could not be signed: {error}")))
    }
}

/// `{"error":"invalid_grant","error_description":…}`: only the code is reported, because the description may name a
/// person.
fn refusal(status: u16, body: &[u8]) -> Failure {
    #[derive(Deserialize)]
    struct Refused {
        error: Option<String>,
    }
    let code = wire::read::<Refused>(body)
        .ok()
        .and_then(|refused| refused.error)
        .map(|code| label(&code));
    let may_pass = matches!(status, 408 | 429 | 500..);
    Failure {
        kind: if may_pass {
            FaultKind::Unavailable
        } else {
            FaultKind::Credentials
        },
        retry: if may_pass { Retry::Backoff } else { Retry::No },
        ..Failure::unavailable(format!("the token endpoint answered {status} {}", code.unwrap_or_default()).trim_end())
    }
}

#[cfg(test)]
mod adc_tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    const USER: &str = r#"{"type":"authorized_user","client_id":"ID","client_secret":"s","refresh_token":"r"}"#;

    fn client_id(credentials: &Credentials) -> &str {
        match &credentials.source {
            TokenSource::AuthorizedUser(user) => &user.client_id,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_named_file_comes_before_gclouds_and_the_metadata_server_last() {
        let directory = tempfile::tempdir().unwrap();
        let home = directory.path();
        let named = home.join("named.json");
        std::fs::write(&named, USER.replace("ID", "named")).unwrap();
        let gcloud = home.join(".config/gcloud");
        let values = |named: Option<&str>| {
            AdcSources::from_env(|name| match name {
                "GOOGLE_APPLICATION_CREDENTIALS" => named.map(str::to_owned),
                "HOME" => home.to_str().map(str::to_owned),
                "GCE_METADATA_HOST" => Some("meta:80".to_owned()),
                "GOOGLE_CLOUD_QUOTA_PROJECT" => Some("q".to_owned()),
                _ => Some(String::new()),
            })
        };
        let metadata = values(None).find().unwrap();
        assert!(matches!(&metadata.source, TokenSource::Metadata { base_url } if base_url == "http://meta:80"));
        std::fs::create_dir_all(&gcloud).unwrap();
        std::fs::write(
            gcloud.join("application_default_credentials.json"),
            USER.replace("ID", "gcloud"),
        )
        .unwrap();
        assert_eq!(client_id(&values(None).find().unwrap()), "gcloud");
        let found = values(named.to_str()).find().unwrap();
        assert_eq!(
            (client_id(&found), found.quota_project_id.as_deref()),
            ("named", Some("q"))
        );
    }

    #[test]
    fn a_named_file_that_is_missing_is_an_error_and_not_passed_over() {
        let named = |name| (name == "GOOGLE_APPLICATION_CREDENTIALS").then(|| "/nowhere/adc.json".to_owned());
        let sources = AdcSources::from_env(named);
        let error = sources.find().unwrap_err().to_string();
        assert!(
            error.contains("GOOGLE_APPLICATION_CREDENTIALS=/nowhere/adc.json"),
            "{error}"
        );
    }
}

#[cfg(test)]
mod cache_tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn cache(left_s: u64, lifetime_s: u64) -> TokenCache {
        let absent = Credentials::metadata("http://127.0.0.1:1");
        let cache = TokenCache::new(absent, &Timeouts::default()).unwrap();
        cache.current.store(Some(Arc::new(Token {
            header: HeaderValue::from_static("Bearer old"),
            expires: Instant::now() + Duration::from_secs(left_s),
            lifetime: Duration::from_secs(lifetime_s),
        })));
        cache
    }

    #[test]
    fn a_token_is_renewed_ahead_of_its_end_and_dropped_just_before_it() {
        for (left, lifetime, renew) in [
            (3000, 3600, Some(false)),
            (301, 3600, Some(false)),
            (299, 3600, Some(true)),
            (25, 3600, Some(true)),
            (19, 3600, None),
            (0, 3600, None),
            // A token with a lifetime of one minute is neither renewed constantly nor considered unusable from the
            // start.
            (50, 60, Some(false)),
            (14, 60, Some(true)),
            (5, 60, None),
        ] {
            let usable = cache(left, lifetime).usable(Instant::now());
            assert_eq!(
                usable.map(|usable| usable.renew),
                renew,
                "{left} s of {lifetime} s left"
            );
        }
    }

    #[tokio::test]
    async fn when_a_renewal_fails_the_old_token_remains_and_the_next_renewal_waits() {
        let (cache, deadline) = (cache(100, 3600), Instant::now() + Duration::from_secs(10));
        assert_eq!(cache.get(deadline).await.unwrap(), "Bearer old");
        let failed = cache.fetching.lock().await.as_ref().map(|(when, _)| *when);
        assert!(failed.is_some(), "it was tried");
        assert_eq!(cache.get(deadline).await.unwrap(), "Bearer old");
        assert_eq!(
            cache.fetching.lock().await.as_ref().map(|(when, _)| *when),
            failed,
            "and not again"
        );
    }

    #[test]
    fn only_the_token_that_was_refused_is_discarded() {
        let cache = cache(3000, 3600);
        cache.discard(&HeaderValue::from_static("Bearer older"));
        assert!(cache.usable(Instant::now()).is_some());
        cache.discard(&HeaderValue::from_static("Bearer old"));
        assert!(cache.usable(Instant::now()).is_none());
    }
}

#[cfg(test)]
mod credentials_tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn files_are_distinguished_by_their_type() {
        let user = r#"{"type":"authorized_user","client_id":"c","client_secret":"s","refresh_token":"r","quota_project_id":"q"}"#;
        let read = Credentials::from_json(user, "adc").unwrap();
        assert_eq!(
            (&*read.token_uri, read.quota_project_id.as_deref()),
            (TOKEN_URI, Some("q"))
        );
        assert!(matches!(read.source, TokenSource::AuthorizedUser(_)));
        let account = r#"{"type":"service_account","client_email":"e","private_key":"k","token_uri":"http://t"}"#;
        let read = Credentials::from_json(account, "adc").unwrap();
        assert!(matches!(read.source, TokenSource::ServiceAccount(_)) && read.token_uri == "http://t");
    }

    #[test]
    fn an_invalid_file_is_named_with_its_error_and_no_secret() {
        for (json, words) in [
            (r#"{"type":"external_account"}"#, "external_account"),
            (r#"{}"#, "missing field `type`"),
            (
                r#"{"type":"authorized_user","client_id":"c","client_secret":"s3cret"}"#,
                "missing field `refresh_token`",
            ),
            (
                r#"{"type":"service_account","client_email":"e","private_key":["s3cret"]}"#,
                "expected",
            ),
            ("s3cret", "expected"),
        ] {
            let error = Credentials::from_json(json, "/adc.json").unwrap_err().to_string();
            assert!(error.starts_with("/adc.json: ") && error.contains(words), "{error}");
            assert!(!error.contains("s3cret"), "{error}");
        }
    }

    #[test]
    fn secrets_do_not_print() {
        let user = r#"{"type":"authorized_user","client_id":"c","client_secret":"s3cret","refresh_token":"s3cret"}"#;
        assert!(!format!("{:?}", Credentials::from_json(user, "adc").unwrap()).contains("s3cret"));
    }
}
