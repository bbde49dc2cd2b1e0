//! Renders the arguments of a call for people: named by the tool's schema, the most important ones first.

use std::borrow::Cow;

use chrono::{DateTime, NaiveDate, NaiveDateTime, NaiveTime, Offset};
use chrono_tz::Tz;
use maud::{Markup, html};
use serde_json::{Map, Value};
use url::form_urlencoded;

use crate::domain::address::Address;
use crate::domain::hypertext::{self, Link};
use crate::domain::ids::ActionId;
use crate::domain::schema::resolved;
use crate::domain::tool::Tool;
use crate::http::console::view::words;

/// Longer text, or text with more lines, is shown in full only behind a control.
const SHORT: usize = 4000;
const SHORT_LINES: usize = 60;
/// Characters shown before that control.
const BEGINNING: usize = 800;
/// Most links of HTML that are listed; the rest are counted.
const MOST_LINKS: usize = 100;
/// Most characters of a schema title; the title is read for each value.
const MOST_TITLE: usize = 120;
/// A time that is further away than 300 days, in microseconds, is shown with its distance.
const FAR_AWAY: i64 = 300 * 86_400 * 1_000_000;
/// Deepest level of nested values; deeper ones are shown as JSON.
const DEEPEST: usize = 6;

/// What all arguments of a call have in common.
#[derive(Clone, Copy)]
struct Whole<'a> {
    /// The root schema, for references.
    root: &'a Value,
    /// The address of the page that shows HTML of the call in a frame.
    frames: &'a str,
    /// Are the arguments complete?
    whole: bool,
    /// The reader's clock.
    clock: Clock,
}

/// What the reader's clock shows.
#[derive(Clone, Copy)]
pub(crate) struct Clock {
    /// The reader's time zone.
    pub(crate) zone: Tz,
    /// The time, in microseconds since 1970.
    pub(crate) now_us: i64,
}

/// Renders all arguments of a call of `action`. If they are not `whole`, the links of HTML in them are not listed, since
/// some are missing.
pub(crate) fn arguments(tool: Option<&Tool>, action: ActionId, arguments: &Value, whole: bool, clock: Clock) -> Markup {
    let frames = format!("/console/actions/{action}/html?at=");
    let schema = tool.and_then(|tool| serde_json::from_str(tool.input.original().get()).ok());
    let schema: Value = schema.unwrap_or_default();
    let root = Whole {
        root: &schema,
        frames: &frames,
        whole,
        clock,
    };
    let Value::Object(fields) = arguments else {
        return value(arguments, &schema, root, "");
    };
    if fields.is_empty() {
        return html! { p.empty { "It takes no arguments." } };
    }
    object(
        fields,
        &schema,
        root,
        "",
        &|name| {
            let is_long = is_long(&fields[name]);
            tool.map_or((usize::from(is_long), 0), |tool| tool.reading_order(name, is_long))
        },
        &|name| last_day(tool?, name, &fields[name]),
    )
}

/// The end of an all-day event is the day after its last day (`times` in `mcp.json`), which readers would
/// misunderstand.
fn last_day(tool: &Tool, name: &str, value: &Value) -> Option<Markup> {
    let end = tool
        .settings
        .times
        .as_ref()?
        .end
        .as_ref()
        .filter(|path| path.argument() == name)?;
    let whole = Value::Object(Map::from_iter([(name.to_owned(), value.clone())]));
    let (_, text) = end.texts(&whole).ok()?.pop()?;
    let last = NaiveDate::parse_from_str(text, "%Y-%m-%d").ok()?.pred_opt()?;
    Some(html! { " " b { "The last day is " (last.format("%A, %-d %B %Y").to_string()) "." } })
}

fn is_long(value: &Value) -> bool {
    matches!(value, Value::String(text) if text.contains('\n') || text.chars().nth(120).is_some())
}

