//! The HTML that readers see as its words in their order, and nothing else.

use html5ever::Attribute;

/// Elements that neither hide, add nor reverse words.
const ELEMENTS: [&str; 76] = [
    "a",
    "abbr",
    "acronym",
    "address",
    "article",
    "aside",
    "b",
    "big",
    "blockquote",
    "body",
    "br",
    "caption",
    "center",
    "cite",
    "code",
    "col",
    "colgroup",
    "dd",
    "dfn",
    "div",
    "dl",
    "dt",
    "em",
    "figcaption",
    "figure",
    "font",
    "footer",
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "head",
    "header",
    "hr",
    "html",
    "i",
    "img",
    "ins",
    "kbd",
    "li",
    "main",
    "mark",
    "meta",
    "nav",
    "ol",
    "p",
    "pre",
    "q",
    "samp",
    "section",
    "small",
    "span",
    "strong",
    "sub",
    "sup",
    "table",
    "tbody",
    "td",
    "tfoot",
    "th",
    "thead",
    "time",
    "title",
    "tr",
    "tt",
    "u",
    "ul",
    "var",
    "wbr",
    "label",
    "data",
    "bdi",
    "base",
    "nobr",
];

/// Attributes that do not either. For styles, see [`style`].
const ATTRIBUTES: [&str; 27] = [
    "align",
    "alt",
    "aria-label",
    "border",
    "cellpadding",
    "cellspacing",
    "charset",
    "cite",
    "class",
    "colspan",
    "content",
    "datetime",
    "height",
    "href",
    "http-equiv",
    "id",
    "lang",
    "name",
    "rel",
    "role",
    "rowspan",
    "src",
    "style",
    "target",
    "title",
    "valign",
    "width",
];

/// Style properties that only move words a little or draw them differently.
const PROPERTIES: [&str; 21] = [
    "border",
    "border-bottom",
    "border-collapse",
    "border-color",
    "border-left",
    "border-radius",
    "border-right",
    "border-spacing",
    "border-style",
    "border-top",
    "border-width",
    "font-family",
    "font-style",
    "font-weight",
    "margin",
    "margin-bottom",
    "margin-left",
    "margin-right",
    "margin-top",
    "max-width",
    "text-align",
];

/// Whether an element does not change what readers see.
pub(super) fn element(name: &str) -> bool {
    ELEMENTS.contains(&name)
}

/// What an attribute may change in what readers see; `None` if nothing.
pub(super) fn suspicious(element: &str, attribute: &Attribute) -> Option<String> {
    let (name, value) = (&*attribute.name.local, attribute.value.trim());
    match name {
        "style" => style(value),
        "height" | "width" if !is_at_most(value, 1999.0) => Some(name.to_owned()),
        "border" | "cellpadding" | "cellspacing" if !is_at_most(value, 99.0) => Some(name.to_owned()),
        // The following text appears beside such a table, or before it.
        "align" if element == "table" && !value.eq_ignore_ascii_case("center") => Some(name.to_owned()),
        // The caption appears below its table.
        "align" if element == "caption" && !value.eq_ignore_ascii_case("top") => Some(name.to_owned()),
        _ if ATTRIBUTES.contains(&name) || name.starts_with("data-") => None,
        _ => Some(name.to_owned()),
    }
}

/// Whether it is the address of a picture that is loaded each time the message is opened.
pub(super) fn fetches(attribute: &Attribute) -> bool {
    let address = attribute.value.trim().to_ascii_lowercase();
    let is_sent = address.is_empty() || address.starts_with("cid:") || address.starts_with("data:");
    matches!(&*attribute.name.local, "src" | "srcset") && !is_sent
}

/// Whether the length in an attribute moves nothing far away. A value that is not a number has no effect.
fn is_at_most(length: &str, most: f32) -> bool {
    let length = length.trim_start_matches('+');
    let end = length
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(length.len());
    length[..end].parse::<f32>().is_ok_and(|number| number <= most) || end == 0
}

/// The first property of a style that may change what readers see.
fn style(style: &str) -> Option<String> {
    let suspicious = |declaration: &&str| {
        let (property, value) = declaration.split_once(':').unwrap_or((declaration, ""));
        let (property, value) = (property.trim().to_ascii_lowercase(), value.trim().to_ascii_lowercase());
        let plain = match property.as_str() {
            "font-family" => {
                !value.contains(['(', '\\', '/']) && !["dings", "symbol"].iter().any(|font| value.contains(font))
            }
            margin if margin.starts_with("margin") => value.split_whitespace().all(is_small),
            // Colors and line styles are words; a number is a length.
            border if border.starts_with("border") && border != "border-radius" => {
                value.split_whitespace().all(|part| {
                    is_small(part)
                        || part.trim_start_matches('#').chars().all(|c| c.is_ascii_alphanumeric())
                            && !starts_with_digit(part)
                })
            }
            _ => value.chars().all(|c| c.is_ascii_alphanumeric() || " .,#%".contains(c)),
        };
        !plain || !PROPERTIES.contains(&property.as_str())
    };
    let mut declarations = style.split(';').filter(|declaration| !declaration.trim().is_empty());
    let found = declarations.find(suspicious)?;
    let property = found.split_once(':').map_or(found, |(property, _)| property);
    Some(format!("style {}", property.trim().to_ascii_lowercase()))
}

fn starts_with_digit(part: &str) -> bool {
    part.starts_with(|c: char| c.is_ascii_digit())
}

/// Whether a length moves nothing far away.
fn is_small(length: &str) -> bool {
    let number = length.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let most = match &length[number.len()..] {
        "" | "px" | "pt" => 99.0,
        "em" | "rem" => 9.0,
        _ => return length == "auto",
    };
    length == "auto" || number.parse::<f32>().is_ok_and(|number| (0.0..=most).contains(&number))
}
