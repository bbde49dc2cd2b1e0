//! Another user's data is not found, by any route of the API or of the console.

use std::collections::BTreeSet;

use std::time::{SystemTime, UNIX_EPOCH};

use jsonwebtoken::{EncodingKey, Header, encode};
use regex::Regex;
use serde_json::{Value, json};

use crate::audit::rows;
use crate::console::rig::Browser;
use crate::gemini::Reply;
use crate::harness::{Answer, App, Setup, spawn_app};
use crate::planning::{self, HOUR, ahead};

pub(crate) const SECRET: &str = "a-shared-secret-of-at-least-32-bytes";

const WORKSPACE: &str = "---\nname: workspace\ndescription: Works.\ntools: [add_task]\n---\n\nYou are the workspace.\n";

pub(crate) fn token(user: &str, tenant: &str, roles: &[&str]) -> String {
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
    let mut headers = vec![
        ("authorization", authorization.as_str()),
        ("content-type", "application/json"),
    ];
    if method == "PUT" {
        headers.push(("if-match", "\"1\""));
    }
    let request = app.request(method, path, &headers);
    Answer::of(match body {
        Some(body) => request.json(&body),
        None => request,
    })
    .await
}

/// Ann's resources, each with the id that others may try.
struct Hers {
    thread: String,
    /// Waits for approval.
    run: String,
    action: String,
    approval: String,
    grant: String,
    /// Of planning.
    session: String,
    export: String,
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
        let start = json!({"prompt": "p", "repoUrl": "https://github.com/acme/dates", "deadline": ahead(HOUR)});
        let session = ask(app, ann, "POST", "/v1/sessions", Some(start)).await.expect(201);
        assert_eq!(session["status"], "AWAITING_CONFIRMATION", "{session}");
        let grants = ask(app, ann, "GET", "/api/agent/grants", None).await.expect(200);
        let more = json!({"prompt": "And eve.", "threadId": first["threadId"]});
        let waiting = ask(app, ann, "POST", "/api/agent/run", Some(more)).await.expect(200);
        assert_eq!(waiting["status"], "awaiting_confirmation", "{waiting}");
        let exported = ask(app, ann, "GET", "/v1/export/decisions", None).await;
        let text = |value: &Value| value.as_str().unwrap_or_else(|| panic!("{value}")).to_owned();
        Self {
            thread: text(&waiting["threadId"]),
            run: text(&waiting["runId"]),
            action: text(&waiting["actions"][0]["actionId"]),
            approval: text(&waiting["actions"][0]["approvalId"]),
            grant: text(&grants["grants"][0]["grantId"]),
            session: text(&session["sessionId"]),
            export: exported.header("x-gavel-export").to_owned(),
        }
    }

    /// The path with her ids, and a body that its route takes; `None` if it has no data of a user.
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
            ("GET", "/api/agent/actions/{id}/why") => (with(&self.action), None),
            ("POST", "/api/agent/actions/{id}/settle") => (with(&self.action), Some(json!({"happened": true}))),
            ("GET" | "DELETE", "/api/agent/grants/{id}") => (with(&self.grant), None),
            ("GET", "/v1/decisions/{id}" | "/v1/decisions/{id}/request" | "/v1/decisions/{id}/why") => {
                (with(&self.run), None)
            }
            ("GET", "/v1/exports/{id}") => (with(&self.export), None),
            ("GET", path) if path.starts_with("/v1/sessions/{id}") => (
                with(&self.session).replace("{version}", "1").replace("{taskId}", "t1"),
                None,
            ),
            ("POST", "/v1/sessions/{id}/refine") => {
                (with(&self.session), Some(json!({"refinementPrompt": "Mine now."})))
            }
            ("PUT", "/v1/sessions/{id}/plan") => {
                (with(&self.session), Some(json!({"tasks": [planning::task("Mine")]})))
            }
            ("POST", "/v1/sessions/{id}/execute") => (with(&self.session), Some(json!({"planVersion": 1}))),
            ("POST", "/v1/sessions/{id}/cancel") => (with(&self.session), Some(json!({"reason": "Mine now."}))),
            _ => return None,
        })
    }

    /// The same for the console, with the fields of its form.
    fn in_console(&self, method: &str, path: &str) -> Option<(String, &'static [Field])> {
        let with = |id: &str| path.replace("{id}", id);
        Some(match (method, path) {
            ("GET", "/console/approvals/{id}") => (with(&self.approval), &[]),
            ("POST", "/console/approvals/{id}") => (with(&self.approval), &[("decision", "approve_once")]),
            ("GET", "/console/decisions/{id}") => (with(&self.run), &[]),
            ("GET", "/console/threads/{id}") => (with(&self.thread), &[]),
            ("GET", "/console/actions/{id}" | "/console/actions/{id}/html") => (with(&self.action), &[]),
            ("POST", "/console/actions/{id}") => (with(&self.action), &[("happened", "yes")]),
            ("POST", "/console/grants/{id}") => (with(&self.grant), &[]),
            ("GET", path) if path.starts_with("/console/sessions/{id}") => {
                (with(&self.session).replace("{taskId}", "t1"), &[])
            }
            ("POST", "/console/sessions/{id}/confirm") => (with(&self.session), &[("version", "1")]),
            ("POST", "/console/sessions/{id}/cancel") => (with(&self.session), &[]),
            _ => return None,
        })
    }

    fn ids(&self) -> [&str; 7] {
        let ids = [
            &self.thread,
            &self.run,
            &self.action,
            &self.approval,
            &self.grant,
            &self.session,
            &self.export,
        ];
        ids.map(String::as_str)
    }

    /// Whether the text contains anything of hers.
    fn is_in(&self, text: &str) -> bool {
        self.ids().into_iter().any(|id| text.contains(id))
    }

    /// The same text with ids that do not exist.
    fn nobodys(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for id in self.ids() {
            text = text.replace(id, UNKNOWN_ID);
        }
        text
    }
}

