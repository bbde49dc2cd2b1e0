//! Which addresses are public. The rule is an allowlist: what no registry assigns to the public Internet is refused.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::LazyLock;

use ipnet::{Ipv4Net, Ipv6Net};

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
pub(super) fn is_public(address: IpAddr) -> bool {
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
mod tests;
