use serde_json::{Value, json};

use crate::google::{EVENTS, READ, SEND, SERVICE_ACCOUNT, Trouble};
use crate::harness::{PRIVATE_KEY, TOKEN_KEY, account};

const NEW_KEY: &str = "202122232425262728292a2b2c2d2e2f303132333435363738393a3b3c3d3e3f";

fn email() -> Value {
    json!({ "to": ["ben@example.com"], "subject": "x", "body": "x" })
}

fn meeting() -> Value {
    json!({ "summary": "x", "start": "2099-07-01", "end": "2099-07-02" })
}

on_both! {
    ///
    async fn a_token_is_used_until_it_expires_and_renewed_once_when_google_does_not_take_it(world: World) {
        world.connect("anna").await;
        let server = world.server().await;
        for _ in 0..3 {
            server.call("anna", "gmail_send", email()).await.ok();
        }
        // One request to connect, one to send.
        assert_eq!(world.google.seen("token").len(), 2);
        world.google.forget_access_tokens();
        server.call("anna", "gmail_send", email()).await.ok();
        assert_eq!(world.google.seen("token").len(), 3);
        assert_eq!(world.google.sent(&account("anna")).len(), 4);
        world.google.trouble("send", [Trouble::Refuse(401, "authError"), Trouble::Refuse(401, "authError")]);
        assert_eq!(server.call("anna", "gmail_send", email()).await.code(), "reconnect_required");
        assert_eq!(world.google.seen("token").len(), 4);
        // A token that is about to expire is not used.
        world.google.tokens_expire_in(30);
        world.google.forget_access_tokens();
        for _ in 0..2 {
            let before = world.google.seen("token").len();
            server.call("anna", "gmail_send", email()).await.ok();
            assert!(world.google.seen("token").len() > before);
        }
    }

    /// the different reasons are distinguished.
    async fn a_withdrawn_consent_is_distinguished_from_a_missing_one(world: World) {
        world.connect_with("anna", &format!("{SEND} {READ}")).await;
        let server = world.server().await;
        let reply = server.call("anna", "calendar_event_create", meeting()).await;
        assert_eq!(reply.code(), "missing_scope");
        assert_eq!(reply.error()["scope"], EVENTS);
        assert!(world.google.seen("insert").is_empty());
        server.call("anna", "gmail_send", email()).await.ok();
        world.google.trouble("send", [Trouble::Refuse(403, "insufficientPermissions")]);
        assert_eq!(server.call("anna", "gmail_send", email()).await.code(), "missing_scope");

        world.google.take_back(&account("anna"));
        assert_eq!(server.with_key("k", "anna", "gmail_send", email()).await.code(), "reconnect_required");
        let asked = world.google.seen("token").len();
        assert_eq!(server.call("anna", "gmail_send", email()).await.code(), "reconnect_required");
        assert_eq!(world.google.seen("token").len(), asked, "Google is not asked again");
        let connector = world.connector().await;
        assert!(connector.connected().await.expect("a list")[0].reconnect_required);
        world.connect("anna").await;
        server.with_key("k", "anna", "gmail_send", email()).await.ok();
        server.call("anna", "calendar_event_create", meeting()).await.ok();
        assert!(!connector.connected().await.expect("a list")[0].reconnect_required);
    }

    ///
    async fn a_new_key_takes_over_from_the_old_one(world: World) {
        let mut world = world;
        world.connect("anna").await;
        world.environment.insert("GOOGLE_TOKEN_KEY", NEW_KEY.to_owned());
        let server = world.server().await;
        assert_eq!(server.call("anna", "gmail_send", email()).await.code(), "misconfigured");
        world.environment.insert("GOOGLE_TOKEN_KEY", format!("{NEW_KEY} {TOKEN_KEY}"));
        world.server().await.call("anna", "gmail_send", email()).await.ok();
        world.environment.insert("GOOGLE_TOKEN_KEY", NEW_KEY.to_owned());
        world.server().await.call("anna", "gmail_send", email()).await.ok();
    }

    ///
    async fn a_token_endpoint_that_is_unavailable_does_no_harm(world: World) {
        world.connect("anna").await;
        let server = world.server().await;
        world.google.trouble("token", [Trouble::Refuse(503, "x"), Trouble::CutBefore]);
        let reply = server.with_key("k", "anna", "gmail_send", email()).await;
        assert_eq!(reply.code(), "google_unavailable");
        assert_eq!(reply.error()["retryable"], true);
        // Not a code of RFC 6749: it came from an intermediary, and no credentials are invalid.
        world.google.trouble("token", [Trouble::Refuse(400, "x")]);
        let reply = server.with_key("k", "anna", "gmail_send", email()).await;
        assert_eq!(reply.code(), "google_unavailable");
        world.google.trouble("token", [Trouble::Refuse(503, "x")]);
        server.with_key("k", "anna", "gmail_send", email()).await.ok();
        assert_eq!(world.google.sent(&account("anna")).len(), 1);
    }

    /// domain-wide delegation.
    async fn a_service_account_acts_only_as_the_user(world: World) {
        let mut world = world;
        let key = json!({
            "type": "service_account", "client_email": SERVICE_ACCOUNT, "private_key": PRIVATE_KEY,
            "private_key_id": "k1", "token_uri": "https://elsewhere.example/token"
        });
        let path = world.file("account.json", &key.to_string());
        world.environment.clear();
        world.environment.insert("GOOGLE_SERVICE_ACCOUNT_FILE", path.display().to_string());
        let server = world.server().await;
        server.call("anna@example.com", "gmail_send", email()).await.ok();
        server.call("ben@example.com", "calendar_event_create", meeting()).await.ok();
        assert_eq!(world.google.sent("anna@example.com").len(), 1);
        assert_eq!(world.google.events("ben@example.com").len(), 1);
        let claims = world.google.assertions();
        assert_eq!(claims.len(), 2);
        assert_eq!(claims[0]["sub"], "anna@example.com");
        assert_eq!(claims[0]["aud"], world.google.url("/token"));
        assert_eq!(claims[0]["scope"], format!("{SEND} {READ} {EVENTS}"));
        // A user's id that is not an address, and an address that Google does not know.
        for stranger in ["anna", "x@elsewhere.example"] {
            for (tool, arguments) in [("gmail_send", email()), ("google_account", json!({ "for": "gmail_send" }))] {
                let reply = server.call(stranger, tool, arguments).await;
                assert_eq!(reply.code(), "not_connected", "{stranger}");
                // So that approval is not requested first, and the error tells the user what to do.
                assert_eq!(reply.error()["class"], "auth", "{stranger}");
                let words = reply.error()["message"].to_string();
                assert!(words.contains("the operator checks the service account"), "{words}");
            }
        }

        let users = world.file("users.json", &json!({ "anna": "anna@example.com" }).to_string());
        world.environment.insert("GOOGLE_SERVICE_ACCOUNT_USERS_FILE", users.display().to_string());
        let server = world.server().await;
        server.call("anna", "gmail_send", email()).await.ok();
        assert_eq!(server.call("ben@example.com", "gmail_send", email()).await.code(), "not_connected");
        assert_eq!(world.google.sent("anna@example.com").len(), 2);

        world.environment.insert("GOOGLE_SCOPES", format!("{SEND} https://www.googleapis.com/auth/calendar"));
        let server = world.server().await;
        assert_eq!(server.call("anna", "gmail_send", email()).await.code(), "missing_scope");
    }
}
