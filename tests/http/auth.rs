//! Authentication on the wire.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use gavel::domain::ids::{TenantId, UserId};
use gavel::http::caller::{Auth, ServiceKey, SharedSecret, Tokens};
use gavel::surfaces::caller::{Caller, Identity, KeySet, KeySource, KeysUnavailable};
use jsonwebtoken::{EncodingKey, Header, encode};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::harness::{Answer, HI, Running, Setup, serve};

const SECRET: &[u8] = b"a secret of more than thirty-two bytes";

fn by_key() -> Auth {
    let key = |name: &str, tenant: &str, text: &str| ServiceKey {
        name: Arc::from(name),
        sha256: Sha256::digest(text).into(),
        caller: Caller {
            tenant: TenantId::parse(tenant).unwrap(),
            identity: Identity::Service(Arc::from(name)),
            roles: Arc::default(),
        },
    };
    let mut anns = key("ann's", "acme", "canary-key-of-ann");
    anns.caller.identity = Identity::User(UserId::parse("ann").unwrap());
    Auth::ApiKeys(vec![
        key("backend", "acme", "canary-key-1"),
        key("other", "rival", "canary-key-2"),
        anns,
    ])
}

fn by_token(keys: Arc<dyn KeySource>) -> Auth {
    Auth::Jwt(Tokens {
        keys,
        issuer: "https://issuer.example".to_owned(),
        audience: "gavel".to_owned(),
        tenant_claim: Some("org".to_owned()),
        roles_claim: "roles".to_owned(),
    })
}

fn token(change: impl FnOnce(&mut Value)) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let mut claims =
        json!({"iss": "https://issuer.example", "aud": "gavel", "sub": "ann", "org": "acme", "exp": now + 600});
    change(&mut claims);
    encode(&Header::default(), &claims, &EncodingKey::from_secret(SECRET)).unwrap()
}

async fn with_shared_secret() -> Running {
    let keys = Arc::new(SharedSecret::new(SECRET).unwrap());
    serve(Setup {
        auth: by_token(keys),
        ..Setup::default()
    })
    .await
}

async fn ask(edge: &Running, authorization: &str, body: &'static str) -> Answer {
    edge.post_with(&[("authorization", authorization)], body).await
}

