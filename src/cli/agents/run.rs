//! `gavel agents run`: runs an agent, in this process or on a remote gavel, and follows the run to its end.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::bail;
use chrono_tz::Tz;
use serde_json::{Map, Number, Value};

use super::others;
use crate::api::agents::{AgentDetail, AgentPage};
use crate::api::runs::AgentRun;
use crate::cli::client::{Query, Refused, Wait, segment};
use crate::cli::exit::{Exit, Usage};
use crate::cli::gavel::{Gavel, Talk, Work};
use crate::cli::interrupt::{or_stopped, or_stopped_with};
use crate::cli::runs::{self, OnInterrupt, STATUSES, Showing, follow};
use crate::cli::{lines, output};
use crate::config::{Config, Provider};
use crate::domain::definition::{Definition, Form, InputType, strict_json};
use crate::domain::ids::{DEFAULT_PROJECT, ProjectId};

/// Options of `gavel agents run`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = format!("{EXAMPLES}\n\n{STATUSES}"))]
pub(crate) struct Args {
    /// The agent
    name: String,
    /// Its task, if it takes one text (without inputConfig: its query)
    #[arg(value_name = "TEXT", num_args = 0..)]
    text: Vec<String>,
    /// An input, read as its declared type (repeatable); a list as a,b or once per element
    #[arg(long, value_name = "NAME=VALUE")]
    input: Vec<String>,
    /// Inputs as a JSON object; - is standard input
    #[arg(long, value_name = "FILE")]
    input_json: Option<String>,
    /// Overrides the definition's time limit
    #[arg(long, value_name = "SECONDS", value_parser = runs::timeout)]
    timeout: Option<Duration>,
    /// The user's time zone, an IANA name [default: this machine's]
    #[arg(long, value_name = "NAME")]
    time_zone: Option<Tz>,
    /// The project of the agent
    #[arg(long, default_value = DEFAULT_PROJECT, value_name = "NAME")]
    project: ProjectId,
    /// Do not wait for the end: print the run's id. Only with --server: without it, this process executes the run
    #[arg(long, requires = "server", conflicts_with_all = ["json", "events"])]
    background: bool,
    #[command(flatten)]
    showing: Showing,
}

const EXAMPLES: &str = "\
Examples:
  gavel agents run reviewer \"look at the last change\"
  FILES_ROOT=. gavel agents run codebase_investigator \"where does the policy check tool calls?\"
  gavel agents run --json codebase_investigator \"what is tested?\" | jq .output
  gavel agents run report --input year=2026 --input regions=north,south --input draft=true
  gavel agents run report --input-json - <inputs.json
  gavel agents run --server http://localhost:8080 --background reviewer \"look at the last change\"

Progress goes to standard error, only the result to standard output. Ctrl-C cancels the run and \
waits for its end; a second Ctrl-C stops waiting. `gavel agents show NAME` lists the inputs that \
an agent takes.";

impl Talk for Args {
    const WORK: Work = Work::Act;

    async fn before(&self, config: &Config) -> anyhow::Result<()> {
        if let Provider::Demo { by_name } = config.model.provider
            && !self.showing.quiet
        {
            let why = if by_name { "" } else { "No credentials are set: " };
            output::note(&format!(
                "{why}the demo model answers. It understands no agents, only a few simple requests about tasks and \
                 `call TOOL {{JSON}}`, so its results mean nothing. Set GEMINI_API_KEY to use Gemini."
            ));
        }
        Ok(())
    }

    async fn talk(&self, gavel: &Gavel) -> anyhow::Result<Exit> {
        let object = self.input_json.as_deref();
        let object = object.map(|file| lines::given(file, "--input-json")).transpose()?;
        let inputs = or_stopped(inputs_of(self, object.as_deref(), gavel)).await?;
        let path = format!("{}/trigger", path(&self.project, &self.name));
        let mut query = runs::with_timeout(self.timeout);
        query.extend(runs::time_zone(self.time_zone).map(|zone| ("time_zone", zone)));
        let unknown = format!("the run has begun; `{}` shows it", gavel.command("runs list"));
        let begun = gavel.post::<AgentRun>(&path, &query, Wait::Created, &inputs);
        let run = or_stopped_with(begun, &unknown).await?.id;
        if self.background {
            return runs::in_background(gavel, run, "runs watch", self.showing.quiet);
        }
        follow(gavel, run, self.showing, OnInterrupt::Cancels, 0).await
    }
}

