//! What operators can count.

use gavel::domain::journal::FaultKind;
use metrics_exporter_prometheus::PrometheusBuilder;

use crate::helpers::{ask, assert_fault, error, gemini, said};
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
