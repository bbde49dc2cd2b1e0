//! Exports: port [`Exports`]. The rows of an analysts' view, read from its table as a list reads it: page by page, by the
//! index that the filter allows, up to the row that was the last when the export began.

use std::sync::LazyLock;

use async_trait::async_trait;
use serde::Deserialize;
use serde_json::{Map, Value as Json};

use super::super::Store;
use super::super::audit::{self, AuditKind, Entry, Whose};
use super::super::db::row::Cell;
use super::super::db::values;
use super::super::op::Op;
use super::super::queue::Batch;
use super::super::views::{self, Column, Source};
use super::filter::{ACTION_LOG, AUDIT_LOG, DECISIONS, Filter, List, Literal, Op as Compare, TOOL_INVOCATIONS, Term};
use super::select::{Order, Question, Token};
use super::{FOR_OPERATORS, ReadOnly, filters};
use crate::api::exports::{ExportManifest, ExportSource};
use crate::domain::ids::{ExportId, TenantId, UserId};
use crate::domain::time::Timestamp;
use crate::ports::exports::{ColumnKind, ExportColumn, ExportOptions, ExportPage, ExportRows, ExportValue, Exports};
use crate::ports::records::{QueryError, RecordError};

/// Rows of a page.
const PAGE: usize = 5000;

/// The columns that rows of one user do not have: texts of providers and of servers.
const NOT_OF_ONE_USER: [&str; 2] = [FOR_OPERATORS, "error_message"];

/// The list of a log, its view, and the view of its texts.
fn log(source: ExportSource) -> (&'static LazyLock<List>, &'static str, Option<&'static str>) {
    match source {
        ExportSource::Decisions => (&DECISIONS, "decisions", Some("decision_content")),
        ExportSource::ToolInvocations => (&TOOL_INVOCATIONS, "tool_invocations", Some("tool_invocation_content")),
        ExportSource::ModelTurns => (&DECISIONS, "model_turns", None),
        ExportSource::Actions => (&ACTION_LOG, "actions", None),
        ExportSource::Audit => (&AUDIT_LOG, "audit", Some("audit_content")),
    }
}

/// The columns of two views that are asked for.
fn columns(
    view: &str,
    texts: Option<&str>,
    options: &ExportOptions,
    of_user: bool,
) -> Result<Vec<&'static Column>, QueryError> {
    let plain = views::columns(view);
    let is_new = |column: &&Column| plain.iter().all(|other| other.name != column.name);
    let texts = texts.map(views::columns).unwrap_or_default();
    let is_shown = |column: &&Column| !of_user || !NOT_OF_ONE_USER.contains(&column.name.as_str());
    let texts = || texts.iter().filter(is_new).filter(is_shown);
    let Some(names) = &options.fields else {
        let content = texts().filter(|_| options.content);
        return Ok(plain.iter().chain(content).collect());
    };
    let named = |name: &String| plain.iter().chain(texts()).find(|column| column.name == *name);
    let unknown: Vec<_> = names.iter().filter(|name| named(name).is_none()).collect();
    let twice = (1..names.len()).find(|at| names[..*at].contains(&names[*at]));
    let found = match (unknown.is_empty(), twice) {
        (true, None) => return Ok(names.iter().filter_map(named).collect()),
        (true, Some(at)) => format!("names {:?} twice", names[at]),
        (false, _) => format!("found {unknown:?}"),
    };
    let allowed: Vec<_> = plain.iter().chain(texts()).map(|column| column.name.as_str()).collect();
    Err(QueryError::Invalid {
        field: "fields",
        detail: format!(
            "{found}; allowed are {}, each once, separated by commas",
            allowed.join(", ")
        ),
    })
}

struct Rows {
    reading: ReadOnly,
    list: &'static List,
    columns: Vec<&'static Column>,
    /// What is read: the list of a SELECT.
    selected: String,
    /// Whether each model call of a row of the table is a row of the export. They are read first.
    are_turns: bool,
    filters: Vec<Filter>,
    after: Option<Token>,
    has_ended: bool,
}

