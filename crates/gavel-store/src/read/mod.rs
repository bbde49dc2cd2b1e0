//! Analysts' reads. Restricted to a tenant, limited in size and time, on separate connections.
//!
//! `filter` defines what can be queried and parses a query, `select` turns it into one statement that an index supports,
//! which begins where the token of the page before ends.
mod exports;
mod filter;
mod select;
mod stats;

use std::ops::ControlFlow;
use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;

pub(super) use self::filter::{
    ACTIONS, DECISIONS, Literal, PLANNING_SESSIONS, RUNS, THREADS, TOOL_INVOCATIONS, Term, VERSIONS,
};
use self::filter::{Field, Filter, GRANTS, Kind, List, Op, PARENT};
use self::select::{Order, Question, Token, fingerprint, select};
pub(super) use self::stats::{COUNTED, Counted};
use super::config::READ_LIMIT;
use super::connect::Target;
use super::db::{Dialect, EachRow, Readers, Row, Sql, Value, values};
use super::error::{StoreError, describe, is_too_slow};
use super::migrate;
use crate::api::approvals::Grant;
use crate::domain::ids::{TenantId, UserId};
use crate::domain::time::Timestamp;
use crate::ports::records::{ListQuery, Page, QueryError};

/// Parses a filter on decisions.
#[cfg(fuzzing)]
pub fn filter_of_decisions(text: &str) {
    let _ = filter::parse(&DECISIONS, text);
}

/// Connections for analysts' reads.
const READERS: u32 = 4;
/// Extra wait for a database that does not end a slow read by itself.
const SILENCE: Duration = Duration::from_secs(2);
/// Maximum rows of a page.
const MAX_PAGE: u32 = 1000;
/// Maximum bytes of a page's rows. Beyond that the page ends early, with a token for the rest.
const MAX_PAGE_BYTES: usize = 8 << 20;

/// A column that rows of one user do not show.
const FOR_OPERATORS: &str = "error_detail";

/// Condition on a row with the parameters id, tenant and user, or NULL: it belongs to them.
pub(super) const OF_USER: &str = "tenant = $2 AND (CAST($3 AS TEXT) IS NULL OR user_id = $3)";

/// A process that uses a database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Where it serves, for other programs of its machine; `None` for a command, and on PostgreSQL.
    pub url: Option<String>,
}

/// Read-only access to the records: no migration, no lease, no writer.
#[derive(Clone)]
pub struct ReadOnly {
    readers: Readers,
    dialect: Dialect,
    /// Timeout of a query.
    limit: Duration,
}

