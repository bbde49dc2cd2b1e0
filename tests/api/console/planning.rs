//! The console's pages of planning sessions: a plan is confirmed, watched and compared there. GitHub is a stand-in, and
//! the model is scripted by what it is asked.

use serde_json::{Value, json};

use super::rig::{ALL, Browser, Page, keys};
use crate::audit::rows;
use crate::gemini::Reply;
use crate::github::GitHub;
use crate::harness::{App, Setup, spawn_app, until};
use crate::planning::{HOUR, ahead, beside};

/// Text that must stay text on every page.
pub(super) const EVIL: &str =
    "<script>alert(\"planted\")</script><a href=\"https://example.org\">x</a> \u{202e}gro.live";

fn task(title: &str, tool: &str) -> Value {
    json!({"title": title, "goal": format!("{title}. {EVIL}"), "doneWhen": format!("a tool shows it {EVIL}"), "tools": [tool]})
}

/// Plans three tasks. The first makes the third obsolete and adds a fourth; the second calls a tool that the plan does
/// not name.
pub(super) fn model(hostile: &str) -> Reply {
    let thought: &'static str = Box::leak(hostile.to_owned().into_boxed_str());
    let hostile: String = hostile.chars().take(400).collect();
    Reply::from(move |request| {
        let config = &request["toolConfig"]["functionCallingConfig"];
        match (config["mode"].as_str(), config["allowedFunctionNames"].to_string()) {
            (Some("NONE"), _) => Reply::Text(thought),
            (Some("ANY"), allowed) if allowed.contains("reflect") => reflect(request, &hostile),
            (Some("ANY"), _) => act(request),
            _ => Reply::call(
                "complete_task",
                json!({"plan": {
                    "summary": format!("In short. {EVIL}"),
                    "tasks": [
                        task(&format!("Read {EVIL}").chars().take(100).collect::<String>(), "getFileContents"),
                        task("Open a pull request", "createPullRequest"),
                        task("Document", "closeIssue"),
                    ],
                    "assumptions": [format!("Assumed {EVIL}")],
                    "risks": [hostile],
                }}),
            ),
        }
    })
}

fn results(request: &Value) -> Vec<String> {
    let contents = request["contents"].as_array().unwrap();
    let parts = contents.iter().flat_map(|content| content["parts"].as_array().unwrap());
    let responses = parts.filter_map(|part| part.get("functionResponse"));
    let of_tools = responses.filter(|response| response["name"] != "reflect");
    of_tools
        .map(|response| response["name"].as_str().unwrap().to_owned())
        .collect()
}

fn is_of(request: &Value, task: &str) -> bool {
    let first = request["contents"][0]["parts"][0]["text"].as_str().unwrap();
    first.contains(&format!("Your task is {task}"))
}

fn act(request: &Value) -> Reply {
    let done = results(request);
    let (tool, further) = if is_of(request, "t1") {
        ("getFileContents", json!({"path": "README.md"}))
    } else if is_of(request, "t2") && done.is_empty() {
        (
            "createIssue",
            json!({"title": format!("Weeks {EVIL}"), "body": "All of them."}),
        )
    } else if is_of(request, "t2") {
        (
            "createPullRequest",
            json!({"title": "Weeks", "head": "gavel/weeks", "base": "main"}),
        )
    } else {
        ("getRepositoryTree", json!({}))
    };
    let mut args = json!({"owner": "acme", "repo": "dates"});
    args.as_object_mut()
        .unwrap()
        .extend(further.as_object().unwrap().clone());
    Reply::call(tool, args)
}

