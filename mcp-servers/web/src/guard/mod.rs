//! Which URLs are requested, and which addresses are connected to. Each hop of a fetch passes here.

mod hosts;
mod networks;
mod own;

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

use gavel_mcp_base::{ToolError, text};
use tokio::net::lookup_host;
use url::{Host, Url};

use crate::error::{UrlFault, address_refused, no_answer, url_refused};
pub(crate) use hosts::Hosts;

/// The longest URL, in bytes.
pub(crate) const MAX_URL: usize = 8 << 10;
const PORTS: [u16; 4] = [80, 443, 8080, 8443];

/// The operator's rules, beside those that are fixed.
#[derive(Debug, Clone, Default)]
pub(crate) struct Guard {
    /// If there are any, no other host is requested.
    pub(crate) allow: Hosts,
    pub(crate) deny: Hosts,
    /// Hosts with ports where the address may be private and the port any.
    pub(crate) private: BTreeSet<(String, u16)>,
}

/// A URL that may be requested, with the addresses that may be connected to for it.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) url: Url,
    pub(crate) addresses: Vec<SocketAddr>,
}

impl Guard {
    /// Checks everything about a URL but its addresses. The parser turns decimal, octal and hexadecimal hosts into
    /// addresses, as browsers do.
    pub(crate) fn url(&self, url: &str) -> Result<Url, ToolError> {
        let fault = |why| Err(url_refused(why));
        if url.len() > MAX_URL {
            return fault(UrlFault::Invalid);
        }
        let Ok(mut url) = Url::parse(url) else {
            return fault(UrlFault::Invalid);
        };
        if !matches!(url.scheme(), "http" | "https") {
            return fault(UrlFault::Scheme);
        }
        if !url.username().is_empty() || url.password().is_some() {
            return fault(UrlFault::Userinfo);
        }
        let (Some(host), Some(port)) = (hosts::host_of(&url), url.port_or_known_default()) else {
            return fault(UrlFault::Invalid);
        };
        if host.is_empty() || url.as_str().len() > MAX_URL {
            return fault(UrlFault::Invalid);
        }
        let is_private = self.private.contains(&(host.clone(), port));
        if self.deny.contains(&host) || !(self.allow.is_empty() || self.allow.contains(&host) || is_private) {
            return Err(url_refused(UrlFault::Host).and(&self.permitted()));
        }
        if !PORTS.contains(&port) && !is_private {
            return fault(UrlFault::Port);
        }
        url.set_fragment(None);
        Ok(url)
    }

    /// Which hosts and ports may be requested, for models.
    pub(crate) fn permitted(&self) -> String {
        let mut words = match self.allow.is_unlimited() {
            true => "Every public host is permitted".to_owned(),
            false => format!("Permitted hosts: {}", self.allow.list()),
        };
        if !self.deny.is_empty() {
            words.push_str(&format!("; not {}", self.deny.list()));
        }
        if !self.private.is_empty() {
            let private = self.private.iter().map(|(host, port)| format!("{host}:{port}"));
            words.push_str(&format!("; also {}", text::list(private)));
        }
        words + &format!(". Ports: {}.", text::list(PORTS.map(|port| port.to_string())))
    }

    /// Resolves the host of a checked URL once. If one of its addresses is not public, none is used: a name with both
    /// kinds is an attack, or is meant for inside.
    pub(crate) async fn admit(&self, url: Url) -> Result<Target, ToolError> {
        let (Some(host), Some(port)) = (hosts::host_of(&url), url.port_or_known_default()) else {
            return Err(url_refused(UrlFault::Invalid));
        };
        let may_be_private = self.private.contains(&(host.clone(), port));
        // RFC 6761: these names are loopback, whatever a resolver says.
        if !may_be_private && (host == "localhost" || host.ends_with(".localhost")) {
            return Err(address_refused());
        }
        let addresses = match url.host() {
            Some(Host::Ipv4(address)) => vec![SocketAddr::from((address, port))],
            Some(Host::Ipv6(address)) => vec![SocketAddr::from((address, port))],
            Some(Host::Domain(name)) => match lookup_host((name, port)).await {
                Ok(found) => found.collect(),
                Err(error) => {
                    tracing::debug!(%error, "a name was not resolved");
                    return Err(no_answer("The host's name could not be resolved."));
                }
            },
            None => return Err(url_refused(UrlFault::Invalid)),
        };
        if addresses.is_empty() {
            return Err(no_answer("The host's name could not be resolved."));
        }
        if !may_be_private && !addresses.iter().all(|address| is_allowed(address.ip())) {
            return Err(address_refused());
        }
        Ok(Target { url, addresses })
    }
}

