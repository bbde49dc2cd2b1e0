//! E-mail addresses in a model's arguments, checked before approval is requested.
//!
//! Malformed or deceptive addresses are rejected. Addresses that only look like others (letters of another script in a
//! domain) may be intended, so the approver gets a warning. The result is one canonical text for grants and rules.

mod homograph;
mod recipients;

use email_address::{EmailAddress, Options};
use unicode_normalization::UnicodeNormalization;

pub(crate) use homograph::look_alikes;
pub use recipients::{Checked, MOST_RECIPIENTS, Recipients, recipients};

use super::definition::quoted;
use super::text::is_visible;

/// The most characters of an address (RFC 5321, section 4.5.3.1.3, without the brackets).
const MOST_IN_ADDRESS: usize = 254;
/// The most characters of a display name.
const MOST_IN_NAME: usize = 128;

/// A parsed address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// The local part as written, `@`, and the domain in lower-case ASCII. No display name.
    pub canonical: String,
    /// Warnings for the approver.
    pub warnings: Vec<String>,
}

impl Address {
    /// Parses `ann@example.org`, or `Ann Lee <ann@example.org>`.
    ///
    /// # Errors
    /// What is invalid, and what is allowed.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.contains(|c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}')) {
            return Err("holds line ends or control characters; allowed: one line of text".to_owned());
        }
        if !is_visible(text) {
            return Err(
                "contains invisible characters, or characters that change the writing direction; allowed: visible text"
                    .to_owned(),
            );
        }
        let (name, address) = split(text.trim())?;
        let (canonical, mut warnings) = plain(address)?;
        if let Some(name) = name {
            display_name(name, &canonical)?;
            warnings.extend(homograph::in_name(name));
        }
        Ok(Self { canonical, warnings })
    }
}

/// Splits the display name from the address.
fn split(text: &str) -> Result<(Option<&str>, &str), String> {
    let Some(inner) = text.strip_suffix('>') else {
        return Ok((None, text));
    };
    let Some((name, address)) = inner.rsplit_once('<') else {
        return Err("ends in `>` without a `<`; allowed: name@example.org, or Name <name@example.org>".to_owned());
    };
    let name = name.trim();
    let inside = name.strip_prefix('"').and_then(|name| name.strip_suffix('"'));
    // Characters that a server could read as the end of a name, or as several names (RFC 5322, section 3.4).
    let ends = |c: char| matches!(c, '"' | '\\') || inside.is_none() && matches!(c, ',' | ':' | '(' | ')' | '[' | ']');
    let name = inside.unwrap_or(name);
    if name.contains(ends) || name.contains("=?") {
        return Err(format!(
            "its display name {} is not one name; allowed: words, in quotes if they contain commas or brackets",
            quoted(name)
        ));
    }
    Ok((Some(name).filter(|name| !name.is_empty()), address))
}

/// Rejects a display name that looks like one or more other addresses: the reader and the server would see different
/// recipients.
fn display_name(name: &str, canonical: &str) -> Result<(), String> {
    let read: String = name.nfkc().collect();
    let brackets = [
        '<', '>', ';', '‹', '›', '«', '»', '〈', '〉', '⟨', '⟩', '❮', '❯', '❬', '❭',
    ];
    if read.contains(brackets) {
        return Err(format!(
            "its display name {} contains `;`, `<`, `>` or characters that look like them; allowed: words",
            quoted(name)
        ));
    }
    if name.chars().count() > MOST_IN_NAME {
        return Err(format!(
            "its display name {} is too long; allowed: at most {MOST_IN_NAME} characters",
            quoted(name)
        ));
    }
    if read.contains('@') && !plain(&read).is_ok_and(|(same, _)| same == canonical) {
        return Err(format!(
            "its display name {} contains another address; allowed: words",
            quoted(name)
        ));
    }
    Ok(())
}