fn reflect(request: &Value, hostile: &str) -> Reply {
    let done = results(request);
    let (quote, changes) = if is_of(request, "t1") {
        let changes = json!([
            {"op": "obsolete", "task": "t3", "why": format!("The readme says it all. {EVIL}")},
            {"op": "add", "title": "Look again", "goal": "Look again.", "doneWhen": "it is seen", "tools": ["getRepositoryTree"], "why": hostile},
        ]);
        ("Reads a date from text", changes)
    } else if is_of(request, "t2") {
        ("https://github.com/acme/dates/pull/", json!([]))
    } else {
        ("README.md", json!([]))
    };
    let is_complete = !is_of(request, "t2") || done.len() == 2;
    let evidence = match is_complete {
        true => json!([{"observation": done.len(), "quote": quote}]),
        false => json!([]),
    };
    Reply::call(
        "reflect",
        json!({
            "is_task_complete": is_complete, "summary": format!("Seen {EVIL}"), "evidence": evidence,
            "learnings": [hostile], "plan_changes": changes,
        }),
    )
}

/// A service that plans for callers with keys.
pub(super) async fn studio(setup: Setup, hostile: &str) -> (GitHub, App) {
    let (github, setup) = beside(setup.script(vec![model(hostile)])).await;
    let app = spawn_app(
        setup
            .env("GAVEL_AUTH_MODE", "api_key")
            .env("GAVEL_AUTH_KEYS", keys(&ALL)),
    )
    .await;
    (github, app)
}

/// A session of ann that awaits confirmation; its id.
pub(super) async fn started(app: &App) -> String {
    let body = json!({
        "prompt": format!("Accept ISO weeks {EVIL}"), "repoUrl": "https://github.com/acme/dates", "deadline": ahead(HOUR),
    });
    let session = app
        .by("web", "ann", "POST", "/v1/sessions", Some(body))
        .await
        .expect(201);
    assert_eq!(session["status"], "AWAITING_CONFIRMATION", "{session}");
    session["sessionId"].as_str().unwrap().to_owned()
}

async fn read(app: &App, id: &str) -> Value {
    app.by("web", "ann", "GET", &format!("/v1/sessions/{id}"), None)
        .await
        .expect(200)
}

async fn confirms(browser: &Browser, id: &str, version: &str) -> Page {
    let path = format!("/console/sessions/{id}");
    let token = browser.get("/console/sessions").await.form_token();
    let fields = [("form_token", token.as_str()), ("version", version)];
    browser.post(&format!("{path}/confirm"), &fields).await
}

/// No page has an element, a link or a hidden character that came from outside.
#[track_caller]
fn is_inert(page: &str) {
    for never in ["<script", "<img", "href=\"https://example.org\"", "\u{202e}"] {
        assert!(!page.contains(never), "{never:?} is in {page}");
    }
    assert!(page.contains("U+202E") && page.contains("&lt;script&gt;"), "{page}");
}

#[track_caller]
fn has(page: &str, texts: &[&str]) {
    for text in texts {
        assert!(page.contains(text), "{text} is not in {page}");
    }
}

