//! HTML as text for an approver: all of its words, including those that styles would hide, and every address in it.
//!
//! Mail programs differ in how they show complex HTML, and styles can hide, add or reverse words. So everything except
//! known plain HTML is reported, and the approver then checks the markup as well.

mod layout;
mod links;
mod plain;

use std::cell::RefCell;
use std::collections::BTreeSet;

use html5ever::tokenizer::states::RawKind;
use html5ever::tokenizer::{
    BufferQueue, CharacterTokens, CommentToken, EndTag, ParseError, StartTag, Tag, TagToken, Token, TokenSink,
    TokenSinkResult, Tokenizer, TokenizerOpts,
};

use layout::Layout;

/// The most bytes of HTML that are read out.
pub(crate) const MOST: usize = 64 * 1024;

/// The most attributes of one tag, estimated by the characters that can end one. The time for a tag grows with their
/// square. An embedded picture's address has fewer of these characters in 64 KiB.
const MOST_ATTRIBUTES: usize = 3000;

/// Bytes that the reader receives at once.
const PIECE: usize = 1024;

/// Attributes with an address, or with words that some programs show.
const REFERENCES: [&str; 22] = [
    "action",
    "alt",
    "aria-label",
    "background",
    "cite",
    "classid",
    "codebase",
    "content",
    "data",
    "formaction",
    "href",
    "label",
    "longdesc",
    "manifest",
    "ping",
    "placeholder",
    "poster",
    "src",
    "srcset",
    "srcdoc",
    "title",
    "value",
];

/// Inline elements.
const IN_LINE: [&str; 33] = [
    "a", "abbr", "acronym", "b", "bdi", "bdo", "big", "cite", "code", "data", "del", "dfn", "em", "font", "i", "img",
    "ins", "kbd", "label", "mark", "q", "s", "samp", "small", "span", "strike", "strong", "sub", "sup", "time", "tt",
    "u", "var",
];

/// HTML as text.
pub(crate) struct ReadOut {
    /// Its text, including hidden parts.
    pub text: String,
    /// Elements, attributes and style properties that may change what its readers see.
    pub suspicious: BTreeSet<String>,
    /// Links that show an address other than their target: the shown address, and the target.
    pub misleading_links: Vec<(String, String)>,
    /// Whether it has pictures that are loaded from elsewhere each time it is opened.
    pub fetches: bool,
}

/// HTML as text. `None` if it is too long, or if a tag has too many attributes; then show the markup.
pub(crate) fn read_out(html: &str) -> Option<ReadOut> {
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
    read.leave_unseen();
    read.leave_links();
    read.suspicious
        .extend(read.layout.suspicious.iter().map(|suspicious| (*suspicious).to_owned()));
    Some(ReadOut {
        text: read.text.trim().to_owned(),
        suspicious: read.suspicious,
        misleading_links: read.misleading_links,
        fetches: read.fetches,
    })
}

#[derive(Default)]
struct Reader(RefCell<Reading>);

#[derive(Default)]
struct Reading {
    text: String,
    /// Targets of the open links, and the text of each.
    links: Vec<(String, String)>,
    misleading_links: Vec<(String, String)>,
    /// Content that is not part of the text: the element, and the content.
    unseen: Option<(&'static str, String)>,
    /// Open elements of SVG and MathML. The names of HTML elements have no meaning inside them.
    foreign: usize,
    layout: Layout,
    fetches: bool,
    suspicious: BTreeSet<String>,
    /// Whether something was read since the last call of `has_read`.
    read: bool,
}

impl Reading {
    fn has_read(&mut self) -> bool {
        std::mem::take(&mut self.read)
    }

