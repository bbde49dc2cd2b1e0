//! How strictly commands are contained.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::Display;

/// What contains a command. It never changes while the server runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema, Display)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Level {
    /// Namespaces of its own, by bubblewrap, and a filter of system calls.
    Bwrap,
    /// The kernel's Landlock, and a filter of system calls.
    Landlock,
    /// Nothing but the limits of resources.
    Host,
}
