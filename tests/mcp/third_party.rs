//! Published servers, unmodified.
