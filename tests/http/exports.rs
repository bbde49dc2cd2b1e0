//! Exports on the wire, over a store that fails when told to.

use futures_util::StreamExt;
use reqwest::Method;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::harness::{Answer, Running, Setup, serve};

/// The bytes that arrive, and the id of the export if they end as a whole response does. A connection may break before its
/// first byte was sent.
async fn received(edge: &Running, path: &str) -> (Vec<u8>, Option<String>) {
    let Ok(response) = edge.request(Method::GET, path).send().await else {
        return (Vec::new(), None);
    };
    assert_eq!(response.status(), 200);
    let id = response.headers()["x-gavel-export"].to_str().unwrap().to_owned();
    let (mut bytes, mut stream) = (Vec::new(), response.bytes_stream());
    while let Some(piece) = stream.next().await {
        match piece {
            Ok(piece) => bytes.extend_from_slice(&piece),
            Err(_) => return (bytes, None),
        }
    }
    (bytes, Some(id))
}

async fn manifest(edge: &Running, id: &str) -> Value {
    edge.get(&format!("/v1/exports/{id}")).await.json()
}

#[tokio::test]
async fn a_whole_export_ends_and_its_manifest_has_its_digest() {
    let edge = serve(Setup::default()).await;
    *edge.record.pages.lock().unwrap() = (2, None);
    let (bytes, id) = received(&edge, "/v1/export/decisions").await;
    let id = id.unwrap();
    assert_eq!(
        String::from_utf8(bytes.clone()).unwrap(),
        "text,number\r\n'=1+1,-1\r\n'=1+1,-1\r\n'=1+1,-1\r\n'=1+1,-1\r\n"
    );
    let manifest = manifest(&edge, &id).await;
    for (name, value) in [
        ("export_id", json!(id)),
        ("source", json!("decisions")),
        ("format", json!("csv")),
        ("fields", json!(["text", "number"])),
        ("rows", json!(4)),
        ("first", json!("a")),
        ("last", json!("b")),
        ("bytes", json!(bytes.len())),
        ("sha256", json!(hex::encode(Sha256::digest(&bytes)))),
        ("complete", json!(true)),
    ] {
        assert_eq!(manifest[name], value, "{name}: {manifest}");
    }
    let answer = edge
        .request(Method::HEAD, "/v1/export/decisions?format=parquet")
        .send()
        .await
        .unwrap();
    assert_eq!(answer.headers()["content-type"], "application/vnd.apache.parquet");
    assert_eq!(edge.record.taken.lock().unwrap().len(), 1, "HEAD takes nothing");
}

/// Promise: an export never ends as if it were whole. Rows that cannot be read, and an audit log that cannot be written,
/// break the connection within the body.
#[tokio::test]
async fn an_export_that_fails_breaks_the_connection() {
    let edge = serve(Setup::default()).await;
    for format in ["csv", "ndjson", "parquet"] {
        let path = format!("/v1/export/decisions?format={format}");
        *edge.record.pages.lock().unwrap() = (3, Some(1));
        let (bytes, whole) = received(&edge, &path).await;
        assert_eq!(whole, None, "{format}");
        assert!(!String::from_utf8_lossy(&bytes).contains("canary"), "{format}");
        let id = edge.record.taken.lock().unwrap().last().unwrap().1.export_id;
        let manifest = manifest(&edge, &id.to_string()).await;
        assert_eq!(
            (&manifest["rows"], &manifest["complete"], &manifest["format"]),
            (&json!(3), &json!(false), &json!(format)),
            "{manifest}"
        );

        *edge.record.pages.lock().unwrap() = (3, None);
        *edge.record.close_fails.lock().unwrap() = true;
        let (_, whole) = received(&edge, &path).await;
        assert_eq!(whole, None, "{format}: it is not entered");
        assert_eq!(edge.record.taken.lock().unwrap().last().unwrap().1.export_id, id);
        *edge.record.close_fails.lock().unwrap() = false;
    }
    // A failure before the first byte is a problem.
    *edge.record.pages.lock().unwrap() = (3, Some(0));
    edge.get("/v1/export/decisions")
        .await
        .problem(503, "record_unavailable");
}

#[tokio::test]
async fn a_reader_that_leaves_is_entered_too() {
    let edge = serve(Setup::default()).await;
    *edge.record.pages.lock().unwrap() = (400_000, None);
    let mut response = edge.request(Method::GET, "/v1/export/audit").send().await.unwrap();
    response.chunk().await.unwrap();
    drop(response);
    let entered = || edge.record.taken.lock().unwrap().first().cloned();
    let until = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while entered().is_none() && std::time::Instant::now() < until {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let (actor, taken) = entered().unwrap();
    assert!(!taken.complete && taken.rows < 800_000, "{taken:?}");
    assert_eq!(actor, "service:local");
}

#[tokio::test]
async fn each_invalid_parameter_is_named() {
    let edge = serve(Setup::default()).await;
    let query = "format=xml&content=yes&from=yesterday&raw=2&colour=1";
    let problem = edge
        .get(&format!("/v1/export/decisions?{query}"))
        .await
        .problem(400, "invalid_request");
    let pointers: Vec<_> = problem["errors"]
        .as_array()
        .unwrap()
        .iter()
        .map(|error| error["pointer"].clone())
        .collect();
    assert_eq!(pointers, ["format", "content", "from", "raw", "colour"]);
    let problem = edge
        .get("/v1/export/decisions?from=2026-11-20T00:00:00Z&to=2026-11-20T00:00:00Z")
        .await
        .problem(400, "invalid_request");
    assert_eq!(problem["errors"][0]["pointer"], "to");
    let problem = edge.get("/v1/export/secrets").await.problem(404, "not_found");
    assert!(problem["detail"].as_str().unwrap().contains("model-turns"), "{problem}");
    let request = edge
        .request(Method::GET, "/v1/export/audit")
        .header("x-gavel-user", "ann");
    Answer::of(request.send().await.unwrap())
        .await
        .problem(403, "forbidden");
}