/// P-205, P-301 to P-307: a person reads a plan, confirms exactly the version that they read, answers what it asks, and
/// sees each step, the log, the pull request and the change of the plan.
#[tokio::test]
async fn a_plan_is_confirmed_and_watched_in_the_console() {
    for setup in [Setup::stdio_sqlite(), Setup::stdio_postgres()] {
        let (github, app) = studio(setup, "Nothing odd.").await;
        let id = started(&app).await;
        let path = format!("/console/sessions/{id}");
        let ann = Browser::of(&app, "desk", "ann").await;

        let list = ann.get("/console/sessions").await.is(200);
        is_inert(&list);
        has(
            &list,
            &[
                &format!("<a href=\"{path}\">Accept ISO weeks"),
                "Awaiting confirmation",
                "0 of 3 done",
                "<bdi>ann</bdi>",
            ],
        );
        let page = ann.get(&path).await.is(200);
        is_inert(&page);
        has(
            &page,
            &[
                "<a href=\"https://github.com/acme/dates\" rel=\"noreferrer noopener\">",
                "name=\"version\" value=\"1\"",
                "<dt>Repository</dt><dd><bdi>acme/dates</bdi></dd>",
                "<dt>Branches</dt><dd><code><bdi>gavel/*</bdi></code></dd>",
                "<dt>3 tools</dt>",
                "<dt>Asks before</dt><dd><code><bdi>closeIssue</bdi></code></dd>",
                "Confirm and begin",
                "Assumed &lt;script&gt;",
                "Open a pull request",
                "<code><bdi>createPullRequest</bdi></code>",
                "class=\"news progress\"",
            ],
        );

        let late = confirms(&ann, &id, "2").await;
        late.leads_to(&format!("{path}?late=1"));
        has(
            &ann.get(&format!("{path}?late=1")).await.is(200),
            &["The session had changed before you answered", "Confirm and begin"],
        );
        assert_eq!(read(&app, &id).await["status"], "AWAITING_CONFIRMATION");
        confirms(&ann, &id, "1").await.leads_to(&path);
        until("a call to wait for an approval", || async {
            read(&app, &id).await["waitingFor"]
                .as_array()
                .is_some_and(|waits| !waits.is_empty())
        })
        .await;
        assert!(github.seen("POST").is_empty());

        let page = ann.get(&path).await.is(200);
        is_inert(&page);
        has(
            &page,
            &[
                "Waits for a person",
                "Open an issue",
                "Approve once",
                &format!("name=\"back\" value=\"{id}\""),
                "2 of 4 done",
            ],
        );
        assert!(!page.contains("Confirm and begin"), "{page}");
        let again = confirms(&ann, &id, "1").await;
        again.leads_to(&format!("{path}?late=1"));
        let approval = read(&app, &id).await["waitingFor"][0]["approvalId"]
            .as_str()
            .unwrap()
            .to_owned();
        let own = ann.get(&format!("/console/approvals/{approval}")).await.is(200);
        has(
            &own,
            &[&format!(
                "<a href=\"{path}\">See the planning session it comes from</a>"
            )],
        );
        let token = ann.get(&path).await.form_token();
        let fields = [
            ("form_token", token.as_str()),
            ("decision", "approve_once"),
            ("back", id.as_str()),
        ];
        let answered = ann.post(&format!("/console/approvals/{approval}"), &fields).await;
        answered.leads_to(&format!("{path}?about={approval}"));
        until("the session to be completed", || async {
            read(&app, &id).await["status"] == "COMPLETED"
        })
        .await;
        let posted: Vec<_> = github.seen("POST").into_iter().map(|seen| seen.path).collect();
        assert_eq!(posted, ["/repos/acme/dates/issues", "/repos/acme/dates/pulls"]);

        let confirmed = rows(
            &app.database_url,
            "SELECT actor FROM audit WHERE kind = 'plan_confirmed'",
        );
        assert_eq!(confirmed.await, [["ann"]], "once, under her name");

        shows_what_was_done(&ann, &path, &approval).await;
        shows_what_changed(&ann, &path).await;
        for (status, found) in [("COMPLETED", true), ("FAILED", false)] {
            let list = ann.get(&format!("/console/sessions?status={status}")).await.is(200);
            assert_eq!(list.contains(&path), found, "{list}");
        }
        github.finish();
        app.stop().await;
    }
}