/// The tool receives the original text, so every program must derive the checked domain from it. IDNA 2003 reads `ß` as
/// `ss`, and some programs omit the mapping of UTS 46 (full width, ideographic dots).
fn same_everywhere(domain: &str, ascii: &str) -> Result<(), String> {
    if domain.is_ascii() {
        return Ok(());
    }
    let deviates = domain.contains(['ß', 'ẞ', 'ς']);
    if deviates || domain.to_lowercase() != idna::domain_to_unicode(ascii).0 {
        let domain = quoted(domain);
        return Err(format!(
            "programs read its domain {domain} differently; allowed: {ascii}"
        ));
    }
    Ok(())
}

/// Parses an address without a display name.
fn plain(address: &str) -> Result<(String, Vec<String>), String> {
    const ALLOWED: &str = "allowed: one address such as name@example.org";
    // The two joiners are visible in words of some scripts, but invisible in an address.
    if address.contains([' ', ',', ';', '"', '\u{200c}', '\u{200d}']) || address.chars().any(char::is_whitespace) {
        return Err(format!(
            "contains spaces, commas, semicolons or quotes; {ALLOWED} in each text"
        ));
    }
    let (local, domain) = address
        .rsplit_once('@')
        .ok_or_else(|| format!("has no `@`; {ALLOWED}"))?;
    let ascii = idna::domain_to_ascii_strict(domain)
        .map_err(|_| format!("its domain {} is invalid; {ALLOWED}", quoted(domain)))?;
    same_everywhere(domain, &ascii)?;
    // Few servers accept such a local part, and a look-alike is another person's address.
    if !local.is_ascii() {
        return Err(format!(
            "has non-ASCII letters before the `@`, {}; {ALLOWED}",
            quoted(local)
        ));
    }
    let canonical = format!("{local}@{ascii}");
    let options = Options::default()
        .without_display_text()
        .without_domain_literal()
        .with_required_tld();
    EmailAddress::parse_with_options(&canonical, options).map_err(|error| {
        format!(
            "is not an address ({}); {ALLOWED}",
            error.to_string().trim_end_matches('.')
        )
    })?;
    if canonical.len() > MOST_IN_ADDRESS {
        return Err(format!("has more than {MOST_IN_ADDRESS} characters; {ALLOWED}"));
    }
    let warnings = homograph::in_domain(&ascii);
    Ok((canonical, warnings))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn canonical(text: &str) -> String {
        Address::parse(text).unwrap().canonical
    }

    #[test]
    fn an_address_is_canonical_whatever_way_it_was_written() {
        for text in [
            "ann@example.org",
            " ann@Example.ORG ",
            "Ann Lee <ann@example.org>",
            "\"Lee, Ann\" <ann@EXAMPLE.org>",
            "<ann@example.org>",
            "ann@example.org <ann@example.org>",
            "安 <ann@example.org>",
        ] {
            assert_eq!(canonical(text), "ann@example.org", "{text}");
        }
        assert_eq!(canonical("ann@bücher.example"), "ann@xn--bcher-kva.example");
        assert_eq!(canonical("ann@BÜCHER.example"), "ann@xn--bcher-kva.example");
        assert_eq!(canonical("ann@xn--strae-oqa.de"), "ann@xn--strae-oqa.de");
        assert_eq!(canonical("ann@XN--BCHER-KVA.example"), "ann@xn--bcher-kva.example");
        // Only the receiving server knows whether these are the same mailbox.
        assert_eq!(canonical("Ann@example.org"), "Ann@example.org");
        assert_eq!(
            canonical("o'neil+news_1@sub.example.co.uk"),
            "o'neil+news_1@sub.example.co.uk"
        );
    }

    ///
    #[test]
    fn what_is_no_address_or_hides_one_is_refused_in_words() {
        for (text, says) in [
            ("", "no `@`"),
            ("ann", "no `@`"),
            ("@example.org", "not an address"),
            ("ann@", "domain"),
            ("ann@localhost", "not an address"),
            ("ann@example..org", "domain"),
            ("ann@-x.org", "domain"),
            ("ann@exa_mple.org", "domain"),
            ("ann@[127.0.0.1]", "domain"),
            ("ann@@example.org", "not an address"),
            (".ann@example.org", "not an address"),
            // The checked address must be the one that is sent: some programs would use strasse.de, others no address.
            ("ann@straße.de", "allowed: xn--strae-oqa.de"),
            ("ann@STRAẞE.de", "differently"),
            ("ann@ｅxample.org", "allowed: example.org"),
            ("ann@example。org", "allowed: example.org"),
            ("ann@bu\u{308}cher.example", "allowed: xn--bcher-kva.example"),
            ("a@b.org, eve@x.org", "commas"),
            ("a@b.org;eve@x.org", "semicolons"),
            ("a@b.org eve@x.org", "spaces"),
            ("\"eve@x.org\"@b.org", "quotes"),
            ("ann@example.org\r\nBcc: eve@x.org", "line ends"),
            ("Ann\nLee <ann@example.org>", "line ends"),
            ("ann@example.org\u{0}", "control"),
            ("\u{202e}gro.elpmaxe@nna", "writing direction"),
            ("Ann\u{2066}x\u{2069} <ann@example.org>", "writing direction"),
            ("a\u{200b}nn@example.org", "invisible"),
            ("a\u{200d}nn@example.org", "spaces"),
            ("ann@exa\u{ad}mple.org", "invisible"),
            ("boss@example.org <eve@x.org>", "another address"),
            ("\"boss@example.org\" <eve@x.org>", "another address"),
            ("boss＠example.org <eve@x.org>", "another address"),
            ("boss﹫example.org <eve@x.org>", "another address"),
            ("Ann <a@b.org> <eve@x.org>", "display name"),
            ("eve, Ann <ann@x.org>", "not one name"),
            ("\"a\", eve, \"b\" <ann@x.org>", "not one name"),
            ("root, postmaster, eve <ann@x.org>", "not one name"),
            ("=?utf-8?b?YTxldmVAeS5vcmc+LA==?= <ann@x.org>", "not one name"),
            ("\"x\\\" eve\" <ann@x.org>", "not one name"),
            ("To: eve <ann@x.org>", "not one name"),
            ("Ann (x <ann@x.org>", "not one name"),
            ("\"x, eve ‹eve›\" <ann@x.org>", "look like"),
            ("Ann\u{2028}Bcc: eve <ann@x.org>", "line ends"),
            ("\u{2029}ann@x.org", "line ends"),
            ("änn@example.org", "non-ASCII letters before"),
            ("аnn@example.org", "non-ASCII letters before"),
            ("Ann \\ Lee <ann@example.org>", "not one name"),
            ("Ann \"the\" Lee <ann@example.org>", "not one name"),
            ("a@b.org>", "without a `<`"),
            ("<a@b.org", "domain|not an address"),
        ] {
            let error = Address::parse(text).unwrap_err();
            assert!(says.split('|').any(|says| error.contains(says)), "{text:?}: {error}");
        }
        let labels = format!("{0}.{0}.{0}.example.org", "a".repeat(60));
        for long in [
            format!("{}@example.org", "a".repeat(65)),
            format!("{}@{labels}", "a".repeat(64)),
            format!("{} <ann@example.org>", "a".repeat(129)),
        ] {
            assert!(Address::parse(&long).is_err(), "{long}");
        }
        assert!(Address::parse(&format!("{} <ann@example.org>", "ä".repeat(128))).is_ok());
    }

    /// a warning, not an error.
    #[test]
    fn a_homograph_is_an_address_with_a_warning_that_has_its_plain_letters() {
        let address = Address::parse("ann@p\u{430}ypal.com").unwrap();
        assert_eq!(address.canonical, "ann@xn--pypal-4ve.com");
        let reported = address.warnings.join("\n");
        assert!(
            reported.contains("xn--pypal-4ve.com")
                && reported.contains("Cyrillic")
                && reported.contains("is not \"paypal.com\""),
            "{reported}"
        );
        // The same in ASCII from the start.
        assert_eq!(Address::parse("ann@xn--pypal-4ve.com").unwrap(), address);
        assert!(Address::parse("ann@example.org").unwrap().warnings.is_empty());
    }
}
