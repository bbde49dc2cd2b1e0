//! HTML that an approver decides on: its words, where its links lead, what it may hide, and how it is shown.
//!
//! The console shows it in a frame that runs and loads nothing. Mail programs differ in how they show complex HTML, and
//! styles can hide, add or reverse words. So everything except known plain HTML is reported, and the approver then checks
//! the markup as well.

mod plain;

use std::cell::RefCell;
use std::collections::BTreeSet;

use html5ever::tokenizer::states::RawKind;
use html5ever::tokenizer::{
    BufferQueue, CharacterTokens, CommentToken, EndTag, ParseError, StartTag, Tag, TagToken, Token, TokenSink,
    TokenSinkResult, Tokenizer, TokenizerOpts,
};
use url::Url;

use super::text::is_hidden;

/// The most bytes of HTML that are read.
pub(crate) const MOST: usize = 64 * 1024;

/// The most attributes of one tag, estimated by the characters that can end one. The time for a tag grows with their
/// square. An embedded picture's address has fewer of these characters in 64 KiB.
const MOST_ATTRIBUTES: usize = 3000;

/// Bytes that the reader receives at once.
const PIECE: usize = 1024;

/// The most empty lines before words that a reader will not take for the end.
const MOST_LINES: usize = 8;
/// The most blanks in a row that HTML does not collapse into one.
const MOST_BLANKS: usize = 60;
/// The deepest nesting of elements that make text smaller.
const SMALLEST: usize = 2;

/// What is in HTML.
pub struct ReadOut {
    /// All its words, including hidden ones.
    pub text: String,
    /// Elements, attributes and style properties that may change what its readers see.
    pub suspicious: BTreeSet<String>,
    /// Its links, and where its forms lead, in order.
    pub links: Vec<Link>,
    /// Whether it has pictures that are loaded from elsewhere each time it is opened.
    pub fetches: bool,
}

/// A link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Its text.
    pub words: String,
    /// Where it leads, as written.
    pub target: String,
    /// The address that its text shows, if that is another one than the target.
    pub named: Option<String>,
}

/// Reads HTML. `None` if it is too long, or if a tag has too many attributes.
pub fn read_out(html: &str) -> Option<ReadOut> {
    if html.len() > MOST {
        return None;
    }
    let input = BufferQueue::default();
    let reader = Tokenizer::new(Reader::default(), TokenizerOpts::default());
    let mut rest = html;
    let mut ends = 0;
    while !rest.is_empty() {
        let (piece, more) = rest.split_at(rest.ceil_char_boundary(PIECE.min(rest.len())));
        rest = more;
        input.push_back(piece.into());
        // It stops at scripts, which gavel does not run.
        while !input.is_empty() {
            let _ = reader.feed(&input);
        }
        // The reader emits nothing until a tag ends.
        if reader.sink.0.borrow_mut().has_read() {
            ends = 0;
        }
        ends += piece
            .bytes()
            .filter(|byte| byte.is_ascii_whitespace() || b"/'\"".contains(byte))
            .count();
        if ends > MOST_ATTRIBUTES {
            return None;
        }
    }
    reader.end();
    let mut read = reader.sink.0.into_inner();
    read.leave_links();
    read.leave_title();
    Some(ReadOut {
        text: read.text,
        suspicious: read.suspicious,
        links: read.links,
        fetches: read.fetches,
    })
}

#[derive(Default)]
struct Reader(RefCell<Reading>);

#[derive(Default)]
struct Reading {
    text: String,
    /// Targets of the open links, and the text of each.
    open: Vec<(String, String)>,
    links: Vec<Link>,
    fetches: bool,
    suspicious: BTreeSet<String>,
    /// The words of a title, which mail programs never show.
    title: Option<String>,
    /// Open elements of SVG and MathML. The names of HTML elements have no meaning inside them.
    foreign: usize,
    /// Open elements that make text smaller, or keep the blanks and line breaks of the source.
    smaller: usize,
    preformatted: usize,
    /// Empty lines and blanks since the last word.
    lines: usize,
    blanks: usize,
    /// Whether something was read since the last call of `has_read`.
    read: bool,
}

