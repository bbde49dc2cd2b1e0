use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use jsonwebtoken::{EncodingKey, Header, encode};
use serde_json::json;

use super::*;

const SECRET: &[u8] = b"0123456789abcdef0123456789abcdef";

/// RFC 8032 section 7.1, test 1: a published key pair.
const ED_SEED: [u8; 32] = [
    0x9d, 0x61, 0xb1, 0x9d, 0xef, 0xfd, 0x5a, 0x60, 0xba, 0x84, 0x4a, 0xf4, 0x92, 0xec, 0x2c, 0xc4, 0x44, 0x49, 0xc5,
    0x69, 0x7b, 0x32, 0x69, 0x19, 0x70, 0x3b, 0xac, 0x03, 0x1c, 0xae, 0x7f, 0x60,
];
const ED_PUBLIC: [u8; 32] = [
    0xd7, 0x5a, 0x98, 0x01, 0x82, 0xb1, 0x0a, 0xb7, 0xd5, 0x4b, 0xfe, 0xd3, 0xc9, 0x64, 0x07, 0x3a, 0x0e, 0xe1, 0x72,
    0xf3, 0xda, 0xa6, 0x23, 0x25, 0xaf, 0x02, 0x1a, 0x68, 0xf7, 0x07, 0x51, 0x1a,
];

fn ed_signer() -> EncodingKey {
    // PKCS #8 around the seed (RFC 8410).
    let mut der = vec![
        0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20,
    ];
    der.extend(ED_SEED);
    EncodingKey::from_ed_der(&der)
}

/// RFC 8032 section 7.1, test 2: the public key of another pair.
const OTHER_PUBLIC: [u8; 32] = [
    0x3d, 0x40, 0x17, 0xc3, 0xe8, 0x43, 0x89, 0x5a, 0x92, 0xb7, 0x0a, 0xa7, 0x4d, 0x1b, 0x7e, 0xbc, 0x9c, 0x98, 0x2c,
    0xcf, 0x2e, 0xc4, 0x96, 0x8c, 0xc0, 0xcd, 0x55, 0xf1, 0x2a, 0xf4, 0x66, 0x0c,
];

fn ed_key(id: Option<&str>) -> VerifyingKey {
    public_key(id, &ED_PUBLIC)
}

fn public_key(id: Option<&str>, key: &[u8]) -> VerifyingKey {
    VerifyingKey {
        id: id.map(str::to_owned),
        algorithms: vec![Algorithm::EdDSA],
        key: DecodingKey::from_ed_der(key),
    }
}

/// Returns one set at first, and another when asked for a newer one.
struct Rotating {
    now: Arc<KeySet>,
    then: Arc<KeySet>,
    asked: Arc<AtomicUsize>,
}

impl Rotating {
    fn new(now: Vec<VerifyingKey>, then: Vec<VerifyingKey>) -> Self {
        let set = |generation, keys| Arc::new(KeySet { generation, keys });
        Self {
            now: set(1, now),
            then: set(2, then),
            asked: Arc::default(),
        }
    }
}

impl KeySource for Rotating {
    fn current(&self) -> BoxFuture<'_, Result<Arc<KeySet>, KeysUnavailable>> {
        Box::pin(std::future::ready(Ok(Arc::clone(&self.now))))
    }
    fn newer(&self, _: u64) -> BoxFuture<'_, Result<Arc<KeySet>, KeysUnavailable>> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        Box::pin(std::future::ready(Ok(Arc::clone(&self.then))))
    }
}

fn tokens(keys: impl KeySource + 'static) -> Tokens {
    Tokens {
        keys: Arc::new(keys),
        issuer: "https://issuer".to_owned(),
        audience: "gavel".to_owned(),
        tenant_claim: Some("org".to_owned()),
        roles_claim: "roles".to_owned(),
    }
}

fn shared() -> Tokens {
    tokens(SharedSecret::new(SECRET).unwrap())
}

