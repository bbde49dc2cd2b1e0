//! The search, with a stand-in for Google.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::World;
use crate::site::{Reply, Site};

const KEY: &str = "canary-key";
const PRIVATE_KEY: &str = include_str!("../../../../tests/fixtures/gemini/service-account.test-key.pem");
const GROUNDING: &str = "/grounding-api-redirect/";
const GOOGLE: &str = "https://vertexaisearch.cloud.google.com";

/// The stand-in answers a search with this, and its own links with a redirect.
async fn google(answer: impl Fn() -> Reply + Send + Sync + 'static) -> Site {
    Site::start(move |path| match path.strip_prefix(GROUNDING) {
        Some("nowhere") => Reply::status(404),
        Some("silent") => Reply::Forever(Vec::new(), Vec::new(), Duration::from_secs(60)),
        Some("file") => Reply::redirect(302, "file:///etc/passwd"),
        Some(page) => Reply::redirect(302, &format!("https://found.example/{page}")),
        None if path == "/token" => json_reply(&json!({ "access_token": "canary-token", "expires_in": 3600 })),
        None => answer(),
    })
    .await
}

fn json_reply(body: &Value) -> Reply {
    Reply::ok("application/json", body.to_string())
}

fn with_key(google: &Site) -> World {
    World::with(&[google])
        .set("GEMINI_API_KEY", KEY)
        .set("GEMINI_BASE_URL", &google.url(""))
        .set("GEMINI_MODEL", "gemini-test")
}

fn candidate(text: &str, grounding: Value) -> Value {
    json!({ "candidates": [{
        "content": { "role": "model", "parts": [{ "text": "hm", "thought": true }, { "text": text }] },
        "finishReason": "STOP",
        "groundingMetadata": grounding,
    }] })
}

fn chunk(title: &str, url: &str) -> Value {
    json!({ "web": { "title": title, "uri": url } })
}

/// A recorded answer, with Google's links on the stand-in; `None` if the recordings are missing, which is an error if
/// `CI` is set.
fn recorded(name: &str) -> Option<String> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let shared = std::env::var_os("GAVEL_SHARED").map_or_else(|| root.join("../shared"), PathBuf::from);
    let path = shared.join("gemini/recorded").join(name);
    let Ok(text) = std::fs::read_to_string(&path) else {
        assert!(std::env::var_os("CI").is_none(), "{} is missing", path.display());
        eprintln!("skipped: {} is missing", path.display());
        return None;
    };
    let recording: Value = serde_json::from_str(&text).expect("JSON");
    Some(recording["response"]["body"].to_string())
}

/// A stand-in that knows its own address, for links to itself.
async fn replayed(body: String) -> Site {
    let links = google(|| Reply::status(404)).await;
    let body = body.replace(GOOGLE, &links.url(""));
    let site = google(move || Reply::ok("application/json", &body)).await;
    site.also(links)
}

#[tokio::test]
async fn a_recorded_answer_is_cited_with_the_pages_own_urls() {
    let name = "rubyllm-chat-citations-with-vertexai-g-citations-when-search-is-enabled.json";
    let Some(body) = recorded(name) else { return };
    let google = replayed(body).await;
    let reply = with_key(&google)
        .set("WEB_ALLOW_PRIVATE", &google.private())
        .server()
        .await;
    let reply = reply.search("What is the latest stable version of Ruby?").await;
    let entry_point = reply.meta["gavel/search_entry_point"]
        .as_str()
        .expect("an entry point")
        .to_owned();
    let found = reply.ok();
    let answer = found["answer"].as_str().expect("an answer");
    assert!(
        answer.starts_with(
            "The latest stable version of Ruby is 4.0.6, released on July 14, 2026.[1][2]\n\nSources:\n[1] "
        ),
        "{answer}"
    );
    assert_eq!(
        found["queries"],
        json!(["latest stable version of Ruby", "Ruby release notes"])
    );
    let sources = found["sources"].as_array().expect("sources");
    let titles: Vec<_> = sources
        .iter()
        .map(|source| source["title"].as_str().expect("a title"))
        .collect();
    assert_eq!(titles, ["ruby-lang.org", "wikipedia.org"]);
    for source in sources {
        let url = source["url"].as_str().expect("a URL");
        assert!(
            url.starts_with("https://found.example/") && answer.contains(url),
            "{url}"
        );
    }
    assert!(entry_point.contains("<style>") && !found.to_string().contains("<style>"));
    let request = google.requests().remove(0);
    let (head, body) = request.split_once("\r\n\r\n").expect("a request");
    assert!(
        head.starts_with("POST /v1beta/models/gemini-test:generateContent HTTP"),
        "{head}"
    );
    assert!(head.to_lowercase().contains("x-goog-api-key: canary-key"), "{head}");
    let body: Value = serde_json::from_str(body).expect("JSON");
    assert_eq!(body["tools"], json!([{ "googleSearch": {} }]));
    assert_eq!(
        body["contents"][0]["parts"][0]["text"],
        "What is the latest stable version of Ruby?"
    );
}

