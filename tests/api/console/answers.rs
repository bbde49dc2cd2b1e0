//! How the console shows an approval request, who may answer it, and the effect of an answer.

use std::sync::Arc;

use serde_json::{Value, json};

use super::login::{run, token, with_tokens};
use super::rig::{ALL, Browser, Office, approval, asks, key, keys, mail, meeting, offices, offices_with};
use crate::harness::{Answer, App, Setup, spawn_app};

/// the page shows who asks, the recipients, the whole text, the reason, and any warnings. The rest is
/// one click away.
#[tokio::test]
async fn an_approval_request_shows_all_that_the_approver_needs() {
    for (_office, app) in offices(vec![("gmail_send", mail()), ("calendar_event_create", meeting())]).await {
        let run = app.says("ann").await;
        let ann = Browser::of(&app, "desk", "ann").await;
        let list = ann.get("/console/approvals").await.is(200);
        for shown in [
            "<title>(2) Approvals · gavel</title>",
            "for <bdi>ann</bdi> · to <bdi class=\"address\">ann@example.org</bdi> and 2 more · <span",
            "I am late · Dear Ann, I am late, by about ten minutes. Best Jo",
            "expires in 24 hours",
            "Room 4",
        ] {
            assert!(list.contains(shown), "{shown} is not in {list}");
        }
        assert!(
            list.matches("<span class=\"badge\">").count() == 1 && !list.contains("Approve once"),
            "{list}"
        );
        let page = async |n| {
            let own = format!("/console/approvals/{}", approval(&run, n));
            ann.get(&own).await.is(200)
        };
        let (page, meeting) = (page(0).await, page(1).await);
        assert!(page.contains("<title>Gmail send · gavel</title>"), "{page}");
        for shown in ["Monday, 24 November 2031, 10:00", "May stay away"] {
            assert!(meeting.contains(shown), "{shown} is not in {meeting}");
        }
        for shown in [
            "<b>Why it requires approval: </b>&quot;gmail_send&quot; sends something to other people",
            "<dt>To</dt>",
            "<dt>Cc</dt>",
            "<dt>Bcc</dt>",
            "Ann Lee &lt;ann@example.org&gt;",
            "goes to <code><bdi>ann@example.org</bdi></code>",
            "international domain: <bdi>bücher.example</bdi>",
            "bob@xn--bcher-kva.example",
            "Check carefully",
            "Dear Ann,\n\nI am late, by about ten minutes.\n\nBest\nJo",
            "Goes to 3 recipients",
            "Exactly what is sent",
            "in 24 hours",
            "UTC</time>",
        ] {
            assert!(page.contains(shown), "{shown} is not in {page}");
        }
        let order = [
            "<dt>To</dt>",
            "<dt>Cc</dt>",
            "<dt>Bcc</dt>",
            "<dt>Subject</dt>",
            "<dt>Body</dt>",
        ];
        let places: Vec<_> = order.iter().map(|label| page.find(label).unwrap()).collect();
        assert!(places.is_sorted(), "{places:?}");
        // The warnings are the last thing before the buttons, and their number is repeated there.
        let order = [
            "Exactly what is sent",
            "Check carefully",
            "Approve once",
            "above</span>",
        ];
        let places: Vec<_> = order.iter().map(|part| page.find(part).unwrap()).collect();
        assert!(places.is_sorted(), "{places:?}");
        let filtered = ann.get("/console/approvals?tool=gmail_send").await.is(200);
        assert!(
            filtered.contains("I am late") && !filtered.contains("Room 4"),
            "{filtered}"
        );
        let none = ann.get("/console/approvals?tool=a%22+OR+%22b").await.is(200);
        assert!(none.contains("No action that matches the filter waits"), "{none}");
    }
}

