//! Which callers may run agents and read their runs.

use std::time::{SystemTime, UNIX_EPOCH};

use jsonwebtoken::{EncodingKey, Header, encode};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{HELPER, id, path_of};
use crate::gemini::Reply;
use crate::harness::{Answer, App, Setup, spawn_app};

const SECRET: &str = "a-secret-of-at-least-32-bytes-that-signs";

fn by_key(setup: Setup) -> Setup {
    let keys = [
        ("one", "a", json!([])),
        ("two", "b", json!([])),
        ("ops", "a", json!(["operator"])),
    ];
    let keys = keys.map(|(name, tenant, roles)| {
        let sha256: String = Sha256::digest(name).iter().map(|byte| format!("{byte:02x}")).collect();
        json!({"name": name, "sha256": sha256, "tenant": tenant, "roles": roles})
    });
    setup
        .env("GAVEL_AUTH_MODE", "api_key")
        .env("GAVEL_AUTH_KEYS", json!(keys).to_string())
}

fn by_token(setup: Setup) -> Setup {
    setup
        .env("GAVEL_AUTH_MODE", "jwt")
        .env("GAVEL_AUTH_JWT_ISSUER", "https://issuer.example")
        .env("GAVEL_AUTH_JWT_AUDIENCE", "gavel")
        .env("GAVEL_AUTH_JWT_SECRET", SECRET)
        .env("GAVEL_AUTH_JWT_TENANT_CLAIM", "tenant")
}

fn token(user: &str, tenant: &str) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let claims = json!({
        "iss": "https://issuer.example", "aud": "gavel", "sub": user, "tenant": tenant, "exp": now + 600,
    });
    let token = encode(
        &Header::default(),
        &claims,
        &EncodingKey::from_secret(SECRET.as_bytes()),
    )
    .unwrap();
    format!("Bearer {token}")
}

async fn trigger(app: &App, headers: &[(&str, &str)]) -> Answer {
    app.trigger_with(&path_of("helper"), headers, &json!({"query": "x"}))
        .await
}

/// With `none`, the header names the user; without the header the user is `local`.
#[tokio::test]
async fn without_callers_the_header_names_the_user_and_local_is_the_default() {
    let app = spawn_app(Setup::stdio_sqlite().agent("helper.md", HELPER)).await;
    for (headers, user) in [(&[][..], "local"), (&[("x-gavel-user", "ann")][..], "ann")] {
        let run = trigger(&app, headers).await.expect(200);
        let record = app.decision(&run["id"]).await;
        assert_eq!(record["user_id"], user, "{record}");
        let path = format!("/api/runs/{}", id(&run));
        let other = app.request("GET", &path, &[("x-gavel-user", "eve")]);
        Answer::of(other).await.problem(404, "not_found");
    }
    let twice = [("x-gavel-user", "ann"), ("x-gavel-user", "bob")];
    let problem = trigger(&app, &twice).await.problem(400, "invalid_request");
    assert_eq!(problem["errors"][0]["pointer"], "X-Gavel-User", "{problem}");
}

/// A service must name the user for whom it acts.
#[tokio::test]
async fn a_service_must_name_the_user() {
    let app = spawn_app(by_key(Setup::stdio_sqlite().agent("helper.md", HELPER))).await;
    let key = ("x-api-key", "one");
    let problem = trigger(&app, &[key]).await.problem(400, "invalid_request");
    assert_eq!(problem["errors"][0]["pointer"], "X-Gavel-User", "{problem}");
    let run = trigger(&app, &[key, ("x-gavel-user", "ann")]).await.expect(200);
    // A service sees the runs of all its users, or of one of them.
    let path = format!("/api/runs/{}", id(&run));
    assert_eq!(Answer::of(app.request("GET", &path, &[key])).await.expect(200), run);
    let list = Answer::of(app.request("GET", "/api/projects/default/runs", &[key]))
        .await
        .expect(200);
    assert_eq!(list["runs"], json!([run]));
}

/// A token stands for one user and cannot name another.
#[tokio::test]
async fn a_token_identifies_one_user_and_naming_another_is_403() {
    let app = spawn_app(by_token(Setup::stdio_sqlite().agent("helper.md", HELPER))).await;
    let ann = token("ann", "a");
    let auth = ("authorization", ann.as_str());
    let problem = trigger(&app, &[auth, ("x-gavel-user", "bob")])
        .await
        .problem(403, "user_mismatch");
    assert!(
        problem["detail"].as_str().unwrap().contains("X-Gavel-User"),
        "{problem}"
    );
    for headers in [&[auth][..], &[auth, ("x-gavel-user", "ann")][..]] {
        let run = trigger(&app, headers).await.expect(200);
        assert_eq!(run["status"], "completed", "{run}");
    }
    trigger(&app, &[]).await.problem(401, "unauthenticated");
}

