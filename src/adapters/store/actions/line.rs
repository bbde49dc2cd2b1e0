//! The kind of a thread's line, by its name in the database.

use crate::domain::thread::{MessageKind, MessageRole};

/// One line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Line {
    /// A message of the user or of the agent.
    Said(MessageRole),
    /// Any other kind of line.
    Of(MessageKind),
}

impl Line {
    pub(in super::super) const USER: Self = Self::Said(MessageRole::User);
    pub(in super::super) const ASSISTANT: Self = Self::Said(MessageRole::Assistant);

    /// The name in the column `role`.
    pub(in super::super) const fn as_str(self) -> &'static str {
        match self {
            Self::Said(role) => role.as_str(),
            Self::Of(kind) => kind.as_str(),
        }
    }

    /// Parses the name; `None` for an unknown name.
    pub(in super::super) fn parse(text: &str) -> Option<Self> {
        let kind = || MessageKind::parse(text).filter(|kind| kind.role().is_some());
        MessageRole::parse(text)
            .map(Self::Said)
            .or_else(|| kind().map(Self::Of))
    }

    pub(in super::super) fn role(self) -> MessageRole {
        match self {
            Self::Said(role) => role,
            Self::Of(kind) => kind.role().unwrap_or(MessageRole::Assistant),
        }
    }

    pub(in super::super) const fn kind(self) -> MessageKind {
        match self {
            Self::Said(_) => MessageKind::Message,
            Self::Of(kind) => kind,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_read_as_it_was_written() {
        let kinds = MessageKind::ALL.iter().filter(|kind| kind.role().is_some());
        let lines = [Line::USER, Line::ASSISTANT]
            .into_iter()
            .chain(kinds.map(|kind| Line::Of(*kind)));
        for line in lines {
            assert_eq!(Line::parse(line.as_str()), Some(line));
        }
        assert_eq!(Line::parse("message"), None);
    }
}
