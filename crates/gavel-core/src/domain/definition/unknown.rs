//! Unknown field names: what to write instead.

use super::fields::{GROUPS, TABLE};
use gavel_reading::Key;
use gavel_reading::ReadError;
use gavel_reading::nearest;

/// Fields of other programs' agents that gavel does not support. Ignoring one would change the agent.
const NOT_SUPPORTED: &[(&[&str], &str)] = &[
    (
        &["mcpServers", "mcp_servers"],
        "nothing: an agent has no servers of its own; name them in the mcp.json of gavel, and list their tools here",
    ),
    (&["color", "icon", "emoji"], "nothing: leave it out; gavel shows none"),
    (
        &["author", "category", "license", "metadata", "tags", "version"],
        "nothing: leave it out, or write it as a comment (`# …`)",
    ),
    (
        &["permissionMode", "permission_mode"],
        "`approval`: never, side_effects or always; it says when a tool call requires approval",
    ),
    (
        &["allowedTools", "allowed-tools", "allowed_tools"],
        "`tools`, a list of the names of tools",
    ),
    (
        &[
            "disallowedTools",
            "disallowed-tools",
            "disallowed_tools",
            "excludeTools",
        ],
        "nothing: an agent may use the tools that `tools` lists and no others",
    ),
    (
        &[
            "hooks",
            "skills",
            "memory",
            "background",
            "isolation",
            "effort",
            "initialPrompt",
        ],
        "nothing: gavel has no such thing for an agent; leave it out",
    ),
    (
        &["policy"],
        "nothing: an agent has no policy of its own; `approval` says when a tool call requires approval",
    ),
    (
        &["agent_card_url", "agent_card_json", "auth"],
        "nothing: agents of other services (kind: remote) cannot be called",
    ),
];

/// The error for an unknown name at the top level.
pub(super) fn unknown_at_the_top(key: &Key, file: &str) -> ReadError {
    let known = TABLE
        .iter()
        .flat_map(|row| row.flat)
        .chain(GROUPS.iter().map(|(name, _)| name));
    let mut error = unknown(key, key.name.clone(), known.copied().collect(), file);
    let in_group = TABLE.iter().find_map(|row| {
        let (group, names) = row.grouped?;
        names.contains(&key.name.as_str()).then_some((group, names[0]))
    });
    if let Some((group, name)) = in_group {
        error.allowed = format!("did you mean `{group}.{name}`?");
    }
    if let Some((_, why)) = NOT_SUPPORTED
        .iter()
        .find(|(names, _)| names.contains(&key.name.as_str()))
    {
        error.found = "a field that gavel does not support".to_owned();
        error.allowed = (*why).to_owned();
    }
    error
}

/// The error for an unknown name, given the known names.
pub(super) fn unknown(key: &Key, path: String, known: Vec<&str>, file: &str) -> ReadError {
    ReadError {
        file: file.to_owned(),
        line: Some(key.line),
        field: path,
        found: "an unknown field".to_owned(),
        // Lists all of them: they come from the table, and the author of a definition may not have it at hand.
        allowed: nearest_of(&key.name, &known).unwrap_or_else(|| known.join(", ")),
    }
}

fn nearest_of(name: &str, known: &[&str]) -> Option<String> {
    let near = nearest(name, known.iter().copied())?;
    Some(format!("did you mean `{near}`?"))
}
