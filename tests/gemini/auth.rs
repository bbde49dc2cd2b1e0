//! Vertex AI: tokens are obtained, shared, renewed and abandoned.

use std::sync::Arc;
use std::time::Duration;

use gavel::adapters::gemini::{CredentialSource, Credentials, Endpoint, Gemini, GeminiConfig};
use gavel::domain::journal::FaultKind;
use jsonwebtoken::{Algorithm, DecodingKey, Validation};
use mockito::{Matcher, Server};
use serde_json::Value;

use crate::helpers::{MODEL, Question, SHORT, ask, assert_fault, error, quick, said};
use crate::server::{Far, Step, json};

const PRIVATE: &str = include_str!("../fixtures/gemini/service-account.test-key.pem");
const PUBLIC: &str = include_str!("../fixtures/gemini/service-account.test-key.pub.pem");

fn vertex(url: &str, credentials: Credentials) -> Gemini {
    let endpoint = Endpoint::Vertex {
        project: "p-1".to_owned(),
        location: "europe-west4".to_owned(),
        endpoint: Some(url.to_owned()),
        credentials: CredentialSource::Given(credentials),
    };
    Gemini::new(quick(GeminiConfig::new(endpoint, MODEL))).unwrap()
}

fn user(token_url: &str) -> Credentials {
    let json = serde_json::json!({
        "type": "authorized_user",
        "client_id": "id",
        "client_secret": "s",
        "refresh_token": "r/+&=",
        "quota_project_id": "payer",
        "token_uri": token_url,
    });
    Credentials::from_json(&json.to_string(), "test").unwrap()
}

