//! Remote servers, over TLS.
//!
//! The bridge uses other code for them than for servers on this machine. So the tests of calls run three times: in this
//! process, and in two more processes, where every server is behind TLS and supports one protocol, HTTP/1.1 or HTTP/2.
//! Separate processes are needed because trusted certificates apply to a whole process (`SSL_CERT_FILE`), as an
//! operator sets them.

use std::process::Command;

use gavel::adapters::mcp::ServerState;
use gavel::ports::tools::Tools;

use super::raw::RawServer;
use super::raw::lane::{DIRECTORY, PROTOCOL};
use super::support::{bridge, http, until};

/// Runs tests in a separate process, whose servers use `protocol` over TLS; returns how many have passed.
fn run(protocol: &str, tests: &[&str], trusts_them: bool) -> u32 {
    let directory = tempfile::tempdir().unwrap();
    let issue = || rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let (servers, other) = (issue(), issue());
    let file = |name: &str, pem: String| {
        let path = directory.path().join(name);
        std::fs::write(&path, pem).unwrap();
        path
    };
    file("certificate.pem", servers.cert.pem());
    file("key.pem", servers.signing_key.serialize_pem());
    let trusted = if trusts_them { &servers } else { &other };
    let run = Command::new(std::env::current_exe().unwrap())
        .args(tests)
        .env("SSL_CERT_FILE", file("trusted.pem", trusted.cert.pem()))
        .env_remove("SSL_CERT_DIR")
        .env(DIRECTORY, directory.path())
        .env(PROTOCOL, protocol)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&run.stdout);
    let passed = said
        .lines()
        .find_map(|line| line.strip_prefix("test result: ok. ")?.split_once(" passed; 0 failed"));
    assert!(run.status.success(), "{said}");
    passed.unwrap().0.parse().unwrap()
}

/// The tests of calls.
const CALLS: [&str; 2] = ["faults::", "http::"];

/// Promises: at most once, bounded faults. For a remote server.
#[test]
fn calls_behave_the_same_over_tls_with_http_1() {
    assert!(run("http/1.1", &CALLS, true) > 40);
}

#[test]
fn calls_behave_the_same_over_tls_with_http_2() {
    assert!(run("h2", &CALLS, true) > 40);
}

#[test]
fn a_server_with_an_untrusted_certificate_gets_no_request() {
    assert_eq!(run("h2", &["--ignored", "--exact", "tls::not_trusted"], false), 1);
}

#[tokio::test]
#[ignore = "in a process that trusts another authority"]
async fn not_trusted() {
    let mut server = RawServer::start(|_| None).await;
    let mcp = bridge(&http(&server.url));
    until(&mcp, |mcp| mcp.status()[0].state == ServerState::Down).await;
    let reason = &mcp.catalog().down["s"];
    assert!(reason.contains("certificate"), "{reason}");
    assert_eq!(server.seen.try_recv().ok(), None);
}
