//! What the compiler does not check of the structure: between crates it checks the dependencies.
#![allow(clippy::unwrap_used)]

#[path = "sources/mod.rs"]
mod sources;

use std::fs;
use std::path::{Path, PathBuf};

use regex::Regex;
use sources::{product, root, rust_files};

/// Source without comments, so that comments may mention anything.
fn code(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap();
    text.lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .collect::<Vec<_>>()
        .join("\n")
}

/// The surfaces are siblings. What they share is `runs`, `definitions` and the neutral modules, which name none of them.
#[test]
fn surfaces_do_not_know_each_other() {
    let siblings = [
        "agents",
        "approvals",
        "chat",
        "exports",
        "planning",
        "sessions",
        "stats",
        "threads",
    ];
    let shared = ["caller", "decisions", "definitions", "problem", "request", "runs"];
    let surfaces = root().join("crates/gavel-service/src/surfaces");
    let mut invalid = Vec::new();
    for path in rust_files(&surfaces) {
        let inner = path.strip_prefix(&surfaces).unwrap();
        let module = inner.components().next().unwrap().as_os_str().to_str().unwrap();
        let module = module.trim_end_matches(".rs");
        if module == "mod" {
            continue;
        }
        assert!(
            siblings.contains(&module) || shared.contains(&module),
            "{module} is neither"
        );
        let code = code(&path);
        for to in siblings.iter().filter(|to| **to != module) {
            let from_top = inner.components().count() <= 2 && code.contains(&format!("super::{to}"));
            if from_top || code.contains(&format!("surfaces::{to}")) {
                invalid.push(format!("{} names {to}", path.display()));
            }
        }
    }
    assert!(invalid.is_empty(), "{invalid:#?}");
}

/// A run calls other agents through a port, so the engine has no circle: what builds and drives the runs of agents uses
/// the engine, and not the other way around.
#[test]
fn the_engine_does_not_name_its_agents() {
    let engine = root().join("crates/gavel-engine/src");
    let named = Regex::new(r"\bagent(::|,|;|\})").unwrap();
    let mut invalid = Vec::new();
    for path in rust_files(&engine) {
        let inner = path.strip_prefix(&engine).unwrap();
        let code = code(&path);
        let code = code.split("\n#[cfg(test)]\n").next().unwrap_or_default();
        let mut imports = code
            .lines()
            .filter(|line| line.contains("use ") || line.contains("agent::"));
        let is_root = inner == Path::new("lib.rs");
        if !inner.starts_with("agent") && !is_root && imports.any(|line| named.is_match(line)) {
            invalid.push(inner.display().to_string());
        }
    }
    assert!(invalid.is_empty(), "{invalid:#?}");
}

/// A command that has a route is a client: it sees of the rest of gavel what a remote client sees, and the service that
/// `app` starts for it. The others have no route.
#[test]
fn commands_with_a_route_are_http_clients() {
    let without_a_route = [
        "agents/eval",
        "agents/mod.rs",
        "agents/validate.rs",
        "audit",
        "doctor",
        "eval",
        "exit.rs",
        "google",
        "mcp",
        "migrate.rs",
        "policy",
        "reference.rs",
        "serve",
        // It keeps the history within the limits of a request, which its test checks with the request's parser.
        "chat.rs",
    ];
    let mut invalid = Vec::new();
    let cli = root().join("src/cli");
    for path in rust_files(&cli) {
        let inner = path.strip_prefix(&cli).unwrap().to_str().unwrap();
        let code = code(&path);
        for to in ["adapters", "engine", "http", "ports", "surfaces"] {
            let is_named = code.contains(&format!("crate::{to}"));
            if is_named && !without_a_route.iter().any(|prefix| inner.starts_with(prefix)) {
                invalid.push(format!("{inner} names {to}"));
            }
        }
    }
    assert!(invalid.is_empty(), "{invalid:#?}");
}

/// The sources of each MCP server, and of what they share.
fn servers() -> impl Iterator<Item = PathBuf> {
    let directories = fs::read_dir(root().join("mcp-servers")).unwrap();
    directories.map(|directory| directory.unwrap().path().join("src"))
}

