//! Links whose text shows an address other than their target.

use url::Url;

/// Top-level domains of site names that texts mention without a scheme. Those of two letters belong to countries.
const DOMAINS: [&str; 12] = [
    "app", "biz", "com", "dev", "edu", "gov", "info", "int", "io", "mil", "net", "org",
];

/// The address that a link's text names if its target is different: a site, or a mailbox.
pub(super) fn named_instead(words: &str, target: &str) -> Option<String> {
    let leads_to = place(target, true);
    let named = words.split_whitespace().filter_map(|word| place(word, false));
    let mut others = named.filter(|named| leads_to.as_ref() != Some(named));
    others.next()
}

/// The site or mailbox that a text addresses. A target counts only if it has a scheme, as in mail programs.
fn place(text: &str, is_target: bool) -> Option<String> {
    let text = text.trim_matches(|c: char| !c.is_alphanumeric() && c != '/');
    let begins = |scheme: &str| {
        text.get(..scheme.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(scheme))
    };
    if begins("mailto:") || (!is_target && text.contains('@') && !text.contains("//")) {
        let mailbox = if begins("mailto:") {
            &text["mailto:".len()..]
        } else {
            text
        };
        let (mailbox, _) = mailbox.split_once('?').unwrap_or((mailbox, ""));
        let (local, domain) = mailbox.rsplit_once('@')?;
        return Some(format!(
            "{}@{}",
            local.to_lowercase(),
            site(&format!("https://{domain}"))?
        ));
    }
    if begins("http://") || begins("https://") {
        return site(text);
    }
    if let Some(rest) = text.strip_prefix("//") {
        return site(&format!("https://{rest}"));
    }
    if is_target {
        return None;
    }
    let host = text.split(['/', '?', '#', ':']).next().unwrap_or_default();
    let (_, last) = host.rsplit_once('.')?;
    let last = last.to_ascii_lowercase();
    let is_domain =
        DOMAINS.contains(&&*last) || (last.len() == 2 && last.bytes().all(|byte| byte.is_ascii_lowercase()));
    (is_domain || begins("www."))
        .then(|| site(&format!("https://{text}")))
        .flatten()
}

/// The name of a site in the form that all programs read the same way, without `www.`.
fn site(url: &str) -> Option<String> {
    let url = Url::parse(url).ok()?;
    let host = url.host_str()?;
    Some(host.strip_prefix("www.").unwrap_or(host).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_that_reads_as_another_address_is_found_and_no_other() {
        for (words, target, named) in [
            ("https://bank.example", "https://evil.example/x", Some("bank.example")),
            ("see bank.com/login, please", "https://evil.example", Some("bank.com")),
            ("www.bank.example", "https://evil.example", Some("bank.example")),
            ("bank.com", "https://bank.com.evil.example/", Some("bank.com")),
            ("https://bank.com", "https://bank.com@evil.example/", Some("bank.com")),
            (
                "https://bücher.example",
                "https://bucher.example",
                Some("xn--bcher-kva.example"),
            ),
            ("ann@x.org", "mailto:eve@x.org", Some("ann@x.org")),
            ("ann@x.org", "https://x.org", Some("ann@x.org")),
            ("bank.com", "#", Some("bank.com")),
            ("bank.com", "/login", Some("bank.com")),
            ("https://bank.example", "https://www.bank.example/login?x=1", None),
            ("BANK.com.", "HTTP://bank.COM", None),
            ("(https://bücher.example)", "https://xn--bcher-kva.example/", None),
            ("Ann@X.org", "mailto:ann@x.org?subject=Hi", None),
            ("Read more", "https://evil.example", None),
            ("version 1.2.3 of report.pdf", "https://a.example", None),
            ("e.g. this", "https://a.example", None),
            ("", "https://a.example", None),
        ] {
            assert_eq!(named_instead(words, target).as_deref(), named, "{words}: {target}");
        }
    }
}
