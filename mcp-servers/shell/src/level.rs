//! How strictly commands are contained.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What contains a command. It never changes while the server runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Namespaces of its own, by bubblewrap, and a filter of system calls.
    Bwrap,
    /// The kernel's Landlock, and a filter of system calls.
    Landlock,
    /// Nothing but the limits of resources.
    Host,
}

impl Level {
    /// The name, as in settings and results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bwrap => "bwrap",
            Self::Landlock => "landlock",
            Self::Host => "host",
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
