//! The filter language of list endpoints.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| gavel::fuzzing::filter(text));
