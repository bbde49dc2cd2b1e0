//! A session from its goal to its pull request, with a token that appears nowhere.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use crate::canary::{canaries, check_database};
use crate::engine::{Engine, IMAGE};
use crate::gemini::Reply;
use crate::model::{Task, call, in_container, model, results, script};
use crate::postgres;
use crate::service::{World, started};

const HOUR: Duration = Duration::from_secs(3600);

/// A repository with a small program and its tests.
pub const FILES: [(&str, &str); 5] = [
    ("AGENT.md", "Run every test with `make test`.\n"),
    ("README.md", "# Dates\n"),
    ("Makefile", "test:\n\tsh test.sh\n"),
    (
        "dates.sh",
        "case $1 in\n????-??-??) echo \"date $1\" ;;\n*) echo \"not a date\" ;;\nesac\n",
    ),
    (
        "test.sh",
        "n=0\ncheck() { [ \"$(sh dates.sh \"$1\")\" = \"$2\" ] || { echo \"failed: $1\"; exit 1; }; n=$((n + 1)); }\n\
         check 2026-12-01 'date 2026-12-01'\n[ ! -e weeks.test ] || . ./weeks.test\necho \"$n checks passed\"\n",
    ),
];

/// The script that clones the repository and runs its tests.
pub fn clone(url: &str) -> String {
    format!("git clone {url}/acme/dates.git && cd dates && make test")
}

const CHANGE: &str = "cd dates && sed -i 's/^????-??-??)/????-W??) echo \"week $1\" ;;\\n&/' dates.sh
echo \"check 2026-W48 'week 2026-W48'\" >weeks.test
make test";

/// While git pushes, the hook keeps what every process of the machine shows of itself.
const PUSH: &str = "cd dates
printf '#!/bin/sh\\ncat /proc/[0-9]*/cmdline /proc/[0-9]*/environ >/work/shown 2>/dev/null; true\\n' >.git/hooks/pre-push
chmod +x .git/hooks/pre-push
git checkout --quiet -b gavel/weeks && git add --all && git commit --quiet -m 'Accept ISO weeks' || exit 1
git push --quiet origin gavel/weeks && echo \"pushed $(git rev-parse HEAD)\"";

const LOOK: &str = "cd dates && cat .git/config && git remote -v && env && cat /run/gavel/git-credentials";

/// The plan of the session: clone into a container, change a file and run the tests, push and open a pull request.
pub fn tasks(url: &str) -> Vec<Task> {
    let create = call("createContainer", json!({"options": {"image": IMAGE}}));
    let configure = in_container("configureGitClientInContainer", json!({"username": "robot"}));
    let list = call("listContainers", json!({}));
    let pull_request = json!({
        "owner": "acme", "repo": "dates", "title": "Accept ISO weeks", "head": "gavel/weeks", "base": "main",
    });
    vec![
        Task {
            title: "Clone into a container and run the tests",
            tools: &["createContainer", "configureGitClientInContainer", "executeScript"],
            steps: vec![create, configure, script(&clone(url))],
            quote: "1 checks passed",
        },
        Task {
            title: "Accept ISO weeks, with a test",
            tools: &["listContainers", "executeScript"],
            steps: vec![list.clone(), script(CHANGE)],
            quote: "2 checks passed",
        },
        Task {
            title: "Push the branch and open a pull request",
            tools: &["listContainers", "executeScript", "createPullRequest"],
            steps: vec![
                list,
                script(PUSH),
                script(LOOK),
                call("createPullRequest", pull_request),
            ],
            quote: "https://github.com/acme/dates/pull/",
        },
    ]
}

/// What can be seen of a container from outside, and in it where no answer is redacted.
fn shown(engine: &Engine, container: &str) -> String {
    let run = |script| engine.podman(["exec", container, "sh", "-c", script]);
    let holders = run("grep -rl canary /run /work /tmp /root /var /etc /home || true");
    assert_eq!(holders.trim(), "/run/gavel/git-credentials", "the files with the token");
    let within = "cat /work/shown /work/dates/.git/config /root/.gitconfig; git -C /work/dates remote -v; env; cat /proc/[0-9]*/cmdline";
    let within = run(within);
    assert!(within.contains("remote-http"), "git was seen while it pushed: {within}");
    engine.podman(["inspect", container]) + &within
}

/// The model of the session. Once the branch is pushed, and before anything is cleaned up, it looks at the container.
fn looking(url: &str, engine: &'static Engine, seen: Arc<Mutex<String>>) -> Reply {
    let answers = model(tasks(url));
    Reply::from(move |request| {
        let results = results(request);
        let is_pushed = results.iter().any(|result| result.to_string().contains("pushed "));
        let mut seen = seen.lock().unwrap();
        if is_pushed && seen.is_empty() {
            *seen = shown(engine, results[0]["containers"][0]["id"].as_str().unwrap());
        }
        answers.clone()
    })
}

