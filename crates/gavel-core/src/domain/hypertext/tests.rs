#![allow(clippy::unwrap_used)]

use super::*;

fn read(html: &str) -> String {
    read_out(html).unwrap().text
}

#[test]
fn all_words_are_read_those_that_are_hidden_too() {
    let html = "<p>Hi   <b>Ann</b>,</p><p style='display:none'>Psst</p><!-- [if mso]>Hey<![endif] --><script>alert(1)</script>\
                <textarea><b></textarea><table><tr><td>a</td><td>b</td></tr></table>&lt;3 &amp; x<plaintext></b>";
    let text = read(html);
    let words: Vec<_> = text.split_whitespace().collect();
    assert_eq!(
        words.join(" "),
        "Hi Ann , Psst [if mso]>Hey<![endif] alert(1) <b> a b <3 & x </b>"
    );
    assert_eq!(read("no markup"), "no markup");
    assert_eq!(read(""), "");
}

/// Promise: exact approvals. The approver sees where the approved text may lead a reader.
#[test]
fn every_link_has_its_text_and_its_target() {
    for (html, words) in [
        ("<a href='https://evil.example/x'>Pay <b>now</b></a>!", "Pay now"),
        ("<a href=https://evil.example/x><img src=cid:1></a>", ""),
        ("<A HREF='https://evil.example/x'>unclosed", "unclosed"),
        ("<form action=https://evil.example/x><input value=Pay></form>", "<form>"),
        ("<button formaction=https://evil.example/x>Pay", "<button>"),
        ("<base href=https://evil.example/x>x", "<base>"),
        (
            "<svg><a xlink:href=https://evil.example/x><text>Hi</text></a></svg>",
            "<a>",
        ),
        ("<map><area href=https://evil.example/x></map>", "<area>"),
    ] {
        let links = read_out(html).unwrap().links;
        let [link] = links.as_slice() else {
            panic!("{html}: {links:?}")
        };
        assert_eq!(
            (&*link.words, &*link.target),
            (words, "https://evil.example/x"),
            "{html}"
        );
    }
    let two = read_out("<a href=https://a.example>x<a href=https://b.example>y")
        .unwrap()
        .links;
    let two: Vec<_> = two.iter().map(|link| (&*link.words, &*link.target)).collect();
    assert_eq!(two, [("x", "https://a.example"), ("y", "https://b.example")]);
}

/// Promise: exact approvals. Elements whose content is raw text to mail programs hide none of it here.
#[test]
fn text_within_raw_elements_is_reported() {
    let evil = "Pay 5000 to EVIL";
    for html in [
        format!("<noembed><b class=\"</noembed>{evil}<b class=\"></b>"),
        format!("<noframes><b class=\"</noframes>{evil}<b class=\"></b>"),
        format!("<iframe><b class=\"</iframe>{evil}<b class=\"></b>"),
        format!("<xmp><b class=\"{evil}\"></b></xmp>"),
        format!("<plaintext><b class=\"{evil}\">"),
        format!("<svg><style/></svg>{evil}"),
        format!("<svg><style><p>{evil}"),
        format!("<math><title><b>{evil}"),
        format!("<style>p::after{{content:\"{evil}\"}}</style>"),
        format!("<script>document.write(\"{evil}\")</script>"),
    ] {
        let read = read_out(&html).unwrap();
        assert!(read.text.contains(evil), "{html}: {}", read.text);
        assert!(!read.suspicious.is_empty(), "{html}");
    }
}