impl Rows {
    /// Adds the rows of the export that a row of the table has.
    fn add(&self, cells: Vec<Cell>, rows: &mut Vec<Vec<ExportValue>>) -> Result<(), sqlx::Error> {
        let mut cells = cells.into_iter();
        let turns: Vec<Json> = match self.are_turns.then(|| cells.next()) {
            Some(Some(Cell::Text(turns))) => serde_json::from_str(&turns).map_err(|_| unreadable("turns"))?,
            Some(_) => Vec::new(),
            // Only its own values are asked for.
            None => vec![Json::Null],
        };
        let own = std::iter::repeat_n(cells, turns.len());
        for (place, (turn, mut own)) in (1..).zip(turns.iter().zip(own)) {
            let values = self.columns.iter().map(|column| {
                let cell = match &column.source {
                    Source::Row(_) => own.next().unwrap_or_default(),
                    Source::Place => Cell::Int(place),
                    Source::Turn(path) => {
                        let of = path.split('.').try_fold(turn, |of, name| of.get(name));
                        of.map(cell).unwrap_or_default()
                    }
                };
                value(cell, column.kind)
            });
            rows.push(values.collect::<Result<_, _>>()?);
        }
        Ok(())
    }
}

fn cell(json: &Json) -> Cell {
    match json {
        Json::Null => Cell::Null,
        Json::Bool(yes) => Cell::Bool(*yes),
        Json::String(text) => Cell::Text(text.clone()),
        other => other.as_i64().map_or_else(|| Cell::Text(other.to_string()), Cell::Int),
    }
}

/// SQLite has numbers for true and false, and lets other programs write anything.
fn value(cell: Cell, kind: ColumnKind) -> Result<ExportValue, sqlx::Error> {
    Ok(match (kind, cell) {
        (_, Cell::Null) => ExportValue::Null,
        (ColumnKind::Int, Cell::Int(int)) => ExportValue::Int(int),
        (ColumnKind::Time, Cell::Int(us)) => ExportValue::Time(Timestamp(us)),
        (ColumnKind::Bool, Cell::Int(int)) => ExportValue::Bool(int != 0),
        (ColumnKind::Bool, Cell::Bool(yes)) => ExportValue::Bool(yes),
        (ColumnKind::Text, Cell::Text(text)) => ExportValue::Text(text),
        (ColumnKind::Text, Cell::Int(int)) => ExportValue::Text(int.to_string()),
        (ColumnKind::Text, Cell::Bool(yes)) => ExportValue::Text(yes.to_string()),
        (ColumnKind::Time, Cell::Text(text)) => {
            ExportValue::Time(Timestamp::parse(&text).ok_or_else(|| unreadable("a time"))?)
        }
        (ColumnKind::Int, _) => return Err(unreadable("a number")),
        (ColumnKind::Time, Cell::Bool(_)) => return Err(unreadable("a time")),
        (ColumnKind::Bool, Cell::Text(_)) => return Err(unreadable("true or false")),
    })
}

fn unreadable(what: &str) -> sqlx::Error {
    sqlx::Error::Decode(format!("a row holds a value that gavel never writes, in the place of {what}").into())
}

#[async_trait]
impl ExportRows for Rows {
    async fn next(&mut self) -> Result<Option<ExportPage>, QueryError> {
        if self.has_ended {
            return Ok(None);
        }
        let question = Question {
            list: self.list,
            columns: &self.selected,
            filters: &self.filters,
            after: self.after.as_ref(),
            order: Order {
                by: None,
                descending: false,
            },
            limit: PAGE,
        };
        let mut page = ExportPage::default();
        let next = self
            .reading
            .read_page(question, &mut |row, place| {
                let before = page.rows.len();
                self.add(row.into_cells(), &mut page.rows)?;
                if page.rows.len() > before {
                    let id = match place.id.as_str() {
                        "" => place.at.to_string(),
                        id => id.to_owned(),
                    };
                    page.first.get_or_insert_with(|| id.clone());
                    page.last = Some(id);
                }
                Ok(())
            })
            .await?;
        self.has_ended = next.is_none();
        self.after = next;
        Ok(Some(page))
    }
}

