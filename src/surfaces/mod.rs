//! The use cases: gavel's library API. The HTTP layer extracts the input, calls one of these, and answers.

pub mod agents;
pub mod approvals;
pub mod caller;
pub mod chat;
pub mod decisions;
pub mod sessions;
pub mod threads;
