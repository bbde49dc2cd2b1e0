//! The protobuf form: `proto/gemini/agent/v1/agent.proto`.

use std::collections::BTreeMap;

use prost::Message;

use super::canonical::shortest;
use super::{Approval, Definition, Flow, InputType, OutputSchema, Provider, Step, SubAgent};
use crate::domain::canonical as json_text;
use gavel_reading::{Content, Key, Node};

/// Generated from the `.proto` file; `tests/definition/protobuf.rs` keeps it current.
#[rustfmt::skip]
#[allow(missing_docs, unreachable_pub, clippy::all)]
mod message;

use message::{AgentDefinition, FlowType};

/// Parses a message into the same tree as the other forms. It has no lines.
pub(super) fn parse(bytes: &[u8]) -> Result<Node, String> {
    let read = AgentDefinition::decode(bytes).map_err(|error| format!("bytes that are not this message ({error})"))?;
    // prost drops unknown fields, and then the parsed message is shorter than the bytes.
    if read.encoded_len() != bytes.len() {
        let (known, given) = (read.encoded_len(), bytes.len());
        return Err(format!(
            "fields that this version does not know, or a duplicate field ({known} of {given} bytes are understood)"
        ));
    }
    Ok(tree(read))
}

/// A node without a line.
fn node(content: Content) -> Node {
    Node { line: 0, content }
}

fn text(text: String) -> Option<Node> {
    (!text.is_empty()).then(|| node(Content::Text(text)))
}

fn whole(value: i32) -> Node {
    node(Content::Integer(value.into()))
}

/// Stored as people write it: 0.1, not 0.10000000149011612. A value that is not a number is kept, and the reader
/// rejects it.
fn float(value: f32) -> Node {
    let value = if value.is_finite() {
        shortest(value)
    } else {
        f64::from(value)
    };
    node(Content::Float(value))
}

fn texts(texts: Vec<String>) -> Option<Node> {
    let items: Vec<_> = texts.into_iter().map(|text| node(Content::Text(text))).collect();
    (!items.is_empty()).then(|| node(Content::List(items)))
}

/// A map of the fields that are present.
fn map(fields: impl IntoIterator<Item = (impl Into<String>, Option<Node>)>) -> Node {
    let entries = fields.into_iter().filter_map(|(name, value)| {
        let key = Key {
            line: 0,
            name: name.into(),
        };
        Some((key, value?))
    });
    node(Content::Map(entries.collect()))
}

/// An enum value by its name; an unknown number remains a number; 0 is absent.
fn choice(number: i32, names: &[&str]) -> Option<Node> {
    let at = usize::try_from(number).ok();
    match at {
        Some(0) => None,
        Some(at) if at <= names.len() => text(names[at - 1].to_owned()),
        _ => Some(whole(number)),
    }
}

/// The names of an enum, in the order of its numbers from 1.
const APPROVALS: [&str; 3] = ["never", "side_effects", "always"];
const FLOWS: [&str; 3] = ["single", "sequential", "loop"];
const PROVIDERS: [&str; 2] = ["gemini", "vertex"];

