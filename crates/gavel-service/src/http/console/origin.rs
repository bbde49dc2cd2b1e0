//! The origin of a request, as far as the browser reports it.

use actix_web::HttpRequest;
use actix_web::http::header::{self, HeaderName};
use url::Host;

use crate::http::headers::only;

const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// Whether cookies are `Secure`: always, except for a browser on this machine that connects directly. gavel itself
/// speaks plain HTTP; on a non-loopback address a TLS proxy is in front of it. There is no setting for trusted proxies,
/// so `X-Forwarded-Proto` is trusted only to make cookies stricter (`https`), never laxer.
pub(super) fn is_secure(request: &HttpRequest) -> bool {
    let directly = request
        .peer_addr()
        .is_some_and(|peer| peer.ip().to_canonical().is_loopback());
    let forwarded = only(request.headers(), &FORWARDED_PROTO).is_some_and(|proto| proto.as_bytes() == b"https");
    !directly || forwarded || !is_local(request)
}

/// Whether the request names this machine by a loopback name or address.
pub(super) fn is_local(request: &HttpRequest) -> bool {
    authority(request).and_then(host).is_some_and(is_loopback)
}

/// Whether the request names another machine, or something that is no single host. A request that names none is not from
/// a browser.
pub(crate) fn is_foreign(request: &HttpRequest) -> bool {
    let names_one = request.uri().authority().is_some() || request.headers().contains_key(header::HOST);
    names_one && !is_local(request)
}

/// Whether a request was sent from a gavel page. Browsers report it in `Sec-Fetch-Site`, whatever proxies do to the
/// host, and older browsers in `Origin`. Other clients send neither header, and have no user's cookies that a site
/// could misuse.
pub(crate) fn is_own(request: &HttpRequest) -> bool {
    let headers = request.headers();
    if headers.contains_key(&FETCH_SITE) {
        return only(headers, &FETCH_SITE).is_some_and(|site| site.as_bytes() == b"same-origin");
    }
    if !headers.contains_key(header::ORIGIN) {
        return true;
    }
    let origin = only(headers, &header::ORIGIN).and_then(|origin| origin.to_str().ok());
    let origin = origin
        .and_then(|origin| origin.split_once("://"))
        .map(|(_, authority)| authority);
    origin.is_some_and(|origin| authority(request).is_some_and(|own| own.eq_ignore_ascii_case(origin)))
}

/// Whether a browser followed a link of another site; it then sends no cookies.
pub(super) fn is_from_elsewhere(request: &HttpRequest) -> bool {
    only(request.headers(), &FETCH_SITE).is_some_and(|site| matches!(site.as_bytes(), b"cross-site" | b"same-site"))
}

/// The requested host and port, ignoring headers that a proxy adds.
fn authority(request: &HttpRequest) -> Option<&str> {
    let uri = request.uri().authority().map(|authority| authority.as_str());
    uri.or_else(|| only(request.headers(), &header::HOST).and_then(|host| host.to_str().ok()))
}

/// The host of `HOST` or `HOST:PORT`; `None` for any other text.
fn host(authority: &str) -> Option<Host<&str>> {
    let end = match authority.starts_with('[') {
        true => authority.find(']')? + 1,
        false => authority.find(':').unwrap_or(authority.len()),
    };
    let (host, port) = authority.split_at(end);
    let is_port = port.is_empty() || port[1..].parse::<u16>().is_ok() && port.starts_with(':');
    let parsed = match host.strip_prefix('[') {
        Some(rest) => Host::Ipv6(rest.strip_suffix(']')?.parse().ok()?),
        None => host.parse().map_or(Host::Domain(host), Host::Ipv4),
    };
    is_port.then_some(parsed)
}

