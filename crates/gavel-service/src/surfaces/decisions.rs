//! Queries of the decision log by analysts. Read only.

mod why;

use std::collections::HashMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};

use super::caller::{ANALYST, Caller, Identity};
use super::definitions::Directory;
use super::problem::Problem;
use crate::api::decisions::{AskedWith, DecisionDetail, DecisionRecord, Erased, Said, ToolInvocation};
use crate::api::filter::FilterFields;
use crate::api::problem::Code;
use crate::domain::definition::Definition;
use crate::domain::ids::{DecisionId, ErasureId, TenantId, UserId};
use crate::ports::records::{Decisions, Erasure};
pub use crate::ports::records::{ListQuery, Page, QueryError};

/// Queries of the decision log, restricted to what a caller may see.
#[derive(Clone)]
pub struct DecisionQueries {
    store: Arc<dyn Decisions>,
    directory: Arc<Directory>,
    /// The current definition of the chat surface, if it is known.
    constitution: Option<Arc<Definition>>,
}

impl DecisionQueries {
    /// Creates the queries over `store`. Decisions are compared with the current definitions: those of `directory`, and
    /// the constitution.
    pub fn new(store: Arc<dyn Decisions>, directory: Arc<Directory>, constitution: Option<Arc<Definition>>) -> Self {
        Self {
            store,
            directory,
            constitution,
        }
    }

    /// A page of decisions.
    ///
    /// # Errors
    /// [`QueryError`].
    pub async fn list(&self, caller: &Caller, query: ListQuery) -> Result<Page<DecisionRecord>, QueryError> {
        let query = bound(caller, query);
        let page = self.store.list(&caller.tenant, &query).await?;
        Ok(match query.user {
            Some(_) => page.map(decision_for_its_user),
            None => page,
        })
    }

    /// What filters of lists can ask for.
    pub fn filter_fields(&self) -> FilterFields {
        self.store.filter_fields()
    }

    /// A page of tool calls.
    ///
    /// # Errors
    /// [`QueryError`].
    pub async fn tool_invocations(
        &self,
        caller: &Caller,
        query: ListQuery,
    ) -> Result<Page<ToolInvocation>, QueryError> {
        let query = bound(caller, query);
        let page = self.store.tool_invocations(&caller.tenant, &query).await?;
        Ok(match query.user {
            Some(_) => page.map(call_for_its_user),
            None => page,
        })
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
    ) -> Result<Option<DecisionDetail>, QueryError> {
        let found = self.store.get(&caller.tenant, id).await?;
        let Some(user) = only_user(caller).or(user) else {
            return Ok(found);
        };
        let own = found.filter(|found| found.decision.user_id == user.as_str());
        Ok(own.map(|found| DecisionDetail {
            decision: decision_for_its_user(found.decision),
            tool_calls: found.tool_calls.into_iter().map(call_for_its_user).collect(),
        }))
    }

    /// What the model was asked with at first; `None` as for [`Self::get`], and if it was not asked.
    ///
    /// # Errors
    /// [`QueryError`].
    pub async fn asked_with(
        &self,
        caller: &Caller,
        user: Option<&UserId>,
        id: DecisionId,
    ) -> Result<Option<AskedWith>, QueryError> {
        let Some(DecisionDetail { decision, .. }) = self.get(caller, user, id).await? else {
            return Ok(None);
        };
        let Some(toolset) = &decision.toolset_hash else {
            return Ok(None);
        };
        let of = decision.user_id.as_str();
        let (definition, history) = (&*decision.definition_hash, decision.history_hash.as_deref());
        let hashes: Vec<_> = [definition, toolset].into_iter().chain(history).collect();
        let texts = self.texts(&caller.tenant, of, &hashes).await?;
        let history = history.and_then(|hash| texts.get(hash)?.as_deref());
        let said: Vec<(String, String)> = history
            .and_then(|said| serde_json::from_str(said).ok())
            .unwrap_or_default();
        let hashes: Vec<_> = said.iter().map(|(_, hash)| hash.as_str()).collect();
        let messages = self.texts(&caller.tenant, of, &hashes).await?;
        let json = |hash: &str| RawValue::from_string(texts.get(hash)?.clone()?).ok();
        let is_for_its_user = only_user(caller).or(user).is_some();
        let toolset = texts
            .get(toolset)
            .and_then(|text| Toolset::<&RawValue>::read(text.as_deref()?, is_for_its_user));
        Ok(Some(AskedWith {
            definition: json(definition),
            toolset: toolset.and_then(|toolset| to_raw_value(&toolset).ok()),
            history: said
                .into_iter()
                .map(|(role, hash)| Said {
                    role,
                    content: messages.get(&hash).cloned().flatten(),
                    hash,
                })
                .collect(),
            decision_id: decision.decision_id,
            requested_model: decision.requested_model,
            message: decision.message,
        }))
    }

