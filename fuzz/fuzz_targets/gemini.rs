//! Gemini's responses, both complete and streamed in chunks.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    gavel::fuzzing::gemini::unary(bytes);
    for piece in [1, 7, bytes.len()] {
        gavel::fuzzing::gemini::stream(bytes, piece);
    }
});
