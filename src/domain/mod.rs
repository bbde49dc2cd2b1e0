//! Plain data and its state machines. No I/O, no clock, no randomness but the making of ids.

pub mod agent_run;
pub mod canonical;
pub mod decision;
pub mod definition;
pub mod event;
pub mod ids;
pub mod journal;
pub(crate) mod model_schema;
pub mod nesting;
pub mod surrogates;
pub mod templates;
pub(crate) mod text;
pub mod tool;
