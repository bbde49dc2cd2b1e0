//! The words of the project: one word for one thing, in code, docs and help (the glossary), and none that only gavel's
//! developers know in anything that a user reads.
#![allow(clippy::unwrap_used)]

#[path = "sources/mod.rs"]
mod sources;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use regex::Regex;
use sources::{product, root, rust_files};

/// Old words, with the words to use. Patterns match prose and the parts of identifiers.
const OLD_WORDS: [(&str, &str); 17] = [
    (
        r"\b(?:needs?|needed|has|had|without|gives?|given|gave|standing|asks? for|asked for|grants?|takes? back|taken back|person's) leave\b|\bleave (?:for good|is|was|has)\b",
        "approval, requires approval, grant",
    ),
    (r"\b(?:has|no)_leave\b|\bNoLeave\b", "is_approved, ApprovalGone"),
    (r"\b(?:go|goes|going|gone|went)[ _]on\b", "continue, resume"),
    (r"\b(?:is|are|was|were) over(?:[.,;:]|$)", "has ended, exceeds"),
    (
        r"\b(?:[Ww]hoever|[Ww]homever|[Nn]obody|[Ss]omebody|[Aa]nybody|[Ee]verybody)\b",
        "the user, the approver, the caller, the operator, the model, the server, no process",
    ),
    (r"\banew\b", "again"),
    (r"\b(?:is|are|was|were) away\b", "is unavailable"),
    (r"\b(?:is|are|was|were) told\b", "is reported, receives"),
    (r"\b[Mm]istakes?\b", "error"),
    (r"\b[Dd]eeds?\b", "effect"),
    (r"[Ww]hitelist", "allowlist"),
    (r"\blest\b|\bshall\b|of (?:its|their) own accord", "must, or reworded"),
    (r"\b[Mm]end(?:s|ed|ing)?\b", "repair, fix"),
    (r"into doubt\b|\bdoubtful\b", "in doubt"),
    (r"\b[Jj]udge?ments?\b|\bRulings?\b", "decision"),
    (r"\b[Uu]nheard\b", "OutcomeUnknown, not acknowledged"),
    (
        r"\brun_(?:not_over|went_on|over)\b|\bwrong_definition\b|\bsteps_spent\b|\bnobody_answered\b|\bcould_not_begin\b",
        "run_in_progress, superseded, run_ended, invalid_definition, step_limit_exceeded, timed_out, tool_unavailable",
    ),
];

/// Files that may have such a word, and the word: names of other systems, sample data.
const EXCEPT: [(&str, &str); 2] = [
    ("tests/postgres/server.rs", "nobody"),
    ("tests/cli/hostile.rs", "nobody"),
];

/// Everything that a developer or a user reads, except prompts, which are measured by evaluation.
fn texts() -> Vec<PathBuf> {
    let mut found = Vec::new();
    for directory in ["src", "crates", "tests", "bench/src", "examples", "fuzz/fuzz_targets"] {
        found.extend(rust_files(&root().join(directory)));
    }
    for server in fs::read_dir(root().join("mcp-servers")).unwrap() {
        let server = server.unwrap().path();
        found.extend(rust_files(&server));
        found.push(server.join("README.md"));
    }
    found.extend(documentation());
    found.extend(files_of(&root().join("templates"), "toml"));
    found.extend(["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md"].map(|name| root().join(name)));
    found.retain(|path| path.exists() && !path.ends_with("tests/words.rs"));
    found
}

fn files_of(directory: &Path, extension: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    entries
        .filter(|path| path.extension().is_some_and(|found| found == extension))
        .collect()
}

/// The pages for users, in all directories of `docs`.
fn documentation() -> Vec<PathBuf> {
    let docs = root().join("docs");
    let parts = ["", "tutorials", "how-to", "reference", "explanation"];
    parts.iter().flat_map(|part| files_of(&docs.join(part), "md")).collect()
}

fn relative(path: &Path) -> String {
    path.strip_prefix(root()).unwrap().display().to_string()
}

/// One word for one thing, and plain English: no old word is in code, comments, tests, docs or help.
#[test]
fn no_old_word_is_left() {
    // One search for all, by ASCII's word boundaries, which are found fastest.
    let any = OLD_WORDS.map(|(pattern, _)| format!("(?:{})", pattern.replace(r"\b", r"(?-u:\b)")));
    let any = Regex::new(&format!("(?m){}", any.join("|"))).unwrap();
    let patterns = OLD_WORDS.map(|(pattern, instead)| (Regex::new(pattern).unwrap(), instead));
    let mut found = Vec::new();
    for path in texts() {
        let (name, text) = (relative(&path), fs::read_to_string(&path).unwrap());
        for word in any
            .find_iter(&text)
            .filter(|word| !EXCEPT.contains(&(name.as_str(), word.as_str())))
        {
            let line = text[..word.start()].lines().count().max(1);
            let instead = patterns.iter().find(|(pattern, _)| pattern.is_match(word.as_str()));
            let instead = instead.map_or("another word", |(_, instead)| instead);
            found.push(format!("{name}:{line}: {:?}; say: {instead}", word.as_str()));
        }
    }
    assert!(found.is_empty(), "{} lines\n{}", found.len(), found.join("\n"));
}

