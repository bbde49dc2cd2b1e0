//! Published clients call every tool.

use serde_json::json;

use crate::engine::IMAGE;
use crate::harness::world;
use crate::published::call_every_tool;

#[tokio::test]
#[ignore = "requires published clients: scripts/mcp-conformance clients"]
async fn published_clients_call_every_tool() {
    let Some((_, world)) = world() else { return };
    let container = json!({ "containerId": "$container" });
    let script = "echo 'fn main() {}' >main.rs; cat main.rs";
    let calls = json!([
        {
            "tool": "createContainer",
            "arguments": { "options": { "image": IMAGE, "name": "one", "group": "clients" } },
            "keep": { "container": "id" },
        },
        { "tool": "executeScript", "arguments": { "containerId": "$container", "script": script } },
        { "tool": "readFileInContainer", "arguments": { "containerId": "$container", "path": "main.rs" } },
        { "tool": "getAllSourceFiles", "arguments": container },
        { "tool": "listContainers", "arguments": { "all": true } },
        { "tool": "destroyContainer", "arguments": container },
        { "tool": "cleanupGroupContainers", "arguments": { "group": "clients" } },
    ]);
    call_every_tool(&world.program(), calls).await;
}
