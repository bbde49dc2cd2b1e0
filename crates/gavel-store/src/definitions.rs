//! Definitions that were uploaded through the API: port [`Definitions`].

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use async_trait::async_trait;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::Store;
use super::audit::{AuditKind, Entry, Whose};
use super::db::{Conn, sql, values};
use super::error::Fault;
use super::op::Op;
use super::queue::Batch;
use super::table::Insert;
use super::table::{Column, Table};
use crate::domain::ids::{ProjectId, TenantId};
use crate::ports::definitions::{Definitions, ListedVersion, NewVersion, OneVersion, PutVersion, StoredVersion};
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
    Definition::open("hash", |(new, ..), _| (&new.hash).into()).shown(),
    Definition::open("definition", |(new, ..), _| (&new.definition).into()).shown(),
    Definition::open("author", |(new, ..), _| (&new.author).into()).shown(),
    Definition::open("created_at", |(new, ..), _| new.created_at.into()).shown(),
] };

/// tenant, project → the current version of every agent.
const CURRENT_NUMBERS: &str = "SELECT agent_id AS agent, MAX(version) AS version FROM agent_definition \
     WHERE tenant = $1 AND project_id = $2 GROUP BY agent_id";

/// A row of [`CURRENT_NUMBERS`].
#[derive(Deserialize)]
struct Current {
    agent: Arc<str>,
    version: i64,
}

fn by_agent(rows: Vec<Current>) -> BTreeMap<Arc<str>, i64> {
    rows.into_iter().map(|row| (row.agent, row.version)).collect()
}

/// Maximum rows of a page.
const MAX_PAGE: u32 = 1000;

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
    ) -> Result<Page<ListedVersion>, QueryError> {
        self.version_page(tenant, project, agent, query).await
    }

    async fn version(
        &self,
        tenant: &TenantId,
        project: &ProjectId,
        agent: &str,
        version: i64,
    ) -> Result<Option<OneVersion>, QueryError> {
        let sql = sql!(
            "SELECT {}, (SELECT MAX(version) FROM agent_definition WHERE tenant = $1 AND project_id = $2 \
             AND agent_id = $3) AS current FROM agent_definition \
             WHERE tenant = $1 AND project_id = $2 AND agent_id = $3 AND version = $4",
            DEFINITION.selected()
        );
        self.working.one(sql, values![tenant, project, agent, version]).await
    }
}

impl Store {
    async fn version_page(
        &self,
        tenant: &TenantId,
        project: &ProjectId,
        agent: &str,
        query: &ListQuery,
    ) -> Result<Page<ListedVersion>, QueryError> {
        let list = fingerprint(tenant, project, agent);
        let before = query.page_token.as_deref().map(|token| read_token(token, list));
        let before = before.transpose()?;
        let size = query.page_size.clamp(1, MAX_PAGE);
        let sql = "SELECT version, hash, author, created_at FROM agent_definition \
                   WHERE tenant = $1 AND project_id = $2 AND agent_id = $3 AND version < $4 \
                   ORDER BY version DESC LIMIT $5";
        // One extra row shows whether there is a next page.
        let values = values![tenant, project, agent, before.unwrap_or(i64::MAX), size + 1];
        let mut versions: Vec<ListedVersion> = self.working.all(sql, values).await?;
        // Later pages hold older versions.
        if let (None, Some(first)) = (before, versions.first_mut()) {
            first.current = true;
        }
        let has_more = versions.len() > size as usize;
        versions.truncate(size as usize);
        let last = versions.last().filter(|_| has_more);
        Ok(Page {
            next_page_token: last.map(|last| token(last.version, list)),
            items: versions,
        })
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

/// Distinguishes the list of one agent's versions from all others.
fn fingerprint(tenant: &TenantId, project: &ProjectId, agent: &str) -> [u8; 8] {
    let mut hash = Sha256::new();
    for part in [tenant.as_str(), project.as_str(), agent] {
        hash.update(part.len().to_be_bytes());
        hash.update(part);
    }
    let mut short = [0; 8];
    short.copy_from_slice(&hash.finalize()[..8]);
    short
}

/// The end of a page: base64url of fingerprint and version, 8 bytes each, big endian.
fn token(version: i64, list: [u8; 8]) -> String {
    URL_SAFE_NO_PAD.encode([list, version.to_be_bytes()].concat())
}

fn read_token(text: &str, list: [u8; 8]) -> Result<i64, QueryError> {
    let bytes = URL_SAFE_NO_PAD.decode(text).unwrap_or_default();
    match bytes.split_first_chunk::<8>() {
        Some((of, version)) if *of == list && version.len() == 8 => {
            let mut number = [0; 8];
            number.copy_from_slice(version);
            Ok(i64::from_be_bytes(number))
        }
        _ => Err(QueryError::Invalid {
            field: "page_token",
            detail: "is not a page token of this list; use next_page_token of the previous page".to_owned(),
        }),
    }
}
