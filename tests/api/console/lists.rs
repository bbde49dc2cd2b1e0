//! Lists of threads and in-doubt calls: which users see which entries, by the API and in the console.

use serde_json::{Value, json};

use super::rig::{Browser, approval, key, mail, offices, offices_with};
use crate::docs::execute;
use crate::harness::{Answer, App};

impl App {
    /// As the holder of this key, on behalf of this user if one is given.
    pub(super) async fn by(&self, name: &str, user: &str, method: &str, path: &str, body: Option<Value>) -> Answer {
        let authorization = format!("Bearer {}", key(name));
        let mut headers = vec![("authorization", authorization.as_str())];
        if !user.is_empty() {
            headers.push(("x-gavel-user", user));
        }
        let request = self.request(method, path, &headers);
        Answer::of(match body {
            Some(body) => request.json(&body),
            None => request,
        })
        .await
    }

    async fn listed(&self, name: &str, user: &str, path: &str, list: &str) -> Vec<Value> {
        let page = self.by(name, user, "GET", path, None).await.expect(200);
        assert!(page["nextPageToken"].is_null(), "{page}");
        page[list].as_array().unwrap().clone()
    }

    async fn actions_in_doubt(&self, name: &str, user: &str) -> Vec<Value> {
        self.listed(name, user, IN_DOUBT, "actions").await
    }

    /// A call of the user whose answer is lost; its run.
    async fn in_doubt(&self, user: &str) -> Value {
        let run = self.says(user).await;
        let yes = json!({"approvalId": approval(&run, 0), "decision": "approve_once"});
        let reported = self.by("web", user, "POST", "/api/agent/approvals/resolve", Some(yes));
        let reported = reported.await.expect(200);
        assert_eq!(reported["state"], "in_doubt", "{reported}");
        reported
    }
}

const IN_DOUBT: &str = "/api/agent/actions/in-doubt";
const THREADS: &str = "/api/agent/threads";

/// Promise: at most once. An in-doubt call is listed, with all that was sent, for the users who may settle it and no
/// others. Once settled, it is no longer listed.
#[tokio::test]
async fn in_doubt_calls_are_listed_for_users_who_may_settle_them() {
    let lost = json!({"to": ["bob@example.org"], "subject": "lost", "body": "Hello."});
    for (_office, app) in offices(vec![("gmail_send", lost.clone())]).await {
        let (ann, jo) = (app.in_doubt("ann").await, app.in_doubt("jo").await);
        app.says("ann").await;

        let hers = app.actions_in_doubt("desk", "ann").await;
        assert_eq!(hers.len(), 1, "neither another's, nor one that only waits: {hers:?}");
        let started = hers[0]["startedAt"].as_str().unwrap();
        assert!(started.starts_with("20") && started.ends_with('Z'), "{started}");
        assert_eq!(
            hers[0],
            json!({
                "actionId": ann["actions"][0]["actionId"], "runId": ann["runId"], "threadId": ann["threadId"], "userId": "ann",
                "agentId": "workspace", "tool": "gmail_send", "arguments": lost, "recipients": ["bob@example.org"],
                "startedAt": started, "sessionId": null, "taskId": null,
            })
        );
        for (name, user) in [("web", "eve"), ("others", ""), ("others", "ann")] {
            assert_eq!(
                app.actions_in_doubt(name, user).await,
                Vec::<Value>::new(),
                "{name} {user}"
            );
        }
        app.by("desk", "", "GET", IN_DOUBT, None)
            .await
            .problem(403, "forbidden");

        // An approver sees all of the tenant's, the oldest first, also page by page.
        let all = app.actions_in_doubt("chief", "").await;
        let runs: Vec<_> = all.iter().map(|one| &one["runId"]).collect();
        assert_eq!(runs, [&ann["runId"], &jo["runId"]]);
        assert_eq!(app.actions_in_doubt("chief", "boss").await, all);
        // Ordered and filtered as other lists are.
        for (query, found) in [
            ("orderBy=created_at%20desc", &[1, 0][..]),
            ("orderBy=created_at", &[0, 1]),
            ("filter=user_id%20%3D%20%22jo%22", &[1]),
            (
                "filter=tool%20%3D%20%22gmail_%2A%22%20AND%20agent_id%20%3D%20%22workspace%22",
                &[0, 1],
            ),
        ] {
            let listed = app.listed("chief", "", &format!("{IN_DOUBT}?{query}"), "actions").await;
            let expected: Vec<_> = found.iter().map(|n| all[*n].clone()).collect();
            assert_eq!(listed, expected, "{query}");
            let waiting = format!("/api/agent/approvals/pending?{query}");
            let waiting = app.listed("chief", "", &waiting, "approvals").await;
            assert_eq!(
                waiting.len(),
                usize::from(found.contains(&0) || found.is_empty()),
                "{query}"
            );
        }
        for invalid in [
            "orderBy=updated_at",
            "filter=user_id",
            "filter=body%20%3D%20%22x%22",
            "colour=1",
        ] {
            let answer = app.by("chief", "", "GET", &format!("{IN_DOUBT}?{invalid}"), None).await;
            answer.problem(400, "invalid_request");
        }
        let path = format!("{IN_DOUBT}?pageSize=1");
        let first = app.by("chief", "", "GET", &path, None).await.expect(200);
        let token = first["nextPageToken"].as_str().unwrap();
        let rest = app
            .listed("chief", "", &format!("{path}&pageToken={token}"), "actions")
            .await;
        assert_eq!([&first["actions"][0], &rest[0]], [&all[0], &all[1]]);

        let action = ann["actions"][0]["actionId"].as_str().unwrap();
        let path = format!("/api/agent/actions/{action}/settle");
        let settled = app.by("chief", "boss", "POST", &path, Some(json!({"happened": true})));
        assert_eq!(settled.await.expect(200)["actions"][0]["state"], "completed");
        assert_eq!(app.actions_in_doubt("desk", "ann").await, Vec::<Value>::new());
        assert_eq!(app.actions_in_doubt("chief", "").await, all[1..]);
    }
}

