//! `gavel doctor --live`: does the service with this configuration answer? For health checks of a container that has no
//! other program.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, ensure};
use serde_json::Value;

use super::exit::Exit;
use super::output;
use crate::config::Resolved;

/// Health checks run every few seconds and must not accumulate.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Requests `/livez` at this configuration's address.
///
/// # Errors
/// No answer, or an answer other than 200.
pub(super) async fn run(resolved: Resolved) -> anyhow::Result<Exit> {
    let listen = resolved.config.listen;
    ensure!(
        listen.port() != 0,
        "listen = {listen} uses any free port, which only the running service knows"
    );
    let url = ask(listen).await?;
    output::line(&format!("✓ {url} answers"))?;
    Ok(Exit::Done)
}

/// Requests `/livez` of the service at `listen`, and returns the requested URL.
///
/// # Errors
/// No answer, or not a gavel's answer.
pub(super) async fn ask(listen: SocketAddr) -> anyhow::Result<String> {
    let url = format!("http://{}/livez", reachable(listen));
    // A proxy for outgoing requests must not be used for this machine.
    let client = reqwest::Client::builder()
        .timeout(TIMEOUT)
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy()
        .build()?;
    let mut response = client
        .get(&url)
        .send()
        .await
        .with_context(|| format!("{url} does not answer"))?;
    ensure!(
        response.status() == reqwest::StatusCode::OK,
        "{url} answers {}",
        response.status()
    );
    // Reads only one chunk, which holds gavel's whole answer: another program may listen there.
    let first = response.chunk().await.ok().flatten().unwrap_or_default();
    let answer: Option<Value> = serde_json::from_slice(&first).ok();
    ensure!(
        answer.is_some_and(|answer| answer["status"] == "ok"),
        "{url} does not give a gavel's answer"
    );
    Ok(url)
}

/// The address at which this machine reaches a service that listens at `address`.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_that_listens_everywhere_is_asked_on_loopback() {
        for (listen, asked) in [
            ("0.0.0.0:8080", "127.0.0.1:8080"),
            ("[::]:80", "[::1]:80"),
            ("192.0.2.1:80", "192.0.2.1:80"),
        ] {
            assert_eq!(reachable(listen.parse().unwrap()).to_string(), asked);
        }
    }
}
