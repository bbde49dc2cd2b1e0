//! Lists of runs, and their decisions and calls in the log.

use serde_json::{Value, json};

use super::{both, chief_and_helper, id};
use crate::gemini::Reply;
use crate::harness::{Answer, spawn_app};

/// C-FR-007. Promise: recorded. Each run has its row and its decision, and each call belongs to the run that
/// made it.
#[tokio::test]
async fn a_run_and_the_one_it_called_each_have_a_row_and_a_decision() {
    for setup in both() {
        let app = spawn_app(setup.script(vec![chief_and_helper()])).await;
        let chief = app.triggered("chief", "milk").await;
        assert_eq!(
            (&chief["status"], &chief["summary"]),
            (&json!("completed"), &json!("It is done.")),
            "{chief}"
        );
        let listed = app.runs("").await;
        assert_eq!(listed, std::slice::from_ref(&chief), "only runs without a caller");
        let called = app.runs(&format!("parent_run_id = \"{}\"", id(&chief))).await;
        assert_eq!(called.len(), 1, "{called:?}");
        let helper = &called[0];
        assert_eq!(
            (
                &helper["agent_id"],
                &helper["status"],
                &helper["parent_run_id"],
                &helper["summary"]
            ),
            (&json!("helper"), &json!("completed"), &chief["id"], &json!("Added.")),
            "{helper}"
        );
        assert_eq!(app.run(&id(helper)).await, *helper);
        let decisions = app.decisions().await;
        assert_eq!(decisions.len(), 2, "{decisions:?}");
        assert!(
            decisions.iter().all(|decision| decision["surface"] == "agent"),
            "{decisions:?}"
        );
        let calls = app.tool_invocations(&helper["id"]).await;
        assert_eq!((calls.len(), &calls[0]["tool"]), (1, &json!("add_task")), "{calls:?}");
        assert_eq!(app.tasks().await.len(), 1);
    }
}

#[tokio::test]
async fn runs_are_listed_by_page_and_filter() {
    for setup in both() {
        let script = vec![
            Reply::Text("One."),
            Reply::error(400, "INVALID_ARGUMENT", json!([])),
            Reply::Text("Three."),
        ];
        let app = spawn_app(setup.script(script)).await;
        let mut made = Vec::new();
        for (agent, user) in [("helper", "ann"), ("helper", "bob"), ("chief", "ann")] {
            let user = [("x-gavel-user", user)];
            let answer = app
                .trigger_with(&super::path_of(agent), &user, &json!({"query": "x"}))
                .await;
            made.push(id(&answer.expect(200)));
        }
        let list = async |user: &str, query: &str| {
            let request = app.request(
                "GET",
                &format!("/api/projects/default/runs?{query}"),
                &[("x-gavel-user", user)],
            );
            Answer::of(request).await
        };
        let ids = |page: &Value| -> Vec<_> { page["runs"].as_array().unwrap().iter().map(id).collect() };
        let page = list("ann", "").await.expect(200);
        assert_eq!(
            ids(&page),
            [made[2].clone(), made[0].clone()],
            "a user's own, latest first"
        );
        assert_eq!(ids(&list("bob", "").await.expect(200)), [made[1].clone()]);
        assert_eq!(
            ids(&list("ann", "filter=agent_id%20%3D%20%22helper%22").await.expect(200)),
            [made[0].clone()]
        );
        assert_eq!(
            ids(&list("bob", "filter=status%20%3D%20%22failed%22").await.expect(200)),
            [made[1].clone()]
        );
        assert!(ids(&list("ann", "filter=status%20%3D%20%22failed%22").await.expect(200)).is_empty());
        let first = list("ann", "page_size=1").await.expect(200);
        assert_eq!(ids(&first), [made[2].clone()]);
        let token = first["next_page_token"].as_str().unwrap();
        let second = list("ann", &format!("page_size=1&page_token={token}"))
            .await
            .expect(200);
        assert_eq!(ids(&second), [made[0].clone()]);
        for invalid in [
            "page_size=0",
            "filter=colour%20%3D%201",
            "order_by=mood",
            "colour=1",
            "page_token=x",
        ] {
            list("ann", invalid).await.problem(400, "invalid_request");
        }
        let failed = &list("bob", "").await.expect(200)["runs"][0];
        assert!(
            failed["error_message"]
                .as_str()
                .is_some_and(|why| !why.contains("canary")),
            "{failed}"
        );
    }
}
