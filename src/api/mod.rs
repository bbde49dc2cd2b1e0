//! What the HTTP API says: one type for each answer. The store reads rows into it, the surfaces return it, HTTP sends it,
//! the OpenAPI document describes it, and the CLI reads it.

mod decisions;
mod page;
mod time;

pub use decisions::{
    CallStatus, DecisionDetail, DecisionRecord, RecordStatus, RecordedResult, RecordedUsage, ToolInvocation,
};
pub use decisions::{DecisionPage, ToolInvocationPage};
pub use page::Page;
pub(crate) use page::page;
pub use time::Timestamp;
