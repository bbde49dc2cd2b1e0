//! Fields below a head, each with its name. The lines of a value are indented, so that none can pass for another field.

use crate::cli::output::printable;

/// The column where values begin.
const INDENT: usize = 12;

/// A line for each field that has a value, or several.
pub(super) fn given<'a>(fields: impl IntoIterator<Item = (&'static str, Option<&'a String>)>) -> String {
    let given = fields.into_iter().filter_map(|(name, value)| Some((name, value?)));
    given
        .filter(|(_, value)| !value.is_empty())
        .map(|(name, value)| field(name, value))
        .collect()
}

fn field(name: &str, value: &str) -> String {
    let value = printable(value).replace('\n', &format!("\n{:INDENT$}  ", ""));
    format!("  {name:<width$}{}\n", value.trim_end(), width = INDENT)
}
