//! Connections: slow peers, many peers, shutdown.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use gavel::domain::budget::Limits;
use gavel::domain::ids::TenantId;
use gavel::http::EdgeLimits;
use gavel::http::caller::{Auth, ServiceKey};
use gavel::surfaces::caller::{Caller, Identity};
use sha2::{Digest, Sha256};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Semaphore;

use crate::harness::{HI, Running, Setup, client, read_to_end, serve, until};

/// Short timeouts, so that tests need not wait.
fn hasty() -> Setup {
    let limits = EdgeLimits {
        body_time: Duration::from_millis(200),
        head_time: Duration::from_millis(200),
        quiet_time: Duration::from_millis(400),
        ..EdgeLimits::default()
    };
    Setup {
        limits,
        ..Setup::default()
    }
}

const HEAD: &str = "POST /v1/chat HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";

#[tokio::test]
async fn an_http_2_client_gets_an_http_1_1_error() {
    let edge = serve(Setup::default()).await;
    let settings = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    // It does not close its side, and is closed all the same.
    let answer = edge.raw(settings).await;
    assert!(answer.starts_with("HTTP/1.1 505 "), "{answer}");
    assert!(answer.contains("speaks HTTP/1.1 and not HTTP/2"), "{answer}");
    let h2 = client(|builder| builder.http2_prior_knowledge());
    assert!(h2.get(format!("{}/livez", edge.url)).send().await.is_err());
    assert_eq!(edge.get("/livez").await.status, 200);
}

#[tokio::test]
async fn a_silent_connection_is_closed() {
    let edge = serve(hasty()).await;
    let mut silent = edge.connect().await;
    assert_eq!(read_to_end(&mut silent).await, "");
}

#[tokio::test]
async fn a_head_that_does_not_end_is_408() {
    let edge = serve(hasty()).await;
    let mut slow = edge.connect().await;
    slow.write_all(HEAD.as_bytes()).await.unwrap();
    assert!(read_to_end(&mut slow).await.starts_with("HTTP/1.1 408 "));
}