impl ReadOnly {
    /// Opens an existing database that has every migration of this binary. Changes nothing.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn open(url: &str) -> Result<Self, StoreError> {
        let target = Target::parse(url, None)?;
        Self::check(&target).await?;
        Ok(Self::of(&target, READ_LIMIT))
    }

    /// Whether the database exists, with every migration of this binary. Changes nothing.
    ///
    /// # Errors
    /// As [`ReadOnly::open`].
    pub(super) async fn check(target: &Target) -> Result<(), StoreError> {
        if let Some(path) = target.missing() {
            return Err(StoreError::Missing(path.display().to_string()));
        }
        match migrate::status_target(target).await?.pending.len() {
            0 => Ok(()),
            lacking => Err(StoreError::Behind(lacking)),
        }
    }

    /// Does no I/O: connections are opened on demand.
    pub(super) fn of(target: &Target, limit: Duration) -> Self {
        Self {
            readers: target.readers(READERS, limit),
            dialect: target.dialect(),
            limit,
        }
    }

    /// Closes its connections.
    pub async fn close(&self) {
        self.readers.close().await;
    }

    pub(super) async fn ping(&self) -> Result<(), QueryError> {
        // Reads a table, since a constant would not touch the file.
        self.one::<i64>("SELECT version FROM gavel_schema LIMIT 1", vec![])
            .await?;
        Ok(())
    }

    /// A page of grants.
    ///
    /// # Errors
    /// [`QueryError`].
    pub async fn grants(&self, tenant: &TenantId, query: &ListQuery) -> Result<Page<Grant>, QueryError> {
        self.page(&GRANTS, tenant, vec![], query).await
    }

    /// The gavel process that currently uses this database: if there is one a server, else a command that works on runs.
    ///
    /// # Errors
    /// [`QueryError`].
    pub async fn running_process(&self) -> Result<Option<Process>, QueryError> {
        let sql = "SELECT url FROM instance WHERE lease_until > @now ORDER BY url IS NULL, started_at DESC LIMIT 1";
        let url = self.one(sql, vec![]).await?;
        Ok(url.map(|url| Process { url }))
    }

    /// A page of a list, of rows for which `terms` hold in addition to the query's own filter.
    pub(super) async fn page<T: DeserializeOwned + Send>(
        &self,
        list: &'static List,
        tenant: &TenantId,
        terms: Vec<Term>,
        query: &ListQuery,
    ) -> Result<Page<T>, QueryError> {
        if !(1..=MAX_PAGE).contains(&query.page_size) {
            return Err(QueryError::Invalid {
                field: "page_size",
                detail: format!("{} is not in 1..={MAX_PAGE}", query.page_size),
            });
        }
        let mut filters = filters(list, tenant, terms, query.user.as_ref(), query.filter.as_deref())?;
        if list.name == RUNS.name && !filters.iter().any(|filter| filter.asks_for(PARENT)) {
            filters.push(Filter::Is(Term::fixed(PARENT, Literal::Null)));
        }
        let order = order(list, query.order_by.as_deref(), &filters)?;
        let print = fingerprint(list, &filters, order);
        let after = query.page_token.as_deref().map(|token| Token::read(token, &print));
        let after = after.transpose()?;
        let question = Question {
            list,
            columns: &list.columns,
            filters: &filters,
            after: after.as_ref(),
            order,
            limit: query.page_size as usize,
        };
        let mut items = Vec::new();
        let next = self
            .read_page(question, &mut |row, _| {
                items.push(row.read()?);
                Ok(())
            })
            .await?;
        Ok(Page {
            items,
            next_page_token: next.map(|last| last.write(&print)),
        })
    }

    /// Passes each row of a page to `take`, with its place; returns the last one if there is a next page.
    async fn read_page(
        &self,
        mut question: Question<'_>,
        take: &mut (dyn FnMut(Row, &Token) -> Result<(), sqlx::Error> + Send),
    ) -> Result<Option<Token>, QueryError> {
        let most = question.limit;
        // One extra row shows whether there is a next page.
        question.limit += 1;
        let (sql, values) = select(self.dialect, &question);
        let (mut last, mut next, mut read, mut bytes) = (None, None, 0, 0);
        self.rows(sql, values, &mut |row| {
            // A row that exceeds the limits starts the next page.
            bytes += row.bytes();
            if read == most || (bytes > MAX_PAGE_BYTES && read > 0) {
                next = last.take();
                return Ok(ControlFlow::Break(()));
            }
            read += 1;
            let place = Token::of_row(&row)?;
            take(row, &place)?;
            last = Some(place);
            Ok(ControlFlow::Continue(()))
        })
        .await?;
        Ok(next)
    }

    /// Passes each row of any statement to `each` until it breaks.
    pub(super) async fn rows(
        &self,
        sql: impl Into<Sql> + Send,
        values: Vec<Value>,
        each: &mut EachRow<'_>,
    ) -> Result<(), QueryError> {
        let reading = self.readers.fetch(sql.into(), values, each);
        match tokio::time::timeout(self.limit + SILENCE, reading).await {
            Ok(Err(error)) if is_too_slow(&error) => Err(QueryError::TooSlow { limit: self.limit }),
            Ok(done) => done.map_err(|error| QueryError::Unavailable(describe(&error).into())),
            Err(_) => Err(QueryError::Unavailable(
                "the database did not answer a query in time".into(),
            )),
        }
    }

    /// The first row of any statement.
    pub(super) async fn one<T: DeserializeOwned + Send>(
        &self,
        sql: impl Into<Sql> + Send,
        values: Vec<Value>,
    ) -> Result<Option<T>, QueryError> {
        let mut first = None;
        self.rows(sql, values, &mut |row| {
            first = Some(row.read()?);
            Ok(ControlFlow::Break(()))
        })
        .await?;
        Ok(first)
    }

    /// Every row of any statement.
    pub(super) async fn all<T: DeserializeOwned + Send>(
        &self,
        sql: impl Into<Sql> + Send,
        values: Vec<Value>,
    ) -> Result<Vec<T>, QueryError> {
        self.some(sql, values, usize::MAX).await
    }

    /// The first rows of any statement, up to the one with which they have more than these bytes of text.
    pub(super) async fn some<T: DeserializeOwned + Send>(
        &self,
        sql: impl Into<Sql> + Send,
        values: Vec<Value>,
        bytes: usize,
    ) -> Result<Vec<T>, QueryError> {
        let (mut some, mut held) = (Vec::new(), 0);
        self.rows(sql, values, &mut |row| {
            held += row.bytes();
            some.push(row.read()?);
            Ok(match held > bytes {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            })
        })
        .await?;
        Ok(some)
    }
}

