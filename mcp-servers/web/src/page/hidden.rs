//! The parts of a page that a reader does not see, by their elements, attributes and own styles. Style sheets are not
//! evaluated.

use dom_query::{Document, NodeRef};

/// Elements without text of the page, and those that their attributes hide.
const NOT_SHOWN: &str = "script, style, noscript, template, iframe, frame, object, embed, applet, svg, canvas, audio, \
     video, map, input, select, textarea, button, datalist, dialog:not([open]), [hidden], [aria-hidden=\"true\"]";

/// Declarations that hide an element, without white space and in lower case. They may be followed by `!important`.
const HIDING: [&str; 8] = [
    "display:none",
    "visibility:hidden",
    "visibility:collapse",
    "content-visibility:hidden",
    "color:transparent",
    "clip:rect(0",
    "clip-path:inset(",
    "transform:scale(0)",
];

/// Properties that hide an element if they are zero, or nearly.
const SIZES: [&str; 5] = ["opacity:", "font-size:", "max-height:", "max-width:", "height:"];
const ALMOST_NOTHING: f64 = 0.1;

/// Properties that hide an element if they move it far out of sight.
const PLACES: [&str; 5] = ["text-indent:", "left:", "right:", "top:", "margin-left:"];
const FAR_AWAY: f64 = -90.0;

/// Removes everything that is not shown.
pub(super) fn remove(page: &Document) {
    page.select(NOT_SHOWN).remove();
    for element in page.select("[style]").nodes() {
        if element.attr("style").is_some_and(|style| hides(&style)) {
            element.remove_from_parent();
        }
    }
    let comments: Vec<NodeRef> = page.root().descendants_it().filter(NodeRef::is_comment).collect();
    for comment in comments {
        comment.remove_from_parent();
    }
}

/// A style that is written with escapes or comments hides what it does, so it counts as hiding the element.
fn hides(style: &str) -> bool {
    let style: String = style.chars().filter(|character| !character.is_whitespace()).collect();
    let style = style.to_lowercase();
    style.contains('\\')
        || style.contains("/*")
        || style.split(';').any(|declaration| {
            HIDING.iter().any(|hiding| declaration.starts_with(hiding))
                || number(declaration, &SIZES).is_some_and(|size| size < ALMOST_NOTHING)
                || number(declaration, &PLACES).is_some_and(|place| place < FAR_AWAY)
        })
}

/// The number with which a declaration of one of these properties begins, whatever its unit.
fn number(declaration: &str, properties: &[&str]) -> Option<f64> {
    let value = properties
        .iter()
        .find_map(|property| declaration.strip_prefix(property))?;
    let end = value.find(|character: char| !character.is_ascii_digit() && !matches!(character, '.' | '-' | '+'));
    value[..end.unwrap_or(value.len())].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn styles_that_hide_are_recognized() {
        for style in [
            "display: none",
            "color:red; DISPLAY : none !important",
            "visibility:hidden",
            "opacity:0",
            "opacity: 0.01",
            "opacity:0%",
            "font-size:0",
            "font-size: 0px",
            "font-size:0.05em",
            "position:absolute;left:-9999px",
            "text-indent: -999em",
            "d\\69splay:none",
            "display:/**/none",
            "color: transparent",
            "max-height:0",
        ] {
            assert!(hides(style), "{style}");
        }
        for style in [
            "",
            "display:block",
            "opacity:0.8",
            "font-size:12px",
            "font-size:0.9em",
            "margin-left:-3px",
            "color:#000",
            "max-width:100%",
            "background-color:transparent",
            "opacity:1",
        ] {
            assert!(!hides(style), "{style}");
        }
    }
}
