//! The tutorials and the manifest for Kubernetes: their programs run, and their files are valid.

use std::process::Stdio;

use gavel::config::SETTINGS;
use serde_json::Value;
use tokio::io::AsyncWriteExt;

use super::{Served, Shell, blocks, page};
use crate::harness::{free_port, ready};

/// The fenced block of a page in this language.
fn fenced(page: &str, language: &str) -> String {
    let (_, rest) = page.split_once(&format!("\n```{language}\n")).unwrap();
    rest.split("\n```").next().unwrap().to_owned()
}

/// What a program prints for the messages of the page.
async fn chats(program: &[&str], served: &Served, messages: &str) -> Vec<String> {
    let mut command = tokio::process::Command::new(program[0]);
    command
        .args(&program[1..])
        .current_dir(served.directory.path())
        .env("no_proxy", "*");
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.kill_on_drop(true).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(messages.as_bytes()).await.unwrap();
    drop(input);
    let ran = child.wait_with_output().await.unwrap();
    assert!(ran.status.success(), "{program:?}: {ran:?}");
    String::from_utf8(ran.stdout)
        .unwrap()
        .lines()
        .map(str::to_owned)
        .collect()
}

/// Both programs show each type of decision as the page says. Node.js is not everywhere: without it only Python runs.
#[tokio::test]
async fn the_programs_of_the_chat_backend_show_each_type_of_decision() {
    let served = Served::start(&[]).await;
    let text = page("docs/tutorials/chat-backend.md");
    let messages = format!("{}\n", fenced(&text, "text"));
    let address = format!("http://127.0.0.1:{}", served.port);
    let mut programs = vec![("python", "chat.py", "python3")];
    if std::process::Command::new("node").arg("--version").output().is_ok() {
        programs.push(("ts", "chat.mjs", "node"));
    }
    for (language, file, runtime) in programs {
        let program = fenced(&text, language).replace("http://localhost:8080", &address);
        assert!(program.contains(&address), "{file}");
        std::fs::write(served.directory.path().join(file), program).unwrap();
        let shown = chats(&[runtime, file], &served, &messages).await;
        let types: Vec<_> = shown.iter().map(|line| line.chars().next().unwrap()).collect();
        assert_eq!(types, ['-', '*', 'x', '?'], "{file}: {shown:#?}");
    }
}

/// A program sends a request again under the same key, so a message has its effect once.
#[tokio::test]
async fn the_programs_of_the_chat_backend_send_a_request_again_until_it_is_answered() {
    let text = page("docs/tutorials/chat-backend.md");
    let port = free_port();
    let directory = tempfile::tempdir().unwrap();
    let program = fenced(&text, "python").replace("http://localhost:8080", &format!("http://127.0.0.1:{port}"));
    std::fs::write(directory.path().join("chat.py"), program).unwrap();
    let mut child = tokio::process::Command::new("python3");
    child
        .arg("chat.py")
        .current_dir(directory.path())
        .env("no_proxy", "*")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut child = child.kill_on_drop(true).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(b"add a task to call mom\n").await.unwrap();
    drop(input);
    // There is no gavel yet: the program waits, and then reaches the one that starts.
    let shell = Shell {
        directory: directory.path().to_owned(),
        port,
    };
    let _serving = shell
        .paste("exec gavel")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    ready(&format!("http://127.0.0.1:{port}")).await;
    let ran = child.wait_with_output().await.unwrap();
    let shown = String::from_utf8(ran.stdout).unwrap();
    assert!(ran.status.success() && shown.starts_with("* "), "{shown}");
    let asks = format!("gavel chat --server http://127.0.0.1:{port} --user ann 'show my tasks'");
    let tasks = shell.prints(&asks).await;
    assert_eq!(tasks.matches("call mom").count(), 1, "{tasks}");
}

/// A new user pastes the tutorial, block after block: write, run, approve, allow by a rule, serve.
#[tokio::test]
async fn the_tutorial_of_the_first_agent_works_when_pasted_from_its_first_command_to_its_last() {
    let blocks = blocks(&page("docs/tutorials/first-agent.md"));
    let [write, run, approve, policy, allowed, serve, trigger] = &blocks[..] else {
        panic!("the blocks differ from those this test knows: {blocks:#?}")
    };
    let place = tempfile::tempdir().unwrap();
    let shell = Shell {
        directory: place.path().to_owned(),
        port: free_port(),
    };
    assert!(shell.prints(write).await.contains("1 file, 1 agent valid, 0 errors"));

    // Without a terminal the run waits.
    let ran = shell.paste(run).stdin(Stdio::null()).output().await.unwrap();
    assert_eq!(ran.status.code(), Some(6), "{ran:?}");
    let pending = shell.prints("gavel approvals list").await;
    let id = pending
        .split("gavel approvals approve ")
        .nth(1)
        .unwrap()
        .split_whitespace()
        .next()
        .unwrap();
    let approved = shell.prints(&approve.replace("APPROVAL_ID", id)).await;
    assert!(approved.contains("water the plants"), "{approved}");

    let tested = shell.prints(policy).await;
    assert!(tested.contains("1 rule, 2 tests, 0 failed"), "{tested}");
    let done = shell.prints(allowed).await;
    assert!(done.contains("Added “feed the cat”."), "{done}");
    assert_eq!(done.matches("approval_requested").count(), 1, "{done}");
    assert_eq!(done.matches("effect_completed").count(), 2, "{done}");

    let serve = serve.replace("gavel serve", "exec gavel serve");
    let _serving = shell
        .paste(&serve)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    ready(&format!("http://127.0.0.1:{}", shell.port)).await;
    let settings = format!(
        "connect-to = \"localhost:8080:127.0.0.1:{}\"\nnoproxy = \"*\"\nfail-with-body\n",
        shell.port
    );
    std::fs::write(shell.directory.join(".curlrc"), settings).unwrap();
    let run: Value = serde_json::from_str(&shell.prints(trigger).await).unwrap();
    assert_eq!(run["status"], "completed", "{run}");
    assert!(run["summary"].as_str().unwrap().contains("feed the cat"), "{run}");
}

/// Each variable of the manifest is a setting of gavel or of a bundled server, and each secret is created before.
#[test]
fn the_manifest_for_kubernetes_names_only_settings() {
    let text = page("docs/how-to/kubernetes.md");
    let manifest = fenced(&text, "yaml");
    let names: Vec<_> = manifest
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- name: "))
        .collect();
    let variables: Vec<_> = names
        .iter()
        .filter(|name| name.chars().all(|c| c.is_ascii_uppercase() || c == '_'))
        .collect();
    assert!(variables.len() >= 5, "{names:?}");
    for variable in variables {
        let name = variable.strip_suffix("_FILE").unwrap_or(variable);
        let is_setting = SETTINGS
            .iter()
            .any(|setting| setting.environment.iter().any(|known| known == name));
        assert!(is_setting || name == "TASKS_DATABASE_URL", "{variable}");
    }
    for secret in manifest.split("/run/secrets/gavel/").skip(1) {
        let secret = secret.lines().next().unwrap();
        assert!(
            text.contains(&format!("--from-file={secret}")),
            "{secret} is not created"
        );
    }
    for needed in [
        "runAsUser: 65532",
        "path: /livez",
        "path: /readyz",
        "readOnlyRootFilesystem: true",
    ] {
        assert!(manifest.contains(needed), "{needed}");
    }
}
