//! How calls reach the server beside standard input and output.

pub(crate) mod http;
