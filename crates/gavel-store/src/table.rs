//! Tables as data. From one list of columns follow the statements that begin, end and reopen a row, and what lists read,
//! and where a filter finds its fields.

use super::config::{ContentMode, StoreConfig};
use super::db::{Conn, Value};
use super::error::Fault;
use crate::api::filter::{Filter, Kind};
use crate::domain::ids::RunId;
use crate::domain::names::camel;

/// A table whose rows begin as `O` and end as `C`.
pub(crate) struct Table<O: 'static, C: 'static = ()> {
    pub(super) name: &'static str,
    pub(super) columns: &'static [Column<O, C>],
}

/// A column of it.
pub(crate) struct Column<O, C = ()> {
    /// Its name, or for a column that is only read the expression.
    sql: &'static str,
    /// What it is set to when the row begins.
    open: Option<Set<O>>,
    /// What it is set to when the row ends.
    close: Option<Set<C>>,
    /// How answers name it: `a.b` is the field `b` of the field `a`. With the expression, if it is another.
    read: Option<(&'static str, &'static str)>,
    /// How filters and views name it, if not by the rule of [`Column::name`].
    name: Option<&'static str>,
    /// The documentation of a column that only views show: an answer's field has its own.
    viewed: Option<&'static str>,
    /// Whether it has words of users, models or tools.
    is_content: bool,
}

/// What a column is set to: SQL, with a `?` for the value if there is one.
struct Set<T>(&'static str, Option<fn(&T, &Writing) -> Value>);

impl<O, C> Column<O, C> {
    const fn new(sql: &'static str, open: Option<Set<O>>, close: Option<Set<C>>) -> Self {
        Self {
            sql,
            open,
            close,
            read: None,
            name: None,
            viewed: None,
            is_content: false,
        }
    }

    /// A column that is set when the row begins.
    pub(super) const fn open(name: &'static str, value: fn(&O, &Writing) -> Value) -> Self {
        Self::new(name, Some(Set("?", Some(value))), None)
    }

    /// A column that the database computes when the row begins.
    pub(super) const fn computed(name: &'static str, sql: &'static str) -> Self {
        Self::new(name, Some(Set(sql, None)), None)
    }

    /// A column that the database computes from the value of the `?` when the row begins.
    pub(super) const fn derived(name: &'static str, sql: &'static str, value: fn(&O, &Writing) -> Value) -> Self {
        Self::new(name, Some(Set(sql, Some(value))), None)
    }

    /// A column that is set when the row ends.
    pub(super) const fn close(name: &'static str, value: fn(&C, &Writing) -> Value) -> Self {
        Self::new(name, None, Some(Set("?", Some(value))))
    }

    /// A column that is set when the row begins, and again when it ends.
    pub(super) const fn both(
        name: &'static str,
        open: fn(&O, &Writing) -> Value,
        close: fn(&C, &Writing) -> Value,
    ) -> Self {
        Self::new(name, Some(Set("?", Some(open))), Some(Set("?", Some(close))))
    }

    /// A column with one value while the row is open, and one after it was closed.
    pub(super) const fn state(name: &'static str, open: &'static str, closed: &'static str) -> Self {
        Self::new(name, Some(Set(open, None)), Some(Set(closed, None)))
    }

    /// A column that other statements set, or an expression.
    pub(super) const fn elsewhere(sql: &'static str) -> Self {
        Self::new(sql, None, None)
    }

    /// Its value when the row ends, as SQL.
    pub(super) const fn closed(mut self, sql: &'static str) -> Self {
        self.close = Some(Set(sql, None));
        self
    }

    /// Answers have it under its own name.
    pub(super) const fn shown(self) -> Self {
        let name = self.sql;
        self.shown_as(name)
    }

    /// Answers have it under this name.
    pub(super) const fn shown_as(self, name: &'static str) -> Self {
        let sql = self.sql;
        self.shown_by(name, sql)
    }

    /// Answers have the value of the expression under this name.
    pub(super) const fn shown_by(mut self, name: &'static str, expression: &'static str) -> Self {
        self.read = Some((name, expression));
        self
    }

    /// Views and filters have it under this name.
    pub(super) const fn named(mut self, name: &'static str) -> Self {
        self.name = Some(name);
        self
    }

    /// Views have it, and answers do not.
    pub(super) const fn viewed(mut self, about: &'static str) -> Self {
        self.viewed = Some(about);
        self
    }

    /// It has words of users, models or tools.
    pub(super) const fn content(mut self) -> Self {
        self.is_content = true;
        self
    }

    /// Its one name beside the answers, which nest: the answer's; of a field within a field, the column's own, or for an
    /// expression the last part.
    pub(super) fn name(&self) -> &'static str {
        let (shown, expression) = self.read.unwrap_or((self.sql, self.sql));
        let nested = shown.rsplit_once('.').map(|(_, last)| last);
        let named = match nested {
            Some(_) if expression == self.sql => self.sql,
            Some(last) => last,
            None => shown,
        };
        self.name.unwrap_or(named)
    }
}

