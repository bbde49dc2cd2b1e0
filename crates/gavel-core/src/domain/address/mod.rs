//! E-mail addresses in a model's arguments, checked before approval is requested (R-12).
//!
//! Malformed or deceptive addresses are rejected. Addresses that only look like others (letters of another script in a
//! domain) may be intended, so the approver gets a warning. The result is one canonical text for grants and rules.

mod homograph;

use std::collections::{BTreeMap, BTreeSet};

use email_address::{EmailAddress, Options};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use unicode_normalization::UnicodeNormalization;

use super::definition::quoted;
use super::text::is_visible;
use crate::domain::argument_path::ArgumentPath;
pub(crate) use homograph::look_alikes;

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

/// The most recipients of a call, unless the policy sets another limit.
pub const MOST_RECIPIENTS: usize = 50;

/// The most errors that are reported at once.
const MOST_ERRORS: usize = 8;

/// Canonical addresses by the path of their argument. Order and display names have no effect. No list is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Recipients(BTreeMap<String, BTreeSet<String>>);

impl Recipients {
    /// All recipients, each once, sorted.
    pub fn all(&self) -> BTreeSet<&str> {
        self.0.values().flatten().map(String::as_str).collect()
    }

    /// The recipients of each argument, sorted by path.
    pub fn by_argument(&self) -> impl ExactSizeIterator<Item = (&str, &BTreeSet<String>)> {
        self.0.iter().map(|(path, addresses)| (path.as_str(), addresses))
    }

    /// Whether there are no recipients.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn add(&mut self, path: &ArgumentPath, address: Address) {
        self.0.entry(path.to_string()).or_default().insert(address.canonical);
    }
}

/// Recipients that passed the checks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// The set.
    pub recipients: Recipients,
    /// Warnings for the approver, each with the location that it refers to.
    pub warnings: Vec<String>,
}

/// Collects the recipients at `paths`: at most `most`, and at least one if `needed`.
///
/// # Errors
/// Up to 8 errors, each with the location, the value and what is allowed.
pub fn recipients(
    paths: &[ArgumentPath],
    arguments: &Value,
    most: usize,
    needed: impl FnOnce() -> bool,
) -> Result<Checked, Vec<String>> {
    let mut texts = Vec::new();
    for path in paths {
        let found = path.texts(arguments).map_err(|error| vec![error])?;
        texts.extend(found.into_iter().map(|(place, text)| (path, place, text)));
    }
    if texts.len() > most {
        let found = texts.len();
        return Err(vec![format!(
            "{}: {found} recipients; allowed: at most {most} in all",
            joined(paths)
        )]);
    }
    let (mut recipients, mut errors, mut warnings) = (Recipients::default(), Vec::new(), Vec::new());
    for (path, place, text) in texts {
        match Address::parse(text) {
            Ok(address) => {
                for warning in &address.warnings {
                    let warning = format!("{place}: {warning}");
                    if !warnings.contains(&warning) {
                        warnings.push(warning);
                    }
                }
                recipients.add(path, address);
            }
            Err(error) if errors.len() < MOST_ERRORS => errors.push(format!("{place}: {} {error}", quoted(text))),
            Err(_) => {}
        }
    }
    if recipients.is_empty() && errors.is_empty() {
        if needed() {
            return Err(vec![format!("{}: no recipient; allowed: at least one", joined(paths))]);
        }
        warnings.push("the call names no recipient".to_owned());
    }
    if errors.is_empty() {
        Ok(Checked { recipients, warnings })
    } else {
        Err(errors)
    }
}

/// `/to, /cc, /bcc`
fn joined(paths: &[ArgumentPath]) -> String {
    let places: Vec<_> = paths
        .iter()
        .map(|path| format!("/{}", path.to_string().replace('.', "/").replace("[]", "")))
        .collect();
    places.join(", ")
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

    /// R-12
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

    /// R-12: a warning, not an error.
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

#[cfg(test)]
mod recipients_tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;

    fn paths() -> Vec<ArgumentPath> {
        ["to", "cc", "bcc"]
            .map(|path| ArgumentPath::parse(path).unwrap())
            .into()
    }

    fn set(arguments: &Value) -> Vec<String> {
        let checked = recipients(&paths(), arguments, 3, || true).unwrap();
        checked.recipients.all().into_iter().map(str::to_owned).collect()
    }

    #[test]
    fn the_set_is_sorted_without_names_and_has_each_once() {
        let arguments = json!({"to": ["Zoe <zoe@x.org>", "ann@X.org"], "cc": "ann@x.org"});
        assert_eq!(set(&arguments), ["ann@x.org", "zoe@x.org"]);
    }

    /// R-15: the argument decides which recipients are visible to the others.
    #[test]
    fn the_argument_that_contains_an_address_counts() {
        let of = |arguments| recipients(&paths(), &arguments, 3, || true).unwrap().recipients;
        let open = of(json!({"to": ["ann@x.org"], "cc": [], "bcc": ["bo@x.org"]}));
        assert_eq!(open, of(json!({"bcc": "Bo <bo@X.org>", "to": "ann@x.org"})));
        for other in [
            json!({"to": ["ann@x.org", "bo@x.org"]}),
            json!({"to": ["ann@x.org"], "cc": ["bo@x.org"]}),
            json!({"to": ["ann@x.org", "bo@x.org"], "bcc": ["bo@x.org"]}),
        ] {
            let other = of(other);
            assert_eq!(open.all(), other.all());
            assert_ne!(open, other);
        }
        let text = serde_json::to_string(&open).unwrap();
        assert_eq!(text, r#"{"bcc":["bo@x.org"],"to":["ann@x.org"]}"#);
        assert_eq!(serde_json::from_str::<Recipients>(&text).unwrap(), open);
    }

    /// R-12
    #[test]
    fn errors_name_the_place_the_value_and_what_is_allowed() {
        let errors = |arguments: Value| recipients(&paths(), &arguments, 3, || true).unwrap_err();
        let found = errors(json!({"to": ["ann@x.org", "eve"], "bcc": "a@b.org\nc"}));
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(
            found[0].starts_with("/to/1: \"eve\" has no `@`; allowed: "),
            "{found:?}"
        );
        assert!(
            found[1].starts_with("/bcc: \"a@b.org\\nc\" holds line ends"),
            "{found:?}"
        );
        assert_eq!(
            errors(json!({"to": []})),
            ["/to, /cc, /bcc: no recipient; allowed: at least one"]
        );
        let many = json!({"to": ["a@x.org", "a@x.org"], "cc": ["b@x.org"], "bcc": ["c@x.org"]});
        assert_eq!(
            errors(many),
            ["/to, /cc, /bcc: 4 recipients; allowed: at most 3 in all"]
        );
        assert_eq!(
            recipients(&paths(), &json!({"to": vec!["eve"; 40]}), 50, || true)
                .unwrap_err()
                .len(),
            8
        );
    }

    #[test]
    fn a_call_that_may_have_none_says_that_it_has_none() {
        let checked = recipients(&paths(), &json!({}), 3, || false).unwrap();
        assert!(checked.recipients.is_empty());
        assert_eq!(checked.warnings, ["the call names no recipient"]);
    }

    #[test]
    fn a_warning_names_the_place() {
        let checked = recipients(&paths(), &json!({"to": ["ann@bücher.example"]}), 3, || true).unwrap();
        assert!(
            checked.warnings[0].starts_with("/to/0: the domain \"bücher.example\" has non-ASCII letters"),
            "{:?}",
            checked.warnings
        );
    }
}
