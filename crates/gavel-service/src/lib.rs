//! The surfaces, which are gavel's library API, and their HTTP edge.

pub mod http;
pub mod surfaces;

use gavel_api as api;
use gavel_core::domain;
use gavel_engine as engine;
use gavel_ports as ports;
