//! Renders external text so that it cannot mislead, and formats names, times and numbers for people.

use std::borrow::Cow;

use chrono::{DateTime, Utc};
use chrono_tz::Tz;
use maud::{Markup, html};

use crate::domain::text::is_hidden;

/// External text. Invisible characters, and those that change the writing direction, are shown by their code point.
pub(crate) fn text(text: &str) -> Markup {
    let text = text.replace("\r\n", "\n");
    html! {
        @for piece in pieces(&text) {
            @match piece {
                Piece::Plain(plain) => (plain),
                Piece::Hidden(c) => span.hidden-char title=(hidden(c)) { (format!("U+{:04X}", u32::from(c))) },
            }
        }
    }
}

/// The beginning of a text, in at most `most` rendered bytes, and how many more characters it has.
pub(crate) fn beginning(whole: &str, most: usize) -> Markup {
    let (shown, more) = cut(whole, most);
    html! { (text(shown)) @if more > 0 { " … " small { "(" (count(more as u64, "more character")) ")" } } }
}

/// The longest prefix of a text with at most `most` rendered bytes, and how many characters are left out.
pub(crate) fn cut(text: &str, most: usize) -> (&str, usize) {
    let mut length = 0;
    for (at, c) in text.char_indices() {
        length += shown_length(c);
        if length > most {
            return (&text[..at], text[at..].chars().count());
        }
    }
    (text, 0)
}

/// Most rendered bytes of a text.
pub(crate) fn length(text: &str) -> usize {
    text.chars().map(shown_length).sum()
}

fn shown_length(c: char) -> usize {
    match c {
        '&' | '<' | '>' => 5,
        '"' => 6,
        // Includes the span element and its description.
        '\u{200c}' | '\u{200d}' | '\u{2028}' | '\u{2029}' => 100,
        c if c != '\n' && c != '\t' && is_hidden(c) => 100,
        c => c.len_utf8(),
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Piece<'a> {
    Plain(&'a str),
    Hidden(char),
}

fn pieces(text: &str) -> Vec<Piece<'_>> {
    let (mut pieces, mut plain, mut before) = (Vec::new(), 0, None);
    let mut chars = text.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        let after = chars.peek().map(|(_, after)| *after);
        if lies(before, c, after) {
            if plain < at {
                pieces.push(Piece::Plain(&text[plain..at]));
            }
            pieces.push(Piece::Hidden(c));
            plain = at + c.len_utf8();
        }
        before = Some(c);
    }
    if plain < text.len() {
        pieces.push(Piece::Plain(&text[plain..]));
    }
    pieces
}

/// Whether this character can mislead a reader. The two joiners belong to some scripts and one variation selector
/// belongs to symbols; none of them belongs next to an ASCII letter.
fn lies(before: Option<char>, c: char, after: Option<char>) -> bool {
    let is_joiner = |c| matches!(c, '\u{200c}' | '\u{200d}');
    let is_seen = |c: char| !c.is_ascii() && !is_joiner(c) && (!is_hidden(c) || c == '\u{fe0f}');
    let beside = |c: Option<char>| c.is_some_and(is_seen);
    match c {
        c if is_joiner(c) => !beside(before) || !beside(after),
        '\u{fe0f}' => !beside(before) || before == Some('\u{fe0f}'),
        '\u{2028}' | '\u{2029}' => true,
        c => is_hidden(c),
    }
}

fn hidden(c: char) -> &'static str {
    match c {
        '\u{202e}' | '\u{202b}' | '\u{2067}' | '\u{200f}' => "turns the writing direction to the left",
        '\u{202d}' | '\u{202a}' | '\u{2066}' | '\u{200e}' => "turns the writing direction to the right",
        '\u{202c}' | '\u{2068}' | '\u{2069}' | '\u{61c}' => "affects the writing direction",
        '\u{200b}' | '\u{200c}' | '\u{200d}' | '\u{2060}' | '\u{feff}' => "has no width",
        c if c.is_control() => "is a control character",
        _ => "is invisible",
    }
}

/// The person behind a recorded name: `service:chief for user:boss` → `boss`; the visitor is "you". The full name is in
/// the element's title.
pub(crate) fn person(name: &str, visitor: &str) -> Markup {
    let shown = match (name.rsplit_once(" for user:"), name.strip_prefix("service:")) {
        _ if name == visitor => return html! { "you" },
        (Some((_, user)), _) => user.to_owned(),
        (None, Some(service)) => format!("the service {service}"),
        (None, None) => name.to_owned(),
    };
    html! { bdi title=(name) { (text(&shown)) } }
}

