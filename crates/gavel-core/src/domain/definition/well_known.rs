//! Tool names of Gemini CLI and Claude Code, and their equivalents in gavel.

/// Their names, and the equivalent tool of the bundled server `files`.
const FILES: &[(&str, &[&str])] = &[
    ("ls", &["ls", "LS", "list_directory", "list_dir"]),
    (
        "read_file",
        &["read_file", "Read", "ReadFile", "read_many_files", "NotebookRead"],
    ),
    ("glob", &["glob", "Glob", "FindFiles"]),
    (
        "grep",
        &["grep", "Grep", "grep_search", "search_file_content", "ripgrep"],
    ),
];

/// Their names for tools that call other agents.
const AGENTS: &[&str] = &["Task", "Agent", "delegate_to_agent"];

/// Their names for tools without an equivalent in a bundled server.
const OTHERS: &[&str] = &[
    "Bash",
    "BashOutput",
    "KillShell",
    "Write",
    "write_file",
    "Edit",
    "MultiEdit",
    "NotebookEdit",
    "replace",
    "WebFetch",
    "WebSearch",
    "save_memory",
    "TodoWrite",
    "TodoRead",
    "write_todos",
    "ask_user",
    "AskUserQuestion",
    "ExitPlanMode",
    "Skill",
    "SlashCommand",
    "activate_skill",
];

/// The bundled tool for a well-known name. `Bash(git log:*)` is a name with a condition.
pub(super) fn bundled(name: &str) -> Option<&'static str> {
    let name = without_condition(name);
    let found = FILES.iter().find(|(_, names)| names.contains(&name));
    found.map(|(tool, _)| *tool)
}

/// What to write in gavel for a tool of Gemini CLI or Claude Code that has another name here or none, as the text of
/// what is allowed.
#[must_use]
pub fn well_known_tool(name: &str) -> Option<String> {
    if let Some(tool) = bundled(name) {
        if tool == name {
            return None;
        }
        return Some(format!(
            "`{tool}`, a tool of the bundled server files, which needs FILES_ROOT"
        ));
    }
    let name = without_condition(name);
    if AGENTS.contains(&name) {
        return Some("`sub_agents`, with the names of the agents that it may call".to_owned());
    }
    OTHERS.contains(&name).then(|| {
        format!("the name of a tool that a server in mcp.json offers: no bundled server does what {name} does")
    })
}

fn without_condition(name: &str) -> &str {
    name.split_once('(').map_or(name, |(name, _)| name).trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_means_one_thing() {
        let mut all: Vec<&str> = FILES.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        all.extend(AGENTS.iter().chain(OTHERS));
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
        assert_eq!(bundled("Grep"), Some("grep"));
        for own in ["add_task", "grep", "read_file"] {
            assert_eq!(well_known_tool(own), None, "{own}");
        }
        assert!(well_known_tool("Bash(git log:*)").is_some_and(|said| said.ends_with("what Bash does")));
    }
}