/// Promise: at most once. An in-doubt call shows the recipients it may have reached, even if no approval was required
/// because a rule or a grant allowed it.
#[tokio::test]
async fn an_in_doubt_call_without_an_approval_request_names_its_recipients() {
    let lost = json!({
        "to": ["Bob <bob@example.org>"], "cc": ["bob@b\u{fc}cher.example"], "subject": "lost", "body": "Hello.",
    });
    let calls = || vec![("gmail_send", lost.clone())];
    let reached = json!(["bob@example.org", "bob@xn--bcher-kva.example"]);
    let unasked = async |app: &App| {
        let run = app.says("ann").await;
        let action = &run["actions"][0];
        assert_eq!(
            (&run["state"], &action["requiresApproval"], &action["approvalId"]),
            (&json!("in_doubt"), &json!(false), &Value::Null),
            "{run}"
        );
        action["actionId"].clone()
    };
    let is_reported = async |app: &App, action: &Value| {
        for (name, user) in [("desk", "ann"), ("chief", "")] {
            let actions = app.actions_in_doubt(name, user).await;
            let reported = actions.iter().find(|one| one["actionId"] == *action);
            let reported = reported.unwrap_or_else(|| panic!("{name}: {actions:?}"));
            assert_eq!(
                (&reported["recipients"], &reported["arguments"]),
                (&reached, &lost),
                "{name}: {reported}"
            );
        }
    };

    let policy = tempfile::NamedTempFile::new().unwrap();
    let rule = "rules:\n- {name: mails, tools: gmail_send, then: allow, reason: harmless}\n";
    std::fs::write(policy.path(), rule).unwrap();
    let path = policy.path().display().to_string();
    for (office, app) in offices_with(calls(), |setup| setup.env("GAVEL_POLICY", path.clone())).await {
        let by_rule = unasked(&app).await;
        assert_eq!(office.names(), ["gmail_send"]);
        is_reported(&app, &by_rule).await;
    }
    for (office, app) in offices(calls()).await {
        let asked = app.says("ann").await;
        let always = json!({"approvalId": approval(&asked, 0), "decision": "approve_and_always_allow_recipient"});
        let reported = app.by("web", "ann", "POST", "/api/agent/approvals/resolve", Some(always));
        assert_eq!(reported.await.expect(200)["state"], "in_doubt");
        let by_approval = unasked(&app).await;
        assert_eq!(office.names(), ["gmail_send", "gmail_send"]);
        is_reported(&app, &by_approval).await;
    }
}