/// Words of identifiers that people write in capitals.
const INITIALISMS: [&str; 9] = ["api", "html", "http", "id", "ip", "json", "sql", "uri", "url"];

/// `gmail_send` → `Gmail send`; `startTime` → `Start time`; `html_body` → `HTML body`.
pub(crate) fn name(identifier: &str) -> String {
    let mut words = String::with_capacity(identifier.len() + 4);
    let mut before = ' ';
    for c in identifier.chars() {
        match c {
            '_' | '-' | '.' => words.push(' '),
            c if c.is_uppercase() && before.is_lowercase() => {
                words.push(' ');
                words.extend(c.to_lowercase());
            }
            c => words.push(c),
        }
        before = c;
    }
    let words = words.split_whitespace().map(|word| match INITIALISMS.contains(&word) {
        true => Cow::Owned(word.to_uppercase()),
        false => Cow::Borrowed(word),
    });
    let words = words.collect::<Vec<_>>().join(" ");
    let mut chars = words.chars();
    match chars.next() {
        Some(first) => first.to_uppercase().chain(chars).collect(),
        None => identifier.to_owned(),
    }
}

/// A tool or server name, verbatim.
pub(crate) fn code(words: &str) -> Markup {
    html! { code { bdi { (text(words)) } } }
}

/// Names of tools, verbatim.
pub(crate) fn codes(names: &[String]) -> Markup {
    html! { @for (n, name) in names.iter().enumerate() { @if n > 0 { ", " } (code(name)) } }
}

/// A time in microseconds, readable for people and machines.
pub(crate) fn at(us: i64, zone: Tz) -> Markup {
    let at = DateTime::<Utc>::from_timestamp_micros(us).unwrap_or_default();
    let there = at.with_timezone(&zone);
    html! { time datetime=(at.format("%Y-%m-%dT%H:%M:%SZ")) { (there.format("%a %-d %b %Y, %H:%M %Z")) } }
}

/// `in 23 hours`, `5 minutes ago`.
pub(crate) fn relative(us: i64, now_us: i64) -> String {
    let seconds = us.abs_diff(now_us) / 1_000_000;
    let (number, unit) = match seconds {
        0..60 => {
            return if us >= now_us {
                "in less than a minute"
            } else {
                "just now"
            }
            .to_owned();
        }
        60..3570 => ((seconds + 30) / 60, "minute"),
        3570..172_800 => ((seconds + 1800) / 3600, "hour"),
        172_800..63_072_000 => ((seconds + 43_200) / 86_400, "day"),
        _ => ((seconds + 15_778_800) / 31_557_600, "year"),
    };
    let words = count(number, unit);
    if us >= now_us {
        format!("in {words}")
    } else {
        format!("{words} ago")
    }
}

/// `1 hour`, `2 hours`.
pub(crate) fn count(number: u64, unit: &str) -> String {
    let ending = if number == 1 { "" } else { "s" };
    format!("{number} {unit}{ending}")
}

/// A duration in milliseconds, as text.
pub(crate) fn took(ms: u64) -> String {
    match ms {
        0..1000 => format!("{ms} ms"),
        1000..120_000 => format!("{}.{} s", ms / 1000, ms % 1000 / 100),
        _ => count(ms / 60_000, "minute"),
    }
}

/// US dollars: cents, and of less than a dollar more digits.
pub(crate) fn dollars(dollars: f64) -> String {
    match dollars {
        0.0 => "$0".to_owned(),
        1.0.. => {
            let cents = (dollars * 100.0).round() as u64;
            format!("${}.{:02}", grouped(cents / 100), cents % 100)
        }
        0.01..1.0 => format!("${dollars:.4}"),
        _ => format!("${dollars:.6}"),
    }
}

/// `512 B`, `3.4 KiB`.
pub(crate) fn bytes(bytes: f64) -> String {
    match bytes {
        ..1024.0 => format!("{bytes:.0} B"),
        ..1_048_576.0 => format!("{:.1} KiB", bytes / 1024.0),
        _ => format!("{:.1} MiB", bytes / 1_048_576.0),
    }
}

/// A number with its thousands apart: `1,234,567`.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let comma = |at: usize| at > 0 && (digits.len() - at).is_multiple_of(3);
    digits
        .char_indices()
        .flat_map(|(at, digit)| comma(at).then_some(',').into_iter().chain([digit]))
        .collect()
}

