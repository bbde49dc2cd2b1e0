//! Health, metrics, the API reference.

use serde_json::json;

use crate::harness::{HI, Setup, serve};
use crate::records::assert_valid;

#[tokio::test]
async fn readiness_depends_on_gavels_own_parts_and_lists_the_others() {
    let edge = serve(Setup::default()).await;
    let description = edge.get("/openapi.json").await.json();
    let degraded = edge.get("/readyz").await;
    let report = degraded.json();
    assert_eq!(
        (degraded.status, &report["status"]),
        (200, &json!("degraded")),
        "{report}"
    );
    assert_eq!(report["checks"]["store"], json!({"ok": true, "detail": null}));
    let checks: Vec<_> = report["checks"].as_object().unwrap().keys().collect();
    assert_eq!(checks, ["store"], "a check that cannot fail is not listed");
    edge.post(HI).await;
    let decided = edge.record.closed.lock().unwrap()[0].open.definition_hash.clone();
    assert_eq!(report["definition_hash"], *decided, "decisions carry the same");
    assert_eq!(report["mcp"][0]["state"], "down");
    let missing: Vec<_> = report["tools_unavailable"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| &one["tool"])
        .collect();
    assert!(
        missing.contains(&&json!("delete_task")) && !missing.contains(&&json!("add_task")),
        "{report}"
    );
    assert_valid(&description, "Ready", &report);

    *edge.record.away.lock().unwrap() = true;
    let unready = edge.get("/readyz").await;
    assert_eq!((unready.status, &unready.json()["status"]), (503, &json!("unready")));
    assert_valid(&description, "Ready", &unready.json());
    assert_eq!(
        edge.get("/livez").await.json(),
        json!({"status": "ok"}),
        "alive all the same"
    );
}

#[tokio::test]
async fn metrics_are_prometheus_text() {
    let edge = serve(Setup::default()).await;
    let answer = edge.get("/metrics").await;
    assert_eq!(answer.text, "gavel_up 1\n");
    assert!(answer.header("content-type").starts_with("text/plain; version=0.0.4"));
}

/// The page names and allows no other host.
#[tokio::test]
async fn the_reference_loads_nothing_from_another_host() {
    let edge = serve(Setup::default()).await;
    let page = edge.get("/docs").await;
    assert!(
        !page.text.contains("//"),
        "a page that names another host: {}",
        page.text
    );
    let assets: Vec<_> = page
        .text
        .split(['"', '\''])
        .filter(|part| part.starts_with("/docs/"))
        .collect();
    assert_eq!(assets.len(), 5, "{assets:?}");
    for asset in assets {
        let answer = edge.get(asset).await;
        assert_eq!(answer.status, 200, "{asset}");
        assert_eq!(answer.header("x-content-type-options"), "nosniff");
    }
    let policy = page.header("content-security-policy");
    assert!(
        policy.starts_with("default-src 'none'") && !policy.contains("http"),
        "{policy}"
    );
    assert_eq!(page.header("x-frame-options"), "DENY");
    let settings = edge.get("/docs/swagger-initializer.js").await;
    assert!(
        settings.text.contains("\"/openapi.json\"") && settings.text.contains("\"validatorUrl\": \"none\""),
        "{}",
        settings.text
    );
    edge.get("/docs/swagger-ui.js").await.problem(404, "not_found");
    edge.get("/docs/..%2f..%2fCargo.toml").await.problem(404, "not_found");
}

/// A client can read them with any `Accept-Encoding`, or none.
#[tokio::test]
async fn assets_are_never_compressed() {
    let edge = serve(Setup::default()).await;
    for accepted in [None, Some("gzip"), Some("identity"), Some("gzip;q=0")] {
        let mut request = edge.request(reqwest::Method::GET, "/docs/swagger-ui.css");
        if let Some(accepted) = accepted {
            request = request.header("accept-encoding", accepted);
        }
        let answer = request.send().await.unwrap();
        assert_eq!(answer.headers().get("content-encoding"), None);
        assert!(answer.text().await.unwrap().contains(".swagger-ui"), "{accepted:?}");
    }
}

/// A field that is always present is not described as optional.
#[tokio::test]
async fn the_reference_describes_itself_correctly() {
    let edge = serve(Setup::default()).await;
    let described = edge.get("/openapi.json").await.json();
    let statuses = |path: &str| -> Vec<String> {
        described["paths"][path]["get"]["responses"]
            .as_object()
            .unwrap()
            .keys()
            .cloned()
            .collect()
    };
    assert_eq!(statuses("/"), ["307", "405"]);
    assert_eq!(statuses("/docs"), ["200", "405"]);
    assert_eq!(statuses("/openapi.json"), ["200", "405"]);
    assert!(!described.to_string().contains("if it is served"));
}

#[tokio::test]
async fn the_root_redirects_to_the_reference() {
    let edge = serve(Setup::default()).await;
    let root = edge.get("/").await;
    assert_eq!((root.status, root.header("location")), (307, "/docs"));
}

/// CORS: no page of another origin may read a response.
#[tokio::test]
async fn another_origin_is_allowed_nothing() {
    let edge = serve(Setup::default()).await;
    let request = edge
        .request(reqwest::Method::GET, "/livez")
        .header("origin", "https://elsewhere.example");
    let answer = request.send().await.unwrap();
    assert!(
        !answer
            .headers()
            .keys()
            .any(|name| name.as_str().starts_with("access-control-"))
    );
}
