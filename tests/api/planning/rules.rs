//! Rules of the policy about planning sessions.

use serde_json::json;

use super::studio::{Studio, continues, done, path, plan, step, task_with};
use crate::harness::Setup;

const POLICY: &str = "\
rules:
  - name: no-issues-here
    tools: [createIssue]
    surfaces: [planning]
    when: session.id != '' && session.owner == 'acme' && session.repo == 'dates'
    then: deny
    reason: this repository takes no issues
  - name: no-pulls-elsewhere
    tools: [createPullRequest]
    when: session.repo != 'dates'
    then: deny
    reason: only in dates
";

/// A rule decides by the session's repository, even about what the confirmed plan allows. The model reads the reason,
/// and nothing is sent.
#[tokio::test]
async fn a_rule_about_the_repository_of_a_session_denies_a_call() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), POLICY).unwrap();
    let setup = Setup::stdio_sqlite().env("GAVEL_POLICY", file.path().display().to_string());
    let mut script = vec![plan(vec![task_with("One", &["createIssue", "createPullRequest"])])];
    script.extend(step("createIssue", json!({"title": "x"}), continues()));
    let pull = json!({"title": "x", "head": "gavel/x", "base": "main"});
    script.extend(step(
        "createPullRequest",
        pull,
        done(2, "https://github.com/acme/dates/pull/"),
    ));
    let studio = Studio::new(setup, script).await;
    let session = studio.start().await;
    let ended = studio.execute_to_the_end(&session).await;
    assert_eq!(ended["status"], "COMPLETED", "{ended}");
    let task = studio.get(&format!("{}/tasks/t1", path(&session))).await;
    let denied = task["reactHistory"][0]["observation"]["error"].to_string();
    assert!(denied.contains("this repository takes no issues"), "{task}");
    let posts: Vec<_> = studio.github.seen("POST").into_iter().map(|seen| seen.path).collect();
    assert_eq!(posts, ["/repos/acme/dates/pulls"]);
    studio.github.finish();
    studio.app.stop().await;
}
