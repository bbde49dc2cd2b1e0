use std::sync::Arc;

use serde_json::{Value, json};

use crate::harness::World;

everywhere! {
    /// Promise: at most once.
    async fn twenty_calls_at_once_with_one_key_add_one_task(world: World) {
        // Over stdio these are two processes with one database.
        let callers = [
            Arc::new(world.caller("anna").await),
            Arc::new(world.caller("anna").await),
        ];
        let calls: Vec<_> = (0..20)
            .map(|number| {
                let anna = callers[number % 2].clone();
                tokio::spawn(async move {
                    let arguments = json!({ "description": "call mom", "priority": "high" });
                    anna.with_key("race", "add_task", arguments).await.ok()
                })
            })
            .collect();
        let mut answers = Vec::new();
        for call in calls {
            answers.push(call.await.expect("the call ends"));
        }
        assert!(answers.iter().all(|answer| *answer == answers[0]));
        assert_eq!(callers[0].descriptions(json!({ "status": "all" })).await, ["call mom"]);
    }

    /// Promise: at most once.
    async fn a_repeated_call_gets_the_first_answer_whatever_happened_since(world: World) {
        let anna = world.caller("anna").await;
        let add = json!({ "description": "call mom" });
        let added = anna.with_key("1", "add_task", add.clone()).await;
        let id = added.clone().ok()["task"]["id"].clone();
        let rename = json!({ "title": "mom", "description": "call dad" });
        let renamed = anna.with_key("1", "update_task", rename.clone()).await;
        let complete = json!({ "id": id });
        let completed = anna.with_key("1", "complete_task", complete.clone()).await;
        let deleted = anna.with_key("1", "delete_task", complete.clone()).await;
        let expected = [
            ("add_task", add, added),
            ("update_task", rename, renamed),
            ("complete_task", complete.clone(), completed),
            ("delete_task", complete, deleted),
        ];
        for (tool, arguments, first) in expected {
            assert!(!first.is_error);
            assert_eq!(anna.with_key("1", tool, arguments).await, first, "{tool}");
        }
        assert!(anna.descriptions(json!({ "status": "all" })).await.is_empty());
    }

    /// Promise: at most once.
    async fn an_error_that_was_answered_stays_the_answer(world: World) {
        let anna = world.caller("anna").await;
        let arguments = json!({ "title": "mom" });
        let first = anna.with_key("k", "delete_task", arguments.clone()).await;
        assert_eq!(first.code(), "unknown_task");
        anna.add("call mom").await;
        assert_eq!(anna.with_key("k", "delete_task", arguments).await, first);
        assert_eq!(anna.descriptions(json!({})).await, ["call mom"]);
    }

    /// Promise: at most once.
    async fn a_key_used_for_other_arguments_is_refused(world: World) {
        let anna = world.caller("anna").await;
        let first = json!({ "description": "call mom", "priority": "high" });
        let same = json!({ "priority": "high", "description": "call mom" });
        let other = json!({ "description": "call mom", "priority": "low" });
        let added = anna.with_key("k", "add_task", first).await;
        assert_eq!(anna.with_key("k", "add_task", same).await, added);
        let refused = anna.with_key("k", "add_task", other).await;
        assert_eq!(refused.code(), "idempotency_key_reused");
        assert_eq!(anna.descriptions(json!({})).await.len(), 1);
    }

    /// C-FR-012
    async fn arguments_that_are_refused_do_not_use_up_the_key(world: World) {
        let anna = world.caller("anna").await;
        let invalid = json!({ "description": "" });
        assert_eq!(anna.with_key("k", "add_task", invalid).await.code(), "invalid_argument");
        anna.with_key("k", "add_task", json!({ "description": "x" })).await.ok();
    }

    /// C-FR-012
    async fn a_key_has_to_be_a_text_of_reasonable_length(world: World) {
        let anna = world.caller("anna").await;
        for key in [json!(""), json!(7), Value::Null, json!("k".repeat(256)), json!("a\0")] {
            let meta = json!({ "gavel/idempotency_key": key });
            let reply = anna
                .call_with("add_task", json!({ "description": "x" }), meta)
                .await;
            assert_eq!(reply.code(), "invalid_idempotency_key", "{key}");
        }
        anna.with_key(&"ü".repeat(255), "add_task", json!({ "description": "x" })).await.ok();
        assert_eq!(anna.descriptions(json!({})).await.len(), 1);
    }

    /// Promise: at most once.
    async fn keys_outlive_a_restart_and_are_forgotten_after_seven_days(world: World) {
        const AGE_BY_SIX_DAYS: &str =
            "UPDATE tasks_idempotency SET created_at = created_at - 518400000000";
        const AGE_BY_TWO_DAYS: &str =
            "UPDATE tasks_idempotency SET created_at = created_at - 172800000000";
        let mut world = world;
        let arguments = json!({ "description": "call mom" });
        let anna = world.caller("anna").await;
        let first = anna.with_key("k", "add_task", arguments.clone()).await;
        anna.leave().await;
        world.sql(AGE_BY_SIX_DAYS).await;
        world.restart().await;
        let anna = world.caller("anna").await;
        assert_eq!(anna.with_key("k", "add_task", arguments.clone()).await, first);
        world.sql(AGE_BY_TWO_DAYS).await;
        let later = anna.with_key("k", "add_task", arguments).await;
        assert!(!later.is_error);
        assert_ne!(later, first);
    }
}

/// Promise: at most once.
mod old_keys_are_pruned_at_start {
    use super::*;
    use crate::harness::{Database, Wire};

    async fn scenario(database: Database) {
        let mut world = World::new(Wire::Http, database).await;
        let anna = world.caller("anna").await;
        anna.with_key("old", "add_task", json!({ "description": "x" }))
            .await
            .ok();
        world.sql("UPDATE tasks_idempotency SET created_at = 0").await;
        anna.with_key("new", "add_task", json!({ "description": "x" }))
            .await
            .ok();
        world.restart().await;
        for _ in 0..100 {
            if keys(&world).await == ["new"] {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
        panic!("the old key is still there: {:?}", keys(&world).await);
    }

    async fn keys(world: &World) -> Vec<String> {
        const KEYS: &str = "SELECT idem_key FROM tasks_idempotency";
        match world.database {
            Database::Sqlite => {
                let pool = sqlx::SqlitePool::connect(&world.url).await.expect("connected");
                sqlx::query_scalar(KEYS).fetch_all(&pool).await
            }
            Database::Postgres => {
                let pool = sqlx::PgPool::connect(&world.url).await.expect("connected");
                sqlx::query_scalar(KEYS).fetch_all(&pool).await
            }
        }
        .expect("keys")
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn on_sqlite() {
        scenario(Database::Sqlite).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn on_postgres() {
        scenario(Database::Postgres).await;
    }
}
