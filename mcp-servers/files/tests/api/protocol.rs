use rmcp::ClientLifecycleMode;
use rmcp::model::{ErrorCode, ProtocolVersion};
use rmcp::service::ServiceError;
use serde_json::{Value, json};

use crate::harness::{Caller, World, client};

/// D-E: both ways to initialize, as in old and new clients.
#[tokio::test]
async fn the_four_tools_are_listed_in_one_order_and_say_that_they_only_read() {
    let world = World::new();
    let lifecycles = [
        ClientLifecycleMode::Initialize,
        ClientLifecycleMode::Discover {
            preferred_versions: vec![ProtocolVersion::V_2026_07_28],
        },
    ];
    for lifecycle in lifecycles {
        let client = client(world.program(), lifecycle).await;
        let server = client.peer_info().expect("the server introduced itself");
        let implementation = server.server_info.clone().expect("a name");
        assert_eq!(implementation.name, "gavel-mcp-files");
        let tools = client.list_all_tools().await.expect("tools");
        let names: Vec<_> = tools.iter().map(|tool| tool.name.as_ref()).collect();
        assert_eq!(names, ["ls", "read_file", "glob", "grep"]);
        for tool in tools {
            let hints = tool.annotations.expect("annotations");
            assert_eq!(hints.read_only_hint, Some(true));
            assert_eq!(hints.destructive_hint, Some(false));
            assert_eq!(hints.idempotent_hint, Some(true));
            assert_eq!(hints.open_world_hint, Some(false));
        }
    }
}

/// D-E: an object at the root, described properties, and only keywords that the Gemini API supports.
#[tokio::test]
async fn input_schemas_keep_to_what_gemini_takes() {
    const KNOWN: [&str; 6] = ["type", "description", "minLength", "maxLength", "minimum", "maximum"];
    let world = World::new();
    for tool in world.caller().await.client.list_all_tools().await.expect("tools") {
        assert_eq!(tool.input_schema["type"], "object");
        assert_eq!(tool.input_schema["additionalProperties"], false);
        for (name, schema) in tool.input_schema["properties"].as_object().expect("properties") {
            let schema = schema.as_object().expect("a schema");
            assert!(
                schema.keys().all(|keyword| KNOWN.contains(&keyword.as_str())),
                "{}: {name}",
                tool.name
            );
            assert!(schema["description"].as_str().is_some_and(|text| text.len() > 15));
        }
    }
}

/// D-E
#[tokio::test]
async fn schemas_and_the_server_agree_on_which_arguments_there_are() {
    let world = World::new();
    let caller = world.caller().await;
    for tool in caller.client.list_all_tools().await.expect("tools") {
        let reply = caller.call(&tool.name, json!({ "no_such": 1 })).await;
        assert_eq!(reply.code(), "unknown_argument");
        let properties = tool.input_schema["properties"].as_object().expect("properties");
        for name in properties.keys() {
            assert!(reply.message().contains(name), "{}: {}", tool.name, reply.message());
        }
        let required = tool.input_schema.get("required").and_then(Value::as_array);
        for name in required.into_iter().flatten() {
            let name = name.as_str().expect("a name");
            let reply = caller.call(&tool.name, json!({})).await;
            assert!(
                reply.message().contains(&format!("`{name}` is missing")),
                "{}",
                reply.message()
            );
        }
    }
}

/// D-E
#[tokio::test]
async fn arguments_of_another_type_are_refused_and_the_server_continues() {
    let world = World::new();
    world.file("a", "text");
    let caller = world.caller().await;
    let invalid = [
        ("ls", json!({ "path": 1 })),
        ("ls", json!({ "path": ["a"] })),
        ("ls", json!({ "path": "a/".repeat(3000) })),
        ("ls", json!({ "path": "a".repeat(300) })),
        ("read_file", json!({ "path": "a", "offset": 0 })),
        ("read_file", json!({ "path": "a", "offset": -1 })),
        ("read_file", json!({ "path": "a", "offset": 1.5 })),
        ("read_file", json!({ "path": "a", "offset": 1e300 })),
        ("read_file", json!({ "path": "a", "limit": 2001 })),
        ("read_file", json!({ "path": "a", "limit": "5" })),
        ("glob", json!({ "pattern": {} })),
        ("grep", json!({ "pattern": "x", "ignore_case": "yes" })),
    ];
    assert_eq!(
        caller.call("ls", json!({ "path": "a\0b" })).await.code(),
        "nul_character"
    );
    assert_eq!(
        caller.call("read_file", json!({ "path": null })).await.code(),
        "missing_argument"
    );
    for (tool, arguments) in invalid {
        let reply = caller.call(tool, arguments.clone()).await;
        assert_eq!(reply.code(), "invalid_argument", "{tool} {arguments}");
        assert!(reply.message().len() < 600, "{}", reply.message());
    }
    assert_eq!(caller.ok("read_file", json!({ "path": "a" })).await["content"], "text");
}

/// D-E
#[tokio::test]
async fn an_unknown_tool_is_a_protocol_error() {
    let world = World::new();
    let caller: Caller = world.caller().await;
    for name in ["write_file", "", "LS"] {
        let Err(ServiceError::McpError(error)) = caller.try_call(name, Value::Null).await else {
            panic!("{name} was answered");
        };
        assert_eq!(error.code, ErrorCode::INVALID_PARAMS, "{name}");
    }
}

/// D-E
#[tokio::test]
async fn a_root_that_cannot_be_served_ends_the_program_with_its_name() {
    let world = World::new();
    world.file("a.txt", "");
    for root in ["root/a.txt", "root/none"] {
        let mut program = tokio::process::Command::new(env!("CARGO_BIN_EXE_gavel-mcp-files"));
        program.arg("--root").arg(world.directory().join(root));
        let ended = program.output().await.expect("the program starts");
        assert!(!ended.status.success());
        let error = String::from_utf8(ended.stderr).expect("a text");
        assert!(error.contains(root), "{error}");
    }
}
