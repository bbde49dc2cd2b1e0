//! Published servers, unmodified: installed from npm beside the build, listed, translated, called, killed within a
//! call, and recovered.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use gavel::adapters::mcp::Mcp;
use gavel::ports::tools::Tools;
use serde_json::{Value, json};
use tokio::process::Child;

use super::support::{Call, PATIENCE, bridge, call, data, failed, http, tool, unknown, until, up};

const EVERYTHING: &str = "server-everything";
const FILESYSTEM: &str = "server-filesystem";
const VERSION: &str = "2026.8.31";

/// The script that starts a server; installs both on first use. Without npm these tests fail, because nothing else can
/// show this behavior.
fn script(package: &str) -> PathBuf {
    static PREFIX: OnceLock<PathBuf> = OnceLock::new();
    let prefix = PREFIX.get_or_init(|| {
        // The test runs from TARGET/PROFILE/deps.
        let prefix = std::env::current_exe().unwrap().ancestors().nth(3).unwrap().join("npm");
        if ![EVERYTHING, FILESYSTEM]
            .iter()
            .all(|package| is_installed(&prefix, package))
        {
            std::fs::create_dir_all(&prefix).unwrap();
            let packages = [EVERYTHING, FILESYSTEM].map(|package| format!("@modelcontextprotocol/{package}@{VERSION}"));
            let installed = Command::new("npm")
                .args(["install", "--no-fund", "--no-audit", "--prefix"])
                .arg(&prefix)
                .args(packages)
                .output()
                .unwrap();
            assert!(
                installed.status.success(),
                "{}",
                String::from_utf8_lossy(&installed.stderr)
            );
        }
        prefix
    });
    directory(prefix, package).join("dist/index.js")
}

fn directory(prefix: &Path, package: &str) -> PathBuf {
    prefix.join("node_modules/@modelcontextprotocol").join(package)
}

fn is_installed(prefix: &Path, package: &str) -> bool {
    std::fs::read(directory(prefix, package).join("package.json"))
        .is_ok_and(|text| serde_json::from_slice::<Value>(&text).unwrap()["version"] == VERSION)
}

/// Every tool is listed, shown to the model, and has a digest.
async fn all_listed(mcp: &Arc<Mcp>, least: usize) {
    let catalog = up(mcp).await;
    assert!(catalog.left_out.is_empty(), "{:#?}", catalog.left_out);
    assert!(catalog.tools.len() >= least, "{}", catalog.tools.len());
}

async fn kill(pid: u32) {
    let killed = tokio::process::Command::new("kill")
        .args(["-9", &pid.to_string()])
        .status()
        .await
        .unwrap();
    assert!(killed.success());
}

/// Calls that any server-everything answers, over either transport.
async fn everything_answers(mcp: &Arc<Mcp>) {
    all_listed(mcp, 12).await;
    assert_eq!(
        data(call(mcp, "echo", json!({"message": "hi"})).await),
        json!("Echo: hi")
    );
    let sum = data(call(mcp, "get-sum", json!({"a": 2, "b": 40})).await);
    assert!(sum.as_str().unwrap().contains("42"), "{sum}");
    let image = data(call(mcp, "get-tiny-image", json!({})).await);
    let image = image
        .as_array()
        .unwrap()
        .iter()
        .find(|block| block["type"] == "image")
        .unwrap();
    assert_eq!(image["mimeType"], "image/png");
    assert!(image["bytes"].as_u64().unwrap() > 100 && image.get("data").is_none());
    let structured = data(call(mcp, "get-structured-content", json!({"location": "New York"})).await);
    assert!(structured["temperature"].is_number(), "{structured}");
    assert!(!failed(call(mcp, "get-sum", json!({"a": "x"})).await).message.is_empty());
}

