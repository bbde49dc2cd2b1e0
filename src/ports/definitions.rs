//! Definitions that came by the API, with their versions.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::BoxFuture;
use super::records::{ListQuery, QueryError, RecordError};
use crate::domain::ids::{ProjectId, TenantId};

/// Where they are kept. A version, once made, is never changed.
pub trait Definitions: Send + Sync {
    /// A new version of an agent, the current one from now on. The same content as the current one makes none.
    fn put(&self, version: NewVersion) -> BoxFuture<'_, Result<PutVersion, RecordError>>;

    /// Which version of every agent of a project is the current one.
    fn numbers<'a>(
        &'a self,
        tenant: &'a TenantId,
        project: &'a ProjectId,
    ) -> BoxFuture<'a, Result<BTreeMap<Arc<str>, i64>, QueryError>>;

    /// The current version of every agent of a project, by name.
    fn current<'a>(
        &'a self,
        tenant: &'a TenantId,
        project: &'a ProjectId,
    ) -> BoxFuture<'a, Result<Vec<StoredVersion>, QueryError>>;

    /// A page of the versions of an agent, newest first.
    fn versions<'a>(
        &'a self,
        tenant: &'a TenantId,
        project: &'a ProjectId,
        agent: &'a str,
        query: &'a ListQuery,
    ) -> BoxFuture<'a, Result<VersionPage, QueryError>>;

    /// One version of an agent.
    fn version<'a>(
        &'a self,
        tenant: &'a TenantId,
        project: &'a ProjectId,
        agent: &'a str,
        version: i64,
    ) -> BoxFuture<'a, Result<Option<OneVersion>, QueryError>>;
}

/// A version that is to be.
#[derive(Clone, Debug)]
pub struct NewVersion {
    /// Whose.
    pub tenant: TenantId,
    /// Of which project.
    pub project: ProjectId,
    /// The agent's name.
    pub agent: Arc<str>,
    /// The definition's hash.
    pub hash: Arc<str>,
    /// The definition as JSON, the portable form.
    pub definition: Arc<str>,
    /// Who put it, as the audit names callers.
    pub author: Arc<str>,
    /// Microseconds since the epoch.
    pub created_at: i64,
    /// The version that must be the current one; 0: there must be none yet.
    pub expected: Option<i64>,
    /// The current versions of the project that it was checked beside; it is made only while these are current.
    pub beside: Option<Arc<BTreeMap<Arc<str>, i64>>>,
}

/// What came of putting one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PutVersion {
    /// This is its number: 1, 2, 3 …
    Made(i64),
    /// The current one, of this number, is the same.
    Same(i64),
    /// Another version is current: this one, 0 for none.
    Conflict(i64),
    /// Other versions than those it was checked beside are current in its project.
    Changed,
}

/// A version as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredVersion {
    /// The agent's name.
    pub agent: Arc<str>,
    /// 1, 2, 3 …
    pub version: i64,
    /// The definition's hash.
    pub hash: Arc<str>,
    /// The definition as JSON.
    pub definition: Arc<str>,
    /// Who put it.
    pub author: Arc<str>,
    /// Microseconds since the epoch.
    pub created_at: i64,
}

/// A version, and which one is current.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OneVersion {
    /// It.
    pub version: StoredVersion,
    /// The current one's number.
    pub current: i64,
}

/// A page of versions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VersionPage {
    /// Newest first.
    pub versions: Vec<ListedVersion>,
    /// For the next page; absent on the last.
    pub next_page_token: Option<String>,
}

/// A version as a list has it: all but the definition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedVersion {
    /// 1, 2, 3 …
    pub version: i64,
    /// Is it the current one?
    pub current: bool,
    /// The definition's hash.
    pub hash: Arc<str>,
    /// Who put it.
    pub author: Arc<str>,
    /// Microseconds since the epoch.
    pub created_at: i64,
}
