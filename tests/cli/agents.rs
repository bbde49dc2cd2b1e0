//! `gavel agents`.

use std::fs;
use std::path::Path;

use serde_json::Value;

use super::harness::{Place, Running};

const HELPER: &str = "---\nname: helper\ndescription: Helps.\ntools: [add_task]\n---\nBe kind.\n";

/// A place with a directory `agents`.
fn agents(files: &[(&str, &str)]) -> Place {
    let place = Place::new();
    fs::create_dir_all(place.path().join("agents/schemas")).unwrap();
    for (file, text) in files {
        fs::write(place.path().join("agents").join(file), text).unwrap();
    }
    place
}

/// However the path is written: a build that checks `$DIR/x.md` must not pass because DIR ends in a slash.
#[test]
fn agents_validate_finds_the_file_for_any_form_of_its_path() {
    let place = agents(&[("wrong.md", &HELPER.replace("Be kind", "${x}"))]);
    for path in ["agents/wrong.md", "agents//wrong.md", "./agents/./wrong.md"] {
        let text = place.run(&["agents", "validate", path]).ended(2);
        assert!(text.contains("the placeholder ${x}"), "{path}: {text}");
    }
}

/// A tool that no server offers is reported beside the other errors, in valid and invalid definitions.
#[test]
fn agents_validate_asks_the_servers_for_the_tools() {
    let place = agents(&[
        ("helper.md", &HELPER.replace("add_task", "add_tasks")),
        (
            "wrong.md",
            &HELPER
                .replace("helper", "wrong")
                .replace("add_task", "ls")
                .replace("Be kind", "${x}"),
        ),
    ]);
    place.run(&["agents", "validate", "agents/helper.md"]).ended(0);
    let text = place.run(&["agents", "validate", "--tools"]).ended(2);
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(
        lines[0],
        "agents/helper.md:4: tools[0]: found \"add_tasks\": no connected server offers it; not connected: docker, files, \
         github, google, shell, web; allowed: a tool that a server offers, or another agent: did you mean `add_task`?"
    );
    assert!(
        lines[1].starts_with("agents/wrong.md:4: tools[0]: found \"ls\""),
        "{text}"
    );
    assert!(lines[2].contains("the placeholder ${x}"), "{text}");
    assert_eq!(text.matches("docker: needs DOCKER_HOST").count(), 1, "{text}");
    // An agent with a missing tool does not count as valid.
    assert_eq!(lines.last(), Some(&"2 files, 0 agents valid, 3 errors"), "{text}");
}

/// D-1: an agent named in `tools` is not looked up as a tool. If a server has a tool of that name, the error names
/// both.
#[test]
fn agents_validate_knows_the_agents_that_tools_name() {
    let place = agents(&[
        ("helper.md", HELPER),
        (
            "boss.md",
            &HELPER
                .replace("helper", "boss")
                .replace("add_task", "helper, list_tasks"),
        ),
    ]);
    let text = place.run(&["agents", "validate", "--tools"]).ended(0);
    assert!(text.ends_with("2 files, 2 agents valid, 0 errors\n"), "{text}");
    let place = agents(&[
        ("list_tasks.md", &HELPER.replace("helper", "list_tasks")),
        (
            "boss.md",
            &HELPER.replace("helper", "boss").replace("add_task", "list_tasks"),
        ),
    ]);
    let text = place.run(&["agents", "validate", "--tools"]).ended(2);
    assert!(
        text.starts_with(
            "agents/boss.md:4: tools[0]: found \"list_tasks\" in tools is the name of the agent list_tasks and of a tool of the server \
             tasks; list the tool as tasks__list_tasks, or rename the agent; allowed: a name that means one of the two\n"
        ),
        "{text}"
    );
    let text = place.run(&["agents", "list"]).ended(0);
    assert!(
        text.contains("boss is unavailable: \"list_tasks\" in tools is the name of the agent"),
        "{text}"
    );
}

