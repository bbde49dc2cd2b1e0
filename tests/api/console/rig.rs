//! An office with mail and a calendar, and browsers on its console.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use reqwest::header::{CONTENT_TYPE, COOKIE, LOCATION, SET_COOKIE};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::gemini::Reply;
use crate::harness::{Answer as Api, App, Setup, spawn_app};
use crate::raw::{Answer, RawServer};

pub(crate) const WORKSPACE: &str = "---\nname: workspace\ndescription: Works.\napproval: side_effects\n\
                                    tools: [gmail_send, calendar_event_create]\n---\n\nYou are the workspace.\n";

/// Keys, each a repeated letter and so no known secret: name, tenant, roles.
pub(crate) const KEYS: [(&str, &str, &[&str]); 5] = [
    ("web", "acme", &[]),
    ("desk", "acme", &[]),
    ("chief", "acme", &["approver"]),
    ("others", "umbrella", &["approver"]),
    ("ana", "acme", &["analyst"]),
];

pub(crate) fn key(name: &str) -> String {
    format!("{name}-key-0123456789abcdef0123456789abcdef")
}

/// `auth.keys` with these of [`KEYS`].
pub(crate) fn keys(names: &[&str]) -> String {
    let given = KEYS.iter().filter(|(name, ..)| names.contains(name));
    let entries = given.map(|(name, tenant, roles)| {
        let sha256: String = Sha256::digest(key(name))
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        json!({"name": name, "sha256": sha256, "tenant": tenant, "roles": roles})
    });
    Value::Array(entries.collect()).to_string()
}

pub(crate) const ALL: [&str; 4] = ["web", "desk", "chief", "others"];

/// The tools of the office's server.
fn tools() -> Value {
    let list = json!({"type": "array", "items": {"type": "string"}});
    json!({"tools": [
        {"name": "gmail_send", "description": "Sends an e-mail from the user's own address.", "inputSchema": {
            "type": "object",
            "properties": {
                "to": list, "cc": list, "bcc": list, "subject": {"type": "string"}, "body": {"type": "string"},
                "html_body": {"type": "string", "contentMediaType": "text/html"},
                "attachments": {"type": "array", "items": {"$ref": "#/$defs/File"}},
            },
            "$defs": {"File": {"type": "object", "properties": {
                "name": {"type": "string", "title": "File name"}, "content": {"type": "string"},
                "headers": {"type": "object"},
            }}},
            "required": ["to", "subject", "body"],
        }},
        {"name": "calendar_event_create", "description": "Puts an event into the user's calendar.", "inputSchema": {
            "type": "object",
            "properties": {
                "title": {"type": "string"}, "start": {"type": "string"}, "end": {"type": "string"},
                "timeZone": {"type": "string"}, "location": {"type": "string"},
                "attendees": {"type": "array", "items": {"type": "object", "properties": {
                    "email": {"type": "string"}, "optional": {"type": "boolean", "title": "May stay away"},
                }}},
            },
            "required": ["title", "start", "end"],
        }},
    ]})
}

/// The tool server. It stores the calls that it receives, and loses its answer if `subject` says so.
pub(crate) struct Office {
    server: RawServer,
    pub(crate) done: Arc<Mutex<Vec<Value>>>,
}

impl Office {
    pub(crate) async fn start() -> Self {
        let done: Arc<Mutex<Vec<Value>>> = Arc::default();
        let doing = Arc::clone(&done);
        let server = RawServer::start(move |request| match request.method() {
            "tools/list" => Some(Answer::Result(tools())),
            "tools/call" => {
                let params = request.message["params"].clone();
                let subject = params["arguments"]["subject"].as_str();
                let is_lost = matches!(subject, Some("lost" | "Minutes of the meeting"));
                doing.lock().unwrap().push(params);
                Some(match is_lost {
                    true => Answer::Close,
                    false => Answer::Result(json!({"content": [{"type": "text", "text": "done"}]})),
                })
            }
            _ => None,
        })
        .await;
        Self { server, done }
    }

