//! Grants for a set of recipients.

use serde_json::{Value, json};

use super::{Answer, BOTH, Desk, Kind, account, puppet};
use crate::audit::rows;

const ALWAYS: &str = "approve_and_always_allow_recipient";

fn to(recipients: Value) -> Value {
    let mut mail = json!({"subject": "Hello", "body": "Hello."});
    for (name, list) in recipients.as_object().unwrap() {
        mail[name] = list.clone();
    }
    mail
}

/// Promise: exact approvals. A grant covers the same recipients in the same fields, however they are written, and
/// no others. It covers no new cc or bcc, no other tool, no other user, and nothing after it is revoked.
#[tokio::test]
async fn a_grant_for_a_recipient_covers_no_other_recipient() {
    for kind in BOTH {
        let desk = Desk::new(kind, puppet()).await;
        desk.connect("bob").await;
        let first = desk.mails("ann", to(json!({"to": ["Ben <ben@example.com>"]}))).await;
        let done = desk.resolve("ann", &first["actions"][0], ALWAYS, None).await;
        assert_eq!(done["status"], "completed", "{done}");

        let mut sent = 1;
        for same in [
            json!({"to": ["ben@example.com"]}),
            json!({"to": ["ben@EXAMPLE.com"]}),
            json!({"to": ["\"Ben Other\" <ben@example.com>"]}),
            json!({"cc": [], "to": ["ben@example.com"], "bcc": []}),
        ] {
            let run = desk.mails("ann", to(same.clone())).await;
            assert_eq!(run["status"], "completed", "{same}: {run}");
            assert_eq!(run["actions"][0]["requiresApproval"], false, "{same}: {run}");
            sent += 1;
            assert_eq!(desk.google.sent(&account("ann")).len(), sent, "{same}");
        }
        for other in [
            json!({"to": ["ben@example.com"], "cc": ["eve@evil.example"]}),
            json!({"to": ["ben@example.com"], "bcc": ["eve@evil.example"]}),
            json!({"to": ["ben@example.com", "eve@evil.example"]}),
            json!({"to": ["eve@evil.example"]}),
            // Only the mailbox's host knows whether these are different addresses.
            json!({"to": ["BEN@example.com"]}),
            json!({"to": ["ben+x@example.com"]}),
            json!({"to": ["b.en@example.com"]}),
            json!({"to": ["ben@exаmple.com"]}),
        ] {
            let run = desk.mails("ann", to(other.clone())).await;
            assert_eq!(run["status"], "awaiting_confirmation", "{other}: {run}");
        }
        // Which recipients see which others was part of the approval request.
        let hidden = json!({"to": ["ben@example.com"], "bcc": ["boss@example.com"]});
        let asked = desk.mails("bob", to(hidden.clone())).await;
        desk.resolve("bob", &asked["actions"][0], ALWAYS, None).await;
        for (moved, covered) in [
            (json!({"to": ["ben@example.com", "boss@example.com"]}), false),
            (json!({"to": ["ben@example.com"], "cc": ["boss@example.com"]}), false),
            (json!({"to": ["boss@example.com"], "bcc": ["ben@example.com"]}), false),
            (
                json!({"to": ["ben@example.com", "boss@example.com"], "bcc": ["boss@example.com"]}),
                false,
            ),
            (hidden, true),
        ] {
            let run = desk.mails("bob", to(moved.clone())).await;
            assert_eq!(run["status"] == "completed", covered, "{moved}: {run}");
        }
        let grants = desk.get("bob", "/api/agent/grants").await;
        let own = format!("/api/agent/grants/{}", grants["grants"][0]["grantId"].as_str().unwrap());
        assert_eq!(
            desk.get("bob", &own).await,
            grants["grants"][0],
            "one of them by itself"
        );
        assert_eq!(
            (
                &grants["grants"][0]["recipients"],
                &grants["grants"][0]["recipientsByArgument"]
            ),
            (
                &json!(["ben@example.com", "boss@example.com"]),
                &json!({"to": ["ben@example.com"], "bcc": ["boss@example.com"]})
            ),
            "{grants}"
        );
        let event =
            json!({"summary": "x", "start": "2099-01-01", "end": "2099-01-02", "attendees": ["ben@example.com"]});
        let run = desk.calls("ann", json!([["calendar_event_create", event]])).await;
        assert_eq!(run["status"], "awaiting_confirmation", "another tool: {run}");
        let run = desk.mails("bob", to(json!({"to": ["ben@example.com"]}))).await;
        assert_eq!(run["status"], "awaiting_confirmation", "another user: {run}");
        assert_eq!(desk.google.sent(&account("ann")).len(), sent);

        let grants = desk.get("ann", "/api/agent/grants").await;
        let grant = &grants["grants"][0];
        assert_eq!(
            (&grant["tool"], &grant["recipients"], &grant["uses"]),
            (&json!("gmail_send"), &json!(["ben@example.com"]), &json!(4)),
            "{grants}"
        );
        let by_grant = format!(
            "SELECT COUNT(*) FROM audit WHERE kind = 'effect_intended' AND detail LIKE '%{}%'",
            grant["grantId"].as_str().unwrap()
        );
        let effects = rows(&desk.app.database_url, &by_grant).await;
        assert_eq!(
            effects,
            [["4"]],
            "each effect without an approval request names the grant that allowed it"
        );
        let path = format!("/api/agent/grants/{}", grant["grantId"].as_str().unwrap());
        let revoked = desk
            .app
            .request("DELETE", &path, &[("x-gavel-user", "ann")])
            .send()
            .await
            .unwrap();
        assert_eq!(revoked.status(), 204);
        let run = desk.mails("ann", to(json!({"to": ["ben@example.com"]}))).await;
        assert_eq!(run["status"], "awaiting_confirmation", "the grant was revoked: {run}");
        assert_eq!(desk.google.sent(&account("ann")).len(), sent);
        desk.google.finish();
        desk.app.stop().await;
    }
}

