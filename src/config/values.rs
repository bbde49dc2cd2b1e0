//! Parses single values. Each function takes trimmed text and returns `None` for a value that is not allowed.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use http::header::{HeaderName, HeaderValue};
use percent_encoding::percent_decode_str;
use secrecy::SecretString;
use url::{Host, Url};

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

pub(super) fn days(text: &str) -> Option<Duration> {
    let days: u64 = text.parse().ok()?;
    (1..=36_500)
        .contains(&days)
        .then(|| Duration::from_secs(days * 24 * 3600))
}

pub(super) fn hours(text: &str) -> Option<Duration> {
    let hours: f64 = text.parse().ok()?;
    let time = Duration::try_from_secs_f64(hours * 3600.0).ok()?;
    (!time.is_zero() && time <= Duration::from_secs(8760 * 3600)).then_some(time)
}

pub(super) fn seconds(text: &str) -> Option<Duration> {
    let seconds: f64 = text.parse().ok()?;
    let time = Duration::try_from_secs_f64(seconds).ok()?;
    (!time.is_zero() && time <= Duration::from_secs(3600)).then_some(time)
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