/// A field of a form.
type Field = (&'static str, &'static str);

/// A valid id that does not exist.
const UNKNOWN_ID: &str = "019300aa-0000-7000-8000-000000000000";

/// Routes without data of a single user: what a tenant's users share, what every caller may see, and what creates
/// something new.
const NOBODYS: [&str; 9] = [
    "/docs",
    "/openapi.json",
    "/schemas/",
    "/livez",
    "/v1/chat",
    "/v1/erasures",
    "/console/login",
    "/console/logout",
    "/console/zone",
];
/// Creates something new. The other routes below it have an owner.
const CREATES: &str = "/v1/sessions";
const SHARED: &str = "/api/projects/{project}/agents";

/// Every route, method and path: from the table that serves them, because no page lists those of the console.
fn routes() -> Vec<(String, String)> {
    let all = gavel::http::routes();
    all.map(|(method, path)| (method.to_owned(), path.to_owned())).collect()
}

/// All stored threads, runs, approval requests and grants, and their log.
async fn kept(app: &App) -> Vec<Vec<Vec<String>>> {
    let mut kept = Vec::new();
    for table in [
        "thread",
        "thread_message",
        "agent_run",
        "agent_run_entry",
        "agent_action",
        "approval_grant",
        "decision_log",
        "tool_invocation_log",
        // An export of one's own rows is entered.
        "audit WHERE kind <> 'exported'",
        "planning_session",
        "planning_change",
    ] {
        kept.push(rows(&app.database_url, &format!("SELECT * FROM {table} ORDER BY 1, 2")).await);
    }
    kept
}

/// A browser in which this user is logged in.
async fn browser(app: &App, token: &str) -> Browser {
    let browser = Browser::at(app);
    browser.log_in(token, "", "").await.leads_to("/console/approvals");
    browser
}

async fn look(browser: &Browser, method: &str, path: &str, fields: &[Field]) -> (u16, String) {
    let page = match method {
        "GET" => browser.get(path).await,
        _ => {
            let token = browser.get("/console/grants").await.form_token();
            let fields = [fields, &[("form_token", token.as_str())]].concat();
            browser.post(path, &fields).await
        }
    };
    (page.status, page.text)
}

