//! What is somebody else's is not there, by every route there is (issue, Must show; DESIGN.md section 9, Callers).

use std::time::{SystemTime, UNIX_EPOCH};

use jsonwebtoken::{EncodingKey, Header, encode};
use serde_json::{Value, json};

use crate::gemini::Reply;
use crate::harness::{Answer, App, Setup, spawn_app};

const SECRET: &str = "a-shared-secret-of-at-least-32-bytes";

const WORKSPACE: &str = "---\nname: workspace\ndescription: Works.\ntools: [add_task]\n---\n\nYou are the workspace.\n";

fn token(user: &str, tenant: &str, roles: &[&str]) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let claims = json!({
        "iss": "https://issuer.example", "aud": "gavel", "sub": user, "org": tenant, "roles": roles, "exp": now + 600,
    });
    encode(
        &Header::default(),
        &claims,
        &EncodingKey::from_secret(SECRET.as_bytes()),
    )
    .unwrap()
}

async fn ask(app: &App, token: &str, method: &str, path: &str, body: Option<Value>) -> Answer {
    let authorization = format!("Bearer {token}");
    let headers = [
        ("authorization", authorization.as_str()),
        ("content-type", "application/json"),
    ];
    let request = app.request(method, path, &headers);
    Answer::of(match body {
        Some(body) => request.json(&body),
        None => request,
    })
    .await
}

/// What ann has: each with the id that others may try.
struct Hers {
    thread: String,
    /// Waits for leave.
    run: String,
    action: String,
    approval: String,
    grant: String,
}

impl Hers {
    async fn made(app: &App, ann: &str) -> Self {
        let say = json!({"prompt": "Put bob on my list."});
        let first = ask(app, ann, "POST", "/api/agent/run", Some(say)).await.expect(200);
        let always = json!({
            "approvalId": first["actions"][0]["approvalId"], "decision": "approve_and_always_allow_recipient",
        });
        let done = ask(app, ann, "POST", "/api/agent/approvals/resolve", Some(always)).await;
        assert_eq!(done.expect(200)["status"], "completed");
        let grants = ask(app, ann, "GET", "/api/agent/grants", None).await.expect(200);
        let more = json!({"prompt": "And eve.", "threadId": first["threadId"]});
        let waiting = ask(app, ann, "POST", "/api/agent/run", Some(more)).await.expect(200);
        assert_eq!(waiting["status"], "awaiting_confirmation", "{waiting}");
        let text = |value: &Value| value.as_str().unwrap_or_else(|| panic!("{value}")).to_owned();
        Self {
            thread: text(&waiting["threadId"]),
            run: text(&waiting["runId"]),
            action: text(&waiting["actions"][0]["actionId"]),
            approval: text(&waiting["actions"][0]["approvalId"]),
            grant: text(&grants["grants"][0]["grantId"]),
        }
    }

    /// The path with what is hers in it, and a body that its route takes; `None` where nothing in it is anybody's.
    fn at(&self, method: &str, path: &str) -> Option<(String, Option<Value>)> {
        let with = |id: &str| path.replace("{id}", id);
        let in_thread = || Some(json!({"prompt": "Mine now.", "threadId": self.thread}));
        Some(match (method, path) {
            ("POST", "/api/agent/run" | "/api/agent/run/stream") => (path.to_owned(), in_thread()),
            ("POST", "/api/agent/approvals/resolve") => {
                let yes = json!({"approvalId": self.approval, "decision": "approve_once"});
                (path.to_owned(), Some(yes))
            }
            ("GET", "/api/agent/threads/{id}") => (with(&self.thread), None),
            (
                "GET",
                "/api/agent/runs/{id}" | "/api/agent/runs/{id}/events" | "/api/runs/{id}" | "/api/runs/{id}/events",
            ) => (with(&self.run), None),
            ("POST", "/api/agent/runs/{id}/cancel" | "/api/runs/{id}/cancel" | "/api/runs/{id}/resume") => {
                (with(&self.run), Some(json!({})))
            }
            ("POST", "/api/agent/actions/{id}/settle") => (with(&self.action), Some(json!({"happened": true}))),
            ("DELETE", "/api/agent/grants/{id}") => (with(&self.grant), None),
            ("GET", "/v1/decisions/{id}") => (with(&self.run), None),
            _ => return None,
        })
    }

