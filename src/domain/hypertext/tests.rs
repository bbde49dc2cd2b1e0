#![allow(clippy::unwrap_used)]

use super::*;

fn read(html: &str) -> String {
    read_out(html).unwrap().text
}

#[test]
fn words_stand_in_lines_as_they_are_read() {
    let html = "<html><head><title>Late</title></head><body><p>Hi   <b>Ann</b>,</p><p>I am\nlate.<br>Sorry</p>\
                <ul><li>one</li><li>two</li></ul><table><tr><td>a</td><td>b</td></tr></table>&lt;3 &amp; x &nbsp;</body></html>";
    assert_eq!(
        read(html).split_whitespace().collect::<Vec<_>>().join(" "),
        "[title: Late] Hi Ann, I am late. Sorry • one • two a b <3 & x"
    );
    assert!(read(html).contains("Hi Ann,\n"), "{}", read(html));
    assert_eq!(read("no markup"), "no markup");
    assert_eq!(read(""), "");
}

/// Promise 4: the approver sees every address that the approved text may lead a reader to.
#[test]
fn every_address_is_reported_in_every_place() {
    for (html, reported) in [
        (
            "<a href='https://evil.example/x'>https://bank.example</a>!",
            "https://bank.example [→ https://evil.example/x]!",
        ),
        (
            "<a href=https://evil.example/><img src='https://evil.example/button.png'></a>",
            "[img src: https://evil.example/button.png] [→ https://evil.example/]",
        ),
        ("<A HREF='https://a.example'>unclosed", "unclosed [→ https://a.example]"),
        (
            "<a href=https://a.example>x<a href=https://b.example>y",
            "xy [→ https://a.example] [→ https://b.example]",
        ),
        (
            "<form action=https://evil.example><input value=Pay></form>",
            "[form action: https://evil.example]\n[input value: Pay]",
        ),
        (
            "<base href=https://evil.example>x",
            "[base href: https://evil.example]x",
        ),
        (
            "<svg><a xlink:href=https://evil.example><text>Hi</text></a></svg>",
            "Hi",
        ),
        (
            "<map><area href=https://evil.example></map>",
            "[area href: https://evil.example]",
        ),
        (
            "<meta http-equiv=refresh content='0;https://evil.example'>",
            "[meta content: 0;https://evil.example]",
        ),
        (
            "<div style='background:url(https://evil.example/p)'>x</div>",
            "[div style: background:url(https://evil.example/p)]x",
        ),
        (
            "<x-y z='https://evil.example'>x</x-y>",
            "[x-y z: https://evil.example]x",
        ),
    ] {
        let text = read(html);
        assert!(text.contains(reported), "{html}: {text}");
        assert!(html.contains("evil") == text.contains("evil.example"), "{html}: {text}");
    }
}

#[test]
fn what_styles_comments_and_scripts_hide_is_reported() {
    let text = read(
        "<p style='display:none'>Psst</p><!-- [if mso]>Hey<![endif] --><script>alert(1)</script><style>p{}</style\
         ><textarea><b></textarea>ok<plaintext></b>",
    );
    for reported in [
        "Psst",
        "comment: [if mso]>Hey",
        "[script: alert(1)]",
        "[style sheet: p{}]",
        "<b>",
        "ok",
    ] {
        assert!(text.contains(reported), "{reported}: {text}");
    }
    assert_eq!(read("<script>x"), "[script: x]");
}

/// Promise 4: elements whose content is raw text to mail programs hide none of it here.
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
    assert!(read("<img lowsrc='//evil.example/a.gif'>").contains("evil.example"));
    assert!(read("<style>b{background:url(//evil.example)}</style>").contains("evil.example"));
}