#[tokio::test]
async fn server_everything_works_over_stdio() {
    let mcp = bridge(&json!({"command": "node", "args": [script(EVERYTHING), "stdio"]}));
    everything_answers(&mcp).await;
    let environment = data(call(&mcp, "get-env", json!({})).await);
    assert!(!environment.to_string().contains("CARGO"), "{environment}");

    let slow = tool(&mcp.catalog(), "trigger-long-running-operation");
    let pid = mcp.status()[0].pid.unwrap();
    let (reply, ()) = tokio::join!(
        Call::with(json!({"duration": 20, "steps": 20})).of(&mcp, &slow),
        async {
            // Before its first step nothing is visible from outside.
            tokio::time::sleep(Duration::from_millis(300)).await;
            kill(pid).await;
        }
    );
    unknown(reply);
    until(&mcp, |mcp| mcp.status()[0].connections == 2).await;
    assert_eq!(
        data(call(&mcp, "echo", json!({"message": "again"})).await),
        json!("Echo: again")
    );
    mcp.shutdown().await;
}

async fn everything_over_http(port: u16) -> Child {
    tokio::process::Command::new("node")
        .arg(script(EVERYTHING))
        .arg("streamableHttp")
        .env("PORT", port.to_string())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap()
}

#[tokio::test]
async fn server_everything_works_over_http() {
    let port = crate::ports::free_port();
    let mut server = everything_over_http(port).await;
    let mcp = bridge(&http(&format!("http://127.0.0.1:{port}/mcp")));
    everything_answers(&mcp).await;

    let slow = tool(&mcp.catalog(), "trigger-long-running-operation");
    let (reply, ()) = tokio::join!(
        Call::with(json!({"duration": 20, "steps": 20})).of(&mcp, &slow),
        async {
            tokio::time::sleep(Duration::from_millis(300)).await;
            server.kill().await.unwrap();
        }
    );
    unknown(reply);
    let _server = everything_over_http(port).await;
    until(&mcp, |mcp| {
        mcp.catalog().down.is_empty() && mcp.status()[0].connections >= 2
    })
    .await;
    assert_eq!(
        data(call(&mcp, "echo", json!({"message": "again"})).await),
        json!("Echo: again")
    );
    mcp.shutdown().await;
}

#[tokio::test]
async fn server_filesystem_works_and_stays_within_its_directory() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    let mcp = bridge(&json!({"command": "node", "args": [script(FILESYSTEM), root]}));
    all_listed(&mcp, 14).await;
    let file = root.join("a.txt");
    data(call(&mcp, "write_file", json!({"path": file, "content": "hello"})).await);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "hello");
    let text = data(call(&mcp, "read_text_file", json!({"path": file})).await);
    assert!(text.to_string().contains("hello"), "{text}");
    let outside = failed(call(&mcp, "read_text_file", json!({"path": "/etc/passwd"})).await);
    assert!(outside.message.contains("denied"), "{}", outside.message);

    // Reading a pipe without a writer blocks for as long as necessary.
    let pipe = root.join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let read = tool(&mcp.catalog(), "read_text_file");
    let pid = mcp.status()[0].pid.unwrap();
    let killed_in_mid_call = async {
        let call = Call::with(json!({"path": pipe})).of(&mcp, &read);
        let (reply, ()) = tokio::join!(call, async {
            // It can be opened for writing once the server has opened it for reading.
            let _writer = loop {
                match tokio::net::unix::pipe::OpenOptions::new().open_sender(&pipe) {
                    Ok(writer) => break writer,
                    Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
                }
            };
            kill(pid).await;
        });
        reply
    };
    unknown(tokio::time::timeout(PATIENCE, killed_in_mid_call).await.unwrap());
    until(&mcp, |mcp| mcp.status()[0].connections == 2).await;
    let waited = tokio::time::timeout(PATIENCE, call(&mcp, "list_directory", json!({"path": root})))
        .await
        .unwrap();
    assert!(data(waited).to_string().contains("a.txt"));
    mcp.shutdown().await;
}
