//! The filter language of lists.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| gavel::fuzzing::filter(text));
