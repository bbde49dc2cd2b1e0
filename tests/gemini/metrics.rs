//! Metrics for operators.

use std::collections::HashSet;

use gavel::domain::journal::FaultKind;
use gavel::ports::model::ModelSettings;
use metrics_exporter_prometheus::PrometheusBuilder;

use crate::helpers::{Question, ask, assert_fault, error, gemini, said};
use crate::server::{Far, json};

#[test]
fn attempts_retries_faults_and_tokens_are_counted() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let handle = recorder.handle();
    metrics::with_local_recorder(&recorder, || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let busy = json(503, &error(503, "UNAVAILABLE", ""));
            let refused = json(403, &error(403, "X", ""));
            let far = Far::start([busy, json(200, &said("a")), refused]).await;
            let gemini = gemini(&far.url);
            ask(&gemini).await.unwrap();
            assert_fault(ask(&gemini).await, FaultKind::Permission, "403", 1);
        });
    });
    let text = handle.render();
    for line in [
        r#"gavel_model_attempts_total{endpoint="developer",model="gemini-3.8-flash",outcome="answered"} 1"#,
        r#"gavel_model_attempts_total{endpoint="developer",model="gemini-3.8-flash",outcome="unavailable"} 1"#,
        r#"gavel_model_attempts_total{endpoint="developer",model="gemini-3.8-flash",outcome="permission"} 1"#,
        r#"gavel_model_retries_total{endpoint="developer",model="gemini-3.8-flash",after="unavailable"} 1"#,
        r#"gavel_model_faults_total{endpoint="developer",model="gemini-3.8-flash",kind="permission"} 1"#,
        r#"gavel_model_tokens_total{endpoint="developer",model="gemini-3.8-flash",kind="input"} 10"#,
        r#"gavel_model_tokens_total{endpoint="developer",model="gemini-3.8-flash",kind="thought"} 2"#,
        r#"gavel_model_breaker_state{endpoint="developer"} 0"#,
    ] {
        assert!(
            text.lines().any(|found| found == line),
            "{line} is missing from\n{text}"
        );
    }
    assert!(text.contains("gavel_model_attempt_seconds"), "{text}");
}

/// Definitions name models, and a metric is kept for each label for ever: thousands of names take bounded memory.
#[test]
fn metrics_of_user_chosen_model_names_take_bounded_memory() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let handle = recorder.handle();
    metrics::with_local_recorder(&recorder, || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let refused = std::iter::repeat_with(|| json(403, &error(403, "X", ""))).take(300);
            let far = Far::start(refused).await;
            let gemini = gemini(&far.url);
            for n in 0..300 {
                let model = format!("model-{n}-{}", "x".repeat(200));
                let settings = ModelSettings {
                    model: Some(model),
                    ..ModelSettings::default()
                };
                let question = Question {
                    settings,
                    ..Question::default()
                };
                question.ask(&gemini).await.unwrap_err();
            }
        });
    });
    let text = handle.render();
    let models: HashSet<_> = text
        .lines()
        .filter_map(|line| line.split_once("model=\"")?.1.split_once('"'))
        .map(|(model, _)| model)
        .collect();
    assert!(
        (2..=65).contains(&models.len()) && models.contains("other"),
        "{}",
        models.len()
    );
    assert!(models.iter().all(|model| model.len() <= 128), "{models:?}");
    assert!(text.len() < 512 << 10, "{} bytes", text.len());
}
