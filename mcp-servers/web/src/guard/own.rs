//! The addresses of this host. One of them can be public, and a service that listens on it expects no caller from here.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};

/// Whether the address is this host's own. The kernel chooses the source for a packet to it, which is the address
/// itself only if it is its own; connecting a UDP socket sends nothing. An address behind NAT is not known to the host.
pub(super) fn is_own(address: IpAddr) -> bool {
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
mod tests {
    use super::*;

    #[test]
    fn only_addresses_of_this_host_are_its_own() {
        assert!(is_own(Ipv4Addr::LOCALHOST.into()));
        assert!(!is_own(Ipv4Addr::new(8, 8, 8, 8).into()));
        assert!(!is_own("2001:4860:4860::8888".parse().expect("an address")));
    }
}
