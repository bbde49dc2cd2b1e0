//! Ids. gavel's own are UUIDv7 (sortable by creation time); a caller's ids are checked text.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::names::{Shape, Shaped};
use super::text::is_hidden;

/// The tenant of a caller that names none.
pub const DEFAULT_TENANT: &str = "default";

/// The project of agents from files.
pub const DEFAULT_PROJECT: &str = "default";

macro_rules! uuid_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(Uuid);

        impl $name {
            /// A new id, which sorts after all earlier ones of this process.
            #[allow(clippy::new_without_default)]
            pub fn new() -> Self {
                Self(Uuid::now_v7())
            }
            /// Parses the hyphenated text form.
            pub fn parse(text: &str) -> Option<Self> {
                Uuid::try_parse(text).ok().map(Self)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.as_hyphenated().fmt(f)
            }
        }

        impl FromStr for $name {
            type Err = &'static str;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Self::parse(text).ok_or("an id is a UUID, such as 0198c2b5-7d8e-7c52-9d3b-5a1c4e6f7a80")
            }
        }

        impl Shaped for $name {
            fn shape() -> Shape {
                Shape::UUID
            }
        }

        /// What has no conversation of its caller is one of its own.
        impl From<$name> for ConversationId {
            fn from(id: $name) -> Self {
                Self(id.to_string())
            }
        }
    };
}

uuid_id!(
    /// A decision; on the chat surface also the id of its run.
    DecisionId
);
uuid_id!(
    /// A tool call that the model proposed (an action, `gavel/action_id`).
    ActionId
);
uuid_id!(
    /// A run of an agent. Its decision has the same bits.
    RunId
);

impl RunId {
    /// The id of the run's decision.
    #[must_use]
    pub fn decision(self) -> DecisionId {
        DecisionId(self.0)
    }
}

impl DecisionId {
    /// The run that it would be of.
    #[must_use]
    pub fn run(self) -> RunId {
        RunId(self.0)
    }
}

uuid_id!(
    /// An approval request for one action.
    ApprovalId
);
uuid_id!(
    /// A grant.
    GrantId
);
uuid_id!(
    /// A thread of a user.
    ThreadId
);

uuid_id!(
    /// A planning session of a user.
    PlanningSessionId
);

uuid_id!(
    /// An export of a log.
    ExportId
);

uuid_id!(
    /// An erasure of a user's texts.
    ErasureId
);

uuid_id!(
    /// A running gavel process, the owner of its open rows.
    InstanceId
);

/// Why a caller's id was rejected, and what is allowed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    /// It is empty.
    #[error("must not be empty")]
    Empty,
    /// It exceeds [`MAX_EXTERNAL_ID`] bytes.
    #[error("has {0} bytes; at most {MAX_EXTERNAL_ID} are allowed")]
    TooLong(usize),
    /// It has a blank that a reader may not see.
    #[error("has a blank at its start or end, or two blanks in a row; one blank between two characters is allowed")]
    Blank,
    /// It has a control character (NUL included) or another invisible character. A name must show everything it
    /// contains.
    #[error("contains the invisible character U+{:04X}, which is not allowed", u32::from(*.0))]
    Unseen(char),
}

/// The longest id of a caller, in bytes.
pub const MAX_EXTERNAL_ID: usize = 256;

/// Blank in most fonts, but neither white space nor control characters. Texts may contain them, names must not.
const BLANKS: [char; 3] = ['\u{2800}', '\u{16fe4}', '\u{1d159}'];

/// Two ids that differ must also look different, so an id has no character that a reader cannot see. Texts may contain the
/// two joiners, since some scripts need them; ids may not.
fn checked(text: String) -> Result<String, IdError> {
    let is_joiner = |c: char| matches!(c, '\u{200c}' | '\u{200d}');
    let is_blank = |c: char| c.is_control() || c.is_whitespace() && c != ' ' || BLANKS.contains(&c);
    let unseen = text.chars().find(|c| is_blank(*c) || is_joiner(*c) || is_hidden(*c));
    match unseen {
        _ if text.is_empty() => Err(IdError::Empty),
        _ if text.len() > MAX_EXTERNAL_ID => Err(IdError::TooLong(text.len())),
        Some(c) => Err(IdError::Unseen(c)),
        None if text.split(' ').any(str::is_empty) => Err(IdError::Blank),
        None => Ok(text),
    }
}