/// Promise: decided by code. Approvals: nothing that a model writes is markup. No text of it can hide or change the
/// reading direction.
#[tokio::test]
async fn no_model_text_can_hide_or_become_markup() {
    let evil = "</dd></dl><script>alert(1)</script><img src=x onerror=alert(2)> \u{202e}live\u{200b} &amp; \"'";
    let call = json!({"to": ["ann@example.org"], "subject": evil.replace(['\u{202e}', '\u{200b}'], ""), "body": evil,
        "attachments": [{"name": evil, "content": "a".repeat(9000), "headers": {evil: {evil: [evil]}}}]});
    for (_office, app) in offices(vec![("gmail_send", call)]).await {
        let run = app.says("ann").await;
        let ann = Browser::of(&app, "desk", "ann").await;
        let thread = format!("/console/threads/{}", run["threadId"].as_str().unwrap());
        ann.answers(&approval(&run, 0), "reject", evil).await;
        let second = app.says("ann").await;
        for path in [
            "/console/approvals".to_owned(),
            format!("/console/approvals/{}", approval(&run, 0)),
            format!("/console/approvals/{}", approval(&second, 0)),
            format!(
                "/console/approvals?user={}&tool=x",
                "%22%3E%3Cscript%3Ealert(1)%3C/script%3E"
            ),
            thread,
        ] {
            let page = ann.get(&path).await.is(200);
            assert!(!page.contains("<script") && !page.contains("<img"), "{path}: {page}");
            assert!(
                !page.contains('\u{202e}') && !page.contains('\u{200b}'),
                "{path}: {page}"
            );
        }
        let page = ann
            .get(&format!("/console/approvals/{}", approval(&second, 0)))
            .await
            .text;
        assert!(
            page.contains(">U+202E</span>live<span") && page.contains(">U+200B</span>"),
            "{page}"
        );
        assert!(page.contains("Show all of it (1 line, 9000 characters)"), "{page}");
    }
}

/// The maximum size of a console page, in bytes.
const MOST_PAGE: usize = 8 << 20;

#[tokio::test]
async fn the_page_of_a_large_call_is_bounded_and_names_what_is_omitted() {
    // Each of these characters becomes ninety bytes on a page.
    let call = json!({"to": ["ann@example.org"], "subject": "Late", "body": "b",
        "attachments": [{"name": "x", "content": "\u{e0041}".repeat(200_000)}, {"name": "y", "headers": {"z": vec![""; 50_000]}}]});
    for (_office, app) in offices(vec![("gmail_send", call)]).await {
        let run = app.says("ann").await;
        let ann = Browser::of(&app, "desk", "ann").await;
        let own = format!("/console/approvals/{}", approval(&run, 0));
        for path in ["/console/approvals", &own, "/console/threads"] {
            let page = ann.get(path).await.is(200);
            assert!(page.len() < MOST_PAGE, "{path}: {}", page.len());
        }
        let page = ann.get(&own).await.is(200);
        for reported in [
            "Not all of the arguments are shown here",
            "more characters",
            "ann@example.org",
            "Approve once",
        ] {
            assert!(page.contains(reported), "{reported}");
        }
        let thread = format!("/console/threads/{}", run["threadId"].as_str().unwrap());
        let page = ann.get(&thread).await.is(200);
        assert!(page.len() < MOST_PAGE, "{}", page.len());
    }
}

/// Data that an approver must see is never cut off silently: if it does not fit, nothing can be approved on that page.
#[tokio::test]
async fn recipients_that_do_not_fit_a_page_cannot_be_approved_on_it() {
    let directory = tempfile::tempdir().unwrap();
    let policy = directory.path().join("policy.yaml");
    std::fs::write(&policy, "max_recipients: 10000\n").unwrap();
    for (many, offered) in [(10, true), (2000, true), (9000, false)] {
        let to: Vec<_> = (0..many).map(|n| format!("a{n}@example.org")).collect();
        let call = json!({"to": to, "subject": "Late", "body": "b"});
        let with = |setup: crate::harness::Setup| setup.env("GAVEL_POLICY", policy.to_str().unwrap());
        for (_office, app) in offices_with(vec![("gmail_send", call.clone())], with).await {
            let run = app.says("ann").await;
            let ann = Browser::of(&app, "desk", "ann").await;
            let own = format!("/console/approvals/{}", approval(&run, 0));
            let page = ann.get(&own).await.is(200);
            assert_eq!(page.contains("Approve once"), offered, "{many}");
            assert_eq!(page.contains("It cannot be approved here"), !offered, "{many}");
            assert!(
                page.contains("Reject…") && page.contains(&format!("Goes to {many} recipients")),
                "{many}"
            );
            assert!(page.len() < MOST_PAGE, "{many}: {}", page.len());
            let list = ann.get("/console/approvals").await.is(200);
            assert!(
                list.contains(" more") && list.len() < MOST_PAGE / 100,
                "{many}: {}",
                list.len()
            );
        }
    }
}