    /// Is anything of hers told in a list?
    fn is_in(&self, list: &Value) -> bool {
        let text = list.to_string();
        let ids = [&self.thread, &self.run, &self.action, &self.approval, &self.grant];
        ids.into_iter().any(|id| text.contains(id.as_str()))
    }
}

/// Routes with nothing of a user's in them: what a tenant's users share, what everybody may see, and what makes something new.
const NOBODYS: [&str; 5] = ["/docs", "/openapi.json", "/schemas/", "/livez", "/v1/chat"];
const SHARED: &str = "/api/projects/{project}/agents";

/// by no route does another user, or the approver of another tenant, see or touch what is ann's; she still can.
#[tokio::test]
async fn nobody_sees_or_touches_what_is_somebody_elses_by_any_route() {
    for setup in [Setup::stdio_sqlite(), Setup::stdio_postgres()] {
        let model = Reply::from(|request| {
            let said = request["contents"].as_array().unwrap();
            let add = |to: &str| Reply::call("add_task", json!({ "description": to }));
            match said.last().unwrap()["parts"][0]["text"].as_str() {
                Some(text) if text.contains("bob") => add("bob@example.com"),
                Some(text) if text.contains("eve") => add("eve@example.com"),
                _ => Reply::Text("Done."),
            }
        });
        let setup = setup
            .script(vec![model])
            .agent("workspace.md", WORKSPACE)
            .tool("add_task", json!({"recipients": ["description"]}))
            .env("GAVEL_AUTH_MODE", "jwt")
            .env("GAVEL_AUTH_JWT_ISSUER", "https://issuer.example")
            .env("GAVEL_AUTH_JWT_AUDIENCE", "gavel")
            .env("GAVEL_AUTH_JWT_SECRET", SECRET)
            .env("GAVEL_AUTH_JWT_TENANT_CLAIM", "org");
        let app = spawn_app(setup).await;
        let ann = token("ann", "acme", &[]);
        let hers = Hers::made(&app, &ann).await;
        let (_, document) = app.get("/openapi.json").await;
        let mut tried = 0;
        for (path, operations) in document["paths"].as_object().unwrap() {
            for method in operations
                .as_object()
                .unwrap()
                .keys()
                .map(|method| method.to_uppercase())
            {
                for stranger in [
                    token("eve", "acme", &[]),
                    token("mallory", "rival", &["approver", "editor"]),
                ] {
                    let told = format!("{method} {path}");
                    if let Some((path, body)) = hers.at(&method, path) {
                        let answer = ask(&app, &stranger, &method, &path, body).await;
                        assert_eq!(answer.status, 404, "{told}: {}", answer.body);
                        answer.problem(404, "not_found");
                        tried += 1;
                    } else if method == "GET" && !path.contains('{') || path == "/api/projects/{project}/runs" {
                        let path = path.replace("{project}", "default");
                        let answer = ask(&app, &stranger, &method, &path, None).await;
                        assert!(!hers.is_in(&answer.body), "{told}: {}", answer.body);
                        tried += 1;
                    } else {
                        let nobodys = NOBODYS.iter().any(|one| path.starts_with(one));
                        assert!(nobodys || path.starts_with(SHARED), "{told}: whose is it?");
                    }
                }
            }
        }
        assert!(tried > 40, "{tried}");
        let threads = ask(&app, &ann, "GET", "/api/agent/threads", None).await.expect(200);
        assert!(hers.is_in(&threads), "her own are there: {threads}");
        let yes = json!({"approvalId": hers.approval, "decision": "approve_once"});
        let done = ask(&app, &ann, "POST", "/api/agent/approvals/resolve", Some(yes)).await;
        assert_eq!(done.expect(200)["status"], "completed");
        assert_eq!(app.tasks().await.len(), 2);
    }
}
