//! Where an answer leads: the next page, and a redirect.

use reqwest::header::{LINK, LOCATION};
use url::Url;

use super::http::Reply;

/// The next page of a list (`Link: <URL>; rel="next"`).
pub(crate) fn next(reply: &Reply, from: &Url) -> Option<Url> {
    let header = reply.headers.get(LINK)?.to_str().ok()?;
    header.split(',').find_map(|link| {
        let (target, parameters) = link.trim().strip_prefix('<')?.split_once('>')?;
        let is_next = parameters.split(';').any(|parameter| {
            let parameter = parameter.trim();
            parameter == "rel=\"next\"" || parameter == "rel=next"
        });
        is_next.then(|| from.join(target).ok()).flatten()
    })
}

/// The target of a redirect.
pub(crate) fn redirect(reply: &Reply, from: &Url) -> Option<Url> {
    if !matches!(reply.status.as_u16(), 301 | 302 | 307 | 308) {
        return None;
    }
    from.join(reply.headers.get(LOCATION)?.to_str().ok()?).ok()
}

/// Whether credentials for `home` may be sent to `url`.
pub(crate) fn is_same_host(url: &Url, home: &Url) -> bool {
    url.origin() == home.origin() && url.username().is_empty() && url.password().is_none()
}

#[cfg(test)]
mod tests {
    use reqwest::StatusCode;
    use reqwest::header::{HeaderMap, HeaderValue};

    use super::*;

    fn url(text: &str) -> Url {
        Url::parse(text).expect("a URL")
    }

    #[test]
    fn the_next_page_is_the_link_with_that_name() {
        let from = url("https://api.example/user/repos?page=1");
        let next = |link: &'static str| {
            let reply = Reply {
                status: StatusCode::OK,
                headers: HeaderMap::from_iter([(LINK, HeaderValue::from_static(link))]),
                body: Vec::new(),
            };
            next(&reply, &from).map(|url| url.to_string())
        };
        let pages = "<https://api.example/x?page=9>; rel=\"last\", </x?page=2>; rel=\"next\"";
        assert_eq!(next(pages).as_deref(), Some("https://api.example/x?page=2"));
        assert_eq!(next("<https://api.example/x?page=1>; rel=\"prev\""), None);
        assert_eq!(next("garbage"), None);
    }

    #[test]
    fn another_scheme_port_or_user_is_another_host() {
        let home = url("https://api.example/api/v3");
        assert!(is_same_host(&url("https://api.example:443/repositories/7"), &home));
        for other in [
            "http://api.example/x",
            "https://api.example:444/x",
            "https://evil.example/x",
            "https://api.example.evil.example/x",
            "https://me@api.example/x",
            "data:,x",
        ] {
            assert!(!is_same_host(&url(other), &home), "{other}");
        }
    }
}
