//! How readers of HTML see its words: in which order, how far apart, and how small.
//!
//! Elements open and close by HTML's own rules, as far as they matter here. If the rules are unclear, this reports more
//! than is suspicious.

use std::collections::BTreeSet;

use html5ever::{LocalName, local_name};

use super::IN_LINE;
use crate::domain::text::is_hidden;

/// The most empty lines in a row that a reader will not take for the end.
const MOST_LINES: usize = 3;
/// The most blanks in a row that HTML does not collapse into one.
const MOST_BLANKS: usize = 60;
/// The deepest nesting of elements, because each tag may be compared with all open ones. Newsletters made of nested
/// tables have half of it.
const DEEPEST: usize = 128;

/// Elements without content.
const VOID: [&str; 9] = ["area", "base", "br", "col", "hr", "img", "input", "meta", "wbr"];

/// The state that determines the reading order.
#[derive(Default)]
pub(super) struct Layout {
    open: Vec<Open>,
    /// The open tables.
    tables: Vec<Parts>,
    /// Empty lines and blanks since the last word.
    lines: usize,
    blanks: usize,
    /// Whether the current block is still empty.
    is_empty: bool,
    pub(super) suspicious: BTreeSet<&'static str>,
}

/// An open element, with the relevant properties of its name, so that names are compared once.
#[derive(Clone)]
struct Open {
    name: LocalName,
    in_line: bool,
    part: bool,
    scope: bool,
    sized: bool,
    heading: bool,
    preformatted: bool,
    table: bool,
}

impl From<&LocalName> for Open {
    fn from(name: &LocalName) -> Self {
        Self {
            name: name.clone(),
            in_line: is_in_line(name),
            part: is_part(name),
            scope: is_scope(name),
            sized: is_sized(name),
            heading: is_heading(name),
            preformatted: &**name == "pre",
            table: &**name == "table",
        }
    }
}

/// The parts of a table that have started.
#[derive(Default)]
struct Parts {
    rows: bool,
    foot: bool,
}

impl Layout {
    pub(super) fn begins(&mut self, name: &LocalName) {
        match &**name {
            // A document has one of each, wherever the tags are.
            "html" | "head" | "body" => return,
            "br" | "hr" => {
                self.lines += 1;
                self.is_empty = false;
            }
            "img" => self.is_empty = false,
            _ => {}
        }
        if is_part(name) {
            if !self.begins_part(name) {
                return;
            }
        } else if !is_in_line(name) {
            // Content of a table outside its cells is shown before the table.
            if self.is_beside_cells() && !matches!(&**name, "script" | "style") {
                self.suspicious.insert("words beside the cells of a table");
            }
            self.end_line(name);
        }
        if VOID.contains(&&**name) {
            return;
        }
        if !is_in_line(name) {
            self.is_empty = true;
        }
        if self.open.len() == DEEPEST {
            self.suspicious.insert("very deep nesting");
            return;
        }
        let new = Open::from(name);
        let within = |group: fn(&Open) -> bool| group(&new) && self.open.iter().any(group);
        if within(|open| open.sized) || within(|open| open.heading) {
            self.suspicious.insert("small or raised text within another");
        }
        if &**name == "table" {
            self.tables.push(Parts::default());
        }
        self.open.push(new);
    }

    /// Table parts have no meaning outside tables.
    fn begins_part(&mut self, name: &LocalName) -> bool {
        let Some(table) = self.open.iter().rposition(|open| open.table) else {
            return false;
        };
        let is_kept = |open: &Open| match &**name {
            "td" | "th" => matches!(&*open.name, "tr" | "thead" | "tbody" | "tfoot" | "table"),
            "tr" => matches!(&*open.name, "thead" | "tbody" | "tfoot" | "table"),
            "col" => matches!(&*open.name, "colgroup" | "table"),
            _ => open.table,
        };
        let kept = self.open.iter().rposition(is_kept).unwrap_or(table);
        if kept + 1 < self.open.len() {
            if !matches!(&**name, "td" | "th") {
                self.end_block();
            }
            self.close(kept + 1);
        }
        let in_foot = self.open[table..].iter().any(|open| &*open.name == "tfoot");
        let Some(parts) = self.tables.last_mut() else {
            return false;
        };
        match &**name {
            "col" | "colgroup" => return true,
            "caption" if parts.rows => self.suspicious.insert("<caption> after rows"),
            "thead" if parts.rows => self.suspicious.insert("<thead> after rows"),
            _ if parts.foot && !in_foot => self.suspicious.insert("<tfoot> before rows"),
            _ => false,
        };
        parts.rows |= &**name != "caption";
        parts.foot |= &**name == "tfoot";
        true
    }

