use gavel_mcp_google::connect::{ConnectError, Disconnected};
use serde_json::json;

use crate::google::{EVENTS, READ, SEND, Trouble};
use crate::harness::{REDIRECT, account};

on_both! {
    ///
    async fn an_account_is_connected_used_listed_and_disconnected(world: World) {
        let connector = world.connector().await;
        let begun = connector.begin("anna", REDIRECT).await.expect("begun");
        for part in ["scope=", "gmail.send", "state=", "code_challenge="] {
            assert!(begun.url.contains(part), "{}", begun.url);
        }
        let scopes = format!("{SEND} {READ} {EVENTS}");
        let code = world.google.consent(&begun.url, &account("anna"), &scopes);
        let connected = connector.finish("anna", &begun.state, &code).await.expect("connected");
        assert_eq!(connected.address.as_deref(), Some("anna@gmail.example"));
        assert_eq!(connected.scopes.join(" "), scopes);
        let server = world.server().await;
        let email = json!({ "to": ["ben@example.com"], "subject": "x", "body": "x" });
        server.call("anna", "gmail_send", email.clone()).await.ok();
        let listed = connector.connected().await.expect("a list");
        assert_eq!(listed.len(), 1);
        assert!(listed[0].user == "anna" && !listed[0].reconnect_required);

        // The server's token is still valid at Google, but is no longer used.
        assert_eq!(connector.disconnect("anna").await.expect("disconnected"), Disconnected::TakenBack);
        assert_eq!(connector.disconnect("anna").await.expect("nothing to disconnect"), Disconnected::None);
        assert!(world.google.refresh_tokens().is_empty(), "the consent is revoked at Google");
        assert_eq!(server.call("anna", "gmail_send", email).await.code(), "not_connected");
        assert_eq!(world.google.seen("send").len(), 1);
    }

    /// `google_account` reports whether a call is possible, without making it.
    async fn an_account_is_looked_at_before_it_is_used(world: World) {
        let server = world.server().await;
        let look = async |tool: &str| server.call("anna", "google_account", json!({ "for": tool })).await;
        assert_eq!(look("gmail_send").await.code(), "not_connected");
        let connector = world.connector().await;
        let begun = connector.begin("anna", REDIRECT).await.expect("begun");
        let code = world.google.consent(&begun.url, &account("anna"), SEND);
        connector.finish("anna", &begun.state, &code).await.expect("connected");
        assert_eq!(look("gmail_send").await.ok()["ready"], true);
        assert_eq!(look("calendar_event_create").await.code(), "missing_scope");
        assert_eq!(look("another").await.code(), "invalid_argument");
        world.connect("anna").await;
        world.google.take_back(&account("anna"));
        assert_eq!(look("gmail_send").await.code(), "reconnect_required");
        assert!(world.google.seen("send").is_empty());
    }

    /// what the tool would reject is reported before approval is requested.
    async fn a_call_is_looked_at_before_anybody_is_asked(world: World) {
        let mut world = world;
        world.environment.insert("GOOGLE_MAX_MESSAGE_BYTES", "9000".to_owned());
        world.connect("anna").await;
        world.connect_with("ben", SEND).await;
        let server = world.server().await;
        let look = async |user: &str, tool: &str, arguments: serde_json::Value| {
            let asked = json!({ "for": tool, "arguments": arguments });
            server.call(user, "google_account", asked).await
        };
        let mail = |name: &str, value: serde_json::Value| {
            let mut email = json!({ "to": ["ben@example.com"], "subject": "x", "body": "x" });
            email[name] = value;
            email
        };
        for (arguments, code) in [
            (mail("subject", json!("  ")), "invalid_argument"),
            (mail("subject", json!("x".repeat(901))), "too_long"),
            (mail("body", json!("a\u{0}b")), "nul_character"),
            (mail("body", json!(" ")), "invalid_argument"),
            (mail("body", json!("x".repeat(10_000))), "too_long"),
            (mail("thread_id", json!("../x")), "invalid_argument"),
            (mail("thread_id", json!("abc")), "not_found"),
            (mail("reply_to_message_id", json!("abc")), "not_found"),
        ] {
            let refused = look("anna", "gmail_send", arguments).await;
            assert_eq!(refused.code(), code);
            assert_eq!(refused.error()["class"], "arguments", "{refused:?}");
        }
        let refused = look("ben", "gmail_send", mail("thread_id", json!("abc"))).await;
        assert_eq!((refused.code(), &refused.error()["class"]), ("missing_scope", &json!("auth")));
        for (event, code) in [
            (json!({ "summary": "x", "start": "2020-01-01", "end": "2020-01-02" }), "in_the_past"),
            (json!({ "summary": "x".repeat(1025), "start": "2099-01-01", "end": "2099-01-02" }), "too_long"),
        ] {
            let refused = look("anna", "calendar_event_create", event).await;
            assert_eq!((refused.code(), &refused.error()["class"]), (code, &json!("arguments")));
        }
        let good = look("anna", "gmail_send", mail("cc", json!(["ann@example.com"]))).await.ok();
        assert_eq!(good["account"], account("anna"));
        assert!(world.google.seen("send").is_empty());
    }

    /// a failed revocation at Google is not reported as a success.
    async fn a_consent_that_google_did_not_withdraw_is_reported(world: World) {
        let connector = world.connector().await;
        for trouble in [Trouble::Refuse(503, "backendError"), Trouble::CutBefore, Trouble::CutAfter] {
            world.connect("anna").await;
            world.google.trouble("revoke", [trouble]);
            assert_eq!(connector.disconnect("anna").await.expect("forgotten"), Disconnected::Forgotten);
            assert!(connector.connected().await.expect("listed").is_empty());
        }
        // If the user has already revoked the consent, nothing more is needed.
        world.connect("anna").await;
        world.google.take_back(&account("anna"));
        assert_eq!(connector.disconnect("anna").await.expect("disconnected"), Disconnected::TakenBack);
    }

    /// otherwise a link could connect one user's mailbox to another user's account.
    async fn an_authorization_is_finished_once_in_time_by_who_began_it(world: World) {
        let connector = world.connector().await;
        let consent = |url: &str| world.google.consent(url, "victim@gmail.example", SEND);
        let begun = connector.begin("eve", REDIRECT).await.expect("begun");
        let code = consent(&begun.url);
        for (user, state) in [("anna", begun.state.as_str()), ("eve", "made up"), ("eve", "")] {
            let refused = connector.finish(user, state, &code).await;
            assert!(matches!(refused, Err(ConnectError::UnknownState)), "{refused:?}");
        }
        connector.finish("eve", &begun.state, &code).await.expect("connected");
        let again = connector.finish("eve", &begun.state, &code).await;
        assert!(matches!(again, Err(ConnectError::UnknownState)), "{again:?}");

        let begun = connector.begin("anna", REDIRECT).await.expect("begun");
        let code = consent(&begun.url);
        world.sql("UPDATE google_authorizations SET expires_at = expires_at - 600000001").await;
        let late = connector.finish("anna", &begun.state, &code).await;
        assert!(matches!(late, Err(ConnectError::UnknownState)), "{late:?}");

        // The code of one authorization does not match another one: PKCE.
        let first = connector.begin("anna", REDIRECT).await.expect("begun");
        let stolen = consent(&first.url);
        let second = connector.begin("anna", REDIRECT).await.expect("begun");
        let refused = connector.finish("anna", &second.state, &stolen).await;
        assert!(matches!(&refused, Err(ConnectError::Refused(code)) if code == "invalid_grant"), "{refused:?}");
        let listed = connector.connected().await.expect("a list");
        assert_eq!(listed.iter().map(|one| one.user.as_str()).collect::<Vec<_>>(), ["eve"]);
    }

    ///
    async fn what_cannot_be_begun_is_refused(world: World) {
        let connector = world.connector().await;
        for redirect in ["http://gavel.example/callback", "ftp://x", "callback", "http://127.0.0.1.evil.example/x"] {
            let refused = connector.begin("anna", redirect).await;
            assert!(matches!(refused, Err(ConnectError::InvalidRedirect)), "{redirect}");
        }
        for user in ["", " ", "a\nb"] {
            let refused = connector.begin(user, REDIRECT).await;
            assert!(matches!(refused, Err(ConnectError::InvalidUser)), "{user:?}");
        }
        connector.begin("anna", "https://gavel.example/callback").await.expect("begun");
        connector.begin("anna", "http://localhost:8080/callback").await.expect("begun");
    }

    /// Secrets are never stored in plain text.
    async fn nothing_in_the_database_can_be_used_by_who_reads_it(world: World) {
        let connector = world.connector().await;
        world.connect("anna").await;
        let begun = connector.begin("ben", REDIRECT).await.expect("begun");
        let state = world.text("SELECT state FROM google_authorizations").await;
        assert!(!begun.state.contains(&state) && !state.contains(&begun.state));
        let token = world.google.refresh_tokens().remove(0);
        let kept = world.text("SELECT refresh_token FROM google_connections").await;
        assert!(!kept.contains(&token) && !kept.contains("canary"));
        if world.database == crate::harness::Database::Sqlite {
            let directory = world.directory().join("new");
            for file in std::fs::read_dir(directory).expect("a folder") {
                let bytes = std::fs::read(file.expect("a file").path()).expect("bytes");
                let holds = |secret: &str| bytes.windows(secret.len()).any(|part| part == secret.as_bytes());
                assert!(!holds(&token) && !holds(&begun.state) && !holds("canary"));
            }
        }
        // A row does not work for another user either.
        world
            .sql(
                "INSERT INTO google_connections (user_id, generation, refresh_token, scopes, connected_at)
                 SELECT 'eve', generation, refresh_token, scopes, connected_at FROM google_connections",
            )
            .await;
        let server = world.server().await;
        let email = json!({ "to": ["ben@example.com"], "subject": "x", "body": "x" });
        assert_eq!(server.call("eve", "gmail_send", email).await.code(), "misconfigured");
        assert!(world.google.seen("send").is_empty());
    }
}