impl Reading {
    fn has_read(&mut self) -> bool {
        std::mem::take(&mut self.read)
    }

    fn words(&mut self, words: &str) {
        if let Some(title) = &mut self.title {
            title.push_str(words);
        }
        // A new link ends the previous one.
        if let Some((_, of_link)) = self.open.last_mut() {
            of_link.push_str(words);
        }
        self.text.push_str(words);
        for c in words.chars() {
            match c {
                '\n' if self.preformatted > 0 => self.lines += 1,
                _ if c.is_ascii_whitespace() => self.blanks += usize::from(self.preformatted > 0),
                _ if c.is_whitespace() || is_hidden(c) => self.blanks += 1,
                _ => self.shown(),
            }
        }
    }

    /// Words are shown here, or a picture: after an emptiness, and of this size.
    fn shown(&mut self) {
        if self.lines > MOST_LINES {
            self.suspicious.insert("many empty lines".to_owned());
        }
        if self.blanks > MOST_BLANKS {
            self.suspicious.insert("many blanks in a row".to_owned());
        }
        if self.smaller > SMALLEST {
            self.suspicious.insert("small text within small text".to_owned());
        }
        (self.lines, self.blanks) = (0, 0);
    }

    fn begins(&mut self, tag: &Tag) -> TokenSinkResult<()> {
        let name = &*tag.name;
        if !plain::element(name) {
            self.suspicious.insert(format!("<{name}>"));
        }
        self.suspicious.extend(
            tag.attrs
                .iter()
                .filter_map(|attribute| plain::suspicious(name, attribute)),
        );
        match name {
            "br" | "hr" => self.lines += 1,
            "img" => self.fetches |= tag.attrs.iter().any(plain::fetches),
            "a" => self.leave_links(),
            _ => {}
        }
        self.smaller += usize::from(is_smaller(name));
        self.preformatted += usize::from(name == "pre");
        self.text.push(' ');
        for attribute in &tag.attrs {
            let (of, value) = (&*attribute.name.local, attribute.value.trim());
            match of {
                "href" if name == "a" => self.open.push((value.to_owned(), String::new())),
                // It is loaded, not followed.
                "href" if name == "link" => {}
                "href" | "action" | "formaction" | "ping" => self.leads(name, value),
                _ if of.ends_with(":href") => self.leads(name, value),
                _ => {}
            }
        }
        if matches!(name, "svg" | "math") && !tag.self_closing {
            self.foreign += 1;
        }
        // Reading markup as text by error only reports too much; the reverse would hide text.
        let raw = match name {
            _ if self.foreign > 0 => return TokenSinkResult::Continue,
            "script" | "style" => RawKind::Rawtext,
            "title" => {
                self.title = Some(String::new());
                RawKind::Rcdata
            }
            "textarea" => RawKind::Rcdata,
            "xmp" | "iframe" | "noembed" | "noframes" => RawKind::Rawtext,
            "plaintext" => return TokenSinkResult::Plaintext,
            _ => return TokenSinkResult::Continue,
        };
        TokenSinkResult::RawData(raw)
    }

    /// An element that is no link leads somewhere.
    fn leads(&mut self, element: &str, target: &str) {
        self.links.push(Link {
            words: format!("<{element}>"),
            target: target.to_owned(),
            named: None,
        });
    }

    fn ends(&mut self, tag: &Tag) {
        let name = &*tag.name;
        match name {
            "title" => self.leave_title(),
            "svg" | "math" => self.foreign = self.foreign.saturating_sub(1),
            "a" => self.leave_links(),
            "p" => self.lines += 1,
            "pre" => self.preformatted = self.preformatted.saturating_sub(1),
            _ if is_smaller(name) => self.smaller = self.smaller.saturating_sub(1),
            _ => {}
        }
        self.text.push(' ');
    }

    fn leave_title(&mut self) {
        if self.title.take().is_some_and(|title| !title.trim().is_empty()) {
            self.suspicious.insert("<title>".to_owned());
        }
    }

