use std::time::Duration;

use serde_json::{Value, json};

use crate::google::Trouble;
use crate::harness::account;

fn email() -> Value {
    json!({ "to": ["canary-to@example.com"], "subject": "canary-subject", "body": "canary-body" })
}

on_both! {
    ///
    async fn each_refusal_of_google_is_a_named_error_and_is_not_tried_again(world: World) {
        world.connect("anna").await;
        let server = world.server().await;
        let cases = [
            (Trouble::Refuse(400, "invalidArgument"), "google_refused"),
            (Trouble::Refuse(403, "delegationDenied"), "access_denied"),
            (Trouble::Refuse(403, "accessNotConfigured"), "misconfigured"),
            (Trouble::Refuse(403, "userRateLimitExceeded"), "rate_limited"),
            (Trouble::RefuseFor(429, "rateLimitExceeded", 7), "rate_limited"),
            (Trouble::Refuse(404, "notFound"), "not_found"),
        ];
        for (number, (trouble, code)) in cases.into_iter().enumerate() {
            world.google.trouble("send", [trouble.clone()]);
            let reply = server.with_key("k", "anna", "gmail_send", email()).await;
            assert_eq!(reply.code(), code, "{trouble:?}");
            assert_eq!(world.google.seen("send").len(), number + 1, "{trouble:?}");
            assert!(!reply.body.to_string().contains("canary"), "{}", reply.body);
        }
        // Nothing was done, so the key is free.
        server.with_key("k", "anna", "gmail_send", email()).await.ok();
        assert_eq!(world.google.sent(&account("anna")).len(), 1);
    }

    /// a request that only reads is retried.
    async fn a_read_is_tried_again_while_there_is_time(world: World) {
        world.connect("anna").await;
        let server = world.server().await;
        let (id, _) = world.google.put_mail(
            &account("anna"), "Subject: x\nMessage-ID: <a@b>\n\nx\n", "INBOX", Duration::from_secs(9),
        );
        let reply = json!({ "to": ["ben@example.com"], "subject": "Re: x", "body": "x", "reply_to_message_id": id });
        world.google.trouble("get", [Trouble::Refuse(503, "backendError"), Trouble::CutBefore]);
        server.call("anna", "gmail_send", reply.clone()).await.ok();
        assert_eq!(world.google.seen("get").len(), 3);
        world.google.trouble("get", vec![Trouble::Refuse(500, "backendError"); 3]);
        assert_eq!(server.call("anna", "gmail_send", reply).await.code(), "google_unavailable");
        assert_eq!(world.google.sent(&account("anna")).len(), 1);
    }

    /// Promise: at most once. A connection that was never established has had no effect, and the error says so.
    async fn a_google_that_cannot_be_reached_leaves_the_key_free(world: World) {
        let mut world = world;
        world.connect("anna").await;
        // The listener is gone, so the port refuses connections.
        let gone = std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address");
        world.environment.insert("GOOGLE_GMAIL_URL", format!("http://{gone}"));
        let server = world.server().await;
        let reply = server.with_key("k", "anna", "gmail_send", email()).await;
        assert_eq!(reply.code(), "google_unavailable");
        assert_eq!(reply.error()["retryable"], true);
        world.environment.remove("GOOGLE_GMAIL_URL");
        let answer = world.server().await.with_key("k", "anna", "gmail_send", email()).await.ok();
        assert_eq!(answer["recovered"], false);
        assert!(world.google.seen("list").is_empty(), "there was nothing to look up");
    }

    /// neither a secret nor a user's text.
    async fn a_log_holds_no_token_no_address_and_no_text(world: World) {
        world.connect("anna").await;
        let server = world.server().await;
        server.with_key("k", "anna", "gmail_send", email()).await.ok();
        world.google.trouble("send", [Trouble::CutAfter, Trouble::Refuse(400, "invalidArgument")]);
        server.doubt("k2", "anna", "gmail_send", email()).await;
        server.with_key("k2", "anna", "gmail_send", email()).await.ok();
        server.with_key("k3", "anna", "gmail_send", email()).await.error();
        let event = json!({
            "summary": "canary-summary", "start": "2099-01-01", "end": "2099-01-02", "attendees": ["canary-a@example.com"]
        });
        server.call("anna", "calendar_event_create", event).await.ok();
        let mut secrets = world.google.refresh_tokens();
        secrets.extend(world.google.access_tokens());
        assert!(secrets.len() >= 3, "to connect, to send, and one that lasts");
        world.google.take_back(&account("anna"));
        server.call("anna", "gmail_send", email()).await.error();
        let log = server.log();
        assert!(log.contains("no answer from Google"), "{log}");
        for secret in secrets.into_iter().chain(["canary".to_owned(), account("anna")]) {
            assert!(!log.contains(&secret), "{secret} in {log}");
        }
    }
}
