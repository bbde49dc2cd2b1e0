//! Requests about sessions that cannot be met now, walked over HTTP: nothing is kept of them, and what is under way is
//! unharmed.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::studio::{HOUR, Studio, ahead, github, on_both, path, plan, task, titles, with_planning};
use crate::gemini::Reply;
use crate::harness::{Answer, binary, rows, spawn_app, until};

fn goal() -> Value {
    json!({"prompt": "Accept ISO weeks", "repoUrl": "https://github.com/acme/dates", "deadline": ahead(HOUR)})
}

/// Without GitHub's server, or while it is down, a start is answered with 503 and leaves nothing, so the same key
/// starts a session once the server is there.
#[tokio::test]
async fn a_start_without_the_github_server_leaves_nothing_and_its_key_starts_later() {
    on_both(async |setup| {
        let (github, mut entry) = github().await;
        let directory = tempfile::tempdir().unwrap();
        let is_up = directory.path().join("is-up");
        // Only its token is missing, or else the program ends at once until the file is there.
        let off = json!({"command": binary(), "gavel": {"requiredEnv": [["NO_SUCH_GITHUB_TOKEN"]]}});
        let program = format!("test -e {} && exec {} mcp-server github", is_up.display(), binary());
        entry["command"] = json!("sh");
        entry["args"] = json!(["-c", program]);
        let script = vec![plan(vec![task("Clone")])];
        let setup = with_planning(setup).script(script);
        let key = [("idempotency-key", "start-1")];
        let body = goal();
        let refused = async |studio: &Studio| {
            let problem = studio
                .start_with(&key, body.clone())
                .await
                .problem(503, "agent_unavailable");
            assert!(
                problem["detail"].as_str().unwrap().contains("Nothing was done"),
                "{problem}"
            );
            assert_eq!(studio.get("/v1/sessions").await["sessions"], json!([]));
            for table in ["planning_session", "agent_run", "idempotency_key"] {
                let count = format!("SELECT COUNT(*) FROM {table}");
                assert_eq!(rows(&studio.app.database_url, &count).await, 0, "{table}");
            }
            assert!(studio.app.gemini.sizes().is_empty());
        };
        let setup_off = setup.clone().mcp(json!({"mcpServers": {"github": off}}));
        let studio = Studio {
            app: spawn_app(setup_off).await,
            github: github.clone(),
        };
        refused(&studio).await;
        studio.app.stop().await;
        let studio = Studio {
            app: spawn_app(setup.mcp(json!({"mcpServers": {"github": entry}}))).await,
            github,
        };
        refused(&studio).await;
        std::fs::write(&is_up, "").unwrap();
        until("the server to be there", || async {
            let answer = studio.start_with(&key, body.clone()).await;
            answer.status == 201
        })
        .await;
        let again = studio.start_with(&key, body.clone()).await.expect(201);
        assert_eq!(again["status"], "AWAITING_CONFIRMATION", "{again}");
        let page = studio.get("/v1/sessions").await;
        assert_eq!(page["sessions"].as_array().unwrap().len(), 1);
        studio.stop_having_only_read().await;
    })
    .await;
}

