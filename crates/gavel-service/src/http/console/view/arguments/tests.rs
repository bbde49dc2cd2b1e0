//! How arguments look to an approver, and that no part of them is markup.

use serde_json::json;
use serde_json::value::RawValue;

use super::*;
use crate::domain::argument_path::ArgumentPath;
use crate::domain::schema::JsonSchema;
use crate::domain::tool_settings::ToolSettings;

fn tool(schema: Value) -> Tool {
    let schema = RawValue::from_string(schema.to_string()).unwrap();
    let paths = |paths: &[&str]| paths.iter().map(|path| ArgumentPath::parse(path).unwrap()).collect();
    Tool {
        input: JsonSchema::compile(schema.clone()).unwrap(),
        model_schema: schema,
        settings: ToolSettings {
            recipients: paths(&["to", "cc"]),
            single_line: paths(&["subject"]),
            ..ToolSettings::default()
        },
        ..Tool::named("s", "t")
    }
}

fn action() -> ActionId {
    ActionId::parse("01890000-0000-7000-8000-000000000001").unwrap()
}

/// Friday, 20 November 2026.
const NOW: i64 = 1_795_132_800_000_000;

fn clock(zone: Tz) -> Clock {
    Clock { zone, now_us: NOW }
}

fn shown(schema: Value, given: Value) -> String {
    arguments(Some(&tool(schema)), action(), &given, true, clock(Tz::UTC)).into_string()
}

#[test]
fn recipients_come_first_and_long_text_last_whatever_their_names() {
    let given = json!({"subject": "s", "body": "a\nb", "cc": ["c@x.org"], "about": 7, "to": "a@x.org"});
    let page = shown(json!({"type": "object"}), given);
    let labels: Vec<_> = page
        .split("<dt>")
        .skip(1)
        .map(|rest| rest.split('<').next().unwrap())
        .collect();
    assert_eq!(labels, ["To", "Cc", "Subject", "About", "Body"], "{page}");
}

/// readers must not take the day after the last one for the end of an all-day event.
#[test]
fn the_last_of_whole_days_is_shown() {
    let mut tool = tool(json!({"type": "object"}));
    tool.settings.times = Some(crate::domain::times::Times {
        start: ArgumentPath::parse("start").unwrap(),
        end: ArgumentPath::parse("end"),
        zone: None,
        allow_past: None,
    });
    let shown = |end: &str| {
        arguments(
            Some(&tool),
            action(),
            &json!({"start": "2026-12-24", "end": end}),
            true,
            clock(Tz::UTC),
        )
        .into_string()
    };
    assert!(shown("2026-12-25").contains("<b>The last day is Thursday, 24 December 2026.</b>"));
    assert!(!shown("2026-12-24T11:00:00Z").contains("last day"));
}

#[test]
fn the_schema_names_what_is_in_it_at_any_depth_and_behind_references() {
    let schema = json!({
        "type": "object",
        "properties": {"who": {"type": "array", "items": {"$ref": "#/$defs/Guest"}}},
        "$defs": {"Guest": {"type": "object", "properties": {"opt": {"title": "May stay away", "type": "boolean"}}}},
    });
    let page = shown(schema, json!({"who": [{"opt": true}]}));
    assert!(page.contains("May stay away <code><bdi>opt</bdi></code>"), "{page}");
    assert!(page.contains("<dd>Yes</dd>"), "{page}");
}

#[test]
fn an_address_shows_where_it_goes_and_an_international_domain_in_both_forms() {
    let page = shown(
        json!({"type": "object"}),
        json!({"to": ["Ann <ann@b\u{fc}cher.example>", "bob@x.org"]}),
    );
    assert!(page.contains("ann@xn--bcher-kva.example"), "{page}");
    assert!(
        page.contains("international domain: <bdi>bücher.example</bdi>"),
        "{page}"
    );
    assert!(page.contains("<bdi class=\"address\">bob@x.org</bdi></li>"), "{page}");
}

#[test]
fn times_are_read_out_and_shown_as_they_were_written() {
    let page = shown(
        json!({"type": "object"}),
        json!({"start": "2026-11-24T10:00:00+01:00", "day": "2026-11-24"}),
    );
    assert!(page.contains("Tuesday, 24 November 2026, 10:00 (UTC+01:00)"), "{page}");
    assert!(page.contains("2026-11-24T10:00:00+01:00"), "{page}");
    assert!(page.contains("Tuesday, 24 November 2026 <small>"), "{page}");
    let given = json!({"start": "2026-11-24T10:00:00+01:00", "end": "2026-11-24T20:00:00Z"});
    let tokyo = arguments(Some(&tool(json!({}))), action(), &given, true, clock(Tz::Asia__Tokyo)).into_string();
    assert!(
        tokyo.contains("10:00 (UTC+01:00); for you Tuesday, 18:00 JST"),
        "{tokyo}"
    );
    assert!(
        tokyo.contains("20:00 (UTC+00:00); for you Wednesday, 05:00 JST"),
        "{tokyo}"
    );
}

