//! The console in a real Chromium, with and without scripts: the scripts in tests/console do what a user does.

use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use serde_json::{Value, json};

use super::login::{token, with_tokens};
use super::planning::{started, studio};
use super::rig::{ALL, Office, approval, asks, key, keys, mail, meeting};
use crate::gemini::Reply;
use crate::harness::{Answer, App, Setup, spawn_app};

const PACKAGES: [(&str, &str); 2] = [("playwright-core", "1.65.1"), ("axe-core", "4.14.1")];

/// The build directory; the test runs from TARGET/PROFILE/deps.
fn target() -> PathBuf {
    std::env::current_exe().unwrap().ancestors().nth(3).unwrap().to_owned()
}

/// The browser driver, installed on first use. Without npm or Chromium the test fails, because nothing else can show
/// this behavior.
fn modules() -> PathBuf {
    static MODULES: OnceLock<PathBuf> = OnceLock::new();
    let install = || {
        let prefix = target().join("npm-console");
        let modules = prefix.join("node_modules");
        let is_there = |(name, version): (&str, &str)| {
            std::fs::read(modules.join(name).join("package.json"))
                .is_ok_and(|text| serde_json::from_slice::<Value>(&text).unwrap()["version"] == version)
        };
        if !PACKAGES.into_iter().all(is_there) {
            std::fs::create_dir_all(&prefix).unwrap();
            let installed = Command::new("npm")
                .args(["install", "--no-fund", "--no-audit", "--prefix"])
                .arg(&prefix)
                .args(PACKAGES.map(|(name, version)| format!("{name}@{version}")))
                .output()
                .unwrap();
            assert!(
                installed.status.success(),
                "{}",
                String::from_utf8_lossy(&installed.stderr)
            );
        }
        modules
    };
    MODULES.get_or_init(install).clone()
}

fn chromium() -> PathBuf {
    let named = std::env::var_os("CHROMIUM").map(PathBuf::from);
    let usual = [
        "/usr/bin/chromium",
        "/usr/bin/chromium-browser",
        "/usr/bin/google-chrome",
    ]
    .map(PathBuf::from);
    let found = named.into_iter().chain(usual).find(|path| path.exists());
    found.expect("Chromium is missing: apt-get install chromium, or name another in CHROMIUM")
}

/// Reads the approval requests of a run, and answers them.
async fn plays(app: &App, name: &str, run: &Value, user: Option<&str>, credential: &str, script: bool) {
    play(app, "browser.mjs", name, run, user, credential, script).await;
}

/// Runs one of the scripts in tests/console about an approval request.
async fn play(app: &App, play: &str, name: &str, run: &Value, user: Option<&str>, credential: &str, script: bool) {
    let about =
        json!({"name": name, "script": script, "user": user, "credential": credential, "approval": approval(run, 0)});
    plays_script(app, play, about).await;
}

pub(super) async fn plays_script(app: &App, play: &str, mut about: Value) {
    let shots = target().join("console-shots");
    std::fs::create_dir_all(&shots).unwrap();
    let rig = json!({"modules": modules(), "chromium": chromium(), "shots": shots, "url": app.url});
    about.as_object_mut().unwrap().extend(rig.as_object().unwrap().clone());
    let play = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/console")
        .join(play);
    let mut node = tokio::process::Command::new("node");
    let ran = node
        .arg(play)
        .arg(about.to_string())
        .kill_on_drop(true)
        .output()
        .await
        .unwrap();
    assert!(
        ran.status.success(),
        "{}: {}{}",
        about["name"],
        String::from_utf8_lossy(&ran.stdout),
        String::from_utf8_lossy(&ran.stderr)
    );
}

/// The usual e-mail, with markup that must stay inert.
fn planted() -> Value {
    let mut mail = mail();
    let body = mail["body"].as_str().unwrap().to_owned();
    let evil = "<script>alert(\"planted\")</script><img src=x onerror=alert(1)> \u{202e}gro.elpmaxe";
    mail["body"] = format!("{body}\n{evil}").into();
    mail["html_body"] = "<link rel=preconnect href=https://far.example><style>h1{color:#a00}</style><h1>Dear Ann</h1>\
        <script>alert('framed')</script><img src=https://far.example/x.png onerror=alert(2)>\
        <a href=https://far.example/pay>https://bank.example/pay</a><form action=https://far.example/f><button>Go</button></form>"
        .into();
    mail
}

fn asked() -> Vec<Reply> {
    asks(vec![("gmail_send", planted()), ("calendar_event_create", meeting())])
}

