//! The implementations of the ports. Only `app` names them.

pub mod demo;
pub mod gemini;
pub mod jwks;
pub mod mcp;
pub mod quota;
pub mod store;

mod breaker;
mod handover;
mod labels;
mod upstream;
