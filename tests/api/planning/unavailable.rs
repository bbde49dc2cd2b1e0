//! The model while it is unavailable or answers with something else, walked over HTTP.

use std::time::{Duration, Instant};

use serde_json::json;

use super::studio::{HOUR, Studio, ahead, continues, done, on_both, path, plan, reason, step, task_with};
use crate::gemini::Reply;
use crate::harness::Setup;

fn unavailable() -> Reply {
    Reply::error(503, "UNAVAILABLE", json!([]))
}

/// The work pauses while the model is unavailable, and continues where it was.
#[tokio::test]
async fn the_work_continues_when_the_model_is_back() {
    on_both(async |setup| {
        let mut script = vec![plan(vec![task_with("One", &["getFileContents"])])];
        script.extend(vec![unavailable(); 5]);
        script.extend(step(
            "getFileContents",
            json!({"path": "README.md"}),
            done(1, "Reads a date from text"),
        ));
        let studio = Studio::new(setup, script).await;
        let ended = studio.execute_to_the_end(&studio.start().await).await;
        assert_eq!(ended["status"], "COMPLETED", "{ended}");
        let task = studio.get(&format!("{}/tasks/t1", path(&ended))).await;
        assert_eq!(task["reactHistory"].as_array().unwrap().len(), 1, "{task}");
        studio.stop_having_only_read().await;
    })
    .await;
}

/// The patience has an end, which leaves the plan, its history and all steps as they were.
#[tokio::test]
async fn a_session_fails_once_the_model_was_unavailable_for_too_long() {
    let mut script = vec![plan(vec![
        task_with("One", &["getFileContents"]),
        task_with("Two", &["getFileContents"]),
    ])];
    script.extend(step("getFileContents", json!({"path": "README.md"}), continues()));
    script.push(unavailable());
    let studio = Studio::with(Setup::stdio_sqlite(), script, |setup| {
        setup.toml("model_patience = \"1s\"\n")
    })
    .await;
    let session = studio.start().await;
    let ended = studio.execute_to_the_end(&session).await;
    assert_eq!(
        (&ended["status"], &ended["statusReason"]["code"]),
        (&json!("FAILED"), &json!("model_unavailable")),
        "{ended}"
    );
    assert_eq!(ended["plan"][0]["status"], "FAILED");
    assert_eq!(ended["plan"][1]["status"], "PENDING");
    let task = studio.get(&format!("{}/tasks/t1", path(&session))).await;
    assert_eq!(
        task["reactHistory"][0]["reflection"]["summary"], "Not done yet.",
        "{task}"
    );
    let history = studio.get(&format!("{}/history", path(&session))).await;
    assert_eq!(history["versions"].as_array().unwrap().len(), 1);
    studio.stop_having_only_read().await;
}

/// A pause ends with the deadline, so the work does too.
#[tokio::test]
async fn the_deadline_ends_a_pause() {
    let script = vec![
        plan(vec![task_with("One", &["getFileContents"])]),
        reason("I begin."),
        unavailable(),
    ];
    let studio = Studio::new(Setup::stdio_sqlite(), script).await;
    // The pauses are 5 and 10 seconds: the second would end long after it.
    let deadline = Duration::from_secs(12);
    let session = studio.start_until(deadline).await;
    let began = Instant::now();
    studio.execute(&session, json!({})).await.expect(202);
    tokio::time::sleep(deadline).await;
    let ended = studio
        .once(&session, "its task ends", |session| {
            session["plan"][0]["status"] == "FAILED"
        })
        .await;
    assert!(
        began.elapsed() < deadline + Duration::from_secs(5),
        "{:?}",
        began.elapsed()
    );
    assert_eq!(ended["status"], "DEADLINE_EXCEEDED", "{ended}");
    assert_eq!(ended["plan"][0]["statusReason"]["code"], "deadline", "{ended}");
    studio.app.stop().await;
}

/// An answer that is no plan goes back to the model, and not for ever.
#[tokio::test]
async fn a_model_that_makes_no_plan_fails_the_session() {
    let studio = Studio::new(
        Setup::stdio_sqlite(),
        vec![Reply::Text("No."), Reply::Text("Still no.")],
    )
    .await;
    let body = json!({
        "prompt": "p", "repoUrl": "https://github.com/acme/dates", "deadline": ahead(HOUR),
    });
    let failed = studio.start_with(&[], body).await.expect(201);
    assert_eq!(
        (&failed["status"], &failed["statusReason"]["code"]),
        (&json!("FAILED"), &json!("plan_invalid")),
        "{failed}"
    );
    assert!((2..=5).contains(&studio.app.gemini.requests().len()));
    studio.stop_having_only_read().await;
}

/// A plan that fits its schema but is too long goes back to the model too, which can hand in a shorter one.
#[tokio::test]
async fn a_plan_that_is_too_long_goes_back_to_the_model() {
    let long = (0..30).map(|n| {
        let mut task = task_with(&format!("Task {n}"), &["getFileContents"]);
        (task["goal"], task["doneWhen"]) = (json!("g".repeat(2000)), json!("d".repeat(500)));
        task
    });
    let short = plan(vec![task_with("One", &["getFileContents"])]);
    let studio = Studio::new(Setup::stdio_sqlite(), vec![plan(long.collect()), short]).await;
    let session = studio.start().await;
    assert_eq!(
        (&session["status"], &session["plan"][0]["title"]),
        (&json!("AWAITING_CONFIRMATION"), &json!("One")),
        "{session}"
    );
    let requests = studio.app.gemini.requests();
    let answered = requests[1]["contents"].as_array().unwrap().last().unwrap().to_string();
    assert!(
        answered.contains("/plan/tasks: the plan has ") && answered.contains("at most 65536 are allowed"),
        "{answered}"
    );
    assert_eq!(requests.len(), 2);
    studio.stop_having_only_read().await;
}

/// A second refinement also sees what was asked for before.
#[tokio::test]
async fn a_refinement_sees_the_earlier_ones() {
    let one = || plan(vec![task_with("One", &["getFileContents"])]);
    let studio = Studio::new(Setup::stdio_sqlite(), vec![one()]).await;
    let session = studio.start().await;
    studio.refine(&session, "tests first, please").await.expect(200);
    let third = studio.refine(&session, "and leave the README alone").await.expect(200);
    assert_eq!(third["planVersion"], 3, "{third}");
    let requests = studio.app.gemini.requests();
    let last = requests.last().unwrap()["contents"].to_string();
    for said in ["Accept ISO weeks", "tests first, please", "and leave the README alone"] {
        assert!(last.contains(said), "{said}: {last}");
    }
    let history = studio.get(&format!("{}/history", path(&session))).await;
    for version in history["versions"].as_array().unwrap() {
        assert!(
            chrono::DateTime::parse_from_rfc3339(version["at"].as_str().unwrap()).is_ok(),
            "{version}"
        );
    }
    studio.stop_having_only_read().await;
}
