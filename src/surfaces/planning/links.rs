//! Addresses on the configured host. Only these become links on a page: a model or a server may write any other.

use url::Url;

use super::Planning;

impl Planning {
    /// The address if it is that of a repository on the host of `github.url`, or of a page below one, by https and
    /// without a password.
    #[must_use]
    pub fn link(&self, address: &str) -> Option<Url> {
        let url = Url::parse(address).ok()?;
        let mut repository = url.clone();
        repository.set_query(None);
        repository.set_fragment(None);
        let names: Vec<&str> = url.path_segments()?.take(2).collect();
        repository.set_path(&names.join("/"));
        let is_known = self.settings.repositories.parse(repository.as_str()).is_ok();
        (url.scheme() == "https" && is_known).then_some(url)
    }
}
