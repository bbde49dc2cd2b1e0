//! What is not requested, wherever the URL is from: the call, a redirect, or a robots.txt.

use crate::harness::World;
use crate::site::{Reply, Site};

/// Every notation of this IPv4 address that a parser may accept.
fn notations(address: [u8; 4]) -> Vec<String> {
    let [a, b, c, d] = address;
    let number = u32::from_be_bytes(address);
    let (high, low) = (number >> 16, number & 0xffff);
    vec![
        format!("{a}.{b}.{c}.{d}"),
        format!("{number}"),
        format!("0x{number:x}"),
        format!("0X{number:X}"),
        format!("0{number:o}"),
        format!("0x{a:x}.0x{b:x}.0x{c:x}.0x{d:x}"),
        format!("0{a:o}.0{b:o}.0{c:o}.0{d:o}"),
        format!("000{a:o}.{b}.0x{c:x}.{d}"),
        format!("{a}.{}", number & 0xff_ffff),
        format!("{a}.{b}.{low}"),
        format!("{a}.{b}.{c}.{d}."),
        format!("%{:02x}{}.{b}.{c}.{d}", b'0' + a / 100, a % 100),
        format!("１{}.{b}.{c}.{d}", a % 100),
        format!("{a}。{b}。{c}。{d}"),
        format!("[::ffff:{a}.{b}.{c}.{d}]"),
        format!("[::ffff:{high:x}:{low:x}]"),
        format!("[0:0:0:0:0:ffff:{high:x}:{low:x}]"),
        format!("[::{a}.{b}.{c}.{d}]"),
        format!("[::ffff:0:{a}.{b}.{c}.{d}]"),
        format!("[64:ff9b::{a}.{b}.{c}.{d}]"),
        format!("[64:ff9b:1::{a}.{b}.{c}.{d}]"),
        format!("[64:ff9b:1:ffff::{high:x}:{low:x}]"),
        format!("[2002:{high:x}:{low:x}::]"),
        format!("[2002:{high:x}:{low:x}::1]"),
        format!("[2001:0:{high:x}:{low:x}::1]"),
        format!("[2001:0:4136:e378:8000:63bf:{:x}:{:x}]", !high & 0xffff, !low & 0xffff),
    ]
}

/// Hosts that are not public, with the code of their refusal.
fn hosts(inside: &Site) -> Vec<String> {
    let std::net::IpAddr::V4(address) = inside.address.ip() else {
        panic!("an IPv4 address");
    };
    let mut hosts = notations(address.octets());
    for octets in [
        [127, 0, 0, 1],
        [10, 1, 2, 3],
        [169, 254, 169, 254],
        [168, 63, 129, 16],
        [192, 168, 1, 1],
    ] {
        hosts.extend(
            notations(octets)
                .into_iter()
                .filter(|host| !host.contains('%') && !host.contains('１')),
        );
    }
    let others = [
        "0",
        "0.0.0.0",
        "127.1",
        "localhost",
        "LOCALHOST",
        "localhost.",
        "a.localhost",
        "172.16.0.1",
        "100.64.0.1",
        "100.100.100.200",
        "192.0.0.192",
        "192.0.2.1",
        "198.18.0.1",
        "198.51.100.7",
        "203.0.113.7",
        "224.0.0.1",
        "240.0.0.1",
        "255.255.255.255",
        "[::]",
        "[::1]",
        "[fe80::1]",
        "[fec0::1]",
        "[fc00::1]",
        "[fd00:ec2::254]",
        "[ff02::1]",
        "[100::1]",
        "[2001:db8::1]",
        "[3fff::1]",
        "[5f00::1]",
        "[2620:4f:8000::1]",
    ];
    hosts.extend(others.map(str::to_owned));
    hosts
}

#[tokio::test]
async fn no_notation_of_a_private_address_is_connected_to() {
    let inside = Site::at_a_web_port().await;
    for robots in ["respect", "ignore"] {
        let server = World::default().set("WEB_ROBOTS", robots).server().await;
        for host in hosts(&inside) {
            let reply = server.fetch(&format!("http://{host}:8080/")).await;
            assert_eq!(reply.code(), "address_refused", "{host}: {}", reply.body);
            let words = reply.error()["message"].as_str().expect("a message");
            assert!(!words.contains("127.") && !words.contains(&*host), "{words}");
        }
    }
    assert_eq!(inside.connections(), 0);
}

#[tokio::test]
async fn no_redirect_leads_to_a_private_address() {
    let inside = Site::at_a_web_port().await;
    let hosts = hosts(&inside);
    let targets = hosts.clone();
    let outside = Site::start(move |path| match path.trim_start_matches('/').parse::<usize>() {
        Ok(number) => Reply::redirect(
            [301, 302, 303, 307, 308][number % 5],
            &format!("http://{}:8080/", targets[number]),
        ),
        Err(_) => Reply::status(404),
    })
    .await;
    let server = World::with(&[&outside]).server().await;
    for (number, host) in hosts.iter().enumerate() {
        let reply = server.fetch(&outside.url(&format!("/{number}"))).await;
        assert_eq!(reply.code(), "address_refused", "{host}: {}", reply.body);
    }
    assert_eq!(inside.connections(), 0);
    assert_eq!(outside.connections(), hosts.len());
}

