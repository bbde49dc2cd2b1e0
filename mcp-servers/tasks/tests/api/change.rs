use serde_json::{Value, json};

use crate::harness::World;

everywhere! {
    /// C-US1-3
    async fn grocery_shopping_is_marked_as_done_by_its_name(world: World) {
        let anna = world.caller("anna").await;
        let task = anna.add("Grocery shopping").await;
        anna.add("call mom").await;
        let done = anna
            .call("complete_task", json!({ "title": "grocery shopping" }))
            .await
            .ok();
        assert_eq!(done["task"]["id"], task["id"]);
        assert_eq!(done["task"]["status"], "done");
        assert_eq!(done["already_done"], false);
        assert!(done["task"]["completed_at"].is_string());
        assert_eq!(anna.descriptions(json!({})).await, ["call mom"]);
    }

    /// C-US6-1
    async fn the_grocery_one_is_completed_by_the_id_from_the_list(world: World) {
        let anna = world.caller("anna").await;
        anna.add("call mom").await;
        anna.add("grocery shopping").await;
        let listed = anna.call("list_tasks", json!({ "query": "grocery" })).await.ok();
        let id = &listed["tasks"][0]["id"];
        let done = anna.call("complete_task", json!({ "id": id })).await.ok();
        assert_eq!(done["task"]["description"], "grocery shopping");
    }

    /// C-US1-3
    async fn completing_twice_completes_once_and_says_so(world: World) {
        let anna = world.caller("anna").await;
        let id = anna.add("milk").await["id"].clone();
        anna.add("buy milk and eggs").await;
        let first = anna.call("complete_task", json!({ "title": "milk" })).await.ok();
        assert_eq!(first["already_done"], false);
        for target in [json!({ "title": "Milk" }), json!({ "id": id })] {
            let again = anna.call("complete_task", target).await.ok();
            assert_eq!(again["already_done"], true);
            assert_eq!(again["task"], first["task"]);
        }
        assert_eq!(anna.descriptions(json!({})).await, ["buy milk and eggs"]);
    }

    /// C-US1-3
    async fn completing_by_title_means_the_open_task(world: World) {
        let anna = world.caller("anna").await;
        for _ in 0..2 {
            anna.add("water the plants").await;
            let done = anna
                .call("complete_task", json!({ "title": "plants" }))
                .await
                .ok();
            assert_eq!(done["already_done"], false);
        }
        let third = anna.call("complete_task", json!({ "title": "plants" })).await;
        assert_eq!(third.code(), "ambiguous_title");
    }

    /// C-FR-002
    async fn an_update_changes_what_is_given_and_nothing_else(world: World) {
        let anna = world.caller("anna").await;
        let given = json!({
            "description": "buy milk", "due": "2026-12-01", "priority": "low", "notes": "oat"
        });
        let before = anna.call("add_task", given).await.ok()["task"].clone();
        let id = &before["id"];
        let steps: [(Value, &str, Value); 7] = [
            (json!({ "description": " buy Bread " }), "description", json!("buy Bread")),
            (json!({ "due": "2026-12-02T10:00:00Z" }), "due", json!("2026-12-02T10:00:00Z")),
            (json!({ "priority": "high" }), "priority", json!("high")),
            (json!({ "notes": "rye" }), "notes", json!("rye")),
            (json!({ "due": null }), "due", Value::Null),
            (json!({ "notes": null }), "notes", Value::Null),
            (json!({ "due": "2027-01-01" }), "due", json!("2027-01-01")),
        ];
        let mut expected = before.clone();
        for (mut change, field, value) in steps {
            change["id"] = id.clone();
            let answer = anna.call("update_task", change).await.ok();
            assert_eq!(answer["changed"], json!([field]));
            expected[field] = value.clone();
            if value.is_null() {
                expected.as_object_mut().expect("an object").remove(field);
            }
            expected["updated_at"] = answer["task"]["updated_at"].clone();
            assert_eq!(answer["task"], expected);
        }
        // The search finds the new words and no longer the old ones.
        assert_eq!(anna.descriptions(json!({ "query": "bread" })).await, ["buy Bread"]);
        for old in ["milk", "oat", "rye"] {
            assert!(anna.descriptions(json!({ "query": old })).await.is_empty());
        }
    }

    /// C-FR-002
    async fn a_task_can_be_updated_by_a_part_of_its_title(world: World) {
        let anna = world.caller("anna").await;
        anna.add("Zahnarzt anrufen").await;
        let change = json!({ "title": "ZAHNARZT", "due": "2026-12-24" });
        let answer = anna.call("update_task", change).await.ok();
        assert_eq!(answer["task"]["due"], "2026-12-24");
        assert_eq!(answer["task"]["description"], "Zahnarzt anrufen");
    }

    /// C-FR-002
    async fn a_deleted_task_is_gone(world: World) {
        let anna = world.caller("anna").await;
        let task = anna.add("call mom").await;
        anna.add("call dad").await;
        let deleted = anna.call("delete_task", json!({ "title": "call mom" })).await.ok();
        assert_eq!(deleted, json!({ "deleted": task }));
        assert_eq!(anna.descriptions(json!({ "status": "all" })).await, ["call dad"]);
        for tool in ["delete_task", "complete_task"] {
            let again = anna.call(tool, json!({ "id": task["id"] })).await;
            assert_eq!(again.code(), "unknown_task");
        }
    }

    /// C-SC-4
    async fn a_title_that_fits_several_tasks_changes_none_and_lists_them(world: World) {
        let anna = world.caller("anna").await;
        let mom = anna.add("Call mom").await;
        let dad = anna
            .call("add_task", json!({ "description": "Call dad", "due": "2026-12-01" }))
            .await
            .ok()["task"]
            .clone();
        anna.add("buy milk").await;
        let before = anna.call("list_tasks", json!({ "status": "all" })).await;
        for tool in ["complete_task", "delete_task", "update_task"] {
            let mut arguments = json!({ "title": "call" });
            if tool == "update_task" {
                arguments["priority"] = json!("high");
            }
            let reply = anna.call(tool, arguments).await;
            assert_eq!(reply.code(), "ambiguous_title");
            let expected = json!([
                { "id": mom["id"], "description": "Call mom", "status": "open" },
                { "id": dad["id"], "description": "Call dad", "status": "open", "due": "2026-12-01" }
            ]);
            assert_eq!(reply.error()["candidates"], expected);
            assert_eq!(reply.error()["more"], false);
        }
        assert_eq!(anna.call("list_tasks", json!({ "status": "all" })).await, before);
    }

    /// C-SC-4
    async fn an_exact_title_wins_over_tasks_that_only_contain_it(world: World) {
        let anna = world.caller("anna").await;
        anna.add("call mom about dinner").await;
        let exact = anna.add("Call Mom").await;
        let deleted = anna.call("delete_task", json!({ "title": "call mom" })).await.ok();
        assert_eq!(deleted["deleted"]["id"], exact["id"]);
    }

    /// C-SC-4
    async fn many_candidates_are_cut_to_ten(world: World) {
        let anna = world.caller("anna").await;
        for number in 0..12 {
            anna.add(&format!("call {number}")).await;
        }
        let reply = anna.call("delete_task", json!({ "title": "call" })).await;
        assert_eq!(reply.error()["candidates"].as_array().map(Vec::len), Some(10));
        assert_eq!(reply.error()["more"], true);
    }

    /// C-US6-2
    async fn a_task_that_does_not_exist_is_answered_in_band(world: World) {
        let anna = world.caller("anna").await;
        anna.add("call mom").await;
        let targets = [
            json!({ "id": "01a1fb6d-8b5e-74a3-8c25-03ad042725e9" }),
            json!({ "id": "not an id" }),
            json!({ "id": "' OR 1=1 --" }),
            json!({ "title": "groceries" }),
            json!({ "title": "%" }),
            json!({ "title": "_" }),
        ];
        for target in targets {
            for tool in ["complete_task", "delete_task", "update_task"] {
                let mut arguments = target.clone();
                if tool == "update_task" {
                    arguments["due"] = Value::Null;
                }
                assert_eq!(anna.call(tool, arguments).await.code(), "unknown_task", "{target}");
            }
        }
    }

    /// C-FR-012
    async fn invalid_arguments_to_a_change_are_answered_with_their_error(world: World) {
        let anna = world.caller("anna").await;
        let id = anna.add("call mom").await["id"].clone();
        let before = anna.call("list_tasks", json!({})).await;
        let targets: &[(Value, &str)] = &[
            (json!({}), "missing_argument"),
            (json!({ "id": null }), "missing_argument"),
            (json!({ "id": id, "title": "call mom" }), "invalid_argument"),
            (json!({ "id": "" }), "invalid_argument"),
            (json!({ "title": "  " }), "invalid_argument"),
            (json!({ "title": "\u{200b}" }), "invalid_argument"),
            (json!({ "id": 1 }), "invalid_argument"),
            (json!({ "title": "mom\0" }), "nul_character"),
            (json!({ "id": "i".repeat(201) }), "too_long"),
            (json!({ "title": "t".repeat(501) }), "too_long"),
            (json!({ "id": id, "force": true }), "unknown_argument"),
        ];
        for (arguments, code) in targets {
            for tool in ["complete_task", "delete_task", "update_task"] {
                let reply = anna.call(tool, arguments.clone()).await;
                assert_eq!(reply.code(), *code, "{tool} {arguments}");
            }
        }
        let patches: &[(Value, &str)] = &[
            (json!({}), "nothing_to_change"),
            (json!({ "description": null, "priority": null }), "nothing_to_change"),
            (json!({ "description": "" }), "invalid_argument"),
            (json!({ "description": "d".repeat(501) }), "too_long"),
            (json!({ "due": "later" }), "invalid_due"),
            (json!({ "priority": "highest" }), "invalid_argument"),
            (json!({ "notes": 5 }), "invalid_argument"),
            (json!({ "status": "done" }), "unknown_argument"),
        ];
        for (patch, code) in patches {
            let mut arguments = patch.clone();
            arguments["id"] = id.clone();
            let reply = anna.call("update_task", arguments).await;
            assert_eq!(reply.code(), *code, "{patch}");
        }
        assert_eq!(anna.call("list_tasks", json!({})).await, before);
    }
}
