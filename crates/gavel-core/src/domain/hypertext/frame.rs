//! The document in which a browser shows HTML of others.

/// What precedes the HTML. Links open nowhere: the frame is not allowed to open windows. Messages are written for a white
/// page.
const BEFORE: &str = "<!doctype html><html><head><base target=\"_blank\"><style>html{background:#fff;color:#000;\
                      color-scheme:light}body{margin:12px;font-family:sans-serif}</style></head><body>\n";

/// The most bytes of HTML that are shown.
const MOST: usize = 1024 * 1024;

/// Elements by which a browser connects to a host although the page may load nothing: `<link rel=preconnect>`, and
/// `<meta>` that allows it.
const CONNECTING: [&str; 2] = ["link", "meta"];

/// The document for a frame, without elements that connect to other hosts. Its response forbids scripts and everything
/// that is loaded. `None` if the HTML is too long to be shown.
#[must_use]
pub fn framed(html: &str) -> Option<String> {
    if html.len() > MOST {
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
mod tests {
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
        assert_eq!(framed(&"x".repeat(MOST + 1)), None);
    }
}
