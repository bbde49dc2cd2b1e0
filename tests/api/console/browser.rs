//! The console in a real Chromium, with script and without: tests/console/browser.mjs does what a person does.

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

use serde_json::{Value, json};

use super::login::{token, with_tokens};
use super::rig::{ALL, Office, approval, asks, key, keys, mail, meeting};
use crate::harness::{Answer, App, Setup, spawn_app};

const PACKAGES: [(&str, &str); 2] = [("playwright-core", "1.65.1"), ("axe-core", "4.14.1")];

/// The build's folder; the test runs from TARGET/PROFILE/deps.
fn target() -> PathBuf {
    std::env::current_exe().unwrap().ancestors().nth(3).unwrap().to_owned()
}

/// What drives the browser, installed at first. A machine without npm or Chromium fails the test: what it shows cannot be shown
/// otherwise.
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

async fn plays(app: &App, name: &str, run: &Value, user: Option<&str>, credential: &str, script: bool) {
    let shots = target().join("console-shots");
    std::fs::create_dir_all(&shots).unwrap();
    let told = json!({
        "modules": modules(), "chromium": chromium(), "shots": shots, "name": name, "script": script, "url": app.url,
        "user": user, "credential": credential, "approval": approval(run, 0),
    });
    let play = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/console/browser.mjs");
    let mut node = tokio::process::Command::new("node");
    let ran = node
        .arg(play)
        .arg(told.to_string())
        .kill_on_drop(true)
        .output()
        .await
        .unwrap();
    assert!(
        ran.status.success(),
        "{name}: {}{}",
        String::from_utf8_lossy(&ran.stdout),
        String::from_utf8_lossy(&ran.stderr)
    );
}

/// The e-mail of the others, with what must not come alive.
fn planted() -> Value {
    let mut mail = mail();
    let body = mail["body"].as_str().unwrap().to_owned();
    let evil = "<script>alert(\"planted\")</script><img src=x onerror=alert(1)> \u{202e}gro.elpmaxe";
    mail["body"] = format!("{body}\n{evil}").into();
    mail
}

fn asked() -> Vec<crate::gemini::Reply> {
    asks(vec![("gmail_send", planted()), ("calendar_event_create", meeting())])
}

/// with a key, a person reads what is asked, approves one and rejects another; a frame and a form elsewhere do nothing.
#[tokio::test(flavor = "multi_thread")]
async fn with_a_key_a_person_reads_and_answers_in_a_browser() {
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
async fn with_a_token_a_person_reads_and_answers_in_a_browser() {
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