/// Promise 4: anything that a reader may see differently is reported, and a plain message has no warnings.
#[test]
fn text_that_may_look_otherwise_is_reported() {
    const SIZED: &str = "small or raised text within another";
    const LINES: &str = "many empty lines";
    const BESIDE: &str = "words beside the cells of a table";
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
        ("<s>not</s>", &["<s>"]),
        ("<style>p{}</style>", &["<style>"]),
        ("<p>I will <title>not</title> pay you", &["<title>"]),
        ("<title>This offer is not binding</title><p>I will pay", &["<title>"]),
        (&format!("I do {}not", "<small>".repeat(30)), &[SIZED]),
        (&format!("I do {}not", "<sup>".repeat(60)), &[SIZED]),
        ("<div><small>a</div><div><small>b", &[SIZED]),
        ("<small><table><tr><td></small><small>b", &[SIZED]),
        ("<h6><div><h6>not", &[SIZED]),
        (&format!("5 euros.{}And 5,000 a month", "<br>".repeat(400)), &[LINES]),
        (&format!("5 euros.{}And 5,000", "<p>&nbsp;</p>".repeat(4)), &[LINES]),
        (&format!("5 euros.{}And 5,000", "<p>&nbsp;".repeat(5)), &[LINES]),
        (&format!("5 euros.{}And 5,000", "<div><br></div>".repeat(4)), &[LINES]),
        (&format!("5 euros.{}And 5,000", "</br>".repeat(4)), &[LINES]),
        (
            "<table><caption align=bottom>b</caption><tr><td>a</td></tr></table>",
            &["align"],
        ),
        (&format!("5 euros.{}And 5,000", "<br><img alt=''>".repeat(4)), &[LINES]),
        (
            &format!("<table>{}<tr><td>And 5,000", "<tr><td></td></tr>".repeat(4)),
            &[LINES],
        ),
        (&format!("<pre>5 euros.{}And 5,000", "\n".repeat(9)), &[LINES]),
        (
            &format!("5 euros.{}And 5,000", "&nbsp;".repeat(900)),
            &["many blanks in a row"],
        ),
        (
            "<table><tbody><tr><td>not</td></tr></tbody><thead><tr><td>I will</td></tr></thead></table>",
            &["<thead> after rows"],
        ),
        (
            "<table><tr><td>not<tr><td>pay<thead><tr><td>I will",
            &["<thead> after rows"],
        ),
        (
            "<table><tfoot><tr><td>not</td></tr></tfoot><tr><td>I will</td></tr></table>",
            &["<tfoot> before rows"],
        ),
        (
            "<table><tr><td>not</td></tr><caption>I will</caption></table>",
            &["<caption> after rows"],
        ),
        ("<table><tr><td>not</td></tr>I will</table>", &[BESIDE]),
        ("<table><tr><td>not</td></tr><div>I will</div></table>", &[BESIDE]),
        ("<table><tr><td height=99999>x", &["height"]),
        ("<table cellpadding=999><tr><td>x", &["cellpadding"]),
        ("<table align=right><tr><td>x", &["align"]),
        (&"<b>x".repeat(600), &["very deep nesting"]),
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

/// Promise 4: text that readers of the message do not see is not read out as part of it.
#[test]
fn a_title_is_distinguished_from_the_letter() {
    assert_eq!(
        read("<p>I will <title>not</title> pay you"),
        "I will\n[title: not]\npay you"
    );
    assert_eq!(read("<title>x</title><title>y"), "[title: x]\n\n[title: y]");
    assert_eq!(read("<pre>a\nb</pre>"), "a\nb");
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

/// Promise 4: the address that a link shows must not pass for its target.
#[test]
fn a_link_that_reads_as_another_address_is_reported() {
    let misleading_links = |html: &str| read_out(html).unwrap().misleading_links;
    let evil = ("bank.example".to_owned(), "https://evil.example/x".to_owned());
    assert_eq!(
        misleading_links(
            "<a href='https://evil.example/x'>https://<b>bank</b>.example</a> <a href='https://a.example'>a.example</a>"
        ),
        std::slice::from_ref(&evil)
    );
    assert_eq!(
        misleading_links("<a href='https://evil.example/x'>https://bank.example"),
        [evil]
    );
    let image = "<a href='https://a.example'><img src='https://cdn.example/x.png'></a>";
    assert_eq!(
        misleading_links(image),
        [],
        "the address of a picture is no word of the link"
    );
}

#[test]
fn what_is_long_or_deep_takes_no_time() {
    assert!(read_out(&"x".repeat(MOST + 1)).is_none());
    for part in ["<div>", "<table><tr><td>", "<a href=x>", "<", "&", "<!--", "<script>"] {
        assert!(read_out(&part.repeat(MOST / part.len())).is_some(), "{part}");
    }
    let attributes = |many: usize| (0..many).map(|n| format!("a{n} ")).collect::<String>();
    assert_eq!(read(&format!("<p {}>x", attributes(1000))), "x");
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
