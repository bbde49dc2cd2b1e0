//! `Idempotency-Key` of runs: one request makes one run, however often it is sent.

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::json;

use super::{both, id, path_of};
use crate::gemini::Reply;
use crate::harness::spawn_app;

const KEY: (&str, &str) = ("idempotency-key", "k-1");

/// While the run is in progress and after its end, the same key and body return the same run.
#[tokio::test]
async fn the_same_request_gets_the_same_run_while_it_runs_and_after_it_has_ended() {
    for setup in both() {
        let slow = Reply::After(Duration::from_secs(1), Box::new(Reply::Text("Done.")));
        let app = spawn_app(setup.script(vec![slow])).await;
        let (path, body) = (path_of("helper"), json!({"query": "x"}));
        let first = app.request("POST", &path, &[KEY]).json(&body);
        let first = tokio::spawn(first.send());
        app.asked(1).await;
        let meanwhile = [KEY, ("prefer", "respond-async")];
        let answer = app.trigger_with(&path, &meanwhile, &body).await;
        assert_eq!(answer.header("idempotency-replayed"), "true");
        let running = answer.expect(202);
        assert_eq!(running["status"], "running", "{running}");
        // A request that finds another request's run waits for it just as long.
        let waited = app.trigger_with(&path, &[KEY], &body).await.expect(200);
        assert_eq!(waited["status"], "completed", "{waited}");
        let first: serde_json::Value = first.await.unwrap().unwrap().json().await.unwrap();
        let answer = app.trigger_with(&path, &[KEY], &body).await;
        assert_eq!(answer.header("idempotency-replayed"), "true");
        assert_eq!(answer.header("ratelimit"), "", "the repeated request costs no quota");
        let again = answer.expect(200);
        assert_eq!((&first, &waited), (&again, &again));
        assert_eq!(id(&running), id(&again));
        assert_eq!(app.gemini.requests().len(), 1);

        let other = app.trigger_with(&path, &[KEY], &json!({"query": "y"})).await;
        other.problem(422, "idempotency_key_reused");
        let chief = app.trigger_with(&path_of("chief"), &[KEY], &body).await.expect(200);
        assert_ne!(id(&chief), id(&again), "the key is separate for another agent");
        let bob = app
            .trigger_with(&path, &[KEY, ("x-gavel-user", "bob")], &body)
            .await
            .expect(200);
        assert_ne!(id(&bob), id(&again), "the key is separate for another user");
        assert_eq!(app.runs("").await.len(), 2, "and bob's");
        assert_eq!(app.decisions().await.len(), 3);
    }
}

/// Idempotency comes before quota and admission.
#[tokio::test]
async fn a_repeated_request_costs_no_quota_and_needs_no_slot() {
    for setup in both() {
        let script = vec![Reply::Text("Done."), Reply::Hang];
        let app = spawn_app(setup.rate(1, 1).env("GAVEL_MAX_IN_FLIGHT", "1").script(script)).await;
        let (path, body) = (path_of("helper"), json!({"query": "x"}));
        let first = app.trigger_with(&path, &[KEY], &body).await.expect(200);
        let another = [("idempotency-key", "k-2")];
        app.trigger_with(&path, &another, &body)
            .await
            .problem(429, "rate_limited");
        // Another user's run takes the only slot.
        let hanging = app.request("POST", &path, &[("x-gavel-user", "bob")]).json(&body);
        let hanging = tokio::spawn(hanging.send());
        app.asked(2).await;
        for _ in 0..3 {
            assert_eq!(app.trigger_with(&path, &[KEY], &body).await.expect(200), first);
        }
        let other = app.trigger_with(&path, &[KEY], &json!({"query": "y"})).await;
        other.problem(422, "idempotency_key_reused");
        hanging.abort();
    }
}

/// A temporary refusal is not stored as the answer for 24 hours.
#[tokio::test]
async fn a_key_can_be_reused_after_a_429() {
    for setup in both() {
        let app = spawn_app(setup.rate(60, 1)).await;
        let (path, body) = (path_of("helper"), json!({"query": "x"}));
        app.trigger_with(&path, &[], &body).await.expect(200);
        let refused = app.trigger_with(&path, &[KEY], &body).await;
        if refused.status == 429 {
            crate::harness::until("the quota to let one through", || async {
                app.trigger_with(&path, &[KEY], &body).await.status == 200
            })
            .await;
        }
        let answer = app.trigger_with(&path, &[KEY], &body).await;
        assert_eq!(answer.header("idempotency-replayed"), "true");
        answer.expect(200);
    }
}

#[tokio::test]
async fn thirty_requests_with_one_key_at_once_make_one_run() {
    for setup in both() {
        let app = spawn_app(setup.script(vec![Reply::Text("Done.")])).await;
        let (path, body) = (path_of("helper"), json!({"query": "x"}));
        let answers = join_all((0..30).map(|n| {
            let (app, path, body) = (&app, &path, &body);
            async move {
                let headers = [KEY, ("prefer", "respond-async")];
                // Some wait, some do not.
                let headers = if n % 2 == 0 { &headers[..1] } else { &headers[..] };
                let answer = app.trigger_with(path, headers, body).await;
                assert!([200, 202].contains(&answer.status), "{}", answer.body);
                id(&answer.body)
            }
        }))
        .await;
        assert!(answers.iter().all(|run| *run == answers[0]), "{answers:?}");
        app.over(&answers[0]).await;
        assert_eq!(app.gemini.requests().len(), 1);
        assert_eq!(app.decisions().await.len(), 1);
    }
}
