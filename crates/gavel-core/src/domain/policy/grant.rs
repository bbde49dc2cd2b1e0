//! Grants: calls of one tool, to exactly one set of recipients, each in its argument, that require no approval.

use std::sync::Arc;

use crate::domain::address::Recipients;

/// A grant of a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Its id.
    pub id: Arc<str>,
    /// The user whose calls it covers.
    pub user: Arc<str>,
    /// The server's name in `mcp.json`.
    pub server: Arc<str>,
    /// The tool's name on that server.
    pub tool: Arc<str>,
    /// Digest of the tool's definition when the grant was made. A tool with another digest may do something that no
    /// approver has checked.
    pub digest: Arc<str>,
    /// All recipients. Never empty: a call without recipients is not what was approved.
    pub recipients: Recipients,
}

impl Grant {
    /// Whether it covers a call of this user and tool to exactly these recipients. One recipient more or less is
    /// another set. So is a recipient in another argument: recipients in `bcc` are hidden, those in `to` are not.
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