fn fixed(keys: Vec<VerifyingKey>) -> Tokens {
    tokens(Rotating::new(keys, Vec::new()))
}

fn claims() -> Value {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    json!({
        "iss": "https://issuer", "aud": ["other", "gavel"], "sub": "ann", "org": "acme", "roles": ["analyst"],
        "exp": now + 600, "nbf": now - 5,
    })
}

fn signed(header: &Header, key: &EncodingKey, claims: &Value) -> String {
    encode(header, claims, key).unwrap()
}

fn hs256(claims: &Value) -> String {
    signed(&Header::default(), &EncodingKey::from_secret(SECRET), claims)
}

fn ed(id: Option<&str>) -> String {
    let header = Header {
        kid: id.map(str::to_owned),
        ..Header::new(Algorithm::EdDSA)
    };
    signed(&header, &ed_signer(), &claims())
}

async fn refused(tokens: &Tokens, token: &str) -> bool {
    tokens.verify(token).await == Err(Error::not_accepted())
}

#[tokio::test]
async fn a_good_token_names_user_tenant_and_roles() {
    let caller = shared().verify(&hs256(&claims())).await.unwrap();
    assert_eq!(caller.identity, Identity::User(UserId::parse("ann").unwrap()));
    assert_eq!(caller.tenant.as_str(), "acme");
    assert_eq!(*caller.roles, BTreeSet::from(["analyst".to_owned()]));
    let mut words = claims();
    words["roles"] = json!("approver analyst");
    let caller = shared().verify(&hs256(&words)).await.unwrap();
    assert_eq!(caller.roles.len(), 2);
    let default = Tokens {
        tenant_claim: None,
        ..shared()
    };
    assert_eq!(
        default.verify(&hs256(&claims())).await.unwrap().tenant.as_str(),
        "default"
    );
}

/// Why a token is rejected, as in the debug log: claim, value found, value expected.
async fn misfit(tokens: &Tokens, token: &str) -> (String, String, String) {
    match tokens.verified(token).await {
        Err(Refusal::Token(misfit)) => (misfit.claim, misfit.found, misfit.expected),
        Err(Refusal::Keys(error)) => panic!("{error}"),
        Ok((caller, _)) => panic!("{caller:?}"),
    }
}

