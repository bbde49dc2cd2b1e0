//! Names that lead to private addresses, or do so later. The program uses the system's resolver, so the test runs in a
//! network of its own, where a DNS server on loopback answers by script, and a site has a public address.

mod dns;

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use tokio::process::Command;

use crate::harness::{Server, World};
use crate::site::{Reply, Site};
use dns::{Dns, Record};

const INSIDE: &str = "WEB_TEST_NETWORK";
/// Of a site that is reached through this host, but is not its own.
const PUBLIC: Ipv4Addr = Ipv4Addr::new(93, 184, 216, 35);
/// This host's own, although public.
const OWN: Ipv4Addr = Ipv4Addr::new(93, 184, 216, 1);
const LOOPBACK: Ipv4Addr = Ipv4Addr::LOCALHOST;

/// Makes the network, and runs a test of this program in it.
const NETWORK: &str = r#"
set -e
ip link set lo up
ip addr add 93.184.216.1/32 dev lo
ip route add table local local 93.184.216.32/28 dev lo src 93.184.216.1
printf 'nameserver 127.0.0.1\noptions timeout:2 attempts:1\n' > "$1/resolv.conf"
printf 'hosts: files dns\n' > "$1/nsswitch.conf"
printf '127.0.0.1 localhost\n' > "$1/hosts"
for file in resolv.conf nsswitch.conf hosts; do
    [ -e "/etc/$file" ] && mount --bind "$1/$file" "/etc/$file"
done
exec "$2" --exact names::inside --ignored --nocapture
"#;

#[tokio::test]
async fn no_name_leads_to_a_private_address() {
    let directory = tempfile::tempdir().expect("a directory");
    let output = Command::new("unshare")
        .args([
            "--user",
            "--map-root-user",
            "--net",
            "--mount",
            "sh",
            "-c",
            NETWORK,
            "sh",
        ])
        .arg(directory.path())
        .arg(std::env::current_exe().expect("this program"))
        .env(INSIDE, "yes")
        .output()
        .await
        .expect("unshare (util-linux) runs");
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

/// The addresses of a name, by how often it was asked for.
fn zone(name: &str, before: usize) -> Vec<Record> {
    let v6 = |text: &str| Record::Aaaa(text.parse().expect(text));
    match name {
        "public.example" => vec![Record::A(PUBLIC)],
        // The first answer is for the check, the second for the connection.
        "rebinding.example" | "redirecting.example" if before == 0 => vec![Record::A(PUBLIC)],
        "rebinding.example" | "redirecting.example" => vec![Record::A(LOOPBACK)],
        "alternating.example" if before % 2 == 1 => vec![Record::A(PUBLIC)],
        "alternating.example" => vec![Record::A(LOOPBACK)],
        "loopback.example" => vec![Record::A(LOOPBACK)],
        "any.example" => vec![Record::A(Ipv4Addr::UNSPECIFIED)],
        "mixed.example" => vec![Record::A(PUBLIC), Record::A(LOOPBACK)],
        "mixed-last.example" => vec![Record::A(LOOPBACK), Record::A(PUBLIC)],
        "mixed-v6.example" => vec![Record::A(PUBLIC), Record::Aaaa(Ipv6Addr::LOCALHOST)],
        "alias.example" => vec![Record::Cname("internal.example", LOOPBACK)],
        "mapped.example" => vec![v6("::ffff:127.0.0.1")],
        "compatible.example" => vec![v6("::127.0.0.1")],
        "nat64.example" => vec![v6("64:ff9b::127.0.0.1")],
        "local-nat64.example" => vec![v6("64:ff9b:1::127.0.0.1")],
        "six-to-four.example" => vec![v6("2002:7f00:1::1")],
        "v6.example" => vec![Record::Aaaa(Ipv6Addr::LOCALHOST)],
        "metadata.example" => vec![Record::A(Ipv4Addr::new(169, 254, 169, 254))],
        "azure.example" => vec![Record::A(Ipv4Addr::new(168, 63, 129, 16))],
        "own.example" => vec![Record::A(OWN)],
        _ => Vec::new(),
    }
}

const REFUSED: [&str; 16] = [
    "loopback.example",
    "any.example",
    "mixed.example",
    "mixed-last.example",
    "mixed-v6.example",
    "alias.example",
    "mapped.example",
    "compatible.example",
    "nat64.example",
    "local-nat64.example",
    "six-to-four.example",
    "v6.example",
    "metadata.example",
    "azure.example",
    "own.example",
    "localhost",
];

async fn at(address: impl Into<std::net::IpAddr>, script: impl Fn(&str) -> Reply + Send + Sync + 'static) -> Site {
    Site::at(SocketAddr::new(address.into(), 80), script)
        .await
        .expect("port 80")
}

async fn refused(server: &Server, url: &str) {
    let reply = server.fetch(url).await;
    assert_eq!(reply.code(), "address_refused", "{url}: {}", reply.body);
    let message = reply.error()["message"].as_str().expect("a message");
    assert!(
        !message.contains(|character: char| character.is_ascii_digit()),
        "an address: {message}"
    );
}

#[tokio::test]
#[ignore = "runs only in the network that no_name_leads_to_a_private_address makes"]
async fn inside() {
    if std::env::var_os(INSIDE).is_none() {
        return;
    }
    let dns = Dns::start(zone).await;
    let inside = [
        at(LOOPBACK, |_| Reply::text("inside")).await,
        at(Ipv6Addr::LOCALHOST, |_| Reply::text("inside")).await,
        at(OWN, |_| Reply::text("inside")).await,
    ];
    let public = at(PUBLIC, |path| match path.strip_prefix("/to/") {
        Some(host) => Reply::redirect(302, &format!("http://{host}/")),
        None if path == "/robots.txt" => Reply::status(404),
        None => Reply::text("public"),
    })
    .await;
    let server = World::default().server().await;
    assert_eq!(server.fetch("http://public.example/").await.text(), "public");
    for name in REFUSED {
        refused(&server, &format!("http://{name}/")).await;
        refused(&server, &format!("http://{name}./")).await;
        refused(&server, &format!("http://public.example/to/{name}")).await;
    }
    // robots.txt and the page come from the address that was checked; the name is not asked for again.
    let before = public.connections();
    assert_eq!(server.fetch("http://rebinding.example/").await.text(), "public");
    assert_eq!(
        (dns.lookups("rebinding.example"), public.connections() - before),
        (1, 2)
    );
    refused(&server, "http://rebinding.example/").await;
    assert_eq!(server.fetch("http://redirecting.example/page").await.text(), "public");
    refused(&server, "http://public.example/to/redirecting.example").await;
    for _ in 0..3 {
        refused(&server, "http://alternating.example/").await;
        assert_eq!(server.fetch("http://alternating.example/").await.text(), "public");
    }
    assert_eq!(server.fetch("http://unknown.example/").await.code(), "http_error");
    assert_eq!(inside.map(|site| site.connections()), [0, 0, 0]);
}
