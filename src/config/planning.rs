//! The repositories of planning sessions.

use gavel_reading::{At, Content, Parser};

use crate::domain::repository::RepositoryPattern;

/// Patterns: a list, or one text that separates them.
pub(super) struct Repositories;

impl Parser for Repositories {
    type Value = Vec<RepositoryPattern>;

    fn allowed(&self) -> String {
        format!(
            "a list of {} (in the environment separated by commas)",
            RepositoryPattern::ALLOWED
        )
    }

    fn parse(&self, at: &At<'_>) -> Option<Self::Value> {
        let pattern = |at: &At<'_>, text: &str| {
            let pattern = RepositoryPattern::parse(text);
            pattern.map_err(|allowed| at.error(format!("{text:?}"), allowed)).ok()
        };
        match &at.node.content {
            Content::Text(text) => {
                let parts = text.split([',', ' ', '\n']).filter(|part| !part.is_empty());
                Some(parts.filter_map(|part| pattern(at, part)).collect())
            }
            Content::List(_) => {
                let items = at.items(1000)?;
                let text = |item: &At<'_>| match &item.node.content {
                    Content::Text(text) => pattern(item, text.trim()),
                    _ => {
                        item.invalid(RepositoryPattern::ALLOWED);
                        None
                    }
                };
                Some(items.iter().filter_map(text).collect())
            }
            _ => {
                at.invalid(self.allowed());
                None
            }
        }
    }
}