/// Parts of identifiers, between underscores or capitals, that were once words for something, with the words to use.
const OLD_PARTS: [(&str, &str); 20] = [
    ("doubts", "in_doubt, actions_in_doubt"),
    ("folder", "directory"),
    ("goes_on", "continues"),
    ("heard", "received, acknowledged"),
    ("is_over", "has_ended"),
    ("judged", "decided, evaluated"),
    ("mended", "repaired"),
    ("meters", "metrics"),
    ("mistake", "error"),
    ("mistakes", "errors"),
    ("nobody", "the user, the caller, no process"),
    ("not_over", "in_progress"),
    ("somebody", "the user, the caller, others"),
    ("standing", "state"),
    ("stands", "remains, or what it is"),
    ("told", "reported, shown, sent, or what it is"),
    ("unheard", "unacknowledged"),
    ("went_on", "continued"),
    ("whoever", "the user, the caller"),
    ("wrong", "invalid, error"),
];

/// Identifiers that may have such a part: a code of the files server has the name that its clients see.
const PARTS_EXCEPT: [&str; 1] = ["NotAFolder"];

/// `NotAFolder` and `not_a_folder` are `_not_a_folder_`.
fn parts(identifier: &str) -> String {
    let mut parts = String::from("_");
    let mut before = '_';
    for c in identifier.chars() {
        if c.is_ascii_uppercase() && (before.is_ascii_lowercase() || before.is_ascii_digit()) {
            parts.push('_');
        }
        parts.push(c.to_ascii_lowercase());
        before = c;
    }
    parts.push('_');
    parts
}

/// The same for what types, functions, variables and tests are called. Names on the wire are strings, and do not count.
#[test]
fn no_identifier_has_an_old_word() {
    let no_code = Regex::new(
        r####"(?s)//[^\n]*|r###".*?"###|r##".*?"##|r#".*?"#|r".*?"|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.[^']*)'"####,
    )
    .unwrap();
    let identifier = Regex::new(r"\b[A-Za-z_][A-Za-z0-9_]*\b").unwrap();
    let mut found = BTreeSet::new();
    let mut checked = 0;
    for path in texts()
        .iter()
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
    {
        let text = fs::read_to_string(path).unwrap();
        let code = no_code.replace_all(&text, " ");
        for identifier in identifier.find_iter(&code).map(|found| found.as_str()) {
            checked += 1;
            let parts = parts(identifier);
            for (part, instead) in OLD_PARTS {
                if parts.contains(&format!("_{part}_")) && !PARTS_EXCEPT.contains(&identifier) {
                    found.insert(format!("{}: {identifier}; say: {instead}", relative(path)));
                }
            }
        }
    }
    assert!(checked > 100_000, "{checked} identifiers were found");
    assert!(found.is_empty(), "{found:#?}");
}

/// A command of the CLI is a command. A verb is a method of HTTP.
#[test]
fn the_command_line_has_commands_and_no_verbs() {
    let verb = Regex::new(r"(?i)(?:\b|_)verbs?(?:\b|_)").unwrap();
    let mut files = rust_files(&root().join("src/cli"));
    files.push(root().join("src/cli.rs"));
    let found: Vec<_> = files.iter().filter(|path| verb.is_match(&code(path))).collect();
    assert!(found.is_empty(), "{found:#?}");
}

/// The architecture page names only what is there: each file and directory exists, relative to the project or to `src`.
#[test]
fn every_file_that_the_architecture_page_names_exists() {
    let page = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let quoted = Regex::new(r"`([A-Za-z0-9_.{},/-]+)`").unwrap();
    let mut missing = Vec::new();
    let mut checked = 0;
    for name in quoted.captures_iter(&page).map(|found| found[1].to_owned()) {
        let is_path = name.contains('/') && !name.starts_with('/') && !name.contains("//") || name.ends_with(".rs");
        if !is_path {
            continue;
        }
        for path in expanded(&name) {
            checked += 1;
            // `engine/act.rs` is in the crate of that name; `domain/` and the parts of the service are directories of one.
            let (first, rest) = path.split_once('/').unwrap_or(("", &path));
            let below = ["", "src", "crates/gavel-core/src", "crates/gavel-service/src"];
            let mut candidates = below.map(|place| root().join(place).join(&path)).to_vec();
            candidates.push(root().join(format!("crates/gavel-{first}/src/{rest}")));
            let as_module = candidates
                .iter()
                .map(|path| path.with_extension("rs"))
                .collect::<Vec<_>>();
            let somewhere = || product().iter().any(|file| file.ends_with(&path));
            if !candidates.iter().chain(&as_module).any(|path| path.exists()) && !somewhere() {
                missing.push(path);
            }
        }
    }
    assert!(checked > 50, "{checked} paths were found");
    assert!(missing.is_empty(), "{missing:#?}");
}

