//! What stands behind the ports. Only `app` names them.

pub mod demo;
pub mod quota;
pub mod store;
pub mod gemini;
pub mod mcp;