#[test]
fn agents_validate_names_the_tools_of_two_servers_apart() {
    let server = serde_json::json!({"command": "${GAVEL_PROGRAM}", "args": ["mcp-server", "tasks"],
        "env": {"TASKS_DATABASE_URL": "sqlite:tasks.db"}});
    let servers = serde_json::json!({"mcpServers": {"home": server, "work": server}});
    let place = agents(&[
        ("helper.md", HELPER),
        (
            "wrong.md",
            &HELPER.replace("helper", "wrong").replace("add_task", "add_tusk"),
        ),
    ]);
    fs::write(place.path().join("own.json"), servers.to_string()).unwrap();
    let text = place
        .run(&["agents", "validate", "--tools", "--mcp-config", "own.json"])
        .ended(2);
    assert!(
        text.contains("found \"add_task\": several servers offer it; allowed: home__add_task or work__add_task\n"),
        "{text}"
    );
    assert!(
        text.contains("or another agent: helper, home__add_task, home__complete_task, "),
        "{text}"
    );
}

/// Tool names of Gemini CLI and Claude Code are answered with those of the bundled servers.
#[test]
fn agents_validate_knows_the_tools_of_other_programs() {
    let tools = "list_directory, grep_search, Read, Bash, Task";
    let place = agents(&[("theirs.md", &HELPER.replace("add_task", tools))]);
    let text = place.run(&["agents", "validate", "--tools"]).ended(2);
    for (n, (name, written)) in [
        (
            "list_directory",
            "`ls`, a tool of the bundled server files, which needs FILES_ROOT",
        ),
        (
            "grep_search",
            "`grep`, a tool of the bundled server files, which needs FILES_ROOT",
        ),
        (
            "Read",
            "`read_file`, a tool of the bundled server files, which needs FILES_ROOT",
        ),
        (
            "Bash",
            "the name of a tool that a server in mcp.json offers: no bundled server does what Bash does",
        ),
        ("Task", "`sub_agents`, with the names of the agents that it may call"),
    ]
    .into_iter()
    .enumerate()
    {
        let line = text.lines().nth(n).unwrap_or_default();
        assert!(
            line.starts_with(&format!("agents/theirs.md:4: tools[{n}]: found \"{name}\"")),
            "{text}"
        );
        assert!(line.ends_with(&format!("allowed: {written}")), "{text}");
    }
}

/// A required field that is null is an error like any other; otherwise the agent would be missing without a reason.
#[test]
fn agents_validate_reports_a_required_field_that_is_null() {
    for (field, line) in [("name: helper", 2), ("description: Helps.", 3)] {
        let name = field.split(':').next().unwrap();
        for value in ["", " null", " ~"] {
            let place = agents(&[("helper.md", &HELPER.replace(field, &format!("{name}:{value}")))]);
            let text = place.run(&["agents", "validate"]).ended(2);
            assert!(
                text.starts_with(&format!("agents/helper.md:{line}: {name}: found nothing; allowed: ")),
                "{text}"
            );
            assert!(text.ends_with("1 file, 0 agents valid, 1 error\n"), "{text}");
        }
    }
}

/// D-E, D-5: the built-in schemas exist for every directory; a directory's own schema takes precedence.
#[test]
fn the_built_in_schemas_exist_for_every_directory() {
    let example = include_str!("../../agents/codebase_investigator.md");
    let place = agents(&[("codebase_investigator.md", example)]);
    let text = place.run(&["agents", "validate"]).ended(0);
    assert_eq!(text, "1 file, 1 agent valid, 0 errors\n");
    let own = place
        .path()
        .join("agents/schemas/CodebaseInvestigationReportSchema.json");
    fs::write(own, "{\"type\": \"objct\"}").unwrap();
    let text = place.run(&["agents", "validate"]).ended(2);
    assert!(
        text.contains("schemas/CodebaseInvestigationReportSchema.json:1: the schema.type: found \"objct\""),
        "{text}"
    );
}

/// A build that checks a directory without agents gets an error.
#[test]
fn agents_validate_reports_a_directory_without_definitions() {
    let place = agents(&[("README.md", "# none"), ("notes.txt", "x")]);
    let text = place.run(&["agents", "validate", "agents"]).ended(0);
    assert!(
        text.starts_with("warning: agents: no definition was found; definition files end in .md, .yaml"),
        "{text}"
    );
}

