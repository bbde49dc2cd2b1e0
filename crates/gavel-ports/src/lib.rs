//! The traits through which the engine and the surfaces use the outside world, with their errors.

use std::future::Future;
use std::pin::Pin;

pub mod actions;
pub mod claims;
pub mod clock;
pub mod commit;
pub mod conditions;
pub mod definitions;
pub mod exports;
pub mod keys;
pub mod metrics;
pub mod model;
pub mod planning;
pub mod quota;
pub mod records;
pub mod runs;
pub mod sessions;
pub mod stats;
pub mod tools;

use gavel_api as api;
use gavel_core::domain;

/// A boxed future: these traits are used as `dyn`.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