/// Each token is rejected, and the log names the claim and the expected value.
#[tokio::test]
async fn a_claim_that_is_off_refuses_the_token_and_is_named_with_what_was_expected() {
    let with = |name: &str, value: Value| {
        let mut claims = claims();
        claims[name] = value;
        hs256(&claims)
    };
    let without = |name: &str| {
        let mut claims = claims();
        claims.as_object_mut().unwrap().remove(name);
        hs256(&claims)
    };
    let long = "x".repeat(300);
    let later = get_current_timestamp() + 3600;
    let bad = [
        (
            with("iss", json!("https://other")),
            "iss",
            "\"https://other\"",
            "\"https://issuer\"",
        ),
        (
            with("iss", json!(["https://issuer"])),
            "iss",
            "[\"https://issuer\"]",
            "\"https://issuer\"",
        ),
        (with("aud", json!("other")), "aud", "\"other\"", "\"gavel\""),
        (with("exp", json!(1)), "exp", "1", "60 s ago"),
        (with("exp", json!("soon")), "exp", "", ""),
        (
            with("nbf", json!(99_999_999_999_u64)),
            "nbf",
            "99999999999",
            "60 s ahead",
        ),
        (with("nbf", json!("tomorrow")), "nbf", "\"tomorrow\"", "60 s ahead"),
        (with("iat", json!(later)), "iat", &later.to_string(), "60 s ahead"),
        (with("iat", json!(1e300)), "iat", "1e+300", "60 s ahead"),
        (with("iat", json!("now")), "iat", "\"now\"", "60 s ahead"),
        (with("iat", json!(null)), "iat", "null", "60 s ahead"),
        (with("sub", json!("ann\u{2028}")), "sub", "\\u2028", "a user's id"),
        (with("sub", json!("ann\u{200d}")), "sub", "ann", "a user's id"),
        (with("sub", json!("ann\u{a0}")), "sub", "ann", "a user's id"),
        (with("sub", json!("ann\u{3000}")), "sub", "ann", "a user's id"),
        (with("sub", json!("")), "sub", "\"\"", "a user's id"),
        (with("sub", json!(7)), "sub", "", ""),
        (with("sub", json!("a\u{0}b")), "sub", "\"a\\u0000b\"", "a user's id"),
        (
            with("sub", json!(long)),
            "sub",
            "[cut: 302 bytes in all]",
            "a user's id",
        ),
        (with("org", json!(7)), "org", "7", "auth.jwt.tenant_claim"),
        (
            with("roles", json!({"admin": true})),
            "roles",
            "{\"admin\":true}",
            "auth.jwt.roles_claim",
        ),
        (with("roles", json!([1])), "roles", "[1]", "auth.jwt.roles_claim"),
        (without("exp"), "exp", "absent", ""),
        (without("sub"), "sub", "absent", ""),
        (without("aud"), "aud", "absent", ""),
        (without("iss"), "iss", "absent", ""),
        (without("org"), "org", "absent", "auth.jwt.tenant_claim"),
    ];
    for (token, claim, found, expected) in bad {
        assert!(refused(&shared(), &token).await, "{token}");
        let said = misfit(&shared(), &token).await;
        assert_eq!(said.0, claim, "{said:?}");
        assert!(said.1.contains(found) && said.2.contains(expected), "{said:?}");
    }
}

/// The clocks of issuer and gavel may differ a little.
#[tokio::test]
async fn a_token_may_be_issued_a_moment_ahead() {
    let now = get_current_timestamp();
    for claim in ["iat", "nbf"] {
        for time in [json!(now + 30), json!(now as f64 - 0.5), json!(0)] {
            let mut claims = claims();
            claims[claim] = time.clone();
            assert!(shared().verify(&hs256(&claims)).await.is_ok(), "{claim} {time}");
        }
    }
}

/// If the issuer has no such key, the log names the token's key and the existing ones.
#[tokio::test]
async fn a_signature_of_an_unknown_key_names_the_keys_there_are() {
    let (claim, found, expected) = misfit(&fixed(vec![ed_key(Some("old"))]), &ed(Some("new"))).await;
    assert_eq!(claim, "signature");
    assert!(found.contains("\"new\"") && found.contains("EdDSA"), "{found}");
    assert!(expected.contains("issuer's keys"), "{expected}");
}

#[tokio::test]
async fn another_signature_or_none_refuses_the_token() {
    let good = hs256(&claims());
    let (head, signature) = good.rsplit_once('.').unwrap();
    let (_, payload) = head.split_once('.').unwrap();
    let unsigned = format!("eyJhbGciOiJub25lIiwidHlwIjoiSldUIn0.{payload}.");
    let stronger = signed(
        &Header::new(Algorithm::HS512),
        &EncodingKey::from_secret(SECRET),
        &claims(),
    );
    let other = signed(
        &Header::default(),
        &EncodingKey::from_secret(b"another secret of thirty-two byte"),
        &claims(),
    );
    let critical = Header {
        crit: Some(vec!["exp".to_owned()]),
        ..Header::default()
    };
    let critical = signed(&critical, &EncodingKey::from_secret(SECRET), &claims());
    let long = format!("{good}{}", "x".repeat(20_000));
    for token in [
        unsigned,
        stronger,
        other,
        critical,
        long,
        format!("{head}."),
        format!("{head}.{signature}x"),
        head.to_owned(),
        String::new(),
    ] {
        assert!(refused(&shared(), &token).await, "{token:.200}");
    }
}