/// Promise: decided by code. The text of an approval request in its thread has no invisible characters and none
/// that change the writing direction, at any depth of the arguments. Everything else is in it. The approver sees such
/// characters by number.
#[tokio::test]
async fn the_text_of_an_approval_request_shows_invisible_characters_at_any_depth() {
    let hidden: Vec<_> = "\u{1b}\u{ad}\u{200b}\u{200e}\u{202a}\u{202e}\u{2066}\u{2069}\u{feff}\u{e0041}"
        .chars()
        .collect();
    let planted: String = hidden.iter().flat_map(|c| ['a', *c, 'z']).collect();
    let call = json!({
        "to": ["ann@example.org"], "subject": "Late", "body": "Hello.",
        "attachments": [{"name": "x", "headers": {format!("key{planted}"): [{"in": [format!("deep{planted}")]}]}}],
    });
    for (_office, app) in offices(vec![("gmail_send", call.clone())]).await {
        let run = app.says("ann").await;
        let thread = format!("/api/agent/threads/{}", run["threadId"].as_str().unwrap());
        let thread = app.by("web", "ann", "GET", &thread, None).await.expect(200);
        let mut texts: Vec<_> = thread["messages"].as_array().unwrap().iter().collect();
        texts.retain(|message| message["kind"] == "approval_request");
        let [question] = texts.as_slice() else {
            panic!("{thread}")
        };
        let words = question["text"].as_str().unwrap();
        assert!(
            words.contains("May I call gmail_send") && words.contains("to: ann@example.org"),
            "{words}"
        );
        for c in &hidden {
            assert!(!words.contains(*c), "{:x}: {words:?}", u32::from(*c));
        }
        // Each is shown by its number; a character that JSON writes as an escape is visible as it is.
        let numbered = |c: &char| format!("a<U+{:04X}>z", u32::from(*c));
        let seen: String = hidden[1..].iter().map(numbered).collect();
        let reported = format!("\"keya\\u001bz{}", &seen[..40]);
        assert!(words.contains(&reported), "{reported}: {words}");
        assert_eq!(
            run["actions"][0]["arguments"], call,
            "the arguments to be sent are unchanged"
        );
    }
}

