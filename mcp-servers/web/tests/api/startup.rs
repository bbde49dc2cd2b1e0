//! Settings, help, and what the server says of itself.

use std::process::Stdio;

use serde_json::Value;

use crate::harness::World;

#[tokio::test]
async fn an_invalid_setting_stops_the_start_and_is_named() {
    for (name, value, words) in [
        ("WEB_ALLOW", "https://example.com", "not a host"),
        ("WEB_DENY", "example.com:80", "not a host"),
        ("WEB_ALLOW_PRIVATE", "127.0.0.1", "not a host with a port"),
        ("WEB_ALLOW_PRIVATE", "10.0.0.0/8", "not a host with a port"),
        ("WEB_ROBOTS", "maybe", "respect or ignore"),
        ("WEB_TIMEOUT_SECONDS", "0", "from 1 to 120"),
        ("WEB_TIMEOUT_SECONDS", "soon", "from 1 to 120"),
        ("GEMINI_API_KEY", "canary two", "one key"),
        ("VERTEX_AI_PROJECT_ID", "p", "set both"),
        ("VERTEX_AI_LOCATION", "global", "set both"),
        ("GOOGLE_CSE_KEY", "canary", "set both"),
        ("GOOGLE_CSE_ID", "x", "set both"),
    ] {
        let output = World::default()
            .set(name, value)
            .program()
            .stdin(Stdio::null())
            .output()
            .await
            .expect("the program runs");
        assert!(!output.status.success(), "{name}={value}");
        assert!(output.stdout.is_empty(), "standard output is for the protocol");
        let said = String::from_utf8(output.stderr).expect("text");
        assert!(said.contains(name) && said.contains(words), "{name}: {said}");
        assert!(!said.contains("canary"), "{name}: {said}");
    }
    for (name, value) in [
        ("GEMINI_BASE_URL", "http://gateway.example"),
        ("GEMINI_BASE_URL", "https://me:canary@gateway.example"),
        ("GEMINI_MODEL", "a/b"),
    ] {
        let world = World::default().set("GEMINI_API_KEY", "canary").set(name, value);
        let output = world
            .program()
            .stdin(Stdio::null())
            .output()
            .await
            .expect("the program runs");
        let said = String::from_utf8(output.stderr).expect("text");
        assert!(
            !output.status.success() && said.contains(name) && !said.contains("canary"),
            "{name}: {said}"
        );
    }
}

#[tokio::test]
async fn an_empty_setting_counts_as_unset() {
    let mut world = World::default();
    for name in [
        "WEB_ALLOW",
        "WEB_DENY",
        "WEB_ALLOW_PRIVATE",
        "WEB_ROBOTS",
        "WEB_TIMEOUT_SECONDS",
    ] {
        world = world.set(name, "");
    }
    let reply = world.server().await.fetch("http://127.0.0.1/").await;
    assert_eq!(reply.code(), "address_refused");
}

#[tokio::test]
async fn the_tools_say_what_they_are() {
    let without = World::default().server().await;
    assert_eq!(without.client.list_all_tools().await.expect("tools/list").len(), 1);
    let server = World::default().set("GEMINI_API_KEY", "canary").server().await;
    let tools = server.client.list_all_tools().await.expect("tools/list");
    let mut tools = serde_json::to_value(tools).expect("JSON");
    for tool in tools.as_array().expect("tools") {
        let hints = &tool["annotations"];
        for (hint, value) in [
            ("readOnlyHint", true),
            ("destructiveHint", false),
            ("idempotentHint", true),
            ("openWorldHint", true),
        ] {
            assert_eq!(hints[hint], value, "{}: {hint}", tool["name"]);
        }
    }
    tools.sort_all_objects();
    insta::assert_json_snapshot!("tools_list", tools);
    let about = server.client.peer_info().expect("a server");
    assert!(serde_json::to_value(about).is_ok_and(|about: Value| about["instructions"].is_string()));
}

#[tokio::test]
async fn the_description_and_a_refusal_name_what_the_operator_permits() {
    let many: String = (0..500).map(|number| format!(",h{number}.example")).collect();
    let (some, few, private) = (
        "docs.example.com,*.example.org",
        "bad.example.org",
        "wiki.internal:9000",
    );
    let some = World::default()
        .set("WEB_ALLOW", some)
        .set("WEB_DENY", few)
        .set("WEB_ALLOW_PRIVATE", private);
    for (world, words) in [
        (
            some,
            "Permitted hosts: docs.example.com, *.example.org; not bad.example.org; also wiki.internal:9000. Ports: 80, ",
        ),
        (
            World::default().set("WEB_ALLOW", "*").set("WEB_DENY", "x.example"),
            "Every public host is permitted; not x.example. ",
        ),
        (
            World::default().set("WEB_ALLOW", &many),
            " more. Ports: 80, 443, 8080, 8443.",
        ),
    ] {
        let server = world.server().await;
        let tools = server.client.list_all_tools().await.expect("tools/list");
        let description = tools[0].description.as_deref().expect("a description");
        assert!(description.contains(words) && description.len() < 2000, "{description}");
        let refused = server.fetch("https://x.example/").await;
        assert_eq!(refused.code(), "url_refused");
        assert!(refused.body.to_string().contains(words), "{}", refused.body);
    }
}

#[tokio::test]
async fn help_teaches() {
    let output = World::default()
        .program()
        .arg("--help")
        .output()
        .await
        .expect("it runs");
    let help = String::from_utf8(output.stdout).expect("text");
    for word in [
        "WEB_ALLOW",
        "WEB_DENY",
        "WEB_ALLOW_PRIVATE",
        "WEB_ROBOTS",
        "WEB_TIMEOUT_SECONDS",
        "GEMINI_API_KEY",
        "GEMINI_API_KEY_FILE",
        "GEMINI_MODEL",
        "GEMINI_BASE_URL",
        "VERTEX_AI_PROJECT_ID",
        "VERTEX_AI_LOCATION",
        "VERTEX_AI_ENDPOINT",
        "VERTEX_AI_API_KEY",
        "GOOGLE_APPLICATION_CREDENTIALS",
        "GOOGLE_CSE_KEY",
        "GOOGLE_CSE_ID",
        "GOOGLE_CSE_URL",
        "Examples:",
    ] {
        assert!(help.contains(word), "{word}");
    }
    assert!(!help.contains("canary"), "a secret of the environment is shown");
}
