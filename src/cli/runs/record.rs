//! Reads runs. It starts and changes nothing.

use std::sync::Arc;

use anyhow::{Context, anyhow};
use secrecy::ExposeSecret;
use serde_json::{Value, json};

use super::place::{Place, There};
use crate::adapters::store::ReadOnly;
use crate::cli::client::Refused;
use crate::cli::operator;
use crate::domain::ids::{ProjectId, RunId, TenantId, ThreadId, UserId};
use crate::ports::clock::{Clock, SystemClock};
use crate::ports::records::ListQuery;
use crate::surfaces::approvals::{ActionInDoubt, PendingApproval, in_doubt_only, pending_only};
use crate::surfaces::caller::Caller;
use crate::surfaces::decisions::DecisionQueries;
use crate::surfaces::threads::{ActionAnswer, MESSAGES};

/// The records, in the configured database or at a remote gavel.
pub(in crate::cli) enum Record {
    Here(Own),
    There(There),
}

/// The configured database.
pub(in crate::cli) struct Own {
    record: Arc<ReadOnly>,
    caller: Caller,
    tenant: TenantId,
    user: Option<UserId>,
}

impl Record {
    pub(in crate::cli) async fn open(place: Place) -> anyhow::Result<Self> {
        Ok(match place {
            Place::There(there) => Self::There(there),
            Place::Here(here) => {
                let record = ReadOnly::open(here.config.database_url.expose_secret()).await;
                Self::Here(Own {
                    record: Arc::new(record.context("the database cannot be read")?),
                    caller: operator::caller(here.tenant.clone(), None),
                    tenant: here.tenant,
                    user: here.user,
                })
            }
        })
    }