/// An approver reads the session of a call that waits for their decision, and only then; they change nothing but the call.
#[tokio::test]
async fn an_approver_reads_the_session_of_a_call_that_waits_and_no_other_user_does() {
    for setup in [Setup::stdio_sqlite(), Setup::stdio_postgres()] {
        let (github, app) = studio(setup, "Nothing odd.").await;
        let id = started(&app).await;
        let (path, page) = (format!("/v1/sessions/{id}"), format!("/console/sessions/{id}"));
        let reads = [
            path.clone(),
            format!("{path}/log"),
            format!("{path}/tasks/t1"),
            format!("{path}/history"),
        ];
        let statuses = async |key: &str, user: &str| {
            let mut found = Vec::new();
            for path in &reads {
                found.push(app.by(key, user, "GET", path, None).await.status);
            }
            found
        };
        let events = async |name: &str, user: &str| {
            let authorization = format!("Bearer {}", crate::console::rig::key(name));
            let headers = [("authorization", authorization.as_str()), ("x-gavel-user", user)];
            let request = app.request("GET", &format!("{path}/events"), &headers);
            request.send().await.unwrap()
        };
        assert_eq!(statuses("chief", "boss").await, [404; 4], "no call waits yet");
        assert_eq!(events("chief", "boss").await.status(), 404, "no call waits yet");
        let ann = Browser::of(&app, "desk", "ann").await;
        confirms(&ann, &id, "1").await.leads_to(&page);
        until("a call to wait for an approval", || async {
            read(&app, &id).await["waitingFor"]
                .as_array()
                .is_some_and(|waits| !waits.is_empty())
        })
        .await;
        assert_eq!(statuses("chief", "boss").await, [200; 4]);
        let stream = events("chief", "boss").await;
        assert_eq!(stream.status(), 200);
        for (key, user) in [("desk", "eve"), ("web", "boss"), ("others", "boss"), ("others", "ann")] {
            assert_eq!(statuses(key, user).await, [404; 4], "{key} {user}");
            assert_eq!(events(key, user).await.status(), 404, "{key} {user}");
        }
        for (method, change) in [
            ("POST", "cancel"),
            ("POST", "refine"),
            ("POST", "execute"),
            ("PUT", "plan"),
        ] {
            let body = match change {
                "refine" => json!({"refinementPrompt": "more"}),
                "plan" => json!({"tasks": [task("Mine", "closeIssue")]}),
                _ => json!({}),
            };
            let key = crate::console::rig::key("chief");
            let headers = [
                ("x-api-key", key.as_str()),
                ("x-gavel-user", "boss"),
                ("if-match", "\"1\""),
            ];
            let answer = app.request(method, &format!("{path}/{change}"), &headers).json(&body);
            assert_eq!(answer.send().await.unwrap().status(), 404, "{change}");
        }
        let boss = Browser::of(&app, "chief", "boss").await;
        let waits = read(&app, &id).await;
        let approval = waits["waitingFor"][0]["approvalId"].as_str().unwrap();
        let own = boss.get(&format!("/console/approvals/{approval}")).await.is(200);
        has(
            &own,
            &[&format!(
                "<a href=\"{page}\">See the planning session it comes from</a>"
            )],
        );
        let shown = boss.get(&page).await.is(200);
        has(&shown, &["Waits for a person", "Approve once"]);
        assert!(!shown.contains("Cancel the session"), "{shown}");
        boss.get(&format!("{page}/tasks/t1")).await.is(200);
        boss.get(&format!("{page}/log")).await.is(200);
        let token = boss.get(&page).await.form_token();
        let fields = [
            ("form_token", token.as_str()),
            ("decision", "approve_once"),
            ("back", id.as_str()),
        ];
        let answered = boss.post(&format!("/console/approvals/{approval}"), &fields).await;
        boss.get(answered.location()).await.is(200);
        until("the session to be completed", || async {
            read(&app, &id).await["status"] == "COMPLETED"
        })
        .await;
        let watched = stream.text().await.unwrap();
        assert!(
            watched.contains("\"type\":\"result\""),
            "a stream that began is read to its end: {watched}"
        );
        assert_eq!(statuses("chief", "boss").await, [404; 4]);
        assert_eq!(events("chief", "boss").await.status(), 404);
        boss.get(&page).await.is(404);
        github.finish();
        app.stop().await;
    }
}

