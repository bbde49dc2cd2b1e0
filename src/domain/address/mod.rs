//! Addresses of people as a model writes them: checked before anybody is asked for leave.
//!
//! What is malformed or hides something is refused. What only looks like something else (letters of another script in a
//! domain) may be meant, and is told to the approver in words. What remains is one canonical text, by which grants and
//! rules go.

mod homograph;
mod recipients;

use email_address::{EmailAddress, Options};
use unicode_normalization::UnicodeNormalization;

pub(in crate::domain) use homograph::look_alikes;
pub use recipients::{Checked, MOST_RECIPIENTS, Recipients, recipients};

use super::definition::quoted;
use super::text::is_visible;

/// Most characters of an address (RFC 5321, section 4.5.3.1.3, without the brackets).
const MOST_IN_ADDRESS: usize = 254;
/// Most characters of a display name.
const MOST_IN_NAME: usize = 128;

/// One address, parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// Local part as it was written, `@`, domain in lower case and in ASCII. No display name.
    pub canonical: String,
    /// What an approver should know of it, in words.
    pub warnings: Vec<String>,
}

impl Address {
    /// Reads `ann@example.org`, or `Ann Lee <ann@example.org>`.
    ///
    /// # Errors
    /// What is wrong with it, and what is allowed.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.contains(|c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}')) {
            return Err("holds line ends or control characters; allowed: one line of text".to_owned());
        }
        if !is_visible(text) {
            return Err("holds characters that nobody can see, or that turn the writing direction".to_owned());
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

/// Display name and address.
fn split(text: &str) -> Result<(Option<&str>, &str), String> {
    let Some(inner) = text.strip_suffix('>') else {
        return Ok((None, text));
    };
    let Some((name, address)) = inner.rsplit_once('<') else {
        return Err("ends in `>` without a `<`; allowed: name@example.org, or Name <name@example.org>".to_owned());
    };
    let name = name.trim();
    let inside = name.strip_prefix('"').and_then(|name| name.strip_suffix('"'));
    // What a server that reads the text anew could take for the end of a name, or for more than one (RFC 5322, section 3.4).
    let ends = |c: char| matches!(c, '"' | '\\') || inside.is_none() && matches!(c, ',' | ':' | '(' | ')' | '[' | ']');
    let name = inside.unwrap_or(name);
    if name.contains(ends) || name.contains("=?") {
        return Err(format!(
            "its display name {} is not one name; allowed: words, in quotes where they hold commas or brackets",
            quoted(name)
        ));
    }
    Ok((Some(name).filter(|name| !name.is_empty()), address))
}

/// A name that reads as another address, or as more of them, tells the reader something else than the server.
fn display_name(name: &str, canonical: &str) -> Result<(), String> {
    let read: String = name.nfkc().collect();
    let brackets = [
        '<', '>', ';', '‹', '›', '«', '»', '〈', '〉', '⟨', '⟩', '❮', '❯', '❬', '❭',
    ];
    if read.contains(brackets) {
        return Err(format!(
            "its display name {} holds `;`, or `<`, `>` or what looks like them; allowed: words",
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
            "its display name {} holds another address; allowed: words",
            quoted(name)
        ));
    }
    Ok(())
}

/// The tool is given what was written, so no program may read another domain into it than the one that is judged: not one that goes by
/// IDNA 2003, which takes `ß` for `ss`, nor one that leaves out the mapping of UTS 46 (full width, ideographic dots).
fn same_everywhere(domain: &str, ascii: &str) -> Result<(), String> {
    if domain.is_ascii() {
        return Ok(());
    }
    let deviates = domain.contains(['ß', 'ẞ', 'ς']);
    if deviates || domain.to_lowercase() != idna::domain_to_unicode(ascii).0 {
        let domain = quoted(domain);
        return Err(format!(
            "its domain {domain} is not the same one to every program; allowed: {ascii}"
        ));
    }
    Ok(())
}

/// An address without a name.
fn plain(address: &str) -> Result<(String, Vec<String>), String> {
    const ALLOWED: &str = "allowed: one address such as name@example.org";
    // Two joiners are seen in words of some scripts, and in an address by nobody.
    if address.contains([' ', ',', ';', '"', '\u{200c}', '\u{200d}']) || address.chars().any(char::is_whitespace) {
        return Err(format!(
            "holds spaces, commas, semicolons or quotes; {ALLOWED} in each text"
        ));
    }
    let (local, domain) = address
        .rsplit_once('@')
        .ok_or_else(|| format!("has no `@`; {ALLOWED}"))?;
    let ascii = idna::domain_to_ascii_strict(domain)
        .map_err(|_| format!("its domain {} is none; {ALLOWED}", quoted(domain)))?;
    same_everywhere(domain, &ascii)?;
    // Few servers take one, and a look-alike among them is somebody else.
    if !local.is_ascii() {
        return Err(format!(
            "has letters outside ASCII before the `@`, {}; {ALLOWED}",
            quoted(local)
        ));
    }
    let canonical = format!("{local}@{ascii}");
    let options = Options::default()
        .without_display_text()
        .without_domain_literal()
        .with_required_tld();
    EmailAddress::parse_with_options(&canonical, options)
        .map_err(|error| format!("is no address ({}); {ALLOWED}", error.to_string().trim_end_matches('.')))?;
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
        // Only the receiving server knows whether these are one mailbox.
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
            ("@example.org", "no address"),
            ("ann@", "domain"),
            ("ann@localhost", "no address"),
            ("ann@example..org", "domain"),
            ("ann@-x.org", "domain"),
            ("ann@exa_mple.org", "domain"),
            ("ann@[127.0.0.1]", "domain"),
            ("ann@@example.org", "no address"),
            (".ann@example.org", "no address"),
            // What is judged is what is sent: some programs go to strasse.de, and some to nowhere.
            ("ann@straße.de", "allowed: xn--strae-oqa.de"),
            ("ann@STRAẞE.de", "not the same one"),
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
            ("a\u{200b}nn@example.org", "nobody can see"),
            ("a\u{200d}nn@example.org", "spaces"),
            ("ann@exa\u{ad}mple.org", "nobody can see"),
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
            ("\"x, eve ‹eve›\" <ann@x.org>", "looks like"),
            ("Ann\u{2028}Bcc: eve <ann@x.org>", "line ends"),
            ("\u{2029}ann@x.org", "line ends"),
            ("änn@example.org", "outside ASCII before"),
            ("аnn@example.org", "outside ASCII before"),
            ("Ann \\ Lee <ann@example.org>", "not one name"),
            ("Ann \"the\" Lee <ann@example.org>", "not one name"),
            ("a@b.org>", "without a `<`"),
            ("<a@b.org", "domain|no address"),
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

    /// shown, not refused.
    #[test]
    fn a_homograph_is_an_address_with_a_warning_that_has_its_plain_letters() {
        let address = Address::parse("ann@p\u{430}ypal.com").unwrap();
        assert_eq!(address.canonical, "ann@xn--pypal-4ve.com");
        let told = address.warnings.join("\n");
        assert!(
            told.contains("xn--pypal-4ve.com") && told.contains("Cyrillic") && told.contains("\"paypal\""),
            "{told}"
        );
        // The same, written in plain letters from the start.
        assert_eq!(Address::parse("ann@xn--pypal-4ve.com").unwrap(), address);
        assert!(Address::parse("ann@example.org").unwrap().warnings.is_empty());
    }
}
