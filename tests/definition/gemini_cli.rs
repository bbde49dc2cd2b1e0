//! Gemini CLI's agent files (`.gemini/agents/*.md`): they load as they are, and what gavel has nothing for is named.

use std::time::Duration;

use gavel::domain::definition::{Definition, Form, Source, check};

fn shown(front_matter: &str) -> Vec<String> {
    let text = format!("---\nname: a\ndescription: d\n{front_matter}\n---\nBe kind.\n");
    let errors = Definition::from_markdown(&text, "a.md").expect_err("it is not supported");
    errors.iter().map(ToString::to_string).collect()
}

/// Every field that such a file may hold for an agent that runs locally and has no servers of its own.
#[test]
fn an_agent_file_of_gemini_cli_loads_as_it_is() {
    let text = "---\nkind: local\nname: security-auditor\ndisplay_name: Auditor\ndescription: Finds holes.\ntools:\n  - read_file\n  - \
                grep_search\nmodel: inherit\ntemperature: 0.2\nmax_turns: 10\ntimeout_mins: 7\n---\n\nYou audit.\n\n1. Read.\n\n---\n\n2. Tell.\n";
    let definition = Definition::from_markdown(text, ".gemini/agents/security-auditor.md").unwrap();
    assert_eq!(
        (definition.name.as_str(), definition.display_name.as_deref()),
        ("security-auditor", Some("Auditor"))
    );
    assert_eq!(definition.tools, ["read_file", "grep_search"]);
    assert_eq!(
        (definition.model.model, definition.model.temperature),
        (None, Some(0.2))
    );
    assert_eq!(definition.limits.max_turns, Some(10));
    assert_eq!(definition.limits.max_time, Some(Duration::from_secs(420)));
    let prompt = definition.prompt.unwrap();
    assert_eq!(prompt.query, "${query}");
    assert_eq!(prompt.system_prompt, "You audit.\n\n1. Read.\n\n---\n\n2. Tell.");
}

#[test]
fn what_gavel_has_nothing_for_is_named_and_not_dropped() {
    assert_eq!(
        shown("mcpServers:\n  x: {command: node}\nmcp_servers: {}\npolicy: {}"),
        [
            "a.md:4: mcpServers: found a field that gavel does not support; allowed: nothing: an agent has no servers of its own; name them in the mcp.json of gavel, and grant their tools here",
            "a.md:6: mcp_servers: found a field that gavel does not support; allowed: nothing: an agent has no servers of its own; name them in the mcp.json of gavel, and grant their tools here",
            "a.md:7: policy: found a field that gavel does not support; allowed: nothing: an agent has no policy of its own; `approval` says when a person must agree",
        ]
    );
    assert_eq!(
        shown("kind: remote\nagent_card_url: https://example.com\nauth: {type: apiKey, key: k}"),
        [
            "a.md:4: kind: found \"remote\"; allowed: local",
            "a.md:5: agent_card_url: found a field that gavel does not support; allowed: nothing: agents of other services (kind: remote) cannot be called",
            "a.md:6: auth: found a field that gavel does not support; allowed: nothing: agents of other services (kind: remote) cannot be called",
        ]
    );
    let item = "the name of one tool: up to 128 characters without spaces or `*`, since a grant names every tool";
    assert_eq!(
        shown("tools: ['*', mcp_*, mcp_my-server_*, read_file]"),
        [
            format!("a.md:4: tools[0]: found \"*\"; allowed: {item}"),
            format!("a.md:4: tools[1]: found \"mcp_*\"; allowed: {item}"),
            format!("a.md:4: tools[2]: found \"mcp_my-server_*\"; allowed: {item}"),
        ]
    );
}

/// There, no list means every tool; here it means none, and whoever brings the file is told.
#[test]
fn an_agent_of_theirs_without_a_list_of_tools_is_warned_of() {
    let source = |file: &str| Source {
        file: file.to_owned(),
        form: Form::Markdown,
        bytes: b"---\nname: a\ndescription: d\n---\nBe kind.\n".to_vec(),
    };
    let theirs = check(&[source("/home/me/.gemini/agents/a.md")], &[]);
    let warnings: Vec<_> = theirs.warnings.iter().map(ToString::to_string).collect();
    assert_eq!(
        warnings,
        [
            "/home/me/.gemini/agents/a.md: toolConfig.tools: found nothing, which grants every tool in Gemini CLI and none here; allowed: the list of tools that it is granted"
        ]
    );
    assert_eq!(check(&[source("agents/a.md")], &[]).warnings, []);
}

/// Their texts hold code, and code holds `${`: each place is told by its own line.
#[test]
fn a_dollar_and_brace_in_the_text_is_told_by_its_line() {
    let error = |body: &str| {
        let text = format!("---\nname: a\ndescription: d\n---\n\n\nYou write shell.\n\n{body}\n");
        let errors = Definition::from_markdown(&text, "a.md").expect_err("these are no inputs");
        errors.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let allowed = "an input: query; or `$${` where the text means `${`";
    assert_eq!(
        error("    cd ${HOME} && ls ${HOME}\n    $${HOME}\n    rm ${HOME}"),
        [
            format!("a.md:9: promptConfig.systemPrompt: found the placeholder ${{HOME}}; allowed: {allowed}"),
            format!("a.md:11: promptConfig.systemPrompt: found the placeholder ${{HOME}}; allowed: {allowed}"),
        ]
    );
    assert_eq!(
        error("one\n    echo ${HOME:-x}"),
        [
            "a.md:10: promptConfig.systemPrompt: found \"${HOME:-x}\"; allowed: `${name}` with letters, digits, `_` or `-`, or `$${` for a literal `${`"
        ]
    );
}