    /// White space becomes one blank, as almost everywhere in HTML.
    fn words(&mut self, words: &str) {
        if let Some((_, unseen)) = &mut self.unseen {
            unseen.push_str(words);
            return;
        }
        // A new link ends the previous one.
        if let Some((_, of_link)) = self.links.last_mut() {
            of_link.push_str(words);
        }
        self.layout.words(words);
        let as_written = self.layout.is_preformatted();
        for c in words.chars() {
            if c == '\n' && as_written {
                self.line();
            } else if !c.is_ascii_whitespace() {
                self.text.push(c);
            } else if !self.text.ends_with([' ', '\n']) {
                self.text.push(' ');
            }
        }
    }

    fn line(&mut self) {
        let shown = self.text.trim_end_matches(' ').len();
        self.text.truncate(shown);
        if !self.text.ends_with("\n\n") && !self.text.is_empty() {
            self.text.push('\n');
        }
    }

    fn note(&mut self, note: &str) {
        if !self.text.ends_with([' ', '\n']) {
            self.text.push(' ');
        }
        self.text.push('[');
        self.text.push_str(note);
        self.text.push(']');
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
        self.layout.begins(&tag.name);
        if !IN_LINE.contains(&name) {
            self.line();
        }
        match name {
            "li" => self.text.push_str("• "),
            "td" | "th" => self.words(" "),
            "img" => self.fetches |= tag.attrs.iter().any(plain::fetches),
            _ => {}
        }
        for attribute in &tag.attrs {
            let (of, value) = (&*attribute.name.local, attribute.value.trim());
            let references =
                REFERENCES.contains(&of) || of.ends_with(":href") || value.contains("//") || value.contains("url(");
            if name == "a" && of == "href" {
                self.links.push((value.to_owned(), String::new()));
            } else if references && !value.is_empty() {
                self.note(&format!("{name} {of}: {value}"));
            }
        }
        if matches!(name, "svg" | "math") && !tag.self_closing {
            self.foreign += 1;
        }
        // Reading markup as text by error only reports too much; the reverse would hide text.
        let raw = match name {
            _ if self.foreign > 0 => return TokenSinkResult::Continue,
            "script" => {
                self.unseen = Some(("script", String::new()));
                RawKind::Rawtext
            }
            "style" => {
                self.unseen = Some(("style sheet", String::new()));
                RawKind::Rawtext
            }
            "title" => {
                self.unseen = Some(("title", String::new()));
                RawKind::Rcdata
            }
            "textarea" => RawKind::Rcdata,
            "xmp" | "iframe" | "noembed" | "noframes" => RawKind::Rawtext,
            "plaintext" => return TokenSinkResult::Plaintext,
            _ => return TokenSinkResult::Continue,
        };
        TokenSinkResult::RawData(raw)
    }

    fn ends(&mut self, tag: &Tag) {
        match &*tag.name {
            "script" | "style" | "title" => self.leave_unseen(),
            "svg" | "math" => self.foreign = self.foreign.saturating_sub(1),
            _ => {}
        }
        self.layout.ends(&tag.name);
        match &*tag.name {
            "a" => self.leave_links(),
            name if !IN_LINE.contains(&name) => self.line(),
            _ => {}
        }
    }

    fn leave_unseen(&mut self) {
        if let Some((what, unseen)) = self.unseen.take() {
            if what == "title" {
                // Mail programs never show a title in the message, wherever it is.
                if unseen.trim().is_empty() {
                    return;
                }
                self.suspicious.insert("<title>".to_owned());
            }
            self.note(&format!("{what}: {}", unseen.trim()));
        }
    }

    fn leave_links(&mut self) {
        for (target, words) in std::mem::take(&mut self.links) {
            self.note(&format!("→ {target}"));
            if let Some(named) = links::named_instead(&words, &target) {
                self.misleading_links.push((named, target));
            }
        }
    }
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
            // Some programs show the content of comments that are made for them.
            CommentToken(words) if !words.trim().is_empty() => reading.note(&format!("comment: {}", words.trim())),
            _ => {}
        }
        TokenSinkResult::Continue
    }
}

#[cfg(test)]
mod tests;
