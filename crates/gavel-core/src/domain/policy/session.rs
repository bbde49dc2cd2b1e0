//! What rules know of a planning session.

use std::collections::BTreeMap;

/// A planning session, as rules see it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionFacts<'a> {
    /// Its id.
    pub id: &'a str,
    /// The owner of its repository.
    pub owner: &'a str,
    /// The name of its repository.
    pub repo: &'a str,
}

impl<'a> SessionFacts<'a> {
    /// The names of its fields.
    pub const FIELDS: [&'static str; 3] = ["id", "owner", "repo"];

    /// The session of a run that has these values, by the names of the fields.
    #[must_use]
    pub fn of(values: Option<&'a BTreeMap<String, String>>) -> Self {
        let [id, owner, repo] = Self::FIELDS.map(|name| {
            let value = values.and_then(|values| values.get(name));
            value.map_or("", String::as_str)
        });
        Self { id, owner, repo }
    }

    /// Each value with its name.
    pub fn fields(self) -> impl Iterator<Item = (&'static str, &'a str)> {
        Self::FIELDS.into_iter().zip([self.id, self.owner, self.repo])
    }
}
