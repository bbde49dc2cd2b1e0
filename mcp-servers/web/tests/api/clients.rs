//! Published clients call every tool.

use serde_json::json;

use crate::harness::World;
use crate::published::call_every_tool;
use crate::site::{Reply, Site};

#[tokio::test]
#[ignore = "requires published clients: scripts/mcp-conformance clients"]
async fn published_clients_call_every_tool() {
    let answer = json!({ "candidates": [{
        "content": { "role": "model", "parts": [{ "text": "42" }] },
        "finishReason": "STOP",
        "groundingMetadata": { "groundingChunks": [{ "web": { "title": "a", "uri": "https://a.example/" } }] },
    }] });
    let site = Site::start(move |path| match path {
        "/page" => Reply::ok("text/html", "<h1>A page</h1><p>Its text.</p>"),
        _ => Reply::ok("application/json", answer.to_string()),
    })
    .await;
    let world = World::with(&[&site])
        .set("GEMINI_API_KEY", "canary-key")
        .set("GEMINI_BASE_URL", &site.url(""));
    let calls = json!([
        { "tool": "web_fetch", "arguments": { "url": site.url("/page") } },
        { "tool": "google_web_search", "arguments": { "query": "the answer" } },
    ]);
    call_every_tool(&world.program(), calls).await;
}
