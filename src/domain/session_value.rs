//! What `scope` of `mcp.json` can say of an argument.

/// What of a planning session an argument of a tool has to match (`scope` of `mcp.json`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SessionValue {
    /// `session.owner`: the owner of the session's repository.
    Owner,
    /// `session.repo`: the name of the session's repository.
    Repo,
    /// `session.branch`: a branch that the session may write, known by its prefix.
    Branch,
}

impl SessionValue {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Owner, Self::Repo, Self::Branch];

    /// Its name in `mcp.json`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Owner => "session.owner",
            Self::Repo => "session.repo",
            Self::Branch => "session.branch",
        }
    }
}
