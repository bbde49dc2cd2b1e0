//! `gavel doctor`: each problem with Gemini is reported clearly.

use gavel::adapters::gemini::{CheckError, CredentialSource, Credentials, Endpoint, Gemini, GeminiConfig, ModelInfo};

use crate::helpers::{KEY, MODEL, error, gemini, quick};
use crate::server::{Far, json};

#[tokio::test]
async fn a_good_key_and_model_are_described() {
    let body = r#"{"name":"models/gemini-3.8-flash","inputTokenLimit":1048576,"outputTokenLimit":65536}"#;
    let far = Far::start([json(200, body)]).await;
    let expected = ModelInfo {
        model: MODEL.to_owned(),
        input_token_limit: Some(1_048_576),
        output_token_limit: Some(65_536),
    };
    assert_eq!(gemini(&far.url).check().await, Ok(expected));
    let seen = &far.seen()[0];
    assert_eq!(seen.line, "GET /v1beta/models/gemini-3.8-flash HTTP/1.1");
    assert_eq!(seen.header("x-goog-api-key"), Some(KEY));
}

#[tokio::test]
async fn vertex_is_checked_by_counting_tokens() {
    let far = Far::start([json(200, r#"{"totalTokens":1}"#)]).await;
    let metadata = Far::start([json(200, r#"{"access_token":"t","expires_in":3599}"#)]).await;
    let endpoint = Endpoint::Vertex {
        project: "p".to_owned(),
        location: "global".to_owned(),
        endpoint: Some(far.url.clone()),
        credentials: CredentialSource::Given(Credentials::metadata(&metadata.url)),
    };
    let gemini = Gemini::new(quick(GeminiConfig::new(endpoint, MODEL))).unwrap();
    assert_eq!(gemini.check().await.unwrap().input_token_limit, None);
    assert!(far.seen()[0].line.contains("/models/gemini-3.8-flash:countTokens "));
}

#[tokio::test]
async fn each_problem_has_its_own_message() {
    let info = r#"{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"API_KEY_INVALID"}"#;
    for (status, details, expected) in [
        (400, info, "the credentials do not work: "),
        (400, "", "unexpected answer from Gemini: "),
        (401, "", "the credentials do not work: "),
        (403, "", "the credentials may not use this API, project or model: "),
        (404, "", "there is no model \"gemini-3.8-flash\" at this endpoint: "),
        (429, "", "the quota is exceeded: "),
        (503, "", "Gemini cannot be reached: "),
    ] {
        let far = Far::start([json(status, &error(status, "X", details))]).await;
        let words = gemini(&far.url).check().await.unwrap_err().to_string();
        assert!(words.starts_with(expected), "{status}: {words}");
        assert_eq!(far.seen().len(), 1, "not repeated");
    }
    let closed = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .unwrap()
        .local_addr()
        .unwrap();
    let answer = gemini(&format!("http://{closed}")).check().await;
    assert!(matches!(answer, Err(CheckError::Unreachable(_))), "{answer:?}");
}
