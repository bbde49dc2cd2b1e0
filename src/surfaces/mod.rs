//! The use cases: gavel's library API. The edge extracts, calls one of these, and answers.

pub mod agents;
pub mod caller;
pub mod chat;
pub mod decisions;
