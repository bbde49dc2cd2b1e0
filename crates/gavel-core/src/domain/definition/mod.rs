//! Agent definitions: what an agent is, apart from how it runs.
//!
//! There is one type, [`Definition`], and one reader for every text form. A form parses its text into a [`node::Node`]
//! tree with line numbers. [`read`] converts the tree into a definition and collects every error. [`fields`] is the
//! table of all fields, [`form`] has the four forms, and [`agents`] checks the consistency of several definitions.
//!
//! The constitution is a definition too: [`Constitution`] adds the rules of the chat surface.

mod agents;
mod arguments;
mod canonical;
mod constitution;
mod fields;
mod flow;
mod form;
mod inputs;
mod json_schema;
mod proto;
mod read;
mod values;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

pub use agents::{Agent, Agents, Checked, GrantedTool, SchemaSource, Source, answerer, check};
pub use arguments::ArgumentError;
pub use constitution::{ChatLimits, Constitution};
pub use fields::Field;
pub use flow::{Flow, FlowType, Step};
pub use form::{Form, MAX_BYTES};
use gavel_reading::OneOf;
pub use gavel_reading::ReadError;
pub use gavel_reading::{MOST_REPORTED, quoted, strict_json, unknown_name_message};
pub use json_schema::reference;
pub use json_schema::{json_schema, json_schema_of_front_matter};
pub use read::well_known_tool;
use serde_json::Value;
use values::{Held, Values};

use super::names::names;

/// An agent: persona, allowlist of tools, model and limits.
#[derive(Clone, Debug, PartialEq)]
pub struct Definition {
    /// Unique; the tool name by which other agents call it. 1..=64 of `[A-Za-z0-9_-]`.
    pub name: String,
    /// The name for people; if absent, `name`.
    pub display_name: Option<String>,
    /// What a parent agent reads to decide on delegation. Never blank.
    pub description: String,
    /// Arguments by name. Without `inputConfig`, one required string, `query`.
    pub inputs: BTreeMap<String, Input>,
    /// The output that the agent must return; if absent, plain text ends the run.
    pub output: Option<Output>,
    /// Template that formats the structured output as the final text; if absent, JSON.
    pub process_output: Option<String>,
    /// The flow of its work.
    pub flow: Flow,
    /// The prompt of the model; absent if the flow has steps, because it then calls no model itself.
    pub prompt: Option<Prompt>,
    /// Model and sampling settings.
    pub model: ModelSettings,
    /// The Google service to use; if absent, the configured one.
    pub provider: Option<Provider>,
    /// The tools that it may use, and no others. With the name of an agent it may call that agent. In the given order,
    /// without duplicates.
    pub tools: Vec<String>,
    /// The agents that it may call as tools. In the given order, without duplicates, none that `tools` names.
    pub sub_agents: Vec<SubAgent>,
    /// The limits of its runs.
    pub limits: RunLimits,
    /// When a tool call requires approval.
    pub approval: Approval,
    /// Hex SHA-256 of the canonical form: the same for the same definition in any form.
    pub hash: Arc<str>,
}

impl Definition {
    /// Parses a definition in any form. `path` is used only in errors; no file is opened.
    ///
    /// # Errors
    /// All errors, in the order of their lines.
    pub fn read(bytes: &[u8], form: Form, path: &str) -> Result<Self, Vec<ReadError>> {
        form::read(bytes, form, path).definition
    }

    /// As [`Self::read`], for a caller that already has the errors: an invalid definition returns its name, if it has
    /// one.
    pub fn read_named(bytes: &[u8], form: Form) -> Result<Self, Option<String>> {
        let read = form::read(bytes, form, "");
        read.definition.map_err(|_| read.name)
    }

    /// Writes the definition in any form; each form parses back into the same definition.
    pub fn write(&self, form: Form) -> Vec<u8> {
        form::write(self, form)
    }

    /// Inserts the output schema if the definition only names one.
    pub fn put_in_schema(&mut self, schema: &Value) {
        if let Some(output) = &mut self.output
            && let OutputSchema::Named(_) = output.schema
        {
            output.schema = OutputSchema::Inline(schema.clone());
            self.hash = canonical::hash(self);
        }
    }

    /// The agents that it calls: sub-agents, those that `tools` names, and those of its steps, with repetitions.
    /// `is_agent` reports whether a name is an agent.
    pub fn calls(&self, is_agent: impl Fn(&str) -> bool) -> Vec<&str> {
        let sub_agents = self.sub_agents.iter().map(|sub_agent| sub_agent.agent.as_str());
        let tools = self.tools.iter().map(String::as_str).filter(|name| is_agent(name));
        let steps = self.flow.steps().iter().map(|step| step.agent.as_str());
        sub_agents.chain(tools).chain(steps).collect()
    }

    /// The server tools that it may use: the names in `tools` that are not agents.
    pub fn server_tools(&self, is_agent: impl Fn(&str) -> bool) -> Vec<String> {
        self.tools.iter().filter(|name| !is_agent(name)).cloned().collect()
    }

