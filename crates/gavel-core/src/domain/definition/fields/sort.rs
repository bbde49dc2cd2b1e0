//! Sorts the keys of a definition by field, and reports unknown ones.

use std::collections::BTreeMap;

use super::super::unknown::{unknown, unknown_at_the_top};
use super::{Field, GROUPS, Row, TABLE};
use gavel_reading::{Content, Key, Node};
use gavel_reading::{Errors, ReadError};

/// A field as given in the text.
pub(crate) struct Given<'a> {
    /// As spelled in the text, with its group.
    pub(crate) path: String,
    /// The line of its key.
    pub(crate) line: u64,
    pub(crate) node: &'a Node,
}

impl Given<'_> {
    /// Whether it is an explicit null, which counts as absent.
    pub(crate) fn is_null(&self) -> bool {
        matches!(self.node.content, Content::Null)
    }
}

/// All given fields, each with all of its occurrences.
pub(crate) type Fields<'a> = BTreeMap<Field, Vec<Given<'a>>>;

/// A group as given in the text.
pub(crate) struct GivenGroup {
    /// Its portable name.
    pub(crate) name: &'static str,
    /// As spelled in the text.
    pub(crate) spelled: String,
    /// The line of its key.
    pub(crate) line: u64,
    /// Whether it is a map. If not, its content is unknown.
    pub(crate) is_map: bool,
}

/// Sorts the entries of a text by the table: fields, and groups that are not null. Unknown names go to `errors`.
pub(crate) fn sort<'a>(root: &'a [(Key, Node)], file: &str, errors: &mut Errors) -> (Fields<'a>, Vec<GivenGroup>) {
    let (mut fields, mut groups) = (Fields::new(), Vec::new());
    for (key, node) in root {
        if let Some(group) = group_named(&key.name) {
            if !matches!(node.content, Content::Null) {
                let is_map = sort_group(group, key, node, file, errors, &mut fields);
                groups.push(GivenGroup {
                    name: group,
                    spelled: key.name.clone(),
                    line: key.line,
                    is_map,
                });
            }
        } else if let Some(row) = TABLE.iter().find(|row| row.flat.contains(&key.name.as_str())) {
            fields.entry(row.field).or_default().push(Given {
                path: key.name.clone(),
                line: key.line,
                node,
            });
        } else {
            errors.add(|| unknown_at_the_top(key, file));
        }
    }
    (fields, groups)
}

pub(super) fn group_named(name: &str) -> Option<&'static str> {
    GROUPS
        .iter()
        .find(|(group, others)| *group == name || others.contains(&name))
        .map(|(group, _)| *group)
}

/// Returns false for a group that is not a map.
fn sort_group<'a>(
    group: &'static str,
    group_key: &Key,
    node: &'a Node,
    file: &str,
    errors: &mut Errors,
    fields: &mut Fields<'a>,
) -> bool {
    let entries = match &node.content {
        Content::Map(entries) => entries,
        _ => {
            errors.push(ReadError {
                file: file.to_owned(),
                line: Some(node.line),
                field: group_key.name.clone(),
                found: node.found(),
                allowed: "a map".to_owned(),
            });
            return false;
        }
    };
    let in_group = |row: &'static Row| row.grouped.filter(|(name, _)| *name == group).map(|(_, names)| names);
    for (key, node) in entries {
        let path = format!("{}.{}", group_key.name, key.name);
        let row = TABLE
            .iter()
            .find(|row| in_group(row).is_some_and(|names| names.contains(&key.name.as_str())));
        match row {
            Some(row) => fields.entry(row.field).or_default().push(Given {
                path,
                line: key.line,
                node,
            }),
            None => errors.add(|| {
                let known = TABLE.iter().filter_map(in_group).flatten().copied().collect();
                unknown(key, path, known, file)
            }),
        }
    }
    true
}