macro_rules! external_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(try_from = "String")]
        pub struct $name(String);

        impl Shaped for $name {
            fn shape() -> Shape {
                Shape::Text(None, None)
            }
        }

        impl TryFrom<String> for $name {
            type Error = IdError;

            fn try_from(text: String) -> Result<Self, IdError> {
                Self::parse(text)
            }
        }

        impl FromStr for $name {
            type Err = IdError;

            fn from_str(text: &str) -> Result<Self, IdError> {
                Self::parse(text)
            }
        }

        impl $name {
            /// Accepts 1..=256 bytes without invisible characters; each blank is single, between two others.
            ///
            /// # Errors
            /// [`IdError`] names the problem.
            pub fn parse(text: impl Into<String>) -> Result<Self, IdError> {
                checked(text.into()).map(Self)
            }
            /// The text as the caller sent it.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

external_id!(
    /// The user on whose behalf the caller acts.
    UserId
);
impl Default for TenantId {
    fn default() -> Self {
        Self(DEFAULT_TENANT.to_owned())
    }
}

impl Default for ProjectId {
    fn default() -> Self {
        Self(DEFAULT_PROJECT.to_owned())
    }
}

impl UserId {
    /// A name that is unique across tenants: the user's own in the tenant `default`, else `TENANT/USER`, with `%2F` and
    /// `%25` for `/` and `%` in the tenant. A user of `default` whose own name has a `/` is `default/USER`.
    pub fn within<'a>(&'a self, tenant: &TenantId) -> Cow<'a, str> {
        match tenant.as_str() == DEFAULT_TENANT && !self.0.contains('/') {
            true => Cow::Borrowed(&self.0),
            false => {
                let tenant = tenant.as_str().replace('%', "%25").replace('/', "%2F");
                Cow::Owned(format!("{tenant}/{}", self.0))
            }
        }
    }
}

external_id!(
    /// The caller's conversation; opaque to gavel.
    ConversationId
);
external_id!(
    /// The project that agents belong to. `default` has the agents from files.
    ProjectId
);
external_id!(
    /// The tenant that owns a record (`default` with `auth.mode = none`).
    TenantId
);

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn an_external_id_refuses_what_a_database_or_a_log_would_choke_on() {
        assert_eq!(UserId::parse(""), Err(IdError::Empty));
        assert_eq!(UserId::parse("a\0b"), Err(IdError::Unseen('\0')));
        let turned = UserId::parse("ann\u{202e}").unwrap_err();
        assert_eq!(
            turned.to_string(),
            "contains the invisible character U+202E, which is not allowed"
        );
        assert_eq!(UserId::parse("x".repeat(257)), Err(IdError::TooLong(257)));
        assert_eq!(UserId::parse("ünï").expect("valid").as_str(), "ünï");
    }

    #[test]
    fn a_name_that_shows_nothing_is_none() {
        for blank in [" ", " ann", "ann ", "Ann  Lee", "ann  "] {
            assert_eq!(UserId::parse(blank), Err(IdError::Blank), "{blank:?}");
            assert_eq!(TenantId::parse(blank), Err(IdError::Blank), "{blank:?}");
        }
        let unseen = [
            '\u{3164}',
            '\u{115f}',
            '\u{1160}',
            '\u{2800}',
            '\u{200b}',
            '\u{2060}',
            '\u{feff}',
            '\u{ffa0}',
            '\u{1d159}',
            '\u{2028}',
            '\u{2029}',
            '\u{200c}',
            '\u{200d}',
            '\u{a0}',
            '\u{1680}',
            '\u{2003}',
            '\u{202f}',
            '\u{205f}',
            '\u{3000}',
            '\u{85}',
            '\u{fe0f}',
            '\t',
            '\n',
        ];
        for c in unseen {
            for text in [c.to_string(), format!("ann{c}"), format!("{c}ann"), format!("an{c}n")] {
                assert_eq!(UserId::parse(text.clone()), Err(IdError::Unseen(c)), "{text:?}");
                assert_eq!(TenantId::parse(text.clone()), Err(IdError::Unseen(c)), "{text:?}");
            }
        }
        for name in ["علی", "Ann Lee", "⠁⠝⠝", "안"] {
            assert_eq!(UserId::parse(name).unwrap().as_str(), name);
        }
    }

    #[test]
    fn users_of_two_tenants_never_share_a_name() {
        let names = ["ann", "a/b", "b", "default/ann", "%2F", "acme/ann", "b/c"];
        let tenants = ["default", "acme", "a/b", "a%2Fb", "a", "%"];
        let mut seen = std::collections::HashSet::new();
        for tenant in tenants.map(|name| TenantId::parse(name).unwrap()) {
            for user in names.map(|name| UserId::parse(name).unwrap()) {
                let name = user.within(&tenant).into_owned();
                assert!(seen.insert(name.clone()), "{tenant} {user}: {name}");
            }
        }
        assert!(seen.contains("ann") && seen.contains("acme/ann") && seen.contains("default/a/b"));
    }

    #[test]
    fn ids_sort_by_the_time_they_were_made() {
        let ids: Vec<_> = (0..100).map(|_| DecisionId::new()).collect();
        assert!(ids.is_sorted());
    }
}
