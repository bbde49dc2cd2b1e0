//! Rows by name, from either database, into any type that serde reads.
//!
//! A column is a field of the type. `AS "a.b"` is the field `b` of the field `a`; an optional `a` is `None` if all its
//! columns are NULL. Text is JSON where the type is a list, an object or a [`RawValue`](serde_json::value::RawValue), and
//! NULL is an empty list. A type that is no object reads the only column.

use std::fmt::Display;
use std::mem;
use std::sync::Arc;

use serde::de::value::Error;
use serde::de::{DeserializeOwned, DeserializeSeed, Deserializer, Error as _, IntoDeserializer, MapAccess, Visitor};
use serde::forward_to_deserialize_any;
use sqlx::postgres::PgRow;
use sqlx::{Column as _, Row as _, TypeInfo as _};

/// The names of a result's columns, which its rows share.
pub(crate) type Names = Arc<[Box<str>]>;

/// A value of a column.
#[derive(Clone, Debug, Default)]
pub(crate) enum Cell {
    #[default]
    Null,
    Int(i64),
    Bool(bool),
    Text(String),
}

/// A row of a result.
#[derive(Debug)]
pub(crate) struct Row {
    names: Names,
    cells: Vec<Cell>,
}

impl Row {
    pub(super) fn new(names: Names, cells: Vec<Cell>) -> Self {
        Self { names, cells }
    }

    pub(super) fn from_postgres(row: &PgRow, names: &mut Option<Names>) -> Result<Self, sqlx::Error> {
        let columns = row.columns();
        let names = names.get_or_insert_with(|| columns.iter().map(|column| column.name().into()).collect());
        let cell = |(at, column): (usize, &sqlx::postgres::PgColumn)| {
            Ok(match column.type_info().name() {
                "BOOL" => row.try_get::<Option<bool>, _>(at)?.map_or(Cell::Null, Cell::Bool),
                "INT8" => row.try_get::<Option<i64>, _>(at)?.map_or(Cell::Null, Cell::Int),
                "INT4" => row
                    .try_get::<Option<i32>, _>(at)?
                    .map_or(Cell::Null, |int| Cell::Int(int.into())),
                "VOID" => Cell::Null,
                _ => row.try_get::<Option<String>, _>(at)?.map_or(Cell::Null, Cell::Text),
            })
        };
        let cells = columns
            .iter()
            .enumerate()
            .map(cell)
            .collect::<Result<_, sqlx::Error>>()?;
        Ok(Self::new(Arc::clone(names), cells))
    }

    /// Reads some of its columns, and leaves it whole.
    pub(crate) fn peek(&self, name: &str) -> Option<&Cell> {
        let at = self.names.iter().position(|other| **other == *name)?;
        self.cells.get(at)
    }

    /// Its values, in the order of the columns.
    pub(crate) fn into_cells(self) -> Vec<Cell> {
        self.cells
    }

    /// The bytes of its text.
    pub(crate) fn bytes(&self) -> usize {
        let text = |cell: &Cell| if let Cell::Text(text) = cell { text.len() } else { 0 };
        self.cells.iter().map(text).sum()
    }

    /// Fails only if the row was written by another program than gavel, or by a newer one.
    pub(crate) fn read<T: DeserializeOwned>(mut self) -> Result<T, sqlx::Error> {
        let fields = Fields {
            names: &self.names,
            cells: &mut self.cells,
            prefix: None,
        };
        T::deserialize(fields).map_err(|error| {
            sqlx::Error::Decode(format!("a row holds a value that gavel never writes: {error}").into())
        })
    }
}

/// Consecutive columns: a whole row, or those below one field.
struct Fields<'r> {
    names: &'r [Box<str>],
    cells: &'r mut [Cell],
    /// Bytes of the names that say which field it is.
    prefix: Option<usize>,
}

impl Fields<'_> {
    /// The only column of a row.
    fn only(&mut self) -> Option<Cell> {
        match (self.prefix, &mut *self.cells) {
            (None, [cell]) => Some(mem::take(cell)),
            _ => None,
        }
    }
}