/// an approver answers for others and lists their in-doubt calls, but reads only their own threads. A list shows
/// the same of a run as the run itself.
#[tokio::test]
async fn an_approver_lists_only_their_own_threads() {
    let lost = json!({"to": ["bob@example.org"], "subject": "lost", "body": "Hello."});
    for (_office, app) in offices(vec![("gmail_send", lost)]).await {
        let run = app.in_doubt("ann").await;
        assert_eq!(app.actions_in_doubt("chief", "boss").await.len(), 1);
        for (name, user) in [("chief", "boss"), ("web", "eve"), ("others", "ann")] {
            let threads = app.listed(name, user, THREADS, "threads").await;
            assert_eq!(threads, Vec::<Value>::new(), "{name} {user}");
        }
        for stranger in ["chief", "web"] {
            let answer = app.by(stranger, "", "GET", THREADS, None).await;
            answer.problem(400, "invalid_request");
        }
        for (query, found) in [
            ("orderBy=updated_at", 1),
            (
                "filter=agent_id%20%3D%20%22workspace%22%20AND%20updated_at%20%3E%20%222026-01-01T00:00:00Z%22",
                1,
            ),
            ("filter=updated_at%20%3C%20%222026-01-01T00:00:00Z%22", 0),
            ("filter=user_id%20%3D%20%22jo%22", 0),
        ] {
            let threads = app.listed("web", "ann", &format!("{THREADS}?{query}"), "threads").await;
            assert_eq!(threads.len(), found, "{query}");
        }
        app.by("web", "ann", "GET", &format!("{THREADS}?orderBy=created_at"), None)
            .await
            .problem(400, "invalid_request");
        let path = format!("/api/agent/runs/{}", run["runId"].as_str().unwrap());
        let settle = format!(
            "/api/agent/actions/{}/settle",
            run["actions"][0]["actionId"].as_str().unwrap()
        );
        for state in ["in_doubt", "failed"] {
            let threads = app.listed("web", "ann", THREADS, "threads").await;
            let own = app.by("web", "ann", "GET", &path, None).await.expect(200);
            let latest = json!({"runId": own["runId"], "status": own["status"], "state": own["state"]});
            assert_eq!((threads.len(), &threads[0]["latestRun"]), (1, &latest));
            assert_eq!(
                (&threads[0]["threadId"], &own["state"]),
                (&run["threadId"], &json!(state))
            );
            app.by("web", "ann", "POST", &settle, Some(json!({"happened": false})))
                .await
                .expect(200);
        }
        // Her own, whatever other roles she has.
        assert_eq!(app.listed("chief", "ann", THREADS, "threads").await.len(), 1);
    }
}