fn is_allowed(address: IpAddr) -> bool {
    networks::is_public(address) && !own::is_own(address)
}

/// Parses the setting for private hosts: `127.0.0.1:8080, intranet.example:443`.
pub(crate) fn private_hosts(name: &str, text: &str) -> anyhow::Result<BTreeSet<(String, u16)>> {
    let entries = text
        .split([',', ' ', '\n'])
        .map(str::trim)
        .filter(|entry| !entry.is_empty());
    entries
        .map(|entry| {
            let url = Url::parse(&format!("http://{entry}/")).ok();
            let port = entry.rsplit_once(':').and_then(|(_, port)| port.parse().ok());
            let host = url.filter(|url| url.path() == "/" && url.username().is_empty());
            let host = host.and_then(|url| hosts::host_of(&url));
            let is_plain = !entry.contains(['/', '?', '#', '@', '*']);
            host.zip(port).filter(|_| is_plain).ok_or_else(|| {
                anyhow::anyhow!(
                    "{name}: {entry:?} is not a host with a port, such as intranet.example:443 or [::1]:8080"
                )
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn why(guard: &Guard, url: &str) -> String {
        match guard.url(url) {
            Ok(url) => url.to_string(),
            Err(error) => serde_json::to_value(error).expect("JSON")["why"]
                .as_str()
                .expect("why")
                .to_owned(),
        }
    }

    #[test]
    fn only_plain_web_addresses_are_requested() {
        let guard = Guard::default();
        for (url, result) in [
            ("http://example.com", "http://example.com/"),
            ("HTTPS://EXAMPLE.com:8443/a?b#c", "https://example.com:8443/a?b"),
            ("http://example.com:443/", "http://example.com:443/"),
            ("http://bücher.example/", "http://xn--bcher-kva.example/"),
            ("http://2130706433/", "http://127.0.0.1/"),
            ("http://0x7f.1/", "http://127.0.0.1/"),
            ("http://0177.0.0.01/", "http://127.0.0.1/"),
            ("http://１２７.0.0.1/", "http://127.0.0.1/"),
            ("http://%31%32%37.0.0.1/", "http://127.0.0.1/"),
            ("http://127.0.0.1./", "http://127.0.0.1/"),
            ("ftp://example.com/", "scheme"),
            ("file:///etc/passwd", "scheme"),
            ("javascript:alert(1)", "scheme"),
            ("data:text/plain,x", "scheme"),
            ("gopher://example.com/", "scheme"),
            ("http://me@example.com/", "userinfo"),
            ("http://:x@example.com/", "userinfo"),
            ("http://example.com:22/", "port"),
            ("http://example.com:0/", "port"),
            ("https://example.com:6443/", "port"),
            ("example.com", "invalid"),
            ("http://", "invalid"),
            ("http://1.2.3.4.5/", "invalid"),
            ("http://256.1.1.1/", "invalid"),
            ("http://[fe80::1%25eth0]/", "invalid"),
            ("http://a b/", "invalid"),
            ("", "invalid"),
        ] {
            assert_eq!(why(&guard, url), result, "{url}");
        }
        assert_eq!(
            why(&guard, &format!("http://e.example/{}", "x".repeat(MAX_URL))),
            "invalid"
        );
        assert_eq!(
            why(&guard, &format!("http://e.example/{}", "ü".repeat(MAX_URL / 3))),
            "invalid"
        );
    }

    #[test]
    fn the_operators_rules_are_by_host() {
        let guard = Guard {
            allow: Hosts::parse("A", "*.example.com").expect("hosts"),
            deny: Hosts::parse("D", "bad.example.com 10.0.0.9").expect("hosts"),
            private: private_hosts("P", "127.0.0.1:1234 [::1]:80 10.0.0.9:80").expect("hosts"),
        };
        assert_eq!(why(&guard, "http://a.example.com./x"), "http://a.example.com./x");
        assert_eq!(why(&guard, "http://bad.example.com/"), "host");
        assert_eq!(why(&guard, "http://bad.example.com./"), "host");
        assert_eq!(why(&guard, "http://example.org/"), "host");
        assert_eq!(why(&guard, "http://0x7f.1:1234/"), "http://127.0.0.1:1234/");
        assert_eq!(why(&guard, "http://127.0.0.1/"), "host");
        assert_eq!(why(&guard, "http://[::1]/"), "http://[::1]/");
        assert_eq!(why(&guard, "http://10.0.0.9/"), "host");
        for invalid in ["127.0.0.1", "x:99999", "http://x:80", "x:80/y", "*.x:80"] {
            assert!(private_hosts("P", invalid).is_err(), "{invalid}");
        }
    }
}
