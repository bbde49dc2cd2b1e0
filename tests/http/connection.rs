//! Connections: both protocols, slow peers, stopping.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use gavel::http::EdgeLimits;
use tokio::io::AsyncWriteExt;
use tokio::sync::Semaphore;

use crate::harness::{Answer, HI, Setup, client, read_to_end, serve, until};

/// Impatient, so that tests need not wait.
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
async fn http_2_with_prior_knowledge_is_served_on_the_same_port() {
    let edge = serve(Setup::default()).await;
    let h2 = client(|builder| builder.http2_prior_knowledge());
    let request = h2
        .post(format!("{}/v1/chat", edge.url))
        .header("content-type", "application/json")
        .body(HI);
    let response = request.send().await.unwrap();
    assert_eq!(response.version(), reqwest::Version::HTTP_2);
    assert_eq!(Answer::of(response).await.json()["response"], "Hello there.");
    let streamed = h2
        .post(format!("{}/v1/chat/stream", edge.url))
        .header("content-type", "application/json")
        .body(HI);
    assert!(
        Answer::of(streamed.send().await.unwrap())
            .await
            .text
            .contains(r#""type":"decision""#)
    );
    let head = h2.head(format!("{}/livez", edge.url)).send().await.unwrap();
    assert_eq!(Answer::of(head).await.text, "");
}

#[tokio::test]
async fn a_connection_that_says_nothing_is_closed() {
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
async fn a_second_head_that_does_not_end_is_let_go() {
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

/// The quiet time is for peers, not for models.
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

/// DESIGN.md section 12: drain.
#[tokio::test]
async fn a_stop_lets_what_is_under_way_finish_and_takes_nothing_new() {
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
        "nobody listens any more"
    );
}
