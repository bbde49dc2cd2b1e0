//! The table of fields for the documentation.

use super::fields::{Holds, Row, TABLE};

/// Every field with its names, as a Markdown table.
#[must_use]
pub fn reference() -> String {
    let mut text = "| field | other names | holds | what it is |\n| --- | --- | --- | --- |\n".to_owned();
    for row in TABLE {
        let cells = [
            format!("`{}`", row.field.portable()),
            other_names(row),
            holds(row.holds),
            row.about.to_owned(),
        ];
        text.push_str(&format!("| {} |\n", cells.join(" | ")));
    }
    text
}

/// Names under the portable group name. Another table has the other names of groups.
fn other_names(row: &Row) -> String {
    let grouped = row.grouped.into_iter().flat_map(|(group, names)| {
        let others = names.iter().skip(1);
        others.map(move |name| format!("`{group}.{name}`"))
    });
    let flat = row.flat.iter().skip(usize::from(row.grouped.is_none()));
    let all: Vec<_> = grouped.chain(flat.map(|name| format!("`{name}`"))).collect();
    all.join(", ")
}

fn holds(holds: Holds) -> String {
    match holds {
        Holds::Text => "text".to_owned(),
        Holds::Name => "a name: 1 to 64 letters, digits, `_`, `-`".to_owned(),
        Holds::Choice(words) => words
            .iter()
            .map(|word| format!("`{word}`"))
            .collect::<Vec<_>>()
            .join(", "),
        Holds::Number(most) => format!("a number from 0 to {most}"),
        Holds::Whole(least) => format!("a whole number from {least}"),
        Holds::Bool => "`true`, `false`".to_owned(),
        Holds::Tools => "a list of tools".to_owned(),
        Holds::Seconds => "seconds".to_owned(),
        Holds::Minutes => "minutes".to_owned(),
        Holds::SubAgents => "a list of agents".to_owned(),
        Holds::Inputs => "a map".to_owned(),
        Holds::Schema => "a JSON Schema or a name".to_owned(),
        Holds::Steps => "a list of steps".to_owned(),
    }
}
