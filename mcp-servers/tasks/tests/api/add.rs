use serde_json::{Value, json};

use crate::harness::World;

everywhere! {
    /// C-US1-1
    async fn a_task_to_call_mom_is_added_with_that_description(world: World) {
        let anna = world.caller("anna").await;
        let added = anna
            .call("add_task", json!({ "description": "call mom" }))
            .await
            .ok();
        let task = &added["task"];
        assert_eq!(task["description"], "call mom");
        assert_eq!(task["status"], "open");
        assert_eq!(task["priority"], "normal");
        assert!(task.get("due").is_none());
        let listed = anna.call("list_tasks", json!({})).await.ok();
        assert_eq!(listed["tasks"][0]["id"], task["id"]);
        assert_eq!(listed["total"], 1);
    }

    /// C-US1-4
    async fn a_task_keeps_its_due_date_priority_and_notes(world: World) {
        let anna = world.caller("anna").await;
        for due in ["2026-11-22", "2026-11-22T09:30:00Z", "2026-11-22T09:30:00+05:30"] {
            let given = json!({
                "description": "buy groceries", "due": due, "priority": "high",
                "notes": "milk,\neggs 🥚"
            });
            let task = anna.call("add_task", given).await.ok()["task"].clone();
            assert_eq!(task["due"], due);
            assert_eq!(task["priority"], "high");
            assert_eq!(task["notes"], "milk,\neggs 🥚");
        }
    }

    /// C-FR-002
    async fn white_space_around_a_description_is_dropped(world: World) {
        let anna = world.caller("anna").await;
        let task = anna.add(" \n call mom\t ").await;
        assert_eq!(task["description"], "call mom");
    }

    /// C-FR-002
    async fn five_hundred_characters_of_any_script_fit(world: World) {
        let anna = world.caller("anna").await;
        for character in ["a", "ß", "汉", "🎉", "\u{fdfa}"] {
            let text = character.repeat(500);
            let task = anna.add(&text).await;
            assert_eq!(task["description"], text);
            let found = anna
                .call("complete_task", json!({ "title": text }))
                .await
                .ok();
            assert_eq!(found["task"]["id"], task["id"]);
        }
    }

    /// C-FR-002
    async fn the_same_task_can_be_added_twice(world: World) {
        let anna = world.caller("anna").await;
        assert_ne!(anna.add("buy milk").await["id"], anna.add("buy milk").await["id"]);
        assert_eq!(anna.descriptions(json!({})).await.len(), 2);
    }

    /// C-FR-012
    async fn invalid_arguments_are_answered_with_their_error_and_add_nothing(world: World) {
        let anna = world.caller("anna").await;
        let long = "a".repeat(501);
        let long_notes = "n".repeat(4001);
        let cases: &[(Value, &str, &str)] = &[
            (json!({}), "missing_argument", "description"),
            (json!({ "description": null }), "missing_argument", "description"),
            (json!({ "description": "" }), "invalid_argument", "description"),
            (json!({ "description": " \t\u{200b} " }), "invalid_argument", "description"),
            (json!({ "description": 7 }), "invalid_argument", "description"),
            (json!({ "description": ["x"] }), "invalid_argument", "description"),
            (json!({ "description": long }), "too_long", "description"),
            (json!({ "description": "a\0b" }), "nul_character", "description"),
            (json!({ "description": "x", "notes": long_notes }), "too_long", "notes"),
            (json!({ "description": "x", "notes": "\0" }), "nul_character", "notes"),
            (json!({ "description": "x", "due": "tomorrow" }), "invalid_due", "due"),
            (json!({ "description": "x", "due": "" }), "invalid_due", "due"),
            (json!({ "description": "x", "due": "2026-02-30" }), "invalid_due", "due"),
            (json!({ "description": "x", "due": "2026-02-03T10:00:00" }), "invalid_due", "due"),
            (json!({ "description": "x", "due": 20260203 }), "invalid_argument", "due"),
            (json!({ "description": "x", "due": "2026-01-01\0" }), "nul_character", "due"),
            (json!({ "description": "x", "priority": "urgent" }), "invalid_argument", "priority"),
            (json!({ "description": "x", "priority": 1 }), "invalid_argument", "priority"),
            (json!({ "description": "x", "user_id": "bob" }), "unknown_argument", "user_id"),
            (json!({ "description": "x", "Due": "2026-01-01" }), "unknown_argument", "Due"),
        ];
        for (arguments, code, argument) in cases {
            let reply = anna.call("add_task", arguments.clone()).await;
            assert_eq!(reply.code(), *code, "{arguments}");
            assert_eq!(reply.error()["argument"], *argument, "{arguments}");
        }
        let invalid_date = anna
            .call("add_task", json!({ "description": "x", "due": "next week" }))
            .await;
        let message = invalid_date.error()["message"].as_str().expect("a message").to_owned();
        assert!(message.contains("YYYY-MM-DD") && message.contains("RFC 3339"), "{message}");
        assert!(anna.descriptions(json!({ "status": "all" })).await.is_empty());
    }

    /// C-FR-002
    async fn an_optional_argument_that_is_null_counts_as_left_out(world: World) {
        let anna = world.caller("anna").await;
        let given = json!({ "description": "x", "due": null, "priority": null, "notes": null });
        let task = anna.call("add_task", given).await.ok()["task"].clone();
        assert_eq!(task["priority"], "normal");
        assert!(task.get("notes").is_none());
    }
}