/// All errors of all files are reported at once, each with its location, and the exit status can fail a build.
#[test]
fn agents_validate_reports_every_error_of_every_file() {
    let place = agents(&[
        ("helper.md", HELPER),
        ("README.md", "# Our agents"),
        ("_draft.md", "not yet"),
        ("notes.txt", "none of our business"),
        (
            "a.yaml",
            "name: a\ndescripton: d\nsystem_prompt: s\nsub_agents: [helpr]\n",
        ),
        ("b.json", "{\"name\": \"b\",\n\"description\": \"d\"\n\"x\": 1}"),
        ("c.binpb", "\u{1}"),
        ("schemas/S.json", "{\"type\": \"strng\"}"),
    ]);
    let ran = place.run(&["agents", "validate"]);
    assert_eq!(ran.err, "");
    insta::assert_snapshot!(ran.ended(2));
    let json: Value = serde_json::from_str(&place.run(&["agents", "validate", "--json"]).ended(2)).unwrap();
    assert_eq!(
        (json["files"].as_u64(), json["errors"].as_array().unwrap().len()),
        (Some(4), 5)
    );
    assert_eq!(json["agents"], serde_json::json!(["helper"]));
    assert_eq!(
        json["errors"][0],
        serde_json::json!({
            "file": "agents/a.yaml", "line": 2, "field": "descripton", "found": "an unknown field",
            "allowed": "did you mean `description`?",
        })
    );
    // A single file, checked together with the others of its directory.
    let alone = place.run(&["agents", "validate", "agents/helper.md"]).ended(0);
    assert_eq!(alone, "1 file, 1 agent valid, 0 errors\n");
    let two = place
        .run(&["agents", "validate", "agents/a.yaml", "agents/_draft.md"])
        .ended(2);
    assert!(two.contains(
        "agents/a.yaml:4: sub_agents[0]: found \"helpr\"; allowed: an existing agent: did you mean `helper`?"
    ));
    assert!(
        two.contains("agents/_draft.md:1: front matter: ") && two.ends_with("2 files, 0 agents valid, 3 errors\n"),
        "{two}"
    );
}

#[test]
fn agents_validate_explains_an_invalid_path() {
    let place = agents(&[("helper.md", HELPER), ("notes.txt", "x")]);
    let reported = place
        .run(&["agents", "validate", "nowhere", "agents/notes.txt"])
        .ended(2);
    assert!(
        reported.contains("nowhere: the path: found nothing; allowed: an existing directory or file"),
        "{reported}"
    );
    assert!(
        reported.contains(
            "agents/notes.txt: the path: found a file of another kind; allowed: a name that ends in one of .md"
        )
    );
    // A given path needs no configuration.
    let broken = place.run_with(&["agents", "validate", "agents"], &[("GAVEL_LISTEN", "no address")]);
    assert_eq!(broken.ended(0), "1 file, 1 agent valid, 0 errors\n");
    let named = place.run_with(&["agents", "validate"], &[("GAVEL_AGENTS", "agents/helper.md")]);
    assert!(
        named
            .err
            .contains("the agents directory agents/helper.md cannot be listed"),
        "{}",
        named.err
    );
    assert_eq!(named.status, 1);
}