    /// The `mcp.json` with this server.
    pub(crate) fn mcp(&self) -> Value {
        let entry = json!({"url": self.server.url, "gavel": {"tools": {
            "gmail_send": {
                "recipients": ["to", "cc", "bcc"], "freeArguments": ["subject", "body", "html_body"], "singleLine": ["subject"],
            },
            "calendar_event_create": {
                "recipients": ["attendees[].email"], "singleLine": ["title"],
                "freeArguments": ["title", "start", "end", "timeZone", "location", "attendees[].optional"],
                "times": {"start": "start", "end": "end", "zone": "timeZone"},
            },
        }}});
        json!({"mcpServers": {"google": entry}})
    }

    /// A setup with this server.
    pub(crate) fn setup(&self, setup: Setup) -> Setup {
        setup.mcp(self.mcp()).agent("workspace.md", WORKSPACE)
    }

    pub(crate) fn names(&self) -> Vec<String> {
        let done = self.done.lock().unwrap();
        done.iter()
            .map(|params| params["name"].as_str().unwrap().to_owned())
            .collect()
    }
}

/// Makes these calls, and then ends.
pub(crate) fn asks(calls: Vec<(&'static str, Value)>) -> Vec<Reply> {
    vec![Reply::from(move |request| {
        let contents = request["contents"].as_array().unwrap();
        let answered = contents.last().unwrap()["parts"][0]["functionResponse"].is_object();
        match answered {
            true => Reply::Text("That is all."),
            false => Reply::Calls(calls.clone()),
        }
    })]
}

pub(crate) fn mail() -> Value {
    json!({
        "to": ["Ann Lee <ann@example.org>"], "cc": ["bob@b\u{fc}cher.example"], "bcc": ["archive@example.org"],
        "subject": "I am late", "body": "Dear Ann,\n\nI am late, by about ten minutes.\n\nBest\nJo",
    })
}

pub(crate) fn meeting() -> Value {
    json!({
        "title": "Planning", "start": "2031-11-24T10:00:00", "end": "2031-11-24T10:30:00", "timeZone": "Europe/Berlin",
        "location": "Room 4", "attendees": [{"email": "ann@example.org", "optional": true}],
    })
}

/// An office on each database, with keys, whose agent makes these calls.
pub(crate) async fn offices(calls: Vec<(&'static str, Value)>) -> Vec<(Office, App)> {
    offices_with(calls, |setup| setup).await
}

/// As `offices`, with more of a setup.
pub(crate) async fn offices_with(
    calls: Vec<(&'static str, Value)>,
    more: impl Fn(Setup) -> Setup,
) -> Vec<(Office, App)> {
    let mut offices = Vec::new();
    for setup in [Setup::stdio_sqlite(), Setup::stdio_postgres()] {
        let office = Office::start().await;
        let setup = office.setup(setup).script(asks(calls.clone()));
        let setup = setup
            .env("GAVEL_AUTH_MODE", "api_key")
            .env("GAVEL_AUTH_KEYS", keys(&ALL));
        let app = spawn_app(more(setup)).await;
        offices.push((office, app));
    }
    offices
}

impl App {
    /// Sends a prompt of the user through the service `web`; returns the run.
    pub(crate) async fn says(&self, user: &str) -> Value {
        let authorization = format!("Bearer {}", key("web"));
        let headers = [("x-gavel-user", user), ("authorization", authorization.as_str())];
        let request = self.request("POST", "/api/agent/run", &headers);
        Api::of(request.json(&json!({"prompt": "E-mail Ann that I am late."})))
            .await
            .expect(200)
    }
}

/// The approval of the n-th call of a run.
pub(crate) fn approval(run: &Value, n: usize) -> String {
    let id = run["actions"][n]["approvalId"].as_str();
    id.unwrap_or_else(|| panic!("{run}")).to_owned()
}

/// A page that a browser received.
pub(crate) struct Page {
    pub(crate) status: u16,
    pub(crate) headers: reqwest::header::HeaderMap,
    pub(crate) text: String,
}

impl Page {
    pub(crate) fn location(&self) -> &str {
        self.headers.get(LOCATION).map_or("", |value| value.to_str().unwrap())
    }

    #[track_caller]
    pub(crate) fn is(self, status: u16) -> String {
        assert_eq!(self.status, status, "{}", self.text);
        self.text
    }

    #[track_caller]
    pub(crate) fn leads_to(&self, path: &str) {
        assert_eq!((self.status, self.location()), (303, path), "{}", self.text);
    }

    pub(crate) fn form_token(&self) -> String {
        form_token(&self.text)
    }
}

pub(crate) fn form_token(page: &str) -> String {
    let rest = page
        .split_once("name=\"form_token\" value=\"")
        .unwrap_or_else(|| panic!("{page}"))
        .1;
    rest.split('"').next().unwrap().to_owned()
}

/// Stores cookies as a browser does, and follows no redirect by itself.
pub(crate) struct Browser {
    client: reqwest::Client,
    url: String,
    pub(crate) cookies: Mutex<BTreeMap<String, String>>,
    /// A cookie of another site on this host, sent before gavel's.
    neighbour: Vec<u8>,
}

impl Browser {
    pub(crate) fn at(app: &App) -> Self {
        let client = reqwest::Client::builder()
            .no_proxy()
            .tls_certs_only([])
            .redirect(reqwest::redirect::Policy::none());
        Self {
            client: client.build().unwrap(),
            url: app.url.clone(),
            cookies: Mutex::default(),
            neighbour: Vec::new(),
        }
    }

    /// With a cookie of another site on this host, of any bytes.
    pub(crate) fn beside(mut self, neighbour: &[u8]) -> Self {
        self.neighbour = neighbour.to_owned();
        self
    }

    /// The same browser, directed to another replica.
    pub(crate) fn moved_to(&self, app: &App) -> Self {
        let other = Self::at(app);
        *other.cookies.lock().unwrap() = self.cookies.lock().unwrap().clone();
        other
    }

    /// Logged in with the key of this name.
    pub(crate) async fn of(app: &App, name: &str, user: &str) -> Self {
        let browser = Self::at(app);
        let landed = browser.log_in(&key(name), user, "").await;
        landed.leads_to("/console/approvals");
        browser
    }

    pub(crate) async fn log_in(&self, credential: &str, user: &str, next: &str) -> Page {
        let token = self.get("/console/login").await.form_token();
        let fields = [
            ("form_token", token.as_str()),
            ("credential", credential),
            ("user", user),
            ("next", next),
        ];
        self.post("/console/login", &fields).await
    }

    pub(crate) async fn get(&self, path: &str) -> Page {
        self.send("GET", path, &[], None).await
    }

    pub(crate) async fn get_with(&self, path: &str, headers: &[(&str, &str)]) -> Page {
        self.send("GET", path, headers, None).await
    }

    pub(crate) async fn post(&self, path: &str, fields: &[(&str, &str)]) -> Page {
        self.post_with(path, &[], fields).await
    }

    pub(crate) async fn post_with(&self, path: &str, headers: &[(&str, &str)], fields: &[(&str, &str)]) -> Page {
        let body = url::form_urlencoded::Serializer::new(String::new())
            .extend_pairs(fields)
            .finish();
        self.send("POST", path, headers, Some(body)).await
    }

    /// Presses a button of an approval request, with the form's token.
    pub(crate) async fn answers(&self, approval: &str, decision: &str, reason: &str) -> Page {
        let path = format!("/console/approvals/{approval}");
        let token = self.get(&path).await.form_token();
        let fields = [
            ("form_token", token.as_str()),
            ("decision", decision),
            ("reason", reason),
        ];
        self.post(&path, &fields).await
    }

    async fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: Option<String>) -> Page {
        let mut request = self
            .client
            .request(method.parse().unwrap(), format!("{}{path}", self.url));
        let mut held = Vec::from_iter(Some(self.neighbour.clone()).filter(|cookie| !cookie.is_empty()));
        for (name, value) in self.cookies.lock().unwrap().iter() {
            held.push(format!("{name}={value}").into_bytes());
        }
        if !held.is_empty() {
            request = request.header(COOKIE, held.join(&b"; "[..]));
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if let Some(body) = body {
            request = request
                .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
                .body(body);
        }
        let response = request.send().await.unwrap();
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        for set in headers.get_all(SET_COOKIE) {
            let (name, rest) = set.to_str().unwrap().split_once('=').unwrap();
            let value = rest.split(';').next().unwrap();
            let mut cookies = self.cookies.lock().unwrap();
            match rest.contains("Max-Age=0;") {
                true => cookies.remove(name),
                false => cookies.insert(name.to_owned(), value.to_owned()),
            };
        }
        Page {
            status,
            headers,
            text: response.text().await.unwrap(),
        }
    }
}