/// A column of a view.
pub(super) struct Viewed {
    pub(super) name: &'static str,
    pub(super) sql: &'static str,
    pub(super) about: About,
    pub(super) is_content: bool,
}

/// Where a column is documented.
pub(super) enum About {
    Own(&'static str),
    /// At this field of answers.
    Field(&'static str),
}

/// A field of a filter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Field {
    pub(super) name: &'static str,
    /// Column or expression.
    pub(super) sql: &'static str,
    pub(super) kind: Kind,
    /// Whether it has words of users, models or tools.
    pub(super) is_content: bool,
}

impl<O, C> Table<O, C> {
    /// What answers have of a row, as the list of a SELECT.
    pub(super) fn selected(&self) -> String {
        self.selected_as(str::to_owned)
    }

    /// The same, for a type whose fields have names in camel case.
    pub(super) fn selected_in_camel_case(&self) -> String {
        self.selected_as(camel)
    }

    /// What the beginning of a row of `table` sets and nothing changes, as the list of a SELECT, for the record in `field`.
    pub(super) fn selected_beginning(&self, table: &str, field: &str) -> String {
        let kept = self
            .columns
            .iter()
            .filter(|column| column.open.is_some() && column.close.is_none());
        let kept = kept.map(|column| format!("{table}.{0} AS \"{field}.{0}\"", column.sql));
        kept.collect::<Vec<_>>().join(", ")
    }

    /// What the end of a row of `table` sets and answers have, as the list of a SELECT, for the record in `field`.
    pub(super) fn selected_end(&self, table: &str, field: &str) -> String {
        let set = self.columns.iter().filter(|column| column.close.is_some());
        let read = set.filter_map(|column| column.read);
        let read = read.map(|(name, sql)| format!("{table}.{sql} AS \"{field}.{name}\""));
        read.collect::<Vec<_>>().join(", ")
    }

    /// What views have of a row.
    pub(super) fn viewed(&self) -> impl Iterator<Item = Viewed> {
        self.columns.iter().filter_map(|column| {
            let (about, sql) = match (column.viewed, column.read) {
                (Some(about), _) => (About::Own(about), column.sql),
                (None, Some((shown, expression))) => (About::Field(shown), expression),
                (None, None) => return None,
            };
            Some(Viewed {
                name: column.name(),
                sql,
                about,
                is_content: column.is_content,
            })
        })
    }

    /// The columns of texts.
    pub(super) fn texts(&self) -> impl Iterator<Item = &'static str> {
        let texts = self.columns.iter().filter(|column| column.is_content);
        texts.map(|column| column.sql)
    }

