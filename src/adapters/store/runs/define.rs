//! Stores versions of definitions.

use std::collections::BTreeMap;
use std::sync::Arc;

use uuid::Uuid;

use super::super::audit::{AuditKind, Entry, Whose};
use super::super::batch::Batch;
use super::super::db::{Conn, Value};
use super::super::definitions::CURRENT_NUMBERS;
use super::super::error::Fault;
use super::values::{each, id, int};
use crate::domain::ids::{ProjectId, TenantId};
use crate::ports::definitions::{NewVersion, PutVersion};

impl Batch<'_> {
    pub(in super::super) async fn define(
        &self,
        conn: &mut Conn,
        new: &NewVersion,
        request: Uuid,
    ) -> Result<PutVersion, Fault> {
        let key = [
            Value::text(new.tenant.as_str()),
            Value::text(new.project.as_str()),
            Value::shared(&new.agent),
        ];
        loop {
            let values = key.iter().cloned().chain([id(request)]).collect();
            let current = conn.first(&self.texts().defined, values).await?;
            let mut version = 0;
            if let Some(row) = current {
                version = row.int(0)?;
                if row.text(2)? == request.to_string() {
                    // Made by this request, in a commit that was not acknowledged; later versions may exist.
                    return Ok(PutVersion::Made(version));
                }
                if new.expected.is_none_or(|expected| expected == version) && row.text(1)? == *new.hash {
                    return Ok(PutVersion::Same(version));
                }
            }
            if new.expected.is_some_and(|expected| expected != version) {
                return Ok(PutVersion::Conflict(version));
            }
            if let Some(beside) = &new.beside
                && self.numbers(conn, &new.tenant, &new.project).await? != **beside
            {
                return Ok(PutVersion::Changed);
            }
            let mut values = key.to_vec();
            values.extend([
                int(version + 1),
                id(request),
                Value::shared(&new.hash),
                Value::shared(&new.definition),
                Value::shared(&new.author),
                int(new.created_at),
            ]);
            if conn.execute(&self.texts().define, values).await? == 1 {
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

    /// The current version of every agent of a project, stable while the project is locked.
    async fn numbers(
        &self,
        conn: &mut Conn,
        tenant: &TenantId,
        project: &ProjectId,
    ) -> Result<BTreeMap<Arc<str>, i64>, Fault> {
        let values = vec![Value::text(tenant.as_str()), Value::text(project.as_str())];
        let mut numbers = BTreeMap::new();
        each(conn, &CURRENT_NUMBERS.into(), values, |row| {
            numbers.insert(row.text(0)?.into(), row.int(1)?);
            Ok(())
        })
        .await?;
        Ok(numbers)
    }
}