fn token(name: &str, lives: u64) -> Vec<Step> {
    json(
        200,
        &format!(r#"{{"access_token":"{name}","expires_in":{lives},"token_type":"Bearer"}}"#),
    )
}

#[tokio::test]
async fn a_service_account_signs_a_claim_and_its_token_is_sent_with_every_request() {
    let tokens = Far::start([token("ya29.first", 3599)]).await;
    let far = Far::start([json(200, &said("a")), json(200, &said("b"))]).await;
    let account = serde_json::json!({
        "type": "service_account",
        "client_email": "robot@p-1.example",
        "private_key_id": "k1",
        "private_key": PRIVATE,
        "token_uri": format!("{}/token", tokens.url),
    });
    let gemini = vertex(&far.url, Credentials::from_json(&account.to_string(), "test").unwrap());
    ask(&gemini).await.unwrap();
    ask(&gemini).await.unwrap();

    for seen in far.seen() {
        let path = "/v1/projects/p-1/locations/europe-west4/publishers/google/models/gemini-3.8-flash:generateContent";
        assert_eq!(seen.line, format!("POST {path} HTTP/1.1"));
        assert_eq!(seen.header("authorization"), Some("Bearer ya29.first"));
        assert_eq!(seen.header("x-goog-api-key"), None);
    }
    let asked = tokens.seen();
    assert_eq!(asked.len(), 1, "one token serves both");
    let form: Vec<(String, String)> = url::form_urlencoded::parse(&asked[0].body).into_owned().collect();
    assert_eq!(
        form[0],
        (
            "grant_type".into(),
            "urn:ietf:params:oauth:grant-type:jwt-bearer".into()
        )
    );
    assert_eq!(form[1].0, "assertion");
    let mut validation = Validation::new(Algorithm::RS256);
    validation.set_audience(&[format!("{}/token", tokens.url)]);
    let key = DecodingKey::from_rsa_pem(PUBLIC.as_bytes()).unwrap();
    let claim = jsonwebtoken::decode::<Value>(&form[1].1, &key, &validation).unwrap();
    assert_eq!(claim.header.kid.as_deref(), Some("k1"));
    assert_eq!(claim.claims["iss"], "robot@p-1.example");
    assert_eq!(claim.claims["scope"], "https://www.googleapis.com/auth/cloud-platform");
    let life = claim.claims["exp"].as_u64().unwrap() - claim.claims["iat"].as_u64().unwrap();
    assert_eq!(life, 3600);
}

#[tokio::test]
async fn a_users_refresh_token_is_exchanged_and_the_quota_project_sent() {
    let mut tokens = Server::new_async().await;
    let grant = tokens
        .mock("POST", "/token")
        .match_header("content-type", "application/x-www-form-urlencoded")
        .match_body(Matcher::AllOf(vec![
            Matcher::UrlEncoded("grant_type".into(), "refresh_token".into()),
            Matcher::UrlEncoded("client_id".into(), "id".into()),
            Matcher::UrlEncoded("client_secret".into(), "s".into()),
            Matcher::UrlEncoded("refresh_token".into(), "r/+&=".into()),
        ]))
        .with_body(r#"{"access_token":"ya29.user","expires_in":"3599"}"#)
        .create_async()
        .await;
    let far = Far::start([json(200, &said("a"))]).await;
    ask(&vertex(&far.url, user(&format!("{}/token", tokens.url()))))
        .await
        .unwrap();
    grant.assert_async().await;
    let seen = &far.seen()[0];
    assert_eq!(seen.header("authorization"), Some("Bearer ya29.user"));
    assert_eq!(seen.header("x-goog-user-project"), Some("payer"));
}

#[tokio::test]
async fn the_metadata_server_gets_its_required_header() {
    let metadata = Far::start([token("ya29.machine", 3599)]).await;
    let far = Far::start([json(200, &said("a"))]).await;
    let credentials = Credentials::metadata(&metadata.url);
    ask(&vertex(&far.url, credentials)).await.unwrap();
    let seen = &metadata.seen()[0];
    let path = "/computeMetadata/v1/instance/service-accounts/default/token";
    assert_eq!(
        (seen.line.as_str(), seen.header("metadata-flavor")),
        (format!("GET {path} HTTP/1.1").as_str(), Some("Google"))
    );
    assert_eq!(far.seen()[0].header("authorization"), Some("Bearer ya29.machine"));
}

#[tokio::test]
async fn many_requests_at_once_fetch_one_token() {
    let tokens = Far::start([token("one", 3599)]).await;
    let far = Far::start(std::iter::repeat_n(json(200, &said("a")), 32)).await;
    let gemini = Arc::new(vertex(&far.url, user(&tokens.url)));
    let calls: Vec<_> = (0..32)
        .map(|_| {
            let gemini = Arc::clone(&gemini);
            tokio::spawn(async move { ask(&gemini).await })
        })
        .collect();
    for call in calls {
        call.await.unwrap().unwrap();
    }
    assert_eq!((tokens.seen().len(), far.seen().len()), (1, 32));
}

#[tokio::test]
async fn a_token_near_its_end_is_renewed_and_an_ended_one_is_not_used() {
    // The first token has expired by its first use.
    let tokens = Far::start([token("ended", 0), token("fresh", 3599)]).await;
    let far = Far::start([json(200, &said("a")), json(200, &said("b")), json(200, &said("c"))]).await;
    let gemini = vertex(&far.url, user(&tokens.url));
    for _ in 0..3 {
        ask(&gemini).await.unwrap();
    }
    let used: Vec<_> = far
        .seen()
        .iter()
        .map(|seen| seen.header("authorization").unwrap().to_owned())
        .collect();
    assert_eq!(used, ["Bearer ended", "Bearer fresh", "Bearer fresh"]);
}

#[tokio::test]
async fn a_refused_token_is_replaced_once() {
    let refused = json(401, &error(401, "UNAUTHENTICATED", ""));
    let tokens = Far::start([token("old", 3599), token("new", 3599), token("newer", 3599)]).await;
    let far = Far::start([refused.clone(), json(200, &said("a")), refused.clone(), refused]).await;
    let gemini = vertex(&far.url, user(&tokens.url));
    assert_eq!(ask(&gemini).await.unwrap().text(), "a");
    assert_fault(ask(&gemini).await, FaultKind::Credentials, "401 UNAUTHENTICATED", 2);
    let used: Vec<_> = far
        .seen()
        .iter()
        .map(|seen| seen.header("authorization").unwrap().to_owned())
        .collect();
    assert_eq!(used, ["Bearer old", "Bearer new", "Bearer new", "Bearer newer"]);
}

#[tokio::test]
async fn a_token_that_an_error_repeats_is_blanked() {
    let tokens = Far::start([token("short-token", 3599)]).await;
    let body = r#"{"error":{"code":403,"message":"short-token may not do this","status":"PERMISSION_DENIED"}}"#;
    let far = Far::start([json(403, body)]).await;
    let fault = ask(&vertex(&far.url, user(&tokens.url))).await;
    let fault = assert_fault(
        fault,
        FaultKind::Permission,
        "403 PERMISSION_DENIED: … may not do this",
        1,
    );
    assert!(!fault.detail.contains("short-token"), "{}", fault.detail);
}

#[tokio::test]
async fn a_refused_grant_is_reported_not_repeated_and_the_model_is_not_called() {
    let refused = r#"{"error":"invalid_grant","error_description":"Token of jane@example.com has been revoked."}"#;
    let tokens = Far::start([json(400, refused)]).await;
    let far = Far::start([json(200, &said("a"))]).await;
    let fault = ask(&vertex(&far.url, user(&tokens.url))).await;
    let fault = assert_fault(
        fault,
        FaultKind::Credentials,
        "no access token: the token endpoint answered 400 invalid_grant",
        1,
    );
    assert!(!fault.detail.contains("jane"), "{}", fault.detail);
    assert!(far.seen().is_empty());
}

#[tokio::test]
async fn a_failing_token_endpoint_is_retried_and_a_silent_one_ends_at_the_deadline() {
    let busy = json(503, "{}");
    let tokens = Far::start([busy.clone(), token("t", 3599)]).await;
    let far = Far::start([json(200, &said("a"))]).await;
    ask(&vertex(&far.url, user(&tokens.url))).await.unwrap();

    let tokens = Far::start([vec![Step::Hang]]).await;
    let question = Question {
        within: SHORT,
        ..Question::default()
    };
    let fault = question.ask(&vertex(&far.url, user(&tokens.url))).await.unwrap_err();
    assert_eq!(fault.kind, FaultKind::Timeout, "{fault:?}");
}

#[tokio::test]
async fn callers_that_wait_for_a_failed_fetch_share_its_failure() {
    // The response waits for both callers: it starts after a delay, in which the second caller queues.
    let mut slow = vec![Step::Pause(Duration::from_millis(100))];
    slow.extend(json(400, r#"{"error":"invalid_grant"}"#));
    let tokens = Far::start([slow]).await;
    let gemini = vertex("http://127.0.0.1:9", user(&tokens.url));
    let (one, two) = tokio::join!(ask(&gemini), ask(&gemini));
    for fault in [one, two] {
        assert_fault(fault, FaultKind::Credentials, "invalid_grant", 1);
    }
    assert_eq!(tokens.seen().len(), 1);
}

#[test]
fn a_key_that_cannot_sign_stops_the_start() {
    let account =
        r#"{"type":"service_account","client_email":"e","private_key":"-----BEGIN PRIVATE KEY-----\ns3cret"}"#;
    let endpoint = Endpoint::Vertex {
        project: "p".to_owned(),
        location: "global".to_owned(),
        endpoint: None,
        credentials: CredentialSource::Given(Credentials::from_json(account, "test").unwrap()),
    };
    let error = Gemini::new(GeminiConfig::new(endpoint, MODEL))
        .err()
        .unwrap()
        .to_string();
    assert_eq!(error, "private_key: it is not an RSA key in PEM form");
}
