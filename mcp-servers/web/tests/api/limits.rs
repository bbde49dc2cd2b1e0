//! Sites that do not end: each costs a bounded time and memory.

use std::io::Write;
use std::time::{Duration, Instant};

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::harness::World;
use crate::site::{Reply, Site};

const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n";
/// The memory that the program may need, in KiB.
const MEMORY: usize = 150 << 10;

fn gzip(bytes: usize) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    let block = vec![b'a'; 1 << 20];
    for _ in 0..bytes >> 20 {
        encoder.write_all(&block).expect("compressed");
    }
    encoder.finish().expect("compressed")
}

fn compressed(body: &[u8]) -> Reply {
    Reply::with(200, "Content-Type: text/plain\r\nContent-Encoding: gzip\r\n", body)
}

#[tokio::test]
async fn a_body_without_an_end_is_cut() {
    let site = Site::start(|path| match path {
        "/declared" => {
            Reply::Bytes(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 9000000000\r\n\r\n".into())
        }
        "/chunked" => {
            let head = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nTransfer-Encoding: chunked\r\n\r\n";
            let chunk = [b"4000\r\n".to_vec(), vec![b'x'; 0x4000], b"\r\n".to_vec()].concat();
            Reply::Forever(head.to_vec(), chunk, Duration::ZERO)
        }
        _ => Reply::Forever(HEAD.to_vec(), vec![b'x'; 1 << 16], Duration::ZERO),
    })
    .await;
    let server = World::with(&[&site]).server().await;
    for path in ["/declared", "/chunked", "/endless"] {
        let reply = server.fetch(&site.url(path)).await;
        assert_eq!(
            (reply.code(), &reply.error()["max"]),
            ("too_large", &(2 << 20).into()),
            "{path}"
        );
    }
    assert!(site.sent() < 64 << 20, "{} bytes were taken", site.sent());
    assert!(server.peak_memory() < MEMORY, "{} KiB", server.peak_memory());
}

#[tokio::test]
async fn a_slow_site_costs_the_time_of_a_call_and_no_more() {
    let site = Site::start(|path| match path {
        "/silent" => Reply::Forever(Vec::new(), Vec::new(), Duration::from_secs(60)),
        "/head" => Reply::Forever(
            b"HTTP/1.1 200 OK\r\nX: ".to_vec(),
            b"x".to_vec(),
            Duration::from_millis(50),
        ),
        "/redirects" => Reply::Forever(b"HTTP/1.1 302 X\r\n".to_vec(), b"X".to_vec(), Duration::from_millis(50)),
        _ => Reply::Forever(HEAD.to_vec(), b"x".to_vec(), Duration::from_millis(50)),
    })
    .await;
    let server = World::with(&[&site]).set("WEB_TIMEOUT_SECONDS", "2").server().await;
    for path in ["/silent", "/head", "/redirects", "/body"] {
        let begun = Instant::now();
        let reply = server.fetch(&site.url(path)).await;
        assert_eq!(
            (reply.code(), &reply.error()["seconds"]),
            ("timeout", &2.into()),
            "{path}"
        );
        let taken = begun.elapsed();
        assert!(
            taken >= Duration::from_secs(2) && taken < Duration::from_secs(10),
            "{path}: {taken:?}"
        );
    }
}

#[tokio::test]
async fn a_head_without_an_end_is_no_answer() {
    let site = Site::start(|_| {
        Reply::Forever(
            b"HTTP/1.1 200 OK\r\n".to_vec(),
            b"X-Header: value\r\n".repeat(100),
            Duration::ZERO,
        )
    })
    .await;
    let server = World::with(&[&site]).server().await;
    let reply = server.fetch(&site.url("/")).await;
    assert_eq!(
        (reply.code(), &reply.error()["status"]),
        ("http_error", &serde_json::Value::Null)
    );
    assert!(server.peak_memory() < MEMORY, "{} KiB", server.peak_memory());
}

#[tokio::test]
async fn a_decompressed_page_has_a_limit() {
    let (bomb, large) = (gzip(1 << 30), gzip(8 << 20));
    let site = Site::start(move |path| match path {
        "/bomb" => compressed(&bomb),
        "/twice" => compressed(&[&*large, &*large].concat()),
        "/large" => compressed(&large),
        "/broken" => compressed(&large[..100]),
        "/other" => Reply::with(200, "Content-Type: text/plain\r\nContent-Encoding: br\r\n", "x"),
        _ => compressed(b"not gzip"),
    })
    .await;
    let server = World::with(&[&site]).server().await;
    for (path, code) in [
        ("/bomb", "too_large"),
        ("/twice", "too_large"),
        ("/broken", "http_error"),
        ("/plain", "http_error"),
        ("/other", "unsupported_content"),
    ] {
        let reply = server.fetch(&site.url(path)).await;
        assert_eq!(reply.code(), code, "{path}");
    }
    let page = server.fetch(&site.url("/large")).await.ok();
    assert_eq!((&page["bytes"], &page["truncated"]), (&(8 << 20).into(), &true.into()));
    assert!(server.peak_memory() < MEMORY, "{} KiB", server.peak_memory());
}

#[tokio::test]
async fn five_redirects_are_followed_and_no_more() {
    let site = Site::start(|path| {
        let number: usize = path.trim_start_matches('/').parse().unwrap_or_default();
        match number {
            0 => Reply::with(200, "Content-Type: text/plain\r\nSet-Cookie: a=b\r\n", "there"),
            number => Reply::with(302, &format!("Location: {}\r\nSet-Cookie: a=b\r\n", number - 1), ""),
        }
    })
    .await;
    let server = World::with(&[&site]).server().await;
    let page = server.fetch(&site.url("/5")).await.ok();
    assert_eq!(page["text"], "there");
    assert_eq!(page["url"], site.url("/0"));
    let passed = ["/5", "/4", "/3", "/2", "/1"].map(|path| site.url(path));
    assert_eq!(page["redirects"], serde_json::json!(passed));
    let reply = server.fetch(&site.url("/600")).await;
    assert_eq!(reply.code(), "too_many_redirects");
    assert_eq!(site.connections(), 12);
    for request in site.requests() {
        let request = request.to_lowercase();
        for header in ["cookie:", "authorization:", "referer:"] {
            assert!(!request.contains(header), "{request}");
        }
        assert!(
            request.starts_with("get ") && request.contains("user-agent: gavel-mcp-web/"),
            "{request}"
        );
    }
}

#[tokio::test]
async fn a_page_that_is_made_to_cost_time_does_not_stop_other_calls() {
    let site = Site::start(|path| match path {
        "/b" => Reply::ok("text/html", "<b><i>".repeat(300_000)),
        "/p" => Reply::ok("text/html", "<p>x, y".repeat(250_000)),
        "/a" => Reply::ok("text/html", "<a href=x>y".repeat(150_000)),
        "/attributes" => Reply::ok(
            "text/html",
            format!("<p {}>x", (0..200_000).map(|n| format!("a{n} ")).collect::<String>()),
        ),
        "/moved" => Reply::ok("text/html", format!("<table>{}", "<div>".repeat(20_000))),
        "/template" => Reply::ok("text/html", format!("x<template>{}", "<div>".repeat(20_000))),
        "/table" => Reply::ok("text/html", "<table><tr><td>".repeat(100_000)),
        "/long" => Reply::ok("text/html", "<p>x, y, z and some more words".repeat(60_000)),
        "/articles" => Reply::ok(
            "text/html",
            "<div><p>Some, words, of, a, text that goes far</div>".repeat(24_000),
        ),
        "/deep" => Reply::ok(
            "text/html",
            format!("{}{}", "<div>".repeat(450), "<p>Some, words<b>x</b>".repeat(12_000)),
        ),
        "/links" => Reply::ok("text/html", "<li><a href=x>some words</a>".repeat(24_000)),
        "/many" => Reply::ok(
            "text/html",
            format!("<div>{}</div>", "<span>a b c</span> ".repeat(100_000)),
        ),
        _ => Reply::text("page"),
    })
    .await;
    let server = World::with(&[&site]).set("WEB_TIMEOUT_SECONDS", "20").server().await;
    for path in [
        "/b",
        "/p",
        "/a",
        "/attributes",
        "/table",
        "/moved",
        "/template",
        "/many",
        "/long",
        "/articles",
        "/deep",
        "/links",
    ] {
        let begun = Instant::now();
        let reply = server.fetch(&site.url(path)).await;
        let taken = begun.elapsed();
        eprintln!(
            "{path}: {taken:?} {}",
            reply.body.to_string().chars().take(80).collect::<String>()
        );
        assert!(taken < Duration::from_secs(30), "{path}: {taken:?}");
        if reply.is_error {
            assert!(
                ["unsupported_content", "timeout"].contains(&reply.code()),
                "{path}: {}",
                reply.body
            );
        }
    }
    assert!(server.peak_memory() < MEMORY, "{} KiB", server.peak_memory());
    assert_eq!(server.fetch(&site.url("/page")).await.text(), "page");
}
