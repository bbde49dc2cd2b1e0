//! What all commands that list have in common: the options of a page, and how it is printed.

use chrono::{DateTime, NaiveDate, TimeDelta, Utc};
use serde::Serialize;

use crate::api::Page;
use crate::cli::client::Query;
use crate::cli::exit::Exit;
use crate::cli::output;
use crate::cli::output::printable;
use crate::domain::prices::Decimal;
use crate::domain::time::{Timestamp, parse_length};

/// The options of a list.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Paging {
    /// Rows per page, 1 to 1000
    #[arg(long, visible_alias = "page-size", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000), value_name = "N")]
    limit: u32,
    /// Continue after the previous page; the other options must be the same
    #[arg(long, allow_hyphen_values = true, value_name = "TOKEN")]
    pub(super) page_token: Option<String>,
    /// Print the objects as JSON, one per line
    #[arg(long)]
    pub(super) json: bool,
}

impl Paging {
    /// The query for the page.
    pub(super) fn query(&self) -> Query {
        Query {
            page_size: self.limit,
            page_token: self.page_token.clone(),
            ..Query::default()
        }
    }

    /// Prints the page as a table or as JSON, and then how to get the next one; `none` says that it is empty.
    ///
    /// # Errors
    /// Standard output cannot be written.
    pub(super) fn print<T: Serialize>(
        &self,
        page: &Page<T>,
        none: &str,
        columns: &[Column<T>],
    ) -> anyhow::Result<Exit> {
        print(self.json, &page.items, none, |items| table_of(columns, items))?;
        more(page, "more: the same command with");
        Ok(Exit::Done)
    }
}

/// The options of a list with a filter.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Filtered {
    /// Only matching rows, such as 'created_at >= "2026-11-20T00:00:00Z"'
    #[arg(long, value_name = "FILTER")]
    filter: Option<String>,
    /// Oldest first
    #[arg(long)]
    oldest_first: bool,
    /// Largest first, by a number such as duration_ms; the filter must span at most 31 days
    #[arg(long, value_name = "FIELD", conflicts_with = "oldest_first")]
    largest: Option<String>,
    #[command(flatten)]
    pub(super) paging: Paging,
}

impl Filtered {
    /// The query for the page.
    pub(super) fn query(&self) -> Query {
        Query {
            filter: self.filter.clone(),
            order_by: match &self.largest {
                Some(field) => Some(format!("{field} desc")),
                None => self.oldest_first.then(|| "created_at".to_owned()),
            },
            ..self.paging.query()
        }
    }
}

