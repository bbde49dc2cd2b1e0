//! Agent definitions: what an agent is, apart from how it runs (DESIGN.md section 4).
//!
//! One type, [`Definition`], and one reader for every text form. A form turns its text into a
//! [`node::Node`] tree that knows its lines; [`read`] turns the tree into a definition and collects
//! every error on the way. [`fields`] is the table of all fields, [`form`] the four forms, and [`agents`] checks what
//! several definitions must agree on.
//!
//! The constitution is a definition too: [`Constitution`] adds the rules of the chat surface.

mod agents;
mod arguments;
mod canonical;
mod constitution;
mod duration;
mod error;
mod fields;
mod flow;
mod form;
mod inputs;
mod json;
mod json_schema;
mod markdown;
mod model_settings;
pub(crate) mod nearest;
mod node;
mod prompt;
mod proto;
mod read;
mod reference;
mod schema;
mod tree;
mod unknown;
mod values;
mod well_known;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

pub use agents::{Agent, Agents, Checked, GrantedTool, SchemaSource, Source, answerer, check};
pub use arguments::ArgumentError;
pub use constitution::{ChatLimits, Constitution};
pub use error::DefinitionError;
pub(crate) use error::MOST_TOLD;
pub(crate) use fields::Field;
pub use flow::{Flow, Step};
pub use form::{Form, MAX_BYTES};
pub use json_schema::{json_schema, json_schema_of_front_matter};
pub use model_settings::ModelSettings;
use node::SyntaxError;
pub(crate) use node::{Content, Key, Node, quoted};
pub use reference::reference;
pub(crate) use unknown::unknown_name_message;
pub use well_known::well_known_tool;

/// Reads JSON of a caller in which no key may stand twice: what one reader takes first another takes last.
///
/// # Errors
/// What is wrong, with its line.
pub(crate) fn strict_json(bytes: &[u8]) -> Result<Value, String> {
    let text = std::str::from_utf8(bytes).map_err(|error| error.to_string())?;
    json::strict(text).map_err(|SyntaxError { line, message }| match line {
        Some(line) => format!("{message}, line {line}"),
        None => message,
    })
}

/// An agent: persona, grant, model and limits.
#[derive(Clone, Debug, PartialEq)]
pub struct Definition {
    /// Unique; the name under which the agent is called as a tool. 1..=64 of `[A-Za-z0-9_-]`.
    pub name: String,
    /// The name for people; absent: `name`.
    pub display_name: Option<String>,
    /// What a parent agent reads to decide on delegation. Never blank.
    pub description: String,
    /// Arguments by name. Without `inputConfig` one required string, `query`.
    pub inputs: BTreeMap<String, Input>,
    /// What the agent has to hand in; absent: plain text ends the run.
    pub output: Option<Output>,
    /// Template that formats the structured output into the final string; absent: JSON.
    pub process_output: Option<String>,
    /// How it goes about its work.
    pub flow: Flow,
    /// What the model is told; absent where the flow has steps, since then it asks no model itself.
    pub prompt: Option<Prompt>,
    /// Model and sampling.
    pub model: ModelSettings,
    /// Through which of Google's services; absent: the configured one.
    pub provider: Option<Provider>,
    /// The tools granted, and no others; where an agent has one of these names, that agent. In the order given, no name twice.
    pub tools: Vec<String>,
    /// The agents that it may call as tools. In the order given, none twice, none that `tools` names.
    pub sub_agents: Vec<SubAgent>,
    /// How long it may go on.
    pub limits: RunLimits,
    /// When a person must agree.
    pub approval: Approval,
    /// Hex SHA-256 of the canonical form: the same for the same definition in any form.
    pub hash: Arc<str>,
}

impl Definition {
    /// Reads Markdown with YAML front matter; the body is the system prompt. `path` is only named
    /// in errors, nothing is opened.
    ///
    /// # Errors
    /// Every error of the text at once, in the order of its lines.
    pub fn from_markdown(text: &str, path: &str) -> Result<Self, Vec<DefinitionError>> {
        Self::read(text.as_bytes(), Form::Markdown, path)
    }

    /// Reads a definition in any form. `path` is only named in errors, nothing is opened.
    ///
    /// # Errors
    /// Every error at once, in the order of their lines.
    pub fn read(bytes: &[u8], form: Form, path: &str) -> Result<Self, Vec<DefinitionError>> {
        match form::read(bytes, form, path) {
            Ok((definition, _)) => Ok(definition),
            Err(refused) => Err(refused.errors),
        }
    }

    /// As [`Self::read`] for whoever has the errors already: what one that is wrong calls itself, if it says so.
    pub(crate) fn read_named(bytes: &[u8], form: Form) -> Result<Self, Option<String>> {
        match form::read(bytes, form, "") {
            Ok((definition, _)) => Ok(definition),
            Err(refused) => Err(refused.name),
        }
    }

    /// Writes it in any form; each reads back as the same definition.
    #[must_use]
    pub fn write(&self, form: Form) -> Vec<u8> {
        form::write(self, form)
    }

