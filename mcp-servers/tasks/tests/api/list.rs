use serde_json::{Value, json};

use crate::harness::World;

everywhere! {
    /// C-US1-2
    async fn a_new_user_has_an_empty_list(world: World) {
        let anna = world.caller("anna").await;
        let listed = anna.call("list_tasks", json!({})).await.ok();
        assert_eq!(listed, json!({ "tasks": [], "total": 0 }));
    }

    /// C-US6-3
    async fn the_first_one_is_what_is_due_first_then_what_matters_most_then_the_oldest(world: World) {
        let anna = world.caller("anna").await;
        let tasks = [
            json!({ "description": "oldest" }),
            json!({ "description": "low", "priority": "low" }),
            json!({ "description": "high", "priority": "high" }),
            json!({ "description": "later", "due": "2026-12-02" }),
            json!({ "description": "day", "due": "2026-12-01", "priority": "low" }),
            json!({ "description": "morning", "due": "2026-12-01T08:00:00Z" }),
            json!({ "description": "earlier abroad", "due": "2026-12-01T08:00:00+09:00" }),
            json!({ "description": "newest" }),
        ];
        for task in tasks {
            anna.call("add_task", task).await.ok();
        }
        for done in ["done first", "done last"] {
            anna.add(done).await;
            anna.call("complete_task", json!({ "title": done })).await.ok();
        }
        let open = [
            "earlier abroad", "morning", "day", "later", "high", "oldest", "newest", "low",
        ];
        let done = ["done last", "done first"];
        assert_eq!(anna.descriptions(json!({})).await, open);
        assert_eq!(anna.descriptions(json!({ "status": "done" })).await, done);
        let listed = anna.call("list_tasks", json!({ "status": "all" })).await.ok();
        let listed = listed["tasks"].as_array().expect("tasks");
        let expected = open.iter().chain(&done);
        for (index, (task, description)) in listed.iter().zip(expected).enumerate() {
            assert_eq!(task["position"], index + 1);
            assert_eq!(task["description"], *description);
        }
        assert_eq!(listed.len(), 10);
    }

    /// C-US6-1
    async fn a_search_ignores_case_in_every_script_and_takes_wildcards_literally(world: World) {
        let anna = world.caller("anna").await;
        let tasks = [
            "Grocery shopping", "ÖL wechseln", "Straße fegen", "ОБЕД с Верой", "Café rené",
            "100% sure", "a_b", "wow!",
        ];
        for task in tasks {
            anna.add(task).await;
        }
        anna.call("add_task", json!({ "description": "party", "notes": "Ask ÖZGÜR" })).await.ok();
        let cases = [
            ("GROCERY", "Grocery shopping"),
            ("  grocery   SHOPPING ", "Grocery shopping"),
            ("öl", "ÖL wechseln"),
            ("STRASSE", "Straße fegen"),
            ("обед", "ОБЕД с Верой"),
            ("cafe\u{301} RENE\u{301}", "Café rené"),
            ("%", "100% sure"),
            ("_", "a_b"),
            ("!", "wow!"),
            ("özgür", "party"),
        ];
        for (query, found) in cases {
            assert_eq!(anna.descriptions(json!({ "query": query })).await, [found], "{query}");
        }
        assert!(anna.descriptions(json!({ "query": "cafe" })).await.is_empty());
        assert_eq!(anna.descriptions(json!({ "query": " " })).await.len(), 9);
    }

    /// C-US1-2
    async fn due_bounds_leave_out_the_days_they_name(world: World) {
        let anna = world.caller("anna").await;
        let dues = [
            "2026-12-01", "2026-12-02T00:00:00Z", "2026-12-02", "2026-12-02T23:59:59Z",
            "2026-12-03T00:00:00Z",
        ];
        for due in dues {
            anna.call("add_task", json!({ "description": due, "due": due })).await.ok();
        }
        anna.add("some day").await;
        let day = json!({ "due_after": "2026-12-01", "due_before": "2026-12-03" });
        assert_eq!(
            anna.descriptions(day).await,
            ["2026-12-02T00:00:00Z", "2026-12-02T23:59:59Z", "2026-12-02"]
        );
        let before = json!({ "due_before": "2026-12-02T00:00:00Z" });
        assert_eq!(anna.descriptions(before).await, ["2026-12-01"]);
        let after = json!({ "due_after": "2026-12-02T23:59:59Z" });
        assert_eq!(anna.descriptions(after).await, ["2026-12-02", "2026-12-03T00:00:00Z"]);
    }

    /// C-US1-2
    async fn pages_show_every_task_once_also_when_the_list_changes_between_them(world: World) {
        let anna = world.caller("anna").await;
        let mut ids = Vec::new();
        for number in 0..25 {
            ids.push(anna.add(&format!("task {number:02}")).await["id"].clone());
        }
        let first = anna.call("list_tasks", json!({ "limit": 10 })).await.ok();
        assert_eq!(first["total"], 25);
        assert_eq!(first["tasks"].as_array().map(Vec::len), Some(10));
        // One task that was shown is deleted, one is added at the end.
        anna.call("delete_task", json!({ "id": ids[3] })).await.ok();
        ids.push(anna.add("task 25").await["id"].clone());
        let mut seen: Vec<Value> = first["tasks"].as_array().expect("tasks").clone();
        let mut cursor = first["next_cursor"].clone();
        while !cursor.is_null() {
            let page = anna
                .call("list_tasks", json!({ "limit": 10.0, "cursor": cursor }))
                .await
                .ok();
            seen.extend(page["tasks"].as_array().expect("tasks").clone());
            cursor = page["next_cursor"].clone();
        }
        let seen_ids: Vec<_> = seen.iter().map(|task| task["id"].clone()).collect();
        assert_eq!(seen_ids, ids);
        let positions: Vec<_> = seen.iter().map(|task| task["position"].clone()).collect();
        assert_eq!(positions, (1..=26).map(Value::from).collect::<Vec<_>>());
    }

    /// C-FR-012
    async fn invalid_arguments_to_a_list_are_answered_with_their_error(world: World) {
        let anna = world.caller("anna").await;
        anna.add("one").await;
        anna.add("two").await;
        let page = anna.call("list_tasks", json!({ "limit": 1 })).await.ok();
        let cursor = &page["next_cursor"];
        let cases: &[(Value, &str)] = &[
            (json!({ "status": "closed" }), "invalid_argument"),
            (json!({ "limit": 0 }), "invalid_argument"),
            (json!({ "limit": 201 }), "invalid_argument"),
            (json!({ "limit": -1 }), "invalid_argument"),
            (json!({ "limit": 1.5 }), "invalid_argument"),
            (json!({ "limit": "10" }), "invalid_argument"),
            (json!({ "due_before": "soon" }), "invalid_due"),
            (json!({ "due_after": "2026-13-01" }), "invalid_due"),
            (json!({ "query": "\0" }), "nul_character"),
            (json!({ "query": "q".repeat(501) }), "too_long"),
            (json!({ "page": 2 }), "unknown_argument"),
            (json!({ "cursor": "" }), "invalid_cursor"),
            (json!({ "cursor": "bm90IGEgY3Vyc29y" }), "invalid_cursor"),
            (json!({ "cursor": cursor, "status": "all" }), "invalid_cursor"),
            (json!({ "cursor": cursor, "query": "t" }), "invalid_cursor"),
        ];
        for (arguments, code) in cases {
            let reply = anna.call("list_tasks", arguments.clone()).await;
            assert_eq!(reply.code(), *code, "{arguments}");
        }
    }
}
