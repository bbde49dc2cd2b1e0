//! What the clients of servers share: connections, circuit breakers, the exact moment a request is handed over, keys of
//! issuers.

pub mod breaker;
pub mod handover;
pub mod jwks;
pub mod labels;
pub mod upstream;

use gavel_ports as ports;