#[async_trait]
impl Exports for Store {
    async fn begin(
        &self,
        tenant: &TenantId,
        user: Option<&UserId>,
        source: ExportSource,
        options: &ExportOptions,
    ) -> Result<(Vec<ExportColumn>, Box<dyn ExportRows>), QueryError> {
        let (list, view, texts) = log(source);
        let list: &'static List = list;
        let columns = columns(view, texts, options, user.is_some())?;
        let List { name, order, .. } = *list;
        let time = match source {
            ExportSource::Audit => "at",
            _ => order,
        };
        let bound = |column, op, value: Option<i64>| {
            Some(Term {
                op,
                ..Term::fixed(column, Literal::Int(value?))
            })
        };
        let bounds = [
            bound(time, Compare::Ge, options.from.map(|from| from.0)),
            bound(time, Compare::Lt, options.to.map(|to| to.0)),
        ];
        let terms = bounds.into_iter().flatten().collect();
        let mut filters = filters(list, tenant, terms, user, options.filter.as_deref())?;
        let newest = format!("SELECT {order} FROM {name} WHERE tenant = $1 ORDER BY {order} DESC LIMIT 1");
        let newest = self.reading.one::<i64>(newest, values![tenant]).await?;
        filters.extend(bound(order, Compare::Le, newest).map(Filter::Is));
        let are_turns = source == ExportSource::ModelTurns;
        let selected = columns.iter().filter_map(|column| match &column.source {
            Source::Row(sql) => Some(format!("{sql} AS \"{}\"", column.name)),
            Source::Turn(_) | Source::Place => None,
        });
        let turns = are_turns.then(|| "turns".to_owned());
        let selected: Vec<_> = turns.into_iter().chain(selected).collect();
        let exported = columns.iter().map(|column| ExportColumn {
            name: column.name.clone(),
            kind: column.kind,
        });
        let exported = exported.collect();
        let rows = Rows {
            reading: self.reading.clone(),
            list,
            selected: selected.join(", "),
            columns,
            are_turns,
            filters,
            after: None,
            has_ended: newest.is_none(),
        };
        Ok((exported, Box::new(rows)))
    }

    async fn enter(&self, tenant: &TenantId, actor: &str, taken: ExportManifest) -> Result<(), RecordError> {
        let op = Op::EnterExport(tenant.clone(), actor.into(), Box::new(taken));
        self.write(op).await
    }

    async fn taken(&self, tenant: &TenantId, id: ExportId) -> Result<Option<(String, ExportManifest)>, QueryError> {
        #[derive(Deserialize)]
        struct Taken {
            actor: String,
            detail: ExportManifest,
            texts: Option<String>,
        }
        let sql = "SELECT actor, detail, texts FROM audit WHERE subject = $1 AND kind = $2 AND tenant = $3";
        let kind = AuditKind::Exported.as_str();
        let taken = self.reading.one::<Taken>(sql, values![id, kind, tenant]).await?;
        Ok(taken.map(|taken| {
            let filter = taken.texts.and_then(|texts| audit::field(&texts, "filter"));
            (taken.actor, ExportManifest { filter, ..taken.detail })
        }))
    }
}

impl Batch<'_> {
    pub(crate) fn enter_export(&self, tenant: &TenantId, actor: &str, taken: &ExportManifest) {
        let entry = Entry::new(AuditKind::Exported, taken.export_id)
            .by(actor)
            .for_(Whose::new(
                tenant.as_str(),
                taken.rows_of.as_deref().unwrap_or_default(),
            ));
        let fields = match serde_json::to_value(taken) {
            Ok(Json::Object(fields)) => fields,
            _ => Map::new(),
        };
        let entry = fields
            .into_iter()
            .fold(entry, |entry, (name, value)| entry.with(&name, value));
        self.audit(match &taken.filter {
            // It can quote texts of users.
            Some(filter) => entry
                .with("filter", Json::Null)
                .with_content("filter", &self.writing.content, filter),
            None => entry,
        });
    }
}