    fn leave_links(&mut self) {
        for (target, words) in std::mem::take(&mut self.open) {
            self.links.push(Link {
                named: named_instead(&words, &target),
                words: words.split_whitespace().collect::<Vec<_>>().join(" "),
                target,
            });
        }
    }
}

fn is_smaller(element: &str) -> bool {
    matches!(element, "small" | "sub" | "sup")
}

impl TokenSink for Reader {
    type Handle = ();

    fn process_token(&self, token: Token, _line: u64) -> TokenSinkResult<()> {
        let mut reading = self.0.borrow_mut();
        // Inside an unfinished tag, the tokenizer emits only errors.
        reading.read |= !matches!(token, ParseError(_));
        match token {
            CharacterTokens(words) => reading.words(&words),
            // `</br>` is a line break as well, in every browser.
            TagToken(tag) if tag.kind == StartTag || &*tag.name == "br" => {
                return reading.begins(&tag);
            }
            TagToken(tag) if tag.kind == EndTag => reading.ends(&tag),
            // Some programs show the content of comments that are made for them: `<!--[if mso]>`.
            CommentToken(words) if words.trim_start().starts_with("[if") => {
                reading
                    .suspicious
                    .insert("a comment that some programs show".to_owned());
                reading.text.push_str(&words);
            }
            _ => {}
        }
        TokenSinkResult::Continue
    }
}

// Links whose text shows an address other than their target.

/// Top-level domains of site names that texts mention without a scheme. Those of two letters belong to countries.
const DOMAINS: [&str; 12] = [
    "app", "biz", "com", "dev", "edu", "gov", "info", "int", "io", "mil", "net", "org",
];

/// The address that a link's text names if its target is different: a site, or a mailbox.
fn named_instead(words: &str, target: &str) -> Option<String> {
    let leads_to = place(target, true);
    let named = words.split_whitespace().filter_map(|word| place(word, false));
    let mut others = named.filter(|named| leads_to.as_ref() != Some(named));
    others.next()
}

/// The site or mailbox that a text addresses. A target counts only if it has a scheme, as in mail programs.
fn place(text: &str, is_target: bool) -> Option<String> {
    let text = text.trim_matches(|c: char| !c.is_alphanumeric() && c != '/');
    let begins = |scheme: &str| {
        text.get(..scheme.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(scheme))
    };
    if begins("mailto:") || (!is_target && text.contains('@') && !text.contains("//")) {
        let mailbox = if begins("mailto:") {
            &text["mailto:".len()..]
        } else {
            text
        };
        let (mailbox, _) = mailbox.split_once('?').unwrap_or((mailbox, ""));
        let (local, domain) = mailbox.rsplit_once('@')?;
        return Some(format!(
            "{}@{}",
            local.to_lowercase(),
            site(&format!("https://{domain}"))?
        ));
    }
    if begins("http://") || begins("https://") {
        return site(text);
    }
    if let Some(rest) = text.strip_prefix("//") {
        return site(&format!("https://{rest}"));
    }
    if is_target {
        return None;
    }
    let host = text.split(['/', '?', '#', ':']).next().unwrap_or_default();
    let (_, last) = host.rsplit_once('.')?;
    let last = last.to_ascii_lowercase();
    let is_domain =
        DOMAINS.contains(&&*last) || (last.len() == 2 && last.bytes().all(|byte| byte.is_ascii_lowercase()));
    (is_domain || begins("www."))
        .then(|| site(&format!("https://{text}")))
        .flatten()
}

/// The name of a site in the form that all programs read the same way, without `www.`.
fn site(url: &str) -> Option<String> {
    let url = Url::parse(url).ok()?;
    let host = url.host_str()?;
    Some(host.strip_prefix("www.").unwrap_or(host).to_owned())
}

#[cfg(test)]
mod tests;