    /// Erases the texts of a user: in the logs, and with the rows of ended runs, threads and sessions.
    ///
    /// # Errors
    /// The caller is not a service that names no user; the store is unavailable, and what is erased stays erased.
    pub async fn erase(&self, caller: &Caller, acting: Option<&UserId>, user: UserId) -> Result<Erased, Problem> {
        if !matches!(caller.identity, Identity::Service(_)) || acting.is_some() {
            let detail = "Texts are erased by a service that names no acting user: omit X-Gavel-User.";
            return Err(Problem::new(Code::Forbidden, detail));
        }
        let mut erasure = Erasure {
            tenant: caller.tenant.clone(),
            user,
            actor: caller.name(),
            after: Some(String::new()),
            erased: Erased {
                erasure_id: ErasureId::new(),
                decisions: 0,
                tool_invocations: 0,
                left: 0,
            },
        };
        while erasure.after.is_some() {
            let erased = self.store.erase(erasure).await;
            erasure = erased.map_err(|error| Problem::from(Code::RecordUnavailable).after(&error))?;
        }
        Ok(erasure.erased)
    }

    /// Texts of a user by their hashes.
    async fn texts(
        &self,
        tenant: &TenantId,
        user: &str,
        hashes: &[&str],
    ) -> Result<HashMap<String, Option<String>>, QueryError> {
        Ok(match hashes.is_empty() {
            true => HashMap::new(),
            false => self.store.texts(tenant, user, hashes).await?.into_iter().collect(),
        })
    }

    /// Does the store respond?
    ///
    /// # Errors
    /// [`QueryError::Unavailable`].
    pub async fn ping(&self) -> Result<(), QueryError> {
        self.store.ping().await
    }
}

/// What a model was offered, and what could not be offered.
#[derive(Default, Serialize, Deserialize)]
struct Toolset<F> {
    functions: F,
    missing: Vec<Missing>,
}

#[derive(Serialize, Deserialize)]
struct Missing {
    name: String,
    /// For operators: it can name servers, and what they answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

impl<'a, F: Deserialize<'a>> Toolset<F> {
    /// Reads it, for one of its user if so.
    fn read(text: &'a str, is_for_its_user: bool) -> Option<Self> {
        let mut toolset: Self = serde_json::from_str(text).ok()?;
        if is_for_its_user {
            toolset.missing.iter_mut().for_each(|missing| missing.reason = None);
        }
        Some(toolset)
    }
}

/// A user sees their own rows; a service, or a user with the role `analyst`, sees the tenant's.
pub(super) fn only_user(caller: &Caller) -> Option<&UserId> {
    match &caller.identity {
        Identity::User(user) if !caller.roles.contains(ANALYST) => Some(user),
        Identity::User(_) | Identity::Service(_) => None,
    }
}

/// A row as its own user may read it (R-16): texts of a provider are for operators only.
fn decision_for_its_user(decision: DecisionRecord) -> DecisionRecord {
    DecisionRecord {
        error_detail: None,
        ..decision
    }
}

/// As [`decision_for_its_user`]: texts of a tool's server are for operators only. The log does not record whether gavel
/// or the server worded a failure, so an ambiguous code gets its fixed text.
fn call_for_its_user(mut call: ToolInvocation) -> ToolInvocation {
    if let Some(error) = &mut call.result.error
        && let Some(words) = error.code.in_place_of_a_server()
    {
        error.message = words.into();
    }
    call
}

fn bound(caller: &Caller, query: ListQuery) -> ListQuery {
    ListQuery {
        user: only_user(caller).cloned().or(query.user),
        ..query
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod toolset_tests {
    use super::*;

    #[test]
    fn a_user_learns_what_was_missing_and_not_why() {
        let kept = r#"{"functions":[{"name":"b","parameters":{"z":1,"a":2}}],"missing":[{"name":"c","reason":"10.0.0.7 refused"}]}"#;
        let shown = |is_for_its_user| {
            let toolset = Toolset::<&RawValue>::read(kept, is_for_its_user).unwrap();
            serde_json::to_string(&toolset).unwrap()
        };
        let expected = r#"{"functions":[{"name":"b","parameters":{"z":1,"a":2}}],"missing":[{"name":"c"}]}"#;
        assert_eq!((shown(true).as_str(), shown(false).as_str()), (expected, kept));
    }
}
