//! Definitions that were uploaded through the API: port [`Definitions`]. Writes go through an op of `runs`.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::Store;
use super::db::{Row, Value};
use super::runs::{RunDone, RunOp, answer};
use crate::domain::ids::{ProjectId, TenantId};
use crate::ports::BoxFuture;
use crate::ports::definitions::{Definitions, ListedVersion, NewVersion, OneVersion, PutVersion, StoredVersion};
use crate::ports::records::{ListQuery, Page, QueryError, RecordError};

const COLUMNS: &str = "agent_id, version, hash, definition, author, created_at";
/// (tenant, project) → (agent, version): the current version of every agent.
pub(super) const CURRENT_NUMBERS: &str =
    "SELECT agent_id, MAX(version) FROM agent_definition WHERE tenant = $1 AND project_id = $2 GROUP BY agent_id";
/// Maximum rows of a page.
const MAX_PAGE: u32 = 1000;

impl Definitions for Store {
    fn put(&self, version: NewVersion) -> BoxFuture<'_, Result<PutVersion, RecordError>> {
        let op = RunOp::Define(version, Uuid::now_v7());
        Box::pin(async move { answer!(self.run("put definition", op).await?, RunDone::Put) })
    }

    fn numbers<'a>(
        &'a self,
        tenant: &'a TenantId,
        project: &'a ProjectId,
    ) -> BoxFuture<'a, Result<BTreeMap<Arc<str>, i64>, QueryError>> {
        let values = vec![Value::text(tenant.as_str()), Value::text(project.as_str())];
        Box::pin(async move {
            let mut numbers = BTreeMap::new();
            self.working
                .rows(CURRENT_NUMBERS.into(), values, &mut |row| {
                    numbers.insert(row.text(0)?.into(), row.int(1)?);
                    Ok(ControlFlow::Continue(()))
                })
                .await?;
            Ok(numbers)
        })
    }

    fn current<'a>(
        &'a self,
        tenant: &'a TenantId,
        project: &'a ProjectId,
    ) -> BoxFuture<'a, Result<Vec<StoredVersion>, QueryError>> {
        let sql = format!(
            "SELECT {COLUMNS} FROM agent_definition d WHERE tenant = $1 AND project_id = $2 \
             AND version = (SELECT MAX(version) FROM agent_definition WHERE tenant = d.tenant \
             AND project_id = d.project_id AND agent_id = d.agent_id) ORDER BY agent_id"
        );
        let values = vec![Value::text(tenant.as_str()), Value::text(project.as_str())];
        Box::pin(self.stored_versions(sql, values))
    }

    fn versions<'a>(
        &'a self,
        tenant: &'a TenantId,
        project: &'a ProjectId,
        agent: &'a str,
        query: &'a ListQuery,
    ) -> BoxFuture<'a, Result<Page<ListedVersion>, QueryError>> {
        Box::pin(self.version_page(tenant, project, agent, query))
    }

    fn version<'a>(
        &'a self,
        tenant: &'a TenantId,
        project: &'a ProjectId,
        agent: &'a str,
        version: i64,
    ) -> BoxFuture<'a, Result<Option<OneVersion>, QueryError>> {
        let sql = format!(
            "SELECT {COLUMNS}, (SELECT MAX(version) FROM agent_definition WHERE tenant = $1 AND project_id = $2 \
             AND agent_id = $3) FROM agent_definition \
             WHERE tenant = $1 AND project_id = $2 AND agent_id = $3 AND version = $4"
        );
        let values = vec![
            Value::text(tenant.as_str()),
            Value::text(project.as_str()),
            Value::text(agent),
            Value::Int(Some(version)),
        ];
        Box::pin(async move {
            let mut found = None;
            self.working
                .rows(sql.into(), values, &mut |row| {
                    found = Some(OneVersion {
                        version: stored(&row)?,
                        current: row.int(6)?,
                    });
                    Ok(ControlFlow::Break(()))
                })
                .await?;
            Ok(found)
        })
    }
}

impl Store {
    async fn stored_versions(&self, sql: String, values: Vec<Value>) -> Result<Vec<StoredVersion>, QueryError> {
        let mut versions = Vec::new();
        self.working
            .rows(sql.into(), values, &mut |row| {
                versions.push(stored(&row)?);
                Ok(ControlFlow::Continue(()))
            })
            .await?;
        Ok(versions)
    }

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
        let size = query.page_size.clamp(1, MAX_PAGE) as usize;
        let sql = "SELECT version, hash, author, created_at FROM agent_definition \
                   WHERE tenant = $1 AND project_id = $2 AND agent_id = $3 AND version < $4 \
                   ORDER BY version DESC LIMIT $5";
        let values = vec![
            Value::text(tenant.as_str()),
            Value::text(project.as_str()),
            Value::text(agent),
            Value::Int(Some(before.unwrap_or(i64::MAX))),
            // One extra row shows whether there is a next page.
            Value::Int(Some(i64::try_from(size + 1).unwrap_or(i64::MAX))),
        ];
        let mut versions = Vec::new();
        self.working
            .rows(sql.into(), values, &mut |row| {
                versions.push(ListedVersion {
                    version: row.int(0)?,
                    // Later pages hold older versions.
                    current: before.is_none() && versions.is_empty(),
                    hash: row.text(1)?.into(),
                    author: row.text(2)?.into(),
                    created_at: row.int(3)?,
                });
                Ok(ControlFlow::Continue(()))
            })
            .await?;
        let has_more = versions.len() > size;
        versions.truncate(size);
        let last = versions.last().filter(|_| has_more);
        Ok(Page {
            next_page_token: last.map(|last| token(last.version, list)),
            items: versions,
        })
    }
}

fn stored(row: &Row) -> Result<StoredVersion, sqlx::Error> {
    Ok(StoredVersion {
        agent: row.text(0)?.into(),
        version: row.int(1)?,
        hash: row.text(2)?.into(),
        definition: row.text(3)?.into(),
        author: row.text(4)?.into(),
        created_at: row.int(5)?,
    })
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