macro_rules! of_only_column {
    ($($method:ident($($argument:ident: $type:ty),*))*) => {
        $(fn $method<V: Visitor<'de>>(mut self, $($argument: $type,)* visitor: V) -> Result<V::Value, Error> {
            match self.only() {
                Some(cell) => cell.$method($($argument,)* visitor),
                None => visitor.visit_map(self),
            }
        })*
    };
}

impl<'de> Deserializer<'de> for Fields<'_> {
    type Error = Error;

    of_only_column! {
        deserialize_any() deserialize_bool() deserialize_i64() deserialize_u64() deserialize_u32() deserialize_str()
        deserialize_string() deserialize_seq() deserialize_unit()
        deserialize_newtype_struct(name: &'static str)
        deserialize_enum(name: &'static str, variants: &'static [&'static str])
    }

    fn deserialize_option<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, Error> {
        match self.only() {
            Some(cell) => cell.deserialize_option(visitor),
            None if self.cells.iter().all(|cell| matches!(cell, Cell::Null)) => visitor.visit_none(),
            None => visitor.visit_some(self),
        }
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_map(self)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_map(self)
    }

    forward_to_deserialize_any! {
        i8 i16 i32 i128 u8 u16 u128 f32 f64 char bytes byte_buf unit_struct tuple tuple_struct identifier ignored_any
    }
}

impl<'de> MapAccess<'de> for Fields<'_> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        let Some(name) = self.names.first() else {
            return Ok(None);
        };
        let name = &name[self.prefix.unwrap_or(0)..];
        let key = name.split_once('.').map_or(name, |(key, _)| key);
        seed.deserialize(key.into_deserializer()).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        let from = self.prefix.unwrap_or(0);
        let (name, _) = self
            .names
            .split_first()
            .unwrap_or_else(|| unreachable!("its key was read"));
        let key = name[from..].find('.').map(|length| from + length + 1);
        let below = |other: &str| key.is_some_and(|key| other.get(..key) == name.get(..key));
        let count = self.names.iter().take_while(|other| below(other)).count().max(1);
        let (names, rest) = self.names.split_at(count);
        let (cells, others) = mem::take(&mut self.cells).split_at_mut(count);
        (self.names, self.cells) = (rest, others);
        let read = match key {
            Some(prefix) => seed.deserialize(Fields {
                names,
                cells,
                prefix: Some(prefix),
            }),
            None => seed.deserialize(mem::take(&mut cells[0])),
        };
        read.map_err(|error| Error::custom(format_args!("{name}: {error}")))
    }
}

/// What is read from it does not borrow from the text.
fn json(text: &str) -> serde_json::Deserializer<serde_json::de::IoRead<&[u8]>> {
    serde_json::Deserializer::from_reader(text.as_bytes())
}

fn in_json(error: impl Display) -> Error {
    Error::custom(error)
}

macro_rules! of_json {
    ($($method:ident($($argument:ident: $type:ty),*))*) => {
        $(fn $method<V: Visitor<'de>>(self, $($argument: $type,)* visitor: V) -> Result<V::Value, Error> {
            match self {
                Cell::Text(text) => {
                    json(&text).$method($($argument,)* visitor).map_err(in_json)
                }
                other => other.deserialize_any(visitor),
            }
        })*
    };
}

impl<'de> Deserializer<'de> for Cell {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self {
            Self::Null => visitor.visit_unit(),
            Self::Int(int) => visitor.visit_i64(int),
            Self::Bool(yes) => visitor.visit_bool(yes),
            Self::Text(text) => visitor.visit_string(text),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self {
            Self::Null => visitor.visit_none(),
            some => visitor.visit_some(some),
        }
    }