/// What is not known, or not kept, is `-`.
pub(super) fn known(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

/// A cost in US dollars.
pub(super) fn cost(nano: Option<u64>) -> String {
    known(nano.map(|nano| format!("${}", Decimal(nano))))
}

/// The filter with the conditions that are given.
pub(super) fn filter(conditions: &[(&str, &Option<String>)]) -> Option<String> {
    let given = conditions.iter();
    let given = given.filter_map(|(field, value)| Some(format!("{field} = {:?}", value.as_ref()?)));
    let given: Vec<_> = given.collect();
    (!given.is_empty()).then(|| given.join(" AND "))
}

/// Prints objects as `text` shows them, or as JSON; `none` says that there are none.
///
/// # Errors
/// Standard output cannot be written.
pub(super) fn print<T: Serialize>(
    json: bool,
    items: &[T],
    none: &str,
    text: impl FnOnce(&[T]) -> String,
) -> anyhow::Result<()> {
    if json {
        output::json_lines(items)?;
    } else if !items.is_empty() {
        output::line(&text(items))?;
    } else if !none.is_empty() {
        output::note(none);
    }
    Ok(())
}

/// Says how to get the next page.
pub(super) fn more<T>(page: &Page<T>, how: &str) {
    if let Some(token) = &page.next_page_token {
        output::note(&format!("{how} --page-token {token}"));
    }
}

/// A column of a table: its head, and its cell for an object.
pub(super) type Column<T> = (&'static str, fn(&T) -> String);

/// A table with a row for each object.
pub(super) fn table_of<T>(columns: &[Column<T>], items: &[T]) -> String {
    let heads: Vec<_> = columns.iter().map(|(head, _)| *head).collect();
    let row = |item: &T| columns.iter().map(|(_, cell)| cell(item)).collect();
    table(&heads, &items.iter().map(row).collect::<Vec<_>>())
}

/// A time to the second.
pub(super) fn at(time: Timestamp) -> String {
    time.to_string().chars().take(19).collect::<String>().replace('T', " ")
}

/// Microseconds since the epoch, of a date, a time, or a length that has passed since.
pub(super) fn since(text: &str) -> Result<i64, &'static str> {
    let time = DateTime::parse_from_rfc3339(text).ok().map(|at| at.to_utc());
    let date = || {
        Some(
            NaiveDate::parse_from_str(text, "%Y-%m-%d")
                .ok()?
                .and_hms_opt(0, 0, 0)?
                .and_utc(),
        )
    };
    let ago = || Utc::now().checked_sub_signed(TimeDelta::from_std(parse_length(text)?).ok()?);
    let at = time.or_else(date).or_else(ago);
    let at = at.map(|at| at.timestamp_micros());
    at.ok_or("give a date, a time such as 2026-11-01T00:00:00Z, or 90m, 12h, 30d")
}

#[cfg(test)]
mod since_tests {
    use super::*;

    #[test]
    fn a_date_a_time_and_a_length_are_understood_and_nothing_else() {
        assert_eq!(since("1970-01-02"), Ok(86_400_000_000));
        assert_eq!(since("1970-01-01T01:00:00+01:00"), Ok(0));
        let minutes = (Utc::now().timestamp_micros() - since("90m").unwrap()) / 60_000_000;
        assert!((89..=91).contains(&minutes), "{minutes}");
        for invalid in [
            "",
            "h",
            "-1d",
            "1w",
            "1ä",
            "yesterday",
            "99999999999999999999d",
            "2026-13-01",
            "18446744073709551615d",
        ] {
            assert!(since(invalid).is_err(), "{invalid}");
        }
    }
}

/// Aligns `rows` under `heads`. The last column is not padded; every cell is one line.
pub(super) fn table(heads: &[&str], rows: &[Vec<String>]) -> String {
    let rows: Vec<Vec<String>> = rows
        .iter()
        .map(|row| row.iter().map(|cell| single_line(cell)).collect())
        .collect();
    let widths: Vec<usize> = (0..heads.len())
        .map(|column| {
            let cells = rows
                .iter()
                .filter_map(|row| row.get(column))
                .map(|cell| cell.chars().count());
            cells.chain([heads[column].chars().count()]).max().unwrap_or(0)
        })
        .collect();
    let heads: Vec<String> = heads.iter().map(|head| (*head).to_owned()).collect();
    let mut text = String::new();
    for row in std::iter::once(&heads).chain(&rows) {
        let padded = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        text.push_str(padded.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    text
}

/// The first `most` characters; an ellipsis marks omitted text.
pub(super) fn clipped(text: &str, most: usize) -> String {
    let text = single_line(text);
    if text.chars().count() <= most {
        return text;
    }
    let mut clipped: String = text.chars().take(most.saturating_sub(1)).collect();
    clipped.push('…');
    clipped
}

/// The text on one line, as output shows it.
pub(super) fn single_line(text: &str) -> String {
    printable(text).replace(['\n', '\t'], " ")
}

#[cfg(test)]
mod table_tests {
    use super::*;

    #[test]
    fn columns_line_up_and_every_row_is_one_line() {
        let rows = [
            vec!["a".to_owned(), "two\nlines".to_owned()],
            vec!["longer".to_owned(), String::new()],
        ];
        assert_eq!(
            table(&["x", "what"], &rows),
            "x       what\na       two lines\nlonger\n"
        );
    }

    #[test]
    fn what_is_clipped_says_so() {
        assert_eq!(clipped("abcdef", 6), "abcdef");
        assert_eq!(clipped("abcdefg", 6), "abcde…");
        assert_eq!(clipped("ä\u{1b}ö", 9), "ä\\u001bö");
    }
}
