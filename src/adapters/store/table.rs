//! Tables as data. From one list of columns follow the statements that begin, end and reopen a row, and what lists read
//! and filter by.

use super::db::{Conn, Dialect, Value};
use super::insert::Insert;
use super::rows::Writing;

/// A column of a table whose rows begin as `O` and end as `C`.
pub(super) struct Column<O, C> {
    /// Its name, or for a column that is only read the expression.
    sql: &'static str,
    set: Set<O, C>,
    /// How answers name it: `a.b` is the field `b` of the field `a`. With the expression, if it is another.
    read: Option<(&'static str, &'static str)>,
    filter: Option<Kind>,
}

/// When a column gets its value.
enum Set<O, C> {
    /// When the row begins, and never again; the SQL has a `?` for the value.
    Open(&'static str, fn(&O, &Writing) -> Value),
    /// When the row ends. NULL before, and again if it is reopened.
    Close(fn(&C, &Writing) -> Value),
    /// When the row begins, and when it ends.
    Both(fn(&O, &Writing) -> Value, fn(&C, &Writing) -> Value),
    /// SQL: when the row begins, or begins again, and when it ends.
    State(&'static str, &'static str),
    /// Not by the statements that this list makes.
    Elsewhere,
}

/// What a filter compares a field with.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    /// Any quoted string.
    Text,
    /// A quoted string from a closed list.
    Enum(fn() -> Vec<&'static str>),
    /// An integer without quotes.
    Number,
    /// An integer in milliseconds, without quotes.
    Duration,
    /// A quoted RFC 3339 time.
    Time,
    /// `true` or `false`: whether `status` is `completed`.
    Success,
}

/// Every name of a closed list.
macro_rules! names_of {
    ($list:ty) => {
        Kind::Enum(|| <$list>::ALL.iter().map(|one| one.as_str()).collect())
    };
}
pub(super) use names_of;

impl<O, C> Column<O, C> {
    const fn new(sql: &'static str, set: Set<O, C>) -> Self {
        Self {
            sql,
            set,
            read: None,
            filter: None,
        }
    }

    /// A column that is set when the row begins.
    pub(super) const fn open(name: &'static str, value: fn(&O, &Writing) -> Value) -> Self {
        Self::new(name, Set::Open("?", value))
    }

    /// A column that the database computes from the value of the `?` when the row begins.
    pub(super) const fn derived(name: &'static str, sql: &'static str, value: fn(&O, &Writing) -> Value) -> Self {
        Self::new(name, Set::Open(sql, value))
    }

    /// A column that is set when the row ends.
    pub(super) const fn close(name: &'static str, value: fn(&C, &Writing) -> Value) -> Self {
        Self::new(name, Set::Close(value))
    }

    /// A column that is set when the row begins, and again when it ends.
    pub(super) const fn both(
        name: &'static str,
        open: fn(&O, &Writing) -> Value,
        close: fn(&C, &Writing) -> Value,
    ) -> Self {
        Self::new(name, Set::Both(open, close))
    }

    /// A column with one value while the row is open, and one after it was closed.
    pub(super) const fn state(name: &'static str, open: &'static str, closed: &'static str) -> Self {
        Self::new(name, Set::State(open, closed))
    }

    /// A column that other statements set, or an expression.
    pub(super) const fn elsewhere(sql: &'static str) -> Self {
        Self::new(sql, Set::Elsewhere)
    }

    /// Answers have it under its own name.
    pub(super) const fn shown(self) -> Self {
        let name = self.sql;
        self.shown_as(name)
    }

    /// Answers have it under this name.
    pub(super) const fn shown_as(self, name: &'static str) -> Self {
        let sql = self.sql;
        self.computed(name, sql)
    }

    /// Answers have the value of the expression under this name.
    pub(super) const fn computed(mut self, name: &'static str, expression: &'static str) -> Self {
        self.read = Some((name, expression));
        self
    }

