//! Transports beside standard input and output.

pub(crate) mod http;
