//! What exists is read, what does not exist is null, and what is too much is cut.

use serde_json::{Value, json};

use crate::github::State;
use crate::harness::World;

fn in_dates(more: Value) -> Value {
    let mut arguments = json!({ "owner": "acme", "repo": "dates" });
    arguments
        .as_object_mut()
        .expect("an object")
        .extend(more.as_object().expect("an object").clone());
    arguments
}

#[tokio::test]
async fn of_3000_repositories_the_first_1000_are_listed() {
    let world = World::new().await;
    world.github.state(|state| {
        for number in 0..3000 {
            state.add("acme", &format!("r{number:04}"));
        }
    });
    let server = world.server().await;
    let listed = server.call("listRepositories", json!({})).await.ok();
    assert_eq!(listed["repositories"].as_array().map(Vec::len), Some(1000));
    assert_eq!(listed["truncated"], true);
    assert_eq!(listed["repositories"][999]["fullName"], "acme/r0999");
    assert_eq!(world.github.seen("GET").len(), 10);
    world.github.finish();
}

#[tokio::test]
async fn an_app_lists_the_repositories_of_its_installation() {
    let world = World::of_an_app().await;
    world.github.state(|state| {
        for number in 0..150 {
            state.add("acme", &format!("r{number:04}"));
        }
    });
    let server = world.server().await;
    let listed = server.call("listRepositories", json!({})).await.ok();
    assert_eq!(listed["repositories"].as_array().map(Vec::len), Some(150));
    assert_eq!(listed["truncated"], false);
    let paths: Vec<_> = world.github.seen("GET").into_iter().map(|seen| seen.path).collect();
    assert_eq!(paths, ["/installation/repositories", "/installation/repositories"]);
    world.github.finish();
}

#[tokio::test]
async fn what_does_not_exist_is_null() {
    let world = World::new().await;
    world.github.state(|state| {
        let pull = json!({ "title": "t", "head": "x", "base": "main", "body": null });
        state.add("acme", "dates").open_pull(&pull);
    });
    let server = world.server().await;
    let other = json!({ "owner": "acme", "repo": "other" });
    assert_eq!(
        server.call("retrieveRepository", other).await.ok(),
        json!({ "repository": null })
    );
    let read = server
        .call("readPullRequest", in_dates(json!({ "prNumber": 9 })))
        .await
        .ok();
    assert_eq!(read, json!({ "pullRequest": null }));
    // A pull request is no issue, although GitHub lists it as one.
    for number in [1, 9] {
        let read = server
            .call("readIssue", in_dates(json!({ "issueNumber": number })))
            .await
            .ok();
        assert_eq!(read, json!({ "issue": null }));
    }
    let read = server
        .call("getFileContents", in_dates(json!({ "path": "AGENT.md" })))
        .await
        .ok();
    assert_eq!(read, json!({ "file": null }));
    world.github.finish();
}

#[tokio::test]
async fn a_renamed_repository_is_read_under_its_old_name() {
    let world = World::new().await;
    world.github.state(|state| {
        state
            .add("acme", "dates")
            .open_issue(&json!({ "title": "t", "body": "b" }));
        state.rename("acme", "dates", "calendar");
    });
    let server = world.server().await;
    let found = server.call("retrieveRepository", in_dates(json!({}))).await.ok();
    assert_eq!(found["repository"]["fullName"], "acme/calendar");
    let read = server
        .call("readIssue", in_dates(json!({ "issueNumber": 1 })))
        .await
        .ok();
    assert_eq!(read["issue"]["title"], "t");
    world.github.finish();
}

#[tokio::test]
async fn a_long_body_is_cut_and_lists_have_none() {
    let world = World::new().await;
    world.github.state(|state| {
        let repository = state.add("acme", "dates");
        let body = "x".repeat(70 << 10);
        repository.open_pull(&json!({ "title": "t", "head": "x", "base": "main", "body": body }));
        repository.open_issue(&json!({ "title": "t", "body": body, "labels": ["bug"] }));
    });
    let server = world.server().await;
    let pull = server
        .call("readPullRequest", in_dates(json!({ "prNumber": 1 })))
        .await
        .ok();
    assert_eq!(pull["pullRequest"]["body"].as_str().map(str::len), Some(64 << 10));
    assert_eq!(pull["pullRequest"]["bodyTruncated"], true);
    let issue = server
        .call("readIssue", in_dates(json!({ "issueNumber": 2 })))
        .await
        .ok();
    assert_eq!(issue["issue"]["bodyTruncated"], true);
    assert_eq!(issue["issue"]["labels"], json!(["bug"]));
    let listed = server
        .call("listPullRequests", in_dates(json!({ "head": "x", "base": "main" })))
        .await
        .ok();
    assert_eq!(listed["pullRequests"][0]["head"]["label"], "acme:x");
    assert!(listed["pullRequests"][0].get("body").is_none());
    world.github.finish();
}

#[tokio::test]
async fn at_most_300_pull_requests_are_listed() {
    let world = World::new().await;
    world.github.state(|state| {
        let repository = state.add("acme", "dates");
        for number in 0..320 {
            let head = format!("x{number}");
            repository.open_pull(&json!({ "title": "t", "head": head, "base": "main", "body": null }));
        }
    });
    let server = world.server().await;
    let listed = server
        .call("listPullRequests", in_dates(json!({ "state": "all" })))
        .await
        .ok();
    assert_eq!(listed["pullRequests"].as_array().map(Vec::len), Some(300));
    assert_eq!(listed["truncated"], true);
    world.github.finish();
}

