//! What all commands that list have in common: the options of a page, and how it is printed.

use serde::Serialize;

use super::client::Query;
use super::exit::Exit;
use super::output;
use super::table::table;
use crate::api::Page;
use crate::domain::time::Timestamp;

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

    /// Prints the page as [`Paging::print_items`] does, and then how to get the next one.
    ///
    /// # Errors
    /// Standard output cannot be written.
    pub(super) fn print<T: Serialize>(
        &self,
        page: &Page<T>,
        none: &str,
        text: impl FnOnce(&[T]) -> String,
    ) -> anyhow::Result<Exit> {
        self.print_items(page, none, text)?;
        more(page, "more", "");
        Ok(Exit::Done)
    }

    /// Prints the page as `text` shows it, or as JSON; `none` says that it is empty.
    ///
    /// # Errors
    /// Standard output cannot be written.
    pub(super) fn print_items<T: Serialize>(
        &self,
        page: &Page<T>,
        none: &str,
        text: impl FnOnce(&[T]) -> String,
    ) -> anyhow::Result<()> {
        if self.json {
            output::json_lines(&page.items)?;
        } else if !page.items.is_empty() {
            output::line(&text(&page.items))?;
        } else if !none.is_empty() {
            output::note(none);
        }
        Ok(())
    }
}

/// Says how to get the next page, with `flag` before its token.
pub(super) fn more<T>(page: &Page<T>, what: &str, flag: &str) {
    if let Some(token) = &page.next_page_token {
        output::note(&format!("{what}: the same command with{flag} --page-token {token}"));
    }
}

/// A table with a row for each object.
pub(super) fn rows<T>(heads: &[&str], items: &[T], row: impl Fn(&T) -> Vec<String>) -> String {
    table(heads, &items.iter().map(row).collect::<Vec<_>>())
}

/// A time to the second.
pub(super) fn at(time: Timestamp) -> String {
    time.to_string().chars().take(19).collect::<String>().replace('T', " ")
}
