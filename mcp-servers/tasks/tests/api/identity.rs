use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, Header};
use rmcp::ClientLifecycleMode;
use serde_json::{Value, json};

use crate::harness::{Caller, Credentials, Database, SECRET, Wire, World, claims, sign, stdio_client};

everywhere! {
    /// C-FR-009
    async fn every_tool_refuses_a_caller_without_identity_and_says_why(world: World) {
        let stranger = world.stranger().await;
        let calls = [
            ("add_task", json!({ "description": "x" })),
            ("list_tasks", json!({})),
            ("update_task", json!({ "title": "x", "priority": "low" })),
            ("complete_task", json!({ "title": "x" })),
            ("delete_task", json!({ "title": "x" })),
        ];
        for (tool, arguments) in calls {
            let reply = stranger.call(tool, arguments).await;
            assert_eq!(reply.code(), "user_required");
        }
    }
}

/// C-FR-009
#[tokio::test]
async fn over_http_a_plain_user_id_is_ignored() {
    let world = World::new(Wire::Http, Database::Sqlite).await;
    let anna = world.caller("anna").await;
    anna.add("a secret plan").await;
    let mut mallory = world.stranger().await;
    let claim = json!({ "gavel/user_id": "anna" });
    let reply = mallory.call_with("list_tasks", json!({}), claim.clone()).await;
    assert_eq!(reply.code(), "user_required");
    // Next to a token it has no effect either.
    mallory.credentials = Credentials::Signed("mallory".to_owned());
    let reply = mallory.call_with("list_tasks", json!({}), claim).await;
    assert_eq!(reply.ok()["total"], 0);
}

fn without(claim: &str) -> Value {
    let mut claims = claims("anna");
    claims.as_object_mut().expect("an object").remove(claim);
    claims
}

fn with(claim: &str, value: Value) -> Value {
    let mut claims = claims("anna");
    claims[claim] = value;
    claims
}

fn unsigned(header: &Value, claims: &Value) -> String {
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    format!("{}.{}.", part(header), part(claims))
}

/// C-FR-009
#[tokio::test]
async fn forged_expired_and_misdirected_tokens_are_refused() {
    let world = World::new(Wire::Http, Database::Sqlite).await;
    world.caller("anna").await.add("a secret plan").await;
    let now = claims("anna")["iat"].as_u64().expect("a time");
    let hs256 = Header::default();
    let good = sign(&claims("anna"), &hs256, SECRET);
    let (signed, signature) = good.rsplit_once('.').expect("a signature");
    let (header, _) = signed.split_once('.').expect("a payload");
    let other_payload = URL_SAFE_NO_PAD.encode(claims("bob").to_string());
    let none = json!({ "alg": "none", "typ": "JWT" });
    let tokens = [
        (
            "another secret",
            sign(&claims("anna"), &hs256, &SECRET.replace('a', "b")),
        ),
        ("alg none", unsigned(&none, &claims("anna"))),
        (
            "alg none, old signature",
            format!("{}{signature}", unsigned(&none, &claims("anna"))),
        ),
        ("alg NONE", unsigned(&json!({ "alg": "NONE" }), &claims("anna"))),
        (
            "another algorithm, valid secret",
            sign(&claims("anna"), &Header::new(Algorithm::HS512), SECRET),
        ),
        ("swapped payload", format!("{header}.{other_payload}.{signature}")),
        ("no signature", format!("{signed}.")),
        ("expired", sign(&with("exp", json!(now - 30)), &hs256, SECRET)),
        (
            "another audience",
            sign(&with("aud", json!("calendar")), &hs256, SECRET),
        ),
        ("another issuer", sign(&with("iss", json!("evil")), &hs256, SECRET)),
        (
            "far too long a life",
            sign(&with("exp", json!(now + 86_400)), &hs256, SECRET),
        ),
        ("issued later", sign(&with("iat", json!(now + 50)), &hs256, SECRET)),
        ("not valid yet", sign(&with("nbf", json!(now + 50)), &hs256, SECRET)),
        ("an empty user", sign(&with("sub", json!("")), &hs256, SECRET)),
        ("a user with NUL", sign(&with("sub", json!("an\0na")), &hs256, SECRET)),
        ("no exp", sign(&without("exp"), &hs256, SECRET)),
        ("no iat", sign(&without("iat"), &hs256, SECRET)),
        ("no aud", sign(&without("aud"), &hs256, SECRET)),
        ("no sub", sign(&without("sub"), &hs256, SECRET)),
        ("no iss", sign(&without("iss"), &hs256, SECRET)),
        ("no token", "anna".to_owned()),
        ("nothing", String::new()),
        ("a huge one", "a".repeat(100_000)),
    ];
    let mut mallory = world.stranger().await;
    for (what, token) in tokens {
        mallory.credentials = Credentials::Token(token);
        let reply = mallory.call("list_tasks", json!({})).await;
        assert_eq!(reply.code(), "invalid_identity", "{what}");
        let reported = reply.body.to_string();
        assert!(!reported.contains(SECRET) && !reported.contains("anna"), "{reported}");
    }
    mallory.credentials = Credentials::None;
    for token in [json!(7), json!({ "sub": "anna" })] {
        let meta = json!({ "gavel/identity": token });
        let reply = mallory.call_with("list_tasks", json!({}), meta).await;
        assert_eq!(reply.code(), "invalid_identity");
    }
    mallory.credentials = Credentials::Token(good);
    assert_eq!(mallory.call("list_tasks", json!({})).await.ok()["total"], 1);
}

/// C-FR-009
#[tokio::test]
async fn over_stdio_the_user_comes_from_meta_or_else_from_the_command_line() {
    let world = World::new(Wire::Stdio, Database::Sqlite).await;
    let arguments = ["--user", "anna"];
    let client = stdio_client(&world.url, &arguments, ClientLifecycleMode::Initialize).await;
    let mut caller = Caller::new(client, Credentials::None).await;
    caller.add("hers").await;
    caller.credentials = Credentials::Plain("bob".to_owned());
    assert!(caller.descriptions(json!({})).await.is_empty());
    caller.add("his").await;
    caller.credentials = Credentials::Plain("anna".to_owned());
    assert_eq!(caller.descriptions(json!({})).await, ["hers"]);
    // An invalid user name is not replaced by the default user.
    caller.credentials = Credentials::None;
    for user in [
        json!(""),
        json!("  "),
        json!(7),
        Value::Null,
        json!("a\0"),
        json!("u".repeat(513)),
    ] {
        let reply = caller
            .call_with("list_tasks", json!({}), json!({ "gavel/user_id": user.clone() }))
            .await;
        assert_eq!(reply.code(), "invalid_identity", "{user}");
    }
}
