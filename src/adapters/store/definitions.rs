//! Definitions that came by the API: port [`Definitions`]. Written as an op of `runs`.

use std::ops::ControlFlow;

use uuid::Uuid;

use super::Store;
use super::db::Value;
use super::runs::{RunDone, RunOp, answer};
use crate::domain::ids::{ProjectId, TenantId};
use crate::ports::BoxFuture;
use crate::ports::definitions::{Definitions, NewVersion, PutVersion, StoredVersion};
use crate::ports::records::{QueryError, RecordError};

const COLUMNS: &str = "agent_id, version, hash, definition, author, created_at";

impl Definitions for Store {
    fn put(&self, version: NewVersion) -> BoxFuture<'_, Result<PutVersion, RecordError>> {
        let op = RunOp::Define(version, Uuid::now_v7());
        Box::pin(async move { answer!(self.run("put definition", op).await?, RunDone::Put) })
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
    ) -> BoxFuture<'a, Result<Vec<StoredVersion>, QueryError>> {
        let sql = format!(
            "SELECT {COLUMNS} FROM agent_definition WHERE tenant = $1 AND project_id = $2 AND agent_id = $3 \
             ORDER BY version DESC"
        );
        let values = vec![
            Value::text(tenant.as_str()),
            Value::text(project.as_str()),
            Value::text(agent),
        ];
        Box::pin(self.stored_versions(sql, values))
    }
}

impl Store {
    async fn stored_versions(&self, sql: String, values: Vec<Value>) -> Result<Vec<StoredVersion>, QueryError> {
        let mut versions = Vec::new();
        self.working
            .rows(sql.into(), values, &mut |row| {
                versions.push(StoredVersion {
                    agent: row.text(0)?.into(),
                    version: row.int(1)?,
                    hash: row.text(2)?.into(),
                    definition: row.text(3)?.into(),
                    author: row.text(4)?.into(),
                    created_at: row.int(5)?,
                });
                Ok(ControlFlow::Continue(()))
            })
            .await?;
        Ok(versions)
    }
}