/// The patterns of `.dockerignore`, each with whether it re-includes paths.
fn left_out() -> Vec<(globset::GlobMatcher, bool)> {
    let text = fs::read_to_string(root().join(".dockerignore")).unwrap();
    let lines = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let (takes_back, pattern) = line.strip_prefix('!').map_or((false, line), |pattern| (true, pattern));
            let glob = globset::GlobBuilder::new(pattern)
                .literal_separator(true)
                .build()
                .unwrap();
            (glob.compile_matcher(), takes_back)
        })
        .collect()
}

/// Whether a path is excluded. As container engines read it: the last matching pattern counts, and an excluded
/// directory excludes its contents.
fn is_left_out(patterns: &[(globset::GlobMatcher, bool)], path: &str) -> bool {
    let fits = |glob: &globset::GlobMatcher| Path::new(path).ancestors().any(|path| glob.is_match(path));
    patterns
        .iter()
        .rev()
        .find(|(glob, _)| fits(glob))
        .is_some_and(|(_, takes_back)| !takes_back)
}

/// Images are distributed, and so is the build cache.
#[test]
fn no_key_setting_or_database_gets_into_the_image() {
    let patterns = left_out();
    for secret in [
        ".git/config",
        "secrets/gemini_api_key",
        "deploy/secrets/x",
        ".env",
        ".env.production",
        "deploy/.env",
        "prod.env",
        "gavel.toml",
        "deploy/gavel.toml",
        "gavel.prod.toml",
        "policy.yaml",
        "deploy/policy.yaml",
        "gavel.db",
        "gavel.db-wal",
        "data/tasks.db",
        "tasks.db-shm",
        "google.db",
        "records.sqlite3",
        "server.pem",
        "tls/server.key",
        "client.p12",
        "gavel.audit-key",
        "gavel.db.audit-key",
        "gavel-pins.json",
        "gavel-pins.json.lock",
        "mcp.local.json",
        "deploy/.mcp.json",
        "google-credentials.json",
        "client_secret_1.json",
        "id_ed25519",
        "dump.sql.gz",
        "gavel.log",
        "audit.jsonl",
        "target/release/gavel",
        "mcp-servers/tasks/target/x",
        "tests/api/main.rs",
    ] {
        assert!(is_left_out(&patterns, secret), "{secret} would be in the image");
    }
    // The build input is complete: every file that the code includes.
    for source in [
        "Cargo.toml",
        "Cargo.lock",
        "build.rs",
        "src/main.rs",
        "crates/gavel-core/src/domain/policy/mod.rs",
        "constitution.md",
        "prices.toml",
        "mcp.json",
        "agents/workspace.md",
        "agents/schemas/CodebaseInvestigationReportSchema.json",
        "templates/responses.toml",
        "migrations/0001_schema.sql",
        "mcp-servers/google/migrations/sqlite/0001_google.sql",
        "proto/gemini/agent/v1/agent.proto",
        "crates/gavel-service/src/http/docs.html",
    ] {
        assert!(!is_left_out(&patterns, source), "{source} would be missing");
    }
    let mut missing = Vec::new();
    for path in ["src", "agents", "templates", "migrations", "proto", "crates"]
        .map(|path| root().join(path))
        .into_iter()
        .chain(servers())
    {
        let mut folders = vec![path];
        while let Some(directory) = folders.pop() {
            for entry in fs::read_dir(directory).unwrap() {
                let path = entry.unwrap().path();
                match path.is_dir() {
                    true => folders.push(path),
                    false => {
                        missing.extend(Some(path).filter(|path| {
                            is_left_out(&patterns, path.strip_prefix(root()).unwrap().to_str().unwrap())
                        }))
                    }
                }
            }
        }
    }
    assert!(missing.is_empty(), "{missing:?} are part of the build");
}

