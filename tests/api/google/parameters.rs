//! Arguments that cannot be valid are rejected before approval is requested.

use serde_json::{Value, json};

use super::{Desk, Kind, mail, puppet, states};

fn mail_with(field: &str, value: Value) -> Value {
    let mut mail = mail();
    mail[field] = value;
    mail
}

fn event_with(fields: Value) -> Value {
    let mut event = json!({"summary": "Lunch", "start": "2099-03-31T12:00:00Z", "end": "2099-03-31T13:00:00Z"});
    for (name, value) in fields.as_object().unwrap() {
        event[name] = value.clone();
    }
    event
}

/// malformed and unsafe addresses and arguments of both tools, with the settings that ship with gavel.
#[tokio::test]
async fn invalid_arguments_are_refused_before_approval_is_requested() {
    let desk = Desk::new(Kind::Sqlite, puppet()).await;
    let many: Vec<_> = (0..51).map(|n| format!("u{n}@example.com")).collect();
    let long = format!("{}@example.com", "x".repeat(65));
    let recipients = [
        json!([]),
        json!([""]),
        json!([" "]),
        json!(["ann"]),
        json!(["ann@"]),
        json!(["@example.com"]),
        json!(["ann@localhost"]),
        json!(["ann@[127.0.0.1]"]),
        json!(["ann@example..com"]),
        json!(["\"ann\"@example.com"]),
        json!([long]),
        json!(["ann@example.com, eve@evil.example"]),
        json!(["ann@example.com eve@evil.example"]),
        json!(["ann@example.com\r\nBcc: eve@evil.example"]),
        json!(["ann@example.com\nBcc: eve@evil.example"]),
        json!(["Ann\r\nBcc: eve@evil.example <ann@example.com>"]),
        json!(["Ann\u{0000} <ann@example.com>"]),
        json!(["boss@example.com <eve@evil.example>"]),
        json!(["\"boss@example.com\" <eve@evil.example>"]),
        json!(["boss＠example.com <eve@evil.example>"]),
        json!(["Ann <ann@example.com> <eve@evil.example>"]),
        json!(["Ann \u{202e}moc.elpmaxe <eve@evil.example>"]),
        json!(["an\u{200b}n@example.com"]),
        json!(["änn@example.com"]),
        json!(["Ann \\ Lee <ann@example.com>"]),
        json!(["Ann \"the\" Lee <ann@example.com>"]),
        json!([format!("{} <ann@example.com>", "x".repeat(129))]),
        json!("ann@example.com"),
        json!([{"email": "ann@example.com", "bcc": "eve@evil.example"}]),
        json!([7]),
        json!(null),
        json!(many),
    ];
    let mails = recipients
        .into_iter()
        .map(|value| mail_with("to", value))
        .chain([
            mail_with("cc", json!(["eve"])),
            mail_with("bcc", json!(["eve@evil.example\r\nX: y"])),
            mail_with("subject", json!("Late\r\nBcc: eve@evil.example")),
            mail_with("subject", json!("Late\u{2028}Bcc: eve@evil.example")),
            mail_with("subject", json!("=?utf-8?B?V2lyZSA5MDAwMA==?=")),
            mail_with("from", json!("boss@example.com")),
            mail_with("user_id", json!("bob")),
            json!({"subject": "Late", "body": "x"}),
            // Not covered by a schema, but rejected by the server.
            mail_with("subject", json!("")),
            mail_with("subject", json!(" \u{200b}")),
            mail_with("subject", json!("pay \u{202e}gro.live")),
            mail_with("subject", json!("Re\u{3164}: late")),
            mail_with("subject", json!("x".repeat(901))),
            mail_with("body", json!("a\u{0}b")),
            mail_with("body", json!(" \n")),
            mail_with("thread_id", json!("../x")),
            mail_with("thread_id", json!("abc")),
            mail_with("reply_to_message_id", json!("abc")),
        ])
        .map(|arguments| json!(["gmail_send", arguments]));
    let events = [
        json!({"start": "2020-03-31T12:00:00Z", "end": "2020-03-31T13:00:00Z"}),
        json!({"end": "2099-03-31T11:00:00Z"}),
        json!({"end": "2099-03-31T12:00:00Z"}),
        json!({"start": "2099-03-31", "end": "2099-03-31"}),
        json!({"start": "2099-03-31"}),
        json!({"start": "tomorrow at ten"}),
        json!({"start": "2099-02-30T12:00:00Z"}),
        json!({"start": "2099-03-31T12:00:00"}),
        json!({"time_zone": "Europe/Nowhere"}),
        json!({"start": "2027-03-28T02:30:00", "end": "2027-03-28T04:00:00", "time_zone": "Europe/Berlin"}),
        json!({"start": "2027-10-31T02:30:00", "end": "2027-10-31T04:00:00", "time_zone": "Europe/Berlin"}),
        json!({"start": "2099-03-31T12:00:00+05:00", "end": "2099-03-31T13:00:00+05:00", "time_zone": "Europe/Berlin"}),
        json!({"start": "2099-3-31", "end": "2099-4-1"}),
        json!({"summary": "Lunch\r\nX: y"}),
        json!({"location": "Here\nand there"}),
        json!({"attendees": ["eve"]}),
        json!({"attendees": ["boss@example.com <eve@evil.example>"]}),
        json!({"attendees": many}),
        json!({"organizer": "boss@example.com"}),
        json!({"summary": " "}),
        json!({"description": "x".repeat(8193)}),
        json!({"calendar_id": ".."}),
        json!({"reminders": vec![json!({"method": "popup", "minutes": 1}); 6]}),
    ]
    .map(|fields| json!(["calendar_event_create", event_with(fields)]));
    for call in mails.chain(events) {
        let mut run = desk.calls("ann", json!([call])).await;
        assert_eq!(run["status"], "completed", "approval is requested for {call}: {run}");
        assert_eq!(states(&run), ["failed"], "{call}: {run}");
        assert_eq!(run["actions"][0]["errorCode"], "invalid_arguments", "{call}: {run}");
        let action = &mut run["actions"][0];
        let (why, recorded) = (action["errorMessage"].take(), action["record"]["errorMessage"].take());
        assert_eq!(why, recorded, "{call}");
        assert!(why.as_str().is_some_and(|why| !why.is_empty()), "{call}: {why}");
        assert!(
            !run.to_string().contains("evil"),
            "the rejected value appears elsewhere: {run}"
        );
    }
    assert!(desk.pending("ann").await.is_empty());
    desk.nothing_happened();
    desk.google.finish();
}