    /// A list can be filtered by it.
    pub(super) const fn filtered(mut self, kind: Kind) -> Self {
        self.filter = Some(kind);
        self
    }
}

/// A field of a filter.
pub(super) struct Field {
    pub(super) name: &'static str,
    /// Column or expression.
    pub(super) sql: &'static str,
    pub(super) kind: Kind,
}

/// What answers have of a row, as the list of a SELECT.
pub(super) fn selected<O, C>(columns: &[Column<O, C>]) -> String {
    let read = columns.iter().filter_map(|column| column.read);
    let read: Vec<_> = read.map(|(name, sql)| format!("{sql} AS \"{name}\"")).collect();
    read.join(", ")
}

/// The fields that a list can be filtered by: what answers show, by the last part of its name.
pub(super) fn fields<O, C>(columns: &[Column<O, C>]) -> Vec<Field> {
    let field = |column: &Column<O, C>| {
        let (name, expression) = column.read.unwrap_or((column.sql, column.sql));
        let kind = column.filter?;
        Some(Field {
            name: name.rsplit_once('.').map_or(name, |(_, name)| name),
            sql: match kind {
                Kind::Success => column.sql,
                _ => expression,
            },
            kind,
        })
    };
    columns.iter().filter_map(field).collect()
}

/// The statements that write the rows of a table.
pub(super) struct Writes<O: 'static, C: 'static> {
    columns: &'static [Column<O, C>],
    /// A row's beginning within its end.
    begun: fn(&C) -> &O,
    open: Insert,
    close: Insert,
}

impl<O, C> Writes<O, C> {
    /// `key` identifies a row. A row that exists is not begun again: an earlier commit of the same op was not
    /// acknowledged. Its end replaces an earlier end `if_same` holds.
    pub(super) fn new(
        dialect: Dialect,
        table: &str,
        key: &str,
        columns: &'static [Column<O, C>],
        begun: fn(&C) -> &O,
        if_same: &str,
    ) -> Self {
        let insert = |part: fn(&Column<O, C>) -> Option<&'static str>, tail: &str| {
            let (names, row): (Vec<_>, Vec<_>) = columns.iter().filter_map(|c| Some((c.sql, part(c)?))).unzip();
            let head = format!("INSERT INTO {table} ({})", names.join(", "));
            Insert::new(dialect, &head, &format!("({})", row.join(", ")), tail)
        };
        let is_replaced = |set: &Set<O, C>| matches!(set, Set::Close(_) | Set::Both(..) | Set::State(..));
        let replaced = columns.iter().filter(|column| is_replaced(&column.set));
        let replaced: Vec<_> = replaced
            .map(|column| format!("{0} = excluded.{0}", column.sql))
            .collect();
        Self {
            columns,
            begun,
            open: insert(
                |column| match column.set {
                    Set::Open(sql, _) => Some(sql),
                    Set::Both(..) => Some("?"),
                    Set::State(open, _) => Some(open),
                    Set::Close(_) | Set::Elsewhere => None,
                },
                &format!("ON CONFLICT ({key}) DO NOTHING"),
            ),
            close: insert(
                |column| match column.set {
                    Set::Open(sql, _) => Some(sql),
                    Set::Close(_) | Set::Both(..) => Some("?"),
                    Set::State(_, closed) => Some(closed),
                    Set::Elsewhere => None,
                },
                &format!(
                    "ON CONFLICT ({key}) DO UPDATE SET {} WHERE {if_same}",
                    replaced.join(", ")
                ),
            ),
        }
    }

    /// Adds the values of a row that begins.
    pub(super) fn begin(&self, row: &O, with: &Writing, into: &mut Vec<Value>) {
        into.extend(self.columns.iter().filter_map(|column| match column.set {
            Set::Open(_, value) | Set::Both(value, _) => Some(value(row, with)),
            Set::Close(_) | Set::State(..) | Set::Elsewhere => None,
        }));
    }

    /// Adds the values of a row that ends.
    pub(super) fn end(&self, row: &C, with: &Writing, into: &mut Vec<Value>) {
        into.extend(self.columns.iter().filter_map(|column| match column.set {
            Set::Open(_, value) => Some(value((self.begun)(row), with)),
            Set::Close(value) | Set::Both(_, value) => Some(value(row, with)),
            Set::State(..) | Set::Elsewhere => None,
        }));
    }

    /// Writes rows that begin.
    pub(super) async fn write_begun(&self, conn: &mut Conn, values: Vec<Value>) -> Result<(), sqlx::Error> {
        self.open.run(conn, values).await.map(drop)
    }

    /// Writes rows that end. Returns how many there are, and how many were written: fewer mean an id that another owner
    /// has, whose row is not overwritten.
    pub(super) async fn write_ended(&self, conn: &mut Conn, values: Vec<Value>) -> Result<(u64, u64), sqlx::Error> {
        let given = self.close.rows(&values) as u64;
        Ok((given, self.close.run(conn, values).await?))
    }
}

/// What an UPDATE sets to begin rows again: what their end had set is gone.
pub(super) fn reopened<O, C>(columns: &[Column<O, C>]) -> String {
    let set = columns.iter().filter_map(|column| match column.set {
        Set::Close(_) => Some(format!("{} = NULL", column.sql)),
        Set::State(open, _) => Some(format!("{} = {open}", column.sql)),
        Set::Open(..) | Set::Both(..) | Set::Elsewhere => None,
    });
    set.collect::<Vec<_>>().join(", ")
}
