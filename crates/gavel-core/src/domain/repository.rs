//! The address of a repository, and which repositories a tenant may use (`planning.repositories`).

use std::fmt;

use globset::{GlobBuilder, GlobMatcher};
use url::Url;

use super::ids::TenantId;

/// A repository on the configured host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repository {
    /// Its owner.
    pub owner: String,
    /// Its name.
    pub name: String,
}

impl fmt::Display for Repository {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.owner, self.name)
    }
}

/// Where repositories are, and which of them planning may use.
#[derive(Clone, Debug)]
pub struct Repositories {
    /// `github.url`.
    host: Url,
    allowed: AllowedRepositories,
}

/// The patterns of the repositories that each tenant may use. `None`: every repository, since no caller is authenticated.
#[derive(Clone, Debug, Default)]
pub struct AllowedRepositories(pub Option<Vec<RepositoryPattern>>);

/// A pattern of `planning.repositories`: `OWNER/REPO`, with `*` within each, and `TENANT:` before it for a single
/// tenant. Case is ignored, as GitHub ignores it.
#[derive(Clone, Debug)]
pub struct RepositoryPattern {
    tenant: Option<TenantId>,
    text: String,
    name: GlobMatcher,
}

impl RepositoryPattern {
    /// What is allowed.
    pub const ALLOWED: &'static str = "OWNER/REPO, with * for any part of a name, and TENANT: before it for one tenant";

    /// Parses a pattern.
    ///
    /// # Errors
    /// What is allowed.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (tenant, name) = match text.rsplit_once(':') {
            Some((tenant, name)) => (Some(TenantId::parse(tenant).map_err(|_| Self::ALLOWED)?), name),
            None => (None, text),
        };
        let parts: Vec<_> = name.split('/').collect();
        let is_name = |part: &&str| !part.is_empty() && part.chars().all(|c| is_of_name(c) || c == '*');
        if parts.len() != 2 || !parts.iter().all(is_name) {
            return Err(Self::ALLOWED.to_owned());
        }
        let glob = GlobBuilder::new(name)
            .literal_separator(true)
            .case_insensitive(true)
            .build();
        let text = name.to_owned();
        let name = glob.map_err(|_| Self::ALLOWED.to_owned())?.compile_matcher();
        Ok(Self { tenant, text, name })
    }

    fn is_of(&self, tenant: &TenantId) -> bool {
        self.tenant.as_ref().is_none_or(|own| own == tenant)
    }
}

impl AllowedRepositories {
    /// May the tenant use the repository `OWNER/REPO`? One with another spelling than its name has is none.
    pub fn allow(&self, tenant: &TenantId, repository: &str) -> bool {
        let Some(patterns) = &self.0 else { return true };
        let is_named = repository.split_once('/').is_some_and(|(owner, name)| {
            is_name(owner, MAX_OWNER) && is_name(name, MAX_NAME) && !name.ends_with(".git")
        });
        is_named
            && patterns
                .iter()
                .any(|one| one.is_of(tenant) && one.name.is_match(repository))
    }

    /// The patterns of a tenant, separated by blanks; `None` if it may use every repository.
    pub fn of(&self, tenant: &TenantId) -> Option<String> {
        let own = self.0.as_ref()?.iter().filter(|one| one.is_of(tenant));
        let own: Vec<_> = own.map(|one| one.text.as_str()).collect();
        (!own.contains(&"*/*")).then(|| own.join(" "))
    }
}

impl Repositories {
    /// On the host of `github.url`.
    pub const fn new(host: Url, allowed: Option<Vec<RepositoryPattern>>) -> Self {
        let allowed = AllowedRepositories(allowed);
        Self { host, allowed }
    }

    /// Parses the address of a repository. What may hold a secret is not repeated in the error.
    ///
    /// # Errors
    /// The value found and what is allowed.
    pub fn parse(&self, text: &str) -> Result<Repository, String> {
        let host = self.host.as_str().trim_end_matches('/');
        let allowed = format!("allowed: {host}/OWNER/REPO");
        let Ok(url) = Url::parse(text) else {
            return Err(format!("is no address; {allowed}"));
        };
        if !url.username().is_empty() || url.password().is_some() {
            return Err(format!("contains a user name or a password; {allowed}"));
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(format!("has a query or a fragment; {allowed}"));
        }
        let invalid = || format!("is {text:?}; {allowed}");
        let same_host = url.scheme() == self.host.scheme()
            && url.host() == self.host.host()
            && url.port_or_known_default() == self.host.port_or_known_default();
        if !same_host {
            return Err(invalid());
        }
        let path = url.path().trim_start_matches('/');
        let path = path.strip_suffix('/').unwrap_or(path);
        let (owner, name) = path.split_once('/').ok_or_else(invalid)?;
        let name = name.strip_suffix(".git").unwrap_or(name);
        match is_name(owner, MAX_OWNER) && is_name(name, MAX_NAME) {
            true => Ok(Repository {
                owner: owner.to_owned(),
                name: name.to_owned(),
            }),
            false => Err(invalid()),
        }
    }

