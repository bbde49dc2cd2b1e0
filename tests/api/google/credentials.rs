//! A user whose credentials do not do it: AuthError, what to do next, and no doubt about what happened.

use std::sync::{Arc, Mutex};

use super::{BOTH, Desk, account, mail, puppet, puppet_that_tells, states};
use crate::workspace::{EVENTS, SEND, Trouble};
use serde_json::json;

/// nobody is connected, the consent was taken back, or it does not cover the call: the run says so with what is to be done
/// next, nothing happens, and nothing is in doubt. Once the user has connected, it works.
#[tokio::test]
async fn a_user_without_consent_is_told_what_to_do_next() {
    for kind in BOTH {
        let told = Arc::new(Mutex::new(Vec::new()));
        let desk = Desk::with(kind, puppet_that_tells(&told), |setup| setup).await;
        desk.connect_with("cut", &[EVENTS]).await;
        desk.connect("gone").await;
        desk.google.take_back(&account("gone"));
        for (user, words) in [
            ("new", "has not connected a Google account"),
            ("cut", "does not allow this"),
            ("gone", "does not accept the user's connection any more"),
        ] {
            // nobody is asked for leave for what cannot be done.
            let run = desk.mails(user, mail()).await;
            assert_eq!(
                (run["status"].as_str(), states(&run)),
                (Some("completed"), vec!["failed"]),
                "{user}: {run}"
            );
            assert_eq!(run["actions"][0]["errorCode"], "auth_required", "{user}: {run}");
            let said = told.lock().unwrap().pop().unwrap();
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
                "a secret is on the record"
            );
        }
        desk.google.finish();
        desk.app.stop().await;
    }
}

/// also where the consent is taken back while the question waits. And where nobody can say whether it is there, people are
/// asked as ever.
#[tokio::test]
async fn a_consent_that_goes_while_a_question_waits_is_told() {
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