    /// A block element ends a paragraph, and an item ends the previous item.
    fn end_line(&mut self, name: &LocalName) {
        const PARAGRAPH: ([LocalName; 2], [LocalName; 2]) = (
            [local_name!("p"), local_name!("p")],
            [local_name!("table"), local_name!("table")],
        );
        let ended = match &**name {
            "li" => (
                [local_name!("li"), local_name!("li")],
                [local_name!("ul"), local_name!("ol")],
            ),
            "dt" | "dd" => (
                [local_name!("dt"), local_name!("dd")],
                [local_name!("dl"), local_name!("dl")],
            ),
            _ => PARAGRAPH,
        };
        for (ended, stops) in [PARAGRAPH, ended] {
            let at = self.found(
                |open| ended.contains(&open.name),
                |open| open.scope || stops.contains(&open.name),
            );
            if let Some(at) = at {
                self.end_block();
                self.close(at);
            }
        }
    }

    pub(super) fn ends(&mut self, name: &LocalName) {
        let ends_headings = is_heading(name);
        let is_it = |open: &Open| open.name == *name || (ends_headings && open.heading);
        let at = match &**name {
            "table" => self.found(is_it, |_| false),
            _ if is_part(name) => self.found(is_it, |open| open.table),
            _ if is_in_line(name) => self.found(is_it, |open| !open.in_line),
            _ => self.found(is_it, |open| open.scope),
        };
        let Some(at) = at else {
            return;
        };
        if is_in_line(name) {
            self.open.remove(at);
            return;
        }
        // Cells are side by side; their row takes a line.
        if !matches!(&**name, "td" | "th") {
            self.end_block();
        }
        self.close(at);
    }

    /// The innermost matching element, unless another element stops the search.
    fn found(&self, is_it: impl Fn(&Open) -> bool, stops: impl Fn(&Open) -> bool) -> Option<usize> {
        for (at, open) in self.open.iter().enumerate().rev() {
            if is_it(open) {
                return Some(at);
            }
            if stops(open) {
                return None;
            }
        }
        None
    }

    fn end_block(&mut self) {
        self.lines += usize::from(self.is_empty);
        self.is_empty = false;
    }

    /// Closes all elements from `from` on. Elements that make text small remain open beyond their parent's end, except
    /// for a cell's.
    fn close(&mut self, from: usize) {
        let ended = self.open.split_off(from);
        let tables = ended.iter().filter(|open| open.table).count();
        self.tables.truncate(self.tables.len().saturating_sub(tables));
        let continues = ended.into_iter().take_while(|open| !open.scope);
        self.open
            .extend(continues.filter(|open| matches!(&*open.name, "small" | "big")));
    }

    /// Whether white space is preserved.
    pub(super) fn is_preformatted(&self) -> bool {
        self.open.iter().any(|open| open.preformatted)
    }

    fn is_beside_cells(&self) -> bool {
        let last = self.open.last();
        last.is_some_and(|open| open.table || (open.part && !matches!(&*open.name, "td" | "th" | "caption")))
    }

    pub(super) fn words(&mut self, words: &str) {
        let as_written = self.is_preformatted();
        for c in words.chars() {
            match c {
                '\n' if as_written => self.lines += 1,
                '\t' if as_written => self.blanks += 8,
                c if c.is_ascii_whitespace() && !as_written => {}
                c if is_blank(c) => self.blanks += 1,
                _ => self.word(),
            }
        }
    }

    fn word(&mut self) {
        if self.lines > MOST_LINES {
            self.suspicious.insert("many empty lines");
        }
        if self.blanks > MOST_BLANKS {
            self.suspicious.insert("many blanks in a row");
        }
        if self.is_beside_cells() {
            self.suspicious.insert("words beside the cells of a table");
        }
        (self.lines, self.blanks, self.is_empty) = (0, 0, false);
    }
}

fn is_blank(c: char) -> bool {
    c.is_whitespace() || is_hidden(c) || matches!(c, '\u{200c}' | '\u{200d}' | '\u{2800}')
}

fn is_in_line(name: &LocalName) -> bool {
    IN_LINE.contains(&&**name)
}

fn is_part(name: &LocalName) -> bool {
    matches!(
        &**name,
        "caption" | "col" | "colgroup" | "tbody" | "td" | "tfoot" | "th" | "thead" | "tr"
    )
}

/// Content of these elements does not close elements outside of them.
fn is_scope(name: &LocalName) -> bool {
    matches!(&**name, "caption" | "table" | "td" | "th")
}

fn is_sized(name: &LocalName) -> bool {
    matches!(&**name, "big" | "small" | "sub" | "sup")
}

fn is_heading(name: &LocalName) -> bool {
    matches!(&**name, "h1" | "h2" | "h3" | "h4" | "h5" | "h6")
}
