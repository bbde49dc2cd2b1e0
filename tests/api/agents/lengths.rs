//! The texts that gavel builds and stores from definitions and model output are limited in length.

use serde_json::json;

use super::both;
use crate::gemini::Reply;
use crate::harness::spawn_app;

const ECHO: &str = "---\nname: echo\ndescription: Says it again.\n---\n\nSay it again.\n";

fn loops() -> String {
    "---\nname: loops\ndescription: Goes round.\nflow_type: loop\nmax_iterations: 50\nsteps:\n\
     \x20 - {name: first, agent: echo, input: {query: \"${query} ${second}\"}}\n\
     \x20 - {name: second, agent: echo, input: {query: \"${first}${first}${first}${first}\"}}\n---\n"
        .to_owned()
}

/// A prompt that would be too long is not built. Its run fails with an error that names the field, and other requests
/// are served.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_prompt_that_would_be_too_long_fails_its_run_and_names_the_field() {
    for setup in both() {
        let often = "${query} ".repeat(10_000);
        let setup = setup.agent(
            "often.md",
            &format!("---\nname: often\ndescription: Says it often.\n---\n\n{often}\n"),
        );
        let app = spawn_app(setup.script(vec![Reply::Text("Hello.")])).await;
        let run = app.triggered("often", &"x".repeat(900_000)).await;
        assert_eq!(
            (&run["status"], &run["stop_reason"]),
            (&json!("failed"), &json!("size_limit")),
            "{run}"
        );
        let why = run["error_message"].as_str().unwrap();
        assert!(
            why.contains("of the agent \"often\"") && why.contains("2097152"),
            "{why}"
        );
        assert!(why.to_lowercase().contains("system"), "{why}");
        assert!(app.gemini.requests().is_empty());
        assert_eq!(app.triggered("helper", "hi").await["status"], "completed");
    }
}

/// The input of a loop's step does not grow without a limit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_whose_input_would_be_too_long_fails_its_flow_and_names_the_input() {
    for setup in both() {
        let setup = setup.agent("echo.md", ECHO).agent("loops.md", &loops());
        let app = spawn_app(setup.script(vec![Reply::Text("x".repeat(600_000).leak())])).await;
        let run = app.triggered("loops", "go").await;
        assert_eq!(
            (&run["status"], &run["stop_reason"]),
            (&json!("failed"), &json!("size_limit")),
            "{run}"
        );
        let why = run["error_message"].as_str().unwrap();
        for word in ["\"query\"", "\"second\"", "\"loops\"", "2097152"] {
            assert!(why.contains(word), "{word}: {why}");
        }
    }
}

/// The journal of a run without a step limit does not grow without a limit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_whose_journal_would_be_too_long_fails() {
    for setup in both() {
        let turns = std::sync::atomic::AtomicUsize::new(0);
        let continues = Reply::from(move |_| {
            let turn = turns.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            Reply::call(
                "add_task",
                json!({"description": format!("{turn}{}", "x".repeat(900_000))}),
            )
        });
        let app = spawn_app(setup.script(vec![continues])).await;
        let queued = app.queued("helper", "go").await;
        let run = app.over(&queued).await;
        assert_eq!(
            (&run["status"], &run["stop_reason"]),
            (&json!("failed"), &json!("size_limit")),
            "{run}"
        );
        assert!(app.gemini.requests().len() < 24);
    }
}
