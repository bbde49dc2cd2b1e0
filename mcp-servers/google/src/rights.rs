//! Whom a request acts for, and the rights that it needs.

use gavel_mcp_base::UserId;
use tokio::time::Instant;

use crate::settings::PROFILE;

/// A right that a request needs, and the scopes that include it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Right {
    Send,
    ReadMail,
    WriteEvents,
}

impl Right {
    pub(crate) const ALL: [Self; 3] = [Self::Send, Self::ReadMail, Self::WriteEvents];

    /// The narrowest scope comes first.
    pub(crate) fn scopes(self) -> &'static [&'static str] {
        match self {
            Self::Send => &[
                "https://www.googleapis.com/auth/gmail.send",
                "https://www.googleapis.com/auth/gmail.compose",
                "https://www.googleapis.com/auth/gmail.modify",
                "https://mail.google.com/",
            ],
            Self::ReadMail => &[
                "https://www.googleapis.com/auth/gmail.readonly",
                "https://www.googleapis.com/auth/gmail.metadata",
                "https://www.googleapis.com/auth/gmail.modify",
                "https://mail.google.com/",
            ],
            Self::WriteEvents => &[
                "https://www.googleapis.com/auth/calendar.events",
                "https://www.googleapis.com/auth/calendar.events.owned",
                "https://www.googleapis.com/auth/calendar.app.created",
                "https://www.googleapis.com/auth/calendar",
            ],
        }
    }

    pub(crate) fn name(self) -> &'static str {
        self.scopes()[0]
    }

    pub(crate) fn granted_by(self, scopes: &str) -> bool {
        let mut granted = scopes.split_ascii_whitespace();
        granted.any(|scope| self.scopes().contains(&scope))
    }
}

/// The user of a call, the account it is meant for, and its deadline.
#[derive(Debug, Clone, Copy)]
pub(crate) struct As<'a> {
    pub(crate) user: &'a UserId,
    /// If set, the call is not made from another account of the user.
    pub(crate) mailbox: Option<&'a str>,
    pub(crate) deadline: Instant,
}

/// The requested scopes to which the user did not consent, except those whose rights other scopes include, and those
/// for the user's profile.
pub(crate) fn not_granted(asked: &[String], granted: &str) -> Vec<String> {
    let is_there = |scope: &str| {
        let mut rights = Right::ALL
            .into_iter()
            .filter(|right| right.scopes().contains(&scope))
            .peekable();
        granted.split_ascii_whitespace().any(|given| given == scope)
            || PROFILE.contains(&scope)
            || rights.peek().is_some() && rights.all(|right| right.granted_by(granted))
    };
    asked.iter().filter(|scope| !is_there(scope)).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_consent_is_reported_unless_another_scope_allows_it() {
        let scope = |name: &str| format!("https://www.googleapis.com/auth/{name}");
        let asked = [
            "gmail.send",
            "gmail.readonly",
            "calendar.events",
            "userinfo.email",
            "drive",
        ]
        .map(scope);
        let missing = |granted: &[&str]| {
            let granted: Vec<_> = granted.iter().map(|name| scope(name)).collect();
            not_granted(&asked, &granted.join(" "))
        };
        assert_eq!(
            missing(&["gmail.send"]),
            ["gmail.readonly", "calendar.events", "drive"].map(scope)
        );
        assert_eq!(missing(&["gmail.modify", "calendar", "drive"]), [""; 0]);
        assert_eq!(
            missing(&["gmail.send", "gmail.metadata", "drive"]),
            [scope("calendar.events")]
        );
    }
}
