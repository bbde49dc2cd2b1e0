//! Bounded work: whatever work external data causes, other users are served meanwhile (promise: bounded faults).

mod schemas;

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::App;

/// The longest that others may wait during an attack. On a machine that builds and tests at the same time, a bare
/// response takes a tenth of it.
const AT_ONCE: Duration = Duration::from_secs(1);

/// Checks during `attack` that `/livez` answers within a second, repeatedly, and that another user is served.
///
/// Returns the result of the attack and the number of `/livez` requests.
async fn others_are_served<T>(app: &App, attack: impl Future<Output = T>) -> T {
    let watch = async {
        loop {
            let asked = Instant::now();
            let (status, _) = app.get("/livez").await;
            assert_eq!(status, 200);
            assert!(asked.elapsed() < AT_ONCE, "/livez took {:?}", asked.elapsed());
            let listed = app.request("GET", "/api/agent/approvals/pending", &[("x-gavel-user", "bob")]);
            let asked = Instant::now();
            assert_eq!(listed.send().await.unwrap().status(), 200);
            assert!(
                asked.elapsed() < 2 * AT_ONCE,
                "another user waited {:?}",
                asked.elapsed()
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::select! {
        done = attack => done,
        () = watch => unreachable!("it has no end"),
    }
}

/// A tool as a server lists it.
fn tool(name: &str, schema: &Value) -> Value {
    json!({"name": name, "description": "Takes what it is given.", "inputSchema": schema})
}
