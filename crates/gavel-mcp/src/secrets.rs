//! The secrets of one server's entry in `mcp.json`, and text without them.
//!
//! A server may echo what it was sent, and a client may name what it could not use. Text from both therefore passes
//! through [`Secrets::hide`]. It masks only what is secret by its name or its form, since a model must be able to read
//! what a server permits: values of variables, headers and arguments with such names, tokens, passwords in addresses,
//! and the files that variables name. Each is masked also in the encodings of JSON, URLs and base64.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use base64::Engine;
use base64::alphabet::{STANDARD, URL_SAFE};
use base64::engine::general_purpose::{GeneralPurpose, NO_PAD};
use base64::prelude::BASE64_STANDARD;
use memchr::memmem;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use regex::Regex;
use secrecy::{ExposeSecret, SecretString};
use url::Url;

use super::config::{ServerConfig, TransportConfig};
use super::connection::{MASK, is_public};

/// Shorter values of variables are too common to be masked in text.
const VARIABLE: usize = 8;
/// The same for headers, passwords and queries, which are usually credentials.
const CREDENTIAL: usize = 4;
/// The same for a part of a URL's path, which may be any word.
const PATH_PART: usize = 6;
/// A variable that names a file with a key, as Google's libraries read it.
const KEY_FILE: &str = "GOOGLE_APPLICATION_CREDENTIALS";
/// For a secret of at least this length, the first half alone is masked too, because the secret may have been
/// truncated.
const CUT: usize = 16;

/// Secret values.
pub(super) struct Secrets {
    /// In every encoding, the longest first.
    forms: Vec<SecretString>,
}

impl Secrets {
    pub(super) fn of(server: &ServerConfig) -> Self {
        let mut found = Found {
            named: &server.gavel.secrets,
            values: BTreeSet::new(),
        };
        for (name, value) in &server.expanded {
            found.variable(name, value.expose_secret(), None);
        }
        match &server.transport {
            None => {}
            Some(TransportConfig::Stdio { args, env, cwd, .. }) => {
                for (name, value) in env {
                    found.variable(name, value.expose_secret(), cwd.as_deref());
                }
                found.arguments(args);
            }
            Some(TransportConfig::Http { url, headers }) => {
                for (name, value) in headers {
                    found.header(name.as_str(), value.expose_secret());
                }
                found.url(url);
            }
        }
        let mut forms: Vec<_> = found.values.iter().flat_map(|value| forms(value)).collect();
        forms.sort_by_key(|form| std::cmp::Reverse(form.len()));
        forms.dedup();
        Self {
            forms: forms.into_iter().map(SecretString::from).collect(),
        }
    }

    /// The text with each secret, and the beginning of each truncated secret, replaced by a mask.
    pub(super) fn hide<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let mut bytes = Cow::Borrowed(text.as_bytes());
        self.hide_in(&mut bytes, Parts::Too);
        match bytes {
            Cow::Borrowed(_) => Cow::Borrowed(text),
            // Secrets are whole characters, so the rest is valid text.
            Cow::Owned(bytes) => Cow::Owned(String::from_utf8_lossy(&bytes).into_owned()),
        }
    }

    /// The same for bytes.
    pub(super) fn hide_in(&self, text: &mut Cow<'_, [u8]>, parts: Parts) {
        // Whole secrets first: the beginning of one may equal the beginning of another.
        self.each(text, |form| form.len());
        if matches!(parts, Parts::Too) {
            self.each(text, |form| match form.len() >= CUT {
                true => form.ceil_char_boundary(form.len() / 2),
                false => form.len(),
            });
        }
    }

    /// Masks text that begins with the first bytes of a form, as far as it matches that form. `first` returns how many
    /// bytes.
    fn each(&self, text: &mut Cow<'_, [u8]>, first: impl Fn(&str) -> usize) {
        for form in self.forms.iter().map(|form| form.expose_secret()) {
            let (head, rest) = form.split_at(first(form));
            let mut from = 0;
            while let Some(found) = memmem::find(&text[from..], head.as_bytes()) {
                let start = from + found;
                let after = &text[start + head.len()..];
                let mut same = rest.char_indices().map(|(at, c)| at + c.len_utf8());
                let same = same.rfind(|end| after.get(..*end) == rest.as_bytes().get(..*end));
                let end = start + head.len() + same.unwrap_or(0);
                text.to_mut().splice(start..end, MASK.bytes());
                from = start + MASK.len();
            }
        }
    }

    /// Bytes of the longest form, or 0.
    pub(super) fn longest(&self) -> usize {
        self.forms.first().map_or(0, |form| form.expose_secret().len())
    }
}

/// Are the beginnings of truncated secrets masked as well?
#[derive(Clone, Copy)]
pub(super) enum Parts {
    Too,
    /// The rest may be in the text that follows.
    Not,
}