async fn shows_what_was_done(ann: &Browser, path: &str, approval: &str) {
    let page = ann.get(&format!("{path}?about={approval}")).await.is(200);
    is_inert(&page);
    has(
        &page,
        &[
            "<b>Open an issue</b>: Done. Approved by <b>you</b> just now.",
            "<b>Completed</b>",
            "4 of 4 done",
            "Reflection",
            "step 1 shows <q>Reads a date from text</q>",
            "<b>The task is done.</b>",
            "makes t3 obsolete",
            "<table class=\"log\">",
            "<summary><code><bdi>getFileContents</bdi></code></summary>",
            "rel=\"noreferrer noopener\"><bdi>https://github.com/acme/dates/pull/",
            "Changed by <bdi>agent</bdi>",
            "Made obsolete t3 Document",
            "Added t4 Look again",
            "Proposed by <bdi>ann</bdi>",
        ],
    );
    assert!(
        !page.contains("class=\"news progress\""),
        "it does not refresh itself any more: {page}"
    );
    let task = ann.get(&format!("{path}/tasks/t2")).await.is(200);
    is_inert(&task);
    has(
        &task,
        &[
            "Step 1",
            "Step 2",
            "gavel/weeks",
            "step 2 shows <q>https://github.com/acme/dates/pull/</q>",
        ],
    );
    let log = ann.get(&format!("{path}/log?after=1")).await.is(200);
    has(&log, &["createIssue", "createPullRequest", "<td>t4</td>", "plan"]);
    assert!(!log.contains("getFileContents"), "{log}");
    let frame = ann.get(&format!("{path}/news?seen=0")).await;
    has(&frame.text, &["<b>Completed</b>", "4 of 4 done", "Show what is new"]);
    assert!(!frame.text.contains("http-equiv"), "{}", frame.text);
}

/// Both versions side by side, with who, when and why.
async fn shows_what_changed(ann: &Browser, path: &str) {
    let page = ann.get(&format!("{path}/versions?from=1&to=2")).await.is(200);
    is_inert(&page);
    has(
        &page,
        &[
            "<h2>Version 1</h2>",
            "Proposed by</dt><dd><bdi>ann</bdi>",
            "<h2>Version 2</h2>",
            "Changed by</dt><dd><bdi>agent</bdi>",
            "<span class=\"mark\">Added</span> t4 Look again",
            "<span class=\"mark\">Made obsolete</span> t3 Document",
            "The readme says it all.",
            "This version does not have the task.",
        ],
    );
    for missing in [
        "versions?from=1&to=99",
        "versions?from=0&to=1",
        "versions?to=x",
        "tasks/t9",
        "tasks/x",
    ] {
        ann.get(&format!("{path}/{missing}")).await.is(404);
    }
}

/// A visitor sees, confirms and cancels only what the API would let them, by a form of their own page.
#[tokio::test]
async fn only_the_user_of_a_session_reads_and_answers_it() {
    for setup in [Setup::stdio_sqlite(), Setup::stdio_postgres()] {
        let (github, app) = studio(setup, "Nothing odd.").await;
        let id = started(&app).await;
        let path = format!("/console/sessions/{id}");
        for (name, user) in [("desk", "eve"), ("chief", "boss"), ("others", "ann"), ("others", "")] {
            let other = Browser::of(&app, name, user).await;
            assert!(
                !other.get("/console/sessions").await.is(200).contains(&path),
                "{name} {user}"
            );
            for page in ["", "/versions", "/tasks/t1", "/log", "/news?seen=0"] {
                other.get(&format!("{path}{page}")).await.is(404);
            }
            confirms(&other, &id, "1").await.is(404);
            let token = other.get("/console/sessions").await.form_token();
            other
                .post(&format!("{path}/cancel"), &[("form_token", &token)])
                .await
                .is(404);
        }
        let stranger = Browser::at(&app);
        assert!(stranger.get(&path).await.location().starts_with("/console/login"));
        has(
            &stranger.get(&format!("{path}/news?seen=0")).await.text,
            &["You are logged out"],
        );
        let ann = Browser::of(&app, "desk", "ann").await;
        for action in ["confirm", "cancel"] {
            ann.post(&format!("{path}/{action}"), &[("version", "1")]).await.is(403);
        }
        confirms(&ann, &id, "1 or 2").await.is(400);
        ann.get("/console/sessions?status=over").await.is(400);
        assert_eq!(read(&app, &id).await["status"], "AWAITING_CONFIRMATION");

        // An approver without a name reads, and may filter by user, as the API lets them.
        let chief = Browser::of(&app, "chief", "").await;
        for (user, found) in [("", true), ("ann", true), ("eve", false)] {
            let list = chief.get(&format!("/console/sessions?user={user}")).await.is(200);
            assert_eq!(list.contains(&path), found, "{user}: {list}");
        }
        assert!(
            ann.get("/console/sessions?user=eve").await.is(200).contains(&path),
            "the filter of users is not hers"
        );

        let token = ann.get("/console/sessions").await.form_token();
        let fields = [("form_token", token.as_str()), ("reason", "not needed <b>now</b>")];
        ann.post(&format!("{path}/cancel"), &fields).await.leads_to(&path);
        let page = ann.get(&path).await.is(200);
        has(&page, &["<b>Cancelled</b>", "not needed &lt;b&gt;now&lt;/b&gt;", "ann"]);
        assert!(
            !page.contains("Cancel the session") && !page.contains("Confirm and begin"),
            "{page}"
        );
        assert!(github.seen("POST").is_empty());
        app.stop().await;
    }
}

