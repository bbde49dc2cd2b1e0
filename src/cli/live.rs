//! `gavel doctor --live`: does the service of this configuration answer? For a container's health check, which
//! has no other program at hand.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, ensure};
use serde_json::Value;

use super::exit::Exit;
use super::output;
use crate::config::Resolved;

/// Health checks are made every few seconds and must not pile up.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Asks `/livez` where this configuration listens.
///
/// # Errors
/// Nobody answers, or not with 200.
pub(super) async fn run(resolved: Resolved) -> anyhow::Result<Exit> {
    let listen = resolved.config.listen;
    ensure!(
        listen.port() != 0,
        "listen = {listen} takes any free port, which only the running service knows"
    );
    let url = ask(listen).await?;
    output::line(&format!("✓ {url} answers"))?;
    Ok(Exit::Done)
}

/// Asks the service that listens there, and gives the URL that was asked.
///
/// # Errors
/// Nobody answers, or not as a gavel does.
pub(super) async fn ask(listen: SocketAddr) -> anyhow::Result<String> {
    let url = format!("http://{}/livez", reachable(listen));
    // A proxy for the way out is not the way to ourselves.
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
    // As much as a gavel says, and no more: something else may listen there.
    let first = response.chunk().await.ok().flatten().unwrap_or_default();
    let answer: Option<Value> = serde_json::from_slice(&first).ok();
    ensure!(
        answer.is_some_and(|answer| answer["status"] == "ok"),
        "{url} does not answer as a gavel does"
    );
    Ok(url)
}

/// Where a service that listens at `address` is reached from the same machine.
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
    fn whoever_listens_everywhere_is_asked_on_loopback() {
        for (listen, asked) in [
            ("0.0.0.0:8080", "127.0.0.1:8080"),
            ("[::]:80", "[::1]:80"),
            ("192.0.2.1:80", "192.0.2.1:80"),
        ] {
            assert_eq!(reachable(listen.parse().unwrap()).to_string(), asked);
        }
    }
}
