//! Where a server is, without anything that may be secret.

use url::Url;

/// Replaces a secret.
pub(super) const MASK: &str = "***";

/// The address of a server, without anything that may be secret. Of the path, only well-known words are kept.
pub(super) fn place(url: &Url) -> String {
    let parts = url.path().split('/').map(|part| match is_public(part) {
        true => part,
        false => MASK,
    });
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    let host = url.host_str().unwrap_or_default();
    format!("{}://{host}{port}{}", url.scheme(), parts.collect::<Vec<_>>().join("/"))
}

/// Is it a word that is common in MCP endpoints?
pub(super) fn is_public(part: &str) -> bool {
    const WORDS: [&str; 16] = [
        "",
        "api",
        "gateway",
        "http",
        "jsonrpc",
        "mcp",
        "message",
        "messages",
        "public",
        "rpc",
        "server",
        "servers",
        "sse",
        "stream",
        "streamable-http",
        "tools",
    ];
    let version = part
        .strip_prefix('v')
        .is_some_and(|n| n.len() <= 2 && n.parse::<u8>().is_ok());
    version || WORDS.contains(&part)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_place_shows_no_part_of_a_path_that_may_be_secret() {
        for (url, shown) in [
            ("https://u:p@host/mcp/s3cr3t/sse?a=b#c", "https://host/mcp/***/sse"),
            ("http://127.0.0.1:8080/v1/mcp/", "http://127.0.0.1:8080/v1/mcp/"),
            ("https://[::1]/", "https://[::1]/"),
            ("https://host/v123456", "https://host/***"),
        ] {
            assert_eq!(place(&Url::parse(url).unwrap()), shown);
        }
    }
}
