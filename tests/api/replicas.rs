//! Two processes on one database, seen from outside.

use serde_json::json;

use crate::harness::{App, Setup, spawn_app};
use crate::postgres;

/// How many of these messages of a user each process admits, in turn; and the last rejection of each.
async fn admitted(apps: &[App; 2], user: &str, messages: usize) -> (usize, Option<String>) {
    let (mut admitted, mut reported) = (0, None);
    for n in 0..messages {
        let (status, headers, decision) = apps[n % 2].post(&json!({"message": "hi", "user_id": user})).await;
        match status {
            200 => {
                admitted += 1;
                reported = Some(headers["ratelimit"].to_str().unwrap().to_owned());
            }
            429 => {
                assert_eq!(decision["outcome_category"], "REFUSAL:RATE_LIMITED");
                let wait: u32 = headers["retry-after"].to_str().unwrap().parse().unwrap();
                assert!((1..=60).contains(&wait), "{headers:?}");
            }
            _ => panic!("{status}: {decision}"),
        }
    }
    (admitted, reported)
}

/// C-US5-3: two replicas share one user limit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_replicas_share_the_limit_of_a_user() {
    let database = postgres::database().await;
    let setup = Setup::stdio_postgres().env("DATABASE_URL", database).rate(1, 6);
    let apps = [spawn_app(setup.clone()).await, spawn_app(setup).await];
    let mut counted = Vec::new();
    // On a machine so busy that the database takes 50 ms to answer, each process counts by itself, as it should. So
    // only one user of five has to meet the shared limit; without a shared limit none would.
    for user in ["ann", "bob", "cleo", "dan", "eve"] {
        let (admitted, reported) = admitted(&apps, user, 20).await;
        assert!((6..=12).contains(&admitted), "{admitted} of {user}");
        if admitted == 6 {
            assert_eq!(reported.unwrap().split(';').nth(1), Some("r=0"));
            let [one, two] = apps;
            one.stop().await;
            two.stop().await;
            return;
        }
        counted.push(admitted);
    }
    panic!("each process counted by itself: {counted:?} admitted");
}
