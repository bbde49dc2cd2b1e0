//! The use cases: gavel's library API. The edge extracts, calls one of these, and answers.

pub mod agents;
pub mod approvals;
pub mod caller;
pub mod chat;
pub mod decisions;
pub mod sessions;
pub mod threads;
