//! Data that an MCP server sends: lines of a child process, events over HTTP, call results, tool lists.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    gavel::fuzzing::mcp::lines(bytes);
    gavel::fuzzing::mcp::events(bytes);
    gavel::fuzzing::mcp::result(bytes);
    gavel::fuzzing::mcp::tools(bytes);
});
