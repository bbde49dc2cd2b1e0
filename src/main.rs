//! The `gavel` binary.

fn main() {}