/// What rows of one user do not show is no condition on them either: it would tell.
fn hides_from_users<'f>(of_user: bool, mut filters: impl Iterator<Item = &'f Filter>) -> Result<(), QueryError> {
    match of_user && filters.any(|filter| filter.asks_for(FOR_OPERATORS)) {
        true => Err(QueryError::Invalid {
            field: "filter",
            detail: format!("{FOR_OPERATORS} is not shown in the rows of one user, so they are not filtered by it"),
        }),
        false => Ok(()),
    }
}

/// What holds for the rows of a tenant, or of one user, that a filter asks for, in addition to `terms`.
fn filters(
    list: &'static List,
    tenant: &TenantId,
    terms: Vec<Term>,
    user: Option<&UserId>,
    filter: Option<&str>,
) -> Result<Vec<Filter>, QueryError> {
    let of_user = user.map(|user| Term::text("user_id", user));
    let fixed = [Term::text("tenant", tenant)].into_iter().chain(of_user);
    let mut filters: Vec<_> = terms.into_iter().chain(fixed).map(Filter::Is).collect();
    filters.extend(filter::parse(list, filter.unwrap_or_default())?);
    hides_from_users(user.is_some(), filters.iter())?;
    Ok(filters)
}

/// The longest range of time of which a page by a number is made: all its rows are read.
const MOST_DAYS: i64 = 31;

/// The order: by the table's own time column, or by a number, in either direction.
fn order(list: &'static List, order_by: Option<&str>, filters: &[Filter]) -> Result<Order, QueryError> {
    let (time, given) = (list.order, order_by.unwrap_or_default().trim());
    let (column, direction) = given.split_once(char::is_whitespace).unwrap_or((given, ""));
    let numbers = || {
        list.fields
            .iter()
            .filter(|field| matches!(field.kind, Kind::Number | Kind::Duration))
    };
    let by = numbers().find(|field| field.name == column).copied();
    let descending = match direction.trim_start() {
        "desc" => true,
        "" if given.is_empty() => list.newest_first,
        "" | "asc" => false,
        _ => return Err(unordered(given, time, numbers())),
    };
    match by {
        None if column.is_empty() || column == time => Ok(Order { by, descending }),
        None => Err(unordered(given, time, numbers())),
        Some(_) if days(list, filters) <= MOST_DAYS => Ok(Order { by, descending }),
        Some(field) => Err(QueryError::Invalid {
            field: "order_by",
            detail: format!(
                "by {} all rows are read: give a filter with {time} that spans at most {MOST_DAYS} days, such as {time} \
                 >= \"{}\"",
                field.name,
                Timestamp(now_us() - 7 * DAY_US)
            ),
        }),
    }
}

