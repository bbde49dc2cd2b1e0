//! What stands behind the ports. Only `app` names them.

pub mod quota;
pub mod store;
pub mod gemini;