fn object(
    fields: &Map<String, Value>,
    schema: &Value,
    whole: Whole<'_>,
    place: &str,
    rank: &dyn Fn(&str) -> (usize, usize),
    note: &dyn Fn(&str) -> Option<Markup>,
) -> Markup {
    let root = whole.root;
    let schema = resolved(schema, root);
    let mut names: Vec<&String> = fields.keys().collect();
    names.sort_by_key(|name| rank(name));
    // An argument that the schema lacks, or that has the same label as another one.
    let unclear = |name: &str| {
        let stranger = schema["properties"].is_object() && schema["properties"].get(name).is_none();
        let label = words::name(name).to_lowercase();
        stranger
            || fields
                .keys()
                .any(|other| other != name && words::name(other).to_lowercase() == label)
    };
    html! {
        dl.fields {
            @for name in names {
                @let of = &schema["properties"][name];
                div class=[is_long(&fields[name]).then_some("long")] {
                    dt { (label(name, of, root, unclear(name))) }
                    dd { (value(&fields[name], of, whole, &below(place, name))) @if let Some(note) = note(name) { (note) } }
                }
            }
        }
    }
}

/// The label of an argument. A title comes from the server, so the argument's name is shown beside a title that
/// differs.
fn label(name: &str, schema: &Value, root: &Value, unclear: bool) -> Markup {
    let own = words::name(name);
    let title = resolved(schema, root)["title"]
        .as_str()
        .map(str::trim)
        .unwrap_or_default();
    html! {
        @if title.is_empty() || title.eq_ignore_ascii_case(&own) || title.eq_ignore_ascii_case(name) {
            (words::text(&own)) @if unclear { " " (words::code(name)) }
        } @else {
            (words::text(&title.chars().take(MOST_TITLE).collect::<String>())) " " (words::code(name))
        }
    }
}

/// The JSON pointer of a value within another.
fn below(place: &str, name: &str) -> String {
    format!("{place}/{}", name.replace('~', "~0").replace('/', "~1"))
}

fn value(value: &Value, schema: &Value, whole: Whole<'_>, place: &str) -> Markup {
    let root = whole.root;
    if place.matches('/').count() > DEEPEST {
        return raw(value);
    }
    match value {
        Value::Null => html! { span.none { "none" } },
        Value::Bool(yes) => html! { (if *yes { "Yes" } else { "No" }) },
        Value::Number(number) => html! { (number) },
        Value::String(text) if resolved(schema, root)["contentMediaType"] == "text/html" => {
            hypertext(text, whole, place)
        }
        Value::String(text) => string(text, whole.clock),
        Value::Array(items) if items.is_empty() => html! { span.none { "none" } },
        Value::Array(items) => {
            let of = &resolved(schema, root)["items"];
            html! {
                ul.items { @for (n, item) in items.iter().enumerate() { li { (self::value(item, of, whole, &below(place, &n.to_string()))) } } }
            }
        }
        Value::Object(fields) if fields.is_empty() => html! { span.none { "none" } },
        Value::Object(fields) => {
            let rank = |name: &str| (usize::from(is_long(&fields[name])), 0);
            object(fields, schema, whole, place, &rank, &|_| None)
        }
    }
}

/// HTML as its recipient sees it, in a frame, with its links and its markup below. Misleading parts are among the call's
/// warnings.
fn hypertext(text: &str, whole: Whole<'_>, place: &str) -> Markup {
    if text.is_empty() {
        return string(text, whole.clock);
    }
    let read = whole.whole.then(|| hypertext::read_out(text)).flatten();
    let address: String = form_urlencoded::byte_serialize(place.as_bytes()).collect();
    html! {
        iframe.message sandbox src={ (whole.frames) (address) } title="The message as its recipient sees it" {}
        p { small { "As most mail programs show it; a plain text beside it is for the others. Pictures from elsewhere are not loaded here, and links do not open." } }
        @if let Some(read) = &read { (links(&read.links)) }
        details.whole open[read.as_ref().is_none_or(|read| !read.suspicious.is_empty())] {
            summary { "The HTML itself (" (words::count(text.chars().count() as u64, "character")) ")" }
            div.prose dir="auto" { (words::text(text)) }
        }
    }
}

