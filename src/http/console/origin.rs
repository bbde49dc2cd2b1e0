//! The origin of a request, as far as the browser reports it.

use actix_web::HttpRequest;
use actix_web::http::header::{self, HeaderName};

use super::super::headers::only;

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
    authority(request).is_some_and(|authority| is_loopback(host(authority)))
}

/// Whether the request names another machine. A request that names no host is not from a browser.
pub(in crate::http) fn is_foreign(request: &HttpRequest) -> bool {
    authority(request).is_some_and(|authority| !is_loopback(host(authority)))
}

/// Whether a request was sent from a gavel page. Browsers report it in `Sec-Fetch-Site`, whatever proxies do to the
/// host, and older browsers in `Origin`. Other clients send neither header, and have no user's cookies that a site
/// could misuse.
pub(in crate::http) fn is_own(request: &HttpRequest) -> bool {
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
    let uri = request.uri().authority().map(http_authority);
    uri.or_else(|| only(request.headers(), &header::HOST).and_then(|host| host.to_str().ok()))
}

fn http_authority(authority: &actix_web::http::uri::Authority) -> &str {
    authority.as_str()
}

/// The host without the port.
fn host(authority: &str) -> &str {
    match authority.strip_prefix('[') {
        Some(rest) => rest.split_once(']').map_or("", |(host, _)| host),
        None => authority.rsplit_once(':').map_or(authority, |(host, _)| host),
    }
}

fn is_loopback(host: &str) -> bool {
    let name = host.trim_end_matches('.').to_ascii_lowercase();
    let address = host.parse::<std::net::IpAddr>();
    address.is_ok_and(|address| address.to_canonical().is_loopback())
        || name == "localhost"
        || name.ends_with(".localhost")
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