/// R-1: no route of the API or of the console lets another user, or an approver of another tenant, see or change ann's
/// data: it answers as for a missing resource. Ann sees all of it by the same routes.
#[tokio::test]
async fn no_route_shows_or_changes_another_users_data() {
    for setup in [Setup::stdio_sqlite(), Setup::stdio_postgres()] {
        let model = Reply::from(|request| {
            if request["tools"].to_string().contains("getRepositoryTree") {
                return planning::plan(vec![planning::task("Clone")]);
            }
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
        let (_github, setup) = planning::beside(setup).await;
        let app = spawn_app(setup).await;
        let ann = token("ann", "acme", &[]);
        let hers = Hers::made(&app, &ann).await;
        let routes = routes();
        let known: BTreeSet<_> = routes.iter().cloned().collect();
        let (_, document) = app.get("/openapi.json").await;
        for (path, operations) in document["paths"].as_object().unwrap() {
            for method in operations.as_object().unwrap().keys() {
                assert!(
                    known.contains(&(method.to_uppercase(), path.clone())),
                    "{method} {path}"
                );
            }
        }
        let before = kept(&app).await;
        let (mut tried, mut looked) = (0, 0);
        for stranger in [
            token("eve", "acme", &[]),
            token("mallory", "rival", &["approver", "editor"]),
        ] {
            let browser = browser(&app, &stranger).await;
            for (method, path) in &routes {
                let reported = format!("{method} {path}");
                if let Some((path, fields)) = hers.in_console(method, path) {
                    let (status, page) = look(&browser, method, &path, fields).await;
                    assert_eq!(status, 404, "{reported}: {page}");
                    let none = look(&browser, method, &hers.nobodys(&path), fields).await;
                    assert_eq!((status, page), none, "{reported}: as if it did not exist");
                    looked += 1;
                } else if let Some((path, body)) = hers.at(method, path) {
                    let answer = ask(&app, &stranger, method, &path, body).await;
                    assert_eq!(answer.status, 404, "{reported}: {}", answer.body);
                    answer.problem(404, "not_found");
                    tried += 1;
                } else if method == "GET" && !path.contains('{')
                    || ["/api/projects/{project}/runs", "/v1/export/{source}"].contains(&path.as_str())
                {
                    let path = path.replace("{project}", "default").replace("{source}", "actions");
                    let answer = ask(&app, &stranger, method, &path, None).await;
                    assert!(!hers.is_in(&answer.body.to_string()), "{reported}: {}", answer.body);
                    tried += 1;
                    if path.starts_with("/console") {
                        let (_, page) = look(&browser, method, &path, &[]).await;
                        assert!(!hers.is_in(&page), "{reported}: {page}");
                        // The subject of a page is shown only if it is the user's own.
                        let about = hers.ids().map(|id| format!("about={id}&settled={id}&user=ann"));
                        for query in about {
                            let (_, page) = look(&browser, method, &format!("{path}?{query}"), &[]).await;
                            let none = hers.nobodys(&format!("{path}?{query}"));
                            let (_, none) = look(&browser, method, &none, &[]).await;
                            assert_eq!(
                                at_any_time(&hers.nobodys(&page)),
                                at_any_time(&none),
                                "{reported}?{query}"
                            );
                        }
                        looked += 1;
                    }
                } else if let Some(asked) = path.strip_prefix("/v1/stats/") {
                    let all = "created_at >= \"2020-01-01T00:00:00Z\"";
                    let question = match asked {
                        "compare" => json!({"a": all, "b": all}),
                        _ => json!({"by": ["decision_id"]}),
                    };
                    let answer = ask(&app, &stranger, method, path, Some(question)).await.expect(200);
                    assert!(!hers.is_in(&answer.to_string()), "{reported}: {answer}");
                    assert!(
                        answer["rows"].as_array().is_none_or(Vec::is_empty),
                        "{reported}: {answer}"
                    );
                    assert!(answer["a"].is_null() || answer["a"]["n"] == 0, "{reported}: {answer}");
                    tried += 1;
                } else {
                    let nobodys = path == CREATES || NOBODYS.iter().any(|one| path.starts_with(one));
                    assert!(nobodys || path.starts_with(SHARED), "{reported}: who is its owner?");
                }
            }
        }
        assert!(tried > 40 && looked > 16, "{tried} {looked}");
        assert_eq!(kept(&app).await, before, "nothing has changed");
        let threads = ask(&app, &ann, "GET", "/api/agent/threads", None).await.expect(200);
        assert!(hers.is_in(&threads.to_string()), "her own are listed: {threads}");
        let yes = json!({"approvalId": hers.approval, "decision": "approve_once"});
        let done = ask(&app, &ann, "POST", "/api/agent/approvals/resolve", Some(yes)).await;
        assert_eq!(done.expect(200)["status"], "completed");
        assert_eq!(app.tasks().await.len(), 2);
        // Control: the same paths lead ann to her own data.
        let browser = browser(&app, &ann).await;
        for (method, path) in &routes {
            let status = if let Some((path, fields)) = hers.in_console(method, path) {
                look(&browser, method, &path, fields).await.0
            } else if let Some((path, body)) = hers.at(method, path) {
                ask(&app, &ann, method, &path, body).await.status
            } else {
                continue;
            };
            assert!([200, 202, 204, 303, 409].contains(&status), "{method} {path}: {status}");
        }
    }
}

/// A page without the times in it: some show the current second.
fn at_any_time(page: &str) -> String {
    // Of the addresses and statements that pages for analysts offer.
    let instants = Regex::new(r"\d{4}-\d\d-\d\dT\d\d[0-9:.%A]*Z?|created_us &[gl]t;=? \d+").unwrap();
    let page = instants.replace_all(page, "");
    let mut parts = page.split("<time ");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| {
        text + part.split_once("</time>").map_or(part, |(_, rest)| rest)
    })
}
