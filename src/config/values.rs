//! Parses single values. Each function takes trimmed text and returns `None` for a value that is not allowed;
//! [`settings`](super::settings) describes what is allowed.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::{NonZeroU32, NonZeroUsize};
use std::time::Duration;

use secrecy::SecretString;
use url::{Host, Url};

use crate::domain::definition::ThinkingLevel;
use crate::domain::thread::{OnReject, WhileBusy};

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

pub(super) fn count(text: &str) -> Option<NonZeroU32> {
    NonZeroU32::new(text.parse().ok()?).filter(|count| count.get() <= 1_000_000)
}

pub(super) fn places(text: &str) -> Option<usize> {
    text.parse().ok().filter(|places| (1..=1_000_000).contains(places))
}

pub(super) fn workers(text: &str) -> Option<NonZeroUsize> {
    NonZeroUsize::new(text.parse().ok()?).filter(|workers| workers.get() <= 512)
}

pub(super) fn days(text: &str) -> Option<Duration> {
    let days: u64 = text.parse().ok()?;
    (1..=36_500)
        .contains(&days)
        .then(|| Duration::from_secs(days * 24 * 3600))
}

pub(super) fn while_busy(text: &str) -> Option<WhileBusy> {
    match text {
        "refuse" => Some(WhileBusy::Refuse),
        "queue" => Some(WhileBusy::Queue),
        _ => None,
    }
}

pub(super) fn on_reject(text: &str) -> Option<OnReject> {
    match text {
        "continue" => Some(OnReject::Continue),
        "complete" => Some(OnReject::Complete),
        "fail" => Some(OnReject::Fail),
        _ => None,
    }
}

pub(super) fn thinking_level(text: &str) -> Option<ThinkingLevel> {
    let named = ThinkingLevel::NAMES.iter().find(|(name, _)| *name == text);
    named.map(|(_, level)| *level)
}

pub(super) fn hours(text: &str) -> Option<Duration> {
    let hours: f64 = text.parse().ok()?;
    let time = Duration::try_from_secs_f64(hours * 3600.0).ok()?;
    (!time.is_zero() && time <= Duration::from_secs(8760 * 3600)).then_some(time)
}

pub(super) fn whole_hours(text: &str) -> Option<u32> {
    text.parse().ok().filter(|hours| (1..=8760).contains(hours))
}

pub(super) fn seconds(text: &str) -> Option<Duration> {
    let seconds: f64 = text.parse().ok()?;
    let time = Duration::try_from_secs_f64(seconds).ok()?;
    (!time.is_zero() && time <= Duration::from_secs(3600)).then_some(time)
}

/// A length of time up to a day: `45s`, `15m`, `2h`.
pub(super) fn length(text: &str) -> Option<Duration> {
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit())?);
    let unit = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        _ => return None,
    };
    let seconds = number.parse::<u64>().ok()?.checked_mul(unit)?;
    (1..=24 * 3600).contains(&seconds).then(|| Duration::from_secs(seconds))
}

pub(super) fn tokens(text: &str) -> Option<u64> {
    text.parse()
        .ok()
        .filter(|tokens| (10_000..=1_000_000_000_000).contains(tokens))
}

/// The beginning of the name of a branch, as Git accepts it.
pub(super) fn branch_prefix(text: &str) -> Option<String> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte);
    let name = text.strip_suffix('/').unwrap_or(text);
    let is_part = |part: &str| !part.is_empty() && !part.starts_with(['.', '-']) && !part.ends_with(".lock");
    let is_name = text.bytes().all(fits) && name.split('/').all(is_part) && !text.contains("..");
    (text.len() <= 100 && is_name).then(|| text.to_owned())
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
