//! The sending account: shown with the approval request, and bound to the approval.

use serde_json::json;

use super::{ALL_SCOPES, BOTH, Desk, account, mail, puppet, states};

/// Promise: exact approvals. An approver sees the account that would send. An approval does not cover another
/// account that the user connects meanwhile.
#[tokio::test]
async fn an_approved_email_is_sent_only_from_the_account_that_was_shown() {
    for kind in BOTH {
        let desk = Desk::new(kind, puppet()).await;
        let event = json!({"summary": "Lunch", "start": "2099-03-31T12:00:00Z", "end": "2099-03-31T13:00:00Z"});
        let waiting = desk
            .calls("ann", json!([["gmail_send", mail()], ["calendar_event_create", event]]))
            .await;
        for action in waiting["actions"].as_array().unwrap() {
            assert_eq!(action["account"], account("ann"), "{waiting}");
        }
        for pending in desk.pending("ann").await {
            assert_eq!(pending["account"], account("ann"), "{pending}");
        }
        for action in waiting["actions"].as_array().unwrap() {
            let own = format!("/console/approvals/{}", action["approvalId"].as_str().unwrap());
            let page = desk.app.request("GET", &own, &[]).send().await.unwrap();
            let page = page.text().await.unwrap();
            let shown = "<dt>From account</dt><dd><bdi>ann@gmail.example</bdi></dd>";
            assert_eq!(page.matches(shown).count(), 1, "{page}");
        }

        let thread = desk.thread("ann", &waiting).await;
        let asked = |tool: &str| {
            let begins = format!("May I call {tool} from ann@gmail.example (");
            thread.iter().any(|(_, text)| text.starts_with(&begins))
        };
        assert!(asked("gmail_send") && asked("calendar_event_create"), "{thread:?}");

        desk.resolve("ann", &waiting["actions"][1], "approve_once", None).await;
        desk.connect_as("ann", "private@gmail.example", &ALL_SCOPES).await;
        let run = desk.resolve("ann", &waiting["actions"][0], "approve_once", None).await;
        assert_eq!(states(&run), ["failed", "completed"], "{run}");
        let why = run["actions"][0]["errorMessage"].as_str().unwrap();
        assert!(
            why.contains("ann@gmail.example") && why.contains("another account"),
            "{why}"
        );
        assert!(desk.google.seen("send").is_empty(), "nothing was sent");
        assert_eq!(desk.google.events(&account("ann")).len(), 1);

        // A new request names the new account.
        let waiting = desk.mails("ann", mail()).await;
        assert_eq!(waiting["actions"][0]["account"], "private@gmail.example", "{waiting}");
        let run = desk.resolve("ann", &waiting["actions"][0], "approve_once", None).await;
        assert_eq!(states(&run), ["completed"], "{run}");
        assert_eq!(desk.google.sent("private@gmail.example").len(), 1);
        desk.google.finish();
        desk.app.stop().await;
    }
}
