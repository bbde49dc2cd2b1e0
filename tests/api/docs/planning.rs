//! The page of planning sessions: its requests and its commands, pasted in their order, with the demo model and the real
//! github server against a stand-in for GitHub.

use serde_json::{Value, json};

use super::{Served, Shell, blocks, curls, page};
use crate::github::{GitHub, TOKEN};
use crate::harness::{client, until};
use crate::planning::github;

const PAGE: &str = include_str!("../../../docs/how-to/use-planning-sessions.md");

/// A gavel that plans for acme/dates.
async fn served() -> (GitHub, Served) {
    let (github, _) = github().await;
    let url = github.url();
    let environment = [
        ("GEMINI_MODEL", "demo"),
        ("GITHUB_TOKEN", TOKEN),
        ("GITHUB_API_URL", &url),
    ];
    let served = Served::start(&environment).await;
    // Until its server is connected, planning is unavailable.
    let ready = format!("http://127.0.0.1:{}/readyz", served.port);
    until("github is connected", || async {
        let answer = client().get(&ready).send().await.unwrap();
        answer
            .text()
            .await
            .unwrap()
            .contains(r#""server":"github","state":"up""#)
    })
    .await;
    (github, served)
}

/// What the answer of a request must be.
fn check(command: &str, status: u16, body: &str, session: &str) {
    let reported = format!("{command}{status} {body}");
    assert_eq!(status, 200, "{reported}");
    let route = command.split_once("localhost:8080/v1/sessions").unwrap().1;
    let route = route.split([' ', '\n']).next().unwrap();
    let json = || serde_json::from_str::<Value>(body).unwrap_or_else(|_| panic!("{reported}"));
    let rest = route.strip_prefix(&format!("/{session}")).unwrap_or(route);
    match rest {
        "/refine" => assert_eq!(
            (&json()["planVersion"], &json()["refinement"]),
            (&json!(2), &Value::Null)
        ),
        "/plan" => assert_eq!(json()["planVersion"], 3, "{reported}"),
        "/execute" if command.contains("dryRun") => {
            assert_eq!(json()["tasks"][0]["tools"][0]["answer"], "allow", "{reported}");
        }
        "/tasks/t1" => assert_eq!(
            json()["reactHistory"][0]["reflection"]["isTaskComplete"],
            true,
            "{reported}"
        ),
        "/log" => assert_eq!(json()["actions"][0]["tool"], "getFileContents", "{reported}"),
        "/history" => assert_eq!(json()["versions"].as_array().unwrap().len(), 3, "{reported}"),
        "/events" => {
            let mut kinds = body.lines().map(|line| {
                let event: Value = serde_json::from_str(line).unwrap();
                event["type"].as_str().unwrap().to_owned()
            });
            let last = kinds.next_back().unwrap();
            assert_eq!(last, "result", "{reported}");
            let events = ["http-planning.md", "events.md"].map(|name| page(&format!("docs/reference/{name}")));
            let events = events.concat();
            assert!(kinds.all(|kind| events.contains(&format!("`{kind}`"))), "{reported}");
        }
        "" if route.is_empty() => assert_eq!(json()["sessions"][0]["sessionId"], session, "{reported}"),
        "/execute" | "/cancel" | "" => assert_eq!(json()["status"], "COMPLETED", "{reported}"),
        other => panic!("the expected answer of {other} is not known here: {reported}"),
    }
}

/// P-F1 to P-F3: a session from its start to its end, request by request.
#[tokio::test]
async fn the_requests_of_the_page_of_planning_work_when_pasted() {
    let (github, served) = served().await;
    let commands = curls(PAGE);
    let (start, others) = commands.split_first().unwrap();
    let (status, body) = served.paste(start, None).await;
    let session: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(
        (status, &session["status"]),
        (201, &json!("AWAITING_CONFIRMATION")),
        "{body}"
    );
    let id = session["sessionId"].as_str().unwrap();
    for command in others {
        let command = command.replace("SESSION_ID", id);
        let (status, body) = served.paste(&command, None).await;
        check(&command, status, &body, id);
    }
    assert_eq!(others.len(), 11);
    github.finish();
}

/// Each command of the list, in its order, without a terminal.
#[tokio::test]
async fn the_commands_of_the_page_of_planning_work_when_pasted() {
    let (github, served) = served().await;
    let shell = Shell {
        directory: served.directory.path().to_owned(),
        port: served.port,
    };
    let plan = json!({"summary": "In short.", "tasks": [{"id": "t1", "title": "Read", "goal": "Read README.md.",
        "doneWhen": "getFileContents shows it", "tools": ["getFileContents"]}]});
    std::fs::write(shell.directory.join("plan.json"), plan.to_string()).unwrap();
    let list = blocks(PAGE).into_iter().find(|block| block.contains("gavel plan log"));
    let mut id = String::new();
    let mut commands = 0;
    for line in list.unwrap().lines() {
        // What it does comes after some blanks.
        let command = line.trim().split("  ").next().unwrap().replace(['[', ']'], "");
        let command = command
            .replace(" ID", &format!(" {id}"))
            .replace(" URL", " https://github.com/acme/dates")
            .replace(" FILE", " plan.json")
            .replace(" A B", " 1 2")
            .replace("-version N", "-version 3")
            .replace(" STATUS", " COMPLETED");
        let paste = format!("{command} --server http://127.0.0.1:{}", served.port);
        commands += 1;
        if command.contains("plan edit") && !command.contains("--file") {
            let ran = shell.paste(&paste).stdin(std::process::Stdio::null()).output().await;
            let ran = ran.unwrap();
            let err = String::from_utf8(ran.stderr).unwrap();
            assert!(
                ran.status.code() == Some(2) && err.contains("no terminal for an editor"),
                "{err}"
            );
            continue;
        }
        let printed = shell.prints(&paste).await;
        let shows = match command.split(' ').nth(2).unwrap() {
            "start" => {
                let after = printed.split("session ").nth(1).unwrap();
                id = after.split(' ').next().unwrap().to_owned();
                "Plan 1"
            }
            "refine" => "Plan 2",
            "edit" | "diff" => "Plan ",
            "show" if command.ends_with(" t1") => "complete: The result is there",
            "show" => "AWAITING_CONFIRMATION",
            "history" => "edited by hand",
            "execute" if command.contains("--dry-run") => "nothing has begun",
            "execute" | "watch" => "COMPLETED",
            "log" => "README.md",
            "list" => &id,
            "cancel" => "had already ended",
            other => panic!("what {other} shows is not known here"),
        };
        assert!(printed.contains(shows), "{shows:?} is not shown: {command}\n{printed}");
    }
    assert_eq!(commands, 14);
    github.finish();
}