/// An agent with missing tools, or whose model has no provider, is listed with the reason and blocks nothing. `gavel
/// doctor` reports the same.
#[test]
fn agents_list_shows_which_agents_cannot_run_and_why() {
    let place = agents(&[
        ("helper.md", HELPER),
        (
            "lost.md",
            "---\nname: lost\ndescription: d\ntools: [add_task, fly]\n---\nBe kind.\n",
        ),
        (
            "boss.yaml",
            "name: boss\ndescription: d\nsystem_prompt: s\nsub_agents: [lost, helper]\n",
        ),
        (
            "cloud.yaml",
            "name: cloud\ndescription: d\nsystem_prompt: s\nmodelConfig: {provider: vertex}\n",
        ),
        (
            "top.yaml",
            "name: top\ndescription: d\nflow_type: sequential\nsteps: [boss]\n",
        ),
    ]);
    // If the demo model replaces all models, no provider is missing.
    let demo = place.run(&["agents", "list", "--json"]).rows();
    let cloud = |json: &Value| {
        json.as_array()
            .unwrap()
            .iter()
            .find(|one| one["name"] == "cloud")
            .unwrap()
            .clone()
    };
    assert_eq!(cloud(&demo)["available"], true);
    // No server listens on the discard port.
    let environment = [("GEMINI_API_KEY", "k"), ("GEMINI_BASE_URL", "http://127.0.0.1:9")];
    let list = place.run_with(&["agents", "list"], &environment).ended(0);
    let doctor = place
        .run_with(&["doctor", "--listen", "127.0.0.1:0"], &environment)
        .ended(1);
    let line = |name: &str| {
        list.lines()
            .find(|line| line.starts_with(&format!("{name} ")))
            .unwrap()
            .to_owned()
    };
    assert!(
        line("helper").contains(" available ") && line("helper").ends_with("agents/helper.md   add_task"),
        "{list}"
    );
    for (name, reason) in [
        (
            "lost",
            "fly: no connected server offers it; not connected: docker, files, github",
        ),
        ("boss", "it depends on lost, which is unavailable: fly: "),
        ("top", "it depends on lost, which is unavailable: fly: "),
        (
            "cloud",
            "its model provider vertex is not configured; set VERTEX_AI_PROJECT_ID and VERTEX_AI_LOCATION",
        ),
    ] {
        assert!(line(name).contains(" unavailable "), "{list}");
        assert!(list.contains(&format!("{name} is unavailable: {reason}")), "{list}");
        assert!(
            doctor.contains(&format!("! agent {name} is unavailable: {reason}")),
            "{doctor}"
        );
    }
    // What an off server needs is said once, however many agents name it.
    assert_eq!(list.matches("docker: needs DOCKER_HOST").count(), 1, "{list}");
    let json = place.run(&["agents", "list", "--json"]).rows();
    let top = json
        .as_array()
        .unwrap()
        .iter()
        .find(|agent| agent["name"] == "top")
        .unwrap();
    assert_eq!(top["flow_type"], "sequential");
    assert_eq!(top["available"], false);
    assert!(
        top["unavailable_reason"]
            .as_str()
            .unwrap()
            .starts_with("it depends on lost"),
        "{top}"
    );
    assert_eq!(top["hash"].as_str().unwrap().len(), 64);
    let offline = place.run(&["agents", "list", "--offline", "--json"]).rows();
    assert_eq!(offline[0]["available"], Value::Null);
}

/// The binary contains its agents; a directory that exists or is configured replaces them.
#[test]
fn agents_come_from_the_directory_or_are_built_in() {
    let built_in = Place::new().run(&["agents", "list", "--offline", "--json"]).rows();
    assert_eq!(built_in[0]["file"], "codebase_investigator.md (built in)");
    assert_eq!(built_in[0]["name"], "codebase_investigator");
    let place = agents(&[("helper.md", HELPER)]);
    fs::create_dir(place.path().join("other")).unwrap();
    assert_eq!(
        place.run(&["agents", "list", "--offline", "--json"]).rows()[0]["name"],
        "helper"
    );
    let named = place.run_with(&["agents", "list", "--offline"], &[("GAVEL_AGENTS", "other")]);
    assert_eq!(named.ended(0), "no agents (other)\n");
}

