use serde_json::json;

use crate::harness::World;

everywhere! {
    /// C-FR-002
    async fn another_users_id_answers_exactly_as_an_unknown_one(world: World) {
        let anna = world.caller("anna").await;
        let bob = world.caller("bob").await;
        let id = anna.add("a secret plan").await["id"].clone();
        let before = anna.call("list_tasks", json!({ "status": "all" })).await;
        for tool in ["update_task", "complete_task", "delete_task"] {
            let aimed_at = |id: &serde_json::Value| match tool {
                "update_task" => json!({ "id": id, "description": "mine" }),
                _ => json!({ "id": id }),
            };
            let guessed = bob.call(tool, aimed_at(&id)).await;
            let unknown = json!("01a1fb6d-8b5e-74a3-8c25-03ad042725e9");
            let unknown = bob.call(tool, aimed_at(&unknown)).await;
            assert_eq!(guessed.code(), "unknown_task");
            assert_eq!(guessed, unknown);
        }
        assert_eq!(anna.call("list_tasks", json!({ "status": "all" })).await, before);
    }

    /// C-FR-002
    async fn no_user_finds_another_users_task_by_list_search_title_or_cursor(world: World) {
        let anna = world.caller("anna").await;
        let bob = world.caller("bob").await;
        for number in 0..3 {
            anna.add(&format!("secret {number}")).await;
        }
        let page = anna.call("list_tasks", json!({ "limit": 1 })).await.ok();
        let nothing = json!({ "tasks": [], "total": 0 });
        let looks = [
            json!({}),
            json!({ "status": "all" }),
            json!({ "query": "secret" }),
            json!({ "cursor": page["next_cursor"] }),
        ];
        for look in looks {
            assert_eq!(bob.call("list_tasks", look).await.ok(), nothing);
        }
        for tool in ["complete_task", "delete_task"] {
            let reply = bob.call(tool, json!({ "title": "secret" })).await;
            assert_eq!(reply.code(), "unknown_task");
        }
    }

    /// C-FR-002
    async fn users_differ_by_every_byte_of_their_id(world: World) {
        let odd = ["anna", "Anna", "anna ", "änna", "a\u{308}nna", "' OR 'a'='a", "%", "🙂"];
        for user in odd {
            let caller = world.caller(user).await;
            assert!(caller.descriptions(json!({})).await.is_empty(), "{user}");
            caller.add(user).await;
            assert_eq!(caller.descriptions(json!({})).await, [user.trim()]);
            caller.leave().await;
        }
    }

    /// C-FR-002
    async fn one_users_idempotency_key_says_nothing_to_another(world: World) {
        let anna = world.caller("anna").await;
        let bob = world.caller("bob").await;
        let arguments = json!({ "description": "call mom" });
        let hers = anna.with_key("k", "add_task", arguments.clone()).await.ok();
        let his = bob.with_key("k", "add_task", arguments).await.ok();
        assert_ne!(hers["task"]["id"], his["task"]["id"]);
        let other = json!({ "description": "call dad" });
        assert_eq!(bob.with_key("k", "add_task", other).await.code(), "idempotency_key_reused");
    }
}
