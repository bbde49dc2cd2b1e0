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
    /// Without white space.
    texts: Vec<String>,
}

impl Redactor {
    fn new(texts: &BTreeSet<String>) -> Self {
        let texts = texts.iter().map(|text| joined(text));
        Self {
            texts: texts.filter(|text| text.len() >= LEAST).collect(),
        }
    }

    /// The text without credentials. One is found across white space too, as base64 is wrapped after 76 characters.
    pub(crate) fn clean(&self, text: &str) -> String {
        static TOKENS: LazyLock<Option<Regex>> =
            LazyLock::new(|| Regex::new(r"\b(?:gh[pousr]_[A-Za-z0-9_.-]{20,}|github_pat_[A-Za-z0-9_]{20,})").ok());
        let joined = joined(text);
        let at: Vec<usize> = (0..)
            .zip(text.bytes())
            .filter(|(_, byte)| !byte.is_ascii_whitespace())
            .map(|(at, _)| at)
            .collect();
        let places = |secret: &str| {
            let starts = joined.match_indices(secret).map(|(start, _)| start);
            let places = starts.filter_map(|start| Some((*at.get(start)?, at.get(start + secret.len() - 1)? + 1)));
            places.collect::<Vec<_>>()
        };
        let mut places: Vec<_> = self.texts.iter().flat_map(|secret| places(secret)).collect();
        places.sort_unstable();
        let (mut clean, mut from) = (String::with_capacity(text.len()), 0);
        for (start, end) in places {
            // One can begin in another.
            if start >= from {
                clean.push_str(text.get(from..start).unwrap_or_default());
                clean.push_str(REDACTED);
            }
            from = from.max(end);
        }
        clean.push_str(text.get(from..).unwrap_or_default());
        match &*TOKENS {
            Some(tokens) => tokens.replace_all(&clean, REDACTED).into_owned(),
            None => clean,
        }
    }
}

fn joined(text: &str) -> String {
    text.split_ascii_whitespace().collect()
}

/// The forms of the credential in one line of the file, which is a URL with a user and a password. Another line is a
/// credential as a whole.
fn forms(line: &str) -> Vec<String> {
    let line = line.trim();
    let userinfo = line.split_once("://").and_then(|(_, rest)| rest.rsplit_once('@'));
    let password = userinfo.map_or(line, |(userinfo, _)| {
        userinfo.split_once(':').unwrap_or(("", userinfo)).1
    });
    let plain = percent_decode_str(password).decode_utf8_lossy().into_owned();
    let encode = utf8_percent_encode(&plain, NON_ALPHANUMERIC).to_string();
    let mut forms = vec![line.to_owned(), password.to_owned(), encode, plain];
    // As in the header of a request, and in the base64 of the file itself.
    let codes: Vec<_> = forms.iter().flat_map(|text| encoded(text.as_bytes())).collect();
    forms.extend(codes);
    forms
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

    /// As `base64`, `openssl` and a mail wrap it, and with whatever is around it.
    #[test]
    fn the_base64_of_a_credential_file_is_removed_however_it_is_wrapped() {
        let line = |token: &str| format!("https://x-access-token:{}@github.com", token.replace('_', "%5F"));
        let tokens = ["ghs_canaryA1b2C3d4E5f6G7h8I9j0", "ghp_canaryK1l2M3n4O5p6Q7r8S9t0"];
        let lines = tokens.map(line);
        let redactor = Credentials::default().redactor("c", &lines);
        let file = format!("{}\n{}\n", lines[0], lines[1]);
        for content in [
            file.clone(),
            format!("x{file}"),
            format!("xy{file}"),
            tokens.join(" "),
            lines[0].clone(),
        ] {
            for code in [STANDARD.encode(&content), URL_SAFE_NO_PAD.encode(&content)] {
                for width in [4, 19, 20, 60, 64, 76, 1000] {
                    for end in ["\n", "\r\n", "\n  "] {
                        let bytes = code.as_bytes().chunks(width).map(String::from_utf8_lossy);
                        let text = bytes.collect::<Vec<_>>().join(end);
                        let clean: String = redactor.clean(&text).split_ascii_whitespace().collect();
                        for part in code.as_bytes().windows(24).map(String::from_utf8_lossy) {
                            let is_secret = tokens
                                .iter()
                                .any(|token| encoded(&token.as_bytes()[4..]).iter().any(|form| form.contains(&*part)));
                            assert!(!is_secret || !clean.contains(&*part), "{width} {end:?}: {clean}");
                        }
                    }
                }
            }
        }
        let text = "one\n\n  two \u{a0} three\n";
        assert_eq!(redactor.clean(text), text);
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
