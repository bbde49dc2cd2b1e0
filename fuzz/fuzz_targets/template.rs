//! Templates of prompts and outputs.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| gavel::fuzzing::template(text));
