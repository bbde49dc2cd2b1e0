//! Runs read back. Nothing is started for that, and nothing changed.

use std::sync::Arc;

use anyhow::{Context, anyhow};
use secrecy::ExposeSecret;
use serde_json::{Value, json};

use super::place::{Place, There};
use crate::adapters::store::ReadOnly;
use crate::cli::client::Refused;
use crate::cli::operator;
use crate::domain::ids::{ProjectId, RunId, TenantId, UserId};
use crate::ports::records::ListQuery;
use crate::surfaces::caller::Caller;
use crate::surfaces::decisions::DecisionQueries;

/// The record, here or there.
pub(super) enum Record {
    Here(Own),
    There(There),
}

/// The database of this configuration.
pub(super) struct Own {
    record: Arc<ReadOnly>,
    caller: Caller,
    tenant: TenantId,
    user: Option<UserId>,
}

impl Record {
    pub(super) async fn open(place: Place) -> anyhow::Result<Self> {
        Ok(match place {
            Place::There(there) => Self::There(there),
            Place::Here(here) => {
                let record = ReadOnly::open(here.config.database_url.expose_secret()).await;
                Self::Here(Own {
                    record: Arc::new(record.context("the record cannot be read")?),
                    caller: operator::caller(here.tenant.clone()),
                    tenant: here.tenant,
                    user: here.user,
                })
            }
        })
    }

    /// A page: `{runs, next_page_token}`.
    pub(super) async fn list(&self, project: &ProjectId, query: ListQuery) -> anyhow::Result<Value> {
        match self {
            Self::Here(own) => {
                let query = ListQuery {
                    user: own.user.clone(),
                    ..query
                };
                let (runs, token) = own.record.runs(&own.tenant, project, &query).await?;
                Ok(json!({ "runs": runs, "next_page_token": token }))
            }
            Self::There(there) => {
                let size = query.page_size.to_string();
                let mut given = vec![("page_size", size.as_str())];
                given.extend(query.filter.as_deref().map(|filter| ("filter", filter)));
                given.extend(query.page_token.as_deref().map(|token| ("page_token", token)));
                let path = ["api", "projects", project.as_str(), "runs"];
                there.client.get(&path, &given, there.user.as_ref()).await
            }
        }
    }

    /// One run.
    pub(super) async fn get(&self, run: RunId) -> anyhow::Result<Value> {
        match self {
            Self::Here(own) => {
                let found = own.record.run(&own.tenant, own.user.as_ref(), run).await?;
                let found = found.ok_or_else(|| anyhow!("there is no run {run} of the tenant {}", own.tenant))?;
                Ok(serde_json::to_value(found)?)
            }
            Self::There(there) => {
                let id = run.to_string();
                let got = there.client.get(&["api", "runs", &id], &[], there.user.as_ref()).await;
                got.with_context(|| format!("run {run}"))
            }
        }
    }

    /// The run's calls, as its decision has them; `None` where whoever asks may not see that.
    pub(super) async fn calls(&self, run: RunId) -> anyhow::Result<Option<Value>> {
        let decision = match self {
            Self::Here(own) => {
                let queries = DecisionQueries::new(own.record.clone());
                queries.get(&own.caller, run.decision()).await?
            }
            Self::There(there) => {
                let id = run.decision().to_string();
                match there.client.get(&["v1", "decisions", &id], &[], None).await {
                    Ok(decision) => Some(decision),
                    Err(error) if is_hidden(&error) => None,
                    Err(error) => return Err(error),
                }
            }
        };
        Ok(decision.and_then(|mut decision| decision.get_mut("tool_calls").map(Value::take)))
    }

    pub(super) async fn close(self) {
        if let Self::Here(own) = self {
            own.record.close().await;
        }
    }
}

fn is_hidden(error: &anyhow::Error) -> bool {
    let refused = error.downcast_ref::<Refused>();
    refused.is_some_and(|refused| matches!(refused.status.as_u16(), 403 | 404))
}
