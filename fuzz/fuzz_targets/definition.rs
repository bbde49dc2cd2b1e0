//! Agent definitions in each format, and policy files.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gavel::fuzzing::definition(bytes));