fn tree(read: AgentDefinition) -> Node {
    let inputs = read.input_config.map(|config| {
        let argument = |argument: message::InputArgument| {
            map([
                ("description", text(argument.description)),
                ("type", text(argument.r#type)),
                ("required", Some(node(Content::Bool(argument.required)))),
            ])
        };
        let inputs = config.inputs.into_iter().map(|(name, one)| (name, Some(argument(one))));
        map([("inputs", Some(map(inputs)))])
    });
    let output = read.output_config.map(|config| {
        map([
            ("output_name", text(config.output_name)),
            ("description", text(config.description)),
            ("schema", text(config.schema)),
        ])
    });
    let prompt = read.prompt_config.map(|config| {
        map([
            ("query", text(config.query)),
            ("system_prompt", text(config.system_prompt)),
        ])
    });
    let model = read.model_config.map(|config| {
        map([
            ("model", text(config.model)),
            ("temperature", config.temperature.map(float)),
            ("top_p", config.top_p.map(float)),
            ("thinking_budget", config.thinking_budget.map(whole)),
            ("thinking_level", text(config.thinking_level)),
            (
                "include_thoughts",
                config.include_thoughts.map(|value| node(Content::Bool(value))),
            ),
            ("max_output_tokens", config.max_output_tokens.map(whole)),
            ("provider", choice(config.provider, &PROVIDERS)),
        ])
    });
    let run = read.run_config.map(|config| {
        map([
            ("max_time_minutes", config.max_time_minutes.map(whole)),
            ("max_turns", config.max_turns.map(whole)),
            ("max_tokens", config.max_tokens.map(whole)),
            ("deadline_seconds", config.deadline_seconds.map(whole)),
        ])
    });
    let steps: Vec<_> = read.steps.into_iter().map(step).collect();
    let sub_agents: Vec<_> = read.sub_agents.into_iter().map(sub_agent).collect();
    map([
        ("name", text(read.name)),
        ("display_name", text(read.display_name)),
        ("description", text(read.description)),
        ("input_config", inputs),
        ("output_config", output),
        ("prompt_config", prompt),
        ("model_config", model),
        (
            "tool_config",
            read.tool_config.map(|config| map([("tools", texts(config.tools))])),
        ),
        ("run_config", run),
        ("process_output", read.process_output.and_then(text)),
        ("approval", choice(read.approval, &APPROVALS)),
        ("flow_type", choice(read.flow_type, &FLOWS)),
        ("steps", (!steps.is_empty()).then(|| node(Content::List(steps)))),
        ("max_iterations", read.max_iterations.map(whole)),
        (
            "sub_agents",
            (!sub_agents.is_empty()).then(|| node(Content::List(sub_agents))),
        ),
    ])
}

fn step(step: message::Step) -> Node {
    let input = step
        .input
        .into_iter()
        .map(|(name, template)| (name, Some(node(Content::Text(template)))));
    map([
        ("name", text(step.name)),
        ("agent", text(step.agent)),
        ("input", Some(map(input))),
        ("timeout", step.timeout_seconds.map(whole)),
    ])
}

fn sub_agent(sub_agent: message::SubAgent) -> Node {
    map([
        ("agent", text(sub_agent.agent)),
        ("timeout", sub_agent.timeout_seconds.map(whole)),
    ])
}

/// Writes the message.
pub(super) fn write(definition: &Definition) -> Vec<u8> {
    let inputs = definition.inputs.iter().map(|(name, input)| {
        let kind = InputType::NAMES.iter().find(|(_, kind)| *kind == input.kind);
        let argument = message::InputArgument {
            description: input.description.clone(),
            r#type: kind.map_or("", |(name, _)| name).to_owned(),
            required: input.required,
        };
        (name.clone(), argument)
    });
    let output = definition.output.as_ref().map(|output| message::OutputConfig {
        output_name: output.name.clone(),
        description: output.description.clone(),
        schema: match &output.schema {
            OutputSchema::Named(name) => name.clone(),
            OutputSchema::Inline(schema) => json_text::to_raw(schema).get().to_owned(),
        },
    });
    let prompt = definition.prompt.as_ref().map(|prompt| message::PromptConfig {
        query: prompt.query.clone(),
        system_prompt: prompt.system_prompt.clone(),
    });
    let model = &definition.model;
    let seconds = definition.limits.max_time.map(|time| time.as_secs());
    let minutes = seconds.filter(|seconds| seconds % 60 == 0).map(|seconds| seconds / 60);
    let has_steps = !definition.flow.steps().is_empty();
    let flow = match &definition.flow {
        Flow::Single => FlowType::Unspecified,
        Flow::Sequential { .. } => FlowType::Sequential,
        Flow::Loop { .. } => FlowType::Loop,
    };
    let max_iterations = match &definition.flow {
        Flow::Loop { max_iterations, .. } => Some(count(*max_iterations)),
        Flow::Single | Flow::Sequential { .. } => None,
    };
    let message = AgentDefinition {
        name: definition.name.clone(),
        display_name: definition.display_name.clone().unwrap_or_default(),
        description: definition.description.clone(),
        input_config: Some(message::InputConfig {
            inputs: inputs.collect(),
        }),
        output_config: output,
        prompt_config: prompt,
        model_config: Some(message::ModelConfig {
            model: model.model.clone().unwrap_or_default(),
            temperature: model.temperature,
            top_p: model.top_p,
            thinking_budget: model.thinking_budget,
            thinking_level: model
                .thinking_level
                .map_or_else(String::new, |level| level.as_str().to_owned()),
            include_thoughts: model.include_thoughts,
            max_output_tokens: model.max_output_tokens.map(count),
            provider: definition.provider.map_or(0, |provider| match provider {
                Provider::Gemini => message::Provider::Gemini.into(),
                Provider::Vertex => message::Provider::Vertex.into(),
            }),
        }),
        tool_config: Some(message::ToolConfig {
            tools: definition.tools.clone(),
        }),
        run_config: Some(message::RunConfig {
            max_time_minutes: minutes.map(count),
            max_turns: definition.limits.max_turns.map(count),
            max_tokens: definition.limits.max_tokens.map(count),
            deadline_seconds: seconds.filter(|_| minutes.is_none()).map(count),
        }),
        process_output: definition.process_output.clone(),
        approval: match definition.approval {
            _ if has_steps => message::Approval::Unspecified,
            Approval::Never => message::Approval::Never,
            Approval::SideEffects => message::Approval::SideEffects,
            Approval::Always => message::Approval::Always,
        }
        .into(),
        flow_type: flow.into(),
        steps: definition.flow.steps().iter().map(written).collect(),
        max_iterations,
        sub_agents: definition.sub_agents.iter().map(called).collect(),
    };
    message.encode_to_vec()
}

fn written(step: &Step) -> message::Step {
    let input: BTreeMap<_, _> = step.input.clone();
    message::Step {
        name: if step.name == step.agent {
            String::new()
        } else {
            step.name.clone()
        },
        agent: step.agent.clone(),
        input,
        timeout_seconds: step.timeout.map(|timeout| count(timeout.as_secs())),
    }
}

fn called(sub_agent: &SubAgent) -> message::SubAgent {
    message::SubAgent {
        agent: sub_agent.agent.clone(),
        timeout_seconds: sub_agent.timeout.map(|timeout| count(timeout.as_secs())),
    }
}

/// The reader accepts no count that exceeds an `int32`.
fn count<T: TryInto<i32>>(value: T) -> i32 {
    value.try_into().unwrap_or(i32::MAX)
}