/// Every route that takes the id of a run: path and method.
async fn routes_of_a_run(app: &App) -> Vec<(String, String)> {
    let (_, api) = app.get("/openapi.json").await;
    let paths = api["paths"].as_object().unwrap().iter();
    let mut routes: Vec<_> = paths
        .filter(|(path, _)| path.starts_with("/api/runs/{id}"))
        .flat_map(|(path, methods)| {
            let methods = methods.as_object().unwrap().keys();
            methods.map(|method| (method.to_uppercase(), path.clone()))
        })
        .collect();
    routes.sort();
    routes
}

/// A run of another tenant or user answers as a missing one on every route, and stays unchanged.
#[tokio::test]
async fn a_run_of_another_user_is_missing_on_every_route() {
    for setup in [Setup::stdio_sqlite(), Setup::stdio_postgres()] {
        let app = spawn_app(by_token(setup.agent("helper.md", HELPER)).script(vec![Reply::Hang])).await;
        let [ann, bob, foreign] = [("ann", "a"), ("bob", "a"), ("ann", "b")].map(|(user, tenant)| token(user, tenant));
        let headers = [("authorization", ann.as_str()), ("prefer", "respond-async")];
        let run = id(&trigger(&app, &headers).await.expect(202));
        app.asked(1).await;
        let routes = routes_of_a_run(&app).await;
        assert_eq!(routes.len(), 4, "{routes:?}");
        let missing = "018f0000-0000-7000-8000-000000000000";
        for (method, path) in &routes {
            let ask = async |who: &str, run: &str| {
                let request = app.request(method, &path.replace("{id}", run), &[("authorization", who)]);
                let request = request.header("content-type", "application/json").body("{}");
                let mut problem = Answer::of(request).await.problem(404, "not_found");
                problem["request_id"] = Value::Null;
                // The error repeats the id in the request.
                let detail = problem["detail"].as_str().unwrap();
                assert!(detail.contains(run), "{detail}");
                problem["detail"] = Value::from(detail.replace(run, "ID"));
                problem
            };
            let nothing = ask(&ann, missing).await;
            assert_eq!(ask(&bob, &run).await, nothing, "{method} {path}");
            assert_eq!(ask(&foreign, &run).await, nothing, "{method} {path}");
            assert_eq!(ask(&ann, "no-id").await, nothing, "{method} {path}");
        }
        let path = format!("/api/runs/{run}");
        let still = Answer::of(app.request("GET", &path, &headers[..1])).await.expect(200);
        assert_eq!(still["status"], "running", "{still}");
        for other in [&bob, &foreign] {
            let list = app.request("GET", "/api/projects/default/runs", &[("authorization", other)]);
            assert_eq!(Answer::of(list).await.expect(200)["runs"], json!([]));
        }
    }
}

/// Projects belong to a tenant, and only operators put definitions.
#[tokio::test]
async fn only_operators_put_definitions_and_only_their_tenant_sees_them() {
    for setup in [Setup::stdio_sqlite(), Setup::stdio_postgres()] {
        let app = spawn_app(by_key(setup.agent("helper.md", HELPER))).await;
        let path = "/api/projects/shop/agents/seller";
        let seller = "---\nname: seller\ndescription: Sells.\n---\n\nSell.\n";
        let put = async |key: &str| {
            let headers = [("x-api-key", key), ("content-type", "text/markdown")];
            Answer::of(app.request("PUT", path, &headers).body(seller)).await
        };
        put("one").await.problem(403, "forbidden");
        put("ops").await.expect(201);
        let see = async |key: &str, path: &str| Answer::of(app.request("GET", path, &[("x-api-key", key)])).await;
        assert_eq!(see("one", path).await.expect(200)["version"], 1);
        let versions = format!("{path}/versions");
        let version = format!("{versions}/1");
        for path in [
            path,
            "/api/projects/shop/agents",
            "/api/projects/shop/runs",
            &versions,
            &version,
        ] {
            see("two", path).await.problem(404, "not_found");
        }
        let headers = [("x-api-key", "two"), ("x-gavel-user", "ann")];
        let trigger = app
            .trigger_with(&format!("{path}/trigger"), &headers, &json!({"query": "x"}))
            .await;
        trigger.problem(404, "not_found");
        let headers = [("x-api-key", "one"), ("x-gavel-user", "ann")];
        let run = app
            .trigger_with(&format!("{path}/trigger"), &headers, &json!({"query": "x"}))
            .await
            .expect(200);
        assert_eq!(
            (&run["project_id"], &run["definition_version"]),
            (&json!("shop"), &json!(1)),
            "{run}"
        );
    }
}
