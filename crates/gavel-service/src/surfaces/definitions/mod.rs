//! The definitions of agents: which agents there are, from files and through the API, and whether each can run now.

mod directory;
mod files;
mod listed;
mod project;
mod put;

pub use directory::Directory;
pub use files::FileAgents;
pub use listed::Put;
pub use project::{Lack, Project, lack};

use super::StoreFailure;
use crate::domain::definition::ReadError;
use crate::ports::records::QueryError;

/// Why a definition was not put.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PutError {
    /// There is no such agent or version; or the store failed.
    #[error(transparent)]
    Store(#[from] StoreFailure),
    /// The definition is invalid; all errors at once.
    #[error("the definition is invalid")]
    InvalidDefinition(Vec<ReadError>),
    /// The caller lacks this role.
    #[error("the role {0} is required")]
    MissingRole(&'static str),
    /// The agent is from a file, which cannot be changed through the API.
    #[error("the agent is from a file")]
    FromFile,
    /// Another version is current: this one; 0 for none.
    #[error("version {0} is current")]
    VersionConflict(i64),
    /// The project has the maximum number of API agents: this many.
    #[error("the project has {0} agents, which is the maximum")]
    TooManyAgents(usize),
    /// Other processes put other definitions of the project all the time.
    #[error("the service is overloaded")]
    Overloaded,
}

impl From<QueryError> for PutError {
    fn from(error: QueryError) -> Self {
        Self::Store(error.into())
    }
}
