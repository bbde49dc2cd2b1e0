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
    /// `session.base`: a branch that may receive the session's changes: the repository's default one, or one of the
    /// session's.
    Base,
    /// `session.created`: what a call of this session created, as `creates` of its tool says.
    Created,
}

impl SessionValue {
    /// Each with its name in `mcp.json`.
    pub const NAMES: [(&'static str, Self); 5] = [
        ("session.owner", Self::Owner),
        ("session.repo", Self::Repo),
        ("session.branch", Self::Branch),
        ("session.base", Self::Base),
        ("session.created", Self::Created),
    ];

    /// Does it say where an effect takes place? Without such an argument the server would choose.
    #[must_use]
    pub const fn names_a_place(self) -> bool {
        matches!(self, Self::Owner | Self::Repo | Self::Branch)
    }

    /// Its name in `mcp.json`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        Self::NAMES[self as usize].0
    }
}
