//! Removes credentials from what goes to the model: those in the container's credential file, in the forms in which
//! they usually appear, and everything that looks like a token of GitHub.
//!
//! That stops accidents. A script that wants to pass a credential on can write it in a form that is not known here.

use std::collections::{BTreeSet, HashMap};
use std::sync::{LazyLock, Mutex, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use regex::Regex;

/// What is put in place of a credential.
const REDACTED: &str = "[redacted]";
/// Shorter texts are no credentials, and would be found everywhere.
const LEAST: usize = 6;
/// How many containers' credentials are remembered.
const CONTAINERS: usize = 1000;

/// The credentials that containers had. A script may delete the file before it writes a credential.
#[derive(Debug, Default)]
pub(crate) struct Credentials(Mutex<HashMap<String, BTreeSet<String>>>);

impl Credentials {
    /// A redactor for what comes from a container whose credential file has these lines now.
    pub(crate) fn redactor(&self, container: &str, lines: &[String]) -> Redactor {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.len() >= CONTAINERS && !seen.contains_key(container) {
            seen.clear();
        }
        let texts = seen.entry(container.to_owned()).or_default();
        texts.extend(lines.iter().flat_map(|line| forms(line)));
        Redactor::new(texts)
    }

    /// The container is gone.
    pub(crate) fn forget(&self, container: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(container);
    }
}

/// Replaces credentials in texts.
#[derive(Debug)]
pub(crate) struct Redactor {
    /// The longest first: one may contain another.
    texts: Vec<String>,
}

impl Redactor {
    fn new(texts: &BTreeSet<String>) -> Self {
        let mut texts: Vec<_> = texts.iter().cloned().collect();
        texts.sort_by_key(|text| std::cmp::Reverse(text.len()));
        Self { texts }
    }

    /// The text without credentials.
    pub(crate) fn clean(&self, text: &str) -> String {
        static TOKENS: LazyLock<Option<Regex>> =
            LazyLock::new(|| Regex::new(r"\b(?:gh[pousr]_[A-Za-z0-9_.-]{20,}|github_pat_[A-Za-z0-9_]{20,})").ok());
        let mut clean = text.to_owned();
        for secret in self.texts.iter().filter(|secret| text.contains(secret.as_str())) {
            clean = clean.replace(secret.as_str(), REDACTED);
        }
        match &*TOKENS {
            Some(tokens) => tokens.replace_all(&clean, REDACTED).into_owned(),
            None => clean,
        }
    }
}

/// The forms of the credential in one line of the file, which is a URL with a user and a password.
fn forms(line: &str) -> Vec<String> {
    let (Some(password), user) = parts(line.trim()) else {
        return Vec::new();
    };
    let decode = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
    let plain = decode(password);
    let mut forms = vec![
        line.trim().to_owned(),
        password.to_owned(),
        utf8_percent_encode(&plain, NON_ALPHANUMERIC).to_string(),
    ];
    forms.extend(encoded(plain.as_bytes()));
    // As in the header of a request.
    forms.extend(encoded(format!("{}:{plain}", decode(user)).as_bytes()));
    forms.push(plain);
    forms.retain(|form| form.len() >= LEAST);
    forms
}

/// The password and the user of `https://user:password@host`. Another line is a credential as a whole.
fn parts(line: &str) -> (Option<&str>, &str) {
    let userinfo = line.split_once("://").and_then(|(_, rest)| rest.rsplit_once('@'));
    match userinfo.map(|(userinfo, _)| userinfo.split_once(':').unwrap_or(("", userinfo))) {
        Some((user, password)) => (Some(password), user),
        None => (Some(line).filter(|line| !line.is_empty()), ""),
    }
}

/// The part of the base64 of anything around these bytes that depends on them alone, for each of the three positions
/// that they can have.
fn encoded(bytes: &[u8]) -> Vec<String> {
    let mut forms = Vec::new();
    for before in 0..3 {
        let padded: Vec<u8> = std::iter::repeat_n(0, before).chain(bytes.iter().copied()).collect();
        // The first and the last character may have bits of what is beside.
        let start = (before * 8).div_ceil(6);
        let end = padded.len() * 8 / 6;
        for text in [STANDARD_NO_PAD.encode(&padded), URL_SAFE_NO_PAD.encode(&padded)] {
            forms.extend(text.get(start..end).map(str::to_owned));
        }
    }
    forms.retain(|form| form.len() >= 2 * LEAST);
    forms
}

#[cfg(test)]
mod tests {
    use base64::engine::general_purpose::STANDARD;

    use super::*;

    const TOKEN: &str = "canary/7+token=x";

    fn redactor() -> Redactor {
        let line = "https://x-access-token:canary%2F7%2Btoken%3Dx@github.com".to_owned();
        Credentials::default().redactor("c", &[line])
    }

    #[test]
    fn each_form_of_a_credential_is_removed() {
        let redactor = redactor();
        for text in [
            TOKEN.to_owned(),
            "canary%2F7%2Btoken%3Dx".to_owned(),
            format!("x{TOKEN}y"),
            format!("https://x-access-token:{TOKEN}@github.com/a"),
        ] {
            let clean = redactor.clean(&text);
            assert!(clean.contains(REDACTED) && !clean.contains("canary"), "{clean}");
        }
        for around in ["", "a", "ab", "abc", "x-access-token:"] {
            for text in [format!("{around}{TOKEN}"), format!("{around}{TOKEN}{around}")] {
                for text in [STANDARD.encode(&text), URL_SAFE_NO_PAD.encode(&text)] {
                    assert!(redactor.clean(&text).contains(REDACTED), "{around} {text}");
                }
            }
        }
    }

    #[test]
    fn what_looks_like_a_token_of_github_is_removed() {
        let none = Credentials::default().redactor("c", &[]);
        for token in ["ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"] {
            let text = format!("a={token}{}", "A1b2".repeat(9));
            assert_eq!(none.clean(&text), "a=[redacted]");
        }
        assert_eq!(none.clean("ghp_short and ghx_"), "ghp_short and ghx_");
    }

    #[test]
    fn a_credential_is_remembered_after_its_file_is_gone() {
        let credentials = Credentials::default();
        credentials.redactor("c", &["https://u:secret-1@h".to_owned()]);
        assert_eq!(credentials.redactor("c", &[]).clean("secret-1"), REDACTED);
        assert_eq!(credentials.redactor("d", &[]).clean("secret-1"), "secret-1");
        credentials.forget("c");
        assert_eq!(credentials.redactor("c", &[]).clean("secret-1"), "secret-1");
    }
}