    /// The one spelling of a repository's address.
    pub fn address(&self, repository: &Repository) -> String {
        format!("{}/{repository}", self.host.as_str().trim_end_matches('/'))
    }

    /// May the tenant's sessions use the repository?
    pub fn allow(&self, tenant: &TenantId, repository: &Repository) -> bool {
        self.allowed.allow(tenant, &repository.to_string())
    }
}

/// The longest names.
const MAX_OWNER: usize = 39;
const MAX_NAME: usize = 100;

fn is_name(text: &str, most: usize) -> bool {
    (1..=most).contains(&text.len()) && text.chars().all(is_of_name) && text != "." && text != ".."
}

fn is_of_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.')
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn github(allowed: Option<&[&str]>) -> Repositories {
        let allowed = allowed.map(|all| all.iter().map(|one| RepositoryPattern::parse(one).unwrap()).collect());
        Repositories::new(Url::parse("https://github.com").unwrap(), allowed)
    }

    /// P-F1: the usual spellings of an address are one repository.
    #[test]
    fn an_address_names_its_repository() {
        for text in [
            "https://github.com/acme/dates",
            "https://github.com/acme/dates/",
            "https://github.com/acme/dates.git",
            "https://GitHub.com:443/acme/dates",
        ] {
            assert_eq!(github(None).parse(text).unwrap().to_string(), "acme/dates", "{text}");
        }
    }

    /// Nothing but an address on the configured host is accepted, and a password is not repeated.
    #[test]
    fn another_address_is_refused_and_its_password_is_not_repeated() {
        for text in [
            "",
            "acme/dates",
            "http://github.com/acme/dates",
            "https://github.com",
            "https://github.com/acme",
            "https://github.com/acme/dates/tree/main",
            "https://github.com/acme/dates?x=1",
            "https://github.com/acme/dates#readme",
            "https://github.com/../dates",
            "https://github.com/acme/..",
            "https://github.com/acme/%2e%2e",
            "https://github.com.example.org/acme/dates",
            "https://example.org/acme/dates",
            "ssh://git@github.com/acme/dates",
            "git@github.com:acme/dates",
            "file:///acme/dates",
            "https://github.com:8443/acme/dates",
        ] {
            let error = github(None).parse(text).unwrap_err();
            assert!(
                error.ends_with("allowed: https://github.com/OWNER/REPO"),
                "{text}: {error}"
            );
        }
        for text in [
            "https://ann:hunter2@github.com/acme/dates",
            "https://hunter2@github.com/acme/dates",
        ] {
            let error = github(None).parse(text).unwrap_err();
            assert!(
                !error.contains("hunter2") && error.contains("user name or a password"),
                "{error}"
            );
        }
    }

    /// One service token must not lend every user all that it can see.
    #[test]
    fn only_the_configured_repositories_are_allowed_and_only_for_their_tenant() {
        let repositories = github(Some(&["acme/*", "Umbrella/da*s", "t2:other/one"]));
        let tenant = |name: &str| TenantId::parse(name).unwrap();
        let allows = |of: &str, name: &str| {
            let url = format!("https://github.com/{name}");
            repositories.allow(&tenant(of), &repositories.parse(&url).unwrap())
        };
        assert!(allows("default", "acme/dates") && allows("default", "ACME/x") && allows("default", "umbrella/dates"));
        assert!(!allows("default", "acme2/dates") && !allows("default", "umbrella/dat"));
        assert!(allows("t2", "other/one") && !allows("default", "other/one"));
        assert!(!github(Some(&[])).allow(
            &tenant("default"),
            &repositories.parse("https://github.com/a/b").unwrap()
        ));
        assert!(github(None).allow(
            &tenant("default"),
            &repositories.parse("https://github.com/a/b").unwrap()
        ));
        for invalid in ["", "acme", "acme/dates/x", "/x", "acme/", "a b/c", "t:acme"] {
            assert!(RepositoryPattern::parse(invalid).is_err(), "{invalid:?}");
        }
    }
}