/// What precedes the HTML. Links open nowhere: the frame is not allowed to open windows. Messages are written for a white
/// page.
const BEFORE: &str = "<!doctype html><html><head><base target=\"_blank\"><style>html{background:#fff;color:#000;\
                      color-scheme:light}body{margin:12px;font-family:sans-serif}</style></head><body>\n";

/// The most bytes of HTML that are shown.
const MOST_FRAMED: usize = 1024 * 1024;

/// Elements by which a browser connects to a host although the page may load nothing: `<link rel=preconnect>`, and
/// `<meta>` that allows it.
const CONNECTING: [&str; 2] = ["link", "meta"];

/// The document for a frame, without elements that connect to other hosts. Its response forbids scripts and everything
/// that is loaded. `None` if the HTML is too long to be shown.
pub fn framed(html: &str) -> Option<String> {
    if html.len() > MOST_FRAMED {
        return None;
    }
    let mut document = String::with_capacity(BEFORE.len() + html.len() + 64);
    document.push_str(BEFORE);
    let mut parts = html.split('<');
    document.push_str(parts.next().unwrap_or_default());
    for part in parts {
        document.push('<');
        // The name of an element is read as it is written: no references, no comments in it.
        let connects = |name: &str| {
            part.get(..name.len())
                .is_some_and(|start| start.eq_ignore_ascii_case(name))
        };
        if CONNECTING.into_iter().any(connects) {
            document.push_str("x-");
        }
        document.push_str(part);
    }
    Some(document)
}

#[cfg(test)]
mod links_tests {
    use super::*;

    #[test]
    fn a_link_that_reads_as_another_address_is_found_and_no_other() {
        for (words, target, named) in [
            ("https://bank.example", "https://evil.example/x", Some("bank.example")),
            ("see bank.com/login, please", "https://evil.example", Some("bank.com")),
            ("www.bank.example", "https://evil.example", Some("bank.example")),
            ("bank.com", "https://bank.com.evil.example/", Some("bank.com")),
            ("https://bank.com", "https://bank.com@evil.example/", Some("bank.com")),
            (
                "https://bücher.example",
                "https://bucher.example",
                Some("xn--bcher-kva.example"),
            ),
            ("ann@x.org", "mailto:eve@x.org", Some("ann@x.org")),
            ("ann@x.org", "https://x.org", Some("ann@x.org")),
            ("bank.com", "#", Some("bank.com")),
            ("bank.com", "/login", Some("bank.com")),
            ("https://bank.example", "https://www.bank.example/login?x=1", None),
            ("BANK.com.", "HTTP://bank.COM", None),
            ("(https://bücher.example)", "https://xn--bcher-kva.example/", None),
            ("Ann@X.org", "mailto:ann@x.org?subject=Hi", None),
            ("Read more", "https://evil.example", None),
            ("version 1.2.3 of report.pdf", "https://a.example", None),
            ("e.g. this", "https://a.example", None),
            ("", "https://a.example", None),
        ] {
            assert_eq!(named_instead(words, target).as_deref(), named, "{words}: {target}");
        }
    }
}

#[cfg(test)]
mod frame_tests {
    use super::*;

    #[test]
    fn elements_that_connect_to_other_hosts_are_none_in_the_frame() {
        for (html, shown) in [
            ("<p>Hi</p>", "<p>Hi</p>"),
            ("<link rel=preconnect href=//a>", "<x-link rel=preconnect href=//a>"),
            ("a<LINK/rel=x><b>b", "a<x-LINK/rel=x><b>b"),
            (
                "<Meta http-equiv=x-dns-prefetch-control content=on>",
                "<x-Meta http-equiv=x-dns-prefetch-control content=on>",
            ),
            (
                "<!-- <link> --><style><link></style>",
                "<!-- <x-link> --><style><x-link></style>",
            ),
            ("< link><lin\u{e9}>", "< link><lin\u{e9}>"),
            ("", ""),
        ] {
            assert_eq!(framed(html).as_deref(), Some(&*format!("{BEFORE}{shown}")), "{html}");
        }
        assert_eq!(framed(&"x".repeat(MOST_FRAMED + 1)), None);
    }
}