/// Two versions that a person edited are shown side by side, with the old and the new words marked.
#[tokio::test]
async fn what_a_person_changed_in_a_plan_is_marked_word_by_word() {
    let (_github, app) = studio(Setup::stdio_sqlite(), "Nothing odd.").await;
    let id = started(&app).await;
    let draft = |goal: &str| json!({"tasks": [{"id": "t2", "title": "Open a pull request", "goal": goal, "doneWhen": "d", "tools": ["createPullRequest"]}]});
    for (version, goal) in [
        ("\"1\"", "Change <b>all</b> weeks"),
        ("\"2\"", "Change <b>most</b> weeks"),
    ] {
        let authorization = format!("Bearer {}", super::rig::key("web"));
        let headers = [
            ("authorization", authorization.as_str()),
            ("x-gavel-user", "ann"),
            ("if-match", version),
        ];
        let request = app.request("PUT", &format!("/v1/sessions/{id}/plan"), &headers);
        crate::harness::Answer::of(request.json(&draft(goal))).await.expect(200);
    }
    let ann = Browser::of(&app, "desk", "ann").await;
    let page = ann.get(&format!("/console/sessions/{id}/versions")).await.is(200);
    has(
        &page,
        &[
            "<h2>Version 2</h2>",
            "<h2>Version 3</h2>",
            "Edited by</dt><dd><bdi>ann</bdi>",
            "<span class=\"mark\">Changed</span>",
            "<del>&lt;b&gt;all&lt;/b&gt;</del>",
            "<ins>&lt;b&gt;most&lt;/b&gt;</ins>",
            "edited by hand",
        ],
    );
    let all = ann
        .get(&format!("/console/sessions/{id}/versions?from=1&to=3"))
        .await
        .is(200);
    has(
        &all,
        &[
            "<span class=\"mark\">Removed</span> t1",
            "<span class=\"mark\">Removed</span> t3",
        ],
    );
    app.stop().await;
}

/// Strings made to mislead agents and readers stay text on every page, whole and visible.
#[tokio::test]
async fn hostile_texts_of_a_model_stay_text_on_the_pages_of_a_session() {
    let Some(texts) = crate::strings::made_for("tool_result") else {
        return;
    };
    for (id, text) in texts.into_iter().step_by(7) {
        let (_github, app) = studio(Setup::stdio_sqlite(), &format!("{text} {EVIL}")).await;
        let session = started(&app).await;
        let ann = Browser::of(&app, "desk", "ann").await;
        confirms(&ann, &session, "1")
            .await
            .leads_to(&format!("/console/sessions/{session}"));
        until("the first task to be done", || async {
            read(&app, &session).await["planVersion"] == 2
        })
        .await;
        for page in ["", "/tasks/t1", "/versions"] {
            let page = ann.get(&format!("/console/sessions/{session}{page}")).await.is(200);
            is_inert(&page);
            let word = text
                .split(|c: char| !c.is_ascii_alphanumeric())
                .find(|word| word.len() > 3)
                .unwrap();
            assert!(page.contains(word), "{id}: {word} is not in {page}");
        }
        app.stop().await;
    }
}