/// A page for users names no variable that nothing reads. `X_FILE` is the file that holds the value of `X`.
#[test]
fn every_environment_variable_that_a_page_names_is_read() {
    let name = Regex::new(r"\bGAVEL_[A-Z_]+[A-Z]\b").unwrap();
    let mut pages = documentation();
    pages.extend(["README.md", "ARCHITECTURE.md", "SECURITY.md", "bench/README.md"].map(|page| root().join(page)));
    let mut readers = product();
    readers.extend(["scripts/test", "bench/run"].map(|script| root().join(script)));
    let read: String = readers.iter().map(|path| fs::read_to_string(path).unwrap()).collect();
    // The variables of most settings are derived from their keys.
    let settings = gavel::config::SETTINGS.iter().flat_map(|setting| &setting.environment);
    let read = name.find_iter(&read).map(|found| found.as_str());
    let read: BTreeSet<&str> = read.chain(settings.map(String::as_str)).collect();
    let mut unknown = Vec::new();
    let mut checked = 0;
    for page in pages {
        let text = fs::read_to_string(&page).unwrap();
        for found in name.find_iter(&text).map(|found| found.as_str()) {
            checked += 1;
            if !read.contains(found.trim_end_matches("_FILE")) && !read.contains(found) {
                unknown.push(format!("{}: {found}", relative(&page)));
            }
        }
    }
    assert!(checked > 50, "{checked} names were found");
    assert!(unknown.is_empty(), "{unknown:#?}");
}

/// `a/{b,c}.rs` is `a/b.rs` and `a/c.rs`.
fn expanded(name: &str) -> Vec<String> {
    let Some((before, rest)) = name.split_once('{') else {
        return vec![name.to_owned()];
    };
    let (choices, after) = rest.split_once('}').unwrap();
    choices
        .split(',')
        .map(|choice| format!("{before}{choice}{after}"))
        .collect()
}

/// Source without comments.
fn code(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap();
    let lines: Vec<_> = text
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .collect();
    lines.join("\n")
}

/// Doc comments of types that are API descriptions, and of the command line's arguments, which are its help.
fn published_comments(path: &Path) -> Vec<String> {
    let text = fs::read_to_string(path).unwrap();
    let derived =
        Regex::new(r"derive\([^)]*\b(?:ToSchema|clap::\w+|Args|Parser|Subcommand|ValueEnum)\b[^)]*\)").unwrap();
    let mut found = Vec::new();
    let (mut published, mut depth) = (false, 0_i32);
    let mut comments: Vec<String> = Vec::new();
    for line in text.lines() {
        let trimmed = line.trim_start();
        if trimmed.starts_with("///") {
            comments.push(trimmed.to_owned());
            continue;
        }
        if derived.is_match(trimmed) {
            published = true;
        }
        if published {
            found.append(&mut comments);
            let count = |sign| i32::try_from(trimmed.matches(sign).count()).unwrap();
            depth += count('{') - count('}');
            if depth == 0 && !trimmed.starts_with("#[") && !trimmed.is_empty() {
                published = false;
            }
        }
        if !trimmed.starts_with("#[") {
            comments.clear();
        }
    }
    found
}

/// The page that says what each requirement id stands for.
const REQUIREMENTS: &str = "docs/explanation/requirements.md";

/// The ids of requirements in a text: `C-FR-011`, `R-14`, `D-R4`, `R-states`.
fn requirement_ids(text: &str) -> BTreeSet<String> {
    static ID: LazyLock<Regex> = LazyLock::new(|| {
        let chat = r"C-(?:FR|EC|SC|US[0-9])-[0-9]+";
        Regex::new(&format!(
            r"\b(?:{chat}|D-(?:[RPE]?[0-9]+|[PE])|[RXP]-[A-Z]?[0-9]+|P-[SE]|R-states)\b"
        ))
        .unwrap()
    });
    ID.find_iter(text).map(|id| id.as_str().to_owned()).collect()
}

