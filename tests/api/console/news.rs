//! What a page does without scripts: a list reports that it has changed, and times are shown in a chosen time zone.

use serde_json::json;

use super::rig::{Browser, Page, approval, mail, meeting, offices};

fn frame(page: &str) -> String {
    let (_, rest) = page
        .split_once("<iframe class=\"news\" src=\"")
        .unwrap_or_else(|| panic!("{page}"));
    rest.split('"').next().unwrap().replace("&amp;", "&")
}

fn refreshes(page: &Page) -> bool {
    page.text.contains("http-equiv=\"refresh\" content=\"15\"")
}

/// an open list reports what arrived or was resolved since, and the approver loses no text that they are writing
/// in it.
#[tokio::test]
async fn a_list_reports_changes_and_keeps_the_text_being_written() {
    for (_office, app) in offices(vec![("gmail_send", mail())]).await {
        let ann = Browser::of(&app, "desk", "ann").await;
        let list = ann.get("/console/approvals?tool=gmail_send").await.is(200);
        assert!(!list.contains("http-equiv=\"refresh\""), "{list}");
        let frame_of_empty = frame(&list);
        let quiet = ann.get(&frame_of_empty).await;
        assert!(refreshes(&quiet) && !quiet.text.contains("<a "), "{}", quiet.text);

        let run = app.says("ann").await;
        let news = ann.get(&frame_of_empty).await;
        assert!(news.text.contains("This list has changed"), "{}", news.text);
        assert!(
            news.text
                .contains("href=\"/console/approvals?tool=gmail_send\" target=\"_top\""),
            "{}",
            news.text
        );
        assert!(
            !refreshes(&news),
            "it has reported the change and stops refreshing: {}",
            news.text
        );

        let frame_of_one = frame(&ann.get("/console/approvals").await.text);
        assert!(refreshes(&ann.get(&frame_of_one).await));
        app.says("jo").await;
        assert!(
            refreshes(&ann.get(&frame_of_one).await),
            "another user's news is not shown"
        );
        ann.answers(&approval(&run, 0), "reject", "").await;
        let news = ann.get(&frame_of_one).await;
        assert!(news.text.contains("This list has changed"), "{}", news.text);

        let stranger = Browser::at(&app).get(&frame_of_one).await;
        assert!(stranger.text.contains("You are logged out"), "{}", stranger.text);
        assert!(!refreshes(&stranger), "{}", stranger.text);
    }
}

/// Only gavel's own pages may embed the frame, and it neither runs nor posts anything.
#[tokio::test]
async fn only_pages_of_gavel_show_the_frame() {
    for (_office, app) in offices(Vec::new()).await {
        let ann = Browser::of(&app, "desk", "ann").await;
        let news = ann.get("/console/news").await;
        let header = |name: &str| news.headers.get(name).map_or("", |value| value.to_str().unwrap());
        assert_eq!(
            header("content-security-policy"),
            "default-src 'none'; style-src 'self'; form-action 'none'; frame-ancestors 'self'; base-uri 'none'"
        );
        assert_eq!(header("x-frame-options"), "SAMEORIGIN");
        assert!(
            !news.text.contains("<script") && !news.text.contains("<form"),
            "{}",
            news.text
        );
    }
}

/// A login ends an hour after its last use, even if a page that refreshes itself is open.
#[tokio::test]
async fn a_page_that_refreshes_itself_does_not_extend_a_login() {
    let with = |setup: crate::harness::Setup| setup.env("GAVEL_CONSOLE_IDLE_HOURS", "0.001");
    for (_office, app) in super::rig::offices_with(Vec::new(), with).await {
        let ann = Browser::of(&app, "desk", "ann").await;
        let frame = frame(&ann.get("/console/approvals").await.text);
        let mut looks = 0;
        while refreshes(&ann.get(&frame).await) {
            looks += 1;
            assert!(looks < 200, "it never ends");
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
        assert!(ann.get(&frame).await.text.contains("You are logged out"));
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