#[tokio::test]
async fn a_recorded_answer_of_several_parts_is_cited() {
    let Some(body) = recorded("pydai-test-native-output-with-builtin-tools.json") else {
        return;
    };
    let google = replayed(body).await;
    let server = with_key(&google)
        .set("WEB_ALLOW_PRIVATE", &google.private())
        .server()
        .await;
    let found = server.search("What is the largest city in Mexico?").await.ok();
    let answer = found["answer"].as_str().expect("an answer");
    let start = "{\n  \"city\": \"Mexico City\",\n  \"country\": \"Mexico\"\n}[1][2][3][4]";
    assert!(answer.starts_with(start), "{answer}");
    assert_eq!(found["queries"], json!(["largest city in Mexico"]));
    assert_eq!(
        found["sources"][3],
        json!({ "title": null, "url": "https://www.google.com/search?q=time+in+Mexico" })
    );
}

#[tokio::test]
async fn offsets_count_bytes_and_a_source_is_cited_once() {
    let text = "Zürich hat 安\u{200b}. Bern hat Bären.";
    let first = text.find(" Bern").expect("a place");
    let answer = candidate(
        text,
        json!({
            "webSearchQueries": ["zürich", "", " "],
            "groundingChunks": [chunk("a", "https://a.example/"), { "image": {} }, chunk("b\u{202e}", "https://b.example/"),
                chunk("a again", "https://a.example/"), chunk("bad", "javascript:x()")],
            "groundingSupports": [
                { "segment": { "partIndex": 1, "endIndex": first, "text": &text[..first] }, "groundingChunkIndices": [0, 3, 1, 4, 99] },
                { "segment": { "partIndex": 1, "startIndex": first + 1, "endIndex": text.len() }, "groundingChunkIndices": [2] },
                { "segment": { "startIndex": 3, "endIndex": 7, "text": "not there" }, "groundingChunkIndices": [0] },
            ],
        }),
    );
    let google = google(move || json_reply(&answer)).await;
    let found = with_key(&google).server().await.search("?").await.ok();
    let expected =
        "Zürich hat 安.[1] Bern hat Bären.[2]\n\nSources:\n[1] a https://a.example/\n[2] b https://b.example/";
    assert_eq!(found["answer"], expected);
    assert_eq!(found["queries"], json!(["zürich"]));
    assert_eq!(found["sources"].as_array().map(Vec::len), Some(2));
}

#[tokio::test]
async fn an_answer_without_a_search_says_so() {
    for grounding in [Value::Null, json!({}), json!({ "webSearchQueries": ["x"] })] {
        let mut answer = candidate("I think so.", grounding.clone());
        if grounding.is_null() {
            answer["candidates"][0]
                .as_object_mut()
                .expect("an object")
                .remove("groundingMetadata");
        }
        let google = google(move || json_reply(&answer)).await;
        let reply = with_key(&google).server().await.search("?").await;
        assert_eq!(reply.meta, Value::Null);
        let found = reply.ok();
        assert_eq!(
            found["answer"],
            "I think so.\n\nNo sources: the model answered without a search."
        );
        assert_eq!(found["sources"], json!([]));
    }
}

#[tokio::test]
async fn links_are_looked_at_under_the_guard() {
    let inside = Site::at_a_web_port().await;
    let links = google(|| Reply::status(404)).await;
    let link = |site: &Site, page: &str| site.url(&format!("{GROUNDING}{page}"));
    let urls = [
        link(&links, "page"),
        link(&links, "nowhere"),
        link(&links, "file"),
        link(&links, "silent"),
        link(&inside, "x"),
    ];
    let chunks: Vec<_> = urls.iter().map(|url| chunk("t", url)).collect();
    let answer = candidate("x", json!({ "groundingChunks": chunks }));
    let google = google(move || json_reply(&answer)).await.also(links);
    let server = with_key(&google)
        .set("WEB_ALLOW_PRIVATE", &google.private())
        .server()
        .await;
    let found = server.search("?").await.ok();
    let shown: Vec<_> = found["sources"]
        .as_array()
        .expect("sources")
        .iter()
        .map(|source| &source["url"])
        .collect();
    assert_eq!(
        shown,
        ["https://found.example/page", &urls[1], &urls[2], &urls[3], &urls[4]]
    );
    assert_eq!(inside.connections(), 0);
}

