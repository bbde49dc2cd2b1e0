//! Hosts that an operator names: exact ones, the subdomains of one, or all.

use std::collections::BTreeSet;

use anyhow::ensure;
use gavel_mcp_base::text;
use url::Url;

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
pub(super) fn host_of(url: &Url) -> Option<String> {
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
mod tests {
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