/// Every claim in SECURITY.md is shown by a test; a renamed or deleted test shows nothing.
#[test]
fn every_test_that_security_md_names_exists() {
    let text = fs::read_to_string(root().join("SECURITY.md")).unwrap();
    let mut named = 0;
    for part in text.split('`').skip(1).step_by(2) {
        let Some((file, name)) = part.split_once("::").filter(|(file, _)| file.ends_with(".rs")) else {
            continue;
        };
        named += 1;
        let source = fs::read_to_string(root().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
        assert!(source.contains(&format!("fn {name}(")), "{file} has no test {name}");
    }
    for risk in 1..=10 {
        let id = format!("| ASI{risk:02} ");
        let row = text
            .lines()
            .find(|line| line.starts_with(&id))
            .unwrap_or_else(|| panic!("no row for {id}"));
        assert!(row.contains(".rs::"), "{row}");
    }
    assert!(named >= 10, "{named}");
}

/// Every promise names the tests that try to break it, and each has at least one.
#[test]
fn every_promise_names_tests_that_exist() {
    let text = fs::read_to_string(root().join("docs/explanation/promises.md")).unwrap();
    let file = Regex::new(r"`((?:tests|src|crates|mcp-servers|bench|scripts)/[\w/.-]+)`").unwrap();
    let mut promises = 0;
    for promise in text.split("\n## ").skip(1) {
        let (_, tests) = promise.split_once("\nTests: ").unwrap_or_else(|| panic!("{promise}"));
        let named: Vec<_> = file.captures_iter(tests).map(|file| file[1].to_owned()).collect();
        assert!(!named.is_empty(), "{promise}");
        for name in named {
            assert!(root().join(&name).is_file(), "{name}");
        }
        promises += 1;
    }
    assert_eq!(promises, 7);
}

/// One module writes the output of commands and escapes external text for the terminal, so that a new command cannot
/// forget to.
#[test]
fn every_base_image_is_named_by_digest() {
    let image = Regex::new(r"(?m)^(?:ARG \w+_IMAGE=| +image: )(\S+:\S+)$").unwrap();
    let pinned = Regex::new(r"^\S+:[^@]+@sha256:[0-9a-f]{64}$").unwrap();
    let text = ["Dockerfile", "compose.yaml"].map(|file| fs::read_to_string(root().join(file)).unwrap());
    let names: Vec<_> = image
        .captures_iter(&text.concat())
        .map(|found| found[1].to_owned())
        .collect();
    assert_eq!(names.len(), 3, "{names:?}");
    assert!(names.iter().all(|name| pinned.is_match(name)), "{names:?}");
}

#[test]
fn only_one_module_writes_to_standard_output_and_standard_error() {
    const WRITERS: [&str; 5] = ["io::stdout", "io::stderr", "println!", "print!", "dbg!"];
    let mut invalid = Vec::new();
    for path in product() {
        let inner = path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned();
        // Logs have their own writer, which quotes external text.
        if inner == "src/cli/output.rs" || inner == "src/telemetry.rs" {
            continue;
        }
        let code = code(&path);
        // Tests may print freely.
        let code = code.split("\n#[cfg(test)]\n").next().unwrap_or_default();
        let code = code.split("\n#[cfg(all(test").next().unwrap_or_default();
        invalid.extend(
            WRITERS
                .iter()
                .filter(|writer| code.contains(*writer))
                .map(|writer| format!("{inner}: {writer}")),
        );
    }
    assert!(invalid.is_empty(), "{invalid:#?}");
}

/// Promise: decided by code. There is one path to a side effect. Code that calls a tool creates a `CallRequest`.
#[test]
fn only_act_and_the_operators_commands_call_a_tool() {
    let mut makers: Vec<_> = product()
        .into_iter()
        .filter(|path| code(path).contains("CallRequest {"))
        .map(|path| path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned())
        .collect();
    makers.sort();
    // The engine's one path, and an operator's `gavel mcp call`, through which `gavel eval` prepares the tasks in its
    // scratch directory.
    assert_eq!(makers, ["crates/gavel-engine/src/act/send.rs", "src/cli/mcp/mod.rs"]);
}

#[test]
fn banned_crates_are_not_in_the_lock_file() {
    let deny = fs::read_to_string(root().join("deny.toml")).unwrap();
    let banned: Vec<_> = deny
        .split("{ name = \"")
        .skip(1)
        .map(|rest| rest.split('"').next().unwrap())
        .collect();
    assert!(banned.len() >= 5, "deny.toml names the banned crates");
    let lock = fs::read_to_string(root().join("Cargo.lock")).unwrap();
    let found: Vec<_> = banned
        .into_iter()
        .filter(|name| lock.contains(&format!("name = \"{name}\"\n")))
        .collect();
    assert!(found.is_empty(), "banned crates came in: {found:?}");
}

/// What all of gavel's MCP servers share, a server without a database builds without one.
#[test]
fn the_base_of_the_servers_needs_no_database() {
    let manifest = fs::read_to_string(root().join("mcp-servers/base/Cargo.toml")).unwrap();
    for crate_name in ["sqlx", "rusqlite", "gavel-mcp-store"] {
        assert!(!manifest.contains(crate_name), "{crate_name}");
    }
}