/// Replaces the argument path at the beginning of a text (`/to/0: …`) by the argument's name.
pub(crate) fn placed(text: &str) -> Cow<'_, str> {
    let Some((pointer, rest)) = text.split_once(": ").filter(|(place, _)| place.starts_with('/')) else {
        return Cow::Borrowed(text);
    };
    let mut place = String::new();
    for step in pointer.split('/').skip(1) {
        match step.parse::<usize>() {
            Ok(index) => place.push_str(&format!(" {}", index + 1)),
            Err(_) if place.is_empty() => place.push_str(&name(&step.replace("~1", "/").replace("~0", "~"))),
            Err(_) => place.push_str(&format!(", {}", name(step).to_lowercase())),
        }
    }
    Cow::Owned(format!("{place}: {rest}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_keep_what_counts() {
        for (number, text) in [(0, "0"), (999, "999"), (1000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(grouped(number), text);
        }
        for (number, text) in [
            (0.0, "$0"),
            (0.004_113, "$0.004113"),
            (0.76, "$0.7600"),
            (1.0, "$1.00"),
            (1234.567, "$1,234.57"),
        ] {
            assert_eq!(dollars(number), text);
        }
        for (number, text) in [(512.0, "512 B"), (3500.0, "3.4 KiB"), (2_097_152.0, "2.0 MiB")] {
            assert_eq!(bytes(number), text);
        }
    }

    fn shown(words: &str) -> String {
        text(words).into_string()
    }

    #[test]
    fn text_is_escaped_and_what_cannot_be_seen_is_shown() {
        assert_eq!(
            shown("<script>alert(1)</script>&\"'"),
            "&lt;script&gt;alert(1)&lt;/script&gt;&amp;&quot;'"
        );
        let reversed = shown("pay \u{202e}gro.live");
        assert!(reversed.contains(">U+202E</span>gro.live"), "{reversed}");
        assert!(!reversed.contains('\u{202e}'), "{reversed}");
        for hidden in [
            0x00, 0x1b, 0x0d, 0x85, 0xad, 0x61c, 0x200b, 0x200c, 0x200d, 0x200e, 0x2028, 0x2029, 0x202a, 0x2060,
            0x2066, 0x2069, 0x3164, 0xfe0f, 0xfeff, 0xe0061,
        ] {
            let c = char::from_u32(hidden).unwrap();
            let text = shown(&format!("a{c}b"));
            assert!(text.contains(&format!("U+{hidden:04X}")), "{hidden:x}: {text}");
            assert!(!text.contains(c), "{hidden:x}: {text}");
        }
    }

    #[test]
    fn words_as_people_write_them_are_left_alone() {
        for fine in [
            "Grüße, 安 李\n\tZeile zwei",
            "می\u{200c}خواهم",
            "👩\u{200d}💻",
            "❤\u{fe0f}",
            "שלום",
        ] {
            assert_eq!(shown(fine), fine);
        }
        assert_eq!(shown("a\r\nb"), "a\nb");
        // Repeated joiners are not valid writing.
        assert!(shown("می\u{200c}\u{200c}خ").contains("U+200C"));
    }

    #[test]
    fn the_place_of_an_argument_becomes_words() {
        for (text, words) in [
            ("/to/0: reads as another", "To 1: reads as another"),
            ("/attendees/2/email: x", "Attendees 3, email: x"),
            ("/time_zone: x: y", "Time zone: x: y"),
            ("no place: x", "no place: x"),
            ("/no colon", "/no colon"),
        ] {
            assert_eq!(placed(text), words);
        }
    }

    #[test]
    fn names_of_arguments_become_words() {
        for (identifier, words) in [
            ("gmail_send", "Gmail send"),
            ("bcc", "Bcc"),
            ("startTime", "Start time"),
            ("calendar_event_create", "Calendar event create"),
            ("URL", "URL"),
            ("html_body", "HTML body"),
            ("event_id", "Event ID"),
            ("baseUrl", "Base URL"),
            ("__", "__"),
            ("", ""),
        ] {
            assert_eq!(name(identifier), words);
        }
    }

    #[test]
    fn times_are_shown_with_their_zone_and_from_now() {
        let us = 1_795_356_000_000_000;
        for (zone, shown) in [(Tz::UTC, "UTC</time>"), (Tz::Europe__Berlin, "CET</time>")] {
            let reported = at(us, zone).into_string();
            assert!(reported.contains(shown) && reported.contains("Z\">"), "{reported}");
        }
        for (seconds, words) in [
            (0, "in less than a minute"),
            (-1, "just now"),
            (61, "in 1 minute"),
            (3599, "in 1 hour"),
            (86_399, "in 24 hours"),
            (-7200, "2 hours ago"),
            (86_400, "in 24 hours"),
            (3 * 86_400, "in 3 days"),
            (729 * 86_400, "in 729 days"),
            (5 * 31_557_600 - 86_400, "in 5 years"),
        ] {
            assert_eq!(relative(us + seconds * 1_000_000, us), words);
        }
    }
}
