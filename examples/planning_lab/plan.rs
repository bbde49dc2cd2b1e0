//! The repository acme/dates, and the work on it that the scripted model proposes and does.

use serde_json::{Value, json};

use crate::gemini::Reply;
use crate::model::{Task, call, in_container, model, results, script};

/// The image of the containers; the tutorial builds it.
pub const IMAGE: &str = "localhost/gavel-lab:1";

/// A small program with its tests.
pub const FILES: [(&str, &str); 6] = [
    (
        "AGENT.md",
        "Run every test with `make test`. Work in a container of the image localhost/gavel-lab:1.\n",
    ),
    (
        "README.md",
        "# Dates\n\n`sh dates.sh 2026-12-01` says what kind of date that is.\n",
    ),
    ("Makefile", "test:\n\tsh tests/run.sh\n"),
    (
        "dates.sh",
        "case $1 in\n????-??-??) echo \"date $1\" ;;\n*) echo \"not a date\" ;;\nesac\n",
    ),
    (
        "tests/run.sh",
        "n=0\ncheck() { [ \"$(sh dates.sh \"$1\")\" = \"$2\" ] || { echo \"failed: $1 is not accepted\"; exit 1; }; n=$((n + 1)); }\n\
         for file in tests/*.test; do . \"./$file\"; done\necho \"passed checks: $n\"\n",
    ),
    ("tests/dates.test", "check 2026-12-01 'date 2026-12-01'\n"),
];

const FAILING: &str = "cd dates && echo \"check 2026-W48 'week 2026-W48'\" >tests/weeks.test
make test || echo \"the new test fails, as it must\"";

const CHANGE: &str = "cd dates && echo \"check 2026-W48 'week 2026-W48'\" >tests/weeks.test
sed -i 's/^????-??-??)/????-W??) echo \"week $1\" ;;\\n&/' dates.sh
make test";

const PUSH: &str = "cd dates && git checkout --quiet -b gavel/weeks && git add --all || exit 1
git commit --quiet -m 'Accept ISO weeks' && git push --quiet origin gavel/weeks && echo \"pushed $(git rev-parse HEAD)\"";

/// The tasks by their ids. A refinement adds the fourth before the second.
fn tasks(url: &str, image: &str) -> Vec<Task> {
    let list = || call("listContainers", json!({}));
    let pull_request = json!({
        "owner": "acme", "repo": "dates", "title": "Accept ISO weeks", "head": "gavel/weeks", "base": "main",
        "body": "Weeks such as 2026-W48 are accepted, with a test.",
    });
    vec![
        Task {
            title: "Clone into a container and run the tests",
            tools: &["createContainer", "configureGitClientInContainer", "executeScript"],
            steps: vec![
                call("createContainer", json!({"options": {"image": image}})),
                in_container("configureGitClientInContainer", json!({"username": "robot"})),
                script(&format!(
                    "git clone --quiet {url}/acme/dates.git && cd dates && make test"
                )),
            ],
            quote: "passed checks: 1",
        },
        Task {
            title: "Accept ISO weeks, with a test",
            tools: &["listContainers", "executeScript"],
            steps: vec![list(), script(CHANGE)],
            quote: "passed checks: 2",
        },
        Task {
            title: "Push the branch and open a pull request",
            tools: &["listContainers", "executeScript", "createPullRequest"],
            steps: vec![list(), script(PUSH), call("createPullRequest", pull_request)],
            quote: "https://github.com/acme/dates/pull/",
        },
        Task {
            title: "Write a failing test for ISO weeks",
            tools: &["listContainers", "executeScript"],
            steps: vec![list(), script(FAILING)],
            quote: "failed: 2026-W48 is not accepted",
        },
    ]
}

/// What the model says, in any order: it has no memory but the request. `url` is that of the git server, `image` that of
/// the containers.
pub fn answers(url: &str, image: &str) -> Reply {
    let tasks = tasks(url, image);
    Reply::from(move |request| {
        let mode = request["toolConfig"]["functionCallingConfig"]["mode"].as_str();
        if matches!(mode, Some("NONE" | "ANY")) {
            return gives_up(request).unwrap_or_else(|| model(tasks.clone()));
        }
        match request["contents"].to_string().contains("<change>") {
            false => proposal(&tasks, &[(1, false), (2, false), (3, false)]),
            true => proposal(&tasks, &[(1, true), (4, false), (2, true), (3, true)]),
        }
    })
}

/// The model knows no other way if a call fails, such as without an engine.
fn gives_up(request: &Value) -> Option<Reply> {
    let allowed = request["toolConfig"]["functionCallingConfig"]["allowedFunctionNames"].to_string();
    let failed = results(request).pop()?.get("error").is_some();
    (failed && allowed.contains("reflect")).then(|| {
        let why = "The call failed, and this model knows no other way.";
        Reply::call(
            "reflect",
            json!({"is_task_complete": false, "summary": why, "give_up": why}),
        )
    })
}

/// A plan of these tasks, by their ids. A task that the plan had before keeps its id.
fn proposal(tasks: &[Task], ids: &[(usize, bool)]) -> Reply {
    let tasks = ids.iter().map(|(id, is_kept)| {
        let task = &tasks[id - 1];
        let mut shown = json!({
            "title": task.title,
            "goal": format!("{} of acme/dates.", task.title),
            "doneWhen": format!("a result shows {:?}", task.quote),
            "tools": task.tools,
        });
        if *is_kept {
            shown["id"] = format!("t{id}").into();
        }
        shown
    });
    let plan = json!({
        "summary": "ISO weeks become a kind of date of their own, with a test, in a pull request.",
        "tasks": tasks.collect::<Vec<Value>>(),
        "assumptions": ["A week without a day is meant, such as 2026-W48."],
        "risks": [],
    });
    Reply::call("complete_task", json!({"plan": plan}))
}
