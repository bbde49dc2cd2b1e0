//! An answer is lost after the effect: nothing is sent twice, and nothing that was sent is reported as not sent.

use std::time::Duration;

use serde_json::{Value, json};

use crate::google::{EVENTS, METADATA, READ, SEND, Trouble};
use crate::harness::account;

const TOOL: &str = "gmail_send";

/// Enough time has passed that a message that is not in the mailbox was not sent.
const LATER: &str = "UPDATE google_calls SET attempted_at = attempted_at - 121000000";

fn email() -> Value {
    json!({ "to": ["ben@example.com"], "cc": ["ann@example.com"], "subject": "Late", "body": "I am late." })
}

on_both! {
    /// Promise: at most once. The connection is cut after the send.
    async fn a_lost_answer_is_found_in_the_mailbox_and_nothing_is_sent_again(world: World) {
        world.connect("anna").await;
        let server = world.server().await;
        let troubles = [
            Trouble::CutAfter,
            Trouble::FaultAfter(500),
            Trouble::FaultAfter(503),
            // A proxy answered this, not Google.
            Trouble::FaultAfter(302),
            Trouble::Says(401, "<html>"),
            Trouble::Says(403, "<html>"),
            Trouble::Says(404, r#"{"error": "not here"}"#),
            Trouble::Says(413, "{}"),
            Trouble::Says(429, "busy"),
            Trouble::Says(499, ""),
            Trouble::Says(200, "<html>"),
        ];
        for (number, trouble) in troubles.into_iter().enumerate() {
            let key = format!("k{number}");
            world.google.trouble("send", [trouble.clone()]);
            let said = server.doubt(&key, "anna", TOOL, email()).await;
            assert!(said.contains("unknown whether this e-mail was sent"), "{trouble:?}: {said}");
            let found = server.with_key(&key, "anna", TOOL, email()).await;
            let sent = world.google.sent(&account("anna"));
            assert_eq!(sent.len(), number + 1, "{trouble:?}");
            let body = found.clone().ok();
            assert_eq!(body["recovered"], true, "{trouble:?}");
            assert_eq!(body["message"]["id"], sent[number].id);
            assert_eq!(body["message"]["cc"][0], "ann@example.com");
            // From then on the answer is stored.
            let asked = world.google.seen("list").len();
            assert_eq!(server.with_key(&key, "anna", TOOL, email()).await, found);
            assert_eq!(world.google.seen("list").len(), asked);
        }
    }

    /// Promise: at most once. A Gmail that keeps Message-IDs only needs a search.
    async fn a_message_id_that_was_kept_is_found_by_a_search(world: World) {
        world.connect("anna").await;
        world.google.keep_message_ids();
        let server = world.server().await;
        world.google.trouble("send", [Trouble::CutAfter]);
        server.doubt("k", "anna", TOOL, email()).await;
        assert_eq!(server.with_key("k", "anna", TOOL, email()).await.ok()["recovered"], true);
        assert_eq!(world.google.sent(&account("anna")).len(), 1);
        assert!(world.google.seen("get").is_empty(), "there was no need to read the sent messages");
    }

    /// Promise: at most once. Kill -9 between the send and its record.
    async fn a_process_that_dies_after_the_send_leaves_nothing_to_be_sent_again(world: World) {
        world.connect("anna").await;
        let server = world.server().await;
        world.google.trouble("send", [Trouble::Silence]);
        {
            let call = server.try_with_key("k", "anna", TOOL, email());
            let sent = async {
                while world.google.sent(&account("anna")).is_empty() {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            };
            tokio::select! {
                answer = call => panic!("an answer: {answer:?}"),
                () = sent => {}
            }
        }
        server.kill().await;
        let server = world.server().await;
        let body = server.with_key("k", "anna", TOOL, email()).await.ok();
        assert_eq!(body["recovered"], true);
        assert_eq!(world.google.sent(&account("anna")).len(), 1);
    }

    /// Promise: at most once. Recording the send fails.
    async fn a_database_that_fails_after_the_send_does_not_hide_it(world: World) {
        world.connect("anna").await;
        let server = world.server().await;
        world.google.trouble("send", [Trouble::Late(Duration::from_millis(1500))]);
        let broken = async {
            while world.google.sent(&account("anna")).is_empty() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            world.sql("ALTER TABLE google_calls RENAME TO elsewhere").await;
        };
        let (answer, ()) = tokio::join!(server.with_key("k", "anna", TOOL, email()), broken);
        assert_eq!(answer.ok()["recovered"], false);
        // While the database is unavailable nothing is sent, and no caller can check whether something was.
        for key in ["k", "k2"] {
            let said = server.doubt(key, "anna", TOOL, email()).await;
            assert!(said.contains("unknown whether an earlier call with this key took effect"), "{said}");
        }
        world.sql("ALTER TABLE elsewhere RENAME TO google_calls").await;
        assert_eq!(server.with_key("k", "anna", TOOL, email()).await.ok()["recovered"], true);
        assert_eq!(world.google.sent(&account("anna")).len(), 1);
    }

    /// Promise: at most once. A caller says that it repeats a call, but its key has no record.
    async fn a_repeated_call_that_is_not_on_record_is_sent_only_where_it_would_be(world: World) {
        world.connect("anna").await;
        let server = world.server().await;
        let repeat = async |key: &str, since: &str| {
            let meta = json!({
                "gavel/user_id": "anna", "gavel/idempotency_key": key, "gavel/first_attempt_at": since
            });
            server.try_call(TOOL, email(), meta).await
        };
        let now = || chrono::Utc::now().to_rfc3339_opts(chrono::SecondsFormat::Micros, true);
        // The process died before the call arrived here.
        assert_eq!(repeat("k1", &now()).await.expect("an answer").ok()["recovered"], false);
        // It arrived, and another database has its record.
        world.google.trouble("send", [Trouble::CutAfter]);
        server.doubt("k2", "anna", TOOL, email()).await;
        world.sql("DELETE FROM google_calls").await;
        assert_eq!(repeat("k2", &now()).await.expect("an answer").ok()["recovered"], true);
        // It began before this database existed, or so long ago that its record has expired.
        let week = chrono::Utc::now() - chrono::TimeDelta::days(8);
        for (key, created) in [("k3", None), ("k4", Some("UPDATE google_migrations SET applied_at = 0"))] {
            if let Some(statement) = created {
                world.sql(statement).await;
            }
            let refused = format!("{:?}", repeat(key, &week.to_rfc3339()).await.expect_err("it is unknown"));
            assert!(refused.contains("this server's record of the first attempt is gone"), "{refused}");
            let meta = json!({
                "gavel/user_id": "anna", "gavel/idempotency_key": key, "gavel/first_attempt_at": week.to_rfc3339()
            });
            let event = json!({ "summary": "x", "start": "2099-01-01", "end": "2099-01-02" });
            let refused = server.try_call("calendar_event_create", event, meta).await;
            let refused = format!("{:?}", refused.expect_err("it is unknown"));
            assert!(refused.contains("this server's record of the first attempt is gone"), "{refused}");
        }
        assert_eq!(world.google.sent(&account("anna")).len(), 2);
        assert!(world.google.seen("insert").is_empty());
        assert_eq!(repeat("k5", "yesterday").await.expect("an answer").code(), "invalid_meta");
    }

    /// Promise: exact approvals. The approval was for the account shown with the request.
    async fn nothing_is_sent_from_another_account_than_was_agreed_to(world: World) {
        let scopes = format!("{SEND} {READ} {EVENTS}");
        world.connect("anna").await;
        let server = world.server().await;
        let asked = server.call("anna", "google_account", json!({ "for": TOOL, "arguments": email() })).await.ok();
        assert_eq!(asked, json!({ "ready": true, "account": account("anna") }));
        let event = json!({ "summary": "x", "start": "2099-01-01", "end": "2099-01-02" });
        let call = async |tool: &str, arguments: Value, key: &str| {
            let meta = json!({
                "gavel/user_id": "anna", "gavel/idempotency_key": key, "gavel/account": account("anna")
            });
            server.try_call(tool, arguments, meta).await.expect("an answer")
        };
        call(TOOL, email(), "k1").await.ok();
        world.connect_as("anna", "other@gmail.example", &scopes).await;
        for (tool, arguments) in [(TOOL, email()), ("calendar_event_create", event.clone())] {
            let refused = call(tool, arguments, "k2").await;
            assert_eq!(refused.code(), "account_changed");
            let words = refused.error()["message"].to_string();
            assert!(words.contains("anna@gmail.example"), "{words}");
        }
        // A completed call returns its stored answer.
        call(TOOL, email(), "k1").await.ok();
        assert_eq!(world.google.seen("send").len(), 1);
        world.connect("anna").await;
        call("calendar_event_create", event, "k2").await.ok();
    }

    /// Promise: at most once.
    async fn what_was_never_sent_is_sent_once_it_is_certain(world: World) {
        world.connect("anna").await;
        world.google.put_mail(&account("anna"), "Subject: old\n\nx\n", "SENT", Duration::from_secs(3600));
        let server = world.server().await;
        world.google.trouble("send", [Trouble::CutBefore]);
        server.doubt("k", "anna", TOOL, email()).await;
        let said = server.doubt("k", "anna", TOOL, email()).await;
        assert!(said.contains("made only recently"), "{said}");
        assert_eq!(world.google.seen("send").len(), 1);
        world.sql(LATER).await;
        assert_eq!(server.with_key("k", "anna", TOOL, email()).await.ok()["recovered"], false);
        assert_eq!(world.google.sent(&account("anna")).len(), 2);
        server.with_key("k", "anna", TOOL, email()).await.ok();
        assert_eq!(world.google.seen("send").len(), 2);
    }

    /// Promise: at most once. A message that a search misses and that nothing explains stays in doubt.
    async fn an_unexplained_e_mail_in_the_mailbox_keeps_the_call_in_doubt(world: World) {
        world.connect("anna").await;
        let server = world.server().await;
        world.google.trouble("send", [Trouble::CutBefore]);
        server.doubt("k", "anna", TOOL, email()).await;
        // Another message of ours explains itself.
        server.with_key("k2", "anna", TOOL, email()).await.ok();
        world.google.put_mail(&account("anna"), "Subject: by hand\n\nx\n", "SENT", Duration::ZERO);
        world.sql(LATER).await;
        let said = server.doubt("k", "anna", TOOL, email()).await;
        assert!(said.contains("could be this one"), "{said}");
        assert_eq!(world.google.seen("send").len(), 2);
    }

    /// Promise: at most once.
    async fn a_lookup_that_fails_or_is_not_allowed_permits_no_sending(world: World) {
        world.connect("anna").await;
        world.connect_with("ben", &format!("{SEND} {EVENTS}")).await;
        let server = world.server().await;
        world.google.trouble("send", [Trouble::CutBefore, Trouble::CutBefore]);
        for user in ["anna", "ben"] {
            server.doubt("k", user, TOOL, email()).await;
        }
        world.sql(LATER).await;
        world.google.trouble("list", vec![Trouble::Refuse(503, "backendError"); 3]);
        let said = server.doubt("k", "anna", TOOL, email()).await;
        assert!(said.contains("could not be searched"), "{said}");
        for nothing in ["{}", r#"{"error": {"code": 503}}"#, r#"{"resultSizeEstimate": 1}"#] {
            world.google.trouble("list", [Trouble::Says(200, nothing)]);
            let said = server.doubt("k", "anna", TOOL, email()).await;
            assert!(said.contains("could not be searched"), "{said}");
        }
        world.google.trouble("list", [Trouble::Fine, Trouble::Refuse(403, "forbidden")]);
        let said = server.doubt("k", "anna", TOOL, email()).await;
        assert!(said.contains("could not be read"), "{said}");
        let said = server.doubt("k", "ben", TOOL, email()).await;
        assert!(said.contains("does not allow reading"), "{said}");
        assert_eq!(world.google.seen("send").len(), 2);
        // Another mailbox does not show the first one's messages.
        world.connect_as("anna", "other@gmail.example", &format!("{SEND} {READ} {EVENTS}")).await;
        let said = server.doubt("k", "anna", TOOL, email()).await;
        assert!(said.contains("another account"), "{said}");
        assert_eq!(world.google.seen("send").len(), 2);
    }

    /// Promise: at most once. With gmail.metadata no search is possible, and no body can be read.
    async fn the_least_scope_that_can_look_is_enough(world: World) {
        world.connect_with("anna", &format!("{SEND} {METADATA}")).await;
        let server = world.server().await;
        world.google.trouble("send", [Trouble::CutAfter]);
        server.doubt("k", "anna", TOOL, email()).await;
        assert_eq!(server.with_key("k", "anna", TOOL, email()).await.ok()["recovered"], true);
        assert_eq!(world.google.sent(&account("anna")).len(), 1);
    }

    /// Promise: at most once. An index that lags behind proves nothing.
    async fn a_search_that_is_behind_does_not_send_twice(world: World) {
        world.google.keep_message_ids();
        world.google.let_search_lag();
        world.connect("anna").await;
        let server = world.server().await;
        world.google.trouble("send", [Trouble::CutAfter]);
        server.doubt("k", "anna", TOOL, email()).await;
        world.sql(LATER).await;
        assert_eq!(server.with_key("k", "anna", TOOL, email()).await.ok()["recovered"], true);
        assert_eq!(world.google.sent(&account("anna")).len(), 1);
    }

    /// Promise: at most once.
    async fn a_slow_google_ends_in_doubt_and_never_in_a_second_send(world: World) {
        let mut world = world;
        world.environment.insert("GOOGLE_TIMEOUT_SECONDS", "1".to_owned());
        world.connect("anna").await;
        let server = world.server().await;
        world.google.trouble("send", [Trouble::Silence]);
        server.doubt("k", "anna", TOOL, email()).await;
        assert_eq!(server.with_key("k", "anna", TOOL, email()).await.ok()["recovered"], true);
        // Without a key a lookup is impossible.
        world.google.trouble("send", [Trouble::CutAfter]);
        let said = server.try_call(TOOL, email(), json!({ "gavel/user_id": "anna" })).await;
        assert!(said.expect_err("doubt").to_string().contains("no idempotency key"));
        assert_eq!(world.google.sent(&account("anna")).len(), 2);
    }

    /// Promise: at most once. Even a week later. An answered key is deleted a week after its answer.
    async fn a_doubt_does_not_age_and_an_answer_does(world: World) {
        world.connect("anna").await;
        let server = world.server().await;
        server.with_key("answered", "anna", TOOL, email()).await.ok();
        world.google.trouble("send", [Trouble::CutAfter]);
        server.doubt("k", "anna", TOOL, email()).await;
        server.kill().await;
        let age = "UPDATE google_calls SET attempted_at = attempted_at - 691200000000, \
                   answered_at = answered_at - 691200000000";
        world.sql(age).await;
        let server = world.server().await;
        while !server.log().contains("were deleted") {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(server.with_key("k", "anna", TOOL, email()).await.ok()["recovered"], true);
        assert_eq!(server.with_key("k", "anna", TOOL, email()).await.ok()["recovered"], true, "as it was answered");
        assert_eq!(world.google.sent(&account("anna")).len(), 2);
        world.sql(age).await;
        assert_eq!(server.with_key("k", "anna", TOOL, email()).await.ok()["recovered"], false);
        assert_eq!(world.google.sent(&account("anna")).len(), 3);
    }

    /// Promise: at most once. A repeat that fails does not say that nothing was done.
    async fn a_repeat_that_is_refused_leaves_the_doubt(world: World) {
        const EVENT: &str = "calendar_event_create";
        let mut world = world;
        world.environment.insert("GOOGLE_TIMEOUT_SECONDS", "1".to_owned());
        world.connect("anna").await;
        let server = world.server().await;
        let begins = chrono::Utc::now() + Duration::from_secs(8);
        let event = json!({
            "summary": "Soon", "start": begins.to_rfc3339(), "end": (begins + Duration::from_secs(60)).to_rfc3339()
        });
        world.google.trouble("insert", [Trouble::Silence]);
        world.google.trouble("insert", vec![Trouble::Refuse(503, "backendError"); 3]);
        for key in ["made", "not made"] {
            server.doubt(key, "anna", EVENT, event.clone()).await;
        }
        world.google.trouble("send", [Trouble::CutAfter]);
        server.doubt("k", "anna", TOOL, email()).await;
        server.kill().await;

        world.sql("ALTER TABLE google_connections RENAME TO elsewhere").await;
        let server = world.server().await;
        let said = server.doubt("k", "anna", TOOL, email()).await;
        assert!(said.contains("earlier call with this key") && said.contains("store_unavailable"), "{said}");
        world.sql("ALTER TABLE elsewhere RENAME TO google_connections").await;
        world.google.trouble("token", vec![Trouble::Refuse(503, "backendError"); 2]);
        let said = server.doubt("k", "anna", TOOL, email()).await;
        assert!(said.contains("google_unavailable"), "{said}");
        assert_eq!(server.with_key("k", "anna", TOOL, email()).await.ok()["recovered"], true);
        assert_eq!(world.google.sent(&account("anna")).len(), 1);

        // By now the event would have begun: it is looked up, but not created.
        tokio::time::sleep((begins - chrono::Utc::now()).to_std().unwrap_or_default()).await;
        assert_eq!(server.with_key("made", "anna", EVENT, event.clone()).await.ok()["recovered"], true);
        let said = server.doubt("not made", "anna", EVENT, event.clone()).await;
        assert!(said.contains("would begin in the past by now"), "{said}");
        assert_eq!(server.with_key("new", "anna", EVENT, event).await.code(), "in_the_past");
        assert_eq!(world.google.events(&account("anna")).len(), 1);
    }
}
