//! The dependencies between layers, and the modules that each crate is limited to.
//!
//! `http, cli → surfaces → engine → ports ← adapters`; every layer may use `domain`; only `app` and `cli` use adapters.
//! `http` and `engine` use `telemetry` where a trace enters and leaves.
#![allow(clippy::unwrap_used)]

#[path = "sources/circles.rs"]
mod circles;
#[path = "sources/mod.rs"]
mod sources;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use circles::circles;
use regex::Regex;
use sources::{root, rust_files};

/// `src/engine/act.rs` → `engine`.
fn layer(path: &Path) -> String {
    let inner = path.strip_prefix(root().join("src")).unwrap();
    let first = inner.components().next().unwrap().as_os_str().to_str().unwrap();
    first.trim_end_matches(".rs").to_owned()
}

/// Source without comments, so that comments may mention anything.
fn code(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap();
    text.lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .collect::<Vec<_>>()
        .join("\n")
}

#[test]
fn dependencies_between_layers_point_one_way() {
    let allowed: BTreeMap<&str, &[&str]> = BTreeMap::from([
        ("domain", &["domain"][..]),
        ("ports", &["domain", "ports"][..]),
        ("engine", &["domain", "ports", "engine", "telemetry"][..]),
        ("surfaces", &["domain", "ports", "engine", "surfaces"][..]),
        ("http", &["domain", "surfaces", "http", "telemetry"][..]),
        ("config", &["domain", "config"][..]),
        ("telemetry", &["domain", "telemetry"][..]),
    ]);
    let layers = [
        "adapters",
        "app",
        "cli",
        "config",
        "domain",
        "engine",
        "http",
        "ports",
        "surfaces",
        "telemetry",
    ];
    let mut invalid = Vec::new();
    for path in rust_files(&root().join("src")) {
        let from = layer(&path);
        let Some(may_name) = allowed.get(from.as_str()) else {
            continue;
        };
        let code = code(&path);
        for to in layers {
            if !may_name.contains(&to) && code.contains(&format!("crate::{to}")) {
                invalid.push(format!("{} names {to}", path.display()));
            }
        }
    }
    assert!(invalid.is_empty(), "{invalid:#?}");
}

/// The surfaces are siblings. What they share is `runs`, `definitions` and the neutral modules, which name none of them.
#[test]
fn surfaces_do_not_know_each_other() {
    let siblings = ["agents", "approvals", "chat", "planning", "sessions", "threads"];
    let shared = ["caller", "decisions", "definitions", "failure", "request", "runs"];
    let surfaces = root().join("src/surfaces");
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
    let engine = root().join("src/engine");
    let named = Regex::new(r"\bagent(::|,|;|\})").unwrap();
    let mut invalid = Vec::new();
    for path in rust_files(&engine) {
        let inner = path.strip_prefix(&engine).unwrap();
        let code = code(&path);
        let code = code.split("\n#[cfg(test)]\n").next().unwrap_or_default();
        let mut imports = code
            .lines()
            .filter(|line| line.contains("use ") || line.contains("agent::"));
        let is_root = inner == Path::new("mod.rs");
        if !inner.starts_with("agent") && !is_root && imports.any(|line| named.is_match(line)) {
            invalid.push(inner.display().to_string());
        }
    }
    assert!(invalid.is_empty(), "{invalid:#?}");
}

