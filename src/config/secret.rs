//! Masks secrets in displayed values.

use gavel_reading::{Content, Node, Secrecy, Setting};

/// The text shown in place of a secret.
const MASK: &str = "********";

/// A value, masked as far as `setting` requires.
pub(super) fn shown(setting: &Setting, node: &Node) -> String {
    match (setting.secrecy, &node.content) {
        (_, Content::List(items)) => format!("{} entries", items.len()),
        (Secrecy::Secret, _) => MASK.to_owned(),
        _ => node.scalar().map_or_else(|| node.found(), |text| masked(&text)),
    }
}

/// How errors show an invalid value.
pub(super) fn shown_by(secrecy: Secrecy) -> fn(&Node) -> String {
    match secrecy {
        Secrecy::Secret => hidden,
        Secrecy::Open | Secrecy::Url => |node| match &node.content {
            Content::Text(text) => format!("{:?}", masked(text)),
            _ => node.found(),
        },
    }
}

/// Shows the length alone, which helps to find the error.
pub(super) fn hidden(node: &Node) -> String {
    match node.scalar() {
        Some(text) => format!("{MASK} ({} bytes)", text.len()),
        None => node.found(),
    }
}

/// Any URL may contain a password, even where none is allowed.
fn masked(text: &str) -> String {
    match text.contains("://") {
        true => masked_url(text),
        false => text.to_owned(),
    }
}

/// A URL with its secrets masked: `postgres://user:********@host/db`.
///
/// Also accepts text that is not a URL. Masks everything between the first `:` after `//` and the last `@`, query
/// parameters that name a password, and all query parameters of a web address. If an `@` follows a `?`, the end of the
/// password is unknown, so the whole rest is masked.
pub fn masked_url(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let (rest, query) = rest
        .split_once('?')
        .map_or((rest, None), |(rest, query)| (rest, Some(query)));
    let mut masked = String::new();
    if !scheme.is_empty() {
        masked.push_str(scheme);
        masked.push_str("://");
    }
    if query.is_some_and(|query| query.contains('@')) {
        let end = rest.find(':').unwrap_or(rest.len());
        masked.push_str(&rest[..end]);
        masked.push_str(if end < rest.len() { ":" } else { "?" });
        masked.push_str(MASK);
        return masked;
    }
    match rest.rsplit_once('@') {
        Some((who, host)) => {
            let user = who.split_once(':').map_or(who, |(user, _)| user);
            masked.push_str(user);
            if user.len() < who.len() {
                masked.push(':');
                masked.push_str(MASK);
            }
            masked.push('@');
            masked.push_str(host);
        }
        None => masked.push_str(rest),
    }
    let web = matches!(scheme.to_ascii_lowercase().as_str(), "http" | "https");
    for (n, pair) in query.into_iter().flat_map(|query| query.split('&')).enumerate() {
        masked.push(if n == 0 { '?' } else { '&' });
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let secret = web || name.to_ascii_lowercase().contains("pass");
        masked.push_str(name);
        if !value.is_empty() {
            masked.push('=');
            masked.push_str(if secret { MASK } else { value });
        }
    }
    masked
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_url_shows_all_but_its_secrets() {
        for (url, shown) in [
            ("sqlite://gavel.db", "sqlite://gavel.db"),
            (
                "sqlite:///var/lib/gavel.db?mode=rwc",
                "sqlite:///var/lib/gavel.db?mode=rwc",
            ),
            ("postgres://db/gavel", "postgres://db/gavel"),
            ("postgres://me@db/gavel", "postgres://me@db/gavel"),
            ("postgres://me:pw@db:5432/gavel", "postgres://me:********@db:5432/gavel"),
            ("postgres://me:p@ss:word@db/gavel", "postgres://me:********@db/gavel"),
            (
                "postgres://db/gavel?user=me&password=pw",
                "postgres://db/gavel?user=me&password=********",
            ),
            ("postgres://me:pw", "postgres://me:pw"),
            (
                "https://collector/v1?api_key=k&x",
                "https://collector/v1?api_key=********&x",
            ),
            ("postgres://me:p?ss@db/gavel", "postgres://me:********"),
            ("postgres://db/gavel?password=p@ss", "postgres://db/gavel?********"),
        ] {
            assert_eq!(masked_url(url), shown);
        }
    }

    proptest! {
        #[test]
        fn no_password_survives(user in "[a-z]{1,8}", password in "[A-Z0-9:@/?&=%#]{6,20}", host in "[a-z.]{1,12}") {
            let masked = masked_url(&format!("postgres://{user}:{password}@{host}/gavel"));
            // Six-character substrings of the password must not appear either; shorter ones may match by chance.
            for start in 0..=password.len() - 6 {
                prop_assert!(!masked.contains(&password[start..start + 6]), "{}", masked);
            }
        }
    }
}
