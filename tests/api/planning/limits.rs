//! The limits of a whole session, walked over HTTP.

use serde_json::{Value, json};

use super::studio::{Studio, continues, path, plan, step, task_with};
use crate::gemini::{Reply, turn};
use crate::harness::Setup;

/// An answer for which the model has used 10,015 tokens.
fn costly(text: &str) -> Reply {
    let answer = turn(1, &[json!({"text": text})]);
    let costly = answer.replace("\"promptTokenCount\":100,", "\"promptTokenCount\":10000,");
    assert_ne!(costly, answer);
    Reply::Raw(200, costly)
}

/// A session that has used all its steps or tokens fails with that reason, also in the middle of a task. The plan, its
/// history and the steps remain.
#[tokio::test]
async fn a_session_fails_once_its_steps_or_tokens_are_used_up() {
    for (setting, reason, steps) in [
        ("max_steps = 2", "step_limit", 2),
        ("max_tokens = 10000", "token_limit", 1),
    ] {
        let tools = &["getFileContents"][..];
        let mut script = vec![plan(vec![task_with("One", tools), task_with("Two", tools)])];
        script.extend(step("getFileContents", json!({"path": "README.md"}), continues()));
        let mut second = step("getFileContents", json!({"path": "AGENT.md"}), continues());
        second[0] = costly("This takes long thoughts.");
        script.extend(second);
        let studio = Studio::with(Setup::stdio_sqlite(), script, |setup| setup.toml(setting)).await;
        let session = studio.start().await;
        let ended = studio.execute_to_the_end(&session).await;
        assert_eq!(
            (&ended["status"], &ended["statusReason"]["code"]),
            (&json!("FAILED"), &json!(reason)),
            "{ended}"
        );
        let of_tasks: Vec<_> = ended["plan"]
            .as_array()
            .unwrap()
            .iter()
            .map(|task| (&task["status"], &task["statusReason"]["code"]))
            .collect();
        let expected = [(&json!("FAILED"), &json!(reason)), (&json!("PENDING"), &Value::Null)];
        assert_eq!(of_tasks, expected, "{ended}");
        let task = studio.get(&format!("{}/tasks/t1", path(&session))).await;
        let history = task["reactHistory"].as_array().unwrap();
        let whole = history.iter().filter(|step| !step["reflection"].is_null());
        assert_eq!(whole.count(), steps, "{task}");
        let versions = studio.get(&format!("{}/history", path(&session))).await;
        assert_eq!(versions["versions"].as_array().unwrap().len(), 1);
        assert_eq!(ended["planVersion"], 1);
        studio.stop_having_only_read().await;
    }
}
