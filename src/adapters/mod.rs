//! Implementations of the ports.

pub mod demo;

pub use gavel_gemini as gemini;
pub use gavel_mcp as mcp;
pub use gavel_store as store;
pub use gavel_store::quota;
pub use gavel_upstream::jwks;
