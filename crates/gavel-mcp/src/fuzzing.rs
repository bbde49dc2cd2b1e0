//! Entry points for `fuzz/`: reads arbitrary bytes as an MCP server's messages.

use std::convert::Infallible;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use serde_json::Value;
use sse_stream::SseStream;

use super::config::McpConfig;
use super::definition;
use super::inbox::testing::inbox;
use super::lines::{Line, Lines};
use super::message;
use super::result;
use super::source::{self, Source};

fn now<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(work)
}

/// Reads a child's standard output.
pub fn lines(bytes: &[u8]) {
    now(async {
        let mut lines = Lines::new(bytes, inbox());
        while let Ok(Some(line)) = lines.next().await {
            if let Line::Whole(line, _) = line {
                let _ = message::read(&line, &mut |_| {});
            }
        }
    });
}

/// Reads the events of an answer or a stream, in pieces.
pub fn events(bytes: &[u8]) {
    now(async {
        let pieces: Vec<_> = bytes
            .chunks(61)
            .map(|piece| Ok::<_, Infallible>(Bytes::copy_from_slice(piece)))
            .collect();
        let mut events = SseStream::from_bytes_stream(stream::iter(pieces));
        while let Some(Ok(_)) = events.next().await {}
    });
}

/// Reads the result of a call.
pub fn result(bytes: &[u8]) {
    let _ = result::read(bytes, 256 * 1024, &inbox().source);
}

/// Reads a list of tools: `result.tools` of an answer.
pub fn tools(bytes: &[u8]) {
    let Ok(answer) = serde_json::from_slice::<Value>(bytes) else {
        return;
    };
    let Some(Value::Array(list)) = answer.pointer("/result/tools") else {
        return;
    };
    let text = r#"{"mcpServers": {"s": {"command": "x"}}}"#;
    let config = McpConfig::from_file("mcp.json", text, &|_| None).expect("a configuration");
    let server = &config.servers[0];
    let _ = definition::read(server, &Source::new(server, &source::budget()), list, &[]);
}
