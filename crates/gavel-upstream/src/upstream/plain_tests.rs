//! When pooled connections end, and which addresses the pool accepts.
#![allow(clippy::unwrap_used)]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use hyper_util::rt::TokioIo;

use super::*;

const LIMITS: Limits = Limits {
    connect: Duration::from_secs(1),
    idle: Duration::from_secs(1),
    kept: 1,
};

/// A server that counts the connections that are open.
async fn server() -> (Url, Arc<AtomicUsize>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = Url::parse(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
    let open = Arc::<AtomicUsize>::default();
    let counted = open.clone();
    let accepting = async move {
        let mut connections = tokio::task::JoinSet::new();
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let open = counted.clone();
            open.fetch_add(1, Ordering::SeqCst);
            connections.spawn(async move {
                let answer = hyper::service::service_fn(async |_| {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    Ok::<_, std::convert::Infallible>(hyper::Response::new(String::new()))
                });
                let http1 = hyper::server::conn::http1::Builder::new();
                let _ = http1.serve_connection(TokioIo::new(stream), answer).await;
                open.fetch_sub(1, Ordering::SeqCst);
            });
        }
    };
    #[expect(clippy::disallowed_methods, reason = "ends with the test")]
    tokio::spawn(accepting);
    (url, open)
}

async fn post(pool: &Plain, url: &Url) {
    let (target, headers) = (Plain::target(url).unwrap(), HeaderMap::new());
    let body = Bytes::from_static(b"x").chain(Bytes::from_static(b"y"));
    let mut response = pool.post(&target, &headers, body, &SendGate::default()).await.unwrap();
    while response.chunk().await.unwrap().is_some() {}
}

/// Promise: bounded faults. Connections of a burst are closed when they expire, with or without further requests.
#[tokio::test]
async fn what_a_burst_has_left_ends_with_its_time() {
    const BURST: usize = 20;
    let idle = Duration::from_millis(400);
    for quiet in [true, false] {
        let (url, open) = server().await;
        let limits = Limits {
            idle,
            kept: BURST,
            ..LIMITS
        };
        let pool = Plain::new(&url, limits).unwrap();
        futures_util::future::join_all((0..BURST).map(|_| post(&pool, &url))).await;
        assert_eq!(open.load(Ordering::SeqCst), BURST);
        let until = Instant::now() + idle * 4;
        while Instant::now() < until {
            if quiet {
                tokio::time::sleep(idle / 8).await;
            } else {
                post(&pool, &url).await;
            }
        }
        assert_eq!(open.load(Ordering::SeqCst), usize::from(!quiet), "{quiet}");
    }
}

#[test]
fn only_plain_addresses_of_this_machine_are_taken() {
    let takes = |url: &str| Plain::new(&Url::parse(url).unwrap(), LIMITS).is_some();
    assert!(takes("http://127.0.0.1:1/mcp?a=b") && takes("http://localhost/mcp") && takes("http://[::1]:8/"));
    assert!(!takes("https://localhost/mcp") && !takes("http://example.org/mcp") && !takes("http://u:p@localhost/"));
    let url = Url::parse("http://[::1]:8/x?y#z").unwrap();
    assert_eq!(Plain::target(&url).unwrap(), "http://[::1]:8/x?y");
}

/// A connection's task runs on the thread that made it, so another thread's request would wake two threads.
#[tokio::test]
async fn each_thread_keeps_its_own_connections() {
    let (url, open) = server().await;
    let pool = Plain::new(&url, LIMITS).unwrap();
    post(&pool, &url).await;
    let on_another_thread = async || {
        let (pool, url, open) = (Arc::clone(&pool), url.clone(), Arc::clone(&open));
        let thread = tokio::task::spawn_blocking(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(async {
                post(&pool, &url).await;
                post(&pool, &url).await;
                open.load(Ordering::SeqCst)
            })
        });
        thread.await.unwrap()
    };
    // Two threads whose numbers differ by the number of clients share one; not three of them.
    assert_eq!(on_another_thread().await.max(on_another_thread().await), 2);
    post(&pool, &url).await;
}
