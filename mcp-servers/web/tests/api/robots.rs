//! What a site's robots.txt allows.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::harness::World;
use crate::site::{Reply, Site};

const RULES: &str = "\
User-agent: *
Disallow: /

User-agent: gavel-mcp-web
Disallow: /private
Allow: /private/open$
";

async fn site(robots: Reply) -> Site {
    Site::start(move |path| match path {
        "/robots.txt" => robots.clone(),
        _ => Reply::text("page"),
    })
    .await
}

#[tokio::test]
async fn a_page_that_is_excluded_is_not_requested() {
    let site = site(Reply::text(RULES)).await;
    let server = World::with(&[&site]).set("WEB_ROBOTS", "").server().await;
    assert_eq!(server.fetch(&site.url("/page")).await.text(), "page");
    assert_eq!(server.fetch(&site.url("/private/x")).await.code(), "robots_refused");
    assert_eq!(server.fetch(&site.url("/private/open")).await.text(), "page");
    // The rules are kept.
    assert_eq!(site.paths(), ["/robots.txt", "/page", "/private/open"]);
    let server = World::with(&[&site]).server().await;
    assert_eq!(server.fetch(&site.url("/private/x")).await.text(), "page");
}

#[tokio::test]
async fn without_a_robots_file_everything_is_allowed_and_without_an_answer_nothing() {
    for (robots, expected) in [
        (Reply::status(404), None),
        (Reply::status(403), None),
        (Reply::ok("text/html", "<html><p>Disallow: me"), None),
        (Reply::ok("text/plain", b"\xff\xfe\0\x01"), None),
        (Reply::text(""), None),
        (Reply::status(500), Some("robots_refused")),
        (Reply::status(503), Some("robots_refused")),
        (Reply::Bytes(b"nonsense".to_vec()), Some("robots_refused")),
        (Reply::redirect(302, "/robots.txt"), Some("robots_refused")),
        (Reply::ok("text/plain", vec![b'#'; 600 << 10]), Some("robots_refused")),
    ] {
        let site = site(robots.clone()).await;
        let server = World::with(&[&site]).set("WEB_ROBOTS", "respect").server().await;
        let reply = server.fetch(&site.url("/page")).await;
        match expected {
            None => assert_eq!(reply.text(), "page", "{robots:?}"),
            Some(code) => {
                assert_eq!(reply.code(), code, "{robots:?}");
                assert!(!site.paths().contains(&"/page".to_owned()));
            }
        }
    }
}

#[tokio::test]
async fn each_site_on_the_way_is_asked() {
    let target = site(Reply::text("User-agent: *\nDisallow: /secret")).await;
    let to = target.url("/secret");
    let first = Site::start(move |path| match path {
        "/robots.txt" => Reply::status(404),
        _ => Reply::redirect(302, &to),
    })
    .await;
    let server = World::with(&[&first, &target])
        .set("WEB_ROBOTS", "respect")
        .server()
        .await;
    let reply = server.fetch(&first.url("/page")).await;
    assert_eq!(
        (reply.code(), &reply.error()["status"]),
        ("robots_refused", &Value::Null)
    );
    assert_eq!(target.paths(), ["/robots.txt"]);
}

#[tokio::test]
async fn a_robots_file_that_moved_is_followed() {
    let site = Site::start(|path| match path {
        "/robots.txt" => Reply::redirect(301, "/other.txt"),
        "/other.txt" => Reply::text("User-agent: *\nDisallow: /secret"),
        _ => Reply::text("page"),
    })
    .await;
    let server = World::with(&[&site]).set("WEB_ROBOTS", "respect").server().await;
    assert_eq!(server.fetch(&site.url("/secret")).await.code(), "robots_refused");
    assert_eq!(server.fetch(&site.url("/page?/secret")).await.text(), "page");
}

#[tokio::test]
async fn rules_that_are_made_to_cost_much_cost_little() {
    let lines = |line: &str| {
        let rules: String = (0..)
            .map(|number| line.replace('#', &number.to_string()))
            .take(60_000)
            .collect();
        format!("User-agent: *\n{}", &rules[..rules.floor_char_boundary(500 << 10)])
    };
    let some = lines("Disallow: /*a#*b$\n");
    let some: Vec<_> = some.lines().take(1_900).collect();
    for (rules, code) in [
        (lines("Disallow: /*a#*b$\n"), Some("robots_refused")),
        (some.join("\n"), None),
        (lines("Disallow: /x#\n"), None),
        (lines("User-agent: x#\nDisallow: /\n"), Some("robots_refused")),
        (format!("User-agent: *\nDisallow: /{}\n", "*a".repeat(200_000)), None),
    ] {
        let site = site(Reply::text(&rules)).await;
        let server = World::with(&[&site]).set("WEB_ROBOTS", "respect").server().await;
        let begun = Instant::now();
        let reply = server.fetch(&site.url("/page")).await;
        match code {
            None => assert_eq!(reply.text(), "page", "{}", &rules[..100]),
            Some(code) => assert_eq!(reply.code(), code, "{}", &rules[..100]),
        }
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "{:?} for {}",
            begun.elapsed(),
            &rules[..100]
        );
        assert!(server.peak_memory() < 100 << 10, "{} KiB", server.peak_memory());
    }
}
