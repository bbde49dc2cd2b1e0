//! No tenant, and no user of a tenant, can take all slots.

use std::time::{SystemTime, UNIX_EPOCH};

use jsonwebtoken::{EncodingKey, Header, encode};
use serde_json::{Value, json};

use super::{HELPER, has_ended, id, path_of};
use crate::gemini::Reply;
use crate::harness::{Answer, App, Setup, spawn_app, until};

const SECRET: &str = "a-shared-secret-of-at-least-32-bytes";

fn bearer(tenant: &str, user: &str) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let claims = json!({
        "iss": "https://issuer.example", "aud": "gavel", "sub": user, "org": tenant, "roles": [], "exp": now + 600,
    });
    let key = EncodingKey::from_secret(SECRET.as_bytes());
    format!("Bearer {}", encode(&Header::default(), &claims, &key).unwrap())
}

async fn setups() -> Vec<App> {
    let mut apps = Vec::new();
    for setup in [Setup::stdio_sqlite(), Setup::stdio_postgres()] {
        let setup = setup
            .agent("helper.md", HELPER)
            .env("GAVEL_AUTH_MODE", "jwt")
            .env("GAVEL_AUTH_JWT_SECRET", SECRET)
            .env("GAVEL_AUTH_JWT_ISSUER", "https://issuer.example")
            .env("GAVEL_AUTH_JWT_AUDIENCE", "gavel")
            .env("GAVEL_AUTH_JWT_TENANT_CLAIM", "org")
            .env("GAVEL_RUNS_BACKGROUND", "8")
            .env("GAVEL_MAX_IN_FLIGHT", "8")
            .script(vec![Reply::from(|request| {
                match request.to_string().contains("slow") {
                    true => Reply::Hang,
                    false => Reply::Text("Hello."),
                }
            })]);
        apps.push(spawn_app(setup).await);
    }
    apps
}

async fn queued(app: &App, tenant: &str, user: &str, query: &str) -> String {
    let headers = [("authorization", &*bearer(tenant, user)), ("prefer", "respond-async")];
    let answer = app
        .trigger_with(&path_of("helper"), &headers, &json!({"query": query}))
        .await;
    assert!([200, 202].contains(&answer.status), "{}", answer.body);
    id(&answer.body)
}

async fn completed(app: &App, tenant: &str, user: &str, run: &str) {
    let headers = [("authorization", &*bearer(tenant, user))];
    let found = async || {
        Answer::of(app.request("GET", &format!("/api/runs/{run}"), &headers))
            .await
            .expect(200)
    };
    until("the run to end", || async { has_ended(&found().await) }).await;
    assert_eq!(found().await["status"], "completed");
}

/// Of eight slots, one user has at most six and a tenant seven: slow runs of one do not delay others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_background_runs_of_a_tenant_keep_slots_free_for_others() {
    for app in setups().await {
        for n in 0..12 {
            queued(&app, "a", "ann", &format!("slow {n}")).await;
        }
        app.asked(6).await;
        let bobs = queued(&app, "a", "bob", "quick").await;
        let eves = queued(&app, "b", "eve", "quick").await;
        completed(&app, "a", "bob", &bobs).await;
        completed(&app, "b", "eve", &eves).await;
        for n in 0..3 {
            queued(&app, "a", "cid", &format!("slow {n}")).await;
        }
        app.asked(9).await;
        let eves = queued(&app, "b", "eve", "quick").await;
        completed(&app, "b", "eve", &eves).await;
        assert_eq!(
            app.gemini.requests().len(),
            10,
            "six of ann's, one of cid's, three quick ones"
        );
    }
}

/// The same for requests with a waiting client: only the user that exceeds their share is answered 503.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_chat_requests_of_a_user_keep_slots_free_for_others() {
    for app in setups().await {
        let say = |tenant: &str, user: &str, message: &str| {
            let authorization = bearer(tenant, user);
            let headers = [("authorization", &*authorization)];
            app.request("POST", "/v1/chat", &headers)
                .json(&json!({"message": message}))
        };
        let slow: Vec<_> = (0..6)
            .map(|n| tokio::spawn(say("a", "ann", &format!("slow {n}")).send()))
            .collect();
        app.asked(6).await;
        let shed = Answer::of(say("a", "ann", "hello")).await;
        assert_eq!(
            (shed.status, &shed.body["outcome_category"]),
            (503, &json!("REFUSAL:OVERLOADED")),
            "{}",
            shed.body
        );
        let served: Value = Answer::of(say("a", "bob", "hello")).await.expect(200);
        assert_eq!(served["outcome_category"], "SUCCESS:RESPONSE_GIVEN", "{served}");
        Answer::of(say("b", "eve", "hello")).await.expect(200);
        slow.iter().for_each(tokio::task::JoinHandle::abort);
    }
}