/// Errors in a directory that gavel finds by default are reported with the command that checks it, and its valid agents
/// are served. A directory that is configured is served completely or not at all.
#[test]
fn invalid_agents_stop_only_a_service_configured_to_serve_them() {
    let boss = "name: boss\ndescription: d\nsystem_prompt: s\nsub_agents: [wrong]\n";
    let place = agents(&[
        ("helper.md", HELPER),
        (
            "wrong.md",
            &HELPER.replace("helper", "wrong").replace("Be kind", "${x} ${y}"),
        ),
        ("boss.yaml", boss),
    ]);
    let reported = |err: &str| {
        for part in [
            "the placeholder ${x}",
            "the placeholder ${y}",
            "`gavel agents validate`",
        ] {
            assert!(err.contains(part), "{part}: {err}");
        }
    };
    let no_run = "0199f0a1-7c2e-7d10-9f5e-3a1b2c3d4e5f";
    for environment in [&[][..], &[("GAVEL_AGENTS", "agents")]] {
        let chat = place.run_with(&["chat", "show my tasks"], environment);
        reported(&chat.err);
        chat.ended(0);
        let cancel = place.run_with(&["runs", "cancel", no_run], environment);
        reported(&cancel.err);
        assert!(cancel.err.contains("There is no run"), "{}", cancel.err);
        let run = place.run_with(&["agents", "run", "boss", "x"], environment);
        reported(&run.err);
        assert!(
            run.err.contains("the project default has no agent \"boss\""),
            "{}",
            run.err
        );
        run.ended(2);
        // A valid agent runs beside them.
        let run = place.run_with(&["agents", "run", "helper", "hello"], environment);
        reported(&run.err);
        assert!(run.err.contains("completed ("), "{}", run.err);
        run.ended(0);
    }
    let log = fs::File::create(place.path().join("log")).unwrap();
    let listen = ["serve", "--listen", "127.0.0.1:0"];
    let mut serving = Running::start_logging(place.command(&listen, &[]), log);
    assert!(serving.line_with("agents").contains("1 (agents)"));
    assert_eq!(serving.stop(), Some(0));
    reported(&fs::read_to_string(place.path().join("log")).unwrap());
    let refused = place.run_with(&listen, &[("GAVEL_AGENTS", "agents")]);
    reported(&refused.err);
    assert!(refused.err.contains("the agents are invalid"), "{}", refused.err);
    refused.ended(2);
}

#[test]
fn agents_show_prints_one_agent_and_helps_with_its_name() {
    let place = Place::new();
    let shown = place.run(&["agents", "show", "codebase_investigator"]).ended(0);
    assert!(
        shown.contains("name: codebase_investigator") && shown.contains("\"relevant_locations\""),
        "{shown}"
    );
    let json = place.run(&["agents", "show", "codebase_investigator", "--json"]).json();
    assert_eq!(
        json["definition"]["modelConfig"],
        serde_json::json!({"temp": 0.1, "thinkingBudget": -1})
    );
    assert_eq!(json["output_schema"]["type"], "object");
    // A built-in agent can be saved to another directory, complete in itself.
    let text = place
        .run(&["agents", "show", "codebase_investigator", "--definition"])
        .ended(0);
    fs::create_dir(place.path().join("kept")).unwrap();
    fs::write(place.path().join("kept/mine.md"), text).unwrap();
    place.run(&["agents", "validate", "kept"]).ended(0);
    let kept = place
        .run_with(
            &["agents", "show", "codebase_investigator", "--json"],
            &[("GAVEL_AGENTS", "kept")],
        )
        .json();
    assert_eq!(kept["definition"]["outputConfig"]["schema"], json["output_schema"]);
    assert_eq!(kept["definition"]["toolConfig"], json["definition"]["toolConfig"]);
    let unknown = place.run(&["agents", "show", "codebase_investigater"]);
    assert!(
        unknown
            .err
            .contains("there is no agent \"codebase_investigater\" (built in); did you mean `codebase_investigator`?"),
        "{}",
        unknown.err
    );
    unknown.ended(2);
}

/// D: through every format, by files and pipes, a definition keeps its hash.
#[test]
fn agents_convert_round_trips_through_every_format() {
    let place = agents(&[("helper.md", HELPER)]);
    let hash = |file: &str| {
        place.run(&["agents", "validate", file]).ended(0);
        let directory = Path::new(file).parent().unwrap().to_str().unwrap().to_owned();
        let list = place.run_with(
            &["agents", "list", "--offline", "--json"],
            &[("GAVEL_AGENTS", &directory)],
        );
        list.rows()[0]["hash"].clone()
    };
    let before = hash("agents/helper.md");
    let mut from = "agents/helper.md".to_owned();
    for (form, ending) in [("yaml", "yml"), ("proto", "binpb"), ("json", "json"), ("md", "md")] {
        fs::create_dir(place.path().join(form)).unwrap();
        let to = format!("{form}/helper.{ending}");
        place
            .run(&["agents", "convert", &from, "--to", form, "-o", &to])
            .ended(0);
        assert_eq!(hash(&to), before, "{form}");
        from = to;
    }
    let piped = place
        .pipe(&["agents", "convert", "-", "--from", "md", "--to", "json"], HELPER)
        .json();
    assert_eq!(piped["toolConfig"]["tools"], serde_json::json!(["add_task"]));
}

