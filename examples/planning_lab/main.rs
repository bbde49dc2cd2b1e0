//! Everything around gavel that a planning session needs, on this machine and without an account: stand-ins for GitHub's
//! API and for Gemini, and a git server, with the repository acme/dates. docs/tutorials/first-plan.md walks through it:
//!
//! ```sh
//! cargo run --example planning_lab
//! ```
//!
//! It writes what `gavel serve` needs to `planning-lab.env`, and shows each pull request with its diff. Ctrl-C ends it.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::print_stdout,
    missing_docs,
    unreachable_pub
)]

mod description;
#[allow(dead_code)]
#[path = "../../tests/api/gemini.rs"]
mod gemini;
#[allow(dead_code)]
#[path = "../../tests/container/git.rs"]
mod git;
#[allow(dead_code)]
#[path = "../../mcp-servers/github/tests/api/github/mod.rs"]
mod github;
#[allow(dead_code)]
#[path = "../../tests/container/model.rs"]
mod model;
mod plan;

use std::fs;
use std::time::Duration;

use serde_json::Value;

use crate::gemini::Gemini;
use crate::git::GitServer;
use crate::github::{GitHub, TOKEN};

/// What `gavel serve` reads, in the directory from which the lab is started.
const FILE: &str = "planning-lab.env";
/// Interval between two looks for pull requests.
const LOOK: Duration = Duration::from_millis(500);

#[tokio::main]
async fn main() -> std::io::Result<()> {
    if std::env::args().len() > 1 {
        eprintln!("The planning lab takes no arguments. docs/tutorials/first-plan.md says how to use it.");
        std::process::exit(2);
    }
    let git = GitServer::start(TOKEN, &plan::FILES).await;
    let github = GitHub::start().await;
    github.state(|state| {
        let repository = state.add("acme", "dates");
        for (path, text) in plan::FILES {
            repository.files.insert(path.to_owned(), text.as_bytes().to_vec());
        }
    });
    let gemini = Gemini::scripted(vec![plan::answers(&git.url, plan::IMAGE)]).await;
    let environment = [
        ("GITHUB_TOKEN", TOKEN.to_owned()),
        ("GITHUB_URL", git.url.clone()),
        ("GITHUB_API_URL", github.url()),
        ("GEMINI_API_KEY", "none-is-needed".to_owned()),
        ("GEMINI_BASE_URL", gemini.url.clone()),
        ("DOCKER_IMAGES", plan::IMAGE.to_owned()),
        // Containers reach the git server on this machine's loopback address.
        ("DOCKER_NETWORK", "host".to_owned()),
    ];
    let lines = environment.map(|(name, value)| format!("export {name}={value}\n"));
    let repository = format!("export REPO={}/acme/dates\n", git.url);
    fs::write(FILE, lines.concat() + &repository)?;
    println!(
        "{}{repository}\nThese lines are in {FILE} too. Ctrl-C ends the lab.",
        lines.concat()
    );
    tokio::select! {
        () = show_pull_requests(&git, &github) => Ok(()),
        stopped = tokio::signal::ctrl_c() => stopped,
    }
}

/// Shows each pull request once it is there.
async fn show_pull_requests(git: &GitServer, github: &GitHub) {
    let mut shown = 0;
    loop {
        let pulls: Vec<Value> = github.state(|state| {
            let pulls = &state.repository("acme", "dates").pulls;
            pulls.values().skip(shown).cloned().collect()
        });
        for pull in pulls {
            let end = |name: &str| pull[name]["ref"].as_str().unwrap_or_default().to_owned();
            let (head, base) = (end("head"), end("base"));
            println!(
                "\npull request {} was opened: {} ({head} into {base})",
                pull["number"], pull["title"]
            );
            println!("{}", git.git(&["diff", &base, &head]));
            shown += 1;
        }
        tokio::time::sleep(LOOK).await;
    }
}
