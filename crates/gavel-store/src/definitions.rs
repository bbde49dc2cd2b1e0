//! Definitions that were uploaded through the API: port [`Definitions`].

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use async_trait::async_trait;
use serde::Deserialize;
use uuid::Uuid;

use super::Store;
use super::audit::{AuditKind, Entry, Whose};
use super::db::{Conn, sql, values};
use super::error::Fault;
use super::op::Op;
use super::queue::Batch;
use super::read::{Term, VERSIONS};
use super::table::{Column, Insert, Table};
use crate::api::agents::VersionInfo;
use crate::domain::ids::{ProjectId, TenantId};
use crate::ports::definitions::{Definitions, NewVersion, OneVersion, PutVersion, StoredVersion};
use crate::ports::records::{ListQuery, Page, QueryError, RecordError};

/// A version that is stored, with its number and the id of the request that made it.
type Made = (NewVersion, i64, Uuid);

type Definition = Column<Made>;

#[rustfmt::skip] // A line for each.
static DEFINITION: Table<Made> = Table { name: "agent_definition", columns: &[
    Definition::open("tenant", |(new, ..), _| (&new.tenant).into()),
    Definition::open("project_id", |(new, ..), _| (&new.project).into()),
    Definition::open("agent_id", |(new, ..), _| (&new.agent).into()).shown_as("agent"),
    Definition::open("version", |(_, version, _), _| (*version).into()).shown(),
    Definition::open("id", |(.., request), _| (*request).into()),
    Definition::open("hash", |(new, ..), _| (&new.hash).into()),
    Definition::open("definition", |(new, ..), _| (&new.definition).into()).shown(),
    Definition::open("author", |(new, ..), _| (&new.author).into()),
    Definition::open("created_at", |(new, ..), _| new.created_at.into()),
] };

/// tenant, project → the current version of every agent.
const CURRENT_NUMBERS: &str = "SELECT agent_id AS agent, MAX(version) AS version FROM agent_definition \
     WHERE tenant = $1 AND project_id = $2 GROUP BY agent_id";

/// What callers see of a version, of this tenant, project and agent.
const ABOUT: &str = r#"version AS "about.version", hash AS "about.definition_hash", author AS "about.author",
    created_at AS "about.created_at", version = (SELECT MAX(version) FROM agent_definition
    WHERE tenant = $1 AND project_id = $2 AND agent_id = $3) AS "about.current""#;

/// A row of [`CURRENT_NUMBERS`].
#[derive(Deserialize)]
struct Current {
    agent: Arc<str>,
    version: i64,
}

fn by_agent(rows: Vec<Current>) -> BTreeMap<Arc<str>, i64> {
    rows.into_iter().map(|row| (row.agent, row.version)).collect()
}

/// What lists of an agent's versions show.
pub(super) const LISTED: &str = "version, hash AS definition_hash, author, created_at, version = (SELECT MAX(version) \
     FROM agent_definition newer WHERE newer.tenant = agent_definition.tenant \
     AND newer.project_id = agent_definition.project_id AND newer.agent_id = agent_definition.agent_id) AS current";

#[async_trait]
impl Definitions for Store {
    async fn put(&self, version: NewVersion) -> Result<PutVersion, RecordError> {
        self.write(Op::Define(version, Uuid::now_v7())).await
    }

    async fn numbers(&self, tenant: &TenantId, project: &ProjectId) -> Result<BTreeMap<Arc<str>, i64>, QueryError> {
        let rows = self.working.all(CURRENT_NUMBERS, values![tenant, project]).await?;
        Ok(by_agent(rows))
    }

    async fn current(&self, tenant: &TenantId, project: &ProjectId) -> Result<Vec<StoredVersion>, QueryError> {
        let sql = sql!(
            "SELECT {} FROM agent_definition d WHERE tenant = $1 AND project_id = $2 \
             AND version = (SELECT MAX(version) FROM agent_definition WHERE tenant = d.tenant \
             AND project_id = d.project_id AND agent_id = d.agent_id) ORDER BY agent_id",
            DEFINITION.selected()
        );
        self.working.all(sql, values![tenant, project]).await
    }

    async fn versions(
        &self,
        tenant: &TenantId,
        project: &ProjectId,
        agent: &str,
        query: &ListQuery,
    ) -> Result<Page<VersionInfo>, QueryError> {
        let terms = [("project_id", project.as_str()), ("agent_id", agent)];
        let terms = terms.map(|(column, text)| Term::text(column, text));
        self.working.page(&VERSIONS, tenant, terms.into(), query).await
    }

    async fn version(
        &self,
        tenant: &TenantId,
        project: &ProjectId,
        agent: &str,
        version: i64,
    ) -> Result<Option<OneVersion>, QueryError> {
        let sql = sql!(
            "SELECT {}, definition FROM agent_definition \
             WHERE tenant = $1 AND project_id = $2 AND agent_id = $3 AND version = $4",
            ABOUT
        );
        self.working.one(sql, values![tenant, project, agent, version]).await
    }
}

impl Batch<'_> {
    pub(super) async fn define(&self, conn: &mut Conn, new: &NewVersion, request: Uuid) -> Result<PutVersion, Fault> {
        #[derive(Deserialize)]
        struct Stored {
            version: i64,
            hash: String,
            id: Uuid,
        }
        static DEFINE: LazyLock<Insert> =
            LazyLock::new(|| DEFINITION.inserts("ON CONFLICT (tenant, project_id, agent_id, version) DO NOTHING"));
        // The version of this request, or else the current one.
        let stored = "SELECT version, hash, id FROM agent_definition WHERE tenant = $1 AND project_id = $2 \
                      AND agent_id = $3 ORDER BY CASE WHEN id = $4 THEN 0 ELSE 1 END, version DESC LIMIT 1";
        loop {
            let key = values![&new.tenant, &new.project, &new.agent, request];
            let mut version = 0;
            if let Some(stored) = conn.one::<Stored>(stored, key).await? {
                version = stored.version;
                if stored.id == request {
                    // Made by this request, in a commit that was not acknowledged; later versions may exist.
                    return Ok(PutVersion::Made(version));
                }
                if new.expected.is_none_or(|expected| expected == version) && stored.hash == *new.hash {
                    return Ok(PutVersion::Same(version));
                }
            }
            if new.expected.is_some_and(|expected| expected != version) {
                return Ok(PutVersion::Conflict(version));
            }
            if let Some(beside) = &new.beside {
                // Stable while the project is locked.
                let numbers = conn.all(CURRENT_NUMBERS, values![&new.tenant, &new.project]).await?;
                if by_agent(numbers) != **beside {
                    return Ok(PutVersion::Changed);
                }
            }
            let made = (new.clone(), version + 1, request);
            if DEFINE.run(conn, DEFINITION.begin(&made, self.writing)).await? == 1 {
                let entry = Entry::new(AuditKind::DefinitionPut, request)
                    .for_(Whose::new(new.tenant.as_str(), &new.author))
                    .with("project", new.project.as_str())
                    .with("agent", &*new.agent)
                    .with("version", version + 1)
                    .with("hash", &*new.hash);
                self.audit(entry);
                return Ok(PutVersion::Made(version + 1));
            }
            // Another request made that version meanwhile; the next round sees it.
        }
    }
}