/// Promise: exact approvals. Anything that a reader may see differently is reported, and a plain message has no
/// warnings.
#[test]
fn text_that_may_look_otherwise_is_reported() {
    const SIZED: &str = "small text within small text";
    const LINES: &str = "many empty lines";
    for (html, suspicious) in [
        ("<bdo dir=rtl>0001</bdo>", &["<bdo>", "dir"][..]),
        ("I do <span style='Display : none'>not</span>", &["style display"]),
        ("<span hidden>not</span>", &["hidden"]),
        ("<p style='margin-left:-999px'>x", &["style margin-left"]),
        ("<p style='margin: 9999px'>x", &["style margin"]),
        ("<p style='border-top:9999px solid white'>x", &["style border-top"]),
        (
            "<table style='border-spacing:0 999em'><tr><td>x",
            &["style border-spacing"],
        ),
        ("<p style='font-family:expression(x)'>x", &["style font-family"]),
        ("<p style='font/**/-size:0'>x", &["style font/**/-size"]),
        ("<font color=white>x</font>", &["color"]),
        (
            "<ul style='list-style-type: \"NOT \"'><li>x",
            &["style list-style-type"],
        ),
        ("<table bgcolor=black><tr><td>x", &["bgcolor"]),
        ("<ol start=5000 type=a><li>x", &["start", "type"]),
        ("<font face=Wingdings>x", &["face"]),
        ("<p style='font-family: Wingdings'>x", &["style font-family"]),
        ("<p style='margin-left:999em'>x", &["style margin-left"]),
        ("<p style='margin: -9px'>x", &["style margin"]),
        ("<p style='vertical-align:999px'>x", &["style vertical-align"]),
        (
            "<!--[if mso]>not<![endif]-->I will",
            &["a comment that some programs show"],
        ),
        ("<!-- a comment -->I will", &[]),
        ("<s>not</s>", &["<s>"]),
        ("<style>p{}</style>", &["<style>"]),
        ("<p>I will <title>not</title> pay you", &["<title>"]),
        ("<title>This offer is not binding</title><p>I will pay", &["<title>"]),
        (&format!("I do {}not", "<small>".repeat(30)), &[SIZED]),
        (&format!("I do {}not", "<sup>".repeat(60)), &[SIZED]),
        (&format!("5 euros.{}And 5,000 a month", "<br>".repeat(400)), &[LINES]),
        (&format!("5 euros.{}And 5,000", "<p>&nbsp;</p>".repeat(10)), &[LINES]),
        (&format!("5 euros.{}And 5,000", "<div><br></div>".repeat(10)), &[LINES]),
        (&format!("5 euros.{}And 5,000", "</br>".repeat(10)), &[LINES]),
        (
            "<table><caption align=bottom>b</caption><tr><td>a</td></tr></table>",
            &["align"],
        ),
        (&format!("5 euros.{}And 5,000", "<br><img alt=''>".repeat(10)), &[LINES]),
        (&format!("<pre>5 euros.{}And 5,000", "\n".repeat(9)), &[LINES]),
        (
            &format!("5 euros.{}And 5,000", "&nbsp;".repeat(900)),
            &["many blanks in a row"],
        ),
        ("<table><tr><td height=99999>x", &["height"]),
        ("<table cellpadding=999><tr><td>x", &["cellpadding"]),
        ("<table align=right><tr><td>x", &["align"]),
        ("<button onclick=x>y", &["<button>", "onclick"]),
        (
            "<p style='margin: 0 auto; font-family: \"Arial\", sans-serif; text-align: left'>x",
            &[],
        ),
        (
            "<html><head><title> </title></head><body><h1>Hi <small>Ann</small></h1><p>a<br><br>b</p><p>c<p>d<ul><li>e<li>f</ul>\
             <div><div><div><table><caption>g</caption><thead><tr><th>h</th><th></th></tr></thead><tbody><tr><td></td><td></td>\
             <td></td><td></td><td><div>x<sup>2</sup>, y<sup>2</sup></div></td></tr></tbody><tfoot><tr><td>i</td></tr></tfoot>\
             </table></div></div></div><p>&nbsp;</p><p>j</p><br><br><br><br><br></body></html>",
            &[],
        ),
        (
            "<html><body><table width=600><tr><td align=left><a href='https://a.example' target=_blank>x</a><br/>\
             <img src=cid:1 alt=logo width=20></td></tr></table></body></html>",
            &[],
        ),
    ] {
        let found = read_out(html).unwrap().suspicious;
        assert_eq!(
            found.iter().map(String::as_str).collect::<Vec<_>>(),
            suspicious,
            "{html}"
        );
    }
}

#[test]
fn pictures_from_elsewhere_are_reported() {
    for (html, fetches) in [
        ("<img src='https://cdn.example/x.png'>", true),
        ("<img src=//cdn.example/x.png>", true),
        ("<img src=cid:1>", false),
        ("<img src='data:image/png;base64,AA'>", false),
        ("<p>https://cdn.example/x.png", false),
    ] {
        assert_eq!(read_out(html).unwrap().fetches, fetches, "{html}");
    }
}

/// Promise: exact approvals. The address that a link shows must not pass for its target.
#[test]
fn a_link_that_reads_as_another_address_is_reported() {
    let misleading = |html: &str| {
        let links = read_out(html).unwrap().links.into_iter();
        links
            .filter_map(|link| Some((link.named?, link.target)))
            .collect::<Vec<_>>()
    };
    let evil = ("bank.example".to_owned(), "https://evil.example/x".to_owned());
    assert_eq!(
        misleading(
            "<a href='https://evil.example/x'>https://<b>bank</b>.example</a> <a href='https://a.example'>a.example</a>"
        ),
        std::slice::from_ref(&evil)
    );
    assert_eq!(
        misleading("<a href='https://evil.example/x'>https://bank.example"),
        [evil]
    );
    let image = "<a href='https://a.example'><img src='https://cdn.example/x.png'></a>";
    assert_eq!(misleading(image), [], "the address of a picture is no word of the link");
}

#[test]
fn what_is_long_or_deep_takes_no_time() {
    assert!(read_out(&"x".repeat(MOST + 1)).is_none());
    for part in ["<div>", "<table><tr><td>", "<a href=x>", "<", "&", "<!--", "<script>"] {
        assert!(read_out(&part.repeat(MOST / part.len())).is_some(), "{part}");
    }
    let attributes = |many: usize| (0..many).map(|n| format!("a{n} ")).collect::<String>();
    assert_eq!(read(&format!("<p {}>x", attributes(1000))).trim(), "x");
    // The time for a tag grows with the square of its attributes, whatever separates them.
    for apart in [" ", "/", "='' ", "=\"\" "] {
        let html = format!("<p {}>x", attributes(5000).replace(' ', apart));
        assert!(read_out(&html[..html.len().min(MOST)]).is_none(), "{apart}");
    }
    let many = format!("<p {}>", attributes(200)).repeat(50);
    assert!(read_out(&many).is_some());
    let sent_along = format!("<img src='data:image/png;base64,{}'>x", "iVBO/Rw0".repeat(2000));
    assert!(read(&sent_along).ends_with('x'));
}
