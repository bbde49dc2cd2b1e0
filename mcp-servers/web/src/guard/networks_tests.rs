use proptest::prelude::*;

use super::*;

fn public(text: &str) -> bool {
    is_public(text.parse().expect(text))
}

#[test]
fn every_network_of_the_table_is_valid() {
    for (network, _) in NOT_PUBLIC_V4 {
        let network: Ipv4Net = network.parse().expect(network);
        assert_eq!(network, network.trunc());
    }
    for network in NOT_PUBLIC_V6
        .map(|(network, _)| network)
        .iter()
        .chain([&GLOBAL_UNICAST, &NAT64])
    {
        let network: Ipv6Net = network.parse().expect(network);
        assert_eq!(network, network.trunc());
    }
}

#[test]
fn special_addresses_are_not_public() {
    for text in [
        "0.0.0.0",
        "0.1.2.3",
        "10.0.0.1",
        "10.255.255.255",
        "100.64.0.1",
        "100.100.100.200",
        "100.127.255.255",
        "127.0.0.1",
        "127.255.255.255",
        "168.63.129.16",
        "169.254.0.1",
        "169.254.169.254",
        "169.254.170.2",
        "172.16.0.1",
        "172.31.255.255",
        "192.0.0.1",
        "192.0.0.9",
        "192.0.0.192",
        "192.0.2.1",
        "192.31.196.1",
        "192.52.193.1",
        "192.88.99.1",
        "192.168.0.1",
        "192.175.48.1",
        "198.18.0.1",
        "198.19.255.255",
        "198.51.100.1",
        "203.0.113.255",
        "224.0.0.1",
        "239.255.255.255",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "::7f00:1",
        "::8.8.8.8",
        "::ffff:127.0.0.1",
        "::ffff:10.0.0.1",
        "::ffff:8.8.8.8",
        "::ffff:0:127.0.0.1",
        "::ffff:0:8.8.8.8",
        "64:ff9b::127.0.0.1",
        "64:ff9b::10.0.0.1",
        "64:ff9b::169.254.169.254",
        "64:ff9b::a83f:8110",
        "64:ff9b:1::1",
        "64:ff9b:1::8.8.8.8",
        "64:ff9b:1:ffff::8.8.8.8",
        "64:ff9b:2::1",
        "100::1",
        "100:0:0:1::1",
        "2001::1",
        "2001:0:4136:e378::1",
        "2001:1::1",
        "2001:2::1",
        "2001:3::1",
        "2001:4:112::1",
        "2001:10::1",
        "2001:20::1",
        "2001:30::1",
        "2001:db8::1",
        "2002:7f00:1::",
        "2002:808:808::1",
        "2620:4f:8000::1",
        "3fff::1",
        "3fff:fff::1",
        "4000::1",
        "5f00::1",
        "8000::1",
        "fc00::1",
        "fd00:ec2::254",
        "fe80::1",
        "fec0::1",
        "ff02::1",
        "ffff::1",
    ] {
        assert!(!public(text), "{text}");
    }
}

#[test]
fn addresses_beside_the_special_networks_are_public() {
    for text in [
        "1.1.1.1",
        "8.8.8.8",
        "9.255.255.255",
        "11.0.0.0",
        "100.63.255.255",
        "100.128.0.0",
        "126.255.255.255",
        "128.0.0.0",
        "168.63.129.15",
        "168.63.129.17",
        "169.253.255.255",
        "172.15.255.255",
        "172.32.0.0",
        "192.0.1.0",
        "192.0.3.0",
        "192.167.255.255",
        "192.169.0.0",
        "198.17.255.255",
        "198.20.0.0",
        "223.255.255.255",
        "2001:200::1",
        "2001:4860:4860::8888",
        "2606:4700::1111",
        "2a00:1450::1",
        "3ffe::1",
        "64:ff9b::8.8.8.8",
        "2001:db7::1",
        "2001:db9::1",
        "2003::1",
    ] {
        assert!(public(text), "{text}");
    }
}

/// Another way to say it, by the standard library and by bits.
fn is_special_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, d] = address.octets();
    address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_multicast()
        || address.is_documentation()
        || a == 0
        || a >= 240
        || (a == 100 && b & 0xc0 == 64)
        || (a == 198 && b & 0xfe == 18)
        || [
            (192, 0, 0),
            (192, 31, 196),
            (192, 52, 193),
            (192, 88, 99),
            (192, 175, 48),
        ]
        .contains(&(a, b, c))
        || (a, b, c, d) == (168, 63, 129, 16)
}

/// Any address, with those at the edges of the table more often than chance has them.
fn any_v4() -> impl Strategy<Value = Ipv4Addr> {
    let edges = NOT_PUBLIC_V4.map(|(network, _)| v4(network));
    let near = (prop::sample::select(edges.to_vec()), any::<bool>(), -2_i64..=2);
    prop_oneof![
        any::<u32>().prop_map(Ipv4Addr::from),
        near.prop_map(|(network, first, off)| {
            let edge = if first { network.network() } else { network.broadcast() };
            Ipv4Addr::from((i64::from(u32::from(edge)) + off).clamp(0, u32::MAX.into()) as u32)
        }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn an_ipv4_address_is_public_unless_a_registry_says_otherwise(address in any_v4()) {
        prop_assert_eq!(is_public(address.into()), !is_special_v4(address));
    }

    /// No notation of an address that is not public is public, however it is put into IPv6.
    #[test]
    fn no_embedding_makes_an_address_public(address in any_v4(), low in any::<u64>(), subnet in any::<u16>()) {
        let v4 = u128::from(u32::from(address));
        let low = u128::from(low);
        for base in [0_u128, 0xffff << 32, 0xffff << 48] {
            prop_assert!(!is_public(Ipv6Addr::from(base | v4).into()));
        }
        let local_nat64 = 0x0064_ff9b_0001_u128 << 80;
        prop_assert!(!is_public(Ipv6Addr::from(local_nat64 | u128::from(subnet) << 64 | low).into()));
        let six_to_four = 0x2002_u128 << 112 | v4 << 80 | u128::from(subnet) << 64 | low;
        prop_assert!(!is_public(Ipv6Addr::from(six_to_four).into()));
        let teredo = 0x2001_0000_u128 << 96 | v4 << 64 | low;
        prop_assert!(!is_public(Ipv6Addr::from(teredo).into()));
        let teredo_client = 0x2001_0000_u128 << 96 | low << 32 | (v4 ^ 0xffff_ffff);
        prop_assert!(!is_public(Ipv6Addr::from(teredo_client).into()));
        let nat64 = 0x0064_ff9b_u128 << 96 | v4;
        prop_assert_eq!(is_public(Ipv6Addr::from(nat64).into()), is_public(address.into()));
    }

    #[test]
    fn outside_of_global_unicast_nothing_is_public_but_nat64(bits in any::<u128>()) {
        let address = Ipv6Addr::from(bits);
        let expected_out = bits >> 125 != 1 && bits >> 32 != 0x0064_ff9b_u128 << 64;
        prop_assert!(!(expected_out && is_public(address.into())));
    }
}