/// users see their own approval requests, and approvers see all of their tenant. Other users cannot reach them by
/// any route.
#[tokio::test]
async fn users_see_and_answer_only_their_own_approval_requests() {
    for (office, app) in offices(vec![("gmail_send", mail())]).await {
        let run = app.says("ann").await;
        let question = approval(&run, 0);
        let (path, thread) = (
            format!("/console/approvals/{question}"),
            format!("/console/threads/{}", run["threadId"].as_str().unwrap()),
        );
        let action = format!("/console/actions/{}", run["actions"][0]["actionId"].as_str().unwrap());
        for (name, user) in [("desk", "eve"), ("others", ""), ("others", "ann")] {
            let other = Browser::of(&app, name, user).await;
            let list = other.get("/console/approvals").await;
            let token = list.form_token();
            assert!(list.is(200).contains("No action waits"), "{name} {user}");
            other.get(&path).await.is(404);
            other.get(&thread).await.is(404);
            let about = other.get(&format!("/console/approvals?about={question}")).await.is(200);
            assert!(!about.contains("class=\"flash"), "{about}");
            for (path, field, value) in [
                (path.as_str(), "decision", "approve_once"),
                (&action, "happened", "yes"),
                ("/console/grants/019300aa-0000-7000-8000-000000000000", "x", "y"),
            ] {
                other
                    .post(path, &[("form_token", &token), (field, value)])
                    .await
                    .is(404);
            }
        }
        assert!(office.names().is_empty());
        // An approver may answer for ann, and still does not read her thread under another name.
        let boss = Browser::of(&app, "chief", "boss").await;
        assert!(boss.get("/console/approvals").await.is(200).contains("I am late"));
        boss.get(&thread).await.is(404);
        Browser::of(&app, "chief", "").await.get(&thread).await.is(404);
        let landed = boss.answers(&question, "approve_once", "").await;
        landed.leads_to(&format!("/console/approvals?about={question}"));
        let reported = boss.get(landed.location()).await.is(200);
        assert!(
            reported.contains("Sent. Approved by <b>you</b> just now."),
            "{reported}"
        );
        assert_eq!(office.names(), ["gmail_send"]);
        let ann = Browser::of(&app, "desk", "ann").await;
        let late = ann.answers(&question, "reject", "").await;
        late.leads_to(&format!("/console/approvals?about={question}&late=1"));
        let reported = ann.get(late.location()).await.is(200);
        assert!(
            reported.contains("your decision came too late.")
                && reported.contains("<bdi title=\"service:chief for user:boss\">boss</bdi>"),
            "{reported}"
        );
        let read = ann.get(&thread).await.is(200);
        for said in [
            "E-mail Ann that I am late.",
            "for <bdi>ann</bdi> · to <bdi class=\"address\">ann@example.org</bdi> and 2 more · ",
            "That is all.",
            "Sent. Approved by",
        ] {
            assert!(read.contains(said), "{said}: {read}");
        }
    }
}

/// A form counts only with the token of the login that it was shown to, and from gavel's own pages. Otherwise nothing
/// is done.
#[tokio::test]
async fn an_answer_without_the_forms_token_does_nothing() {
    for (office, app) in offices(vec![("gmail_send", mail())]).await {
        let run = app.says("ann").await;
        let path = format!("/console/approvals/{}", approval(&run, 0));
        let ann = Browser::of(&app, "desk", "ann").await;
        let token = ann.get(&path).await.form_token();
        let elsewhere = Browser::of(&app, "desk", "ann").await.get(&path).await.form_token();
        assert_ne!(token, elsewhere, "another login of the same person has another token");
        let yes = ("decision", "approve_once");
        let half = &token[..32];
        for fields in [
            &[yes][..],
            &[yes, ("form_token", "")],
            &[yes, ("form_token", half)],
            &[yes, ("form_token", &elsewhere)],
            &[yes, ("form_token", &token), ("form_token", &token)],
        ] {
            ann.post(&path, fields).await.is(403);
        }
        let good = [yes, ("form_token", token.as_str())];
        for headers in [
            &[("sec-fetch-site", "cross-site")][..],
            &[("sec-fetch-site", "same-site")],
            &[("origin", "https://evil.example")],
            &[("content-type", "text/plain")],
        ] {
            let sent = ann.post_with(&path, headers, &good).await;
            assert_eq!(sent.status, 403, "{headers:?}");
        }
        ann.post(&path, &[("form_token", &token), ("decision", "maybe")])
            .await
            .is(400);
        let long = "x".repeat(5000);
        let reject = [
            ("form_token", token.as_str()),
            ("decision", "reject"),
            ("reason", &long),
        ];
        ann.post(&path, &reject).await.is(400);
        // A user who is logged out sees that the answer was not accepted.
        let stranger = Browser::at(&app);
        let turned = stranger.post(&path, &good).await;
        let page = stranger.get(turned.location()).await.is(200);
        assert!(page.contains("your input was not processed"), "{page}");
        assert!(office.names().is_empty(), "nothing was done");
        assert_eq!(ann.post(&path, &good).await.status, 303);
        assert_eq!(office.names(), ["gmail_send"]);
    }
}

