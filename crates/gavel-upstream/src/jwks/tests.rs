//! Which keys verify, and when they are fetched again.

use serde_json::json;

use super::*;

/// RFC 8037 appendix A.2 and RFC 7517 appendix A.1: published keys.
fn ed(id: &str) -> Value {
    json!({"kty": "OKP", "crv": "Ed25519", "kid": id, "use": "sig", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"})
}

fn ec() -> Value {
    json!({
        "kty": "EC", "crv": "P-256", "kid": "ec",
        "x": "MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4", "y": "4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM",
    })
}

fn rsa(bits: usize) -> Value {
    // A modulus of that many bits, all ones: it parses, and is no real key.
    let modulus = base64::Engine::encode(&base64::engine::general_purpose::URL_SAFE_NO_PAD, vec![0xff; bits / 8]);
    json!({"kty": "RSA", "n": modulus, "e": "AQAB", "kid": "rsa", "alg": "RS256"})
}

fn document(keys: &[Value]) -> String {
    json!({ "keys": keys }).to_string()
}

fn hasty() -> JwksTimes {
    JwksTimes {
        fresh: Duration::ZERO,
        floor: Duration::ZERO,
        ..JwksTimes::default()
    }
}

fn source(server: &mockito::Server, times: JwksTimes) -> Jwks {
    Jwks::with_times(Url::parse(&server.url()).unwrap(), times).unwrap()
}

async fn answer(server: &mut mockito::Server, body: &str) -> mockito::Mock {
    server.mock("GET", "/").with_body(body).create_async().await
}

#[test]
fn a_key_may_be_used_for_what_its_kind_allows() {
    let keys = parse(document(&[ed("a"), ec(), rsa(2048)]).as_bytes()).unwrap();
    let algorithms: Vec<_> = keys.iter().map(|key| key.algorithms.clone()).collect();
    assert_eq!(
        algorithms,
        [vec![Algorithm::EdDSA], vec![Algorithm::ES256], vec![Algorithm::RS256]]
    );
    assert_eq!(keys[0].id.as_deref(), Some("a"));
}

#[test]
fn keys_that_cannot_verify_are_left_out_one_by_one() {
    let with = |mut key: Value, name: &str, value: Value| {
        key[name] = value;
        key
    };
    let bad = [
        json!({"kty": "oct", "k": "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LTMyYnl0ZXM"}),
        with(ed("a"), "use", json!("enc")),
        with(ed("a"), "alg", json!("HS256")),
        with(ec(), "alg", json!("RS256")),
        with(ec(), "crv", json!("P-521")),
        with(ec(), "x", json!("!!")),
        rsa(1024),
        json!({"kty": "new"}),
        json!(7),
    ];
    for key in &bad {
        assert!(parse(document(std::slice::from_ref(key)).as_bytes()).is_err(), "{key}");
    }
    let all: Vec<_> = bad.iter().cloned().chain([ed("good")]).collect();
    assert_eq!(parse(document(&all).as_bytes()).unwrap().len(), 1);
    for text in ["", "[]", "{}", "{\"keys\":7}", "{\"keys\":[]}"] {
        assert!(parse(text.as_bytes()).is_err(), "{text}");
    }
}

#[tokio::test]
async fn keys_are_fetched_once_while_they_are_fresh() {
    let mut server = mockito::Server::new_async().await;
    let mock = answer(&mut server, &document(&[ed("a")])).await.expect(1);
    let source = source(&server, JwksTimes::default());
    let sets = futures_util::future::join_all((0..20).map(|_| source.current())).await;
    assert!(sets.iter().all(|set| set.as_ref().unwrap().generation == 1));
    mock.assert_async().await;
}

#[tokio::test]
async fn a_new_key_is_found_but_not_more_often_than_the_floor_allows() {
    let mut server = mockito::Server::new_async().await;
    answer(&mut server, &document(&[ed("old")])).await;
    let eager = source(
        &server,
        JwksTimes {
            floor: Duration::ZERO,
            ..JwksTimes::default()
        },
    );
    let patient = source(&server, JwksTimes::default());
    let (first, second) = (eager.current().await.unwrap(), patient.current().await.unwrap());
    server.reset();
    let mock = answer(&mut server, &document(&[ed("new")])).await.expect(1);
    let found = eager.newer(first.generation).await.unwrap();
    assert_eq!((found.generation, found.keys[0].id.as_deref()), (2, Some("new")));
    let same = patient.newer(second.generation).await.unwrap();
    assert_eq!(same.generation, second.generation, "the keys were fetched a moment ago");
    mock.assert_async().await;
}

#[tokio::test]
async fn old_keys_serve_while_the_issuer_is_unavailable_and_not_for_ever() {
    let forgetful = JwksTimes {
        stale: Duration::ZERO,
        ..hasty()
    };
    for (times, serve) in [(hasty(), true), (forgetful, false)] {
        let mut server = mockito::Server::new_async().await;
        answer(&mut server, &document(&[ed("a")])).await;
        let source = source(&server, times);
        assert_eq!(source.current().await.unwrap().generation, 1);
        server.reset();
        server.mock("GET", "/").with_status(500).create_async().await;
        assert_eq!(source.current().await.is_ok(), serve);
    }
}

/// A caller that hangs up does not stop the fetch for other callers.
#[tokio::test]
async fn a_caller_who_hangs_up_does_not_end_the_fetch_for_the_others() {
    let mut server = mockito::Server::new_async().await;
    let body = document(&[ed("a")]);
    let slow = move |writer: &mut dyn std::io::Write| {
        std::thread::sleep(Duration::from_millis(300));
        writer.write_all(body.as_bytes())
    };
    let mock = server
        .mock("GET", "/")
        .with_chunked_body(slow)
        .expect(1)
        .create_async()
        .await;
    let source = source(&server, JwksTimes::default());
    let hung_up = tokio::time::timeout(Duration::from_millis(100), source.current()).await;
    assert!(hung_up.is_err());
    assert_eq!(source.current().await.unwrap().generation, 1);
    mock.assert_async().await;
}

#[tokio::test]
async fn what_is_no_key_set_is_none() {
    let huge = "x".repeat(MAX_BYTES + 1);
    for body in ["{", "{\"keys\":[]}", &huge] {
        let mut server = mockito::Server::new_async().await;
        answer(&mut server, body).await;
        assert!(source(&server, hasty()).current().await.is_err());
    }
    let mut server = mockito::Server::new_async().await;
    let elsewhere = server
        .mock("GET", "/")
        .with_status(302)
        .with_header("location", "/keys")
        .create_async()
        .await;
    let keys = server
        .mock("GET", "/keys")
        .with_body(document(&[ed("a")]))
        .expect(0)
        .create_async()
        .await;
    assert!(
        source(&server, hasty()).current().await.is_err(),
        "redirects are not followed"
    );
    elsewhere.assert_async().await;
    keys.assert_async().await;
}