fn is_loopback(host: Host<&str>) -> bool {
    let name = match host {
        Host::Ipv4(address) => return address.is_loopback(),
        Host::Ipv6(address) => return address.to_canonical().is_loopback(),
        Host::Domain(name) => name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase(),
    };
    let is_label = |label: &str| !label.is_empty() && label.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-');
    name.rsplit('.').next() == Some("localhost") && name.split('.').all(is_label)
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use actix_web::test::TestRequest;

    use super::*;

    fn from(peer: &str, pairs: &[(&'static str, &str)]) -> HttpRequest {
        let request = TestRequest::default().peer_addr(peer.parse::<SocketAddr>().unwrap());
        let request = pairs.iter().fold(request, |request, pair| request.insert_header(*pair));
        request.to_http_request()
    }

    #[test]
    fn cookies_are_secure_but_for_a_browser_on_this_machine() {
        let local = [
            "localhost",
            "localhost:8080",
            "127.0.0.1:8080",
            "127.9.9.9",
            "[::1]:8080",
            "gavel.localhost:80",
            "LOCALHOST.",
        ];
        for host in local {
            assert!(!is_secure(&from("127.0.0.1:9", &[("host", host)])), "{host}");
            let forwarded = [("host", host), ("x-forwarded-proto", "https")];
            assert!(is_secure(&from("127.0.0.1:9", &forwarded)), "{host}");
            assert!(is_secure(&from("10.0.0.7:9", &[("host", host)])), "{host}");
            let lax = [("host", host), ("x-forwarded-proto", "http")];
            assert!(is_secure(&from("10.0.0.7:9", &lax)), "nothing makes it laxer");
        }
        for host in [
            "gavel.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "[::2]",
            "10.0.0.1",
            "",
        ] {
            assert!(is_secure(&from("127.0.0.1:9", &[("host", host)])), "{host}");
        }
    }

    /// With `auth.mode = none`, the host is all that keeps the page of another site out (DNS rebinding).
    #[test]
    fn a_host_is_this_machine_only_if_all_of_it_is() {
        let foreign = |pairs: &[(&'static str, &str)]| is_foreign(&from("127.0.0.1:9", pairs));
        for host in [
            "localhost",
            "LocalHost.:80",
            "a.localhost",
            "127.0.0.1:8080",
            "[::1]",
            "[::ffff:127.0.0.1]:1",
        ] {
            assert!(!foreign(&[("host", host)]), "{host}");
        }
        assert!(!foreign(&[]), "a request that names no host");
        for host in [
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "127.0.0.1evil.example",
            "[::1].evil.example",
            "[::1]evil.example:80",
            "[::1",
            "[localhost]",
            "localhost@evil.example",
            "localhost:80@evil.example",
            "localhost:evil.example",
            "localhost:99999",
            "localhost..",
            ".localhost",
            "evil.example/.localhost",
            "evil.example#localhost",
            "evillocalhost",
            "::1",
            "2130706433",
            "",
        ] {
            assert!(foreign(&[("host", host)]), "{host:?}");
        }
        let two = TestRequest::default()
            .append_header(("host", "localhost"))
            .append_header(("host", "evil.example"));
        assert!(is_foreign(&two.to_http_request()), "two hosts");
        let unreadable = TestRequest::default().append_header(("host", &b"evil\xff"[..]));
        assert!(is_foreign(&unreadable.to_http_request()), "not a name");
    }

    #[test]
    fn a_form_is_taken_from_our_own_pages_alone() {
        let own = |pairs: &[(&'static str, &str)]| {
            let host = [("host", "gavel.example")];
            is_own(&from("10.0.0.7:9", &[&host[..], pairs].concat()))
        };
        assert!(own(&[("sec-fetch-site", "same-origin")]));
        // Without a referrer, browsers send no origin either.
        assert!(own(&[("sec-fetch-site", "same-origin"), ("origin", "null")]));
        assert!(own(&[("origin", "https://gavel.example")]));
        assert!(own(&[]));
        for site in ["cross-site", "same-site", "none", ""] {
            assert!(!own(&[("sec-fetch-site", site)]), "{site}");
            let both = [("sec-fetch-site", site), ("origin", "https://gavel.example")];
            assert!(!own(&both), "{site}");
        }
        for origin in [
            "null",
            "https://evil.example",
            "https://gavel.example:8443",
            "gavel.example",
            "",
        ] {
            assert!(!own(&[("origin", origin)]), "{origin}");
        }
    }
}
