//! The labels by which gavel finds its containers again.

use std::collections::HashMap;

use gavel_mcp_base::Moment;

/// Marks a container as gavel's. Without it, a container is not touched.
pub(crate) const MANAGED: &str = "gavel.managed";
const OWNER: &str = "gavel.session";
const USER: &str = "gavel.user";
const GROUP: &str = "gavel.group";
const KEY: &str = "gavel.key";
const DIGEST: &str = "gavel.digest";
const NAME: &str = "gavel.name";
const EXPIRES: &str = "gavel.expires";

/// What is written on a container.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Labels {
    /// The session that it belongs to, else the user. No other owner sees it.
    pub(crate) owner: Option<String>,
    /// Whose share it is a part of.
    pub(crate) user: Option<String>,
    /// A group to clean up together.
    pub(crate) group: Option<String>,
    /// The idempotency key of the call that created it.
    pub(crate) key: Option<String>,
    /// The digest of the arguments of that call.
    pub(crate) digest: Option<String>,
    /// A name for people.
    pub(crate) name: Option<String>,
    /// After this time it is removed.
    pub(crate) expires: Option<Moment>,
}

impl Labels {
    /// As the engine takes them.
    pub(crate) fn write(&self) -> HashMap<String, String> {
        let expires = self.expires.map(Moment::text);
        let values = [
            (MANAGED, Some("true".to_owned())),
            (OWNER, self.owner.clone()),
            (USER, self.user.clone()),
            (GROUP, self.group.clone()),
            (KEY, self.key.clone()),
            (DIGEST, self.digest.clone()),
            (NAME, self.name.clone()),
            (EXPIRES, expires),
        ];
        let given = values.into_iter().filter_map(|(name, value)| Some((name, value?)));
        given.map(|(name, value)| (name.to_owned(), value)).collect()
    }

    /// The labels of a container of gavel; `None` for any other container.
    pub(crate) fn read(labels: &HashMap<String, String>) -> Option<Self> {
        if labels.get(MANAGED).map(String::as_str) != Some("true") {
            return None;
        }
        let text = |name| labels.get(name).filter(|text| !text.is_empty()).cloned();
        Some(Self {
            owner: text(OWNER),
            user: text(USER),
            group: text(GROUP),
            key: text(KEY),
            digest: text(DIGEST),
            name: text(NAME),
            expires: text(EXPIRES).as_deref().and_then(Moment::parse),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_read_as_they_were_written() {
        let labels = Labels {
            owner: Some("s".to_owned()),
            user: Some("acme/ann".to_owned()),
            key: Some("k=1".to_owned()),
            expires: Moment::parse("2026-03-31T09:00:00Z"),
            ..Labels::default()
        };
        assert_eq!(Labels::read(&labels.write()), Some(labels.clone()));
        let mut foreign = labels.write();
        foreign.remove(MANAGED);
        assert_eq!(Labels::read(&foreign), None);
    }
}