    /// The names of what answers have.
    pub(super) fn names(&self) -> impl Iterator<Item = &'static str> {
        self.columns.iter().filter_map(|column| Some(column.read?.0))
    }

    fn selected_as(&self, named: fn(&str) -> String) -> String {
        let read = self.columns.iter().filter_map(|column| column.read);
        let read: Vec<_> = read
            .map(|(name, sql)| format!("{sql} AS \"{}\"", named(name)))
            .collect();
        read.join(", ")
    }

    /// The fields that a list can be filtered by, each with its column: what answers show, by the last part of its name.
    pub(super) fn fields<'a>(&self, filters: impl IntoIterator<Item = &'a Filter>) -> Vec<Field> {
        let field = |&Filter(name, kind): &Filter| {
            let column = self.columns.iter().find(|column| column.name() == name);
            let column = column.unwrap_or_else(|| unreachable!("{} has {name}", self.name));
            let sql = match (kind, column.read) {
                (Kind::Success, _) | (_, None) => column.sql,
                (_, Some((_, expression))) => expression,
            };
            Field {
                name,
                sql,
                kind,
                is_content: column.is_content,
            }
        };
        filters.into_iter().map(field).collect()
    }

    fn opened(&self) -> impl Iterator<Item = (&'static str, &Set<O>)> {
        let set = |column: &'static Column<O, C>| Some((column.sql, column.open.as_ref()?));
        self.columns.iter().filter_map(set)
    }

    fn closed(&self) -> impl Iterator<Item = (&'static str, &Set<C>)> {
        let set = |column: &'static Column<O, C>| Some((column.sql, column.close.as_ref()?));
        self.columns.iter().filter_map(set)
    }

    /// `INSERT INTO table (…)` for a row that begins, and the row.
    pub(super) fn insert(&self) -> (String, String) {
        insert_into(self.name, self.opened().map(|(name, Set(sql, _))| (name, *sql)))
    }

    /// A statement that begins rows, and with `ON CONFLICT DO NOTHING` as `tail` does so once.
    pub(super) fn inserts(&self, tail: &str) -> Insert {
        let (head, row) = self.insert();
        Insert::new(&head, &format!("({row})"), tail)
    }

    /// The values of a row that begins.
    pub(super) fn begin(&self, row: &O, with: &Writing) -> Vec<Value> {
        let value = |(_, Set(_, value)): (_, &Set<O>)| value.map(|value| value(row, with));
        self.opened().filter_map(value).collect()
    }

    /// What an UPDATE sets to end a row, with parameters from `$2` on.
    pub(super) fn ended(&self) -> String {
        let mut place = 1;
        let set = |(name, Set(sql, value)): (_, &Set<C>)| {
            place += usize::from(value.is_some());
            format!("{name} = {}", sql.replace('?', &format!("${place}")))
        };
        self.closed().map(set).collect::<Vec<_>>().join(", ")
    }

    /// The values for [`Table::ended`].
    pub(super) fn end(&self, row: &C, with: &Writing) -> Vec<Value> {
        let value = |(_, Set(_, value)): (_, &Set<C>)| value.map(|value| value(row, with));
        self.closed().filter_map(value).collect()
    }

    /// What an UPDATE sets to begin rows again: what their end had set is gone.
    pub(super) fn reopened(&self) -> String {
        let set = |column: &Column<O, C>| match (&column.open, &column.close) {
            (None, Some(_)) => Some(format!("{} = NULL", column.sql)),
            (Some(Set(open, None)), Some(_)) => Some(format!("{} = {open}", column.sql)),
            (_, None) | (Some(Set(_, Some(_))), Some(_)) => None,
        };
        self.columns.iter().filter_map(set).collect::<Vec<_>>().join(", ")
    }
}

fn insert_into(table: &str, columns: impl Iterator<Item = (&'static str, &'static str)>) -> (String, String) {
    let (names, row): (Vec<_>, Vec<_>) = columns.unzip();
    (format!("INSERT INTO {table} ({})", names.join(", ")), row.join(", "))
}

/// The statements for rows that are written when they begin, and again, or only, when they end.
pub(super) struct Writes<O: 'static, C: 'static> {
    table: &'static Table<O, C>,
    /// A row's beginning within its end.
    begun: fn(&C) -> &O,
    open: Insert,
    close: Insert,
}

impl<O, C> Writes<O, C> {
    /// `key` identifies a row. A row that exists is not begun again: an earlier commit of the same op was not
    /// acknowledged. Its end replaces an earlier end `if_same` holds.
    pub(super) fn new(table: &'static Table<O, C>, key: &str, begun: fn(&C) -> &O, if_same: &str) -> Self {
        let ended = table.columns.iter().filter_map(|column| {
            let open = column.open.as_ref().map(|Set(sql, _)| *sql);
            let close = column.close.as_ref().map(|Set(sql, _)| *sql);
            Some((column.sql, close.or(open)?))
        });
        let (head, row) = insert_into(table.name, ended);
        let replaced = table.closed().map(|(name, _)| format!("{name} = excluded.{name}"));
        let replaced = replaced.collect::<Vec<_>>().join(", ");
        Self {
            table,
            begun,
            open: table.inserts(&format!("ON CONFLICT ({key}) DO NOTHING")),
            close: Insert::new(
                &head,
                &format!("({row})"),
                &format!("ON CONFLICT ({key}) DO UPDATE SET {replaced} WHERE {if_same}"),
            ),
        }
    }

