//! Published clients call every tool.

use serde_json::json;

use crate::harness::World;
use crate::published::call_every_tool;

#[tokio::test]
#[ignore = "requires published clients: scripts/mcp-conformance clients"]
async fn published_clients_call_every_tool() {
    let calls = json!([{ "tool": "run_shell_command", "arguments": { "command": "echo $run >file; cat file" } }]);
    call_every_tool(&World::at("auto").program(), calls).await;
}