/// of fifty concurrent answers one counts, and every user is shown the actual outcome.
#[tokio::test]
async fn of_fifty_concurrent_answers_one_counts() {
    for (office, app) in offices(vec![("gmail_send", mail())]).await {
        let run = app.says("ann").await;
        let question = approval(&run, 0);
        let path = format!("/console/approvals/{question}");
        let (ann, boss) = (
            Arc::new(Browser::of(&app, "desk", "ann").await),
            Arc::new(Browser::of(&app, "chief", "boss").await),
        );
        let tokens = [ann.get(&path).await.form_token(), boss.get(&path).await.form_token()];
        let mut posts = tokio::task::JoinSet::new();
        for n in 0..50 {
            let browser = Arc::clone(if n % 2 == 0 { &ann } else { &boss });
            let (path, token) = (path.clone(), tokens[n % 2].clone());
            let decision = if n % 2 == 0 { "approve_once" } else { "reject" };
            posts.spawn(async move {
                let sent = browser
                    .post(&path, &[("form_token", &token), ("decision", decision)])
                    .await;
                (n % 2, sent.status, sent.location().ends_with("late=1"))
            });
        }
        let answers = posts.join_all().await;
        assert!(answers.iter().all(|(_, status, _)| *status == 303), "{answers:?}");
        let in_time: Vec<_> = answers
            .iter()
            .filter(|(_, _, late)| !late)
            .map(|(who, ..)| *who)
            .collect();
        let winner = in_time[0];
        assert_eq!(
            in_time, [winner; 25],
            "the winner's presses are one answer, all of the other's are late"
        );
        let reported = ann.get(&path).await.is(200);
        let (by, effects) = [("Approved by", 1), ("Rejected by", 0)][winner];
        assert!(reported.contains(by), "{reported}");
        assert_eq!(office.names().len(), effects);
    }
}

/// a rejection carries its reason. A grant for exactly these recipients is listed, counted and revocable.
#[tokio::test]
async fn a_rejection_shows_its_reason_and_a_grant_can_be_revoked() {
    let alone = json!({"to": ["ann@example.org"], "subject": "Hi", "body": "Hello."});
    for (office, app) in offices(vec![("gmail_send", alone)]).await {
        let ann = Browser::of(&app, "desk", "ann").await;
        let first = app.says("ann").await;
        ann.answers(&approval(&first, 0), "reject", "Not\r\ntoday").await;
        let page = ann
            .get(&format!("/console/approvals/{}", approval(&first, 0)))
            .await
            .is(200);
        assert!(page.contains("; not executed. Reason: <q>Not\ntoday</q>"), "{page}");
        let reported = app.gemini.requests().last().unwrap().to_string();
        assert!(reported.contains("Not\\ntoday"), "{reported}");

        let second = app.says("ann").await;
        let own = format!("/console/approvals/{}", approval(&second, 0));
        let page = ann.get(&own).await.is(200);
        assert!(page.contains("Always for these recipients…"), "{page}");
        ann.answers(&approval(&second, 0), "approve_and_always_allow_recipient", "")
            .await;
        let allowed = app.says("ann").await;
        assert_eq!(allowed["status"], "completed");
        assert_eq!(office.names().len(), 2);
        // A call that required no approval is shown in its thread all the same.
        let thread = format!("/console/threads/{}", allowed["threadId"].as_str().unwrap());
        let page = ann.get(&thread).await.is(200);
        assert!(
            page.contains("<div class=\"state\">Sent. Always allowed.</div>"),
            "{page}"
        );
        // An approval request can be found by its heading, too.
        app.says("eve").await;
        let eve = Browser::of(&app, "desk", "eve").await;
        for (tool, found) in [("Gmail+send", true), ("gmail", true), ("mail", false)] {
            let page = eve.get(&format!("/console/approvals?tool={tool}")).await.is(200);
            assert_eq!(page.contains("Hello."), found, "{tool}: {page}");
        }
        let grants = ann.get("/console/grants").await;
        let token = grants.form_token();
        let page = grants.is(200);
        assert!(page.contains("1 time,") && page.contains("ann@example.org"), "{page}");
        let eve = Browser::of(&app, "desk", "eve").await;
        let path = page
            .split_once("action=\"/console/grants/")
            .unwrap()
            .1
            .split('"')
            .next()
            .unwrap();
        let path = format!("/console/grants/{path}");
        let own = eve.get("/console/grants").await;
        let evil = own.form_token();
        assert!(own.is(200).contains("There are no grants."));
        eve.post(&path, &[("form_token", &evil)]).await.is(404);
        ann.post(&path, &[("form_token", "x")]).await.is(403);
        let landed = ann.post(&path, &[("form_token", &token)]).await;
        let reported = ann.get(landed.location()).await.is(200);
        assert!(
            reported.contains("revoked. From now on it requires approval again."),
            "{reported}"
        );
        assert_eq!(app.says("ann").await["status"], "awaiting_confirmation");
    }
}