    /// Puts the schema of its output into it, where it only names one.
    pub fn put_in_schema(&mut self, schema: &Value) {
        if let Some(output) = &mut self.output
            && let OutputSchema::Named(_) = output.schema
        {
            output.schema = OutputSchema::Inline(schema.clone());
            self.hash = canonical::hash(self);
        }
    }

    /// The agents that it calls: sub-agents, those that `tools` names, and those of its steps. Each as often as it names them.
    /// `is_agent` says whether there is an agent of a name.
    #[must_use]
    pub fn calls(&self, is_agent: impl Fn(&str) -> bool) -> Vec<&str> {
        let sub_agents = self.sub_agents.iter().map(|sub_agent| sub_agent.agent.as_str());
        let tools = self.tools.iter().map(String::as_str).filter(|name| is_agent(name));
        let steps = self.flow.steps().iter().map(|step| step.agent.as_str());
        sub_agents.chain(tools).chain(steps).collect()
    }

    /// The tools that it is granted of servers: what `tools` names without the agents among them.
    #[must_use]
    pub fn server_tools(&self, is_agent: impl Fn(&str) -> bool) -> Vec<String> {
        self.tools.iter().filter(|name| !is_agent(name)).cloned().collect()
    }

    /// The time that it gives an agent which its model calls, where it says so.
    #[must_use]
    pub fn timeout_of(&self, agent: &str) -> Option<Duration> {
        let mut sub_agents = self.sub_agents.iter();
        sub_agents.find(|sub_agent| sub_agent.agent == agent)?.timeout
    }

    /// The portable form as JSON, canonical spellings, nothing that is absent. What the hash is
    /// taken of.
    #[must_use]
    pub fn to_json(&self) -> Value {
        canonical::to_json(self)
    }
}

/// An agent that another one may call as a tool (`sub_agents`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubAgent {
    /// Its name.
    pub agent: String,
    /// How long it may take, in the place of its own limit; whole seconds.
    pub timeout: Option<Duration>,
}

/// One argument of an agent (`inputConfig.inputs`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Input {
    /// What it is for.
    pub description: String,
    /// What it holds.
    pub kind: InputType,
    /// Must it be given? Absent: no.
    pub required: bool,
}

/// The type of an [`Input`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputType {
    /// `string`
    String,
    /// `number`
    Number,
    /// `integer`
    Integer,
    /// `boolean`
    Boolean,
    /// `string[]`
    Strings,
    /// `number[]`
    Numbers,
    /// `integer[]`
    Integers,
    /// `boolean[]`
    Booleans,
}

impl InputType {
    /// Every type with its name in a definition.
    pub const NAMES: [(&'static str, Self); 8] = [
        ("string", Self::String),
        ("number", Self::Number),
        ("integer", Self::Integer),
        ("boolean", Self::Boolean),
        ("string[]", Self::Strings),
        ("number[]", Self::Numbers),
        ("integer[]", Self::Integers),
        ("boolean[]", Self::Booleans),
    ];
}

/// What an agent has to hand in (`outputConfig`).
#[derive(Clone, Debug, PartialEq)]
pub struct Output {
    /// The argument of `complete_task` that carries it.
    pub name: String,
    /// What it is.
    pub description: String,
    /// What it has to conform to.
    pub schema: OutputSchema,
}

/// Where an output's schema stands.
#[derive(Clone, Debug, PartialEq)]
pub enum OutputSchema {
    /// A registered schema, `agents/schemas/NAME.json`.
    Named(String),
    /// A JSON Schema in the definition itself.
    Inline(Value),
}

/// What the model is told (`promptConfig`). `${name}` stands for an input, in both texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prompt {
    /// The first user message; absent: `${query}`.
    pub query: String,
    /// Persona and rules.
    pub system_prompt: String,
}

/// How long a run may go on (`runConfig`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunLimits {
    /// Model calls, retries not counted.
    pub max_turns: Option<u32>,
    /// Tokens over all model calls, in and out.
    pub max_tokens: Option<u32>,
    /// Wall clock; whole seconds.
    pub max_time: Option<Duration>,
}

/// When a person must agree to a tool call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Approval {
    /// The grant is the permission.
    Never,
    /// For every tool that may change something.
    #[default]
    SideEffects,
    /// For every tool.
    Always,
}

impl Approval {
    /// Every mode with its name in a definition.
    pub const NAMES: [(&'static str, Self); 3] = [
        ("never", Self::Never),
        ("side_effects", Self::SideEffects),
        ("always", Self::Always),
    ];

    /// The name in a definition.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Never => "never",
            Self::SideEffects => "side_effects",
            Self::Always => "always",
        }
    }
}

/// One of Google's services that offer Gemini.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Provider {
    /// The Gemini Developer API.
    Gemini,
    /// Vertex AI.
    Vertex,
}

impl Provider {
    /// Each with its name in a definition.
    pub const NAMES: [(&'static str, Self); 2] = [("gemini", Self::Gemini), ("vertex", Self::Vertex)];

    /// The name in a definition.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Gemini => "gemini",
            Self::Vertex => "vertex",
        }
    }
}
