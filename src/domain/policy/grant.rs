//! What a person has allowed for good: one tool, for exactly one set of recipients, each in its argument.

use std::sync::Arc;

use crate::domain::address::Recipients;

/// A grant of a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Its id.
    pub id: Arc<str>,
    /// Whose calls it is about.
    pub user: Arc<str>,
    /// The server's name in `mcp.json`.
    pub server: Arc<str>,
    /// The tool's name on that server.
    pub tool: Arc<str>,
    /// Of the tool's definition when leave was given: what another one may do with other arguments nobody has looked at.
    pub digest: Arc<str>,
    /// Everybody who gets it. Never empty: a call that reaches nobody is not what was allowed.
    pub recipients: Recipients,
}

impl Grant {
    /// Is it about a call of this user's of this tool, to exactly these recipients? One more, in whatever argument, is
    /// another set, and so is one less, and so is one that stands in another argument: who was in `bcc` is not shown in `to`.
    #[must_use]
    pub fn covers(&self, user: &str, server: &str, tool: &str, digest: &str, recipients: &Recipients) -> bool {
        !recipients.is_empty()
            && &*self.user == user
            && &*self.server == server
            && &*self.tool == tool
            && &*self.digest == digest
            && self.recipients == *recipients
    }
}
