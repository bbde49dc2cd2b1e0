//! Addresses on the configured host. Only these become links on a page: a model or a server may write any other.

use url::Url;

use super::Planning;
use crate::domain::repository::Repositories;

impl Planning {
    /// The address if it is that of a repository on the host of `github.url`, or of a page below one, by https and
    /// without a password.
    #[must_use]
    pub fn link(&self, address: &str) -> Option<Url> {
        link(&self.settings.repositories, address)
    }
}

fn link(repositories: &Repositories, address: &str) -> Option<Url> {
    let url = Url::parse(address).ok()?;
    let names: Vec<&str> = url.path_segments()?.take(2).collect();
    let mut repository = url.clone();
    repository.set_query(None);
    repository.set_fragment(None);
    repository.set_path(&names.join("/"));
    let is_known = repositories.parse(repository.as_str()).is_ok();
    (url.scheme() == "https" && is_known).then_some(url)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    /// What a model or a server writes becomes a link only if it leads to a repository on the configured host.
    #[test]
    fn only_pages_of_repositories_on_the_configured_host_are_links() {
        let github = Repositories::new(Url::parse("https://github.com").unwrap(), None);
        for fine in [
            "https://github.com/acme/dates",
            "https://github.com/acme/dates/pull/7",
            "https://github.com/acme/dates/pull/7?w=1#diff",
        ] {
            assert_eq!(link(&github, fine).unwrap().as_str(), fine);
        }
        for other in [
            "",
            "acme/dates/pull/7",
            "javascript:alert(1)",
            "javascript://github.com/acme/dates/%0aalert(1)",
            "data:text/html,x",
            "http://github.com/acme/dates/pull/7",
            "https://github.com",
            "https://github.com/login",
            "https://github.com.example.org/acme/dates/pull/7",
            "https://github.com@example.org/acme/dates/pull/7",
            "https://ann:secret@github.com/acme/dates/pull/7",
            "https://github.com:8443/acme/dates/pull/7",
            "https://example.org/acme/dates/pull/7",
            "//github.com/acme/dates",
        ] {
            assert_eq!(link(&github, other), None, "{other}");
        }
        let plain = Repositories::new(Url::parse("http://127.0.0.1:3000").unwrap(), None);
        assert_eq!(link(&plain, "http://127.0.0.1:3000/acme/dates/pull/7"), None);
    }
}
