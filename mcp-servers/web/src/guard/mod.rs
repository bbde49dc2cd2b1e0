//! Which URLs are requested, and which addresses are connected to. Each hop of a fetch passes here.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::LazyLock;

use anyhow::ensure;
use gavel_mcp_base::{ToolError, text};
use ipnet::{Ipv4Net, Ipv6Net};
use tokio::net::lookup_host;
use url::{Host, Url};

use crate::error::{UrlFault, address_refused, no_answer, url_refused};

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
        let (Some(host), Some(port)) = (host_of(&url), url.port_or_known_default()) else {
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
        let (Some(host), Some(port)) = (host_of(&url), url.port_or_known_default()) else {
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
    is_public(address) && !is_own(address)
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
            let host = host.and_then(|url| host_of(&url));
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

// The addresses of this host. One of them can be public, and a service that listens on it expects no caller from here.

/// Whether the address is this host's own. The kernel chooses the source for a packet to it, which is the address
/// itself only if it is its own; connecting a UDP socket sends nothing. An address behind NAT is not known to the host.
fn is_own(address: IpAddr) -> bool {
    let any: IpAddr = match address {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let source = UdpSocket::bind((any, 0)).and_then(|socket| {
        socket.connect((address, 9))?;
        socket.local_addr()
    });
    source.is_ok_and(|source| source.ip() == address)
}

#[cfg(test)]
mod own_tests {
    use super::*;

    #[test]
    fn only_addresses_of_this_host_are_its_own() {
        assert!(is_own(Ipv4Addr::LOCALHOST.into()));
        assert!(!is_own(Ipv4Addr::new(8, 8, 8, 8).into()));
        assert!(!is_own("2001:4860:4860::8888".parse().expect("an address")));
    }
}

// Hosts that an operator names: exact ones, the subdomains of one, or all.

/// A set of hosts.
#[derive(Debug, Clone, Default)]
pub(crate) struct Hosts {
    /// Every host is one of them.
    all: bool,
    exact: BTreeSet<String>,
    /// Each begins with a dot.
    below: Vec<String>,
}

impl Hosts {
    /// Parses `example.com, *.example.org`, or `*`. The setting's name is for the error.
    pub(crate) fn parse(name: &str, text: &str) -> anyhow::Result<Self> {
        let mut hosts = Self::default();
        for entry in text
            .split([',', ' ', '\n'])
            .map(str::trim)
            .filter(|entry| !entry.is_empty())
        {
            if entry == "*" {
                hosts.all = true;
                continue;
            }
            let host = entry.strip_prefix("*.").unwrap_or(entry);
            let normal = Url::parse(&format!("http://{host}/"))
                .ok()
                .and_then(|url| plain_host(&url, host));
            ensure!(
                normal.is_some(),
                "{name}: {entry:?} is not a host such as example.com or *.example.com, without a scheme, a \
                 port or a path, and not *"
            );
            let normal = normal.unwrap_or_default();
            match host.len() == entry.len() {
                true => drop(hosts.exact.insert(normal)),
                false => hosts.below.push(format!(".{normal}")),
            }
        }
        Ok(hosts)
    }

    /// Whether the host is one of them.
    pub(crate) fn contains(&self, host: &str) -> bool {
        self.all || self.exact.contains(host) || self.below.iter().any(|suffix| host.ends_with(suffix))
    }

    /// Whether they exclude no host: there is none, or every host is one of them.
    pub(crate) fn is_unlimited(&self) -> bool {
        self.all || self.is_empty()
    }

    /// As an operator writes them.
    pub(crate) fn list(&self) -> String {
        let all = self.all.then(|| "*".to_owned());
        let below = self.below.iter().map(|suffix| format!("*{suffix}"));
        text::list(all.into_iter().chain(self.exact.iter().cloned()).chain(below))
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        !self.all && self.exact.is_empty() && self.below.is_empty()
    }
}

/// A URL's host in one spelling: lower case, without the final dot that makes a name absolute.
fn host_of(url: &Url) -> Option<String> {
    let host = url.host_str()?;
    Some(host.strip_suffix('.').unwrap_or(host).to_owned())
}

/// The host of a URL that was made of a host alone.
fn plain_host(url: &Url, given: &str) -> Option<String> {
    let is_alone = url.path() == "/" && url.port().is_none() && !given.contains(['/', '?', '#', '@', '*']);
    let has_port = given.rsplit_once(':').is_some_and(|(before, _)| !before.contains(':'));
    host_of(url).filter(|host| is_alone && !has_port && !host.is_empty())
}

#[cfg(test)]
mod hosts_tests {
    use super::*;

    #[test]
    fn a_pattern_covers_subdomains_and_nothing_that_only_ends_alike() {
        let hosts = Hosts::parse("X", "Example.com, *.example.org [::1] 127.1").expect("hosts");
        for host in ["example.com", "a.example.org", "a.b.example.org", "[::1]", "127.0.0.1"] {
            assert!(hosts.contains(host), "{host}");
        }
        for host in [
            "a.example.com",
            "example.org",
            "badexample.org",
            "example.com.evil.example",
        ] {
            assert!(!hosts.contains(host), "{host}");
        }
    }

    #[test]
    fn a_star_is_every_host() {
        let hosts = Hosts::parse("X", "*").expect("hosts");
        assert!(hosts.contains("example.com") && hosts.contains("127.0.0.1") && !hosts.is_empty());
    }

    #[test]
    fn anything_but_a_host_is_invalid() {
        for text in [
            "http://a.example",
            "a.example:80",
            "a.example/x",
            "a@b.example",
            "**",
            "*.",
            "a.*.example",
            "a b?",
        ] {
            assert!(Hosts::parse("X", text).is_err(), "{text}");
        }
    }
}

// Which addresses are public. The rule is an allowlist: what no registry assigns to the public Internet is refused.

/// IPv4 networks that are not public: IANA's special-purpose registry (RFC 6890 and its successors), multicast, and
/// metadata services of clouds in public space. A block of IANA is refused whole, also where a part of it is reachable.
const NOT_PUBLIC_V4: [(&str, &str); 20] = [
    ("0.0.0.0/8", "this network, RFC 791"),
    ("10.0.0.0/8", "private, RFC 1918"),
    (
        "100.64.0.0/10",
        "shared by carriers, RFC 6598; a metadata service at .100.200",
    ),
    ("127.0.0.0/8", "loopback, RFC 1122"),
    ("168.63.129.16/32", "the metadata service of Azure"),
    (
        "169.254.0.0/16",
        "link-local, RFC 3927; metadata services at .169.254 and .170.2",
    ),
    ("172.16.0.0/12", "private, RFC 1918"),
    ("192.0.0.0/24", "IETF protocols, RFC 6890; a metadata service at .192"),
    ("192.0.2.0/24", "documentation, RFC 5737"),
    ("192.31.196.0/24", "AS112, RFC 7535"),
    ("192.52.193.0/24", "AMT, RFC 7450"),
    ("192.88.99.0/24", "6to4 relays, RFC 7526"),
    ("192.168.0.0/16", "private, RFC 1918"),
    ("192.175.48.0/24", "AS112, RFC 7534"),
    ("198.18.0.0/15", "benchmarks, RFC 2544"),
    ("198.51.100.0/24", "documentation, RFC 5737"),
    ("203.0.113.0/24", "documentation, RFC 5737"),
    ("224.0.0.0/4", "multicast, RFC 5771"),
    ("240.0.0.0/4", "reserved, RFC 1112"),
    ("255.255.255.255/32", "broadcast, RFC 919"),
];

/// The only IPv6 space that is assigned to the public Internet (RFC 4291). Outside of it are loopback, mapped,
/// compatible and translated IPv4, local-use NAT64, discard-only, unique local, link-local, site-local, segment
/// routing and multicast addresses.
const GLOBAL_UNICAST: &str = "2000::/3";

/// The special networks inside the global unicast space.
const NOT_PUBLIC_V6: [(&str, &str); 5] = [
    (
        "2001::/23",
        "IETF protocols, RFC 2928: Teredo, benchmarks, AMT, AS112, ORCHID, DRIP",
    ),
    ("2001:db8::/32", "documentation, RFC 3849"),
    ("2002::/16", "6to4, RFC 3056: each has an IPv4 address inside"),
    ("2620:4f:8000::/48", "AS112, RFC 7534"),
    ("3fff::/20", "documentation, RFC 9637"),
];

/// NAT64 (RFC 6052): how a network without IPv4 reaches a public IPv4 address, which is in the last 32 bits.
const NAT64: &str = "64:ff9b::/96";

#[derive(Debug)]
struct Table {
    v4: Vec<Ipv4Net>,
    global: Ipv6Net,
    v6: Vec<Ipv6Net>,
    nat64: Ipv6Net,
}

static TABLE: LazyLock<Table> = LazyLock::new(|| Table {
    v4: NOT_PUBLIC_V4.iter().map(|(network, _)| v4(network)).collect(),
    global: v6(GLOBAL_UNICAST),
    v6: NOT_PUBLIC_V6.iter().map(|(network, _)| v6(network)).collect(),
    nat64: v6(NAT64),
});

/// A constant that a test parses. If it cannot be parsed, it covers everything, so that nothing is public by an error.
fn v4(network: &str) -> Ipv4Net {
    network.parse().unwrap_or_default()
}

fn v6(network: &str) -> Ipv6Net {
    network.parse().unwrap_or_default()
}

/// Whether the address is on the public Internet.
fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    !TABLE.v4.iter().any(|network| network.contains(&address))
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    if TABLE.nat64.contains(&address) {
        let [.., a, b, c, d] = address.octets();
        return is_public_v4(Ipv4Addr::new(a, b, c, d));
    }
    TABLE.global.contains(&address) && !TABLE.v6.iter().any(|network| network.contains(&address))
}

#[cfg(test)]
mod networks_tests;