    /// Adds the values of a row that ends.
    pub(super) fn end(&self, row: &C, with: &Writing, into: &mut Vec<Value>) {
        let value = |column: &Column<O, C>| match (&column.open, &column.close) {
            (_, Some(Set(_, value))) => value.map(|value| value(row, with)),
            (Some(Set(_, value)), None) => value.map(|value| value((self.begun)(row), with)),
            (None, None) => None,
        };
        into.extend(self.table.columns.iter().filter_map(value));
    }

    /// Writes a row that begins.
    pub(super) async fn open(&'static self, conn: &mut Conn, row: &O, with: &Writing) -> Result<(), sqlx::Error> {
        self.write_begun(conn, self.table.begin(row, with)).await
    }

    /// Writes rows that begin.
    pub(super) async fn write_begun(&'static self, conn: &mut Conn, values: Vec<Value>) -> Result<(), sqlx::Error> {
        self.open.run(conn, values).await.map(drop)
    }

    /// Writes rows that end. An id that another owner has is refused: its row is not overwritten.
    pub(super) async fn write_ended(&'static self, conn: &mut Conn, values: Vec<Value>) -> Result<(), Fault> {
        let given = self.close.rows(&values) as u64;
        let written = self.close.run(conn, values).await?;
        if given == written {
            return Ok(());
        }
        let reason = format!(
            "a row of {} was not written: its id is already used ({written} of {given} rows written)",
            self.table.name
        );
        Err(Fault::Refused(reason.into()))
    }
}

/// What applies to every row that is written.
#[derive(Clone)]
pub(super) struct Writing {
    /// Who owns an open decision: this process, or the run.
    pub(super) owner: Value,
    pub(super) serves: Value,
    pub(super) content: ContentMode,
}

impl Writing {
    pub(super) fn new(config: &StoreConfig) -> Self {
        Self {
            owner: config.instance.into(),
            serves: config.serves.as_ref().into(),
            content: config.content.clone(),
        }
    }

    /// A run owns its decision.
    pub(super) fn owned_by(&self, run: RunId) -> Self {
        Self {
            owner: run.into(),
            ..self.clone()
        }
    }
}

/// Maximum rows of a statement. Larger statements were no faster when measured, and cost memory.
const MAX_ROWS: usize = 32;

/// A multi-row insert, with few distinct texts, so that each is prepared once: 13 rows become one statement of 8 rows, one
/// of 4 and one of 1.
pub(super) struct Insert {
    /// Indexed by the logarithm of the size.
    texts: Vec<String>,
    columns: usize,
}

impl Insert {
    /// `head VALUES row, row … tail`; `row` has one `?` for each value.
    pub(super) fn new(head: &str, row: &str, tail: &str) -> Self {
        let text = |log: u32| format!("{head} VALUES {} {tail}", vec![row; 1_usize << log].join(", "));
        Self {
            texts: (0..=MAX_ROWS.ilog2()).map(text).collect(),
            columns: row.matches('?').count(),
        }
    }

    pub(super) fn rows(&self, values: &[Value]) -> usize {
        values.len() / self.columns
    }

    /// Inserts `values`, row after row; returns how many rows were inserted or updated.
    pub(super) async fn run(&'static self, conn: &mut Conn, values: Vec<Value>) -> Result<u64, sqlx::Error> {
        debug_assert_eq!(values.len() % self.columns, 0, "whole rows");
        let mut rows = self.rows(&values);
        let mut values = values.into_iter();
        let mut changed = 0;
        while rows > 0 {
            let log = rows.min(MAX_ROWS).ilog2();
            let size = 1_usize << log;
            let chunk = values.by_ref().take(size * self.columns).collect();
            changed += conn.execute(self.texts[log as usize].as_str(), chunk).await?;
            rows -= size;
        }
        Ok(changed)
    }
}

#[cfg(test)]
mod insert_tests {
    use super::*;

    #[test]
    fn one_text_for_each_power_of_two() {
        let insert = Insert::new("INSERT INTO t (a, b)", "(?, ?)", "ON CONFLICT DO NOTHING");
        assert_eq!(insert.texts.len(), 6);
        assert_eq!(
            insert.texts[1],
            "INSERT INTO t (a, b) VALUES (?, ?), (?, ?) ON CONFLICT DO NOTHING"
        );
        assert_eq!(insert.columns, 2);
    }
}