/// The inputs that the command line gives. No run has begun if they are invalid or the agent is unavailable.
async fn inputs_of(args: &Args, object: Option<&str>, gavel: &Gavel) -> anyhow::Result<Map<String, Value>> {
    if !args.text.is_empty() && args.text.iter().all(|word| word.trim().is_empty()) {
        return Err(Usage("the text is blank; give the agent a task".to_owned()).into());
    }
    let agent = agent(args, gavel).await?;
    let text = agent.definition.to_string();
    let Ok(definition) = Definition::read(text.as_bytes(), Form::Json, &args.name) else {
        bail!(
            "this gavel cannot read the definition of {}; the server may be newer",
            args.name
        );
    };
    let object = args.input_json.as_deref().zip(object);
    let text = (!args.text.is_empty()).then(|| args.text.join(" "));
    let inputs = inputs(&definition, &args.input, object, text).map_err(|errors| {
        let errors = output::printable(&errors.join("\n  "));
        Usage(format!(
            "the inputs are invalid:\n  {errors}\n{} takes:{}",
            args.name,
            takes(&definition)
        ))
    })?;
    if !agent.about.available {
        let reason = agent.about.unavailable_reason.as_deref();
        let reason = reason.unwrap_or("its server does not say why");
        bail!("{} is unavailable: {}", args.name, output::printable(reason));
    }
    Ok(inputs)
}

fn path(project: &ProjectId, agent: &str) -> String {
    format!("api/projects/{}/agents/{}", segment(project.as_str()), segment(agent))
}

/// The agent, once the servers of its tools are connected.
async fn agent(args: &Args, gavel: &Gavel) -> anyhow::Result<AgentDetail> {
    let is_missing = |error: &anyhow::Error| Refused::has_code(error, "not_found");
    let path = path(&args.project, &args.name);
    match gavel.get::<AgentDetail>(&path).await {
        Err(error) if is_missing(&error) => {}
        Ok(agent) if !agent.about.available => {
            gavel.connect_servers_of(&args.project, &args.name).await?;
            return gavel.get(&path).await;
        }
        agent => return agent,
    }
    // For a user who mistyped the name of one.
    let query = Query {
        page_size: 1000,
        ..Query::default()
    };
    let all = format!("api/projects/{}/agents", segment(args.project.as_str()));
    let known = gavel.page::<AgentPage, _>(&all, &query).await;
    let known = known.map_err(|error| match is_missing(&error) {
        true => Usage(format!("there is no project {} with agents", args.project)).into(),
        false => error,
    })?;
    let known: Vec<_> = known.items.iter().map(|agent| agent.id.as_str()).collect();
    Err(Usage(format!(
        "the project {} has no agent {:?}{}",
        args.project,
        args.name,
        others(&args.name, &known)
    ))
    .into())
}

/// Each input on a line.
fn takes(definition: &Definition) -> String {
    let inputs = definition.inputs.iter().map(|(name, input)| {
        let required = if input.required { ", required" } else { "" };
        let line = format!("{name} ({}{required}): {}", input.kind.as_str(), input.description);
        format!("\n  {}", output::printable(&line).replace('\n', " "))
    });
    inputs.collect()
}

/// The inputs of a run, of `NAME=VALUE` pairs, a JSON object with where it came from, and a text without a name.
///
/// # Errors
/// Every error in them.
fn inputs(
    definition: &Definition,
    pairs: &[String],
    object: Option<(&str, &str)>,
    text: Option<String>,
) -> Result<Map<String, Value>, Vec<String>> {
    let (mut inputs, mut errors) = (Map::new(), Vec::new());
    if let Some((place, text)) = object {
        match strict_json(text.as_bytes()) {
            Ok(Value::Object(given)) => inputs = given,
            Ok(_) => errors.push(format!("--input-json {place}: is not a JSON object of inputs by name")),
            Err(error) => errors.push(format!("--input-json {place}: is not JSON: {error}")),
        }
    }
    // A name whose value is invalid is not also reported as missing.
    let mut invalid = Vec::new();
    let mut add = |name: &str, value: Value, place: &str, errors: &mut Vec<String>| {
        if inputs.insert(name.to_owned(), value).is_some() {
            errors.push(format!("{place}: {name} is already given"));
        }
    };
    let mut named: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for pair in pairs {
        match pair.split_once('=') {
            Some((name, value)) => named.entry(name).or_default().push(value),
            None => errors.push(format!("--input {pair}: is not NAME=VALUE")),
        }
    }
    for (name, values) in named {
        let place = format!("--input {name}");
        // The definition reports an unknown name, with the name that may be meant.
        let kind = definition
            .inputs
            .get(name)
            .map_or(InputType::String, |input| input.kind);
        match typed(kind, &values) {
            Ok(value) => add(name, value, &place, &mut errors),
            Err(problem) => {
                invalid.push(name);
                errors.push(format!("{place}: {problem}; allowed: {}", kind.as_str()));
            }
        }
    }
    if let Some(text) = text {
        match definition.text_input() {
            Some(name) => add(name, text.into(), "TEXT", &mut errors),
            None => errors.push(format!(
                "TEXT: {} takes more than one text, or none; give each with --input NAME=VALUE",
                definition.name
            )),
        }
    }
    match definition.check_arguments(inputs) {
        Ok(inputs) if errors.is_empty() => Ok(inputs),
        Ok(_) => Err(errors),
        Err(found) => {
            let others = found.iter().filter(|error| !invalid.contains(&error.name.as_str()));
            errors.extend(others.map(ToString::to_string));
            Err(errors)
        }
    }
}