/// a user with a key reads the requests, approves one and rejects another. A frame and a form of
/// another site have no effect.
#[tokio::test(flavor = "multi_thread")]
async fn with_a_key_a_user_reads_and_answers_in_a_browser() {
    let office = Office::start().await;
    let setup = office.setup(Setup::stdio_sqlite()).script(asked());
    let app = spawn_app(
        setup
            .env("GAVEL_AUTH_MODE", "api_key")
            .env("GAVEL_AUTH_KEYS", keys(&ALL)),
    )
    .await;
    for (n, script) in [false, true].into_iter().enumerate() {
        let run = app.says("ann").await;
        let name = if script { "key-script" } else { "key-plain" };
        plays(&app, name, &run, Some("ann"), &key("desk"), script).await;
        assert_eq!(
            office.names(),
            vec!["gmail_send"; n + 1],
            "one e-mail each, and no event"
        );
    }
}

/// The same with a token.
#[tokio::test(flavor = "multi_thread")]
async fn with_a_token_a_user_reads_and_answers_in_a_browser() {
    let office = Office::start().await;
    let app = spawn_app(with_tokens(office.setup(Setup::stdio_postgres()).script(asked()))).await;
    for (n, script) in [false, true].into_iter().enumerate() {
        let bearer = format!("Bearer {}", token("ann", 600, &[]));
        let request = app.request("POST", "/api/agent/run", &[("authorization", bearer.as_str())]);
        let run = Answer::of(request.json(&json!({"prompt": "E-mail Ann that I am late."})))
            .await
            .expect(200);
        let name = if script { "token-script" } else { "token-plain" };
        plays(&app, name, &run, None, &token("ann", 600, &[]), script).await;
        assert_eq!(
            office.names(),
            vec!["gmail_send"; n + 1],
            "one e-mail each, and no event"
        );
    }
}

/// a logged-in user presses "Always for these recipients": the call is made once, and the grant exists. The next
/// call to the same recipient requires no approval; one with a new cc does.
#[tokio::test(flavor = "multi_thread")]
async fn a_grant_created_in_a_browser_covers_no_other_recipient() {
    for (setup, script) in [(Setup::stdio_sqlite(), false), (Setup::stdio_postgres(), true)] {
        let office = Office::start().await;
        let copies = Arc::new(AtomicBool::new(false));
        let copied = Arc::clone(&copies);
        let model = Reply::from(move |request| {
            let answered =
                request["contents"].as_array().unwrap().last().unwrap()["parts"][0]["functionResponse"].is_object();
            let mut mail = json!({"to": ["ann@example.org"], "subject": "I am late", "body": "Ten minutes."});
            if copied.load(Ordering::SeqCst) {
                mail["cc"] = json!(["carl@example.org"]);
            }
            match answered {
                true => Reply::Text("That is all."),
                false => Reply::call("gmail_send", mail),
            }
        });
        let setup = office.setup(setup).script(vec![model]);
        let app = spawn_app(
            setup
                .env("GAVEL_AUTH_MODE", "api_key")
                .env("GAVEL_AUTH_KEYS", keys(&ALL)),
        )
        .await;
        let grants = async || {
            let path = "/api/agent/grants";
            app.by("web", "ann", "GET", path, None).await.expect(200)["grants"].clone()
        };
        let run = app.says("ann").await;
        assert_eq!(
            (&run["status"], &grants().await),
            (&json!("awaiting_confirmation"), &json!([]))
        );
        play(&app, "always.mjs", "always", &run, Some("ann"), &key("desk"), script).await;
        assert_eq!(office.names(), ["gmail_send"], "it was sent once");
        let given = grants().await;
        assert_eq!(given.as_array().unwrap().len(), 1, "{given}");
        assert_eq!(
            (
                &given[0]["recipientsByArgument"],
                &given[0]["createdBy"],
                &given[0]["uses"]
            ),
            (
                &json!({"to": ["ann@example.org"]}),
                &json!("service:desk for user:ann"),
                &json!(0)
            ),
            "{given}"
        );

        let next = app.says("ann").await;
        assert_eq!(next["status"], "completed", "no approval is required: {next}");
        assert_eq!(office.names().len(), 2);
        assert_eq!(grants().await[0]["uses"], 1);
        copies.store(true, Ordering::SeqCst);
        let copy = app.says("ann").await;
        assert_eq!(copy["status"], "awaiting_confirmation", "{copy}");
        assert_eq!(
            copy["actions"][0]["arguments"]["cc"],
            json!(["carl@example.org"]),
            "{copy}"
        );
        assert_eq!(office.names().len(), 2);
    }
}

/// P-301 to P-307: a user confirms a plan, answers what the work on it asks, and sees it done, with and without scripts.
#[tokio::test(flavor = "multi_thread")]
async fn a_plan_is_confirmed_in_a_browser_that_shows_it_done() {
    for script in [false, true] {
        let (github, app) = studio(Setup::stdio_sqlite(), "The readme comes first.").await;
        let session = started(&app).await;
        let name = if script { "plan-script" } else { "plan-plain" };
        let about =
            json!({"name": name, "script": script, "user": "ann", "credential": key("desk"), "session": session});
        plays_script(&app, "sessions.mjs", about).await;
        assert_eq!(github.seen("POST").len(), 2, "one issue, and one pull request");
        app.stop().await;
    }
}