/// Secrets as configured.
struct Found<'a> {
    /// Names that the entry calls secret.
    named: &'a [String],
    values: BTreeSet<String>,
}

impl Found<'_> {
    fn add(&mut self, value: &str, shortest: usize) {
        let value = value.trim();
        if value.len() >= shortest {
            self.values.insert(value.to_owned());
        }
    }

    /// As it is written in an address, and decoded.
    fn part(&mut self, text: &str, shortest: usize) {
        self.add(text, shortest);
        self.add(&percent_decode_str(text).decode_utf8_lossy(), shortest);
    }

    /// Line by line, because logs consist of lines.
    fn lines(&mut self, value: &str) {
        value.lines().for_each(|line| self.add(line, VARIABLE));
    }

    fn is_secret(&self, name: &str) -> bool {
        let name = name.trim_start_matches('-');
        self.named.iter().any(|named| named.eq_ignore_ascii_case(name)) || says_secret(name)
    }

    /// A variable of the environment of a program that starts in `directory`.
    fn variable(&mut self, name: &str, value: &str, directory: Option<&Path>) {
        if name.to_ascii_uppercase().ends_with("_FILE") || name == KEY_FILE {
            let text = contents(&directory.unwrap_or(Path::new("")).join(value));
            self.lines(&text);
            self.by_form(&text);
        } else if self.is_secret(name) {
            self.lines(value);
        }
        self.by_form(value);
    }

    /// `--NAME=VALUE`, `--NAME VALUE`, and `NAME: VALUE` of a header.
    fn arguments(&mut self, args: &[String]) {
        for (n, arg) in args.iter().enumerate() {
            self.by_form(arg);
            if let Some((name, value)) = arg.split_once(':') {
                self.header(name, value);
            }
            let flag = n.checked_sub(1).map(|before| &*args[before]);
            let flag = flag.filter(|flag| flag.starts_with('-'));
            let pairs = [arg.split_once('='), flag.map(|flag| (flag, &**arg))];
            for (name, value) in pairs.into_iter().flatten() {
                if self.is_secret(name) {
                    self.add(value, CREDENTIAL);
                }
            }
        }
    }

    /// A header's value and the credentials in it: after the scheme, in Basic's base64, in cookies and parameters.
    fn header(&mut self, name: &str, value: &str) {
        self.by_form(value);
        if !self.is_secret(name) {
            return;
        }
        self.add(value, CREDENTIAL);
        let Some((scheme, credentials)) = value.trim().split_once(' ') else {
            value.split(';').for_each(|part| self.parameter(part));
            return;
        };
        self.add(credentials, CREDENTIAL);
        if scheme.eq_ignore_ascii_case("basic") {
            let decoded = BASE64_STANDARD.decode(credentials.trim()).ok();
            if let Some(decoded) = decoded.and_then(|bytes| String::from_utf8(bytes).ok()) {
                self.add(&decoded, CREDENTIAL);
                let password = decoded.split_once(':').map_or("", |(_, password)| password);
                self.add(password, CREDENTIAL);
            }
        }
        value.split([' ', ',', ';']).for_each(|part| self.parameter(part));
    }

    fn parameter(&mut self, part: &str) {
        if let Some((_, value)) = part.split_once('=') {
            self.add(value.trim_matches('"'), VARIABLE);
        }
    }

    /// The address of a server. Its user and the parts of its path may be keys.
    fn url(&mut self, url: &Url) {
        self.by_form(url.as_str());
        self.part(url.username(), CREDENTIAL);
        self.part(url.fragment().unwrap_or_default(), CREDENTIAL);
        let path = url.path().split('/');
        path.filter(|text| !is_public(text))
            .for_each(|text| self.part(text, PATH_PART));
    }

    /// What is secret in any text: tokens, private keys, passwords of addresses, and `NAME=VALUE` with a secret's name.
    fn by_form(&mut self, text: &str) {
        if text.contains("PRIVATE KEY-----") {
            // In JSON it is one line.
            self.lines(&text.replace("\\n", "\n"));
        }
        for found in TOKEN.find_iter(text) {
            self.add(found.as_str(), VARIABLE);
        }
        for found in PASSWORD.captures_iter(text) {
            self.part(&found[1], CREDENTIAL);
        }
        for found in PAIR.captures_iter(text) {
            if self.is_secret(&found[1]) {
                self.part(&found[2], CREDENTIAL);
            }
        }
    }
}

fn regex(pattern: &str) -> Regex {
    Regex::new(pattern).unwrap_or_else(|error| unreachable!("it is constant: {error}"))
}

