//! Versioned definitions that were created through the API.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use serde::Deserialize;

use super::records::{ListQuery, Page, QueryError, RecordError};
use crate::api::agents::VersionInfo;
use crate::domain::ids::{ProjectId, TenantId};

/// The store of definitions. A version never changes once it is created.
#[async_trait]
pub trait Definitions: Send + Sync {
    /// Creates a new current version of an agent. Content equal to the current version creates nothing.
    async fn put(&self, version: NewVersion) -> Result<PutVersion, RecordError>;

    /// The current version number of every agent of a project.
    async fn numbers(&self, tenant: &TenantId, project: &ProjectId) -> Result<BTreeMap<Arc<str>, i64>, QueryError>;

    /// The current version of every agent of a project, by name.
    async fn current(&self, tenant: &TenantId, project: &ProjectId) -> Result<Vec<StoredVersion>, QueryError>;

    /// A page of the versions of an agent, newest first.
    async fn versions(
        &self,
        tenant: &TenantId,
        project: &ProjectId,
        agent: &str,
        query: &ListQuery,
    ) -> Result<Page<VersionInfo>, QueryError>;

    /// One version of an agent.
    async fn version(
        &self,
        tenant: &TenantId,
        project: &ProjectId,
        agent: &str,
        version: i64,
    ) -> Result<Option<OneVersion>, QueryError>;
}

/// A version to be created.
#[derive(Clone, Debug)]
pub struct NewVersion {
    /// The tenant.
    pub tenant: TenantId,
    /// The project.
    pub project: ProjectId,
    /// The agent's name.
    pub agent: Arc<str>,
    /// The definition's hash.
    pub hash: Arc<str>,
    /// The definition as JSON, the portable form.
    pub definition: Arc<str>,
    /// The caller that put it, as the audit log names callers.
    pub author: Arc<str>,
    /// Microseconds since the epoch.
    pub created_at: i64,
    /// The version that must be current; 0 means that no version may exist.
    pub expected: Option<i64>,
    /// The current versions of the project that this one was checked against. The version is created only while they
    /// are still current.
    pub beside: Option<Arc<BTreeMap<Arc<str>, i64>>>,
}

/// The result of putting a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PutVersion {
    /// Created, with this number: 1, 2, 3 …
    Made(i64),
    /// The current version, of this number, has the same content.
    Same(i64),
    /// This other version is current; 0 for none.
    Conflict(i64),
    /// The project's current versions are no longer those that the definition was checked against.
    Changed,
}

/// A stored version.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct StoredVersion {
    /// The agent's name.
    pub agent: Arc<str>,
    /// 1, 2, 3 …
    pub version: i64,
    /// The definition as JSON.
    pub definition: Arc<str>,
}

/// A version as callers see it, and its definition as JSON.
#[derive(Clone, Debug, Deserialize)]
pub struct OneVersion {
    /// The version.
    pub about: VersionInfo,
    /// The definition.
    pub definition: Arc<str>,
}
