//! What an MCP server sends: lines of a child, events over HTTP, results of calls, lists of tools.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    gavel::fuzzing::mcp::lines(bytes);
    gavel::fuzzing::mcp::events(bytes);
    gavel::fuzzing::mcp::result(bytes);
    gavel::fuzzing::mcp::tools(bytes);
});
