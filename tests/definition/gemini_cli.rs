//! Gemini CLI's agent files (`.gemini/agents/*.md`): they load unchanged, and fields that gavel does not support are
//! named.

use std::time::Duration;

use gavel::domain::definition::{Definition, Form, Source, check};

fn shown(front_matter: &str) -> Vec<String> {
    let text = format!("---\nname: a\ndescription: d\n{front_matter}\n---\nBe kind.\n");
    let errors = Definition::read(text.as_bytes(), Form::Markdown, "a.md").expect_err("it is not supported");
    errors.iter().map(ToString::to_string).collect()
}

/// Every field that such a file may have for an agent that runs locally and has no servers of its own.
#[test]
fn an_agent_file_of_gemini_cli_loads_unchanged() {
    let text = "---\nkind: local\nname: security-auditor\ndisplay_name: Auditor\ndescription: Finds holes.\ntools:\n  - read_file\n  - \
                grep_search\nmodel: inherit\ntemperature: 0.2\nmax_turns: 10\ntimeout_mins: 7\n---\n\nYou audit.\n\n1. Read.\n\n---\n\n2. Tell.\n";
    let definition = Definition::read(text.as_bytes(), Form::Markdown, ".gemini/agents/security-auditor.md").unwrap();
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
fn unsupported_fields_are_named_and_not_dropped() {
    assert_eq!(
        shown("mcpServers:\n  x: {command: node}\nmcp_servers: {}\npolicy: {}"),
        [
            "a.md:4: mcpServers: found a field that gavel does not support; allowed: nothing: an agent has no servers of its own; name them in the mcp.json of gavel, and list their tools here",
            "a.md:6: mcp_servers: found a field that gavel does not support; allowed: nothing: an agent has no servers of its own; name them in the mcp.json of gavel, and list their tools here",
            "a.md:7: policy: found a field that gavel does not support; allowed: nothing: an agent has no policy of its own; `approval` says when a tool call requires approval",
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
    let item = "the name of one tool: up to 128 characters without spaces or `*`, since the list names every tool";
    assert_eq!(
        shown("tools: ['*', mcp_*, mcp_my-server_*, read_file]"),
        [
            format!("a.md:4: tools[0]: found \"*\"; allowed: {item}"),
            format!("a.md:4: tools[1]: found \"mcp_*\"; allowed: {item}"),
            format!("a.md:4: tools[2]: found \"mcp_my-server_*\"; allowed: {item}"),
        ]
    );
}

/// In Gemini CLI, a missing list means every tool; here it means none, and a warning says so.
#[test]
fn an_agent_of_gemini_cli_without_a_tool_list_causes_a_warning() {
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
            "/home/me/.gemini/agents/a.md: toolConfig.tools: found nothing, which allows every tool in Gemini CLI and none here; allowed: the list of tools that it may use"
        ]
    );
    assert_eq!(check(&[source("agents/a.md")], &[]).warnings, []);
}

/// Their texts contain code, and code contains `${`: each place is reported with its own line.
#[test]
fn a_dollar_brace_in_the_text_is_reported_with_its_line() {
    let error = |body: &str| {
        let text = format!("---\nname: a\ndescription: d\n---\n\n\nYou write shell.\n\n{body}\n");
        let errors = Definition::read(text.as_bytes(), Form::Markdown, "a.md").expect_err("these are no inputs");
        errors.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let allowed = "an input: query; or `$${` for a literal `${`";
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

/// Real files use the names of other programs; each error says what to write instead.
#[test]
fn fields_of_other_programs_are_reported_with_gavels_names() {
    let item = "the name of one tool: up to 128 characters without spaces or `*`, since the list names every tool";
    for (front_matter, reported) in [
        ("tools: Read, Grep, Glob", "a.md:4: tools: found \"Read, Grep, Glob\"; allowed: a list, here [read_file, grep, glob]".to_owned()),
        ("tools: mine", "a.md:4: tools: found \"mine\"; allowed: a list, here [mine]".to_owned()),
        (
            "tools: Read, Bash(git log:*), WebFetch, mine",
            "a.md:4: tools: found \"Read, Bash(git log:*), WebFetch, mine\"; allowed: a list, here [read_file, mine]; no bundled server \
             does what Bash(git log:*), WebFetch does"
                .to_owned(),
        ),
        ("tools: ['Bash(git log:*)']", format!("a.md:4: tools[0]: found \"Bash(git log:*)\"; allowed: {item}")),
        ("color: blue", "a.md:4: color: found a field that gavel does not support; allowed: nothing: leave it out; gavel shows none".to_owned()),
        (
            "version: 1",
            "a.md:4: version: found a field that gavel does not support; allowed: nothing: leave it out, or write it as a comment (`# …`)"
                .to_owned(),
        ),
        (
            "permissionMode: plan",
            "a.md:4: permissionMode: found a field that gavel does not support; allowed: `approval`: never, side_effects or always; it says \
             when a tool call requires approval"
                .to_owned(),
        ),
        (
            "allowed-tools: [Read]",
            "a.md:4: allowed-tools: found a field that gavel does not support; allowed: `tools`, a list of the names of tools".to_owned(),
        ),
    ] {
        assert_eq!(shown(front_matter), [reported], "{front_matter}");
    }
    let named = Definition::read(
        "---\nname: Code Reviewer (v2)\ndescription: d\n---\nBe kind.\n".as_bytes(),
        Form::Markdown,
        "a.md",
    );
    let reported: Vec<_> = named
        .expect_err("it is no name")
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(
        reported,
        [
            "a.md:2: name: found \"Code Reviewer (v2)\"; allowed: 1 to 64 letters, digits, `_` or `-`, such as `code-reviewer-v2`"
        ]
    );
}

#[test]
fn max_turns_is_accepted_in_camel_case() {
    let text = "---\nname: a\ndescription: d\nmaxTurns: 7\n---\nBe kind.\n";
    assert_eq!(
        Definition::read(text.as_bytes(), Form::Markdown, "a.md")
            .unwrap()
            .limits
            .max_turns,
        Some(7)
    );
}

/// An unquoted colon in a description is the most common error in such files, and the parser's own message does not say
/// how to fix it.
#[test]
fn an_unquoted_colon_is_reported_with_the_way_to_write_it() {
    let long =
        "description: Use this agent to review. Examples: <example>Context: The user asks. user: \"Look\"</example>";
    for text in [
        format!("name: a\n{long}\nsystem_prompt: s\n"),
        format!("{long}\nname: a\nsystem_prompt: s\n"),
    ] {
        for form in [Form::Yaml, Form::Markdown] {
            let text = match form {
                Form::Markdown => format!("---\n{text}---\nBe kind.\n"),
                Form::Yaml | Form::Json | Form::Proto => text.clone(),
            };
            let errors = Definition::read(text.as_bytes(), form, "a").expect_err("it is not YAML");
            let reported = errors[0].to_string();
            assert!(
                reported.contains(
                    "the value of `description` holds `: `, so write it in quotes, or indented below `description: >-`"
                ),
                "{reported}"
            );
            assert_eq!(errors.len(), 1, "{reported}");
        }
    }
}

/// A model of another provider would fail at the first run.
#[test]
fn a_model_of_another_provider_causes_a_warning() {
    let checked = |model: &str| {
        let source = Source {
            file: "a.yaml".to_owned(),
            form: Form::Yaml,
            bytes: format!("name: a\ndescription: d\nsystem_prompt: s\nmodel: {model}\n").into_bytes(),
        };
        check(&[source], &[])
            .warnings
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
    };
    for model in ["sonnet", "opus", "claude-sonnet-4-5", "gpt-5"] {
        assert_eq!(
            checked(model),
            [format!(
                "a.yaml:4: model: found \"{model}\", which is not a Google model; allowed: a model of Gemini, or no model: the configured one"
            )]
        );
    }
    for model in ["gemini-3.8-flash", "inherit", "demo"] {
        assert_eq!(checked(model), [""; 0], "{model}");
    }
}

/// A level is one of the model that the definition names; each model has its own.
#[test]
fn a_level_that_the_model_does_not_know_causes_a_warning() {
    let checked = |form, text: &str| {
        let source = Source {
            file: "a".to_owned(),
            form,
            bytes: text.as_bytes().to_vec(),
        };
        let found = check(&[source], &[]);
        assert_eq!(found.errors, []);
        found.warnings.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let yaml = |model: &str, level: &str| {
        let text = format!(
            "name: a\ndescription: d\nsystem_prompt: s\nmodel: {model}\nmodelConfig:\n  thinkingLevel: {level}\n"
        );
        checked(Form::Yaml, &text)
    };
    for model in ["gemini-3.8-flash", "models/gemini-3.8-flash"] {
        assert_eq!(
            yaml(model, "xhigh"),
            [format!(
                "a:6: modelConfig.thinkingLevel: found \"xhigh\", which \"{model}\" does not know, so the nearest level \
                 is sent; allowed: low, medium, high"
            )]
        );
    }
    assert_eq!(yaml("gemini-4-neon", "minimal").len(), 1);
    for (model, level) in [
        ("gemini-3.8-flash", "high"),
        ("gemini-4-neon", "xhigh"),
        ("gemini-2.5-pro", "high"),
    ] {
        assert_eq!(yaml(model, level), [""; 0], "{model} {level}");
    }
    let markdown = "---\nname: a\ndescription: d\nmodel: gemini-3.8-flash\nthinking_level: xhigh\n---\nDo it.\n";
    assert_eq!(checked(Form::Markdown, markdown).len(), 1);
}