/// Promise: exact approvals. A grant is for the user's own calendar, because others read what is written
/// into a shared one.
#[tokio::test]
async fn a_grant_for_an_attendee_covers_no_other_calendar() {
    let desk = Desk::new(Kind::Sqlite, puppet()).await;
    let event = |calendar: Option<&str>| {
        let mut event = json!({
            "summary": "x", "start": "2099-01-01", "end": "2099-01-02", "attendees": ["ben@example.com"],
        });
        if let Some(calendar) = calendar {
            event["calendar_id"] = json!(calendar);
        }
        json!([["calendar_event_create", event]])
    };
    let team = || event(Some("team@group.calendar.google.com"));
    let shared = desk.calls("ann", team()).await;
    assert_eq!(shared["status"], "awaiting_confirmation", "{shared}");
    let warnings = shared["actions"][0]["warnings"].to_string();
    assert!(
        warnings.contains("besides the recipients it sets \\\"/calendar_id\\\""),
        "{warnings}"
    );
    let answer = json!({"approvalId": shared["actions"][0]["approvalId"], "decision": ALWAYS});
    let request = desk
        .app
        .request("POST", "/api/agent/approvals/resolve", &[("x-gavel-user", "ann")]);
    let refused = Answer::of(request.json(&answer)).await.problem(422, "not_grantable");
    assert!(refused.to_string().contains("a grant cannot cover"), "{refused}");

    let own = desk.calls("ann", event(None)).await;
    let done = desk.resolve("ann", &own["actions"][0], ALWAYS, None).await;
    assert_eq!(done["status"], "completed", "{done}");
    let again = desk.calls("ann", event(None)).await;
    assert_eq!(again["actions"][0]["requiresApproval"], false, "{again}");
    for _ in 0..2 {
        let shared = desk.calls("ann", team()).await;
        assert_eq!(shared["status"], "awaiting_confirmation", "{shared}");
        let done = desk.resolve("ann", &shared["actions"][0], "approve_once", None).await;
        assert_eq!(done["status"], "completed", "{done}");
    }
    desk.google.finish();
    desk.app.stop().await;
}
