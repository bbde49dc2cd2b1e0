//! Users' tokens against an issuer that serves its keys over HTTP: valid ones, rotated keys, unknown keys, an
//! unavailable issuer.

use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http_body_util::Full;
use hyper::Response;
use hyper::body::Bytes;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use serde_json::{Value, json};

use crate::harness::{App, Setup, free_port, spawn_app, until};

/// A published Ed25519 key pair (RFC 8032 section 7.1), in hex.
struct Pair {
    id: &'static str,
    seed: &'static str,
    public: &'static str,
}

const OLD: Pair = Pair {
    id: "old",
    seed: "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
    public: "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
};
const NEW: Pair = Pair {
    id: "new",
    seed: "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
    public: "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
};

fn bytes(hex: &str) -> Vec<u8> {
    let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    (0..hex.len()).step_by(2).map(byte).collect()
}

impl Pair {
    fn jwk(&self) -> Value {
        let x = URL_SAFE_NO_PAD.encode(bytes(self.public));
        json!({"kty": "OKP", "crv": "Ed25519", "kid": self.id, "use": "sig", "alg": "EdDSA", "x": x})
    }

    /// A token of the user `ann`, signed with this key, that names the key `id`.
    fn token_naming(&self, id: &str) -> String {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let claims = json!({"iss": "https://issuer.example", "aud": "gavel", "sub": "ann", "exp": now + 600});
        let header = Header {
            kid: Some(id.to_owned()),
            ..Header::new(Algorithm::EdDSA)
        };
        // PKCS #8 around the seed (RFC 8410).
        let der = [bytes("302e020100300506032b657004220420"), bytes(self.seed)].concat();
        encode(&header, &claims, &EncodingKey::from_ed_der(&der)).unwrap()
    }

    fn token(&self) -> String {
        self.token_naming(self.id)
    }
}

/// Serves a key set, and counts the requests for it.
struct Issuer {
    url: String,
    state: Arc<Mutex<Published>>,
}

#[derive(Default)]
struct Published {
    /// `None`: connections are closed without an answer.
    keys: Option<Vec<Value>>,
    asked: usize,
}

impl Issuer {
    async fn start(port: u16) -> Self {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await.unwrap();
        let url = format!("http://{}/keys", listener.local_addr().unwrap());
        let state: Arc<Mutex<Published>> = Arc::default();
        let shared = Arc::clone(&state);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let shared = Arc::clone(&shared);
                let answer = service_fn(move |_| {
                    let mut published = shared.lock().unwrap();
                    published.asked += 1;
                    let keys = published.keys.clone().ok_or_else(|| std::io::Error::other("away"));
                    let response = |keys| Response::new(Full::new(Bytes::from(json!({ "keys": keys }).to_string())));
                    std::future::ready(keys.map(response))
                });
                tokio::spawn(async move {
                    let _ = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), answer)
                        .await;
                });
            }
        });
        Self { url, state }
    }

    fn publishes(&self, pairs: &[&Pair]) {
        self.state.lock().unwrap().keys = Some(pairs.iter().map(|pair| pair.jwk()).collect());
    }

    fn is_away(&self) {
        self.state.lock().unwrap().keys = None;
    }

    fn asked(&self) -> usize {
        self.state.lock().unwrap().asked
    }
}

async fn app_trusting(url: &str) -> App {
    let toml = format!(
        "[auth]\nmode = \"jwt\"\n[auth.jwt]\nissuer = \"https://issuer.example\"\naudience = \"gavel\"\njwks_url = \"{url}\"\n"
    );
    spawn_app(Setup::stdio_sqlite().toml(&toml)).await
}

async fn says_hi(app: &App, token: &str) -> (u16, Value) {
    let authorization = format!("Bearer {token}");
    let body = json!({"message": "hi"}).to_string();
    let (status, _, answer) = app.post_with(&[("authorization", &authorization)], body).await;
    (status, answer)
}

#[tokio::test]
async fn a_token_is_valid_while_its_issuer_publishes_its_key() {
    let issuer = Issuer::start(0).await;
    issuer.publishes(&[&OLD]);
    let app = app_trusting(&issuer.url).await;
    let (status, decision) = says_hi(&app, &OLD.token()).await;
    assert_eq!(status, 200, "{decision}");
    let record = format!("/v1/decisions/{}", decision["decision_id"].as_str().unwrap());
    let (status, record) = app.get_as(&OLD.token(), &record).await;
    assert_eq!((status, &record["user_id"]), (200, &json!("ann")), "{record}");
    let authorization = format!("Bearer {}", OLD.token());
    let bob = json!({"message": "hi", "user_id": "bob"}).to_string();
    let (status, _, problem) = app.post_with(&[("authorization", &authorization)], bob).await;
    assert_eq!((status, &problem["code"]), (403, &json!("user_mismatch")), "{problem}");

    // An unpublished key, and a known key's name over another key's signature. However many arrive, the issuer is not
    // asked for each.
    for _ in 0..20 {
        for token in [NEW.token(), NEW.token_naming("old"), OLD.token_naming("new")] {
            let (status, problem) = says_hi(&app, &token).await;
            assert_eq!(
                (status, &problem["code"]),
                (401, &json!("unauthenticated")),
                "{problem}"
            );
        }
    }
    assert!(issuer.asked() <= 2, "{} times", issuer.asked());

    issuer.publishes(&[&NEW]);
    until("the rotated key to be fetched", || async {
        says_hi(&app, &NEW.token()).await.0 == 200
    })
    .await;
    assert_eq!(
        says_hi(&app, &OLD.token()).await.0,
        401,
        "the key is no longer published"
    );

    issuer.is_away();
    assert_eq!(
        says_hi(&app, &NEW.token()).await.0,
        200,
        "fetched keys remain valid while the issuer is unavailable"
    );
    assert_eq!(says_hi(&app, &OLD.token()).await.0, 401);
    assert_eq!(app.gemini.requests().len(), 3, "no refused request reached the model");
}

#[tokio::test]
async fn an_issuer_that_was_never_available_is_not_reported_as_the_callers_error() {
    let port = free_port();
    let app = app_trusting(&format!("http://127.0.0.1:{port}/keys")).await;
    let authorization = format!("Bearer {}", OLD.token());
    let body = json!({"message": "hi"}).to_string();
    let (status, headers, problem) = app.post_with(&[("authorization", &authorization)], body).await;
    assert_eq!(
        (status, &problem["code"]),
        (503, &json!("auth_unavailable")),
        "{problem}"
    );
    assert!(headers.contains_key("retry-after"));
    assert!(!problem.to_string().contains(&port.to_string()), "{problem}");
    assert_eq!(app.gemini.requests().len(), 0);
    assert_eq!(app.get("/livez").await.0, 200);

    let issuer = Issuer::start(port).await;
    issuer.publishes(&[&OLD]);
    until("the issuer to be found", || async {
        says_hi(&app, &OLD.token()).await.0 == 200
    })
    .await;
}
