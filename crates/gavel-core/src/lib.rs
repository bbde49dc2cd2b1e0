//! The plain data of gavel and its rules. No I/O.
#![warn(missing_docs)]

pub mod domain;
