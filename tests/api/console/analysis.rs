//! The pages for analysts: what they show, to whom, and that their SQL counts the same.

use serde_json::{Value, json};

use super::browser::plays_script;
use super::rig::{Browser, key, keys};
use crate::audit::rows;
use crate::gemini::Reply;
use crate::harness::{App, Setup, spawn_app};

/// Two decisions of ann, one of them with a call, and one of jo. Their texts are hostile.
async fn analysed(setup: Setup) -> App {
    let task = "<img src=x onerror=alert(2)> \u{202e}gro.elpmaxe";
    let setup = setup.script(vec![
        Reply::call("add_task", json!({"description": task})),
        Reply::Text("<script>alert(\"answered\")</script>"),
        Reply::Text("Hello, ann."),
        Reply::Text("Hello, jo."),
    ]);
    let names = ["web", "desk", "chief", "ana"];
    let setup = setup
        .env("GAVEL_AUTH_MODE", "api_key")
        .env("GAVEL_AUTH_KEYS", keys(&names));
    let app = spawn_app(setup).await;
    for (user, message) in [
        ("ann", "<script>alert(\"asked\")</script>"),
        ("ann", "hello"),
        ("jo", "hello"),
    ] {
        let body = json!({"message": message, "user_id": user});
        app.by("web", user, "POST", "/v1/chat", Some(body)).await.expect(200);
    }
    app
}

/// Both ways of a browser: with scripts, which pages must not need and may not run, axe looks at them too.
#[tokio::test(flavor = "multi_thread")]
async fn an_analyst_reads_the_logs_in_a_browser() {
    for script in [false, true] {
        let app = analysed(Setup::stdio_sqlite()).await;
        let name = if script { "analysis-script" } else { "analysis-plain" };
        let about = json!({"name": name, "script": script, "user": "ana", "credential": key("ana")});
        plays_script(&app, "analysis.mjs", about).await;
        app.stop().await;
    }
}

/// How many decisions the page counts.
async fn ended(browser: &Browser, query: &str) -> String {
    let page = browser.get(&format!("/console/decisions{query}")).await.is(200);
    let (_, rest) = page
        .split_once("<details class=\"facets\" open><summary>")
        .unwrap_or_else(|| panic!("{page}"));
    rest.split_once(" ended").unwrap().0.to_owned()
}

#[tokio::test]
async fn a_user_sees_their_own_decisions_and_an_analyst_those_of_the_tenant() {
    for setup in [Setup::stdio_sqlite(), Setup::stdio_postgres()] {
        let app = analysed(setup).await;
        for (name, user, count) in [
            ("desk", "ann", "2"),
            ("desk", "jo", "1"),
            ("chief", "", "3"),
            ("ana", "ann", "3"),
        ] {
            let browser = Browser::of(&app, name, user).await;
            assert_eq!(ended(&browser, "").await, count, "{name} {user}");
            let overview = browser.get("/console/overview").await.is(200);
            assert!(overview.contains(&format!(">{count}</a></dd>")), "{overview}");
        }
        let ann = Browser::of(&app, "desk", "ann").await;
        let of_jo = app.by("web", "jo", "GET", "/v1/decisions", None).await.expect(200);
        let id = of_jo["decisions"][0]["decision_id"].as_str().unwrap();
        ann.get(&format!("/console/decisions/{id}")).await.is(404);
        app.stop().await;
    }
}