/// A list is given once, with commas, or with the option repeated for each element.
fn typed(kind: InputType, values: &[&str]) -> Result<Value, String> {
    let Some(element) = kind.element() else {
        return match values {
            [value] => one(kind, value),
            _ => Err("is given more than once".to_owned()),
        };
    };
    let elements: Vec<&str> = match values {
        [""] => Vec::new(),
        [list] => list.split(',').collect(),
        many => many.to_vec(),
    };
    elements.into_iter().map(|value| one(element, value)).collect()
}

fn one(kind: InputType, text: &str) -> Result<Value, String> {
    let found = match kind {
        InputType::Number => text.trim().parse::<Number>().ok().map(Value::from),
        InputType::Integer => text.trim().parse::<i64>().ok().map(Value::from),
        InputType::Boolean => text.trim().parse::<bool>().ok().map(Value::from),
        _ => Some(Value::from(text)),
    };
    found.ok_or_else(|| format!("{text:?} is not of type {}", kind.as_str()))
}

#[cfg(test)]
mod inputs_tests {
    use serde_json::json;

    use super::*;

    fn definition(inputs: &str) -> Definition {
        let text = format!(
            r#"{{"name": "a", "description": "d", "inputConfig": {{"inputs": {inputs}}},
                 "promptConfig": {{"systemPrompt": "s", "query": "{}"}}}}"#,
            serde_json::from_str::<Map<String, Value>>(inputs)
                .unwrap()
                .keys()
                .map(|name| format!("${{{name}}}"))
                .collect::<String>()
        );
        Definition::read(text.as_bytes(), crate::domain::definition::Form::Json, "a").unwrap()
    }

    fn every_type() -> Definition {
        definition(
            r#"{"s": {"description": "d", "type": "string", "required": true}, "n": {"description": "d", "type": "number"},
                "i": {"description": "d", "type": "integer"}, "b": {"description": "d", "type": "boolean"},
                "ss": {"description": "d", "type": "string[]"}, "ii": {"description": "d", "type": "integer[]"}}"#,
        )
    }

    fn pairs(pairs: &[&str]) -> Vec<String> {
        pairs.iter().map(|pair| (*pair).to_owned()).collect()
    }

    #[test]
    fn values_have_the_types_of_the_definition() {
        let given = pairs(&["s=a=b", "n=-1.5e3", "i=7", "b=true", "ss=a,b", "ii=1", "ii=2"]);
        let read = inputs(&every_type(), &given, None, None).unwrap();
        assert_eq!(
            Value::Object(read),
            json!({"s": "a=b", "n": -1500.0, "i": 7, "b": true, "ss": ["a", "b"], "ii": [1, 2]})
        );
        let given = pairs(&["ss=a,b", "ss=c", "ii="]);
        let object = Some(("-", r#"{"b": false}"#));
        let read = inputs(&every_type(), &given, object, Some("words".to_owned())).unwrap();
        assert_eq!(
            Value::Object(read),
            json!({"s": "words", "ss": ["a,b", "c"], "ii": [], "b": false}),
            "TEXT is the only required string, and a list option that is given twice is read element by element"
        );
    }

    #[test]
    fn every_error_is_reported_at_once() {
        let given = pairs(&["i=1.5", "b=yes", "n=1", "n=2", "sss=x", "nothing", "ii=1,x"]);
        let object = Some(("in.json", r#"{"ss": "a"}"#));
        assert_eq!(
            inputs(&every_type(), &given, object, None).unwrap_err(),
            [
                "--input nothing: is not NAME=VALUE",
                "--input b: \"yes\" is not of type boolean; allowed: boolean",
                "--input i: \"1.5\" is not of type integer; allowed: integer",
                "--input ii: \"x\" is not of type integer; allowed: integer[]",
                "--input n: is given more than once; allowed: number",
                "ss: is a string; allowed: string[]",
                "sss: is not an argument of a; allowed: did you mean `ss`?",
                "s: is missing; string is required",
            ]
        );
    }

    #[test]
    fn text_goes_to_no_argument_that_could_be_another() {
        let two = definition(
            r#"{"a": {"description": "d", "type": "string", "required": true}, "b": {"description": "d", "type": "string", "required": true}}"#,
        );
        let number = definition(r#"{"a": {"description": "d", "type": "number", "required": true}}"#);
        for definition in [two, number] {
            let errors = inputs(&definition, &[], None, Some("x".to_owned())).unwrap_err();
            assert!(
                errors[0].starts_with("TEXT: a takes more than one text, or none"),
                "{errors:?}"
            );
        }
        let optional = definition(r#"{"a": {"description": "d", "type": "string"}}"#);
        let read = inputs(&optional, &[], None, Some("x".to_owned())).unwrap();
        assert_eq!(read["a"], "x");
    }
}
