//! Masks secrets in displayed values.

use std::sync::LazyLock;

use gavel_reading::{Content, Node, Secrecy, Setting};
use regex::Regex;

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
/// parameters that name a password, and all query parameters of a web address.
pub fn masked_url(url: &str) -> String {
    static LOGIN: LazyLock<Regex> = LazyLock::new(|| pattern(r"(?s)://([^:/?@]*):.*@"));
    static PASSWORD: LazyLock<Regex> = LazyLock::new(|| pattern(r"(?i)([?&][^=&]*pass[^=&]*=)[^&]+"));
    static WEB: LazyLock<Regex> = LazyLock::new(|| pattern(r"([?&][^=&]*=)[^&]+"));
    let is_web = url.get(..4).is_some_and(|scheme| scheme.eq_ignore_ascii_case("http"));
    let masked = LOGIN.replace(url, format!("://$1:{MASK}@"));
    let secret = if is_web { &WEB } else { &PASSWORD };
    secret.replace_all(&masked, format!("${{1}}{MASK}")).into_owned()
}

fn pattern(text: &str) -> Regex {
    Regex::new(text).unwrap_or_else(|error| unreachable!("patterns are fixed and used in tests: {error}"))
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
            ("postgres://me:p?ss@db/gavel", "postgres://me:********@db/gavel"),
            (
                "postgres://db/gavel?password=p@ss",
                "postgres://db/gavel?password=********",
            ),
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
