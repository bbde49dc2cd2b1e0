//! `configureGitClientInContainer` without a container: when it is offered, which token it takes, and what it refuses.
//! What it does in a container is shown with a real engine, by gavel's own tests.

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixListener;

use crate::harness::{Server, World};

const NAME: &str = "configureGitClientInContainer";
const CONTAINER: &str = "0123456789ab";

impl World {
    pub(crate) fn with_engine(mut self, host: &str) -> Self {
        self.environment.insert("DOCKER_HOST", host.to_owned());
        self
    }

    /// With an engine that has no container.
    fn with_an_empty_engine(self) -> Self {
        let socket = self.file("engine", "");
        std::fs::remove_file(&socket).expect("removed");
        let listener = UnixListener::bind(&socket).expect("a socket");
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut request = [0; 4096];
                let read = stream.read(&mut request).await;
                if read.is_ok_and(|bytes| bytes > 0) {
                    let body = r#"{"message":"no such container"}"#;
                    let length = body.len();
                    let answer = format!(
                        "HTTP/1.1 404 Not Found\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\
                         connection: close\r\n\r\n{body}"
                    );
                    stream.write_all(answer.as_bytes()).await.ok();
                }
            }
        });
        self.with_engine(&format!("unix://{socket}"))
    }
}

async fn offers(server: &Server) -> bool {
    let tools = server.client.list_all_tools().await.expect("tools/list");
    tools.iter().any(|tool| tool.name == NAME)
}

fn arguments() -> Value {
    json!({ "containerId": CONTAINER, "username": "robot" })
}

/// P-T2: without a container engine that it can use there is no such tool, and the rest works.
#[tokio::test]
async fn the_tool_is_offered_only_with_an_engine() {
    for (host, is_offered) in [
        ("", false),
        ("tcp://127.0.0.1:2375", false),
        ("unix:///nowhere/engine.sock", true),
    ] {
        let world = World::new().await.with_engine(host);
        let server = world.server().await;
        assert_eq!(offers(&server).await, is_offered, "{host}");
        server.call("listRepositories", json!({})).await.ok();
        server.check_log();
    }
}

#[tokio::test]
async fn an_engine_that_does_not_answer_is_no_failure_of_github() {
    let world = World::new().await.with_engine("unix:///nowhere/engine.sock");
    let server = world.server().await;
    assert_eq!(server.call(NAME, arguments()).await.code(), "engine_unavailable");
    let invalid = json!({ "containerId": CONTAINER, "username": "robot", "token": "two words" });
    assert_eq!(server.call(NAME, invalid).await.code(), "invalid_argument");
    assert_eq!(
        server.call(NAME, json!({ "containerId": CONTAINER })).await.code(),
        "missing_argument"
    );
    assert!(world.github.seen("GET").is_empty() && world.github.seen("POST").is_empty());
    server.check_log();
}

/// An App's token for git is limited to the repository of the session.
#[tokio::test]
async fn an_apps_token_for_git_is_limited_to_the_repository_of_the_session() {
    let world = World::of_an_app().await.with_an_empty_engine();
    let server = world.server().await;
    let permissions = json!({ "contents": "write", "pull_requests": "write" });
    for (meta, body) in [
        (
            json!({ "gavel/session_id": "s", "gavel/repository": "acme/dates" }),
            json!({ "permissions": permissions, "repositories": ["dates"] }),
        ),
        (json!({}), json!({ "permissions": permissions })),
    ] {
        let refused = server.try_call(NAME, arguments(), meta).await.expect("an answer");
        assert_eq!(refused.code(), "not_found");
        let asked = world.github.seen("POST");
        let last = asked.last().expect("a request");
        assert_eq!(last.path, "/app/installations/42/access_tokens");
        assert_eq!(last.body.as_ref(), Some(&body));
    }
    let invalid = json!({ "gavel/repository": "acme/dates/x y" });
    let refused = server.try_call(NAME, arguments(), invalid).await.expect("an answer");
    assert_eq!(refused.code(), "invalid_meta");
    // None of these tokens is in what the server shows of GitHub.
    let token = format!(
        "ghs_canary-installation-{}",
        world.github.state(|state| state.tokens_issued)
    );
    world.github.state(|state| {
        let issue = json!({ "title": "t", "body": format!("It is {token}.") });
        state.add("acme", "dates").open_issue(&issue);
    });
    let issue = json!({ "owner": "acme", "repo": "dates", "issueNumber": 1 });
    let read = server.call("readIssue", issue).await.ok();
    assert_eq!(read["issue"]["body"], "It is [redacted].");
    server.check_log();
    world.github.finish();
}