#[tokio::test]
async fn what_the_service_refuses_is_an_error_of_its_own() {
    for (answer, code, detail) in [
        (
            Reply::with(429, "Retry-After: 7\r\n", ""),
            "rate_limited",
            json!({ "retryAfterSeconds": 7 }),
        ),
        (Reply::status(429), "rate_limited", json!({ "retryAfterSeconds": 30 })),
        (Reply::status(403), "search_unavailable", json!({ "status": 403 })),
        (Reply::status(400), "search_unavailable", json!({ "status": 400 })),
        (Reply::status(500), "search_unavailable", json!({})),
        (
            Reply::redirect(302, "http://127.0.0.1:1/"),
            "search_unavailable",
            json!({}),
        ),
        (Reply::text("nonsense canary"), "search_unavailable", json!({})),
        (Reply::Bytes(Vec::new()), "search_unavailable", json!({})),
        (
            json_reply(&json!({ "promptFeedback": { "blockReason": "SAFETY" } })),
            "search_unavailable",
            json!({}),
        ),
        (
            json_reply(&json!({ "candidates": [{ "finishReason": "SAFETY" }] })),
            "search_unavailable",
            json!({}),
        ),
        (
            Reply::Forever(Vec::new(), Vec::new(), Duration::from_secs(60)),
            "timeout",
            json!({ "seconds": 2 }),
        ),
        (
            Reply::Forever(b"HTTP/1.1 200 OK\r\n\r\n".to_vec(), vec![b' '; 1 << 16], Duration::ZERO),
            "search_unavailable",
            json!({}),
        ),
    ] {
        let shown = format!("{answer:?}").chars().take(200).collect::<String>();
        let google = google(move || answer.clone()).await;
        let reply = with_key(&google)
            .set("WEB_TIMEOUT_SECONDS", "2")
            .server()
            .await
            .search("?")
            .await;
        assert_eq!(reply.code(), code, "{shown}");
        for (name, value) in detail.as_object().expect("details") {
            assert_eq!(&reply.error()[name], value, "{shown}");
        }
    }
    let server = World::default().set("GEMINI_API_KEY", KEY).server().await;
    assert_eq!(server.search("  ").await.code(), "invalid_argument");
    assert_eq!(server.search(&"x".repeat(3_000)).await.code(), "too_long");
}

#[tokio::test]
async fn vertex_ai_gets_a_token_and_wins_over_a_key() {
    let google = google(|| json_reply(&candidate("x", json!({})))).await;
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("account.json");
    let account = json!({
        "type": "service_account",
        "client_email": "me@project.example",
        "private_key": PRIVATE_KEY,
        "private_key_id": "1",
        "token_uri": google.url("/token"),
    });
    std::fs::write(&path, account.to_string()).expect("written");
    let server = with_key(&google)
        .set("VERTEX_AI_PROJECT_ID", "my-project")
        .set("VERTEX_AI_LOCATION", "europe-west4")
        .set("VERTEX_AI_ENDPOINT", &google.url(""))
        .set("GOOGLE_APPLICATION_CREDENTIALS", &path.display().to_string())
        .server()
        .await;
    server.search("one").await.ok();
    server.search("two").await.ok();
    let search = "/v1/projects/my-project/locations/europe-west4/publishers/google/models/gemini-test:generateContent";
    assert_eq!(google.paths(), ["/token", search, search]);
    let requests = google.requests();
    assert!(requests[0].contains("grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Ajwt-bearer&assertion=eyJ"));
    for request in &requests[1..] {
        assert!(
            request.to_lowercase().contains("authorization: bearer canary-token"),
            "{request}"
        );
        assert!(!request.contains(KEY));
    }
}

#[tokio::test]
async fn vertex_ai_in_express_mode_has_a_key() {
    let google = google(|| json_reply(&candidate("x", json!({})))).await;
    let server = World::default()
        .set("VERTEX_AI_API_KEY", KEY)
        .set("VERTEX_AI_ENDPOINT", &google.url(""))
        .set("GEMINI_MODEL", "demo")
        .server()
        .await;
    server.search("one").await.ok();
    assert_eq!(
        google.paths(),
        ["/v1/publishers/google/models/gemini-3.8-flash:generateContent"]
    );
}

#[tokio::test]
async fn custom_search_lists_pages() {
    let items = json!({ "items": [
        { "title": "One", "link": "https://one.example/", "snippet": "First\n words" },
        { "title": "Two", "link": "https://two.example/", "snippet": "Second" },
    ] });
    let google = google(move || json_reply(&items)).await;
    let world = with_key(&google)
        .set("GOOGLE_CSE_KEY", KEY)
        .set("GOOGLE_CSE_ID", "engine")
        .set("GOOGLE_CSE_URL", &google.url("/customsearch/v1"));
    let found = world.server().await.search("a & b").await.ok();
    assert_eq!(
        found["answer"],
        "First words[1]\nSecond[2]\n\nSources:\n[1] One https://one.example/\n[2] Two https://two.example/"
    );
    assert_eq!(found["queries"], json!(["a & b"]));
    assert_eq!(google.paths(), ["/customsearch/v1?cx=engine&q=a+%26+b"]);
    let nothing = self::google(|| json_reply(&json!({}))).await;
    let world = world.set("GOOGLE_CSE_URL", &nothing.url("/"));
    assert_eq!(
        world.server().await.search("x").await.text(),
        "The search found nothing."
    );
}