    /// The timeout that it sets for an agent that its model calls, if any.
    pub fn timeout_of(&self, agent: &str) -> Option<Duration> {
        let mut sub_agents = self.sub_agents.iter();
        sub_agents.find(|sub_agent| sub_agent.agent == agent)?.timeout
    }

    /// Whether it calls a model itself. If not, its tools and its approval have no effect and are not written.
    fn calls_model(&self) -> bool {
        self.flow.steps().is_empty()
    }

    /// The portable form as JSON, with canonical spellings and without absent fields. The hash covers this form.
    pub fn to_json(&self) -> Value {
        canonical::Tree::new(self).into()
    }
}

/// An agent that another agent may call as a tool (`sub_agents`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubAgent {
    /// Its name.
    pub agent: String,
    /// Its time limit, which replaces its own; whole seconds.
    pub timeout: Option<Duration>,
}

/// An argument of an agent (`inputConfig.inputs`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Input {
    /// Its purpose.
    pub description: String,
    /// Its type.
    pub kind: InputType,
    /// Whether it is required; if absent, it is optional.
    pub required: bool,
}

names! {
    /// The type of an [`Input`].
    InputType {
        /// `string`
        String = "string",
        /// `number`
        Number = "number",
        /// `integer`
        Integer = "integer",
        /// `boolean`
        Boolean = "boolean",
        /// `string[]`
        Strings = "string[]",
        /// `number[]`
        Numbers = "number[]",
        /// `integer[]`
        Integers = "integer[]",
        /// `boolean[]`
        Booleans = "boolean[]",
    }
}

/// The output that an agent must return (`outputConfig`).
#[derive(Clone, Debug, PartialEq)]
pub struct Output {
    /// The argument of `complete_task` that carries it.
    pub name: String,
    /// Its description.
    pub description: String,
    /// The schema that it must match.
    pub schema: OutputSchema,
}

/// The location of an output's schema.
#[derive(Clone, Debug, PartialEq)]
pub enum OutputSchema {
    /// A registered schema, `agents/schemas/NAME.json`.
    Named(String),
    /// A JSON Schema in the definition itself.
    Inline(Value),
}

/// The prompt of the model (`promptConfig`). `${name}` is replaced by an input, in both texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prompt {
    /// The first user message; if absent, `${query}`.
    pub query: String,
    /// Persona and rules.
    pub system_prompt: String,
}

names! {
    /// When a tool call requires approval, from the least to the most often.
    #[derive(Default)]
    Approval {
        /// Never: the listed tools require no approval.
        Never = "never",
        /// For every tool that can change something.
        #[default]
        SideEffects = "side_effects",
        /// For every tool.
        Always = "always",
    }
}

names! {
    /// A Google service that offers Gemini.
    Provider {
        /// The Gemini Developer API.
        Gemini = "gemini",
        /// Vertex AI.
        Vertex = "vertex",
    }
}

/// Declares a struct of optional fields of one group, each with its field in the table.
macro_rules! settings {
    ($(#[$meta:meta])* pub struct $group:ident {
        $($(#[$about:meta])+ $name:ident: $type:ty = $field:ident;)+
    }) => {
        $(#[$meta])*
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct $group { $($(#[$about])+ pub $name: Option<$type>,)+ }

        impl $group {
            fn read(values: &Values<'_>) -> Self {
                Self { $($name: <$type>::read(values, Field::$field),)+ }
            }
        }
    };
}

settings! {
    /// Model and sampling settings of a definition (`modelConfig`).
    pub struct ModelSettings {
        /// Model name; if absent, the configured one.
        model: String = Model;
        /// `temp`, 0..=2.
        temperature: f32 = Temperature;
        /// `top_p`, 0..=1.
        top_p: f32 = TopP;
        /// `thinkingBudget`, −1 = unlimited.
        thinking_budget: i32 = ThinkingBudget;
        /// `thinkingLevel`, never beside a budget.
        thinking_level: ThinkingLevel = ThinkingLevel;
        /// `includeThoughts`: whether the model summarizes its thinking. If absent: yes in an agent's run, no in a chat.
        include_thoughts: bool = IncludeThoughts;
        /// The most tokens of one answer.
        max_output_tokens: u32 = MaxOutputTokens;
    }
}

settings! {
    /// The limits of a run (`runConfig`).
    #[derive(Copy, Eq)]
    pub struct RunLimits {
        /// Model calls, without retries.
        max_turns: u32 = MaxTurns;
        /// Input and output tokens over all model calls.
        max_tokens: u32 = MaxTokens;
        /// Wall-clock time; whole seconds.
        max_time: Duration = DeadlineSeconds;
    }
}

names! {
    /// How much a model thinks, from the least to the most. No model knows all of them.
    ThinkingLevel {
        /// As little as possible.
        Minimal = "minimal",
        /// Little.
        Low = "low",
        /// Some.
        Medium = "medium",
        /// Much.
        High = "high",
        /// More than a budget can ask for.
        Xhigh = "xhigh",
    }
}

impl Held for ThinkingLevel {
    fn read(values: &Values<'_>, field: Field) -> Option<Self> {
        values.take(field, OneOf(Self::NAMES))
    }

    fn to_json(&self) -> Value {
        self.as_str().into()
    }
}