#[tokio::test]
async fn every_protected_route_requires_a_key_and_no_open_one_does() {
    let edge = serve(Setup {
        auth: by_key(),
        ..Setup::default()
    })
    .await;
    let mut closed = 0;
    for (method, path) in edge.routes().await {
        if !path.starts_with("/v1/") && !path.starts_with("/api/") {
            continue;
        }
        closed += 1;
        let request = edge.request(method.clone(), &path);
        let request = request.header("content-type", "application/json").body(HI);
        let answer = Answer::of(request.send().await.unwrap()).await;
        assert_eq!(answer.status, 401, "{method} {path}");
        answer.problem(401, "unauthenticated");
        assert_eq!(answer.header("www-authenticate"), "Bearer realm=\"gavel\"");
    }
    assert_eq!(closed, 57, "the number of protected routes changed");
    for path in ["/livez", "/readyz", "/metrics", "/openapi.json", "/docs"] {
        assert_eq!(edge.get(path).await.status, 200, "{path}");
    }
    assert!(edge.record.closed.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_key_acts_for_any_user_of_its_tenant() {
    let edge = serve(Setup {
        auth: by_key(),
        ..Setup::default()
    })
    .await;
    for headers in [
        [("authorization", "Bearer canary-key-1")],
        [("x-api-key", "canary-key-1")],
    ] {
        assert_eq!(edge.post_with(&headers, HI).await.status, 200);
    }
    let tenants: Vec<_> = edge
        .record
        .closed
        .lock()
        .unwrap()
        .iter()
        .map(|row| row.open.tenant.to_string())
        .collect();
    assert_eq!(tenants, ["acme", "acme"]);
    let missing = edge
        .post_with(&[("x-api-key", "canary-key-1")], r#"{"message":"hi"}"#)
        .await;
    assert_eq!(
        missing.problem(400, "invalid_request")["errors"][0]["pointer"],
        "/user_id"
    );
}

/// R-3: the holder of a user's own key cannot act as another user.
#[tokio::test]
async fn a_key_of_a_user_acts_only_for_that_user() {
    let edge = serve(Setup {
        auth: by_key(),
        ..Setup::default()
    })
    .await;
    let key = ("authorization", "Bearer canary-key-of-ann");
    for body in [r#"{"message":"hi"}"#, r#"{"message":"hi","user_id":"ann"}"#] {
        assert_eq!(edge.post_with(&[key], body).await.status, 200, "{body}");
    }
    let other = r#"{"message":"hi","user_id":"bob"}"#;
    edge.post_with(&[key], other).await.problem(403, "user_mismatch");
    let users: Vec<_> = edge
        .record
        .closed
        .lock()
        .unwrap()
        .iter()
        .map(|row| row.open.user.to_string())
        .collect();
    assert_eq!(users, ["ann", "ann"]);
}

#[tokio::test]
async fn an_invalid_key_gets_no_further_detail() {
    let edge = serve(Setup {
        auth: by_key(),
        ..Setup::default()
    })
    .await;
    let mut reported = Vec::new();
    for invalid in [
        "Bearer canary-key-3",
        "Bearer canary-key-",
        "Basic canary-key-1",
        "Bearer",
        "Bearer ",
    ] {
        let answer = ask(&edge, invalid, HI).await;
        let problem = answer.problem(401, "unauthenticated");
        assert_eq!(
            answer.header("www-authenticate"),
            "Bearer realm=\"gavel\", error=\"invalid_token\""
        );
        assert!(!answer.text.contains("canary"), "{}", answer.text);
        reported.push(problem["detail"].clone());
    }
    reported.dedup();
    assert_eq!(reported.len(), 1, "one wording for every invalid credential");
}

#[tokio::test]
async fn a_token_acts_only_for_its_user() {
    let edge = with_shared_secret().await;
    let good = format!("Bearer {}", token(|_| ()));
    assert_eq!(
        ask(&edge, &good, r#"{"message":"hi"}"#).await.status,
        200,
        "user_id may be omitted"
    );
    assert_eq!(ask(&edge, &good, HI).await.status, 200, "or name the same user");
    ask(&edge, &good, r#"{"message":"hi","user_id":"bob"}"#)
        .await
        .problem(403, "user_mismatch");
    let users: Vec<_> = edge
        .record
        .closed
        .lock()
        .unwrap()
        .iter()
        .map(|row| row.open.user.to_string())
        .collect();
    assert_eq!(users, ["ann", "ann"]);
}

#[tokio::test]
async fn a_user_reads_their_own_rows_and_an_analyst_the_tenants() {
    let edge = with_shared_secret().await;
    let read = async |token: String| {
        let request = edge.request(reqwest::Method::GET, "/v1/decisions").bearer_auth(token);
        assert_eq!(request.send().await.unwrap().status(), 200);
    };
    read(token(|_| ())).await;
    read(token(|claims| claims["roles"] = json!(["analyst"]))).await;
    let queries = edge.record.queries.lock().unwrap();
    let users: Vec<_> = queries
        .iter()
        .map(|(_, query)| query.user.as_ref().map(ToString::to_string))
        .collect();
    assert_eq!(users, [Some("ann".to_owned()), None]);
    assert!(queries.iter().all(|(tenant, _)| tenant.as_str() == "acme"));
}

#[tokio::test]
async fn an_invalid_token_is_refused() {
    let edge = with_shared_secret().await;
    let expired = token(|claims| claims["exp"] = json!(1));
    let foreign = token(|claims| claims["aud"] = json!("another"));
    for invalid in [expired, foreign, "x.y.z".to_owned()] {
        ask(&edge, &format!("Bearer {invalid}"), HI)
            .await
            .problem(401, "unauthenticated");
    }
}

struct Away;

impl KeySource for Away {
    fn current(&self) -> gavel::ports::BoxFuture<'_, Result<Arc<KeySet>, KeysUnavailable>> {
        Box::pin(std::future::ready(Err(KeysUnavailable("canary-of-the-issuer".into()))))
    }
    fn newer(&self, _: u64) -> gavel::ports::BoxFuture<'_, Result<Arc<KeySet>, KeysUnavailable>> {
        self.current()
    }
}

#[tokio::test]
async fn an_unavailable_issuer_is_503_and_not_a_client_error() {
    let edge = serve(Setup {
        auth: by_token(Arc::new(Away)),
        ..Setup::default()
    })
    .await;
    let answer = ask(&edge, &format!("Bearer {}", token(|_| ())), HI).await;
    answer.problem(503, "auth_unavailable");
    assert_eq!(answer.header("retry-after"), "1");
    assert!(!answer.text.contains("canary"));
}

/// Details may name hosts; a probe has no credentials and does not need them.
#[tokio::test]
async fn readiness_shows_details_only_to_authenticated_callers() {
    let edge = serve(Setup {
        auth: by_key(),
        ..Setup::default()
    })
    .await;
    let open = edge.get("/readyz").await;
    assert_eq!(
        open.json()["mcp"][0],
        json!({"server": null, "state": "down", "detail": null})
    );
    assert_eq!(open.json()["definition_hash"], json!(null));
    let request = edge
        .request(reqwest::Method::GET, "/readyz")
        .header("x-api-key", "canary-key-1");
    let known = Answer::of(request.send().await.unwrap()).await;
    assert_eq!(known.json()["mcp"][0]["server"], "tasks");
    assert_eq!(known.json()["mcp"][0]["detail"], "canary-of-the-server");
    assert_eq!(known.json()["definition_hash"].as_str().unwrap().len(), 64);
}

/// Without authentication, another site could reach this port under its own host name (DNS rebinding). Only this
/// machine's names are answered.
#[tokio::test]
async fn without_authentication_only_the_names_of_this_machine_are_answered() {
    let edge = serve(Setup::default()).await;
    for (host, expected) in [
        ("evil.example:8080", 403),
        ("localhost.evil.example", 403),
        ("127.0.0.1.evil.example", 403),
        ("192.168.1.7", 403),
        ("localhost:8080", 200),
        ("127.0.0.1", 200),
        ("[::1]:8080", 200),
    ] {
        let answer = edge.post_with(&[("host", host)], HI).await;
        assert_eq!(answer.status, expected, "{host}");
        let list = edge
            .request("GET".parse().unwrap(), "/v1/decisions")
            .header("host", host);
        assert_eq!(list.send().await.unwrap().status().as_u16(), expected, "{host}");
    }
    let keyed = serve(Setup {
        auth: by_key(),
        ..Setup::default()
    })
    .await;
    let headers = [("host", "gavel.example"), ("authorization", "Bearer canary-key-1")];
    assert_eq!(keyed.post_with(&headers, HI).await.status, 200);
}