/// An issuer is one text (RFC 7519, section 4.1.1).
#[tokio::test]
async fn a_list_of_issuers_is_no_issuer() {
    let mut list = claims();
    list["iss"] = json!(["https://evil", "https://issuer"]);
    assert!(refused(&shared(), &hs256(&list)).await);
}

/// Replacing a leaked secret ends all logins that used its tokens.
#[test]
fn with_another_secret_logins_of_the_old_one_count_no_more() {
    let another = tokens(SharedSecret::new(b"another secret of thirty-two byte").unwrap());
    assert_ne!(shared().fingerprint(), another.fingerprint());
    assert_eq!(shared().fingerprint(), shared().fingerprint());
}

/// A public key is public: a signature made with it as a shared secret proves nothing.
#[tokio::test]
async fn a_public_key_is_no_shared_secret() {
    let confused = Header {
        kid: Some("k".to_owned()),
        ..Header::default()
    };
    let token = signed(&confused, &EncodingKey::from_secret(&ED_PUBLIC), &claims());
    assert!(refused(&fixed(vec![ed_key(Some("k"))]), &token).await);
    assert!(refused(&fixed(vec![ed_key(None)]), &token).await);
}

#[tokio::test]
async fn a_key_is_chosen_by_its_id_or_tried_without_one() {
    let two = || vec![ed_key(Some("a")), ed_key(Some("b"))];
    assert!(fixed(two()).verify(&ed(Some("b"))).await.is_ok());
    assert!(fixed(two()).verify(&ed(None)).await.is_ok());
    assert!(fixed(vec![ed_key(None)]).verify(&ed(Some("any"))).await.is_ok());
    assert!(refused(&fixed(two()), &ed(Some("c"))).await);
    assert!(refused(&fixed(Vec::new()), &ed(None)).await);
}

#[tokio::test]
async fn a_key_that_is_not_known_yet_is_asked_for_once() {
    let rotated = tokens(Rotating::new(vec![ed_key(Some("old"))], vec![ed_key(Some("new"))]));
    assert!(rotated.verify(&ed(Some("new"))).await.is_ok());
}

/// Some issuers replace a key under the same name, and some keys have no names.
#[tokio::test]
async fn a_key_that_was_replaced_under_its_name_or_without_one_is_found() {
    for id in [Some("k"), None] {
        let rotating = Rotating::new(vec![public_key(id, &OTHER_PUBLIC)], vec![ed_key(id)]);
        let asked = Arc::clone(&rotating.asked);
        assert!(tokens(rotating).verify(&ed(id)).await.is_ok(), "{id:?}");
        assert_eq!(asked.load(Ordering::Relaxed), 1);
        // Conversely, a replaced key verifies nothing.
        let withdrawn = Rotating::new(vec![public_key(id, &OTHER_PUBLIC)], vec![public_key(id, &OTHER_PUBLIC)]);
        assert!(refused(&tokens(withdrawn), &ed(id)).await, "{id:?}");
    }
}

#[tokio::test]
async fn the_issuer_is_not_asked_for_a_token_that_its_keys_verify() {
    let rotating = Rotating::new(vec![ed_key(Some("k"))], Vec::new());
    let asked = Arc::clone(&rotating.asked);
    let tokens = tokens(rotating);
    assert!(tokens.verify(&ed(Some("k"))).await.is_ok());
    let mut over = claims();
    over["exp"] = json!(1_000_000);
    let header = Header::new(Algorithm::EdDSA);
    assert!(refused(&tokens, &signed(&header, &ed_signer(), &over)).await);
    assert_eq!(asked.load(Ordering::Relaxed), 0);
}

#[test]
fn a_secret_that_could_be_guessed_is_none() {
    assert!(SharedSecret::new(&SECRET[..31]).is_none());
    assert!(SharedSecret::new(SECRET).is_some());
}
