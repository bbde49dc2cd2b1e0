//! Requests that a browser sends for a page of another site.

use std::sync::Arc;

use gavel::domain::ids::TenantId;
use gavel::http::caller::{Auth, ServiceKey};
use gavel::surfaces::caller::{Caller, Identity};
use reqwest::Method;
use sha2::{Digest, Sha256};

use crate::harness::{Answer, Running, Setup, serve};

/// Every route that changes something: method, and path with values for its parameters.
fn changing_routes() -> Vec<(Method, String)> {
    let changing = gavel::http::routes().filter(|(method, _)| *method != "GET");
    let changing = changing.map(|(method, path)| {
        let parts = path.split('/').map(|part| match part {
            "{id}" => "018f0000-0000-7000-8000-000000000000",
            "{version}" => "1",
            part if part.starts_with('{') => "some",
            part => part,
        });
        (method.parse().unwrap(), parts.collect::<Vec<_>>().join("/"))
    });
    changing.collect()
}

async fn send(edge: &Running, (method, path): &(Method, String), headers: &[(&str, &str)]) -> Answer {
    let request = edge.request(method.clone(), path);
    let kind = match path.starts_with("/console") {
        true => "application/x-www-form-urlencoded",
        false => "application/json",
    };
    let request = headers
        .iter()
        .fold(request, |request, (name, value)| request.header(*name, *value));
    Answer::of(request.header("content-type", kind).body("{}").send().await.unwrap()).await
}

const FOREIGN: [(&str, &str); 5] = [
    ("origin", "https://evil.example"),
    ("origin", "null"),
    ("origin", "http://localhost:1"),
    ("sec-fetch-site", "cross-site"),
    ("sec-fetch-site", "same-site"),
];

/// Without authentication, being on this machine is enough; a page of another site in the user's browser is there too.
#[tokio::test]
async fn without_credentials_no_route_changes_anything_for_a_page_of_another_site() {
    let edge = serve(Setup::default()).await;
    let routes = changing_routes();
    assert!(routes.len() >= 17, "the table was not read: {routes:?}");
    for route in &routes {
        // No login is needed there, so it only redirects.
        let leads_on = route.1 == "/console/login";
        for header in FOREIGN {
            let answer = send(&edge, route, &[header]).await;
            let expected = if leads_on { 303 } else { 403 };
            assert_eq!(answer.status, expected, "{route:?} {header:?}: {}", answer.text);
            if !route.1.starts_with("/console") {
                answer.problem(403, "forbidden");
            }
        }
        let own = edge.url.as_str();
        for headers in [&[][..], &[("sec-fetch-site", "same-origin")], &[("origin", own)]] {
            let answer = send(&edge, route, headers).await;
            assert!(
                !answer.text.contains("another site"),
                "{route:?} {headers:?}: {}",
                answer.text
            );
        }
    }
    assert!(edge.record.closed.lock().unwrap().is_empty());
}

/// A key is sent in a header that no page can make a browser send by itself, so a request with a key may come from
/// anywhere.
#[tokio::test]
async fn with_a_key_it_does_not_matter_where_a_request_comes_from() {
    let key = ServiceKey {
        name: Arc::from("web"),
        sha256: Sha256::digest("a key").into(),
        caller: Caller {
            tenant: TenantId::parse("acme").unwrap(),
            identity: Identity::Service(Arc::from("web")),
            roles: Arc::default(),
        },
    };
    let edge = serve(Setup {
        auth: Auth::ApiKeys(vec![key]),
        ..Setup::default()
    })
    .await;
    let body = r#"{"message":"hi","user_id":"ann"}"#;
    for header in FOREIGN {
        assert_eq!(
            edge.post_with(&[("x-api-key", "a key"), header], body).await.status,
            200
        );
    }
}