/// While a refinement is under way nothing else changes or confirms the plan, and the refinement is unharmed.
#[tokio::test]
async fn while_a_refinement_is_under_way_the_plan_is_neither_changed_nor_confirmed() {
    on_both(async |setup| {
        let ready = Arc::new(Notify::new());
        let second = plan(vec![task("Clone"), task("Parse")]);
        let script = vec![
            plan(vec![task("Clone")]),
            Reply::Held(Arc::clone(&ready), Box::new(second)),
        ];
        let studio = Studio::new(setup, script).await;
        let session = studio.start().await;
        let refine = format!("{}/refine", path(&session));
        let change = json!({"refinementPrompt": "and parse"});
        let under_way = studio
            .send("POST", &refine, &[("prefer", "respond-async")], change)
            .await;
        assert_eq!(under_way.expect(202)["status"], "PLANNING");
        until("the model to be asked", || async {
            studio.app.gemini.sizes().len() == 2
        })
        .await;
        for answer in studio.changes(&session, 1).await {
            answer.problem(409, "plan_in_progress");
        }
        let dry = studio.execute(&session, json!({"dryRun": true})).await;
        dry.problem(409, "plan_in_progress");
        ready.notify_one();
        let refined = studio
            .once(&session, "the refinement to end", |session| {
                session["status"] != "PLANNING"
            })
            .await;
        assert_eq!(
            (&refined["status"], &refined["planVersion"], &refined["startedAt"]),
            (&json!("AWAITING_CONFIRMATION"), &json!(2), &Value::Null)
        );
        assert_eq!(titles(&refined), [("t1", "Clone"), ("t2", "Parse")]);
        assert_eq!(studio.app.gemini.sizes().len(), 2);
        studio.cancel(&session).await.expect(200);
        for answer in studio.changes(&session, 2).await {
            answer.problem(409, "session_over");
        }
        studio.stop_having_only_read().await;
    })
    .await;
}

/// Of ten starts at once as many begin as the limit of the user allows, and then as that of the tenant. Those that wait
/// for confirmation count no more. The problem names the limit and its setting, and a refused start may be sent again
/// under its key.
#[tokio::test]
async fn ten_starts_at_once_do_not_exceed_the_limits_of_sessions() {
    on_both(async |setup| {
        let slow = Reply::After(Duration::from_secs(3), Box::new(plan(vec![task("Clone")])));
        let studio = Studio::with(setup, vec![slow], |setup| {
            setup.toml("sessions_per_user = 2\nsessions = 4\n")
        })
        .await;
        let at_once = async |user: &dyn Fn(usize) -> String| {
            let starts = (0..10).map(|n| {
                let (user, key) = (user(n), format!("{}-{n}", user(n)));
                let studio = &studio;
                async move {
                    let headers = [("x-gavel-user", &*user), ("idempotency-key", &*key)];
                    let request = studio.app.request("POST", "/v1/sessions", &headers).json(&goal());
                    (Answer::of(request).await, key)
                }
            });
            let (begun, refused): (Vec<_>, Vec<_>) = join_all(starts)
                .await
                .into_iter()
                .partition(|(answer, _)| answer.status == 201);
            (begun, refused)
        };
        let (mut begun, refused) = at_once(&|_| "ann".to_owned()).await;
        assert_eq!((begun.len(), refused.len()), (2, 8));
        let mut keys = Vec::new();
        for (answer, key) in refused {
            assert!(answer.headers.contains_key("retry-after"));
            let problem = answer.problem(429, "too_many_sessions");
            let detail = problem["detail"].as_str().unwrap();
            assert!(
                detail.contains(
                    "2 planning sessions at work at once are allowed for a user (planning.sessions_per_user)"
                ),
                "{detail}"
            );
            keys.push(key);
        }
        let (of_others, refused) = at_once(&|n| format!("user-{n}")).await;
        assert_eq!((of_others.len(), refused.len()), (3, 7));
        for (answer, _) in refused {
            let problem = answer.problem(429, "too_many_sessions");
            let detail = problem["detail"].as_str().unwrap();
            assert!(detail.contains("allowed for a tenant (planning.sessions)"), "{detail}");
        }
        let open = "SELECT COUNT(*) FROM planning_session";
        assert_eq!(
            rows(&studio.app.database_url, open).await,
            5,
            "nothing is kept of the others"
        );
        let session = begun.pop().unwrap().0.body;
        studio.cancel(&session).await.expect(200);
        let again = [("idempotency-key", &*keys[0])];
        studio.start_with(&again, goal()).await.expect(201);
        studio.stop_having_only_read().await;
    })
    .await;
}
