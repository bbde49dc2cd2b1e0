//! What the HTTP API says: one type for each body. The store reads rows into it, the surfaces return it, HTTP sends it,
//! the OpenAPI document describes it, and the CLI reads it.
#![warn(missing_docs)]

pub mod agents;
pub mod approvals;
pub mod chat;
pub mod decisions;
pub mod events;
pub mod exports;
pub mod filter;
pub mod names;
mod page;
pub mod planning;
pub mod problem;
pub mod runs;
pub mod spelling;
pub mod stats;
pub mod threads;
pub mod why;

use gavel_core::domain;

pub use page::Page;
pub(crate) use page::page;
