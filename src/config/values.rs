//! Parses single values. Each function takes trimmed text and returns `None` for a value that is not allowed.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use gavel_reading::{At, ByText, Content, List, Node, Parser, Record, Scalar, json, record};
use http::header::{HeaderName, HeaderValue};
use percent_encoding::percent_decode_str;
use secrecy::SecretString;
use url::{Host, Url};

use super::secret::hidden;
use super::values;
use crate::domain::ids::{TenantId, UserId};
use crate::domain::repository::RepositoryPattern;

/// Fewest bytes of a signing secret: the length of a SHA-256 hash.
const SIGNING_BYTES: usize = 32;

pub(super) fn word(text: &str) -> Option<String> {
    let fits = !text.is_empty() && !text.chars().any(char::is_control);
    fits.then(|| text.to_owned())
}

pub(super) fn secret(text: &str) -> Option<SecretString> {
    word(text).map(SecretString::from)
}

/// A project's id or number, or a location, as `adapters::gemini` accepts it.
pub(super) fn google_name(text: &str) -> Option<String> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte);
    ((1..=100).contains(&text.len()) && text.bytes().all(fits)).then(|| text.to_owned())
}

pub(super) fn signing_secret(text: &str) -> Option<SecretString> {
    (text.len() >= SIGNING_BYTES).then(|| SecretString::from(text))
}

pub(super) fn listen(text: &str) -> Option<SocketAddr> {
    match text.strip_prefix("localhost:") {
        Some(port) => Some(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port.parse().ok()?)),
        None => text.parse().ok(),
    }
}

/// Whether only this machine can reach the address. IPv4-mapped IPv6 addresses count as IPv4.
pub(super) fn is_loopback(address: SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}

pub(super) fn database_url(text: &str) -> Option<SecretString> {
    let rest = ["sqlite:", "postgres://", "postgresql://"]
        .iter()
        .find_map(|scheme| text.strip_prefix(scheme))?;
    // A SQLite file name need not be a valid URL.
    if !text.starts_with("sqlite:") {
        Url::parse(text).ok()?;
    }
    (!rest.trim_start_matches('/').is_empty()).then(|| SecretString::from(text))
}

/// A number of a unit, over 0 and up to `most`.
pub(super) fn span(text: &str, unit_seconds: f64, most: f64) -> Option<Duration> {
    let number: f64 = text.parse().ok().filter(|number| *number <= most)?;
    let time = Duration::try_from_secs_f64(number * unit_seconds).ok()?;
    (!time.is_zero()).then_some(time)
}

/// `name=value,name=value`, the OpenTelemetry format: a value may contain `%XX` (OTLP exporter specification,
/// "Specifying headers via environment variables").
pub(super) fn headers(text: &str) -> Option<Vec<(String, SecretString)>> {
    let pairs = text.split(',').map(str::trim).filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| {
            let (name, value) = pair.split_once('=')?;
            let name = HeaderName::from_bytes(name.trim().as_bytes()).ok()?;
            let value = percent_decode_str(value.trim()).decode_utf8().ok()?;
            HeaderValue::from_str(&value).ok()?;
            Some((name.to_string(), SecretString::from(value.into_owned())))
        })
        .collect()
}

/// Scheme, host and port; without a trailing slash.
pub(super) fn base_url(text: &str) -> Option<String> {
    let url = Url::parse(text)
        .ok()
        .filter(|url| matches!(url.scheme(), "http" | "https"))?;
    let bare = url.path() == "/" && url.query().is_none() && url.fragment().is_none();
    let no_user = url.username().is_empty() && url.password().is_none();
    (bare && no_user && url.has_host()).then(|| url.origin().ascii_serialization())
}

/// A host, or what [`base_url`] accepts.
pub(super) fn endpoint(text: &str) -> Option<String> {
    if text.contains("://") {
        base_url(text)
    } else {
        base_url(&format!("https://{text}"))
    }
}

/// A URL whose responses are trusted, so it must be protected against changes in transit.
pub(super) fn https_url(text: &str) -> Option<Url> {
    let url = Url::parse(text).ok()?;
    let plain_is_safe = url.scheme() == "http" && is_local(&url);
    (url.scheme() == "https" || plain_is_safe).then_some(url)
}

pub(super) fn http_url(text: &str) -> Option<Url> {
    Url::parse(text)
        .ok()
        .filter(|url| matches!(url.scheme(), "http" | "https"))
}

/// Whether passwords and message content can reach this PostgreSQL server unencrypted: `sslmode` allows it (as it does
/// by default) and the server is on another machine.
pub(super) fn is_clear_text_possible(database_url: &str) -> bool {
    let Ok(url) = Url::parse(database_url) else {
        return false;
    };
    let given = |name: &str| url.query_pairs().find(|(key, _)| key == name).map(|(_, value)| value);
    let host = given("hostaddr")
        .or_else(|| given("host"))
        .map(|host| host.into_owned());
    let near = match host.as_deref().or(url.host_str()) {
        // None, or a directory with a socket, as in `postgres:///gavel?host=/run/postgresql`.
        None | Some("") => true,
        Some(host) => host.starts_with('/') || is_local_name(host),
    };
    let mode = given("sslmode").or_else(|| given("ssl-mode"));
    let encrypted = mode.is_some_and(|mode| matches!(&*mode, "require" | "verify-ca" | "verify-full"));
    url.scheme().starts_with("postgres") && !near && !encrypted
}

