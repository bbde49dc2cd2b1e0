//! Parses a page, whatever it is made of. Some pages are small and cost a parser hours, or all memory: elements within
//! elements, formatting that each paragraph repeats, tags of a million attributes. So the parser gets a page in pieces,
//! and the tree is looked at after each of them.

use std::time::{Duration, Instant};

use dom_query::Document;
use html5ever::tendril::{StrTendril, TendrilSink};
use html5ever::{ParseOpts, parse_document};

/// A piece is small enough that no piece costs much, in bytes.
const PIECE: usize = 1 << 10;
/// Elements within elements. Browsers stop at 512.
const DEEPEST: usize = 512;
/// Elements, texts and comments of a tree.
const MOST_NODES: usize = 300_000;
/// The time for all pieces.
const TIME: Duration = Duration::from_secs(5);

/// The tree of a page; `None` if it exceeds a limit.
pub(super) fn parse(html: &str) -> Option<Document> {
    let begun = Instant::now();
    let mut options = ParseOpts::default();
    options.tree_builder.scripting_enabled = false;
    let mut parser = parse_document(Document::default(), options);
    let mut rest = html;
    while !rest.is_empty() {
        let (piece, after) = rest.split_at(rest.floor_char_boundary(PIECE.min(rest.len())));
        parser.process(StrTendril::from(piece));
        rest = after;
        let page = &parser.tokenizer.sink.sink;
        if page.tree.len() > MOST_NODES || opens_too_many(page) || begun.elapsed() > TIME {
            return None;
        }
    }
    let page = parser.finish();
    (!is_too_deep(&page)).then_some(page)
}

/// Looks at the elements that are open, which are the last of their parents. Those that a table moves out of itself are
/// not; the time is the limit for them until the end.
fn opens_too_many(page: &Document) -> bool {
    let mut last = page.root().last_child();
    let mut depth = 0;
    while let Some(node) = last {
        depth += 1;
        last = node.last_child();
    }
    depth > DEEPEST
}

/// Looks at the whole tree, without recursion, since its depth is the page's choice.
fn is_too_deep(page: &Document) -> bool {
    let mut node = page.root();
    let mut depth = 0;
    loop {
        if let Some(child) = node.first_child() {
            depth += 1;
            if depth > DEEPEST {
                return true;
            }
            node = child;
            continue;
        }
        node = loop {
            if let Some(next) = node.next_sibling() {
                break next;
            }
            match node.parent() {
                Some(parent) if depth > 1 => {
                    depth -= 1;
                    node = parent;
                }
                _ => return false,
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_that_is_made_to_cost_much_is_not_parsed() {
        let numbers = |text: &str| {
            (0..400_000)
                .map(|number| text.replace('#', &number.to_string()))
                .collect::<String>()
        };
        for (what, page) in [
            ("depth", "<div>".repeat(400_000)),
            ("formatting", "<b>".repeat(600_000)),
            ("lists", "<ul><li>".repeat(200_000)),
            ("tables", "<table><tr><td>".repeat(100_000)),
            ("moved out of a table", format!("<table>{}", "<div>".repeat(2_000))),
            (
                "moved out of a table, and many",
                format!("<table>{}", "<div>".repeat(200_000)),
            ),
            ("attributes", format!("<p {}>", numbers("a# "))),
            ("distinct formatting", numbers("<b id=#>")),
            ("nodes", "<br>x".repeat(400_000)),
            (
                "repeated formatting",
                format!(
                    "{}{}",
                    numbers("<b id=#>").get(..4000).unwrap_or_default(),
                    "<p>".repeat(600_000)
                ),
            ),
        ] {
            let begun = Instant::now();
            assert!(parse(&page).is_none(), "{what}");
            assert!(
                begun.elapsed() < Duration::from_secs(30),
                "{what}: {:?}",
                begun.elapsed()
            );
        }
    }

    #[test]
    fn pieces_make_the_same_tree_as_the_whole() {
        let page = "<p class=ä>é &amp; 安</p><!-- x --><ul><li>one<li><b>two</ul>\r\n".repeat(500);
        assert_eq!(parse(&page).expect("a tree").html(), Document::from(page).html());
    }
}