/// An invitation for another year, or for yesterday, is usually an error.
#[test]
fn a_time_that_is_past_or_far_away_is_shown_with_its_distance() {
    for (time, distance) in [
        ("2031-12-01T10:00:00Z", Some("in 5 years")),
        ("2027-11-20", Some("in 367 days")),
        ("2026-11-19T20:00:00+01:00", Some("5 hours ago")),
        ("2026-11-18", Some("12 hours ago")),
        ("2026-11-18T10:00", Some("26 hours ago")),
        ("2026-11-19", None),
        ("2026-11-20T00:10:00Z", None),
        ("2027-06-01T10:00", None),
    ] {
        let page = shown(json!({"type": "object"}), json!({ "at": time }));
        match distance {
            Some(distance) => assert!(page.contains(&format!("<b>{distance}</b>")), "{time}: {page}"),
            None => assert!(!page.contains("<b>"), "{time}: {page}"),
        }
    }
    for time in ["+262142-12-31", "-262143-01-01T00:00"] {
        let page = shown(json!({"type": "object"}), json!({ "at": time }));
        assert!(page.contains(" years"), "{time}: {page}");
    }
}

#[test]
fn long_text_is_there_whole_behind_a_control_that_needs_no_script() {
    let text = "line\n".repeat(500) + "the end";
    let page = shown(json!({"type": "object"}), json!({ "body": text }));
    assert!(
        page.contains("<details class=\"whole\"><summary>Show all of it (501 lines, 2507 characters)"),
        "{page}"
    );
    assert!(page.contains("the end</div></details>"), "{page}");
}

/// Promise: exact approvals. The approver sees what the recipient sees, the target of each link, and the markup.
#[test]
fn html_is_shown_in_a_frame_with_its_links_and_its_markup() {
    let schema = json!({"properties": {"html/body": {"type": "string", "contentMediaType": "text/html"}}});
    let page =
        "<p>Hi <b>Ann</b>, <a href='https://evil.example/x'>https://bank.example</a></p><script>alert(1)</script>";
    let text = shown(schema.clone(), json!({ "html/body": page }));
    let frame = format!(
        "<iframe class=\"message\" sandbox src=\"/console/actions/{}/html?at=%2Fhtml%7E1body\"",
        action()
    );
    assert!(text.contains(&frame), "{text}");
    assert!(text.contains("https://bank.example</th>"), "{text}");
    assert!(
        text.contains("<bdi>https://evil.example/x</bdi></code> <span class=\"badge\">shows another address"),
        "{text}"
    );
    assert!(text.contains("<details class=\"whole\" open>"), "{text}");
    assert!(
        text.contains("&lt;script&gt;alert(1)") && !text.contains("<script"),
        "{text}"
    );
    let text = shown(schema.clone(), json!({"html/body": "<p>Hi <b>Ann</b></p>"}));
    assert!(text.contains("<details class=\"whole\"><summary>"), "{text}");
    assert!(!text.contains("<table"), "{text}");
    let text = shown(schema, json!({"html/body": "<b>".repeat(100_000)}));
    assert!(text.contains("<iframe") && text.contains("&lt;b&gt;"), "{text}");
}

/// arguments with the same label show their names.
#[test]
fn arguments_that_read_alike_show_their_names() {
    let schema = json!({"properties": {"to": {}, "reply_to": {}}});
    let text = shown(schema.clone(), json!({"to": "a", "reply_to": "b"}));
    assert!(!text.contains("<code>"), "{text}");
    let text = shown(schema, json!({"to": "a", "To": "b", "zzz": "c"}));
    for name in ["to", "To", "zzz"] {
        assert!(
            text.contains(&format!("<code><bdi>{name}</bdi></code>")),
            "{name}: {text}"
        );
    }
}

#[test]
fn nothing_of_the_arguments_or_the_schema_is_markup() {
    let planted = "<img src=x onerror=alert(1)>\u{202e}";
    let schema = json!({"type": "object", "properties": {planted: {"title": planted}, "o": {"title": planted}}});
    let given = json!({planted: planted, "o": {planted: [planted, {planted: planted}]}});
    let page = shown(schema, given.clone()) + &raw(&given).into_string();
    assert!(!page.contains("<img") && !page.contains('\u{202e}'), "{page}");
    assert!(page.contains("&lt;img src=x onerror=alert(1)&gt;"), "{page}");
    let mut deep = json!("end");
    for _ in 0..100 {
        deep = json!([deep]);
    }
    assert!(shown(json!({}), json!({ "a": deep })).contains("end"));
}