#[tokio::test]
async fn a_second_head_that_does_not_end_closes_the_connection() {
    let edge = serve(hasty()).await;
    let mut slow = edge.connect().await;
    slow.write_all(b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\nGET /livez HTT")
        .await
        .unwrap();
    let answers = read_to_end(&mut slow).await;
    assert_eq!(answers.matches("HTTP/1.1 200 OK").count(), 1, "{answers}");
}

#[tokio::test]
async fn a_body_that_does_not_arrive_is_408_and_leaves_no_decision() {
    let edge = serve(hasty()).await;
    let mut slow = edge.connect().await;
    slow.write_all(format!("{HEAD}content-length: 100\r\n\r\n{{").as_bytes())
        .await
        .unwrap();
    let answer = read_to_end(&mut slow).await;
    assert!(
        answer.starts_with("HTTP/1.1 408 ") && answer.contains("request_timeout"),
        "{answer}"
    );
    assert!(edge.record.closed.lock().unwrap().is_empty());
}

/// The quiet time applies to peers, not to models.
#[tokio::test]
async fn a_decision_may_take_longer_than_the_quiet_time() {
    let hold = Arc::new(Semaphore::new(0));
    let setup = hasty();
    let quiet = setup.limits.quiet_time;
    let edge = serve(Setup {
        hold: Some(hold.clone()),
        ..setup
    })
    .await;
    let sent = tokio::spawn(edge.chat("/v1/chat", HI).send());
    until("the model to be asked", || edge.model.asked.load(Ordering::SeqCst) == 1).await;
    let asked = Instant::now();
    until("twice the quiet time to pass", || {
        asked.elapsed() > 2 * quiet + quiet / 2
    })
    .await;
    hold.add_permits(1);
    assert_eq!(sent.await.unwrap().unwrap().status(), 200);
}

/// A caller whose requests are never complete, and one of another tenant.
fn two_tenants() -> Auth {
    let key = |name: &str, tenant: &str| ServiceKey {
        name: Arc::from(name),
        sha256: Sha256::digest(name).into(),
        caller: Caller {
            tenant: TenantId::parse(tenant).unwrap(),
            identity: Identity::Service(Arc::from(name)),
            roles: Arc::default(),
        },
    };
    Auth::ApiKeys(vec![key("half", "acme"), key("whole", "rival")])
}

/// A chat request of the holder of `key`, up to the middle of its body, and the rest.
fn in_two(key: &str) -> [String; 2] {
    let body = format!(r#"{{"message":"{}","user_id":"ann"}}"#, "x".repeat(900));
    let (first, rest) = body.split_at(400);
    let head = format!(
        "{HEAD}x-api-key: {key}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    [head + first, rest.to_owned()]
}

/// Promise: bounded faults. Many incomplete bodies together take no more than their caller's share, and no other caller
/// waits for them.
#[tokio::test]
async fn half_bodies_of_one_caller_share_its_bytes_and_others_are_served() {
    let limits = EdgeLimits {
        body_time: Duration::from_secs(2),
        bodies: Limits {
            process: 100_000,
            tenant: 100_000,
            user: 4_000,
        },
        ..EdgeLimits::default()
    };
    let setup = Setup {
        auth: two_tenants(),
        limits,
        ..Setup::default()
    };
    let edge = serve(setup).await;
    let [half, rest] = in_two("half");
    let half_bodies = async || {
        let mut held = Vec::new();
        for _ in 0..8 {
            let mut peer = edge.connect().await;
            peer.write_all(half.as_bytes()).await.unwrap();
            held.push(peer);
        }
        held
    };
    let mut held = half_bodies().await;
    let [other, other_rest] = in_two("whole");
    let mut peer = edge.connect().await;
    peer.write_all(other.as_bytes()).await.unwrap();
    peer.write_all(other_rest.as_bytes()).await.unwrap();
    let served = read_to_end(&mut peer).await;
    assert!(served.starts_with("HTTP/1.1 200 "), "{served}");
    // Its own small requests come in one piece and take no share.
    assert_eq!(edge.post_with(&[("x-api-key", "half")], HI).await.status, 200);

    let mut answers = Vec::new();
    for peer in &mut held {
        answers.push(read_to_end(peer).await);
    }
    let of = |status: &str| {
        answers
            .iter()
            .filter(|answer| answer.starts_with(&format!("HTTP/1.1 {status} ")))
            .count()
    };
    assert_eq!((of("408"), of("503")), (4, 4), "{answers:?}");
    let refused = answers
        .iter()
        .find(|answer| answer.starts_with("HTTP/1.1 503 "))
        .unwrap();
    assert!(
        refused.contains("retry-after: 1") && refused.contains(r#""code":"overloaded""#),
        "{refused}"
    );
    assert!(
        refused.contains("4000 bytes of request bodies at once are allowed for a user"),
        "{refused}"
    );
    assert_eq!(edge.record.closed.lock().unwrap().len(), 2, "those that were answered");

    // An ended request holds nothing.
    let mut peer = edge.connect().await;
    peer.write_all(half.as_bytes()).await.unwrap();
    peer.write_all(rest.as_bytes()).await.unwrap();
    let served = read_to_end(&mut peer).await;
    assert!(served.starts_with("HTTP/1.1 200 "), "{served}");
}

/// For an unauthenticated caller gavel reads no body: it answers first.
#[tokio::test]
async fn the_body_of_an_unauthenticated_caller_is_not_read() {
    let setup = Setup {
        auth: two_tenants(),
        ..Setup::default()
    };
    let edge = serve(setup).await;
    let began = Instant::now();
    for request in [
        in_two("stranger")[0].clone(),
        format!("{HEAD}content-length: 1000\r\n\r\n{{"),
    ] {
        let answer = edge.raw(request.as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 401 "), "{answer}");
    }
    assert!(
        began.elapsed() < EdgeLimits::default().body_time / 2,
        "the connection is closed soon"
    );
}

/// A table of this many connections, and long timeouts: only the table closes connections.
async fn served(connections: usize, hold: Option<Arc<Semaphore>>) -> Running {
    let limits = EdgeLimits {
        connections,
        head_time: Duration::from_secs(60),
        body_time: Duration::from_secs(60),
        ..EdgeLimits::default()
    };
    serve(Setup {
        limits,
        hold,
        auth: two_tenants(),
        ..Setup::default()
    })
    .await
}

/// Whether health, and a request of another tenant, are answered at once.
async fn others_are_served(edge: &Running) {
    let serving = async {
        for path in ["/livez", "/readyz"] {
            let answer = edge
                .raw(format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").as_bytes())
                .await;
            assert!(answer.starts_with("HTTP/1.1 200 "), "{path}: {answer}");
        }
        assert_eq!(edge.post_with(&[("x-api-key", "whole")], HI).await.status, 200);
    };
    tokio::time::timeout(Duration::from_secs(5), serving)
        .await
        .expect("at once");
}

/// Connections that hold the table: idle without a request, in the middle of a head, idle after a request of a stranger or
/// of a tenant, and in the middle of a body.
#[tokio::test]
async fn thousands_of_connections_of_any_kind_shut_no_one_out() {
    let livez = "GET /livez HTTP/1.1\r\nhost: x\r\n\r\n".to_owned();
    let stranger = format!("{HEAD}content-length: 0\r\n\r\n");
    let tenant = "GET /v1/decisions HTTP/1.1\r\nhost: x\r\nx-api-key: half\r\n\r\n".to_owned();
    let [body, _] = in_two("half");
    for sent in [String::new(), HEAD.to_owned(), livez, stranger, tenant, body] {
        let edge = served(256, None).await;
        let mut held = Vec::new();
        for _ in 0..2000 {
            let mut peer = edge.connect().await;
            // A connection that was closed meanwhile cannot be written to.
            let _ = peer.write_all(sent.as_bytes()).await;
            held.push(peer);
        }
        others_are_served(&edge).await;
        drop(held);
    }
}

/// A connection of a tenant stays open while strangers come and go, and so does one whose request is in progress.
#[tokio::test]
async fn strangers_close_neither_a_tenants_connection_nor_a_request_in_progress() {
    let hold = Arc::new(Semaphore::new(0));
    let edge = served(64, Some(Arc::clone(&hold))).await;
    let mut tenant = edge.connect().await;
    let read = b"GET /v1/decisions HTTP/1.1\r\nhost: x\r\nx-api-key: whole\r\n\r\n";
    tenant.write_all(read).await.unwrap();
    let mut first = [0; 9];
    tenant.read_exact(&mut first).await.unwrap();
    let sent = tokio::spawn(edge.chat("/v1/chat", HI).header("x-api-key", "half").send());
    until("the model to be asked", || edge.model.asked.load(Ordering::SeqCst) == 1).await;
    let mut strangers = Vec::new();
    for _ in 0..1000 {
        strangers.push(edge.connect().await);
    }
    hold.add_permits(1);
    assert_eq!(sent.await.unwrap().unwrap().status(), 200);
    let closing = b"GET /livez HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    tenant.write_all(closing).await.unwrap();
    assert!(
        read_to_end(&mut tenant).await.contains("HTTP/1.1 200 OK"),
        "it is still open"
    );
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_order() {
    let edge = serve(Setup::default()).await;
    let requests =
        "GET /livez HTTP/1.1\r\nhost: x\r\n\r\nGET /nothing HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    let answers = edge.raw(requests.as_bytes()).await;
    let (first, second) = (
        answers.find(" 200 OK").unwrap(),
        answers.find(" 404 Not Found").unwrap(),
    );
    assert!(first < second, "{answers}");
}

#[tokio::test]
async fn a_shutdown_finishes_requests_in_progress_and_accepts_no_new_ones() {
    let hold = Arc::new(Semaphore::new(0));
    let edge = serve(Setup {
        hold: Some(hold.clone()),
        ..Setup::default()
    })
    .await;
    let mut idle = edge.connect().await;
    idle.write_all(b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    let sent = tokio::spawn(edge.chat("/v1/chat", HI).send());
    until("the model to be asked", || edge.model.asked.load(Ordering::SeqCst) == 1).await;
    let stopping = tokio::spawn(edge.handle.stop(true));
    let answered = read_to_end(&mut idle).await;
    assert!(
        answered.starts_with("HTTP/1.1 200"),
        "an idle connection is closed at once: {answered}"
    );
    hold.add_permits(1);
    assert_eq!(sent.await.unwrap().unwrap().status(), 200);
    stopping.await.unwrap();
    assert!(
        tokio::net::TcpStream::connect(edge.address).await.is_err(),
        "the listener is closed"
    );
}
