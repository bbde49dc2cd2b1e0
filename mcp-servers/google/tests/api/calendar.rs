use std::time::Duration;

use serde_json::{Value, json};

use crate::google::Trouble;
use crate::harness::account;

const TOOL: &str = "calendar_event_create";

fn meeting() -> Value {
    json!({
        "summary": "Frühstück 🥐", "start": "2099-07-01T10:00:00", "end": "2099-07-01T11:00:00",
        "time_zone": "Europe/Berlin"
    })
}

fn with(more: Value) -> Value {
    let mut arguments = meeting();
    arguments
        .as_object_mut()
        .expect("an object")
        .extend(more.as_object().expect("an object").clone());
    arguments
}

on_both! {
    /// R-9
    async fn an_event_is_made_with_all_that_was_asked_for(world: World) {
        world.connect("anna").await;
        let server = world.server().await;
        let arguments = with(json!({
            "description": "Bring\ncoffee", "location": "Küche", "conference": true,
            "attendees": ["Ann Müller <ann@example.com>", "ben@example.com"],
            "reminders": [{ "method": "popup", "minutes": 10 }]
        }));
        let answer = server.with_key("k", "anna", TOOL, arguments).await.ok();
        let events = world.google.events(&account("anna"));
        let [event] = &events[..] else { panic!("{events:?}") };
        assert_eq!(event["summary"], "Frühstück 🥐");
        assert_eq!(event["description"], "Bring\ncoffee");
        assert_eq!(event["start"], json!({ "dateTime": "2099-07-01T10:00:00+02:00", "timeZone": "Europe/Berlin" }));
        assert_eq!(event["end"]["dateTime"], "2099-07-01T11:00:00+02:00");
        assert_eq!(
            event["attendees"],
            json!([{ "email": "ann@example.com", "displayName": "Ann Müller" }, { "email": "ben@example.com" }])
        );
        assert_eq!(
            event["reminders"],
            json!({ "useDefault": false, "overrides": [{ "method": "popup", "minutes": 10 }] })
        );
        let reported: Vec<_> = world.google.invitations().into_iter().map(|(who, _)| who).collect();
        assert_eq!(reported, ["ann@example.com", "ben@example.com"]);
        let insert = &world.google.seen("insert")[0];
        assert_eq!(insert.parameter("sendUpdates"), Some("all"));
        assert_eq!(insert.parameter("conferenceDataVersion"), Some("1"));
        assert_eq!(answer["event"]["id"], event["id"]);
        assert_eq!(answer["event"]["calendar_id"], "primary");
        assert_eq!(answer["event"]["link"], event["htmlLink"]);
        assert_eq!(answer["event"]["meet_link"], "https://meet.example/abc");
        assert_eq!(answer["event"]["attendees"], json!(["ann@example.com", "ben@example.com"]));
        assert_eq!(answer["recovered"], false);
    }

    /// R-9. Promise: exact approvals. Google treats a description as HTML; guests must read the approved text, and
    /// follow no hidden link.
    async fn a_description_reads_to_guests_as_it_was_given(world: World) {
        world.connect("anna").await;
        let server = world.server().await;
        let given = "Pay at <a href=\"https://evil.example\">bank.example</a>\nR&D &lt; 5\n\n'x'";
        server.call("anna", TOOL, with(json!({ "description": given }))).await.ok();
        let sent = world.google.events(&account("anna"))[0]["description"].clone();
        assert_eq!(
            sent,
            "Pay at &lt;a href=\"https://evil.example\"&gt;bank.example&lt;/a&gt;\nR&amp;D &amp;lt; 5\n\n'x'"
        );
        let html = format!("Content-Type: text/html\n\n{}", sent.as_str().expect("a text").replace('\n', "<br>"));
        let letter = mail_parser::MessageParser::default().parse(html.as_bytes()).expect("a message");
        assert_eq!(letter.body_text(0).expect("a text").trim_end(), given, "what a reader of HTML sees");
        // A description that is too long as HTML is reported, so that Google does not cut it.
        let long = with(json!({ "description": "&".repeat(2000) }));
        let looked = server.call("anna", "google_account", json!({ "for": TOOL, "arguments": long })).await;
        assert_eq!((looked.code(), &looked.error()["argument"]), ("too_long", &json!("description")));
        assert_eq!(looked.error()["class"], "arguments");
    }

    /// R-9
    async fn whole_days_other_calendars_and_silence_are_possible(world: World) {
        world.connect("anna").await;
        let server = world.server().await;
        let arguments = json!({
            "summary": "Away", "start": "2099-07-01", "end": "2099-07-03", "attendees": ["ann@example.com"],
            "send_updates": "none", "calendar_id": "team#x@group.calendar.google.com", "reminders": []
        });
        let answer = server.call("anna", TOOL, arguments).await.ok();
        assert_eq!(answer["event"]["calendar_id"], "team#x@group.calendar.google.com");
        let event = &world.google.events(&account("anna"))[0];
        assert_eq!(event["start"], json!({ "date": "2099-07-01" }));
        assert_eq!(event["end"], json!({ "date": "2099-07-03" }));
        assert_eq!(event["reminders"], json!({ "useDefault": false, "overrides": [] }));
        assert!(event.get("conferenceData").is_none() && event.get("description").is_none());
        let insert = &world.google.seen("insert")[0];
        assert_eq!(insert.path, "/calendar/v3/calendars/team%23x@group.calendar.google.com/events");
        assert_eq!(insert.parameter("conferenceDataVersion"), Some("0"));
        assert!(world.google.invitations().is_empty());
        // A past event can be noted down with `allow_past`.
        let past = json!({ "summary": "x", "start": "2001-01-01", "end": "2001-01-02", "allow_past": true });
        server.call("anna", TOOL, past).await.ok();
    }

    /// R-12
    async fn what_makes_no_sense_is_refused_and_nothing_is_made(world: World) {
        world.connect("anna").await;
        let server = world.server().await;
        let many: Vec<_> = (0..51).map(|number| format!("u{number}@example.com")).collect();
        let cases = [
            (json!({ "start": "2099-03-29T02:30:00" }), "invalid_time", "start"),
            (json!({ "start": "2099-07-01T10:00:00+05:00" }), "invalid_time", "start"),
            (json!({ "time_zone": Value::Null }), "invalid_time", "start"),
            (json!({ "time_zone": "Mars/Olympus" }), "invalid_time", "time_zone"),
            (json!({ "end": "2099-07-01T10:00:00" }), "invalid_time", "end"),
            (json!({ "end": "2099-07-02" }), "invalid_time", "end"),
            (json!({ "start": "2001-07-01T10:00:00" }), "in_the_past", "start"),
            (json!({ "start": Value::Null }), "missing_argument", "start"),
            (json!({ "summary": " " }), "invalid_argument", "summary"),
            (json!({ "summary": "a\r\nb" }), "unsafe_text", "summary"),
            (json!({ "attendees": ["ann@example.com", "eve"] }), "invalid_recipient", "attendees/1"),
            (json!({ "attendees": ["ann@example.com\nx"] }), "invalid_recipient", "attendees/0"),
            (json!({ "attendees": many }), "too_many_recipients", "attendees"),
            (json!({ "send_updates": "some" }), "invalid_argument", "send_updates"),
            (json!({ "conference": "yes" }), "invalid_argument", "conference"),
            (json!({ "calendar_id": ".." }), "invalid_argument", "calendar_id"),
            (json!({ "calendar_id": "a/b" }), "invalid_argument", "calendar_id"),
            (json!({ "reminders": [{ "method": "sms", "minutes": 1 }] }), "invalid_argument", "reminders/0/method"),
            (json!({ "reminders": [{ "method": "popup", "minutes": 99999 }] }), "invalid_argument", "reminders/0/minutes"),
            (json!({ "user_id": "ben" }), "unknown_argument", "user_id"),
        ];
        for (change, code, argument) in cases {
            let reply = server.call("anna", TOOL, with(change.clone())).await;
            assert_eq!(reply.code(), code, "{change}");
            assert_eq!(reply.error()["argument"], argument, "{change}");
        }
        assert!(world.google.seen("insert").is_empty());
        let elsewhere = with(json!({ "calendar_id": "missing" }));
        assert_eq!(server.call("anna", TOOL, elsewhere).await.code(), "not_found");
    }

    /// Promise: at most once.
    async fn an_event_is_made_once_whatever_happens_to_the_answer(world: World) {
        world.connect("anna").await;
        let server = world.server().await;
        let invited = with(json!({ "attendees": ["ann@example.com"] }));
        let troubles = [
            vec![Trouble::CutAfter],
            vec![Trouble::CutBefore],
            vec![Trouble::FaultAfter(500)],
            vec![Trouble::Says(200, "<html>")],
            vec![Trouble::Says(401, "<html>")],
            vec![Trouble::Says(404, "<html>")],
            vec![Trouble::Says(200, r#"{"id": "another"}"#)],
            vec![Trouble::Refuse(503, "backendError"), Trouble::Refuse(429, "rateLimitExceeded")],
            vec![Trouble::RefuseFor(403, "rateLimitExceeded", 1)],
        ];
        for (number, troubles) in troubles.into_iter().enumerate() {
            let key = format!("k{number}");
            world.google.trouble("insert", troubles.clone());
            let answer = server.with_key(&key, "anna", TOOL, invited.clone()).await.ok();
            assert_eq!(world.google.events(&account("anna")).len(), number + 1, "{troubles:?}");
            assert_eq!(world.google.invitations().len(), number + 1, "{troubles:?}");
            let again = server.with_key(&key, "anna", TOOL, invited.clone()).await.ok();
            assert_eq!(again, answer);
        }
        // A lookup that finds another event proves nothing.
        world.google.trouble("insert", [Trouble::CutAfter]);
        world.google.trouble("event", [Trouble::Says(200, r#"{"id": "another"}"#)]);
        server.doubt("another", "anna", TOOL, invited.clone()).await;
        assert_eq!(server.with_key("another", "anna", TOOL, invited.clone()).await.ok()["recovered"], true);
        let other = with(json!({ "summary": "Lunch" }));
        assert_eq!(server.with_key("k0", "anna", TOOL, other).await.code(), "idempotency_key_reused");
    }

    /// Promise: at most once. Kill -9 between the insert and its record; and a record that was lost completely.
    async fn an_event_outlives_the_process_and_the_record_of_its_making(world: World) {
        world.connect("anna").await;
        let server = world.server().await;
        world.google.trouble("insert", [Trouble::Silence]);
        {
            let call = server.try_with_key("k", "anna", TOOL, meeting());
            let made = async {
                while world.google.events(&account("anna")).is_empty() {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            };
            tokio::select! {
                answer = call => panic!("an answer: {answer:?}"),
                () = made => {}
            }
        }
        server.kill().await;
        let server = world.server().await;
        let found = server.with_key("k", "anna", TOOL, meeting()).await.ok();
        assert_eq!(found["recovered"], true);
        world.sql("DELETE FROM google_calls").await;
        let found = server.with_key("k", "anna", TOOL, meeting()).await.ok();
        assert_eq!(found["recovered"], true);
        world.sql("DELETE FROM google_calls").await;
        let other = with(json!({ "summary": "Lunch" }));
        assert_eq!(server.with_key("k", "anna", TOOL, other).await.code(), "idempotency_key_reused");
        assert_eq!(world.google.events(&account("anna")).len(), 1);
    }

    /// Promise: at most once.
    async fn a_google_that_stays_unavailable_leaves_the_event_in_doubt_or_says_that_nothing_was_done(world: World) {
        let mut world = world;
        world.environment.insert("GOOGLE_TIMEOUT_SECONDS", "2".to_owned());
        world.connect("anna").await;
        let server = world.server().await;
        world.google.trouble("insert", [Trouble::Silence]);
        let said = server.doubt("k", "anna", TOOL, meeting()).await;
        assert!(said.contains("unknown whether this event was created"), "{said}");
        assert_eq!(server.with_key("k", "anna", TOOL, meeting()).await.ok()["recovered"], true);
        world.google.trouble("insert", vec![Trouble::RefuseFor(429, "rateLimitExceeded", 600)]);
        let limited = server.with_key("k2", "anna", TOOL, meeting()).await;
        assert_eq!(limited.code(), "rate_limited");
        assert_eq!(limited.error()["retry_after_s"], 600);
        server.with_key("k2", "anna", TOOL, meeting()).await.ok();
        assert_eq!(world.google.events(&account("anna")).len(), 2);
    }
}
