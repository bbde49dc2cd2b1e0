//! Queries of the decision log by analysts. Read only.

use std::sync::Arc;

use serde_json::Value;

use super::caller::{Caller, Identity};
use crate::domain::ids::{DecisionId, UserId};
use crate::domain::tool::FailureCode;
use crate::ports::records::Decisions;
pub use crate::ports::records::{ListQuery, Page, QueryError};

/// Queries of the decision log, restricted to what a caller may see.
#[derive(Clone)]
pub struct DecisionQueries {
    store: Arc<dyn Decisions>,
}

impl DecisionQueries {
    /// Creates the queries over `store`.
    #[must_use]
    pub fn new(store: Arc<dyn Decisions>) -> Self {
        Self { store }
    }

    /// A page of decisions.
    ///
    /// # Errors
    /// [`QueryError`].
    pub async fn list(&self, caller: &Caller, query: ListQuery) -> Result<Page<Value>, QueryError> {
        let query = bound(caller, query);
        let page = self.store.list(&caller.tenant, &query).await?;
        Ok(page_for(query.user.is_some(), page))
    }

    /// A page of tool calls.
    ///
    /// # Errors
    /// [`QueryError`].
    pub async fn tool_invocations(&self, caller: &Caller, query: ListQuery) -> Result<Page<Value>, QueryError> {
        let query = bound(caller, query);
        let page = self.store.tool_invocations(&caller.tenant, &query).await?;
        Ok(page_for(query.user.is_some(), page))
    }

    /// One decision, of `user` if given; `None` also when it belongs to another user.
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
        let Some(user) = only_user(caller).or(user) else {
            return Ok(found);
        };
        let own = found.filter(|row| row.get("user_id").and_then(Value::as_str) == Some(user.as_str()));
        Ok(own.map(for_its_user))
    }

    /// Does the store respond?
    ///
    /// # Errors
    /// [`QueryError::Unavailable`].
    pub async fn ping(&self) -> Result<(), QueryError> {
        self.store.ping().await
    }
}

/// A user sees their own rows; a service, or a user with the role `analyst`, sees the tenant's.
fn only_user(caller: &Caller) -> Option<&UserId> {
    match &caller.identity {
        Identity::User(user) if !caller.roles.contains("analyst") => Some(user),
        Identity::User(_) | Identity::Service(_) => None,
    }
}

fn page_for(user: bool, page: Page<Value>) -> Page<Value> {
    if !user {
        return page;
    }
    Page {
        items: page.items.into_iter().map(for_its_user).collect(),
        ..page
    }
}

/// A row as its own user may read it. Texts of a provider or of a tool's server are for operators only. The log
/// does not record whether gavel or the server worded a failure, so an ambiguous code gets its fixed text.
fn for_its_user(mut row: Value) -> Value {
    if let Some(detail) = row.get_mut("error_detail") {
        *detail = Value::Null;
    }
    if let Some(Value::Array(calls)) = row.get_mut("tool_calls") {
        calls.iter_mut().for_each(safe_words);
    }
    safe_words(&mut row);
    row
}

fn safe_words(call: &mut Value) {
    let Some(error) = call.pointer_mut("/result/error").filter(|error| error.is_object()) else {
        return;
    };
    let code = error.get("code").and_then(Value::as_str).and_then(FailureCode::parse);
    if let Some(words) = code.unwrap_or(FailureCode::ToolError).in_place_of_a_server() {
        error["message"] = words.into();
    }
}

fn bound(caller: &Caller, query: ListQuery) -> ListQuery {
    ListQuery {
        user: only_user(caller).cloned().or(query.user),
        ..query
    }
}
