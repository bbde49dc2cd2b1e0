//! Idempotency keys.

use std::sync::Arc;

use gavel::ports::claims::Claimed;

use crate::commits::{Writes, claim};
use crate::support::{TestDb, answer, closed, eventually};

/// Of many concurrent requests with one key, one runs. The others are rejected as in progress, and later get its
/// answer.
pub(crate) async fn of_fifty_claims_at_once_one_is_new(db: TestDb) {
    let stores = [db.open().await, db.open().await];
    let mut racing = tokio::task::JoinSet::new();
    for n in 0..50 {
        let store = Arc::clone(&stores[n % 2]);
        racing.spawn(async move {
            let claim = claim("scope", "body");
            (n, claim.decision.clone(), store.claims(claim).await.unwrap())
        });
    }
    let mut winner = None;
    while let Some(result) = racing.join_next().await {
        match result.unwrap() {
            (n, decision, Claimed::New) => assert!(winner.replace((n, decision)).is_none(), "two are new"),
            (_, _, met) => assert_eq!(met, Claimed::Running),
        }
    }
    let (n, decision) = winner.unwrap();
    assert_eq!(db.count("SELECT COUNT(*) FROM decision_log").await, 1);
    assert_eq!(db.line("SELECT status FROM decision_log").await, "open");

    let mut decision = closed(decision, vec![], true);
    decision.answer = Some(answer("scope"));
    stores[n % 2].close(decision).await.unwrap();
    for store in &stores {
        let met = store.claims(claim("scope", "body")).await.unwrap();
        assert_eq!(met, Claimed::Answered(answer("scope")));
    }
}

/// The same key with another body is refused, whether its run is in progress or answered.
pub(crate) async fn the_same_key_with_another_body_is_a_mismatch(db: TestDb) {
    let store = db.open().await;
    let first = claim("scope", "body");
    let open = first.decision.clone();
    assert_eq!(store.claims(first).await.unwrap(), Claimed::New);
    assert_eq!(store.claims(claim("scope", "other")).await.unwrap(), Claimed::Mismatch);
    let mut decision = closed(open, vec![], true);
    decision.answer = Some(answer("scope"));
    store.close(decision).await.unwrap();
    assert_eq!(store.claims(claim("scope", "other")).await.unwrap(), Claimed::Mismatch);
    assert_eq!(store.claims(claim("another", "other")).await.unwrap(), Claimed::New);
}

/// A claim is valid for 24 h.
pub(crate) async fn an_expired_key_can_be_claimed_again(db: TestDb) {
    let store = db.open().await;
    let first = claim("scope", "body");
    let mut decision = closed(first.decision.clone(), vec![], true);
    store.claims(first).await.unwrap();
    decision.answer = Some(answer("scope"));
    store.close(decision).await.unwrap();
    let day = "expires_at - created_at";
    assert_eq!(
        db.count(&format!("SELECT {day} FROM idempotency_key")).await,
        86_400_000_000
    );

    db.run("UPDATE idempotency_key SET expires_at = created_at - 1").await;
    assert_eq!(store.claims(claim("scope", "other")).await.unwrap(), Claimed::New);
    assert_eq!(store.claims(claim("scope", "other")).await.unwrap(), Claimed::Running);
}

/// A decision that ended without an answer is not run again; the response says where to look.
pub(crate) async fn a_claim_without_an_answer_gets_the_recovered_one(db: TestDb) {
    let store = db.open().await;
    let mut first = claim("scope", "body");
    first.decision.request_id = "req \"7\"".into();
    let open = first.decision.clone();
    store.claims(first).await.unwrap();
    store.close(closed(open.clone(), vec![], true)).await.unwrap();
    let Claimed::Answered(stored) = store.claims(claim("scope", "body")).await.unwrap() else {
        panic!("not answered");
    };
    assert_eq!(stored.status, 500);
    let body: serde_json::Value = serde_json::from_str(&stored.body).unwrap();
    assert_eq!(body["code"], "outcome_unrecorded");
    assert_eq!(body["status"], 500);
    assert_eq!(body["request_id"], "req \"7\"");
    assert_eq!(body["decision_id"], open.id.to_string());
    assert!(body["detail"].as_str().unwrap().contains(&open.id.to_string()));
    for field in ["type", "title"] {
        assert!(body[field].is_string(), "{field}");
    }
    // The same text each time.
    assert_eq!(
        store.claims(claim("scope", "body")).await.unwrap(),
        Claimed::Answered(stored)
    );
}

/// Claims are deleted after their 24 h, however many there are; the others stay.
pub(crate) async fn thousands_of_expired_claims_are_all_pruned(db: TestDb) {
    let store = db.open().await;
    let live = claim("live", "body");
    let mut decision = closed(live.decision.clone(), vec![], true);
    decision.answer = Some(answer("live"));
    assert_eq!(store.claims(live).await.unwrap(), Claimed::New);
    store.close(decision).await.unwrap();
    store.shutdown().await;
    db.run(
        "INSERT INTO idempotency_key (scope, fingerprint, decision_id, created_at, expires_at) \
         WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2500) \
         SELECT 'old-' || i, 'body', 'decision-' || i, 0, i FROM n",
    )
    .await;

    let store = db.open().await;
    eventually("all expired claims are deleted", async || {
        db.count("SELECT COUNT(*) FROM idempotency_key").await == 1
    })
    .await;
    let met = store.claims(claim("live", "body")).await.unwrap();
    assert_eq!(met, Claimed::Answered(answer("live")));
}

/// A key that is claimed again while its expired claim is being deleted stays claimed; otherwise a retry would run
/// twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewed_claim_is_not_pruned_as_the_expired_one() {
    let db = TestDb::postgres().await;
    let store = db.open().await;
    store.claims(claim("scope", "body")).await.unwrap();
    // Its own pruning must not interfere.
    store.shutdown().await;
    db.run(
        "UPDATE idempotency_key SET expires_at = 1; INSERT INTO idempotency_key (scope, fingerprint, decision_id, \
         created_at, expires_at) VALUES ('old', 'body', 'd', 0, 2)",
    )
    .await;
    // As another process claims it, not yet committed.
    let again = db
        .hold("UPDATE idempotency_key SET expires_at = 9000000000000000000 WHERE scope = 'scope'")
        .await;
    let pruning = db.open().await;
    db.stuck(1).await;
    again.commit().await;
    eventually("the expired claim is deleted", async || {
        db.count("SELECT COUNT(*) FROM idempotency_key WHERE scope = 'old'")
            .await
            == 0
    })
    .await;
    assert_eq!(db.line("SELECT scope FROM idempotency_key").await, "scope");
    drop(pruning);
}
