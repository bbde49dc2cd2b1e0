//! What stands behind the ports. Only `app` names them.

pub mod mcp;