fn unordered<'a>(given: &str, time: &str, numbers: impl Iterator<Item = &'a Field>) -> QueryError {
    let numbers: String = numbers.map(|field| format!(", {}", field.name)).collect();
    QueryError::Invalid {
        field: "order_by",
        detail: format!("found {given:?}; allowed are {time}{numbers}, each alone or with desc"),
    }
}

const DAY_US: i64 = 24 * 3600 * 1_000_000;

fn now_us() -> i64 {
    chrono::Utc::now().timestamp_micros()
}

/// The days that a filter allows, rounded up.
fn days(list: &List, filters: &[Filter]) -> i64 {
    let (mut from, mut to) = (0, now_us());
    for filter in filters {
        match filter {
            Filter::Is(Term {
                field,
                op,
                value: Literal::Int(at),
            }) if field.sql == list.order => match op {
                Op::Ge | Op::Gt => from = from.max(*at),
                Op::Lt | Op::Le => to = to.min(*at),
                Op::Eq => (from, to) = (*at, *at),
                Op::Ne | Op::Has => {}
            },
            _ => {}
        }
    }
    (to.saturating_sub(from).max(0) + DAY_US - 1) / DAY_US
}

// Past tool calls, in order, with the facts that a policy decides by.

/// A logged call.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct PastCall {
    /// Its id.
    pub id: String,
    /// When it was sent, or its decision began.
    pub at: Timestamp,
    /// The decision that it belongs to.
    pub decision: String,
    /// The name that the model used, or the tool's own.
    pub tool: String,
    /// The server; absent if the model called a tool that was not on the allowlist.
    pub server: Option<String>,
    /// JSON, if it was stored.
    pub arguments: Option<String>,
    /// `completed`, `failed`, `in_doubt`, `started`, `not_sent`.
    pub status: String,
    /// The error code, if it did not complete.
    pub error_code: Option<String>,
    /// Whether it can have side effects.
    pub side_effect: bool,
    /// The user on whose behalf it was made.
    pub user: String,
    /// `chat`, `agent`, …
    pub surface: String,
    /// The agent of its run, while that run is kept.
    pub agent: Option<String>,
    /// Whether approval was requested, while its run is kept.
    pub required_approval: bool,
    /// Whether it was covered by a grant, while its run is kept.
    pub granted: bool,
    /// The rule that decided it, as recorded.
    pub by: Option<String>,
}

/// Rows of a page.
const PAGE: u32 = 500;

impl ReadOnly {
    /// The next calls after a time and the id of a call, oldest first; empty at the end.
    ///
    /// # Errors
    /// [`QueryError`].
    pub async fn past_calls(&self, tenant: &TenantId, after: &(i64, String)) -> Result<Vec<PastCall>, QueryError> {
        let sql = "SELECT call.created_at AS at, call.id, call.decision_id AS decision, call.tool, call.server, \
                   call.arguments, call.status, call.error_code, call.side_effect, call.user_id AS \"user\", \
                   decision.surface, run.agent_id AS agent, action.approval_id IS NOT NULL AS required_approval, \
                   action.approval_id IS NULL AND action.grant_id IS NOT NULL AS granted, call.decided_by AS \"by\" \
                   FROM tool_invocation_log call JOIN decision_log decision ON decision.id = call.decision_id \
                   LEFT JOIN agent_run run ON run.id = call.decision_id LEFT JOIN agent_action action ON action.id = call.id \
                   WHERE call.tenant = $1 AND (call.created_at, call.id) > ($2, $3) \
                   ORDER BY call.created_at, call.id LIMIT $4";
        self.some(sql, values![tenant, after.0, &after.1, PAGE], MAX_PAGE_BYTES)
            .await
    }
}