#[test]
fn adapters_name_only_ports_and_domain_and_only_app_and_cli_name_adapters() {
    let mut invalid = Vec::new();
    for path in rust_files(&root().join("src")) {
        let from = layer(&path);
        let code = code(&path);
        if from == "adapters" {
            for to in ["engine", "surfaces", "http", "cli", "app", "config"] {
                if code.contains(&format!("crate::{to}::")) {
                    invalid.push(format!("{} names {to}", path.display()));
                }
            }
        } else if !["app", "cli", "lib", "fuzzing"].contains(&from.as_str()) && code.contains("crate::adapters") {
            invalid.push(format!("{} names adapters", path.display()));
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
        "agents/list.rs",
        "agents/validate.rs",
        "audit",
        "doctor",
        "eval",
        "exit.rs",
        "google",
        "mcp",
        "migrate.rs",
        "policy",
        "serve",
        "since.rs",
        // It keeps the history within the limits of a request, which its test checks with the request's parser.
        "chat/history.rs",
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

#[test]
fn each_library_is_used_only_in_its_modules() {
    let places: [(&str, &[&str]); 6] = [
        ("actix_web", &["http", "app"]),
        ("reqwest", &["adapters", "cli"]),
        ("rmcp", &["adapters/mcp"]),
        ("sqlx", &["adapters/store"]),
        // The layout of pages is defined in one place.
        ("maud", &["http/console"]),
        // It blocks: only a dedicated thread may call it.
        ("rusqlite", &["adapters/store"]),
    ];
    let mut invalid = Vec::new();
    for path in rust_files(&root().join("src")) {
        let inner = path
            .strip_prefix(root().join("src"))
            .unwrap()
            .to_str()
            .unwrap()
            .to_owned();
        let code = code(&path);
        for (library, allowed) in places {
            let named = code.contains(&format!("{library}::")) || code.contains(&format!("use {library}"));
            if named && !allowed.iter().any(|place| inner.starts_with(place)) {
                invalid.push(format!("{inner} names {library}"));
            }
        }
    }
    assert!(invalid.is_empty(), "{invalid:#?}");
}

/// Two files that need each other can only be read, changed and tested as one. What they share belongs into a third, or
/// one is a part of the other.
#[test]
fn no_two_files_need_each_other() {
    let crates = [
        "src",
        "bench/src",
        "crates/gavel-eval/src",
        "crates/gavel-reading/src",
        "crates/gavel-testing/src",
    ]
    .map(|path| root().join(path))
    .into_iter();
    let servers = [
        "base", "docker", "files", "github", "google", "shell", "store", "tasks", "web",
    ];
    let servers = servers.map(|name| root().join("mcp-servers").join(name).join("src"));
    let mut found = Vec::new();
    for directory in crates.chain(servers) {
        let sources = rust_files(&directory).into_iter().map(|path| {
            let inner = path.strip_prefix(&directory).unwrap().to_str().unwrap().to_owned();
            (inner, fs::read_to_string(path).unwrap())
        });
        found.extend(circles(&sources.collect()));
    }
    let lines: Vec<_> = found.iter().map(|circle| circle.steps.join("\n  ")).collect();
    assert!(found.is_empty(), "{} circles:\n- {}", found.len(), lines.join("\n- "));
}

/// The files of each circle among these sources: a file's name and its text, in pairs.
fn circles_of(sources: &[(&str, &str)]) -> Vec<Vec<String>> {
    let owned = |(path, text): &(&str, &str)| ((*path).to_owned(), (*text).to_owned());
    let root = ("lib.rs", "");
    let found = circles(&sources.iter().chain([&root]).map(owned).collect());
    found.into_iter().map(|circle| circle.files).collect()
}

#[test]
fn circles_are_found_however_a_file_is_named() {
    let down = ("b.rs", "pub struct Below;");
    for text in [
        "use crate::b::Below;",
        "use super::{c::Other, b::{Above, Below as Lower}};",
        "use super::b::*;\nfn f(_: Below) {}",
        "fn f() { let _ = super::b::Below; }",
        "use crate::b;\nfn f() -> b::Below { b::Below }",
        "macro_rules! m { () => { $crate::b::Below } }",
        "fn f() {\n    use crate::b::Below;\n    let _ = '\"'; let _: &'static str = r#\"\"#;\n}",
        "mod inner { use super::super::b::Below; }",
        "fn f<'a>(a: &'a str) -> impl Sized + use<'a> {\n    let _ = (super::b::Below, a);\n    a\n}",
    ] {
        let up = format!("{}\nuse crate::a::f;", down.1);
        let circle = [("a.rs", text), ("b.rs", &*up), ("c.rs", "pub struct Other;")];
        assert_eq!(circles_of(&circle), [["a.rs", "b.rs"]], "{text}");
        assert!(circles_of(&[circle[0], down, circle[2]]).is_empty(), "{text}");
    }
    let long = [
        ("lib.rs", "mod x;"),
        ("x/mod.rs", "mod deep;\npub(crate) use deep::Low;"),
        ("x/deep.rs", "use crate::y::Y;\npub struct Low;"),
        ("y.rs", "use crate::z::Z;\npub struct Y;"),
        // Through what `x` passes on.
        ("z.rs", "use crate::x::Low;\npub struct Z;"),
    ];
    assert_eq!(circles_of(&long), [["x/deep.rs", "y.rs", "z.rs"]]);
    let found = circles(
        &long
            .iter()
            .map(|(path, text)| (path.to_string(), text.to_string()))
            .collect(),
    );
    assert_eq!(found[0].steps[2], "z.rs needs Low of x/deep.rs");
}

#[test]
fn a_part_may_name_what_its_file_defines_and_nothing_else_makes_a_circle() {
    let file = "mod send;\nuse send::send;\npub struct Act;";
    for part in [
        "use super::Act;\npub fn send() {}",
        "use crate::act::Act;\npub fn send() {}",
    ] {
        assert!(circles_of(&[("act.rs", file), ("act/send.rs", part)]).is_empty());
        assert!(circles_of(&[("act/mod.rs", file), ("act/send/mod.rs", part)]).is_empty());
    }
    // Only its own file, not one beside it.
    let beside = [
        ("act.rs", file),
        ("act/send.rs", "use crate::log::Log;\npub fn send() {}"),
    ];
    assert_eq!(
        circles_of(&[
            beside[0],
            beside[1],
            ("log.rs", "use crate::act::send::send;\npub struct Log;")
        ]),
        [["act/send.rs", "log.rs"]]
    );
    // Tests, comments, texts, names of other crates, and names that are only passed on.
    for text in [
        "#[cfg(test)]\nmod tests {\n    use crate::b::B;\n}",
        "#[cfg(test)]\nuse crate::b::B;",
        "// crate::b::B\n/* crate::b::B */\n/// [`crate::b::B`]\nconst A: &str = \"crate::b::B\";",
        "use b::B;\nuse serde::b::B as C;",
        "pub use crate::b::B;",
    ] {
        assert!(
            circles_of(&[("a.rs", text), ("b.rs", "use crate::a::A;\npub struct B;")]).is_empty(),
            "{text}"
        );
    }
    let tests = [
        ("a.rs", "#[cfg(test)]\nmod tests;"),
        ("a/tests.rs", "use crate::b::B;"),
        ("b.rs", "use crate::a::tests::T;\npub struct B;"),
    ];
    assert!(circles_of(&tests).is_empty());
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
        "src/domain/policy/mod.rs",
        "constitution.md",
        "mcp.json",
        "agents/workspace.md",
        "agents/schemas/CodebaseInvestigationReportSchema.json",
        "templates/responses.toml",
        "migrations/sqlite/0001_records.sql",
        "mcp-servers/google/migrations/sqlite/0001_google.sql",
        "proto/gemini/agent/v1/agent.proto",
        "src/http/docs.html",
    ] {
        assert!(!is_left_out(&patterns, source), "{source} would be missing");
    }
    let mut missing = Vec::new();
    for path in [
        "src",
        "agents",
        "templates",
        "migrations",
        "proto",
        "crates/gavel-eval/src",
        "crates/gavel-testing/src",
        "mcp-servers/tasks/src",
        "mcp-servers/google/src",
        "mcp-servers/docker/src",
        "mcp-servers/files/src",
        "mcp-servers/github/src",
        "mcp-servers/shell/src",
        "mcp-servers/web/src",
        "mcp-servers/base/src",
        "mcp-servers/store/src",
    ] {
        let mut folders = vec![root().join(path)];
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
    let file = Regex::new(r"`((?:tests|src|mcp-servers|bench|scripts)/[\w/.-]+)`").unwrap();
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
    for path in rust_files(&root().join("src")) {
        let inner = path
            .strip_prefix(root().join("src"))
            .unwrap()
            .to_str()
            .unwrap()
            .to_owned();
        // Logs have their own writer, which quotes external text.
        if inner == "cli/output.rs" || inner == "telemetry.rs" {
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
    let mut makers: Vec<_> = rust_files(&root().join("src"))
        .into_iter()
        .filter(|path| layer(path) != "adapters" && code(path).contains("CallRequest"))
        .map(|path| {
            path.strip_prefix(root().join("src"))
                .unwrap()
                .to_str()
                .unwrap()
                .to_owned()
        })
        .collect();
    makers.sort();
    // The engine's one path; an operator's `gavel mcp call`, through which `gavel eval` prepares the tasks in its scratch
    // directory; and the port, which defines it.
    assert_eq!(makers, ["cli/mcp/call.rs", "engine/act/send.rs", "ports/tools.rs"]);
    // No adapter creates one either: adapters only pass on what they receive.
    let made = rust_files(&root().join("src/adapters"))
        .into_iter()
        .find(|path| code(path).contains("CallRequest {"));
    assert_eq!(made, None);
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