#[test]
fn agents_convert_writes_nothing_for_an_invalid_definition() {
    let place = agents(&[("wrong.md", "---\nname: a b\n---\nx\n")]);
    let ran = place.run(&["agents", "convert", "agents/wrong.md", "--to", "yaml", "-o", "out.yaml"]);
    assert!(
        ran.err.contains("agents/wrong.md:2: name: ") && ran.err.contains("is not converted: 2 errors"),
        "{}",
        ran.err
    );
    ran.ended(2);
    assert!(!place.path().join("out.yaml").exists());
    let unclear = place.pipe(&["agents", "convert", "-", "--to", "yaml"], "name: a");
    assert!(unclear.err.contains("--from"), "{}", unclear.err);
    unclear.ended(2);
}

/// An existing file is overwritten only on request, and no file gets another format than its extension says.
#[test]
fn agents_convert_overwrites_only_on_request_and_checks_the_extension() {
    let place = agents(&[("helper.md", HELPER), ("other.yaml", "name: mine\n")]);
    let convert = |to: &str, more: &[&str]| {
        let args = ["agents", "convert", "agents/helper.md", "--to", "yaml", "-o", to];
        place.run(&[&args[..], more].concat())
    };
    let text = |file: &str| fs::read_to_string(place.path().join(file)).unwrap();
    let there = convert("agents/other.yaml", &[]);
    assert!(
        there.err.contains("agents/other.yaml already exists; --force"),
        "{}",
        there.err
    );
    there.ended(2);
    for more in [&[][..], &["--force"]] {
        let invalid = convert("agents/helper.md", more);
        assert!(
            invalid
                .err
                .contains("agents/helper.md would contain yaml, but its ending means md"),
            "{}",
            invalid.err
        );
        invalid.ended(2);
    }
    assert_eq!(
        (text("agents/helper.md").as_str(), text("agents/other.yaml").as_str()),
        (HELPER, "name: mine\n")
    );
    convert("agents/other.yaml", &["--force"]).ended(0);
    assert!(text("agents/other.yaml").contains("name: helper"));
    convert("anything", &[]).ended(0);
}

/// Promise: bounded faults. Endless input is read only until it is known to be too long.
#[test]
fn a_file_that_never_ends_is_too_long() {
    let place = agents(&[("helper.md", HELPER)]);
    let ran = place.run(&["agents", "convert", "/dev/zero", "--from", "yaml", "--to", "json"]);
    assert!(ran.err.contains("allowed: at most 1 MiB"), "{}", ran.err);
    ran.ended(2);
    let ran = place.run(&["agents", "run", "helper", "--input-json", "/dev/zero"]);
    assert!(ran.err.contains("is longer than 1 MiB"), "{}", ran.err);
    ran.ended(2);
}

#[test]
fn agents_schema_prints_a_json_schema() {
    let place = Place::new();
    let schema = place.run(&["agents", "schema"]).json();
    let validator = jsonschema::draft202012::new(&schema).unwrap();
    assert!(validator.is_valid(&serde_json::json!({"name": "a", "description": "d", "system_prompt": "s"})));
    assert!(!validator.is_valid(&serde_json::json!({"name": "a", "description": "d"})));
    let front_matter = place.run(&["agents", "schema", "--front-matter"]).json();
    let validator = jsonschema::draft202012::new(&front_matter).unwrap();
    assert!(validator.is_valid(&serde_json::json!({"name": "a", "description": "d"})));
    assert!(
        place
            .run(&["agents", "schema", "--reference"])
            .ended(0)
            .contains("| `modelConfig.temp` |")
    );
}

#[test]
fn the_help_of_agents_has_examples() {
    let place = Place::new();
    for verb in ["run", "validate", "list", "show", "convert", "schema"] {
        let help = place.run(&["agents", verb, "--help"]).ended(0);
        assert!(
            help.contains(&format!("gavel agents {verb}")) && help.contains("Examples:"),
            "{help}"
        );
    }
}
