//! Analysts' reads: port [`Decisions`]. Bound to a tenant, bounded in size, on connections of their own.
//!
//! `fields` says what may be asked, `filter` reads the question, `select` makes it one statement that an index
//! answers, `token` marks where the next page begins, `json` shapes the rows.

mod fields;
mod filter;
mod json;
mod select;
mod token;

use std::ops::ControlFlow;
use std::time::Duration;

use serde_json::Value as Json;

use self::fields::{DECISIONS, TOOL_INVOCATIONS, Table};
use self::filter::Filter;
use self::json::Shape;
use self::select::{Question, select};
use self::token::Token;
use super::Store;
use super::db::{EachRow, Sql, Value};
use super::error::describe;
use crate::domain::ids::{DecisionId, TenantId};
use crate::ports::BoxFuture;
use crate::ports::records::{Decisions, ListQuery, Page, QueryError};

/// The longest a read may take.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Rows of a page at most.
const MAX_PAGE: u32 = 1000;
/// A page ends early, with a token for the rest, when its rows hold so many bytes.
const MAX_PAGE_BYTES: usize = 8 << 20;

impl Decisions for Store {
    fn list<'a>(&'a self, tenant: &'a TenantId, query: &'a ListQuery) -> BoxFuture<'a, Result<Page, QueryError>> {
        Box::pin(self.page(&DECISIONS, json::decision, tenant, query))
    }

    fn get<'a>(&'a self, tenant: &'a TenantId, id: DecisionId) -> BoxFuture<'a, Result<Option<Json>, QueryError>> {
        Box::pin(self.decision(tenant, id))
    }

    fn tool_invocations<'a>(
        &'a self,
        tenant: &'a TenantId,
        query: &'a ListQuery,
    ) -> BoxFuture<'a, Result<Page, QueryError>> {
        Box::pin(self.page(&TOOL_INVOCATIONS, json::tool_invocation, tenant, query))
    }

    fn ping(&self) -> BoxFuture<'_, Result<(), QueryError>> {
        Box::pin(async move {
            if let Some(reason) = self.shared.state.reason() {
                return Err(QueryError::Unavailable(reason));
            }
            // A table, since a constant would not touch the file.
            let sql = "SELECT version FROM gavel_schema LIMIT 1".into();
            self.read(sql, vec![], &mut |_| Ok(ControlFlow::Break(()))).await
        })
    }
}

impl Store {
    async fn page(
        &self,
        table: &'static Table,
        shape: Shape,
        tenant: &TenantId,
        query: &ListQuery,
    ) -> Result<Page, QueryError> {
        if !(1..=MAX_PAGE).contains(&query.page_size) {
            return Err(QueryError::Invalid {
                field: "page_size",
                detail: format!("{} is not in 1..={MAX_PAGE}", query.page_size),
            });
        }
        let descending = descending(query.order_by.as_deref())?;
        let filter = Filter::parse(table, query.filter.as_deref().unwrap_or_default())?;
        let fingerprint = token::fingerprint(table.name, tenant, query, descending);
        let after = match query.page_token.as_deref() {
            Some(token) => Some(Token::read(token, fingerprint)?),
            None => None,
        };
        let size = query.page_size as usize;
        let question = Question {
            table,
            tenant,
            user: query.user.as_ref(),
            filter: &filter,
            after: after.as_ref(),
            descending,
            // One more than asked for tells whether there is a next page.
            limit: size + 1,
        };
        let (sql, values) = select(self.shared.target.dialect(), &question);

        let mut page = Page::default();
        let (mut last, mut bytes) = (None, 0);
        self.read(sql.into(), values, &mut |row| {
            if page.items.len() == size || (bytes > MAX_PAGE_BYTES && !page.items.is_empty()) {
                page.next_page_token = last.take().map(|place: Token| place.write(fingerprint));
                return Ok(ControlFlow::Break(()));
            }
            last = Some(Token {
                created_at: row.int(0)?,
                id: row.text(1)?,
            });
            page.items.push(shape(&row, &mut bytes)?);
            Ok(ControlFlow::Continue(()))
        })
        .await?;
        Ok(page)
    }

    /// Gives each row to `each` until it breaks. A database that falls silent is given up.
    async fn read(&self, sql: Sql, values: Vec<Value>, each: &mut EachRow<'_>) -> Result<(), QueryError> {
        let reading = self.readers.fetch(&sql, values, each);
        match tokio::time::timeout(TIMEOUT, reading).await {
            Ok(done) => done.map_err(|error| QueryError::Unavailable(describe(&error).into())),
            Err(_) => Err(QueryError::Unavailable(
                "the query took more than 10 s; a narrower created_at makes it faster".into(),
            )),
        }
    }

    async fn decision(&self, tenant: &TenantId, id: DecisionId) -> Result<Option<Json>, QueryError> {
        let (mut found, mut calls, mut bytes) = (None, Vec::new(), 0);
        let sql = format!(
            "SELECT {} FROM decision_log WHERE id = $1 AND tenant = $2",
            DECISIONS.columns
        );
        let values = vec![Value::text(&id.to_string()), Value::text(tenant.as_str())];
        self.read(sql.into(), values.clone(), &mut |row| {
            found = Some(json::decision(&row, &mut bytes)?);
            Ok(ControlFlow::Break(()))
        })
        .await?;
        let Some(mut decision) = found else {
            return Ok(None);
        };
        let sql = format!(
            "SELECT {} FROM tool_invocation_log WHERE decision_id = $1 AND tenant = $2 ORDER BY sequence",
            TOOL_INVOCATIONS.columns
        );
        self.read(sql.into(), values, &mut |row| {
            calls.push(json::tool_call(&row, &mut bytes)?);
            Ok(ControlFlow::Continue(()))
        })
        .await?;
        decision["tool_calls"] = Json::Array(calls);
        Ok(Some(decision))
    }
}

fn descending(order_by: Option<&str>) -> Result<bool, QueryError> {
    match order_by.map(str::trim) {
        None | Some("" | "created_at desc") => Ok(true),
        Some("created_at" | "created_at asc") => Ok(false),
        Some(other) => Err(QueryError::Invalid {
            field: "order_by",
            detail: format!("found {other:?}; allowed are \"created_at desc\" and \"created_at\""),
        }),
    }
}