#[tokio::test]
async fn no_robots_file_leads_to_a_private_address() {
    let inside = Site::at_a_web_port().await;
    let to = inside.url("/robots.txt");
    let outside = Site::start(move |path| match path {
        "/robots.txt" => Reply::redirect(302, &to),
        _ => Reply::text("page"),
    })
    .await;
    let server = World::with(&[&outside]).set("WEB_ROBOTS", "respect").server().await;
    assert_eq!(server.fetch(&outside.url("/page")).await.code(), "robots_refused");
    assert_eq!(inside.connections(), 0);
    assert_eq!(outside.paths(), ["/robots.txt"]);
}

#[tokio::test]
async fn only_web_urls_are_requested() {
    let outside = Site::start(|path| {
        let to = match path {
            "/scheme" => "file:///etc/passwd",
            "/script" => "javascript:alert(1)",
            "/user" => "http://me:secret@example.com/",
            "/port" => "http://example.com:22/",
            "/invalid" => "http://[::1/",
            _ => return Reply::status(302),
        };
        Reply::redirect(302, to)
    })
    .await;
    let server = World::with(&[&outside]).server().await;
    let local = outside.address;
    for (url, why) in [
        (format!("http://me@{local}/"), "userinfo"),
        (format!("http://me:secret@{local}/"), "userinfo"),
        (format!("http://127.0.0.2:{}/", local.port()), "port"),
        ("https://example.com:22/".to_owned(), "port"),
        ("ftp://example.com/".to_owned(), "scheme"),
        ("file:///etc/passwd".to_owned(), "scheme"),
        ("unix:/run/docker.sock".to_owned(), "scheme"),
        ("example.com".to_owned(), "invalid"),
        ("//example.com/".to_owned(), "invalid"),
        ("http://[fe80::1%25lo]/".to_owned(), "invalid"),
    ] {
        let reply = server.fetch(&url).await;
        assert_eq!(
            (reply.code(), &reply.error()["why"]),
            ("url_refused", &why.into()),
            "{url}"
        );
        assert!(!reply.body.to_string().contains("secret"), "{}", reply.body);
    }
    assert_eq!(outside.connections(), 0);
    for (path, why) in [
        ("/scheme", "scheme"),
        ("/script", "scheme"),
        ("/user", "userinfo"),
        ("/port", "port"),
        ("/invalid", "invalid"),
    ] {
        let reply = server.fetch(&outside.url(path)).await;
        assert_eq!(
            (reply.code(), &reply.error()["why"]),
            ("url_refused", &why.into()),
            "{path}"
        );
    }
    let nowhere = server.fetch(&outside.url("/without-a-location")).await;
    assert_eq!(
        (nowhere.code(), &nowhere.error()["status"]),
        ("http_error", &302.into())
    );
}

#[tokio::test]
async fn a_redirect_from_https_to_http_is_not_followed() {
    let plain = Site::start(|_| Reply::text("plain")).await;
    let to = plain.url("/");
    let (secure, certificate) = Site::secure(move |path| match path {
        "/down" => Reply::redirect(301, &to),
        "/up" => Reply::redirect(301, "/page"),
        _ => Reply::text("secure"),
    })
    .await;
    let directory = tempfile::tempdir().expect("a directory");
    let roots = directory.path().join("roots.pem");
    std::fs::write(&roots, certificate).expect("written");
    let world = World::with(&[&plain, &secure]);
    let server = world.set("SSL_CERT_FILE", &roots.display().to_string()).server().await;
    assert_eq!(server.fetch(&secure.url("/up")).await.text(), "secure");
    let reply = server.fetch(&secure.url("/down")).await;
    assert_eq!(
        (reply.code(), &reply.error()["why"]),
        ("url_refused", &"downgrade".into())
    );
    assert_eq!(plain.connections(), 0);
    // Without the certificate nothing is read.
    let server = World::with(&[&secure]).server().await;
    assert_eq!(server.fetch(&secure.url("/page")).await.code(), "http_error");
}

#[tokio::test]
async fn the_operator_limits_the_hosts() {
    let site = Site::start(|_| Reply::text("page")).await;
    let server = World::with(&[&site]).set("WEB_DENY", "127.0.0.1").server().await;
    let reply = server.fetch(&site.url("/")).await;
    assert_eq!((reply.code(), &reply.error()["why"]), ("url_refused", &"host".into()));
    let server = World::with(&[&site]).set("WEB_ALLOW", "*.example.com").server().await;
    assert_eq!(server.fetch("http://example.org/").await.error()["why"], "host");
    assert_eq!(server.fetch(&site.url("/")).await.text(), "page");
    // An exact host and port: not another spelling of the same machine.
    let other = format!("http://localhost:{}/", site.address.port());
    assert_eq!(server.fetch(&other).await.error()["why"], "host");
    assert_eq!(site.connections(), 1);
}

#[tokio::test]
async fn the_environment_has_no_say_in_where_requests_go() {
    let proxy = Site::start(|_| Reply::text("proxy")).await;
    let site = Site::start(|_| Reply::text("site")).await;
    let mut world = World::with(&[&site]);
    for name in [
        "http_proxy",
        "HTTP_PROXY",
        "https_proxy",
        "HTTPS_PROXY",
        "all_proxy",
        "ALL_PROXY",
    ] {
        world = world.set(name, &proxy.url(""));
    }
    let server = world.server().await;
    assert_eq!(server.fetch(&site.url("/")).await.text(), "site");
    assert_eq!(server.fetch("http://10.0.0.1/").await.code(), "address_refused");
    assert_eq!(proxy.connections(), 0);
}