#[tokio::test]
async fn of_60_000_files_those_nearest_to_the_root_are_listed() {
    let world = World::new().await;
    world.github.state(|state| {
        let repository = state.add("acme", "dates");
        for number in 0..60_000 {
            let path = format!("a{:02}/b{:02}/f{number:05}.rs", number % 50, number / 50 % 20);
            repository.files.insert(path, Vec::new());
        }
        repository.files.insert("README.md".to_owned(), b"hello".to_vec());
        repository.files.insert("zz.link".to_owned(), b"README.md".to_vec());
    });
    let server = world.server().await;
    let tree = server.call("getRepositoryTree", in_dates(json!({}))).await.ok();
    let entries = tree["entries"].as_array().expect("entries");
    assert_eq!(tree["truncated"], true);
    // A client that reads 256 KiB of a result reads all of it.
    let bytes = tree.to_string().len();
    assert!(
        entries.len() <= 5000 && (100_000..256 * 1024).contains(&bytes),
        "{} entries, {bytes} bytes",
        entries.len()
    );
    let at = |path: &str| entries.iter().find(|entry| entry["path"] == path).cloned();
    assert_eq!(
        at("README.md"),
        Some(json!({ "path": "README.md", "kind": "file", "size": 5 }))
    );
    assert_eq!(at("zz.link"), Some(json!({ "path": "zz.link", "kind": "link" })));
    // 50 directories and 2 files, then 50 × 20 directories, and the rest from below them.
    let depth = |entry: &Value| entry["path"].as_str().expect("a path").matches('/').count();
    assert_eq!(entries.iter().filter(|entry| depth(entry) == 0).count(), 52);
    assert!(entries.is_sorted_by_key(depth));
    let directory = server
        .call("getRepositoryTree", in_dates(json!({ "path": "a07/b03" })))
        .await
        .ok();
    assert_eq!(directory["truncated"], false);
    assert_eq!(directory["entries"][0]["path"], "a07/b03/f00157.rs");
    let missing = server
        .call("getRepositoryTree", in_dates(json!({ "path": "README.md" })))
        .await;
    assert_eq!(missing.code(), "not_found");
    let missing = server
        .call("getRepositoryTree", in_dates(json!({ "ref": "other" })))
        .await;
    assert_eq!(missing.code(), "not_found");
    world.github.finish();
}

#[tokio::test]
async fn a_tree_that_github_cuts_still_has_everything_at_its_root() {
    let world = World::new().await;
    world.github.state(|state| {
        let repository = state.add("acme", "dates");
        for number in 0..100 {
            repository.files.insert(format!("a/f{number:03}"), Vec::new());
        }
        repository.files.insert("z.md".to_owned(), Vec::new());
        repository.tree_limit = Some(50);
        state.add("acme", "empty");
    });
    let server = world.server().await;
    let tree = server.call("getRepositoryTree", in_dates(json!({}))).await.ok();
    assert_eq!(
        (&tree["truncated"], &tree["commit"]),
        (&json!(true), &json!(State::COMMIT))
    );
    assert_eq!(tree["entries"][1]["path"], "z.md");
    assert_eq!(tree["entries"].as_array().map(Vec::len), Some(51));
    let empty = json!({ "owner": "acme", "repo": "empty" });
    let tree = server.call("getRepositoryTree", empty).await.ok();
    assert_eq!(
        tree,
        json!({ "commit": null, "sha": null, "entries": [], "truncated": false })
    );
    world.github.finish();
}

#[tokio::test]
async fn only_text_of_a_fitting_size_is_a_file() {
    let world = World::new().await;
    world.github.state(|state| {
        let files = &mut state.add("acme", "dates").files;
        files.insert("src/a b/ü.rs".to_owned(), "fn ä() {}\n".as_bytes().to_vec());
        files.insert("empty".to_owned(), Vec::new());
        files.insert("fits".to_owned(), vec![b'x'; 256 << 10]);
        files.insert("large".to_owned(), vec![b'x'; (256 << 10) + 1]);
        files.insert("huge".to_owned(), vec![b'x'; 3 << 20]);
        files.insert("binary".to_owned(), vec![0xff, 0xfe, 0]);
        files.insert("nul".to_owned(), b"a\0b".to_vec());
    });
    let server = world.server().await;
    let read = async |path: &str| server.call("getFileContents", in_dates(json!({ "path": path }))).await;
    let file = read("src/a b/ü.rs").await.ok();
    assert_eq!(file["file"]["content"], "fn ä() {}\n");
    assert_eq!(file["file"]["path"], "src/a b/ü.rs");
    assert_eq!(read("empty").await.ok()["file"]["content"], "");
    assert_eq!(read("fits").await.ok()["file"]["size"], 256 << 10);
    for (path, code) in [
        ("large", "too_large"),
        ("huge", "too_large"),
        ("binary", "not_text"),
        ("nul", "not_text"),
        ("src", "is_directory"),
        ("../x", "invalid_argument"),
    ] {
        assert_eq!(read(path).await.code(), code, "{path}");
    }
    world.github.finish();
}

#[tokio::test]
async fn an_answer_that_did_not_change_costs_no_quota() {
    let world = World::new().await;
    world.github.state(|state| {
        state
            .add("acme", "dates")
            .open_issue(&json!({ "title": "one", "body": null }));
    });
    let server = world.server().await;
    let title = async || {
        let read = server
            .call("readIssue", in_dates(json!({ "issueNumber": 1 })))
            .await
            .ok();
        read["issue"]["title"].clone()
    };
    assert_eq!((title().await, title().await), (json!("one"), json!("one")));
    world.github.state(|state| {
        state.repository("acme", "dates").issues.get_mut(&1).expect("an issue")["title"] = json!("two");
    });
    assert_eq!(title().await, json!("two"));
    let statuses: Vec<_> = world.github.seen("GET").into_iter().map(|seen| seen.status).collect();
    assert_eq!(statuses, [200, 304, 200]);
    world.github.finish();
}