    /// A page of runs: `{runs, next_page_token}`.
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
                let path = ["api", "projects", project.as_str(), "runs"];
                there.page(&path, &query).await
            }
        }
    }

    /// A page of approval requests: `{approvals, next_page_token}`.
    pub(in crate::cli) async fn pending(&self, query: ListQuery) -> anyhow::Result<Value> {
        match self {
            Self::Here(own) => {
                let query = ListQuery {
                    user: own.user.clone(),
                    ..pending_only(query)
                };
                let (actions, token) = own.record.actions(&own.tenant, &query).await?;
                let now_us = SystemClock.now_us();
                let actions = actions.into_iter();
                let approvals: Vec<_> = actions
                    .filter_map(|action| PendingApproval::of(action, now_us))
                    .collect();
                Ok(json!({ "approvals": approvals, "next_page_token": token }))
            }
            Self::There(there) => there.page(&["api", "agent", "approvals", "pending"], &query).await,
        }
    }

    /// A page of in-doubt actions: `{actions, next_page_token}`.
    pub(in crate::cli) async fn in_doubt(&self, query: ListQuery) -> anyhow::Result<Value> {
        match self {
            Self::Here(own) => {
                let query = ListQuery {
                    user: own.user.clone(),
                    ..in_doubt_only(query)
                };
                let (actions, token) = own.record.actions(&own.tenant, &query).await?;
                let actions: Vec<_> = actions.into_iter().map(ActionInDoubt::from).collect();
                Ok(json!({ "actions": actions, "next_page_token": token }))
            }
            Self::There(there) => there.page(&["api", "agent", "actions", "in-doubt"], &query).await,
        }
    }

    /// A page of threads: `{threads, next_page_token}`.
    pub(in crate::cli) async fn threads(&self, query: ListQuery) -> anyhow::Result<Value> {
        match self {
            Self::Here(own) => {
                let query = ListQuery {
                    user: own.user.clone(),
                    ..query
                };
                let (threads, token) = own.record.threads(&own.tenant, &query).await?;
                Ok(json!({ "threads": threads, "next_page_token": token }))
            }
            Self::There(there) => there.page(&["api", "agent", "threads"], &query).await,
        }
    }

    /// One thread, with its latest messages before number `before`.
    pub(in crate::cli) async fn thread(&self, thread: ThreadId, before: Option<u64>) -> anyhow::Result<Value> {
        match self {
            Self::Here(own) => {
                let user = own.user.as_ref();
                let found = own.record.thread(&own.tenant, user, thread, before, MESSAGES).await?;
                let found = found.ok_or_else(|| anyhow!("there is no thread {thread} of the tenant {}", own.tenant))?;
                Ok(serde_json::to_value(found)?)
            }
            Self::There(there) => {
                let id = thread.to_string();
                let before = before.map(|before| before.to_string());
                let query: Vec<_> = before.iter().map(|before| ("before", before.as_str())).collect();
                let path = ["api", "agent", "threads", &id];
                let got = there.client.get(&path, &query, there.user.as_ref()).await;
                got.with_context(|| format!("thread {thread}"))
            }
        }
    }

    /// The actions of a thread's run, as in its API response; empty if the run is no longer kept.
    pub(in crate::cli) async fn actions(&self, run: RunId) -> anyhow::Result<Vec<Value>> {
        match self {
            Self::Here(own) => {
                let actions = own.record.actions_of(run).await?;
                let told = actions.iter().map(|action| {
                    let mut told = serde_json::to_value(ActionAnswer::of(action))?;
                    // Here every user's actions are read.
                    told["userId"] = action.user.as_str().into();
                    Ok(told)
                });
                told.collect()
            }
            Self::There(there) => {
                let id = run.to_string();
                let path = ["api", "agent", "runs", &id];
                let mut run = match there.client.get(&path, &[], there.user.as_ref()).await {
                    Ok(run) => run,
                    Err(error) if is_hidden(&error) => return Ok(Vec::new()),
                    Err(error) => return Err(error),
                };
                let actions = run["actions"].as_array_mut().map(std::mem::take).unwrap_or_default();
                // A call that only read something is not an action, and has no record.
                Ok(actions.into_iter().filter(|call| call["record"].is_object()).collect())
            }
        }
    }

    /// A page of grants: `{grants, next_page_token}`.
    pub(in crate::cli) async fn grants(&self, query: ListQuery) -> anyhow::Result<Value> {
        match self {
            Self::Here(own) => {
                let query = ListQuery {
                    user: own.user.clone(),
                    ..query
                };
                let (grants, token) = own.record.grants(&own.tenant, &query).await?;
                Ok(json!({ "grants": grants, "next_page_token": token }))
            }
            Self::There(there) => there.page(&["api", "agent", "grants"], &query).await,
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

    /// The run's calls, from its decision; `None` if the caller may not see that.
    pub(super) async fn calls(&self, run: RunId) -> anyhow::Result<Option<Value>> {
        let decision = match self {
            Self::Here(own) => {
                let queries = DecisionQueries::new(own.record.clone());
                queries.get(&own.caller, None, run.decision()).await?
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

    pub(in crate::cli) async fn close(self) {
        if let Self::Here(own) = self {
            own.record.close().await;
        }
    }
}

impl There {
    async fn page(&self, path: &[&str], query: &ListQuery) -> anyhow::Result<Value> {
        let size = query.page_size.to_string();
        // Routes of threads spell names in camelCase.
        let (page_size, page_token) = match path {
            ["api", "agent", ..] => ("pageSize", "pageToken"),
            _ => ("page_size", "page_token"),
        };
        let mut given = vec![(page_size, size.as_str())];
        given.extend(query.filter.as_deref().map(|filter| ("filter", filter)));
        given.extend(query.page_token.as_deref().map(|token| (page_token, token)));
        let mut page: Value = self.client.get(path, &given, self.user.as_ref()).await?;
        if let Some(token) = page.as_object_mut().and_then(|page| page.remove("nextPageToken")) {
            page["next_page_token"] = token;
        }
        Ok(page)
    }
}

fn is_hidden(error: &anyhow::Error) -> bool {
    let refused = error.downcast_ref::<Refused>();
    refused.is_some_and(|refused| matches!(refused.status.as_u16(), 403 | 404))
}
