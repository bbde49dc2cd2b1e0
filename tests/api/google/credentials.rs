//! A user with missing or insufficient credentials: AuthError, what to do next, and no in-doubt action.

use std::sync::{Arc, Mutex};

use super::{BOTH, Desk, account, mail, puppet, puppet_that_tells, states};
use crate::workspace::{EVENTS, SEND, Trouble};
use serde_json::json;

/// if the user is not connected, has revoked the consent, or has not consented to this call, the run says
/// what to do next. Nothing happens and nothing is in doubt. After the user connects, the call works.
#[tokio::test]
async fn a_run_of_a_user_without_consent_says_what_to_do_next() {
    for kind in BOTH {
        let reported = Arc::new(Mutex::new(Vec::new()));
        let desk = Desk::with(kind, puppet_that_tells(&reported), |setup| setup).await;
        desk.connect_with("cut", &[EVENTS]).await;
        desk.connect("gone").await;
        desk.google.take_back(&account("gone"));
        for (user, words) in [
            ("new", "has not connected a Google account"),
            ("cut", "does not allow this"),
            ("gone", "no longer accepts the user's connection"),
        ] {
            // no approval is requested for a call that cannot be made.
            let run = desk.mails(user, mail()).await;
            assert_eq!(
                (run["status"].as_str(), states(&run)),
                (Some("completed"), vec!["failed"]),
                "{user}: {run}"
            );
            assert_eq!(run["actions"][0]["errorCode"], "auth_required", "{user}: {run}");
            let said = reported.lock().unwrap().pop().unwrap();
            assert!(
                said.contains(words) && said.contains(&format!("gavel google connect {user}")),
                "{user}: {said}"
            );
            desk.connect_with(user, &[SEND]).await;
            let waiting = desk.mails(user, mail()).await;
            let run = desk.resolve(user, &waiting["actions"][0], "approve_once", None).await;
            assert_eq!(states(&run), ["completed"], "{user}: {run}");
            assert_eq!(desk.google.sent(&account(user)).len(), 1);
            let log = desk.get(user, "/v1/tool-invocations").await;
            assert!(
                !json!([log, run]).to_string().contains("canary"),
                "a secret is in the log"
            );
        }
        desk.google.finish();
        desk.app.stop().await;
    }
}

/// this also holds if the consent is revoked while the approval request waits. If its state cannot be determined,
/// approval is requested as usual.
#[tokio::test]
async fn a_consent_revoked_while_an_approval_waits_is_reported() {
    for kind in BOTH {
        let desk = Desk::new(kind, puppet()).await;
        for trouble in [true, false] {
            desk.connect("ann").await;
            if trouble {
                desk.google.trouble("token", [Trouble::Refuse(503, "backendError")]);
            }
            let waiting = desk.mails("ann", mail()).await;
            assert_eq!(waiting["status"], "awaiting_confirmation", "{waiting}");
            desk.google.take_back(&account("ann"));
            let run = desk.resolve("ann", &waiting["actions"][0], "approve_once", None).await;
            assert_eq!(run["actions"][0]["errorCode"], "auth_required", "{run}");
        }
        assert!(desk.google.sent(&account("ann")).is_empty());
        desk.app.stop().await;
    }
}