/// The actions of a session that have effects, in order.
fn acted(log: &Value) -> Vec<&str> {
    let actions = log["actions"].as_array().unwrap().iter();
    let names = actions.map(|action| {
        assert_eq!(action["status"], "completed", "{action}");
        action["tool"].as_str().unwrap()
    });
    names.filter(|name| *name != "listContainers").collect()
}

/// What the engine and GitHub were asked to do, in order.
fn asked(world: &World) -> Vec<&'static str> {
    let mut all = world.watched.done();
    all.extend(
        world
            .github
            .seen("POST")
            .iter()
            .map(|seen| (seen.at, "createPullRequest")),
    );
    all.sort_by_key(|(at, _)| *at);
    all.into_iter().map(|(_, what)| what).collect()
}

async fn works_through(database: Option<String>) {
    let Some(engine) = started().await else { return };
    let seen = Arc::<Mutex<String>>::default();
    let looks = seen.clone();
    let world = World::new(engine, database, &FILES, |url| looking(url, engine, looks)).await;
    let gavel = world.start().await;
    let session = world.plan(&gavel, HOUR).await;
    assert!(asked(&world).is_empty(), "a plan that is not confirmed does nothing");
    world.execute(&gavel, &session).await;
    let ended = world.ended(&gavel, &session).await;
    assert_eq!(ended["status"], "COMPLETED", "{ended}");

    let log = world.get(&gavel, &format!("{session}/log")).await;
    let expected = acted(&log);
    assert_eq!(
        expected.iter().filter(|tool| **tool == "executeScript").count(),
        4,
        "{log}"
    );
    assert_eq!(expected.last(), Some(&"cleanupGroupContainers"), "{log}");
    assert_eq!(asked(&world), expected);
    assert_eq!(
        ended["result"]["cleanup"]["removed"].as_array().unwrap().len(),
        1,
        "{ended}"
    );
    assert_eq!(world.containers(&session), [""; 0]);

    assert_eq!(ended["pullRequests"].as_array().unwrap().len(), 1, "{ended}");
    let heads = world.github.state(|state| {
        let pulls = state.repository("acme", "dates").pulls.values();
        pulls.map(|pull| pull["head"]["ref"].clone()).collect::<Vec<_>>()
    });
    assert_eq!(heads, ["gavel/weeks"]);
    assert_eq!(world.git.pushes(), 1);
    let commits = world.git.git(&["log", "--format=%an <%ae> %s", "main..gavel/weeks"]);
    assert_eq!(commits, "gavel <gavel@gavel.invalid> Accept ISO weeks\n");
    assert!(world.git.git(&["show", "gavel/weeks:dates.sh"]).contains("week $1"));
    assert!(!world.git.git(&["show", "main:dates.sh"]).contains("week"));

    for path in [
        "",
        "?view=raw",
        "/history",
        "/events",
        "/tasks/t1?view=raw",
        "/tasks/t2?view=raw",
    ] {
        world.get(&gavel, &format!("{session}{path}")).await;
    }
    let observations = world.observations(&gavel, &session, "t3").await;
    let looked = observations[2]["stdout"].as_str().unwrap();
    assert_eq!(looked.matches("[redacted]").count(), 1, "{looked}");
    assert!(looked.contains("/acme/dates.git (push)"), "{looked}");
    gavel.stop();
    world.verify_audit();
    let spans = world.collector.spans();
    for traced in [
        "execute_tool configureGitClientInContainer",
        "execute_tool executeScript",
    ] {
        assert!(
            spans.iter().any(|span| span.name == traced),
            "{traced} is not among {spans:?}"
        );
    }
    let mut said = world.everything_said();
    said.push(("what a container shows", seen.lock().unwrap().clone()));
    for (what, text) in said {
        assert!(!text.is_empty(), "{what}");
        assert_eq!(canaries(&text), [""; 0], "the token is in {what}");
    }
    check_database(&world.database).await;
    world.github.finish();
}

/// P-301 to P-306
#[tokio::test(flavor = "multi_thread")]
async fn a_session_ends_with_one_pull_request_and_no_token_anywhere_on_sqlite() {
    works_through(None).await;
}

/// P-301 to P-306
#[tokio::test(flavor = "multi_thread")]
async fn a_session_ends_with_one_pull_request_and_no_token_anywhere_on_postgres() {
    works_through(Some(postgres::database().await)).await;
}