#[tokio::test]
async fn an_invalid_address_names_each_parameter_and_the_place_in_a_filter() {
    let app = analysed(Setup::stdio_sqlite()).await;
    let browser = Browser::of(&app, "chief", "").await;
    let page = browser.get("/console/overview?last=1y&zone=Mars%2FBase").await.is(400);
    for named in [
        "last: is \"1y\"; allowed: 24h, 7d, 30d",
        "zone: is \"Mars/Base\"; allowed:",
    ] {
        assert!(page.replace("&quot;", "\"").contains(named), "{page}");
    }
    let page = browser.get("/console/tools?from=2026-11-20&to=yesterday").await.is(400);
    assert!(
        page.contains("to: is &quot;yesterday&quot;; allowed: a time such as"),
        "{page}"
    );
    let page = browser
        .get("/console/decisions?filter=surface%20%3D%20%22chat%22%20AND%20colour%20%3D%201")
        .await
        .is(400);
    assert!(page.contains("at character 22"), "{page}");
    assert!(
        page.contains("value=\"surface = &quot;chat&quot; AND colour = 1\""),
        "what was written stays: {page}"
    );
    browser.get("/console/decisions?page_token=x").await.is(400);
    browser.get("/console/decisions/none").await.is(404);
}

/// The statements that a page shows.
fn statements(page: &str) -> Vec<String> {
    let shown = page
        .split("<pre class=\"raw\">")
        .skip(1)
        .filter_map(|rest| rest.split_once("</pre>"));
    let shown = shown.map(|(text, _)| {
        let text = text.replace("&gt;", ">").replace("&lt;", "<");
        text.replace("&quot;", "\"").replace("&amp;", "&")
    });
    let all: String = shown.filter(|text| text.starts_with("SELECT")).collect();
    all.split_inclusive(';')
        .map(|one| one.trim().to_owned())
        .filter(|one| !one.is_empty())
        .collect()
}

#[tokio::test]
async fn the_sql_of_a_page_counts_what_the_page_counts() {
    let app = analysed(Setup::stdio_postgres()).await;
    let filter = "?filter=outcome_category%20%3D%20%22SUCCESS%3A*%22%20AND%20NOT%20intent%20%3D%20%22add_task%22";
    for (name, user, decisions, path, many) in [
        ("chief", "", 3, "/console/overview", 2),
        ("desk", "ann", 2, "/console/overview", 2),
        ("chief", "", 3, "/console/models", 1),
        ("chief", "", 3, "/console/cost", 1),
        ("chief", "", 1, "/console/tools", 1),
        ("chief", "", 2, &format!("/console/decisions{filter}"), 1),
    ] {
        let browser = Browser::of(&app, name, user).await;
        let page = browser.get(path).await.is(200);
        let all = statements(&page);
        assert_eq!(all.len(), many, "{path}: {page}");
        for statement in all {
            let found = rows(&app.database_url, &statement).await;
            // The count follows what the rows are grouped by; a list has a row each.
            let counted = match statement.split_once("count(*)") {
                None => found.len() as i64,
                Some((before, _)) => {
                    let column = before.matches(",\n").count();
                    found.iter().map(|row| row[column].parse::<i64>().unwrap()).sum()
                }
            };
            assert_eq!(counted, decisions, "{path}: {statement}: {found:?}");
        }
    }
    let page = Browser::of(&app, "chief", "")
        .await
        .get("/console/decisions?filter=hello")
        .await
        .is(200);
    assert!(statements(&page).is_empty(), "texts are in other views: {page}");
}

/// Of an open decision there is no outcome yet, and of one without content no text.
#[tokio::test]
async fn without_content_a_page_shows_no_text() {
    let setup = Setup::stdio_sqlite().env("GAVEL_RECORDS_CONTENT", "none");
    let app = analysed(setup).await;
    let browser = Browser::of(&app, "ana", "ana").await;
    let found = app.by("web", "", "GET", "/v1/decisions", None).await.expect(200);
    for decision in found["decisions"].as_array().unwrap() {
        let id = decision["decision_id"].as_str().unwrap();
        assert_eq!(decision["message"], Value::Null, "{decision}");
        let page = browser.get(&format!("/console/decisions/{id}")).await.is(200);
        assert!(page.contains("Content not stored"), "{page}");
        assert!(!page.contains("asked") && !page.contains("Hello"), "{page}");
    }
}
