//! The tutorial of planning sessions, typed in its order: from a goal to a pull request.

use std::path::Path;

use crate::engine::IMAGE;
use crate::plan;
use crate::service::{Gavel, World, started};

const PAGE: &str = include_str!("../../docs/tutorials/first-plan.md");
/// The address of `gavel serve` on the page.
const ADDRESS: &str = "http://127.0.0.1:8080";

/// Runs a command of the page in a shell. Returns what it prints, on both streams.
async fn types(world: &World, gavel: &Gavel, command: &str) -> String {
    let programs = Path::new(env!("CARGO_BIN_EXE_gavel")).parent().unwrap().display();
    let path = std::env::var("PATH").unwrap();
    let ran = tokio::process::Command::new("sh")
        .args(["-c", &command.replace(ADDRESS, &gavel.url)])
        .current_dir(world.directory.path())
        .env_clear()
        .env("PATH", format!("{programs}:{path}"))
        .env("HOME", world.directory.path())
        .env("REPO", format!("{}/acme/dates", world.git.url))
        .output()
        .await
        .unwrap();
    let printed = [ran.stdout, ran.stderr].map(|text| String::from_utf8(text).unwrap());
    let printed = printed.concat();
    assert!(ran.status.success(), "{command}: {printed}");
    printed
}

/// The command that does what a line of the conversation does.
fn command(line: &str, session: &str) -> String {
    let (name, task) = line.split_once(' ').unwrap_or((line, ""));
    match name {
        "show" | "diff" | "execute" => format!("gavel plan {name} --server {ADDRESS} {session} {task}"),
        _ => format!("gavel plan refine --server {ADDRESS} {session} '{line}'"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_tutorial_leads_from_a_goal_to_a_pull_request() {
    let Some(engine) = started().await else {
        return;
    };
    let world = World::new(engine, None, &plan::FILES, |url| plan::answers(url, IMAGE)).await;
    let gavel = world.start().await;

    let start = PAGE.lines().find(|line| line.starts_with("gavel plan start"));
    let printed = types(&world, &gavel, start.unwrap()).await;
    let session = printed
        .split("session ")
        .nth(1)
        .unwrap()
        .split_whitespace()
        .next()
        .unwrap();
    assert!(printed.contains("Plan 1 · 3 tasks"), "{printed}");
    let mut typed = Vec::new();
    for line in PAGE.lines() {
        if let Some(line) = line.strip_prefix("    > ") {
            typed.push(types(&world, &gavel, &command(line, session)).await);
        } else if line.starts_with("    gavel plan ") {
            let command = line.trim().replace("SESSION_ID", session);
            typed.push(types(&world, &gavel, &command).await);
        }
    }
    let shows = [
        "Accept ISO weeks, with a test",
        "+ t4 Write a failing test",
        "+ t4",
        "COMPLETED",
        "COMPLETED",
        "createPullRequest",
        "failed: 2026-W48",
        "write a failing test first",
    ];
    assert_eq!(typed.len(), shows.len());
    for (typed, shows) in typed.iter().zip(shows) {
        assert!(typed.contains(shows), "{shows} is not in {typed}");
    }
    let pulls = world
        .github
        .state(|state| state.repository("acme", "dates").pulls.clone());
    let heads: Vec<_> = pulls.values().map(|pull| pull["head"]["ref"].clone()).collect();
    assert_eq!((heads, world.git.pushes()), (vec!["gavel/weeks".into()], 1));
    let diff = world.git.git(&["diff", "main", "gavel/weeks"]);
    assert!(diff.contains("+????-W??) echo \"week $1\" ;;"), "{diff}");
    assert_eq!(world.containers(&format!("/v1/sessions/{session}")), [""; 0]);
    gavel.stop();
}