/// Where each link leads. One that shows another address is marked.
fn links(links: &[Link]) -> Markup {
    html! {
        @if !links.is_empty() {
            table.links {
                caption { "Where its " (words::count(links.len() as u64, "link")) " lead" @if links.len() == 1 { "s" } }
                thead { tr { th scope="col" { "What it shows" } th scope="col" { "Where it leads" } } }
                @for link in links.iter().take(MOST_LINKS) {
                    tr {
                        th scope="row" dir="auto" { @if link.words.is_empty() { "(a picture)" } @else { (words::beginning(&link.words, MOST_TITLE)) } }
                        td {
                            (words::code(&link.target))
                            @if link.named.is_some() { " " span.badge { "shows another address" } }
                        }
                    }
                }
                @if links.len() > MOST_LINKS { tr { td colspan="2" { (links.len() - MOST_LINKS) " more; see the HTML" } } }
            }
        }
    }
}

fn string(text: &str, clock: Clock) -> Markup {
    if text.is_empty() {
        return html! { span.none { "empty" } };
    }
    if let Some(shown) = time(text, clock).or_else(|| address(text)) {
        return shown;
    }
    let lines = text.lines().count();
    let characters = text.chars().count();
    if characters <= SHORT && lines <= SHORT_LINES {
        return html! {
            @if lines > 1 || characters > 120 { div.prose dir="auto" { (words::text(text)) } }
            @else { span.line dir="auto" { (words::text(text)) } }
        };
    }
    let beginning: String = text.lines().take(SHORT_LINES / 3).collect::<Vec<_>>().join("\n");
    let beginning: String = beginning.chars().take(BEGINNING).collect();
    html! {
        div.prose dir="auto" { (words::text(&beginning)) " …" }
        details.whole {
            summary { "Show all of it (" (words::count(lines as u64, "line")) ", " (words::count(characters as u64, "character")) ")" }
            div.prose dir="auto" { (words::text(text)) }
        }
    }
}

/// A time as text, in the reader's time zone, with the original value. One that is past or far away may be an error, so
/// its distance is shown.
fn time(text: &str, clock: Clock) -> Option<Markup> {
    let zone = clock.zone;
    let (said, at) = if let Ok(at) = DateTime::parse_from_rfc3339(text) {
        let said = at.format("%A, %-d %B %Y, %H:%M (UTC%:z)").to_string();
        let there = at.with_timezone(&zone);
        let said = match there.offset().fix() == *at.offset() || zone == Tz::UTC {
            true => said,
            false => format!("{said}; for you {}", there.format("%A, %H:%M %Z")),
        };
        (said, at.timestamp_micros())
    } else if let Ok(day) = NaiveDate::parse_from_str(text, "%Y-%m-%d") {
        let end = day.succ_opt().unwrap_or(day).and_time(NaiveTime::MIN);
        (day.format("%A, %-d %B %Y").to_string(), at_last(end))
    } else {
        let forms = ["%Y-%m-%dT%H:%M:%S%.f", "%Y-%m-%dT%H:%M"];
        let local = forms
            .iter()
            .find_map(|form| NaiveDateTime::parse_from_str(text, form).ok())?;
        (local.format("%A, %-d %B %Y, %H:%M").to_string(), at_last(local))
    };
    let is_odd = at < clock.now_us || at - clock.now_us > FAR_AWAY;
    Some(html! {
        (said) " "
        @if is_odd { b { (words::relative(at, clock.now_us)) } " " }
        small { (words::code(text)) }
    })
}

/// When a time without a zone has come everywhere: twelve hours after UTC. In microseconds.
fn at_last(local: NaiveDateTime) -> i64 {
    local.and_utc().timestamp_micros() + 12 * 3_600_000_000
}

/// An address as written, its canonical form if that differs, and both forms of an international domain.
pub(crate) fn address(text: &str) -> Option<Markup> {
    if !text.contains('@') || text.contains('\n') {
        return None;
    }
    let address = Address::parse(text).ok()?;
    let canonical = address.canonical;
    let (_, domain) = canonical.rsplit_once('@')?;
    let (read, _) = idna::domain_to_unicode(domain);
    Some(html! {
        bdi.address { (words::text(text)) }
        @if canonical != text { " " small { "goes to " (words::code(&canonical)) } }
        @if read != domain { " " small.idn { "international domain: " bdi { (words::text(&read)) } } }
    })
}

/// Unformatted JSON.
pub(crate) fn raw(value: &Value) -> Markup {
    let text = serde_json::to_string_pretty(value).map_or(Cow::Borrowed(""), Cow::Owned);
    html! { pre.raw tabindex="0" { (words::text(&text)) } }
}

#[cfg(test)]
mod tests;
