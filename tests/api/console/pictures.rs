//! The pictures of the pages in docs/, of a real run.
//!
//! `cargo test --test api -- --ignored pictures` writes those of docs/how-to/approve.md. The picture of the README is of
//! docs/tutorials/first-plan.md; tests/console/picture.mjs takes it.

use std::path::Path;

use serde_json::{Value, json};

use super::browser::plays_script;
use super::rig::{ALL, Office, approval, asks, key, keys};
use crate::harness::{Setup, spawn_app};

/// What approvers meet: a link that leads to another address than it shows, a domain with a letter of another alphabet,
/// an answer that goes to people who are not meant to read it, a message whose outcome is unknown, and an ordinary
/// invitation.
fn requests() -> Vec<(&'static str, Value)> {
    let ann = "Ann Lee <ann@example.org>";
    let copies = [
        "all-staff@example.org",
        "dave@partner.example",
        "erin@partner.example",
        "frank@example.org",
        "heidi@press.example",
    ];
    vec![
        (
            "gmail_send",
            json!({
                "to": [ann], "subject": "Your invoice for November",
                "body": "Hello Ann,\n\nplease pay your invoice by Friday: https://pay.contoso.example/invoices/4711\n\nJo",
                "html_body": "<p>Hello Ann,</p><p>please pay your invoice by Friday:</p><p>\
                    <a href='https://contoso-pay.example.net/i/4711'>https://pay.contoso.example/invoices/4711</a></p><p>Jo</p>",
            }),
        ),
        (
            "gmail_send",
            json!({
                "to": ["ben@cont\u{43e}so.example"], "subject": "Signed contract",
                "body": "Hi Ben,\n\nas agreed, the signed contract: we pay 12,000 euros on 1 December.\n\nJo",
            }),
        ),
        (
            "gmail_send",
            json!({
                "to": ["carol@example.org"], "cc": copies, "subject": "Re: Offsite in May",
                "body": "Carol, between us: I do not think that Dave's team should come. Their figures are bad.\n\nJo",
            }),
        ),
        (
            "gmail_send",
            json!({
                "to": [ann], "subject": "Minutes of the meeting",
                "body": "Dear Ann,\n\nthe minutes of today's meeting are in the shared folder.\n\nJo",
            }),
        ),
        (
            "calendar_event_create",
            json!({
                "title": "Planning", "start": "2031-11-24T10:00:00", "end": "2031-11-24T10:30:00",
                "timeZone": "Europe/Berlin", "location": "Room 4", "attendees": [{"email": "ann@example.org"}],
            }),
        ),
    ]
}

/// Also pictures of all five requests, for someone who decides them by the page alone: in `console-shots` of the build
/// directory.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "it changes the pictures in docs/"]
async fn pictures_of_the_docs_are_taken() {
    let office = Office::start().await;
    let setup = office.setup(Setup::stdio_sqlite()).script(asks(requests()));
    let setup = setup
        .env("GAVEL_AUTH_MODE", "api_key")
        .env("GAVEL_AUTH_KEYS", keys(&ALL));
    let app = spawn_app(setup).await;
    let run = app.says("ann").await;
    let yes = json!({"approvalId": approval(&run, 3), "decision": "approve_once"});
    app.by("web", "ann", "POST", "/api/agent/approvals/resolve", Some(yes))
        .await
        .expect(200);
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
    let about = json!({"name": "request", "script": true, "user": "ann", "credential": key("desk"), "docs": docs});
    plays_script(&app, "pictures.mjs", about).await;
}