/// A user's threads are listed on a console page that links to each. A caller that acts for no user has none.
#[tokio::test]
async fn the_console_lists_ones_own_threads() {
    let mail = json!({"to": ["bob@example.org"], "subject": "late", "body": "Hello."});
    for (_office, app) in offices(vec![("gmail_send", mail)]).await {
        let run = app.says("ann").await;
        let thread = format!("/console/threads/{}", run["threadId"].as_str().unwrap());
        let ann = Browser::of(&app, "desk", "ann").await;
        let page = ann.get("/console/approvals").await.is(200);
        assert!(page.contains("<a href=\"/console/threads\">Threads</a>"), "{page}");
        let page = ann.get("/console/threads").await.is(200);
        for shown in [
            "<title>Threads · gavel</title>",
            &format!("<a href=\"{thread}\">E-mail Ann that I am late.</a>"),
            "the agent <bdi>workspace</bdi>",
            "<dd>Awaiting confirmation</dd>",
        ] {
            assert!(page.contains(shown), "{shown} is not in {page}");
        }
        assert!(
            !page.contains("<dt>Whose</dt>") && !page.contains("Next page"),
            "{page}"
        );
        assert!(ann.get(&thread).await.is(200).contains("E-mail Ann that I am late."));

        for (name, user) in [("desk", "eve"), ("chief", "boss"), ("others", "ann")] {
            let page = Browser::of(&app, name, user)
                .await
                .get("/console/threads")
                .await
                .is(200);
            assert!(
                page.contains("There are no threads yet.") && !page.contains(&thread),
                "{page}"
            );
        }
        let chief = Browser::of(&app, "chief", "").await;
        let page = chief.get("/console/approvals").await.is(200);
        assert!(!page.contains("/console/threads\""), "{page}");
        let page = chief.get("/console/threads").await.is(404);
        assert!(!page.contains(&thread), "{page}");

        // Threads whose content is deleted; with hers they are more than a page.
        let gone =
            (0..20).map(|n| format!("('0198c2b5-7d8e-7c52-9d3b-{n:012}', 'acme', 'ann', 'workspace', {n}, {n})"));
        let gone = gone.collect::<Vec<_>>().join(", ");
        let insert =
            format!("INSERT INTO thread (id, tenant, user_id, agent_id, created_at, updated_at) VALUES {gone}");
        execute(&app.database_url, &insert).await;
        let page = ann.get("/console/threads").await.is(200);
        assert_eq!(page.matches("Content not stored").count(), 19, "{page}");
        let next = page.split("page_token=").nth(1).unwrap().split('"').next().unwrap();
        let page = ann.get(&format!("/console/threads?page_token={next}")).await.is(200);
        assert_eq!(page.matches("Content not stored").count(), 1, "{page}");
        assert!(!page.contains(&thread) && !page.contains("Next page"), "{page}");
        let threads = app.listed("web", "ann", THREADS, "threads").await;
        let last = threads.last().unwrap();
        assert_eq!(
            (threads.len(), &last["title"], &last["latestRun"]),
            (21, &Value::Null, &Value::Null)
        );
    }
}

/// what was requested and answered stays readable, the latest request first, for its user and for approvers.
#[tokio::test]
async fn answered_requests_are_listed_and_those_that_wait_are_not() {
    for (_office, app) in offices(vec![("gmail_send", mail())]).await {
        for (decision, reason) in [("approve_once", ""), ("reject", "Not today.")] {
            let run = app.says("ann").await;
            let answer = json!({"approvalId": approval(&run, 0), "decision": decision, "reason": reason});
            let answered = app.by("desk", "ann", "POST", "/api/agent/approvals/resolve", Some(answer));
            answered.await.expect(200);
        }
        app.says("ann").await;
        let states = |page: &str| {
            let states = page.split("class=\"state\">").skip(1);
            states
                .map(|rest| rest.split("</div>").next().unwrap().to_owned())
                .collect::<Vec<_>>()
        };
        let said = [
            "Rejected by <b>you</b> just now; not executed. Reason: <q>Not today.</q>",
            "Sent. Approved by <b>you</b> just now.",
        ];
        let ann = Browser::of(&app, "desk", "ann").await;
        let page = ann.get("/console/answered").await.text;
        assert_eq!(states(&page), said, "{page}");
        let first = ann.get("/console/answered?tool=gmail").await.text;
        assert_eq!(states(&first), said, "{first}");
        let none = ann.get("/console/answered?tool=calendar").await.text;
        assert!(none.contains("No answered request matches the filter."), "{none}");
        let jo = Browser::of(&app, "desk", "jo")
            .await
            .get("/console/answered")
            .await
            .text;
        assert!(jo.contains("No request was answered yet."), "{jo}");
        let chief = Browser::of(&app, "chief", "boss")
            .await
            .get("/console/answered")
            .await
            .text;
        assert_eq!(states(&chief).len(), 2, "{chief}");
    }
}
