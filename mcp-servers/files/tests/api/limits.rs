//! Each call ends: by itself, by its time limit, or with its caller.

use std::fs::File;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::{Caller, World};

/// How many calls read at once; more calls wait.
const PLACES: usize = 8;

/// A file whose second line no reader can finish: text, then a hole of a terabyte, which uses no disk space.
fn endless(world: &World) -> Value {
    world.file("endless", "text\n".repeat(4000));
    let file = File::options()
        .write(true)
        .open(world.root().join("endless"))
        .expect("the file");
    file.set_len(1 << 40).expect("a hole");
    json!({ "path": "endless", "offset": 4002 })
}

/// D-E
#[tokio::test]
async fn a_call_that_takes_too_long_is_stopped_and_says_so() {
    let world = World::new();
    let slow = endless(&world);
    let caller = world.caller_with(&["--time-limit", "1"]).await;
    let begun = Instant::now();
    let reply = caller.call("read_file", slow).await;
    assert_eq!(reply.code(), "too_slow");
    assert!((1..10).contains(&begun.elapsed().as_secs()), "{:?}", begun.elapsed());
}

/// D-E
#[tokio::test]
async fn a_search_that_takes_too_long_answers_what_it_has_and_says_so() {
    let world = World::new();
    world.file("a", "x\n");
    // Under many names it is 40 GB to search, but 20 MB on disk. None of its lines matches.
    world.file("b", format!("{}y\n", "x".repeat(200)).repeat(100_000));
    for copy in 0..2000 {
        std::fs::hard_link(world.root().join("b"), world.root().join(format!("b{copy}"))).expect("a link");
    }
    let caller = world.caller_with(&["--time-limit", "3"]).await;
    let answer = caller.ok("grep", json!({ "pattern": "^x$|[wx]z" })).await;
    assert_eq!(answer["matches"], json!([{ "path": "a", "line": 1, "text": "x" }]));
    assert!(
        answer["incomplete"]
            .as_str()
            .is_some_and(|why| why.contains("too long")),
        "{answer}"
    );
}

/// D-E: a cancelled call releases its slot; otherwise the last call here would wait for 10 minutes.
#[tokio::test]
async fn cancelled_calls_stop_reading() {
    let world = World::new();
    let slow = endless(&world);
    world.file("small", "text");
    let caller = world.caller_with(&["--time-limit", "600"]).await;
    let mut running = Vec::new();
    for _ in 0..PLACES {
        running.push(caller.begin("read_file", slow.clone()).await.expect("it is sent"));
    }
    // The calls begin in any order, so the first small ones may still find a free slot.
    let mut tries = 0;
    while quick(&caller, 2).await.is_some() {
        tries += 1;
        assert!(tries < 50, "a slot is always free, so this test proves nothing");
    }
    for call in running {
        call.cancel(None).await.expect("it is sent");
    }
    assert_eq!(quick(&caller, 30).await.expect("an answer")["content"], "text");
}

async fn quick(caller: &Caller, seconds: u64) -> Option<Value> {
    let call = caller.ok("read_file", json!({ "path": "small" }));
    tokio::time::timeout(Duration::from_secs(seconds), call).await.ok()
}

/// D-E: concurrent calls do not disturb each other.
#[tokio::test]
async fn many_calls_at_once_are_all_answered() {
    let world = World::new();
    for number in 0..100 {
        world.file(&number.to_string(), number.to_string());
    }
    let caller = world.caller().await;
    let mut running = Vec::new();
    for number in 0..100 {
        let call = caller.begin("read_file", json!({ "path": number.to_string() })).await;
        running.push((number, call.expect("it is sent")));
    }
    for (number, call) in running {
        let answer = serde_json::to_value(call.await_response().await.expect("an answer")).expect("JSON");
        assert_eq!(answer["structuredContent"]["content"], number.to_string());
    }
}

/// D-E: the server ends when its client disconnects, even during a read.
#[tokio::test]
async fn the_server_ends_with_its_client() {
    let world = World::new();
    let slow = endless(&world);
    let caller = world.caller_with(&["--time-limit", "600"]).await;
    let _running = caller.begin("read_file", slow).await.expect("it is sent");
    let begun = Instant::now();
    caller.client.cancel().await.expect("the client ends");
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
}