    /// SQLite has no type for it.
    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self {
            Self::Int(int) => visitor.visit_bool(int != 0),
            other => other.deserialize_any(visitor),
        }
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self {
            Self::Null => visitor.visit_seq(serde::de::value::SeqDeserializer::new(std::iter::empty::<()>())),
            Self::Text(text) => json(&text).deserialize_seq(visitor).map_err(in_json),
            other => other.deserialize_any(visitor),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        match self {
            Self::Text(text) => visitor.visit_enum(text.into_deserializer()),
            other => other.deserialize_any(visitor),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, name: &'static str, visitor: V) -> Result<V::Value, Error> {
        match self {
            // serde_json's own, for a `RawValue`. What is no JSON was written outside gavel, and is shown as a string.
            Self::Text(text) if name == RAW => {
                let text = match serde_json::from_str::<serde::de::IgnoredAny>(&text) {
                    Ok(_) => text,
                    Err(_) => serde_json::Value::String(text).to_string(),
                };
                let mut json = json(&text);
                json.deserialize_newtype_struct(name, visitor).map_err(in_json)
            }
            other => visitor.visit_newtype_struct(other),
        }
    }

    of_json! {
        deserialize_map() deserialize_struct(name: &'static str, fields: &'static [&'static str])
    }

    forward_to_deserialize_any! {
        i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct tuple
        tuple_struct identifier ignored_any
    }
}

/// The name by which `RawValue` asks serde_json for the text of a value.
const RAW: &str = "$serde_json::private::RawValue";

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde::Deserialize;
    use serde_json::value::RawValue;

    use super::*;
    use crate::domain::agent_run::RunStatus;
    use crate::domain::ids::RunId;

    fn row(cells: Vec<(&str, Cell)>) -> Row {
        let (names, cells): (Vec<Box<str>>, _) = cells.into_iter().map(|(name, cell)| (name.into(), cell)).unzip();
        Row::new(names.into(), cells)
    }

    fn text(text: &str) -> Cell {
        Cell::Text(text.to_owned())
    }

    #[derive(Debug, Deserialize)]
    struct Tokens {
        input: u64,
        output: Option<u64>,
    }

    #[derive(Debug, Deserialize)]
    struct Whole {
        id: RunId,
        status: RunStatus,
        tokens: Tokens,
        last: Option<Tokens>,
        over: bool,
        output: Option<Box<RawValue>>,
        names: Vec<String>,
    }

    #[test]
    fn a_row_is_read_by_name_whatever_its_order() {
        let id = RunId::new();
        let whole: Whole = row(vec![
            ("names", Cell::Null),
            ("tokens.input", Cell::Int(7)),
            ("tokens.output", Cell::Null),
            ("unknown", Cell::Int(1)),
            ("last.input", Cell::Null),
            ("last.output", Cell::Null),
            ("over", Cell::Int(1)),
            ("status", text("paused")),
            ("output", text("{\"b\": 1.0, \"a\": 2}")),
            ("id", text(&id.to_string())),
        ])
        .read()
        .unwrap();
        assert_eq!((whole.id, whole.status, whole.tokens.input), (id, RunStatus::Paused, 7));
        assert_eq!((whole.tokens.output, whole.over, whole.names.len()), (None, true, 0));
        assert!(whole.last.is_none());
        // As it was written.
        assert_eq!(whole.output.unwrap().get(), "{\"b\": 1.0, \"a\": 2}");
    }

    #[test]
    fn the_only_column_may_be_the_whole_value() {
        assert_eq!(row(vec![("count", Cell::Int(3))]).read::<u64>().unwrap(), 3);
        assert_eq!(row(vec![("url", Cell::Null)]).read::<Option<String>>().unwrap(), None);
        assert_eq!(
            row(vec![("names", text("[\"a\"]"))]).read::<Vec<String>>().unwrap(),
            ["a"]
        );
    }

    #[test]
    fn an_error_names_the_column() {
        let negative = row(vec![("tokens.input", Cell::Int(-1)), ("tokens.output", Cell::Null)]);
        #[derive(Debug, Deserialize)]
        struct Outer {
            #[allow(dead_code)]
            tokens: Tokens,
        }
        let error = negative.read::<Outer>().unwrap_err().to_string();
        assert!(error.contains("tokens.input"), "{error}");
    }

    #[test]
    fn what_is_no_json_is_shown_as_a_string() {
        let raw: Box<RawValue> = row(vec![("arguments", text("not JSON"))]).read().unwrap();
        assert_eq!(raw.get(), "\"not JSON\"");
    }
}