/// an address that may be valid and resembles another one is marked as such.
#[tokio::test]
async fn look_alike_addresses_are_marked_for_the_approver() {
    let desk = Desk::new(Kind::Sqlite, puppet()).await;
    for (address, marks) in [
        ("ben@exаmple.com", ["xn--", "Cyrillic"]),
        ("ben@раураӏ.com", ["xn--", "paypal"]),
        ("Bеn <ben@example.com>", ["Cyrillic", "display name"]),
    ] {
        let run = desk.mails("ann", mail_with("to", json!([address]))).await;
        assert_eq!(run["status"], "awaiting_confirmation", "{address}: {run}");
        let warnings = run["actions"][0]["warnings"].to_string();
        for mark in marks {
            assert!(warnings.contains(mark), "{address}: {warnings}");
        }
    }
    let run = desk
        .mails("ann", mail_with("body", json!("Pay \u{202e}gro.live")))
        .await;
    let warnings = run["actions"][0]["warnings"].to_string();
    assert!(
        warnings.contains("/body: ") && warnings.contains("U+202E"),
        "{warnings}"
    );
    let run = desk
        .calls(
            "ann",
            json!([[
                "calendar_event_create",
                event_with(json!({"start": "2020-03-31T12:00:00Z", "end": "2020-03-31T13:00:00Z", "allow_past": true}))
            ]]),
        )
        .await;
    let warnings = run["actions"][0]["warnings"].to_string();
    assert!(warnings.contains("in the past"), "{warnings}");
    desk.nothing_happened();
}
