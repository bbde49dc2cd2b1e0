//! What a page does without scripts: a list refreshes itself, and times are shown in a chosen time zone.

use serde_json::json;

use super::rig::{Browser, Page, approval, mail, meeting, offices, offices_with};

fn refresh(page: &Page) -> Option<&str> {
    page.headers.get("refresh").map(|value| value.to_str().unwrap())
}

/// an open list shows what arrived or was resolved since, with the same filter, until the approver pauses it.
#[tokio::test]
async fn a_list_refreshes_itself_until_it_is_paused() {
    for (_office, app) in offices(vec![("gmail_send", mail())]).await {
        let ann = Browser::of(&app, "desk", "ann").await;
        let list = ann.get("/console/approvals?tool=gmail_send").await;
        let next = refresh(&list).and_then(|value| value.strip_prefix("30; url=")).unwrap();
        assert_eq!(next, "/console/approvals?tool=gmail_send&auto=1");
        app.says("ann").await;
        let again = ann.get(next).await;
        assert!(again.text.contains("I am late"), "{}", again.text);
        assert_eq!(refresh(&again), refresh(&list), "it continues");
        let pause = "href=\"/console/approvals?tool=gmail_send&amp;still=1\">Pause";
        assert!(again.text.contains(pause), "{}", again.text);
        let paused = ann.get("/console/approvals?tool=gmail_send&still=1").await;
        assert_eq!(refresh(&paused), None);
        assert!(
            paused
                .text
                .contains("href=\"/console/approvals?tool=gmail_send\">Refresh it"),
            "{}",
            paused.text
        );
    }
}

/// Only gavel's own pages may embed the frame of a session's progress, and it neither runs nor posts anything.
#[tokio::test]
async fn only_pages_of_gavel_show_the_frame() {
    for (_office, app) in offices(Vec::new()).await {
        let frame = "/console/sessions/0198c2b5-7d8e-7c52-9d3b-5a1c4e6f7a80/news";
        let frame = Browser::at(&app).get(frame).await;
        let header = |name: &str| frame.headers.get(name).map_or("", |value| value.to_str().unwrap());
        assert_eq!(
            header("content-security-policy"),
            "default-src 'none'; style-src 'self'; form-action 'none'; frame-ancestors 'self'; base-uri 'none'"
        );
        assert_eq!(header("x-frame-options"), "SAMEORIGIN");
        assert!(frame.text.contains("You are logged out"), "{}", frame.text);
        assert!(
            !frame.text.contains("<script") && !frame.text.contains("<form"),
            "{}",
            frame.text
        );
    }
}

/// A login ends an hour after its last use, even if a page that refreshes itself is open.
#[tokio::test]
async fn a_page_that_refreshes_itself_does_not_extend_a_login() {
    let with = |setup: crate::harness::Setup| setup.env("GAVEL_CONSOLE_IDLE_HOURS", "0.001");
    for (_office, app) in offices_with(Vec::new(), with).await {
        let ann = Browser::of(&app, "desk", "ann").await;
        let mut looks = 0;
        while ann.get("/console/approvals?auto=1").await.status == 200 {
            looks += 1;
            assert!(looks < 200, "it never ends");
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
        let turned = ann.get("/console/approvals?auto=1").await;
        assert!(turned.location().starts_with("/console/login"), "{}", turned.location());
    }
}

/// times are in the approver's time zone once they have chosen one. Until then they are in UTC, and the page says
/// so.
#[tokio::test]
async fn times_are_in_the_approvers_time_zone() {
    for (_office, app) in offices(vec![("calendar_event_create", meeting())]).await {
        let run = app.says("ann").await;
        let ann = Browser::of(&app, "desk", "ann").await;
        let own = format!("/console/approvals/{}", approval(&run, 0));
        let page = ann.get(&own).await.is(200);
        assert!(page.contains("UTC</time>") && page.contains("Times in UTC"), "{page}");

        let choice = ann.get("/console/zone").await.is(200);
        assert!(choice.contains("<option value=\"UTC\" selected>"), "{choice}");
        let token = super::rig::form_token(&choice);
        let chooses = async |zone| {
            ann.post("/console/zone", &[("form_token", &token), ("zone", zone)])
                .await
        };
        chooses("Asia/Tokyo").await.leads_to("/console/approvals");
        let page = ann.get(&own).await.is(200);
        assert!(
            page.contains("JST</time>") && page.contains("Times in Asia/Tokyo"),
            "{page}"
        );
        assert!(!page.contains("UTC</time>"), "{page}");

        let reported = chooses("Mars/Base").await.is(400);
        assert!(reported.contains("such as Europe/Berlin"), "{reported}");
        let foreign = ann.post("/console/zone", &[("zone", "Asia/Tokyo")]).await;
        assert_eq!(foreign.status, 403, "{}", foreign.text);
        // A time zone cookie that a neighbor planted is ignored.
        ann.cookies
            .lock()
            .unwrap()
            .insert("gavel_zone".to_owned(), "<b>".to_owned());
        let page = ann.get(&own).await.is(200);
        assert!(page.contains("Times in UTC"), "{page}");
        assert_eq!(json!(run["status"]), "awaiting_confirmation");
    }
}