/// A comment that names a requirement or a page leads its reader somewhere.
#[test]
fn every_requirement_and_page_that_a_comment_names_is_in_the_repository() {
    let listed = requirement_ids(&fs::read_to_string(root().join(REQUIREMENTS)).unwrap());
    let page = Regex::new(r"\bdocs/(?:explanation|how-to|reference|tutorials)/[a-z-]+\.md\b").unwrap();
    let (mut named, mut missing) = (BTreeSet::new(), BTreeSet::new());
    for directory in [
        "src",
        "crates",
        "tests",
        "mcp-servers",
        "bench/src",
        "fuzz/fuzz_targets",
    ] {
        for path in rust_files(&root().join(directory)) {
            let text = fs::read_to_string(&path).unwrap();
            let comments = text.lines().filter_map(|line| line.split_once("//"));
            let comments: String = comments.map(|(_, comment)| format!("{comment}\n")).collect();
            let ids = requirement_ids(&comments);
            let pages: BTreeSet<_> = page.find_iter(&comments).map(|page| page.as_str().to_owned()).collect();
            let pages = pages.into_iter().filter(|page| !root().join(page).exists());
            let unknown = ids.difference(&listed).cloned().chain(pages);
            missing.extend(unknown.map(|name| format!("{}: {name}", relative(&path))));
            named.extend(ids);
        }
    }
    assert!(named.len() > 80, "{} ids were found", named.len());
    assert!(missing.is_empty(), "{missing:#?}");
}

/// Requirement ids and design sections are for gavel's developers: no page for users names one, and neither does any
/// text that the program writes, its help or its API description.
#[test]
fn nothing_that_users_read_names_a_requirement_or_a_design_section() {
    let internal =
        Regex::new(r"\b[CDPRX]-(?:(?:FR|SC|EC)-[0-9]+|US[0-9]|[0-9]{1,2}\b)|DESIGN\.md|REQUIREMENTS\.md|(?:^|[^,] )[Ss]ections? [0-9]")
            .unwrap();
    let mut texts: Vec<(String, String)> = Vec::new();
    let folders = [
        "agents",
        "templates",
        "evaluation",
        "mcp-servers/docker",
        "mcp-servers/files",
        "mcp-servers/github",
        "mcp-servers/google",
        "mcp-servers/shell",
        "mcp-servers/tasks",
        "mcp-servers/web",
    ];
    for directory in folders.map(|directory| root().join(directory)) {
        for path in ["md", "toml"]
            .iter()
            .flat_map(|extension| files_of(&directory, extension))
        {
            texts.push((relative(&path), fs::read_to_string(&path).unwrap()));
        }
    }
    for path in documentation()
        .into_iter()
        .filter(|path| relative(path) != REQUIREMENTS)
    {
        texts.push((relative(&path), fs::read_to_string(&path).unwrap()));
    }
    for name in [
        "README.md",
        "CHANGELOG.md",
        "SECURITY.md",
        "constitution.md",
        "compose.yaml",
    ] {
        texts.push((name.to_owned(), fs::read_to_string(root().join(name)).unwrap()));
    }
    let mut comments = 0;
    for path in product() {
        texts.push((relative(&path), code(&path)));
        let published = published_comments(&path);
        comments += published.len();
        texts.push((relative(&path), published.join("\n")));
    }
    assert!(comments > 500, "{comments} published comments were found");
    let lines = texts
        .iter()
        .flat_map(|(name, text)| text.lines().map(move |line| (name, line)));
    let found: Vec<_> = lines
        .filter(|(_, line)| internal.is_match(line))
        .map(|(name, line)| format!("{name}: {line}"))
        .collect();
    assert!(found.is_empty(), "{found:#?}");
}

/// Log lines are read in a hurry. These words are ambiguous or name no actor.
#[test]
fn no_log_line_uses_ambiguous_words() {
    let call = Regex::new(r#"(?s)tracing::(?:error|warn|info|debug|trace)!\((.*?)\);"#).unwrap();
    let text = Regex::new(r#"(?s)"((?:[^"\\]|\\.)*)""#).unwrap();
    let words = [
        "go on",
        "goes on",
        "went on",
        "is over",
        "are over",
        "nobody",
        "somebody",
        "whoever",
        "leave",
        "stands",
        "stay as",
        "takes them up",
        "taken up",
        "is told",
        "broke down",
        "turned away",
        "once more",
        "without a word",
        "in good order",
    ];
    let words = Regex::new(&format!(r"\b(?:{})\b", words.join("|"))).unwrap();
    let mut invalid = Vec::new();
    let servers = [
        "base", "docker", "files", "github", "google", "shell", "store", "tasks", "web",
    ]
    .map(|name| root().join("mcp-servers").join(name).join("src"));
    for directory in ["src", "crates"].map(|name| root().join(name)).iter().chain(&servers) {
        for path in rust_files(directory) {
            let code = code(&path);
            for call in call.captures_iter(&code) {
                let texts = text.captures_iter(call.get(1).unwrap().as_str());
                let found = texts.filter(|text| words.is_match(&text[1]));
                invalid.extend(found.map(|text| format!("{}: {}", path.display(), &text[1])));
            }
        }
    }
    assert!(invalid.is_empty(), "{invalid:#?}");
}