/// a call without recipients can only be approved once, and the page has no "always" button.
#[tokio::test]
async fn a_call_without_recipients_cannot_be_always_allowed() {
    let mut alone = meeting();
    alone.as_object_mut().unwrap().remove("attendees");
    for (office, app) in offices(vec![("calendar_event_create", alone)]).await {
        let run = app.says("ann").await;
        let ann = Browser::of(&app, "desk", "ann").await;
        let own = format!("/console/approvals/{}", approval(&run, 0));
        let page = ann.get(&own).await.is(200);
        assert!(
            page.contains("Approve once") && !page.contains("Always for these recipients"),
            "{page}"
        );
        let always = "approve_and_always_allow_recipient";
        let refused = ann.answers(&approval(&run, 0), always, "").await.is(422);
        assert!(refused.contains("no grant is possible"), "{refused}");
        assert!(office.names().is_empty());
    }
}

/// Promise: at most once. An in-doubt action is listed, explained, and settled by a user. It is not sent again.
#[tokio::test]
async fn an_in_doubt_action_is_explained_and_settled_by_a_user() {
    let lost = json!({"to": ["ann@example.org"], "subject": "lost", "body": "Hello."});
    for (office, app) in offices(vec![("gmail_send", lost)]).await {
        for (happened, becomes) in [("yes", "reported that it happened."), ("no", "and it failed")] {
            let run = app.says("ann").await;
            let ann = Browser::of(&app, "desk", "ann").await;
            let before = office.names().len();
            let landed = ann.answers(&approval(&run, 0), "approve_once", "").await;
            let page = ann.get(landed.location()).await;
            let token = page.form_token();
            let page = page.is(200);
            assert!(
                page.contains("Outcome unknown") && page.contains("its outcome is unknown"),
                "{page}"
            );
            let path = format!("/console/actions/{}", run["actions"][0]["actionId"].as_str().unwrap());
            let own = ann.get(&path).await.is(200);
            assert!(
                own.contains("It happened…") && own.contains("It did not happen…"),
                "{own}"
            );
            // Neither answer is suggested by its color.
            assert!(!own.contains("class=\"yes\"") && !own.contains("class=\"no\""), "{own}");
            ann.post(&path, &[("form_token", &token), ("happened", "maybe")])
                .await
                .is(400);
            ann.post(&path, &[("happened", happened)]).await.is(403);
            let landed = ann.post(&path, &[("form_token", &token), ("happened", happened)]).await;
            let reported = ann.get(landed.location()).await.is(200);
            assert!(
                reported.contains(becomes) && !reported.contains("It happened…"),
                "{reported}"
            );
            assert_eq!(office.names().len(), before + 1, "it is not sent again");
        }
    }
}

