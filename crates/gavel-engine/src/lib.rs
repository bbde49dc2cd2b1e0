//! The engine: one loop for all surfaces.
//!
//! The journal is the state. A run's [`strategy`] decides from it without I/O; [`ask`] and [`act`] do the I/O and append
//! the results. Looping, approval, recovery and resume all consist of asking it again ([`steps`]). The engine reads no
//! database, and only `act` calls a tool.
//!
//! An [`agent`] run is built from a definition, its inputs and limits. A [`flow`] is a run whose calls come from the
//! definition instead of a model. A run calls other agents through a port ([`children`]), so nothing here but `agent`
//! knows how agents are run. [`write`] makes the journal durable while it grows.

pub mod act;
pub mod agent;
pub mod approvals;
pub mod ask;
pub mod context;
pub mod derive;
pub mod doom_loop;
pub mod flow;
pub mod gate;
pub mod journal;
pub mod ledger;
pub mod limits;
pub mod live;
pub mod log;
pub mod next;
pub mod opening;
pub mod planning;
pub mod projection;
pub mod record;
pub mod run;
pub mod snapshot;
pub mod steps;
pub mod strategy;
pub mod toolset;
pub mod trace;
pub mod verdict;
pub mod write;

pub mod checks;
mod events;
mod memory;
mod notices;
mod spans;

#[cfg(any(test, feature = "testing"))]
pub mod testing;

use gavel_api as api;
use gavel_core::domain;
use gavel_ports as ports;

pub use self::record::iterations;
pub use events::EventSink;
pub use limits::Limits;
pub use next::{Ending, Next, next};
pub use projection::tool_name;
pub use record::{Durability, Record};
pub use run::{Context, Engine, Run};
pub use strategy::Strategy;
pub use toolset::Toolset;