/// Whether the URL's host is this machine.
pub(super) fn is_local(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => is_local_name(name),
        Some(Host::Ipv4(ip)) => ip.is_loopback(),
        Some(Host::Ipv6(ip)) => IpAddr::V6(ip).to_canonical().is_loopback(),
        None => false,
    }
}

/// A name or an address as text, as a URL keeps it when the URL standard does not know its scheme.
fn is_local_name(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    address.is_ok_and(|ip| ip.to_canonical().is_loopback()) || host == "localhost" || host.ends_with(".localhost")
}

#[cfg(test)]
mod tests;

/// Patterns: a list, or one text that separates them.
pub(super) struct Repositories;

impl Parser for Repositories {
    type Value = Vec<RepositoryPattern>;

    fn allowed(&self) -> String {
        format!(
            "a list of {} (in the environment separated by commas)",
            RepositoryPattern::ALLOWED
        )
    }

    fn parse(&self, at: &At<'_>) -> Option<Self::Value> {
        match &at.node.content {
            Content::Text(text) => {
                let part = |text: &str| Node {
                    line: at.node.line,
                    content: Content::Text(text.to_owned()),
                };
                let parts = text.split([',', ' ', '\n']).filter(|part| !part.is_empty());
                let split = Node {
                    line: at.node.line,
                    content: Content::List(parts.map(part).collect()),
                };
                List(REPOSITORY).parse(&at.holding(&split))
            }
            Content::List(_) => List(REPOSITORY).parse(at),
            _ => {
                at.invalid(self.allowed());
                None
            }
        }
    }
}

const REPOSITORY: ByText<RepositoryPattern> = ByText {
    allowed: RepositoryPattern::ALLOWED,
    read: |text| RepositoryPattern::parse(text).ok(),
};

record! {
    /// The API key of one service.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct ApiKey {
        /// The name of the service in logs and records.
        name: String = "name": NAME, required;
        /// SHA-256 of the key's text.
        sha256: [u8; 32] = "sha256": Digest, required;
        /// The tenant whose records the service reads and writes.
        tenant: TenantId = "tenant": TENANT, or TenantId::default();
        /// What the service may do besides sending requests.
        roles: Vec<String> = "roles": List(ROLE);
        /// The one user this key belongs to, who acts only for themselves; absent: a service, which may act for any user.
        user: Option<UserId> = "user": USER;
    }
}

const NAME: Scalar<String> = Scalar {
    allowed: "1 to 128 characters",
    read: |node| values::word(node.text()?.trim()).filter(|name| name.len() <= 128),
};
const ROLE: Scalar<String> = Scalar {
    allowed: "a role; gavel knows analyst, approver, operator",
    read: |node| values::word(node.text()?.trim()),
};
const ID: &str = "1 to 256 bytes without invisible characters, and not blank";
const TENANT: Scalar<TenantId> = Scalar {
    allowed: ID,
    read: |node| TenantId::parse(node.text()?.trim()).ok(),
};
const USER: Scalar<UserId> = Scalar {
    allowed: ID,
    read: |node| UserId::parse(node.text()?.trim()).ok(),
};

/// A hash. A key pasted in its place must not be printed.
struct Digest;

impl Parser for Digest {
    type Value = [u8; 32];

    fn allowed(&self) -> String {
        "the 64 hex digits of the key's SHA-256".to_owned()
    }

    fn parse(&self, at: &At<'_>) -> Option<[u8; 32]> {
        let mut bytes = [0; 32];
        let text = at.node.text().map(str::trim);
        let decoded = text.and_then(|text| hex::decode_to_slice(text, &mut bytes).ok());
        if decoded.is_none() {
            at.clone().shown_by(hidden).invalid(self.allowed());
        }
        decoded.map(|()| bytes)
    }
}

/// `auth.keys`: a list, in the environment as JSON.
pub(super) struct ApiKeys;

impl Parser for ApiKeys {
    type Value = Vec<ApiKey>;

    fn allowed(&self) -> String {
        "a list of {name, sha256, tenant, roles, user} (in the environment as JSON); `gavel config new-key` prints one"
            .to_owned()
    }

    fn parse(&self, at: &At<'_>) -> Option<Vec<ApiKey>> {
        let from_json = match &at.node.content {
            Content::Text(text) => json::parse(text).ok().map(|(node, _)| node.on_line(at.node.line)),
            _ => None,
        };
        let at = &at.holding(from_json.as_ref().unwrap_or(at.node));
        if !matches!(at.node.content, Content::List(_)) {
            // Whatever it is, it may be a key.
            at.clone().shown_by(hidden).invalid(self.allowed());
            return None;
        }
        let mut keys: Vec<ApiKey> = Vec::new();
        for item in at.items(1000)? {
            let Some(key) = Record("a table of name, sha256, tenant, roles and user", ApiKey::read).parse(&item) else {
                continue;
            };
            // Logs tell services apart by their names.
            let same = [
                ("name", keys.iter().position(|other| other.name == key.name)),
                ("sha256", keys.iter().position(|other| other.sha256 == key.sha256)),
            ];
            for (field, same) in same {
                if let Some(first) = same {
                    item.error(
                        format!("the {field} of auth.keys[{first}]"),
                        format!("a {field} of its own for every key"),
                    );
                }
            }
            keys.push(key);
        }
        Some(keys)
    }
}
