//! What analysts ask of the record. Read only.

use std::sync::Arc;

use serde_json::Value;

use super::caller::{Caller, Identity};
use crate::domain::ids::{DecisionId, UserId};
use crate::ports::records::Decisions;
pub use crate::ports::records::{ListQuery, Page, QueryError};

/// Queries of the record, bounded to what a caller may see.
#[derive(Clone)]
pub struct DecisionQueries {
    store: Arc<dyn Decisions>,
}

impl DecisionQueries {
    /// Over `store`.
    #[must_use]
    pub fn new(store: Arc<dyn Decisions>) -> Self {
        Self { store }
    }

    /// A page of decisions.
    ///
    /// # Errors
    /// [`QueryError`].
    pub async fn list(&self, caller: &Caller, query: ListQuery) -> Result<Page, QueryError> {
        self.store.list(&caller.tenant, &bound(caller, query)).await
    }

    /// A page of tool calls.
    ///
    /// # Errors
    /// [`QueryError`].
    pub async fn tool_invocations(&self, caller: &Caller, query: ListQuery) -> Result<Page, QueryError> {
        self.store.tool_invocations(&caller.tenant, &bound(caller, query)).await
    }

    /// One decision, of `user` where one is named; `None` also when it is somebody else's.
    ///
    /// # Errors
    /// [`QueryError`].
    pub async fn get(
        &self,
        caller: &Caller,
        user: Option<&UserId>,
        id: DecisionId,
    ) -> Result<Option<Value>, QueryError> {
        let found = self.store.get(&caller.tenant, id).await?;
        Ok(found.filter(|row| match only_user(caller).or(user) {
            None => true,
            Some(user) => row.get("user_id").and_then(Value::as_str) == Some(user.as_str()),
        }))
    }

    /// Does the store answer?
    ///
    /// # Errors
    /// [`QueryError::Unavailable`].
    pub async fn ping(&self) -> Result<(), QueryError> {
        self.store.ping().await
    }
}

/// A user sees their own rows; a service, and a user with the role `analyst`, the tenant's.
fn only_user(caller: &Caller) -> Option<&UserId> {
    match &caller.identity {
        Identity::User(user) if !caller.roles.contains("analyst") => Some(user),
        Identity::User(_) | Identity::Service(_) => None,
    }
}

fn bound(caller: &Caller, query: ListQuery) -> ListQuery {
    ListQuery {
        user: only_user(caller).cloned().or(query.user),
        ..query
    }
}
