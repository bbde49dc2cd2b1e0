//! Exports: all rows of a log, page by page, and what was taken.

use async_trait::async_trait;
use serde::Serialize;

use crate::api::exports::{ExportFormat, ExportManifest, ExportSource};
use crate::domain::ids::{ExportId, TenantId, UserId};
use crate::domain::time::Timestamp;
use crate::records::{QueryError, RecordError};

/// What is asked for, beside the log.
#[derive(Clone, Debug)]
pub struct ExportOptions {
    /// The format. Rows do not depend on it.
    pub format: ExportFormat,
    /// As that of the log's list; of model calls, that of their decisions.
    pub filter: Option<String>,
    /// The columns, in this order; `None`: all, without texts unless `content`.
    pub fields: Option<Vec<String>>,
    /// Whether texts of users, models and tools are among all columns.
    pub content: bool,
    /// Only rows of this time or later.
    pub from: Option<Timestamp>,
    /// Only rows before this time.
    pub to: Option<Timestamp>,
    /// Whether texts of CSV stay as they are, also where a spreadsheet takes them for formulas.
    pub raw: bool,
}

/// What a column holds, if it is not null.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnKind {
    /// Text, also that of JSON.
    Text,
    /// A whole number.
    Int,
    /// True or false.
    Bool,
    /// A time.
    Time,
}

/// A column of an export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportColumn {
    /// As in the view.
    pub name: String,
    /// What it holds.
    pub kind: ColumnKind,
}

/// A value of a row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum ExportValue {
    /// None.
    Null,
    /// Text.
    Text(String),
    /// A whole number.
    Int(i64),
    /// True or false.
    Bool(bool),
    /// A time.
    Time(Timestamp),
}

/// Some rows, oldest first, each with a value for each column.
#[derive(Debug, Default)]
pub struct ExportPage {
    /// The rows. There may be none, and still a next page.
    pub rows: Vec<Vec<ExportValue>>,
    /// The id of the first, if there is one.
    pub first: Option<String>,
    /// The id of the last.
    pub last: Option<String>,
}

/// The rows of an export. Between two pages no connection and no transaction is held.
#[async_trait]
pub trait ExportRows: Send {
    /// The next page; `None` at the end, which was fixed when the export began.
    async fn next(&mut self) -> Result<Option<ExportPage>, QueryError>;
}

/// Exports of the logs.
#[async_trait]
pub trait Exports: Send + Sync {
    /// Begins to read the rows of one tenant; of one of its users without what only operators may read.
    async fn begin(
        &self,
        tenant: &TenantId,
        user: Option<&UserId>,
        source: ExportSource,
        options: &ExportOptions,
    ) -> Result<(Vec<ExportColumn>, Box<dyn ExportRows>), QueryError>;
    /// Enters into the audit log what `actor` has taken. An export is entered once.
    async fn enter(&self, tenant: &TenantId, actor: &str, taken: ExportManifest) -> Result<(), RecordError>;
    /// What an export of one tenant has taken, and its actor; `None` if there is none, or if it is in progress.
    async fn taken(&self, tenant: &TenantId, id: ExportId) -> Result<Option<(String, ExportManifest)>, QueryError>;
}