/// an approver with their own token, who acts for no other user, is shown the status of the run after their
/// answer. They still may not read the run itself.
#[tokio::test]
async fn an_approver_is_shown_the_status_of_the_run_they_answered_for() {
    let lost = json!({"to": ["ann@example.org"], "subject": "lost", "body": "Hello."});
    for setup in [Setup::stdio_sqlite(), Setup::stdio_postgres()] {
        let office = Office::start().await;
        let app = spawn_app(with_tokens(
            office.setup(setup).script(asks(vec![("gmail_send", lost.clone())])),
        ))
        .await;
        let send = async |user: &str, roles: &[&str], method: &str, path: &str, body: Value| {
            let authorization = format!("Bearer {}", token(user, 600, roles));
            let request = app.request(method, path, &[("authorization", &authorization)]);
            Answer::of(request.json(&body)).await
        };
        let run = send("ann", &[], "POST", "/api/agent/run", json!({"prompt": "E-mail Ann."}));
        let run = run.await.expect(200);
        let yes = json!({"approvalId": approval(&run, 0), "decision": "approve_once"});
        for _ in ["the answer", "the same once more"] {
            let path = "/api/agent/approvals/resolve";
            let reported = send("boss", &["approver"], "POST", path, yes.clone()).await.expect(200);
            assert_eq!(
                (&reported["runId"], &reported["state"]),
                (&run["runId"], &json!("in_doubt")),
                "{reported}"
            );
        }
        let path = format!(
            "/api/agent/actions/{}/settle",
            run["actions"][0]["actionId"].as_str().unwrap()
        );
        let reported = send("boss", &["approver"], "POST", &path, json!({"happened": true})).await;
        assert_eq!(reported.expect(200)["actions"][0]["state"], "completed");
        let path = format!("/api/agent/runs/{}", run["runId"].as_str().unwrap());
        let read = send("boss", &["approver"], "GET", &path, json!({})).await;
        read.problem(404, "not_found");
        assert_eq!(office.names().len(), 1);
    }
}

/// Makes the actions of a run unreadable in the same commit that settles one of them, or that changes their run.
async fn spoil_at(app: &App, what: &'static str) {
    if !app.database_url.starts_with("postgres") {
        return run(
            app,
            match what {
                "settle" => {
                    "CREATE TRIGGER spoil AFTER UPDATE OF settled_at ON agent_action BEGIN \
                     UPDATE agent_action SET grant_id = '{' WHERE id = NEW.id; END"
                }
                _ => {
                    "CREATE TRIGGER spoil_run AFTER UPDATE ON agent_run BEGIN \
                     UPDATE agent_action SET grant_id = '{' WHERE root_id = NEW.root_id; END"
                }
            },
        )
        .await;
    }
    let (function, trigger) = match what {
        "settle" => (
            "CREATE FUNCTION spoil() RETURNS trigger LANGUAGE plpgsql AS \
             $$BEGIN UPDATE agent_action SET grant_id = '{' WHERE id = NEW.id; RETURN NULL; END$$",
            "CREATE TRIGGER spoil AFTER UPDATE OF settled_at ON agent_action FOR EACH ROW EXECUTE FUNCTION spoil()",
        ),
        _ => (
            "CREATE FUNCTION spoil_run() RETURNS trigger LANGUAGE plpgsql AS \
             $$BEGIN UPDATE agent_action SET grant_id = '{' WHERE root_id = NEW.root_id; RETURN NULL; END$$",
            "CREATE TRIGGER spoil_run AFTER UPDATE ON agent_run FOR EACH ROW EXECUTE FUNCTION spoil_run()",
        ),
    };
    run(app, function).await;
    run(app, trigger).await;
}

