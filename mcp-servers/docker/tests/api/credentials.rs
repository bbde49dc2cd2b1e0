//! A token in a container's credential file is in no answer, no log, and nothing that the engine shows.

use gavel_mcp_base::Secret;
use gavel_mcp_docker::{GitAccount, GitFault, configure_git};
use serde_json::{Value, json};

use crate::engine::Engine;
use crate::harness::{CANARY, Server, world};

const TOKEN: &str = "canary/Token+of=tests";
const HOST: &str = "https://git.example";

fn account() -> GitAccount {
    GitAccount {
        url: HOST.to_owned(),
        username: "x-access-token".to_owned(),
        token: Secret::new(TOKEN),
        name: "gavel".to_owned(),
        email: "gavel@git.example".to_owned(),
    }
}

async fn with_credentials(engine: &Engine, server: &Server) -> String {
    let container = server.container().await;
    let session = Some(server.session.as_str());
    for _ in 0..2 {
        let configured = configure_git(&engine.host(), session, &container, &account()).await;
        assert_eq!(configured, Ok(()));
    }
    container
}

/// Every answer is also checked by the harness.
#[tokio::test]
async fn a_token_is_redacted_in_each_form() {
    let Some((engine, world)) = world() else { return };
    let server = world.server().await;
    let container = with_credentials(engine, &server).await;
    let script = "git credential fill <<END | grep password | cut -d= -f2- >/tmp/token
protocol=https
host=git.example
END
printf %s \"$(cat /tmp/token)\" | wc -c
cat /run/gavel/git-credentials; cat /tmp/token; cat /tmp/token >&2
printf 'x-access-token:%s' \"$(cat /tmp/token)\" | base64 -w0; echo
for before in '' a ab; do printf '%s%s' \"$before\" \"$(cat /tmp/token)\" | base64 -w0; echo; done
base64 /run/gavel/git-credentials; base64 -w 20 /run/gavel/git-credentials | sed 's/^/  /'
cp /tmp/token copy; echo ghp_canarycanarycanarycanarycanary0123456789 >>copy
git config --list | grep -c credential";
    let result = server.run(&container, script).await;
    let out = result["stdout"].as_str().expect("text");
    assert!(
        out.starts_with(&format!("{}\n", TOKEN.len())),
        "git has the token: {result}"
    );
    assert_eq!(out.matches("[redacted]").count(), 8, "{out}");
    assert!(
        result["stderr"]
            .as_str()
            .is_some_and(|text| text.contains("[redacted]"))
    );
    let file = json!({ "containerId": container, "path": "copy" });
    assert_eq!(
        server.call("readFileInContainer", file).await.text,
        "[redacted]\n[redacted]\n"
    );
    let all = server
        .call("getAllSourceFiles", json!({ "containerId": container }))
        .await;
    assert_eq!(all.text.matches("[redacted]").count(), 2, "{}", all.text);
    // After the file is gone too, and at the cut of a long output.
    let gone = "rm /run/gavel/git-credentials; cat copy; for i in $(seq 9000); do cat /tmp/token; done";
    let result = server.run(&container, gone).await;
    assert_eq!(result["truncated"], true);
    let out = result["stdout"].as_str().expect("text");
    assert!(!out.contains("oken+of"), "{}", &out[..100]);
}

#[tokio::test]
async fn a_token_is_in_nothing_that_can_be_seen_from_outside() {
    let Some((engine, world)) = world() else { return };
    let server = world.server().await;
    let container = with_credentials(engine, &server).await;
    server
        .run(
            &container,
            "git init -q . && git remote add origin https://git.example/a; sleep 0.2",
        )
        .await;
    let seen = [
        engine.podman(["inspect", &container]),
        engine.podman([
            "exec",
            &container,
            "sh",
            "-c",
            "cat /work/.git/config /root/.gitconfig; git -C /work remote -v; env",
        ]),
        engine.podman([
            "exec",
            &container,
            "sh",
            "-c",
            "cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ; ls -R /var/lib/gavel",
        ]),
        engine.podman([
            "exec",
            &container,
            "sh",
            "-c",
            "grep -rlE 'canary.{1,3}Token' / --exclude-dir=proc --exclude-dir=sys || true",
        ]),
    ];
    assert_eq!(seen[3].trim(), "/run/gavel/git-credentials");
    for text in seen {
        assert!(!text.contains(CANARY), "{text}");
    }
    assert!(!server.log().contains(CANARY));
    let mode = engine.podman(["exec", &container, "stat", "-c", "%a", "/run/gavel/git-credentials"]);
    assert_eq!(mode.trim(), "600");
}

#[tokio::test]
async fn git_is_not_configured_in_a_container_of_another_session() {
    let Some((engine, world)) = world() else { return };
    let server = world.server().await;
    let container = server.container().await;
    for session in [None, Some("other")] {
        let refused = configure_git(&engine.host(), session, &container, &account()).await;
        assert_eq!(refused, Err(GitFault::NotFound));
    }
    let read = server.run(&container, "ls /run/gavel").await;
    assert_eq!(read["stdout"], Value::from(""));
}
