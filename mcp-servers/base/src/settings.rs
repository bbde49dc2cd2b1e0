//! Settings, as texts of the command line or the environment. An empty one counts as unset: `mcp.json` passes on every
//! variable.

use std::ffi::{OsStr, OsString};
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::Path;
use std::str::FromStr;

use anyhow::{Context, bail, ensure};
use url::{Host, Url};

use crate::{Secret, UserId};

/// The text, if it is set.
pub fn given(text: &Option<String>) -> Option<&str> {
    text.as_deref().map(str::trim).filter(|text| !text.is_empty())
}

/// The path, if it is set.
pub fn path(path: &Option<OsString>) -> Option<&Path> {
    path.as_deref().filter(|path| !path.is_empty()).map(Path::new)
}

/// A whole number within a range.
pub fn number<T: FromStr + PartialOrd + Display>(
    name: &str,
    text: &Option<String>,
    unset: T,
    allowed: RangeInclusive<T>,
) -> anyhow::Result<T> {
    let Some(text) = given(text) else {
        return Ok(unset);
    };
    let number = text.parse().ok().filter(|number| allowed.contains(number));
    number.with_context(|| {
        let (least, most) = (allowed.start(), allowed.end());
        format!("{name} must be a whole number from {least} to {most}")
    })
}

/// One of these names; the first, if it is unset.
pub fn choice<T: Copy>(name: &str, text: &Option<String>, choices: &[(&str, T)]) -> anyhow::Result<T> {
    let chosen = match given(text) {
        None => choices.first(),
        Some(text) => choices.iter().find(|(choice, _)| *choice == text),
    };
    chosen.map(|(_, chosen)| *chosen).with_context(|| {
        let names: Vec<_> = choices.iter().map(|(choice, _)| *choice).collect();
        let (last, others) = names.split_last().unwrap_or((&"", &[]));
        format!("{name} must be {} or {last}", others.join(", "))
    })
}

/// An address to which credentials are sent: https, or this machine. The text is not quoted: it may have a password.
pub fn address(name: &str, text: &str, example: &str) -> anyhow::Result<Url> {
    let url = Url::parse(text).ok();
    let url = url.with_context(|| format!("{name} is not a URL such as {example}"))?;
    let is_safe = url.scheme() == "https" || url.scheme() == "http" && is_loopback(&url);
    let is_plain = url.query().is_none() && url.fragment().is_none();
    let is_anonymous = url.username().is_empty() && url.password().is_none();
    ensure!(
        is_safe && is_plain && is_anonymous,
        "{name} must begin with https:// (http:// only for a loopback address), without a query or a user, such as {example}"
    );
    Ok(url)
}

/// A user's id, from the option `name`.
pub fn user(name: &str, text: &Option<String>) -> anyhow::Result<Option<UserId>> {
    let user = text.as_deref().map(|text| {
        UserId::parse(text)
            .with_context(|| format!("{name} has to be a name of 1 to 512 characters without control characters"))
    });
    user.transpose()
}

/// Whether the address is on this machine.
pub fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        Some(Host::Domain(name)) => name == "localhost",
        None => false,
    }
}

/// The content of a file, without line breaks at its end.
pub fn file(what: &str, path: &Path) -> anyhow::Result<String> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {what}, {}", path.display()))?;
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}

/// A value that is set directly or by file, never by both; `names` has the names of both settings.
pub fn either(
    what: &str,
    names: (&str, &str),
    value: Option<&str>,
    path: Option<&OsStr>,
) -> anyhow::Result<Option<String>> {
    let value = value.filter(|value| !value.is_empty());
    match (value, path.filter(|path| !path.is_empty())) {
        (Some(_), Some(_)) => bail!("{what} is given twice; keep one of {} and {}", names.0, names.1),
        (Some(value), None) => Ok(Some(value.to_owned())),
        (None, Some(path)) => file(what, Path::new(path)).map(Some),
        (None, None) => Ok(None),
    }
}

/// A secret from the setting `name`, or from the file that `name` with `_FILE` names.
pub fn secret(
    what: &str,
    name: &str,
    value: &Option<Secret>,
    path: &Option<OsString>,
) -> anyhow::Result<Option<Secret>> {
    let names = (name, &*format!("{name}_FILE"));
    let secret = either(what, names, value.as_ref().map(Secret::expose), path.as_deref())?;
    Ok(secret.map(Secret::new))
}

/// A secret that is a key or a token, which is sent in a header.
pub fn key(name: &str, value: &Option<Secret>, path: &Option<OsString>) -> anyhow::Result<Option<Secret>> {
    let key = secret(name, name, value, path)?;
    key.map(|key| {
        let key = key.expose().trim();
        ensure!(
            !key.is_empty() && key.chars().all(|c| c.is_ascii_graphic()),
            "{name} has to be one key or one token, without spaces or line breaks"
        );
        Ok(Secret::new(key))
    })
    .transpose()
}