/// Promise: truthful states. A settlement, cancellation or resolution that cannot be read afterwards is not reported as
/// not done.
#[tokio::test]
async fn a_change_that_cannot_be_read_back_is_not_reported_as_not_done() {
    let lost = json!({"to": ["ann@example.org"], "subject": "lost", "body": "Hello."});
    for (office, app) in offices(vec![("gmail_send", lost)]).await {
        let authorization = format!("Bearer {}", key("web"));
        let headers = [("x-gavel-user", "ann"), ("authorization", authorization.as_str())];
        let send = async |method: &str, path: String, body: Value| {
            Answer::of(app.request(method, &path, &headers).json(&body)).await
        };
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let yes = |run: &Value| json!({"approvalId": approval(run, 0), "decision": "approve_once"});
        let resolve = "/api/agent/approvals/resolve";
        let mut in_doubt = Vec::new();
        for _ in ["the API's", "the console's"] {
            let run = app.says("ann").await;
            let reported = send("POST", resolve.to_owned(), yes(&run)).await.expect(200);
            assert_eq!(reported["state"], "in_doubt", "{reported}");
            in_doubt.push(run);
        }
        let (answered, cancelled) = (app.says("ann").await, app.says("ann").await);
        let reported = |problem: Value, run: &Value| {
            assert_eq!(problem["runId"], run["runId"], "{problem}");
            let detail = problem["detail"].as_str().unwrap();
            assert!(
                (detail.contains("cannot be read now") || detail.contains("may have had effects"))
                    && !detail.contains("Nothing was done"),
                "{detail}"
            );
        };
        // The continuation of the run cannot be recorded either, and this process may already know.
        let either = |answer: &Answer| {
            let known = [(503, "run_unreadable"), (500, "outcome_unrecorded")];
            let said = (answer.status, answer.body["code"].as_str().unwrap());
            assert!(known.contains(&said), "{}", answer.body);
            answer.body.clone()
        };
        let action = |run: &Value| text(&run["actions"][0]["actionId"]);

        spoil_at(&app, "settle").await;
        let path = format!("/api/agent/actions/{}/settle", action(&in_doubt[0]));
        let settled = send("POST", path, json!({"happened": true})).await;
        reported(settled.problem(503, "run_unreadable"), &in_doubt[0]);
        let ann = Browser::of(&app, "desk", "ann").await;
        let token = ann.get("/console/approvals").await.form_token();
        let path = format!("/console/actions/{}", action(&in_doubt[1]));
        let landed = ann.post(&path, &[("form_token", &token), ("happened", "yes")]).await;
        landed.leads_to(&format!("/console/approvals?settled={}", action(&in_doubt[1])));

        spoil_at(&app, "run").await;
        let path = format!("/api/agent/runs/{}/cancel", text(&cancelled["runId"]));
        let stopped = send("POST", path, json!({})).await;
        reported(either(&stopped), &cancelled);
        // The continued run does not end here, so it is not waited for.
        let headers = [&headers[..], &[("prefer", "respond-async")]].concat();
        let answer = Answer::of(app.request("POST", resolve, &headers).json(&yes(&answered))).await;
        reported(either(&answer), &answered);
        assert!(office.names().len() >= 2);
    }
}

/// Many approval requests come in pages of fifty, and none is lost between two pages.
#[tokio::test]
async fn many_approval_requests_are_paged() {
    let office = Office::start().await;
    let setup = office
        .setup(Setup::stdio_sqlite())
        .script(asks(vec![("gmail_send", mail())]));
    let app = spawn_app(
        setup
            .env("GAVEL_AUTH_MODE", "api_key")
            .env("GAVEL_AUTH_KEYS", keys(&ALL)),
    )
    .await;
    for n in 0..53 {
        app.says(&format!("user-{n}")).await;
    }
    let boss = Browser::of(&app, "chief", "").await;
    let first = boss.get("/console/approvals").await.is(200);
    assert!(first.contains("<title>(50+) Approvals · gavel</title>"), "{first}");
    let next = first
        .split_once("<p class=\"next\"><a href=\"")
        .unwrap()
        .1
        .split('"')
        .next()
        .unwrap();
    let second = boss.get(&next.replace("&amp;", "&")).await.is(200);
    assert!(second.contains("<title>(3) Approvals · gavel</title>"), "{second}");
    for n in 0..53 {
        let user = format!("for <bdi>user-{n}</bdi>");
        assert_eq!(
            first.matches(&user).count() + second.matches(&user).count(),
            1,
            "{user}"
        );
    }
}
