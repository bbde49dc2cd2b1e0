//! What a site's robots.txt allows.

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