static TOKEN: LazyLock<Regex> = LazyLock::new(|| {
    let begins = r"gh[oprsu]_|github_pat_|glpat-|xox|AIza|AQ\.|AKIA|ya29\.|eyJ";
    regex(&format!(
        r"(?-u:\b)(?:(?:{begins})[0-9A-Za-z_.+~-]{{12,}}|sk-(?:[a-z]+-)*[0-9A-Za-z_]{{16,}})"
    ))
});
/// The password of an address; in one of the web, also a user without one, which is a token.
static PASSWORD: LazyLock<Regex> =
    LazyLock::new(|| regex(r#"(?:https?://(?:[^\s/?#"'@:]*:)?|://[^\s/?#"'@:]*:)([^\s/?#"']+)@"#));
static PAIR: LazyLock<Regex> = LazyLock::new(|| regex(r#"([0-9A-Za-z_.-]+)=["']?([^\s"';,&#]+)"#));
/// Where a word of a name begins within letters: `apiKey`.
static CASE: LazyLock<Regex> = LazyLock::new(|| regex("([a-z0-9])([A-Z])"));
/// Words that make a name that of a secret, and ends of words that do.
static SECRET: LazyLock<Regex> = LazyLock::new(|| {
    let words = "auth|authorization|bearer|cookie|cred(?:ential)?s?|jwt|keys?|oauth|pass|passcode|passphrase|pat|pwd|sig|\
                 signature|(?:access|api|auth)_?tokens";
    let ends = "token|secrets?|passwords?|passwd|dbpass|apikey|accesskey|privatekey|secretkey|sshkey";
    regex(&format!("(?:^|[^a-z])(?:{words})(?:[^a-z]|$)|(?:{ends})(?:[^a-z]|$)"))
});
/// Names whose last word says where a secret is, or how it is used.
static PLACE: LazyLock<Regex> =
    LazyLock::new(|| regex("[^a-z](?:dir|file|host|mode|name|path|port|sock|type|uri|url|user)$"));

fn says_secret(name: &str) -> bool {
    let words = CASE.replace_all(name, "${1}_$2").to_lowercase();
    SECRET.is_match(&words) && !PLACE.is_match(&words)
}

/// The text of a small file that a variable names; empty if it cannot be read, which its server reports.
fn contents(path: &Path) -> String {
    let is_small = fs::metadata(path).is_ok_and(|of| of.is_file() && of.len() <= 64 * 1024);
    is_small
        .then(|| fs::read_to_string(path).ok())
        .flatten()
        .unwrap_or_default()
}

/// Characters that are not escaped in a URL.
const UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// The encodings in which a secret may be written.
fn forms(secret: &str) -> BTreeSet<String> {
    let json = serde_json::to_string(secret).unwrap_or_default();
    let json = json
        .trim_start_matches('"')
        .strip_suffix('"')
        .unwrap_or_default()
        .to_owned();
    let ascii = |upper: bool| {
        let mut text = String::new();
        for c in json.chars() {
            match c.is_ascii() {
                true => text.push(c),
                false => c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| match upper {
                    true => text.push_str(&format!("\\u{unit:04X}")),
                    false => text.push_str(&format!("\\u{unit:04x}")),
                }),
            }
        }
        text
    };
    let json = [ascii(true), ascii(false), json];
    let slashes = json.clone().map(|json| json.replace('/', "\\/"));
    let percent = utf8_percent_encode(secret, UNRESERVED).to_string();
    let mut lower = String::with_capacity(percent.len());
    let mut digits = 0;
    for c in percent.chars() {
        lower.push(if digits > 0 { c.to_ascii_lowercase() } else { c });
        digits = if c == '%' { 2 } else { i32::max(digits - 1, 0) };
    }
    let mut forms = BTreeSet::from([percent.replace("%20", "+"), lower, percent, secret.to_owned()]);
    forms.extend(json.into_iter().chain(slashes));
    for alphabet in [&STANDARD, &URL_SAFE] {
        let engine = GeneralPurpose::new(alphabet, NO_PAD);
        forms.extend((0..3).filter_map(|before| in_base64(&engine, secret, before)));
    }
    forms
}

/// The base64 characters of a secret in a text, after `before` bytes (modulo 3), independent of the surrounding text.
fn in_base64(engine: &GeneralPurpose, secret: &str, before: usize) -> Option<String> {
    let bytes = [&[0; 3][..before], secret.as_bytes()].concat();
    let encoded = engine.encode(&bytes);
    // Characters that also encode bits of the neighboring bytes are not fixed.
    let (first, end) = ((before * 8).div_ceil(6), bytes.len() * 8 / 6);
    encoded
        .get(first..end)
        .filter(|text| text.len() >= VARIABLE)
        .map(str::to_owned)
}

#[cfg(test)]
// A directory `secrets` would be left out of the image's build.
#[path = "secrets_tests.rs"]
mod tests;
